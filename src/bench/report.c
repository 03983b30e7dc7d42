/* From records to figures, the table and the JSON.
 *
 * Definitions are vLLM's. TTFT: from sending to the first chunk that stands for tokens. TPOT: the
 * rest of the time over the rest of the tokens, for answers of two tokens and more. ITL: every gap
 * between chunks, of all answers together. E2EL: from sending to the last token. Failed requests
 * count in no figure but their own. The table is vLLM's to the byte, trailing spaces included. */
#include <math.h>
#include <stdio.h>

#include "bench/bench_int.h"

enum { TTFT, TPOT, ITL, E2EL };

static const struct {
    const char *key, *name, *title;
} metrics[HR_BENCH_METRICS] = {
    [TTFT] = { "ttft", "TTFT", "Time to First Token" },
    [TPOT] = { "tpot", "TPOT", "Time per Output Token (excl. 1st token)" },
    [ITL] = { "itl", "ITL", "Inter-token Latency" },
    [E2EL] = { "e2el", "E2EL", "End-to-end Latency" },
};

/* ---- what is selected ------------------------------------------------------------------------ */

/* The next part of a list separated by commas or spaces; n 0 at its end. */
static hr_str next_part(const char **text)
{
    const char *from = *text + strspn(*text, ", ");
    size_t n = strcspn(from, ", ");
    *text = from + n;
    return (hr_str){ from, n };
}

static int find_metric(hr_str name)
{
    for (int i = 0; i < HR_BENCH_METRICS; i++)
        if (hr_str_eq_c(name, metrics[i].key)) return i;
    return -1;
}

static hr_status select_metrics(const char *text, hr_bench_selection *s)
{
    for (hr_str part; (part = next_part(&text)).n;) {
        int i = find_metric(part);
        if (i < 0)
            return hr_fail(HR_INVALID_ARGUMENT,
                           "--percentile-metrics '%.*s': they are ttft, tpot, itl and e2el",
                           HR_STR_ARG(part));
        s->metric[i] = true;
    }
    return HR_OK;
}

static hr_status select_percentiles(const char *text, hr_bench_selection *s)
{
    for (hr_str part; (part = next_part(&text)).n;) {
        double p;
        if (hr_str_to_f64(part, &p) || !(p >= 0 && p <= 100))
            return hr_fail(HR_INVALID_ARGUMENT, "--metric-percentiles '%.*s' is not 0 to 100",
                           HR_STR_ARG(part));
        if (s->n_percentiles == HR_BENCH_PERCENTILES)
            return hr_fail(HR_INVALID_ARGUMENT, "--metric-percentiles: at most %d of them",
                           HR_BENCH_PERCENTILES);
        s->percentile[s->n_percentiles++] = p;
    }
    return HR_OK;
}

static hr_status select_goodput(const char *text, hr_bench_selection *s)
{
    for (hr_str part; (part = next_part(&text)).n;) {
        size_t colon = hr_str_find(part, HR_STR(":"), 0);
        int i = colon == SIZE_MAX ? -1 : find_metric(hr_str_slice(part, 0, colon));
        double limit = 0;
        if (i < 0 || i == ITL || hr_str_to_f64(hr_str_slice(part, colon + 1, part.n), &limit) ||
            !(limit > 0))
            return hr_fail(HR_INVALID_ARGUMENT,
                           "--goodput '%.*s' is not ttft:MS, tpot:MS or e2el:MS", HR_STR_ARG(part));
        s->limit_ms[i] = limit;
        s->goodput = true;
    }
    return HR_OK;
}

hr_status hr_bench_select(const char *metric_names, const char *percentiles, const char *goodput,
                          hr_bench_selection *out)
{
    *out = (hr_bench_selection){ 0 };
    HR_TRY(select_metrics(metric_names ? metric_names : "ttft,tpot,itl", out));
    HR_TRY(select_percentiles(percentiles ? percentiles : "99", out));
    return goodput ? select_goodput(goodput, out) : HR_OK;
}

/* ---- figures --------------------------------------------------------------------------------- */

static double tpot_of(const hr_bench_record *r)
{
    return r->output_tokens > 1 ? (r->latency - r->ttft) / (double)(r->output_tokens - 1) : 0;
}

static bool is_good(const hr_bench_record *r, const hr_bench_selection *s)
{
    const double ms[HR_BENCH_METRICS] = { r->ttft * 1000, tpot_of(r) * 1000, 0, r->latency * 1000 };
    for (int i = 0; i < HR_BENCH_METRICS; i++)
        if (s->limit_ms[i] > 0 && ms[i] > s->limit_ms[i]) return false;
    return true;
}

static hr_status gather(const hr_bench_record *r, hr_bench_series series[HR_BENCH_METRICS])
{
    HR_TRY(hr_bench_series_add(&series[TTFT], r->ttft));
    if (r->output_tokens > 1) HR_TRY(hr_bench_series_add(&series[TPOT], tpot_of(r)));
    for (size_t i = 0; i < r->itl.n; i++) HR_TRY(hr_bench_series_add(&series[ITL], r->itl.v[i]));
    return hr_bench_series_add(&series[E2EL], r->latency);
}

static void measure(hr_bench_series *v, const hr_bench_selection *s, hr_bench_metric *out)
{
    hr_bench_series_sort(v);
    out->mean = hr_bench_mean(v) * 1000;
    out->std = hr_bench_std(v) * 1000;
    out->median = hr_bench_percentile(v, 50) * 1000;
    out->p99 = hr_bench_percentile(v, 99) * 1000;
    for (size_t i = 0; i < s->n_percentiles; i++)
        out->percentile[i] = hr_bench_percentile(v, s->percentile[i]) * 1000;
}

hr_status hr_bench_report_make(const hr_bench_record *records, size_t n, double duration,
                               const hr_bench_selection *s, hr_bench_report *out)
{
    *out = (hr_bench_report){ .duration = duration };
    hr_bench_series series[HR_BENCH_METRICS] = { 0 };
    hr_status st = HR_OK;
    size_t good = 0;
    for (size_t i = 0; !st && i < n; i++) {
        const hr_bench_record *r = &records[i];
        if (!r->ok) {
            out->failed++;
            continue;
        }
        out->completed++;
        out->input_tokens += r->input_tokens;
        out->output_tokens += r->output_tokens;
        good += is_good(r, s);
        st = gather(r, series);
    }
    for (int i = 0; i < HR_BENCH_METRICS; i++) {
        if (!st) measure(&series[i], s, &out->metric[i]);
        hr_bench_series_deinit(&series[i]);
    }
    double per_second = duration > 0 ? 1 / duration : 0;
    out->request_throughput = (double)out->completed * per_second;
    out->request_goodput = (double)good * per_second;
    out->output_throughput = (double)out->output_tokens * per_second;
    out->total_throughput = (double)(out->input_tokens + out->output_tokens) * per_second;
    return st;
}

/* ---- table ----------------------------------------------------------------------------------- */

/* Python's "{s:{c}^50}". */
static void add_title(hr_buf *out, const char *title, char fill)
{
    size_t n = strlen(title), left = (50 - n) / 2;
    for (size_t i = 0; i < left; i++) hr_buf_add_byte(out, fill);
    hr_buf_add_c(out, title);
    for (size_t i = left + n; i < 50; i++) hr_buf_add_byte(out, fill);
    hr_buf_add_byte(out, '\n');
}

static void add_count(hr_buf *out, const char *label, int64_t v)
{
    hr_buf_printf(out, "%-40s %-10lld\n", label, (long long)v);
}

static void add_figure(hr_buf *out, const char *label, double v)
{
    hr_buf_printf(out, "%-40s %-10.2f\n", label, v);
}

static void add_metric(const hr_bench_metric *m, int which, const hr_bench_selection *s,
                       hr_buf *out)
{
    char label[64];
    const char *name = metrics[which].name;
    add_title(out, metrics[which].title, '-');
    snprintf(label, sizeof label, "Mean %s (ms):", name);
    add_figure(out, label, m->mean);
    snprintf(label, sizeof label, "Median %s (ms):", name);
    add_figure(out, label, m->median);
    for (size_t i = 0; i < s->n_percentiles; i++) {
        snprintf(label, sizeof label, "P%.10g %s (ms):", s->percentile[i], name);
        add_figure(out, label, m->percentile[i]);
    }
}

void hr_bench_report_table(const hr_bench_report *r, const hr_bench_selection *s, hr_buf *out)
{
    add_title(out, " Serving Benchmark Result ", '=');
    add_count(out, "Successful requests:", (int64_t)r->completed);
    add_count(out, "Failed requests:", (int64_t)r->failed);
    if (r->max_concurrency) add_count(out, "Maximum request concurrency:", r->max_concurrency);
    if (r->request_rate > 0) add_figure(out, "Request rate configured (RPS):", r->request_rate);
    add_figure(out, "Benchmark duration (s):", r->duration);
    add_count(out, "Total input tokens:", r->input_tokens);
    add_count(out, "Total generated tokens:", r->output_tokens);
    add_figure(out, "Request throughput (req/s):", r->request_throughput);
    if (s->goodput) add_figure(out, "Request goodput (req/s):", r->request_goodput);
    add_figure(out, "Output token throughput (tok/s):", r->output_throughput);
    add_figure(out, "Total Token throughput (tok/s):", r->total_throughput);
    for (int i = 0; i < HR_BENCH_METRICS; i++)
        if (s->metric[i]) add_metric(&r->metric[i], i, s, out);
    add_title(out, "", '=');
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* "p99_ttft_ms". */
static void percentile_key(double p, int which, char out[64])
{
    snprintf(out, 64, "p%.10g_%s_ms", p, metrics[which].key);
}

static void put_metric(hr_json_writer *w, const hr_bench_metric *m, int which,
                       const hr_bench_selection *s)
{
    char key[64];
    const char *names[] = { "mean", "median", "std" };
    double values[] = { m->mean, m->median, m->std };
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "%s_%s_ms", names[i], metrics[which].key);
        hr_json_add_f64(w, key, values[i]);
    }
    bool has_p99 = false;
    for (size_t i = 0; i < s->n_percentiles; i++) {
        percentile_key(s->percentile[i], which, key);
        hr_json_add_f64(w, key, m->percentile[i]);
        has_p99 = has_p99 || s->percentile[i] == 99;
    }
    percentile_key(99, which, key);
    if (!has_p99) hr_json_add_f64(w, key, m->p99);
}

void hr_bench_report_json(const hr_bench_report *r, const hr_bench_selection *s, hr_json_writer *w)
{
    hr_json_add_f64(w, "duration", r->duration);
    hr_json_add_i64(w, "completed", (int64_t)r->completed);
    hr_json_add_i64(w, "failed", (int64_t)r->failed);
    hr_json_add_i64(w, "total_input_tokens", r->input_tokens);
    hr_json_add_i64(w, "total_output_tokens", r->output_tokens);
    hr_json_add_f64(w, "request_throughput", r->request_throughput);
    hr_json_key(w, HR_STR("request_goodput"));
    if (s->goodput) hr_json_f64(w, r->request_goodput);
    else hr_json_null(w);
    hr_json_add_f64(w, "output_throughput", r->output_throughput);
    hr_json_add_f64(w, "total_token_throughput", r->total_throughput);
    for (int i = 0; i < HR_BENCH_METRICS; i++) put_metric(w, &r->metric[i], i, s);
}

/* ---- back from JSON -------------------------------------------------------------------------- */

static hr_status get_f64(const hr_json *v, const char *key, double *out)
{
    const hr_json *m = hr_json_get(v, key);
    if (!m) return hr_fail(HR_INVALID_ARGUMENT, "the result has no %s", key);
    return hr_json_to_f64(m, key, out);
}

static hr_status get_i64(const hr_json *v, const char *key, int64_t *out)
{
    const hr_json *m = hr_json_get(v, key);
    if (!m) return hr_fail(HR_INVALID_ARGUMENT, "the result has no %s", key);
    return hr_json_to_i64(m, key, out);
}

static hr_status get_metric(const hr_json *v, int which, const hr_bench_selection *s,
                            hr_bench_metric *out)
{
    char key[64];
    snprintf(key, sizeof key, "mean_%s_ms", metrics[which].key);
    HR_TRY(get_f64(v, key, &out->mean));
    snprintf(key, sizeof key, "median_%s_ms", metrics[which].key);
    HR_TRY(get_f64(v, key, &out->median));
    for (size_t i = 0; i < s->n_percentiles; i++) {
        percentile_key(s->percentile[i], which, key);
        HR_TRY(get_f64(v, key, &out->percentile[i]));
    }
    return HR_OK;
}

/* How the load was set, where the file tells: numbers, or "inf" and null for no limit. */
static void get_limits(const hr_json *v, hr_bench_report *r)
{
    const hr_json *rate = hr_json_get(v, "request_rate"), *most = hr_json_get(v, "max_concurrency");
    if (rate && rate->type == HR_JSON_NUMBER && hr_json_to_f64(rate, "", &r->request_rate))
        r->request_rate = 0;
    if (most && most->type == HR_JSON_NUMBER && hr_json_to_i64(most, "", &r->max_concurrency))
        r->max_concurrency = 0;
}

static hr_status get_report(const hr_json *v, hr_bench_selection *s, hr_bench_report *r)
{
    int64_t completed, failed = 0;
    HR_TRY(get_i64(v, "completed", &completed));
    if (hr_json_get(v, "failed")) HR_TRY(get_i64(v, "failed", &failed));
    r->completed = (size_t)completed;
    r->failed = (size_t)failed;
    HR_TRY(get_f64(v, "duration", &r->duration));
    HR_TRY(get_i64(v, "total_input_tokens", &r->input_tokens));
    HR_TRY(get_i64(v, "total_output_tokens", &r->output_tokens));
    HR_TRY(get_f64(v, "request_throughput", &r->request_throughput));
    HR_TRY(get_f64(v, "output_throughput", &r->output_throughput));
    HR_TRY(get_f64(v, "total_token_throughput", &r->total_throughput));
    const hr_json *good = hr_json_get(v, "request_goodput");
    s->goodput = good && good->type == HR_JSON_NUMBER;
    if (s->goodput) HR_TRY(hr_json_to_f64(good, "request_goodput", &r->request_goodput));
    for (int i = 0; i < HR_BENCH_METRICS; i++)
        if (s->metric[i]) HR_TRY(get_metric(v, i, s, &r->metric[i]));
    get_limits(v, r);
    return HR_OK;
}

hr_status hr_bench_table(hr_str json, const char *metric_names, const char *percentiles,
                         hr_buf *out)
{
    hr_bench_selection s;
    hr_bench_report r = { 0 };
    hr_arena arena = { 0 };
    const hr_json *v = NULL;
    HR_TRY(hr_bench_select(metric_names, percentiles, NULL, &s));
    hr_status st = hr_json_parse(json, NULL, &arena, &v);
    if (!st) st = get_report(v, &s, &r);
    if (!st) hr_bench_report_table(&r, &s, out);
    hr_arena_deinit(&arena);
    return st;
}
