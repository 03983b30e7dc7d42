/* bench serve: finds out what to send, makes all prompts, sends them, reports.
 *
 * Main thread. A request's body is put together when it is sent, from members that were settled
 * before: what --extra-body names wins over everything else, so that no member appears twice. */
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

#include "bench/bench_int.h"

typedef struct session {
    const hr_bench_serve_options *o;
    hr_bench_selection selection;
    hr_http *http;
    bool chat;
    const char *endpoint, *backend;
    char *model;  /* in the arena */
    hr_buf tail;  /* ",\"stream\":true …": the members that all bodies share */
    bool own_max; /* --extra-body sets the most tokens */
    hr_bench_prompts prompts;
    hr_bench_record *records; /* owned [num_prompts] */
    hr_arena arena;
} session;

void hr_bench_serve_init(hr_bench_serve_options *o)
{
    *o = (hr_bench_serve_options){
        .port = 8000, .request_rate = INFINITY, .burstiness = 1, .logprobs = -1
    };
    hr_bench_data_init(&o->data);
}

/* ---- what to send, where --------------------------------------------------------------------- */

static hr_status choose_endpoint(session *s)
{
    const char *backend = s->o->backend, *endpoint = s->o->endpoint;
    bool is_chat = endpoint && hr_str_ends(hr_str_c(endpoint), HR_STR("/chat/completions"));
    bool is_plain = endpoint && !is_chat && hr_str_ends(hr_str_c(endpoint), HR_STR("/completions"));
    if (endpoint && !is_chat && !is_plain)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--endpoint %s: it ends in /completions or /chat/completions", endpoint);
    if (!backend) backend = is_chat ? "openai-chat" : "openai";
    s->chat = !strcmp(backend, "openai-chat");
    if (!s->chat && strcmp(backend, "openai") && strcmp(backend, "vllm"))
        return hr_fail(HR_INVALID_ARGUMENT, "--backend %s: it is openai, openai-chat or vllm",
                       backend);
    if (endpoint && s->chat != is_chat)
        return hr_fail(HR_INVALID_ARGUMENT, "--backend %s does not speak to --endpoint %s", backend,
                       endpoint);
    s->backend = backend;
    s->endpoint = endpoint ? endpoint : s->chat ? "/v1/chat/completions" : "/v1/completions";
    return HR_OK;
}

static hr_status check(const hr_bench_serve_options *o)
{
    if (!(o->request_rate > 0))
        return hr_fail(HR_INVALID_ARGUMENT, "--request-rate must be above 0, or inf");
    if (!(o->burstiness > 0 && o->burstiness <= 1e6))
        return hr_fail(HR_INVALID_ARGUMENT, "--burstiness must be above 0");
    if (o->burstiness != 1 && isinf(o->request_rate))
        return hr_fail(HR_INVALID_ARGUMENT, "--burstiness needs --request-rate");
    if (o->http.insecure && !(o->http.base_url && !strncmp(o->http.base_url, "https:", 6)))
        return hr_fail(HR_INVALID_ARGUMENT, "--insecure needs an https server");
    if (o->max_concurrency < 0 || o->num_warmups < 0 || o->num_warmups > 1 << 20)
        return hr_fail(HR_INVALID_ARGUMENT, "%s must not be negative, nor huge",
                       o->max_concurrency < 0 ? "--max-concurrency" : "--num-warmups");
    return HR_OK;
}

static hr_status connect_to(session *s)
{
    hr_http_options http = s->o->http;
    char url[512];
    const char *host = s->o->host ? s->o->host : "127.0.0.1";
    snprintf(url, sizeof url, strchr(host, ':') ? "http://[%s]:%d" : "http://%s:%d", host,
             s->o->port);
    if (!http.base_url) http.base_url = url;
    return hr_http_create(&http, &s->http);
}

hr_status hr_bench_first_model(hr_http *h, hr_buf *name)
{
    hr_buf answer = { 0 };
    hr_arena arena = { 0 };
    const hr_json *v = NULL;
    hr_str id = { 0 };
    hr_status st = hr_http_fetch(h, "/v1/models", HR_STR(""), &answer);
    if (!st) st = hr_json_parse(hr_buf_str(&answer), NULL, &arena, &v);
    if (!st) {
        const hr_json *data = hr_json_get(v, "data");
        bool some = data && data->type == HR_JSON_ARRAY && data->count;
        const hr_json *first = some ? hr_json_get(&data->items[0], "id") : NULL;
        st = first ? hr_json_to_str(first, "the model's id", &id)
                   : hr_fail(HR_NOT_FOUND, "/v1/models names no model: give --model");
    }
    if (!st) hr_buf_add_str(name, id);
    hr_arena_deinit(&arena);
    hr_buf_deinit(&answer);
    return st ? st : hr_buf_status(name);
}

/* --model, or the first one that the server names. */
static hr_status choose_model(session *s)
{
    hr_buf name = { 0 };
    hr_status st = HR_OK;
    if (s->o->model) hr_buf_add_c(&name, s->o->model);
    else st = hr_bench_first_model(s->http, &name);
    if (!st) s->model = hr_arena_copy(&s->arena, name.n ? name.p : "", name.n);
    if (!st && !s->model) st = hr_fail(HR_RESOURCE_EXHAUSTED, "the model's name");
    hr_buf_deinit(&name);
    return st;
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static const hr_json empty_object = { .type = HR_JSON_OBJECT };

static hr_status parse_object(session *s, hr_str text, const char *what, const hr_json **out)
{
    *out = &empty_object;
    if (!text.n) return HR_OK;
    hr_status st = hr_json_parse(text, NULL, &s->arena, out);
    if (!st && (*out)->type != HR_JSON_OBJECT)
        st = hr_fail(HR_INVALID_ARGUMENT, "it is not a JSON object");
    return st ? hr_fail_prefix(st, "%s", what) : HR_OK;
}

/* Adds a member unless an earlier list has it. */
static void put(session *s, const hr_json *extra, const hr_json *sampling, const char *key,
                const char *json)
{
    if (hr_json_get(extra, key) || hr_json_get(sampling, key)) return;
    hr_buf_printf(&s->tail, ",\"%s\":%s", key, json);
}

static void put_all(session *s, const hr_json *from, const hr_json *except)
{
    for (size_t i = 0; i < from->count; i++) {
        const hr_json *m = &from->items[i];
        bool twice = false;
        for (size_t j = 0; except && j < except->count; j++)
            twice = twice || hr_str_eq(except->items[j].key, m->key);
        if (twice) continue;
        hr_json_writer w = { .out = &s->tail };
        hr_buf_add_byte(&s->tail, ',');
        hr_json_str(&w, m->key);
        hr_buf_add_byte(&s->tail, ':');
        hr_json_value(&(hr_json_writer){ .out = &s->tail }, m);
    }
}

/* What all bodies have in common. Greedy unless told otherwise, as in vLLM's benchmark. */
static hr_status settle_bodies(session *s)
{
    const hr_bench_serve_options *o = s->o;
    const hr_json *extra, *sampling;
    hr_buf text = { 0 };
    if (o->sampling && *o->sampling) hr_buf_printf(&text, "{%s}", o->sampling);
    char *copy = hr_arena_copy(&s->arena, text.n ? text.p : "", text.n);
    hr_str members = { copy, text.n };
    hr_buf_deinit(&text);
    if (!copy) return hr_fail(HR_RESOURCE_EXHAUSTED, "sampling");
    HR_TRY(parse_object(s, members, "sampling", &sampling));
    HR_TRY(parse_object(s, hr_str_c(o->extra_body), "--extra-body", &extra));
    char n[16];
    snprintf(n, sizeof n, "%d", o->logprobs);
    put(s, extra, sampling, "temperature", "0.0");
    if (o->logprobs >= 0 && s->chat) put(s, extra, sampling, "logprobs", "true");
    if (o->logprobs >= 0) put(s, extra, sampling, s->chat ? "top_logprobs" : "logprobs", n);
    put(s, extra, sampling, "stream", "true");
    put(s, extra, sampling, "stream_options", "{\"include_usage\":true}");
    put_all(s, sampling, extra);
    put_all(s, extra, NULL);
    s->own_max = hr_json_get(extra, "max_tokens") || hr_json_get(extra, "max_completion_tokens");
    return hr_buf_status(&s->tail);
}

static void add_prompt(const hr_bench_prompt *p, hr_buf *out)
{
    hr_json_writer w = { .out = out };
    if (p->text.n) hr_json_str(&w, p->text);
    else {
        hr_buf_add_byte(out, '[');
        for (size_t i = 0; i < p->n_ids; i++) hr_buf_printf(out, "%s%d", i ? "," : "", p->ids[i]);
        hr_buf_add_byte(out, ']');
    }
}

static void add_body(void *context, const hr_bench_prompt *p, hr_buf *out)
{
    const session *s = context;
    hr_buf_add_c(out, "{\"model\":");
    hr_json_str(&(hr_json_writer){ .out = out }, hr_str_c(s->model));
    hr_buf_add_c(out, s->chat ? ",\"messages\":[{\"role\":\"user\",\"content\":" : ",\"prompt\":");
    add_prompt(p, out);
    if (s->chat) hr_buf_add_c(out, "}]");
    if (!s->own_max)
        hr_buf_printf(out, ",\"%s\":%lld", s->chat ? "max_completion_tokens" : "max_tokens",
                      (long long)p->output_tokens);
    hr_buf_add_str(out, hr_buf_str(&s->tail));
    hr_buf_add_byte(out, '}');
}

/* ---- running --------------------------------------------------------------------------------- */

/* A socket per request at once: the soft limit on open files is often 1024. */
static void allow_sockets(size_t n)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= n + 64) return;
    l.rlim_cur = l.rlim_max < n + 64 ? l.rlim_max : n + 64;
    setrlimit(RLIMIT_NOFILE, &l);
}

/* Requests outside of every figure, behind the prompts that count. */
static hr_status warm_up(session *s, hr_bench_load l, double *at)
{
    size_t n = (size_t)s->o->num_warmups;
    if (!n) return HR_OK;
    l.prompts += l.n;
    l.n = n;
    l.progress = NULL;
    for (size_t i = 0; i < n; i++) at[i] = 0;
    l.at = at;
    hr_bench_record *records = hr_alloc_array0(n, sizeof *records);
    if (!records) return hr_fail(HR_RESOURCE_EXHAUSTED, "%zu records", n);
    double duration;
    hr_status st = hr_bench_load_run(&l, records, &duration);
    for (size_t i = 0; i < n; i++) {
        if (!st && !records[i].ok)
            st = hr_fail(HR_UNAVAILABLE, "a warm-up request failed: %s",
                         records[i].error ? records[i].error : "");
        hr_bench_record_deinit(&records[i]);
    }
    hr_free(records);
    return st;
}

static hr_status run(session *s, double *duration)
{
    const hr_bench_serve_options *o = s->o;
    size_t n = (size_t)o->data.num_prompts, warmups = (size_t)o->num_warmups;
    hr_bench_load l = {
        .http = s->http,
        .path = s->endpoint,
        .prompts = s->prompts.at,
        .n = n,
        .max_concurrency = (size_t)o->max_concurrency,
        .body = add_body,
        .context = s,
        .progress = o->progress,
        .progress_context = o->context,
    };
    double *at = hr_alloc_array0(n > warmups ? n : warmups, sizeof *at);
    s->records = hr_alloc_array0(n, sizeof *s->records);
    hr_status st = at && s->records ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "%zu records", n);
    allow_sockets(l.max_concurrency && l.max_concurrency < n ? l.max_concurrency : n);
    if (!st) st = warm_up(s, l, at);
    if (!st) {
        hr_bench_arrivals(o->request_rate, o->burstiness, (uint64_t)o->data.seed, n, at);
        l.at = at;
        st = hr_bench_load_run(&l, s->records, duration);
    }
    hr_free(at);
    return st;
}

/* ---- the result ------------------------------------------------------------------------------ */

static void key(hr_json_writer *w, const char *name)
{
    hr_json_key(w, hr_str_c(name));
}

static void put_set_up(const session *s, const char *date, hr_json_writer *w)
{
    const hr_bench_serve_options *o = s->o;
    const struct {
        const char *key, *value;
    } texts[] = {
        { "date", date },          { "client", "headrace " HR_VERSION },
        { "backend", s->backend }, { "endpoint", s->endpoint },
        { "model_id", s->model },  { "dataset_name", o->data.dataset ? o->data.dataset : "random" }
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        key(w, texts[i].key);
        hr_json_str(w, hr_str_c(texts[i].value));
    }
    hr_json_add_i64(w, "num_prompts", o->data.num_prompts);
    key(w, "request_rate");
    if (isfinite(o->request_rate)) hr_json_f64(w, o->request_rate);
    else hr_json_str(w, HR_STR("inf"));
    hr_json_add_f64(w, "burstiness", o->burstiness);
    key(w, "max_concurrency");
    if (o->max_concurrency) hr_json_i64(w, o->max_concurrency);
    else hr_json_null(w);
    hr_json_add_i64(w, "seed", o->data.seed);
}

/* One list per figure, one item per request, as vLLM's --save-detailed; seconds. */
static void put_details(const session *s, hr_json_writer *w)
{
    size_t n = (size_t)s->o->data.num_prompts;
    const hr_bench_record *r = s->records;
    const char *names[] = {
        "input_lens", "output_lens", "sent", "ttfts", "e2els", "itls", "errors"
    };
    for (int k = 0; k < 7; k++) {
        key(w, names[k]);
        hr_json_begin_array(w);
        for (size_t i = 0; i < n; i++) {
            if (k < 2) hr_json_i64(w, k ? r[i].output_tokens : r[i].input_tokens);
            else if (k < 5) hr_json_f64(w, k == 2 ? r[i].sent : k == 3 ? r[i].ttft : r[i].latency);
            else if (k == 6) hr_json_str(w, hr_str_c(r[i].error));
            else {
                hr_json_begin_array(w);
                for (size_t j = 0; j < r[i].itl.n; j++) hr_json_f64(w, r[i].itl.v[j]);
                hr_json_end_array(w);
            }
        }
        hr_json_end_array(w);
    }
}

/* As vLLM names its files: backend-rate-concurrency-model-time. */
static void name_result(const session *s, const char *date, char *out, size_t size)
{
    const hr_bench_serve_options *o = s->o;
    const char *slash = strrchr(s->model, '/');
    char rate[32] = "inf", most[40] = "";
    if (isfinite(o->request_rate)) snprintf(rate, sizeof rate, "%g", o->request_rate);
    if (o->max_concurrency)
        snprintf(most, sizeof most, "-concurrency%lld", (long long)o->max_concurrency);
    snprintf(out, size, "%s-%sqps%s-%.100s-%s.json", s->backend, rate, most,
             slash ? slash + 1 : s->model, date);
}

static hr_status report(session *s, double duration, hr_bench_serve_result *out)
{
    const hr_bench_serve_options *o = s->o;
    size_t n = (size_t)o->data.num_prompts;
    hr_bench_report r;
    HR_TRY(hr_bench_report_make(s->records, n, duration, &s->selection, &r));
    r.max_concurrency = o->max_concurrency;
    r.request_rate = isfinite(o->request_rate) ? o->request_rate : 0;
    char date[32];
    time_t now = time(NULL);
    struct tm local;
    strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
    hr_bench_report_table(&r, &s->selection, &out->table);
    hr_json_writer w = { .out = &out->json };
    hr_json_begin_object(&w);
    put_set_up(s, date, &w);
    hr_bench_report_json(&r, &s->selection, &w);
    if (o->save_detailed) put_details(s, &w);
    hr_json_end_object(&w);
    out->completed = r.completed;
    out->failed = r.failed;
    name_result(s, date, out->name, sizeof out->name);
    for (size_t i = 0; i < n && !out->first_error[0]; i++)
        if (s->records[i].error)
            snprintf(out->first_error, sizeof out->first_error, "%s", s->records[i].error);
    return hr_buf_status(&out->json) ? out->json.status : hr_buf_status(&out->table);
}

hr_status hr_bench_serve(const hr_bench_serve_options *o, hr_bench_serve_result *out)
{
    *out = (hr_bench_serve_result){ 0 };
    session s = { .o = o };
    double duration = 0;
    hr_status st = hr_bench_select(o->metrics, o->percentiles, o->goodput, &s.selection);
    if (!st) st = check(o);
    if (!st) st = choose_endpoint(&s);
    if (!st) st = settle_bodies(&s);
    if (!st) st = connect_to(&s);
    if (!st) st = choose_model(&s);
    if (!st)
        st = hr_bench_prompts_make(&o->data, s.chat ? HR_BENCH_TEXT : HR_BENCH_IDS,
                                   (size_t)o->num_warmups, s.http, &s.prompts);
    if (!st) st = run(&s, &duration);
    if (!st) st = report(&s, duration, out);
    hr_http_destroy(s.http);
    for (size_t i = 0; s.records && i < (size_t)o->data.num_prompts; i++)
        hr_bench_record_deinit(&s.records[i]);
    hr_free(s.records);
    hr_bench_prompts_deinit(&s.prompts);
    hr_buf_deinit(&s.tail);
    hr_arena_deinit(&s.arena);
    if (st) hr_bench_serve_result_deinit(out);
    return st;
}

void hr_bench_serve_result_deinit(hr_bench_serve_result *r)
{
    hr_buf_deinit(&r->table);
    hr_buf_deinit(&r->json);
}
