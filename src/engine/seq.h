/* A sequence: one choice of one request, from its prompt to its last token.
 *
 * Made on the input thread with everything it will ever need, so that the engine thread allocates
 * nothing; moved to the engine thread, and on to the output thread when it has ended. */
#ifndef HEADRACE_ENGINE_SEQ_H
#define HEADRACE_ENGINE_SEQ_H

#include "engine/blocks.h"
#include "engine/messages.h"
#include "engine/ngram.h"
#include "engine/processor.h"
#include "headrace/headrace.h"
#include "sampler/sampler.h"

typedef enum hr_finish {
    HR_FINISH_NONE,
    HR_FINISH_STOP,   /* EOS, a stop id or a stop string */
    HR_FINISH_LENGTH, /* max_tokens or max_model_len */
    HR_FINISH_ABORT,  /* cancelled */
    HR_FINISH_ERROR,  /* its row held NaN, its masks left nothing, or a logits processor failed */
} hr_finish;

typedef enum hr_seq_state { HR_SEQ_WAITING, HR_SEQ_RUNNING, HR_SEQ_ENDED } hr_seq_state;

const char *hr_finish_name(hr_finish f); /* "stop" …; NULL for NONE */

/* Log-probabilities of a prompt, filled chunk by chunk, handed to the output thread when whole. */
typedef struct hr_prompt_logprobs {
    hr_msg msg;
    uint64_t request;
    int64_t n;          /* prompt tokens; position 0 holds nothing */
    int64_t done;       /* positions [1, done) are filled */
    int32_t width;      /* top entries per position */
    float *logprob;     /* [n] */
    int32_t *rank;      /* [n] */
    int32_t *top_ids;   /* [n,width], -1 = none */
    float *top_logprob; /* [n,width] */
} hr_prompt_logprobs;

typedef struct hr_seq hr_seq;
struct hr_seq {
    hr_msg msg; /* HR_MSG_SEQ; first */
    uint64_t request;
    uint32_t choice;
    int64_t priority;
    hr_arena arena;  /* owns stop_ids and the sampling state's arrays */
    void *room;      /* owned: tokens, block ids and hashes, touched only as far as it gets */
    int32_t *tokens; /* [capacity]: prompt, then output */
    int64_t n_tokens, n_prompt, capacity;
    int64_t n_computed; /* positions whose keys and values are in the cache */
    hr_block_list blocks;
    hr_block_hash *hashes; /* [capacity / block size] of its full blocks; NULL = not cached */
    int64_t n_hashed;      /* made so far */
    int64_t n_published;   /* of the blocks it holds, those made findable */
    hr_str cache_key;      /* borrowed from the request: its blocks are shared under this alone */
    hr_sampler_state sampling;
    const headrace_grammar *grammar; /* borrowed from the request; NULL = none */
    void *grammar_state;             /* owned through it: the choice's own */
    hr_processing processing;
    hr_ngram ngram;    /* where drafts come from */
    bool may_draft;    /* drafts of it can be checked */
    int32_t *stop_ids; /* [n_stop]: ids that end it, first the EOS ids (unless ignored) */
    size_t n_stop, n_eos;
    int64_t max_tokens;
    hr_prompt_logprobs *prompt; /* owned until handed over; NULL = not wanted */
    hr_seq_state state;
    hr_finish finish;
    int32_t stop_id; /* the stop id that ended it, -1 = EOS or none */
    int64_t preemptions;
    int64_t queued_tokens;   /* what its request weighs in the queue; < 0 = counted elsewhere */
    int32_t slot;            /* row of the device tables while it runs; 0 = none */
    double started_s;        /* hr_now_s: first scheduled; 0 = not yet */
    int64_t cached;          /* prompt tokens first taken from the prefix cache */
    hr_seq *next, *previous; /* siblings in the waiting heap, neighbours while it runs */
    hr_seq *child;           /* first below it in the waiting heap */
    hr_seq *chain;           /* next of its chain in the scheduler's index */
};

/* What a sequence needs to know to be made. */
typedef struct hr_seq_spec {
    uint64_t request;
    uint32_t choice;
    const int32_t *prompt; /* [n_prompt], copied */
    int64_t n_prompt;
    int64_t max_tokens; /* ≥ 1, prompt + max_tokens ≤ max_model_len */
    int64_t block_size;
    int64_t priority;
    const hr_block_hash *hashes;     /* [n_prompt / block size], copied; NULL = not cached */
    hr_str cache_key;                /* borrowed; outlives the sequence */
    const hr_sampling *sampling;     /* borrowed; outlives the sequence */
    const headrace_grammar *grammar; /* borrowed likewise; NULL = none */
    const hr_sampler_limits *limits;
    const int64_t *eos; /* [n_eos], ids in [0, vocab) */
    size_t n_eos;
    hr_processor_chain *processors; /* borrowed; NULL = none */
    hr_speculation speculation;
} hr_seq_spec;

HR_MUST_USE hr_status hr_seq_create(const hr_seq_spec *spec, hr_seq **out);
void hr_seq_destroy(hr_seq *s); /* NULL is fine; blocks were given back */

HR_MUST_USE hr_status hr_prompt_logprobs_create(uint64_t request, int64_t n, int32_t width,
                                                hr_prompt_logprobs **out);
void hr_prompt_logprobs_destroy(hr_prompt_logprobs *p);

static inline int64_t hr_seq_outputs(const hr_seq *s)
{
    return s->n_tokens - s->n_prompt;
}

#endif
