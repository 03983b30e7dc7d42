/* Attributes, items and slices, as jinja2's sandbox looks them up.
 *
 * x.name asks for an attribute first (methods, loop and namespace fields) and for the item second;
 * x["name"] the other way round. What is missing is undefined, not an error; what the sandbox
 * forbids (underscores, methods that would change a list or dict) is undefined with a reason. */
#include "text/jinja/jinja_int.h"

static hr_status missing_attr(hr_jinterp *it, hr_jval of, hr_str name, hr_jval *out)
{
    hr_jundefined why = { .why = HR_JU_ATTRIBUTE, .name = name, .of = of };
    return hr_jinja_undefined(it, why, out);
}

static bool changes(hr_jval of, hr_str name)
{
    static const char *const list[] = { "append", "clear", "pop",    "reverse",
                                        "insert", "sort",  "extend", "remove" };
    static const char *const dict[] = { "clear", "pop", "popitem", "setdefault", "update" };
    for (size_t i = 0; of.kind == HR_J_LIST && i < sizeof list / sizeof *list; i++)
        if (hr_str_eq_c(name, list[i])) return true;
    for (size_t i = 0; of.kind == HR_J_DICT && i < sizeof dict / sizeof *dict; i++)
        if (hr_str_eq_c(name, dict[i])) return true;
    return false;
}

static hr_status macro_attr(hr_jinterp *it, const hr_jmacro *m, hr_str name, hr_jval *out)
{
    if (hr_str_eq_c(name, "name")) {
        *out = hr_jinja_none();
        return m->node->name.n ? hr_jinja_string(it, m->node->name, false, out) : HR_OK;
    }
    if (hr_str_eq_c(name, "catch_kwargs")) *out = hr_jinja_bool(m->node->catches_kwargs);
    if (hr_str_eq_c(name, "catch_varargs")) *out = hr_jinja_bool(m->node->catches_varargs);
    if (hr_str_eq_c(name, "caller")) *out = hr_jinja_bool(m->node->uses_caller);
    if (!hr_str_eq_c(name, "arguments")) return HR_OK;
    hr_jval *names;
    HR_TRY(hr_jinja_alloc(it, m->node->items.n, sizeof *names, &names));
    for (size_t i = 0; i < m->node->items.n; i++)
        HR_TRY(hr_jinja_string(it, m->node->items.items[i]->name, false, &names[i]));
    return hr_jinja_list(it, HR_J_TUPLE, names, m->node->items.n, out);
}

static void range_attr(const hr_jrange *r, hr_str name, hr_jval *out)
{
    if (hr_str_eq_c(name, "start")) *out = hr_jinja_int(r->start);
    if (hr_str_eq_c(name, "stop")) *out = hr_jinja_int(r->stop);
    if (hr_str_eq_c(name, "step")) *out = hr_jinja_int(r->step);
}

/* What Python's getattr would find, else MISSING. */
static hr_status attribute(hr_jinterp *it, hr_jval of, hr_str name, hr_jval *out)
{
    *out = (hr_jval){ 0 };
    if (hr_str_starts(name, HR_STR("_")) &&
        (of.kind == HR_J_NAMESPACE || (hr_str_starts(name, HR_STR("__")) && name.n > 4 &&
                                       hr_str_ends(name, HR_STR("__")) && of.kind != HR_J_DICT)))
        return hr_jinja_undefined(
            it, (hr_jundefined){ .why = HR_JU_UNSAFE, .name = name, .of = of }, out);
    if (changes(of, name))
        return hr_jinja_undefined(
            it, (hr_jundefined){ .why = HR_JU_UNSAFE, .name = name, .of = of }, out);
    if (of.kind == HR_J_LOOP) return hr_jinja_loop_attr(it, of.as.loop, name, out);
    if (of.kind == HR_J_MACRO) return macro_attr(it, of.as.macro, name, out);
    if (of.kind == HR_J_RANGE) range_attr(of.as.r, name, out);
    if (of.kind == HR_J_NAMESPACE) {
        const hr_jval *found = hr_jinja_dict_find(of.as.d, name);
        if (found) *out = *found;
    }
    if (of.kind == HR_J_TUPLE && of.as.l->group) {
        if (hr_str_eq_c(name, "grouper")) *out = of.as.l->items[0];
        if (hr_str_eq_c(name, "list")) *out = of.as.l->items[1];
    }
    if (of.kind == HR_J_CYCLER && hr_str_eq_c(name, "current")) *out = of.as.g->items[of.as.g->at];
    if (of.kind == HR_J_FUNCTION) HR_TRY(hr_jinja_dict_attr(it, of, name, out));
    const hr_jfunction *method = out->kind ? NULL : hr_jinja_find_method(of, name);
    return method ? hr_jinja_bind(it, method, of, out) : HR_OK;
}

/* The index counted from the front, or false when it is outside. */
static bool at_index(hr_jval index, size_t n, size_t *out)
{
    int64_t i;
    if (!hr_jinja_as_int(index, &i)) return false;
    if (i < 0) i += (int64_t)n;
    *out = (size_t)i;
    return i >= 0 && (uint64_t)i < n;
}

/* What Python's of[index] would give, else MISSING (it would be a TypeError or LookupError). */
static hr_status item(hr_jinterp *it, hr_jval of, hr_jval index, hr_jval *out)
{
    size_t i, n;
    *out = (hr_jval){ 0 };
    if (of.kind == HR_J_DICT) {
        const hr_jval *found = NULL;
        if (hr_jinja_hashable(index)) HR_TRY(hr_jinja_dict_get(it, of.as.d, index, &found));
        if (found) *out = *found;
        return HR_OK;
    }
    if (of.kind != HR_J_STR && of.kind != HR_J_LIST && of.kind != HR_J_TUPLE &&
        of.kind != HR_J_RANGE)
        return HR_OK;
    if (!hr_jinja_length(of, &n) || !at_index(index, n, &i)) return HR_OK;
    if (of.kind == HR_J_RANGE) *out = hr_jinja_int(of.as.r->start + (int64_t)i * of.as.r->step);
    else if (of.kind != HR_J_STR) *out = of.as.l->items[i];
    else {
        HR_TRY(hr_jinja_step(it, of.as.s->chars == of.as.s->n ? 1 : of.as.s->n / 16));
        HR_TRY(hr_jinja_substring(it, of.as.s, hr_jinja_offset(of.as.s, i),
                                  hr_jinja_offset(of.as.s, i + 1), out));
        return of.as.s->markup ? hr_jinja_as_markup(it, *out, out) : HR_OK;
    }
    return HR_OK;
}

hr_status hr_jinja_getattr(hr_jinterp *it, hr_jval of, hr_str name, hr_jval *out)
{
    if (of.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, of);
    HR_TRY(attribute(it, of, name, out));
    if (out->kind) return HR_OK;
    if (of.kind == HR_J_DICT) {
        const hr_jval *found = hr_jinja_dict_find(of.as.d, name);
        if (found) {
            *out = *found;
            return HR_OK;
        }
    }
    return missing_attr(it, of, name, out);
}

hr_status hr_jinja_getitem(hr_jinterp *it, hr_jval of, hr_jval index, hr_jval *out)
{
    if (of.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, of);
    HR_TRY(item(it, of, index, out));
    if (out->kind) return HR_OK;
    if (index.kind == HR_J_STR) {
        HR_TRY(attribute(it, of, hr_jinja_text(index.as.s), out));
        return out->kind ? HR_OK : missing_attr(it, of, hr_jinja_text(index.as.s), out);
    }
    hr_jundefined why = { .why = HR_JU_ELEMENT, .of = of, .index = index };
    return hr_jinja_undefined(it, why, out);
}

static bool all_digits(hr_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9') return false;
    return s.n > 0;
}

hr_status hr_jinja_attr_path(hr_jinterp *it, hr_jval of, hr_jval path, hr_jval *out)
{
    *out = of;
    if (path.kind == HR_J_MISSING || path.kind == HR_J_NONE) return HR_OK;
    if (path.kind != HR_J_STR) return hr_jinja_getitem(it, of, path, out);
    hr_str s = hr_jinja_text(path.as.s);
    for (size_t from = 0; from <= s.n;) {
        size_t dot = hr_str_find(s, HR_STR("."), from);
        if (dot == SIZE_MAX) dot = s.n;
        hr_str part = hr_str_slice(s, from, dot);
        int64_t i;
        hr_jval index;
        if (all_digits(part) && !hr_str_to_i64(part, &i)) index = hr_jinja_int(i);
        else HR_TRY(hr_jinja_substring(it, path.as.s, from, dot, &index));
        HR_TRY(hr_jinja_getitem(it, *out, index, out));
        from = dot + 1;
    }
    return HR_OK;
}

/* ---- slices --------------------------------------------------------------------------------- */

static hr_status bound(hr_jinterp *it, hr_jval v, int64_t missing, int64_t n, int64_t low,
                       int64_t high, int64_t *out)
{
    *out = missing;
    if (v.kind == HR_J_NONE || v.kind == HR_J_MISSING) return HR_OK;
    if (!hr_jinja_as_int(v, out))
        return hr_jinja_fail(it, "slice indices must be integers or None or have an __index__ "
                                 "method");
    if (*out < 0) *out += n;
    if (*out < low) *out = low;
    if (*out > high) *out = high;
    return HR_OK;
}

/* The walk of a slice: from, by step, so many. */
typedef struct walk {
    int64_t from, to, step;
    size_t n;
} walk;

static hr_status plan(hr_jinterp *it, size_t length, const hr_jval s[3], walk *w)
{
    int64_t n = (int64_t)length;
    *w = (walk){ .step = 1 };
    if (s[2].kind != HR_J_NONE && s[2].kind != HR_J_MISSING && !hr_jinja_as_int(s[2], &w->step))
        return hr_jinja_fail(it, "slice indices must be integers or None or have an __index__ "
                                 "method");
    if (w->step == 0) return hr_jinja_fail(it, "slice step cannot be zero");
    if (w->step < -INT64_MAX) w->step = -INT64_MAX;
    bool up = w->step > 0;
    int64_t low = up ? 0 : -1, high = up ? n : n - 1;
    HR_TRY(bound(it, s[0], up ? 0 : n - 1, n, low, high, &w->from));
    HR_TRY(bound(it, s[1], up ? n : -1, n, low, high, &w->to));
    int64_t distance = up ? w->to - w->from : w->from - w->to;
    int64_t stride = up ? w->step : -w->step;
    w->n = distance > 0 ? (size_t)((distance - 1) / stride + 1) : 0;
    return HR_OK;
}

static hr_status slice_string(hr_jinterp *it, const hr_jstr *s, const walk *w, hr_jval *out)
{
    size_t from = (size_t)(w->from < 0 ? 0 : w->from);
    if (w->step == 1 || w->n == 0)
        return hr_jinja_substring(it, s, hr_jinja_offset(s, from), hr_jinja_offset(s, from + w->n),
                                  out);
    size_t *offsets; /* of every character, since the walk may go backwards */
    HR_TRY(hr_jinja_alloc(it, s->chars + 1, sizeof *offsets, &offsets));
    size_t k = 0;
    for (size_t i = 0; i < s->n; i++)
        if (((unsigned char)s->p[i] & 0xC0) != 0x80) offsets[k++] = i;
    offsets[k] = s->n;
    hr_jbuilder b = { .it = it };
    for (size_t i = 0; i < w->n; i++) {
        int64_t c = w->from + (int64_t)i * w->step;
        hr_jinja_put_slice(&b, s, offsets[c], offsets[c + 1]);
    }
    return hr_jinja_finish(&b, out);
}

static hr_status slice_range(hr_jinterp *it, const hr_jrange *r, const walk *w, hr_jval *out)
{
    hr_jrange *cut;
    HR_TRY(hr_jinja_alloc(it, 1, sizeof *cut, &cut));
    /* unsigned: the ends of an empty range may lie outside 64 bits and are never visited */
    uint64_t start = (uint64_t)r->start, step = (uint64_t)r->step;
    *cut = (hr_jrange){ .start = (int64_t)(start + (uint64_t)w->from * step),
                        .stop = (int64_t)(start + (uint64_t)w->to * step),
                        .step = (int64_t)((uint64_t)w->step * step),
                        .n = w->n };
    *out = (hr_jval){ .kind = HR_J_RANGE, .as.r = cut };
    return HR_OK;
}

hr_status hr_jinja_slice(hr_jinterp *it, hr_jval of, hr_jval start, hr_jval stop, hr_jval step,
                         hr_jval *out)
{
    size_t n;
    walk w = { 0 };
    if (of.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, of);
    if (of.kind == HR_J_DICT) return hr_jinja_fail(it, "unhashable type: 'slice'");
    if (of.kind != HR_J_STR && of.kind != HR_J_LIST && of.kind != HR_J_TUPLE &&
        of.kind != HR_J_RANGE)
        return hr_jinja_fail(it, "'%s' object is not subscriptable", hr_jinja_type_name(of));
    hr_jinja_length(of, &n);
    HR_TRY(plan(it, n, (hr_jval[3]){ start, stop, step }, &w));
    if (of.kind == HR_J_STR) {
        HR_TRY(slice_string(it, of.as.s, &w, out));
        return of.as.s->markup ? hr_jinja_as_markup(it, *out, out) : HR_OK;
    }
    if (of.kind == HR_J_RANGE) return slice_range(it, of.as.r, &w, out);
    hr_jval *items;
    HR_TRY(hr_jinja_alloc(it, w.n, sizeof *items, &items));
    for (size_t i = 0; i < w.n; i++) items[i] = of.as.l->items[w.from + (int64_t)i * w.step];
    return hr_jinja_list(it, (hr_jkind)of.kind, items, w.n, out);
}
