/* Inside the engine room: the engine's parts and which thread owns each. */
#ifndef HEADRACE_ENGINE_ENGINE_INT_H
#define HEADRACE_ENGINE_ENGINE_INT_H

#include "engine/engine.h"
#include "engine/measure.h"
#include "engine/warmup.h"

#define HR_STEP_MESSAGES 4 /* steps that the text thread may be behind */

/* The new tokens of one step, from the engine thread to the text thread. Recycled. */
typedef struct hr_step_row {
    uint64_t request;
    uint32_t choice;
    int32_t token; /* -1 = none: the row failed */
    hr_finish finish;
    int32_t stop_id; /* the stop_token_ids member that ended it, else -1 */
    float logprob;
    int32_t rank;
    int64_t cached;   /* prompt tokens first taken from the prefix cache */
    double started_s; /* hr_now_s: first scheduled */
} hr_step_row;

typedef struct hr_step_message {
    hr_msg msg;    /* HR_MSG_STEP; first */
    double done_s; /* hr_now_s: when its tokens were there */
    int64_t n;
    int32_t top;
    hr_step_row *rows;     /* [max_num_seqs] */
    int32_t *top_ids;      /* [max_num_seqs,top] */
    float *top_logprobs;   /* [max_num_seqs,top] */
    float *extra_logprobs; /* [max_num_seqs,128] */
} hr_step_message;

struct hr_request {
    hr_msg msg; /* HR_MSG_REQUEST; first */
    uint64_t id;
    hr_request_kind kind;
    double submitted_s; /* hr_now_s */
    hr_arena arena;     /* owns every pointer below */
    hr_str prompt;      /* text; n 0 with prompt_ids or messages */
    bool has_prompt, add_special_tokens, add_generation_prompt, continue_final_message;
    const int32_t *prompt_ids;
    size_t n_prompt_ids;
    hr_str messages_json, tools_json, documents_json, kwargs_json; /* p NULL = not given */
    int64_t priority;
    hr_str cache_salt; /* p NULL = none */
    hr_sampling sampling;
    int32_t *extra_ids; /* logprob_token_ids as i32 [sampling.n_logprob_token_ids] */
};

/* Counters that other threads read. */
typedef struct hr_engine_stats {
    hr_counter steps, preemptions;
    hr_counter prefill_ns, decode_ns, prefill_tokens, decode_tokens;
    hr_counter submitted;                        /* sequences not yet with the scheduler */
    hr_counter running, waiting, blocks_in_use;  /* the scheduler's, set after each change */
    hr_counter prompt_tokens, generation_tokens; /* of what was answered */
    hr_counter prefix_queries, prefix_hits;      /* prompt tokens looked up, found */
    hr_histogram iteration_tokens;
} hr_engine_stats;

/* State of the text thread; text.c. */
typedef struct hr_text hr_text;

struct headrace_engine {
    /* fixed once the engine is ready */
    headrace_options options; /* strings are copied into arena */
    hr_arena arena;
    hr_model *model;         /* counted */
    hr_tokenizer *tokenizer; /* owned; NULL = the checkpoint has none */
    hr_str chat_template;    /* borrowed from the model; n 0 = none */
    hr_shapes shapes;
    hr_policy policy;
    hr_dtype activation;
    int64_t max_model_len;
    int64_t *eos; /* [n_eos], arena; ids in [0, V) */
    size_t n_eos;
    double load_s;
    hr_buf numerics;         /* JSON object, terminated */
    size_t weight_bytes;     /* packed */
    hr_memory memory;        /* what was measured before the cache was sized */
    hr_engine_event *polled; /* owned: the event that headrace_poll gave out last */

    /* engine thread */
    hr_backend *backend;
    hr_batch batch;
    hr_programs *programs;
    hr_runner runner;
    hr_scheduler scheduler;
    hr_step_plan plan;
    hr_step_message *steps[HR_STEP_MESSAGES]; /* owned; they travel, and come back by free_steps */
    hr_ledger ledger;

    hr_text *text; /* text thread's */

    /* shared */
    hr_thread engine_thread, text_thread;
    hr_queue to_engine, to_text, to_caller, free_steps, ready;
    int wake_fd;
    hr_flag stop;
    hr_counter next_id;
    hr_engine_stats stats;
};

/* engine.c: options kept, model opened, everything resolved; no thread yet, no weight read. */
HR_MUST_USE hr_status hr_engine_open(hr_engine *e, const headrace_options *o);
/* options.c: what the flags and the model come to; checks every combination. */
HR_MUST_USE hr_status hr_engine_resolve(hr_engine *e);
/* How many KV blocks fit: what max_num_seqs × max_model_len needs, within memory. */
HR_MUST_USE hr_status hr_engine_size_cache(hr_engine *e);
/* Bytes of one KV block over all layers. */
size_t hr_engine_block_bytes(const hr_engine *e);
/* loop.c: the engine thread. Sends one hr_fatal (code 0 = ready) to `ready`, then serves. */
void *hr_engine_loop(void *engine);
/* text.c: the text thread. */
HR_MUST_USE hr_status hr_text_create(hr_engine *e, hr_text **out);
void hr_text_destroy(hr_text *t);
void *hr_text_loop(void *engine);

#endif
