/* The thread-safe door: submit, cancel, poll, and what metrics read.
 *
 * Runs on the caller's threads. Requests are counted here before they are queued, so the limits of
 * the queue hold whoever submits; each part of the engine takes back what it lets through. */
#include <unistd.h>

#include "base/exact.h"
#include "engine/engine_int.h"

/* ---- requests in ----------------------------------------------------------------------------- */

hr_sampler_limits hr_engine_sampler_limits(const hr_engine *e)
{
    return (hr_sampler_limits){ .kind = e->shapes.sampler.kind,
                                .vocab = e->shapes.sampler.vocab,
                                .used_vocab = e->shapes.sampler.used_vocab,
                                .max_model_len = e->max_model_len,
                                .max_logprobs = e->options.max_logprobs };
}

/* The seed of a request that brought none, under --seed: 63 bits of both numbers. */
static int64_t draw_seed(const hr_engine *e, uint64_t id)
{
    uint64_t own = (uint64_t)e->options.seed;
    uint32_t out[4], key[2] = { (uint32_t)own, (uint32_t)(own >> 32) };
    hr_exact_philox((uint32_t[4]){ (uint32_t)id, (uint32_t)(id >> 32), 0, 1 }, key, out);
    return (int64_t)((out[0] | (uint64_t)out[1] << 32) >> 1);
}

/* Prompt tokens, as far as is known: four bytes of text count as one until they are tokenised. */
static uint64_t weigh(const hr_request *r)
{
    size_t bytes = r->prompt.n + r->messages_json.n + r->tools_json.n + r->documents_json.n;
    return r->n_prompt_ids + (bytes + 3) / 4;
}

static void leave_queue(hr_engine *e, const hr_request *r)
{
    hr_counter_add(&e->stats.submitted, 0 - (uint64_t)r->sampling.n);
    hr_counter_add(&e->stats.queued_requests, (uint64_t)-1);
    hr_counter_add(&e->stats.queued_tokens, 0 - r->queued_tokens);
}

/* Counted first and taken back if that was too much, so that of many submits at once no more get
 * in than may. A prompt longer than the whole limit gets in when nobody else waits. */
static hr_status enter_queue(hr_engine *e, hr_request *r)
{
    int64_t most = e->options.max_num_queued_reqs, most_tokens = e->options.max_num_queued_tokens;
    r->queued_tokens = weigh(r);
    hr_counter_add(&e->stats.submitted, (uint64_t)r->sampling.n);
    uint64_t requests = hr_counter_add_get(&e->stats.queued_requests, 1);
    uint64_t tokens = hr_counter_add_get(&e->stats.queued_tokens, r->queued_tokens);
    hr_status st = HR_OK;
    if (most && requests > (uint64_t)most)
        st = hr_fail(HR_UNAVAILABLE, "the queue is full: %lld requests wait (max_num_queued_reqs)",
                     (long long)requests - 1);
    else if (most_tokens && requests > 1 && tokens > (uint64_t)most_tokens)
        st = hr_fail(HR_UNAVAILABLE,
                     "the queue is full: with this prompt %llu tokens would wait, at most %lld may "
                     "(max_num_queued_tokens)",
                     (unsigned long long)tokens, (long long)most_tokens);
    if (st) leave_queue(e, r);
    return st;
}

hr_status hr_engine_submit(hr_engine *e, hr_request *r, uint64_t *id)
{
    bool generates = r->kind == HR_REQUEST_GENERATE;
    hr_status st = generates ? enter_queue(e, r) : HR_OK;
    *id = 0;
    if (st) {
        hr_request_destroy(r);
        return st;
    }
    r->id = r->done->event.id = *id = hr_counter_next(&e->next_id);
    if (r->sampling.seed == -1) r->sampling.seed = draw_seed(e, r->id);
    r->submitted_s = hr_now_s();
    if (hr_queue_push(&e->to_input, &r->msg.node)) return HR_OK;
    if (generates) leave_queue(e, r);
    hr_request_destroy(r);
    return hr_fail(HR_UNAVAILABLE, "the engine is stopping");
}

hr_cancel *hr_cancel_new(uint64_t request, uint32_t choice)
{
    hr_cancel *c = hr_new0(hr_cancel);
    if (!c) return NULL;
    c->msg.kind = HR_MSG_CANCEL;
    c->request = request;
    c->choice = choice;
    return c;
}

/* Straight to the engine thread, which ends what it has within a step; and behind the request,
 * which the other may have overtaken. */
hr_status hr_engine_cancel(hr_engine *e, uint64_t id)
{
    hr_queue *queues[] = { &e->to_engine, &e->to_input };
    bool open = false;
    for (size_t i = 0; i < 2; i++) {
        hr_cancel *c = hr_cancel_new(id, HR_ALL_CHOICES);
        if (!c) return hr_fail(HR_RESOURCE_EXHAUSTED, "cancel");
        open = hr_queue_push(queues[i], &c->msg.node);
        if (!open) hr_free(c);
    }
    return open ? HR_OK : hr_fail(HR_UNAVAILABLE, "the engine is stopping");
}

/* ---- events out ------------------------------------------------------------------------------ */

hr_status hr_engine_failure(const hr_engine *e, char message[HR_MESSAGE_MAX])
{
    hr_status st = (hr_status)hr_flag_get(&e->failed);
    if (st && message) memcpy(message, e->failure, sizeof e->failure);
    return st;
}

/* The descriptor is cleared only when nothing was there: a reader that goes on until it is told so
 * makes one system call, not two an event. */
hr_engine_event *hr_engine_poll(hr_engine *e, int timeout_ms)
{
    hr_engine_event *v = (hr_engine_event *)hr_queue_try_pop(&e->to_caller);
    if (v) return v;
    hr_queue_clear_wake(&e->to_caller);
    v = (hr_engine_event *)hr_queue_pop(&e->to_caller, timeout_ms);
    if (v && hr_queue_length(&e->to_caller)) {
        uint64_t one = 1; /* more are waiting: stay readable */
        ssize_t n = write(e->wake_fd, &one, sizeof one);
        (void)n;
    }
    return v;
}

void hr_engine_event_destroy(hr_engine_event *v)
{
    if (!v) return;
    hr_arena_deinit(&v->arena);
    hr_free(v);
}

/* ---- what metrics read ----------------------------------------------------------------------- */

void hr_engine_gauges_get(const hr_engine *e, hr_engine_gauges *out)
{
    const hr_engine_stats *s = &e->stats;
    *out = (hr_engine_gauges){
        .running = hr_counter_get(&s->running),
        .waiting = hr_counter_get(&s->waiting) + hr_counter_get(&s->submitted),
        .blocks = e->shapes.build.blocks,
        .blocks_in_use = (int64_t)hr_counter_get(&s->blocks_in_use),
        .prompt_tokens = hr_counter_get(&s->prompt_tokens),
        .generation_tokens = hr_counter_get(&s->generation_tokens),
        .preemptions = hr_counter_get(&s->preemptions),
        .prefix_queries = hr_counter_get(&s->prefix_queries),
        .prefix_hits = hr_counter_get(&s->prefix_hits),
        .late_compilations = hr_counter_get(&e->ledger.late),
        .steps = hr_counter_get(&s->steps),
        .drafts = hr_counter_get(&s->drafts),
        .draft_tokens = hr_counter_get(&s->draft_tokens),
        .accepted_tokens = hr_counter_get(&s->accepted_tokens),
    };
}

int64_t hr_engine_speculative_tokens(const hr_engine *e)
{
    return e->shapes.speculation.tokens;
}

uint64_t hr_engine_accepted_at(const hr_engine *e, int64_t place)
{
    return hr_counter_get(&e->stats.accepted_at[place]);
}

const hr_histogram *hr_engine_iteration_tokens(const hr_engine *e)
{
    return &e->stats.iteration_tokens;
}

int64_t hr_engine_max_model_len(const hr_engine *e)
{
    return e->max_model_len;
}

const hr_tokenizer *hr_engine_tokenizer(const hr_engine *e)
{
    return e->tokenizer;
}

hr_str hr_engine_chat_template(const hr_engine *e)
{
    return e->chat_template;
}

const hr_model *hr_engine_model(const hr_engine *e)
{
    return e->model;
}

const hr_ledger *hr_engine_ledger(const hr_engine *e)
{
    return &e->ledger;
}
