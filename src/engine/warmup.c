/* Warm-up is execution.
 *
 * Engine thread, at start. A dummy sequence of two tokens goes through hr_runner_step once for
 * every bucket: each program is compiled when the step first asks for it and runs on the real
 * output of the program before it, never on an invented tensor. Live counts are minimal; on the
 * native backend a bucket only bounds memory, so that covers it. */
#include "engine/warmup.h"

#include "base/log.h"

typedef struct warm_up {
    hr_runner *runner;
    hr_scheduler *scheduler;
    hr_sampling sampling;
    hr_seq *seq;
    hr_step_item item;
    hr_step_plan plan;
} warm_up;

static hr_status make_sequence(warm_up *w)
{
    const hr_shapes *s = &w->runner->programs->shapes;
    hr_sampler_limits limits = { .vocab = s->sampler.vocab,
                                 .max_logprobs = s->sampler.max_logprobs };
    hr_sampling_init(&w->sampling);
    w->sampling.repetition_penalty = 1.5; /* so that the tables program has something to write */
    w->sampling.prompt_logprobs = s->sampler.max_logprobs;
    w->sampling.seed = 0;
    int32_t prompt[2] = { 0, 0 };
    hr_seq_spec spec = { .prompt = prompt,
                         .n_prompt = 2,
                         .max_tokens = 1,
                         .block_size = s->build.block_size,
                         .sampling = &w->sampling,
                         .limits = &limits };
    HR_TRY(hr_seq_create(&spec, &w->seq));
    hr_sampler_state_set_slots(&w->seq->sampling, 1, 0);
    if (!hr_block_list_cover(&w->seq->blocks, &w->scheduler->pool, 2, s->build.block_size))
        return hr_fail(HR_RESOURCE_EXHAUSTED, "no KV block for warm-up");
    w->item = (hr_step_item){ .seq = w->seq, .count = 2, .samples = true };
    w->plan = (hr_step_plan){ .items = &w->item, .n_items = 1, .n_tokens = 2, .n_rows = 1 };
    return HR_OK;
}

static void log_bucket(const hr_ledger_row *r)
{
    hr_buf text = { 0 };
    hr_ledger_bucket_text(r, &text);
    hr_log(HR_LOG_INFO, "  %s%s%.2f ms compile, %.2f ms run, %.1f MiB peak, %zu steps",
           hr_buf_c(&text), text.n ? ": " : "", r->compile_ms, r->warm_ms,
           (double)r->peak_bytes / 1048576.0, r->steps);
    hr_buf_deinit(&text);
}

static hr_status warm(warm_up *w, hr_stage stage, unsigned part, int t, int q)
{
    hr_program_slot *slot;
    double weights = w->runner->backend->weights_s, start = hr_now_s();
    HR_TRY(hr_programs_get(w->runner->programs, stage, t, q, "warm-up", &slot));
    slot->row->compile_ms -= (w->runner->backend->weights_s - weights) * 1e3;
    double compiled = hr_now_s();
    w->seq->prompt->done = 1;
    hr_sampler_state_set_slots(&w->seq->sampling, 1, 0); /* once more something to count */
    hr_step_args args = { .plan = &w->plan, .parts = part, .token_bucket = t, .request_bucket = q };
    const hr_step_result *result;
    HR_TRY(hr_runner_step(w->runner, &args, &result));
    slot->row->warm_ms = (hr_now_s() - compiled) * 1e3;
    hr_ledger *l = w->runner->programs->ledger;
    l->compile_s[stage] += hr_now_s() - start - (w->runner->backend->weights_s - weights);
    log_bucket(slot->row);
    return HR_OK;
}

static void stage_begins(hr_stage stage, int buckets, const char *what)
{
    hr_log(HR_LOG_INFO, "Compiling %s for %d %s:", hr_stage_name(stage), buckets, what);
}

static void stage_ends(const warm_up *w, hr_stage stage)
{
    hr_log(HR_LOG_INFO, "-- Compilation for %s done in %.2f [secs].", hr_stage_name(stage),
           w->runner->programs->ledger->compile_s[stage]);
}

static hr_status warm_backbone(warm_up *w)
{
    int n = w->runner->programs->shapes.tokens.n;
    stage_begins(HR_STAGE_BACKBONE, n, "token buckets");
    for (int t = 0; t < n; t++) HR_TRY(warm(w, HR_STAGE_BACKBONE, HR_STEP_BACKBONE, t, 0));
    stage_ends(w, HR_STAGE_BACKBONE);
    return HR_OK;
}

static hr_status warm_select(warm_up *w)
{
    const hr_shapes *s = &w->runner->programs->shapes;
    stage_begins(HR_STAGE_SELECT, s->tokens.n * s->requests.n, "token and request buckets");
    for (int t = 0; t < s->tokens.n; t++)
        for (int q = 0; q < s->requests.n; q++)
            HR_TRY(warm(w, HR_STAGE_SELECT, HR_STEP_SELECT, t, q));
    stage_ends(w, HR_STAGE_SELECT);
    return HR_OK;
}

static hr_status warm_heads(warm_up *w)
{
    int n = w->runner->programs->shapes.requests.n;
    stage_begins(HR_STAGE_SAMPLER, n, "request buckets");
    for (int q = 0; q < n; q++) HR_TRY(warm(w, HR_STAGE_SAMPLER, HR_STEP_SAMPLER, 0, q));
    stage_ends(w, HR_STAGE_SAMPLER);
    stage_begins(HR_STAGE_PROMPT, 1, "request bucket");
    HR_TRY(warm(w, HR_STAGE_PROMPT, HR_STEP_PROMPT, 0, 0));
    stage_ends(w, HR_STAGE_PROMPT);
    stage_begins(HR_STAGE_TABLES, 1, "shape");
    HR_TRY(warm(w, HR_STAGE_TABLES, HR_STEP_TABLES, 0, 0));
    stage_ends(w, HR_STAGE_TABLES);
    return HR_OK;
}

static void finish(warm_up *w)
{
    hr_ledger *l = w->runner->programs->ledger;
    for (size_t i = 0; i < l->n; i++) { /* the ledger counts served steps only */
        l->rows[i].calls = (hr_counter){ 0 };
        l->rows[i].padding = (hr_counter){ 0 };
        l->rows[i].last_ns = (hr_counter){ 0 };
        hr_histogram_reset(&l->rows[i].seconds);
    }
    for (int s = 0; s < HR_STAGE_COUNT; s++) l->total_s += l->compile_s[s];
    hr_log(HR_LOG_INFO, "-- Compilation of %zu programs done in %.2f [secs].", l->n, l->total_s);
    hr_programs_seal(w->runner->programs);
}

hr_status hr_warm_up(hr_runner *r, hr_scheduler *scheduler)
{
    if (r->programs->shapes.late == HR_LATE_EAGER) {
        hr_log(HR_LOG_WARNING, "engine: --enforce-eager: programs are compiled when first wanted");
        return HR_OK;
    }
    warm_up w = { .runner = r, .scheduler = scheduler };
    hr_status st = make_sequence(&w);
    if (!st) st = warm_backbone(&w);
    if (!st) st = warm_select(&w);
    if (!st) st = warm_heads(&w);
    if (!st) finish(&w);
    if (w.seq)
        hr_block_list_trim(&w.seq->blocks, &scheduler->pool, 0,
                           r->programs->shapes.build.block_size);
    hr_seq_destroy(w.seq);
    return st;
}
