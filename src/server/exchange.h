/* An exchange: one HTTP request and its answer. What route handlers see of the HTTP layer.
 *
 * I/O thread only. Made by the connection when a request is whole; ends when its answer is whole or
 * its client has gone, and then frees its arena. Pipelined requests are handled one after the
 * other, so a connection has one exchange at most. */
#ifndef HEADRACE_SERVER_EXCHANGE_H
#define HEADRACE_SERVER_EXCHANGE_H

#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"

typedef struct hr_server hr_server;
typedef struct hr_route hr_route;
typedef struct hr_exchange hr_exchange;

typedef struct hr_http_header {
    hr_str name, value; /* value without blanks at its ends */
} hr_http_header;

typedef struct hr_http_request {
    hr_str method, path, query; /* path decoded and without the query; query as sent */
    int minor;                  /* HTTP/1.minor */
    const hr_http_header *headers;
    size_t n_headers;
    hr_str body; /* whole; holds as long as the exchange */
    bool keep_alive;
} hr_http_request;

struct hr_exchange {
    hr_server *server;
    const hr_route *route;
    hr_http_request request;
    const hr_json *json; /* the body, parsed; NULL for routes that take none */
    hr_arena arena;      /* the handler's memory, freed when the exchange ends */
    double began_s;      /* hr_now_s when the request was whole */
    hr_str request_id;   /* X-Request-Id when sent and printable, else made: 32 hex digits */
    hr_str trace;        /* the W3C traceparent as it was sent; n 0 = none, or none that is valid */
    void *state;         /* the handler's */
    /* Set by a handler that answers later: called once, when the client left before the answer was
     * whole. The exchange ends when it returns. */
    void (*on_gone)(hr_exchange *x);
};

/* NULL text (p NULL) when absent. Names are compared without case. */
hr_str hr_exchange_header(const hr_exchange *x, const char *name);

/* The model's hash is worked out elsewhere, which may take long; then the handler is called again,
 * with server->model_hash set, or the request answered with why there is none. */
void hr_exchange_await_hash(hr_exchange *x);

/* A header of the answer, before the answer begins. Value is copied. */
void hr_exchange_set_header(hr_exchange *x, const char *name, const char *value);

/* Answers at once; each of these ends the exchange: x is gone when it returns. */
void hr_exchange_reply(hr_exchange *x, int http_status, const char *content_type, hr_str body);
/* {"error":{"message","type","param","code"}}; param may be NULL. */
void hr_exchange_error(hr_exchange *x, int http_status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* This thread's status message as an error: INVALID_ARGUMENT, OUT_OF_RANGE, UNIMPLEMENTED → 400,
 * NOT_FOUND → 404, UNAVAILABLE, RESOURCE_EXHAUSTED → 503 with Retry-After, else 500. */
void hr_exchange_fail(hr_exchange *x, hr_status st, const char *param);
/* The same without an exchange: HTTP status of a code; the body of an error. */
int hr_exchange_http_status(int st);
void hr_exchange_error_body(hr_json_writer *w, int http_status, const char *param, hr_str message);

/* Streams: 200 text/event-stream, chunked (HTTP/1.0: until close). */
void hr_exchange_stream_begin(hr_exchange *x);
/* "data: json\n\n". False when the client leaves more unread than a stream may hold: the connection
 * is then being closed, on_gone has been called, and x is gone. */
HR_MUST_USE bool hr_exchange_stream_data(hr_exchange *x, hr_str json);
/* "data: [DONE]\n\n" and the end; x is gone when it returns. */
void hr_exchange_stream_end(hr_exchange *x);

#endif
