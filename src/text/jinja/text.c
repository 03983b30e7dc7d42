/* Operations on strings that filters and methods share.
 *
 * Every result is put together out of slices of its operands, so marks follow the bytes: what is
 * stripped off is gone with its marks, a replacement brings its own, padding is the template's.
 * Lives in the rendering's arena. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "text/jinja/jinja_int.h"

/* ---- stripping ------------------------------------------------------------------------------ */

static bool in_chars(const hr_jstr *chars, uint32_t c)
{
    size_t len;
    if (!chars) return hr_jinja_is_space(c);
    for (size_t at = 0; at < chars->n; at += len)
        if (hr_utf8_decode(hr_str_slice(hr_jinja_text(chars), at, chars->n), &len) == c)
            return true;
    return false;
}

static size_t strip_left(const hr_jstr *s, const hr_jstr *chars)
{
    size_t at = 0, len;
    while (at < s->n &&
           in_chars(chars, hr_utf8_decode(hr_str_slice(hr_jinja_text(s), at, s->n), &len)))
        at += len;
    return at;
}

static size_t strip_right(const hr_jstr *s, const hr_jstr *chars, size_t from)
{
    size_t end = s->n, len;
    while (end > from) {
        size_t at = end - 1;
        while (at > from && ((unsigned char)s->p[at] & 0xC0) == 0x80) at--;
        if (!in_chars(chars, hr_utf8_decode(hr_str_slice(hr_jinja_text(s), at, end), &len))) break;
        end = at;
    }
    return end;
}

hr_status hr_jinja_strip(hr_jinterp *it, const hr_jstr *s, hr_jval chars, hr_jsides sides,
                         hr_jval *out)
{
    const hr_jstr *set = NULL;
    if (chars.kind == HR_J_STR) set = chars.as.s;
    else if (chars.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, chars);
    else if (chars.kind != HR_J_MISSING && chars.kind != HR_J_NONE)
        return hr_jinja_fail(it, "strip arg must be None or str");
    HR_TRY(hr_jinja_step(it, s->n * (set ? set->n + 1 : 1) / 64));
    size_t from = sides & HR_JSIDE_LEFT ? strip_left(s, set) : 0;
    size_t to = sides & HR_JSIDE_RIGHT ? strip_right(s, set, from) : s->n;
    return hr_jinja_substring(it, s, from, to, out);
}

hr_status hr_jinja_str_strip(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return hr_jinja_strip(it, self.as.s, args->pos[0], HR_JSIDE_BOTH, out);
}

/* ---- case ----------------------------------------------------------------------------------- */

hr_status hr_jinja_str_upper(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    hr_jbuilder b = { .it = it };
    hr_jinja_put_case(&b, self.as.s, 0, self.as.s->n, HR_JCASE_UPPER);
    return hr_jinja_finish(&b, out);
}

hr_status hr_jinja_str_lower(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    hr_jbuilder b = { .it = it };
    hr_jinja_put_case(&b, self.as.s, 0, self.as.s->n, HR_JCASE_LOWER);
    return hr_jinja_finish(&b, out);
}

hr_status hr_jinja_str_capitalize(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    hr_jbuilder b = { .it = it };
    size_t first = hr_jinja_offset(self.as.s, 1);
    if (!self.as.s->n) first = 0;
    hr_jinja_put_case(&b, self.as.s, 0, first, HR_JCASE_TITLE);
    hr_jinja_put_case(&b, self.as.s, first, self.as.s->n, HR_JCASE_LOWER);
    return hr_jinja_finish(&b, out);
}

bool hr_jinja_all(const hr_jstr *s, hr_jclass class)
{
    size_t len;
    for (size_t at = 0; at < s->n; at += len)
        if (!hr_jinja_is(hr_utf8_decode(hr_str_slice(hr_jinja_text(s), at, s->n), &len), class))
            return false;
    return s->n > 0;
}

bool hr_jinja_all_cased(const hr_jstr *s, hr_jclass class)
{
    size_t len;
    bool some = false;
    for (size_t at = 0; at < s->n; at += len) {
        uint32_t c = hr_utf8_decode(hr_str_slice(hr_jinja_text(s), at, s->n), &len);
        if (hr_jinja_is(c, class)) some = true;
        else if (hr_jinja_is(c, HR_JC_CASED)) return false;
    }
    return some;
}

/* ---- replacing, joining, padding ------------------------------------------------------------ */

hr_status hr_jinja_replace(hr_jinterp *it, const hr_jstr *s, const hr_jstr *old,
                           const hr_jstr *with, int64_t count, hr_jval *out)
{
    hr_jbuilder b = { .it = it };
    size_t at = 0;
    while (count != 0 && !b.status) {
        size_t hit = hr_str_find(hr_jinja_text(s), hr_jinja_text(old), at);
        if (hit == SIZE_MAX) break;
        if (count > 0) count--;
        if (old->n) {
            hr_jinja_put_slice(&b, s, at, hit);
            hr_jinja_put_str(&b, with);
            at = hit + old->n;
            continue;
        }
        hr_jinja_put_str(&b, with); /* an empty needle stands before every character */
        if (at >= s->n) break;
        size_t end = at + 1;
        while (end < s->n && ((unsigned char)s->p[end] & 0xC0) == 0x80) end++;
        hr_jinja_put_slice(&b, s, at, end);
        at = end;
    }
    hr_jinja_put_slice(&b, s, at, s->n);
    return hr_jinja_finish(&b, out);
}

/* Arguments: old, new, count. */
hr_status hr_jinja_str_replace(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    int64_t count = -1;
    const hr_jval *a = args->pos;
    if (a[0].kind != HR_J_STR || a[1].kind != HR_J_STR)
        return hr_jinja_fail(it, "replace() argument must be str, not %s",
                             hr_jinja_type_name(a[0].kind == HR_J_STR ? a[1] : a[0]));
    if (a[2].kind && !hr_jinja_as_int(a[2], &count))
        return hr_jinja_fail(it, "'%s' object cannot be interpreted as an integer",
                             hr_jinja_type_name(a[2]));
    return hr_jinja_replace(it, self.as.s, a[0].as.s, a[1].as.s, count, out);
}

hr_status hr_jinja_join(hr_jinterp *it, const hr_jstr *separator, const hr_jval *items, size_t n,
                        hr_jval *out)
{
    hr_jbuilder b = { .it = it };
    for (size_t i = 0; i < n; i++) {
        if (i) hr_jinja_put_str(&b, separator);
        HR_TRY(hr_jinja_print(&b, items[i]));
    }
    return hr_jinja_finish(&b, out);
}

hr_status hr_jinja_pad(hr_jinterp *it, const hr_jstr *s, size_t left, size_t right, hr_jval fill,
                       hr_jval *out)
{
    hr_jbuilder b = { .it = it };
    if (fill.kind && (fill.kind != HR_J_STR || fill.as.s->chars != 1))
        return hr_jinja_fail(it, "The fill character must be exactly one character long");
    for (size_t i = 0; i < left && !b.status; i++)
        fill.kind ? hr_jinja_put_str(&b, fill.as.s) : hr_jinja_put_c(&b, " ");
    hr_jinja_put_str(&b, s);
    for (size_t i = 0; i < right && !b.status; i++)
        fill.kind ? hr_jinja_put_str(&b, fill.as.s) : hr_jinja_put_c(&b, " ");
    return hr_jinja_finish(&b, out);
}

/* Arguments: width, fill character. */
hr_status hr_jinja_str_center(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    int64_t width;
    const hr_jstr *s = self.as.s;
    if (!hr_jinja_as_int(args->pos[0], &width))
        return hr_jinja_fail(it, "'%s' object cannot be interpreted as an integer",
                             hr_jinja_type_name(args->pos[0]));
    size_t pad = width > 0 && (uint64_t)width > s->chars ? (size_t)width - s->chars : 0;
    size_t left = pad / 2 + (pad & (size_t)width & 1); /* as CPython rounds */
    return hr_jinja_pad(it, s, left, pad - left, args->pos[1], out);
}

static bool is_line_end(uint32_t c)
{
    return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

size_t hr_jinja_line_end(const hr_jstr *s, size_t at, size_t *next)
{
    size_t len;
    for (; at < s->n; at += len) {
        uint32_t c = hr_utf8_decode(hr_str_slice(hr_jinja_text(s), at, s->n), &len);
        if (!is_line_end(c)) continue;
        *next = at + len;
        if (c == '\r' && *next < s->n && s->p[*next] == '\n') ++*next;
        return at;
    }
    *next = s->n;
    return s->n;
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* Python allows blanks around a number and single underscores between digits. Copies the rest. */
static bool clean_number(hr_str text, char out[80])
{
    size_t from = hr_jinja_skip_space(text, 0), end = hr_jinja_rstrip(text), n = 0;
    if (end <= from || end - from > 78) return false;
    for (size_t i = from; i < end; i++) {
        char c = text.p[i];
        if (c == '_') {
            bool between = i > from && i + 1 < end && isalnum((unsigned char)text.p[i - 1]) &&
                           isalnum((unsigned char)text.p[i + 1]);
            if (!between) return false;
        } else if (c == '\0' || (unsigned char)c >= 0x80 || isspace((unsigned char)c)) {
            return false;
        } else {
            out[n++] = c;
        }
    }
    out[n] = '\0';
    return n > 0;
}

bool hr_jinja_parse_int(hr_str text, int base, int64_t *out)
{
    char copy[80], *p = copy, *end;
    if (!clean_number(text, copy) || base < 0 || base == 1 || base > 36) return false;
    bool negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    char x = *p == '0' ? (char)(p[1] | 32) : ' ';
    int prefix = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 0;
    if (prefix && (base == 0 || base == prefix)) {
        p += 2;
        base = prefix;
    } else if (base == 0) {
        base = 10;
        if (*p == '0' && strspn(p, "0") != strlen(p)) return false;
    }
    if (!isalnum((unsigned char)*p) || (base == 16 && (p[1] | 32) == 'x')) return false;
    unsigned long long v = strtoull(p, &end, base);
    if (*end || v > INT64_MAX) return false;
    *out = negative ? -(int64_t)v : (int64_t)v;
    return true;
}

bool hr_jinja_parse_float(hr_str text, double *out)
{
    char copy[80], *end;
    if (!clean_number(text, copy) || strpbrk(copy, "xX()")) return false;
    *out = strtod(copy, &end);
    return *end == '\0';
}
