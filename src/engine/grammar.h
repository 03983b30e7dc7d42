/* The engine's own grammars, behind the interface that callers' grammars have. */
#ifndef HEADRACE_ENGINE_GRAMMAR_H
#define HEADRACE_ENGINE_GRAMMAR_H

#include "headrace/headrace.h"
#include "text/choices.h"

/* One of the texts, then EOS. The grammar lives in `arena`, and borrows the texts, the index and
 * `eos` [n_eos]. INVALID_ARGUMENT: choice, and what is wrong with it. */
HR_MUST_USE hr_status hr_grammar_of_choice(hr_arena *arena, const hr_token_index *index,
                                           const hr_str *texts, size_t n, const int64_t *eos,
                                           size_t n_eos, headrace_grammar *out);

#endif
