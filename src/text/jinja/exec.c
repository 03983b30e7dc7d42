/* Statements: text to the current builder, values to slots.
 *
 * A block that is captured (set, filter, macro, call) writes to a builder of its own; break and
 * continue leave it as a flow, and what was captured so far is dropped, as in jinja2. Runs within
 * a rendering. */
#include "text/jinja/jinja_int.h"

/* ---- scopes and targets --------------------------------------------------------------------- */

hr_status hr_jinja_enter_scope(hr_jinterp *it, const hr_jscope *s)
{
    for (size_t i = 0; i < s->n_loads; i++) {
        const hr_jload *l = &s->loads[i];
        hr_jval *slot = &it->here->slots[l->slot];
        switch (l->how) {
        case HR_JL_PARAMETER: break;
        case HR_JL_UNDEFINED: *slot = (hr_jval){ 0 }; break;
        case HR_JL_ALIAS: *slot = *hr_jinja_slot(it, l->from); break;
        case HR_JL_RESOLVE: {
            const hr_jval *given = hr_jinja_dict_find(it->variables, l->name);
            if (given) *slot = *given;
            else HR_TRY(hr_jinja_find_global(it, l->name, slot));
            break;
        }
        }
    }
    return HR_OK;
}

static hr_status assign_tuple(hr_jinterp *it, const hr_jnode *target, hr_jval v)
{
    const hr_jval *items;
    size_t n, want = target->items.n;
    if (!hr_jinja_iterable(v))
        return hr_jinja_fail(it, "cannot unpack non-iterable %s object", hr_jinja_type_name(v));
    HR_TRY(hr_jinja_collect(it, v, &items, &n));
    if (n > want) return hr_jinja_fail(it, "too many values to unpack (expected %zu)", want);
    if (n < want)
        return hr_jinja_fail(it, "not enough values to unpack (expected %zu, got %zu)", want, n);
    for (size_t i = 0; i < n; i++) HR_TRY(hr_jinja_assign(it, target->items.items[i], items[i]));
    return HR_OK;
}

hr_status hr_jinja_assign(hr_jinterp *it, const hr_jnode *target, hr_jval v)
{
    if (target->kind == HR_JN_TUPLE) return assign_tuple(it, target, v);
    hr_jval *slot = hr_jinja_slot(it, target->ref);
    if (target->kind == HR_JN_NAME) {
        *slot = v;
        return HR_OK;
    }
    if (slot->kind != HR_J_NAMESPACE)
        return hr_jinja_fail(it, "cannot assign attribute on non-namespace object");
    return hr_jinja_dict_set(it, slot->as.d, target->value, v);
}

/* ---- captured blocks ------------------------------------------------------------------------ */

/* Runs `body` into a string. *out is only there when the flow goes on. */
static hr_status capture(hr_jinterp *it, const hr_jblock *body, hr_jflow *flow, hr_jval *out)
{
    hr_jbuilder b = { .it = it }, *outer = it->out;
    it->out = &b;
    hr_status st = hr_jinja_exec(it, body, flow);
    it->out = outer;
    return st ? st : hr_jinja_finish(&b, out);
}

static hr_status exec_set_block(hr_jinterp *it, const hr_jnode *n, hr_jflow *flow)
{
    hr_jval text;
    HR_TRY(hr_jinja_enter_scope(it, n->scope));
    HR_TRY(capture(it, &n->body, flow, &text));
    if (*flow != HR_JF_NEXT) return HR_OK;
    if (n->b) HR_TRY(hr_jinja_eval_filter(it, n->b, &text, &text));
    return hr_jinja_assign(it, n->a, text);
}

static hr_status exec_filter_block(hr_jinterp *it, const hr_jnode *n, hr_jflow *flow)
{
    hr_jval text;
    HR_TRY(hr_jinja_enter_scope(it, n->scope));
    HR_TRY(capture(it, &n->body, flow, &text));
    if (*flow != HR_JF_NEXT) return HR_OK;
    HR_TRY(hr_jinja_eval_filter(it, n->b, &text, &text));
    return hr_jinja_print(it->out, text);
}

static hr_status exec_with(hr_jinterp *it, const hr_jnode *n, hr_jflow *flow)
{
    HR_TRY(hr_jinja_enter_scope(it, n->scope));
    for (size_t i = 0; i < n->items.n; i++) {
        hr_jval v;
        HR_TRY(hr_jinja_eval(it, n->items.items[i]->b, &v));
        HR_TRY(hr_jinja_assign(it, n->items.items[i]->a, v));
    }
    return hr_jinja_exec(it, &n->body, flow);
}

/* ---- macros --------------------------------------------------------------------------------- */

static hr_status new_macro(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    hr_jmacro *m;
    HR_TRY(hr_jinja_alloc(it, 1, sizeof *m, &m));
    *m = (hr_jmacro){ n, it->here };
    *out = (hr_jval){ .kind = HR_J_MACRO, .as.macro = m };
    return HR_OK;
}

/* {% call %} hands the body to the macro; {% generation %} just runs it, as a function. */
static hr_status exec_call_block(hr_jinterp *it, const hr_jnode *n)
{
    hr_jval caller, callee, result;
    hr_jargs args = { 0 };
    HR_TRY(new_macro(it, n, &caller));
    if (!n->a) {
        HR_TRY(hr_jinja_call(it, caller, &args, &result));
        return hr_jinja_print(it->out, result);
    }
    HR_TRY(hr_jinja_eval(it, n->a->a, &callee));
    HR_TRY(hr_jinja_eval_args(it, n->a, &caller, &args));
    HR_TRY(hr_jinja_call(it, callee, &args, &result));
    return hr_jinja_print(it->out, result);
}

static size_t find_parameter(const hr_jnode *n, hr_str name)
{
    size_t i = 0;
    while (i < n->items.n && !hr_str_eq(n->items.items[i]->name, name)) i++;
    return i;
}

/* Keyword arguments: to parameters that are still free, caller, and the rest to kwargs. */
static hr_status take_keywords(hr_jinterp *it, const hr_jnode *n, const hr_jargs *args,
                               hr_jval *slots)
{
    hr_jdict *rest = NULL;
    if (n->catches_kwargs) {
        HR_TRY(hr_jinja_dict_new(it, 0, &rest));
        slots[n->slot_kwargs] = (hr_jval){ .kind = HR_J_DICT, .as.d = rest };
    }
    for (size_t k = 0; k < args->n_kw; k++) {
        size_t i = find_parameter(n, args->names[k]);
        hr_jval key;
        if (i < n->items.n && i >= args->n) slots[n->items.items[i]->ref.slot] = args->kw[k];
        else if (n->uses_caller && hr_str_eq_c(args->names[k], "caller"))
            slots[n->slot_caller] = args->kw[k];
        else if (rest) {
            HR_TRY(hr_jinja_string(it, args->names[k], false, &key));
            HR_TRY(hr_jinja_dict_set(it, rest, key, args->kw[k]));
        } else {
            return hr_jinja_fail(it, "macro '%.*s' takes no keyword argument '%.*s'",
                                 HR_STR_ARG(n->name), HR_STR_ARG(args->names[k]));
        }
    }
    return HR_OK;
}

static hr_status take_arguments(hr_jinterp *it, const hr_jnode *n, const hr_jargs *args,
                                hr_jval *slots)
{
    size_t given = args->n < n->items.n ? args->n : n->items.n;
    for (size_t i = 0; i < given; i++) slots[n->items.items[i]->ref.slot] = args->pos[i];
    HR_TRY(take_keywords(it, n, args, slots));
    if (n->uses_caller && (!slots[n->slot_caller].kind || slots[n->slot_caller].kind == HR_J_NONE))
        HR_TRY(hr_jinja_hint(it, "No caller defined", &slots[n->slot_caller]));
    if (n->catches_varargs)
        return hr_jinja_list(it, HR_J_TUPLE, args->pos + given, args->n - given,
                             &slots[n->slot_varargs]);
    if (args->n > n->items.n)
        return hr_jinja_fail(it, "macro '%.*s' takes not more than %zu argument(s)",
                             HR_STR_ARG(n->name), n->items.n);
    return HR_OK;
}

/* Parameters that got nothing take their default, evaluated now and here. */
static hr_status take_defaults(hr_jinterp *it, const hr_jnode *n)
{
    size_t first = n->items.n - n->kw.n;
    for (size_t i = 0; i < n->items.n; i++) {
        hr_jval v, *slot = &it->here->slots[n->items.items[i]->ref.slot];
        if (slot->kind) continue;
        if (i < first) HR_TRY(hr_jinja_hint(it, "a parameter of the macro was not provided", &v));
        else HR_TRY(hr_jinja_eval(it, n->kw.items[i - first], &v));
        it->here->slots[n->items.items[i]->ref.slot] = v;
    }
    return HR_OK;
}

static hr_status run_macro(hr_jinterp *it, const hr_jnode *n, hr_jval *out)
{
    hr_jflow flow = HR_JF_NEXT;
    HR_TRY(hr_jinja_enter_scope(it, n->scope));
    HR_TRY(take_defaults(it, n));
    return capture(it, &n->body, &flow, out);
}

hr_status hr_jinja_macro_call(hr_jinterp *it, const hr_jmacro *m, const hr_jargs *args,
                              hr_jval *out)
{
    hr_jactivation *a, *caller = it->here;
    HR_TRY(hr_jinja_alloc(it, 1, sizeof *a, &a));
    HR_TRY(hr_jinja_alloc(it, m->node->n_slots, sizeof *a->slots, &a->slots));
    a->outer = m->outer;
    HR_TRY(take_arguments(it, m->node, args, a->slots));
    it->here = a;
    hr_status st = run_macro(it, m->node, out);
    it->here = caller;
    return st;
}

/* ---- statements ----------------------------------------------------------------------------- */

static hr_status exec_if(hr_jinterp *it, const hr_jnode *n, hr_jflow *flow)
{
    hr_jval v;
    bool yes;
    HR_TRY(hr_jinja_eval(it, n->a, &v));
    HR_TRY(hr_jinja_truth(it, v, &yes));
    if (yes) return hr_jinja_exec(it, &n->body, flow);
    for (size_t i = 0; i < n->items.n; i++) {
        HR_TRY(hr_jinja_eval(it, n->items.items[i]->a, &v));
        HR_TRY(hr_jinja_truth(it, v, &yes));
        if (yes) return hr_jinja_exec(it, &n->items.items[i]->body, flow);
    }
    return hr_jinja_exec(it, &n->orelse, flow);
}

static hr_status exec_node(hr_jinterp *it, const hr_jnode *n, hr_jflow *flow)
{
    hr_jval v;
    switch ((hr_jnode_kind)n->kind) {
    case HR_JN_DATA:
        hr_jinja_put(it->out, hr_jinja_text(n->value.as.s), false);
        return it->out->status;
    case HR_JN_OUTPUT: HR_TRY(hr_jinja_eval(it, n->a, &v)); return hr_jinja_print(it->out, v);
    case HR_JN_IF: return exec_if(it, n, flow);
    case HR_JN_FOR: return hr_jinja_for(it, n, flow);
    case HR_JN_SET: HR_TRY(hr_jinja_eval(it, n->b, &v)); return hr_jinja_assign(it, n->a, v);
    case HR_JN_SETBLOCK: return exec_set_block(it, n, flow);
    case HR_JN_FILTERBLOCK: return exec_filter_block(it, n, flow);
    case HR_JN_WITH: return exec_with(it, n, flow);
    case HR_JN_MACRO: return new_macro(it, n, hr_jinja_slot(it, n->ref));
    case HR_JN_CALLBLOCK: return exec_call_block(it, n);
    case HR_JN_BREAK: *flow = HR_JF_BREAK; return HR_OK;
    case HR_JN_CONTINUE: *flow = HR_JF_CONTINUE; return HR_OK;
    case HR_JN_CONST:
    case HR_JN_NAME:
    case HR_JN_NSREF:
    case HR_JN_TUPLE:
    case HR_JN_LIST:
    case HR_JN_DICT:
    case HR_JN_PAIR:
    case HR_JN_COND:
    case HR_JN_OR:
    case HR_JN_AND:
    case HR_JN_NOT:
    case HR_JN_COMPARE:
    case HR_JN_OPERAND:
    case HR_JN_BINARY:
    case HR_JN_CONCAT:
    case HR_JN_UNARY:
    case HR_JN_GETATTR:
    case HR_JN_GETITEM:
    case HR_JN_SLICE:
    case HR_JN_CALL:
    case HR_JN_FILTER:
    case HR_JN_TEST:
    case HR_JN_KEYWORD: break; /* no statements: the parser puts none of them here */
    }
    return hr_fail(HR_INTERNAL, "chat template line %u: not a statement", n->at.line);
}

hr_status hr_jinja_exec(hr_jinterp *it, const hr_jblock *body, hr_jflow *flow)
{
    hr_status st = HR_OK;
    *flow = HR_JF_NEXT;
    HR_TRY(hr_jinja_enter(it));
    for (size_t i = 0; !st && *flow == HR_JF_NEXT && i < body->n; i++) {
        it->at = body->items[i]->at;
        st = hr_jinja_step(it, 1);
        if (!st) st = exec_node(it, body->items[i], flow);
    }
    hr_jinja_leave(it);
    return st;
}
