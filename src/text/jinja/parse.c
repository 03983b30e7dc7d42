/* Statements: tokens to the tree of a template.
 *
 * A tag's parser runs from its name to its end tag; break and continue must stand in a loop of the
 * same function (macro, call block and generation bodies are functions of their own). Tags that
 * reach for other templates are refused by name. Owns nothing; nodes go to the template's arena. */
#include <stdarg.h>

#include "text/jinja/jinja_int.h"

/* ---- what both parser files use ------------------------------------------------------------- */

static const hr_jtoken *now(const hr_jparser *p)
{
    return &p->tokens[p->at];
}

hr_status hr_jinja_syntax(const hr_jparser *p, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    hr_buf b = { .limit = HR_MESSAGE_MAX };
    hr_buf_vprintf(&b, fmt, args);
    va_end(args);
    hr_status st = hr_jinja_refuse(p->failed, now(p)->at, HR_INVALID_ARGUMENT, "%s", hr_buf_c(&b));
    hr_buf_deinit(&b);
    return st;
}

hr_jnode *hr_jinja_node(hr_jparser *p, hr_jnode_kind kind)
{
    hr_jnode *n = hr_arena_new(p->arena, hr_jnode);
    if (!n) return NULL;
    n->kind = (uint8_t)kind;
    n->at = now(p)->at;
    return n;
}

static hr_status make(hr_jparser *p, hr_jnode_kind kind, hr_jnode **out)
{
    *out = hr_jinja_node(p, kind);
    return *out ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "memory for a chat template");
}

/* Capacity is the next power of two, so it needs no field. */
hr_status hr_jinja_block_add(hr_arena *arena, hr_jblock *b, hr_jnode *n)
{
    if ((b->n & (b->n - 1)) == 0) {
        hr_jnode **items = hr_arena_array(arena, b->n ? b->n * 2 : 1, sizeof *items);
        if (!items) return hr_fail(HR_RESOURCE_EXHAUSTED, "memory for a chat template");
        if (b->n) memcpy(items, b->items, b->n * sizeof *items);
        b->items = items;
    }
    b->items[b->n++] = n;
    return HR_OK;
}

bool hr_jinja_at_op(const hr_jparser *p, const char *op)
{
    return now(p)->kind == HR_JT_OPERATOR && hr_str_eq_c(now(p)->text, op);
}

bool hr_jinja_at_name(const hr_jparser *p, const char *name)
{
    return now(p)->kind == HR_JT_NAME && hr_str_eq_c(now(p)->text, name);
}

bool hr_jinja_skip_op(hr_jparser *p, const char *op)
{
    bool yes = hr_jinja_at_op(p, op);
    p->at += yes;
    return yes;
}

bool hr_jinja_skip_name(hr_jparser *p, const char *name)
{
    bool yes = hr_jinja_at_name(p, name);
    p->at += yes;
    return yes;
}

hr_status hr_jinja_expect_op(hr_jparser *p, const char *op)
{
    return hr_jinja_skip_op(p, op) ? HR_OK : hr_jinja_syntax(p, "'%s' is expected", op);
}

hr_status hr_jinja_expect_name(hr_jparser *p, hr_str *out)
{
    *out = now(p)->text;
    if (now(p)->kind != HR_JT_NAME) return hr_jinja_syntax(p, "a name is expected");
    p->at++;
    return HR_OK;
}

static hr_status expect_kind(hr_jparser *p, hr_jtoken_kind kind, const char *what)
{
    if (now(p)->kind != kind) return hr_jinja_syntax(p, "%s is expected", what);
    p->at++;
    return HR_OK;
}

/* ---- targets -------------------------------------------------------------------------------- */

/* Marks a target as assigned to; only names, ns.attr and tuples of them can be. */
static hr_status set_store(hr_jparser *p, hr_jnode *t)
{
    if (t->kind == HR_JN_NAME) {
        t->store = true;
        return HR_OK;
    }
    if (t->kind == HR_JN_NSREF) return HR_OK;
    if (t->kind != HR_JN_TUPLE) return hr_jinja_syntax(p, "cannot assign to this");
    for (size_t i = 0; i < t->items.n; i++) HR_TRY(set_store(p, t->items.items[i]));
    return HR_OK;
}

static hr_status parse_target(hr_jparser *p, hr_jtuple_flags extra, const char *end_name,
                              hr_jnode **out)
{
    HR_TRY(hr_jinja_parse_tuple(p, HR_JTUPLE_SIMPLE | extra, end_name, out));
    return set_store(p, *out);
}

static hr_status parse_name_target(hr_jparser *p, hr_jnode **out)
{
    HR_TRY(make(p, HR_JN_NAME, out));
    HR_TRY(hr_jinja_expect_name(p, &(*out)->name));
    static const char *const constants[] = { "true", "false", "none", "True", "False", "None" };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (hr_str_eq_c((*out)->name, constants[i]))
            return hr_jinja_syntax(p, "cannot assign to %s", constants[i]);
    (*out)->store = true;
    return HR_OK;
}

/* ---- bodies --------------------------------------------------------------------------------- */

static hr_status parse_statement(hr_jparser *p, hr_jblock *into);

static bool at_any(const hr_jparser *p, const char *const *names)
{
    for (size_t i = 0; names && names[i]; i++)
        if (hr_jinja_at_name(p, names[i])) return true;
    return false;
}

static hr_status add_data(hr_jparser *p, hr_jblock *into)
{
    hr_jnode *n;
    HR_TRY(make(p, HR_JN_DATA, &n));
    hr_jstr *s = hr_arena_new(p->arena, hr_jstr);
    if (!s) return hr_fail(HR_RESOURCE_EXHAUSTED, "memory for a chat template");
    *s = (hr_jstr){ .p = now(p)->text.p, .n = now(p)->text.n };
    n->value = (hr_jval){ .kind = HR_J_STR, .as.s = s };
    p->at++;
    return hr_jinja_block_add(p->arena, into, n);
}

static hr_status add_output(hr_jparser *p, hr_jblock *into)
{
    hr_jnode *n;
    p->at++;
    HR_TRY(make(p, HR_JN_OUTPUT, &n));
    HR_TRY(hr_jinja_parse_tuple(p, HR_JTUPLE_DEFAULT, NULL, &n->a));
    HR_TRY(hr_jinja_block_add(p->arena, into, n));
    return expect_kind(p, HR_JT_VARIABLE_END, "'}}'");
}

/* Up to one of `ends` (NULL-terminated; its name is the current token then) or the end of the
 * template when `ends` is NULL. */
static hr_status parse_body(hr_jparser *p, const char *const *ends, hr_jblock *out)
{
    while (now(p)->kind != HR_JT_EOF) {
        if (now(p)->kind == HR_JT_DATA) {
            HR_TRY(add_data(p, out));
        } else if (now(p)->kind == HR_JT_VARIABLE_BEGIN) {
            HR_TRY(add_output(p, out));
        } else {
            p->at++; /* the lexer leaves only block begins here */
            if (at_any(p, ends)) return HR_OK;
            HR_TRY(parse_statement(p, out));
            HR_TRY(expect_kind(p, HR_JT_BLOCK_END, "'%}'"));
        }
    }
    if (!ends) return HR_OK;
    while (ends[1]) ends++; /* the last one is the end proper */
    return hr_jinja_syntax(p, "the template ends where '%s' is expected", *ends);
}

/* From the end of an opening tag to the name of the end tag. */
static hr_status parse_inner(hr_jparser *p, const char *const *ends, hr_jblock *out)
{
    hr_jinja_skip_op(p, ":");
    HR_TRY(expect_kind(p, HR_JT_BLOCK_END, "'%}'"));
    if (++p->depth > HR_JINJA_MAX_NESTING) return hr_jinja_syntax(p, "nested too deeply");
    HR_TRY(parse_body(p, ends, out));
    p->depth--;
    return HR_OK;
}

/* The same with a single end tag, which is eaten. */
static hr_status parse_inner_to(hr_jparser *p, const char *end, hr_jblock *out)
{
    HR_TRY(parse_inner(p, (const char *const[]){ end, NULL }, out));
    p->at++;
    return HR_OK;
}

/* The body of a function: loops around it are not its own. */
static hr_status parse_function_body(hr_jparser *p, const char *end, hr_jblock *out)
{
    size_t loops = p->loop_depth;
    p->loop_depth = 0;
    HR_TRY(parse_inner_to(p, end, out));
    p->loop_depth = loops;
    return HR_OK;
}

/* ---- tags ----------------------------------------------------------------------------------- */

static hr_status parse_set(hr_jparser *p, hr_jnode *n)
{
    HR_TRY(parse_target(p, HR_JTUPLE_NAMESPACE, NULL, &n->a));
    if (hr_jinja_skip_op(p, "=")) return hr_jinja_parse_tuple(p, HR_JTUPLE_DEFAULT, NULL, &n->b);
    n->kind = HR_JN_SETBLOCK;
    HR_TRY(hr_jinja_parse_filters(p, HR_JCHAIN_PIPE, &n->b));
    return parse_inner_to(p, "endset", &n->body);
}

static hr_status parse_for(hr_jparser *p, hr_jnode *n)
{
    HR_TRY(parse_target(p, HR_JTUPLE_DEFAULT, "in", &n->a));
    if (!hr_jinja_skip_name(p, "in")) return hr_jinja_syntax(p, "'in' is expected");
    HR_TRY(hr_jinja_parse_tuple(p, HR_JTUPLE_NO_COND, "recursive", &n->b));
    if (hr_jinja_skip_name(p, "if")) HR_TRY(hr_jinja_parse_expression(p, &n->c));
    n->recursive = hr_jinja_skip_name(p, "recursive");
    p->loop_depth++;
    HR_TRY(parse_inner(p, (const char *const[]){ "else", "endfor", NULL }, &n->body));
    p->loop_depth--;
    if (hr_jinja_skip_name(p, "endfor")) return HR_OK;
    p->at++;
    return parse_inner_to(p, "endfor", &n->orelse);
}

static hr_status parse_if(hr_jparser *p, hr_jnode *n)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    HR_TRY(hr_jinja_parse_tuple(p, HR_JTUPLE_NO_COND, NULL, &n->a));
    HR_TRY(parse_inner(p, ends, &n->body));
    while (hr_jinja_skip_name(p, "elif")) {
        hr_jnode *elif;
        HR_TRY(make(p, HR_JN_IF, &elif));
        HR_TRY(hr_jinja_parse_tuple(p, HR_JTUPLE_NO_COND, NULL, &elif->a));
        HR_TRY(parse_inner(p, ends, &elif->body));
        HR_TRY(hr_jinja_block_add(p->arena, &n->items, elif));
    }
    if (hr_jinja_skip_name(p, "else")) return parse_inner_to(p, "endif", &n->orelse);
    p->at++;
    return HR_OK;
}

static void set_parameter(hr_jnode *t)
{
    t->parameter = true;
    for (size_t i = 0; t->kind == HR_JN_TUPLE && i < t->items.n; i++)
        set_parameter(t->items.items[i]);
}

static hr_status parse_with(hr_jparser *p, hr_jnode *n)
{
    while (now(p)->kind != HR_JT_BLOCK_END) {
        hr_jnode *pair;
        if (n->items.n) HR_TRY(hr_jinja_expect_op(p, ","));
        HR_TRY(make(p, HR_JN_PAIR, &pair));
        HR_TRY(parse_target(p, HR_JTUPLE_DEFAULT, NULL, &pair->a));
        set_parameter(pair->a);
        HR_TRY(hr_jinja_expect_op(p, "="));
        HR_TRY(hr_jinja_parse_expression(p, &pair->b));
        HR_TRY(hr_jinja_block_add(p->arena, &n->items, pair));
    }
    return parse_inner_to(p, "endwith", &n->body);
}

/* (a, b=1): parameters to items, defaults (of the last ones) to kw. */
static hr_status parse_signature(hr_jparser *p, hr_jnode *n)
{
    HR_TRY(hr_jinja_expect_op(p, "("));
    while (!hr_jinja_skip_op(p, ")")) {
        hr_jnode *arg, *value;
        if (n->items.n) HR_TRY(hr_jinja_expect_op(p, ","));
        HR_TRY(parse_name_target(p, &arg));
        arg->parameter = true;
        for (size_t i = 0; i < n->items.n; i++)
            if (hr_str_eq(n->items.items[i]->name, arg->name))
                return hr_jinja_syntax(p, "the parameter %.*s is there twice",
                                       HR_STR_ARG(arg->name));
        if (hr_jinja_skip_op(p, "=")) {
            HR_TRY(hr_jinja_parse_expression(p, &value));
            HR_TRY(hr_jinja_block_add(p->arena, &n->kw, value));
        } else if (n->kw.n) {
            return hr_jinja_syntax(p, "non-default argument follows default argument");
        }
        HR_TRY(hr_jinja_block_add(p->arena, &n->items, arg));
    }
    return HR_OK;
}

static hr_status parse_macro(hr_jparser *p, hr_jnode *n)
{
    hr_jnode *name;
    HR_TRY(parse_name_target(p, &name));
    n->name = name->name;
    HR_TRY(parse_signature(p, n));
    return parse_function_body(p, "endmacro", &n->body);
}

static hr_status parse_call_block(hr_jparser *p, hr_jnode *n)
{
    if (hr_jinja_at_op(p, "(")) HR_TRY(parse_signature(p, n));
    HR_TRY(hr_jinja_parse_expression(p, &n->a));
    if (n->a->kind != HR_JN_CALL) return hr_jinja_syntax(p, "a call is expected");
    return parse_function_body(p, "endcall", &n->body);
}

/* transformers marks what the model is to learn with this tag: a call block without a call. */
static hr_status parse_generation(hr_jparser *p, hr_jnode *n)
{
    return parse_function_body(p, "endgeneration", &n->body);
}

static hr_status parse_filter_block(hr_jparser *p, hr_jnode *n)
{
    HR_TRY(hr_jinja_parse_filters(p, HR_JCHAIN_INLINE, &n->b));
    return parse_inner_to(p, "endfilter", &n->body);
}

static hr_status parse_loop_control(hr_jparser *p, hr_jnode *n)
{
    (void)n;
    return p->loop_depth ? HR_OK : hr_jinja_syntax(p, "break and continue belong in a loop");
}

typedef struct tag {
    const char *name;
    hr_jnode_kind kind;
    hr_status (*parse)(hr_jparser *, hr_jnode *);
} tag;

static const tag tags[] = {
    { "set", HR_JN_SET, parse_set },
    { "for", HR_JN_FOR, parse_for },
    { "if", HR_JN_IF, parse_if },
    { "with", HR_JN_WITH, parse_with },
    { "macro", HR_JN_MACRO, parse_macro },
    { "call", HR_JN_CALLBLOCK, parse_call_block },
    { "generation", HR_JN_CALLBLOCK, parse_generation },
    { "filter", HR_JN_FILTERBLOCK, parse_filter_block },
    { "break", HR_JN_BREAK, parse_loop_control },
    { "continue", HR_JN_CONTINUE, parse_loop_control },
};

/* {% print a, b %} */
static hr_status parse_print(hr_jparser *p, hr_jblock *into)
{
    for (bool more = false; now(p)->kind != HR_JT_BLOCK_END; more = true) {
        hr_jnode *n;
        if (more) HR_TRY(hr_jinja_expect_op(p, ","));
        HR_TRY(make(p, HR_JN_OUTPUT, &n));
        HR_TRY(hr_jinja_parse_expression(p, &n->a));
        HR_TRY(hr_jinja_block_add(p->arena, into, n));
    }
    return HR_OK;
}

static hr_status unknown_tag(hr_jparser *p, hr_str name)
{
    static const char *const others[] = { "extends", "include",    "import",
                                          "from",    "autoescape", "block" };
    p->at--;
    hr_status st = hr_jinja_syntax(p, "unknown tag '%.*s'", HR_STR_ARG(name));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (hr_str_eq_c(name, others[i]))
            st = hr_jinja_refuse(p->failed, now(p)->at, HR_UNIMPLEMENTED,
                                 "the tag '%s' is not supported: a chat template stands alone",
                                 others[i]);
    return st;
}

static hr_status parse_statement(hr_jparser *p, hr_jblock *into)
{
    hr_str name;
    HR_TRY(hr_jinja_expect_name(p, &name));
    if (hr_str_eq_c(name, "print")) return parse_print(p, into);
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!hr_str_eq_c(name, tags[i].name)) continue;
        hr_jnode *n;
        HR_TRY(make(p, tags[i].kind, &n));
        HR_TRY(tags[i].parse(p, n));
        return hr_jinja_block_add(p->arena, into, n);
    }
    return unknown_tag(p, name);
}

hr_status hr_jinja_parse_template(hr_jparser *p, hr_jblock *out)
{
    return parse_body(p, NULL, out);
}
