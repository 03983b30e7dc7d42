/* Between load_json.c and load_stages.c: a tokenizer.json under way. */
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
bool hr_load_is_null(const hr_json *v);

HR_MUST_USE hr_status hr_load_normalizer(const hr_json *v, hr_tokenizer *t);
HR_MUST_USE hr_status hr_load_pre_tokenizer(const hr_json *v, hr_tokenizer *t);
/* After the vocabulary: its tokens must exist. */
HR_MUST_USE hr_status hr_load_post_processor(const hr_json *v, hr_tokenizer *t);
HR_MUST_USE hr_status hr_load_decoder(const hr_json *v, hr_tokenizer *t);

#endif
