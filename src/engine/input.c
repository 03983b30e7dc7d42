/* The input thread: requests in, sequences out to the engine.
 *
 * Owns the chat template, the tokenizer's scratch and the requests that wait for it. Templates,
 * tokenising and hashing happen here and nowhere else, so a prompt of megabytes delays the prompts
 * behind it but no answer that runs. A request goes on to the output thread before its sequences go
 * to the engine: whatever comes of them, their request is already there. */
#include "engine/text_int.h"
#include "text/jinja/jinja.h"

/* ---- on its way ------------------------------------------------------------------------------ */

static void to_output(hr_reader *t, hr_msg *m)
{
    hr_engine_push(&t->engine->to_output, m); /* closed only after this thread has ended */
}

/* A sequence that the engine, having stopped, does not take. */
static void give_up(hr_reader *t, hr_seq *q)
{
    hr_engine_stats *s = &t->engine->stats;
    hr_counter_add(&s->submitted, (uint64_t)-1);
    if (q->queued_tokens >= 0) {
        hr_counter_add(&s->queued_requests, (uint64_t)-1);
        hr_counter_add(&s->queued_tokens, 0 - (uint64_t)q->queued_tokens);
    }
    q->finish = HR_FINISH_ABORT;
    to_output(t, &q->msg);
}

/* The request, then its sequences; it is the output thread's from here on. */
static void hand_over(hr_reader *t, hr_request *r, hr_seq *first)
{
    for (hr_seq *q = first; q; q = q->next) r->in_engine++;
    r->msg.kind = HR_MSG_REPLY;
    to_output(t, &r->msg);
    for (hr_seq *q = first, *next; q; q = next) {
        next = q->next;
        q->next = NULL;
        if (!hr_queue_push(&t->engine->to_engine, &q->msg.node)) give_up(t, q);
    }
}

/* It will not run: what it was counted as is taken back. */
static void leave_queue(hr_reader *t, const hr_request *r)
{
    hr_engine_stats *s = &t->engine->stats;
    if (r->kind != HR_REQUEST_GENERATE) return;
    hr_counter_add(&s->submitted, 0 - (uint64_t)r->sampling.n);
    hr_counter_add(&s->queued_requests, (uint64_t)-1);
    hr_counter_add(&s->queued_tokens, 0 - r->queued_tokens);
}

/* The tokens it was thought to have become those it has. */
static void settle_queue(hr_reader *t, hr_request *r, hr_seq *first)
{
    hr_counter_add(&t->engine->stats.queued_tokens, r->ids.n - r->queued_tokens);
    first->queued_tokens = (int64_t)r->ids.n;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* DETOKENIZE: the text of the request's ids. */
static hr_status decode(hr_reader *t, hr_request *r)
{
    hr_engine_event *v = hr_event_new(HEADRACE_EVENT_TOKENS, r->id, 0);
    hr_buf text = { 0 };
    if (!v) return hr_fail(HR_RESOURCE_EXHAUSTED, "text");
    hr_decode_flags flags =
        r->sampling.skip_special_tokens ? HR_DECODE_SKIP_SPECIAL : HR_DECODE_DEFAULT;
    hr_status st = hr_tokenizer_decode(t->engine->tokenizer, r->ids.p, r->ids.n, flags, &text);
    if (!st) v->event.text = hr_arena_copy(&v->arena, text.n ? text.p : "", text.n);
    if (!st && !v->event.text) st = hr_fail(HR_RESOURCE_EXHAUSTED, "text");
    v->event.text_bytes = text.n;
    hr_buf_deinit(&text);
    if (st) hr_engine_event_destroy(v);
    else hr_event_add(&r->events, v);
    return st;
}

/* TOKENIZE and DETOKENIZE are answered here. */
static hr_status answer(hr_reader *t, hr_request *r)
{
    if (!t->engine->tokenizer) return hr_fail(HR_INVALID_ARGUMENT, "the model has no tokenizer");
    if (r->kind == HR_REQUEST_TOKENIZE) return hr_event_add_started(&r->events, r);
    if (!r->prompt_ids)
        return hr_fail(HR_INVALID_ARGUMENT, "tokens: a list of token ids is missing");
    return decode(t, r);
}

static hr_status open_answer(hr_reader *t, hr_request *r, hr_seq **first)
{
    r->most_tokens = hr_reader_most_tokens(t->engine, r);
    HR_TRY(hr_event_add_started(&r->events, r));
    return hr_reader_sequences(t, r, first);
}

static void process(hr_reader *t, hr_request *r)
{
    hr_seq *first = NULL;
    bool generates = r->kind == HR_REQUEST_GENERATE;
    hr_status st = hr_reader_encode(t, r);
    if (!st) st = generates ? open_answer(t, r, &first) : answer(t, r);
    if (st) {
        hr_event_list_destroy(&r->events); /* STARTED, of what does not start */
        hr_event_add_failed(&r->events, r, st, hr_message());
        leave_queue(t, r);
    } else if (generates) settle_queue(t, r, first);
    hand_over(t, r, first);
}

/* Ends one that has not been tokenised. */
static void abandon(hr_reader *t, hr_request *r)
{
    int64_t choices = r->kind == HR_REQUEST_GENERATE ? r->sampling.n : 0;
    for (int64_t i = 0; i < choices; i++)
        hr_event_add_finished(&r->events, r, (uint32_t)i, NULL, HR_FINISH_ABORT);
    leave_queue(t, r);
    hand_over(t, r, NULL);
}

/* ---- messages -------------------------------------------------------------------------------- */

static hr_request *take_pending(hr_reader *t, hr_request **at)
{
    hr_request *r = *at;
    *at = r->next;
    if (!*at) t->pending_end = at;
    r->next = NULL;
    return r;
}

/* The engine has heard of it already, unless its sequences were still on the way: those are before
 * this message in the engine's queue now. */
static void cancel(hr_reader *t, hr_cancel *c)
{
    for (hr_request **at = &t->pending; *at; at = &(*at)->next)
        if ((*at)->id == c->request) {
            abandon(t, take_pending(t, at));
            break;
        }
    if (!hr_queue_push(&t->engine->to_engine, &c->msg.node)) hr_free(c);
}

static void take(hr_reader *t, hr_msg *m)
{
    if (m->kind == HR_MSG_REQUEST) {
        hr_request *r = (hr_request *)m;
        *t->pending_end = r;
        t->pending_end = &r->next;
    } else cancel(t, (hr_cancel *)m);
}

void *hr_reader_loop(void *engine)
{
    hr_engine *e = engine;
    hr_reader *t = e->reader;
    hr_queue_node *n;
    while ((n = hr_queue_pop(&e->to_input, -1))) {
        /* all that has come, before the next prompt: cancels need not wait for it */
        for (; n; n = hr_queue_try_pop(&e->to_input)) take(t, (hr_msg *)n);
        while (t->pending) {
            hr_request *r = take_pending(t, &t->pending);
            if (hr_flag_get(&e->stop)) abandon(t, r);
            else process(t, r);
            while ((n = hr_queue_try_pop(&e->to_input))) take(t, (hr_msg *)n);
        }
    }
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

hr_status hr_reader_create(hr_engine *e, hr_reader **out)
{
    *out = NULL;
    hr_reader *t = hr_new0(hr_reader);
    if (!t) return hr_fail(HR_RESOURCE_EXHAUSTED, "input thread");
    t->engine = e;
    t->pending_end = &t->pending;
    hr_status st = HR_OK;
    if (e->chat_template.n) st = hr_template_parse(e->chat_template, &t->chat);
    if (st) st = hr_fail_prefix(st, "chat template");
    if (st) {
        hr_reader_destroy(t);
        return st;
    }
    *out = t;
    return HR_OK;
}

void hr_reader_destroy(hr_reader *t)
{
    if (!t) return;
    hr_template_destroy(t->chat);
    hr_tokenizer_scratch_deinit(&t->scratch);
    hr_token_index_deinit(&t->index);
    hr_free(t);
}
