/* An answer's pieces joined to the message that a client would have. */
#ifndef HEADRACE_TESTS_REPLY_PARTS_H
#define HEADRACE_TESTS_REPLY_PARTS_H

#include "base/json.h"
#include "text/reply.h"

typedef struct reply_parts {
    hr_buf content, reasoning;
    hr_buf calls; /* each name and its arguments, one after another, a NUL behind each */
    size_t n_calls, n_pieces;
    bool misplaced; /* arguments before any call, or an empty piece */
} reply_parts;

static inline void reply_parts_add(void *context, hr_reply_piece piece, hr_str text)
{
    reply_parts *p = context;
    p->n_pieces++;
    p->misplaced |= !text.n;
    switch (piece) {
    case HR_REPLY_CONTENT: hr_buf_add_str(&p->content, text); return;
    case HR_REPLY_REASONING: hr_buf_add_str(&p->reasoning, text); return;
    case HR_REPLY_CALL:
        if (p->n_calls++) hr_buf_add_byte(&p->calls, '\0');
        hr_buf_add_str(&p->calls, text);
        hr_buf_add_byte(&p->calls, '\0');
        return;
    case HR_REPLY_ARGUMENTS:
        p->misplaced |= !p->n_calls;
        hr_buf_add_str(&p->calls, text);
        return;
    }
}

static inline bool reply_parts_equal(const reply_parts *a, const reply_parts *b)
{
    return hr_str_eq(hr_buf_str(&a->content), hr_buf_str(&b->content)) &&
           hr_str_eq(hr_buf_str(&a->reasoning), hr_buf_str(&b->reasoning)) &&
           hr_str_eq(hr_buf_str(&a->calls), hr_buf_str(&b->calls)) && a->n_calls == b->n_calls;
}

static inline void reply_parts_deinit(reply_parts *p)
{
    hr_buf_deinit(&p->content);
    hr_buf_deinit(&p->reasoning);
    hr_buf_deinit(&p->calls);
}

/* Up to the next NUL, or the end. */
static inline hr_str reply_parts_next(hr_str *rest)
{
    hr_str part = { rest->p, 0 };
    while (part.n < rest->n && part.p[part.n]) part.n++;
    size_t taken = part.n + (part.n < rest->n);
    *rest = hr_str_slice(*rest, taken, rest->n);
    return part;
}

/* {"content": …, "reasoning": …, "calls": [[name, arguments], …]} */
static inline void reply_parts_json(const reply_parts *p, hr_json_writer *w)
{
    hr_json_begin_object(w);
    hr_json_key(w, HR_STR("content"));
    hr_json_str(w, hr_buf_str(&p->content));
    hr_json_key(w, HR_STR("reasoning"));
    hr_json_str(w, hr_buf_str(&p->reasoning));
    hr_json_key(w, HR_STR("calls"));
    hr_json_begin_array(w);
    hr_str rest = hr_buf_str(&p->calls);
    for (size_t i = 0; i < p->n_calls; i++) {
        hr_json_begin_array(w);
        hr_json_str(w, reply_parts_next(&rest));
        hr_json_str(w, reply_parts_next(&rest));
        hr_json_end_array(w);
    }
    hr_json_end_array(w);
    hr_json_end_object(w);
}

#endif
