/* The OpenAI layer: requests as JSON has them, checked and turned into what the engine takes.
 *
 * I/O thread. A request's fields are one list, openai_fields.def; what a request asked for is an
 * hr_openai, which lives in the exchange's arena and points into its body. */
#ifndef HEADRACE_SERVER_OPENAI_H
#define HEADRACE_SERVER_OPENAI_H

#include "server/server_int.h"

/* Bits, so that a field may name several. */
typedef enum hr_openai_endpoint {
    HR_OPENAI_COMPLETIONS = 1,
    HR_OPENAI_CHAT = 2,
    HR_OPENAI_TOKENIZE = 4,
    HR_OPENAI_DETOKENIZE = 8,
} hr_openai_endpoint;

enum {
    HR_OPENAI_MAX_FANOUT = 1024,     /* n × prompts */
    HR_OPENAI_DEFAULT_TOKENS = 16,   /* max_tokens of completions */
    HR_OPENAI_MAX_REQUEST_ID = 256,  /* bytes */
    HR_OPENAI_MAX_FIELDS = 1024,     /* of a body, known or not */
    HR_OPENAI_MAX_ENTRIES = 65536,   /* messages, tools, documents */
    HR_OPENAI_MAX_UNKNOWN_NAMES = 64 /* logged */
};

typedef struct hr_openai_prompt {
    hr_str text;        /* p NULL = ids */
    const int64_t *ids; /* [n_ids] */
    size_t n_ids;
} hr_openai_prompt;

/* What a request asks for. Starts as its endpoint's defaults. */
typedef struct hr_openai {
    hr_openai_endpoint endpoint;
    headrace_request request;        /* all but prompt and sampling, which are below */
    headrace_sampling sampling;      /* with the engine's needs: see hr_openai_settle */
    const hr_openai_prompt *prompts; /* [n_prompts]; a chat has one, empty: request.messages_json */
    size_t n_prompts;
    hr_str model, request_id; /* p NULL = not given */
    int stream, include_usage, continuous_usage;
    int echo, return_token_ids, return_tokens_as_token_ids, return_token_strs;
    int wants_logprobs;            /* answers carry log-probabilities */
    int logprobs;                  /* top entries to tell, -1 = not given */
    int top_logprobs;              /* chat's name for them, -1 = not given */
    int chat_logprobs;             /* chat: logprobs true */
    int prompt_logprobs;           /* vLLM's field to tell, -1 = not given */
    int64_t max_tokens;            /* as asked for, -1 = not given */
    int64_t max_completion_tokens; /* the same */
    int generation_prompt;         /* add_generation_prompt: -1 = not given */
    int has_stream_options, has_tools, has_tool_choice;
    int parallel_tool_calls, include_reasoning; /* 1 */
    int no_tool_choice;                         /* tool_choice "none" */
    hr_reply_format reply;                      /* what is looked for in a chat's answers */
    hr_str echo_text;        /* of a chat: the last message's content, where it counts */
    hr_str reasoning_effort; /* a variable of the template; p NULL = not given */
    const hr_json *template_kwargs, *messages;
} hr_openai;

/* One request being read. */
typedef struct hr_openai_parser {
    hr_exchange *x;
    hr_openai *out;
    const char *param; /* the field at work, for the error */
} hr_openai_parser;

/* The body's fields into *out; every refusal names its field, *param is that name. */
HR_MUST_USE hr_status hr_openai_parse(hr_exchange *x, hr_openai_endpoint endpoint, hr_openai *out,
                                      const char **param);

/* Fields that need code of their own; named in the list. */
hr_status hr_openai_read_prompt(hr_openai_parser *p, const hr_json *v);
hr_status hr_openai_read_messages(hr_openai_parser *p, const hr_json *v);
hr_status hr_openai_read_tools(hr_openai_parser *p, const hr_json *v);
hr_status hr_openai_read_tool_choice(hr_openai_parser *p, const hr_json *v);
hr_status hr_openai_read_documents(hr_openai_parser *p, const hr_json *v);
hr_status hr_openai_read_template_kwargs(hr_openai_parser *p, const hr_json *v);
hr_status hr_openai_read_response_format(hr_openai_parser *p, const hr_json *v);
hr_status hr_openai_read_structured_outputs(hr_openai_parser *p, const hr_json *v);
hr_status hr_openai_read_guided_choice(hr_openai_parser *p, const hr_json *v);
hr_status hr_openai_read_modalities(hr_openai_parser *p, const hr_json *v);
hr_status hr_openai_read_stream_options(hr_openai_parser *p, const hr_json *v);
hr_status hr_openai_read_logit_bias(hr_openai_parser *p, const hr_json *v);

/* Rules between fields, and what the engine is told: after all fields are read. */
hr_status hr_openai_settle_completions(hr_openai_parser *p);
hr_status hr_openai_settle_chat(hr_openai_parser *p);
hr_status hr_openai_settle_tokenize(hr_openai_parser *p);
hr_status hr_openai_settle_detokenize(hr_openai_parser *p);

/* A list of token ids out of JSON, at most `most` of them. */
hr_status hr_openai_ids(hr_openai_parser *p, const hr_json *v, size_t most, const int64_t **ids,
                        size_t *n);
/* A string, or a list of at most `most` of them, terminated. */
hr_status hr_openai_texts(hr_openai_parser *p, const hr_json *v, size_t most,
                          const char *const **out, size_t *n);
/* A list of objects that is not too long for a loop over it. */
hr_status hr_openai_check_list(hr_openai_parser *p, const hr_json *v);
/* A value's JSON source as a terminated copy, which is how the engine takes it. */
hr_status hr_openai_source(hr_openai_parser *p, const hr_json *v, const char **out);
/* A terminated copy; texts that hold NUL are refused. */
hr_status hr_openai_c_string(hr_openai_parser *p, hr_str s, const char **out);
/* The field's name and why it is refused, as a status. */
hr_status hr_openai_refuse(hr_openai_parser *p, const char *format, ...) HR_PRINTF(2, 3);

/* The handler of an endpoint: reads the request and runs it, or answers why not. */
void hr_openai_handle(hr_exchange *x, hr_openai_endpoint endpoint);
/* The field that a message of the engine's or the sampler's speaks about, or NULL. */
const char *hr_openai_param_of(const char *message);

/* models.c: HR_OK where a request may name this model (n 0: it names none). */
HR_MUST_USE hr_status hr_openai_check_model(const hr_server *s, hr_str name);
/* The server's fingerprint, made at the first call after the engine is ready. */
const char *hr_openai_fingerprint(hr_server *s);

#endif
