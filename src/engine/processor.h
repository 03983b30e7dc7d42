/* Logits processors: shared objects of the operator's that bias and mask. headrace.h has their side
 * of it, docs/LOGITS_PROCESSORS.md the rules. */
#ifndef HEADRACE_ENGINE_PROCESSOR_H
#define HEADRACE_ENGINE_PROCESSOR_H

#include "headrace/headrace.h"
#include "sampler/sampler.h"

/* One that was loaded. */
typedef struct hr_processor {
    const headrace_logits_processor *it; /* the library's */
    void *library;                       /* owned */
    void *self;                          /* owned through `it`: what create gave */
    bool created;
    const char *name; /* for messages; arena */
} hr_processor;

typedef struct hr_processor_limits {
    int64_t vocab, max_model_len;
    int64_t rows;       /* sampler rows of a step, and sequences that run */
    const int64_t *eos; /* [n_eos] borrowed */
    size_t n_eos;
} hr_processor_limits;

/* A row being put together out of the request's own and every processor's. */
typedef struct hr_merge {
    int32_t *ids;     /* [n] each once; in the row's place in `ids` of the processors */
    double *sums;     /* [1024] owned: of each id, f64, in order */
    uint16_t *places; /* [V] owned: where an id stands in the list, from 1 on; 0 = nowhere */
    int32_t n;
    uint32_t *mask; /* [W] owned: every mask so far, where masked */
    bool masked;
} hr_merge;

typedef struct hr_processor_chain {
    hr_processor *list; /* [n] in the order of the flags */
    size_t n;
    hr_processor_limits limits;
    int64_t words;  /* W of a mask */
    hr_arena arena; /* owns all arrays */
    /* the engine thread's */
    hr_merge merge;
    int32_t *ids;         /* [rows,1024] what the rows of this step are biased by; */
    float *values;        /* likewise */
    int32_t *own_ids;     /* [1024] what one processor writes to, each with a guard behind it */
    float *own_values;    /* [1024] */
    uint32_t *own_mask;   /* [W] */
    uint32_t *table;      /* [rows + 1,W] what the device's table of allowed ids holds */
    bool *table_is_known; /* [rows + 1] */
} hr_processor_chain;

/* Opens those that the options name, in their order; *out is NULL when they name none. What cannot
 * be used is refused, naming file and reason. */
HR_MUST_USE hr_status hr_processor_chain_load(const headrace_options *o,
                                              const hr_processor_limits *l,
                                              hr_processor_chain **out);
/* No choice is left. NULL is fine. */
void hr_processor_chain_destroy(hr_processor_chain *p);

/* ---- one choice ------------------------------------------------------------------------------ */

/* What the processors keep of it. */
typedef struct hr_processing {
    hr_processor_chain *owner; /* NULL = none are loaded */
    void **states;             /* arena; [n_begun] */
    size_t n_begun;
    bool failed; /* one went wrong: the choice ends */
} hr_processing;

struct hr_seq;
/* Input thread. A refusal carries the processor's own sentence; what had begun is ended by end. */
HR_MUST_USE hr_status hr_processing_begin(hr_processor_chain *p, struct hr_seq *q);
void hr_processing_end(hr_processing *x); /* any thread */

/* Engine thread, before the tables are brought up to date: asks every processor about the token
 * that row `row` of the step will draw; the sequence's sampler state then holds bias and slot, or
 * its `processing.failed` is set and the log says why. No malloc. */
void hr_processing_run(struct hr_seq *q, int64_t row);
/* Queues the mask for the device, where it does not hold it yet, right after run. False: the lists
 * are full; run the tables program and call again. */
HR_MUST_USE bool hr_processing_feed(const struct hr_seq *q, hr_sampling_inputs *in);

#endif
