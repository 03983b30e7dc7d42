/* The tokenizer through its door: memory, provenance, what the arrays of a GGUF file mean.
 *
 * What ids a text has is asked of the `tokenizers` package, in tests/e2e/test_tokenizer.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>

#include "text/tokenizer.h"

/* Every byte has its character; a few words merge. */
#define ROOM 300
typedef struct fixture {
    hr_str tokens[ROOM];
    int32_t types[ROOM];
    char text[ROOM][8];
    hr_vocab_spec spec;
    hr_tokenizer *t;
} fixture;

static const hr_str merges[] = {
    { "h e", 3 }, { "l l", 3 }, { "he ll", 5 }, { "hell o", 6 }, { "\xC4\xA0 hello", 8 }
};

static int32_t add(fixture *f, const char *text, int32_t type)
{
    size_t i = f->spec.n_tokens++;
    f->tokens[i] = hr_str_c(text);
    f->types[i] = type;
    return (int32_t)i;
}

/* GPT-2's alphabet, as its encoder.py builds it. */
static void add_bytes(fixture *f)
{
    unsigned next = 256;
    for (unsigned b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        unsigned c = printable ? b : next++;
        char *p = f->text[b];
        if (c < 0x80) {
            p[0] = (char)c;
        } else {
            p[0] = (char)(0xC0 | c >> 6);
            p[1] = (char)(0x80 | (c & 0x3F));
        }
        add(f, p, 1);
    }
}

enum { HE = 256, LL, HELL, HELLO, SPACE_HELLO, BOS, END, WORD, N_TOKENS };

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->spec = (hr_vocab_spec){ .model = "gpt2",
                               .pre = "gpt-2",
                               .tokens = f->tokens,
                               .types = f->types,
                               .merges = merges,
                               .n_merges = 5,
                               .bos = BOS,
                               .eos = END,
                               .unk = -1,
                               .add_bos = -1,
                               .add_eos = -1,
                               .add_space_prefix = -1 };
    add_bytes(f);
    static const char *const words[] = { "he", "ll", "hell", "hello", "\xC4\xA0hello" };
    for (size_t i = 0; i < 5; i++) add(f, words[i], 1);
    add(f, "<s>", 3);
    add(f, "<end>", 3);
    add(f, "<word>", 4);
    *state = f;
    if (hr_tokenizer_create(&f->spec, &f->t)) fail_msg("%s", hr_message());
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    hr_tokenizer_destroy(f->t);
    free(f);
    return 0;
}

static void expect_ids(const hr_tokenizer *t, const hr_text_span *spans, size_t n,
                       hr_encode_flags flags, const int32_t *want, size_t n_want)
{
    hr_tokenizer_scratch s = { 0 };
    hr_ids ids = { 0 };
    if (hr_tokenizer_encode(t, spans, n, flags, &s, &ids)) fail_msg("%s", hr_message());
    assert_int_equal(ids.n, n_want);
    for (size_t i = 0; i < n_want; i++) assert_int_equal(ids.p[i], want[i]);
    hr_ids_deinit(&ids);
    hr_tokenizer_scratch_deinit(&s);
}

#define EXPECT(t, spans, flags, ...)                                                               \
    expect_ids(t, spans, sizeof(spans) / sizeof((spans)[0]), flags, (int32_t[]){ __VA_ARGS__ },    \
               sizeof((int32_t[]){ __VA_ARGS__ }) / sizeof(int32_t))

static void spans_are_one_text(void **state)
{
    fixture *f = *state;
    hr_text_span hello[] = { { HR_STR("he"), HR_SPAN_SPECIAL },
                             { HR_STR("llo h"), HR_SPAN_PLAIN },
                             { HR_STR("ello"), HR_SPAN_SPECIAL } };
    EXPECT(f->t, hello, HR_ENCODE_DEFAULT, HELLO, SPACE_HELLO);
}

static void special_tokens_are_of_the_template(void **state)
{
    fixture *f = *state;
    hr_text_span spans[] = { { HR_STR("<s>"), HR_SPAN_SPECIAL },
                             { HR_STR("<end>"), HR_SPAN_PLAIN },
                             { HR_STR("<end>"), HR_SPAN_SPECIAL } };
    EXPECT(f->t, spans, HR_ENCODE_DEFAULT, BOS, '<', 'e', 'n', 'd', '>', END);
    hr_text_span split[] = { { HR_STR("<e"), HR_SPAN_PLAIN }, { HR_STR("nd>"), HR_SPAN_SPECIAL } };
    EXPECT(f->t, split, HR_ENCODE_DEFAULT, '<', 'e', 'n', 'd', '>');
    hr_text_span joined[] = { { HR_STR("<e"), HR_SPAN_SPECIAL },
                              { HR_STR(""), HR_SPAN_PLAIN },
                              { HR_STR("nd>"), HR_SPAN_SPECIAL } };
    EXPECT(f->t, joined, HR_ENCODE_DEFAULT, END);
    hr_text_span word[] = { { HR_STR("<word>"), HR_SPAN_PLAIN } };
    EXPECT(f->t, word, HR_ENCODE_DEFAULT, WORD);
}

static void text_may_hold_nul(void **state)
{
    fixture *f = *state;
    hr_text_span nul[] = { { { "\0hello\0", 7 }, HR_SPAN_SPECIAL } };
    int32_t zero = hr_tokenizer_find(f->t, HR_STR("\xC4\x80"));
    assert_int_equal(zero, 0);
    EXPECT(f->t, nul, HR_ENCODE_DEFAULT, zero, HELLO, zero);
}

static void ends_are_added_when_asked(void **state)
{
    fixture *f = *state;
    hr_text_span hello[] = { { HR_STR("hello"), HR_SPAN_SPECIAL } };
    f->spec.add_bos = f->spec.add_eos = 1;
    hr_tokenizer *t;
    assert_int_equal(hr_tokenizer_create(&f->spec, &t), HR_OK);
    EXPECT(t, hello, HR_ENCODE_ADD_SPECIAL, BOS, HELLO, END);
    EXPECT(t, hello, HR_ENCODE_DEFAULT, HELLO);
    EXPECT(f->t, hello, HR_ENCODE_ADD_SPECIAL, HELLO);
    hr_tokenizer_destroy(t);
}

static void tokens_can_be_asked_for(void **state)
{
    fixture *f = *state;
    assert_int_equal(hr_tokenizer_size(f->t), N_TOKENS);
    assert_true(hr_str_eq_c(hr_tokenizer_token_text(f->t, SPACE_HELLO), "\xC4\xA0hello"));
    assert_true(hr_str_eq_c(hr_tokenizer_token_bytes(f->t, SPACE_HELLO), " hello"));
    assert_true(hr_str_eq_c(hr_tokenizer_token_bytes(f->t, END), "<end>"));
    assert_true(hr_tokenizer_is_special(f->t, END));
    assert_false(hr_tokenizer_is_special(f->t, WORD));
    assert_int_equal(hr_tokenizer_find(f->t, HR_STR("<end>")), END);
    assert_int_equal(hr_tokenizer_find(f->t, HR_STR("nothing")), -1);
    for (int32_t id = -2; id < N_TOKENS + 2; id++) {
        bool names = id >= 0 && id < N_TOKENS;
        assert_int_equal(hr_tokenizer_token_bytes(f->t, id).n > 0, names);
    }
    for (unsigned b = 0; b < 256; b++) {
        hr_str bytes = hr_tokenizer_token_bytes(f->t, (int32_t)b);
        assert_int_equal(bytes.n, 1);
        assert_int_equal((unsigned char)bytes.p[0], b);
    }
}

static void bad_text_is_refused(void **state)
{
    fixture *f = *state;
    hr_tokenizer_scratch s = { 0 };
    hr_ids ids = { 0 };
    hr_text_span bad = { HR_STR("a\xFFz"), HR_SPAN_SPECIAL };
    assert_int_equal(hr_tokenizer_encode(f->t, &bad, 1, HR_ENCODE_DEFAULT, &s, &ids),
                     HR_INVALID_ARGUMENT);
    assert_int_equal(ids.n, 0);
    /* a character over two spans is one character */
    hr_text_span halves[] = { { HR_STR("\xC3"), HR_SPAN_SPECIAL },
                              { HR_STR("\xA9"), HR_SPAN_SPECIAL } };
    assert_int_equal(hr_tokenizer_encode(f->t, halves, 2, HR_ENCODE_DEFAULT, &s, &ids), HR_OK);
    assert_int_equal(ids.n, 2);
    assert_int_equal(hr_tokenizer_encode(f->t, NULL, 0, HR_ENCODE_DEFAULT, &s, &ids), HR_OK);
    assert_int_equal(ids.n, 2);
    hr_ids_deinit(&ids);
    hr_tokenizer_scratch_deinit(&s);
}

static void warm_encoding_allocates_nothing(void **state)
{
    fixture *f = *state;
    f->spec.pre = "qwen2"; /* NFC as well */
    hr_tokenizer *t;
    assert_int_equal(hr_tokenizer_create(&f->spec, &t), HR_OK);
    hr_tokenizer_scratch s = { 0 };
    hr_ids ids = { 0 };
    hr_text_span spans[] = {
        { HR_STR("<s>hello 123 o\xCC\xA3\xCC\x82 hello hello"), HR_SPAN_SPECIAL },
        { HR_STR("\n\n  <end> hello\xE2\x80\x99s \xE4\xBD\xA0\xE5\xA5\xBD"), HR_SPAN_PLAIN },
    };
    assert_int_equal(hr_tokenizer_encode(t, spans, 2, HR_ENCODE_ADD_SPECIAL, &s, &ids), HR_OK);
    uint64_t before = hr_alloc_count();
    for (int i = 0; i < 10; i++) {
        ids.n = 0;
        assert_int_equal(hr_tokenizer_encode(t, spans, 2, HR_ENCODE_ADD_SPECIAL, &s, &ids), HR_OK);
    }
    assert_int_equal(hr_alloc_count(), before);
    hr_ids_deinit(&ids);
    hr_tokenizer_scratch_deinit(&s);
    hr_tokenizer_destroy(t);
}

/* ---- short memory ------------------------------------------------------------------------------
 */

static long left; /* allocations that still succeed */

static void *short_alloc(void *self, size_t bytes, size_t align)
{
    (void)self, (void)align;
    return left-- > 0 ? malloc(bytes) : NULL;
}

static void *short_realloc(void *self, void *p, size_t bytes)
{
    (void)self;
    return left-- > 0 ? realloc(p, bytes) : NULL;
}

static void short_free(void *self, void *p)
{
    (void)self;
    free(p);
}

static hr_status load_and_encode(const hr_vocab_spec *spec)
{
    hr_tokenizer *t;
    hr_tokenizer_scratch s = { 0 };
    hr_ids ids = { 0 };
    hr_buf out = { 0 };
    hr_text_span spans[] = { { HR_STR("<s>hello o\xCC\xA3\xCC\x82"), HR_SPAN_SPECIAL },
                             { HR_STR(" hello 12"), HR_SPAN_PLAIN } };
    hr_status st = hr_tokenizer_create(spec, &t);
    if (!st) st = hr_tokenizer_encode(t, spans, 2, HR_ENCODE_ADD_SPECIAL, &s, &ids);
    if (!st) st = hr_tokenizer_decode(t, ids.p, ids.n, HR_DECODE_DEFAULT, &out);
    hr_buf_deinit(&out);
    hr_ids_deinit(&ids);
    hr_tokenizer_scratch_deinit(&s);
    hr_tokenizer_destroy(t);
    return st;
}

static void every_allocation_may_fail(void **state)
{
    fixture *f = *state;
    const hr_allocator scarce = { short_alloc, short_realloc, short_free, NULL };
    static const char *const names[] = { "qwen2", "llama-bpe", "smollm" };
    for (int i = 0; i < 3; i++) {
        f->spec.pre = names[i];
        hr_set_allocator(&scarce);
        hr_status st = HR_RESOURCE_EXHAUSTED;
        long n = 0;
        for (; st == HR_RESOURCE_EXHAUSTED && n < 100000; n++) {
            left = n;
            st = load_and_encode(&f->spec);
        }
        hr_set_allocator(NULL);
        if (st) fail_msg("after %ld allocations: %s", n, hr_message());
        assert_true(n > 20);
    }
}

/* ---- sharing -----------------------------------------------------------------------------------
 */

static void *encode_often(void *arg)
{
    const fixture *f = arg;
    hr_tokenizer_scratch s = { 0 };
    hr_ids ids = { 0 };
    hr_text_span text = { HR_STR("<s> hello hello's 12 hell\n\n hello"), HR_SPAN_SPECIAL };
    bool same = true;
    hr_ids first = { 0 };
    hr_status st = hr_tokenizer_encode(f->t, &text, 1, HR_ENCODE_DEFAULT, &s, &first);
    for (int i = 0; i < 2000 && !st; i++) {
        ids.n = 0;
        st = hr_tokenizer_encode(f->t, &text, 1, HR_ENCODE_DEFAULT, &s, &ids);
        same = same && ids.n == first.n && memcmp(ids.p, first.p, ids.n * sizeof *ids.p) == 0;
    }
    hr_ids_deinit(&first);
    hr_ids_deinit(&ids);
    hr_tokenizer_scratch_deinit(&s);
    return st || !same ? arg : NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, *state), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

/* ---- refusals ----------------------------------------------------------------------------------
 */

static void refuses(const hr_vocab_spec *spec, hr_status code, const char *naming)
{
    hr_tokenizer *t;
    assert_int_equal(hr_tokenizer_create(spec, &t), code);
    assert_null(t);
    if (!strstr(hr_message(), naming)) fail_msg("'%s' does not name %s", hr_message(), naming);
}

static void broken_arrays_are_refused(void **state)
{
    fixture *f = *state;
    hr_vocab_spec s = f->spec;
    s.model = "t5";
    refuses(&s, HR_UNIMPLEMENTED, "'t5'");
    s.model = NULL;
    refuses(&s, HR_UNIMPLEMENTED, "tokenizer.ggml.model");
    s = f->spec;
    s.pre = "qwen3-next";
    refuses(&s, HR_UNIMPLEMENTED, "'qwen3-next'");
    s = f->spec;
    s.add_bos = 1;
    s.bos = N_TOKENS;
    refuses(&s, HR_OUT_OF_RANGE, "bos_token_id");
    s.bos = -1;
    refuses(&s, HR_OUT_OF_RANGE, "bos_token_id");
    s = f->spec;
    s.add_space_prefix = 1;
    refuses(&s, HR_UNIMPLEMENTED, "add_space_prefix");
    static const hr_str none[] = { { "he", 2 } }, unknown[] = { { "he zz", 5 } };
    s = f->spec;
    s.n_merges = 1;
    s.merges = none;
    refuses(&s, HR_INVALID_ARGUMENT, "is not two tokens");
    s.merges = unknown;
    refuses(&s, HR_INVALID_ARGUMENT, "'zz'");
    f->types[3] = 9;
    refuses(&f->spec, HR_INVALID_ARGUMENT, "token_type");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(spans_are_one_text),
        TEST(special_tokens_are_of_the_template),
        TEST(text_may_hold_nul),
        TEST(ends_are_added_when_asked),
        TEST(tokens_can_be_asked_for),
        TEST(bad_text_is_refused),
        TEST(warm_encoding_allocates_nothing),
        TEST(every_allocation_may_fail),
        TEST(threads_share_a_tokenizer),
        TEST(broken_arrays_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
