/* Streamed answers: however the bytes are cut, the same chunks come out; and bytes of any kind are
 * taken without harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/mem.h"
#include "bench/bench_int.h"
#include "bench/stream.h"

static const char answer[] =
    ": a comment\r\n\r\n"
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n"
    "event: message\nid: 7\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\"caf\xc3\xa9 \"},\"finish_reason\":null}]}\n\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\"\"}}]}\n\n"
    "data:{\"choices\":\n"
    "data:[{\"text\":\"two lines\"}]}\n\n"
    "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"why\"}}]}\n\n"
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],"
    "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":4.0}}\n\n"
    "data: [DONE]\n\n";

static void add_text(void *context, hr_str text)
{
    hr_buf_add_str(context, text);
    hr_buf_add_c(context, "|");
}

/* The buffer behind the one for texts. */
static void add_thought(void *context, hr_str text)
{
    add_text((hr_buf *)context + 1, text);
}

static void expect_answer(hr_stream *s, hr_buf *texts)
{
    assert_null(hr_stream_finish(s));
    assert_string_equal(hr_buf_c(texts), "caf\xc3\xa9 ||two lines|why|");
    assert_int_equal(s->chunks, 4);
    assert_int_equal(s->prompt_tokens, 5);
    assert_int_equal(s->completion_tokens, 4);
    assert_string_equal(s->finish_reason, "stop");
    assert_true(s->done);
    hr_stream_deinit(s);
    hr_buf_deinit(texts);
}

static void test_cuts(void **state)
{
    (void)state;
    size_t n = sizeof answer - 1;
    for (size_t step = 1; step <= n; step = step < 40 ? step + 1 : step * 2) {
        hr_stream s;
        hr_buf texts = { 0 };
        hr_stream_init(&s, add_text, &texts);
        for (size_t i = 0; i < n; i += step)
            hr_stream_feed(&s, (hr_str){ answer + i, n - i < step ? n - i : step });
        expect_answer(&s, &texts);
    }
}

static void test_reasoning_is_kept_apart(void **state)
{
    (void)state;
    static const char told[] =
        "data: "
        "{\"choices\":[{\"delta\":{\"reasoning\":\"why\",\"reasoning_content\":\"why\"}}]}\n\n"
        "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\" so\",\"content\":\"yes\"}}]}\n\n"
        "data: [DONE]\n\n";
    struct {
        hr_buf texts, thoughts;
    } got = { 0 };
    hr_stream s;
    hr_stream_init(&s, add_text, &got.texts);
    s.on_reasoning = add_thought;
    hr_stream_feed(&s, hr_str_c(told));
    assert_null(hr_stream_finish(&s));
    assert_string_equal(hr_buf_c(&got.texts), "|yes|");
    assert_string_equal(hr_buf_c(&got.thoughts), "why| so|");
    assert_int_equal(s.chunks, 2);
    hr_stream_deinit(&s);
    hr_buf_deinit(&got.texts);
    hr_buf_deinit(&got.thoughts);
}

static const char *verdict(const char *text)
{
    static char kept[256];
    hr_stream s;
    hr_stream_init(&s, NULL, NULL);
    hr_stream_feed(&s, hr_str_c(text));
    const char *wrong = hr_stream_finish(&s);
    snprintf(kept, sizeof kept, "%s", wrong ? wrong : "fine");
    hr_stream_deinit(&s);
    return kept;
}

static void test_verdicts(void **state)
{
    (void)state;
    assert_string_equal(verdict(""), "the answer held no tokens");
    assert_string_equal(verdict("data: [DONE]\n\n"), "the answer held no tokens");
    assert_string_equal(verdict("data: {\"choices\":[{\"text\":\"x\"}]}\n\n"),
                        "the answer broke off");
    assert_string_equal(verdict("data: {\"choices\":[{\"text\":\"x\"}]}\n\ndata: [DONE]"), "fine");
    assert_string_equal(verdict("data: {\"usage\":{\"completion_tokens\":0}}\n\ndata: [DONE]\n\n"),
                        "fine");
    assert_string_equal(verdict("data: {\"error\":{\"message\":\"no\"}}\n\ndata: [DONE]\n\n"),
                        "no");
    assert_string_equal(verdict("data: {\"error\":\"a text\"}\n\n"), "a text");
    assert_string_equal(verdict("data: {\"error\":7}\n\n"), "an error without a message");
    assert_string_equal(verdict("data: nonsense\n\n"), "an event that is no JSON object");
    assert_string_equal(verdict("data: []\n\n"), "an event that is no JSON object");
    assert_string_equal(verdict("<html>not a stream</html>"), "the answer held no tokens");
    assert_string_equal(verdict("data: {\"choices\":[{\"text\":\"x\",\"finish_reason\":\"stop\"}],"
                                "\"error\":null,\"usage\":null}\n\n"),
                        "fine");
}

/* Bytes changed, left out and doubled at random. */
static void test_hostile_bytes(void **state)
{
    (void)state;
    hr_bench_random r;
    hr_bench_random_init(&r, 99, 0);
    for (int round = 0; round < 3000; round++) {
        hr_stream s;
        hr_buf texts = { 0 }, bytes = { 0 };
        for (size_t i = 0; i < sizeof answer - 1; i++) {
            uint64_t what = hr_bench_random_below(&r, 200);
            char any = (char)hr_bench_random_below(&r, 256);
            if (what) hr_buf_add_byte(&bytes, what == 1 ? any : answer[i]);
            if (what == 2) hr_buf_add_byte(&bytes, answer[i]);
        }
        hr_stream_init(&s, add_text, &texts);
        for (size_t i = 0; i < bytes.n;) {
            size_t n = 1 + (size_t)hr_bench_random_below(&r, 50);
            if (n > bytes.n - i) n = bytes.n - i;
            hr_stream_feed(&s, hr_str_slice(hr_buf_str(&bytes), i, i + n));
            i += n;
        }
        const char *wrong = hr_stream_finish(&s);
        assert_true(!wrong || strlen(wrong) < 256);
        assert_true(s.chunks <= 8 && s.completion_tokens >= -1);
        hr_stream_deinit(&s);
        hr_buf_deinit(&texts);
        hr_buf_deinit(&bytes);
    }
}

/* A line or an event without an end costs no more than its limit. */
static void test_endless_lines(void **state)
{
    (void)state;
    static char block[1 << 16];
    memset(block, 'x', sizeof block);
    hr_stream s;
    hr_stream_init(&s, NULL, NULL);
    for (int i = 0; i < 1024; i++) hr_stream_feed(&s, (hr_str){ block, sizeof block });
    assert_true(s.line.capacity <= (size_t)32 << 20);
    assert_non_null(hr_stream_finish(&s));
    hr_stream_deinit(&s);
    hr_stream_init(&s, NULL, NULL);
    block[sizeof block - 1] = '\n';
    memcpy(block, "data: ", 6);
    for (int i = 0; i < 1024; i++) hr_stream_feed(&s, (hr_str){ block, sizeof block });
    assert_true(s.data.capacity <= (size_t)32 << 20);
    assert_non_null(strstr(hr_stream_finish(&s), "16 MiB"));
    hr_stream_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),          cmocka_unit_test(test_reasoning_is_kept_apart),
        cmocka_unit_test(test_verdicts),      cmocka_unit_test(test_hostile_bytes),
        cmocka_unit_test(test_endless_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
