/* UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, at most U+10FFFF. */
#ifndef HEADRACE_BASE_UTF8_H
#define HEADRACE_BASE_UTF8_H

#include "base/str.h"

#define HR_UTF8_BAD 0xFFFFFFFFu

/* Decodes the character at s.p (s.n ≥ 1). *len = bytes taken: the whole character, or for
 * HR_UTF8_BAD the length of the maximal ill-formed prefix (Unicode 3.9, as Python's "replace"
 * counts it), at least 1. */
uint32_t hr_utf8_decode(hr_str s, size_t *len);
/* The character that ends just before byte `at` (> 0) of valid UTF-8, and its length. */
uint32_t hr_utf8_before(hr_str s, size_t at, size_t *len);
/* Writes 1..4 bytes, returns how many. `c` is a scalar value. */
size_t hr_utf8_encode(uint32_t c, char out[4]);
bool hr_utf8_valid(hr_str s);
/* Bytes at the end of s that begin a character not yet complete (0..3): what a stream holds back.
 */
size_t hr_utf8_incomplete_tail(hr_str s);
/* Appends s with every ill-formed part replaced by U+FFFD, as Python's errors="replace". */
void hr_utf8_add_replaced(hr_buf *out, hr_str s);
/* Number of characters; s is valid UTF-8. */
size_t hr_utf8_length(hr_str s);

#endif
