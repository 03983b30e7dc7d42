/* Sampling: parameters, the row tensors they become, the sampler graph. This room's door.
 *
 * spec/sampling.md declares the semantics. Every option is data: a row of tensors whose identity
 * values switch it off, so no option can ever compile anything. */
#ifndef HEADRACE_SAMPLER_SAMPLER_H
#define HEADRACE_SAMPLER_SAMPLER_H

#include "base/str.h"
#include "graph/graph.h"

/* ---- parameters ------------------------------------------------------------------------------ */

#define HR_SAMPLER_MAX_BIAS   1024 /* logit_bias entries */
#define HR_SAMPLER_MAX_BANNED 256  /* banned-now ids: bad_words' last ids and min_tokens' stop ids \
                                    */
#define HR_SAMPLER_MAX_EXTRA 128   /* logprob_token_ids */

typedef struct hr_token_seq {
    const int32_t *at;
    size_t n;
} hr_token_seq;

/* Validated by hr_sampling_check; every pointer is borrowed from the request's arena. */
typedef struct hr_sampling {
    uint32_t n;
    double temperature, top_p, min_p;
    int64_t top_k;
    double presence_penalty, frequency_penalty, repetition_penalty;
    bool has_seed;
    uint64_t seed;      /* drawn by the engine when !has_seed */
    int64_t max_tokens; /* -1 = the rest of the context */
    int64_t min_tokens;
    bool ignore_eos, include_stop_str_in_output, skip_special_tokens;
    const hr_str *stop; /* [n_stop] */
    size_t n_stop;
    const int64_t *stop_token_ids; /* [n_stop_token_ids] */
    size_t n_stop_token_ids;
    const int64_t *bias_ids; /* logit_bias [n_bias] */
    const double *bias_values;
    size_t n_bias;
    bool has_allowed;
    const int64_t *allowed; /* allowed_token_ids [n_allowed] */
    size_t n_allowed;
    const hr_str *bad_words; /* [n_bad_words] */
    size_t n_bad_words;
    int32_t logprobs;                 /* -1 = none */
    int32_t prompt_logprobs;          /* -1 = none */
    const int64_t *logprob_token_ids; /* [n_logprob_token_ids] */
    size_t n_logprob_token_ids;
} hr_sampling;

void hr_sampling_init(hr_sampling *s);

typedef struct hr_sampler_limits {
    int64_t vocab; /* V: width of the logits */
    int32_t max_logprobs;
} hr_sampler_limits;

/* INVALID_ARGUMENT naming the field, or HR_OK. */
HR_MUST_USE hr_status hr_sampling_check(const hr_sampling *s, const hr_sampler_limits *l);

/* ---- the graph ------------------------------------------------------------------------------- */

typedef enum hr_logprobs_mode {
    HR_LOGPROBS_RAW,
    HR_LOGPROBS_PROCESSED,
    HR_LOGITS_RAW,
    HR_LOGITS_PROCESSED,
} hr_logprobs_mode;

typedef struct hr_sampler_options {
    int64_t rows;  /* R: request bucket; set per program */
    int64_t vocab; /* V */
    int64_t slots; /* S of the device tables; slot 0 is the identity */
    int32_t max_logprobs;
    hr_logprobs_mode mode;
} hr_sampler_options;

/* One line per host-made input of the sampler program: X(name, C type, HR_DTYPE, columns, identity)
 * Shape [R] where columns is 1, else [R,columns]. */
#define HR_SAMPLER_INPUTS(X)                                                                       \
    X(temperature, float, F32, 1, 1.0f)                                                            \
    X(top_p, float, F32, 1, 1.0f)                                                                  \
    X(min_p, float, F32, 1, 0.0f)                                                                  \
    X(presence, float, F32, 1, 0.0f)                                                               \
    X(frequency, float, F32, 1, 0.0f)                                                              \
    X(repetition, float, F32, 1, 1.0f)                                                             \
    X(greedy, int32_t, I32, 1, 0)                                                                  \
    X(top_k, int32_t, I32, 1, INT32_MAX)                                                           \
    X(seed, uint32_t, U32, 2, 0)                                                                   \
    X(position, int32_t, I32, 1, 0)                                                                \
    X(bias_ids, int32_t, I32, HR_SAMPLER_MAX_BIAS, 0)                                              \
    X(bias_values, float, F32, HR_SAMPLER_MAX_BIAS, 0)                                             \
    X(bias_count, int32_t, I32, 1, 0)                                                              \
    X(banned_ids, int32_t, I32, HR_SAMPLER_MAX_BANNED, 0)                                          \
    X(banned_count, int32_t, I32, 1, 0)                                                            \
    X(allowed_slot, int32_t, I32, 1, 0)                                                            \
    X(grammar_slot, int32_t, I32, 1, 0)                                                            \
    X(penalty_slot, int32_t, I32, 1, 0)                                                            \
    X(top_n, int32_t, I32, 1, 0)                                                                   \
    X(extra_ids, int32_t, I32, HR_SAMPLER_MAX_EXTRA, -1)

/* Appends steps 1..17 to a graph that made `logits` f32 [R,V]: adds every input above, the shared
 * tables "counts" ui16 [S,V], "allowed" and "grammar" ui32 [S,W] (read only here), and the outputs
 * "token" i32 [R] · "status" i32 [R] · "logprob" f32 [R] · "rank" i32 [R] · "top_ids" i32 [R,n] ·
 * "top_logprobs" f32 [R,n] (n = max(max_logprobs, 1)) · "extra_logprobs" f32 [R,128]. */
void hr_sampler_build(hr_graph *g, hr_value *logits, const hr_sampler_options *o);
/* Prompt log-probabilities: inputs "targets" i32 [R] and "prompt_top_n" i32 [R]; outputs "logprob",
 * "rank", "top_ids", "top_logprobs" as above, always of the raw logits. */
void hr_sampler_build_prompt(hr_graph *g, hr_value *logits, const hr_sampler_options *o);
/* The small writes: a whole graph. Inputs "counts", "allowed", "grammar" (donated) and the arrays
 * of hr_table_writes; outputs "counts", "allowed", "grammar". */
void hr_sampler_build_tables(hr_graph *g, const hr_sampler_options *o);

/* ---- host side ------------------------------------------------------------------------------- */

/* Host arrays of the sampler program for R rows, all identity at first. */
typedef struct hr_sampling_inputs {
    int64_t rows;
    hr_arena arena; /* owns them */
#define HR_SAMPLER_FIELD(name, type, dtype, columns, identity) type *name;
    HR_SAMPLER_INPUTS(HR_SAMPLER_FIELD)
#undef HR_SAMPLER_FIELD
} hr_sampling_inputs;

HR_MUST_USE hr_status hr_sampling_inputs_create(int64_t rows, hr_sampling_inputs **out);
void hr_sampling_inputs_destroy(hr_sampling_inputs *in);
/* The host array of a graph input by name; NULL when it is none of them. */
const void *hr_sampling_inputs_find(const hr_sampling_inputs *in, const char *name);

/* What one sequence brings to its rows, prepared once; arrays live in the sequence's arena. */
typedef struct hr_sampler_state {
    float temperature, top_p, min_p, presence, frequency, repetition;
    bool greedy;
    int32_t top_k;
    uint64_t seed;
    const int32_t *bias_ids; /* unique, values clamped */
    const float *bias_values;
    int32_t n_bias;
    const hr_token_seq
        *bad_words; /* token sequences; only the last id is banned, after its prefix */
    size_t n_bad_words;
    const int32_t *stop_ids; /* banned until min_tokens outputs exist: every EOS, stop_token_ids */
    size_t n_stop_ids;
    int64_t min_tokens;
    const uint32_t *allowed_mask; /* [W], NULL = all */
    int32_t top_n;                /* 0 = off */
    const int32_t *extra_ids;
    int32_t n_extra;
    bool wants_penalties; /* any of the three differs from its identity */
    int32_t penalty_slot, allowed_slot, grammar_slot; /* 0 = none; given by the engine */
} hr_sampler_state;

typedef struct hr_sampler_prepare {
    const hr_sampling *sampling; /* checked */
    uint32_t choice;             /* child i of n samples with seed + i */
    int64_t vocab;
    const int32_t *eos; /* [n_eos], ids in [0, vocab) */
    size_t n_eos;
    const hr_token_seq *bad_words; /* tokenised by the caller: with and without a leading space */
    size_t n_bad_words;
} hr_sampler_prepare;

/* Fills a state; refuses a request whose masks leave nothing, when that is known already. */
HR_MUST_USE hr_status hr_sampler_state_init(const hr_sampler_prepare *p, hr_arena *arena,
                                            hr_sampler_state *out);
/* Row i for the token after tokens[0, n_tokens), of which the last n_tokens - n_prompt are output.
 * No malloc. */
void hr_sampling_inputs_set(hr_sampling_inputs *in, int64_t row, const hr_sampler_state *s,
                            const int32_t *tokens, int64_t n_prompt, int64_t n_tokens);
/* The identity row: padding. */
void hr_sampling_inputs_clear(hr_sampling_inputs *in, int64_t row);

/* One call of the tables program: U count updates, C cleared or written slots. */
#define HR_TABLE_UPDATES 4096
#define HR_TABLE_ROWS    8
typedef struct hr_table_writes {
    int32_t *count_clear;   /* [C] slots to zero first; -1 = none */
    int32_t *count_slots;   /* [U]; -1 = none */
    int32_t *count_ids;     /* [U] */
    int32_t *count_add;     /* [U]; -1 = mark as prompt */
    int32_t *allowed_slots; /* [C] rows of "allowed" to write; -1 = none */
    uint32_t *allowed_rows; /* [C,W] */
    int32_t *grammar_slots; /* [C] */
    uint32_t *grammar_rows; /* [C,W] */
    int32_t n_updates, n_clear, n_allowed, n_grammar; /* filled so far */
} hr_table_writes;

HR_MUST_USE hr_status hr_table_writes_init(hr_table_writes *w, int64_t vocab, hr_arena *arena);
/* Back to "nothing to write". */
void hr_table_writes_reset(hr_table_writes *w);
const void *hr_table_writes_find(const hr_table_writes *w, const char *name);

/* The 64-bit word of a draw: Philox4x32-10 with key = seed and counter = (position, 0, 0, 0);
 * words 1 and 0 of the result. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011. */
uint64_t hr_sampler_word(uint64_t seed, int32_t position);

#endif
