/* Inside the room: what the names of tokenizer.ggml.pre stand for. */
#ifndef HEADRACE_TEXT_GGUF_PRE_H
#define HEADRACE_TEXT_GGUF_PRE_H

#include "text/text_int.h"

#define HR_PRE_MAX_PATTERNS 6

enum {
    HR_PRE_DIGITS = 1,      /* each digit by itself, before the patterns */
    HR_PRE_NFC = 2,         /* the family's normalizer */
    HR_PRE_WHOLE_WORDS = 4, /* a word that is a token is that token */
    HR_PRE_BOS = 8,         /* a text begins with BOS where the file does not say */
};

typedef struct hr_gguf_pre {
    const char *name;
    const char *patterns[HR_PRE_MAX_PATTERNS]; /* in turn; NULL = no more */
    unsigned flags;
} hr_gguf_pre;

/* UNIMPLEMENTED names one that is not known. */
HR_MUST_USE hr_status hr_gguf_pre_find(const char *name, const hr_gguf_pre **out);

#endif
