/* Expressions to values: a walk over the tree, bounded in steps and depth.
 *
 * Runs within a rendering, on its thread. The current line is kept in the interpreter, so that
 * whoever fails can name it. */
#include <stdio.h>

#include "text/jinja/jinja_int.h"

static hr_status eval_or_missing(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    *out = (hr_jval){ 0 };
    return n ? hr_jinja_eval(it, n, out) : HR_OK;
}

static hr_status eval_truth(hr_jinterp *it, const hr_jnode *n, bool *out)
{
    hr_jval v;
    HR_TRY(hr_jinja_eval(it, n, &v));
    return hr_jinja_truth(it, v, out);
}

static hr_status eval_name(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    *out = *hr_jinja_slot(it, n->ref);
    if (out->kind) return HR_OK;
    return hr_jinja_undefined(it, (hr_jundefined){ .why = HR_JU_NAME, .name = n->name }, out);
}

static hr_status eval_items(hr_jinterp *it, const hr_jnode *n, hr_jkind kind, hr_jval *out)
{
    hr_jval *items;
    HR_TRY(hr_jinja_alloc(it, n->items.n, sizeof *items, &items));
    for (size_t i = 0; i < n->items.n; i++) HR_TRY(hr_jinja_eval(it, n->items.items[i], &items[i]));
    return hr_jinja_list(it, kind, items, n->items.n, out);
}

static hr_status eval_dict(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    hr_jdict *d;
    HR_TRY(hr_jinja_dict_new(it, n->items.n, &d));
    for (size_t i = 0; i < n->items.n; i++) {
        hr_jval key, value;
        HR_TRY(hr_jinja_eval(it, n->items.items[i]->a, &key));
        HR_TRY(hr_jinja_eval(it, n->items.items[i]->b, &value));
        HR_TRY(hr_jinja_dict_set(it, d, key, value));
    }
    *out = (hr_jval){ .kind = HR_J_DICT, .as.d = d };
    return HR_OK;
}

static hr_status eval_cond(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    bool yes;
    HR_TRY(eval_truth(it, n->b, &yes));
    if (yes) return hr_jinja_eval(it, n->a, out);
    if (n->c) return hr_jinja_eval(it, n->c, out);
    return hr_jinja_hint(it,
                         "the inline if-expression evaluated to false and no else section was "
                         "defined.",
                         out);
}

/* and, or: the operand that decides. */
static hr_status eval_logic(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    bool yes;
    HR_TRY(hr_jinja_eval(it, n->a, out));
    HR_TRY(hr_jinja_truth(it, *out, &yes));
    return yes == (n->kind == HR_JN_AND) ? hr_jinja_eval(it, n->b, out) : HR_OK;
}

/* a < b < c is a < b and b < c, each evaluated once. */
static hr_status eval_compare(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    hr_jval left, right;
    bool yes = true;
    HR_TRY(hr_jinja_eval(it, n->a, &left));
    for (size_t i = 0; yes && i < n->items.n; i++) {
        const hr_jnode *operand = n->items.items[i];
        HR_TRY(hr_jinja_eval(it, operand->a, &right));
        HR_TRY(hr_jinja_compare(it, (hr_jop)operand->op, left, right, &yes));
        left = right;
    }
    *out = hr_jinja_bool(yes);
    return HR_OK;
}

static hr_status eval_concat(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    hr_jbuilder b = { .it = it };
    hr_jval *parts;
    HR_TRY(hr_jinja_alloc(it, n->items.n, sizeof *parts, &parts));
    for (size_t i = 0; i < n->items.n; i++) HR_TRY(hr_jinja_eval(it, n->items.items[i], &parts[i]));
    for (size_t i = 0; i < n->items.n; i++) HR_TRY(hr_jinja_print(&b, parts[i]));
    return hr_jinja_finish(&b, out);
}

static hr_status eval_binary(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    hr_jval a, b;
    HR_TRY(hr_jinja_eval(it, n->a, &a));
    HR_TRY(hr_jinja_eval(it, n->b, &b));
    it->at = n->at;
    return hr_jinja_binary(it, (hr_jop)n->op, a, b, out);
}

static hr_status eval_getitem(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    hr_jval of, a, b, c;
    HR_TRY(hr_jinja_eval(it, n->a, &of));
    if (n->b->kind != HR_JN_SLICE) {
        HR_TRY(hr_jinja_eval(it, n->b, &a));
        it->at = n->at;
        return hr_jinja_getitem(it, of, a, out);
    }
    HR_TRY(eval_or_missing(it, n->b->a, &a));
    HR_TRY(eval_or_missing(it, n->b->b, &b));
    HR_TRY(eval_or_missing(it, n->b->c, &c));
    it->at = n->at;
    return hr_jinja_slice(it, of, a, b, c, out);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static hr_status eval_positional(hr_jinterp *it, const hr_jnode *n, hr_jargs *out)
{
    const hr_jval *more = NULL;
    size_t n_more = 0;
    hr_jval *pos, star;
    if (n->star) {
        HR_TRY(hr_jinja_eval(it, n->star, &star));
        HR_TRY(hr_jinja_collect(it, star, &more, &n_more));
    }
    out->n = n->items.n + n_more;
    HR_TRY(hr_jinja_alloc(it, out->n, sizeof *pos, &pos));
    for (size_t i = 0; i < n->items.n; i++) HR_TRY(hr_jinja_eval(it, n->items.items[i], &pos[i]));
    if (n_more) memcpy(pos + n->items.n, more, n_more * sizeof *pos);
    out->pos = pos;
    return HR_OK;
}

static hr_status check_names(hr_jinterp *it, const hr_jargs *a)
{
    for (size_t i = 0; i < a->n_kw; i++)
        for (size_t k = 0; k < i; k++)
            if (hr_str_eq(a->names[i], a->names[k]))
                return hr_jinja_fail(it, "got multiple values for keyword argument '%.*s'",
                                     HR_STR_ARG(a->names[i]));
    return hr_jinja_step(it, a->n_kw);
}

static hr_status eval_keywords(hr_jinterp *it, const hr_jnode *n, const hr_jval *caller,
                               hr_jargs *out)
{
    hr_jval star = { 0 }, *kw;
    hr_str *names;
    if (n->star2) HR_TRY(hr_jinja_eval(it, n->star2, &star));
    if (n->star2 && star.kind != HR_J_DICT)
        return hr_jinja_fail(it, "argument after ** must be a mapping, not %s",
                             hr_jinja_type_name(star));
    size_t extra = n->star2 ? star.as.d->n : 0;
    if (extra > 100) return hr_jinja_fail(it, "too many keyword arguments");
    HR_TRY(hr_jinja_alloc(it, n->kw.n + extra + 1, sizeof *kw, &kw));
    HR_TRY(hr_jinja_alloc(it, n->kw.n + extra + 1, sizeof *names, &names));
    size_t k = 0;
    for (size_t i = 0; i < n->kw.n; i++, k++) {
        names[k] = n->kw.items[i]->name;
        HR_TRY(hr_jinja_eval(it, n->kw.items[i]->a, &kw[k]));
    }
    if (caller) {
        names[k] = HR_STR("caller");
        kw[k++] = *caller;
    }
    for (size_t i = 0; i < extra; i++, k++) {
        hr_jentry e = star.as.d->entries[i];
        if (e.key.kind != HR_J_STR) return hr_jinja_fail(it, "keywords must be strings");
        names[k] = hr_jinja_text(e.key.as.s);
        kw[k] = e.value;
    }
    out->names = names;
    out->kw = kw;
    out->n_kw = k;
    return check_names(it, out);
}

hr_status hr_jinja_eval_args(hr_jinterp *it, const hr_jnode *n, const hr_jval *caller,
                             hr_jargs *out)
{
    *out = (hr_jargs){ 0 };
    HR_TRY(eval_positional(it, n, out));
    return n->kw.n || n->star2 || caller ? eval_keywords(it, n, caller, out) : HR_OK;
}

static hr_status eval_call(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    hr_jval callee;
    hr_jargs args;
    HR_TRY(hr_jinja_eval(it, n->a, &callee));
    HR_TRY(hr_jinja_eval_args(it, n, NULL, &args));
    it->at = n->at;
    return hr_jinja_call(it, callee, &args, out);
}

hr_status hr_jinja_eval_filter(hr_jinterp *it, const hr_jnode *n, const hr_jval *block,
                               hr_jval *out)
{
    hr_jval self;
    hr_jargs args;
    if (!n->a) self = *block;
    else if (n->a->kind == HR_JN_FILTER && block)
        HR_TRY(hr_jinja_eval_filter(it, n->a, block, &self));
    else HR_TRY(hr_jinja_eval(it, n->a, &self));
    HR_TRY(hr_jinja_eval_args(it, n, NULL, &args));
    it->at = n->at;
    if (!n->filter) return hr_jinja_fail(it, "No filter named '%.*s' found.", HR_STR_ARG(n->name));
    return hr_jinja_call_filter(it, n->filter, self, &args, out);
}

static hr_status eval_test(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    hr_jval self;
    hr_jargs args;
    HR_TRY(hr_jinja_eval(it, n->a, &self));
    HR_TRY(hr_jinja_eval_args(it, n, NULL, &args));
    it->at = n->at;
    if (!n->test) return hr_jinja_fail(it, "No test named '%.*s' found.", HR_STR_ARG(n->name));
    return hr_jinja_apply(it, &n->test->f, self, &args, out);
}

static hr_status eval_node(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    bool yes;
    hr_jval a;
    switch ((hr_jnode_kind)n->kind) {
    case HR_JN_CONST: *out = n->value; return HR_OK;
    case HR_JN_NAME: return eval_name(it, n, out);
    case HR_JN_TUPLE: return eval_items(it, n, HR_J_TUPLE, out);
    case HR_JN_LIST: return eval_items(it, n, HR_J_LIST, out);
    case HR_JN_DICT: return eval_dict(it, n, out);
    case HR_JN_COND: return eval_cond(it, n, out);
    case HR_JN_OR:
    case HR_JN_AND: return eval_logic(it, n, out);
    case HR_JN_NOT:
        HR_TRY(eval_truth(it, n->a, &yes));
        *out = hr_jinja_bool(!yes);
        return HR_OK;
    case HR_JN_COMPARE: return eval_compare(it, n, out);
    case HR_JN_BINARY: return eval_binary(it, n, out);
    case HR_JN_CONCAT: return eval_concat(it, n, out);
    case HR_JN_UNARY:
        HR_TRY(hr_jinja_eval(it, n->a, &a));
        return hr_jinja_unary(it, (hr_jop)n->op, a, out);
    case HR_JN_GETATTR:
        HR_TRY(hr_jinja_eval(it, n->a, &a));
        it->at = n->at;
        return hr_jinja_getattr(it, a, n->name, out);
    case HR_JN_GETITEM: return eval_getitem(it, n, out);
    case HR_JN_CALL: return eval_call(it, n, out);
    case HR_JN_FILTER: return hr_jinja_eval_filter(it, n, NULL, out);
    case HR_JN_TEST: return eval_test(it, n, out);
    case HR_JN_NSREF:
    case HR_JN_PAIR:
    case HR_JN_OPERAND:
    case HR_JN_SLICE:
    case HR_JN_KEYWORD:
    case HR_JN_DATA:
    case HR_JN_OUTPUT:
    case HR_JN_IF:
    case HR_JN_FOR:
    case HR_JN_SET:
    case HR_JN_SETBLOCK:
    case HR_JN_FILTERBLOCK:
    case HR_JN_WITH:
    case HR_JN_MACRO:
    case HR_JN_CALLBLOCK:
    case HR_JN_BREAK:
    case HR_JN_CONTINUE: break; /* no expressions: the parser puts none of them here */
    }
    return hr_fail(HR_INTERNAL, "chat template line %u: not an expression", n->at.line);
}

hr_status hr_jinja_eval(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    it->at = n->at;
    HR_TRY(hr_jinja_step(it, 1));
    HR_TRY(hr_jinja_enter(it));
    hr_status st = eval_node(it, n, out);
    hr_jinja_leave(it);
    return st;
}
