/* Logits processors at work: what they forbid is never chosen, what they add is added as a
 * request's own logit_bias is, and neither preemption nor neighbours change an answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_bed.h"

enum { N = 16, PROMPT = 24 };

static const char *const all[] = {
    HR_PROCESSOR_FOLDER "/logits_processor_trigram.so",
    HR_PROCESSOR_FOLDER "/stub_processor.so=thirds",
    HR_PROCESSOR_FOLDER "/logits_processor_bias.so=97:2.25,98:-1",
};

/* Those whose prompts begin with 7 are masked by the stub. */
static void vary(size_t i, headrace_sampling *s, headrace_request *r, int64_t ids[PROMPT])
{
    static const int64_t some[] = { 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108 };
    static const double values[] = { 3, 100, -2 };
    headrace_sampling_init(NULL, s);
    headrace_request_init(r);
    s->seed = (int64_t)i + 3;
    s->temperature = i % 3 ? 0.9 : 0;
    s->max_tokens = 70 + (int64_t)i * 5;
    s->ignore_eos = 1;
    s->logprobs = 2;
    s->n = i % 5 == 2 ? 2 : 1;
    if (i % 2) {
        s->logit_bias_ids = some;
        s->logit_bias_values = values;
        s->n_logit_bias = 3;
    }
    if (i % 4 == 1) {
        s->allowed_token_ids = some;
        s->n_allowed_token_ids = sizeof some / sizeof *some;
    }
    for (size_t k = 0; k < PROMPT; k++) ids[k] = (int64_t)(k * (i + 1) % 250);
    ids[0] = i % 2 ? 7 : 8;
    r->prompt_ids = ids;
    r->n_prompt_ids = 4 + i;
    r->sampling = s;
}

static void submit(headrace_engine *e, size_t i, bed_want *w)
{
    headrace_sampling s;
    headrace_request r;
    int64_t ids[PROMPT];
    vary(i, &s, &r, ids);
    bed_submit(e, &r, w);
}

static void ask_alone(headrace_options *o, bed_want *alone)
{
    headrace_engine *e = bed_start(o);
    for (size_t i = 0; i < N; i++) {
        submit(e, i, &alone[i]);
        bed_await(e, &alone[i], 1);
    }
    headrace_engine_destroy(e);
}

static bool same(const bed_want *a, const bed_want *b)
{
    for (size_t k = 0; k < 2; k++)
        if (!hr_str_eq(hr_buf_str(&a->choices[k].essence), hr_buf_str(&b->choices[k].essence)) ||
            strcmp(a->choices[k].finish, b->choices[k].finish) != 0)
            return false;
    return true;
}

/* The ids of an answer, without what else its essence holds. */
static size_t ids_of(const bed_answer *a, int32_t *ids, size_t most)
{
    size_t n = 0;
    hr_str rest = hr_buf_str(&a->essence);
    for (size_t at = 0; at < rest.n && n < most;) {
        if (rest.p[at] == '|') { /* text up to the next one, which holds none itself here */
            do at++;
            while (at < rest.n && rest.p[at] != '|');
            at++;
        } else if (rest.p[at] == '(' || rest.p[at] == ' ') {
            while (at < rest.n && rest.p[at] != ')' && rest.p[at] != ' ') at++;
            at++;
        } else {
            ids[n++] = (int32_t)strtol(rest.p + at, NULL, 10);
            while (at < rest.n && rest.p[at] != ' ') at++;
        }
    }
    return n;
}

/* Pushed out, computed again and beside each other, they answer as they do alone. (Of twelve ids,
 * a third at a time, all trigrams may be used up: then they end alike.) */
static void press(headrace_options *o, const bed_want *alone)
{
    o->max_model_len = 320;
    o->kv_cache_memory_bytes = 21 * BED_BLOCK_BYTES;
    o->max_num_batched_tokens = 48;
    headrace_engine *e = bed_start(o);
    bed_want w[N];
    for (size_t i = 0; i < N; i++) submit(e, i, &w[i]);
    bed_await(e, w, N);
    for (size_t i = 0; i < N; i++) {
        if (!same(&w[i], &alone[i])) fail_msg("request %zu", i);
        if (i % 4 != 1) assert_string_equal(w[i].choices[0].finish, "length");
        bed_free(&w[i]);
    }
    assert_true(hr_counter_get(&e->stats.preemptions) > 5);
    headrace_engine_destroy(e);
}

static void preemption_changes_nothing(void **state)
{
    (void)state;
    headrace_options o;
    bed_want alone[N];
    bed_options(&o);
    o.logits_processors = all;
    o.n_logits_processors = 3;
    ask_alone(&o, alone);
    press(&o, alone);
    for (size_t i = 0; i < N; i++) bed_free(&alone[i]);
}

/* The stub's own choices are masked; the others answer as an engine without it has them answer. */
static void plain_requests_do_not_notice(void **state)
{
    (void)state;
    headrace_options o;
    bed_want plain[N], with[N];
    size_t changed = 0;
    bed_options(&o);
    ask_alone(&o, plain);
    o.logits_processors = all + 1;
    o.n_logits_processors = 1;
    headrace_engine *e = bed_start(&o);
    for (size_t i = 0; i < N; i++) submit(e, i, &with[i]);
    bed_await(e, with, N);
    headrace_engine_destroy(e);
    for (size_t i = 0; i < N; i++) {
        if (i % 2 == 0) assert_true(same(&plain[i], &with[i]));
        else changed += !same(&plain[i], &with[i]);
        bed_free(&plain[i]);
        bed_free(&with[i]);
    }
    assert_true(changed > 0);
}

/* Every id at its place, with masks of allowed_token_ids and the processor's at once. */
static void masks_hold(void **state)
{
    (void)state;
    headrace_options o;
    bed_options(&o);
    o.logits_processors = all + 1;
    o.n_logits_processors = 1;
    headrace_engine *e = bed_start(&o);
    bed_want w[N];
    for (size_t i = 0; i < N; i++) submit(e, i, &w[i]);
    bed_await(e, w, N);
    for (size_t i = 1; i < N; i += 2) {
        int32_t ids[256];
        if (i % 4 != 1) continue; /* letters alone: nothing in the text looks like an id */
        size_t n = ids_of(&w[i].choices[0], ids, 256);
        assert_int_equal(n, 70 + i * 5);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(ids[k] % 3, (4 + i + k) % 3);
            assert_in_range(ids[k], 97, 108);
        }
    }
    for (size_t i = 0; i < N; i++) bed_free(&w[i]);
    headrace_engine_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preemption_changes_nothing),
        cmocka_unit_test(plain_requests_do_not_notice),
        cmocka_unit_test(masks_hold),
    };
    return cmocka_run_group_tests(tests, bed_setup, scratch_teardown);
}
