/* Arrival times: gamma variates against distribution functions that have closed forms
 * (Kolmogorov and Smirnov's test), and the schedule that is made of them; statistics at their
 * corners. Fixed seeds: a verdict does not change from run to run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "bench/bench_int.h"

#define N 20000

/* Distribution functions of the gamma distribution, scale 1. */
static double half(double x)
{
    return erf(sqrt(x));
}
static double one(double x)
{
    return 1 - exp(-x);
}
static double two(double x)
{
    return 1 - (1 + x) * exp(-x);
}
static double five(double x)
{
    return 1 - exp(-x) * (1 + x + x * x / 2 + x * x * x / 6 + x * x * x * x / 24);
}

/* Largest distance between the sample's distribution and the true one. */
static double distance(double shape, double (*cdf)(double))
{
    hr_bench_random r;
    hr_bench_series s = { 0 };
    hr_bench_random_init(&r, 12345, 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(hr_bench_series_add(&s, hr_bench_random_gamma(&r, shape)), HR_OK);
    hr_bench_series_sort(&s);
    double most = 0;
    for (size_t i = 0; i < s.n; i++) {
        double f = cdf(s.v[i]);
        most = fmax(most, fmax(fabs(f - (double)i / N), fabs(f - (double)(i + 1) / N)));
    }
    hr_bench_series_deinit(&s);
    return most;
}

static void test_gamma(void **state)
{
    (void)state;
    /* exceeded by one sample in 1000: sqrt(ln(2/0.001)/2) / sqrt(N) */
    double limit = sqrt(log(2 / 0.001) / 2) / sqrt(N);
    assert_true(distance(0.5, half) < limit);
    assert_true(distance(1, one) < limit);
    assert_true(distance(2, two) < limit);
    assert_true(distance(5, five) < limit);
    assert_true(distance(1, two) > limit); /* the test can tell them apart */
}

static void test_arrivals(void **state)
{
    (void)state;
    double at[1000], other[1000];
    hr_bench_arrivals(INFINITY, 1, 3, 1000, at);
    for (int i = 0; i < 1000; i++) assert_true(at[i] == 0);
    const double shapes[] = { 0.25, 1, 16 };
    double spread[3];
    for (int k = 0; k < 3; k++) {
        hr_bench_arrivals(50, shapes[k], 3, 1000, at);
        assert_true(fabs(at[999] - 1000 / 50.0) < 1e-9); /* the rate is met */
        double sum = 0, squares = 0;
        for (int i = 1; i < 1000; i++) {
            double gap = at[i] - at[i - 1];
            assert_true(gap >= 0);
            sum += gap, squares += gap * gap;
        }
        double mean = sum / 999;
        spread[k] = sqrt(squares / 999 - mean * mean) / mean;
        /* the coefficient of variation of a gamma variate is 1 / sqrt(shape) */
        assert_true(fabs(spread[k] * sqrt(shapes[k]) - 1) < 0.15);
    }
    assert_true(spread[0] > spread[1] && spread[1] > spread[2]);
    hr_bench_arrivals(50, 16, 3, 1000, other);
    assert_memory_equal(at, other, sizeof at); /* the same seed, the same schedule */
    hr_bench_arrivals(50, 16, 4, 1000, other);
    assert_memory_not_equal(at, other, sizeof at);
}

static void test_below(void **state)
{
    (void)state;
    hr_bench_random r;
    hr_bench_random_init(&r, 1, 0);
    size_t seen[7] = { 0 };
    for (int i = 0; i < 70000; i++) seen[hr_bench_random_below(&r, 7)]++;
    double chi = 0;
    for (int i = 0; i < 7; i++) chi += pow((double)seen[i] - 10000, 2) / 10000;
    assert_true(chi < 22.46); /* 6 degrees of freedom, one in 1000 */
    for (int i = 0; i < 100; i++) assert_int_equal(hr_bench_random_below(&r, 1), 0);
    for (int i = 0; i < 1000; i++) {
        double u = hr_bench_random_unit(&r);
        assert_true(u >= 0 && u < 1);
    }
}

static void test_corners(void **state)
{
    (void)state;
    hr_bench_series s = { 0 };
    assert_true(hr_bench_percentile(&s, 99) == 0 && hr_bench_mean(&s) == 0 &&
                hr_bench_std(&s) == 0);
    assert_int_equal(hr_bench_series_add(&s, 5), HR_OK);
    assert_true(hr_bench_percentile(&s, 0) == 5 && hr_bench_percentile(&s, 100) == 5);
    assert_true(hr_bench_std(&s) == 0);
    assert_int_equal(hr_bench_series_add(&s, 1), HR_OK);
    hr_bench_series_sort(&s);
    assert_true(hr_bench_percentile(&s, 0) == 1 && hr_bench_percentile(&s, 100) == 5);
    assert_true(hr_bench_percentile(&s, 50) == 3 && hr_bench_percentile(&s, 25) == 2);
    hr_bench_series_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gamma),
        cmocka_unit_test(test_arrivals),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_corners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
