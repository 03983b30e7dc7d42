/* Calls: arguments to parameters, and the dispatch over what can be called.
 *
 * Built-in functions name their parameters in a string of their table line; binding turns
 * positional and keyword arguments into one array in that order, with Python's complaints. */
#include "text/jinja/jinja_int.h"

#define MAX_PARAMS 8

/* The next word of a parameter list; n 0 at its end. */
static hr_str next_param(const char **at)
{
    while (**at == ' ') ++*at;
    const char *from = *at;
    while (**at && **at != ' ') ++*at;
    return (hr_str){ from, (size_t)(*at - from) };
}

static hr_status bind_keywords(hr_jinterp *it, const hr_jfunction *f, const hr_jargs *args,
                               hr_jval *bound)
{
    for (size_t k = 0; k < args->n_kw; k++) {
        const char *at = f->params;
        size_t i = 0;
        hr_str name = next_param(&at);
        for (; name.n && !hr_str_eq(name, args->names[k]); i++) name = next_param(&at);
        if (!name.n)
            return hr_jinja_fail(it, "%s() got an unexpected keyword argument '%.*s'", f->name,
                                 HR_STR_ARG(args->names[k]));
        if (bound[i].kind)
            return hr_jinja_fail(it, "%s() got multiple values for argument '%.*s'", f->name,
                                 HR_STR_ARG(args->names[k]));
        bound[i] = args->kw[k];
    }
    return HR_OK;
}

hr_status hr_jinja_apply(hr_jinterp *it, const hr_jfunction *f, hr_jval self, const hr_jargs *args,
                         hr_jval *out)
{
    hr_jval bound[MAX_PARAMS] = { 0 };
    size_t n = 0;
    if (*f->params == '*') return f->call(it, self, args, out);
    for (const char *at = f->params; next_param(&at).n;) n++;
    if (args->n > n)
        return hr_jinja_fail(it, "%s() takes at most %zu argument(s) (%zu given)", f->name, n,
                             args->n);
    for (size_t i = 0; i < args->n; i++) bound[i] = args->pos[i];
    HR_TRY(bind_keywords(it, f, args, bound));
    for (size_t i = 0; i < f->required; i++)
        if (!bound[i].kind) return hr_jinja_fail(it, "%s() missing a required argument", f->name);
    return f->call(it, self, &(hr_jargs){ .pos = bound, .n = n }, out);
}

hr_status hr_jinja_bind(hr_jinterp *it, const hr_jfunction *f, hr_jval self, hr_jval *out)
{
    hr_jbound *b;
    HR_TRY(hr_jinja_alloc(it, 1, sizeof *b, &b));
    *b = (hr_jbound){ f, self };
    *out = (hr_jval){ .kind = HR_J_FUNCTION, .as.fn = b };
    return HR_OK;
}

/* A joiner is empty at its first call, its separator afterwards. */
static hr_status call_joiner(hr_jinterp *it, hr_jgenerator *g, hr_jval *out)
{
    if (g->at++ == 0) return hr_jinja_string(it, HR_STR(""), false, out);
    *out = g->items[0];
    return HR_OK;
}

static hr_status dispatch(hr_jinterp *it, hr_jval callee, const hr_jargs *args, hr_jval *out)
{
    switch ((hr_jkind)callee.kind) {
    case HR_J_FUNCTION: return hr_jinja_call_method(it, callee.as.fn, args, out);
    case HR_J_MACRO: return hr_jinja_macro_call(it, callee.as.macro, args, out);
    case HR_J_LOOP: return hr_jinja_loop_call(it, callee.as.loop, args, out);
    case HR_J_JOINER:
        if (args->n || args->n_kw) return hr_jinja_fail(it, "a joiner takes no arguments");
        return call_joiner(it, callee.as.g, out);
    case HR_J_UNDEFINED: return hr_jinja_fail_undefined(it, callee);
    case HR_J_MISSING:
    case HR_J_NONE:
    case HR_J_BOOL:
    case HR_J_INT:
    case HR_J_BIG:
    case HR_J_FLOAT:
    case HR_J_STR:
    case HR_J_LIST:
    case HR_J_TUPLE:
    case HR_J_DICT:
    case HR_J_RANGE:
    case HR_J_GENERATOR:
    case HR_J_VIEW:
    case HR_J_NAMESPACE:
    case HR_J_CYCLER: break;
    }
    return hr_jinja_fail(it, "'%s' object is not callable", hr_jinja_type_name(callee));
}

hr_status hr_jinja_call(hr_jinterp *it, hr_jval callee, const hr_jargs *args, hr_jval *out)
{
    HR_TRY(hr_jinja_enter(it));
    hr_status st = dispatch(it, callee, args, out);
    hr_jinja_leave(it);
    return st;
}
