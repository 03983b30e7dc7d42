/* Operators on values, with Python's rules: floor division, true division, % on strings, sequences
 * repeated, "in". Integers are 64 bits; what would not fit is refused, never wrapped or rounded. */
#include <math.h>

#include "text/jinja/jinja_int.h"

static const char *const op_names[] = { "+",  "-", "*",  "/", "//", "%",  "** or pow()", "==",
                                        "!=", "<", "<=", ">", ">=", "in", "not in" };

static hr_status unsupported(hr_jinterp *it, hr_jop op, hr_jval a, hr_jval b)
{
    if (a.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, a);
    if (b.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, b);
    if (a.kind == HR_J_BIG || b.kind == HR_J_BIG)
        return hr_jinja_fail(it, "arithmetic beyond 64 bits is not supported");
    return hr_jinja_fail(it, "unsupported operand type(s) for %s: '%s' and '%s'", op_names[op],
                         hr_jinja_type_name(a), hr_jinja_type_name(b));
}

static hr_status overflow(hr_jinterp *it)
{
    return hr_jinja_fail(it, "an integer beyond 64 bits");
}

/* ---- integers ------------------------------------------------------------------------------- */

static hr_status int_divide(hr_jinterp *it, hr_jop op, int64_t a, int64_t b, hr_jval *out)
{
    if (b == 0) return hr_jinja_fail(it, "division by zero");
    if (op == HR_JOP_DIV) {
        *out = hr_jinja_float((double)((long double)a / (long double)b));
        return HR_OK;
    }
    if (b == -1) { /* INT64_MIN / -1 does not fit */
        if (op == HR_JOP_FLOORDIV && a == INT64_MIN) return overflow(it);
        *out = hr_jinja_int(op == HR_JOP_MOD ? 0 : -a);
        return HR_OK;
    }
    int64_t q = a / b, r = a % b;
    if (r != 0 && (r < 0) != (b < 0)) {
        q--;
        r += b;
    }
    *out = hr_jinja_int(op == HR_JOP_MOD ? r : q);
    return HR_OK;
}

static hr_status float_power(hr_jinterp *it, double a, double b, hr_jval *out)
{
    if (a == 0 && b < 0) return hr_jinja_fail(it, "0.0 cannot be raised to a negative power");
    double r = pow(a, b);
    if (isnan(r) && !isnan(a) && !isnan(b))
        return hr_jinja_fail(it, "a complex number is not supported");
    if (isinf(r) && !isinf(a) && !isinf(b))
        return hr_jinja_fail(it, "Numerical result out of range");
    *out = hr_jinja_float(r);
    return HR_OK;
}

static hr_status int_power(hr_jinterp *it, int64_t a, int64_t b, hr_jval *out)
{
    int64_t r = 1;
    if (b < 0) return float_power(it, (double)a, (double)b, out);
    while (b) {
        if ((b & 1) && __builtin_mul_overflow(r, a, &r)) return overflow(it);
        b >>= 1;
        if (b && __builtin_mul_overflow(a, a, &a)) return overflow(it);
    }
    *out = hr_jinja_int(r);
    return HR_OK;
}

static hr_status int_op(hr_jinterp *it, hr_jop op, int64_t a, int64_t b, hr_jval *out)
{
    int64_t r = 0;
    bool over = false;
    if (op == HR_JOP_ADD) over = __builtin_add_overflow(a, b, &r);
    else if (op == HR_JOP_SUB) over = __builtin_sub_overflow(a, b, &r);
    else if (op == HR_JOP_MUL) over = __builtin_mul_overflow(a, b, &r);
    else if (op == HR_JOP_POW) return int_power(it, a, b, out);
    else return int_divide(it, op, a, b, out);
    if (over) return overflow(it);
    *out = hr_jinja_int(r);
    return HR_OK;
}

/* ---- floats --------------------------------------------------------------------------------- */

static hr_status float_divide(hr_jinterp *it, hr_jop op, double a, double b, hr_jval *out)
{
    if (b == 0)
        return hr_jinja_fail(it, op == HR_JOP_DIV        ? "float division by zero"
                                 : op == HR_JOP_FLOORDIV ? "float floor division by zero"
                                                         : "float modulo");
    if (op == HR_JOP_DIV) {
        *out = hr_jinja_float(a / b);
        return HR_OK;
    }
    double mod = fmod(a, b), q = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) {
        mod += b;
        q -= 1;
    } else if (mod == 0) {
        mod = copysign(0.0, b);
    }
    double whole = q != 0 ? floor(q) : copysign(0.0, a / b);
    if (q - whole > 0.5) whole += 1;
    *out = hr_jinja_float(op == HR_JOP_MOD ? mod : whole);
    return HR_OK;
}

static hr_status float_op(hr_jinterp *it, hr_jop op, double a, double b, hr_jval *out)
{
    if (op == HR_JOP_ADD) *out = hr_jinja_float(a + b);
    else if (op == HR_JOP_SUB) *out = hr_jinja_float(a - b);
    else if (op == HR_JOP_MUL) *out = hr_jinja_float(a * b);
    else if (op == HR_JOP_POW) return float_power(it, a, b, out);
    else return float_divide(it, op, a, b, out);
    return HR_OK;
}

static bool as_number(hr_jval v, double *f)
{
    int64_t i;
    if (v.kind == HR_J_FLOAT) {
        *f = v.as.f;
        return true;
    }
    bool yes = hr_jinja_as_int(v, &i);
    *f = (double)i;
    return yes;
}

/* ---- sequences ------------------------------------------------------------------------------ */

static hr_status add_lists(hr_jinterp *it, hr_jval a, hr_jval b, hr_jval *out)
{
    hr_jval *items;
    size_t n = a.as.l->n, m = b.as.l->n;
    HR_TRY(hr_jinja_alloc(it, n + m, sizeof *items, &items));
    if (n) memcpy(items, a.as.l->items, n * sizeof *items);
    if (m) memcpy(items + n, b.as.l->items, m * sizeof *items);
    return hr_jinja_list(it, (hr_jkind)a.kind, items, n + m, out);
}

static hr_status add_strings(hr_jinterp *it, hr_jval a, hr_jval b, hr_jval *out)
{
    hr_jbuilder text = { .it = it, .markup = hr_jinja_is_markup(a) || hr_jinja_is_markup(b) };
    if (text.markup) {
        HR_TRY(hr_jinja_escape(it, a, &a));
        HR_TRY(hr_jinja_escape(it, b, &b));
    }
    hr_jinja_put_str(&text, a.as.s);
    hr_jinja_put_str(&text, b.as.s);
    return hr_jinja_finish(&text, out);
}

static hr_status repeat(hr_jinterp *it, hr_jval v, int64_t times, hr_jval *out)
{
    size_t n = times > 0 ? (size_t)times : 0, total;
    if (v.kind == HR_J_STR) {
        hr_jbuilder b = { .it = it, .markup = v.as.s->markup };
        for (size_t i = 0; v.as.s->n && i < n && !b.status; i++) hr_jinja_put_str(&b, v.as.s);
        return hr_jinja_finish(&b, out);
    }
    hr_jval *items;
    if (!hr_mul_add(n, v.as.l->n, 0, &total)) total = SIZE_MAX / sizeof *items;
    HR_TRY(hr_jinja_alloc(it, total, sizeof *items, &items));
    for (size_t i = 0; i < total; i++) items[i] = v.as.l->items[i % v.as.l->n];
    return hr_jinja_list(it, (hr_jkind)v.kind, items, total, out);
}

static bool is_sequence(hr_jval v)
{
    return v.kind == HR_J_STR || v.kind == HR_J_LIST || v.kind == HR_J_TUPLE;
}

static hr_status sequence_op(hr_jinterp *it, hr_jop op, hr_jval a, hr_jval b, hr_jval *out)
{
    int64_t times;
    if (op == HR_JOP_ADD && a.kind == b.kind && is_sequence(a))
        return a.kind == HR_J_STR ? add_strings(it, a, b, out) : add_lists(it, a, b, out);
    if (op == HR_JOP_MUL && is_sequence(a) && hr_jinja_as_int(b, &times))
        return repeat(it, a, times, out);
    if (op == HR_JOP_MUL && is_sequence(b) && hr_jinja_as_int(a, &times))
        return repeat(it, b, times, out);
    return unsupported(it, op, a, b);
}

hr_status hr_jinja_binary(hr_jinterp *it, hr_jop op, hr_jval a, hr_jval b, hr_jval *out)
{
    int64_t i, j;
    double x, y;
    if (op == HR_JOP_MOD && a.kind == HR_J_STR) return hr_jinja_percent(it, a.as.s, b, out);
    bool ints = hr_jinja_as_int(a, &i) && hr_jinja_as_int(b, &j);
    if (ints) HR_TRY(int_op(it, op, i, j, out));
    else if (as_number(a, &x) && as_number(b, &y)) HR_TRY(float_op(it, op, x, y, out));
    else return sequence_op(it, op, a, b, out);
    out->data = a.data || b.data;
    return HR_OK;
}

static hr_status negate_big(hr_jinterp *it, hr_jval a, hr_jval *out)
{
    hr_jbuilder b = { .it = it };
    bool negative = a.as.s->p[0] == '-';
    if (!negative) hr_jinja_put(&b, HR_STR("-"), a.data);
    hr_jinja_put_slice(&b, a.as.s, negative, a.as.s->n);
    HR_TRY(hr_jinja_finish(&b, out));
    out->kind = HR_J_BIG;
    return HR_OK;
}

hr_status hr_jinja_unary(hr_jinterp *it, hr_jop op, hr_jval a, hr_jval *out)
{
    int64_t i;
    if (a.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, a);
    if (hr_jinja_as_int(a, &i)) {
        if (op == HR_JOP_SUB && __builtin_sub_overflow((int64_t)0, i, &i)) return overflow(it);
        *out = hr_jinja_int(i);
    } else if (a.kind == HR_J_FLOAT) {
        *out = hr_jinja_float(op == HR_JOP_SUB ? -a.as.f : a.as.f);
    } else if (a.kind == HR_J_BIG) {
        *out = a;
        if (op == HR_JOP_SUB) HR_TRY(negate_big(it, a, out));
    } else {
        return hr_jinja_fail(it, "bad operand type for unary %s: '%s'", op_names[op],
                             hr_jinja_type_name(a));
    }
    out->data = a.data;
    return HR_OK;
}

/* ---- comparison ----------------------------------------------------------------------------- */

static hr_status in_string(hr_jinterp *it, hr_jval a, const hr_jstr *s, bool *out)
{
    if (a.kind != HR_J_STR)
        return hr_jinja_fail(it, "'in <string>' requires string as left operand, not %s",
                             hr_jinja_type_name(a));
    HR_TRY(hr_jinja_step(it, s->n / 16));
    *out = hr_str_find(hr_jinja_text(s), hr_jinja_text(a.as.s), 0) != SIZE_MAX;
    return HR_OK;
}

static hr_status in_dict(hr_jinterp *it, hr_jval a, const hr_jdict *d, bool *out)
{
    const hr_jval *found;
    HR_TRY(hr_jinja_dict_get(it, d, a, &found));
    *out = found != NULL;
    return HR_OK;
}

static hr_status contains(hr_jinterp *it, hr_jval a, hr_jval b, bool *out)
{
    hr_jiter i;
    hr_jval item;
    *out = false;
    if (b.kind == HR_J_STR) return in_string(it, a, b.as.s, out);
    if (b.kind == HR_J_DICT) return in_dict(it, a, b.as.d, out);
    if (b.kind == HR_J_VIEW && b.as.v->kind == HR_JVIEW_KEYS)
        return in_dict(it, a, b.as.v->dict, out);
    if (!hr_jinja_iterable(b))
        return hr_jinja_fail(it, "argument of type '%s' is not iterable", hr_jinja_type_name(b));
    HR_TRY(hr_jinja_iterate(it, b, &i));
    for (bool more = true; !*out;) {
        HR_TRY(hr_jinja_next(it, &i, &item, &more));
        if (!more) break;
        HR_TRY(hr_jinja_equal(it, item, a, out));
    }
    return HR_OK;
}

hr_status hr_jinja_compare(hr_jinterp *it, hr_jop op, hr_jval a, hr_jval b, bool *out)
{
    int order;
    *out = false;
    if (op == HR_JOP_EQ || op == HR_JOP_NE) {
        HR_TRY(hr_jinja_equal(it, a, b, out));
        *out = *out == (op == HR_JOP_EQ);
        return HR_OK;
    }
    if (op == HR_JOP_IN || op == HR_JOP_NOTIN) {
        HR_TRY(contains(it, a, b, out));
        *out = *out == (op == HR_JOP_IN);
        return HR_OK;
    }
    HR_TRY(hr_jinja_order(it, a, b, op_names[op], &order));
    if (order == 2) return HR_OK; /* NaN */
    *out = op == HR_JOP_LT   ? order < 0
           : op == HR_JOP_LE ? order <= 0
           : op == HR_JOP_GT ? order > 0
                             : order >= 0;
    return HR_OK;
}
