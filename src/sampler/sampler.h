/* Sampling: parameters, the row tensors they become, and the graphs that read them. The door.
 *
 * Three objects, three lifetimes:
 *   hr_sampling          what a request asked for, checked once by hr_sampling_check
 *   hr_sampler_state     one sequence's share of it: its seed, ban lists and table slots
 *   hr_sampling_inputs   host arrays of one step, R rows wide; every row is data, never a program
 * An option is off when its row holds the identity value, so switching one on compiles nothing.
 * Semantics: the sampling chapter of the documentation; the ops are in graph/ops.def. */
#ifndef HEADRACE_SAMPLER_SAMPLER_H
#define HEADRACE_SAMPLER_SAMPLER_H

#include "base/str.h"
#include "graph/graph.h"

/* ---- what a request asks for ----------------------------------------------------------------- */

typedef struct hr_id_list {
    const int32_t *ids; /* [n] */
    size_t n;
} hr_id_list;

/* Field names are the public ones. Pointers are borrowed. Starts at hr_sampling_init. */
typedef struct hr_sampling {
    int64_t n;                  /* 1: choices; choice i draws with seed + i mod 2^64 */
    double temperature;         /* 1; 0 to 2; below 1e-5 greedy; 1e-5 to 0.01 is raised to 0.01 */
    int64_t top_k;              /* 0; 0, -1 and above the vocabulary: off */
    double top_p;               /* 1; (0, 1] */
    double min_p;               /* 0; [0, 1] */
    double presence_penalty;    /* 0; [-2, 2]; generated tokens */
    double frequency_penalty;   /* 0; [-2, 2]; generated tokens */
    double repetition_penalty;  /* 1; > 0; prompt and generated tokens */
    int64_t seed;               /* -1 = none yet: hr_sampling_draw_seed */
    int64_t max_tokens;         /* -1 = the rest of the context; 0 only scores the prompt */
    int64_t default_max_tokens; /* 0 = none, else a limit where max_tokens is -1 */
    int64_t min_tokens;         /* 0 */
    bool ignore_eos;
    bool include_stop_str_in_output;
    bool skip_special_tokens; /* true */
    int32_t logprobs;         /* -1 = none, else top entries besides the chosen token */
    int32_t prompt_logprobs;  /* -1 = none */
    bool sampling_trace;      /* tell how each token came to be chosen */
    const hr_str *stop;       /* [n_stop] non-empty, UTF-8 */
    const int64_t *stop_token_ids;
    const int64_t *logit_bias_ids;    /* [n_logit_bias] */
    const double *logit_bias_values;  /* [n_logit_bias] used clamped to ±100 */
    const int64_t *allowed_token_ids; /* NULL = all */
    const hr_str *bad_words;          /* [n_bad_words] non-empty */
    const int64_t *logprob_token_ids;
    size_t n_stop, n_stop_token_ids, n_logit_bias, n_allowed_token_ids, n_bad_words,
        n_logprob_token_ids;
    const hr_str *choice; /* [n_choice] structured output: the text is one of these */
    size_t n_choice;
    bool grammar; /* a structured output of whatever kind */
    /* bad_words tokenised, with and without a leading space, no BOS; whoever holds the tokenizer
     * sets it between hr_sampling_check and hr_sampler_state_init. */
    const hr_id_list *bad_word_ids; /* [n_bad_word_ids] non-empty */
    size_t n_bad_word_ids;
} hr_sampling;

/* Capacities of a row. */
enum {
    HR_SAMPLING_MAX_N = 1024,
    HR_SAMPLING_MAX_BIAS = 1024,
    HR_SAMPLING_MAX_BANNED = 256, /* bad words' last ids, stop ids and EOS ids together */
    HR_SAMPLING_MAX_BAD_WORDS = 128,
    HR_SAMPLING_MAX_STOP = 64, /* strings, and as many ids */
    HR_SAMPLING_MAX_EXTRA = 128,
    HR_SAMPLING_MAX_DRAFTS = 32, /* tokens before a row's that are guesses */
};

/* What the sampler's programs can do; fixed at start. */
typedef enum hr_sampler_kind {
    HR_SAMPLER_FULL,
    HR_SAMPLER_GREEDY, /* the likeliest token and no more: no table, no draw, no log-probability */
} hr_sampler_kind;
/* "full", "greedy". */
HR_MUST_USE hr_status hr_sampler_kind_parse(hr_str name, hr_sampler_kind *out);

typedef struct hr_sampler_limits {
    hr_sampler_kind kind;
    int64_t vocab;      /* V: width of the logits */
    int64_t used_vocab; /* ids from here on are padding of the checkpoint; 0 = V */
    int64_t max_model_len;
    int32_t max_logprobs;
} hr_sampler_limits;

void hr_sampling_init(hr_sampling *s);
/* INVALID_ARGUMENT naming the field, for every value, id and list length that is out of range, and
 * for what a greedy sampler has not. */
HR_MUST_USE hr_status hr_sampling_check(const hr_sampling *s, const hr_sampler_limits *l);
/* A seed from the system where none was given; the answer reports it. */
HR_MUST_USE hr_status hr_sampling_draw_seed(hr_sampling *s);
bool hr_sampling_is_greedy(const hr_sampling *s);
/* To ±100. */
double hr_sampling_clamp_bias(double x);

/* ---- one sequence ---------------------------------------------------------------------------- */

/* What is added to logits. */
typedef struct hr_bias_list {
    const int32_t *ids; /* [n] each once */
    const float *values;
    int32_t n; /* at most HR_SAMPLING_MAX_BIAS */
} hr_bias_list;

typedef struct hr_sampler_state {
    const hr_sampling *sampling; /* borrowed; outlives the state */
    uint64_t seed;               /* of this choice */
    hr_id_list stop;             /* EOS ids and stop_token_ids: banned until min_tokens */
    hr_id_list allowed;          /* [] = all; arena */
    int32_t counts_slot;         /* 0 = none; set by hr_sampler_state_set_slots */
    int32_t allowed_slot;        /* 0 = none */
    int32_t grammar_slot;        /* 0 = none; the grammar engine writes that table's rows */
    hr_bias_list bias;           /* borrowed; in place of the request's unless ids is NULL */
    int64_t counted;             /* tokens already in the counts table; -1 = slot not cleared */
    bool allowed_written;
} hr_sampler_state;

/* Builds what rows need, in `arena`. INVALID_ARGUMENT when it is already known that the masks
 * leave nothing to choose. `eos` are the model's EOS ids. */
HR_MUST_USE hr_status hr_sampler_state_init(hr_sampler_state *s, hr_arena *arena,
                                            const hr_sampling *sampling, const hr_sampler_limits *l,
                                            const int64_t *eos, size_t n_eos, uint32_t choice);
/* Which table slots a sequence must own before it may be a row. */
bool hr_sampler_state_wants_counts(const hr_sampler_state *s);
bool hr_sampler_state_wants_allowed(const hr_sampler_state *s);
/* Slots from 1 on; 0 where not wanted. Their contents are written by hr_sampling_inputs_feed. The
 * grammar's is set step by step by whoever fills it. */
void hr_sampler_state_set_slots(hr_sampler_state *s, int32_t counts, int32_t allowed);

/* ---- programs -------------------------------------------------------------------------------- */

typedef enum hr_logprobs_mode {
    HR_LOGPROBS_RAW,              /* log-softmax after the grammar mask, before anything else */
    HR_LOGPROBS_PROCESSED,        /* log-softmax over the survivors, tempered */
    HR_LOGPROBS_RAW_LOGITS,       /* logits after the grammar mask */
    HR_LOGPROBS_PROCESSED_LOGITS, /* tempered logits of the survivors */
} hr_logprobs_mode;
/* "raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits". */
HR_MUST_USE hr_status hr_logprobs_mode_parse(hr_str name, hr_logprobs_mode *out);
const char *hr_logprobs_mode_name(hr_logprobs_mode m);

/* What shapes the sampler's programs; fixed at start. */
typedef struct hr_sampler_options {
    hr_sampler_kind kind;
    int64_t vocab;      /* V */
    int64_t used_vocab; /* 0 = V */
    int64_t slots;      /* S of each table, slot 0 included; ≥ 1 */
    int32_t max_logprobs;
    hr_logprobs_mode mode;
    bool drafts; /* a row may have tokens before it that are in no counts */
} hr_sampler_options;

/* Columns of top_ids and top_logprobs: max_logprobs, at least 1, at most V. */
int32_t hr_sampler_top(const hr_sampler_options *o);
/* Words of a mask row. */
static inline int64_t hr_sampler_words(int64_t vocab)
{
    return (vocab + 31) / 32;
}

/* Changes that one run of the tables program takes. */
enum {
    HR_TABLE_CLEARS = 32,   /* count slots zeroed */
    HR_TABLE_COUNTS = 2048, /* tokens counted */
    HR_TABLE_ROWS = 4,      /* mask rows written, per table */
};

/* Every host-made input: X(field, program, dtype, C type, columns, identity). The graph inputs,
 * the host arrays and the binding all follow from this list. An input is named as its field.
 * SAMPLER: [R] or [R,columns]; TABLES: [columns] or, for mask rows, [HR_TABLE_ROWS,W].
 * An identity of KEEP is not written: a count of 0 says that nothing there is read. */
#define HR_SAMPLING_INPUTS(X)                                                                      \
    X(temperature, SAMPLER, F32, float, 1, 1.0f) /* 0 = greedy row: nothing is tempered */         \
    X(top_p, SAMPLER, F32, float, 1, 1.0f)                                                         \
    X(min_p, SAMPLER, F32, float, 1, 0.0f)                                                         \
    X(presence, SAMPLER, F32, float, 1, 0.0f)                                                      \
    X(frequency, SAMPLER, F32, float, 1, 0.0f)                                                     \
    X(repetition, SAMPLER, F32, float, 1, 1.0f)                                                    \
    X(greedy, SAMPLER, I32, int32_t, 1, 0)                                                         \
    X(top_k, SAMPLER, I32, int32_t, 1, (int32_t)in->options.vocab)                                 \
    X(seed, SAMPLER, U32, uint32_t, 2, 0u)   /* low word, high word */                             \
    X(position, SAMPLER, I32, int32_t, 1, 0) /* of the token to draw; -1 = greedy, no draw */      \
    X(bias_ids, SAMPLER, I32, int32_t, HR_SAMPLING_MAX_BIAS, KEEP)                                 \
    X(bias_values, SAMPLER, F32, float, HR_SAMPLING_MAX_BIAS, KEEP)                                \
    X(bias_count, SAMPLER, I32, int32_t, 1, 0)                                                     \
    X(banned_ids, SAMPLER, I32, int32_t, HR_SAMPLING_MAX_BANNED, KEEP)                             \
    X(banned_count, SAMPLER, I32, int32_t, 1, 0)                                                   \
    X(allowed_slot, SAMPLER, I32, int32_t, 1, 0)                                                   \
    X(grammar_slot, SAMPLER, I32, int32_t, 1, 0)                                                   \
    X(counts_slot, SAMPLER, I32, int32_t, 1, 0)                                                    \
    X(draft_ids, SAMPLER, I32, int32_t, HR_SAMPLING_MAX_DRAFTS,                                    \
      KEEP) /* only with options.drafts */                                                         \
    X(draft_count, SAMPLER, I32, int32_t, 1, 0)                                                    \
    X(wanted, SAMPLER, I32, int32_t, 1, 0) /* top entries; the prompt program reads it too */      \
    X(extra_ids, SAMPLER, I32, int32_t, HR_SAMPLING_MAX_EXTRA, -1)                                 \
    X(trace, SAMPLER, I32, int32_t, 1, 0) /* 0 none, 1 of a greedy row, 2 of one that draws */     \
    X(count_clear, TABLES, I32, int32_t, HR_TABLE_CLEARS, -1)                                      \
    X(count_slots, TABLES, I32, int32_t, HR_TABLE_COUNTS, -1)                                      \
    X(count_ids, TABLES, I32, int32_t, HR_TABLE_COUNTS, 0)                                         \
    X(count_add, TABLES, I32, int32_t, HR_TABLE_COUNTS, 0)                                         \
    X(allowed_slots, TABLES, I32, int32_t, HR_TABLE_ROWS, -1)                                      \
    X(allowed_rows, TABLES, U32, uint32_t, 0, KEEP) /* columns: W */                               \
    X(grammar_slots, TABLES, I32, int32_t, HR_TABLE_ROWS, -1)                                      \
    X(grammar_rows, TABLES, U32, uint32_t, 0, KEEP)

/* HR_SAMPLER_GREEDY: one output of those below and the last, "token" and "status", and no input.
 * Otherwise it appends steps 1 to 17 to logits f32 [R,V]. Inputs: the SAMPLER ones of the list, in
 * its order, then the tables "counts" u16 [S,V], "allowed" and "grammar" u32 [S,W]; slot 0 of each
 * is never read: it stands for no counts, all ones. Outputs: "token" i32 [R] (-1 when there is
 * none), "logprob" f32 [R], "rank" i32 [R], "top_ids" i32 [R,top] (-1 past what was wanted),
 * "top_logprobs" f32 [R,top], "extra_logprobs" f32 [R,128], "status" i32 [R] (0 ok, 1 empty, 2
 * NaN). Then for rows whose `trace` is set, otherwise 0 but for the cuts: "trace_grammar" and
 * "trace_masks" i32 [R], ids above -inf after steps 1 and 9; "trace_cuts" f32 [R,3], where min_p,
 * top_k and top_p cut y, "trace_counts" i32 [R,3], what was left by each, and "trace_sums" f32
 * [R,2], entropy in nats and the token's share of what was drawn from. */
void hr_sampler_build(hr_graph *g, hr_value *logits, const hr_sampler_options *o);
/* Scores given tokens: inputs "targets" i32 [R] and "wanted"; outputs logprob, rank, top_ids,
 * top_logprobs, status as above, of the plain distribution (raw modes) whatever the request. */
void hr_sampler_build_prompt(hr_graph *g, hr_value *logits, const hr_sampler_options *o);
/* The small program that changes the tables. Inputs: the TABLES ones, then "counts", "allowed",
 * "grammar", which are donated and come back as outputs of the same names. */
void hr_sampler_build_tables(hr_graph *g, const hr_sampler_options *o);

enum { HR_SAMPLER_EMPTY = 1, HR_SAMPLER_NAN = 2 }; /* a row's status */

/* ---- host arrays of a step ------------------------------------------------------------------- */

typedef struct hr_sampling_inputs {
    hr_sampler_options options;
    int64_t rows;   /* R of the largest bucket; a smaller bucket uses the first rows */
    hr_arena arena; /* owns the arrays */
#define HR_SAMPLING_FIELD(field, program, dtype, type, columns, identity) type *field;
    HR_SAMPLING_INPUTS(HR_SAMPLING_FIELD)
#undef HR_SAMPLING_FIELD
    int64_t filled;                  /* rows from here on hold the identity */
    int64_t biased, banned, drafted; /* rows up to the last one whose ids are read */
    int32_t n_clear, n_counts, n_allowed, n_grammar;
} hr_sampling_inputs;

HR_MUST_USE hr_status hr_sampling_inputs_create(const hr_sampler_options *o, int64_t rows,
                                                hr_sampling_inputs **out);
void hr_sampling_inputs_destroy(hr_sampling_inputs *in); /* NULL is fine */

/* All rows from `row` on to the identity: what warm-up runs on, and every step starts from. */
void hr_sampling_inputs_clear(hr_sampling_inputs *in, int64_t row);
/* Row i draws the token at position n_tokens of a sequence: `tokens` holds n_prompt ids of the
 * prompt, then what was generated. No malloc. */
void hr_sampling_inputs_set_row(hr_sampling_inputs *in, int64_t i, const hr_sampler_state *s,
                                const int32_t *tokens, int64_t n_prompt, int64_t n_tokens);
/* Row i of a prompt-logprobs step. */
void hr_sampling_inputs_set_prompt_row(hr_sampling_inputs *in, int64_t i,
                                       const hr_sampler_state *s);

/* Tables, before a step that samples: empty the lists, feed every sequence that samples, run the
 * tables program if hr_sampling_inputs_changes. */
void hr_sampling_inputs_clear_tables(hr_sampling_inputs *in);
/* Queues what the sequence's slots lack. False: the lists are full; run the program, clear_tables,
 * and feed again. */
HR_MUST_USE bool hr_sampling_inputs_feed(hr_sampling_inputs *in, hr_sampler_state *s,
                                         const int32_t *tokens, int64_t n_prompt, int64_t n_tokens);
/* Queues a mask for a slot of the allowed table, words u32 [W]. False: full, as above. */
HR_MUST_USE bool hr_sampling_inputs_allowed(hr_sampling_inputs *in, int32_t slot,
                                            const uint32_t *words);
/* Queues a grammar mask for a slot: its words u32 [W], all 0, to be filled before the program runs.
 * NULL: full, as above. */
HR_MUST_USE uint32_t *hr_sampling_inputs_grammar(hr_sampling_inputs *in, int32_t slot);
/* Takes back the mask that was queued last. */
void hr_sampling_inputs_drop_grammar(hr_sampling_inputs *in);
bool hr_sampling_inputs_changes(const hr_sampling_inputs *in);

/* The host array behind a graph input's name. `rows` says how many leading rows a program must be
 * given when n_rows are live (bias and ban lists: up to the last row that uses them; a TABLES
 * input: all). */
typedef struct hr_sampling_array {
    const void *data;
    int64_t rows;
    size_t row_bytes;
} hr_sampling_array;
bool hr_sampling_inputs_find(const hr_sampling_inputs *in, const char *name, int64_t n_rows,
                             hr_sampling_array *out);
/* The same in two halves, so that a step compares no names: where an input stands (-1 = none of
 * these), and its array. */
int hr_sampling_inputs_index(const char *name);
hr_sampling_array hr_sampling_inputs_at(const hr_sampling_inputs *in, int index, int64_t n_rows);

#endif
