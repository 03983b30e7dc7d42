/* A server of OpenAI's completions that also knows vLLM's prompt_logprobs and /tokenize. */
#include <stdlib.h>

#include <event2/event.h>

#include "eval/eval_int.h"

#define DEFAULT_CONCURRENCY 32
#define MAX_ANSWER_BYTES    ((size_t)256 << 20)

typedef struct server_run server_run;

typedef struct call {
    server_run *run;
    size_t ask;
    hr_buf body;
} call;

struct server_run {
    hr_eval_source *source;
    const hr_eval_ask *asks;
    const hr_eval_listener *to;
    call *calls; /* owned [n_calls] */
    size_t n, n_calls, sent, done;
    int64_t tokens;
    hr_status status; /* the first failure, with its message kept in `why` */
    hr_buf why;
};

/* ---- bodies ---------------------------------------------------------------------------------- */

static void put_prompt(hr_json_writer *w, const hr_eval_ask *a)
{
    hr_json_key(w, HR_STR("prompt"));
    if (!a->ids) {
        hr_json_str(w, a->text);
        return;
    }
    hr_json_begin_array(w);
    for (size_t i = 0; i < a->n_ids; i++) hr_json_i64(w, a->ids[i]);
    hr_json_end_array(w);
}

/* One token is the least that every server takes. */
static hr_status make_body(const hr_eval_source *s, const hr_eval_ask *a, hr_buf *out)
{
    hr_json_writer w = { .out = out };
    hr_json_begin_object(&w);
    hr_json_key(&w, HR_STR("model"));
    hr_json_str(&w, hr_buf_str(&s->name));
    put_prompt(&w, a);
    hr_json_add_i64(&w, "temperature", 0);
    hr_json_add_i64(&w, "max_tokens", a->top >= 0 ? 1 : a->max_tokens);
    if (a->top >= 0) hr_json_add_i64(&w, "prompt_logprobs", a->top);
    if (a->n_stop) {
        hr_json_key(&w, HR_STR("stop"));
        hr_json_begin_array(&w);
        for (size_t i = 0; i < a->n_stop; i++) hr_json_str(&w, hr_str_c(a->stop[i]));
        hr_json_end_array(&w);
    }
    hr_json_end_object(&w);
    return hr_buf_status(out);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* "id": {"logprob": …, "rank": …}. Engines compute float32, and ours writes the shortest text that
 * reads back as it. */
static hr_status read_ranked(const hr_json *v, headrace_logprob *out)
{
    HR_TRY(hr_str_to_i64(v->key, &out->token_id));
    HR_TRY(hr_json_to_f64(hr_json_get(v, "logprob"), "logprob", &out->logprob));
    out->logprob = (float)out->logprob;
    return hr_json_to_i64(hr_json_get(v, "rank"), "rank", &out->rank);
}

static int by_rank(const void *a, const void *b)
{
    int64_t x = ((const headrace_logprob *)a)->rank, y = ((const headrace_logprob *)b)->rank;
    return (x > y) - (x < y);
}

/* A place's object: the prompt's own token and the likeliest, in any order. */
static hr_status read_place(hr_arena *arena, const hr_json *v, int64_t id, size_t most,
                            headrace_token *out)
{
    headrace_logprob *all = hr_arena_array(arena, v->count + 1, sizeof *all);
    if (!all) return hr_fail(HR_RESOURCE_EXHAUSTED, "log-probabilities");
    bool found = false;
    for (size_t i = 0; i < v->count; i++) {
        HR_TRY(read_ranked(&v->items[i], &all[i]));
        if (all[i].token_id != id) continue;
        out->chosen = all[i];
        found = true;
    }
    if (!found) return hr_fail(HR_DATA_LOSS, "token %lld has no log-probability", (long long)id);
    qsort(all, v->count, sizeof *all, by_rank);
    out->top = all;
    out->n_top = v->count < most ? v->count : most;
    return HR_OK;
}

static hr_status read_scores(hr_arena *arena, const hr_json *list, const hr_eval_ask *a,
                             headrace_token *out)
{
    if (!list || list->type != HR_JSON_ARRAY || list->count != a->n_ids)
        return hr_fail(HR_UNIMPLEMENTED, "the server sends no prompt_logprobs (vLLM's and "
                                         "headrace's do)");
    for (size_t i = 1; i < a->n_ids; i++)
        HR_TRY(read_place(arena, &list->items[i], a->ids[i], (size_t)a->top, &out[i]));
    return HR_OK;
}

static hr_status on_body(call *c, hr_arena *arena, const hr_json *v)
{
    server_run *r = c->run;
    const hr_eval_ask *a = &r->asks[c->ask];
    const hr_json *choices = hr_json_get(v, "choices");
    if (!choices || choices->type != HR_JSON_ARRAY || !choices->count)
        return hr_fail(HR_DATA_LOSS, "the server's answer has no choices");
    const hr_json *choice = &choices->items[0];
    if (a->top >= 0) {
        headrace_token *tokens = hr_arena_array(arena, a->n_ids + 1, sizeof *tokens);
        if (!tokens) return hr_fail(HR_RESOURCE_EXHAUSTED, "%zu scores", a->n_ids);
        HR_TRY(read_scores(arena, hr_json_get(choice, "prompt_logprobs"), a, tokens));
        return r->to->on_scores(r->to->context, c->ask, 0, tokens, a->n_ids);
    }
    hr_str text;
    int64_t tokens = 0;
    const hr_json *count = hr_json_get(hr_json_get(v, "usage"), "completion_tokens");
    HR_TRY(hr_json_to_str(hr_json_get(choice, "text"), "choices[0].text", &text));
    if (count) HR_TRY(hr_json_to_i64(count, "usage.completion_tokens", &tokens));
    r->tokens += tokens;
    return r->to->on_answer(r->to->context, c->ask, text, tokens);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static hr_status send_next(call *c);

static void fail_run(server_run *r, hr_status st)
{
    if (r->status) return;
    r->status = st;
    hr_buf_add_c(&r->why, hr_message());
    event_base_loopbreak(hr_http_base(r->source->http));
}

static void on_data(void *context, hr_str bytes)
{
    hr_buf_add_str(&((call *)context)->body, bytes);
}

static void on_done(void *context, const hr_http_result *result)
{
    call *c = context;
    server_run *r = c->run;
    hr_arena arena = { 0 };
    const hr_json *v = NULL;
    hr_status st =
        result->status ? hr_fail(result->status, "%s", result->message) : hr_buf_status(&c->body);
    if (!st) st = hr_json_parse(hr_buf_str(&c->body), NULL, &arena, &v);
    if (!st) st = on_body(c, &arena, v);
    hr_arena_deinit(&arena);
    r->done++;
    hr_eval_tell(r->source, r->done, r->n, r->tokens);
    if (!st) st = send_next(c);
    if (st) fail_run(r, st);
    else if (r->done == r->n) event_base_loopbreak(hr_http_base(r->source->http));
}

static hr_status send_next(call *c)
{
    server_run *r = c->run;
    if (r->sent == r->n) return HR_OK;
    hr_buf body = { 0 };
    hr_http_call *unused;
    c->ask = r->sent++;
    hr_buf_clear(&c->body);
    hr_status st = make_body(r->source, &r->asks[c->ask], &body);
    hr_http_request q = { .path = "/v1/completions",
                          .body = hr_buf_str(&body),
                          .on_data = on_data,
                          .on_done = on_done,
                          .context = c };
    if (!st) st = hr_http_send(r->source->http, &q, &unused);
    hr_buf_deinit(&body);
    return st;
}

static hr_status run_calls(server_run *r)
{
    for (size_t i = 0; i < r->n_calls; i++) {
        r->calls[i].run = r;
        r->calls[i].body.limit = MAX_ANSWER_BYTES;
        HR_TRY(send_next(&r->calls[i]));
    }
    if (r->done < r->n) event_base_dispatch(hr_http_base(r->source->http));
    if (r->status) return hr_fail(r->status, "%s", hr_buf_c(&r->why));
    return r->done == r->n ? HR_OK : hr_fail(HR_UNAVAILABLE, "the server stopped answering");
}

static hr_status run(hr_eval_source *s, const hr_eval_ask *asks, size_t n,
                     const hr_eval_listener *to)
{
    server_run r = { .source = s, .asks = asks, .to = to, .n = n };
    int64_t most = s->target->max_concurrency ? s->target->max_concurrency : DEFAULT_CONCURRENCY;
    if (most < 1 || most > 4096)
        return hr_fail(HR_INVALID_ARGUMENT, "--max-concurrency must be 1 to 4096");
    r.n_calls = n < (size_t)most ? n : (size_t)most;
    r.calls = hr_alloc_array0(r.n_calls, sizeof *r.calls);
    hr_status st = r.calls ? run_calls(&r) : hr_fail(HR_RESOURCE_EXHAUSTED, "%zu calls", r.n_calls);
    for (size_t i = 0; r.calls && i < r.n_calls; i++) hr_buf_deinit(&r.calls[i].body);
    hr_free(r.calls);
    hr_buf_deinit(&r.why);
    return st;
}

/* ---- opening --------------------------------------------------------------------------------- */

static hr_status read_ids(const hr_json *list, int64_t **ids, size_t *n)
{
    if (!list || list->type != HR_JSON_ARRAY)
        return hr_fail(HR_UNIMPLEMENTED, "the server's /tokenize sends no tokens");
    *ids = hr_alloc_array0(list->count + 1, sizeof **ids);
    if (!*ids) return hr_fail(HR_RESOURCE_EXHAUSTED, "%zu tokens", list->count);
    for (size_t i = 0; i < list->count; i++)
        HR_TRY(hr_json_to_i64(&list->items[i], "tokens", &(*ids)[i]));
    *n = list->count;
    return HR_OK;
}

static hr_status tokenize(hr_eval_source *s, hr_str text, int64_t **ids, size_t *n)
{
    hr_buf body = { 0 }, answer = { 0 };
    hr_arena arena = { 0 };
    const hr_json *v = NULL;
    hr_json_writer w = { .out = &body };
    hr_json_begin_object(&w);
    hr_json_key(&w, HR_STR("model"));
    hr_json_str(&w, hr_buf_str(&s->name));
    hr_json_key(&w, HR_STR("prompt"));
    hr_json_str(&w, text);
    hr_json_key(&w, HR_STR("add_special_tokens"));
    hr_json_bool(&w, true);
    hr_json_end_object(&w);
    hr_status st = hr_buf_status(&body);
    if (!st) st = hr_http_fetch(s->http, "/tokenize", hr_buf_str(&body), &answer);
    if (!st) st = hr_json_parse(hr_buf_str(&answer), NULL, &arena, &v);
    if (!st) st = read_ids(hr_json_get(v, "tokens"), ids, n);
    hr_arena_deinit(&arena);
    hr_buf_deinit(&answer);
    hr_buf_deinit(&body);
    return st;
}

/* Longest context of the model asked for; a server that does not tell says so when it refuses. */
static hr_status read_length(hr_eval_source *s)
{
    hr_buf answer = { 0 };
    hr_arena arena = { 0 };
    const hr_json *v = NULL, *data;
    hr_status st = hr_http_fetch(s->http, "/v1/models", HR_STR(""), &answer);
    if (!st) st = hr_json_parse(hr_buf_str(&answer), NULL, &arena, &v);
    data = hr_json_get(v, "data");
    for (size_t i = 0; !st && data && data->type == HR_JSON_ARRAY && i < data->count; i++) {
        const hr_json *id = hr_json_get(&data->items[i], "id");
        const hr_json *length = hr_json_get(&data->items[i], "max_model_len");
        bool same = id && id->type == HR_JSON_STRING && hr_str_eq(id->text, hr_buf_str(&s->name));
        if (same && length && length->type == HR_JSON_NUMBER)
            st = hr_json_to_i64(length, "max_model_len", &s->max_model_len);
    }
    hr_arena_deinit(&arena);
    hr_buf_deinit(&answer);
    return st;
}

hr_status hr_eval_open_server(hr_eval_source *s)
{
    const hr_eval_target *t = s->target;
    s->tokenize = tokenize;
    s->run = run;
    hr_buf_add_c(&s->identity, t->http.base_url);
    HR_TRY(hr_http_create(&t->http, &s->http));
    if (t->model) hr_buf_add_c(&s->name, t->model);
    else HR_TRY(hr_bench_first_model(s->http, &s->name));
    return read_length(s);
}
