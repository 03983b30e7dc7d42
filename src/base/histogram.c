/* Counts per bucket and a sum.
 *
 * Any thread. Buckets are few, so the search is a scan; the sum is a double kept as bits in an
 * atomic word, added to by compare and exchange. A reader may see a count without its sum: each is
 * right by itself, and a scrape is a moment's view anyway. */
#include "base/histogram.h"

#include <string.h>

hr_status hr_histogram_init(hr_histogram *h, const double *bounds, size_t n)
{
    *h = (hr_histogram){ .bounds = bounds, .n = n };
    h->counts = hr_alloc_array0(n + 1, sizeof *h->counts);
    return h->counts ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "histogram of %zu buckets", n);
}

void hr_histogram_deinit(hr_histogram *h)
{
    hr_free(h->counts);
    *h = (hr_histogram){ 0 };
}

static double to_double(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint64_t to_bits(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

void hr_histogram_observe_times(hr_histogram *h, double value, uint64_t times)
{
    size_t i = 0;
    while (i < h->n && value > h->bounds[i]) i++;
    hr_counter_add(&h->counts[i], times);
    uint64_t old = atomic_load_explicit(&h->sum_bits, memory_order_relaxed), new;
    do new = to_bits(to_double(old) + value * (double)times);
    /* relaxed: a statistic orders nothing */
    while (!atomic_compare_exchange_weak_explicit(&h->sum_bits, &old, new, memory_order_relaxed,
                                                  memory_order_relaxed));
}

void hr_histogram_observe(hr_histogram *h, double value)
{
    hr_histogram_observe_times(h, value, 1);
}

void hr_histogram_reset(hr_histogram *h)
{
    for (size_t i = 0; i <= h->n; i++) hr_counter_set(&h->counts[i], 0);
    atomic_store_explicit(&h->sum_bits, 0, memory_order_relaxed); /* as above */
}

double hr_histogram_sum(const hr_histogram *h)
{
    /* relaxed: as above */
    return to_double(atomic_load_explicit(&((hr_histogram *)h)->sum_bits, memory_order_relaxed));
}

uint64_t hr_histogram_count(const hr_histogram *h)
{
    uint64_t n = 0;
    for (size_t i = 0; i <= h->n; i++) n += hr_counter_get(&h->counts[i]);
    return n;
}
