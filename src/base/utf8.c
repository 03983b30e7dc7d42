/* UTF-8 decoding that never reads past the end and never accepts what RFC 3629 forbids.
 *
 * Runs on every thread; owns nothing. The clever idea: the second byte's legal range depends only
 * on the first byte, so overlong forms, surrogates and values past U+10FFFF are one range check. */
#include "base/utf8.h"

/* Total length of a character whose first byte is b, and the range of its second byte. */
static size_t lead(unsigned char b, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (b >= 0xC2 && b <= 0xDF) return 2;
    if (b >= 0xE0 && b <= 0xEF) {
        if (b == 0xE0) *low = 0xA0;
        if (b == 0xED) *high = 0x9F;
        return 3;
    }
    if (b >= 0xF0 && b <= 0xF4) {
        if (b == 0xF0) *low = 0x90;
        if (b == 0xF4) *high = 0x8F;
        return 4;
    }
    return 0;
}

/* Length of the longest legal prefix of one character at s, and the length it should have. */
static size_t prefix(hr_str s, size_t *want)
{
    unsigned char low, high;
    const unsigned char *p = (const unsigned char *)s.p;
    *want = lead(p[0], &low, &high);
    size_t i = 1;
    for (; i < *want && i < s.n; i++) {
        if (p[i] < low || p[i] > high) break;
        low = 0x80;
        high = 0xBF;
    }
    return i;
}

uint32_t hr_utf8_decode(hr_str s, size_t *len)
{
    const unsigned char *p = (const unsigned char *)s.p;
    *len = 1;
    if (p[0] < 0x80) return p[0];
    size_t want, have = prefix(s, &want);
    *len = have;
    if (want == 0 || have < want) return HR_UTF8_BAD;
    uint32_t c = p[0] & (0x7Fu >> want);
    for (size_t i = 1; i < want; i++) c = c << 6 | (p[i] & 0x3Fu);
    return c;
}

uint32_t hr_utf8_before(hr_str s, size_t at, size_t *len)
{
    size_t from = at - 1;
    while (from > 0 && ((unsigned char)s.p[from] & 0xC0) == 0x80) from--;
    return hr_utf8_decode(hr_str_slice(s, from, at), len);
}

size_t hr_utf8_encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char mark[5] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(mark[n] | c);
    return n;
}

/* Bytes from `at` on that are surely ASCII, eight at a time. */
static size_t skip_ascii(hr_str s, size_t at)
{
    uint64_t word;
    for (; at + 8 <= s.n; at += 8) {
        memcpy(&word, s.p + at, 8);
        if (word & 0x8080808080808080u) break;
    }
    return at;
}

bool hr_utf8_valid(hr_str s)
{
    size_t len;
    for (size_t i = skip_ascii(s, 0); i < s.n; i += len) {
        if (hr_utf8_decode(hr_str_slice(s, i, s.n), &len) == HR_UTF8_BAD) return false;
        if (len == 1) len = skip_ascii(s, i + 1) - i;
    }
    return true;
}

size_t hr_utf8_incomplete_tail(hr_str s)
{
    for (size_t back = 1; back <= 3 && back <= s.n; back++) {
        hr_str tail = hr_str_slice(s, s.n - back, s.n);
        if (((unsigned char)tail.p[0] & 0xC0) == 0x80) continue; /* inside a character */
        size_t want, have = (unsigned char)tail.p[0] < 0x80 ? 1 : prefix(tail, &want);
        if ((unsigned char)tail.p[0] < 0x80) return 0;
        return want > back && have == back ? back : 0;
    }
    return 0;
}

void hr_utf8_add_replaced(hr_buf *out, hr_str s)
{
    size_t len, from = 0;
    for (size_t i = 0; i < s.n; i += len) {
        if (hr_utf8_decode(hr_str_slice(s, i, s.n), &len) != HR_UTF8_BAD) continue;
        hr_buf_add_str(out, hr_str_slice(s, from, i));
        hr_buf_add_c(out, "\xEF\xBF\xBD");
        from = i + len;
    }
    hr_buf_add_str(out, hr_str_slice(s, from, s.n));
}

size_t hr_utf8_length(hr_str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) n += ((unsigned char)s.p[i] & 0xC0) != 0x80;
    return n;
}
