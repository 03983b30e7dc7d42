/* Making events.
 *
 * Input and output thread. An event owns an arena with all that it points to, so that it may
 * outlive the request; short texts and plain tokens lie in the event itself. */
#include <string.h>

#include "base/log.h"
#include "engine/text_int.h"

hr_engine_event *hr_event_new(headrace_event_kind kind, uint64_t request, uint32_t choice)
{
    hr_engine_event *v = hr_new0(hr_engine_event);
    if (!v) {
        hr_log(HR_LOG_ERROR, "engine: req=%llu: no memory for an event",
               (unsigned long long)request);
        return NULL;
    }
    v->event.size = sizeof v->event;
    v->event.kind = kind;
    v->event.id = request;
    v->event.choice = choice;
    v->event.stop_token_id = -1;
    return v;
}

void hr_event_add(hr_event_list *l, hr_engine_event *v)
{
    if (!v) return;
    v->node.next = NULL;
    if (l->last) l->last->node.next = &v->node;
    else l->first = v;
    l->last = v;
    l->n++;
}

void hr_event_list_destroy(hr_event_list *l)
{
    while (l->first) {
        hr_engine_event *v = l->first;
        l->first = (hr_engine_event *)v->node.next;
        hr_engine_event_destroy(v);
    }
    *l = (hr_event_list){ 0 };
}

hr_status hr_event_add_started(hr_event_list *l, const hr_request *r)
{
    hr_engine_event *v = hr_event_new(HEADRACE_EVENT_STARTED, r->id, 0);
    int64_t *ids = v ? hr_arena_array(&v->arena, r->ids.n, sizeof *ids) : NULL;
    if (!ids) {
        hr_engine_event_destroy(v);
        return hr_fail(HR_RESOURCE_EXHAUSTED, "prompt of %zu tokens", r->ids.n);
    }
    for (size_t i = 0; i < r->ids.n; i++) ids[i] = r->ids.p[i];
    v->event.prompt_ids = ids;
    v->event.n_prompt_ids = r->ids.n;
    v->event.seed = r->sampling.seed;
    v->event.max_tokens = r->most_tokens;
    hr_event_add(l, v);
    return HR_OK;
}

void hr_event_add_failed(hr_event_list *l, hr_request *r, hr_status code, const char *message)
{
    hr_engine_event *v = r->failure;
    r->failure = NULL;
    if (!v) return; /* it has failed already */
    v->event.id = r->id;
    v->event.status = (int)code;
    v->event.message = hr_arena_copy(&v->arena, message, strlen(message));
    if (!v->event.message) v->event.message = "no memory left to say why";
    hr_event_add(l, v);
}

/* Where its time went, as far as it came. */
static void set_times(headrace_event *v, const hr_request *r, const hr_choice *c)
{
    double now = hr_now_s();
    bool started = c && c->started_s > 0, spoke = c && c->first_s > 0;
    v->queue_s = (started ? c->started_s : now) - r->submitted_s;
    if (started) v->prefill_s = (spoke ? c->first_s : now) - c->started_s;
    if (spoke) v->decode_s = c->last_s - c->first_s;
}

void hr_event_add_finished(hr_event_list *l, const hr_request *r, uint32_t choice, hr_choice *c,
                           hr_finish finish)
{
    hr_engine_event *v = c ? c->end : hr_event_new(HEADRACE_EVENT_FINISHED, r->id, choice);
    if (!v) return;
    v->event.finish_reason = hr_finish_name(finish);
    set_times(&v->event, r, c);
    hr_event_add(l, v);
    if (!c) return;
    c->end = NULL;
    v->event.output_tokens = c->n_output;
    v->event.cached_tokens = c->cached;
    v->event.stop_token_id = c->stop_id;
    if (!c->stop_string) return;
    hr_str stop = hr_str_c(c->stop_string); /* in the event itself, when short */
    bool fits = stop.n < sizeof v->small;
    if (fits) memcpy(v->small, stop.p, stop.n);
    v->event.stop_string = fits ? v->small : hr_arena_copy(&v->arena, stop.p, stop.n);
}
