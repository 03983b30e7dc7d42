/* Running answers: from a checked request to its engine requests, and from their events to bytes.
 *
 * I/O thread only. A generation is one HTTP request; it has a part for each prompt (one request of
 * the engine's) and n choices per part. Parts are found by engine id; an id that is not found is
 * one whose client has gone. What is written waits in each choice's buffers until a chunk leaves,
 * or the whole answer, so that streams and bodies come from the same bytes. */
#ifndef HEADRACE_SERVER_GENERATION_H
#define HEADRACE_SERVER_GENERATION_H

#include "server/openai.h"

typedef struct hr_generation hr_generation;
typedef struct hr_part hr_part;
typedef struct hr_choice_reply hr_choice_reply; /* reply.h */

typedef enum hr_generation_kind {
    HR_GENERATION_ANSWER,
    HR_GENERATION_TOKENIZE,
    HR_GENERATION_DETOKENIZE,
} hr_generation_kind;

/* Log-probabilities as JSON list items without brackets. A chat uses `content` alone. */
typedef struct hr_logprob_lists {
    hr_buf content;                                       /* chat */
    hr_buf tokens, token_logprobs, top_logprobs, offsets; /* completions */
} hr_logprob_lists;

typedef struct hr_choice_out {
    hr_part *part;
    uint32_t index;            /* in the answer */
    hr_buf text;               /* not yet sent */
    hr_choice_reply *reply;    /* NULL = all of the text is content; exchange's arena */
    hr_logprob_lists logprobs; /* not yet sent */
    hr_buf token_ids;          /* the same, list items */
    hr_buf trace;              /* the same */
    int64_t n_tokens;          /* generated so far */
    int64_t n_unsent;          /* of them, not yet in a chunk */
    bool begun;                /* a chunk of text has left */
    bool finished;
    double last_s;             /* when its latest tokens came; 0 = none yet */
    const char *finish_reason; /* one of the five names */
    hr_str stop_string;        /* p NULL = none; exchange's arena */
    int64_t stop_token_id;     /* -1 = none */
} hr_choice_out;

struct hr_part {
    uint64_t id;   /* the engine's; 0 = not submitted */
    hr_part *next; /* in the table's chain */
    hr_generation *generation;
    hr_choice_out *choices; /* [n], within the generation's */
    hr_request *prepared;   /* owned until submitted */
    bool listed, started, done;
    int64_t prompt_tokens, cached_tokens;
    int64_t seed;           /* of its first choice */
    int64_t max_tokens;     /* most that a choice may come to */
    hr_buf prompt_ids;      /* list items; where asked for */
    hr_buf prompt_logprobs; /* vLLM's shape, list items; where asked for */
    hr_logprob_lists echo;  /* of the prompt, for each choice */
    hr_str echo_text;       /* text that an answer begins with; exchange's arena */
    size_t echo_characters;
    double queue_s, prefill_s, decode_s; /* the longest of its choices' */
};

struct hr_generation {
    hr_exchange *x;
    hr_server *server;
    hr_generation_kind kind;
    hr_generation *previous, *next; /* all of the server's */
    hr_openai openai;
    hr_str id;              /* "chatcmpl-…"; exchange's arena */
    int64_t created;        /* Unix seconds */
    hr_part *parts;         /* [n_parts] exchange's arena */
    hr_choice_out *choices; /* [n_choices] exchange's arena */
    size_t n_parts, n_choices, n_started, n_done;
    size_t held; /* bytes in the choices' buffers */
    bool stream_begun;
    hr_buf prefix;        /* of a chunk: all that stands before the choice's index */
    double first_token_s; /* when the first token of all came; 0 = none yet */
};

/* Takes a checked request; answers it now or later, and ends the exchange. */
void hr_generation_run(hr_exchange *x, const hr_openai *o, hr_generation_kind kind);

/* True the first time that a name is seen; false, too, once very many were. */
bool hr_generations_first_time(hr_generations *g, hr_str name);
/* The buffer that answers and chunks are written to, emptied. */
hr_buf *hr_generations_scratch(hr_generations *g);

/* generation_events.c: one event of a part that is listed. False: the generation has ended. */
HR_MUST_USE bool hr_generation_event(hr_part *part, const headrace_event *e);
/* generation.c, for it: the whole answer is there, or will not come. Each ends the generation. */
void hr_generation_reply(hr_generation *g);
/* 200 with this body, which is the scratch buffer. */
void hr_generation_answer(hr_generation *g, const hr_buf *body);
void hr_generation_fail(hr_generation *g, int http_status, const char *param, const char *message);

/* The field of the request that a message of the engine's speaks about, or NULL: the engine calls
 * whatever came in the prompt. */
const char *hr_generation_param(const hr_generation *g, const char *message);

typedef struct hr_usage {
    int64_t prompt_tokens, completion_tokens, cached_tokens;
} hr_usage;
hr_usage hr_generation_usage(const hr_generation *g);

/* openai_write.c */
typedef enum hr_chunk_kind {
    HR_CHUNK_ROLE,   /* chat: the first of a choice */
    HR_CHUNK_TEXT,   /* what is unsent */
    HR_CHUNK_FINISH, /* the same, and why it ended */
} hr_chunk_kind;
void hr_openai_write_prefix(hr_generation *g);
void hr_openai_write_chunk(hr_buf *out, const hr_generation *g, const hr_choice_out *c,
                           hr_chunk_kind kind);
void hr_openai_write_usage_chunk(hr_buf *out, const hr_generation *g);
void hr_openai_write_body(hr_buf *out, const hr_generation *g);
void hr_openai_add_text(hr_buf *out, hr_str s); /* quoted */
void hr_openai_add_i64(hr_buf *out, int64_t v);

/* openai_logprobs.c: appends list items. `base` is what an offset counts from, characters. */
typedef struct hr_logprob_style {
    const hr_tokenizer *tokenizer; /* NULL = the model has none */
    bool chat, as_ids;
    int top; /* entries to tell; of named ids all */
} hr_logprob_style;
hr_logprob_style hr_generation_logprob_style(const hr_generation *g);
void hr_logprobs_add(hr_logprob_lists *l, const hr_logprob_style *style, const headrace_token *t,
                     size_t offset);
/* A token that nothing preceded: no log-probability. Completions only. */
void hr_logprobs_add_first(hr_logprob_lists *l, const hr_logprob_style *style,
                           const headrace_token *t, size_t offset);
/* vLLM's prompt_logprobs: {"id":{"logprob","rank","decoded_token"}}. */
void hr_logprobs_add_prompt(hr_buf *out, const hr_logprob_style *style, const headrace_token *t,
                            int top);
void hr_logprobs_append(hr_logprob_lists *to, const hr_logprob_lists *from);
void hr_logprobs_clear(hr_logprob_lists *l);
void hr_logprobs_deinit(hr_logprob_lists *l);

/* tokenize.c: the answers of the two; each ends the generation. */
void hr_tokenize_reply(hr_generation *g, const headrace_event *e);
void hr_detokenize_reply(hr_generation *g, const headrace_event *e);

/* request_log.c: one line per request, at its end. */
void hr_request_log(const hr_generation *g, int http_status);
/* A request that never became an answer: logs it and answers with this thread's message. */
void hr_request_refuse(hr_exchange *x, hr_status st, const char *param);

#endif
