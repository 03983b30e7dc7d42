/* Normalizers: a table of small functions from a text to a text, provenance carried along; those
 * other than the Unicode forms are rewrite.c's.
 *
 * Runs on the caller's thread and scratch. Unicode forms use utf8proc for what single characters
 * decompose to and for composing, in pieces: a character that nothing composes with from the left
 * begins a new piece, so memory is that of one character with its marks, marks are sorted by
 * counting (a million of them stay linear), and each piece knows whether it came from data.
 * Hugging Face's tables are those of Unicode 9.0: younger characters stand alone here too. */
#include "text/text_int.h"

#include <utf8proc.h>

#include "base/utf8.h"

/* Nothing below composes with what is before it, nor changes under NFC. */
#define FIRST_UNSAFE 0x300u
/* Every lead byte of a character ≥ U+0300 is at least this. */
#define FIRST_UNSAFE_LEAD 0xCC
/* Most characters that one decomposes to (U+FDFA). */
#define MOST_PARTS 18
#define LAST_CLASS 255
#define FORM_NFC   (UTF8PROC_COMPOSE | UTF8PROC_STABLE)

void hr_marked_put(hr_marked_text *out, hr_str bytes, bool plain, bool marked)
{
    hr_buf_add_str(&out->bytes, bytes);
    if (!marked) return;
    char *to = hr_buf_reserve(&out->plain, bytes.n);
    if (!to) return;
    memset(to, plain, bytes.n);
    out->plain.n += bytes.n;
}

/* ---- Unicode forms ----------------------------------------------------------------------------
 */

static int combining_class(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* May `c`, the first part of a decomposed character, compose or reorder with what is before it? */
static bool clings(int32_t c)
{
    if (c < (int32_t)FIRST_UNSAFE) return false;
    hr_category k = hr_unicode_category((uint32_t)c);
    bool jamo = (c >= 0x1161 && c <= 0x1175) || (c >= 0x11A8 && c <= 0x11C2);
    return jamo || k == HR_MN || k == HR_MC || k == HR_ME || combining_class(c) != 0;
}

/* Sorts marks by combining class, equal ones in the order they came. */
static hr_status sort_marks(hr_normalize_scratch *s, int32_t *marks, size_t n)
{
    size_t start[LAST_CLASS + 2] = { 0 };
    HR_TRY(hr_grow((void **)&s->sorted, &s->sorted_capacity, n, sizeof *s->sorted));
    for (size_t i = 0; i < n; i++) start[combining_class(marks[i]) + 1]++;
    for (int k = 0; k < LAST_CLASS; k++) start[k + 1] += start[k];
    for (size_t i = 0; i < n; i++) s->sorted[start[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, s->sorted, n * sizeof *marks);
    return HR_OK;
}

static hr_status order_marks(hr_normalize_scratch *s)
{
    for (size_t i = 0, end; i < s->n; i = end + 1) {
        end = i;
        bool sorted = true;
        while (end < s->n && combining_class(s->chars[end]) != 0) {
            sorted = sorted && (end == i || combining_class(s->chars[end]) >=
                                                combining_class(s->chars[end - 1]));
            end++;
        }
        if (!sorted) HR_TRY(sort_marks(s, s->chars + i, end - i));
    }
    return HR_OK;
}

/* Writes the piece gathered in s->chars and empties it. */
static hr_status write_piece(int form, hr_normalize_scratch *s, bool plain, bool marked,
                             hr_marked_text *out)
{
    if (s->n > 1) {
        HR_TRY(order_marks(s));
        if (form & UTF8PROC_COMPOSE) {
            utf8proc_ssize_t n = utf8proc_normalize_utf32(s->chars, (utf8proc_ssize_t)s->n,
                                                          UTF8PROC_COMPOSE | UTF8PROC_STABLE);
            if (n < 0) return hr_fail(HR_INTERNAL, "normalizer: %s", utf8proc_errmsg(n));
            s->n = (size_t)n;
        }
    }
    for (size_t i = 0; i < s->n; i++) {
        char text[4];
        hr_marked_put(out, (hr_str){ text, hr_utf8_encode((uint32_t)s->chars[i], text) }, plain,
                      marked);
    }
    s->n = 0;
    return HR_OK;
}

static bool is_late(uint32_t c)
{
    return hr_ranges_have(hr_unicode_late_marks, hr_unicode_n_late_marks, c);
}

/* Decomposes c behind the piece under way; *parts is how many it became. */
static hr_status decompose(uint32_t c, int form, hr_normalize_scratch *s, size_t *parts)
{
    *parts = 0;
    HR_TRY(hr_grow((void **)&s->chars, &s->capacity, s->n + MOST_PARTS, sizeof *s->chars));
    if (c < 0x80 || is_late(c)) {
        s->chars[s->n] = (int32_t)c;
        *parts = 1;
        return HR_OK;
    }
    int boundary = 0;
    utf8proc_option_t options = UTF8PROC_DECOMPOSE | (form & UTF8PROC_COMPAT);
    utf8proc_ssize_t n =
        utf8proc_decompose_char((int32_t)c, s->chars + s->n, MOST_PARTS, options, &boundary);
    if (n < 0 || n > MOST_PARTS) return hr_fail(HR_INTERNAL, "normalizer: U+%04X", (unsigned)c);
    *parts = (size_t)n;
    return HR_OK;
}

/* Characters that NFC leaves as they are and that nothing composes with from the right: whole
 * scripts, for the sake of speed. Marks, and what decomposes for good, lie between them. */
static bool is_settled(uint32_t c)
{
    static const hr_range settled[] = {
        { 0, FIRST_UNSAFE - 1 }, { 0x0400, 0x0482 }, { 0x2010, 0x205E }, { 0x3001, 0x3029 },
        { 0x3030, 0x3098 },      { 0x309B, 0x30FF }, { 0x3400, 0x4DBF }, { 0x4E00, 0x9FFF },
        { 0xAC00, 0xD7A3 },      { 0xFF01, 0xFF9D },
    };
    return hr_ranges_have(settled, sizeof settled / sizeof *settled, c);
}

/* The beginning of the last of the settled characters from `i` on; i when there are none. */
static size_t skip_settled(hr_str in, size_t i)
{
    size_t last = i, len;
    for (; i < in.n && is_settled(hr_utf8_decode(hr_str_slice(in, i, in.n), &len)); i += len)
        last = i;
    return last;
}

static hr_status unicode_form(const hr_normalizer *stage, hr_str in, const char *plain,
                              hr_normalize_scratch *s, hr_marked_text *out)
{
    size_t piece = 0;   /* where the piece under way began */
    bool alone = false; /* the piece is a late character, which takes no marks */
    s->n = 0;
    for (size_t i = 0, len; i < in.n; i += len) {
        size_t settled = stage->form == FORM_NFC ? skip_settled(in, i) : i;
        if (settled > i) { /* what follows may still join the last of them */
            HR_TRY(write_piece(stage->form, s, hr_any_plain(plain, piece, i), plain, out));
            hr_marked_put(out, hr_str_slice(in, i, settled), false, false);
            if (plain) hr_buf_add(&out->plain, plain + i, settled - i);
            piece = i = settled;
            alone = false;
        }
        uint32_t c = hr_utf8_decode(hr_str_slice(in, i, in.n), &len);
        size_t parts, before = s->n;
        HR_TRY(decompose(c, stage->form, s, &parts));
        bool late = is_late(c);
        if (before && (alone || late || !clings(s->chars[before]))) {
            int32_t first[MOST_PARTS];
            memcpy(first, s->chars + before, parts * sizeof *first);
            HR_TRY(write_piece(stage->form, s, hr_any_plain(plain, piece, i), plain, out));
            memcpy(s->chars, first, parts * sizeof *first);
            piece = i;
        }
        s->n += parts;
        alone = late;
    }
    return write_piece(stage->form, s, hr_any_plain(plain, piece, in.n), plain, out);
}

/* Already normal, as far as a glance can tell: no character from U+0300 on, or only ASCII. */
static bool looks_normal(int form, hr_str text)
{
    unsigned char limit = form == FORM_NFC ? FIRST_UNSAFE_LEAD : 0x80;
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] >= limit) return false;
    return true;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static const hr_normalizer_run run[] = {
    [HR_NORM_UNICODE] = unicode_form,         [HR_NORM_PREPEND] = hr_normalize_prepend,
    [HR_NORM_REPLACE] = hr_normalize_replace, [HR_NORM_LOWER] = hr_normalize_lower,
    [HR_NORM_STRIP] = hr_normalize_strip,     [HR_NORM_BYTES] = hr_normalize_bytes,
};

hr_status hr_normalize(const hr_normalizer *stages, size_t n, hr_str text, const char *plain,
                       hr_normalize_scratch *s, hr_str *out, const char **out_plain)
{
    s->lost_front = false;
    for (size_t i = 0, turn = 0; i < n; i++) {
        if (stages[i].kind == HR_NORM_UNICODE && looks_normal(stages[i].form, text)) continue;
        hr_marked_text *side = &s->side[turn++ % 2];
        hr_buf_clear(&side->bytes);
        hr_buf_clear(&side->plain);
        HR_TRY(run[stages[i].kind](&stages[i], text, plain, s, side));
        HR_TRY(hr_buf_status(&side->bytes));
        HR_TRY(hr_buf_status(&side->plain));
        text = hr_buf_str(&side->bytes);
        if (plain) plain = side->plain.p;
    }
    *out = text;
    *out_plain = plain;
    return HR_OK;
}

void hr_normalizer_deinit(hr_normalizer *n)
{
    hr_pattern_destroy(n->pattern);
    n->pattern = NULL;
}

void hr_normalize_scratch_deinit(hr_normalize_scratch *s)
{
    for (int i = 0; i < 2; i++) {
        hr_buf_deinit(&s->side[i].bytes);
        hr_buf_deinit(&s->side[i].plain);
    }
    hr_free(s->chars);
    hr_free(s->sorted);
    hr_buf_deinit(&s->kinds);
    hr_matcher_deinit(&s->matcher);
    *s = (hr_normalize_scratch){ 0 };
}
