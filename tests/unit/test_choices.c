/* Choice among texts: what may come next, against the definition asked of every token in turn.
 *
 * The vocabulary is the 256 bytes, words of a few letters, and a special token that is spelt
 * like text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "text/choices.h"
#include "unit/byte_vocab.h"

enum { SCRAPS = 200, SPECIAL = 256 + SCRAPS, SIZE = SPECIAL + 1, WORDS = (SIZE + 31) / 32 };

static hr_tokenizer *tokenizer;
static hr_token_index vocabulary;

static uint32_t random_state;
static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

/* Letters a to c, so that much begins alike. */
static size_t random_word(char *to, size_t most)
{
    size_t n = 1 + random_below((uint32_t)most);
    for (size_t i = 0; i < n; i++) to[i] = (char)('a' + random_below(3));
    return n;
}

/* The words of two letters, then those of three … */
static size_t scrap(unsigned number, char *to)
{
    size_t n = 2;
    unsigned words = 9;
    for (; number >= words; words *= 3, n++) number -= words;
    for (size_t i = n; i-- > 0; number /= 3) to[i] = (char)('a' + number % 3);
    return n;
}

static int setup(void **state)
{
    (void)state;
    hr_buf json = { 0 };
    byte_vocab_begin(&json);
    for (unsigned i = 0, number = 0; i < SCRAPS; number++) {
        char word[8];
        size_t n = scrap(number, word);
        if (n == 3 && !memcmp(word, "aab", 3)) continue; /* the special one */
        hr_buf_printf(&json, "{\"id\":%u,\"content\":\"%.*s\",\"special\":false},", 256 + i++,
                      (int)n, word);
    }
    hr_buf_printf(
        &json,
        "{\"id\":%d,\"content\":\"aab\",\"special\":true}],"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"}}",
        SPECIAL);
    hr_status st = hr_tokenizer_load_json(hr_buf_str(&json), &tokenizer);
    if (!st) st = hr_token_index_init(&vocabulary, tokenizer);
    if (st) fail_msg("%s", hr_message());
    hr_buf_deinit(&json);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    hr_token_index_deinit(&vocabulary);
    hr_tokenizer_destroy(tokenizer);
    return 0;
}

/* A token may come when some text begins with what there is and the token's bytes. */
static bool may_come(const hr_str *texts, size_t n, hr_str so_far, int32_t id)
{
    hr_str bytes = hr_tokenizer_token_bytes(tokenizer, id);
    if (!bytes.n || hr_tokenizer_is_special(tokenizer, id)) return false;
    for (size_t i = 0; i < n; i++) {
        if (!hr_str_starts(texts[i], so_far)) continue;
        if (hr_str_starts(hr_str_slice(texts[i], so_far.n, texts[i].n), bytes)) return true;
    }
    return false;
}

static bool is_one(const hr_str *texts, size_t n, hr_str s)
{
    for (size_t i = 0; i < n; i++)
        if (hr_str_eq(texts[i], s)) return true;
    return false;
}

/* Any way through the texts, token by token at random. */
static void walk(const hr_choices *c, const hr_str *texts, size_t n)
{
    char so_far[64];
    size_t length = 0;
    hr_choice_state s = hr_choices_start(c);
    for (;;) {
        uint32_t words[WORDS] = { 0 };
        int32_t allowed[SIZE], count = 0;
        hr_str text = { so_far, length };
        hr_choices_next(c, &s, words, WORDS);
        for (int32_t id = 0; id < SIZE; id++) {
            bool bit = words[id / 32] >> (id % 32) & 1;
            if (bit != may_come(texts, n, text, id))
                fail_msg("token %d after '%.*s'", id, HR_STR_ARG(text));
            if (bit) allowed[count++] = id;
        }
        assert_int_equal(hr_choices_complete(c, &s), is_one(texts, n, text));
        if (!count) break;
        int32_t id = allowed[random_below((uint32_t)count)];
        hr_str bytes = hr_tokenizer_token_bytes(tokenizer, id);
        memcpy(so_far + length, bytes.p, bytes.n);
        length += bytes.n;
        hr_choices_take(c, &s, id);
    }
    assert_true(is_one(texts, n, (hr_str){ so_far, length }));
}

static void test_random_texts(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 300; seed++) {
        char bytes[20][16];
        hr_str texts[20];
        hr_arena arena = { 0 };
        hr_choices c;
        random_state = seed;
        size_t n = 1 + random_below(20);
        for (size_t i = 0; i < n; i++)
            texts[i] = (hr_str){ bytes[i], random_word(bytes[i], seed % 3 ? 14 : 3) };
        assert_int_equal(hr_choices_init(&c, &arena, &vocabulary, texts, n), HR_OK);
        for (int i = 0; i < 5; i++) walk(&c, texts, n);
        hr_arena_deinit(&arena);
    }
}

/* Halves of characters are tokens like others, and NUL is a byte like others. */
static void test_any_bytes(void **state)
{
    (void)state;
    const hr_str texts[] = { HR_STR("\xE6\x97\xA5"), HR_STR("\xE6\x97"), HR_STR("\0a\0"),
                             HR_STR("\xFF") };
    hr_arena arena = { 0 };
    hr_choices c;
    random_state = 5;
    assert_int_equal(hr_choices_init(&c, &arena, &vocabulary, texts, 4), HR_OK);
    for (int i = 0; i < 20; i++) walk(&c, texts, 4);
    hr_arena_deinit(&arena);
}

/* What was not allowed leaves nothing, and a short mask is not overrun. */
static void test_edges(void **state)
{
    (void)state;
    const hr_str texts[] = { HR_STR("abc"), HR_STR("abc"), HR_STR("ab") };
    hr_arena arena = { 0 };
    hr_choices c;
    uint32_t words[WORDS] = { 0 };
    assert_int_equal(hr_choices_init(&c, &arena, &vocabulary, texts, 3), HR_OK);
    assert_int_equal(c.n, 2); /* each once */
    hr_choice_state s = hr_choices_start(&c);
    hr_choices_next(&c, &s, words, 1); /* ids below 32 alone */
    for (int i = 0; i < WORDS; i++) assert_int_equal(words[i], 0);
    hr_choices_take(&c, &s, 'x');
    hr_choices_next(&c, &s, words, WORDS);
    for (int i = 0; i < WORDS; i++) assert_int_equal(words[i], 0);
    assert_false(hr_choices_complete(&c, &s));
    hr_arena_deinit(&arena);
}

static void refused(const hr_str *texts, size_t n, const char *why)
{
    hr_arena arena = { 0 };
    hr_choices c;
    assert_int_equal(hr_choices_init(&c, &arena, &vocabulary, texts, n), HR_INVALID_ARGUMENT);
    if (!strstr(hr_message(), why)) fail_msg("%s", hr_message());
    hr_arena_deinit(&arena);
}

static void test_refusals(void **state)
{
    (void)state;
    static char longest[HR_CHOICE_MAX_BYTES + 1];
    static hr_str many[HR_CHOICES_MAX + 1];
    memset(longest, 'a', sizeof longest);
    for (size_t i = 0; i <= HR_CHOICES_MAX; i++) many[i] = (hr_str){ longest, 1024 };
    refused(NULL, 0, "empty");
    refused((hr_str[]){ HR_STR("a"), HR_STR("") }, 2, "text 1 is empty");
    refused(many, HR_CHOICES_MAX + 1, "1025 texts");
    refused(many, HR_CHOICES_MAX, "bytes of text");
    refused(&(hr_str){ longest, sizeof longest }, 1, "4097 bytes");
}

/* A vocabulary that lacks a byte. */
static void test_no_token_for_a_byte(void **state)
{
    (void)state;
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"b\":1,"
        "\"bc\":2}},\"pre_tokenizer\":{\"type\":\"ByteLevel\"},"
        "\"decoder\":{\"type\":\"ByteLevel\"}}";
    hr_tokenizer *t;
    hr_token_index x;
    hr_arena arena = { 0 };
    hr_choices c;
    assert_int_equal(hr_tokenizer_load_json(HR_STR(json), &t), HR_OK);
    assert_int_equal(hr_token_index_init(&x, t), HR_OK);
    hr_str spelt = HR_STR("abab"), other = HR_STR("abca");
    assert_int_equal(hr_choices_init(&c, &arena, &x, &spelt, 1), HR_OK);
    /* "a", "bc", "a" would do; but "b" may come first, and then nothing */
    assert_int_equal(hr_choices_init(&c, &arena, &x, &other, 1), HR_INVALID_ARGUMENT);
    assert_non_null(strstr(hr_message(), "byte 2"));
    hr_arena_deinit(&arena);
    hr_token_index_deinit(&x);
    hr_tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_texts),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_token_for_a_byte),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
