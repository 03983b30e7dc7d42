/* Inside the engine room: the engine's parts and which thread owns each. */
#ifndef HEADRACE_ENGINE_ENGINE_INT_H
#define HEADRACE_ENGINE_ENGINE_INT_H

#include "engine/devices.h"
#include "engine/engine.h"
#include "engine/measure.h"
#include "engine/stops.h"
#include "engine/warmup.h"

#define HR_STEP_MESSAGES 4 /* steps that the output thread may be behind */

/* The new tokens of one step, from the engine thread to the output thread. Recycled. */
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

/* How a row's token came to be chosen, as the sampler told. */
typedef struct hr_step_trace {
    int32_t candidates[5];
    float cuts[3], entropy, share;
    int64_t position;
} hr_step_trace;

typedef struct hr_step_message {
    hr_msg msg;    /* HR_MSG_STEP; first */
    double done_s; /* hr_now_s: when its tokens were there */
    int64_t n;
    int32_t top;
    hr_step_row *rows;     /* [R] */
    int32_t *top_ids;      /* [R,top] */
    float *top_logprobs;   /* [R,top] */
    float *extra_logprobs; /* [R,128] */
    hr_step_trace *traces; /* [R] */
} hr_step_message;

/* Events in order, joined by their nodes. */
typedef struct hr_event_list {
    hr_engine_event *first, *last; /* owned */
    size_t n;
} hr_event_list;

typedef struct hr_choice hr_choice; /* text_int.h */

struct hr_request {
    hr_msg msg; /* HR_MSG_REQUEST, then HR_MSG_REPLY; first */
    uint64_t id;
    hr_request_kind kind;
    double submitted_s;     /* hr_now_s */
    uint64_t queued_tokens; /* what it weighs in the queue until it is tokenised */
    hr_arena arena;         /* owns every pointer below */
    hr_str prompt;          /* text; n 0 with prompt_ids or messages */
    bool has_prompt, add_special_tokens, add_generation_prompt, continue_final_message;
    const int32_t *prompt_ids;
    size_t n_prompt_ids;
    hr_str messages_json, tools_json, documents_json, kwargs_json; /* p NULL = not given */
    int64_t priority;
    hr_str cache_salt; /* p NULL = none */
    hr_sampling sampling;
    headrace_grammar grammar; /* size 0 = none */

    /* its answer: the input thread's, then the output thread's */
    hr_request *next;                /* in the list or chain of whose it is */
    hr_ids ids;                      /* the ids its prompt came to */
    hr_block_hash *hashes;           /* arena: of the prompt's full blocks; NULL = not cached */
    hr_choice *choices;              /* owned [sampling.n] */
    hr_stops stops;                  /* arena: sampling.stop, ready to be looked for */
    uint32_t in_engine;              /* sequences not yet back */
    int64_t most_tokens;             /* that a choice may come to */
    bool score_only;                 /* max_tokens 0: the one token drawn is dropped */
    bool failed;                     /* its FAILED is out */
    hr_event_list events;            /* what it has to say once it gets to the output thread */
    hr_engine_event *done, *failure; /* owned: its DONE and its FAILED, made with it, so that it
                                        ends even when memory is short */
};

/* Counters that other threads read. */
typedef struct hr_engine_stats {
    hr_counter steps, preemptions;
    hr_counter prefill_ns, decode_ns, prefill_tokens, decode_tokens;
    hr_counter submitted;                        /* sequences not yet with the scheduler */
    hr_counter queued_requests, queued_tokens;   /* not yet running, as --max-num-queued-* count */
    hr_counter running, waiting, blocks_in_use;  /* the scheduler's, set after each change */
    hr_counter prompt_tokens, generation_tokens; /* of what was answered */
    hr_counter prefix_queries, prefix_hits;      /* prompt tokens looked up, found */
    hr_counter drafts, draft_tokens, accepted_tokens;
    hr_counter
        accepted_at[HR_SPECULATION_TOKENS]; /* drafts accepted, by their place in their draft */
    hr_histogram iteration_tokens;
} hr_engine_stats;

/* State of the two text threads: input.c, output.c. */
typedef struct hr_reader hr_reader;
typedef struct hr_writer hr_writer;

struct headrace_engine {
    /* fixed once the engine is ready */
    headrace_options options; /* strings are copied into arena */
    hr_arena arena;
    hr_model *model;         /* counted */
    hr_tokenizer *tokenizer; /* owned; NULL = the checkpoint has none */
    size_t longest_token;    /* bytes; 0 = not known */
    hr_str chat_template;    /* borrowed from the model or the options; n 0 = none */
    hr_device device;        /* its strings are the options' */
    hr_sampler_kind sampler;
    hr_shapes shapes;
    hr_policy policy;
    hr_dtype activation;
    int64_t max_model_len;
    int64_t *eos; /* [n_eos], arena; ids in [0, V) */
    size_t n_eos;
    hr_processor_chain *processors; /* owned; NULL = none. The engine thread runs them */
    double load_s;
    hr_buf numerics;                /* JSON object, terminated */
    size_t weight_bytes;            /* packed */
    size_t weights_cached;          /* of weight_bytes, packed by an earlier process */
    const char *weights_file;       /* arena: their packed form between starts; NULL = none */
    const char *compile_cache;      /* arena: the folder in use; NULL = none */
    size_t buffer_bytes;            /* of every buffer but the KV caches */
    hr_device_memory device_memory; /* once everything lies there */
    hr_memory memory;               /* what was measured before the cache was sized */
    hr_engine_event *polled;        /* owned: the event that headrace_poll gave out last */

    /* engine thread */
    hr_backend *backend;
    hr_batch batch;
    hr_programs *programs;
    hr_runner runner;
    hr_scheduler scheduler;
    hr_step_plan plan;
    hr_step_message *steps[HR_STEP_MESSAGES]; /* owned; they travel, and come back by free_steps */
    hr_ledger ledger;
    struct {
        uint64_t requests, tokens; /* of the scheduler's counts, those taken off the queue's */
    } dequeued;

    hr_reader *reader; /* input thread's */
    hr_writer *writer; /* output thread's */

    /* shared */
    hr_thread engine_thread, input_thread, output_thread;
    hr_queue to_input, to_engine, to_output, to_caller, free_steps, ready;
    int wake_fd;
    hr_flag stop;
    hr_flag failed;               /* the status the engine thread ended with; 0 = none */
    char failure[HR_MESSAGE_MAX]; /* set before `failed` is */
    hr_counter next_id;
    hr_engine_stats stats;
};

/* engine.c: options kept, model opened, everything resolved; no thread yet, no weight read. */
HR_MUST_USE hr_status hr_engine_open(hr_engine *e, const headrace_options *o);
/* options.c: what the flags and the model come to; checks every combination. */
HR_MUST_USE hr_status hr_engine_resolve(hr_engine *e);
/* How many KV blocks fit: what max_num_seqs × max_model_len needs, within e->memory. */
HR_MUST_USE hr_status hr_engine_size_cache(hr_engine *e);
/* Bytes of one KV block over all layers. */
/* How the rows are that weights of integers meet, in words. */
const char *hr_engine_rows_text(const hr_engine *e);
size_t hr_engine_block_bytes(const hr_engine *e);
/* Text that names the weights whose packed form may be kept, or nothing: weights_id.c. */
void hr_engine_weights_id(const hr_engine *e, hr_buf *out);
/* loop.c: the engine thread. Sends one hr_fatal (code 0 = ready) to `ready`, then serves. */
void *hr_engine_loop(void *engine);
/* accept.c: appends what the item's rows of the step, from `first` on, drew, adds them to the
 * message, and says in the item whether its sequence ends. */
void hr_engine_take_rows(hr_engine *e, hr_step_item *item, int64_t first, hr_step_message *m);
/* input.c: the input thread. */
HR_MUST_USE hr_status hr_reader_create(hr_engine *e, hr_reader **out);
void hr_reader_destroy(hr_reader *t);
void *hr_reader_loop(void *engine);
/* output.c: the output thread. */
HR_MUST_USE hr_status hr_writer_create(hr_engine *e, hr_writer **out);
void hr_writer_destroy(hr_writer *t);
void *hr_writer_loop(void *engine);
/* Into a queue whose reader outlives the caller, and which therefore is open. */
void hr_engine_push(hr_queue *q, hr_msg *m);

#endif
