/* Between load_json.c and the loaders of stages: a tokenizer.json under way. */
#ifndef HEADRACE_TEXT_LOAD_INT_H
#define HEADRACE_TEXT_LOAD_INT_H

#include "base/json.h"
#include "text/text_int.h"

/* Members by name, typed, absent or null = the default. A wrong type is INVALID_ARGUMENT. */
HR_MUST_USE hr_status hr_load_bool(const hr_json *object, const char *key, bool absent, bool *out);
/* *out.p is NULL when absent or null. */
HR_MUST_USE hr_status hr_load_str(const hr_json *object, const char *key, hr_str *out);
/* The member `type` of a stage: a string that must be there. */
HR_MUST_USE hr_status hr_load_type(const hr_json *stage, const char *what, hr_str *out);
/* A string of one character. */
HR_MUST_USE hr_status hr_load_char(const hr_json *object, const char *key, const char *what,
                                   hr_str *out);
bool hr_load_is_null(const hr_json *v);

/* ---- load_stages.c: what all kinds of stages share ------------------------------------------- */

#define HR_COUNT(a) (sizeof(a) / sizeof((a)[0]))

typedef hr_status (*hr_stage_loader)(const hr_json *v, hr_tokenizer *t, int depth);

typedef struct hr_stage_type {
    const char *name;
    hr_stage_loader load;
} hr_stage_type;

/* By its type, out of a table; null is nothing. */
HR_MUST_USE hr_status hr_load_stage(const hr_json *v, hr_tokenizer *t, int depth, const char *what,
                                    const hr_stage_type *types, size_t n);
HR_MUST_USE hr_status hr_load_list(const hr_json *list, const char *what, hr_tokenizer *t,
                                   int depth, hr_stage_loader load);
/* {"String": "…"} or {"Regex": "…"}. */
HR_MUST_USE hr_status hr_load_pattern(const hr_json *v, const char *what, hr_str *text,
                                      bool *regex);
/* Of Metaspace: prepend_scheme, or what older files say with add_prefix_space. */
HR_MUST_USE hr_status hr_load_scheme(const hr_json *v, const char *what, hr_prepend_scheme *out);

/* ---- one loader per kind ---------------------------------------------------------------------
 */

HR_MUST_USE hr_status hr_load_normalizer(const hr_json *v, hr_tokenizer *t);
HR_MUST_USE hr_status hr_load_pre_tokenizer(const hr_json *v, hr_tokenizer *t);
/* After the vocabulary: its tokens must exist. */
HR_MUST_USE hr_status hr_load_post_processor(const hr_json *v, hr_tokenizer *t);
HR_MUST_USE hr_status hr_load_decoder(const hr_json *v, hr_tokenizer *t);

#endif
