/* A tokenizer.json, a NUL, a text: whatever the file says, it is refused in words or makes a
 * tokenizer; that one encodes any text or says why not, twice the same, and what it decodes is
 * UTF-8, one id at a time as all at once. */
#include "fuzz/fuzz.h"
#include "text/tokenizer.h"

#include "base/utf8.h"

static void check_decoding(const hr_tokenizer *t, const hr_ids *ids)
{
    hr_buf whole = { 0 }, parts = { 0 };
    hr_detok d;
    fuzz_require(!hr_tokenizer_decode(t, ids->p, ids->n, HR_DECODE_DEFAULT, &whole), "memory");
    hr_detok_init(&d, t, HR_DECODE_DEFAULT);
    for (size_t i = 0; i < ids->n; i++) {
        fuzz_require(!hr_detok_push(&d, ids->p[i], &parts), "memory");
        fuzz_require(hr_utf8_valid(hr_buf_str(&parts)), "half a character is never shown");
    }
    fuzz_require(!hr_detok_flush(&d, &parts), "memory");
    fuzz_require(hr_str_eq(hr_buf_str(&whole), hr_buf_str(&parts)), "a stream is the whole text");
    hr_buf_deinit(&whole);
    hr_buf_deinit(&parts);
}

static void check_encoding(const hr_tokenizer *t, hr_str text)
{
    hr_tokenizer_scratch s = { 0 };
    hr_ids ids = { 0 }, again = { 0 };
    hr_text_span span = { text, HR_SPAN_SPECIAL };
    hr_status st = hr_tokenizer_encode(t, &span, 1, HR_ENCODE_ADD_SPECIAL, &s, &ids);
    fuzz_require(st != HR_INTERNAL, "a text is never our bug");
    if (!st) {
        fuzz_require(!hr_tokenizer_encode(t, &span, 1, HR_ENCODE_ADD_SPECIAL, &s, &again),
                     "memory");
        fuzz_require(again.n == ids.n && (ids.n == 0 || !memcmp(ids.p, again.p, 4 * ids.n)),
                     "the same text is the same ids");
        for (size_t i = 0; i < ids.n; i++)
            fuzz_require(ids.p[i] >= 0 && (size_t)ids.p[i] < hr_tokenizer_size(t),
                         "ids are tokens");
        check_decoding(t, &ids);
    }
    hr_ids_deinit(&ids);
    hr_ids_deinit(&again);
    hr_tokenizer_scratch_deinit(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    size_t end = 0;
    while (end < n && data[end]) end++;
    hr_tokenizer *t;
    hr_status st = hr_tokenizer_load_json((hr_str){ (const char *)data, end }, &t);
    fuzz_require(st != HR_INTERNAL, "a file is never our bug");
    fuzz_require(!st || hr_message()[0], "a refusal has its words");
    if (st) return 0;
    hr_buf text = { 0 };
    if (end < n) hr_utf8_add_replaced(&text, (hr_str){ (const char *)data + end + 1, n - end - 1 });
    fuzz_require(!hr_buf_status(&text), "memory");
    check_encoding(t, hr_buf_str(&text));
    hr_buf_deinit(&text);
    hr_tokenizer_destroy(t);
    return 0;
}
