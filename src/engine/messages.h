/* What crosses the queues between caller, text thread and engine thread.
 *
 * Every object moves once, forwards (caller → text → engine → text → caller); one arrow points
 * backwards: cancel. A message embeds hr_msg first and is freed by its last receiver. */
#ifndef HEADRACE_ENGINE_MESSAGES_H
#define HEADRACE_ENGINE_MESSAGES_H

#include "base/sync.h"

typedef enum hr_msg_kind {
    HR_MSG_REQUEST, /* caller → text: hr_request */
    HR_MSG_CANCEL,  /* caller → text → engine, or text → engine when a stop string is met */
    HR_MSG_SEQ,     /* text → engine: a new sequence; engine → text: one that has ended */
    HR_MSG_STEP,    /* engine → text: the tokens of a step */
    HR_MSG_PROMPT,  /* engine → text: a prompt's log-probabilities */
    HR_MSG_FATAL,   /* engine → text: the engine has stopped; every request fails */
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

typedef struct hr_fatal {
    hr_msg msg;
    hr_status code;
    char message[HR_MESSAGE_MAX];
} hr_fatal;

#endif
