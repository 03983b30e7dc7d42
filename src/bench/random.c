/* Random numbers for prompts and arrivals: counter-based, so the same seed gives the same benchmark
 * on every machine, and prompts do not change when the arrivals do (a stream each). */
#include <math.h>

#include "base/exact.h"
#include "bench/bench_int.h"

void hr_bench_random_init(hr_bench_random *r, uint64_t seed, uint64_t stream)
{
    *r = (hr_bench_random){ .key = { (uint32_t)seed, (uint32_t)(seed >> 32) },
                            .next = stream << 48 };
}

static uint64_t word(hr_bench_random *r)
{
    uint32_t out[4];
    uint64_t n = r->next++;
    hr_exact_philox((uint32_t[4]){ (uint32_t)n, (uint32_t)(n >> 32), 0x62656e63, 0 }, r->key, out);
    return out[0] | (uint64_t)out[1] << 32;
}

uint64_t hr_bench_random_below(hr_bench_random *r, uint64_t n)
{
    return hr_exact_mul_high(word(r), n); /* off by less than n / 2^64 */
}

double hr_bench_random_unit(hr_bench_random *r)
{
    return (double)(word(r) >> 11) * 0x1p-53;
}

/* Standard normal by Box and Muller's method. */
static double normal(hr_bench_random *r)
{
    double u = 1 - hr_bench_random_unit(r), v = hr_bench_random_unit(r);
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

/* Marsaglia and Tsang, "A simple method for generating gamma variables", 2000. */
double hr_bench_random_gamma(hr_bench_random *r, double shape)
{
    if (shape < 1) {
        double u = 1 - hr_bench_random_unit(r);
        return hr_bench_random_gamma(r, shape + 1) * pow(u, 1 / shape);
    }
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    while (true) {
        double x = normal(r), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        double u = 1 - hr_bench_random_unit(r);
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v)) return d * v;
    }
}

/* Intervals are gamma distributed with mean 1/rate; 1 is Poisson, above it more even. As vLLM does,
 * they are scaled so that the last request is due at n/rate: the rate is met, not just expected. */
void hr_bench_arrivals(double rate, double burstiness, uint64_t seed, size_t n, double *at)
{
    hr_bench_random r;
    hr_bench_random_init(&r, seed, 2);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(rate)) sum += hr_bench_random_gamma(&r, burstiness) / (rate * burstiness);
        at[i] = sum;
    }
    double scale = sum > 0 ? (double)n / rate / sum : 1;
    for (size_t i = 0; i < n; i++) at[i] *= scale;
}
