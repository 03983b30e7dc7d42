/* /metrics, /load, /programs: what the server says about itself.
 *
 * I/O thread; owns nothing. All three read counters that other threads fill, and never wait. */
#include <stdio.h>

#include "server/metrics.h"
#include "server/openai.h"
#include "server/prometheus.h"
#include "server/server_int.h"

/* The answer, unless the buffer ran out of memory. Takes the buffer. */
static void reply(hr_exchange *x, const char *type, hr_buf *body)
{
    hr_status st = hr_buf_status(body);
    hr_exchange_set_header(x, "Cache-Control", "no-store");
    if (st) hr_exchange_fail(x, hr_fail(st, "answer of %zu bytes", body->n), NULL);
    else hr_exchange_reply(x, 200, type, hr_buf_str(body));
    hr_buf_deinit(body);
}

void hr_route_metrics(hr_exchange *x)
{
    const hr_server *s = x->server;
    hr_buf body = { 0 };
    hr_metrics_write(s->metrics, s->engine, &body);
    reply(x, HR_PROMETHEUS_TYPE, &body);
}

/* Requests taken in and not yet answered, as vLLM counts them: for balancers that ask. */
void hr_route_load(hr_exchange *x)
{
    const hr_server *s = x->server;
    hr_buf body = { 0 };
    hr_buf_printf(&body, "{\"server_load\":%zu}", hr_generations_running(s->generations));
    reply(x, "application/json", &body);
}

static void write_seconds(hr_json_writer *w, const hr_histogram *h)
{
    hr_json_key(w, HR_STR("step_seconds"));
    hr_json_begin_object(w);
    hr_json_add_i64(w, "count", (int64_t)hr_histogram_count(h));
    hr_json_add_f64(w, "sum", hr_histogram_sum(h));
    hr_json_key(w, HR_STR("counts")); /* one more than bounds: the last is above them all */
    hr_json_begin_array(w);
    for (size_t i = 0; i <= h->n; i++) hr_json_u64(w, hr_counter_get(&h->counts[i]));
    hr_json_end_array(w);
    hr_json_end_object(w);
}

static void write_program(hr_json_writer *w, const hr_ledger_row *r)
{
    hr_json_begin_object(w);
    hr_ledger_add_members(w, r, true);
    write_seconds(w, &r->seconds);
    hr_json_end_object(w);
}

/* Sizes that occurred, with how often: what `headrace plan --fit-buckets` reads. */
static void write_sizes(hr_json_writer *w, const char *key, const hr_counter *counts, int64_t most)
{
    hr_json_key(w, hr_str_c(key));
    hr_json_begin_object(w);
    for (int64_t n = 1; n <= most; n++) {
        char size[24];
        uint64_t count = hr_counter_get(&counts[n]);
        snprintf(size, sizeof size, "%lld", (long long)n);
        if (count) hr_json_add_i64(w, size, (int64_t)count);
    }
    hr_json_end_object(w);
}

/* Bytes; what nobody tells is null. */
static void write_memory(hr_json_writer *w, const headrace_info *i)
{
    const struct {
        const char *key;
        size_t bytes;
        bool told;
    } rows[] = { { "weight_bytes", i->weight_bytes, true },
                 { "kv_bytes", i->kv_bytes, true },
                 { "buffer_bytes", i->buffer_bytes, true },
                 { "peak_bytes", i->peak_bytes, true },
                 { "code_bytes", i->code_bytes, i->code_bytes > 0 },
                 { "device_bytes_in_use", i->device_bytes_in_use, i->device_bytes_in_use > 0 },
                 { "device_bytes_limit", i->device_bytes_limit, i->device_bytes_limit > 0 } };
    hr_json_key(w, HR_STR("memory"));
    hr_json_begin_object(w);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        hr_json_key(w, hr_str_c(rows[k].key));
        if (rows[k].told) hr_json_i64(w, (int64_t)rows[k].bytes);
        else hr_json_null(w);
    }
    hr_json_end_object(w);
}

static void write_ledger(hr_json_writer *w, hr_server *s)
{
    const hr_ledger *l = hr_engine_ledger(s->engine);
    headrace_info info = { .size = sizeof info };
    headrace_info_get(s->engine, &info);
    hr_json_begin_object(w);
    hr_json_add_str(w, "headrace", headrace_version());
    hr_json_add_str(w, "system_fingerprint", hr_openai_fingerprint(s));
    hr_json_key(w, HR_STR("numerics"));
    hr_json_raw(w, hr_str_c(info.numerics));
    hr_json_add_f64(w, "compile_seconds", info.compile_s);
    hr_json_add_i64(w, "late_compilations", (int64_t)hr_counter_get(&l->late));
    hr_json_add_i64(w, "programs_cached", info.programs_cached);
    hr_json_add_i64(w, "programs_compiled", info.programs - info.programs_cached);
    write_memory(w, &info);
    hr_json_key(w, HR_STR("step_seconds_bounds"));
    hr_json_begin_array(w);
    for (size_t i = 0; i < HR_LEDGER_SECONDS; i++) hr_json_f64(w, hr_ledger_seconds[i]);
    hr_json_end_array(w);
    hr_json_key(w, HR_STR("steps"));
    hr_json_begin_object(w);
    write_sizes(w, "tokens", l->step_tokens, l->max_tokens);
    write_sizes(w, "requests", l->step_requests, l->max_requests);
    hr_json_end_object(w);
    hr_json_key(w, HR_STR("programs"));
    hr_json_begin_array(w);
    for (size_t i = 0; i < l->n; i++) write_program(w, &l->rows[i]);
    hr_json_end_array(w);
    hr_json_end_object(w);
}

/* The ledger as it stands: every program there is, and what it has cost since warm-up. */
void hr_route_programs(hr_exchange *x)
{
    hr_server *s = x->server;
    if (!s->engine) {
        hr_exchange_error(x, 503, NULL, "the model is loading");
        return;
    }
    hr_buf body = { 0 };
    hr_json_writer w = { .out = &body };
    write_ledger(&w, s);
    reply(x, "application/json", &body);
}
