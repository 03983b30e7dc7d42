/* Prometheus' text format, version 0.0.4: one function per kind of line. */
#ifndef HEADRACE_SERVER_PROMETHEUS_H
#define HEADRACE_SERVER_PROMETHEUS_H

#include "base/histogram.h"
#include "base/str.h"

#define HR_PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* "# HELP" and "# TYPE": once per family, before its samples. */
void hr_prometheus_family(hr_buf *out, const char *name, const char *type, const char *help);
/* name="value" with \, " and newline escaped; `labels` grows, a comma between two. */
void hr_prometheus_label(hr_buf *labels, const char *name, hr_str value);
/* A number as prometheus_client writes it ("1.0", "0.005", "1e+06", "+Inf", "NaN"), so that rules
 * written for vLLM's le="1.0" match ours. */
void hr_prometheus_number(hr_buf *out, double v);
/* One sample. `labels` without braces; may be empty. */
void hr_prometheus_sample(hr_buf *out, const char *name, hr_str labels, double value);
void hr_prometheus_count(hr_buf *out, const char *name, hr_str labels, uint64_t value);
/* Cumulative _bucket samples, then _count and _sum; +Inf is _count by construction, also while
 * others observe. */
void hr_prometheus_histogram(hr_buf *out, const char *name, hr_str labels, const hr_histogram *h);

#endif
