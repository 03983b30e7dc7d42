/* Statistics of a series of times, as NumPy computes them: percentiles by linear interpolation
 * between the two nearest values, standard deviation over n. */
#include <math.h>
#include <stdlib.h>

#include "bench/bench_int.h"

hr_status hr_bench_series_add(hr_bench_series *s, double v)
{
    HR_TRY(hr_grow((void **)&s->v, &s->capacity, s->n + 1, sizeof *s->v));
    s->v[s->n++] = v;
    return HR_OK;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void hr_bench_series_sort(hr_bench_series *s)
{
    if (s->n) qsort(s->v, s->n, sizeof *s->v, compare);
}

double hr_bench_percentile(const hr_bench_series *s, double p)
{
    if (!s->n) return 0;
    double place = p / 100 * (double)(s->n - 1);
    size_t below = (size_t)place;
    if (below + 1 >= s->n) return s->v[s->n - 1];
    double t = place - (double)below, a = s->v[below], b = s->v[below + 1];
    /* NumPy's way round, so that both ends are exact */
    return t < 0.5 ? a + (b - a) * t : b - (b - a) * (1 - t);
}

double hr_bench_mean(const hr_bench_series *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) sum += s->v[i];
    return s->n ? sum / (double)s->n : 0;
}

double hr_bench_std(const hr_bench_series *s)
{
    double mean = hr_bench_mean(s), sum = 0;
    for (size_t i = 0; i < s->n; i++) sum += (s->v[i] - mean) * (s->v[i] - mean);
    return s->n ? sqrt(sum / (double)s->n) : 0;
}

void hr_bench_series_deinit(hr_bench_series *s)
{
    hr_free(s->v);
    *s = (hr_bench_series){ 0 };
}
