/* Streaming detokenisation: never half a character, always what whole decoding gives.
 *
 * The vocabulary is the 256 bytes, two special tokens and random scraps of characters; the oracle
 * for ill-formed text is the table of Unicode 16, 3.9 (maximal subparts). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "text/tokenizer.h"
#include "unit/byte_vocab.h"

#define FFFD "\xEF\xBF\xBD"
enum { SPECIAL = 256, HOLE = 300, LAST = 301 };

static hr_tokenizer *tokenizer;

/* A tokenizer.json of the byte alphabet, a special token and one behind a hole. */
static int setup(void **state)
{
    (void)state;
    hr_buf json = { 0 };
    byte_vocab_begin(&json);
    hr_buf_add_c(&json, "{\"id\":256,\"content\":\"<end>\",\"special\":true},"
                        "{\"id\":301,\"content\":\"<w\xE2\x82\xAC>\",\"special\":false}],"
                        "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},"
                        "\"decoder\":{\"type\":\"ByteLevel\"}}");
    if (hr_tokenizer_load_json(hr_buf_str(&json), &tokenizer)) fail_msg("%s", hr_message());
    hr_buf_deinit(&json);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    hr_tokenizer_destroy(tokenizer);
    return 0;
}

/* Every push must leave valid UTF-8 behind. */
static void stream(const int32_t *ids, size_t n, hr_decode_flags flags, hr_buf *out)
{
    hr_detok d;
    hr_detok_init(&d, tokenizer, flags);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(hr_detok_push(&d, ids[i], out), HR_OK);
        assert_true(hr_utf8_valid(hr_buf_str(out)));
    }
    assert_int_equal(hr_detok_flush(&d, out), HR_OK);
    assert_true(hr_utf8_valid(hr_buf_str(out)));
}

static void check_both(const int32_t *ids, size_t n, hr_decode_flags flags, const char *want)
{
    hr_buf whole = { 0 }, parts = { 0 };
    stream(ids, n, flags, &parts);
    assert_int_equal(hr_tokenizer_decode(tokenizer, ids, n, flags, &whole), HR_OK);
    assert_true(hr_str_eq(hr_buf_str(&whole), hr_buf_str(&parts)));
    if (want && !hr_str_eq_c(hr_buf_str(&whole), want))
        fail_msg("'%s' instead of '%s'", hr_buf_c(&whole), want);
    hr_buf_deinit(&whole);
    hr_buf_deinit(&parts);
}

static void check_bytes(const char *bytes, const char *want)
{
    int32_t ids[64];
    size_t n = strlen(bytes);
    for (size_t i = 0; i < n; i++) ids[i] = (unsigned char)bytes[i];
    check_both(ids, n, HR_DECODE_DEFAULT, want);
}

static void ill_formed_text_becomes_fffd(void **state)
{
    (void)state;
    check_bytes("plain", "plain");
    check_bytes("\xF0\x9F\x99\x82", "\xF0\x9F\x99\x82");
    check_bytes("\xF0\x9F\x99", FFFD); /* C02: cut in a character */
    check_bytes("a\xF0\x9F\x99z", "a" FFFD "z");
    check_bytes("\xF0\x9F\xF0\x9F\x99\x82", FFFD "\xF0\x9F\x99\x82");
    /* Unicode 16, tables 3-8 to 3-11 */
    check_bytes("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                "A",
                FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A");
    check_bytes("\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                "A",
                FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A");
    check_bytes("\xF4\x91\x92\x93\xFF"
                "A\x80\xBF"
                "B",
                FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B");
    check_bytes("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                "A",
                FFFD FFFD FFFD FFFD "A");
}

static void special_tokens_can_be_skipped(void **state)
{
    (void)state;
    const int32_t ids[] = { 'a', SPECIAL, LAST, HOLE, -1, 100000, 'b' };
    check_both(ids, 7, HR_DECODE_DEFAULT, "a<end><w\xE2\x82\xAC>b");
    check_both(ids, 7, HR_DECODE_SKIP_SPECIAL, "a<w\xE2\x82\xAC>b");
    /* what is skipped is not there: the character goes on behind it */
    const int32_t inside[] = { 0xC3, SPECIAL, 0xA9 };
    check_both(inside, 3, HR_DECODE_SKIP_SPECIAL, "\xC3\xA9");
    check_both(inside, 3, HR_DECODE_DEFAULT, FFFD "<end>" FFFD);
}

static void random_ids_stream_as_they_decode(void **state)
{
    (void)state;
    static const unsigned char leads[] = { 0xC3, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98, 0x80, 0xED };
    uint64_t x = 88172645463325252u;
    for (int round = 0; round < 20000; round++) {
        int32_t ids[24];
        for (size_t i = 0; i < 24; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17; /* Marsaglia's xorshift64 */
            unsigned pick = (unsigned)(x >> 32);
            ids[i] = pick % 3 ? leads[pick / 3 % sizeof leads] : (int32_t)(pick / 3 % (LAST + 1));
        }
        check_both(ids, 24, round % 2 ? HR_DECODE_SKIP_SPECIAL : HR_DECODE_DEFAULT, NULL);
    }
}

static void flush_makes_ready_for_a_new_text(void **state)
{
    (void)state;
    hr_detok d;
    hr_buf out = { 0 };
    hr_detok_init(&d, tokenizer, HR_DECODE_DEFAULT);
    assert_int_equal(hr_detok_push(&d, 0xE2, &out), HR_OK);
    assert_int_equal(out.n, 0);
    assert_int_equal(hr_detok_flush(&d, &out), HR_OK);
    assert_int_equal(hr_detok_flush(&d, &out), HR_OK);
    assert_int_equal(hr_detok_push(&d, 0x82, &out), HR_OK);
    assert_true(hr_str_eq_c(hr_buf_str(&out), FFFD FFFD));
    hr_buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ill_formed_text_becomes_fffd),
        cmocka_unit_test(special_tokens_can_be_skipped),
        cmocka_unit_test(random_ids_stream_as_they_decode),
        cmocka_unit_test(flush_makes_ready_for_a_new_text),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
