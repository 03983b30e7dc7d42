/* Text with a length. NUL is a character like any other. */
#ifndef HEADRACE_BASE_STR_H
#define HEADRACE_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"

/* Borrowed bytes; never assumed to end in NUL. */
typedef struct hr_str {
    const char *p;
    size_t n;
} hr_str;

#define HR_STR(literal) ((hr_str){ (literal), sizeof(literal) - 1 })
/* printf("%.*s", HR_STR_ARG(s)) */
#define HR_STR_ARG(s) (int)((s).n > 4096 ? 4096 : (s).n), (s).p

static inline hr_str hr_str_c(const char *c)
{
    return (hr_str){ c, c ? strlen(c) : 0 };
}
static inline bool hr_str_eq(hr_str a, hr_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
static inline bool hr_str_eq_c(hr_str a, const char *c)
{
    return hr_str_eq(a, hr_str_c(c));
}
bool hr_str_starts(hr_str s, hr_str prefix);
bool hr_str_ends(hr_str s, hr_str suffix);
/* Index of the first occurrence at or after `from`, or SIZE_MAX. An empty needle is found at
 * `from`. */
size_t hr_str_find(hr_str s, hr_str needle, size_t from);
/* Takes what comes before the next separator off `rest`, for walking a list; false when all was
 * taken. Parts may be empty: "" is one, "a," are two. */
bool hr_str_next(hr_str *rest, char separator, hr_str *part);
/* Both ends, ASCII white space. */
hr_str hr_str_trim(hr_str s);
static inline hr_str hr_str_slice(hr_str s, size_t from, size_t to)
{
    return (hr_str){ s.p + from, to - from };
}

/* Whole text is one number in the C locale, else INVALID_ARGUMENT; OUT_OF_RANGE when too large. */
HR_MUST_USE hr_status hr_str_to_i64(hr_str s, int64_t *out);
HR_MUST_USE hr_status hr_str_to_u64(hr_str s, uint64_t *out);
HR_MUST_USE hr_status hr_str_to_f64(hr_str s, double *out);

/* A growable byte buffer. `= { 0 }` is empty. Failures are sticky: after one, appends do nothing
 * and hr_buf_status reports it, so a writer checks once at the end. */
typedef struct hr_buf {
    char *p; /* owned; not terminated */
    size_t n, capacity;
    size_t limit; /* 0 = none; growing above it fails with RESOURCE_EXHAUSTED */
    hr_status status;
} hr_buf;

void hr_buf_add(hr_buf *b, const void *p, size_t n);
void hr_buf_add_str(hr_buf *b, hr_str s);
void hr_buf_add_c(hr_buf *b, const char *c);
void hr_buf_add_byte(hr_buf *b, char c);
void hr_buf_printf(hr_buf *b, const char *fmt, ...) HR_PRINTF(2, 3);
void hr_buf_vprintf(hr_buf *b, const char *fmt, va_list args);
/* Room for n more bytes; NULL on failure. The caller adds to b->n what it wrote. */
char *hr_buf_reserve(hr_buf *b, size_t n);
/* Terminates (outside the length) and returns the text; "" on failure. */
const char *hr_buf_c(hr_buf *b);
static inline hr_str hr_buf_str(const hr_buf *b)
{
    return (hr_str){ b->p, b->n };
}
static inline void hr_buf_clear(hr_buf *b)
{
    b->n = 0;
    b->status = HR_OK;
}
HR_MUST_USE static inline hr_status hr_buf_status(const hr_buf *b)
{
    return b->status;
}
void hr_buf_deinit(hr_buf *b);

/* The candidate nearest to `word` in edit distance, or NULL when none is near (for "did you mean").
 */
const char *hr_str_nearest(const char *word, const char *const *candidates, size_t n);

#endif
