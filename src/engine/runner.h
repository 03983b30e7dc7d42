/* Executing a step: one function, used by serving and by warm-up. docs/COMPILATION.md. */
#ifndef HEADRACE_ENGINE_RUNNER_H
#define HEADRACE_ENGINE_RUNNER_H

#include "engine/batch.h"
#include "engine/buckets.h"

/* What a step gave back; arrays belong to the runner and hold until its next step. Rows
 * follow the plan's items that sample, as hr_batch_build has them. */
typedef struct hr_step_result {
    int64_t n_rows;
    int32_t top;           /* columns of the top arrays */
    int32_t *token;        /* [R] */
    int32_t *status;       /* [R]: 0 ok, 1 empty, 2 NaN */
    float *logprob;        /* [R] */
    int32_t *rank;         /* [R] */
    int32_t *top_ids;      /* [R,top] */
    float *top_logprobs;   /* [R,top] */
    float *extra_logprobs; /* [R,128] of logprob_token_ids */
    /* of rows whose requests ask for a trace; see hr_sampler_build */
    int32_t *trace_grammar, *trace_masks; /* [R] */
    float *trace_cuts;                    /* [R,3] */
    int32_t *trace_counts;                /* [R,3] */
    float *trace_sums;                    /* [R,2] */
} hr_step_result;

/* Which programs a step runs; serving runs all, warm-up leaves out those that already ran on the
 * same bucket (their real output is still there for the next program). */
typedef enum hr_step_parts {
    HR_STEP_TABLES = 1,
    HR_STEP_BACKBONE = 2,
    HR_STEP_PROMPT = 4,
    HR_STEP_SELECT = 8,
    HR_STEP_SAMPLER = 16,
    HR_STEP_SERVE = 31,
} hr_step_parts;

typedef struct hr_step_args {
    const hr_step_plan *plan;
    unsigned parts;     /* hr_step_parts */
    int token_bucket;   /* index, -1 = the smallest that holds the plan */
    int request_bucket; /* likewise */
} hr_step_args;

/* A program that was started and not awaited. */
typedef struct hr_launched {
    hr_event event;
    hr_ledger_row *row;
    int64_t began_ns, live; /* live: rows of its bucket that are no padding */
} hr_launched;

enum { HR_LAUNCHED_MAX = 4 }; /* tables, backbone, select, sampler */

typedef struct hr_runner {
    hr_backend *backend;   /* borrowed */
    hr_programs *programs; /* borrowed */
    hr_batch *batch;       /* borrowed */
    hr_arena arena;        /* owns the result arrays */
    hr_step_result result;
    hr_launched launched[HR_LAUNCHED_MAX]; /* in the order they were started */
    int n_launched;
    uint64_t read_backs; /* waits for ids and logprobs: one a step that samples */
} hr_runner;

HR_MUST_USE hr_status hr_runner_init(hr_runner *r, hr_programs *programs, hr_batch *batch);
void hr_runner_deinit(hr_runner *r);

/* Builds the step's inputs, runs tables → backbone → prompt logprobs → select → head + sampler and
 * reads back ids and logprobs. The only caller of hr_program_execute. No compile, no malloc. */
HR_MUST_USE hr_status hr_runner_step(hr_runner *r, const hr_step_args *args,
                                     const hr_step_result **out);

#endif
