/* A streamed OpenAI answer (completions or chat), taken apart as its bytes arrive. */
#ifndef HEADRACE_BENCH_STREAM_H
#define HEADRACE_BENCH_STREAM_H

#include "base/str.h"

typedef struct hr_stream {
    /* A chunk that stands for generated tokens; its text may be empty, when the tokens have none
     * yet. NULL is fine. */
    void (*on_chunk)(void *context, hr_str text);
    /* The same of reasoning, where that is to be kept apart; NULL: it is text like any other. */
    void (*on_reasoning)(void *context, hr_str text);
    void *context;
    hr_buf line, data; /* a line not yet whole; the data lines of an event not yet whole */
    hr_arena arena;    /* of the event at hand */
    int64_t chunks;    /* times on_chunk was called */
    int64_t prompt_tokens, completion_tokens; /* as the server counts them; -1 = it has not told */
    bool done;                                /* [DONE] has come */
    char finish_reason[32];                   /* "" = none yet */
    char error[256];                          /* an error event's message; "" = none */
} hr_stream;

void hr_stream_init(hr_stream *s, void (*on_chunk)(void *context, hr_str text), void *context);
void hr_stream_feed(hr_stream *s, hr_str bytes);
/* No more bytes will come. What is wrong with the answer as a whole, or NULL. */
const char *hr_stream_finish(hr_stream *s);
void hr_stream_deinit(hr_stream *s);

#endif
