/* What this room knows about characters, pinned to the Unicode versions that Hugging Face
 * `tokenizers` uses (tools/make_unicode.py), and sets of characters made from it. */
#ifndef HEADRACE_TEXT_UNICODE_H
#define HEADRACE_TEXT_UNICODE_H

#include "base/str.h"

#define HR_UNICODE_LAST 0x10FFFFu

/* In the order of tools/make_unicode.py. */
typedef enum hr_category {
    HR_CN,
    HR_LU,
    HR_LL,
    HR_LT,
    HR_LM,
    HR_LO,
    HR_MN,
    HR_MC,
    HR_ME,
    HR_ND,
    HR_NL,
    HR_NO,
    HR_PC,
    HR_PD,
    HR_PS,
    HR_PE,
    HR_PI,
    HR_PF,
    HR_PO,
    HR_SM,
    HR_SC,
    HR_SK,
    HR_SO,
    HR_ZS,
    HR_ZL,
    HR_ZP,
    HR_CC,
    HR_CF,
    HR_CS,
    HR_CO,
} hr_category;

/* First and last character, both included. */
typedef struct hr_range {
    uint32_t lo, hi;
} hr_range;

/* Capitals lo, lo + step … hi, whose small letters are `distance` further on. */
typedef struct hr_case_run {
    uint32_t lo, hi;
    int32_t step, distance;
} hr_case_run;

typedef struct hr_script {
    const char *name;
    const hr_range *ranges; /* [n], ascending */
    size_t n;
} hr_script;

extern const uint32_t hr_unicode_runs[];
extern const size_t hr_unicode_n_runs;
extern const hr_range hr_unicode_late_numbers[];
extern const size_t hr_unicode_n_late_numbers;
extern const hr_range hr_unicode_late_marks[];
extern const size_t hr_unicode_n_late_marks;
extern const hr_case_run hr_unicode_lower[];
extern const size_t hr_unicode_n_lower;
extern const hr_range hr_unicode_punctuation[];
extern const size_t hr_unicode_n_punctuation;
extern const hr_script hr_unicode_scripts[];
extern const size_t hr_unicode_n_scripts;

hr_category hr_unicode_category(uint32_t c);
/* White_Space, which every part of Hugging Face agrees on. */
bool hr_unicode_is_space(uint32_t c);
/* \w as Rust's regex has it: decides what a single word is. */
bool hr_unicode_is_word(uint32_t c);
/* char::to_lowercase of Rust, but for U+0130, which becomes two characters. */
uint32_t hr_unicode_to_lower(uint32_t c);
bool hr_ranges_have(const hr_range *r, size_t n, uint32_t c);

/* ---- sets of characters -------------------------------------------------------------------- */

/* `= { 0 }` is empty. Adding keeps no order; everything else wants hr_charset_sort first. */
typedef struct hr_charset {
    hr_range *ranges; /* owned */
    size_t n, capacity;
} hr_charset;

HR_MUST_USE hr_status hr_charset_add(hr_charset *s, uint32_t lo, uint32_t hi);
HR_MUST_USE hr_status hr_charset_add_set(hr_charset *s, const hr_charset *other);
/* Bit k of `categories`: all characters of hr_category k. */
HR_MUST_USE hr_status hr_charset_add_categories(hr_charset *s, uint32_t categories);
HR_MUST_USE hr_status hr_charset_add_space(hr_charset *s);
/* \w as Oniguruma has it: decides what patterns match. */
HR_MUST_USE hr_status hr_charset_add_word(hr_charset *s);
/* char::is_numeric of Rust. */
HR_MUST_USE hr_status hr_charset_add_numeric(hr_charset *s);
/* What the pre-tokenizer Punctuation cuts out. */
HR_MUST_USE hr_status hr_charset_add_punctuation(hr_charset *s);
/* A \p{name}: a general category, a group of them or a script. UNIMPLEMENTED names an unknown one.
 */
HR_MUST_USE hr_status hr_charset_add_property(hr_charset *s, hr_str name);
/* Ascending, disjoint, none touching. */
void hr_charset_sort(hr_charset *s);
HR_MUST_USE hr_status hr_charset_negate(hr_charset *s);
/* Keeps what is in both. */
HR_MUST_USE hr_status hr_charset_intersect(hr_charset *s, const hr_charset *other);
/* Adds the other cases of ASCII letters, with U+017F for s and U+212A for k; UNIMPLEMENTED when
 * the set has other characters that have cases. */
HR_MUST_USE hr_status hr_charset_fold(hr_charset *s);
bool hr_charset_equal(const hr_charset *a, const hr_charset *b);
bool hr_charset_has(const hr_charset *s, uint32_t c);
void hr_charset_deinit(hr_charset *s);

#endif
