/* The step: hr_runner_step is the only function that executes anything, for real and for warm-up.
 *
 * The rules, which docs/COMPILATION.md explains:
 *   1. Inputs are made on the host by hr_batch_build and moved as plain buffers; nothing is sliced,
 *      padded or branched on here, so nothing here can create a device operation.
 *   2. A program's result goes to the next program or to the host, nowhere else. Between backbone,
 *      select and sampler it stays on the device.
 *   3. One read-back a step: ids, logprobs and what belongs to them. Until then nothing is waited
 *      for: programs follow each other on the device.
 *   4. Programs come from hr_programs_get. Before the seal it compiles; afterwards it must not.
 *   5. Warm-up passes through this same function on dummy plans; leaving a part out is its only
 *      liberty, and only where that part's real output for the same bucket is still there.
 * Engine thread; owns the arrays results are read into. */
#include "engine/runner.h"

#include <assert.h>

hr_status hr_runner_init(hr_runner *r, hr_programs *programs, hr_batch *batch)
{
    *r = (hr_runner){ .backend = programs->backend, .programs = programs, .batch = batch };
    size_t rows = (size_t)batch->limits.rows;
    size_t columns = (size_t)hr_sampler_top(&programs->shapes.sampler), cell = sizeof(int32_t);
    hr_step_result *o = &r->result;
    o->top = (int32_t)columns;
    o->token = hr_arena_array(&r->arena, rows, cell);
    o->status = hr_arena_array(&r->arena, rows, cell);
    o->logprob = hr_arena_array(&r->arena, rows, cell);
    o->rank = hr_arena_array(&r->arena, rows, cell);
    o->top_ids = hr_arena_array(&r->arena, rows * columns, cell);
    o->top_logprobs = hr_arena_array(&r->arena, rows * columns, cell);
    o->extra_logprobs = hr_arena_array(&r->arena, rows * HR_SAMPLING_MAX_EXTRA, cell);
    o->trace_grammar = hr_arena_array(&r->arena, rows, cell);
    o->trace_masks = hr_arena_array(&r->arena, rows, cell);
    o->trace_cuts = hr_arena_array(&r->arena, rows * 3, cell);
    o->trace_counts = hr_arena_array(&r->arena, rows * 3, cell);
    o->trace_sums = hr_arena_array(&r->arena, rows * 2, cell);
    if (o->token && o->status && o->logprob && o->rank && o->top_ids && o->top_logprobs &&
        o->extra_logprobs && o->trace_grammar && o->trace_masks && o->trace_cuts &&
        o->trace_counts && o->trace_sums)
        return HR_OK;
    hr_runner_deinit(r);
    return hr_fail(HR_RESOURCE_EXHAUSTED, "results of %zu rows", rows);
}

void hr_runner_deinit(hr_runner *r)
{
    hr_arena_deinit(&r->arena);
    *r = (hr_runner){ 0 };
}

/* How many bytes of a host input this step can make use of: all of them where programs read their
 * padding, too. */
static size_t live_bytes(const hr_runner *r, const hr_program_input *in)
{
    if (r->backend->v->static_shapes) return in->bytes;
    const hr_batch *b = r->batch;
    int64_t rows = 0;
    switch (in->host.extent) {
    case HR_EXTENT_ALL: return in->bytes;
    case HR_EXTENT_TOKENS: rows = b->n_tokens; break;
    case HR_EXTENT_REQUESTS: rows = b->n_requests; break;
    case HR_EXTENT_ROWS: rows = b->n_rows; break;
    case HR_EXTENT_SAMPLING: {
        hr_sampling_array array = hr_sampling_inputs_at(b->sampling, in->host.sampling, b->n_rows);
        return (size_t)array.rows * array.row_bytes;
    }
    }
    return (size_t)rows * in->row_bytes;
}

/* What a run of the program cost, for the ledger. */
static void account(const hr_launched *x, int64_t began_ns, int64_t now)
{
    hr_ledger_row *row = x->row;
    int64_t bucket = row->tokens ? row->tokens : row->requests;
    hr_counter_add(&row->calls, 1);
    hr_counter_set(&row->last_ns, (uint64_t)now);
    if (bucket > x->live) hr_counter_add(&row->padding, (uint64_t)(bucket - x->live));
    hr_histogram_observe(&row->seconds, (double)(now - began_ns) * 1e-9);
}

/* Waits for all that runs; the first failure is what is told, for those after it follow from it. A
 * program's time begins when it was started and the one before it was done. */
static hr_status settle(hr_runner *r)
{
    char message[HR_MESSAGE_MAX];
    hr_status st = HR_OK;
    int64_t before = 0;
    for (int i = 0; i < r->n_launched; i++) {
        hr_launched *x = &r->launched[i];
        hr_status mine = hr_event_await(&x->event);
        int64_t now = hr_now_ns();
        if (!mine) account(x, x->began_ns > before ? x->began_ns : before, now);
        else if (!st) memcpy(message, hr_message(), sizeof message);
        if (!st) st = mine;
        before = now;
    }
    r->n_launched = 0;
    return st ? hr_fail(st, "%s", message) : HR_OK;
}

/* The same after a failure of its own, which is told unless an earlier program's explains it. */
static hr_status settle_after(hr_runner *r, hr_status st)
{
    char message[HR_MESSAGE_MAX];
    memcpy(message, hr_message(), sizeof message);
    HR_TRY(settle(r));
    return hr_fail(st, "%s", message);
}

static hr_status start(hr_runner *r, hr_program_slot *s)
{
    const hr_batch *b = r->batch;
    hr_launched *x = &r->launched[r->n_launched];
    *x = (hr_launched){ .row = s->row,
                        .began_ns = hr_now_ns(),
                        .live = s->row->tokens ? b->n_tokens : b->n_rows };
    for (size_t i = 0; i < s->n_inputs; i++) {
        const hr_program_input *in = &s->inputs[i];
        if (!in->host.data) continue;
        HR_TRY(hr_buffer_put(r->backend, in->buffer, in->host.data, live_bytes(r, in)));
    }
    hr_execute_args args = { .inputs = s->input_buffers, .outputs = s->outputs };
    args.live[HR_LIVE_TOKENS] = b->n_tokens;
    args.live[HR_LIVE_ROWS] = b->n_rows;
    HR_TRY(hr_program_execute(r->backend, s->program, &args, &x->event));
    r->n_launched++;
    return HR_OK;
}

/* A program whose result only the next program wants is not waited for. */
static hr_status execute(hr_runner *r, hr_program_slot *s)
{
    if (r->n_launched == HR_LAUNCHED_MAX) HR_TRY(settle(r));
    return start(r, s);
}

static hr_status run(hr_runner *r, hr_stage stage, int t, int q)
{
    hr_program_slot *s;
    HR_TRY(hr_programs_get(r->programs, stage, t, q, "hr_runner_step", &s));
    return execute(r, s);
}

/* What some row of the step asked for. */
typedef struct wanted {
    bool top, extra, trace;
} wanted;

static wanted find_wanted(const hr_batch *b)
{
    const hr_sampling_inputs *in = b->sampling;
    wanted w = { 0 };
    for (int64_t i = 0; i < b->n_rows; i++) {
        w.top |= in->wanted[i] > 0;
        w.extra |= in->extra_ids[i * HR_SAMPLING_MAX_EXTRA] >= 0;
        w.trace |= in->trace[i] > 0;
    }
    return w;
}

/* Everything that left the sampler, in one go. What no row asked for stays where it is. */
static hr_status read_back(hr_runner *r, const hr_program_slot *s, bool sampled)
{
    hr_step_result *o = &r->result;
    size_t row = sizeof(int32_t), rows = (size_t)r->batch->n_rows;
    HR_TRY(settle(r));
    wanted w = find_wanted(r->batch);
    size_t top = w.top ? (size_t)o->top * row : 0, trace = w.trace ? row : 0;
    struct {
        void *to;
        size_t bytes; /* of a row */
    } const want[] = {
        { o->token, row },
        { o->logprob, row },
        { o->rank, row },
        { o->top_ids, top },
        { o->top_logprobs, top },
        { o->extra_logprobs, w.extra ? HR_SAMPLING_MAX_EXTRA * row : 0 },
        { o->status, row },
        { o->trace_grammar, trace },
        { o->trace_masks, trace },
        { o->trace_cuts, trace * 3 },
        { o->trace_counts, trace * 3 },
        { o->trace_sums, trace * 2 },
    };
    /* the outputs of hr_sampler_build, whole and greedy, and of hr_sampler_build_prompt */
    static const int all[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 }, least[] = { 0, 6 },
                     scored[] = { 1, 2, 3, 4, 6 };
    bool greedy = r->programs->shapes.sampler.kind == HR_SAMPLER_GREEDY;
    const int *order = !sampled ? scored : greedy ? least : all;
    size_t n = !sampled ? 5 : greedy ? 2 : 12;
    assert(s->n_outputs == n);
    for (size_t i = 0; i < n; i++)
        if (want[order[i]].bytes)
            HR_TRY(hr_buffer_get(r->backend, s->outputs[i], want[order[i]].to,
                                 rows * want[order[i]].bytes));
    r->read_backs++;
    return HR_OK;
}

/* ---- prompt log-probabilities ---------------------------------------------------------------- */

static void store_prompt(hr_runner *r, hr_prompt_logprobs *p, int64_t from, int64_t n)
{
    const hr_step_result *o = &r->result;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = from + i + 1;
        p->logprob[at] = o->logprob[i];
        p->rank[at] = o->rank[i];
        for (int32_t k = 0; k < p->width; k++) {
            p->top_ids[at * p->width + k] = o->top_ids[i * o->top + k];
            p->top_logprob[at * p->width + k] = o->top_logprobs[i * o->top + k];
        }
    }
    p->done = from + n + 1;
}

/* The positions of one item whose next prompt token is known, in chunks of the largest bucket. */
static hr_status run_prompt_item(hr_runner *r, const hr_step_args *a, int t, int64_t item)
{
    const hr_step_item *it = &a->plan->items[item];
    hr_prompt_logprobs *p = it->seq->prompt;
    int q = r->programs->shapes.requests.n - 1;
    int64_t from = it->start, end = it->start + it->count;
    if (end > it->seq->n_prompt - 1) end = it->seq->n_prompt - 1;
    if (p && from < p->done - 1) from = p->done - 1; /* known from before a preemption */
    while (p && from < end) {
        int64_t rows = r->batch->limits.rows, n = end - from < rows ? end - from : rows;
        hr_batch_build_prompt(r->batch, a->plan, item, from, n);
        hr_program_slot *s;
        HR_TRY(run(r, HR_STAGE_SELECT, t, q));
        HR_TRY(hr_programs_get(r->programs, HR_STAGE_PROMPT, 0, 0, "hr_runner_step", &s));
        HR_TRY(execute(r, s));
        HR_TRY(read_back(r, s, false));
        store_prompt(r, p, from, n);
        from += n;
    }
    return HR_OK;
}

/* Whether any did is told, since their rows stand where the step's own stood. */
static hr_status run_prompts(hr_runner *r, const hr_step_args *a, int t, bool *any)
{
    *any = false;
    for (int64_t i = 0; i < a->plan->n_items; i++) {
        if (!a->plan->items[i].seq->prompt) continue;
        *any = true;
        HR_TRY(run_prompt_item(r, a, t, i));
    }
    return HR_OK;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static hr_status flush_tables(hr_runner *r)
{
    HR_TRY(run(r, HR_STAGE_TABLES, 0, 0));
    hr_sampling_inputs_clear_tables(r->batch->sampling);
    return HR_OK;
}

/* What may come next, straight into the host's row. Where everything may, the row needs no mask. */
static hr_status run_grammar(hr_runner *r, hr_seq *q)
{
    hr_sampling_inputs *in = r->batch->sampling;
    uint32_t *words;
    if (!q->grammar) return HR_OK;
    while (!(words = hr_sampling_inputs_grammar(in, q->slot))) HR_TRY(flush_tables(r));
    size_t n = (size_t)hr_sampler_words(in->options.vocab);
    bool masked = q->grammar->fill(q->grammar_state, words, n) != 0;
    q->sampling.grammar_slot = masked ? q->slot : 0;
    if (!masked) hr_sampling_inputs_drop_grammar(in);
    return HR_OK;
}

/* Brings counts and masks up to date for the rows that sample in this step. */
static hr_status run_tables(hr_runner *r, const hr_step_plan *plan)
{
    hr_sampling_inputs *in = r->batch->sampling;
    int64_t row = 0;
    hr_sampling_inputs_clear_tables(in);
    for (int64_t i = 0; i < plan->n_items; i++) {
        hr_seq *q = plan->items[i].seq;
        if (!plan->items[i].samples) continue;
        hr_processing_run(q, row++);
        while (!hr_processing_feed(q, in)) HR_TRY(flush_tables(r));
        while (!hr_sampling_inputs_feed(in, &q->sampling, q->tokens, q->n_prompt, q->n_tokens))
            HR_TRY(flush_tables(r));
        HR_TRY(run_grammar(r, q));
    }
    return hr_sampling_inputs_changes(in) ? flush_tables(r) : HR_OK;
}

/* ---- the step -------------------------------------------------------------------------------- */

static hr_status run_sampler(hr_runner *r, int q)
{
    hr_program_slot *s;
    HR_TRY(hr_programs_get(r->programs, HR_STAGE_SAMPLER, 0, q, "hr_runner_step", &s));
    HR_TRY(execute(r, s));
    HR_TRY(read_back(r, s, true));
    r->result.n_rows = r->batch->n_rows;
    return HR_OK;
}

static hr_status run_parts(hr_runner *r, const hr_step_args *a)
{
    const hr_shapes *shapes = &r->programs->shapes;
    int t = a->token_bucket, q = a->request_bucket;
    if (t < 0) t = hr_buckets_find(&shapes->tokens, a->plan->n_tokens);
    if (q < 0) q = hr_buckets_find(&shapes->requests, a->plan->n_rows);
    int64_t tokens = shapes->tokens.at[t], requests = shapes->requests.at[q];

    if (a->parts & HR_STEP_TABLES) HR_TRY(run_tables(r, a->plan));
    hr_batch_build(r->batch, a->plan, tokens, requests);
    if (a->parts & HR_STEP_BACKBONE) HR_TRY(run(r, HR_STAGE_BACKBONE, t, 0));
    bool prompts = false;
    if (a->parts & HR_STEP_PROMPT) HR_TRY(run_prompts(r, a, t, &prompts));
    if (prompts) hr_batch_build(r->batch, a->plan, tokens, requests);
    if (r->batch->n_rows == 0) return HR_OK;
    if (a->parts & HR_STEP_SELECT) HR_TRY(run(r, HR_STAGE_SELECT, t, q));
    return a->parts & HR_STEP_SAMPLER ? run_sampler(r, q) : HR_OK;
}

hr_status hr_runner_step(hr_runner *r, const hr_step_args *a, const hr_step_result **out)
{
    *out = &r->result;
    r->result.n_rows = 0;
    hr_status st = run_parts(r, a);
    return st ? settle_after(r, st) : settle(r);
}
