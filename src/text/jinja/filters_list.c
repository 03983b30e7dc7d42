/* Filters on lists, dictionaries and numbers. Items pass through with their marks; numbers that
 * are counted (length) are the template's, numbers that are computed from data are data. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/jinja/jinja_int.h"

/* ---- ends, lengths -------------------------------------------------------------------------- */

static hr_status filter_length(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    size_t n;
    (void)args;
    if (self.kind == HR_J_LOOP) return hr_jinja_loop_attr(it, self.as.loop, HR_STR("length"), out);
    if (!hr_jinja_length(self, &n))
        return hr_jinja_fail(it, "object of type '%s' has no len()", hr_jinja_type_name(self));
    *out = hr_jinja_int((int64_t)n);
    return HR_OK;
}

static hr_status filter_first(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jiter i;
    bool more;
    (void)args;
    HR_TRY(hr_jinja_iterate(it, self, &i));
    HR_TRY(hr_jinja_next(it, &i, out, &more));
    return more ? HR_OK : hr_jinja_hint(it, "No first item, sequence was empty.", out);
}

static hr_status not_reversible(hr_jinterp *it, hr_jval v)
{
    return hr_jinja_fail(it, "'%s' object is not reversible", hr_jinja_type_name(v));
}

static bool is_reversible(hr_jval v)
{
    return v.kind == HR_J_STR || v.kind == HR_J_LIST || v.kind == HR_J_TUPLE ||
           v.kind == HR_J_DICT || v.kind == HR_J_RANGE || v.kind == HR_J_VIEW ||
           v.kind == HR_J_UNDEFINED;
}

static hr_status filter_last(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *items;
    size_t n;
    (void)args;
    if (!is_reversible(self)) return not_reversible(it, self);
    HR_TRY(hr_jinja_collect(it, self, &items, &n));
    if (!n) return hr_jinja_hint(it, "No last item, sequence was empty.", out);
    *out = items[n - 1];
    return HR_OK;
}

static hr_status filter_list(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *items;
    size_t n;
    (void)args;
    HR_TRY(hr_jinja_collect(it, self, &items, &n));
    return hr_jinja_list(it, HR_J_LIST, items, n, out);
}

static hr_status filter_reverse(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *items;
    hr_jval *turned;
    size_t n;
    (void)args;
    if (self.kind == HR_J_STR)
        return hr_jinja_slice(it, self, (hr_jval){ 0 }, (hr_jval){ 0 }, hr_jinja_int(-1), out);
    if (!hr_jinja_iterable(self)) return hr_jinja_fail(it, "argument must be iterable");
    HR_TRY(hr_jinja_collect(it, self, &items, &n));
    HR_TRY(hr_jinja_alloc(it, n, sizeof *turned, &turned));
    for (size_t i = 0; i < n; i++) turned[i] = items[n - 1 - i];
    return is_reversible(self) ? hr_jinja_generator(it, turned, n, out)
                               : hr_jinja_list(it, HR_J_LIST, turned, n, out);
}

static hr_status filter_items(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *items = NULL;
    size_t n = 0;
    (void)args;
    if (self.kind != HR_J_UNDEFINED) {
        if (self.kind != HR_J_DICT)
            return hr_jinja_fail(it, "Can only get item pairs from a mapping.");
        hr_jview view = { self.as.d, HR_JVIEW_ITEMS };
        HR_TRY(hr_jinja_collect(it, (hr_jval){ .kind = HR_J_VIEW, .as.v = &view }, &items, &n));
    }
    return hr_jinja_generator(it, items, n, out);
}

/* Arguments: separator, attribute. */
static hr_status filter_join(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *items;
    size_t n;
    hr_jval separator = args->pos[0], *picked;
    if (separator.kind == HR_J_MISSING) HR_TRY(hr_jinja_string(it, HR_STR(""), false, &separator));
    HR_TRY(hr_jinja_to_str(it, separator, &separator));
    HR_TRY(hr_jinja_collect(it, self, &items, &n));
    if (args->pos[1].kind > HR_J_NONE) {
        HR_TRY(hr_jinja_alloc(it, n, sizeof *picked, &picked));
        for (size_t i = 0; i < n; i++)
            HR_TRY(hr_jinja_attr_path(it, items[i], args->pos[1], &picked[i]));
        items = picked;
    }
    return hr_jinja_join(it, separator.as.s, items, n, out);
}

/* ---- portions ------------------------------------------------------------------------------- */

typedef struct portions {
    hr_jinterp *it;
    const hr_jval *items;
    size_t n;
    int64_t size;
    hr_jval fill;
    bool has_fill;
} portions;

/* Arguments: how many, what to fill up with. */
static hr_status portions_init(hr_jinterp *it, hr_jval self, const hr_jargs *args, portions *p)
{
    *p = (portions){ .it = it, .fill = args->pos[1], .has_fill = args->pos[1].kind > HR_J_NONE };
    if (!hr_jinja_as_int(args->pos[0], &p->size) || p->size <= 0)
        return hr_jinja_fail(it, "batch and slice take a positive number");
    return hr_jinja_collect(it, self, &p->items, &p->n);
}

static hr_status portion(const portions *p, size_t from, size_t to, size_t fill, hr_jval *out)
{
    hr_jval *items;
    size_t n = to - from;
    HR_TRY(hr_jinja_alloc(p->it, n + fill, sizeof *items, &items));
    if (n) memcpy(items, p->items + from, n * sizeof *items);
    for (size_t i = 0; i < fill; i++) items[n + i] = p->fill;
    return hr_jinja_list(p->it, HR_J_LIST, items, n + fill, out);
}

static hr_status filter_batch(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    portions p;
    hr_jval *lists;
    HR_TRY(portions_init(it, self, args, &p));
    size_t size = (size_t)p.size, n = p.n / size + (p.n % size != 0);
    HR_TRY(hr_jinja_alloc(it, n, sizeof *lists, &lists));
    for (size_t i = 0; i < n; i++) {
        size_t from = i * size, to = p.n - from < size ? p.n : from + size;
        size_t fill = p.has_fill ? size - (to - from) : 0;
        HR_TRY(portion(&p, from, to, fill, &lists[i]));
    }
    return hr_jinja_generator(it, lists, n, out);
}

static hr_status filter_slice(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    portions p;
    hr_jval *lists;
    HR_TRY(portions_init(it, self, args, &p));
    size_t n = (size_t)p.size, each = p.n / n, longer = p.n % n, at = 0;
    HR_TRY(hr_jinja_alloc(it, n, sizeof *lists, &lists));
    for (size_t i = 0; i < n; i++) {
        size_t to = at + each + (i < longer);
        HR_TRY(portion(&p, at, to, p.has_fill && i >= longer ? 1 : 0, &lists[i]));
        at = to;
    }
    return hr_jinja_generator(it, lists, n, out);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static hr_status filter_abs(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    int64_t i;
    bool negative;
    (void)args;
    if (self.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, self);
    if (self.kind == HR_J_FLOAT) negative = signbit(self.as.f) != 0;
    else if (self.kind == HR_J_BIG) negative = self.as.s->p[0] == '-';
    else if (hr_jinja_as_int(self, &i)) negative = i < 0;
    else return hr_jinja_fail(it, "bad operand type for abs(): '%s'", hr_jinja_type_name(self));
    return hr_jinja_unary(it, negative ? HR_JOP_SUB : HR_JOP_ADD, self, out);
}

static hr_status truncate_float(hr_jinterp *it, double f, hr_jval *out)
{
    if (isinf(f)) return hr_jinja_fail(it, "cannot convert float infinity to integer");
    if (!(fabs(f) < 9.2e18)) return hr_jinja_fail(it, "an integer beyond 64 bits");
    *out = hr_jinja_int((int64_t)f);
    return HR_OK;
}

/* Arguments: default, base. */
static hr_status filter_int(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    int64_t base = 10, i;
    double f = NAN;
    *out = args->pos[0].kind ? args->pos[0] : hr_jinja_int(0);
    if (args->pos[1].kind && !hr_jinja_as_int(args->pos[1], &base))
        return hr_jinja_fail(it, "int: base must be a number");
    if (self.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, self);
    if (self.kind == HR_J_STR) {
        if (hr_jinja_parse_int(hr_jinja_text(self.as.s), (int)base, &i)) {
            *out = hr_jinja_int(i);
            out->data = self.as.s->n_marks > 0;
            return HR_OK;
        }
        if (!hr_jinja_parse_float(hr_jinja_text(self.as.s), &f) || isinf(f) || isnan(f))
            return HR_OK;
        HR_TRY(truncate_float(it, f, out));
        out->data = self.as.s->n_marks > 0;
        return HR_OK;
    }
    if (self.kind == HR_J_BIG) *out = self;
    if (hr_jinja_as_int(self, &i)) *out = hr_jinja_int(i);
    if (self.kind == HR_J_FLOAT && !isnan(self.as.f)) HR_TRY(truncate_float(it, self.as.f, out));
    if (out->kind == HR_J_INT) out->data = out->data || self.data;
    return HR_OK;
}

static hr_status filter_float(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    int64_t i;
    double f;
    *out = args->pos[0].kind ? args->pos[0] : hr_jinja_float(0);
    if (self.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, self);
    if (self.kind == HR_J_FLOAT) *out = self;
    else if (hr_jinja_as_int(self, &i)) *out = hr_jinja_float((double)i);
    else if ((self.kind == HR_J_STR || self.kind == HR_J_BIG) &&
             hr_jinja_parse_float(hr_jinja_text(self.as.s), &f)) {
        *out = hr_jinja_float(f);
        out->data = self.as.s->n_marks > 0;
    }
    out->data = out->data || self.data;
    return HR_OK;
}

/* Python's round(): to the nearest, exact halves to even; an int stays an int. */
static hr_status round_common(hr_jinterp *it, hr_jval v, int64_t digits, hr_jval *out)
{
    char text[400];
    int64_t i;
    *out = v;
    if (hr_jinja_as_int(v, &i)) {
        *out = hr_jinja_int(i);
        if (digits >= 0) return HR_OK;
        if (digits < -18) {
            *out = hr_jinja_int(0);
            return HR_OK;
        }
        int64_t unit = 1;
        for (; digits < 0; digits++) unit *= 10;
        int64_t rest = ((i % unit) + unit) % unit, low = i - rest;
        bool up = rest * 2 > unit || (rest * 2 == unit && (low / unit) % 2 != 0);
        return hr_jinja_binary(it, HR_JOP_ADD, hr_jinja_int(low), hr_jinja_int(up ? unit : 0), out);
    }
    if (isnan(v.as.f) || isinf(v.as.f) || digits > 300) return HR_OK;
    if (digits < 0) {
        double unit = pow(10, (double)-digits);
        out->as.f = rint(v.as.f / unit) * unit;
        return HR_OK;
    }
    snprintf(text, sizeof text, "%.*f", (int)digits, v.as.f);
    if (strlen(text) < sizeof text - 1) out->as.f = strtod(text, NULL);
    return HR_OK;
}

static hr_status round_towards(hr_jinterp *it, hr_jval v, int64_t digits, bool up, hr_jval *out)
{
    hr_jval unit, scaled;
    HR_TRY(hr_jinja_binary(it, HR_JOP_POW, hr_jinja_int(10), hr_jinja_int(digits), &unit));
    HR_TRY(hr_jinja_binary(it, HR_JOP_MUL, v, unit, &scaled));
    if (scaled.kind == HR_J_FLOAT)
        HR_TRY(truncate_float(it, up ? ceil(scaled.as.f) : floor(scaled.as.f), &scaled));
    return hr_jinja_binary(it, HR_JOP_DIV, scaled, unit, out);
}

/* Arguments: precision, method. */
static hr_status filter_round(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    int64_t digits = 0, i;
    hr_str method = HR_STR("common");
    if (args->pos[0].kind && !hr_jinja_as_int(args->pos[0], &digits))
        return hr_jinja_fail(it, "round: precision must be a number");
    if (args->pos[1].kind == HR_J_STR) method = hr_jinja_text(args->pos[1].as.s);
    bool up = hr_str_eq_c(method, "ceil"), down = hr_str_eq_c(method, "floor");
    if ((args->pos[1].kind && args->pos[1].kind != HR_J_STR) ||
        (!up && !down && !hr_str_eq_c(method, "common")))
        return hr_jinja_fail(it, "method must be common, ceil or floor");
    if (self.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, self);
    *out = self;
    if (self.kind == HR_J_BIG && !up && !down && digits >= 0) return HR_OK;
    if (self.kind != HR_J_FLOAT && !hr_jinja_as_int(self, &i))
        return hr_jinja_fail(it, "type %s doesn't define __round__ method",
                             hr_jinja_type_name(self));
    HR_TRY(up || down ? round_towards(it, self, digits, up, out)
                      : round_common(it, self, digits, out));
    out->data = self.data;
    return HR_OK;
}

/* Arguments: attribute, start. */
static hr_status filter_sum(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *items;
    size_t n;
    *out = args->pos[1].kind ? args->pos[1] : hr_jinja_int(0);
    if (out->kind == HR_J_STR)
        return hr_jinja_fail(it, "sum() can't sum strings [use ''.join(seq) instead]");
    HR_TRY(hr_jinja_collect(it, self, &items, &n));
    for (size_t i = 0; i < n; i++) {
        hr_jval v;
        HR_TRY(hr_jinja_attr_path(it, items[i], args->pos[0], &v));
        HR_TRY(hr_jinja_binary(it, HR_JOP_ADD, *out, v, out));
    }
    return HR_OK;
}

/* ---- defaults, attributes ------------------------------------------------------------------- */

/* Arguments: default_value, boolean. */
static hr_status filter_default(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    bool boolean, truth;
    HR_TRY(hr_jinja_truth(it, args->pos[1], &boolean));
    HR_TRY(hr_jinja_truth(it, self, &truth));
    *out = self;
    if (self.kind != HR_J_UNDEFINED && (!boolean || truth)) return HR_OK;
    if (!args->pos[0].kind) return hr_jinja_string(it, HR_STR(""), false, out);
    *out = args->pos[0];
    return HR_OK;
}

/* Like x.name, but never the item of that name. */
static hr_status filter_attr(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    if (args->pos[0].kind != HR_J_STR)
        return hr_jinja_fail(it, "attribute name must be string, not '%s'",
                             hr_jinja_type_name(args->pos[0]));
    if (self.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, self);
    hr_str name = hr_jinja_text(args->pos[0].as.s);
    if (self.kind != HR_J_DICT || hr_jinja_find_method(self, name))
        return hr_jinja_getattr(it, self, name, out);
    return hr_jinja_undefined(
        it, (hr_jundefined){ .why = HR_JU_ATTRIBUTE, .name = name, .of = self }, out);
}

const hr_jfilter hr_jinja_list_filters[] = {
    { { "abs", "", 0, filter_abs } },
    { { "attr", "name", 1, filter_attr } },
    { { "batch", "linecount fill_with", 1, filter_batch } },
    { { "count", "", 0, filter_length } },
    { { "d", "default_value boolean", 0, filter_default } },
    { { "default", "default_value boolean", 0, filter_default } },
    { { "first", "", 0, filter_first } },
    { { "float", "default", 0, filter_float } },
    { { "int", "default base", 0, filter_int } },
    { { "items", "", 0, filter_items } },
    { { "join", "d attribute", 0, filter_join } },
    { { "last", "", 0, filter_last } },
    { { "length", "", 0, filter_length } },
    { { "list", "", 0, filter_list } },
    { { "reverse", "", 0, filter_reverse } },
    { { "round", "precision method", 0, filter_round } },
    { { "slice", "slices fill_with", 1, filter_slice } },
    { { "sum", "attribute start", 0, filter_sum } },
    { { 0 } },
};
