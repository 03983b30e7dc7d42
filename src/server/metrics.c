/* Metrics: what requests cost, kept as histograms, and one page of it all.
 *
 * I/O thread only; owns the histograms of requests. What the engine counts is read from its door
 * when the page is written, so nothing is counted twice. The list is metrics.def: the struct's
 * fields, their set-up and the page are three readings of it. */
#include "server/metrics.h"

#include <stdio.h>

#include "base/json.h"
#include "server/process.h"
#include "server/prometheus.h"

static const double ttft_bounds[] = { .001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                      1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560 };
static const double itl_bounds[] = { .01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                     .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80 };
static const double latency_bounds[] = { .3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                         30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680 };
static const double n_bounds[] = { 1, 2, 5, 10, 20 };
/* A 1-2-5 series; a model's longest request says how much of it is used. */
static const double token_bounds[] = { 1,   2,   5,   10,  20,  50,  100, 200, 500, 1e3, 2e3,
                                       5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7 };

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* vLLM counts these four; its "error" is ours, too. */
static const char *const reasons[] = { "stop", "length", "abort", "error" };

struct hr_metrics {
    hr_buf labels;       /* owned: model_name and engine, on every sample */
    hr_buf cache_labels; /* owned: those of cache_config_info; empty until ready */
    uint64_t finished[COUNT(reasons)];
#define HR_GAUGE(name, value, help)
#define HR_COUNTER(name, value, help)
#define HR_FAMILY(name, type, write, help)
#define HR_PROCESS(name, type, value, help)
#define HR_HISTOGRAM(field, name, bounds, help) hr_histogram field;
#include "server/metrics.def"
#undef HR_HISTOGRAM
};

/* ---- life ---------------------------------------------------------------------------------- */

static hr_status init_histogram(hr_histogram *h, const double *bounds, size_t n)
{
    /* Those of tokens start without buckets: how many there are is the model's to say. */
    return bounds == token_bounds ? HR_OK : hr_histogram_init(h, bounds, n);
}

static hr_status init_tokens(hr_histogram *h, const double *bounds, int64_t max_model_len)
{
    if (bounds != token_bounds || h->counts) return HR_OK;
    size_t n = 0;
    while (n < COUNT(token_bounds) && token_bounds[n] <= (double)max_model_len) n++;
    return hr_histogram_init(h, token_bounds, n);
}

static hr_status init_all_tokens(hr_metrics *m, int64_t max_model_len)
{
#define HR_HISTOGRAM(field, name, bounds, help)                                                    \
    HR_TRY(init_tokens(&m->field, bounds, max_model_len));
#include "server/metrics.def"
#undef HR_HISTOGRAM
    return HR_OK;
}

static hr_status init_all(hr_metrics *m, const char *model_name, int64_t max_model_len)
{
    hr_prometheus_label(&m->labels, "model_name", hr_str_c(model_name));
    hr_prometheus_label(&m->labels, "engine", HR_STR("0"));
    HR_TRY(hr_buf_status(&m->labels));
#define HR_HISTOGRAM(field, name, bounds, help)                                                    \
    HR_TRY(init_histogram(&m->field, bounds, COUNT(bounds)));
#include "server/metrics.def"
#undef HR_HISTOGRAM
    return max_model_len ? init_all_tokens(m, max_model_len) : HR_OK;
}

hr_status hr_metrics_create(const char *model_name, int64_t max_model_len, hr_metrics **out)
{
    *out = NULL;
    hr_metrics *m = hr_new0(hr_metrics);
    if (!m) return hr_fail(HR_RESOURCE_EXHAUSTED, "metrics");
    hr_status st = init_all(m, model_name, max_model_len);
    if (st) {
        hr_metrics_destroy(m);
        return st;
    }
    *out = m;
    return HR_OK;
}

void hr_metrics_destroy(hr_metrics *m)
{
    if (!m) return;
#define HR_HISTOGRAM(field, name, bounds, help) hr_histogram_deinit(&m->field);
#include "server/metrics.def"
#undef HR_HISTOGRAM
    hr_buf_deinit(&m->labels);
    hr_buf_deinit(&m->cache_labels);
    hr_free(m);
}

/* A word of the engine's numerics; "unknown" when it has none. */
static void label_numeric(hr_buf *labels, const char *name, const hr_json *numerics,
                          const char *key)
{
    hr_str value = HR_STR("unknown");
    const hr_json *v = hr_json_get(numerics, key);
    if (v && v->type == HR_JSON_STRING) value = v->text;
    hr_prometheus_label(labels, name, value);
}

static void label_number(hr_buf *labels, const char *name, int64_t value)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%lld", (long long)value);
    hr_prometheus_label(labels, name, (hr_str){ text, (size_t)n });
}

/* vLLM's names, so that the inference gateway finds block_size and num_gpu_blocks; booleans as
 * Python prints them. */
static hr_status make_cache_labels(hr_metrics *m, const hr_engine *e, const headrace_options *o)
{
    headrace_info info = { .size = sizeof info };
    headrace_info_get(e, &info);
    hr_arena arena = { 0 };
    const hr_json *numerics = NULL;
    hr_status st = hr_json_parse(hr_str_c(info.numerics), NULL, &arena, &numerics);
    hr_buf *labels = &m->cache_labels;
    hr_buf_clear(labels);
    hr_buf_add_str(labels, hr_buf_str(&m->labels));
    label_number(labels, "block_size", info.block_size);
    label_number(labels, "num_gpu_blocks", info.kv_blocks);
    label_numeric(labels, "cache_dtype", numerics, "kv");
    hr_prometheus_label(labels, "enable_prefix_caching",
                        o->enable_prefix_caching ? HR_STR("True") : HR_STR("False"));
    hr_arena_deinit(&arena);
    return st ? st : hr_buf_status(labels);
}

hr_status hr_metrics_ready(hr_metrics *m, const hr_engine *e, const headrace_options *o)
{
    HR_TRY(init_all_tokens(m, hr_engine_max_model_len(e)));
    return make_cache_labels(m, e, o);
}

/* ---- observing ----------------------------------------------------------------------------- */

/* Token histograms have no buckets until the model is known; no request is older than that. */
static void observe(hr_histogram *h, double value)
{
    if (h->counts) hr_histogram_observe(h, value);
}

void hr_metrics_first_token(hr_metrics *m, double seconds)
{
    observe(&m->ttft, seconds);
}

void hr_metrics_inter_token(hr_metrics *m, double seconds, int64_t tokens)
{
    if (tokens > 0) hr_histogram_observe_times(&m->itl, seconds, (uint64_t)tokens);
}

void hr_metrics_finished(hr_metrics *m, const char *reason)
{
    for (size_t i = 0; i < COUNT(reasons); i++)
        if (hr_str_eq_c(hr_str_c(reasons[i]), reason)) m->finished[i]++;
}

void hr_metrics_observe(hr_metrics *m, const hr_metrics_request *r)
{
    observe(&m->prompt_tokens, (double)r->prompt_tokens);
    observe(&m->generation_tokens, (double)r->generation_tokens);
    observe(&m->params_n, (double)r->n);
    if (r->max_tokens >= 0) observe(&m->params_max_tokens, (double)r->max_tokens);
    observe(&m->e2e, r->e2e_s);
    observe(&m->queue, r->queue_s);
    observe(&m->prefill, r->prefill_s);
    observe(&m->decode, r->decode_s);
}

/* ---- families with labels of their own ----------------------------------------------------- */

static void write_success(const hr_metrics *m, const hr_engine *e, const char *name, hr_buf *out)
{
    (void)e;
    hr_buf labels = { 0 };
    for (size_t i = 0; i < COUNT(reasons); i++) {
        hr_buf_clear(&labels);
        hr_buf_add_str(&labels, hr_buf_str(&m->labels));
        hr_prometheus_label(&labels, "finished_reason", hr_str_c(reasons[i]));
        hr_prometheus_sample(out, name, hr_buf_str(&labels), (double)m->finished[i]);
    }
    hr_buf_deinit(&labels);
}

static void write_accepted(const hr_metrics *m, const hr_engine *e, const char *name, hr_buf *out)
{
    int64_t n = e ? hr_engine_speculative_tokens(e) : 0;
    hr_buf labels = { 0 };
    for (int64_t i = 0; i < n; i++) {
        hr_buf_clear(&labels);
        hr_buf_add_str(&labels, hr_buf_str(&m->labels));
        label_number(&labels, "position", i);
        hr_prometheus_sample(out, name, hr_buf_str(&labels), (double)hr_engine_accepted_at(e, i));
    }
    hr_buf_deinit(&labels);
}

static void write_iteration_tokens(const hr_metrics *m, const hr_engine *e, const char *name,
                                   hr_buf *out)
{
    if (e)
        hr_prometheus_histogram(out, name, hr_buf_str(&m->labels), hr_engine_iteration_tokens(e));
}

static void write_cache_config(const hr_metrics *m, const hr_engine *e, const char *name,
                               hr_buf *out)
{
    if (e && m->cache_labels.n) hr_prometheus_sample(out, name, hr_buf_str(&m->cache_labels), 1);
}

static void write_compiled(const hr_metrics *m, const hr_engine *e, const char *name, hr_buf *out)
{
    if (!e) return;
    const hr_ledger *l = hr_engine_ledger(e);
    hr_buf labels = { 0 };
    for (int s = 0; s < HR_STAGE_COUNT; s++) {
        hr_buf_clear(&labels);
        hr_buf_add_str(&labels, hr_buf_str(&m->labels));
        hr_prometheus_label(&labels, "stage", hr_str_c(hr_stage_name((hr_stage)s)));
        hr_prometheus_sample(out, name, hr_buf_str(&labels),
                             (double)hr_counter_get(&l->compiled[s]));
    }
    hr_buf_deinit(&labels);
}

/* model_name, engine, program, bucket of a row, in place of what `labels` held. */
static void program_labels(const hr_metrics *m, const hr_ledger_row *r, hr_buf *bucket,
                           hr_buf *labels)
{
    hr_buf_clear(bucket);
    hr_ledger_bucket_text(r, bucket);
    hr_buf_clear(labels);
    hr_buf_add_str(labels, hr_buf_str(&m->labels));
    hr_prometheus_label(labels, "program", hr_str_c(hr_stage_name(r->stage)));
    hr_prometheus_label(labels, "bucket", hr_buf_str(bucket));
}

static void write_padding(const hr_metrics *m, const hr_engine *e, const char *name, hr_buf *out)
{
    hr_buf bucket = { 0 }, labels = { 0 };
    const hr_ledger *l = e ? hr_engine_ledger(e) : NULL;
    for (size_t i = 0; l && i < l->n; i++) {
        program_labels(m, &l->rows[i], &bucket, &labels);
        hr_prometheus_sample(out, name, hr_buf_str(&labels),
                             (double)hr_counter_get(&l->rows[i].padding));
    }
    hr_buf_deinit(&bucket);
    hr_buf_deinit(&labels);
}

static void write_step_seconds(const hr_metrics *m, const hr_engine *e, const char *name,
                               hr_buf *out)
{
    hr_buf bucket = { 0 }, labels = { 0 };
    const hr_ledger *l = e ? hr_engine_ledger(e) : NULL;
    for (size_t i = 0; l && i < l->n; i++) {
        const hr_ledger_row *r = &l->rows[i];
        if (!hr_counter_get(&r->calls)) continue; /* hundreds of series that say nothing */
        program_labels(m, r, &bucket, &labels);
        hr_prometheus_histogram(out, name, hr_buf_str(&labels), &r->seconds);
    }
    hr_buf_deinit(&bucket);
    hr_buf_deinit(&labels);
}

/* ---- the page ------------------------------------------------------------------------------ */

static void write_one(const hr_metrics *m, const char *name, const char *type, const char *help,
                      double value, hr_buf *out)
{
    hr_prometheus_family(out, name, type, help);
    hr_prometheus_sample(out, name, hr_buf_str(&m->labels), value);
}

static void write_histogram(const hr_metrics *m, const char *name, const char *help,
                            const hr_histogram *h, hr_buf *out)
{
    hr_prometheus_family(out, name, "histogram", help);
    if (h->counts) hr_prometheus_histogram(out, name, hr_buf_str(&m->labels), h);
}

void hr_metrics_write(const hr_metrics *m, const hr_engine *e, hr_buf *out)
{
    hr_engine_gauges gauges = { 0 };
    const hr_engine_gauges *g = &gauges;
    if (e) hr_engine_gauges_get(e, &gauges);
    hr_process process;
    const hr_process *p = &process;
    hr_process_get(&process);
#undef HR_GAUGE
#undef HR_COUNTER
#undef HR_FAMILY
#undef HR_PROCESS
#define HR_GAUGE(name, value, help)             write_one(m, name, "gauge", help, (double)(value), out);
#define HR_COUNTER(name, value, help)           write_one(m, name, "counter", help, (double)(value), out);
#define HR_HISTOGRAM(field, name, bounds, help) write_histogram(m, name, help, &m->field, out);
#define HR_FAMILY(name, type, write, help)                                                         \
    hr_prometheus_family(out, name, type, help);                                                   \
    write(m, e, name, out);
#define HR_PROCESS(name, type, value, help)                                                        \
    hr_prometheus_family(out, name, type, help);                                                   \
    hr_prometheus_sample(out, name, (hr_str){ 0 }, (double)(value));
#include "server/metrics.def"
}
