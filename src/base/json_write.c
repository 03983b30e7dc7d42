/* The JSON writer: streaming into a buffer, separators and escapes as Python's json.dumps writes
 * them, so that what templates print equals what transformers prints.
 *
 * Runs on every thread; owns nothing. A failure (memory, nesting past 255) sticks to the buffer,
 * so a caller checks once at the end. */
#include "base/json.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

#define MAX_DEPTH 255

static bool is_used(const hr_json_writer *w)
{
    return w->used[w->depth / 8] >> (w->depth % 8) & 1;
}

static void set_used(hr_json_writer *w, bool on)
{
    uint8_t bit = (uint8_t)(1u << (w->depth % 8));
    uint8_t *byte = &w->used[w->depth / 8];
    *byte = (uint8_t)(on ? *byte | bit : *byte & ~bit);
}

static void new_line(hr_json_writer *w)
{
    if (!w->indent) return;
    hr_buf_add_byte(w->out, '\n');
    for (int i = 0; i < w->indent * w->depth; i++) hr_buf_add_byte(w->out, ' ');
}

/* What stands before a value or a key: nothing after a key, else a comma when one came before. */
static void before(hr_json_writer *w)
{
    if (w->after_key) {
        w->after_key = false;
        return;
    }
    if (is_used(w)) hr_buf_add_c(w->out, w->item_sep ? w->item_sep : ",");
    if (w->depth) new_line(w);
    set_used(w, true);
}

static void begin(hr_json_writer *w, char c)
{
    before(w);
    if (w->depth == MAX_DEPTH) {
        if (!w->out->status)
            w->out->status = hr_fail(HR_INVALID_ARGUMENT, "JSON nested deeper than %d", MAX_DEPTH);
        return;
    }
    hr_buf_add_byte(w->out, c);
    w->depth++;
    set_used(w, false);
}

static void end(hr_json_writer *w, char c)
{
    if (w->out->status) return; /* depth may not have grown */
    assert(w->depth > 0 && !w->after_key);
    bool any = is_used(w);
    w->depth--;
    if (any) new_line(w);
    hr_buf_add_byte(w->out, c);
}

void hr_json_begin_object(hr_json_writer *w)
{
    begin(w, '{');
}

void hr_json_end_object(hr_json_writer *w)
{
    end(w, '}');
}

void hr_json_begin_array(hr_json_writer *w)
{
    begin(w, '[');
}

void hr_json_end_array(hr_json_writer *w)
{
    end(w, ']');
}

static void add_unicode_escape(hr_buf *out, uint32_t c)
{
    if (c > 0xFFFF) {
        c -= 0x10000;
        hr_buf_printf(out, "\\u%04x\\u%04x", 0xD800 + (c >> 10), 0xDC00 + (c & 0x3FF));
    } else {
        hr_buf_printf(out, "\\u%04x", c);
    }
}

/* The two-character escape of c, or 0. */
static char short_escape(uint32_t c)
{
    switch (c) {
    case '"': return '"';
    case '\\': return '\\';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    case '\f': return 'f';
    case '\b': return 'b';
    default: return 0;
    }
}

static void add_quoted(hr_json_writer *w, hr_str s)
{
    hr_buf *out = w->out;
    size_t from = 0, len; /* s[from, i) waits to be copied as it is */
    hr_buf_add_byte(out, '"');
    for (size_t i = 0; i < s.n; i += len) {
        uint32_t c = hr_utf8_decode(hr_str_slice(s, i, s.n), &len);
        bool plain =
            c >= 0x20 && c != '"' && c != '\\' && c != HR_UTF8_BAD && (!w->ascii || c < 0x7F);
        if (plain) continue;
        hr_buf_add_str(out, hr_str_slice(s, from, i));
        from = i + len;
        if (c == HR_UTF8_BAD && !w->ascii) {
            hr_buf_add_c(out, "\xEF\xBF\xBD");
        } else if (short_escape(c)) {
            hr_buf_add_byte(out, '\\');
            hr_buf_add_byte(out, short_escape(c));
        } else {
            add_unicode_escape(out, c == HR_UTF8_BAD ? 0xFFFD : c);
        }
    }
    if (s.n) hr_buf_add_str(out, hr_str_slice(s, from, s.n));
    hr_buf_add_byte(out, '"');
}

void hr_json_key(hr_json_writer *w, hr_str key)
{
    before(w);
    add_quoted(w, key);
    hr_buf_add_c(w->out, w->key_sep ? w->key_sep : w->indent ? ": " : ":");
    w->after_key = true;
}

void hr_json_str(hr_json_writer *w, hr_str s)
{
    before(w);
    add_quoted(w, s);
}

/* By hand: lists of a million ids are written on threads that others wait for. */
static void add_integer(hr_buf *out, bool negative, uint64_t v)
{
    char digits[24];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + v % 10);
    while (v /= 10);
    if (negative) digits[--at] = '-';
    hr_buf_add(out, digits + at, sizeof digits - at);
}

void hr_json_i64(hr_json_writer *w, int64_t v)
{
    before(w);
    add_integer(w->out, v < 0, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void hr_json_u64(hr_json_writer *w, uint64_t v)
{
    before(w);
    add_integer(w->out, false, v);
}

void hr_json_f64(hr_json_writer *w, double v)
{
    char text[32];
    if (!isfinite(v)) {
        hr_json_null(w);
        return;
    }
    before(w);
    hr_buf_add(w->out, text, hr_json_format_f64(v, text));
}

void hr_json_bool(hr_json_writer *w, bool v)
{
    hr_json_raw(w, v ? HR_STR("true") : HR_STR("false"));
}

void hr_json_null(hr_json_writer *w)
{
    hr_json_raw(w, HR_STR("null"));
}

void hr_json_raw(hr_json_writer *w, hr_str text)
{
    before(w);
    hr_buf_add_str(w->out, text);
}

void hr_json_value(hr_json_writer *w, const hr_json *v)
{
    bool object = v->type == HR_JSON_OBJECT;
    switch (v->type) {
    case HR_JSON_NULL: hr_json_null(w); return;
    case HR_JSON_FALSE: hr_json_bool(w, false); return;
    case HR_JSON_TRUE: hr_json_bool(w, true); return;
    case HR_JSON_NUMBER: hr_json_raw(w, v->text); return;
    case HR_JSON_STRING: hr_json_str(w, v->text); return;
    case HR_JSON_ARRAY:
    case HR_JSON_OBJECT: break;
    }
    begin(w, object ? '{' : '[');
    /* a failure ends the recursion, so the C stack holds MAX_DEPTH calls at most */
    for (size_t i = 0; i < v->count && !w->out->status; i++) {
        if (object) hr_json_key(w, v->items[i].key);
        hr_json_value(w, &v->items[i]);
    }
    end(w, object ? '}' : ']');
}

/* ---- doubles ------------------------------------------------------------------------------ */

/* The shortest decimal digits that read back as one double: 0.d1d2d3… × 10^point. */
typedef struct shortest {
    char digits[20];
    int n;
    int point;
} shortest;

/* "d.ddde±x" of `precision` digits; the locale's point is skipped, whatever it is. */
static void split(double v, int precision, shortest *s)
{
    char text[64];
    snprintf(text, sizeof text, "%.*e", precision - 1, v);
    const char *p = text;
    s->n = 0;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9' && s->n < 17) s->digits[s->n++] = *p;
    s->point = atoi(*p ? p + 1 : p) + 1;
}

static bool reads_back(const shortest *s, double v)
{
    char text[64]; /* no point, so no locale: ddd e (point - n) */
    snprintf(text, sizeof text, "%.*se%d", s->n, s->digits, s->point - s->n);
    return strtod(text, NULL) == v;
}

/* Adds one unit in the last place; false when that carries out of the digits. */
static bool bump(shortest *s)
{
    for (int i = s->n - 1; i >= 0; i--) {
        if (s->digits[i] != '9') {
            s->digits[i]++;
            return true;
        }
        s->digits[i] = '0';
    }
    return false;
}

static void find_shortest(double v, shortest *s)
{
    /* A normal double that has a form of 15 digits or fewer has it at %.15e, trailing zeros
     * dropped (DBL_DIG); a denormal has fewer good digits, so every length is tried. */
    for (int precision = v < DBL_MIN ? 1 : 15; precision <= 17; precision++) {
        split(v, precision, s);
        if (reads_back(s, v)) break;
        /* Below a power of two the gap is half as wide: the nearest 16 digits may miss while the
         * next ones up read back (2^-44). */
        if (precision == 16 && bump(s) && reads_back(s, v)) break;
    }
    while (s->n > 1 && s->digits[s->n - 1] == '0') s->n--;
}

size_t hr_json_format_f64(double v, char out[32])
{
    shortest s = { .digits = "0", .n = 1, .point = 1 };
    char *p = out;
    if (signbit(v)) *p++ = '-';
    if (v != 0) find_shortest(fabs(v), &s);
    if (s.point > 16 || s.point < -3) { /* Python's float_repr_style: exponent form */
        *p++ = s.digits[0];
        if (s.n > 1) *p++ = '.';
        for (int i = 1; i < s.n; i++) *p++ = s.digits[i];
        return (size_t)(p - out) + (size_t)snprintf(p, 8, "e%+03d", s.point - 1);
    }
    if (s.point <= 0) {
        *p++ = '0';
        *p++ = '.';
        for (int i = s.point; i < 0; i++) *p++ = '0';
    }
    for (int i = 0; i < s.n || i < s.point; i++) {
        if (i == s.point && i) *p++ = '.';
        *p++ = i < s.n ? s.digits[i] : '0';
    }
    if (s.n <= s.point) {
        *p++ = '.';
        *p++ = '0';
    }
    *p = '\0';
    return (size_t)(p - out);
}
