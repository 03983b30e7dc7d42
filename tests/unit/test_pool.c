/* The compute pool: every item once, whatever the split; sleepers wake; nothing leaks between runs.
 * Also what TSan is pointed at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cpu/pool.h"

enum { MOST_ITEMS = 5000, MOST_WORKERS = 8 };

typedef struct tally {
    uint32_t count[MOST_ITEMS]; /* plain memory: two workers on one item are a race */
    uint32_t value;
    int64_t by_worker[MOST_WORKERS];
} tally;

static void count_items(void *ctx, int worker, int64_t from, int64_t to)
{
    tally *t = ctx;
    for (int64_t i = from; i < to; i++) t->count[i] += t->value;
    t->by_worker[worker] += to - from;
}

static void assert_each_once(const tally *t, int64_t items, uint32_t expected)
{
    for (int64_t i = 0; i < MOST_ITEMS; i++)
        assert_int_equal(t->count[i], i < items ? expected : 0);
}

static void test_every_item_once(void **state)
{
    (void)state;
    static const int threads[] = { 1, 2, 3, MOST_WORKERS };
    static const int64_t items[] = { 0, 1, 2, 7, 64, 999, MOST_ITEMS };
    static const int64_t grains[] = { 1, 3, 64, MOST_ITEMS + 1 };
    tally *t = hr_new0(tally);
    for (size_t a = 0; a < sizeof threads / sizeof *threads; a++) {
        hr_pool *p;
        assert_int_equal(hr_pool_create(threads[a], &p), HR_OK);
        assert_int_equal(hr_pool_threads(p), threads[a]);
        for (size_t b = 0; b < sizeof items / sizeof *items; b++)
            for (size_t c = 0; c < sizeof grains / sizeof *grains; c++) {
                *t = (tally){ .value = 1 };
                hr_pool_run(p, count_items, t, items[b], grains[c]);
                assert_each_once(t, items[b], 1);
                int64_t sum = 0;
                for (int w = 0; w < MOST_WORKERS; w++) {
                    if (w >= threads[a]) assert_int_equal(t->by_worker[w], 0);
                    sum += t->by_worker[w];
                }
                assert_int_equal(sum, items[b]);
            }
        hr_pool_destroy(p);
    }
    hr_free(t);
}

/* Short runs end to end, each reading what the last one wrote: a worker that took a chunk of the
 * wrong run, or a run that returned early, would leave a count behind. */
static void test_runs_in_a_row(void **state)
{
    (void)state;
    enum { RUNS = 3000 };
    tally *t = hr_new0(tally);
    hr_pool *p;
    assert_int_equal(hr_pool_create(4, &p), HR_OK);
    uint32_t expected = 0;
    for (uint32_t i = 0; i < RUNS; i++) {
        t->value = i % 7;
        expected += t->value;
        hr_pool_run(p, count_items, t, 50, 1 + i % 5);
        for (int k = 0; k < 50; k++) assert_int_equal(t->count[k], expected);
    }
    hr_pool_destroy(p);
    hr_free(t);
}

static void count_slowly(void *ctx, int worker, int64_t from, int64_t to)
{
    nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    count_items(ctx, worker, from, to);
}

/* Workers park between runs and the caller parks inside one; both must wake. */
static void test_parked(void **state)
{
    (void)state;
    tally *t = hr_new0(tally);
    t->value = 1;
    hr_pool *p;
    assert_int_equal(hr_pool_create(3, &p), HR_OK);
    for (int i = 0; i < 10; i++) {
        nanosleep(&(struct timespec){ .tv_nsec = 3000000 }, NULL);
        hr_pool_run(p, count_slowly, t, 9, 1);
    }
    assert_each_once(t, 9, 10);
    /* Chunks that sleep: with three workers no single one can have taken them all. */
    assert_true(t->by_worker[0] < 90);
    hr_pool_destroy(p);
    hr_free(t);
}

static void test_created_and_destroyed(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        hr_pool *p;
        assert_int_equal(hr_pool_create(1 + i % 5, &p), HR_OK);
        hr_pool_destroy(p);
    }
    hr_pool_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_once),
        cmocka_unit_test(test_runs_in_a_row),
        cmocka_unit_test(test_parked),
        cmocka_unit_test(test_created_and_destroyed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
