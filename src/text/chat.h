/* Chat requests to prompts: what transformers' apply_chat_template does around the template. */
#ifndef HEADRACE_TEXT_CHAT_H
#define HEADRACE_TEXT_CHAT_H

#include "text/jinja/jinja.h"

typedef enum hr_chat_flags {
    HR_CHAT_DEFAULT = 0,
    HR_CHAT_ADD_GENERATION_PROMPT = 1,
    /* The prompt ends inside the last message, so that the model goes on with it. */
    HR_CHAT_CONTINUE_FINAL_MESSAGE = 2,
    /* Messages get what vLLM gives them, and templates count on: a content that is null or absent
     * is an empty text; "reasoning" and "reasoning_content", its older name, are there both. */
    HR_CHAT_FILL_MESSAGES = 4,
} hr_chat_flags;

typedef struct hr_chat {
    /* An array of objects with a role. A content given as text parts is joined by newlines;
     * arguments of tool_calls given as JSON text become what they say. All other members reach the
     * template as they are. */
    const hr_json *messages;
    const hr_json *tools;     /* an array, or NULL: none */
    const hr_json *documents; /* an array, or NULL: none */
    const hr_json *kwargs;    /* an object of further variables (chat_template_kwargs), or NULL */
    hr_str bos_token, eos_token; /* n 0 = the model has none */
    hr_chat_flags flags;
    hr_template_limits limits;
    const struct tm *now; /* as in hr_render_options */
    int now_microseconds;
    hr_template_place *failed; /* as in hr_render_options */
} hr_chat;

/* The prompt with its provenance: what came in with the request is data, the template and the two
 * tokens are not. INVALID_ARGUMENT names the member of the request that is wrong, or carries the
 * template's own refusal; UNIMPLEMENTED for parts that are no text. */
HR_MUST_USE hr_status hr_chat_render(const hr_template *t, const hr_chat *chat, hr_rendered *out);

/* A tokenizer_config.json's chat template: a string, or one of a list of named ones (`name` NULL =
 * "default"). NOT_FOUND when there is none. Points into `config`. */
HR_MUST_USE hr_status hr_chat_template_source(const hr_json *config, const char *name, hr_str *out);
/* "bos_token" and the like: a string, or an object with its content; n 0 when absent or null. */
HR_MUST_USE hr_status hr_chat_special_token(const hr_json *config, const char *key, hr_str *out);

#endif
