/* Regular expressions of pre-tokenizers, as Hugging Face's engine (Oniguruma, Ruby syntax) reads
 * them, run by PCRE2 over one byte per character. */
#ifndef HEADRACE_TEXT_PATTERN_H
#define HEADRACE_TEXT_PATTERN_H

#include "text/unicode.h"

typedef struct hr_pattern hr_pattern;

/* UNIMPLEMENTED names the construct that is not supported, INVALID_ARGUMENT says what is wrong. */
HR_MUST_USE hr_status hr_pattern_compile(hr_str regex, hr_pattern **out);
void hr_pattern_destroy(hr_pattern *p);

/* Where a search stands and what it needs; part of the caller's scratch. `= { 0 }` is empty. */
typedef struct hr_matcher {
    struct pcre2_real_match_data_8 *data;       /* owned */
    struct pcre2_real_match_context_8 *context; /* owned */
    struct pcre2_real_jit_stack_8 *stack;       /* owned */
} hr_matcher;

HR_MUST_USE hr_status hr_matcher_init(hr_matcher *m);
void hr_matcher_deinit(hr_matcher *m);

/* Replaces `classes` by one byte per character of valid UTF-8: the character's kind, as far as
 * this pattern tells characters apart. */
HR_MUST_USE hr_status hr_pattern_classify(const hr_pattern *p, hr_str text, hr_buf *classes);
/* The first match at or after character `from` (≤ classes.n): *start ≤ *end in characters, or
 * *start = SIZE_MAX. RESOURCE_EXHAUSTED when the pattern backtracks beyond all measure. */
HR_MUST_USE hr_status hr_pattern_find(const hr_pattern *p, hr_str classes, size_t from,
                                      hr_matcher *m, size_t *start, size_t *end);

/* ---- between pattern_parse.c and pattern.c --------------------------------------------------- */

#define HR_PATTERN_MAX_SETS 250
/* In a parsed program: this byte, then the index of a set of characters. */
#define HR_PATTERN_SET 0x01

/* A pattern in PCRE2 syntax but for its atoms, which are sets. */
typedef struct hr_program {
    hr_buf text;      /* owned */
    hr_charset *sets; /* owned, [n_sets], all different, sorted */
    size_t n_sets, capacity;
} hr_program;

HR_MUST_USE hr_status hr_program_parse(hr_str regex, hr_program *out);
void hr_program_deinit(hr_program *p);

#endif
