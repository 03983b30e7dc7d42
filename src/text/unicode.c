/* Characters and sets of them.
 *
 * Pure functions and caller-owned sets; sets live only while a tokenizer is loaded. The tables are
 * generated and pinned: what the C library or PCRE2 on this machine know about Unicode is never
 * asked, so that the same text gives the same ids everywhere. */
#include "text/unicode.h"

#include <stdlib.h>

/* White_Space; no version of Unicode since 6.3 has changed it. */
static const hr_range spaces[] = {
    { 0x0009, 0x000D }, { 0x0020, 0x0020 }, { 0x0085, 0x0085 }, { 0x00A0, 0x00A0 },
    { 0x1680, 0x1680 }, { 0x2000, 0x200A }, { 0x2028, 0x2029 }, { 0x202F, 0x202F },
    { 0x205F, 0x205F }, { 0x3000, 0x3000 },
};
/* Alphabetic symbols: the circled and squared letters of Other_Alphabetic. */
static const hr_range letter_symbols[] = {
    { 0x24B6, 0x24E9 },
    { 0x1F130, 0x1F149 },
    { 0x1F150, 0x1F169 },
    { 0x1F170, 0x1F189 },
};
/* Numbers that Oniguruma counts as \w, alone among those that are neither digits nor letters. */
static const hr_range onig_word_numbers[] = {
    { 0xB2, 0xB3 },
    { 0xB9, 0xB9 },
    { 0xBC, 0xBE },
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define BIT(k)   (1u << (k))

#define LETTERS (BIT(HR_LU) | BIT(HR_LL) | BIT(HR_LT) | BIT(HR_LM) | BIT(HR_LO))
#define MARKS   (BIT(HR_MN) | BIT(HR_MC) | BIT(HR_ME))
#define NUMBERS (BIT(HR_ND) | BIT(HR_NL) | BIT(HR_NO))
#define PUNCTUATION                                                                                \
    (BIT(HR_PC) | BIT(HR_PD) | BIT(HR_PS) | BIT(HR_PE) | BIT(HR_PI) | BIT(HR_PF) | BIT(HR_PO))
#define SYMBOLS    (BIT(HR_SM) | BIT(HR_SC) | BIT(HR_SK) | BIT(HR_SO))
#define SEPARATORS (BIT(HR_ZS) | BIT(HR_ZL) | BIT(HR_ZP))
#define OTHERS     (BIT(HR_CN) | BIT(HR_CC) | BIT(HR_CF) | BIT(HR_CS) | BIT(HR_CO))
#define WORD       (LETTERS | MARKS | BIT(HR_ND) | BIT(HR_NL) | BIT(HR_PC))

static const struct {
    const char *name;
    uint32_t categories;
} properties[] = {
    { "L", LETTERS },     { "Lu", BIT(HR_LU) }, { "Ll", BIT(HR_LL) }, { "Lt", BIT(HR_LT) },
    { "Lm", BIT(HR_LM) }, { "Lo", BIT(HR_LO) }, { "M", MARKS },       { "Mn", BIT(HR_MN) },
    { "Mc", BIT(HR_MC) }, { "Me", BIT(HR_ME) }, { "N", NUMBERS },     { "Nd", BIT(HR_ND) },
    { "Nl", BIT(HR_NL) }, { "No", BIT(HR_NO) }, { "P", PUNCTUATION }, { "Pc", BIT(HR_PC) },
    { "Pd", BIT(HR_PD) }, { "Ps", BIT(HR_PS) }, { "Pe", BIT(HR_PE) }, { "Pi", BIT(HR_PI) },
    { "Pf", BIT(HR_PF) }, { "Po", BIT(HR_PO) }, { "S", SYMBOLS },     { "Sm", BIT(HR_SM) },
    { "Sc", BIT(HR_SC) }, { "Sk", BIT(HR_SK) }, { "So", BIT(HR_SO) }, { "Z", SEPARATORS },
    { "Zs", BIT(HR_ZS) }, { "Zl", BIT(HR_ZL) }, { "Zp", BIT(HR_ZP) }, { "C", OTHERS },
    { "Cn", BIT(HR_CN) }, { "Cc", BIT(HR_CC) }, { "Cf", BIT(HR_CF) }, { "Cs", BIT(HR_CS) },
    { "Co", BIT(HR_CO) },
};

bool hr_ranges_have(const hr_range *r, size_t n, uint32_t c)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (c > r[mid].hi) low = mid + 1;
        else high = mid;
    }
    return low < n && c >= r[low].lo;
}

hr_category hr_unicode_category(uint32_t c)
{
    size_t low = 0, high = hr_unicode_n_runs; /* the run is in [low, high) */
    while (high - low > 1) {
        size_t mid = (low + high) / 2;
        if (hr_unicode_runs[mid] >> 5 <= c) low = mid;
        else high = mid;
    }
    return (hr_category)(hr_unicode_runs[low] & 31);
}

bool hr_unicode_is_space(uint32_t c)
{
    return hr_ranges_have(spaces, COUNT(spaces), c);
}

bool hr_unicode_is_word(uint32_t c)
{
    return (WORD >> hr_unicode_category(c) & 1) ||
           hr_ranges_have(letter_symbols, COUNT(letter_symbols), c) || c == 0x200C || c == 0x200D;
}

uint32_t hr_unicode_to_lower(uint32_t c)
{
    size_t low = 0, high = hr_unicode_n_lower;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (c > hr_unicode_lower[mid].hi) low = mid + 1;
        else high = mid;
    }
    if (low == hr_unicode_n_lower) return c;
    const hr_case_run *r = &hr_unicode_lower[low];
    bool inside = c >= r->lo && (c - r->lo) % (uint32_t)r->step == 0;
    return inside ? (uint32_t)((int32_t)c + r->distance) : c;
}

hr_status hr_charset_add(hr_charset *s, uint32_t lo, uint32_t hi)
{
    HR_TRY(hr_grow((void **)&s->ranges, &s->capacity, s->n + 1, sizeof *s->ranges));
    s->ranges[s->n++] = (hr_range){ lo, hi };
    return HR_OK;
}

static hr_status add_ranges(hr_charset *s, const hr_range *r, size_t n)
{
    for (size_t i = 0; i < n; i++) HR_TRY(hr_charset_add(s, r[i].lo, r[i].hi));
    return HR_OK;
}

hr_status hr_charset_add_set(hr_charset *s, const hr_charset *other)
{
    return add_ranges(s, other->ranges, other->n);
}

hr_status hr_charset_add_categories(hr_charset *s, uint32_t categories)
{
    for (size_t i = 0; i < hr_unicode_n_runs; i++) {
        if (!(categories >> (hr_unicode_runs[i] & 31) & 1)) continue;
        bool last = i + 1 == hr_unicode_n_runs;
        uint32_t hi = last ? HR_UNICODE_LAST : (hr_unicode_runs[i + 1] >> 5) - 1;
        HR_TRY(hr_charset_add(s, hr_unicode_runs[i] >> 5, hi));
    }
    return HR_OK;
}

hr_status hr_charset_add_space(hr_charset *s)
{
    return add_ranges(s, spaces, COUNT(spaces));
}

hr_status hr_charset_add_word(hr_charset *s)
{
    HR_TRY(hr_charset_add_categories(s, WORD));
    HR_TRY(add_ranges(s, letter_symbols, COUNT(letter_symbols)));
    return add_ranges(s, onig_word_numbers, COUNT(onig_word_numbers));
}

hr_status hr_charset_add_numeric(hr_charset *s)
{
    HR_TRY(hr_charset_add_categories(s, NUMBERS));
    return add_ranges(s, hr_unicode_late_numbers, hr_unicode_n_late_numbers);
}

hr_status hr_charset_add_punctuation(hr_charset *s)
{
    static const hr_range ascii[] = { { '!', '/' }, { ':', '@' }, { '[', '`' }, { '{', '~' } };
    HR_TRY(add_ranges(s, ascii, COUNT(ascii)));
    return add_ranges(s, hr_unicode_punctuation, hr_unicode_n_punctuation);
}

hr_status hr_charset_add_property(hr_charset *s, hr_str name)
{
    for (size_t i = 0; i < COUNT(properties); i++)
        if (hr_str_eq_c(name, properties[i].name))
            return hr_charset_add_categories(s, properties[i].categories);
    for (size_t i = 0; i < hr_unicode_n_scripts; i++)
        if (hr_str_eq_c(name, hr_unicode_scripts[i].name))
            return add_ranges(s, hr_unicode_scripts[i].ranges, hr_unicode_scripts[i].n);
    return hr_fail(HR_UNIMPLEMENTED, "character property \\p{%.*s}", HR_STR_ARG(name));
}

static int by_lo(const void *a, const void *b)
{
    const hr_range *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

void hr_charset_sort(hr_charset *s)
{
    if (s->n < 2) return;
    qsort(s->ranges, s->n, sizeof *s->ranges, by_lo);
    size_t n = 1;
    for (size_t i = 1; i < s->n; i++) {
        hr_range *last = &s->ranges[n - 1], r = s->ranges[i];
        if (r.lo > last->hi + 1) s->ranges[n++] = r;
        else if (r.hi > last->hi) last->hi = r.hi;
    }
    s->n = n;
}

hr_status hr_charset_negate(hr_charset *s)
{
    hr_charset out = { 0 };
    uint32_t from = 0;
    hr_status st = HR_OK;
    for (size_t i = 0; i < s->n && !st; i++) {
        if (s->ranges[i].lo > from) st = hr_charset_add(&out, from, s->ranges[i].lo - 1);
        from = s->ranges[i].hi + 1;
    }
    if (!st && from <= HR_UNICODE_LAST) st = hr_charset_add(&out, from, HR_UNICODE_LAST);
    if (st) {
        hr_charset_deinit(&out);
        return st;
    }
    hr_charset_deinit(s);
    *s = out;
    return HR_OK;
}

hr_status hr_charset_intersect(hr_charset *s, const hr_charset *other)
{
    hr_charset out = { 0 };
    hr_status st = HR_OK;
    for (size_t i = 0, k = 0; !st && i < s->n && k < other->n;) {
        hr_range a = s->ranges[i], b = other->ranges[k];
        uint32_t lo = a.lo > b.lo ? a.lo : b.lo, hi = a.hi < b.hi ? a.hi : b.hi;
        if (lo <= hi) st = hr_charset_add(&out, lo, hi);
        if (a.hi < b.hi) i++;
        else k++;
    }
    hr_charset_deinit(s);
    *s = out;
    return st;
}

bool hr_charset_has(const hr_charset *s, uint32_t c)
{
    return hr_ranges_have(s->ranges, s->n, c);
}

/* The characters outside ASCII that have cases stand for far more than their own folding (one may
 * equal two letters), so sets holding them are refused rather than half folded. */
static bool folds_simply(const hr_charset *s)
{
    const uint32_t cased = BIT(HR_LU) | BIT(HR_LL) | BIT(HR_LT);
    for (size_t i = 0; i < s->n; i++) {
        uint32_t lo = s->ranges[i].lo < 0x80 ? 0x80 : s->ranges[i].lo, hi = s->ranges[i].hi;
        for (uint32_t c = lo; c <= hi; c++)
            if (cased >> hr_unicode_category(c) & 1) return false;
    }
    return true;
}

hr_status hr_charset_fold(hr_charset *s)
{
    if (!folds_simply(s))
        return hr_fail(HR_UNIMPLEMENTED, "(?i) over letters outside ASCII in a pattern");
    for (uint32_t c = 'a'; c <= 'z'; c++) {
        bool lower = hr_charset_has(s, c), upper = hr_charset_has(s, c - 32);
        if (!lower && !upper) continue;
        HR_TRY(hr_charset_add(s, c, c));
        HR_TRY(hr_charset_add(s, c - 32, c - 32));
        if (c == 's') HR_TRY(hr_charset_add(s, 0x017F, 0x017F));
        if (c == 'k') HR_TRY(hr_charset_add(s, 0x212A, 0x212A));
        hr_charset_sort(s);
    }
    return HR_OK;
}

bool hr_charset_equal(const hr_charset *a, const hr_charset *b)
{
    return a->n == b->n &&
           (a->n == 0 || memcmp(a->ranges, b->ranges, a->n * sizeof *a->ranges) == 0);
}

void hr_charset_deinit(hr_charset *s)
{
    hr_free(s->ranges);
    *s = (hr_charset){ 0 };
}
