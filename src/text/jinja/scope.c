/* Names to slots, by the scoping rules of jinja2's compiler.
 *
 * Two passes over each scope, outer scopes first. `note` walks a scope's own statements in order
 * and decides for every name what the scope's entry does to it: a parameter, looked up among the
 * caller's variables, a copy of the outer scope's variable, or undefined. That order matters and is
 * observable: a name that is assigned in a loop body before it is read starts out undefined there,
 * one that is read first starts out as the caller's variable. `bind` then gives every name in the
 * scope its place and opens the scopes within.
 *
 * A scope belongs to a function (the template, a macro, a call block, a recursive loop): scopes of
 * one function share an activation, inner functions reach outer ones by hops, late: a macro sees
 * the value that a variable has when it is called. Runs once per template; owns nothing. */
#include "text/jinja/jinja_int.h"

/* One name as one scope sees it. */
typedef struct symbol {
    hr_str name;
    hr_jload load; /* how and slot */
    bool stored;
    struct symbol *next;
} symbol;

typedef struct function {
    uint32_t n_slots;
    uint32_t level;
} function;

typedef struct symbols {
    symbol *first; /* newest first */
    const struct symbols *parent;
    function *fn;
} symbols;

typedef struct resolver {
    hr_arena *arena;
    size_t depth;
    hr_template_place *failed; /* borrowed, or NULL */
} resolver;

/* Levels of the tree; a chain of a thousand additions is one too. */
#define MAX_TREE 1000

static hr_status out_of_memory(void)
{
    return hr_fail(HR_RESOURCE_EXHAUSTED, "memory for a chat template");
}

static symbol *find_own(const symbols *s, hr_str name)
{
    for (symbol *y = s->first; y; y = y->next)
        if (hr_str_eq(y->name, name)) return y;
    return NULL;
}

static symbol *find_outer(const symbols *s, hr_str name, const symbols **where)
{
    for (; s; s = s->parent) {
        symbol *y = find_own(s, name);
        *where = s;
        if (y) return y;
    }
    return NULL;
}

static hr_status define(resolver *r, symbols *s, hr_str name, int how, symbol **out)
{
    symbol *y = find_own(s, name);
    if (!y) {
        y = hr_arena_new(r->arena, symbol);
        if (!y) return out_of_memory();
        y->name = name;
        y->load.slot = s->fn->n_slots++;
        y->load.name = name;
        y->next = s->first;
        s->first = y;
    }
    y->load.how = (unsigned)how;
    *out = y;
    return HR_OK;
}

/* ALIAS of the outer scope's variable; the place is counted from the scope's own function. */
static void alias(symbols *s, symbol *y, const symbol *outer, const symbols *where)
{
    y->load.how = HR_JL_ALIAS;
    y->load.from = (hr_jref){ s->fn->level - where->fn->level, outer->load.slot };
}

static hr_status note_store(resolver *r, symbols *s, hr_str name)
{
    symbol *y = find_own(s, name);
    if (!y) {
        HR_TRY(define(r, s, name, HR_JL_UNDEFINED, &y));
        const symbols *where;
        const symbol *outer = s->parent ? find_outer(s->parent, name, &where) : NULL;
        if (outer) alias(s, y, outer, where);
    }
    y->stored = true;
    return HR_OK;
}

static hr_status note_load(resolver *r, symbols *s, hr_str name)
{
    const symbols *where;
    symbol *y;
    return find_outer(s, name, &where) ? HR_OK : define(r, s, name, HR_JL_RESOLVE, &y);
}

static hr_status note_parameter(resolver *r, symbols *s, hr_str name)
{
    symbol *y;
    HR_TRY(define(r, s, name, HR_JL_PARAMETER, &y));
    y->stored = true;
    return HR_OK;
}

/* ---- note: what a scope does to its names --------------------------------------------------- */

static hr_status note(resolver *r, symbols *s, const hr_jnode *n);

static hr_status note_all(resolver *r, symbols *s, const hr_jblock *b)
{
    for (size_t i = 0; i < b->n; i++) HR_TRY(note(r, s, b->items[i]));
    return HR_OK;
}

static hr_status note_target(resolver *r, symbols *s, const hr_jnode *t, bool parameter)
{
    if (t->kind == HR_JN_TUPLE) {
        for (size_t i = 0; i < t->items.n; i++)
            HR_TRY(note_target(r, s, t->items.items[i], parameter));
        return HR_OK;
    }
    if (t->kind == HR_JN_NSREF) return note_load(r, s, t->name);
    return parameter || t->parameter ? note_parameter(r, s, t->name) : note_store(r, s, t->name);
}

static hr_status copy_symbols(resolver *r, const symbols *s, symbols *out)
{
    *out = (symbols){ .parent = s->parent, .fn = s->fn };
    symbol **end = &out->first;
    for (const symbol *y = s->first; y; y = y->next) {
        symbol *c = hr_arena_new(r->arena, symbol);
        if (!c) return out_of_memory();
        *c = *y;
        c->next = NULL;
        *end = c;
        end = &c->next;
    }
    return HR_OK;
}

/* What a branch learned comes into s. A name that only branches store is looked up at the scope's
 * entry, since the branch may not run. Slots of a name agree: each branch that meets a name first
 * would give it a slot of its own, so the first one's stays. */
static hr_status merge(resolver *r, symbols *s, const symbols *branch)
{
    for (const symbol *y = branch->first; y; y = y->next) {
        symbol *mine = find_own(s, y->name);
        if (mine && (mine->stored || !y->stored)) continue;
        if (!mine) {
            HR_TRY(define(r, s, y->name, (int)y->load.how, &mine));
            mine->load.from = y->load.from;
        }
        if (!y->stored) continue;
        mine->load.how = HR_JL_RESOLVE;
        const symbols *where;
        const symbol *outer = s->parent ? find_outer(s->parent, y->name, &where) : NULL;
        if (outer) alias(s, mine, outer, where);
        mine->stored = true;
    }
    return HR_OK;
}

static hr_status note_if(resolver *r, symbols *s, const hr_jnode *n)
{
    symbols body, elifs, orelse;
    HR_TRY(note(r, s, n->a));
    HR_TRY(copy_symbols(r, s, &body));
    HR_TRY(copy_symbols(r, s, &elifs));
    HR_TRY(copy_symbols(r, s, &orelse));
    HR_TRY(note_all(r, &body, &n->body));
    HR_TRY(note_all(r, &elifs, &n->items));
    HR_TRY(note_all(r, &orelse, &n->orelse));
    HR_TRY(merge(r, s, &body));
    HR_TRY(merge(r, s, &elifs));
    return merge(r, s, &orelse);
}

static hr_status note_children(resolver *r, symbols *s, const hr_jnode *n)
{
    if (n->a) HR_TRY(note(r, s, n->a));
    if (n->b) HR_TRY(note(r, s, n->b));
    if (n->c) HR_TRY(note(r, s, n->c));
    HR_TRY(note_all(r, s, &n->items));
    HR_TRY(note_all(r, s, &n->kw));
    if (n->star) HR_TRY(note(r, s, n->star));
    return n->star2 ? note(r, s, n->star2) : HR_OK;
}

static hr_status note_one(resolver *r, symbols *s, const hr_jnode *n)
{
    switch ((hr_jnode_kind)n->kind) {
    case HR_JN_NAME: return n->store ? note_target(r, s, n, false) : note_load(r, s, n->name);
    case HR_JN_NSREF: return note_load(r, s, n->name);
    case HR_JN_IF: return note_if(r, s, n);
    case HR_JN_MACRO: return note_store(r, s, n->name);
    case HR_JN_FOR: return note(r, s, n->b); /* the rest is in scopes of its own */
    case HR_JN_CALLBLOCK: return n->a ? note(r, s, n->a) : HR_OK;
    case HR_JN_FILTERBLOCK: return note(r, s, n->b);
    case HR_JN_WITH:
        for (size_t i = 0; i < n->items.n; i++) HR_TRY(note(r, s, n->items.items[i]->b));
        return HR_OK;
    case HR_JN_SET: HR_TRY(note(r, s, n->b)); return note_target(r, s, n->a, false);
    case HR_JN_SETBLOCK: return note_target(r, s, n->a, false);
    case HR_JN_CONST:
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
    case HR_JN_KEYWORD:
    case HR_JN_DATA:
    case HR_JN_OUTPUT:
    case HR_JN_BREAK:
    case HR_JN_CONTINUE: return note_children(r, s, n);
    }
    return HR_OK;
}

static hr_status note(resolver *r, symbols *s, const hr_jnode *n)
{
    if (++r->depth > MAX_TREE)
        return hr_jinja_refuse(r->failed, n->at, HR_INVALID_ARGUMENT, "nested too deeply");
    hr_status st = note_one(r, s, n);
    r->depth--;
    return st;
}

/* ---- bind: places for names, scopes within -------------------------------------------------- */

static hr_status bind(resolver *r, symbols *s, hr_jnode *n, bool soft);

static hr_status bind_all(resolver *r, symbols *s, const hr_jblock *b, bool soft)
{
    for (size_t i = 0; i < b->n; i++) HR_TRY(bind(r, s, b->items[i], soft));
    return HR_OK;
}

/* The scope's loads in the order in which the names came up. */
static hr_status finish_scope(resolver *r, const symbols *s, hr_jscope *out)
{
    size_t n = 0;
    for (const symbol *y = s->first; y; y = y->next) n++;
    out->loads = hr_arena_array(r->arena, n ? n : 1, sizeof *out->loads);
    if (!out->loads) return out_of_memory();
    out->n_loads = n;
    for (const symbol *y = s->first; y; y = y->next) out->loads[--n] = y->load;
    return HR_OK;
}

static hr_status new_scope(resolver *r, const symbols *s, hr_jscope **out)
{
    *out = hr_arena_new(r->arena, hr_jscope);
    return *out ? finish_scope(r, s, *out) : out_of_memory();
}

static hr_status place(const symbols *s, hr_jnode *n)
{
    const symbols *where;
    const symbol *y = find_outer(s, n->name, &where);
    if (!y)
        return hr_fail(HR_INTERNAL, "chat template line %u: no place for %.*s", n->at.line,
                       HR_STR_ARG(n->name));
    n->ref = (hr_jref){ s->fn->level - where->fn->level, y->load.slot };
    return HR_OK;
}

/* Does anything under n read `name`? Stops asking once something under n assigns it. */
static bool reads(const hr_jnode *n, hr_str name, bool *assigned)
{
    const hr_jblock *blocks[] = { &n->items, &n->kw, &n->body, &n->orelse };
    const hr_jnode *children[] = { n->a, n->b, n->c, n->star, n->star2 };
    if (n->kind == HR_JN_NAME && hr_str_eq(n->name, name)) {
        if (n->store) *assigned = true;
        else if (!*assigned) return true;
    }
    for (size_t i = 0; i < sizeof children / sizeof *children; i++)
        if (children[i] && reads(children[i], name, assigned)) return true;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        for (size_t k = 0; k < blocks[i]->n; k++)
            if (reads(blocks[i]->items[k], name, assigned)) return true;
    return false;
}

static bool body_reads(const hr_jnode *n, const char *name)
{
    bool assigned = false;
    for (size_t i = 0; i < n->body.n; i++)
        if (reads(n->body.items[i], hr_str_c(name), &assigned)) return true;
    return false;
}

static bool has_parameter(const hr_jnode *n, const char *name)
{
    for (size_t i = 0; i < n->items.n; i++)
        if (hr_str_eq_c(n->items.items[i]->name, name)) return true;
    return false;
}

/* caller, kwargs and varargs are parameters of a macro that mentions them. */
static hr_status special(resolver *r, symbols *s, hr_jnode *n, const char *name, bool *uses,
                         uint32_t *slot)
{
    symbol *y;
    *uses = body_reads(n, name) && !has_parameter(n, name);
    if (!*uses) return HR_OK;
    HR_TRY(define(r, s, hr_str_c(name), HR_JL_PARAMETER, &y));
    *slot = y->load.slot;
    return HR_OK;
}

static hr_status check_caller(const resolver *r, const hr_jnode *n)
{
    for (size_t i = 0; i + n->kw.n < n->items.n; i++)
        if (hr_str_eq_c(n->items.items[i]->name, "caller") && body_reads(n, "caller"))
            return hr_jinja_refuse(r->failed, n->at, HR_INVALID_ARGUMENT,
                                   "the special \"caller\" argument must be "
                                   "omitted or be given a default");
    return HR_OK;
}

/* A macro or call block: a function of its own. */
static hr_status bind_function(resolver *r, symbols *s, hr_jnode *n)
{
    function fn = { .level = s->fn->level + 1 };
    symbols inner = { .parent = s, .fn = &fn };
    HR_TRY(check_caller(r, n));
    for (size_t i = 0; i < n->items.n; i++)
        HR_TRY(note_parameter(r, &inner, n->items.items[i]->name));
    HR_TRY(special(r, &inner, n, "caller", &n->uses_caller, &n->slot_caller));
    HR_TRY(special(r, &inner, n, "kwargs", &n->catches_kwargs, &n->slot_kwargs));
    HR_TRY(special(r, &inner, n, "varargs", &n->catches_varargs, &n->slot_varargs));
    HR_TRY(note_all(r, &inner, &n->kw));
    HR_TRY(note_all(r, &inner, &n->body));
    HR_TRY(new_scope(r, &inner, &n->scope));
    HR_TRY(bind_all(r, &inner, &n->items, false));
    HR_TRY(bind_all(r, &inner, &n->kw, false));
    HR_TRY(bind_all(r, &inner, &n->body, false));
    n->n_slots = fn.n_slots;
    return HR_OK;
}

static bool assigns_loop(const hr_jnode *n)
{
    const hr_jblock *blocks[] = { &n->items, &n->kw, &n->body, &n->orelse };
    if (n->kind == HR_JN_NAME && n->store && !n->parameter && hr_str_eq_c(n->name, "loop"))
        return true;
    if ((n->a && assigns_loop(n->a)) || (n->b && assigns_loop(n->b))) return true;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        for (size_t k = 0; k < blocks[i]->n; k++)
            if (assigns_loop(blocks[i]->items[k])) return true;
    return false;
}

/* The target again, for the filter of a loop, which looks at an item before the body may. */
static hr_status clone_target(resolver *r, const hr_jnode *t, hr_jnode **out)
{
    *out = hr_arena_new(r->arena, hr_jnode);
    if (!*out) return out_of_memory();
    **out = *t;
    (*out)->items = (hr_jblock){ 0 };
    for (size_t i = 0; i < t->items.n; i++) {
        hr_jnode *item;
        HR_TRY(clone_target(r, t->items.items[i], &item));
        HR_TRY(hr_jinja_block_add(r->arena, &(*out)->items, item));
    }
    return HR_OK;
}

static hr_status bind_loop_filter(resolver *r, symbols *test, hr_jnode *n)
{
    HR_TRY(clone_target(r, n->a, &n->star));
    HR_TRY(note_target(r, test, n->star, true));
    HR_TRY(note(r, test, n->c));
    HR_TRY(new_scope(r, test, &n->scope_test));
    HR_TRY(bind(r, test, n->star, false));
    return bind(r, test, n->c, false);
}

static hr_status bind_for(resolver *r, symbols *s, hr_jnode *n, bool soft)
{
    function own = { .level = s->fn->level + 1 };
    function *fn = n->recursive ? &own : s->fn;
    symbols body = { .parent = s, .fn = fn }, orelse = body, test = body;
    if (assigns_loop(n))
        return hr_jinja_refuse(r->failed, n->at, HR_INVALID_ARGUMENT,
                               "cannot assign to the special variable loop");
    HR_TRY(bind(r, s, n->b, soft));
    HR_TRY(note_parameter(r, &body, HR_STR("loop")));
    n->slot_loop = body.first->load.slot;
    HR_TRY(note_target(r, &body, n->a, true));
    HR_TRY(note_all(r, &body, &n->body));
    HR_TRY(new_scope(r, &body, &n->scope));
    if (n->c) HR_TRY(bind_loop_filter(r, &test, n));
    HR_TRY(note_all(r, &orelse, &n->orelse));
    HR_TRY(new_scope(r, &orelse, &n->scope_else));
    HR_TRY(bind(r, &body, n->a, false));
    HR_TRY(bind_all(r, &body, &n->body, false));
    HR_TRY(bind_all(r, &orelse, &n->orelse, false));
    n->n_slots = own.n_slots;
    return HR_OK;
}

static hr_status bind_with(resolver *r, symbols *s, hr_jnode *n, bool soft)
{
    symbols inner = { .parent = s, .fn = s->fn };
    for (size_t i = 0; i < n->items.n; i++)
        HR_TRY(note_target(r, &inner, n->items.items[i]->a, true));
    HR_TRY(note_all(r, &inner, &n->body));
    HR_TRY(new_scope(r, &inner, &n->scope));
    for (size_t i = 0; i < n->items.n; i++) {
        HR_TRY(bind(r, &inner, n->items.items[i]->a, false));
        HR_TRY(bind(r, s, n->items.items[i]->b, soft));
    }
    return bind_all(r, &inner, &n->body, false);
}

/* A set or filter block: the filter sees the names of the block. */
static hr_status bind_capture(resolver *r, symbols *s, hr_jnode *n)
{
    symbols inner = { .parent = s, .fn = s->fn };
    if (n->a) HR_TRY(bind(r, s, n->a, false));
    HR_TRY(note_all(r, &inner, &n->body));
    if (n->b) HR_TRY(note(r, &inner, n->b));
    HR_TRY(new_scope(r, &inner, &n->scope));
    HR_TRY(bind_all(r, &inner, &n->body, false));
    return n->b ? bind(r, &inner, n->b, false) : HR_OK;
}

static hr_status bind_children(resolver *r, symbols *s, hr_jnode *n, bool soft)
{
    if (n->a) HR_TRY(bind(r, s, n->a, soft));
    if (n->b) HR_TRY(bind(r, s, n->b, soft));
    if (n->c) HR_TRY(bind(r, s, n->c, soft));
    HR_TRY(bind_all(r, s, &n->items, soft));
    HR_TRY(bind_all(r, s, &n->kw, soft));
    if (n->star) HR_TRY(bind(r, s, n->star, soft));
    return n->star2 ? bind(r, s, n->star2, soft) : HR_OK;
}

/* Unknown filters and tests are refused at once, but inside if only when they are reached. */
static hr_status bind_filter(resolver *r, symbols *s, hr_jnode *n, bool soft)
{
    bool known = n->kind == HR_JN_FILTER ? n->filter != NULL : n->test != NULL;
    if (!known && !soft)
        return hr_jinja_refuse(r->failed, n->at, HR_INVALID_ARGUMENT, "no %s named '%.*s'",
                               n->kind == HR_JN_FILTER ? "filter" : "test", HR_STR_ARG(n->name));
    return bind_children(r, s, n, soft);
}

static hr_status bind_one(resolver *r, symbols *s, hr_jnode *n, bool soft)
{
    switch ((hr_jnode_kind)n->kind) {
    case HR_JN_NAME:
    case HR_JN_NSREF: return place(s, n);
    case HR_JN_IF:
        HR_TRY(bind(r, s, n->a, true));
        HR_TRY(bind_all(r, s, &n->body, true));
        HR_TRY(bind_all(r, s, &n->items, true));
        return bind_all(r, s, &n->orelse, true);
    case HR_JN_COND: return bind_children(r, s, n, true);
    case HR_JN_FILTER:
    case HR_JN_TEST: return bind_filter(r, s, n, soft);
    case HR_JN_MACRO: HR_TRY(bind_function(r, s, n)); return place(s, n);
    case HR_JN_CALLBLOCK:
        HR_TRY(bind_function(r, s, n));
        return n->a ? bind(r, s, n->a, soft) : HR_OK;
    case HR_JN_FOR: return bind_for(r, s, n, soft);
    case HR_JN_WITH: return bind_with(r, s, n, soft);
    case HR_JN_SETBLOCK:
    case HR_JN_FILTERBLOCK: return bind_capture(r, s, n);
    case HR_JN_CONST:
    case HR_JN_TUPLE:
    case HR_JN_LIST:
    case HR_JN_DICT:
    case HR_JN_PAIR:
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
    case HR_JN_KEYWORD:
    case HR_JN_DATA:
    case HR_JN_OUTPUT:
    case HR_JN_SET:
    case HR_JN_BREAK:
    case HR_JN_CONTINUE: return bind_children(r, s, n, soft);
    }
    return HR_OK;
}

static hr_status bind(resolver *r, symbols *s, hr_jnode *n, bool soft)
{
    if (++r->depth > MAX_TREE)
        return hr_jinja_refuse(r->failed, n->at, HR_INVALID_ARGUMENT, "nested too deeply");
    hr_status st = bind_one(r, s, n, soft);
    r->depth--;
    return st;
}

/* Long chains lean left: no bracket bounds them, and everything below recurses over the tree. */
static hr_status measure(const resolver *r, const hr_jnode *n, size_t depth)
{
    if (!n) return HR_OK;
    const hr_jblock *blocks[] = { &n->items, &n->kw, &n->body, &n->orelse };
    const hr_jnode *children[] = { n->a, n->b, n->c, n->star, n->star2 };
    if (depth > MAX_TREE)
        return hr_jinja_refuse(r->failed, n->at, HR_INVALID_ARGUMENT, "nested too deeply");
    for (size_t i = 0; i < sizeof children / sizeof *children; i++)
        HR_TRY(measure(r, children[i], depth + 1));
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        for (size_t k = 0; k < blocks[i]->n; k++)
            HR_TRY(measure(r, blocks[i]->items[k], depth + 1));
    return HR_OK;
}

hr_status hr_jinja_resolve(hr_template *t, hr_template_place *failed)
{
    function fn = { 0 };
    symbols root = { .fn = &fn };
    resolver r = { .arena = &t->arena, .failed = failed };
    for (size_t i = 0; i < t->body.n; i++) HR_TRY(measure(&r, t->body.items[i], 0));
    HR_TRY(note_all(&r, &root, &t->body));
    HR_TRY(finish_scope(&r, &root, &t->scope));
    HR_TRY(bind_all(&r, &root, &t->body, false));
    t->n_slots = fn.n_slots;
    return HR_OK;
}
