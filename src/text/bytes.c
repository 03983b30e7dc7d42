/* GPT-2's byte-level alphabet: every byte has a printable character, so that vocabularies of bytes
 * can be written as text.
 *
 * Pure. Printable Latin-1 stands for itself; the other 68 bytes take U+0100 onwards, in order. */
#include "text/text_int.h"

#include "base/utf8.h"

/* The bytes that do not stand for themselves: 0..32, 127..160, 173. */
#define FIRST_GAP 33u
#define SECOND    127u
#define LAST_GAP  160u
#define SHY       173u

uint32_t hr_bytes_to_char(uint8_t byte)
{
    if (byte < FIRST_GAP) return 256 + byte;
    if (byte >= SECOND && byte <= LAST_GAP) return 256 + FIRST_GAP + (byte - SECOND);
    if (byte == SHY) return 256 + FIRST_GAP + (LAST_GAP - SECOND + 1);
    return byte;
}

/* The byte of a character, or -1. */
static int char_to_byte(uint32_t c)
{
    if (c < 256) return hr_bytes_to_char((uint8_t)c) == c ? (int)c : -1;
    uint32_t i = c - 256;
    if (i < FIRST_GAP) return (int)i;
    i = i - FIRST_GAP + SECOND;
    if (i <= LAST_GAP) return (int)i;
    return i == LAST_GAP + 1 ? (int)SHY : -1;
}

bool hr_bytes_from_text(hr_str text, char *out, size_t *n)
{
    *n = 0;
    for (size_t i = 0, len; i < text.n; i += len) {
        uint32_t c = hr_utf8_decode(hr_str_slice(text, i, text.n), &len);
        int b = c == HR_UTF8_BAD ? -1 : char_to_byte(c);
        if (b < 0) return false;
        out[(*n)++] = (char)b;
    }
    return true;
}

void hr_bytes_add_text(hr_buf *out, hr_str bytes)
{
    char *p = hr_buf_reserve(out, 2 * bytes.n);
    if (!p) return;
    size_t n = 0;
    for (size_t i = 0; i < bytes.n; i++)
        n += hr_utf8_encode(hr_bytes_to_char((uint8_t)bytes.p[i]), p + n);
    out->n += n;
}
