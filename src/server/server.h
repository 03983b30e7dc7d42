/* The server: OpenAI-compatible HTTP in front of an engine. This room's door.
 *
 * spec: vLLM's and OpenAI's names, shapes and error bodies; Prometheus metrics; the web page. */
#ifndef HEADRACE_SERVER_SERVER_H
#define HEADRACE_SERVER_SERVER_H

#include "base/status.h"
#include "headrace/headrace.h"

typedef struct hr_server_options {
    const char *host; /* NULL = 127.0.0.1 */
    int port;         /* 0 = any free one, told in the log */
    const char *uds;  /* path of a Unix socket instead of host and port; NULL = none */
    const char *const *served_names; /* [n_served_names]; the first is told; 0 = as the model is
                                        named on the command line */
    size_t n_served_names;
    const char *const *api_keys; /* [n_api_keys]; 0 = open to all */
    size_t n_api_keys;
    const char *api_key_file; /* further keys, one a line, read again on SIGHUP; NULL = none */
    const char *const *allowed_origins; /* [n_allowed_origins]; 0 = "*" */
    size_t n_allowed_origins;
    const char *ssl_keyfile, *ssl_certfile; /* both or neither */
    const char *response_role;              /* NULL = "assistant" */
    int64_t max_request_bytes;              /* 0 = 32 MiB */
    int enable_request_id_headers, enable_prompt_tokens_details, disable_log_requests;
    int log_json;                 /* request log lines as JSON objects */
    const char *tool_call_parser; /* hermes, llama3_json, mistral, none; NULL = auto, by template */
    const char *reasoning_parser; /* deepseek_r1, qwen3, mistral, none; NULL = auto */
    int enable_auto_tool_choice;  /* 1: answers to requests with tools are searched for calls */
    int exclude_tools_when_tool_choice_none; /* the template hears nothing of them */
    int strict;              /* fields unknown to OpenAI and vLLM are refused, too */
    int64_t stream_interval; /* tokens per streamed chunk at least; 0 = 1 */
    double shutdown_timeout; /* seconds that running requests may take after SIGTERM */
    int sandbox;             /* 1: files and system calls are restricted (docs/SECURITY.md) */
    const char *manifest;    /* file to write once the engine is ready; NULL = none */
} hr_server_options;

/* Starts at 127.0.0.1:8000, shutdown_timeout 30, enable_auto_tool_choice 1, sandbox 1. */
void hr_server_options_init(hr_server_options *o);

/* Binds, loads the engine while GET /health answers 503, serves until SIGTERM or SIGINT, drains.
 * Runs the I/O loop on the calling thread. A status other than OK: it could not start (message), or
 * the engine failed while serving. `what` the engine logs goes to hr_log. */
HR_MUST_USE hr_status hr_server_run(const hr_server_options *o, const headrace_options *engine);

#endif
