/* The engine: a model, a backend, and the threads that turn requests into events. This room's door.
 *
 * Requests and events are those of headrace.h; the server uses this door, embedders that one. */
#ifndef HEADRACE_ENGINE_ENGINE_H
#define HEADRACE_ENGINE_ENGINE_H

#include "base/histogram.h"
#include "base/str.h"
#include "engine/ledger.h"
#include "headrace/headrace.h"
#include "model/model.h"
#include "sampler/sampler.h"
#include "text/tokenizer.h"

typedef struct headrace_engine hr_engine;

/* A request as the engine keeps it: checked, and owner of everything it points to. */
typedef struct hr_request hr_request;

/* Deep copy with every check that needs no tokenizer; names the field it refuses. */
HR_MUST_USE hr_status hr_request_create(const hr_engine *e, const headrace_request *in,
                                        hr_request **out);
void hr_request_destroy(hr_request *r); /* NULL is fine */

/* V, context and logprobs, as sampling parameters are checked against them. */
hr_sampler_limits hr_engine_sampler_limits(const hr_engine *e);

HR_MUST_USE hr_status hr_engine_create(const headrace_options *o, hr_engine **out);
void hr_engine_destroy(hr_engine *e);
/* Takes the request; thread-safe. UNAVAILABLE when the queue is full or the engine is stopping. */
HR_MUST_USE hr_status hr_engine_submit(hr_engine *e, hr_request *r, uint64_t *id);
HR_MUST_USE hr_status hr_engine_cancel(hr_engine *e, uint64_t id);

/* An event on its way to the caller, who frees it. */
typedef struct hr_engine_event {
    hr_queue_node node; /* first */
    hr_arena arena;     /* owns what the event points to */
    headrace_event event;
    headrace_token token; /* TOKENS: what event.tokens points to */
    char small[40];       /* its text, when short */
    size_t start, end;    /* TOKENS: its text within the choice's, bytes; for the output thread */
} hr_engine_event;

/* Other than OK: a step failed and the engine has stopped by itself; every request of it has failed
 * or will. `message` (NULL is fine) says why. Known by the time the first of those failures is
 * polled. */
hr_status hr_engine_failure(const hr_engine *e, char message[HR_MESSAGE_MAX]);

/* NULL when none came within timeout_ms (< 0 = for ever). */
hr_engine_event *hr_engine_poll(hr_engine *e, int timeout_ms);
void hr_engine_event_destroy(hr_engine_event *o); /* NULL is fine */

/* The checkpoint's own tokenizer; NULL (and HR_OK) when it brings none. */
HR_MUST_USE hr_status hr_engine_load_tokenizer(const hr_model *m, hr_tokenizer **out);

/* What bos_token and eos_token are to the model's chat template; n 0 = none. May parse into
 * `arena`. */
HR_MUST_USE hr_status hr_engine_chat_tokens(const hr_model *m, const hr_tokenizer *t,
                                            hr_arena *arena, hr_str *bos, hr_str *eos);

/* What metrics read; any thread, any time once the engine is ready. */
typedef struct hr_engine_gauges {
    uint64_t running, waiting;     /* sequences */
    int64_t blocks, blocks_in_use; /* KV blocks in all; held by running sequences */
    uint64_t prompt_tokens, generation_tokens, preemptions; /* counters from here on */
    uint64_t prefix_queries, prefix_hits;                   /* prompt tokens looked up, found */
    uint64_t late_compilations, steps;
    uint64_t drafts, draft_tokens, accepted_tokens;
} hr_engine_gauges;
void hr_engine_gauges_get(const hr_engine *e, hr_engine_gauges *out);
/* Tokens of each step; buckets 1 8 16 32 … 16384. */
/* Most drafts of a sequence in a step; 0 = none. */
int64_t hr_engine_speculative_tokens(const hr_engine *e);
/* How often the draft at this place, below that many, was accepted. */
uint64_t hr_engine_accepted_at(const hr_engine *e, int64_t place);
const hr_histogram *hr_engine_iteration_tokens(const hr_engine *e);
int64_t hr_engine_max_model_len(const hr_engine *e);

/* What a request asks for. TOKENIZE ends after STARTED, whose prompt_ids are the answer;
 * DETOKENIZE (prompt_ids in) gives one TOKENS event with text alone. Neither reaches the engine
 * thread. */
typedef enum hr_request_kind {
    HR_REQUEST_GENERATE,
    HR_REQUEST_TOKENIZE,
    HR_REQUEST_DETOKENIZE,
} hr_request_kind;
void hr_request_set_kind(hr_request *r, hr_request_kind kind);

const hr_tokenizer *hr_engine_tokenizer(const hr_engine *e); /* NULL: the model has none */
hr_str hr_engine_chat_template(const hr_engine *e);          /* n 0 = none */
const hr_model *hr_engine_model(const hr_engine *e);
const hr_ledger *hr_engine_ledger(const hr_engine *e);

#endif
