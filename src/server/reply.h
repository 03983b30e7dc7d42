/* A choice's answer taken apart: reasoning, content and tool calls, as OpenAI and vLLM tell them.
 */
#ifndef HEADRACE_SERVER_REPLY_H
#define HEADRACE_SERVER_REPLY_H

#include "server/generation.h"
#include "text/reply.h"

typedef struct hr_reply_call {
    char id[40];
    hr_buf name, arguments; /* arguments: in a stream, those not yet sent */
    bool told;              /* id and name have been sent */
} hr_reply_call;

struct hr_choice_reply {
    hr_reply parser;
    hr_choice_out *choice; /* its `text` takes the content */
    bool hides_reasoning;
    hr_buf reasoning;                 /* not yet sent */
    hr_reply_call *calls;             /* owned [n_calls] */
    size_t n_calls, capacity, unsent; /* calls before `unsent` have been sent whole */
    size_t bytes;                     /* in these buffers */
    hr_status status;                 /* memory was short */
};

/* Once the prompt is known, where the request's answers are to be taken apart. */
HR_MUST_USE hr_status hr_part_reply_begin(hr_part *p, const headrace_event *started);
/* A choice's next text. Without a reply, all of it is content. */
void hr_choice_reply_feed(hr_choice_out *c, const headrace_event *e);
/* The end; the finish reason that clients are told. */
const char *hr_choice_reply_finish(hr_choice_out *c, const char *reason);
/* What was not yet sent has been. */
void hr_choice_reply_sent(hr_choice_out *c);
void hr_choice_reply_deinit(hr_choice_out *c);

static inline size_t hr_choice_reply_bytes(const hr_choice_out *c)
{
    return c->reply ? c->reply->bytes : 0;
}

/* A whole answer without content: reasoning or calls say it all. */
bool hr_choice_reply_is_silent(const hr_choice_out *c);
/* ,"reasoning":…,"tool_calls":[…]: members of a message; of a delta, those that say something, with
 * the content, and braces around. */
void hr_openai_write_reply(hr_buf *out, const hr_choice_out *c);
void hr_openai_write_reply_delta(hr_buf *out, const hr_choice_out *c);

#endif
