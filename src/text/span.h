/* Text with provenance: who wrote which bytes. What the template renderer hands to the tokenizer.
 */
#ifndef HEADRACE_TEXT_SPAN_H
#define HEADRACE_TEXT_SPAN_H

#include "base/str.h"

typedef enum hr_span_kind {
    HR_SPAN_PLAIN,   /* data: special-token text is plain text */
    HR_SPAN_SPECIAL, /* written by a template, or a raw prompt: special tokens are parsed */
} hr_span_kind;

typedef struct hr_text_span {
    hr_str text;
    hr_span_kind kind;
} hr_text_span;

#endif
