/* Stop strings in growing texts, against a search of the whole text after every piece. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/stops.h"

enum { MOST = 6, LENGTH = 60 };

typedef struct texts {
    char bytes[MOST][8];
    hr_str strings[MOST];
    size_t n;
} texts;

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* What is right: the earliest begin in text[0, n), of equal ones the first listed. */
static size_t search(const texts *t, const char *text, size_t n, size_t *which)
{
    for (size_t at = 0; at < n; at++)
        for (size_t i = 0; i < t->n; i++) {
            hr_str s = t->strings[i];
            *which = i;
            if (s.n <= n - at && !memcmp(text + at, s.p, s.n)) return at;
        }
    return SIZE_MAX;
}

/* How much of the end may still become one of them. */
static size_t end_held(const texts *t, const char *text, size_t n)
{
    size_t most = 0;
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 1; k < t->strings[i].n && k <= n; k++)
            if (k > most && !memcmp(text + n - k, t->strings[i].p, k)) most = k;
    return most;
}

static void one_text(uint64_t *seed)
{
    texts t = { .n = 1 + next_random(seed) % MOST };
    char text[LENGTH];
    hr_arena arena = { 0 };
    hr_stops stops;
    uint32_t matched[MOST] = { 0 };
    for (size_t i = 0; i < t.n; i++) {
        size_t n = 1 + next_random(seed) % 7;
        for (size_t k = 0; k < n; k++) t.bytes[i][k] = (char)('a' + next_random(seed) % 2);
        t.strings[i] = (hr_str){ t.bytes[i], n };
    }
    for (size_t i = 0; i < LENGTH; i++)
        text[i] = (char)('a' + (next_random(seed) % 8 ? next_random(seed) % 2 : 2));
    assert_int_equal(hr_stops_init(&stops, &arena, t.strings, t.n), HR_OK);
    for (size_t n = 0, step; n < LENGTH; n += step) {
        size_t which = 0;
        int64_t begin;
        step = next_random(seed) % 5;
        if (step > LENGTH - n) step = LENGTH - n;
        int64_t met = hr_stops_feed(&stops, matched, (hr_str){ text + n, step }, &begin);
        size_t want = search(&t, text, n + step, &which);
        assert_int_equal(met, want == SIZE_MAX ? -1 : (int64_t)which);
        if (met >= 0) {
            assert_int_equal((int64_t)n + begin, want);
            break;
        }
        assert_int_equal(hr_stops_held(&stops, matched), end_held(&t, text, n + step));
    }
    hr_arena_deinit(&arena);
}

static void test_random_texts(void **state)
{
    (void)state;
    uint64_t seed = 9;
    for (int i = 0; i < 20000; i++) one_text(&seed);
}

/* Strings and text as bad as can be: a search that compares again what it has compared would need
 * minutes for it. */
static void test_cost_is_that_of_reading(void **state)
{
    (void)state;
    enum { N = 1 << 20, STRINGS = 8 };
    hr_arena arena = { 0 };
    hr_stops stops;
    uint32_t matched[STRINGS] = { 0 };
    hr_str strings[STRINGS];
    int64_t begin;
    char *a = hr_arena_alloc(&arena, N), *b = hr_arena_alloc(&arena, N);
    assert_true(a && b);
    memset(a, 'a', N);
    memset(b, 'a', N);
    b[N / 2] = 'b';
    for (int i = 0; i < STRINGS; i++) strings[i] = (hr_str){ b, (size_t)(N - i) };
    assert_int_equal(hr_stops_init(&stops, &arena, strings, STRINGS), HR_OK);
    for (int i = 0; i < N; i += 64) {
        assert_int_equal(hr_stops_feed(&stops, matched, (hr_str){ a + i, 64 }, &begin), -1);
        assert_int_equal(hr_stops_held(&stops, matched), i + 64 < N / 2 ? i + 64 : N / 2);
    }
    hr_arena_deinit(&arena);
}

static void test_refusals(void **state)
{
    (void)state;
    hr_arena arena = { 0 };
    hr_stops stops;
    hr_str empty = HR_STR("");
    int64_t begin;
    assert_int_equal(hr_stops_init(&stops, &arena, &empty, 1), HR_INVALID_ARGUMENT);
    assert_int_equal(hr_stops_init(&stops, &arena, NULL, 0), HR_OK);
    assert_int_equal(hr_stops_feed(&stops, NULL, HR_STR("abc"), &begin), -1);
    assert_int_equal(hr_stops_held(&stops, NULL), 0);
    hr_arena_deinit(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_texts),
        cmocka_unit_test(test_cost_is_that_of_reading),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
