/* Inside the text thread: requests on their way in, and their answers on the way out. */
#ifndef HEADRACE_ENGINE_TEXT_INT_H
#define HEADRACE_ENGINE_TEXT_INT_H

#include "engine/engine_int.h"

/* One choice being answered. */
typedef struct hr_choice {
    hr_detok detok;
    hr_buf text;                   /* all of it so far, complete characters */
    size_t characters;             /* in text */
    size_t released;               /* bytes of text already sent */
    size_t searched;               /* no stop string begins before this */
    hr_engine_event *first, *last; /* owned: tokens whose text is not yet released, in order */
    int64_t n_output;
    bool finished;
    const char *stop_string; /* borrowed from the request */
    int32_t stop_id;
    int64_t cached;                    /* prompt tokens from the prefix cache */
    double started_s, first_s, last_s; /* hr_now_s: scheduled, first and newest token; 0 = not */
} hr_choice;

typedef struct hr_reply hr_reply;
struct hr_reply {
    hr_reply *next;      /* in the table's chain */
    hr_request *request; /* owned */
    hr_ids prompt;       /* the ids it came to */
    hr_choice *choices;  /* owned [sampling.n] */
    uint32_t in_engine;  /* sequences not yet back */
    bool score_only;     /* max_tokens 0: the one token drawn is dropped */
    bool failed;
};

#define HR_REPLY_CHAINS 1024

struct hr_text {
    hr_engine *engine; /* borrowed */
    hr_tokenizer_scratch scratch;
    struct hr_template *chat; /* owned; NULL = the model has no chat template */
    hr_reply *chains[HR_REPLY_CHAINS];
    hr_status fatal; /* the engine stopped with this */
    char fatal_message[HR_MESSAGE_MAX];
};

/* text_input.c: the request's ids, checked against the context; then its sequences. */
HR_MUST_USE hr_status hr_text_encode(hr_text *t, hr_request *r, hr_ids *ids);
HR_MUST_USE hr_status hr_text_sequences(hr_text *t, hr_reply *reply, hr_seq **first);

/* text_chat.c: messages rendered by the model's template, then tokenised by provenance. */
HR_MUST_USE hr_status hr_text_encode_chat(hr_text *t, const hr_request *r, hr_ids *ids);

/* text_output.c */
void hr_text_started(hr_text *t, const hr_reply *reply);
void hr_text_prompt(hr_text *t, const hr_reply *reply, const hr_prompt_logprobs *p);
/* A token of a choice; returns true when a stop string ended it, so that the engine must hear. */
bool hr_text_token(hr_text *t, hr_reply *reply, const hr_step_message *m, int64_t row);
/* Ends a choice that is still open, with its sequence that has come back. */
void hr_text_finish(hr_text *t, hr_reply *reply, const hr_seq *q);
/* The answer to DETOKENIZE: the text of the prompt's ids. */
HR_MUST_USE hr_status hr_text_decode(hr_text *t, const hr_reply *reply);
void hr_text_failed(hr_text *t, uint64_t request, hr_status code, const char *message);
void hr_text_done(hr_text *t, uint64_t request);

#endif
