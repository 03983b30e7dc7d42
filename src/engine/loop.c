/* The engine thread: start, then step after step.
 *
 * Owns backend, programs, scheduler and every running sequence; is compute worker 0. It speaks to
 * the world through queues only: sequences and cancels come in, tokens and ended sequences go out.
 * A step allocates nothing: its messages are made once and come back when they have been read. */
#include <assert.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine_int.h"

/* ---- start ----------------------------------------------------------------------------------- */

static hr_status create_step_message(hr_engine *e, hr_step_message **out)
{
    size_t rows = (size_t)e->batch.limits.rows, top = (size_t)e->runner.result.top;
    hr_arena *a = &e->arena;
    hr_step_message *m = hr_arena_new(a, hr_step_message);
    if (!m) return hr_fail(HR_RESOURCE_EXHAUSTED, "step message");
    m->msg.kind = HR_MSG_STEP;
    m->top = e->runner.result.top;
    m->rows = hr_arena_array(a, rows, sizeof *m->rows);
    m->top_ids = hr_arena_array(a, rows * top, sizeof *m->top_ids);
    m->top_logprobs = hr_arena_array(a, rows * top, sizeof *m->top_logprobs);
    m->extra_logprobs = hr_arena_array(a, rows * HR_SAMPLING_MAX_EXTRA, sizeof *m->extra_logprobs);
    m->traces = hr_arena_array(a, rows, sizeof *m->traces);
    if (!m->rows || !m->top_ids || !m->top_logprobs || !m->extra_logprobs || !m->traces)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "step message of %zu rows", rows);
    *out = m;
    return HR_OK;
}

static hr_status create_step_messages(hr_engine *e)
{
    for (int i = 0; i < HR_STEP_MESSAGES; i++) {
        HR_TRY(create_step_message(e, &e->steps[i]));
        if (!hr_queue_push(&e->free_steps, &e->steps[i]->msg.node))
            return hr_fail(HR_CANCELLED, "the engine is stopping");
    }
    return HR_OK;
}

static hr_status create_programs(hr_engine *e)
{
    const hr_build_options *b = &e->shapes.build;
    hr_batch_limits limits = hr_shapes_limits(&e->shapes, e->backend->v->static_shapes);
    hr_scheduler_options scheduler = {
        .max_num_seqs = e->options.max_num_seqs,
        .max_num_batched_tokens = e->options.max_num_batched_tokens,
        .long_prefill_token_threshold = e->options.long_prefill_token_threshold,
        .block_size = b->block_size,
        .blocks = (int32_t)b->blocks,
        .policy = e->policy,
        .prefix_caching = e->options.enable_prefix_caching != 0,
        .drafts = e->shapes.speculation.tokens > 0,
        .adaptive_drafts = e->shapes.speculation.adaptive,
    };
    HR_TRY(hr_batch_init(&e->batch, &limits, &e->shapes.sampler));
    HR_TRY(hr_ledger_init(&e->ledger, hr_programs_count(&e->shapes)));
    HR_TRY(hr_ledger_init_steps(&e->ledger, limits.tokens, limits.rows));
    HR_TRY(
        hr_programs_create(&e->shapes, e->backend, e->model, &e->batch, &e->ledger, &e->programs));
    HR_TRY(hr_runner_init(&e->runner, e->programs, &e->batch));
    HR_TRY(hr_scheduler_init(&e->scheduler, &scheduler));
    HR_TRY(hr_step_plan_init(&e->plan, e->options.max_num_seqs));
    return create_step_messages(e);
}

/* Natively the plan has said it all before. */
static void log_memory(hr_engine *e)
{
    const double mib = 1048576.0;
    bool told = hr_backend_memory(e->backend, &e->device_memory);
    if (!e->backend->v->memory) return;
    hr_log(HR_LOG_INFO,
           "engine: on the device: weights %.1f MiB, KV cache %.1f, buffers %.1f, code %.1f, the "
           "largest program's working memory %.1f",
           (double)e->weight_bytes / mib,
           (double)hr_engine_block_bytes(e) * (double)e->shapes.build.blocks / mib,
           (double)e->buffer_bytes / mib, (double)hr_ledger_code(&e->ledger) / mib,
           (double)hr_ledger_peak(&e->ledger) / mib);
    if (told)
        hr_log(HR_LOG_INFO, "engine: the device says %.1f MiB in use of %.1f",
               (double)e->device_memory.in_use / mib, (double)e->device_memory.limit / mib);
}

static hr_status start(hr_engine *e)
{
    double begin = hr_now_s();
    hr_buf id = { 0 };
    hr_engine_weights_id(e, &id);
    hr_status st = hr_device_create(&e->device, &e->options, hr_buf_str(&id), &e->backend);
    hr_buf_deinit(&id);
    if (st) return st;
    HR_TRY(hr_engine_measure(e, NULL, &e->memory));
    HR_TRY(hr_engine_size_cache(e));
    HR_TRY(create_programs(e));
    HR_TRY(hr_warm_up(&e->runner, &e->scheduler));
    hr_buf_add_c(&e->numerics, "{");
    e->backend->v->numerics(e->backend, &e->numerics);
    hr_buf_printf(&e->numerics, ",\"activation\":\"%s\",\"rows\":\"%s\",\"kv\":\"%s\"}",
                  hr_dtype_name(e->shapes.build.activation), hr_engine_rows_text(e),
                  hr_dtype_name(e->shapes.build.kv_dtype));
    hr_buf_c(&e->numerics);
    const char *cache = e->backend->cache;
    if (cache) e->compile_cache = hr_arena_copy(&e->arena, cache, strlen(cache));
    const char *file = e->backend->weights_file;
    if (file) e->weights_file = hr_arena_copy(&e->arena, file, strlen(file));
    e->weights_cached = e->backend->weights_cached;
    e->weight_bytes = e->backend->v->weight_bytes(e->backend);
    e->buffer_bytes = e->programs->buffer_bytes;
    log_memory(e);
    e->load_s += hr_now_s() - begin - e->ledger.total_s;
    return hr_buf_status(&e->numerics);
}

static void stop(hr_engine *e)
{
    hr_step_plan_deinit(&e->plan);
    hr_scheduler_deinit(&e->scheduler);
    hr_runner_deinit(&e->runner);
    hr_programs_destroy(e->programs);
    e->programs = NULL;
    hr_batch_deinit(&e->batch);
    hr_backend_destroy(e->backend);
    e->backend = NULL;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* What the gauges say of the scheduler. */
static void show(hr_engine *e)
{
    const hr_scheduler *s = &e->scheduler;
    hr_counter_set(&e->stats.running, (uint64_t)s->running.n);
    hr_counter_set(&e->stats.waiting, (uint64_t)s->waiting.n);
    hr_counter_set(&e->stats.blocks_in_use, (uint64_t)(s->pool.total - s->pool.n_free));
    hr_counter_set(&e->stats.preemptions, s->counts.preemptions);
    hr_counter_set(&e->stats.prefix_queries, s->counts.prefix_queries);
    hr_counter_set(&e->stats.prefix_hits, s->counts.prefix_hits);
    hr_counter_add(&e->stats.queued_requests, e->dequeued.requests - s->counts.dequeued_requests);
    hr_counter_add(&e->stats.queued_tokens, e->dequeued.tokens - s->counts.dequeued_tokens);
    e->dequeued.requests = s->counts.dequeued_requests;
    e->dequeued.tokens = s->counts.dequeued_tokens;
}

void hr_engine_push(hr_queue *q, hr_msg *m)
{
    bool open = hr_queue_push(q, &m->node);
    assert(open);
    (void)open;
}

static void to_output(hr_engine *e, hr_msg *m)
{
    hr_engine_push(&e->to_output, m);
}

static void end_sequence(hr_engine *e, hr_seq *q, hr_finish finish)
{
    q->finish = finish;
    hr_scheduler_remove(&e->scheduler, q);
    show(e);
    to_output(e, &q->msg);
}

static void cancel(hr_engine *e, hr_cancel *c)
{
    hr_seq *q;
    while ((q = hr_scheduler_find(&e->scheduler, c->request, c->choice)))
        end_sequence(e, q, HR_FINISH_ABORT);
    hr_free(c);
}

static void take(hr_engine *e, hr_msg *m)
{
    if (m->kind == HR_MSG_SEQ) {
        hr_seq *q = (hr_seq *)m;
        hr_scheduler_add(&e->scheduler, q);
        show(e);
        hr_counter_add(&e->stats.submitted, (uint64_t)-1);
    } else {
        assert(m->kind == HR_MSG_CANCEL);
        cancel(e, (hr_cancel *)m);
    }
}

/* Everything that has come in; waits when there is nothing to run. */
static void take_all(hr_engine *e)
{
    bool idle = !e->scheduler.running.first && !e->scheduler.waiting.first;
    hr_queue_node *n = idle ? hr_queue_pop(&e->to_engine, -1) : hr_queue_try_pop(&e->to_engine);
    for (; n; n = hr_queue_try_pop(&e->to_engine)) take(e, (hr_msg *)n);
}

/* ---- the step -------------------------------------------------------------------------------- */

static void hand_over_prompt(hr_engine *e, hr_seq *q)
{
    if (!q->prompt || q->prompt->done < q->prompt->n) return;
    to_output(e, &q->prompt->msg);
    q->prompt = NULL;
}

/* The rows of every item that sampled, in their order; ended sequences leave the scheduler. */
static void publish(hr_engine *e, hr_step_message *m)
{
    int64_t row = 0;
    m->n = 0;
    m->done_s = hr_now_s();
    for (int64_t i = 0; i < e->plan.n_items; i++) {
        hr_step_item *item = &e->plan.items[i];
        hand_over_prompt(e, item->seq);
        if (!item->samples) continue;
        hr_engine_take_rows(e, item, row, m);
        row += 1 + item->drafts;
    }
    to_output(e, &m->msg); /* from here on m is the output thread's */
    for (int64_t i = 0; i < e->plan.n_items; i++)
        if (e->plan.items[i].finish) end_sequence(e, e->plan.items[i].seq, e->plan.items[i].finish);
}

/* Drafts are tokens once they have turned out right: accept.c counts those. */
static void count_step(hr_engine *e, uint64_t ns)
{
    uint64_t tokens = (uint64_t)(e->plan.n_tokens - e->plan.n_drafts);
    bool prefill = hr_step_prefills(&e->plan);
    hr_counter_add(&e->stats.steps, 1);
    hr_ledger_count_step(&e->ledger, e->plan.n_tokens, e->plan.n_rows);
    hr_histogram_observe(&e->stats.iteration_tokens, (double)e->plan.n_tokens);
    hr_counter_add(prefill ? &e->stats.prefill_ns : &e->stats.decode_ns, ns);
    hr_counter_add(prefill ? &e->stats.prefill_tokens : &e->stats.decode_tokens, tokens);
}

static hr_status step(hr_engine *e)
{
    hr_scheduler_plan(&e->scheduler, &e->plan);
    show(e);
    if (e->plan.n_items == 0) return HR_OK;
    hr_step_message *m = (hr_step_message *)hr_queue_pop(&e->free_steps, -1);
    int64_t begin = hr_now_ns();
    hr_step_args args = {
        .plan = &e->plan, .parts = HR_STEP_SERVE, .token_bucket = -1, .request_bucket = -1
    };
    const hr_step_result *result;
    HR_TRY(hr_runner_step(&e->runner, &args, &result));
    int64_t ns = hr_now_ns() - begin;
    hr_scheduler_commit(&e->scheduler, &e->plan, ns);
    count_step(e, (uint64_t)ns);
    publish(e, m);
    return HR_OK;
}

static void end_all(hr_engine *e, hr_finish finish)
{
    while (e->scheduler.running.first) end_sequence(e, e->scheduler.running.first, finish);
    while (e->scheduler.waiting.first) end_sequence(e, e->scheduler.waiting.first, finish);
}

/* What the thread has to say about itself, once: to the creator at start, to the output thread when
 * a step failed. */
static bool announce(hr_queue *q, hr_status code)
{
    hr_fatal *f = hr_new0(hr_fatal);
    if (!f) return false;
    f->msg.kind = HR_MSG_FATAL;
    f->code = code;
    if (code) memcpy(f->message, hr_message(), sizeof f->message);
    if (hr_queue_push(q, &f->msg.node)) return true;
    hr_free(f);
    return false;
}

void *hr_engine_loop(void *engine)
{
    hr_engine *e = engine;
    hr_status st = start(e);
    if (!announce(&e->ready, st) || st) hr_queue_close(&e->ready);
    while (!st && !hr_flag_get(&e->stop)) {
        take_all(e);
        st = hr_flag_get(&e->stop) ? HR_OK : step(e);
        if (!st) continue;
        hr_log(HR_LOG_ERROR, "engine: the step failed: %s", hr_message());
        memcpy(e->failure, hr_message(), sizeof e->failure);
        hr_flag_set(&e->failed, (int)st); /* the text of it before it */
        announce(&e->to_output, st);
    }
    hr_queue_close(&e->to_engine); /* what is pushed from here on, its sender keeps */
    for (hr_queue_node *n; (n = hr_queue_try_pop(&e->to_engine));) take(e, (hr_msg *)n);
    end_all(e, HR_FINISH_ABORT);
    stop(e);
    return NULL;
}
