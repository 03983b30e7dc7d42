/* The door: templates parsed and rendered.
 *
 * Parsing keeps tokens only while it lasts; the tree stays in the template's arena. A rendering
 * owns an arena for every value it makes and frees it at once; only the text and its spans are
 * copied out. Any thread; a template is shared freely. */
#include "base/utf8.h"
#include "text/jinja/jinja_int.h"

#define DEFAULT_STEPS  20000000u
#define DEFAULT_DEPTH  400
#define MAX_DEPTH      2000
#define DEFAULT_OUTPUT ((size_t)64 << 20)
#define DEFAULT_MEMORY ((size_t)512 << 20)

static hr_status parse(hr_template *t, hr_str source, hr_template_place *failed)
{
    hr_jtokens tokens;
    char *copy = hr_arena_copy(&t->arena, source.p, source.n);
    if (!copy) return hr_fail(HR_RESOURCE_EXHAUSTED, "memory for a chat template");
    /* token text points into the lexer's normalised copy, so both live in the template's arena */
    hr_status st = hr_jinja_lex((hr_str){ copy, source.n }, &t->arena, failed, &tokens);
    hr_jparser p = { .arena = &t->arena, .tokens = tokens.items, .failed = failed };
    if (!st) st = hr_jinja_parse_template(&p, &t->body);
    if (!st) st = hr_jinja_resolve(t, failed);
    return st;
}

hr_status hr_template_parse(hr_str source, hr_template **out)
{
    hr_template_place ignored;
    return hr_template_check(source, &ignored, out);
}

hr_status hr_template_check(hr_str source, hr_template_place *failed, hr_template **out)
{
    *out = NULL;
    *failed = (hr_template_place){ 0 };
    if (!hr_utf8_valid(source)) return hr_fail(HR_INVALID_ARGUMENT, "chat template: not UTF-8");
    hr_template *t = hr_new0(hr_template);
    if (!t) return hr_fail(HR_RESOURCE_EXHAUSTED, "memory for a chat template");
    hr_status st = parse(t, source, failed);
    if (st) {
        hr_template_destroy(t);
        return st;
    }
    *out = t;
    return HR_OK;
}

void hr_template_destroy(hr_template *t)
{
    if (!t) return;
    hr_arena_deinit(&t->arena);
    hr_free(t);
}

/* ---- which variables -------------------------------------------------------------------------*/

static bool scope_reads(const hr_jscope *s, hr_str name)
{
    for (size_t i = 0; s && i < s->n_loads; i++)
        if (s->loads[i].how == HR_JL_RESOLVE && hr_str_eq(s->loads[i].name, name)) return true;
    return false;
}

static bool block_reads(const hr_jblock *b, hr_str name);

static bool node_reads(const hr_jnode *n, hr_str name)
{
    return scope_reads(n->scope, name) || scope_reads(n->scope_test, name) ||
           scope_reads(n->scope_else, name) || block_reads(&n->items, name) ||
           block_reads(&n->body, name) || block_reads(&n->orelse, name);
}

static bool block_reads(const hr_jblock *b, hr_str name)
{
    for (size_t i = 0; i < b->n; i++)
        if (node_reads(b->items[i], name)) return true;
    return false;
}

bool hr_template_reads(const hr_template *t, const char *name)
{
    return scope_reads(&t->scope, hr_str_c(name)) || block_reads(&t->body, hr_str_c(name));
}

/* ---- rendering ------------------------------------------------------------------------------ */

static bool is_trusted(const hr_render_options *o, hr_str name)
{
    for (size_t i = 0; i < o->n_trusted; i++)
        if (hr_str_eq(o->trusted[i], name)) return true;
    return false;
}

static hr_status load_variables(hr_jinterp *it, const hr_json *variables)
{
    HR_TRY(hr_jinja_dict_new(it, variables->count, &it->variables));
    for (size_t i = 0; i < variables->count; i++) {
        const hr_json *j = &variables->items[i];
        hr_jval key, value;
        HR_TRY(hr_jinja_string(it, j->key, true, &key));
        HR_TRY(hr_jinja_from_json(it, j, !is_trusted(it->options, j->key), &value));
        HR_TRY(hr_jinja_dict_set(it, it->variables, key, value));
    }
    return HR_OK;
}

static hr_status run(hr_jinterp *it, const hr_json *variables)
{
    hr_jactivation top = { 0 };
    hr_jflow flow;
    HR_TRY(load_variables(it, variables));
    HR_TRY(hr_jinja_alloc(it, it->template->n_slots, sizeof *top.slots, &top.slots));
    it->here = &top;
    HR_TRY(hr_jinja_enter_scope(it, &it->template->scope));
    HR_TRY(hr_jinja_exec(it, &it->template->body, &flow));
    return it->out->status;
}

static hr_status add_span(hr_rendered *out, size_t *capacity, size_t from, size_t to,
                          hr_span_kind kind)
{
    if (from == to) return HR_OK;
    HR_TRY(hr_grow((void **)&out->spans, capacity, out->n_spans + 1, sizeof *out->spans));
    out->spans[out->n_spans++] =
        (hr_text_span){ hr_str_slice(hr_buf_str(&out->text), from, to), kind };
    return HR_OK;
}

static hr_status copy_out(const hr_jbuilder *b, hr_rendered *out)
{
    size_t at = 0, capacity = 0;
    hr_buf_add(&out->text, b->p, b->n);
    HR_TRY(hr_buf_status(&out->text));
    for (size_t i = 0; i < b->n_marks; i++) {
        HR_TRY(add_span(out, &capacity, at, b->marks[i].from, HR_SPAN_SPECIAL));
        HR_TRY(add_span(out, &capacity, b->marks[i].from, b->marks[i].to, HR_SPAN_PLAIN));
        at = b->marks[i].to;
    }
    return add_span(out, &capacity, at, b->n, HR_SPAN_SPECIAL);
}

void hr_rendered_deinit(hr_rendered *r)
{
    hr_buf_deinit(&r->text);
    hr_free(r->spans);
    *r = (hr_rendered){ 0 };
}

hr_status hr_template_render(const hr_template *t, const hr_json *variables,
                             const hr_render_options *options, hr_rendered *out)
{
    static const hr_render_options defaults;
    *out = (hr_rendered){ 0 };
    if (!options) options = &defaults;
    if (options->failed) *options->failed = (hr_template_place){ 0 };
    const hr_template_limits *l = &options->limits;
    if (!variables || variables->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT, "template variables must be a JSON object");
    hr_jinterp it = { .template = t,
                      .options = options,
                      .at = { 1, 1 },
                      .steps_left = l->max_steps ? l->max_steps : DEFAULT_STEPS,
                      .max_depth = l->max_depth ? l->max_depth : DEFAULT_DEPTH,
                      .max_output = l->max_output ? l->max_output : DEFAULT_OUTPUT };
    it.arena.limit = l->max_memory ? l->max_memory : DEFAULT_MEMORY;
    if (it.max_depth > MAX_DEPTH) it.max_depth = MAX_DEPTH;
    hr_jbuilder text = { .it = &it };
    it.out = &text;
    hr_status st = run(&it, variables);
    if (!st) st = copy_out(&text, out);
    hr_arena_deinit(&it.arena);
    if (st) hr_rendered_deinit(out);
    return st;
}
