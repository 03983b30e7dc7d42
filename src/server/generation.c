/* The life of an answer: made, submitted, found again by engine id, ended.
 *
 * I/O thread; owns all running generations, a table of their parts, and the one buffer that chunks
 * and bodies are written to. A generation ends exactly once, in end(): there its parts leave the
 * table, what still runs is cancelled in the engine, it is counted and logged; events that come
 * later find no part and are dropped. All prompts of a request are submitted, or none: requests are
 * made and checked before the first one leaves, and what was submitted before a full queue is
 * cancelled. */
#include "server/generation.h"

#include <string.h>
#include <time.h>

#include "base/log.h"
#include "server/metrics.h"
#include "server/reply.h"

#define CHAINS       4096 /* power of two */
#define MOST_SCRATCH ((size_t)1 << 20)

struct hr_generations {
    hr_part *chains[CHAINS];
    hr_generation *first; /* all that run */
    size_t running;
    hr_buf scratch;
    hr_arena names_arena;
    hr_str names[HR_OPENAI_MAX_UNKNOWN_NAMES];
    size_t n_names;
};

/* ---- the table ------------------------------------------------------------------------------- */

static hr_part **chain(hr_generations *all, uint64_t id)
{
    return &all->chains[id & (CHAINS - 1)];
}

static hr_part *find(hr_generations *all, uint64_t id)
{
    hr_part *p = *chain(all, id);
    while (p && p->id != id) p = p->next;
    return p;
}

static void list_part(hr_generations *all, hr_part *p)
{
    p->next = *chain(all, p->id);
    *chain(all, p->id) = p;
    p->listed = true;
}

static void unlist_part(hr_generations *all, hr_part *p)
{
    if (!p->listed) return;
    hr_part **at = chain(all, p->id);
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    p->listed = false;
}

static void link_generation(hr_generations *all, hr_generation *g)
{
    g->next = all->first;
    if (g->next) g->next->previous = g;
    all->first = g;
    all->running++;
}

static void unlink_generation(hr_generations *all, hr_generation *g)
{
    if (g->next) g->next->previous = g->previous;
    if (g->previous) g->previous->next = g->next;
    else all->first = g->next;
    all->running--;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void free_part(hr_part *p)
{
    hr_request_destroy(p->prepared);
    hr_buf_deinit(&p->prompt_ids);
    hr_buf_deinit(&p->prompt_logprobs);
    hr_logprobs_deinit(&p->echo);
}

static void free_generation(hr_generation *g)
{
    for (size_t i = 0; g->parts && i < g->n_parts; i++) free_part(&g->parts[i]);
    for (size_t i = 0; g->choices && i < g->n_choices; i++) {
        hr_buf_deinit(&g->choices[i].text);
        hr_choice_reply_deinit(&g->choices[i]);
        hr_buf_deinit(&g->choices[i].token_ids);
        hr_buf_deinit(&g->choices[i].trace);
        hr_logprobs_deinit(&g->choices[i].logprobs);
    }
    hr_buf_deinit(&g->prefix);
}

static void observe(const hr_generation *g, const char *unfinished)
{
    hr_metrics *m = g->server->metrics;
    hr_usage usage = hr_generation_usage(g);
    hr_metrics_request r = { .prompt_tokens = usage.prompt_tokens,
                             .generation_tokens = usage.completion_tokens,
                             .n = g->openai.sampling.n,
                             .max_tokens = g->openai.max_tokens,
                             .e2e_s = hr_now_s() - g->x->began_s };
    for (size_t i = 0; i < g->n_choices; i++)
        if (!g->choices[i].finished) hr_metrics_finished(m, unfinished ? unfinished : "abort");
    for (size_t i = 0; i < g->n_parts; i++) {
        const hr_part *p = &g->parts[i];
        if (p->queue_s > r.queue_s) r.queue_s = p->queue_s;
        if (p->prefill_s > r.prefill_s) r.prefill_s = p->prefill_s;
        if (p->decode_s > r.decode_s) r.decode_s = p->decode_s;
    }
    if (!unfinished) hr_metrics_observe(m, &r);
}

static void cancel(const hr_server *s, const hr_part *p)
{
    if (!p->id || p->done) return;
    hr_status st = hr_engine_cancel(s->engine, p->id);
    if (st && st != HR_UNAVAILABLE) /* that one says that the engine ends by itself */
        hr_log(HR_LOG_ERROR, "server: %s", hr_message());
}

/* What has not ended in the engine is cancelled there. `unfinished`: how choices without an end of
 * their own are counted; NULL = there is none. */
static void end(hr_generation *g, int http_status, const char *unfinished)
{
    hr_server *s = g->server;
    for (size_t i = 0; i < g->n_parts; i++) {
        unlist_part(s->generations, &g->parts[i]);
        cancel(s, &g->parts[i]);
    }
    if (g->kind == HR_GENERATION_ANSWER) observe(g, unfinished);
    hr_request_log(g, http_status);
    unlink_generation(s->generations, g);
    free_generation(g);
    g->x->state = NULL;
    g->x->on_gone = NULL;
}

static void gone(hr_exchange *x)
{
    end(x->state, 499, "abort"); /* 499: the log's number for it; nobody is there to read it */
}

hr_usage hr_generation_usage(const hr_generation *g)
{
    hr_usage u = { 0 };
    for (size_t i = 0; i < g->n_parts; i++) {
        u.prompt_tokens += g->parts[i].prompt_tokens;
        u.cached_tokens += g->parts[i].cached_tokens;
    }
    for (size_t i = 0; i < g->n_choices; i++) u.completion_tokens += g->choices[i].n_tokens;
    return u;
}

void hr_generation_answer(hr_generation *g, const hr_buf *body)
{
    hr_exchange *x = g->x;
    if (hr_buf_status(body)) {
        hr_generation_fail(g, 500, NULL, "no memory for the answer");
        return;
    }
    end(g, 200, NULL);
    hr_exchange_reply(x, 200, "application/json", hr_buf_str(body));
}

void hr_generation_reply(hr_generation *g)
{
    hr_exchange *x = g->x;
    hr_buf *out = hr_generations_scratch(g->server->generations);
    if (g->kind != HR_GENERATION_ANSWER) { /* its event answers, and must have come before */
        hr_generation_fail(g, 500, NULL, "the engine gave no answer");
        return;
    }
    if (!g->openai.stream) {
        hr_openai_write_body(out, g);
        hr_generation_answer(g, out);
        return;
    }
    if (g->openai.include_usage) hr_openai_write_usage_chunk(out, g);
    if (hr_buf_status(out)) {
        hr_generation_fail(g, 500, NULL, "no memory for a chunk");
        return;
    }
    if (out->n && !hr_exchange_stream_data(x, hr_buf_str(out))) return;
    end(g, 200, NULL);
    hr_exchange_stream_end(x);
}

void hr_generation_fail(hr_generation *g, int http_status, const char *param, const char *message)
{
    hr_exchange *x = g->x;
    if (!g->stream_begun) {
        end(g, http_status, "error");
        hr_exchange_error(x, http_status, param, "%s", message);
        return;
    }
    hr_buf *out = hr_generations_scratch(g->server->generations);
    hr_json_writer w = { .out = out };
    hr_exchange_error_body(&w, http_status, param, hr_str_c(message));
    if (!hr_buf_status(out) && !hr_exchange_stream_data(x, hr_buf_str(out))) return;
    end(g, http_status, "error");
    hr_exchange_stream_end(x);
}

/* ---- the beginning --------------------------------------------------------------------------- */

static hr_status out_of_memory(void)
{
    return hr_fail(HR_RESOURCE_EXHAUSTED, "no memory for the request");
}

static hr_status make_id(hr_generation *g)
{
    hr_exchange *x = g->x;
    bool own = !g->openai.request_id.p || hr_exchange_header(x, "X-Request-Id").p;
    hr_str id = own ? x->request_id : g->openai.request_id;
    const char *kind = g->kind != HR_GENERATION_ANSWER        ? "tokn-"
                       : g->openai.endpoint == HR_OPENAI_CHAT ? "chatcmpl-"
                                                              : "cmpl-";
    size_t n = strlen(kind);
    char *text = hr_arena_alloc(&x->arena, n + id.n + 1);
    if (!text) return out_of_memory();
    memcpy(text, kind, n);
    if (id.n) memcpy(text + n, id.p, id.n);
    g->id = (hr_str){ text, n + id.n };
    return HR_OK;
}

static hr_status allocate(hr_generation *g)
{
    hr_arena *arena = &g->x->arena;
    size_t n = g->openai.sampling.n;
    g->n_parts = g->openai.n_prompts;
    g->n_choices = g->kind == HR_GENERATION_ANSWER ? g->n_parts * n : 0; /* ≤ 1024 */
    g->parts = hr_arena_array(arena, g->n_parts, sizeof *g->parts);
    g->choices = hr_arena_array(arena, g->n_choices, sizeof *g->choices);
    if (!g->parts || !g->choices) return out_of_memory();
    for (size_t i = 0; i < g->n_parts; i++) {
        g->parts[i].generation = g;
        g->parts[i].choices = g->choices + i * n;
    }
    for (size_t i = 0; i < g->n_choices; i++) {
        g->choices[i].part = &g->parts[i / n];
        g->choices[i].index = (uint32_t)i;
        g->choices[i].stop_token_id = -1;
    }
    return make_id(g);
}

static const hr_request_kind engine_kinds[] = {
    [HR_GENERATION_ANSWER] = HR_REQUEST_GENERATE,
    [HR_GENERATION_TOKENIZE] = HR_REQUEST_TOKENIZE,
    [HR_GENERATION_DETOKENIZE] = HR_REQUEST_DETOKENIZE,
};

/* The engine's request for one prompt, copied and checked. */
static hr_status prepare(hr_generation *g, hr_part *part, const hr_openai_prompt *prompt)
{
    headrace_request r = g->openai.request;
    r.sampling = &g->openai.sampling;
    if (prompt && prompt->text.p) {
        r.prompt = prompt->text.p;
        r.prompt_bytes = prompt->text.n;
    } else if (prompt) {
        r.prompt_ids = prompt->ids;
        r.n_prompt_ids = prompt->n_ids;
    }
    HR_TRY(hr_request_create(g->server->engine, &r, &part->prepared));
    hr_request_set_kind(part->prepared, engine_kinds[g->kind]);
    return HR_OK;
}

static hr_status prepare_all(hr_generation *g)
{
    const hr_openai_prompt *prompts = g->openai.prompts;
    for (size_t i = 0; i < g->n_parts; i++)
        HR_TRY(prepare(g, &g->parts[i], prompts ? &prompts[i] : NULL));
    return HR_OK;
}

static hr_status submit_all(hr_generation *g)
{
    hr_engine *e = g->server->engine;
    for (size_t i = 0; i < g->n_parts; i++) {
        hr_part *p = &g->parts[i];
        hr_request *r = p->prepared;
        p->prepared = NULL;
        HR_TRY(hr_engine_submit(e, r, &p->id));
        list_part(g->server->generations, p);
    }
    return HR_OK;
}

/* Nothing of it may stay: not even requests that were submitted before one was refused. */
static void withdraw(hr_generation *g)
{
    for (size_t i = 0; i < g->n_parts && g->parts; i++) {
        unlist_part(g->server->generations, &g->parts[i]);
        cancel(g->server, &g->parts[i]);
    }
    free_generation(g);
}

const char *hr_generation_param(const hr_generation *g, const char *message)
{
    const char *param = hr_openai_param_of(message);
    if (!param || strcmp(param, "prompt") != 0) return param;
    return g->kind == HR_GENERATION_DETOKENIZE ? "tokens" : g->openai.messages ? "messages" : param;
}

void hr_generation_run(hr_exchange *x, const hr_openai *o, hr_generation_kind kind)
{
    hr_generation *g = hr_arena_new(&x->arena, hr_generation);
    if (!g) {
        hr_request_refuse(x, out_of_memory(), NULL);
        return;
    }
    *g = (hr_generation){
        .x = x, .server = x->server, .kind = kind, .openai = *o, .created = (int64_t)time(NULL)
    };
    hr_status st = allocate(g);
    if (!st) st = prepare_all(g);
    if (!st) st = submit_all(g);
    if (st) {
        withdraw(g);
        hr_request_refuse(x, st, hr_generation_param(g, hr_message()));
        return;
    }
    link_generation(x->server->generations, g);
    x->state = g;
    x->on_gone = gone;
}

/* ---- all of them ----------------------------------------------------------------------------- */

hr_status hr_generations_create(hr_generations **out)
{
    *out = hr_new0(hr_generations);
    return *out ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "table of answers");
}

void hr_generations_destroy(hr_generations *g)
{
    if (!g) return;
    hr_buf_deinit(&g->scratch);
    hr_arena_deinit(&g->names_arena);
    hr_free(g);
}

size_t hr_generations_running(const hr_generations *g)
{
    return g->running;
}

void hr_generations_event(hr_server *s, hr_engine_event *v)
{
    hr_part *part = find(s->generations, v->event.id);
    if (part && hr_generation_event(part, &v->event) && v->event.kind == HEADRACE_EVENT_DONE) {
        part->done = true;
        unlist_part(s->generations, part);
        if (++part->generation->n_done == part->generation->n_parts)
            hr_generation_reply(part->generation);
    }
    hr_engine_event_destroy(v);
}

void hr_generations_abort_all(hr_server *s, int http_status, const char *message)
{
    while (s->generations->first)
        hr_generation_fail(s->generations->first, http_status, NULL, message);
}

bool hr_generations_first_time(hr_generations *g, hr_str name)
{
    if (name.n > 100) name.n = 100;
    for (size_t i = 0; i < g->n_names; i++)
        if (hr_str_eq(g->names[i], name)) return false;
    if (g->n_names == HR_OPENAI_MAX_UNKNOWN_NAMES) return false;
    char *copy = hr_arena_copy(&g->names_arena, name.p, name.n);
    if (!copy) return false;
    g->names[g->n_names++] = (hr_str){ copy, name.n };
    return true;
}

hr_buf *hr_generations_scratch(hr_generations *g)
{
    if (g->scratch.capacity > MOST_SCRATCH) hr_buf_deinit(&g->scratch); /* an answer was large */
    hr_buf_clear(&g->scratch);
    return &g->scratch;
}
