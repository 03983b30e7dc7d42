/* Inside hr_reply: its phases, and what they share. */
#ifndef HEADRACE_TEXT_REPLY_INT_H
#define HEADRACE_TEXT_REPLY_INT_H

#include "text/reply.h"

enum {
    HR_REPLY_OPENING,  /* white space, and a mark that opens reasoning, or none */
    HR_REPLY_THINKING, /* to the mark that closes it */
    HR_REPLY_TALKING,  /* content, to the mark that opens a call */
    HR_REPLY_CALLING,  /* inside a call */
    HR_REPLY_TAIL,     /* behind a call's object: passed over to the mark that ends it */
};

/* The marks of a format; "" where it has none. */
typedef struct hr_reply_marks {
    const char *open, *close;
} hr_reply_marks;
hr_reply_marks hr_reply_call_marks(hr_call_format f);
hr_reply_marks hr_reply_reasoning_marks(hr_reasoning_format f);

static inline bool hr_reply_is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* A piece's next byte, to be given out soon. */
void hr_reply_put(hr_reply *r, hr_reply_piece piece, char c);
/* Gives out what is known. */
void hr_reply_flush(hr_reply *r);
/* A byte of what may be a call. */
void hr_reply_hold(hr_reply *r, char c);
/* It is no call: what was held is content. */
void hr_reply_reject(hr_reply *r);

/* reply_call.c: behind a mark, or at the beginning of an object. */
void hr_reply_call_begin(hr_reply *r);
/* A byte inside a call. False: it was not taken, and belongs to the phase that is now. */
bool hr_reply_call_step(hr_reply *r, char c);

#endif
