/* Values: truth, equality, order, length and iteration, as Python has them.
 *
 * Recursive walks (equality of nested lists) go through hr_jinja_enter, so that a list nested a
 * million deep is a status and not a stack overflow. Lives in the rendering's arena. */
#include <math.h>
#include <stdio.h>

#include "base/utf8.h"
#include "text/jinja/jinja_int.h"

hr_status hr_jinja_undefined(hr_jinterp *it, hr_jundefined why, hr_jval *out)
{
    hr_jundefined *u;
    HR_TRY(hr_jinja_alloc(it, 1, sizeof *u, &u));
    *u = why;
    *out = (hr_jval){ .kind = HR_J_UNDEFINED, .as.u = u };
    return HR_OK;
}

hr_status hr_jinja_hint(hr_jinterp *it, const char *sentence, hr_jval *out)
{
    return hr_jinja_undefined(it, (hr_jundefined){ .why = HR_JU_HINT, .name = hr_str_c(sentence) },
                              out);
}

hr_status hr_jinja_list(hr_jinterp *it, hr_jkind kind, const hr_jval *items, size_t n, hr_jval *out)
{
    hr_jlist *l;
    HR_TRY(hr_jinja_alloc(it, 1, sizeof *l, &l));
    *l = (hr_jlist){ .items = items, .n = n };
    *out = (hr_jval){ .kind = (uint8_t)kind, .as.l = l };
    return HR_OK;
}

hr_status hr_jinja_pair(hr_jinterp *it, hr_jval a, hr_jval b, hr_jval *out)
{
    hr_jval *items;
    HR_TRY(hr_jinja_alloc(it, 2, sizeof *items, &items));
    items[0] = a;
    items[1] = b;
    return hr_jinja_list(it, HR_J_TUPLE, items, 2, out);
}

hr_status hr_jinja_generator(hr_jinterp *it, const hr_jval *items, size_t n, hr_jval *out)
{
    hr_jgenerator *g;
    HR_TRY(hr_jinja_alloc(it, 1, sizeof *g, &g));
    *g = (hr_jgenerator){ .items = items, .n = n };
    *out = (hr_jval){ .kind = HR_J_GENERATOR, .as.g = g };
    return HR_OK;
}

const char *hr_jinja_type_name(hr_jval v)
{
    static const char *const views[] = { "dict_keys", "dict_values", "dict_items" };
    switch ((hr_jkind)v.kind) {
    case HR_J_MISSING:
    case HR_J_UNDEFINED: return "Undefined";
    case HR_J_NONE: return "NoneType";
    case HR_J_BOOL: return "bool";
    case HR_J_INT:
    case HR_J_BIG: return "int";
    case HR_J_FLOAT: return "float";
    case HR_J_STR: return v.as.s->markup ? "Markup" : "str";
    case HR_J_LIST: return "list";
    case HR_J_TUPLE: return "tuple";
    case HR_J_DICT: return "dict";
    case HR_J_RANGE: return "range";
    case HR_J_GENERATOR: return "generator";
    case HR_J_VIEW: return views[v.as.v->kind];
    case HR_J_FUNCTION: return "function";
    case HR_J_MACRO: return "Macro";
    case HR_J_NAMESPACE: return "Namespace";
    case HR_J_LOOP: return "LoopContext";
    case HR_J_CYCLER: return "Cycler";
    case HR_J_JOINER: return "Joiner";
    }
    return "object";
}

/* "'dict object' has no attribute" speaks of objects; None speaks for itself. */
#define OBJECT_NAME 64

static void object_name(hr_jval v, char out[OBJECT_NAME])
{
    static const char *const rooms[] = { [HR_J_MACRO] = "jinja2.runtime.",
                                         [HR_J_LOOP] = "jinja2.runtime.",
                                         [HR_J_NAMESPACE] = "jinja2.utils.",
                                         [HR_J_CYCLER] = "jinja2.utils.",
                                         [HR_J_JOINER] = "jinja2.utils." };
    const char *room = rooms[v.kind], *name = hr_jinja_type_name(v);
    if (hr_jinja_is_markup(v)) room = "markupsafe.";
    if (v.kind == HR_J_FUNCTION && hr_jinja_is_type(v)) name = "type";
    if (v.kind == HR_J_FUNCTION && v.as.fn->self.kind != HR_J_NONE)
        name = "builtin_function_or_method";
    if (v.kind == HR_J_TUPLE && v.as.l->group) {
        room = "jinja2.filters.";
        name = "_GroupTuple";
    }
    if (v.kind == HR_J_NONE) snprintf(out, OBJECT_NAME, "None");
    else snprintf(out, OBJECT_NAME, "%s%s object", room ? room : "", name);
}

static hr_status fail_element(hr_jinterp *it, const hr_jundefined *u, const char *object)
{
    hr_jbuilder b = { .it = it };
    hr_jval text;
    HR_TRY(hr_jinja_repr(&b, u->index));
    HR_TRY(hr_jinja_finish(&b, &text));
    return hr_jinja_fail(it, "%s has no element %.*s", object,
                         HR_STR_ARG(hr_jinja_text(text.as.s)));
}

hr_status hr_jinja_fail_undefined(hr_jinterp *it, hr_jval v)
{
    const hr_jundefined *u = v.as.u;
    char object[OBJECT_NAME];
    object_name(u->of, object);
    switch (u->why) {
    case HR_JU_NAME: return hr_jinja_fail(it, "'%.*s' is undefined", HR_STR_ARG(u->name));
    case HR_JU_ATTRIBUTE:
        return hr_jinja_fail(it, "'%s' has no attribute '%.*s'", object, HR_STR_ARG(u->name));
    case HR_JU_UNSAFE:
        return hr_jinja_fail(it, "access to attribute '%.*s' of '%s' object is unsafe.",
                             HR_STR_ARG(u->name), hr_jinja_type_name(u->of));
    case HR_JU_ELEMENT: return fail_element(it, u, object);
    case HR_JU_HINT: break;
    }
    return hr_jinja_fail(it, "%.*s", HR_STR_ARG(u->name));
}

/* ---- truth and length ----------------------------------------------------------------------- */

bool hr_jinja_length(hr_jval v, size_t *out)
{
    *out = 0;
    switch ((hr_jkind)v.kind) {
    case HR_J_UNDEFINED: return true;
    case HR_J_STR: *out = v.as.s->chars; return true;
    case HR_J_LIST:
    case HR_J_TUPLE: *out = v.as.l->n; return true;
    case HR_J_DICT: *out = v.as.d->n; return true;
    case HR_J_RANGE: *out = v.as.r->n; return true;
    case HR_J_VIEW: *out = v.as.v->dict->n; return true;
    case HR_J_MISSING:
    case HR_J_NONE:
    case HR_J_BOOL:
    case HR_J_INT:
    case HR_J_BIG:
    case HR_J_FLOAT:
    case HR_J_GENERATOR:
    case HR_J_FUNCTION:
    case HR_J_MACRO:
    case HR_J_NAMESPACE:
    case HR_J_LOOP:
    case HR_J_CYCLER:
    case HR_J_JOINER: break;
    }
    return false;
}

hr_status hr_jinja_truth(hr_jinterp *it, hr_jval v, bool *out)
{
    size_t n;
    (void)it;
    *out = true;
    if (v.kind == HR_J_MISSING || v.kind == HR_J_NONE) *out = false;
    else if (v.kind == HR_J_BOOL) *out = v.as.b;
    else if (v.kind == HR_J_INT) *out = v.as.i != 0;
    else if (v.kind == HR_J_FLOAT) *out = v.as.f != 0; /* NaN is true */
    else if (v.kind == HR_J_LOOP) *out = true;         /* inside its own loop there is an item */
    else if (hr_jinja_length(v, &n)) *out = n > 0;
    return HR_OK;
}

/* ---- equality and order --------------------------------------------------------------------- */

static bool is_number(hr_jval v)
{
    return v.kind == HR_J_BOOL || v.kind == HR_J_INT || v.kind == HR_J_FLOAT || v.kind == HR_J_BIG;
}

/* a, b are numbers. Integers beyond 64 bits come after (or before) all others. */
static int order_numbers(hr_jval a, hr_jval b)
{
    int64_t i, j;
    bool ai = hr_jinja_as_int(a, &i), bi = hr_jinja_as_int(b, &j);
    if (ai && bi) return i < j ? -1 : i > j;
    if (a.kind == HR_J_BIG && b.kind == HR_J_BIG) {
        const hr_jstr *s = a.as.s, *t = b.as.s;
        int sign = s->p[0] == '-' ? -1 : 1;
        if (sign != (t->p[0] == '-' ? -1 : 1)) return sign;
        if (s->n != t->n) return s->n < t->n ? -sign : sign;
        int c = memcmp(s->p, t->p, s->n);
        return c < 0 ? -sign : c > 0 ? sign : 0;
    }
    if (a.kind == HR_J_BIG && b.kind != HR_J_FLOAT) return a.as.s->p[0] == '-' ? -1 : 1;
    if (b.kind == HR_J_BIG && a.kind != HR_J_FLOAT) return b.as.s->p[0] == '-' ? 1 : -1;
    double x = a.kind == HR_J_FLOAT ? a.as.f : (double)i,
           y = b.kind == HR_J_FLOAT ? b.as.f : (double)j;
    double big;
    if (a.kind == HR_J_BIG) x = hr_str_to_f64(hr_jinja_text(a.as.s), &big) ? HUGE_VAL : big;
    if (b.kind == HR_J_BIG) y = hr_str_to_f64(hr_jinja_text(b.as.s), &big) ? HUGE_VAL : big;
    if (isnan(x) || isnan(y)) return 2;
    if (ai && fabs(y) < 9.2e18 && y == floor(y)) { /* exact where a double would round */
        int64_t whole = (int64_t)y;
        return i < whole ? -1 : i > whole;
    }
    if (bi && fabs(x) < 9.2e18 && x == floor(x)) {
        int64_t whole = (int64_t)x;
        return whole < j ? -1 : whole > j;
    }
    return x < y ? -1 : x > y;
}

static hr_status equal_lists(hr_jinterp *it, const hr_jlist *a, const hr_jlist *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++)
        HR_TRY(hr_jinja_equal(it, a->items[i], b->items[i], out));
    return HR_OK;
}

static hr_status equal_dicts(hr_jinterp *it, const hr_jdict *a, const hr_jdict *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        const hr_jval *other;
        HR_TRY(hr_jinja_dict_get(it, b, a->entries[i].key, &other));
        *out = other != NULL;
        if (other) HR_TRY(hr_jinja_equal(it, a->entries[i].value, *other, out));
    }
    return HR_OK;
}

static bool equal_ranges(const hr_jrange *a, const hr_jrange *b)
{
    if (a->n != b->n || a->n == 0) return a->n == b->n;
    return a->start == b->start && (a->n == 1 || a->step == b->step);
}

static hr_status equal_same_kind(hr_jinterp *it, hr_jval a, hr_jval b, bool *out)
{
    *out = false;
    switch ((hr_jkind)a.kind) {
    case HR_J_STR:
        HR_TRY(hr_jinja_step(it, a.as.s->n == b.as.s->n ? a.as.s->n / 16 : 0));
        *out = hr_str_eq(hr_jinja_text(a.as.s), hr_jinja_text(b.as.s));
        return HR_OK;
    case HR_J_LIST:
    case HR_J_TUPLE: return equal_lists(it, a.as.l, b.as.l, out);
    case HR_J_DICT: return equal_dicts(it, a.as.d, b.as.d, out);
    case HR_J_RANGE: *out = equal_ranges(a.as.r, b.as.r); return HR_OK;
    case HR_J_VIEW: /* keys compare as sets; values and items only with themselves */
        if (a.as.v->kind != HR_JVIEW_KEYS || b.as.v->kind != HR_JVIEW_KEYS) {
            *out = a.as.v == b.as.v;
            return HR_OK;
        }
        *out = a.as.v->dict->n == b.as.v->dict->n;
        for (size_t i = 0; *out && i < a.as.v->dict->n; i++) {
            const hr_jval *other;
            HR_TRY(hr_jinja_dict_get(it, b.as.v->dict, a.as.v->dict->entries[i].key, &other));
            *out = other != NULL;
        }
        return HR_OK;
    case HR_J_MISSING:
    case HR_J_UNDEFINED:
    case HR_J_NONE: *out = true; return HR_OK;
    case HR_J_FUNCTION:
        *out = a.as.fn->function == b.as.fn->function && a.as.fn->self.kind == HR_J_NONE;
        return HR_OK;
    case HR_J_GENERATOR:
    case HR_J_CYCLER:
    case HR_J_JOINER: *out = a.as.g == b.as.g; return HR_OK;
    case HR_J_MACRO: *out = a.as.macro == b.as.macro; return HR_OK;
    case HR_J_NAMESPACE: *out = a.as.d == b.as.d; return HR_OK;
    case HR_J_LOOP: *out = a.as.loop == b.as.loop; return HR_OK;
    case HR_J_BOOL:
    case HR_J_INT:
    case HR_J_BIG:
    case HR_J_FLOAT: break; /* numbers: seen to by the caller */
    }
    return HR_OK;
}

hr_status hr_jinja_equal(hr_jinterp *it, hr_jval a, hr_jval b, bool *out)
{
    *out = false;
    if (is_number(a) && is_number(b)) {
        *out = order_numbers(a, b) == 0;
        return HR_OK;
    }
    if (a.kind != b.kind) return HR_OK;
    HR_TRY(hr_jinja_step(it, 1));
    if (a.kind == HR_J_STR && a.as.s->n != b.as.s->n) return HR_OK;
    HR_TRY(hr_jinja_enter(it));
    hr_status st = equal_same_kind(it, a, b, out);
    hr_jinja_leave(it);
    return st;
}

static hr_status order_lists(hr_jinterp *it, const hr_jlist *a, const hr_jlist *b, const char *op,
                             int *out)
{
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n; i++) {
        bool same;
        HR_TRY(hr_jinja_equal(it, a->items[i], b->items[i], &same));
        if (!same) return hr_jinja_order(it, a->items[i], b->items[i], op, out);
    }
    *out = a->n < b->n ? -1 : a->n > b->n;
    return HR_OK;
}

hr_status hr_jinja_order(hr_jinterp *it, hr_jval a, hr_jval b, const char *op, int *out)
{
    *out = 0;
    if (a.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, a);
    if (b.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, b);
    HR_TRY(hr_jinja_step(it, 1));
    if (is_number(a) && is_number(b)) {
        *out = order_numbers(a, b);
        return HR_OK;
    }
    if (a.kind == HR_J_STR && b.kind == HR_J_STR) { /* UTF-8 sorts as code points do */
        hr_str s = hr_jinja_text(a.as.s), t = hr_jinja_text(b.as.s);
        size_t n = s.n < t.n ? s.n : t.n;
        HR_TRY(hr_jinja_step(it, n / 16));
        int c = n ? memcmp(s.p, t.p, n) : 0;
        *out = c < 0 ? -1 : c > 0 ? 1 : s.n < t.n ? -1 : s.n > t.n;
        return HR_OK;
    }
    if (a.kind == b.kind && (a.kind == HR_J_LIST || a.kind == HR_J_TUPLE)) {
        HR_TRY(hr_jinja_enter(it));
        hr_status st = order_lists(it, a.as.l, b.as.l, op, out);
        hr_jinja_leave(it);
        return st;
    }
    return hr_jinja_fail(it, "'%s' not supported between instances of '%s' and '%s'", op,
                         hr_jinja_type_name(a), hr_jinja_type_name(b));
}

/* ---- iteration ------------------------------------------------------------------------------ */

bool hr_jinja_iterable(hr_jval v)
{
    size_t n;
    return v.kind == HR_J_GENERATOR || v.kind == HR_J_LOOP || hr_jinja_length(v, &n);
}

hr_status hr_jinja_iterate(hr_jinterp *it, hr_jval v, hr_jiter *out)
{
    *out = (hr_jiter){ .of = v };
    if (v.kind == HR_J_LOOP) return hr_jinja_fail(it, "a loop cannot be walked by a template");
    if (hr_jinja_iterable(v)) return HR_OK;
    return hr_jinja_fail(it, "'%s' object is not iterable", hr_jinja_type_name(v));
}

static hr_status next_char(hr_jinterp *it, hr_jiter *i, hr_jval *out)
{
    const hr_jstr *s = i->of.as.s;
    size_t from = i->byte;
    do i->byte++;
    while (i->byte < s->n && ((unsigned char)s->p[i->byte] & 0xC0) == 0x80);
    i->at++;
    return hr_jinja_substring(it, s, from, i->byte, out);
}

static hr_status next_of_view(hr_jinterp *it, const hr_jview *v, size_t at, hr_jval *out)
{
    const hr_jentry *e = &v->dict->entries[at];
    if (v->kind == HR_JVIEW_ITEMS) return hr_jinja_pair(it, e->key, e->value, out);
    *out = v->kind == HR_JVIEW_KEYS ? e->key : e->value;
    return HR_OK;
}

hr_status hr_jinja_next(hr_jinterp *it, hr_jiter *i, hr_jval *out, bool *more)
{
    size_t n;
    hr_jval v = i->of;
    HR_TRY(hr_jinja_step(it, 1));
    if (v.kind == HR_J_GENERATOR) {
        *more = v.as.g->at < v.as.g->n;
        if (*more) *out = v.as.g->items[v.as.g->at++];
        return HR_OK;
    }
    *more = hr_jinja_length(v, &n) && i->at < n;
    if (!*more) return HR_OK;
    if (v.kind == HR_J_STR) return next_char(it, i, out);
    size_t at = i->at++;
    if (v.kind == HR_J_VIEW) return next_of_view(it, v.as.v, at, out);
    if (v.kind == HR_J_DICT) *out = v.as.d->entries[at].key;
    else if (v.kind == HR_J_RANGE) *out = hr_jinja_int(v.as.r->start + (int64_t)at * v.as.r->step);
    else *out = v.as.l->items[at];
    return HR_OK;
}

hr_status hr_jinja_collect(hr_jinterp *it, hr_jval v, const hr_jval **items, size_t *n)
{
    hr_jiter i;
    size_t capacity;
    hr_jval *all;
    *n = 0;
    if (v.kind == HR_J_LIST || v.kind == HR_J_TUPLE) {
        *items = v.as.l->items;
        *n = v.as.l->n;
        return HR_OK;
    }
    HR_TRY(hr_jinja_iterate(it, v, &i));
    if (v.kind == HR_J_GENERATOR) {
        *items = v.as.g->items + v.as.g->at;
        *n = v.as.g->n - v.as.g->at;
        v.as.g->at = v.as.g->n;
        return HR_OK;
    }
    hr_jinja_length(v, &capacity);
    HR_TRY(hr_jinja_alloc(it, capacity, sizeof *all, &all));
    *items = all;
    for (bool more = true;;) {
        hr_jval item;
        HR_TRY(hr_jinja_next(it, &i, &item, &more));
        if (!more) return HR_OK;
        all[(*n)++] = item;
    }
}
