/* The output thread: tokens in, events out to the caller.
 *
 * Owns every request whose sequences are with the engine, and its choices' text. Detokenising,
 * stop strings and log-probabilities are worked on here, so the engine thread never waits for text
 * and no prompt delays an answer. Everything arrives through one queue, in order; the events of a
 * step leave together, so that a step wakes the caller once. */
#include <assert.h>
#include <string.h>

#include "engine/text_int.h"

/* ---- requests -------------------------------------------------------------------------------- */

static hr_request **chain(hr_writer *t, uint64_t request)
{
    return &t->chains[request % HR_REPLY_CHAINS];
}

static hr_request *find(hr_writer *t, uint64_t request)
{
    hr_request *r = *chain(t, request);
    while (r && r->id != request) r = r->next;
    return r;
}

/* Its last event was made with it, so that it ends even when memory is short. */
static void end(hr_writer *t, hr_request *r)
{
    hr_event_add(&t->events, r->done);
    r->done = NULL;
    hr_request_destroy(r);
}

static void forget(hr_writer *t, hr_request *r)
{
    hr_request **at = chain(t, r->id);
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    end(t, r);
}

static void fail(hr_writer *t, hr_request *r)
{
    hr_event_add_failed(&t->events, r, t->fatal, t->fatal_message);
    r->failed = true;
}

/* A request that the input thread is done with, and what it has to say already. */
static void take_reply(hr_writer *t, hr_request *r)
{
    while (r->events.first) {
        hr_engine_event *v = r->events.first;
        r->events.first = (hr_engine_event *)v->node.next;
        hr_event_add(&t->events, v);
    }
    r->events = (hr_event_list){ 0 };
    if (!r->in_engine) {
        end(t, r);
        return;
    }
    if (t->fatal) fail(t, r);
    r->next = *chain(t, r->id);
    *chain(t, r->id) = r;
}

/* ---- from the engine ------------------------------------------------------------------------- */

static void cancel_choice(hr_writer *t, uint64_t request, uint32_t choice)
{
    hr_cancel *c = hr_cancel_new(request, choice);
    if (!c) return; /* the sequence runs to its end; its tokens are dropped */
    if (!hr_queue_push(&t->engine->to_engine, &c->msg.node)) hr_free(c);
}

static void take_step(hr_writer *t, hr_step_message *m)
{
    for (int64_t i = 0; i < m->n; i++) {
        hr_request *r = find(t, m->rows[i].request);
        if (r && !r->failed && hr_writer_token(t, r, m, i))
            cancel_choice(t, m->rows[i].request, m->rows[i].choice);
    }
    hr_engine_push(&t->engine->free_steps, &m->msg);
}

static void take_ended(hr_writer *t, hr_seq *q)
{
    hr_request *r = find(t, q->request);
    assert(r && r->in_engine > 0);
    if (!r->failed) hr_writer_finish(t, r, q);
    hr_seq_destroy(q);
    if (--r->in_engine == 0) forget(t, r);
}

static void take_prompt(hr_writer *t, hr_prompt_logprobs *p)
{
    hr_request *r = find(t, p->request);
    if (r && !r->failed && hr_writer_prompt(t, r, p)) cancel_choice(t, r->id, HR_ALL_CHOICES);
    hr_prompt_logprobs_destroy(p);
}

static void take_fatal(hr_writer *t, hr_fatal *f)
{
    t->fatal = f->code;
    memcpy(t->fatal_message, f->message, sizeof t->fatal_message);
    hr_free(f);
    for (size_t i = 0; i < HR_REPLY_CHAINS; i++)
        for (hr_request *r = t->chains[i]; r; r = r->next) fail(t, r);
}

static void take(hr_writer *t, hr_msg *m)
{
    switch (m->kind) {
    case HR_MSG_REPLY: take_reply(t, (hr_request *)m); return;
    case HR_MSG_STEP: take_step(t, (hr_step_message *)m); return;
    case HR_MSG_SEQ: take_ended(t, (hr_seq *)m); return;
    case HR_MSG_PROMPT: take_prompt(t, (hr_prompt_logprobs *)m); return;
    case HR_MSG_FATAL: take_fatal(t, (hr_fatal *)m); return;
    case HR_MSG_REQUEST:
    case HR_MSG_CANCEL: break;
    }
    assert(!"not for the output thread");
}

static void flush(hr_writer *t)
{
    hr_event_list *l = &t->events;
    if (!l->first) return;
    if (hr_queue_push_all(&t->engine->to_caller, &l->first->node, &l->last->node, l->n))
        *l = (hr_event_list){ 0 };
    else hr_event_list_destroy(l);
}

enum { MOST_AT_ONCE = 64 };

void *hr_writer_loop(void *engine)
{
    hr_engine *e = engine;
    hr_queue_node *n;
    while ((n = hr_queue_pop(&e->to_output, -1))) {
        int taken = 0; /* what came together leaves together, up to a point */
        do take(e->writer, (hr_msg *)n);
        while (++taken < MOST_AT_ONCE && (n = hr_queue_try_pop(&e->to_output)));
        flush(e->writer);
    }
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

hr_status hr_writer_create(hr_engine *e, hr_writer **out)
{
    hr_writer *t = *out = hr_new0(hr_writer);
    if (!t) return hr_fail(HR_RESOURCE_EXHAUSTED, "output thread");
    t->engine = e;
    return HR_OK;
}

void hr_writer_destroy(hr_writer *t)
{
    if (!t) return;
    for (size_t i = 0; i < HR_REPLY_CHAINS; i++)
        while (t->chains[i]) {
            hr_request *next = t->chains[i]->next;
            hr_request_destroy(t->chains[i]);
            t->chains[i] = next;
        }
    hr_event_list_destroy(&t->events);
    hr_free(t);
}
