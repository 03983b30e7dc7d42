/* Which sequences run in the next step, and how many tokens of each. */
#ifndef HEADRACE_ENGINE_SCHEDULER_H
#define HEADRACE_ENGINE_SCHEDULER_H

#include "engine/seq.h"

/* Tokens [start, start + count) of one sequence. */
typedef struct hr_step_item {
    hr_seq *seq;
    int64_t start, count;
    bool samples;     /* the last of them is the sequence's newest token: a row for the sampler */
    hr_finish finish; /* set after the step: why the sequence ends with its token */
} hr_step_item;

typedef struct hr_step_plan {
    hr_step_item *items; /* owned [max_num_seqs] */
    int64_t n_items, n_tokens, n_rows;
} hr_step_plan;

typedef enum hr_policy {
    HR_POLICY_FCFS,     /* first come, first served */
    HR_POLICY_PRIORITY, /* smaller priority first, then first come */
} hr_policy;

typedef struct hr_scheduler_options {
    int64_t max_num_seqs, max_num_batched_tokens;
    int64_t
        long_prefill_token_threshold; /* most prompt tokens of one sequence a step; 0 = budget */
    int64_t block_size;
    int32_t blocks; /* in the cache */
} hr_scheduler_options;

typedef struct hr_seq_list {
    hr_seq *first, *last;
    int64_t n;
} hr_seq_list;

typedef struct hr_scheduler {
    hr_scheduler_options options;
    hr_block_pool pool;
    hr_seq_list waiting; /* first come, first served; preempted ones go back to the front */
    hr_seq_list running; /* in order of admission */
    int32_t *slots;      /* owned [max_num_seqs]: free rows of the device tables, 1..max_num_seqs */
    int64_t n_slots;
    uint64_t preemptions;
} hr_scheduler;

HR_MUST_USE hr_status hr_scheduler_init(hr_scheduler *s, const hr_scheduler_options *o);
void hr_scheduler_deinit(hr_scheduler *s); /* lists are empty */
HR_MUST_USE hr_status hr_step_plan_init(hr_step_plan *p, int64_t max_num_seqs);
void hr_step_plan_deinit(hr_step_plan *p);

void hr_scheduler_add(hr_scheduler *s, hr_seq *seq);
/* Takes it off its list and gives its blocks back; the sequence is the caller's again. */
void hr_scheduler_remove(hr_scheduler *s, hr_seq *seq);
/* NULL when unknown. */
hr_seq *hr_scheduler_find(hr_scheduler *s, uint64_t request, uint32_t choice);
/* Fills the plan; n_items 0 = nothing to do. Marks nothing as computed. No malloc. */
void hr_scheduler_plan(hr_scheduler *s, hr_step_plan *plan);
/* After the step ran: its tokens are computed. */
void hr_scheduler_commit(hr_scheduler *s, const hr_step_plan *plan);

#endif
