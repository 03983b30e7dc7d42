/* Which sequences run in the next step, and how many tokens of each. */
#ifndef HEADRACE_ENGINE_SCHEDULER_H
#define HEADRACE_ENGINE_SCHEDULER_H

#include "engine/pace.h"
#include "engine/waiting.h"

/* Tokens [start, start + count) of one sequence. The last `drafts` of them are guesses, which stand
 * behind the sequence's newest token and are none of it yet. */
typedef struct hr_step_item {
    hr_seq *seq;
    int64_t start, count;
    int64_t drafts;   /* only where it samples and nothing else is computed */
    bool samples;     /* its newest token is among them: a row for the sampler, and one a draft */
    hr_finish finish; /* set after the step: why the sequence ends with its token */
} hr_step_item;

typedef struct hr_step_plan {
    hr_step_item *items; /* owned [max_num_seqs] */
    int64_t n_items, n_tokens, n_rows;
    int64_t n_prefill; /* of the tokens, those of items with more than one that is no draft */
    int64_t n_drafts;  /* of the tokens, guesses */
} hr_step_plan;

/* Whether it computes tokens that nothing is drawn from. */
static inline bool hr_step_prefills(const hr_step_plan *p)
{
    return p->n_tokens > p->n_rows;
}

typedef enum hr_policy {
    HR_POLICY_FCFS,     /* first come, first served */
    HR_POLICY_PRIORITY, /* smaller priority first, then first come */
} hr_policy;

typedef struct hr_scheduler_options {
    int64_t max_num_seqs, max_num_batched_tokens;
    int64_t long_prefill_token_threshold; /* most prompt tokens of one sequence a step; 0 = the
                                             budget, and beside answers as much work as theirs */
    int64_t block_size;
    int32_t blocks; /* in the cache */
    hr_policy policy;
    bool prefix_caching;
    bool drafts;          /* sequences that may draft do */
    bool adaptive_drafts; /* as many as pay */
} hr_scheduler_options;

/* Sequences in order of admission. */
typedef struct hr_running {
    hr_seq *first, *last;
    int64_t n;
} hr_running;

/* What has happened so far. */
typedef struct hr_scheduler_counts {
    uint64_t preemptions;
    uint64_t prefix_queries, prefix_hits; /* prompt tokens at first admission */
    uint64_t dequeued_requests; /* requests that run or have ended, of those that were queued */
    uint64_t dequeued_tokens;   /* of their prompts */
} hr_scheduler_counts;

#define HR_SCHEDULER_CHAINS 4096

typedef struct hr_scheduler {
    hr_scheduler_options options;
    hr_block_pool pool;
    hr_waiting waiting; /* preempted ones, too: in their old place */
    hr_running running;
    hr_seq **chains; /* owned [HR_SCHEDULER_CHAINS]: every sequence, by its request */
    int32_t *slots;  /* owned [max_num_seqs]: free rows of the device tables, 1..max_num_seqs */
    int64_t n_slots;
    hr_pace pace;
    hr_scheduler_counts counts;
} hr_scheduler;

HR_MUST_USE hr_status hr_scheduler_init(hr_scheduler *s, const hr_scheduler_options *o);
void hr_scheduler_deinit(hr_scheduler *s); /* lists are empty */
HR_MUST_USE hr_status hr_step_plan_init(hr_step_plan *p, int64_t max_num_seqs);
void hr_step_plan_deinit(hr_step_plan *p);

void hr_scheduler_add(hr_scheduler *s, hr_seq *seq);
/* Takes it off its list and gives its blocks back; the sequence is the caller's again. */
void hr_scheduler_remove(hr_scheduler *s, hr_seq *seq);
/* What its blocks hold is wrong: nobody may find them again. */
void hr_scheduler_distrust(hr_scheduler *s, hr_seq *seq);
/* NULL when unknown. */
hr_seq *hr_scheduler_find(const hr_scheduler *s, uint64_t request, uint32_t choice);
/* Fills the plan; n_items 0 = nothing to do. Marks nothing as computed. No malloc. */
void hr_scheduler_plan(hr_scheduler *s, hr_step_plan *plan);
/* After the step ran, in `ns`: its tokens are computed, all but the drafts. */
void hr_scheduler_commit(hr_scheduler *s, const hr_step_plan *plan, int64_t ns);
/* After tokens were appended: those of the item's drafts that are among them are computed, too;
 * what the others took of the cache is given back. */
void hr_scheduler_accept(hr_scheduler *s, const hr_step_item *item);

#endif
