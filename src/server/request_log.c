/* One log line per request, when it has ended: who, what, how much, how long, how.
 *
 * I/O thread. What a client wrote (its request id) is quoted, so a line stays a line. */
#include <string.h>

#include "base/log.h"
#include "server/generation.h"
#include "server/http.h"

/* "stop"; "stop:2,length:1" where choices ended differently; "none" where none did. */
static void add_reasons(hr_buf *out, const hr_generation *g)
{
    static const char *const names[] = { "stop", "length", "abort", "error" };
    size_t kinds = 0;
    for (size_t k = 0; k < 4; k++) {
        size_t count = 0;
        for (size_t i = 0; i < g->n_choices; i++)
            count += g->choices[i].finish_reason && !strcmp(g->choices[i].finish_reason, names[k]);
        if (!count) continue;
        hr_buf_printf(out, count == g->n_choices ? "%s%s" : "%s%s:%zu", kinds ? "," : "", names[k],
                      count);
        kinds++;
    }
    if (!kinds) hr_buf_add_c(out, "none");
}

typedef struct entry {
    const hr_exchange *x;
    hr_str id;
    int status;
    hr_usage usage;
    double queue_s, ttft_s, total_s; /* ttft_s < 0: no token came */
    hr_str finish;
    const char *message; /* NULL, or why it was refused */
} entry;

static void add_number(hr_json_writer *w, const char *key, double value)
{
    hr_json_key(w, hr_str_c(key));
    if (value < 0) hr_json_null(w);
    else hr_json_f64(w, value);
}

static hr_str trace_id(const hr_exchange *x)
{
    return hr_str_slice(x->trace, HR_TRACE_ID_AT, HR_TRACE_ID_AT + HR_TRACE_ID_BYTES);
}

static void write_json(hr_buf *out, const entry *e)
{
    hr_json_writer w = { .out = out };
    hr_json_begin_object(&w);
    hr_json_key(&w, HR_STR("event"));
    hr_json_str(&w, HR_STR("request"));
    hr_json_key(&w, HR_STR("id"));
    hr_json_str(&w, e->id);
    hr_json_key(&w, HR_STR("method"));
    hr_json_str(&w, e->x->request.method);
    hr_json_key(&w, HR_STR("path"));
    hr_json_str(&w, e->x->request.path);
    hr_json_key(&w, HR_STR("status"));
    hr_json_i64(&w, e->status);
    hr_json_key(&w, HR_STR("prompt_tokens"));
    hr_json_i64(&w, e->usage.prompt_tokens);
    hr_json_key(&w, HR_STR("cached_tokens"));
    hr_json_i64(&w, e->usage.cached_tokens);
    hr_json_key(&w, HR_STR("output_tokens"));
    hr_json_i64(&w, e->usage.completion_tokens);
    if (e->x->trace.n) {
        hr_json_key(&w, HR_STR("trace_id"));
        hr_json_str(&w, trace_id(e->x));
    }
    add_number(&w, "queue_s", e->queue_s);
    add_number(&w, "ttft_s", e->ttft_s);
    add_number(&w, "total_s", e->total_s);
    hr_json_key(&w, HR_STR("finish_reason"));
    hr_json_str(&w, e->finish);
    if (e->message) {
        hr_json_key(&w, HR_STR("message"));
        hr_json_str(&w, hr_str_c(e->message));
    }
    hr_json_end_object(&w);
}

static void write_text(hr_buf *out, const entry *e)
{
    hr_json_writer w = { .out = out, .ascii = true };
    hr_buf_add_c(out, "server: req=");
    hr_json_str(&w, e->id);
    hr_buf_printf(out, " %.*s %.*s %d prompt=%lld cached=%lld output=%lld queue=%.4fs ",
                  HR_STR_ARG(e->x->request.method), HR_STR_ARG(e->x->request.path), e->status,
                  (long long)e->usage.prompt_tokens, (long long)e->usage.cached_tokens,
                  (long long)e->usage.completion_tokens, e->queue_s);
    if (e->ttft_s >= 0) hr_buf_printf(out, "ttft=%.4fs ", e->ttft_s);
    hr_buf_printf(out, "total=%.4fs finish=%.*s", e->total_s, HR_STR_ARG(e->finish));
    if (e->x->trace.n) hr_buf_printf(out, " trace=%.*s", HR_STR_ARG(trace_id(e->x)));
    if (!e->message) return;
    hr_buf_add_c(out, " message=");
    w = (hr_json_writer){ .out = out, .ascii = true };
    hr_json_str(&w, hr_str_c(e->message));
}

static void log_entry(const hr_server *s, const entry *e)
{
    hr_buf line = { 0 };
    if (s->options.log_json) write_json(&line, e);
    else write_text(&line, e);
    if (!hr_buf_status(&line)) hr_log(HR_LOG_INFO, "%s", hr_buf_c(&line));
    hr_buf_deinit(&line);
}

void hr_request_log(const hr_generation *g, int http_status)
{
    if (g->server->options.disable_log_requests) return;
    hr_buf finish = { 0 };
    add_reasons(&finish, g);
    entry e = { .x = g->x,
                .id = g->id,
                .status = http_status,
                .usage = hr_generation_usage(g),
                .ttft_s = g->first_token_s ? g->first_token_s - g->x->began_s : -1,
                .total_s = hr_now_s() - g->x->began_s,
                .finish = hr_buf_str(&finish) };
    for (size_t i = 0; i < g->n_parts; i++)
        if (g->parts[i].queue_s > e.queue_s) e.queue_s = g->parts[i].queue_s;
    log_entry(g->server, &e);
    hr_buf_deinit(&finish);
}

void hr_request_refuse(hr_exchange *x, hr_status st, const char *param)
{
    entry e = { .x = x,
                .id = x->request_id,
                .status = hr_exchange_http_status((int)st),
                .ttft_s = -1,
                .total_s = hr_now_s() - x->began_s,
                .finish = HR_STR("none"),
                .message = hr_message() };
    if (!x->server->options.disable_log_requests) log_entry(x->server, &e);
    hr_exchange_fail(x, st, param);
}
