/* Strings with lengths, growable buffers, strict number parsing.
 *
 * Runs on every thread; owns nothing global. */
#include "base/str.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

bool hr_str_starts(hr_str s, hr_str prefix)
{
    return s.n >= prefix.n && hr_str_eq(hr_str_slice(s, 0, prefix.n), prefix);
}

bool hr_str_ends(hr_str s, hr_str suffix)
{
    return s.n >= suffix.n && hr_str_eq(hr_str_slice(s, s.n - suffix.n, s.n), suffix);
}

size_t hr_str_find(hr_str s, hr_str needle, size_t from)
{
    if (from > s.n) return SIZE_MAX;
    if (needle.n == 0) return from;
    if (needle.n > s.n - from) return SIZE_MAX;
    const char *hit = memmem(s.p + from, s.n - from, needle.p, needle.n);
    return hit ? (size_t)(hit - s.p) : SIZE_MAX;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool hr_str_next(hr_str *rest, char separator, hr_str *part)
{
    if (!rest->p) return false;
    const char *end = rest->n ? memchr(rest->p, separator, rest->n) : NULL;
    *part = hr_str_slice(*rest, 0, end ? (size_t)(end - rest->p) : rest->n);
    *rest = end ? hr_str_slice(*rest, part->n + 1, rest->n) : (hr_str){ 0 };
    return true;
}

hr_str hr_str_trim(hr_str s)
{
    while (s.n && is_space(s.p[0])) s = hr_str_slice(s, 1, s.n);
    while (s.n && is_space(s.p[s.n - 1])) s.n--;
    return s;
}

/* Copies a number's text where strto* can see its end. */
static hr_status number_text(hr_str s, char *buf, size_t size)
{
    if (s.n == 0 || s.n >= size || is_space(s.p[0]) || memchr(s.p, '\0', s.n))
        return hr_fail(HR_INVALID_ARGUMENT, "'%.*s' is not a number", HR_STR_ARG(s));
    memcpy(buf, s.p, s.n);
    buf[s.n] = '\0';
    return HR_OK;
}

static hr_status number_verdict(hr_str s, const char *end, const char *buf)
{
    if (end != buf + s.n)
        return hr_fail(HR_INVALID_ARGUMENT, "'%.*s' is not a number", HR_STR_ARG(s));
    if (errno == ERANGE) return hr_fail(HR_OUT_OF_RANGE, "'%.*s' is out of range", HR_STR_ARG(s));
    return HR_OK;
}

hr_status hr_str_to_i64(hr_str s, int64_t *out)
{
    char buf[64], *end;
    *out = 0;
    HR_TRY(number_text(s, buf, sizeof buf));
    errno = 0;
    long long v = strtoll(buf, &end, 10);
    HR_TRY(number_verdict(s, end, buf));
    *out = v;
    return HR_OK;
}

hr_status hr_str_to_u64(hr_str s, uint64_t *out)
{
    char buf[64], *end;
    *out = 0;
    HR_TRY(number_text(s, buf, sizeof buf));
    errno = 0;
    unsigned long long v = strtoull(buf, &end, 10);
    if (buf[0] == '-') return hr_fail(HR_OUT_OF_RANGE, "'%.*s' is negative", HR_STR_ARG(s));
    HR_TRY(number_verdict(s, end, buf));
    *out = v;
    return HR_OK;
}

hr_status hr_str_to_f64(hr_str s, double *out)
{
    char buf[512], *end;
    *out = 0;
    HR_TRY(number_text(s, buf, sizeof buf));
    /* a host program may have set a locale whose point is a comma; glibc's "C" costs nothing */
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c) return hr_fail(HR_RESOURCE_EXHAUSTED, "the C locale");
    errno = 0;
    double v = strtod_l(buf, &end, c);
    if (v > -1 && v < 1) errno = 0; /* underflow to a denormal or zero is a value */
    hr_status st = number_verdict(s, end, buf);
    freelocale(c);
    if (!st) *out = v;
    return st;
}

char *hr_buf_reserve(hr_buf *b, size_t n)
{
    if (b->status) return NULL;
    if (b->limit && (n > b->limit || b->n > b->limit - n)) {
        b->status = hr_fail(HR_RESOURCE_EXHAUSTED, "text above its limit of %zu bytes", b->limit);
        return NULL;
    }
    size_t need;
    if (__builtin_add_overflow(b->n, n, &need)) {
        b->status = hr_fail(HR_RESOURCE_EXHAUSTED, "text of more than %zu bytes", SIZE_MAX);
        return NULL;
    }
    b->status = hr_grow((void **)&b->p, &b->capacity, need, 1);
    return b->status ? NULL : b->p + b->n;
}

void hr_buf_add(hr_buf *b, const void *p, size_t n)
{
    if (n == 0) return;
    char *to = hr_buf_reserve(b, n);
    if (!to) return;
    memcpy(to, p, n);
    b->n += n;
}

void hr_buf_add_str(hr_buf *b, hr_str s)
{
    hr_buf_add(b, s.p, s.n);
}

void hr_buf_add_c(hr_buf *b, const char *c)
{
    hr_buf_add(b, c, strlen(c));
}

void hr_buf_add_byte(hr_buf *b, char c)
{
    hr_buf_add(b, &c, 1);
}

void hr_buf_vprintf(hr_buf *b, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    char *to = n < 0 ? NULL : hr_buf_reserve(b, (size_t)n + 1);
    if (to) {
        vsnprintf(to, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

void hr_buf_printf(hr_buf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    hr_buf_vprintf(b, fmt, args);
    va_end(args);
}

const char *hr_buf_c(hr_buf *b)
{
    char *end = hr_buf_reserve(b, 1);
    if (!end) return "";
    *end = '\0';
    return b->p;
}

void hr_buf_deinit(hr_buf *b)
{
    hr_free(b->p);
    *b = (hr_buf){ 0 };
}

/* Levenshtein distance over at most 63 characters; 64 for longer words. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[64], na = strlen(a), nb = strlen(b);
    if (na > 63 || nb > 63) return 64;
    for (size_t j = 0; j <= nb; j++) row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t cost = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < cost) cost = row[j] + 1;
            if (row[j - 1] + 1 < cost) cost = row[j - 1] + 1;
            row[j] = cost;
        }
    }
    return row[nb];
}

const char *hr_str_nearest(const char *word, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    size_t best_distance = strlen(word) / 2 + 1; /* farther than half the word is no typo */
    for (size_t i = 0; i < n; i++) {
        size_t d = edit_distance(word, candidates[i]);
        if (d < best_distance) {
            best_distance = d;
            best = candidates[i];
        }
    }
    return best;
}
