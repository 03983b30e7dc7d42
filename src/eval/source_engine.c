/* An engine in this process: everything is submitted at once, and the engine orders the work. */
#include "base/digest.h"
#include "eval/eval_int.h"

typedef struct pending {
    uint64_t id;
    size_t places; /* scores handed on */
    hr_buf text;
    int64_t tokens;
} pending;

typedef struct engine_run {
    hr_eval_source *source;
    const hr_eval_ask *asks;
    const hr_eval_listener *to;
    pending *pending; /* owned [n]; ids rise */
    size_t n, submitted, done;
    int64_t tokens; /* answered */
} engine_run;

static hr_status submit(engine_run *r, const hr_eval_ask *a)
{
    headrace_sampling s;
    headrace_sampling_init(NULL, &s);
    s.temperature = 0;
    s.max_tokens = a->top >= 0 ? 0 : a->max_tokens;
    s.prompt_logprobs = a->top;
    s.stop = a->stop;
    s.n_stop = a->n_stop;
    headrace_request q;
    headrace_request_init(&q);
    q.sampling = &s;
    q.prompt = a->text.p;
    q.prompt_bytes = a->text.n;
    if (a->ids) q.prompt = NULL;
    q.prompt_ids = a->ids;
    q.n_prompt_ids = a->n_ids;
    HR_TRY((hr_status)headrace_submit(r->source->engine, &q, &r->pending[r->submitted].id));
    r->submitted++;
    return HR_OK;
}

/* Ids rise with each submission. */
static pending *find(engine_run *r, uint64_t id)
{
    size_t low = 0, high = r->submitted;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->pending[middle].id < id) low = middle + 1;
        else high = middle;
    }
    return low < r->submitted && r->pending[low].id == id ? &r->pending[low] : NULL;
}

static hr_status on_tokens(engine_run *r, pending *p, const headrace_event *v)
{
    hr_buf_add(&p->text, v->text, v->text_bytes);
    p->tokens += (int64_t)v->n_tokens;
    r->tokens += (int64_t)v->n_tokens;
    return hr_buf_status(&p->text);
}

static hr_status on_done(engine_run *r, pending *p)
{
    size_t i = (size_t)(p - r->pending);
    hr_status st = HR_OK;
    if (r->asks[i].top < 0)
        st = r->to->on_answer(r->to->context, i, hr_buf_str(&p->text), p->tokens);
    hr_buf_deinit(&p->text);
    r->done++;
    hr_eval_tell(r->source, r->done, r->n, r->tokens);
    return st;
}

static hr_status on_event(engine_run *r, const headrace_event *v)
{
    pending *p = find(r, v->id);
    if (!p) return HR_OK;
    size_t i = (size_t)(p - r->pending), first = p->places;
    switch (v->kind) {
    case HEADRACE_EVENT_PROMPT:
        p->places += v->n_tokens;
        return r->to->on_scores(r->to->context, i, first, v->tokens, v->n_tokens);
    case HEADRACE_EVENT_TOKENS: return r->asks[i].top < 0 ? on_tokens(r, p, v) : HR_OK;
    case HEADRACE_EVENT_FAILED: return hr_fail((hr_status)v->status, "%s", v->message);
    case HEADRACE_EVENT_DONE: return on_done(r, p);
    default: return HR_OK;
    }
}

static hr_status run(hr_eval_source *s, const hr_eval_ask *asks, size_t n,
                     const hr_eval_listener *to)
{
    engine_run r = { .source = s, .asks = asks, .to = to, .n = n };
    r.pending = hr_alloc_array0(n, sizeof *r.pending);
    if (!r.pending) return hr_fail(HR_RESOURCE_EXHAUSTED, "%zu requests", n);
    hr_status st = HR_OK;
    for (size_t i = 0; !st && i < n; i++) st = submit(&r, &asks[i]);
    while (!st && r.done < n) {
        headrace_event v;
        st = (hr_status)headrace_poll(s->engine, &v, -1);
        if (!st) st = on_event(&r, &v);
    }
    for (size_t i = 0; i < n; i++) hr_buf_deinit(&r.pending[i].text);
    hr_free(r.pending);
    return st;
}

static hr_status tokenize(hr_eval_source *s, hr_str text, int64_t **ids, size_t *n)
{
    int64_t *own = NULL;
    HR_TRY((hr_status)headrace_tokenize(s->engine, text.p, text.n, 1, &own, n));
    *ids = hr_alloc_array0(*n + 1, sizeof **ids);
    if (*ids) memcpy(*ids, own, *n * sizeof **ids);
    headrace_free(own);
    return *ids ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "%zu tokens", *n);
}

hr_status hr_eval_open_engine(hr_eval_source *s)
{
    s->tokenize = tokenize;
    s->run = run;
    HR_TRY((hr_status)headrace_engine_create(&s->target->engine, &s->engine));
    headrace_info info;
    headrace_info_get(s->engine, &info);
    s->max_model_len = info.max_model_len;
    s->vocab_size = info.vocab_size;
    hr_buf_add_c(&s->name, info.model_name);
    hr_buf_add_c(&s->numerics, info.numerics);
    char hash[HR_DIGEST_TEXT] = "";
    HR_TRY((hr_status)headrace_model_hash(s->engine, hash));
    hr_buf_add_c(&s->identity, hash);
    return HR_OK;
}
