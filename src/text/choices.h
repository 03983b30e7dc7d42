/* A choice among texts, token by token: which ids may come next so that the whole becomes one of
 * the texts, byte for byte, however it is cut into tokens. */
#ifndef HEADRACE_TEXT_CHOICES_H
#define HEADRACE_TEXT_CHOICES_H

#include "text/tokenizer.h"

enum {
    HR_CHOICES_MAX = 1024,            /* texts */
    HR_CHOICE_MAX_BYTES = 4096,       /* of one */
    HR_CHOICES_MAX_BYTES = 64 * 1024, /* of all */
};

/* The ids of a tokenizer by the bytes they stand for; special tokens stand for none. Immutable. */
typedef struct hr_token_index {
    const hr_tokenizer *tokenizer; /* borrowed */
    int32_t *ids;                  /* owned, [n], by rising bytes */
    size_t n;
} hr_token_index;

HR_MUST_USE hr_status hr_token_index_init(hr_token_index *x, const hr_tokenizer *t);
void hr_token_index_deinit(hr_token_index *x); /* a zero one is fine */

/* Immutable once made; any number of texts may be on their way through it. */
typedef struct hr_choices {
    const hr_token_index *index; /* borrowed */
    const hr_str *texts;         /* [n] by rising bytes, each once; their bytes are borrowed */
    size_t n;
} hr_choices;

/* Keeps its list in `arena`, and the texts' bytes where they are. INVALID_ARGUMENT: none, too many,
 * an empty one, or one that the vocabulary cannot spell. */
HR_MUST_USE hr_status hr_choices_init(hr_choices *c, hr_arena *arena, const hr_token_index *x,
                                      const hr_str *texts, size_t n);

/* Where one answer stands: texts [from,to) begin with its `depth` bytes. */
typedef struct hr_choice_state {
    size_t from, to, depth;
} hr_choice_state;

hr_choice_state hr_choices_start(const hr_choices *c);
/* Sets bit id%32 of word id/32 for every token that may come next, of those with a word. */
void hr_choices_next(const hr_choices *c, const hr_choice_state *s, uint32_t *words,
                     size_t n_words);
/* A text ends here. */
bool hr_choices_complete(const hr_choices *c, const hr_choice_state *s);
/* Goes on by a token; one that was not allowed leaves no text. */
void hr_choices_take(const hr_choices *c, hr_choice_state *s, int32_t token);

#endif
