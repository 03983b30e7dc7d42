/* Builds, binds and runs the sampler's programs for a list of rows. See sampler_case.h. */
#include "conformance/sampler_case.h"

enum { MAX_INPUTS = 40, MAX_OUTPUTS = 16 };

/* A compiled program with buffers of its own, but for the tables, which are a case's. Kept: where
 * compiling takes long, cases of one shape are many. */
typedef enum program_part { TABLES, SAMPLER, PROMPT } program_part;
typedef struct program program;
struct program {
    program_part part;
    hr_sampler_options options;
    int64_t bucket;
    hr_backend *backend; /* borrowed */
    hr_graph *graph;
    hr_program *program;
    hr_buffer *inputs[MAX_INPUTS], *outputs[MAX_OUTPUTS];
    program *next;
};
static program *programs; /* owned */

typedef struct run {
    sampler_case *c;
    hr_sampling_inputs *in;
    hr_sampler_state *states;
    hr_buffer *counts, *allowed, *grammar;
    const int32_t *targets;
} run;

static hr_buffer *table_of(const run *r, const char *name)
{
    if (!strcmp(name, "counts")) return r->counts;
    if (!strcmp(name, "allowed")) return r->allowed;
    if (!strcmp(name, "grammar")) return r->grammar;
    return NULL;
}

/* ---- programs -------------------------------------------------------------------------------- */

static hr_status create(run *r, hr_dtype dtype, hr_shape shape, hr_buffer **out)
{
    return hr_buffer_create(r->c->backend, &(hr_tensor_desc){ dtype, shape }, out);
}

static bool is_table(const char *name)
{
    return !strcmp(name, "counts") || !strcmp(name, "allowed") || !strcmp(name, "grammar");
}

static bool fits(const program *p, const sampler_case *c, program_part part)
{
    const hr_sampler_options *a = &p->options, *b = &c->options;
    return p->part == part && p->backend == c->backend && p->bucket == c->bucket &&
           a->vocab == b->vocab && a->used_vocab == b->used_vocab && a->slots == b->slots &&
           a->max_logprobs == b->max_logprobs && a->mode == b->mode;
}

static void build(program *p)
{
    if (p->part == TABLES) {
        hr_sampler_build_tables(p->graph, &p->options);
        return;
    }
    hr_value *logits = hr_graph_input(p->graph, "logits", HR_DTYPE_F32,
                                      HR_SHAPE(p->bucket, p->options.vocab), HR_LIVE_ROWS);
    if (p->part == PROMPT) hr_sampler_build_prompt(p->graph, logits, &p->options);
    else hr_sampler_build(p->graph, logits, &p->options);
}

static hr_status make(run *r, program *p)
{
    HR_TRY(hr_graph_create("sampler", &p->graph));
    build(p);
    hr_graph *g = p->graph;
    HR_TRY(hr_graph_finish(g));
    HR_TRY(hr_backend_compile(p->backend, g, &p->program));
    for (size_t i = 0; i < g->n_inputs; i++)
        if (!is_table(g->inputs[i]->name))
            HR_TRY(create(r, g->inputs[i]->dtype, g->inputs[i]->shape, &p->inputs[i]));
    for (size_t i = 0; i < g->n_outputs; i++)
        if (!is_table(g->outputs[i].name))
            HR_TRY(
                create(r, g->outputs[i].value->dtype, g->outputs[i].value->shape, &p->outputs[i]));
    return HR_OK;
}

/* The program of that part, with the case's tables. */
static hr_status find(run *r, program_part part, program **out)
{
    program *p = programs;
    while (p && !fits(p, r->c, part)) p = p->next;
    if (!p) {
        p = hr_new0(program);
        if (!p) return hr_fail(HR_RESOURCE_EXHAUSTED, "sampler case");
        *p = (program){ .part = part,
                        .options = r->c->options,
                        .bucket = r->c->bucket,
                        .backend = r->c->backend,
                        .next = programs };
        programs = p;
        HR_TRY(make(r, p));
    }
    for (size_t i = 0; i < p->graph->n_inputs; i++)
        if (is_table(p->graph->inputs[i]->name))
            p->inputs[i] = table_of(r, p->graph->inputs[i]->name);
    for (size_t i = 0; i < p->graph->n_outputs; i++)
        if (is_table(p->graph->outputs[i].name))
            p->outputs[i] = table_of(r, p->graph->outputs[i].name);
    *out = p;
    return HR_OK;
}

static void drop(program *p)
{
    for (size_t i = 0; p->graph && i < p->graph->n_inputs; i++)
        if (!is_table(p->graph->inputs[i]->name)) hr_buffer_destroy(p->inputs[i], p->backend);
    for (size_t i = 0; p->graph && i < p->graph->n_outputs; i++)
        if (!is_table(p->graph->outputs[i].name)) hr_buffer_destroy(p->outputs[i], p->backend);
    hr_program_destroy(p->program, p->backend);
    hr_graph_destroy(p->graph);
    hr_free(p);
}

void sampler_case_forget(void)
{
    while (programs) {
        program *next = programs->next;
        drop(programs);
        programs = next;
    }
}

static hr_status put_logits(run *r, hr_buffer *to)
{
    const sampler_case *c = r->c;
    size_t row = (size_t)c->options.vocab * sizeof(float);
    char *all = hr_arena_array(&r->c->arena, (size_t)c->bucket, row);
    if (!all) return hr_fail(HR_RESOURCE_EXHAUSTED, "logits");
    memset(all, 0xFF, (size_t)c->bucket * row); /* padding rows hold NaN */
    for (int64_t i = 0; i < c->n_rows; i++) memcpy(all + (size_t)i * row, c->rows[i].logits, row);
    return hr_buffer_put(c->backend, to, all, (size_t)c->bucket * row);
}

static hr_status put_input(run *r, const char *name, hr_buffer *to)
{
    hr_sampling_array a;
    if (table_of(r, name)) return HR_OK;
    if (!strcmp(name, "logits")) return put_logits(r, to);
    if (!strcmp(name, "targets"))
        return hr_buffer_put(r->c->backend, to, r->targets,
                             (size_t)r->c->n_rows * sizeof *r->targets);
    if (!hr_sampling_inputs_find(r->in, name, r->c->n_rows, &a))
        return hr_fail(HR_INTERNAL, "nothing fills %s", name);
    return hr_buffer_put(r->c->backend, to, a.data, (size_t)a.rows * a.row_bytes);
}

static hr_status execute(run *r, program *p)
{
    hr_execute_args a = { .inputs = p->inputs, .outputs = p->outputs };
    hr_event done;
    for (size_t i = 0; i < p->graph->n_inputs; i++)
        HR_TRY(put_input(r, p->graph->inputs[i]->name, p->inputs[i]));
    a.live[HR_LIVE_ROWS] = r->c->n_rows;
    HR_TRY(hr_program_execute(r->c->backend, p->program, &a, &done));
    return hr_event_await(&done);
}

/* ---- the path of a step ---------------------------------------------------------------------- */

static hr_status make_states(run *r)
{
    sampler_case *c = r->c;
    hr_sampler_limits l = { .vocab = c->options.vocab,
                            .used_vocab = c->options.used_vocab,
                            .max_model_len = 1 << 20,
                            .max_logprobs = c->options.max_logprobs };
    r->states = hr_arena_array(&c->arena, (size_t)c->n_rows, sizeof *r->states);
    if (!r->states) return hr_fail(HR_RESOURCE_EXHAUSTED, "states");
    for (int64_t i = 0; i < c->n_rows; i++) {
        const sampler_row *row = &c->rows[i];
        hr_sampler_state *s = &r->states[i];
        int32_t slot = (int32_t)(c->n_rows - i); /* any order will do, but not the rows' own */
        HR_TRY(hr_sampling_check(&row->sampling, &l));
        HR_TRY(hr_sampler_state_init(s, &c->arena, &row->sampling, &l, row->eos, row->n_eos,
                                     row->choice));
        hr_sampler_state_set_slots(s, hr_sampler_state_wants_counts(s) ? slot : 0,
                                   hr_sampler_state_wants_allowed(s) ? slot : 0);
        s->grammar_slot = row->grammar ? slot : 0;
    }
    return HR_OK;
}

static hr_status flush(run *r, program *tables)
{
    HR_TRY(execute(r, tables));
    hr_sampling_inputs_clear_tables(r->in);
    return HR_OK;
}

static hr_status put_grammar(run *r, program *tables, const uint32_t *words, int32_t slot)
{
    uint32_t *to;
    while (!(to = hr_sampling_inputs_grammar(r->in, slot))) HR_TRY(flush(r, tables));
    memcpy(to, words, (size_t)hr_sampler_words(r->in->options.vocab) * sizeof *to);
    return HR_OK;
}

static hr_status fill_tables(run *r)
{
    program *tables;
    HR_TRY(find(r, TABLES, &tables));
    for (int64_t i = 0; i < r->c->n_rows; i++) {
        const sampler_row *row = &r->c->rows[i];
        hr_sampler_state *s = &r->states[i];
        while (!hr_sampling_inputs_feed(r->in, s, row->tokens, row->n_prompt, row->n_tokens))
            HR_TRY(flush(r, tables));
        if (row->grammar) HR_TRY(put_grammar(r, tables, row->grammar, s->grammar_slot));
    }
    return hr_sampling_inputs_changes(r->in) ? flush(r, tables) : HR_OK;
}

static void fill_rows(run *r)
{
    hr_sampling_inputs_clear(r->in, 0);
    for (int64_t i = 0; i < r->c->n_rows; i++) {
        const sampler_row *row = &r->c->rows[i];
        if (r->targets) hr_sampling_inputs_set_prompt_row(r->in, i, &r->states[i]);
        else
            hr_sampling_inputs_set_row(r->in, i, &r->states[i], row->tokens, row->n_prompt,
                                       row->n_tokens);
    }
}

static hr_status run_main(run *r, program **p)
{
    HR_TRY(find(r, r->targets ? PROMPT : SAMPLER, p));
    fill_rows(r);
    return execute(r, *p);
}

/* ---- answers --------------------------------------------------------------------------------- */

static hr_status fetch(run *r, program *p, const char *name, void *out)
{
    for (size_t i = 0; i < p->graph->n_outputs; i++) {
        if (strcmp(p->graph->outputs[i].name, name)) continue;
        const hr_value *v = p->graph->outputs[i].value;
        size_t bytes = (size_t)hr_shape_count(v->shape) * hr_dtype_size(v->dtype);
        void *data = hr_arena_alloc(&r->c->arena, bytes);
        if (!data) return hr_fail(HR_RESOURCE_EXHAUSTED, "answers");
        *(void **)out = data;
        return hr_buffer_get(r->c->backend, p->outputs[i], data, bytes);
    }
    return HR_OK;
}

static hr_status answer(run *r, program *p)
{
    sampler_case *c = r->c;
    int32_t top = hr_sampler_top(&c->options);
    const int32_t *token = NULL, *status = NULL, *rank = NULL, *top_ids = NULL;
    const float *logprob = NULL, *top_logprobs = NULL, *extra = NULL;
    const int32_t *grammar = NULL, *masks = NULL, *counts = NULL;
    const float *cuts = NULL, *sums = NULL;
    HR_TRY(fetch(r, p, "token", &token));
    HR_TRY(fetch(r, p, "status", &status));
    HR_TRY(fetch(r, p, "rank", &rank));
    HR_TRY(fetch(r, p, "logprob", &logprob));
    HR_TRY(fetch(r, p, "top_ids", &top_ids));
    HR_TRY(fetch(r, p, "top_logprobs", &top_logprobs));
    HR_TRY(fetch(r, p, "extra_logprobs", &extra));
    HR_TRY(fetch(r, p, "trace_grammar", &grammar));
    HR_TRY(fetch(r, p, "trace_masks", &masks));
    HR_TRY(fetch(r, p, "trace_counts", &counts));
    HR_TRY(fetch(r, p, "trace_cuts", &cuts));
    HR_TRY(fetch(r, p, "trace_sums", &sums));
    c->answers = hr_arena_array(&c->arena, (size_t)c->n_rows, sizeof *c->answers);
    if (!c->answers) return hr_fail(HR_RESOURCE_EXHAUSTED, "answers");
    for (int64_t i = 0; i < c->n_rows; i++)
        c->answers[i] = (sampler_answer){
            .token = token ? token[i] : -1,
            .status = status[i],
            .rank = rank[i],
            .logprob = logprob[i],
            .top_ids = top_ids + i * top,
            .top_logprobs = top_logprobs + i * top,
            .extra_logprobs = extra ? extra + i * HR_SAMPLING_MAX_EXTRA : NULL,
            .alive = { grammar ? grammar[i] : 0, masks ? masks[i] : 0 },
            .counts = counts ? counts + 3 * i : NULL,
            .cuts = cuts ? cuts + 3 * i : NULL,
            .sums = sums ? sums + 2 * i : NULL,
        };
    return HR_OK;
}

static hr_status run_case(sampler_case *c, const int32_t *targets)
{
    run r = { .c = c, .targets = targets };
    program *main_program;
    int64_t words = hr_sampler_words(c->options.vocab);
    c->options.slots = c->n_rows + 1;
    hr_status st = make_states(&r);
    if (!st) st = hr_sampling_inputs_create(&c->options, c->bucket, &r.in);
    hr_shape masks = HR_SHAPE(c->options.slots, words);
    if (!st) st = create(&r, HR_DTYPE_U16, HR_SHAPE(c->options.slots, c->options.vocab), &r.counts);
    if (!st) st = create(&r, HR_DTYPE_U32, masks, &r.allowed);
    if (!st) st = create(&r, HR_DTYPE_U32, masks, &r.grammar);
    if (!st) st = fill_tables(&r);
    if (!st) st = run_main(&r, &main_program);
    if (!st) st = answer(&r, main_program);
    hr_buffer_destroy(r.grammar, c->backend);
    hr_buffer_destroy(r.allowed, c->backend);
    hr_buffer_destroy(r.counts, c->backend);
    hr_sampling_inputs_destroy(r.in);
    return st;
}

hr_status sampler_case_run(sampler_case *c)
{
    return run_case(c, NULL);
}

hr_status sampler_case_score(sampler_case *c, const int32_t *targets)
{
    return run_case(c, targets);
}

void sampler_case_deinit(sampler_case *c)
{
    hr_arena_deinit(&c->arena);
    c->answers = NULL;
}
