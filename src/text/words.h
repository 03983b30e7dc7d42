/* Words met before and their ids: most of a text is words it has said already. */
#ifndef HEADRACE_TEXT_WORDS_H
#define HEADRACE_TEXT_WORDS_H

#include "base/str.h"

/* Longer words, and those of more ids, are not kept. */
#define HR_WORD_BYTES 32
#define HR_WORD_IDS   7

/* A cache line. */
typedef struct hr_word {
    uint64_t key[4]; /* the word's bytes, as hr_words_find packs them */
    uint8_t n_bytes; /* 0 = empty */
    uint8_t n_ids;
    int32_t ids[HR_WORD_IDS];
} hr_word;

/* Part of the caller's scratch; `= { 0 }` is empty. */
typedef struct hr_words {
    hr_word *at;    /* owned */
    uint64_t owner; /* whose ids they are */
} hr_words;

/* Ready for words of `owner`: forgets those of another. */
HR_MUST_USE hr_status hr_words_init(hr_words *w, uint64_t owner);
/* The word's place; n_bytes 0 when it is not known, for hr_words_keep. NULL: it is not kept at all.
 * Places change with the next find. */
hr_word *hr_words_find(hr_words *w, hr_str word);
/* What the word at that place becomes. */
void hr_words_keep(hr_word *place, hr_str word, const int32_t *ids, size_t n);
void hr_words_deinit(hr_words *w);

#endif
