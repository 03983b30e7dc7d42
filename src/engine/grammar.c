/* A choice among texts as a grammar.
 *
 * Made on the input thread; the engine thread fills and accepts; states end wherever their sequence
 * does. Between tokens a state is three numbers, so filling allocates nothing. */
#include "engine/grammar.h"

typedef struct choice {
    hr_choices choices;
    const int64_t *eos; /* borrowed, [n_eos] */
    size_t n_eos;
} choice;

typedef struct state {
    const choice *of;
    hr_choice_state at;
} state;

static void *begin(void *context, uint32_t number)
{
    const choice *c = context;
    state *s = hr_new0(state);
    (void)number;
    if (s) *s = (state){ c, hr_choices_start(&c->choices) };
    return s;
}

static int fill(void *of, uint32_t *words, size_t n_words)
{
    const state *s = of;
    const choice *c = s->of;
    hr_choices_next(&c->choices, &s->at, words, n_words);
    if (!hr_choices_complete(&c->choices, &s->at)) return 1;
    for (size_t i = 0; i < c->n_eos; i++)
        words[c->eos[i] / 32] |= (uint32_t)1
                                 << (c->eos[i] % 32); /* in [0, V), as the engine has it */
    return 1;
}

static void accept(void *of, int64_t token)
{
    state *s = of;
    hr_choices_take(&s->of->choices, &s->at, (int32_t)token);
}

static void end(void *of)
{
    hr_free(of);
}

hr_status hr_grammar_of_choice(hr_arena *arena, const hr_token_index *index, const hr_str *texts,
                               size_t n, const int64_t *eos, size_t n_eos, headrace_grammar *out)
{
    choice *c = hr_arena_new(arena, choice);
    if (!c) return hr_fail(HR_RESOURCE_EXHAUSTED, "choice");
    *c = (choice){ .eos = eos, .n_eos = n_eos };
    HR_TRY(hr_choices_init(&c->choices, arena, index, texts, n));
    *out = (headrace_grammar){ .size = sizeof *out,
                               .context = c,
                               .begin = begin,
                               .fill = fill,
                               .accept = accept,
                               .end = end };
    return HR_OK;
}
