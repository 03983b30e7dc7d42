/* Filters that choose, order and map items: by attribute, by test, by another filter. Items pass
 * through as they are, marks and all. */
#include "text/jinja/jinja_int.h"

/* Text compares without regard to case unless asked otherwise. */
static hr_status sort_key(hr_jinterp *it, hr_jval v, bool case_sensitive, hr_jval *out)
{
    *out = v;
    if (case_sensitive || v.kind != HR_J_STR) return HR_OK;
    return hr_jinja_str_lower(it, v, NULL, out);
}

/* The key is a list, of one value too: so two that are undefined are equal, not an error. "a,b"
 * names several attributes. */
static hr_status multi_key(hr_jinterp *it, hr_jval of, hr_jval attribute, bool case_sensitive,
                           hr_jval *out)
{
    hr_jval paths, *keys;
    static const hr_jstr comma = { .p = ",", .n = 1, .chars = 1 };
    if (attribute.kind != HR_J_STR || !memchr(attribute.as.s->p, ',', attribute.as.s->n)) {
        HR_TRY(hr_jinja_alloc(it, 1, sizeof *keys, &keys));
        HR_TRY(hr_jinja_attr_path(it, of, attribute, keys));
        HR_TRY(sort_key(it, *keys, case_sensitive, keys));
        return hr_jinja_list(it, HR_J_LIST, keys, 1, out);
    }
    const hr_jfunction *split = hr_jinja_find_str_method(HR_STR("split"));
    hr_jval sep = { .kind = HR_J_STR, .as.s = &comma };
    HR_TRY(hr_jinja_apply(it, split, attribute, &(hr_jargs){ .pos = &sep, .n = 1 }, &paths));
    size_t n = paths.as.l->n;
    HR_TRY(hr_jinja_alloc(it, n, sizeof *keys, &keys));
    for (size_t i = 0; i < n; i++) {
        HR_TRY(hr_jinja_attr_path(it, of, paths.as.l->items[i], &keys[i]));
        HR_TRY(sort_key(it, keys[i], case_sensitive, &keys[i]));
    }
    return hr_jinja_list(it, HR_J_LIST, keys, n, out);
}

static hr_status make_keys(hr_jinterp *it, const hr_jval *items, size_t n, hr_jval attribute,
                           bool case_sensitive, hr_jval **out)
{
    HR_TRY(hr_jinja_alloc(it, n, sizeof **out, out));
    for (size_t i = 0; i < n; i++)
        HR_TRY(multi_key(it, items[i], attribute, case_sensitive, &(*out)[i]));
    return HR_OK;
}

static hr_status sorted(hr_jinterp *it, const hr_jval *items, const hr_jval *keys, size_t n,
                        hr_jsort direction, hr_jval **out)
{
    size_t *order;
    HR_TRY(hr_jinja_alloc(it, n, sizeof *order, &order));
    HR_TRY(hr_jinja_sort(it, keys, n, direction, order));
    HR_TRY(hr_jinja_alloc(it, n, sizeof **out, out));
    for (size_t i = 0; i < n; i++) (*out)[i] = items[order[i]];
    return HR_OK;
}

/* Arguments: reverse, case_sensitive, attribute. */
static hr_status filter_sort(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *items;
    hr_jval *keys, *result;
    size_t n;
    bool down, cased;
    HR_TRY(hr_jinja_truth(it, args->pos[0], &down));
    HR_TRY(hr_jinja_truth(it, args->pos[1], &cased));
    HR_TRY(hr_jinja_collect(it, self, &items, &n));
    HR_TRY(make_keys(it, items, n, args->pos[2], cased, &keys));
    HR_TRY(sorted(it, items, keys, n, down ? HR_JSORT_DOWN : HR_JSORT_UP, &result));
    return hr_jinja_list(it, HR_J_LIST, result, n, out);
}

/* Arguments: case_sensitive, by, reverse. */
static hr_status filter_dictsort(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jval *pairs, *keys, *result;
    hr_jval by = args->pos[1];
    bool cased, down;
    bool value = by.kind == HR_J_STR && hr_str_eq_c(hr_jinja_text(by.as.s), "value");
    if (by.kind && !value && !(by.kind == HR_J_STR && hr_str_eq_c(hr_jinja_text(by.as.s), "key")))
        return hr_jinja_fail(it, "You can only sort by either \"key\" or \"value\"");
    if (self.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, self);
    if (self.kind != HR_J_DICT) return hr_jinja_fail(it, "dictsort: the value must be a mapping");
    HR_TRY(hr_jinja_truth(it, args->pos[0], &cased));
    HR_TRY(hr_jinja_truth(it, args->pos[2], &down));
    const hr_jdict *d = self.as.d;
    HR_TRY(hr_jinja_alloc(it, d->n, sizeof *pairs, &pairs));
    HR_TRY(hr_jinja_alloc(it, d->n, sizeof *keys, &keys));
    for (size_t i = 0; i < d->n; i++) {
        hr_jentry e = d->entries[i];
        HR_TRY(hr_jinja_pair(it, e.key, e.value, &pairs[i]));
        HR_TRY(sort_key(it, value ? e.value : e.key, cased, &keys[i]));
    }
    HR_TRY(sorted(it, pairs, keys, d->n, down ? HR_JSORT_DOWN : HR_JSORT_UP, &result));
    return hr_jinja_list(it, HR_J_LIST, result, d->n, out);
}

static hr_status extreme(hr_jinterp *it, hr_jval self, const hr_jargs *args, bool greatest,
                         hr_jval *out)
{
    const hr_jval *items;
    hr_jval *keys;
    size_t n, best = 0;
    bool cased, better;
    HR_TRY(hr_jinja_truth(it, args->pos[0], &cased));
    HR_TRY(hr_jinja_collect(it, self, &items, &n));
    if (!n) return hr_jinja_hint(it, "No aggregated item, sequence was empty.", out);
    HR_TRY(hr_jinja_alloc(it, n, sizeof *keys, &keys));
    for (size_t i = 0; i < n; i++) {
        HR_TRY(hr_jinja_attr_path(it, items[i], args->pos[1], &keys[i]));
        HR_TRY(sort_key(it, keys[i], cased, &keys[i]));
    }
    for (size_t i = 1; i < n; i++) {
        hr_jop op = greatest ? HR_JOP_GT : HR_JOP_LT;
        HR_TRY(hr_jinja_compare(it, op, keys[i], keys[best], &better));
        if (better) best = i;
    }
    *out = items[best];
    return HR_OK;
}

static hr_status filter_min(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return extreme(it, self, args, false, out);
}

static hr_status filter_max(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return extreme(it, self, args, true, out);
}

/* Arguments: case_sensitive, attribute. */
static hr_status filter_unique(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *items;
    hr_jval *kept;
    hr_jdict *seen;
    size_t n, n_kept = 0;
    bool cased;
    HR_TRY(hr_jinja_truth(it, args->pos[0], &cased));
    HR_TRY(hr_jinja_collect(it, self, &items, &n));
    HR_TRY(hr_jinja_alloc(it, n, sizeof *kept, &kept));
    HR_TRY(hr_jinja_dict_new(it, n, &seen));
    for (size_t i = 0; i < n; i++) {
        hr_jval key;
        size_t before = seen->n;
        HR_TRY(hr_jinja_attr_path(it, items[i], args->pos[1], &key));
        HR_TRY(sort_key(it, key, cased, &key));
        HR_TRY(hr_jinja_dict_set(it, seen, key, hr_jinja_none()));
        if (seen->n > before) kept[n_kept++] = items[i];
    }
    return hr_jinja_generator(it, kept, n_kept, out);
}

/* ---- groups --------------------------------------------------------------------------------- */

static hr_status with_default(hr_jinterp *it, hr_jval of, hr_jval path, hr_jval fallback,
                              hr_jval *out)
{
    HR_TRY(hr_jinja_attr_path(it, of, path, out));
    if (out->kind == HR_J_UNDEFINED && fallback.kind > HR_J_NONE) *out = fallback;
    return HR_OK;
}

static hr_status add_group(hr_jinterp *it, hr_jval key, const hr_jval *items, size_t n,
                           hr_jval *out)
{
    hr_jval list;
    hr_jlist *group;
    HR_TRY(hr_jinja_list(it, HR_J_LIST, items, n, &list));
    HR_TRY(hr_jinja_pair(it, key, list, out));
    HR_TRY(hr_jinja_alloc(it, 1, sizeof *group, &group));
    *group = *out->as.l;
    group->group = true;
    out->as.l = group;
    return HR_OK;
}

/* Arguments: attribute, default, case_sensitive. */
static hr_status filter_groupby(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *items;
    hr_jval *keys, *sorted_items, *sorted_keys, *groups;
    size_t n, n_groups = 0;
    bool cased;
    HR_TRY(hr_jinja_truth(it, args->pos[2], &cased));
    HR_TRY(hr_jinja_collect(it, self, &items, &n));
    HR_TRY(hr_jinja_alloc(it, n, sizeof *keys, &keys));
    HR_TRY(hr_jinja_alloc(it, n, sizeof *groups, &groups));
    for (size_t i = 0; i < n; i++) {
        HR_TRY(with_default(it, items[i], args->pos[0], args->pos[1], &keys[i]));
        HR_TRY(sort_key(it, keys[i], cased, &keys[i]));
    }
    HR_TRY(sorted(it, items, keys, n, HR_JSORT_UP, &sorted_items));
    HR_TRY(sorted(it, keys, keys, n, HR_JSORT_UP, &sorted_keys));
    for (size_t from = 0, to; from < n; from = to) {
        bool same = true;
        for (to = from + 1; to < n; to++) {
            HR_TRY(hr_jinja_equal(it, sorted_keys[from], sorted_keys[to], &same));
            if (!same) break;
        }
        hr_jval key; /* as the first item of the group spells it */
        HR_TRY(with_default(it, sorted_items[from], args->pos[0], args->pos[1], &key));
        HR_TRY(add_group(it, key, sorted_items + from, to - from, &groups[n_groups++]));
    }
    return hr_jinja_list(it, HR_J_LIST, groups, n_groups, out);
}

/* ---- map, select ---------------------------------------------------------------------------- */

static hr_status find_keyword(const hr_jargs *args, const char *name, hr_jval *out)
{
    *out = (hr_jval){ 0 };
    for (size_t i = 0; i < args->n_kw; i++)
        if (hr_str_eq_c(args->names[i], name)) *out = args->kw[i];
    return HR_OK;
}

static hr_status map_attribute(hr_jinterp *it, const hr_jargs *args, const hr_jval *items, size_t n,
                               hr_jval *to)
{
    hr_jval path, fallback;
    HR_TRY(find_keyword(args, "attribute", &path));
    HR_TRY(find_keyword(args, "default", &fallback));
    for (size_t i = 0; i < args->n_kw; i++)
        if (!hr_str_eq_c(args->names[i], "attribute") && !hr_str_eq_c(args->names[i], "default"))
            return hr_jinja_fail(it, "Unexpected keyword argument '%.*s'",
                                 HR_STR_ARG(args->names[i]));
    for (size_t i = 0; i < n; i++) HR_TRY(with_default(it, items[i], path, fallback, &to[i]));
    return HR_OK;
}

static hr_status map_filter(hr_jinterp *it, const hr_jargs *args, const hr_jval *items, size_t n,
                            hr_jval *to)
{
    if (!args->n) return hr_jinja_fail(it, "map requires a filter argument");
    const hr_jfilter *f = args->pos[0].kind == HR_J_STR
                              ? hr_jinja_find_filter(hr_jinja_text(args->pos[0].as.s))
                              : NULL;
    if (!f) return hr_jinja_fail(it, "map: no filter of that name");
    hr_jargs rest = *args;
    rest.pos++;
    rest.n--;
    HR_TRY(hr_jinja_enter(it)); /* map may map map */
    for (size_t i = 0; i < n; i++) HR_TRY(hr_jinja_call_filter(it, f, items[i], &rest, &to[i]));
    hr_jinja_leave(it);
    return HR_OK;
}

static hr_status filter_map(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *items = NULL;
    hr_jval *to, path;
    size_t n = 0;
    bool some;
    HR_TRY(hr_jinja_truth(it, self, &some));
    if (some) HR_TRY(hr_jinja_collect(it, self, &items, &n));
    HR_TRY(hr_jinja_alloc(it, n, sizeof *to, &to));
    HR_TRY(find_keyword(args, "attribute", &path));
    if (some)
        HR_TRY(!args->n && path.kind ? map_attribute(it, args, items, n, to)
                                     : map_filter(it, args, items, n, to));
    return hr_jinja_generator(it, to, n, out);
}

typedef enum pick_flags { PICK = 0, PICK_REJECT = 1, PICK_ATTR = 2 } pick_flags;

/* Does the item pass the test that the arguments name (its truth when they name none)? */
static hr_status tested(hr_jinterp *it, hr_jval item, const hr_jargs *args, bool *out)
{
    hr_jval verdict;
    if (!args->n) return hr_jinja_truth(it, item, out);
    const hr_jtest *t =
        args->pos[0].kind == HR_J_STR ? hr_jinja_find_test(hr_jinja_text(args->pos[0].as.s)) : NULL;
    if (!t) return hr_jinja_fail(it, "select and reject: no test of that name");
    hr_jargs rest = *args;
    rest.pos++;
    rest.n--;
    HR_TRY(hr_jinja_apply(it, &t->f, item, &rest, &verdict));
    return hr_jinja_truth(it, verdict, out);
}

static hr_status pick(hr_jinterp *it, hr_jval self, const hr_jargs *args, pick_flags flags,
                      hr_jval *out)
{
    const hr_jval *items = NULL;
    hr_jval *kept, path = { 0 };
    hr_jargs test = *args;
    size_t n = 0, n_kept = 0;
    bool some, yes;
    HR_TRY(hr_jinja_truth(it, self, &some));
    if (some) HR_TRY(hr_jinja_collect(it, self, &items, &n));
    if (some && (flags & PICK_ATTR)) {
        if (!args->n) return hr_jinja_fail(it, "Missing parameter for attribute name");
        path = args->pos[0];
        test.pos++;
        test.n--;
    }
    HR_TRY(hr_jinja_alloc(it, n, sizeof *kept, &kept));
    for (size_t i = 0; i < n; i++) {
        hr_jval v;
        HR_TRY(hr_jinja_attr_path(it, items[i], path, &v));
        HR_TRY(tested(it, v, &test, &yes));
        if (yes != ((flags & PICK_REJECT) != 0)) kept[n_kept++] = items[i];
    }
    return hr_jinja_generator(it, kept, n_kept, out);
}

static hr_status filter_select(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return pick(it, self, args, PICK, out);
}

static hr_status filter_reject(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return pick(it, self, args, PICK_REJECT, out);
}

static hr_status filter_selectattr(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return pick(it, self, args, PICK_ATTR, out);
}

static hr_status filter_rejectattr(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return pick(it, self, args, PICK_ATTR | PICK_REJECT, out);
}

const hr_jfilter hr_jinja_pick_filters[] = {
    { { "dictsort", "case_sensitive by reverse", 0, filter_dictsort } },
    { { "groupby", "attribute default case_sensitive", 1, filter_groupby } },
    { { "map", "*", 0, filter_map } },
    { { "max", "case_sensitive attribute", 0, filter_max } },
    { { "min", "case_sensitive attribute", 0, filter_min } },
    { { "reject", "*", 0, filter_reject } },
    { { "rejectattr", "*", 0, filter_rejectattr } },
    { { "select", "*", 0, filter_select } },
    { { "selectattr", "*", 0, filter_selectattr } },
    { { "sort", "reverse case_sensitive attribute", 0, filter_sort } },
    { { "unique", "case_sensitive attribute", 0, filter_unique } },
    { { 0 } },
};
