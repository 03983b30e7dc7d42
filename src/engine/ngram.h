/* Drafts from the text itself: what followed the last few tokens where they stood before. */
#ifndef HEADRACE_ENGINE_NGRAM_H
#define HEADRACE_ENGINE_NGRAM_H

#include "base/str.h"

enum {
    HR_SPECULATION_TOKENS = 32, /* most drafts of a sequence in a step */
    HR_SPECULATION_LOOKUP = 64, /* most tokens that are looked up */
};

/* --speculative-config, checked. `= { 0 }` is none. */
typedef struct hr_speculation {
    int64_t tokens;      /* num_speculative_tokens; 0 = no speculation */
    int64_t least, most; /* prompt_lookup_min, prompt_lookup_max: tokens looked up */
} hr_speculation;

/* From {"method": "ngram", "num_speculative_tokens": N, …}; INVALID_ARGUMENT naming the member. */
HR_MUST_USE hr_status hr_speculation_parse(hr_str json, hr_speculation *out);

/* Where each run of `least` tokens stood, of one sequence. Room is taken when it is made; noting a
 * token and looking up are O(1) in the length of the sequence. */
typedef struct hr_ngram {
    int64_t least, most;
    int32_t *heads;  /* owned [mask + 1]: where the run of this hash was last followed; 0 = never */
    int32_t *before; /* borrowed [capacity]: for each such place the one before it; 0 = none */
    uint32_t mask;
    int64_t noted; /* places before this are in the lists */
} hr_ngram;

/* `before` holds `capacity` ints, not cleared, and outlives it. */
HR_MUST_USE hr_status hr_ngram_init(hr_ngram *g, const hr_speculation *s, int32_t *before,
                                    int64_t capacity);
void hr_ngram_deinit(hr_ngram *g);
/* Notes what stands in tokens[0, n), where it is not yet noted. Tokens never change. */
void hr_ngram_note(hr_ngram *g, const int32_t *tokens, int64_t n);
/* Writes guesses at tokens[n, n + wanted) and returns how many: `wanted` or none. Notes first. */
int64_t hr_ngram_propose(hr_ngram *g, int32_t *tokens, int64_t n, int64_t wanted);

#endif
