/* The whole sampler over given logits: parameters → check → state → tables → rows → program.
 *
 * The path that the engine takes, on one backend, for any mix of rows in one batch. Used by
 * sampler_runner (NumPy oracle). Test code, one thread. */
#ifndef HEADRACE_TESTS_SAMPLER_CASE_H
#define HEADRACE_TESTS_SAMPLER_CASE_H

#include "backend/backend.h"
#include "sampler/sampler.h"

typedef struct sampler_row {
    hr_sampling sampling;
    const int32_t *tokens; /* [n_tokens]: prompt, then output */
    int64_t n_prompt, n_tokens;
    const int64_t *eos; /* [n_eos] */
    size_t n_eos;
    uint32_t choice;
    const uint32_t *grammar; /* [W] or NULL */
    const float *logits;     /* [V] */
} sampler_row;

/* What came back for a row; arrays are borrowed from the case. */
typedef struct sampler_answer {
    int32_t token, status, rank;
    float logprob;
    const int32_t *top_ids;      /* [top] */
    const float *top_logprobs;   /* [top] */
    const float *extra_logprobs; /* [HR_SAMPLING_MAX_EXTRA] */
    int32_t alive[2];            /* the trace: after the grammar mask, after all masks */
    const int32_t *counts;       /* [3] */
    const float *cuts, *sums;    /* [3], [2] */
} sampler_answer;

typedef struct sampler_case {
    hr_backend *backend; /* borrowed */
    hr_sampler_options options;
    int64_t bucket;          /* rows of the program, at least n_rows */
    const sampler_row *rows; /* [n_rows] */
    int64_t n_rows;
    hr_arena arena;          /* owns the answers */
    sampler_answer *answers; /* [n_rows] */
} sampler_case;

/* Slots and table capacity follow from the rows. A row that is refused fails the case. */
HR_MUST_USE hr_status sampler_case_run(sampler_case *c);
/* Scores rows' targets with the prompt program: token and extra_logprobs are not set. */
HR_MUST_USE hr_status sampler_case_score(sampler_case *c, const int32_t *targets);
void sampler_case_deinit(sampler_case *c);
/* Frees the programs that cases have left to those of the same shape: before the backend goes. */
void sampler_case_forget(void);

#endif
