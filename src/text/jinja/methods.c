/* Methods of values that are no strings. Only those that look: the sandbox refuses the ones that
 * would change a list or a dictionary (attr.c). */
#include <math.h>

#include "text/jinja/jinja_int.h"

/* ---- dict ----------------------------------------------------------------------------------- */

static hr_status dict_get(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *found;
    HR_TRY(hr_jinja_dict_get(it, self.as.d, args->pos[0], &found));
    *out = found ? *found : args->pos[1].kind ? args->pos[1] : hr_jinja_none();
    return HR_OK;
}

static hr_status view(hr_jinterp *it, hr_jval self, hr_jview_kind kind, hr_jval *out)
{
    hr_jview *v;
    HR_TRY(hr_jinja_alloc(it, 1, sizeof *v, &v));
    *v = (hr_jview){ self.as.d, kind };
    *out = (hr_jval){ .kind = HR_J_VIEW, .as.v = v };
    return HR_OK;
}

static hr_status dict_keys(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    return view(it, self, HR_JVIEW_KEYS, out);
}

static hr_status dict_values(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    return view(it, self, HR_JVIEW_VALUES, out);
}

static hr_status dict_items(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    return view(it, self, HR_JVIEW_ITEMS, out);
}

/* Nothing can change it, so it is its own copy. */
static hr_status itself(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    *out = self;
    return HR_OK;
}

/* ---- list, tuple, range --------------------------------------------------------------------- */

static hr_status list_count(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *items;
    size_t n;
    int64_t count = 0;
    HR_TRY(hr_jinja_collect(it, self, &items, &n));
    for (size_t i = 0; i < n; i++) {
        bool same;
        HR_TRY(hr_jinja_step(it, 1));
        HR_TRY(hr_jinja_equal(it, items[i], args->pos[0], &same));
        count += same;
    }
    *out = hr_jinja_int(count);
    return HR_OK;
}

static hr_status list_index(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *items;
    size_t n;
    int64_t from = 0, to;
    HR_TRY(hr_jinja_collect(it, self, &items, &n));
    to = (int64_t)n;
    if ((args->pos[1].kind && !hr_jinja_as_int(args->pos[1], &from)) ||
        (args->pos[2].kind && !hr_jinja_as_int(args->pos[2], &to)))
        return hr_jinja_fail(it, "slice indices must be integers or have an __index__ method");
    if (from < 0) from = from + (int64_t)n < 0 ? 0 : from + (int64_t)n;
    if (to < 0) to += (int64_t)n;
    for (int64_t i = from; i < to && i < (int64_t)n; i++) {
        bool same;
        HR_TRY(hr_jinja_step(it, 1));
        HR_TRY(hr_jinja_equal(it, items[i], args->pos[0], &same));
        if (!same) continue;
        *out = hr_jinja_int(i);
        return HR_OK;
    }
    return hr_jinja_fail(it, "the value is not in the %s", hr_jinja_type_name(self));
}

/* ---- float, loop, cycler -------------------------------------------------------------------- */

static hr_status float_is_integer(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    *out = hr_jinja_bool(isfinite(self.as.f) && floor(self.as.f) == self.as.f);
    return HR_OK;
}

static hr_status loop_cycle(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    if (args->n_kw) return hr_jinja_fail(it, "cycle() takes no keyword arguments");
    if (!args->n) return hr_jinja_fail(it, "no items for cycling given");
    *out = args->pos[(size_t)self.as.loop->index0 % args->n];
    return HR_OK;
}

/* True when the arguments differ from those of the last call. */
static hr_status loop_changed(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jval now;
    bool same;
    if (args->n_kw) return hr_jinja_fail(it, "changed() takes no keyword arguments");
    HR_TRY(hr_jinja_list(it, HR_J_TUPLE, args->pos, args->n, &now));
    HR_TRY(hr_jinja_equal(it, self.as.loop->changed, now, &same));
    self.as.loop->changed = now;
    *out = hr_jinja_bool(!same);
    return HR_OK;
}

static hr_status cycler_next(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jgenerator *g = self.as.g;
    (void)it;
    (void)args;
    *out = g->items[g->at];
    g->at = (g->at + 1) % g->n;
    return HR_OK;
}

static hr_status cycler_reset(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    self.as.g->at = 0;
    *out = hr_jinja_none();
    return HR_OK;
}

typedef struct method {
    hr_jkind kind;
    hr_jfunction f;
} method;

static const method methods[] = {
    { HR_J_DICT, { "get", "$ $", 1, dict_get } },
    { HR_J_DICT, { "keys", "", 0, dict_keys } },
    { HR_J_DICT, { "values", "", 0, dict_values } },
    { HR_J_DICT, { "items", "", 0, dict_items } },
    { HR_J_DICT, { "copy", "", 0, itself } },
    { HR_J_LIST, { "index", "$ $ $", 1, list_index } },
    { HR_J_LIST, { "count", "$", 1, list_count } },
    { HR_J_LIST, { "copy", "", 0, itself } },
    { HR_J_TUPLE, { "index", "$ $ $", 1, list_index } },
    { HR_J_TUPLE, { "count", "$", 1, list_count } },
    { HR_J_RANGE, { "index", "$", 1, list_index } },
    { HR_J_RANGE, { "count", "$", 1, list_count } },
    { HR_J_FLOAT, { "is_integer", "", 0, float_is_integer } },
    { HR_J_LOOP, { "cycle", "*", 0, loop_cycle } },
    { HR_J_LOOP, { "changed", "*", 0, loop_changed } },
    { HR_J_CYCLER, { "next", "", 0, cycler_next } },
    { HR_J_CYCLER, { "reset", "", 0, cycler_reset } },
};

const hr_jfunction *hr_jinja_find_method(hr_jval of, hr_str name)
{
    if (of.kind == HR_J_STR) return hr_jinja_find_str_method(name);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].kind == of.kind && hr_str_eq_c(name, methods[i].f.name))
            return &methods[i].f;
    return NULL;
}
