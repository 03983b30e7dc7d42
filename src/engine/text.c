/* The text thread: requests in, sequences out to the engine; tokens in, events out to the caller.
 *
 * Owns every reply (a request with its choices), the tokenizer's scratch and the chat template.
 * Templates, tokenising, detokenising and stop strings all happen here, so the engine thread never
 * waits for text. Everything arrives through one queue, in order. */
#include <assert.h>
#include <string.h>

#include "base/log.h"
#include "engine/text_int.h"
#include "text/jinja/jinja.h"

/* ---- replies --------------------------------------------------------------------------------- */

static hr_reply **chain(hr_text *t, uint64_t request)
{
    return &t->chains[request % HR_REPLY_CHAINS];
}

static hr_reply *find(hr_text *t, uint64_t request)
{
    hr_reply *r = *chain(t, request);
    while (r && r->request->id != request) r = r->next;
    return r;
}

static void destroy_reply(hr_reply *r)
{
    for (int64_t i = 0; r->choices && i < r->request->sampling.n; i++) {
        hr_choice *c = &r->choices[i];
        while (c->first) {
            hr_engine_event *next = (hr_engine_event *)c->first->node.next;
            hr_engine_event_destroy(c->first);
            c->first = next;
        }
        hr_buf_deinit(&c->text);
    }
    hr_free(r->choices);
    hr_ids_deinit(&r->prompt);
    hr_request_destroy(r->request);
    hr_free(r);
}

static void forget(hr_text *t, hr_reply *r)
{
    hr_reply **at = chain(t, r->request->id);
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    hr_text_done(t, r->request->id);
    destroy_reply(r);
}

/* ---- requests -------------------------------------------------------------------------------- */

static hr_status open_choices(hr_text *t, hr_reply *reply)
{
    const hr_sampling *s = &reply->request->sampling;
    reply->choices = hr_alloc_array0((size_t)s->n, sizeof *reply->choices);
    if (!reply->choices) return hr_fail(HR_RESOURCE_EXHAUSTED, "choices");
    for (int64_t i = 0; i < s->n; i++) {
        reply->choices[i].stop_id = -1;
        if (t->engine->tokenizer)
            hr_detok_init(&reply->choices[i].detok, t->engine->tokenizer,
                          s->skip_special_tokens ? HR_DECODE_SKIP_SPECIAL | HR_DECODE_CONTINUES
                                                 : HR_DECODE_CONTINUES);
    }
    reply->score_only = s->max_tokens == 0;
    return HR_OK;
}

/* The sequences go to the engine thread; one that cannot (it has stopped) ends here. */
static void send(hr_text *t, hr_reply *reply, hr_seq *first)
{
    for (hr_seq *q = first, *next; q; q = next) {
        next = q->next;
        q->next = NULL;
        if (hr_queue_push(&t->engine->to_engine, &q->msg.node)) {
            reply->in_engine++;
            continue;
        }
        hr_counter_add(&t->engine->stats.submitted, (uint64_t)-1);
        q->finish = HR_FINISH_ABORT;
        hr_text_finish(t, reply, q);
        hr_seq_destroy(q);
    }
    if (!reply->in_engine) forget(t, reply);
}

/* TOKENIZE and DETOKENIZE: answered here. */
static hr_status answer(hr_text *t, hr_reply *reply)
{
    const hr_request *r = reply->request;
    if (r->kind == HR_REQUEST_DETOKENIZE && !r->prompt_ids)
        return hr_fail(HR_INVALID_ARGUMENT, "tokens: a list of token ids is missing");
    if (!t->engine->tokenizer) return hr_fail(HR_FAILED_PRECONDITION, "the model has no tokenizer");
    if (r->kind == HR_REQUEST_DETOKENIZE) return hr_text_decode(t, reply);
    hr_text_started(t, reply);
    return HR_OK;
}

static hr_status open_sequences(hr_text *t, hr_reply *reply, hr_seq **first)
{
    HR_TRY(open_choices(t, reply));
    return hr_text_sequences(t, reply, first);
}

static void take_request(hr_text *t, hr_request *r)
{
    hr_reply *reply = hr_new0(hr_reply);
    hr_seq *first = NULL;
    bool generates = r->kind == HR_REQUEST_GENERATE;
    uint64_t waiting = generates ? (uint64_t)r->sampling.n : 0;
    if (!reply) {
        hr_counter_add(&t->engine->stats.submitted, 0 - waiting);
        hr_text_failed(t, r->id, HR_RESOURCE_EXHAUSTED, "no memory for the request");
        hr_text_done(t, r->id);
        hr_request_destroy(r);
        return;
    }
    reply->request = r;
    reply->next = *chain(t, r->id);
    *chain(t, r->id) = reply;
    hr_status st = t->fatal ? hr_fail(t->fatal, "%s", t->fatal_message) : HR_OK;
    if (!st) st = hr_text_encode(t, r, &reply->prompt);
    if (!st) st = generates ? open_sequences(t, reply, &first) : answer(t, reply);
    if (st) hr_text_failed(t, r->id, st, hr_message());
    if (st || !generates) {
        hr_counter_add(&t->engine->stats.submitted, 0 - waiting);
        forget(t, reply);
        return;
    }
    hr_text_started(t, reply);
    send(t, reply, first);
}

/* ---- from the engine ------------------------------------------------------------------------- */

static void cancel_choice(hr_text *t, uint64_t request, uint32_t choice)
{
    hr_cancel *c = hr_new0(hr_cancel);
    if (!c) return; /* the sequence runs to its end; its tokens are dropped */
    c->msg.kind = HR_MSG_CANCEL;
    c->request = request;
    c->choice = choice;
    if (!hr_queue_push(&t->engine->to_engine, &c->msg.node)) hr_free(c);
}

static void take_step(hr_text *t, hr_step_message *m)
{
    for (int64_t i = 0; i < m->n; i++) {
        hr_reply *reply = find(t, m->rows[i].request);
        if (reply && !reply->failed && hr_text_token(t, reply, m, i))
            cancel_choice(t, m->rows[i].request, m->rows[i].choice);
    }
    bool open = hr_queue_push(&t->engine->free_steps, &m->msg.node);
    assert(open); /* closed only after this thread has ended */
    (void)open;
}

static void take_ended(hr_text *t, hr_seq *q)
{
    hr_reply *reply = find(t, q->request);
    assert(reply && reply->in_engine > 0);
    if (!reply->failed) hr_text_finish(t, reply, q);
    hr_seq_destroy(q);
    if (--reply->in_engine == 0) forget(t, reply);
}

static void take_prompt(hr_text *t, hr_prompt_logprobs *p)
{
    hr_reply *reply = find(t, p->request);
    if (reply && !reply->failed) hr_text_prompt(t, reply, p);
    hr_prompt_logprobs_destroy(p);
}

static void take_fatal(hr_text *t, hr_fatal *f)
{
    t->fatal = f->code;
    memcpy(t->fatal_message, f->message, sizeof t->fatal_message);
    hr_free(f);
    for (size_t i = 0; i < HR_REPLY_CHAINS; i++)
        for (hr_reply *r = t->chains[i]; r; r = r->next) {
            hr_text_failed(t, r->request->id, t->fatal, t->fatal_message);
            r->failed = true;
        }
}

static void take(hr_text *t, hr_msg *m)
{
    switch (m->kind) {
    case HR_MSG_REQUEST: take_request(t, (hr_request *)m); return;
    case HR_MSG_STEP: take_step(t, (hr_step_message *)m); return;
    case HR_MSG_SEQ: take_ended(t, (hr_seq *)m); return;
    case HR_MSG_PROMPT: take_prompt(t, (hr_prompt_logprobs *)m); return;
    case HR_MSG_FATAL: take_fatal(t, (hr_fatal *)m); return;
    case HR_MSG_CANCEL:
        if (!hr_queue_push(&t->engine->to_engine, &m->node)) hr_free(m);
        return;
    }
}

void *hr_text_loop(void *engine)
{
    hr_engine *e = engine;
    hr_queue_node *n;
    while ((n = hr_queue_pop(&e->to_text, -1))) take(e->text, (hr_msg *)n);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

hr_status hr_text_create(hr_engine *e, hr_text **out)
{
    *out = NULL;
    hr_text *t = hr_new0(hr_text);
    if (!t) return hr_fail(HR_RESOURCE_EXHAUSTED, "text thread");
    t->engine = e;
    hr_status st = HR_OK;
    if (e->chat_template.n) st = hr_template_parse(e->chat_template, &t->chat);
    if (st) {
        st = hr_fail_prefix(st, "chat template");
        hr_text_destroy(t);
        return st;
    }
    *out = t;
    return HR_OK;
}

void hr_text_destroy(hr_text *t)
{
    if (!t) return;
    for (size_t i = 0; i < HR_REPLY_CHAINS; i++)
        while (t->chains[i]) {
            hr_reply *next = t->chains[i]->next;
            destroy_reply(t->chains[i]);
            t->chains[i] = next;
        }
    hr_template_destroy(t->chat);
    hr_tokenizer_scratch_deinit(&t->scratch);
    hr_free(t);
}
