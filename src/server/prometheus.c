/* Prometheus' text format.
 *
 * I/O thread; owns nothing: everything goes to the caller's buffer, whose failure is sticky.
 * Numbers are spelt as Python's prometheus_client spells them, because le="1.0" and le="1" are
 * different series to a dashboard, and vLLM's dashboards say "1.0".
 *
 * Format: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format */
#include "server/prometheus.h"

#include <math.h>

#include "base/json.h"

void hr_prometheus_family(hr_buf *out, const char *name, const char *type, const char *help)
{
    hr_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void hr_prometheus_label(hr_buf *labels, const char *name, hr_str value)
{
    if (labels->n) hr_buf_add_byte(labels, ',');
    hr_buf_add_c(labels, name);
    hr_buf_add_c(labels, "=\"");
    for (size_t i = 0; i < value.n; i++) {
        char c = value.p[i];
        if (c == '\\' || c == '"') hr_buf_add_byte(labels, '\\');
        if (c == '\n') hr_buf_add_c(labels, "\\n");
        else hr_buf_add_byte(labels, c);
    }
    hr_buf_add_byte(labels, '"');
}

/* "1234567.0" → "1.234567e+06": Go, whose spelling the format has, leaves the plain form at seven
 * digits before the point, Python at seventeen. */
static void add_go_exponent(hr_buf *out, const char *text, size_t n, size_t point)
{
    char mantissa[40];
    size_t m = 0;
    mantissa[m++] = text[0];
    mantissa[m++] = '.';
    for (size_t i = 1; i < n && m < sizeof mantissa; i++)
        if (i != point) mantissa[m++] = text[i];
    while (m > 1 && mantissa[m - 1] == '0') m--;
    if (mantissa[m - 1] == '.') m--;
    hr_buf_add(out, mantissa, m);
    hr_buf_printf(out, "e+%02zu", point - 1);
}

void hr_prometheus_number(hr_buf *out, double v)
{
    if (isnan(v)) {
        hr_buf_add_c(out, "NaN");
        return;
    }
    if (isinf(v)) {
        hr_buf_add_c(out, v > 0 ? "+Inf" : "-Inf");
        return;
    }
    char text[32];
    size_t n = hr_json_format_f64(v, text);
    const char *point = memchr(text, '.', n);
    if (v > 0 && point && point - text > 6 && !memchr(text, 'e', n))
        add_go_exponent(out, text, n, (size_t)(point - text));
    else hr_buf_add(out, text, n);
}

static void begin_sample(hr_buf *out, const char *name, const char *suffix, hr_str labels)
{
    hr_buf_add_c(out, name);
    hr_buf_add_c(out, suffix);
    if (!labels.n) return;
    hr_buf_add_byte(out, '{');
    hr_buf_add_str(out, labels);
    hr_buf_add_byte(out, '}');
}

static void end_sample(hr_buf *out, double value)
{
    hr_buf_add_byte(out, ' ');
    hr_prometheus_number(out, value);
    hr_buf_add_byte(out, '\n');
}

void hr_prometheus_sample(hr_buf *out, const char *name, hr_str labels, double value)
{
    begin_sample(out, name, "", labels);
    end_sample(out, value);
}

void hr_prometheus_count(hr_buf *out, const char *name, hr_str labels, uint64_t value)
{
    hr_prometheus_sample(out, name, labels, (double)value); /* exact up to 2^53 */
}

static void add_bucket(hr_buf *out, const char *name, hr_str labels, double bound, uint64_t count)
{
    hr_buf_add_c(out, name);
    hr_buf_add_c(out, "_bucket{");
    hr_buf_add_str(out, labels);
    hr_buf_add_c(out, labels.n ? ",le=\"" : "le=\"");
    hr_prometheus_number(out, bound);
    hr_buf_add_c(out, "\"}");
    end_sample(out, (double)count);
}

void hr_prometheus_histogram(hr_buf *out, const char *name, hr_str labels, const hr_histogram *h)
{
    uint64_t seen = 0;
    for (size_t i = 0; i <= h->n; i++) {
        seen += hr_counter_get(&h->counts[i]);
        add_bucket(out, name, labels, i < h->n ? h->bounds[i] : INFINITY, seen);
    }
    begin_sample(out, name, "_count", labels);
    end_sample(out, (double)seen);
    begin_sample(out, name, "_sum", labels);
    end_sample(out, hr_histogram_sum(h));
}
