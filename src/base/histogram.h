/* A histogram that one or more threads fill and any thread reads: Prometheus' kind, cumulative when
 * printed, not when filled. */
#ifndef HEADRACE_BASE_HISTOGRAM_H
#define HEADRACE_BASE_HISTOGRAM_H

#include "base/mem.h"
#include "base/sync.h"

typedef struct hr_histogram {
    const double *bounds; /* borrowed [n], rising: the upper end of each bucket, inclusive */
    size_t n;
    hr_counter *counts;        /* owned [n+1]; the last takes what is above every bound */
    _Atomic uint64_t sum_bits; /* bits of a double: the sum of all values */
} hr_histogram;

HR_MUST_USE hr_status hr_histogram_init(hr_histogram *h, const double *bounds, size_t n);
void hr_histogram_deinit(hr_histogram *h);
/* Any thread; allocates nothing. */
void hr_histogram_observe(hr_histogram *h, double value);
void hr_histogram_observe_times(hr_histogram *h, double value, uint64_t times);
void hr_histogram_reset(hr_histogram *h); /* forgets all values; while nobody observes */
double hr_histogram_sum(const hr_histogram *h);
uint64_t hr_histogram_count(const hr_histogram *h); /* of all values */

#endif
