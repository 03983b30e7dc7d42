/* HTTP/1.0 and 1.1 request framing: bytes in, requests out. No I/O, no clock: safe to fuzz.
 *
 * Source: RFC 9112, read strictly: what two readers could understand differently is refused (bare
 * LF, folded lines, two lengths, a length with chunks), because such requests are how proxies and
 * servers are played against each other. */
#ifndef HEADRACE_SERVER_HTTP_H
#define HEADRACE_SERVER_HTTP_H

#include "server/exchange.h"

typedef struct hr_http_limits {
    size_t request_line; /* bytes; above it 414 */
    size_t head;         /* bytes of all header lines; above it 431; trailers likewise */
    size_t headers;      /* lines; above it 431 */
    size_t body;         /* bytes; above it 413 */
} hr_http_limits;

/* A request and the memory that it points into. */
typedef struct hr_http_message {
    hr_http_request request;
    hr_http_header *headers; /* owned */
    hr_buf head, body;       /* owned */
} hr_http_message;
void hr_http_message_deinit(hr_http_message *m);

typedef enum hr_http_event {
    HR_HTTP_MORE, /* every byte was taken, more are needed */
    HR_HTTP_HEAD, /* the head is whole, request is filled but for its body; once per request */
    HR_HTTP_DONE, /* the request is whole: take the message, then hr_http_reset */
    HR_HTTP_BAD,  /* error and reason say why; nothing after it can be understood */
} hr_http_event;

typedef enum hr_http_phase {
    HR_HTTP_START, /* before the first byte of a request line */
    HR_HTTP_LINE,
    HR_HTTP_HEADERS,
    HR_HTTP_BODY, /* of a stated length */
    HR_HTTP_CHUNK_SIZE,
    HR_HTTP_CHUNK_DATA,
    HR_HTTP_CHUNK_END,
    HR_HTTP_TRAILERS,
    HR_HTTP_WHOLE,
    HR_HTTP_FAILED,
} hr_http_phase;

/* Name and value of a header line, as places in the head: it moves while it grows. */
typedef struct hr_http_span {
    uint32_t name_at, name_n, value_at, value_n;
} hr_http_span;

typedef struct hr_http {
    const hr_http_limits *limits; /* borrowed */
    hr_http_phase phase;
    hr_http_message message;
    hr_http_span *spans; /* owned [n_spans] */
    size_t n_spans, spans_capacity;
    uint32_t method_n, target_at, target_n; /* the method begins the head */
    size_t line_at;  /* where the line begins that is being read, in head or in line */
    hr_buf line;     /* chunk sizes and trailers, a line at a time */
    size_t extra;    /* bytes of chunk extensions and trailers */
    size_t blank;    /* empty lines before the request line */
    uint64_t left;   /* bytes of body or chunk still to come */
    uint64_t length; /* body bytes so far */
    bool has_length, chunked, expects_continue;
    bool discard; /* set by the caller at HEAD: the body is read but not kept */
    int error;    /* HTTP status of HR_HTTP_BAD */
    const char *reason;
} hr_http;

void hr_http_init(hr_http *h, const hr_http_limits *limits);
void hr_http_deinit(hr_http *h);
/* Ready for the next request; frees a message that was not taken. */
void hr_http_reset(hr_http *h);
/* The message becomes the caller's. */
hr_http_message hr_http_take(hr_http *h);
/* Takes bytes from `in`, *used of them, up to the next event. */
hr_http_event hr_http_feed(hr_http *h, hr_str in, size_t *used);
/* At HEAD: a body follows (maybe an empty one, when chunked). */
bool hr_http_has_body(const hr_http *h);

/* Equal but for the case of ASCII letters. */
bool hr_http_same(hr_str a, hr_str b);
/* The value of the only or first line with this name; p NULL when there is none. */
hr_str hr_http_header_get(const hr_http_request *r, const char *name);
/* A comma-separated list holds this token. */
bool hr_http_list_has(hr_str list, hr_str token);

/* A traceparent header's value when it is one (W3C Trace Context, 3.2), else n 0: version, trace
 * id, parent id, flags. */
#define HR_TRACE_ID_AT    3
#define HR_TRACE_ID_BYTES 32
hr_str hr_traceparent(hr_str value);

#endif
