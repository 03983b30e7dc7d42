/* Inside the server: what its parts share. I/O thread, unless a line says otherwise. */
#ifndef HEADRACE_SERVER_SERVER_INT_H
#define HEADRACE_SERVER_SERVER_INT_H

#include <event2/event.h>

#include "engine/engine.h"
#include "server/exchange.h"
#include "server/server.h"
#include "text/reply.h"

typedef enum hr_route_access { HR_ROUTE_OPEN, HR_ROUTE_KEYED } hr_route_access;
typedef enum hr_route_body { HR_ROUTE_NONE, HR_ROUTE_JSON } hr_route_body;

struct hr_route {
    const char *method, *path;
    void (*handle)(hr_exchange *x);
    hr_route_access access;
    hr_route_body body;
};

/* Declared from the list: void hr_route_health(hr_exchange *) and so on. */
#define HR_ROUTE(method, path, handler, access, body) void hr_route_##handler(hr_exchange *x);
#include "server/routes.def"
#undef HR_ROUTE

typedef enum hr_server_phase {
    HR_SERVER_LOADING,  /* engine NULL; /health 503 */
    HR_SERVER_READY,    /* serving */
    HR_SERVER_DRAINING, /* SIGTERM: new requests 503, running ones finish */
    HR_SERVER_FAILED,   /* the engine stopped by itself; the loop is ending */
} hr_server_phase;

typedef struct hr_metrics hr_metrics;         /* metrics.h */
typedef struct hr_generations hr_generations; /* generation.h: running answers by engine id */
typedef struct hr_connections hr_connections; /* connection.c */
typedef struct hr_listener hr_listener;       /* listen.c */
typedef struct hr_access hr_access;           /* access.c: keys and origins */
typedef struct hr_tls hr_tls;                 /* tls.c */
typedef struct hr_json_worker hr_json_worker; /* json_worker.c: large bodies */

struct hr_server {
    hr_server_options options; /* borrowed strings */
    const headrace_options *engine_options;
    struct event_base *base;
    hr_server_phase phase;
    hr_engine *engine;     /* NULL while loading */
    hr_str model_name;     /* the first served name */
    hr_reply_format reply; /* how the model writes tool calls and reasoning, once it is there */
    char fingerprint[24];  /* system_fingerprint: hash of build and manifest */
    char model_hash[65];   /* once a request has wanted it; json_worker.c */
    int64_t started_unix;  /* seconds; "created" of the model */
    int64_t date_unix;     /* the second that `date` tells; exchange.c */
    char date[64];         /* a header line */
    hr_access *access;
    hr_tls *tls; /* NULL = plain */
    hr_json_worker *json_worker;
    hr_connections *connections;
    hr_listener *listener;
    hr_metrics *metrics;
    hr_generations *generations;
};

/* What a request's JSON may be. Values are counted because one takes 60 bytes of memory and two
 * of text. */
extern const hr_json_limits hr_server_json_limits;

/* engine events (openai layer, generation.c): takes the event, which it frees. */
void hr_generations_event(hr_server *s, hr_engine_event *v);
HR_MUST_USE hr_status hr_generations_create(hr_generations **out);
void hr_generations_destroy(hr_generations *g); /* none is running */
size_t hr_generations_running(const hr_generations *g);
/* The shutdown timeout has passed, or the engine died: every running answer ends with an error (an
 * error event, then [DONE], in a stream that has begun) and is cancelled in the engine. */
void hr_generations_abort_all(hr_server *s, int http_status, const char *message);

#endif
