/* headrace: serve large language models from C. The embedding API, and the only installed header.
 *
 * Load a model, submit requests, poll events, cancel, free:
 *
 *     headrace_options options;
 *     headrace_options_init(&options);
 *     options.model = "smollm2-135m";
 *     headrace_engine *engine;
 *     if (headrace_engine_create(&options, &engine)) puts(headrace_message());
 *
 * An engine runs its own threads. headrace_submit and headrace_cancel may be called from any
 * thread; headrace_poll from one thread at a time. Public structs begin with `size`, set by their
 * init function, so that a library may be newer than its caller. Functions return 0 or a
 * headrace_status; headrace_message then holds a sentence for the calling thread. */
#ifndef HEADRACE_HEADRACE_H
#define HEADRACE_HEADRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HEADRACE_API __attribute__((visibility("default")))
#else
#define HEADRACE_API
#endif

/* The numbers of absl::Status and PJRT_Error_Code. */
typedef enum headrace_status {
    HEADRACE_OK = 0,
    HEADRACE_CANCELLED = 1,
    HEADRACE_UNKNOWN = 2,
    HEADRACE_INVALID_ARGUMENT = 3,
    HEADRACE_DEADLINE_EXCEEDED = 4,
    HEADRACE_NOT_FOUND = 5,
    HEADRACE_ALREADY_EXISTS = 6,
    HEADRACE_PERMISSION_DENIED = 7,
    HEADRACE_RESOURCE_EXHAUSTED = 8,
    HEADRACE_FAILED_PRECONDITION = 9,
    HEADRACE_ABORTED = 10,
    HEADRACE_OUT_OF_RANGE = 11,
    HEADRACE_UNIMPLEMENTED = 12,
    HEADRACE_INTERNAL = 13,
    HEADRACE_UNAVAILABLE = 14,
    HEADRACE_DATA_LOSS = 15,
    HEADRACE_UNAUTHENTICATED = 16
} headrace_status;

typedef struct headrace_engine headrace_engine;

/* Called on the thread that creates the engine, while it loads and compiles. `line` is one line of
 * text without a newline, valid during the call. Levels: 0 error, 1 warning, 2 info, 3 debug. */
typedef void (*headrace_log_fn)(void *context, int level, const char *line);

typedef struct headrace_options {
    size_t size;
    const char *model;                 /* directory, .gguf, packaged name or org/name; required */
    const char *device;                /* "cpu" (NULL), "auto", "tpu", "gpu", "ref" (slow), or
                                          "pjrt:PATH", a PJRT plugin's shared object */
    const char *device_options;        /* "key=value,…" for a plugin's client, or NULL */
    const char *attention_custom_call; /* target of a custom call that the plugin has registered
                                          for ragged paged attention, or NULL */
    int tensor_parallel_size;          /* 1 (0): devices of a plugin that share each layer */
    const char *dtype;          /* "auto" (NULL), "float32": no 8-bit activations; "bfloat16",
                                   which a PJRT device takes by itself for float checkpoints */
    const char *kv_cache_dtype; /* "auto" (NULL), as the activations; "float32"; "bfloat16"; "int8",
                                   with an f32 scale for each token and head */
    const char *quantization;   /* "auto" (NULL), as the checkpoint is; "w8a8", "w4a8",
                                   "q8_0", "q4_0": a float checkpoint's linears become integers as
                                   they are read */
    const char *load_format;    /* "auto" (NULL) or "dummy": random weights from a config.json */
    const char *isa;            /* NULL = HEADRACE_ISA, else the best the machine has */
    const char *logprobs_mode;  /* NULL = "raw_logprobs"; processed_logprobs, raw_logits,
                                   processed_logits */
    const char *sampler;        /* "full" (NULL); "greedy": the likeliest token and nothing else is
                                   built, and requests that want more are refused */
    const char *buckets_json; /* {"tokens":[…],"requests":[…]}; NULL = the lists of the flags */
    int threads;              /* 0 = min(affinity, cgroup quota) */
    int max_logprobs;         /* 20 */
    int64_t max_model_len;    /* 0 = the model's own, -1 = as much of it as the cache holds */
    int64_t max_num_seqs;     /* 256 */
    int64_t max_num_batched_tokens;       /* 2048 */
    int64_t long_prefill_token_threshold; /* most prompt tokens of one request in one step; 0 = the
                                             token budget, but beside answers no more than makes
                                             a step half as long again */
    int64_t bucket_padding_gap;           /* 0 = doubling only */
    int64_t block_size;                   /* 16 tokens per KV block */
    int64_t kv_cache_memory_bytes;        /* 0 = what max_num_seqs × max_model_len needs, within
                                             the memory there is */
    int64_t seed; /* -1; else requests without a seed draw from this and their number */
    const char *compile_cache;     /* where packed weights and a plugin's compiled programs are kept
                                      between starts; NULL = headrace/compile in the user's cache
                                      folder, "" = nowhere */
    int64_t compile_cache_bytes;   /* 4 GiB: most that they may take; the oldest by use go */
    int check_recompilation;       /* 1: a compile after warm-up ends the engine */
    int enforce_eager;             /* 1: compile on demand; for development */
    int use_generation_config;     /* 1: generation_config.json supplies sampling defaults */
    int enable_prefix_caching;     /* 1: blocks of a prompt seen before are not computed */
    const char *scheduling_policy; /* "fcfs" (NULL) or "priority" */
    int64_t max_num_queued_reqs;   /* 0 = no limit; requests not yet running */
    int64_t max_num_queued_tokens; /* 0 = no limit; prompt tokens not yet running, four bytes of a
                                      text counted as one until it is tokenised */
    const char *override_generation_config_json; /* sampling defaults over the model's, or NULL */
    const char *speculative_config_json; /* {"method":"ngram","num_speculative_tokens":5}: several
                                            tokens of an answer in a step; NULL = none */
    const char *chat_template;           /* a template's text, instead of the model's */
    int parse_special_in_content; /* 0; 1: special-token text typed in a message is special */
    const char *const *logits_processors; /* [n_logits_processors] shared objects, "FILE" or
                                             "FILE=TEXT"; see headrace_logits_processor */
    size_t n_logits_processors;
    headrace_log_fn log; /* NULL = silent; set once per process, before its first engine */
    void *log_context;
} headrace_options;

HEADRACE_API void headrace_options_init(headrace_options *o);
HEADRACE_API int headrace_engine_create(const headrace_options *o, headrace_engine **out);
/* Ends running requests with "abort", joins its threads. NULL is fine. */
HEADRACE_API void headrace_engine_destroy(headrace_engine *e);

/* A grammar: which tokens may come next. One belongs to a request and has a state for each of its
 * choices; headrace_sampling.choice is one of the engine's own. Nothing outside of the mask is ever
 * generated, and log-probabilities are of what is inside (raw ones are taken after this mask and
 * before any other). When the mask is empty, alone or with what the request bans, the choice ends
 * with finish reason "error". `context` and the functions must hold until the request is DONE. */
typedef struct headrace_grammar {
    size_t size;
    void *context;
    /* The state of a choice (0 … n-1) before its first token, or NULL when memory is short. Called
     * on a thread of the engine's that may wait. */
    void *(*begin)(void *context, uint32_t choice);
    /* Before each step in which the choice gets a token: words[n_words] of 32 ids each, all bits 0;
     * bit id % 32 of words[id / 32] set: that token may come. Returns 0 when every token may come,
     * and words are not looked at. EOS is a token like others: without its bit the choice cannot
     * end there. The engine waits for it: it must not block, allocate or call the engine. */
    int (*fill)(void *state, uint32_t *words, size_t n_words);
    /* A token of the choice, each once and in order, preempted or not; the last one too. On the
     * thread that calls fill. */
    void (*accept)(void *state, int64_t token_id);
    /* The state is not used any more. On any thread. */
    void (*end)(void *state);
} headrace_grammar;

/* Sampling: names, defaults and ranges as vLLM and OpenAI have them; every value is checked by
 * headrace_submit, which names the field it refuses. Pointers are read during submit only. */
typedef struct headrace_sampling {
    size_t size;
    uint32_t n;                     /* 1: choices per prompt */
    double temperature;             /* 1.0; below 1e-5 greedy */
    int64_t top_k;                  /* 0 = off */
    double top_p;                   /* 1.0 */
    double min_p;                   /* 0.0 */
    double presence_penalty;        /* 0.0 */
    double frequency_penalty;       /* 0.0 */
    double repetition_penalty;      /* 1.0 */
    int64_t seed;                   /* -1 = drawn, and reported back */
    int64_t max_tokens;             /* -1 = the model's default, or the rest of the context */
    int64_t default_max_tokens;     /* 0 = none, else the most where max_tokens is -1, the model
                                       has no default and the context is longer */
    int64_t min_tokens;             /* 0 */
    int ignore_eos;                 /* 0 */
    int include_stop_str_in_output; /* 0 */
    int skip_special_tokens;        /* 1 */
    int logprobs;                   /* -1 = none, else the number of top entries */
    int prompt_logprobs;            /* -1 = none */
    int sampling_trace;             /* 0; 1: each token tells how it came to be chosen */
    const char *const *stop;        /* stop strings, UTF-8 */
    size_t n_stop;
    const int64_t *stop_token_ids;
    size_t n_stop_token_ids;
    const int64_t *logit_bias_ids; /* with logit_bias_values */
    const double *logit_bias_values;
    size_t n_logit_bias;
    const int64_t *allowed_token_ids; /* NULL = all */
    size_t n_allowed_token_ids;
    const char *const *bad_words;
    size_t n_bad_words;
    const int64_t *logprob_token_ids;
    size_t n_logprob_token_ids;
    const char *const *choice; /* structured output: the text is one of these, UTF-8 */
    size_t n_choice;
    const headrace_grammar *grammar; /* structured output by the caller's own rules, or NULL */
} headrace_sampling;

/* The defaults above, with the model's generation_config.json over them when the engine uses it. */
HEADRACE_API void headrace_sampling_init(const headrace_engine *e, headrace_sampling *s);

typedef struct headrace_request {
    size_t size;
    const char *prompt; /* UTF-8 of prompt_bytes; special-token text in it is parsed */
    size_t prompt_bytes;
    const int64_t *prompt_ids; /* instead of text */
    size_t n_prompt_ids;
    const char *messages_json;  /* instead of text: a chat, as a JSON array of messages, rendered by
                                   the model's template; special-token text in it stays text */
    const char *tools_json;     /* with messages: a JSON array, or NULL */
    const char *documents_json; /* with messages: a JSON array, or NULL */
    const char *chat_template_kwargs_json; /* with messages: an object of variables, or NULL */
    int add_generation_prompt;             /* 1: with messages: open the assistant's turn */
    int continue_final_message;            /* 0; 1: end inside the last message */
    int add_special_tokens; /* what the tokenizer adds around a text (BOS): 1 yes, 0 no, -1 yes
                               for a prompt and no for a chat, whose template writes its own */
    int64_t priority;       /* 0; under the priority policy smaller runs first */
    const char *cache_salt; /* NULL, or text that keeps its prefix blocks apart from others' */
    const headrace_sampling *sampling; /* NULL = defaults */
} headrace_request;

HEADRACE_API void headrace_request_init(headrace_request *r);
/* Takes a request; *id names it in events. Checked here: what can be checked without the
 * tokenizer; the rest comes back as a HEADRACE_EVENT_FAILED. */
HEADRACE_API int headrace_submit(headrace_engine *e, const headrace_request *r, uint64_t *id);
/* Asks that a request ends with "abort". An unknown or finished id is no error. */
HEADRACE_API int headrace_cancel(headrace_engine *e, uint64_t id);

typedef struct headrace_logprob {
    int64_t token_id;
    double logprob; /* -inf when masked */
    int64_t rank;   /* 1 = likeliest; 0 where not computed (top entries carry their place) */
} headrace_logprob;

/* How a token came to be chosen. Where it is the likeliest by definition (temperature 0, top_k 1)
 * nothing was drawn: the last three candidates are -1, and what follows them is NaN or 0. */
typedef struct headrace_trace {
    int64_t candidates[5]; /* ids left by the grammar mask; by every other mask and bias; by min_p;
                              by top_k; by top_p */
    double thresholds[3]; /* where min_p, top_k and top_p cut: (logit - largest) / temperature; -inf
                             where nothing was cut */
    double entropy;       /* nats, of what was drawn from */
    double probability;   /* the token's share of that */
    int64_t seed, position; /* what the random word comes from: the choice's seed and the token's
                               place in its sequence, prompt included */
    uint64_t word;
    int drawn; /* 0: the likeliest was taken */
} headrace_trace;

typedef struct headrace_token {
    headrace_logprob chosen;
    const char *bytes; /* the raw bytes that the token stands for */
    size_t n_bytes;
    size_t text_offset;          /* where its text starts in the choice's text, characters */
    const headrace_logprob *top; /* [n_top] by falling probability; then logprob_token_ids */
    size_t n_top;
    const headrace_trace *trace; /* NULL unless it was asked for */
} headrace_token;

typedef enum headrace_event_kind {
    HEADRACE_EVENT_STARTED,  /* the prompt was accepted: prompt_ids, seed */
    HEADRACE_EVENT_PROMPT,   /* prompt_logprobs, before the first tokens */
    HEADRACE_EVENT_TOKENS,   /* tokens of one choice and their text */
    HEADRACE_EVENT_FINISHED, /* a choice has ended: finish_reason, stop_reason */
    HEADRACE_EVENT_DONE,     /* the whole request has ended; its id is never seen again */
    HEADRACE_EVENT_FAILED    /* the request was refused or lost: status, message; then DONE */
} headrace_event_kind;

/* Pointers hold until the next poll. Fields that a kind does not name are zero. */
typedef struct headrace_event {
    size_t size;
    headrace_event_kind kind;
    uint64_t id;
    uint32_t choice;
    const int64_t *prompt_ids; /* STARTED [n_prompt_ids] */
    size_t n_prompt_ids;
    int64_t seed;                 /* STARTED: the seed in use */
    int64_t max_tokens;           /* STARTED: most tokens that a choice may come to */
    const headrace_token *tokens; /* TOKENS, PROMPT (position 0: chosen.rank 0, no logprob) */
    size_t n_tokens;
    const char *text; /* TOKENS: whole characters only, may be empty */
    size_t text_bytes;
    const char *finish_reason; /* FINISHED: "stop", "length", "abort", "error" */
    const char *stop_string;   /* FINISHED: the stop string met, or NULL */
    int64_t stop_token_id;     /* FINISHED: the stop_token_ids member met, or -1 */
    int64_t output_tokens;     /* FINISHED: tokens generated for this choice */
    int64_t cached_tokens;     /* FINISHED: prompt tokens first taken from the prefix cache */
    double queue_s, prefill_s, decode_s; /* FINISHED: waiting, until the first token, and after */
    int status;                          /* FAILED */
    const char *message;                 /* FAILED */
} headrace_event;

/* Waits up to timeout_ms (< 0 = for ever, 0 = not at all) for the next event.
 * HEADRACE_DEADLINE_EXCEEDED when none came. */
HEADRACE_API int headrace_poll(headrace_engine *e, headrace_event *out, int timeout_ms);
/* Readable when an event may be waiting; for poll(2) and event loops. The engine owns it. */
HEADRACE_API int headrace_wake_fd(const headrace_engine *e);

typedef struct headrace_info {
    size_t size;
    const char *model_name;
    int64_t max_model_len, vocab_size, max_num_seqs, max_num_batched_tokens, kv_blocks, block_size;
    int64_t programs, programs_cached; /* cached: compiled by an earlier process */
    double load_s, compile_s; /* reading and packing weights; building, compiling, warming up */
    size_t weight_bytes, kv_bytes, peak_bytes; /* here and below: of one device */
    size_t weight_bytes_cached;                /* of them, packed by an earlier process */
    size_t buffer_bytes, code_bytes; /* inputs, outputs, sampler tables; programs, 0 = not told */
    size_t device_bytes_in_use, device_bytes_limit; /* as a plugin's device said when the engine was
                                                       ready; 0 = it does not */
    uint64_t late_compilations, steps, preemptions;
    uint64_t draft_tokens, accepted_tokens; /* guessed; of those, right (speculative_config_json) */
    double prefill_s, decode_s;             /* time in steps with and without prompt tokens */
    uint64_t prefill_tokens, decode_tokens;
    const int64_t *eos_token_ids; /* [n_eos_token_ids]; holds as long as the engine */
    size_t n_eos_token_ids;
    const char *compile_cache; /* the folder in use, or NULL; holds as long as the engine */
    const char *weights_file;  /* of packed weights, for the next start, or NULL; likewise */
    const char *numerics;      /* JSON object; holds as long as the engine */
} headrace_info;
HEADRACE_API void headrace_info_get(const headrace_engine *e, headrace_info *out);
/* The manifest (programs, buckets, numerics) as JSON; free with headrace_free. NULL when memory is
 * short. with_times 0 makes it equal between two starts. */
HEADRACE_API char *headrace_manifest(const headrace_engine *e, int with_times);
HEADRACE_API void headrace_free(void *p);
/* SHA-256 of the checkpoint as hexadecimal text. Reads all of it when this file has not been seen
 * before on this machine, which takes a second per gigabyte or so. */
HEADRACE_API int headrace_model_hash(const headrace_engine *e, char out[65]);

/* Text on its own: ids of a text, text of ids, a rendered chat. Results are freed with
 * headrace_free. */
HEADRACE_API int headrace_tokenize(const headrace_engine *e, const char *text, size_t bytes,
                                   int add_special_tokens, int64_t **ids, size_t *n);
HEADRACE_API int headrace_detokenize(const headrace_engine *e, const int64_t *ids, size_t n,
                                     int skip_special_tokens, char **text, size_t *bytes);

/* The bytes that a token stands for inside a text, which need not be whole characters; hold as long
 * as the engine. *n is 0 for special tokens, for ids that name nothing, and without a tokenizer. */
HEADRACE_API const char *headrace_token_bytes(const headrace_engine *e, int64_t id, size_t *n);

/* ---- logits processors -----------------------------------------------------------------------
 *
 * Code of the operator's own that looks at a choice's tokens before each further one is chosen, and
 * adds to logits or forbids ids. It is a shared object that exports headrace_logits_processor_get,
 * loaded when the engine is created; docs/LOGITS_PROCESSORS.md has an example. Functions return 0
 * or a headrace_status. What headrace hands over holds during the call, unless it says otherwise.
 */
#define HEADRACE_LOGITS_PROCESSOR_VERSION 1

typedef struct headrace_processor_info {
    size_t size;
    int64_t vocab_size;     /* ids are 0 to vocab_size - 1 */
    int64_t max_model_len;  /* most tokens of a sequence */
    const int64_t *eos_ids; /* [n_eos_ids] */
    size_t n_eos_ids;
    const char *options; /* what followed FILE=, or NULL */
    char *message;       /* [message_bytes] where a failure is explained, terminated */
    size_t message_bytes;
} headrace_processor_info;

/* One answer that begins. */
typedef struct headrace_processor_choice {
    size_t size;
    uint64_t request; /* as headrace_submit gave it */
    uint32_t choice;  /* 0 to n - 1 */
    int64_t max_tokens;
    const int32_t *prompt_ids; /* [n_prompt] */
    int64_t n_prompt;
    char *message; /* [message_bytes] where a refusal is explained, terminated */
    size_t message_bytes;
} headrace_processor_choice;

/* One token that is about to be chosen. */
typedef struct headrace_processor_row {
    size_t size;
    const int32_t *tokens; /* [n_tokens]: the prompt's n_prompt, then the answer's so far */
    int64_t n_prompt, n_tokens;
    int32_t *bias_ids;  /* [n_bias] of bias_capacity: ids whose logits change, and by how much; */
    float *bias_values; /* finite; entries of one id add up */
    int32_t n_bias;     /* 0 when called */
    int32_t bias_capacity; /* what logit_bias and the processors before leave of 1024 */
    uint32_t *mask; /* [mask_words] id i is bit i % 32 of word i / 32; all ones when called */
    int64_t mask_words;
    int masked; /* 0 when called; 1: ids whose bits were cleared are never chosen */
} headrace_processor_row;

typedef struct headrace_logits_processor {
    size_t size;      /* sizeof(headrace_logits_processor) */
    uint32_t version; /* HEADRACE_LOGITS_PROCESSOR_VERSION */
    const char *name; /* for messages */
    /* On the thread that creates and destroys the engine; may be NULL. */
    int (*create)(const headrace_processor_info *info, void **processor);
    void (*destroy)(void *processor);
    /* Around each choice, before its first token and after its last; may be NULL. On other threads
     * than process, at the same time as other choices' calls. A begin that fails refuses the
     * request, and has nothing to end. */
    int (*begin)(void *processor, const headrace_processor_choice *choice, void **state);
    void (*end)(void *processor, void *state);
    /* Once for each token of a choice, always on the engine's thread: everybody waits for it, so it
     * must not block or allocate. One that fails ends the choice with "error". */
    int (*process)(void *processor, void *state, headrace_processor_row *row);
} headrace_logits_processor;

/* What a processor's shared object exports, not the library; the struct lives as long as the object
 * is loaded. */
#define HEADRACE_PROCESSOR_API HEADRACE_API
HEADRACE_PROCESSOR_API const headrace_logits_processor *headrace_logits_processor_get(void);

/* This thread's last failure, a sentence; never NULL. */
HEADRACE_API const char *headrace_message(void);
HEADRACE_API const char *headrace_version(void);

#ifdef __cplusplus
}
#endif
#endif
