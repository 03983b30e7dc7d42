/* An answer's text taken apart as it comes: reasoning, content, tool calls.
 *
 * Models write all three as one text, each family in a way of its own. What is given out depends on
 * the text alone, never on how it was cut: pieces of a stream, joined, are what the whole text
 * gives. Nothing is held back longer than until it is known what it is. Time is linear. */
#ifndef HEADRACE_TEXT_REPLY_H
#define HEADRACE_TEXT_REPLY_H

#include "text/tokenizer.h"

/* How a model writes tool calls; under vLLM's names. In all of them "parameters" may stand for
 * "arguments". */
typedef enum hr_call_format {
    HR_CALLS_NONE,
    HR_CALLS_HERMES, /* <tool_call>{"name": …, "arguments": {…}}</tool_call>, Qwen's too */
    HR_CALLS_LLAMA3, /* "llama3_json": {"name": …, "parameters": {…}}, at the beginning or behind
                        <|python_tag|>; further ones behind semicolons */
    HR_CALLS_MISTRAL, /* [TOOL_CALLS][{"name": …, "arguments": {…}}, …], or
                         [TOOL_CALLS]name{…}[TOOL_CALLS]name{…} */
} hr_call_format;

typedef enum hr_reasoning_format {
    HR_REASONING_NONE,
    HR_REASONING_DEEPSEEK_R1, /* the text begins inside <think>…</think>, written or not */
    HR_REASONING_QWEN3,       /* it does where prompt or text open it with <think> */
    HR_REASONING_MISTRAL,     /* the same with [THINK]…[/THINK] */
} hr_reasoning_format;

typedef struct hr_reply_format {
    hr_call_format calls;
    hr_reasoning_format reasoning;
} hr_reply_format;

/* By name; NULL is "auto", which is what the chat template (n 0 = none) and the vocabulary (NULL =
 * none) look like, or none. INVALID_ARGUMENT lists the names. */
HR_MUST_USE hr_status hr_call_format_named(const char *name, hr_str chat_template,
                                           const hr_tokenizer *t, hr_call_format *out);
HR_MUST_USE hr_status hr_reasoning_format_named(const char *name, hr_str chat_template,
                                                const hr_tokenizer *t, hr_reasoning_format *out);
const char *hr_call_format_name(hr_call_format f);           /* "hermes" … "none" */
const char *hr_reasoning_format_name(hr_reasoning_format f); /* "deepseek_r1" … "none" */

/* What a prompt says about the reasoning of the answer that follows. */
typedef enum hr_reply_prompt {
    HR_REPLY_PROMPT_SILENT, /* nothing */
    HR_REPLY_PROMPT_OPENS,  /* it ends in an open reasoning */
    HR_REPLY_PROMPT_CLOSES, /* it ends behind one: the answer has none */
} hr_reply_prompt;
/* Of the prompt's end, as text with its special tokens. `anywhere`: the last mark counts wherever
 * it stands, as where a message is continued; else only one that ends the text. */
hr_reply_prompt hr_reply_prompt_of(hr_reasoning_format f, hr_str prompt_end, bool anywhere);

/* The same of a prompt's ids, of which the last few are looked at. */
HR_MUST_USE hr_status hr_reply_prompt_of_ids(hr_reasoning_format f, const hr_tokenizer *t,
                                             const int64_t *ids, size_t n, bool anywhere,
                                             hr_reply_prompt *out);

typedef enum hr_reply_piece {
    HR_REPLY_CONTENT,
    HR_REPLY_REASONING,
    HR_REPLY_CALL,      /* a call begins: its name, whole */
    HR_REPLY_ARGUMENTS, /* more of its arguments, as the model writes them */
} hr_reply_piece;

/* A piece of text, valid during the call. */
typedef void (*hr_reply_sink)(void *context, hr_reply_piece piece, hr_str text);

typedef struct hr_reply_options {
    hr_reply_format format;
    hr_reply_prompt prompt;
    bool one_call; /* calls after the first are dropped */
    hr_reply_sink sink;
    void *context;
} hr_reply_options;

/* One answer. `= { 0 }` is legal to deinit. */
typedef struct hr_reply {
    hr_reply_options options;
    int phase;
    bool inside;   /* opening: what is no mark is reasoning */
    bool fresh;    /* content: nothing but white space since its beginning, or since a call */
    bool hidden;   /* what is fed is not shown: a special token that is skipped */
    size_t n_seen; /* bytes of a mark that may be one */
    char seen[24];
    hr_buf held;          /* not yet known what it is; becomes content when it is no call */
    hr_buf out;           /* known, not yet given out */
    hr_reply_piece piece; /* what `out` is */
    size_t n_calls;
    struct {
        int at, member; /* where in the call; which member's value */
        uint64_t depth; /* of brackets open in the value */
        bool in_string, escaped, scalar;
        bool listed;    /* an element of a list of calls */
        bool bare;      /* a name without quotes, then arguments */
        bool committed; /* it is a call: its name was given out */
        bool streaming; /* the value is its arguments, given out as they come */
        bool named, argued;
        hr_buf text; /* of the key, name or number at work */
        hr_buf name, arguments;
    } call;
    hr_status status;
} hr_reply;

void hr_reply_init(hr_reply *r, const hr_reply_options *o);
void hr_reply_deinit(hr_reply *r);
/* More of the answer, whole characters. RESOURCE_EXHAUSTED: the answer is lost. */
HR_MUST_USE hr_status hr_reply_feed(hr_reply *r, hr_str text);
/* A special token that the text does not show, by its text: it counts where it is one of the
 * format's marks. */
HR_MUST_USE hr_status hr_reply_special(hr_reply *r, hr_str token);
/* The same of an id, special or not; what is not special shows in the text and counts there. */
HR_MUST_USE static inline hr_status hr_reply_hidden(hr_reply *r, const hr_tokenizer *t, int64_t id)
{
    if (!hr_tokenizer_is_special(t, (int32_t)id)) return HR_OK;
    return hr_reply_special(r, hr_tokenizer_token_text(t, (int32_t)id));
}
/* The end: what was held back is content, or reasoning. */
HR_MUST_USE hr_status hr_reply_finish(hr_reply *r);

#endif
