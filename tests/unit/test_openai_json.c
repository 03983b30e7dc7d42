/* Log-probabilities as JSON: every float32 comes back to the bit, what is not finite is JSON too,
 * and each entry is told once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/generation.h"

static const hr_logprob_style chat = { .chat = true, .as_ids = true, .top = 2 };
static const hr_logprob_style legacy = { .as_ids = true, .top = 2 };

/* The number of a completion's token_logprobs, as text. */
static const char *spelt(double logprob)
{
    static hr_logprob_lists l;
    hr_logprobs_clear(&l);
    headrace_token t = { .chosen = { .token_id = 1, .logprob = logprob } };
    hr_logprobs_add(&l, &legacy, &t, 0);
    assert_int_equal(hr_buf_status(&l.token_logprobs), HR_OK);
    return hr_buf_c(&l.token_logprobs);
}

static uint32_t random_bits(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static void every_float_comes_back(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (int i = 0; i < 300000; i++) {
        union {
            uint32_t bits;
            float value;
        } v = { random_bits(&random) | 0x80000000u };
        if (i % 2) v.value = -(float)(random_bits(&random) % 100000) * 0.0003f; /* the usual ones */
        if (!(v.value > -9999)) continue;
        const char *text = spelt((double)v.value);
        char *end;
        float back = strtof(text, &end);
        if (back != v.value || *end || !strpbrk(text, ".e"))
            fail_msg("%.9g is spelt %s", (double)v.value, text);
    }
}

static void edges(void **state)
{
    (void)state;
    const struct {
        double value;
        const char *text;
    } cases[] = { { (double)-INFINITY, "-9999.0" },
                  { (double)NAN, "-9999.0" },
                  { -(double)NAN, "-9999.0" },
                  { (double)INFINITY, "9999.0" },
                  { -1e300, "-9999.0" },
                  { -9999, "-9999.0" },
                  { 0, "0.0" },
                  { -1, "-1.0" },
                  { -0.5, "-0.5" },
                  { -10.25, "-10.25" },
                  { -0.001, "-0.001" },
                  { -0.0009, "-0.0009" },
                  { -1e-7, "-1e-07" },
                  { -999.99999999, "-1000.0" },
                  { -9998.5, "-9998.5" },
                  { 12.75, "12.75" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(spelt(cases[i].value), cases[i].text);
}

static void integers(void **state)
{
    (void)state;
    hr_buf b = { 0 };
    const int64_t values[] = { 0, 7, -7, 10, 1234567890, INT64_MAX, INT64_MIN };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        hr_openai_add_i64(&b, values[i]);
        hr_buf_add_byte(&b, ' ');
    }
    assert_string_equal(hr_buf_c(&b),
                        "0 7 -7 10 1234567890 9223372036854775807 -9223372036854775808 ");
    hr_buf_deinit(&b);
}

/* Three by rank, then named ids: 8 (ranked, but past the two that are told), 5 (told already), 8.
 */
static const headrace_logprob top[] = { { 5, -0.5, 1 },
                                        { 6, -1, 2 },
                                        { 8, -2, 3 },
                                        { 8, -2.0, 0 },
                                        { 5, -0.5, 0 },
                                        { 8, -2.0, 0 },
                                        { 9, -(double)INFINITY, 0 } };
static const headrace_token token = { .chosen = { 6, -1, 2 }, .top = top, .n_top = 7 };

static void each_entry_once_in_a_chat(void **state)
{
    (void)state;
    hr_logprob_lists l = { 0 };
    hr_logprobs_add(&l, &chat, &token, 0);
    hr_logprobs_add(&l, &chat, &(headrace_token){ .chosen = { 1, -3, 9 } }, 4);
    assert_string_equal(hr_buf_c(&l.content),
                        "{\"token\":\"token_id:6\",\"logprob\":-1.0,\"bytes\":[],\"top_logprobs\":["
                        "{\"token\":\"token_id:5\",\"logprob\":-0.5,\"bytes\":[]},"
                        "{\"token\":\"token_id:6\",\"logprob\":-1.0,\"bytes\":[]},"
                        "{\"token\":\"token_id:8\",\"logprob\":-2.0,\"bytes\":[]},"
                        "{\"token\":\"token_id:9\",\"logprob\":-9999.0,\"bytes\":[]}]},"
                        "{\"token\":\"token_id:1\",\"logprob\":-3.0,\"bytes\":[],"
                        "\"top_logprobs\":[]}");
    assert_int_equal(l.tokens.n, 0);
    hr_logprobs_deinit(&l);
}

static void each_key_once_in_a_completion(void **state)
{
    (void)state;
    hr_logprob_lists l = { 0 }, all = { 0 };
    hr_logprobs_add_first(&l, &legacy, &token, 0);
    hr_logprobs_add(&l, &legacy, &token, 3);
    hr_logprobs_append(&all, &l);
    hr_logprobs_append(&all, &l);
    assert_string_equal(hr_buf_c(&l.top_logprobs),
                        "null,{\"token_id:6\":-1.0,\"token_id:5\":-0.5,\"token_id:8\":-2.0,"
                        "\"token_id:9\":-9999.0}");
    assert_string_equal(hr_buf_c(&l.token_logprobs), "null,-1.0");
    assert_string_equal(hr_buf_c(&all.offsets), "0,3,0,3");
    /* without ids and without a tokenizer every text is empty: one key */
    hr_logprobs_clear(&l);
    hr_logprobs_add(&l, &(hr_logprob_style){ .top = 2 }, &token, 0);
    assert_string_equal(hr_buf_c(&l.top_logprobs), "{\"\":-1.0}");
    hr_logprobs_deinit(&l);
    hr_logprobs_deinit(&all);
}

static void prompt_entries_have_their_ranks(void **state)
{
    (void)state;
    hr_buf out = { 0 };
    hr_logprobs_add_prompt(&out, &legacy, &token, 2);
    hr_logprobs_add_prompt(&out, &legacy, &(headrace_token){ .chosen = { 1, -3, 9 } }, 2);
    assert_string_equal(hr_buf_c(&out),
                        "{\"6\":{\"logprob\":-1.0,\"rank\":2,\"decoded_token\":\"\"},"
                        "\"5\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"\"}},"
                        "{\"1\":{\"logprob\":-3.0,\"rank\":9,\"decoded_token\":\"\"}}");
    hr_buf_deinit(&out);
}

static void refusals_name_their_field(void **state)
{
    (void)state;
    assert_string_equal(hr_openai_param_of("top_p: 0 is not above 0"), "top_p");
    assert_string_equal(hr_openai_param_of("messages[3].role: a string"), "messages");
    assert_string_equal(hr_openai_param_of("prompt is empty"), "prompt");
    assert_null(hr_openai_param_of("no memory"));
    assert_null(hr_openai_param_of(""));
    assert_null(hr_openai_param_of("top_"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_float_comes_back),
        cmocka_unit_test(edges),
        cmocka_unit_test(integers),
        cmocka_unit_test(each_entry_once_in_a_chat),
        cmocka_unit_test(each_key_once_in_a_completion),
        cmocka_unit_test(prompt_entries_have_their_ranks),
        cmocka_unit_test(refusals_name_their_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
