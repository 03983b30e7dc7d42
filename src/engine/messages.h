/* What crosses the queues between caller, input, engine and output thread.
 *
 * Every object moves forwards only: caller → input → engine → output → caller, a request itself
 * straight from input to output. One arrow points backwards: the cancel of a choice whose stop
 * string was met. A message embeds hr_msg first and is freed by its last receiver. */
#ifndef HEADRACE_ENGINE_MESSAGES_H
#define HEADRACE_ENGINE_MESSAGES_H

#include "base/sync.h"

typedef enum hr_msg_kind {
    HR_MSG_REQUEST, /* caller → input: hr_request */
    HR_MSG_REPLY,   /* input → output: the hr_request, its sequences on their way to the engine */
    HR_MSG_CANCEL, /* caller → engine, where it acts at once; and caller → input → engine, where
                      it meets sequences that were still on their way; output → engine */
    HR_MSG_SEQ,    /* input → engine: a new sequence; engine → output: one that has ended */
    HR_MSG_STEP,   /* engine → output: the tokens of a step */
    HR_MSG_PROMPT, /* engine → output: a prompt's log-probabilities */
    HR_MSG_FATAL,  /* engine → output: the engine has stopped; every request fails */
} hr_msg_kind;

typedef struct hr_msg {
    hr_queue_node node; /* first */
    hr_msg_kind kind;
} hr_msg;

#define HR_ALL_CHOICES UINT32_MAX

typedef struct hr_cancel {
    hr_msg msg;
    uint64_t request;
    uint32_t choice; /* HR_ALL_CHOICES = the whole request */
} hr_cancel;

hr_cancel *hr_cancel_new(uint64_t request, uint32_t choice); /* NULL when memory is short */

typedef struct hr_fatal {
    hr_msg msg;
    hr_status code;
    char message[HR_MESSAGE_MAX];
} hr_fatal;

#endif
