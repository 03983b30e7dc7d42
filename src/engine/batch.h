/* The host inputs of one step: the one function that builds them, for warm-up and for serving. */
#ifndef HEADRACE_ENGINE_BATCH_H
#define HEADRACE_ENGINE_BATCH_H

#include "engine/scheduler.h"
#include "graph/graph.h"

typedef struct hr_batch_limits {
    int64_t tokens;      /* last token bucket */
    int64_t requests;    /* B: most requests of a step */
    int64_t rows;        /* last request bucket: most sampler rows, R */
    int64_t table_width; /* W */
    int64_t block_size;
    bool static_shapes; /* as the backend's: block tables are read whole, so they are padded, too */
} hr_batch_limits;

/* Arrays sized by the last buckets, filled for the bucket at hand. */
typedef struct hr_batch {
    hr_batch_limits limits;
    hr_arena arena;                       /* owns the arrays */
    int32_t *ids;                         /* [T] */
    int32_t *positions;                   /* [3,T], rows as far apart as the bucket is wide */
    int32_t *slots;                       /* [T], -1 in padding */
    int32_t *block_tables;                /* [B,W]; padding: static_shapes 0, else stale */
    int32_t *query_starts;                /* [B+1]; past the last request: the number of tokens */
    int32_t *seq_lens;                    /* [B]; 0 past the last request */
    int32_t *rows;                        /* [R] token index that each sampler row reads */
    int32_t *targets;                     /* [R] next prompt token, for prompt logprobs */
    hr_sampling_inputs *sampling;         /* owned */
    int64_t n_tokens, n_requests, n_rows; /* live counts of this step */
} hr_batch;

HR_MUST_USE hr_status hr_batch_init(hr_batch *b, const hr_batch_limits *limits,
                                    const hr_sampler_options *sampler);
void hr_batch_deinit(hr_batch *b);

/* Everything the backbone, select and sampler programs read, for a token bucket and a request
 * bucket that hold the plan. Sampler rows follow the items that sample: one for an item's newest
 * token, then one for each of its drafts. No malloc. */
void hr_batch_build(hr_batch *b, const hr_step_plan *plan, int64_t token_bucket,
                    int64_t request_bucket);
/* Rows and targets for prompt positions [from, from + n) of the plan's item, n ≤ rows; sets
 * n_rows. The position p predicts token p + 1. */
void hr_batch_build_prompt(hr_batch *b, const hr_step_plan *plan, int64_t item, int64_t from,
                           int64_t n);

/* Where a program input comes from. */
typedef enum hr_extent {
    HR_EXTENT_ALL,      /* the whole tensor */
    HR_EXTENT_TOKENS,   /* the first n_tokens rows are enough */
    HR_EXTENT_REQUESTS, /* the first n_requests rows are enough */
    HR_EXTENT_ROWS,     /* the first n_rows rows are enough */
    HR_EXTENT_SAMPLING, /* hr_sampling_inputs_at says how many */
} hr_extent;

typedef struct hr_host_input {
    const void *data;
    hr_extent extent;
    int sampling; /* SAMPLING: where it stands among the sampler's inputs */
} hr_host_input;

/* The host array behind a graph input's name; false when it is not host-made. */
bool hr_batch_input(const hr_batch *b, const char *name, hr_host_input *out);

#endif
