/* What connection.c (one) and connections.c (all of them) share. I/O thread. */
#ifndef HEADRACE_SERVER_CONNECTION_INT_H
#define HEADRACE_SERVER_CONNECTION_INT_H

#include <event2/buffer.h>

#include "server/net.h"

struct hr_connection {
    hr_connections *all;
    hr_connection *prev, *next;
    struct bufferevent *bev; /* owned */
    hr_http http;
    hr_exchange_own *own; /* the request being answered, owned; NULL = none */
    size_t held;          /* bytes of the request being read, counted in all->held */
    double since;   /* hr_now_s: the request's first byte, or the wait for it, or the linger */
    double read_s;  /* hr_now_s: last byte in */
    double wrote_s; /* hr_now_s: last byte out, or the first that waits */
    bool served;    /* has answered a request */
    bool running;   /* inside run() */
    bool paused;    /* not being read; watched for hang-ups */
    bool eof;       /* the client has closed its side */
    bool closing;   /* ends when the output is sent */
    bool unread;    /* and the client may still be sending then: linger */
    bool lingering;
    bool secure, open; /* TLS, and its handshake is done */
    bool dead;         /* in all->dead */
};

struct hr_connections {
    hr_server *server;
    hr_connection *first, *dead;
    size_t n;
    size_t held, most_held; /* bytes of all requests in memory */
    hr_http_limits limits;
    int hangups; /* owned epoll of paused sockets */
    struct event *hangup, *reap, *sweep;
};

/* Bytes of answers not yet sent. */
static inline size_t hr_connection_unsent(const hr_connection *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev));
}

/* A request has begun to come. */
static inline bool hr_connection_has_begun(const hr_connection *c)
{
    return c->http.phase != HR_HTTP_START || c->http.message.head.n;
}

/* Its callbacks are set and it is read from here on. */
void hr_connection_start(hr_connection *c);
/* Its exchange, if any, is told; the rest is freed when the loop is back at its top. */
void hr_connection_destroy(hr_connection *c);
/* Ends when what waits is sent. */
void hr_connection_close(hr_connection *c);
/* It is sent. Where the client may still be sending, closing now would reset the connection and
 * could take the answer with it: our side closes, theirs is read to its end. */
void hr_connection_finish(hr_connection *c);
/* Answers in place of a handler, while the client may still be sending its request. `reason` NULL:
 * the route knows why. */
void hr_connection_refuse(hr_connection *c, int status, const char *reason);

#endif
