/* Normalizers that rewrite a text: Prepend, Replace, Lowercase, Strip, ByteLevel.
 *
 * Run on the caller's thread and scratch, called by normalize.c. Each writes a new text and, where
 * somebody asked, says for every byte of it whether it came from data. What each does to a text's
 * very beginning matters to Metaspace, which asks whether a piece lies where the text began. */
#include "text/text_int.h"

#include "base/utf8.h"

hr_status hr_normalize_prepend(const hr_normalizer *stage, hr_str in, const char *plain,
                               hr_normalize_scratch *s, hr_marked_text *out)
{
    (void)s;
    if (in.n == 0) return HR_OK;
    hr_marked_put(out, stage->to, plain && plain[0], plain);
    hr_buf_add_str(&out->bytes, in);
    if (plain) hr_buf_add(&out->plain, plain, in.n);
    return HR_OK;
}

/* Copies in[from, to) as it is. */
static void copy(hr_str in, const char *plain, size_t from, size_t to, hr_marked_text *out)
{
    hr_buf_add_str(&out->bytes, hr_str_slice(in, from, to));
    if (plain) hr_buf_add(&out->plain, plain + from, to - from);
}

/* Writes what a part of the text, of data or not, became. */
static void put_changed(hr_normalize_scratch *s, hr_str changed, bool data, bool marked,
                        hr_marked_text *out)
{
    hr_marked_put(out, changed, data, marked);
    if (out->bytes.n == 0) s->lost_front = true;
}

/* The byte behind the next `chars` characters from byte `at`. */
static size_t skip_chars(hr_str text, size_t at, size_t chars)
{
    for (size_t len; chars > 0; chars--, at += len)
        hr_utf8_decode(hr_str_slice(text, at, text.n), &len);
    return at;
}

static hr_status replace_pattern(const hr_normalizer *stage, hr_str in, const char *plain,
                                 hr_normalize_scratch *s, hr_marked_text *out)
{
    if (!s->matcher.data) HR_TRY(hr_matcher_init(&s->matcher));
    HR_TRY(hr_pattern_classify(stage->pattern, in, &s->kinds));
    size_t done = 0, done_chars = 0, last_end = SIZE_MAX;
    for (size_t at = 0; at <= s->kinds.n;) {
        size_t first, end;
        HR_TRY(
            hr_pattern_find(stage->pattern, hr_buf_str(&s->kinds), at, &s->matcher, &first, &end));
        if (first == SIZE_MAX) break;
        if (first == end && end == last_end) { /* nothing, just behind a match: look further */
            at++;
            continue;
        }
        at = last_end = end;
        size_t from = skip_chars(in, done, first - done_chars);
        size_t to = skip_chars(in, from, end - first);
        copy(in, plain, done, from, out);
        put_changed(s, stage->to, hr_any_plain(plain, from, to), plain, out);
        done = to;
        done_chars = end;
    }
    copy(in, plain, done, in.n, out);
    return HR_OK;
}

hr_status hr_normalize_replace(const hr_normalizer *stage, hr_str in, const char *plain,
                               hr_normalize_scratch *s, hr_marked_text *out)
{
    if (stage->pattern) return replace_pattern(stage, in, plain, s, out);
    size_t done = 0;
    for (size_t hit; (hit = hr_str_find(in, stage->from, done)) != SIZE_MAX;) {
        copy(in, plain, done, hit, out);
        done = hit + stage->from.n;
        put_changed(s, stage->to, hr_any_plain(plain, hit, done), plain, out);
    }
    copy(in, plain, done, in.n, out);
    return HR_OK;
}

hr_status hr_normalize_lower(const hr_normalizer *stage, hr_str in, const char *plain,
                             hr_normalize_scratch *s, hr_marked_text *out)
{
    (void)stage, (void)s;
    for (size_t i = 0, len; i < in.n; i += len) {
        char text[8];
        uint32_t c = hr_utf8_decode(hr_str_slice(in, i, in.n), &len);
        size_t n = hr_utf8_encode(c == 0x130 ? 'i' : hr_unicode_to_lower(c), text);
        if (c == 0x130) n += hr_utf8_encode(0x307, text + n);
        hr_marked_put(out, (hr_str){ text, n }, hr_any_plain(plain, i, i + len), plain);
    }
    return HR_OK;
}

hr_status hr_normalize_strip(const hr_normalizer *stage, hr_str in, const char *plain,
                             hr_normalize_scratch *s, hr_marked_text *out)
{
    size_t from = 0, to = in.n, len;
    while (stage->front && from < to &&
           hr_unicode_is_space(hr_utf8_decode(hr_str_slice(in, from, to), &len)))
        from += len;
    while (stage->behind && to > from && hr_unicode_is_space(hr_utf8_before(in, to, &len)))
        to -= len;
    if (from > 0) s->lost_front = true;
    copy(in, plain, from, to, out);
    return HR_OK;
}

hr_status hr_normalize_bytes(const hr_normalizer *stage, hr_str in, const char *plain,
                             hr_normalize_scratch *s, hr_marked_text *out)
{
    (void)stage, (void)s;
    hr_bytes_add_text(&out->bytes, in);
    for (size_t i = 0; plain && i < in.n; i++) {
        char text[4];
        size_t n = hr_utf8_encode(hr_bytes_to_char((uint8_t)in.p[i]), text);
        for (size_t k = 0; k < n; k++) hr_buf_add_byte(&out->plain, plain[i]);
    }
    return HR_OK;
}
