/* Preemption changes nothing: penalties, min_tokens, seeds, stop strings, prompt log-probabilities
 * and held-back text come through being pushed out and computed again, with prefix caching and
 * without, under either policy, with cancels in between (B10). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_bed.h"

enum { N = 14 };

/* Requests whose options keep state from token to token. */
static void vary(size_t i, headrace_sampling *s, headrace_request *r, char text[200])
{
    static const char *const stops[] = { "abcb", "cca", "bbab" }; /* over several tokens */
    static const int64_t letters[] = { 'a', 'b', 'c' };
    static const double liked[] = { 60, 60, 60 };
    static const char *const words[] = { "ab", "th" };
    headrace_sampling_init(NULL, s);
    s->seed = (int64_t)i + 7;
    s->temperature = i % 5 ? 0.8 : 0;
    s->max_tokens = 60 + (int64_t)i * 5;
    s->frequency_penalty = 0.5;
    s->presence_penalty = i % 3 ? 0 : 0.7;
    s->repetition_penalty = i % 2 ? 1.2 : 1;
    s->min_tokens = 50;
    s->logprobs = 2;
    s->ignore_eos = i % 4 == 0;
    if (i % 3 == 1) s->prompt_logprobs = 1;
    if (i % 2) {
        s->stop = stops;
        s->n_stop = 3;
        s->logit_bias_ids = letters;
        s->logit_bias_values = liked;
        s->n_logit_bias = 3;
    }
    if (i % 4 == 2) {
        s->bad_words = words;
        s->n_bad_words = 2;
    }
    s->n = i % 7 == 3 ? 2 : 1;
    size_t n = 10 + i * 9 % 120;
    for (size_t k = 0; k < n; k++) text[k] = (char)('a' + (k * (i / 4 + 1)) % 26); /* some alike */
    text[n] = 0;
    bed_request(r, text, s);
}

static void ask_alone(bed_want *alone)
{
    headrace_options o;
    bed_options(&o);
    o.enable_prefix_caching = 0;
    headrace_engine *e = bed_start(&o);
    for (size_t i = 0; i < N; i++) {
        headrace_sampling s;
        headrace_request r;
        char text[200];
        vary(i, &s, &r, text);
        bed_ask(e, &r, &alone[i]);
    }
    assert_int_equal(hr_counter_get(&e->stats.preemptions), 0);
    headrace_engine_destroy(e);
}

static void compare(const bed_want *w, const bed_want *alone, size_t i)
{
    for (size_t k = 0; k < 2; k++) {
        const bed_answer *a = &w->choices[k], *b = &alone->choices[k];
        if (!hr_str_eq(hr_buf_str(&a->essence), hr_buf_str(&b->essence)))
            fail_msg("request %zu: %.*s\n instead of\n%.*s", i, (int)a->essence.n, a->essence.p,
                     (int)b->essence.n, b->essence.p);
        assert_string_equal(a->finish, b->finish);
        assert_string_equal(a->stop_string, b->stop_string);
        assert_int_equal(a->output_tokens, b->output_tokens);
    }
}

/* All at once in a cache that holds two or three of them, others cancelled beside them. */
static void press(headrace_options *o, const bed_want *alone)
{
    o->max_model_len = 320;
    o->kv_cache_memory_bytes = 21 * BED_BLOCK_BYTES;
    o->max_num_batched_tokens = 48;
    bool urgent = o->scheduling_policy && !strcmp(o->scheduling_policy, "priority");
    headrace_engine *e = bed_start(o);
    bed_want w[2 * N] = { 0 };
    for (size_t i = 0; i < 2 * N; i++) {
        headrace_sampling s;
        headrace_request r;
        char text[200];
        vary(i % N, &s, &r, text);
        if (urgent) r.priority = (int64_t)(i * 5 % 4);
        bed_submit(e, &r, &w[i]);
        if (i >= N && i % 2) headrace_cancel(e, w[i].id);
    }
    bed_await(e, w, 2 * N);
    for (size_t i = 0; i < 2 * N; i++) {
        if (i < N || i % 2 == 0) compare(&w[i], &alone[i % N], i % N);
        bed_free(&w[i]);
    }
    assert_true(hr_counter_get(&e->stats.preemptions) > 10);
    assert_int_equal(e->scheduler.pool.n_free, e->scheduler.pool.total);
    headrace_engine_destroy(e);
}

static void answers_stay_the_same(void **state)
{
    (void)state;
    bed_want alone[N] = { 0 };
    size_t stopped = 0;
    ask_alone(alone);
    for (size_t i = 0; i < N; i++) stopped += alone[i].choices[0].stop_string[0] != 0;
    assert_true(stopped > 0); /* the stop strings are at work */
    for (int caching = 0; caching < 2; caching++)
        for (int policy = 0; policy < 2; policy++) {
            headrace_options o;
            bed_options(&o);
            o.enable_prefix_caching = caching;
            o.scheduling_policy = policy ? "priority" : "fcfs";
            press(&o, alone);
        }
    for (size_t i = 0; i < N; i++) bed_free(&alone[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(answers_stay_the_same) };
    return cmocka_run_group_tests(tests, bed_setup, scratch_teardown);
}
