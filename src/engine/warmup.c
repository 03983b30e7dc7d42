/* Warm-up is execution.
 *
 * Engine thread, at start. A dummy sequence of two tokens goes through hr_runner_step once for
 * every bucket: each program is compiled when the step first asks for it, or has been since the
 * start on a thread of the backend's, and runs on the real output of the program before it, never
 * on an invented tensor. Live counts are minimal; on the native backend a bucket only bounds
 * memory, so that covers it. */
#include "engine/warmup.h"

#include "base/log.h"
#include "engine/contract.h"

typedef struct warm_up {
    hr_runner *runner;
    hr_scheduler *scheduler;
    hr_sampling sampling;
    hr_seq *seq;
    hr_step_item item;
    hr_step_plan plan;
    double start_s, weights_s; /* when the stage began, and what weights had taken by then */
    int done, n;               /* programs of the stage */
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

/* Since the stage began, without what weights took. */
static double elapsed(const warm_up *w)
{
    return hr_now_s() - w->start_s - (w->runner->backend->weights_s - w->weights_s);
}

/* "  backbone tokens=256 3/7 1.9 s: …" */
static void log_program(const warm_up *w, const hr_ledger_row *r)
{
    hr_buf bucket = { 0 };
    hr_ledger_bucket_text(r, &bucket);
    hr_log(HR_LOG_INFO, "  %s%s%s %d/%d %.1f s: %.2f ms %s, %.2f ms run, %.1f MiB peak, %zu steps",
           hr_stage_name(r->stage), bucket.n ? " " : "", hr_buf_c(&bucket), w->done, w->n,
           elapsed(w), r->compile_ms, r->cached ? "from the cache" : "compile", r->warm_ms,
           (double)r->peak_bytes / 1048576.0, r->steps);
    hr_buf_deinit(&bucket);
}

static hr_status warm(warm_up *w, hr_stage stage, unsigned part, int t, int q)
{
    hr_program_slot *slot;
    HR_TRY(hr_programs_get(w->runner->programs, stage, t, q, "warm-up", &slot));
    double compiled = hr_now_s();
    w->seq->prompt->done = 1;
    hr_sampler_state_set_slots(&w->seq->sampling, 1, 0); /* once more something to count */
    hr_step_args args = { .plan = &w->plan, .parts = part, .token_bucket = t, .request_bucket = q };
    const hr_step_result *result;
    int64_t live = stage == HR_STAGE_BACKBONE ? w->plan.n_tokens : w->plan.n_rows;
    HR_TRY(hr_contract_arm(w->runner->programs, slot, live));
    HR_TRY(hr_runner_step(w->runner, &args, &result));
    slot->row->warm_ms = (hr_now_s() - compiled) * 1e3;
    HR_TRY(hr_contract_check(w->runner->programs, slot, live));
    w->done++;
    log_program(w, slot->row);
    return HR_OK;
}

static void stage_begins(warm_up *w, hr_stage stage, int buckets, const char *what)
{
    w->done = 0;
    w->n = buckets;
    hr_log(HR_LOG_INFO, "Compiling %s for %d %s:", hr_stage_name(stage), buckets, what);
}

static void stage_ends(warm_up *w, hr_stage stage)
{
    double *seconds = &w->runner->programs->ledger->compile_s[stage];
    *seconds = elapsed(w);
    w->start_s = hr_now_s();
    w->weights_s = w->runner->backend->weights_s;
    hr_log(HR_LOG_INFO, "-- Compilation for %s done in %.2f [secs].", hr_stage_name(stage),
           *seconds);
}

static hr_status warm_backbone(warm_up *w)
{
    int n = w->runner->programs->shapes.tokens.n;
    stage_begins(w, HR_STAGE_BACKBONE, n, "token buckets");
    for (int t = 0; t < n; t++) HR_TRY(warm(w, HR_STAGE_BACKBONE, HR_STEP_BACKBONE, t, 0));
    stage_ends(w, HR_STAGE_BACKBONE);
    return HR_OK;
}

static hr_status warm_select(warm_up *w)
{
    const hr_shapes *s = &w->runner->programs->shapes;
    stage_begins(w, HR_STAGE_SELECT, s->tokens.n * s->requests.n, "token and request buckets");
    for (int t = 0; t < s->tokens.n; t++)
        for (int q = 0; q < s->requests.n; q++)
            HR_TRY(warm(w, HR_STAGE_SELECT, HR_STEP_SELECT, t, q));
    stage_ends(w, HR_STAGE_SELECT);
    return HR_OK;
}

static hr_status warm_samplers(warm_up *w)
{
    int n = w->runner->programs->shapes.requests.n;
    stage_begins(w, HR_STAGE_SAMPLER, n, "request buckets");
    for (int q = 0; q < n; q++) HR_TRY(warm(w, HR_STAGE_SAMPLER, HR_STEP_SAMPLER, 0, q));
    stage_ends(w, HR_STAGE_SAMPLER);
    return HR_OK;
}

static hr_status warm_one(warm_up *w, hr_stage stage, unsigned part, const char *what)
{
    if (!hr_programs_have(&w->runner->programs->shapes, stage)) return HR_OK;
    stage_begins(w, stage, 1, what);
    HR_TRY(warm(w, stage, part, 0, 0));
    stage_ends(w, stage);
    return HR_OK;
}

/* "-- Compilation of 13 programs done in 0.50 [secs]." and what of it was none. */
static void log_total(const warm_up *w)
{
    const hr_ledger *l = w->runner->programs->ledger;
    const char *cache = w->runner->backend->cache;
    size_t cached = hr_ledger_cached(l);
    hr_log(HR_LOG_INFO, "-- Compilation of %zu programs done in %.2f [secs].", l->n, l->total_s);
    if (cache && cached == l->n)
        hr_log(HR_LOG_INFO, "compile cache: nothing was compiled, %zu programs came from %s",
               cached, cache);
    else if (cache)
        hr_log(HR_LOG_INFO, "compile cache: %zu programs compiled, %zu from %s", l->n - cached,
               cached, cache);
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
    log_total(w);
    hr_programs_seal(w->runner->programs);
}

/* The largest programs first, where a compile is over when it returns: all programs share the
 * working memory of the largest, and what a run touched before it grew would be zeroed again. */
static hr_status compile_largest(warm_up *w)
{
    hr_programs *p = w->runner->programs;
    int t = p->shapes.tokens.n - 1, q = p->shapes.requests.n - 1;
    hr_program_slot *slot;
    if (p->backend->v->program_await) return HR_OK;
    for (int s = 0; s < HR_STAGE_COUNT; s++)
        if (hr_programs_have(&p->shapes, (hr_stage)s))
            HR_TRY(hr_programs_get(p, (hr_stage)s, t, q, "warm-up", &slot));
    return HR_OK;
}

hr_status hr_warm_up(hr_runner *r, hr_scheduler *scheduler)
{
    if (r->programs->shapes.late == HR_LATE_EAGER) {
        hr_log(HR_LOG_WARNING, "engine: --enforce-eager: programs are compiled when first wanted");
        return HR_OK;
    }
    warm_up w = { .runner = r,
                  .scheduler = scheduler,
                  .start_s = hr_now_s(),
                  .weights_s = r->backend->weights_s };
    hr_status st = make_sequence(&w);
    if (!st) st = hr_programs_start(r->programs);
    if (!st) st = compile_largest(&w);
    if (!st) st = warm_backbone(&w);
    if (!st) st = warm_select(&w);
    if (!st) st = warm_samplers(&w);
    if (!st) st = warm_one(&w, HR_STAGE_PROMPT, HR_STEP_PROMPT, "request bucket");
    if (!st) st = warm_one(&w, HR_STAGE_TABLES, HR_STEP_TABLES, "shape");
    if (!st) finish(&w);
    if (w.seq)
        hr_block_list_trim(&w.seq->blocks, &scheduler->pool, 0,
                           r->programs->shapes.build.block_size);
    hr_seq_destroy(w.seq);
    return st;
}
