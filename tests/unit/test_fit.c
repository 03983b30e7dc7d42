/* Buckets fitted to step histograms: against every list there is, and on damaged input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/fit.h"

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

/* The least padding over all subsets of 1..limit that end at the limit: 2^(limit-1) lists. */
static int64_t exhaustive(const uint64_t *counts, int64_t limit, int buckets)
{
    int64_t best = INT64_MAX;
    for (uint32_t mask = 0; mask < 1u << (limit - 1); mask++) {
        if (__builtin_popcount(mask) + 1 > buckets) continue;
        int64_t padding = 0;
        for (int64_t n = 1; n <= limit; n++) {
            int64_t end = n;
            while (end < limit && !(mask >> (end - 1) & 1)) end++;
            padding += (int64_t)counts[n] * (end - n);
        }
        if (padding < best) best = padding;
    }
    return best;
}

static void test_least_padding(void **unused)
{
    (void)unused;
    for (int round = 0; round < 300; round++) {
        int64_t limit = 1 + (int64_t)draw(11), padding, again;
        uint64_t counts[12] = { 0 };
        for (int64_t n = 1; n <= limit; n++) counts[n] = draw(3) ? draw(50) : 0;
        int buckets = 1 + (int)draw(5);
        hr_bucket_list list;
        assert_int_equal(hr_buckets_fit(counts, limit, buckets, &list, &padding), HR_OK);
        assert_true(list.n >= 1 && list.n <= buckets);
        assert_int_equal(hr_buckets_last(&list), limit);
        for (int i = 1; i < list.n; i++) assert_true(list.at[i] > list.at[i - 1]);
        assert_int_equal(padding, exhaustive(counts, limit, buckets));
        assert_int_equal(hr_buckets_padding(counts, limit, &list, &again), HR_OK);
        assert_int_equal(padding, again);
    }
}

static void test_refusals(void **unused)
{
    (void)unused;
    uint64_t counts[101] = { 0 };
    hr_bucket_list list;
    int64_t padding;
    assert_int_equal(hr_buckets_fit(counts, 100, 0, &list, &padding), HR_INVALID_ARGUMENT);
    assert_int_equal(hr_buckets_fit(counts, 100, 257, &list, &padding), HR_INVALID_ARGUMENT);
    counts[3] = UINT64_MAX;
    assert_int_equal(hr_buckets_fit(counts, 100, 4, &list, &padding), HR_INVALID_ARGUMENT);
    counts[3] = INT64_MAX / 50;
    assert_int_equal(hr_buckets_fit(counts, 100, 4, &list, &padding), HR_INVALID_ARGUMENT);
}

static void test_read(void **unused)
{
    (void)unused;
    uint64_t counts[33];
    hr_str good = HR_STR("{\"steps\":{\"tokens\":{\"16\":3,\"32\":1}},\"programs\":[]}");
    assert_int_equal(hr_buckets_read_steps(good, "tokens", 32, counts), HR_OK);
    assert_int_equal(counts[16], 3);
    assert_int_equal(counts[32], 1);
    assert_int_equal(counts[15], 0);
    assert_int_equal(hr_buckets_read_steps(good, "tokens", 31, counts), HR_OUT_OF_RANGE);
    const char *bad[] = { "",
                          "[]",
                          "{}",
                          "{\"steps\":1}",
                          "{\"steps\":{\"tokens\":[1]}}",
                          "{\"steps\":{\"tokens\":{\"x\":1}}}",
                          "{\"steps\":{\"tokens\":{\"1\":-1}}}",
                          "{\"steps\":{\"tokens\":{\"1\":1.5}}}" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_not_equal(hr_buckets_read_steps(hr_str_c(bad[i]), "tokens", 32, counts), HR_OK);
    assert_int_not_equal(
        hr_buckets_read_steps(HR_STR("{\"steps\":{\"tokens\":{\"0\":1}}}"), "tokens", 32, counts),
        HR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_least_padding),
                                        cmocka_unit_test(test_refusals),
                                        cmocka_unit_test(test_read) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
