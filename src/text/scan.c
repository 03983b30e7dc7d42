/* Hand-written splitters for the patterns of GPT-2, cl100k (Llama 3), Qwen 2 and o200k (GPT-4o).
 *
 * Pure. A pattern is known by its text alone, every letter of it; tests hold each to PCRE2's answer
 * for the same text. One byte of flags a character decides everything, so a step is a few loops
 * that run while a flag is set. The alternatives are tried in the pattern's order; where a regular
 * expression would backtrack, a comment says what it arrives at. */
#include "text/scan.h"

#include "text/text_int.h"

enum {
    LETTER = 1,   /* \p{L} */
    NUMBER = 2,   /* \p{N} */
    SPACE = 4,    /* \s */
    BREAK = 8,    /* \r or \n; also SPACE */
    CAPITAL = 16, /* \p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M} */
    SMALL = 32,   /* \p{Ll}\p{Lm}\p{Lo}\p{M} */
    OTHER = 64,   /* [^\s\p{L}\p{N}] */
};
#define N_FLAGS 7

typedef struct scan {
    const hr_char_map *map;
    const uint8_t *ascii;
    const unsigned char *p;
    size_t n;
} scan;

static scan make_scan(const hr_char_map *map, hr_str text)
{
    return (scan){ map, hr_char_map_ascii(map), (const unsigned char *)text.p, text.n };
}

/* Flags of the character at `at`; 0 at the end, where *len is 0. */
static inline unsigned look(const scan *s, size_t at, size_t *len)
{
    *len = 0;
    if (at >= s->n) return 0;
    const unsigned char *p = s->p + at;
    *len = 1;
    if (p[0] < 0x80) return s->ascii[p[0]];
    uint32_t c;
    if (p[0] < 0xE0) {
        *len = 2;
        c = (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    } else if (p[0] < 0xF0) {
        *len = 3;
        c = (p[0] & 0xFu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    } else {
        *len = 4;
        c = (p[0] & 7u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
    }
    return hr_char_map_get(s->map, c);
}

/* Behind the characters from `at` on that have one of the flags. */
static inline size_t skip(const scan *s, size_t at, unsigned flags)
{
    size_t len;
    while (look(s, at, &len) & flags) at += len;
    return at;
}

static unsigned char byte_at(const scan *s, size_t at)
{
    return at < s->n ? s->p[at] : 0;
}

/* 's|'t|'re|'ve|'m|'ll|'d: its length at `at`, or 0. `fold` is (?i), under which s is U+017F too.
 */
static size_t contraction(const scan *s, size_t at, bool fold)
{
    if (byte_at(s, at) != '\'') return 0;
    unsigned char mask = fold ? 0x20 : 0, a = byte_at(s, at + 1), b = byte_at(s, at + 2);
    if (fold && a == 0xC5 && b == 0xBF) return 3;
    if (a >= 0x80) return 0;
    a |= mask;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    b |= b < 0x80 ? mask : 0;
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ where a space is at `at`; without `breaks` only the last two. */
static size_t spaces(const scan *s, size_t at, bool breaks)
{
    size_t end = at, last = at, behind_break = 0, len;
    for (unsigned f; (f = look(s, end, &len)) & SPACE; end += len) {
        last = end;
        if (f & BREAK) behind_break = end + len;
    }
    if (breaks && behind_break) return behind_break; /* \s* gives back what follows the last one */
    if (end == s->n || last == at) return end;
    return last; /* \s+ gives one back, to what follows */
}

/* \p{N}{1,most}. */
static size_t numbers(const scan *s, size_t at, int most)
{
    size_t len;
    for (int i = 0; i < most && look(s, at, &len) & NUMBER; i++) at += len;
    return at;
}

/* ---- GPT-2 ----------------------------------------------------------------------------------- */

static size_t step_gpt2(const hr_char_map *map, hr_str text, size_t at)
{
    scan s = make_scan(map, text);
    size_t len = contraction(&s, at, false);
    if (len) return at + len;
    size_t from = at + (s.p[at] == ' ');
    unsigned f = look(&s, from, &len) & (LETTER | NUMBER | OTHER);
    return f ? skip(&s, from + len, f) : spaces(&s, at, false);
}

/* ---- cl100k, Qwen 2 -------------------------------------------------------------------------- */

/* [^\s\p{L}\p{N}]+ and then bytes of `tail`, where the first has been seen to match. */
static size_t others(const scan *s, size_t at, const char *tail)
{
    at = skip(s, at, OTHER);
    while (at < s->n && s->p[at] && strchr(tail, s->p[at])) at++;
    return at;
}

/* What the patterns share once no word begins at `at`: f and len are of the character there. */
static size_t no_word(const scan *s, size_t at, unsigned f, int most_numbers, const char *tail)
{
    size_t len;
    if (f & NUMBER) return numbers(s, at, most_numbers);
    if (f & OTHER) return others(s, at, tail);
    if (s->p[at] == ' ' && look(s, at + 1, &len) & OTHER) return others(s, at + 1, tail);
    return spaces(s, at, true);
}

static size_t step_cl100k(const hr_char_map *map, hr_str text, size_t at, int most_numbers)
{
    scan s = make_scan(map, text);
    size_t len = contraction(&s, at, true), next;
    if (len) return at + len;
    unsigned f = look(&s, at, &len);
    if (f & LETTER) return skip(&s, at + len, LETTER);
    if (!(f & (NUMBER | BREAK)) && look(&s, at + len, &next) & LETTER)
        return skip(&s, at + len + next, LETTER);
    return no_word(&s, at, f, most_numbers, "\r\n");
}

static size_t step_llama3(const hr_char_map *map, hr_str text, size_t at)
{
    return step_cl100k(map, text, at, 3);
}

static size_t step_qwen2(const hr_char_map *map, hr_str text, size_t at)
{
    return step_cl100k(map, text, at, 1);
}

/* ---- o200k ----------------------------------------------------------------------------------- */

/* [CAPITAL]*[SMALL]+ at `at`, or 0. */
static size_t small_word(const scan *s, size_t at)
{
    size_t len, end = 0;
    unsigned f;
    for (; (f = look(s, at, &len)) & CAPITAL; at += len)
        if (f & SMALL) end = at + len;
    if (f & SMALL) return skip(s, at, SMALL);
    return end; /* the capitals give back up to the last that is small as well: it is the + */
}

static size_t step_o200k(const hr_char_map *map, hr_str text, size_t at)
{
    scan s = make_scan(map, text);
    size_t len, end = 0, capitals;
    unsigned f = look(&s, at, &len);
    bool prefix = !(f & (LETTER | NUMBER | BREAK));
    if (prefix) end = small_word(&s, at + len);
    if (!end && f & (CAPITAL | SMALL)) end = small_word(&s, at);
    if (!end && prefix) { /* no small letter is near, or small_word would have met it */
        capitals = skip(&s, at + len, CAPITAL);
        if (capitals > at + len) end = capitals;
    }
    if (!end && f & CAPITAL) end = skip(&s, at, CAPITAL);
    if (end) return end + contraction(&s, end, true);
    return no_word(&s, at, f, 3, "\r\n/");
}

/* ---- which is it ----------------------------------------------------------------------------- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define CL100K(digits)                                                                             \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                          \
                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALLS   "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?" CAPITALS "*" SMALLS "+" CONTRACTIONS "?"                              \
    "|[^\\r\\n\\p{L}\\p{N}]?" CAPITALS "+" SMALLS "*" CONTRACTIONS "?"                             \
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

hr_scan_step hr_scan_find(hr_str regex)
{
    static const struct {
        const char *regex;
        hr_scan_step step;
    } known[] = {
        { HR_PATTERN_GPT2, step_gpt2 },
        { CL100K("\\p{N}{1,3}"), step_llama3 },
        { CL100K("\\p{N}"), step_qwen2 },
        { O200K, step_o200k },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (hr_str_eq_c(regex, known[i].regex)) return known[i].step;
    return NULL;
}

static hr_status fill_sets(hr_charset sets[N_FLAGS])
{
    const uint32_t marks = 1u << HR_MN | 1u << HR_MC | 1u << HR_ME;
    const uint32_t both = 1u << HR_LM | 1u << HR_LO | marks;
    HR_TRY(hr_charset_add_property(&sets[0], HR_STR("L")));
    HR_TRY(hr_charset_add_property(&sets[1], HR_STR("N")));
    HR_TRY(hr_charset_add_space(&sets[2]));
    HR_TRY(hr_charset_add(&sets[3], '\n', '\n'));
    HR_TRY(hr_charset_add(&sets[3], '\r', '\r'));
    HR_TRY(hr_charset_add_categories(&sets[4], 1u << HR_LU | 1u << HR_LT | both));
    HR_TRY(hr_charset_add_categories(&sets[5], 1u << HR_LL | both));
    for (size_t i = 0; i < 3; i++) HR_TRY(hr_charset_add_set(&sets[6], &sets[i]));
    for (size_t i = 0; i < N_FLAGS; i++) hr_charset_sort(&sets[i]);
    return hr_charset_negate(&sets[6]);
}

hr_status hr_scan_map(hr_char_map *out)
{
    hr_charset sets[N_FLAGS] = { { 0 } };
    hr_status st = fill_sets(sets);
    if (!st) st = hr_char_map_of_sets(out, sets, N_FLAGS);
    for (size_t i = 0; i < N_FLAGS; i++) hr_charset_deinit(&sets[i]);
    return st;
}
