/* An HTTP/1.1 client on libevent's loop: many calls at once, answers handed over as they arrive.
 *
 * One thread: whoever runs the loop of hr_http_base. */
#ifndef HEADRACE_BENCH_HTTP_H
#define HEADRACE_BENCH_HTTP_H

#include "base/str.h"

struct event_base;
typedef struct hr_http hr_http;
typedef struct hr_http_call hr_http_call;

typedef struct hr_http_options {
    const char *base_url; /* "http://host:port", "https://host/prefix"; a final /v1 is dropped */
    const char *api_key;  /* sent as Authorization: Bearer; NULL = none */
    const char *const *headers; /* [n_headers] "Name: value" or "Name=value" */
    size_t n_headers;
    int insecure; /* 1: https without looking at the certificate */
} hr_http_options;

/* How a call ended. */
typedef struct hr_http_result {
    hr_status status;    /* OK: a whole answer with a 2xx code */
    int code;            /* HTTP status code; 0 = no answer at all */
    const char *message; /* what went wrong, "" where nothing did; valid during the callback */
} hr_http_result;

typedef struct hr_http_request {
    const char *path; /* appended to the base URL's own */
    hr_str body;      /* JSON, copied; n 0 = a GET */
    /* A part of a 2xx answer's body; may be NULL. */
    void (*on_data)(void *context, hr_str bytes);
    /* Once, last, never from within hr_http_send; not after hr_http_cancel. */
    void (*on_done)(void *context, const hr_http_result *result);
    void *context;
} hr_http_request;

/* Resolves the host, which blocks; a name of several addresses is tried on each. */
HR_MUST_USE hr_status hr_http_create(const hr_http_options *o, hr_http **out);
void hr_http_destroy(hr_http *h); /* NULL is fine; calls under way end without a callback */
struct event_base *hr_http_base(hr_http *h);

HR_MUST_USE hr_status hr_http_send(hr_http *h, const hr_http_request *r, hr_http_call **out);
/* Ends a call: its connection is closed, no callback comes any more, `c` is gone. */
void hr_http_cancel(hr_http_call *c);

/* One call, waited for; the body of a 2xx answer is appended to `out`. body n 0 = GET. */
HR_MUST_USE hr_status hr_http_fetch(hr_http *h, const char *path, hr_str body, hr_buf *out);

#endif
