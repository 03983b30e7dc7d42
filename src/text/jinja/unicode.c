/* Characters: classes and case as Python's str methods have them.
 *
 * General categories and simple mappings are utf8proc's; unicode.def adds what they leave out.
 * Pure functions over constant tables; any thread. */
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/jinja/jinja_int.h"

typedef struct special_case {
    uint32_t c, upper[3], title[3];
} special_case;

static const special_case special_cases[] = {
#define HR_JINJA_SPECIAL_CASE(c, u0, u1, u2, t0, t1, t2) { c, { u0, u1, u2 }, { t0, t1, t2 } },
#define HR_JINJA_RANGE(set, first, last)
#include "text/jinja/unicode.def"
#undef HR_JINJA_SPECIAL_CASE
#undef HR_JINJA_RANGE
};

typedef enum range_set { DIGIT, NUMERIC, LOWER, UPPER } range_set;
typedef struct range {
    range_set set;
    uint32_t first, last;
} range;

static const range ranges[] = {
#define HR_JINJA_SPECIAL_CASE(c, u0, u1, u2, t0, t1, t2)
#define HR_JINJA_RANGE(set, first, last) { set, first, last },
#include "text/jinja/unicode.def"
#undef HR_JINJA_SPECIAL_CASE
#undef HR_JINJA_RANGE
};

static bool in_set(uint32_t c, range_set set)
{
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].set == set && c >= ranges[i].first && c <= ranges[i].last) return true;
    return false;
}

static utf8proc_category_t category(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c);
}

bool hr_jinja_is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_letter(utf8proc_category_t k)
{
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool hr_jinja_is_word(uint32_t c)
{
    if (c < 0x80) return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
    if (c == HR_UTF8_BAD) return false;
    utf8proc_category_t k = category(c);
    return is_letter(k) || k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC ||
           k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_PC;
}

bool hr_jinja_is_printable(uint32_t c)
{
    if (c < 0x7F) return c >= ' ';
    switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
    }
}

bool hr_jinja_is(uint32_t c, hr_jclass class)
{
    utf8proc_category_t k = category(c);
    bool decimal = k == UTF8PROC_CATEGORY_ND, digit = decimal || in_set(c, DIGIT);
    bool numeric = digit || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
    bool upper = k == UTF8PROC_CATEGORY_LU || in_set(c, UPPER);
    bool lower = k == UTF8PROC_CATEGORY_LL || in_set(c, LOWER);
    switch (class) {
    case HR_JC_ALPHA: return is_letter(k);
    case HR_JC_DECIMAL: return decimal;
    case HR_JC_DIGIT: return digit;
    case HR_JC_NUMERIC: return numeric || in_set(c, NUMERIC);
    case HR_JC_ALNUM: return is_letter(k) || numeric || in_set(c, NUMERIC);
    case HR_JC_UPPER: return upper;
    case HR_JC_LOWER: return lower;
    case HR_JC_TITLE: return k == UTF8PROC_CATEGORY_LT;
    case HR_JC_CASED: return upper || lower || k == UTF8PROC_CATEGORY_LT;
    }
    return false;
}

static const special_case *find_special(uint32_t c)
{
    for (size_t i = 0; i < sizeof special_cases / sizeof *special_cases; i++)
        if (special_cases[i].c == c) return &special_cases[i];
    return NULL;
}

/* Letters that combine are looked through to decide whether a sigma ends its word. */
static bool is_case_ignorable(uint32_t c)
{
    utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' ||
           c == ':' || c == 0xB7 || c == 0x2019 || c == 0x2018 || c == 0x2024 || c == 0x2027;
}

static bool cased_after(const hr_jstr *s, size_t at)
{
    size_t len;
    for (; at < s->n; at += len) {
        uint32_t c = hr_utf8_decode(hr_str_slice(hr_jinja_text(s), at, s->n), &len);
        if (!is_case_ignorable(c)) return hr_jinja_is(c, HR_JC_CASED);
    }
    return false;
}

static bool cased_before(const hr_jstr *s, size_t at)
{
    size_t len;
    while (at) {
        do at--;
        while (at && ((unsigned char)s->p[at] & 0xC0) == 0x80);
        uint32_t c = hr_utf8_decode(hr_str_slice(hr_jinja_text(s), at, s->n), &len);
        if (!is_case_ignorable(c)) return hr_jinja_is(c, HR_JC_CASED);
    }
    return false;
}

static size_t map_lower(const hr_jstr *s, size_t at, size_t len, uint32_t c, uint32_t out[3])
{
    if (c == 0x0130) { /* capital I with dot */
        out[0] = 'i';
        out[1] = 0x0307;
        return 2;
    }
    if (c == 0x03A3) /* sigma at the end of a word */
        out[0] = cased_before(s, at) && !cased_after(s, at + len) ? 0x03C2 : 0x03C3;
    else out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    return 1;
}

static size_t map_fold(uint32_t c, uint32_t out[3])
{
    utf8proc_int32_t folded[3];
    int class = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)c, folded, 3, UTF8PROC_CASEFOLD, &class);
    if (n < 1 || n > 3) {
        out[0] = c;
        return 1;
    }
    for (utf8proc_ssize_t i = 0; i < n; i++) out[i] = (uint32_t)folded[i];
    return (size_t)n;
}

static size_t map_upper(uint32_t c, hr_jcase to, uint32_t out[3])
{
    const special_case *special = find_special(c);
    if (!special) {
        utf8proc_int32_t i = (utf8proc_int32_t)c;
        out[0] = (uint32_t)(to == HR_JCASE_UPPER ? utf8proc_toupper(i) : utf8proc_totitle(i));
        return 1;
    }
    const uint32_t *from = to == HR_JCASE_UPPER ? special->upper : special->title;
    size_t n = 0;
    while (n < 3 && from[n]) {
        out[n] = from[n];
        n++;
    }
    return n;
}

void hr_jinja_put_case(hr_jbuilder *b, const hr_jstr *s, size_t from, size_t to, hr_jcase to_case)
{
    size_t len;
    for (size_t at = from; at < to; at += len) {
        uint32_t c = hr_utf8_decode(hr_str_slice(hr_jinja_text(s), at, s->n), &len), out[3];
        size_t n = 1;
        if (to_case == HR_JCASE_LOWER) n = map_lower(s, at, len, c, out);
        else if (to_case == HR_JCASE_FOLD) n = map_fold(c, out);
        else n = map_upper(c, to_case, out);
        bool data = hr_jinja_is_data(s, at, at + len);
        for (size_t i = 0; i < n; i++) hr_jinja_put_char(b, out[i], data);
    }
}

size_t hr_jinja_skip_space(hr_str s, size_t at)
{
    size_t len;
    while (at < s.n && hr_jinja_is_space(hr_utf8_decode(hr_str_slice(s, at, s.n), &len))) at += len;
    return at;
}

size_t hr_jinja_rstrip(hr_str s)
{
    size_t end = s.n;
    while (end) {
        size_t at = end - 1, len;
        while (at && ((unsigned char)s.p[at] & 0xC0) == 0x80) at--;
        if (!hr_jinja_is_space(hr_utf8_decode(hr_str_slice(s, at, end), &len))) break;
        end = at;
    }
    return end;
}
