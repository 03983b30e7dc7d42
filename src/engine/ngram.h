/* Drafts from the text itself: what followed the last few tokens where they stood before. */
#ifndef HEADRACE_ENGINE_NGRAM_H
#define HEADRACE_ENGINE_NGRAM_H

#include "sampler/sampler.h"

enum {
    HR_SPECULATION_TOKENS = HR_SAMPLING_MAX_DRAFTS, /* of a sequence in a step */
    HR_SPECULATION_LOOKUP = 64,                     /* most tokens that are looked up */
};

/* --speculative-config, checked. `= { 0 }` is none. */
typedef struct hr_speculation {
    int64_t tokens;      /* num_speculative_tokens; 0 = no speculation */
    int64_t least, most; /* prompt_lookup_min, prompt_lookup_max: tokens looked up */
    bool adaptive;       /* enable_adaptive_verification: fewer drafts where they do not pay */
} hr_speculation;

/* From {"method": "ngram", "num_speculative_tokens": N, …}; INVALID_ARGUMENT naming the member. */
HR_MUST_USE hr_status hr_speculation_parse(hr_str json, hr_speculation *out);

/* Where each run of `least` tokens stood, of one sequence, and what was guessed last. Room is taken
 * when it is made; noting a token and looking up are O(1) in the length of the sequence. */
typedef struct hr_ngram {
    int64_t least, most, wanted;
    int32_t *heads;  /* owned [mask + 1]: where the run of this hash was last followed; 0 = never */
    int32_t *before; /* borrowed [capacity]: for each such place the one before it; 0 = none */
    uint32_t mask;
    int64_t noted; /* places before this are in the lists */
    int32_t guesses[HR_SPECULATION_TOKENS];
    int64_t n_guesses, guessed_at; /* `wanted` or none; where the first of them would stand */
    double right, tried;           /* guesses that came true, those that could: old ones fade */
} hr_ngram;

/* `before` holds `capacity` ints, not cleared, and outlives it. */
HR_MUST_USE hr_status hr_ngram_init(hr_ngram *g, const hr_speculation *s, int32_t *before,
                                    int64_t capacity);
void hr_ngram_deinit(hr_ngram *g);
/* Notes what stands in tokens[0, n), where it is not yet noted. Tokens never change. */
void hr_ngram_note(hr_ngram *g, const int32_t *tokens, int64_t n);
/* Sees what became of the last guesses, notes, and guesses what stands at tokens[n] and after it.
 */
void hr_ngram_guess(hr_ngram *g, const int32_t *tokens, int64_t n);
/* How many of the guesses are worth `price` each, the part of a token's time that checking one
 * takes: a guess is right when all before it are, and then saves a token. All, for 0. */
int64_t hr_ngram_worth(const hr_ngram *g, double price);

#endif
