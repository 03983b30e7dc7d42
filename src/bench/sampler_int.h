/* Inside the sampler's benchmark: a random head, its programs on one device, the cases. */
#ifndef HEADRACE_BENCH_SAMPLER_INT_H
#define HEADRACE_BENCH_SAMPLER_INT_H

#include "backend/backend.h"
#include "bench/bench_int.h"
#include "sampler/sampler.h"

typedef enum hr_bench_head {
    HR_BENCH_HEAD_FLOAT32,
    HR_BENCH_HEAD_BFLOAT16,
    HR_BENCH_HEAD_W8A8, /* int8 per channel, rows in int8 */
    HR_BENCH_HEADS,
} hr_bench_head;
extern const char *const hr_bench_head_names[HR_BENCH_HEADS];

/* X(name, text, temperature, top_k, top_p, min_p, penalties, biases, masked, logprobs) */
#define HR_BENCH_CASES(X)                                                                          \
    X(GREEDY, "greedy", 0, 0, 1, 0, false, 0, false, -1)                                           \
    X(DRAW, "draw", 1, 0, 1, 0, false, 0, false, -1)                                               \
    X(TEMPERATURE, "temperature .8", .8, 0, 1, 0, false, 0, false, -1)                             \
    X(TOP_K, "top_k 40", 1, 40, 1, 0, false, 0, false, -1)                                         \
    X(TOP_P, "top_p .9", 1, 0, .9, 0, false, 0, false, -1)                                         \
    X(MIN_P, "min_p .05", 1, 0, 1, .05, false, 0, false, -1)                                       \
    X(PENALTIES, "three penalties", 1, 0, 1, 0, true, 0, false, -1)                                \
    X(BIASES, "50 biases", 1, 0, 1, 0, false, 50, false, -1)                                       \
    X(MASK, "bitmask", 1, 0, 1, 0, false, 0, true, -1)                                             \
    X(LOGPROBS, "logprobs 5", 1, 0, 1, 0, false, 0, false, 5)                                      \
    X(TOP_K_TOP_P, "temperature, top_k, top_p", .8, 40, .9, 0, false, 0, false, -1)                \
    X(EVERYTHING, "everything", .8, 40, .9, .05, true, 50, true, 5)

/* Cuts from narrow to wide, of the sampler alone (--sweep). */
#define HR_BENCH_HALF_VOCAB (-2) /* as top_k */
#define HR_BENCH_SWEEP(X)                                                                          \
    X(K_1, "top_k 1", .8, 1, 1, 0, false, 0, false, -1)                                            \
    X(K_40, "top_k 40", .8, 40, 1, 0, false, 0, false, -1)                                         \
    X(K_1000, "top_k 1000", .8, 1000, 1, 0, false, 0, false, -1)                                   \
    X(K_HALF, "top_k V/2", .8, HR_BENCH_HALF_VOCAB, 1, 0, false, 0, false, -1)                     \
    X(P_10, "top_p .1", .8, 0, .1, 0, false, 0, false, -1)                                         \
    X(P_50, "top_p .5", .8, 0, .5, 0, false, 0, false, -1)                                         \
    X(P_90, "top_p .9", .8, 0, .9, 0, false, 0, false, -1)                                         \
    X(P_99, "top_p .99", .8, 0, .99, 0, false, 0, false, -1)                                       \
    X(K_1000_P_90, "top_k 1000, top_p .9", .8, 1000, .9, 0, false, 0, false, -1)                   \
    X(K_HALF_P_90, "top_k V/2, top_p .9", .8, HR_BENCH_HALF_VOCAB, .9, 0, false, 0, false, -1)

typedef enum hr_bench_case {
#define HR_BENCH_CASE_ENUM(name, text, ...)  HR_BENCH_CASE_##name,
#define HR_BENCH_SWEEP_ENUM(name, text, ...) HR_BENCH_SWEEP_##name,
    HR_BENCH_CASES(HR_BENCH_CASE_ENUM) HR_BENCH_CASE_COUNT,
    HR_BENCH_SWEEP_BEGIN = HR_BENCH_CASE_COUNT - 1,
    HR_BENCH_SWEEP(HR_BENCH_SWEEP_ENUM) HR_BENCH_SWEEP_END,
#undef HR_BENCH_CASE_ENUM
#undef HR_BENCH_SWEEP_ENUM
} hr_bench_case;
extern const char *const hr_bench_case_names[HR_BENCH_SWEEP_END];

/* A compiled program with a buffer for each input and output. */
typedef struct hr_bench_program {
    hr_program *program;
    size_t n_in, n_out;
    struct hr_bench_input {
        hr_buffer *buffer;
        int index;  /* in hr_sampling_inputs; -1 = none of these */
        bool owned; /* tables belong to the rig */
    } * in;         /* owned */
    hr_buffer **out;
    bool *out_owned;
} hr_bench_program;

enum {
    HR_BENCH_HEAD_ALONE,
    HR_BENCH_BOTH,
    HR_BENCH_SAMPLER_ALONE,
    HR_BENCH_TABLES,
    HR_BENCH_PROGRAMS
};

/* One head on one device for one batch: its programs and what they share. */
typedef struct hr_bench_rig {
    hr_backend *backend; /* borrowed */
    int64_t rows, hidden, vocab;
    hr_bench_head head;
    const hr_weight *weight; /* [vocab,hidden]; outlives the backend, which reads it once */
    hr_sampler_options options;
    hr_buffer *tables[3]; /* counts, allowed, grammar */
    hr_bench_program program[HR_BENCH_PROGRAMS];
    double compile_s[HR_BENCH_PROGRAMS];
    hr_sampling_inputs *inputs;
    hr_arena arena; /* states of the case that is set */
} hr_bench_rig;

/* Random weights of a head; they stay where they are made. */
typedef struct hr_bench_weights {
    hr_weight matrix, scale;
} hr_bench_weights;
void hr_bench_weights_make(hr_bench_weights *w, hr_bench_head head, int64_t hidden, int64_t vocab);

/* Compiles the programs and puts random hidden states into place. Borrows the backend. */
HR_MUST_USE hr_status hr_bench_rig_open(hr_bench_rig *r);
void hr_bench_rig_close(hr_bench_rig *r);
/* Makes every row one of that case: host arrays and tables. */
HR_MUST_USE hr_status hr_bench_rig_set(hr_bench_rig *r, hr_bench_case c);
/* One step of a program as the engine makes it: host arrays put, run, tokens and what else the case
 * asked for read back. Seconds. */
HR_MUST_USE hr_status hr_bench_rig_run(hr_bench_rig *r, int program, double *seconds);

#endif
