/* Inside the two text threads: requests on their way in, and their answers on the way out. */
#ifndef HEADRACE_ENGINE_TEXT_INT_H
#define HEADRACE_ENGINE_TEXT_INT_H

#include "engine/engine_int.h"
#include "engine/grammar.h"

/* One choice being answered. */
struct hr_choice {
    hr_detok detok;
    hr_buf text;                   /* all of it so far, complete characters */
    size_t characters;             /* in text */
    size_t released;               /* bytes of text already sent */
    size_t searched;               /* bytes of text that stop strings were looked for in */
    uint32_t *matched;             /* request's arena [n_stop]: how far each has come */
    hr_engine_event *first, *last; /* owned: tokens whose text is not yet released, in order */
    int64_t n_output;
    bool finished;
    const char *stop_string; /* borrowed from the request */
    hr_engine_event *end;    /* owned: its FINISHED, made with it */
    int32_t stop_id;
    int64_t cached;                    /* prompt tokens from the prefix cache */
    double started_s, first_s, last_s; /* hr_now_s: scheduled, first and newest token; 0 = not */
};

/* ---- the input thread ------------------------------------------------------------------------ */

struct hr_reader {
    hr_engine *engine; /* borrowed */
    hr_tokenizer_scratch scratch;
    hr_token_index index;               /* owned; made by the first structured output */
    struct hr_template *chat;           /* owned; NULL = the model has no chat template */
    hr_request *pending, **pending_end; /* owned: taken from the queue, in order */
};

/* input_ids.c: the request's ids, checked against the context. */
HR_MUST_USE hr_status hr_reader_encode(hr_reader *t, hr_request *r);
/* How many tokens a choice of it may come to, once its ids are known. */
int64_t hr_reader_most_tokens(const hr_engine *e, const hr_request *r);
/* Its choices and their sequences. */
HR_MUST_USE hr_status hr_reader_sequences(hr_reader *t, hr_request *r, hr_seq **first);
/* TOKENIZE may always go so far; bad_words no further. */
#define HR_TOKENIZE_BYTES ((size_t)4 << 20)
/* A text longer than any prompt can be is refused before it is tokenised. */
HR_MUST_USE hr_status hr_reader_check_bytes(const hr_reader *t, const hr_request *r, size_t bytes);
/* input_chat.c: messages rendered by the model's template, then tokenised by provenance. */
HR_MUST_USE hr_status hr_reader_encode_chat(hr_reader *t, const hr_request *r, hr_ids *ids);

/* ---- the output thread ----------------------------------------------------------------------- */

#define HR_REPLY_CHAINS 1024

struct hr_writer {
    hr_engine *engine;                   /* borrowed */
    hr_request *chains[HR_REPLY_CHAINS]; /* owned: requests whose sequences are with the engine */
    hr_event_list events;                /* owned: of the message at hand */
    hr_status fatal;                     /* the engine stopped with this */
    char fatal_message[HR_MESSAGE_MAX];
};

/* output_text.c */
/* Returns true when the request ends here, for want of memory, so that the engine must hear. */
bool hr_writer_prompt(hr_writer *t, hr_request *r, const hr_prompt_logprobs *p);
/* A token of a choice; returns true when it ends here (a stop string was met, or memory was short),
 * so that the engine must hear. */
bool hr_writer_token(hr_writer *t, hr_request *r, const hr_step_message *m, int64_t row);
/* Ends a choice that is still open, with its sequence that has come back. */
void hr_writer_finish(hr_writer *t, hr_request *r, const hr_seq *q);

/* ---- events.c: made on either thread --------------------------------------------------------- */

/* NULL when memory is short, which is logged. */
hr_engine_event *hr_event_new(headrace_event_kind kind, uint64_t request, uint32_t choice);
void hr_event_add(hr_event_list *l, hr_engine_event *v); /* NULL is fine */
void hr_event_list_destroy(hr_event_list *l);

HR_MUST_USE hr_status hr_event_add_started(hr_event_list *l, const hr_request *r);
/* Once for a request; later ones say nothing. */
void hr_event_add_failed(hr_event_list *l, hr_request *r, hr_status code, const char *message);
/* FINISHED for a choice as it stands; `c` NULL = one that never began. */
void hr_event_add_finished(hr_event_list *l, const hr_request *r, uint32_t choice, hr_choice *c,
                           hr_finish finish);

#endif
