/* Between the parts of the HTTP layer: connection, exchange, listener, access, JSON worker.
 * I/O thread, unless a line says otherwise. */
#ifndef HEADRACE_SERVER_NET_H
#define HEADRACE_SERVER_NET_H

#include <event2/bufferevent.h>
#include <event2/event.h>

#include "base/sync.h"
#include "server/http.h"
#include "server/server_int.h"

typedef struct hr_connection hr_connection;

/* ---- exchange.c: the answer --------------------------------------------------------------------
 */

/* An exchange with what its handler does not see. */
typedef struct hr_exchange_own {
    hr_exchange x;           /* first */
    hr_queue_node node;      /* its way to the JSON worker and back */
    hr_connection *c;        /* NULL: the client has gone while the worker had it */
    hr_http_message message; /* owned */
    size_t held;             /* bytes counted in hr_connections.held */
    hr_buf lines;            /* header lines that the handler set */
    bool close;              /* the connection ends with this answer */
    bool streaming, chunked;
    bool ended;            /* and only waits to be freed */
    bool parsing;          /* the JSON worker has it */
    bool hashing;          /* it went there for the model's hash */
    char hash[65];         /* by the worker */
    hr_status json_status; /* by the worker */
    char json_message[HR_MESSAGE_MAX];
} hr_exchange_own;

static inline hr_exchange_own *hr_exchange_own_of(hr_exchange *x)
{
    return (hr_exchange_own *)x;
}
/* NULL when memory is short. Takes the message. */
hr_exchange_own *hr_exchange_create(hr_connection *c, hr_http_message message);
void hr_exchange_destroy(hr_exchange_own *o);
/* The body's JSON into x->json; sets json_status. Any thread. */
void hr_exchange_parse(hr_exchange_own *o, const hr_json_limits *limits);

/* The model's hash into `hash`; sets json_status. Any thread. */
void hr_exchange_hash(hr_exchange_own *o);

/* ---- routes.c ----------------------------------------------------------------------------------
 */

/* Refuses what may not be answered (drain, key, route, content type): true, and x is gone. May be
 * called before the body is there. */
bool hr_routes_refuse(hr_exchange *x);
/* Whether it would, without answering. */
bool hr_routes_would_refuse(hr_exchange *x);
/* Calls the handler; the body is parsed where the route takes JSON. */
void hr_routes_call(hr_exchange *x);

/* ---- access.c: keys and origins ----------------------------------------------------------------
 */

typedef struct hr_access hr_access;
HR_MUST_USE hr_status hr_access_create(const hr_server_options *o, hr_access **out);
/* Reads the file of keys again; after a failure the old ones hold. */
HR_MUST_USE hr_status hr_access_reload(hr_access *a);
void hr_access_destroy(hr_access *a);
/* True when no key is set or the request carries one of them. */
bool hr_access_allows(const hr_access *a, const hr_http_request *r);
/* The Access-Control lines of an answer to this request. */
void hr_access_add_cors(const hr_access *a, const hr_http_request *r, hr_buf *lines);
bool hr_access_is_preflight(const hr_http_request *r);
void hr_access_preflight(const hr_access *a, hr_exchange *x);

/* ---- json_worker.c: large bodies, and the model's hash ------------------------------------------
 */

typedef struct hr_json_worker hr_json_worker;
HR_MUST_USE hr_status hr_json_worker_create(hr_server *s, hr_json_worker **out);
/* Exchanges inside are freed. */
void hr_json_worker_destroy(hr_json_worker *w);
void hr_json_worker_submit(hr_json_worker *w, hr_exchange_own *o);
/* For an exchange that has ended and holds much. */
void hr_json_worker_free(hr_json_worker *w, hr_exchange_own *o);

/* ---- connection.c ------------------------------------------------------------------------------
 */

HR_MUST_USE hr_status hr_connections_create(hr_server *s, hr_connections **out);
void hr_connections_destroy(hr_connections *all); /* closes all */
/* Takes the descriptor. `ssl` is NULL or an SSL * to be used on it, owned from here. */
void hr_connections_add(hr_connections *all, int fd, void *ssl);
size_t hr_connections_count(const hr_connections *all);
/* Those with a request being answered or an answer not yet sent. */
size_t hr_connections_busy(const hr_connections *all);
/* Drain: those that wait for a request are closed, the others after their answer. */
void hr_connections_drain(hr_connections *all);

/* What an exchange needs of its connection. */
hr_server *hr_connection_server(const hr_connection *c);
struct evbuffer *hr_connection_output(hr_connection *c);
/* The exchange's answer is whole and it is freed; the connection closes or goes on. */
void hr_connection_answered(hr_connection *c, hr_exchange_own *o);
/* Cuts the connection: its exchange's on_gone is called, the exchange freed. */
void hr_connection_cut(hr_connection *c, const char *why);
/* The worker is done with an exchange, whose connection may have gone. */
void hr_connection_parsed(hr_exchange_own *o);

/* ---- listen.c, tls.c ---------------------------------------------------------------------------
 */

typedef struct hr_listener hr_listener;
/* Binds and listens; connections are accepted from here on. */
HR_MUST_USE hr_status hr_listener_create(hr_server *s, hr_listener **out);
void hr_listener_destroy(hr_listener *l);
/* "http://127.0.0.1:8000" */
const char *hr_listener_address(const hr_listener *l);
/* A connection has ended: accepts again where it had stopped. */
void hr_listener_resume(hr_listener *l);

typedef struct hr_tls hr_tls;
/* *out NULL when no certificate is set. */
HR_MUST_USE hr_status hr_tls_create(const hr_server_options *o, hr_tls **out);
/* Reads certificate and key again, for connections to come; after a failure the old ones hold. */
HR_MUST_USE hr_status hr_tls_reload(hr_tls *t, const hr_server_options *o);
void hr_tls_destroy(hr_tls *t);
/* An SSL * for one connection; NULL when memory is short. */
void *hr_tls_session(hr_tls *t);

#endif
