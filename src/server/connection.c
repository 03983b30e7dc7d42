/* Connections: bytes in, requests in order, answers out, and every way a client can leave.
 *
 * Runs on the I/O thread and owns the sockets. A connection answers one request at a time; what is
 * pipelined behind it waits unread, first in a bounded buffer, then in the kernel. A client that
 * has closed its side while its answer is being made has gone (its exchange is told so at once).
 * The clever idea is the second epoll: a socket that is not being read for the moment would, in
 * libevent's own, either not tell of a hang-up or spin on it, so it is watched there, edge by edge,
 * for that alone. Connections that end are freed between events, never under a caller's feet. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "server/net.h"

#define PIPELINED      ((size_t)64 << 10)    /* bytes read ahead of the answer being made */
#define UNREAD_ANSWERS ((size_t)256 << 10)   /* answers unread before the next request is taken */
#define DISCARD        ((uint64_t)256 << 10) /* a refused body up to this is read to keep alive */
#define JSON_INLINE    ((size_t)64 << 10)    /* bodies up to this are parsed on this thread */
#define HELD_REQUESTS  16 /* so many largest requests' memory may be held in all */

/* Seconds. */
#define HEAD_TIME   30.0  /* from a request's first byte to the end of its head */
#define BODY_IDLE   30.0  /* without a byte of the body */
#define BODY_RATE   512.0 /* bytes a second that a body must come in with, after BODY_IDLE */
#define FIRST_TIME  30.0  /* a new connection without a byte */
#define IDLE_TIME   75.0  /* between two requests */
#define WRITE_TIME  60.0  /* without a byte of the answer taken */
#define LINGER_TIME 2.0   /* reading on after an answer that came before its request's end */

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

/* ---- ends ------------------------------------------------------------------------------------ */

/* An exchange has ended. */
static void free_exchange(hr_connections *all, hr_exchange_own *o)
{
    bool large = o->message.body.capacity + o->x.arena.used > JSON_INLINE;
    all->held -= o->held;
    if (large) hr_json_worker_free(all->server->json_worker, o);
    else hr_exchange_destroy(o);
}

static void drop_exchange(hr_connection *c)
{
    hr_exchange_own *o = c->own;
    if (!o) return;
    c->own = NULL;
    if (o->x.on_gone) o->x.on_gone(&o->x);
    if (o->parsing) o->c = NULL; /* the worker has it; what it holds still counts */
    else free_exchange(c->all, o);
}

static void resume_reading(hr_connection *c)
{
    if (!c->paused) return;
    c->paused = false;
    epoll_ctl(c->all->hangups, EPOLL_CTL_DEL, bufferevent_getfd(c->bev), NULL);
    bufferevent_enable(c->bev, EV_READ);
}

/* Its exchange, if any, is told; the rest is freed when the loop is back at its top. */
static void destroy(hr_connection *c)
{
    if (c->dead) return;
    c->dead = true;
    drop_exchange(c);
    resume_reading(c);
    bufferevent_setcb(c->bev, NULL, NULL, NULL, NULL);
    bufferevent_disable(c->bev, EV_READ | EV_WRITE);
    if (c->prev) c->prev->next = c->next;
    else c->all->first = c->next;
    if (c->next) c->next->prev = c->prev;
    c->all->n--;
    c->next = c->all->dead;
    c->all->dead = c;
    event_active(c->all->reap, 0, 0);
}

static void release(hr_connection *c)
{
    SSL *ssl = bufferevent_openssl_get_ssl(c->bev);
    if (ssl && c->open) { /* tells the client that this is the end and no cut */
        SSL_set_shutdown(ssl, SSL_RECEIVED_SHUTDOWN);
        SSL_shutdown(ssl);
    }
    bufferevent_free(c->bev);
    c->all->held -= c->held;
    hr_http_deinit(&c->http);
    hr_free(c);
}

static void reap(evutil_socket_t fd, short what, void *self)
{
    (void)fd, (void)what;
    hr_connections *all = self;
    for (hr_connection *c; (c = all->dead);) {
        all->dead = c->next;
        release(c);
    }
    if (all->server->listener) hr_listener_resume(all->server->listener);
}

void hr_connection_cut(hr_connection *c, const char *why)
{
    hr_log(HR_LOG_WARNING, "server: a connection is cut: %s", why);
    destroy(c);
}

static size_t unsent(const hr_connection *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev));
}

/* The answer is sent. Where the client may still be sending, closing now would reset the
 * connection and could take the answer with it: our side closes, theirs is read to its end. */
static void finish_closing(hr_connection *c)
{
    if (!c->unread || c->eof) {
        destroy(c);
        return;
    }
    SSL *ssl = bufferevent_openssl_get_ssl(c->bev);
    if (ssl) SSL_shutdown(ssl);
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    c->lingering = true;
    c->since = hr_now_s();
    resume_reading(c);
}

static void close_after_output(hr_connection *c)
{
    c->closing = true;
    if (!unsent(c)) finish_closing(c);
}

/* ---- what an exchange needs ------------------------------------------------------------------ */

hr_server *hr_connection_server(const hr_connection *c)
{
    return c->all->server;
}

struct evbuffer *hr_connection_output(hr_connection *c)
{
    return bufferevent_get_output(c->bev);
}

/* Counts memory of requests, here until this connection's request is answered. */
static bool hold(hr_connection *c, size_t *held, size_t bytes)
{
    c->all->held += bytes - *held;
    *held = bytes;
    return c->all->held <= c->all->most_held;
}

void hr_connection_answered(hr_connection *c, hr_exchange_own *o)
{
    bool close = o->close;
    c->own = NULL;
    free_exchange(c->all, o);
    c->served = true;
    c->since = hr_now_s();
    if (close || c->eof) c->closing = true; /* the write callback goes on from here */
    else if (!c->running) /* what waits behind it, from the loop: not inside our caller */
        bufferevent_trigger(c->bev, EV_READ, BEV_OPT_DEFER_CALLBACKS);
}

/* ---- from bytes to handlers ------------------------------------------------------------------ */

/* The request read so far becomes an exchange. NULL: no memory; the connection is gone. */
static hr_exchange *begin(hr_connection *c)
{
    hr_exchange_own *o = hr_exchange_create(c, hr_http_take(&c->http));
    if (!o) {
        hr_connection_cut(c, "out of memory");
        return NULL;
    }
    o->held = c->held;
    c->held = 0;
    c->own = o;
    return &o->x;
}

/* Answers in place of a handler, while the client may still be sending its request. */
static void refuse_early(hr_connection *c, int status, const char *reason)
{
    hr_exchange *x = begin(c);
    if (!x) return;
    hr_exchange_own_of(x)->close = true;
    c->unread = true;
    if (reason) hr_exchange_error(x, status, NULL, "The request is refused: %s.", reason);
    else hr_routes_refuse(x);
}

/* A head without its body: what will be refused anyway is refused before the body comes. */
static void take_head(hr_connection *c)
{
    hr_http *h = &c->http;
    if (!hr_http_has_body(h)) return;
    hr_exchange probe = { .server = c->all->server, .request = h->message.request };
    bool small = !h->chunked && h->left <= DISCARD && !h->expects_continue;
    if (hr_routes_would_refuse(&probe)) {
        if (small) h->discard = true; /* refused when it is whole; the connection lives on */
        else refuse_early(c, 0, NULL);
        return;
    }
    c->read_s = hr_now_s();
    struct evbuffer *in = bufferevent_get_input(c->bev);
    bool waits = h->expects_continue && evbuffer_get_length(in) == 0;
    if (waits) evbuffer_add(hr_connection_output(c), "HTTP/1.1 100 Continue\r\n\r\n", 25);
}

/* A client that closed its side has gone, unless its answer was ready at once. */
static void call(hr_connection *c, hr_exchange *x)
{
    hr_routes_call(x);
    if (c->own && c->eof) destroy(c);
}

static void take_whole(hr_connection *c)
{
    hr_exchange *x = begin(c);
    if (!x) return;
    hr_http_reset(&c->http);
    if (hr_routes_refuse(x)) return;
    hr_exchange_own *o = c->own;
    if (x->route->body == HR_ROUTE_JSON && x->request.body.n > JSON_INLINE) {
        o->parsing = true;
        hr_json_worker_submit(c->all->server->json_worker, o);
        if (c->eof) destroy(c);
        return;
    }
    if (x->route->body == HR_ROUTE_JSON) hr_exchange_parse(o, &hr_server_json_limits);
    call(c, x);
}

void hr_connection_parsed(hr_exchange_own *o)
{
    hr_connection *c = o->c;
    o->parsing = false;
    if (!c) {
        free_exchange(o->x.server->connections, o);
        return;
    }
    if (!hold(c, &o->held, o->message.body.capacity + o->x.arena.used))
        hr_exchange_error(&o->x, 503, NULL, "The server holds too many large requests.");
    else call(c, &o->x);
}

static void take_event(hr_connection *c, hr_http_event e)
{
    hr_http *h = &c->http;
    switch (e) {
    case HR_HTTP_MORE: break;
    case HR_HTTP_HEAD: take_head(c); return;
    case HR_HTTP_DONE: take_whole(c); return;
    case HR_HTTP_BAD: refuse_early(c, h->error, h->reason); return;
    }
    size_t bytes = h->message.body.capacity + h->message.head.capacity;
    if (!hold(c, &c->held, bytes)) refuse_early(c, 503, "the server holds too many large requests");
}

/* A request has begun to come. */
static bool has_begun(const hr_connection *c)
{
    return c->http.phase != HR_HTTP_START || c->http.message.head.n;
}

/* The next piece of input that lies in one place; n 0 when there is none. */
static hr_str next_input(hr_connection *c)
{
    struct evbuffer_iovec v;
    struct evbuffer *in = bufferevent_get_input(c->bev);
    if (evbuffer_peek(in, -1, NULL, &v, 1) < 1) return (hr_str){ 0 };
    return (hr_str){ v.iov_base, v.iov_len };
}

static bool may_read(const hr_connection *c)
{
    return !c->own && !c->closing && !c->dead && unsent(c) <= UNREAD_ANSWERS;
}

/* Not read while there is enough of it already. */
static void balance(hr_connection *c)
{
    if (c->dead) return;
    size_t waiting = evbuffer_get_length(bufferevent_get_input(c->bev));
    if (waiting <= PIPELINED) {
        resume_reading(c);
        return;
    }
    if (c->paused || c->eof) return;
    struct epoll_event e = { .events = EPOLLRDHUP | EPOLLET, .data.ptr = c };
    int fd = bufferevent_getfd(c->bev);
    if (epoll_ctl(c->all->hangups, EPOLL_CTL_ADD, fd, &e)) {
        hr_connection_cut(c, "no room to watch it for a hang-up");
        return;
    }
    c->paused = true;
    bufferevent_disable(c->bev, EV_READ);
}

static void run(hr_connection *c)
{
    if (c->running) return;
    c->running = true;
    while (may_read(c)) {
        size_t used;
        hr_str in = next_input(c);
        bool whole = c->http.phase == HR_HTTP_WHOLE; /* a head without a body: no byte is needed */
        if (in.n == 0 && !whole) break;
        if (!has_begun(c)) c->since = c->read_s;
        hr_http_event e = hr_http_feed(&c->http, in, &used);
        evbuffer_drain(bufferevent_get_input(c->bev), used);
        take_event(c, e);
    }
    c->running = false;
    balance(c);
}

/* ---- libevent's callbacks -------------------------------------------------------------------- */

static void on_read(struct bufferevent *bev, void *self)
{
    hr_connection *c = self;
    c->read_s = hr_now_s();
    if (c->lingering || c->closing) {
        struct evbuffer *in = bufferevent_get_input(bev);
        evbuffer_drain(in, evbuffer_get_length(in));
        return;
    }
    run(c);
}

static void on_written(struct bufferevent *bev, void *self)
{
    (void)bev;
    hr_connection *c = self;
    if (c->lingering) return;
    if (c->closing) finish_closing(c);
    else run(c);
}

static void on_event(struct bufferevent *bev, short what, void *self)
{
    (void)bev;
    hr_connection *c = self;
    if (what & BEV_EVENT_CONNECTED) {
        c->open = true;
        return;
    }
    c->eof = true;
    bool gone = c->own || c->lingering || (what & BEV_EVENT_ERROR);
    if (gone) destroy(c);
    else close_after_output(c); /* a half request ends here, too */
}

/* Output bytes come and go: the time of the last progress. */
static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *info, void *self)
{
    (void)out;
    hr_connection *c = self;
    if (info->n_deleted || info->orig_size == 0) c->wrote_s = hr_now_s();
}

/* A paused socket has hung up. */
static void on_hangup(evutil_socket_t fd, short what, void *self)
{
    (void)what, (void)self;
    struct epoll_event events[64];
    int n = epoll_wait(fd, events, 64, 0);
    for (int i = 0; i < n; i++) destroy(events[i].data.ptr);
}

/* ---- time ------------------------------------------------------------------------------------ */

static bool is_overdue(const hr_connection *c, double now)
{
    const hr_http *h = &c->http;
    if (h->phase <= HR_HTTP_HEADERS) return now - c->since > HEAD_TIME;
    double credit = BODY_IDLE + (double)h->length / BODY_RATE;
    return now - c->read_s > BODY_IDLE || now - c->since > HEAD_TIME + credit;
}

static void check_time(hr_connection *c, double now)
{
    if (unsent(c) && (!c->secure || c->open)) {
        if (now - c->wrote_s > WRITE_TIME) hr_connection_cut(c, "its client takes no answer");
    } else if (c->lingering) {
        if (now - c->since > LINGER_TIME && now - c->read_s > LINGER_TIME / 2) destroy(c);
        else if (now - c->since > FIRST_TIME) destroy(c);
    } else if (c->own) {
        return; /* the answer is on its way */
    } else if (c->closing) {
        finish_closing(c); /* its answer found no memory */
    } else if (has_begun(c)) {
        if (is_overdue(c, now)) refuse_early(c, 408, "it takes too long to come");
    } else if (now - c->since > (c->served ? IDLE_TIME : FIRST_TIME)) {
        destroy(c);
    }
}

static void sweep(evutil_socket_t fd, short what, void *self)
{
    (void)fd, (void)what;
    hr_connections *all = self;
    double now = hr_now_s();
    for (hr_connection *c = all->first, *next; c; c = next) {
        next = c->next;
        check_time(c, now);
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

static hr_status start_events(hr_connections *all)
{
    struct event_base *base = all->server->base;
    struct timeval second = { .tv_sec = 1 };
    all->hangups = epoll_create1(EPOLL_CLOEXEC);
    if (all->hangups < 0) return hr_fail(HR_RESOURCE_EXHAUSTED, "epoll: %s", strerror(errno));
    all->hangup = event_new(base, all->hangups, EV_READ | EV_PERSIST, on_hangup, all);
    all->reap = event_new(base, -1, 0, reap, all);
    all->sweep = event_new(base, -1, EV_PERSIST, sweep, all);
    bool made = all->hangup && all->reap && all->sweep;
    if (!made || event_add(all->hangup, NULL) || event_add(all->sweep, &second))
        return hr_fail(HR_RESOURCE_EXHAUSTED, "events of the connections");
    return HR_OK;
}

hr_status hr_connections_create(hr_server *s, hr_connections **out)
{
    *out = NULL;
    hr_connections *all = hr_new0(hr_connections);
    if (!all) return hr_fail(HR_RESOURCE_EXHAUSTED, "connections");
    size_t body = (size_t)s->options.max_request_bytes;
    all->server = s;
    all->hangups = -1;
    all->limits =
        (hr_http_limits){ .request_line = 8 << 10, .head = 64 << 10, .headers = 256, .body = body };
    if (!hr_mul_add(body, HELD_REQUESTS, (size_t)64 << 20, &all->most_held))
        all->most_held = SIZE_MAX;
    hr_status st = start_events(all);
    if (st) {
        hr_connections_destroy(all);
        return st;
    }
    *out = all;
    return HR_OK;
}

void hr_connections_destroy(hr_connections *all)
{
    if (!all) return;
    while (all->first) destroy(all->first);
    for (hr_connection *c; (c = all->dead);) {
        all->dead = c->next;
        release(c);
    }
    if (all->hangup) event_free(all->hangup);
    if (all->reap) event_free(all->reap);
    if (all->sweep) event_free(all->sweep);
    if (all->hangups >= 0) close(all->hangups);
    hr_free(all);
}

static struct bufferevent *wrap(hr_connections *all, int fd, void *ssl)
{
    struct event_base *base = all->server->base;
    if (!ssl) return bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
    struct bufferevent *bev = bufferevent_openssl_socket_new(
        base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (bev) bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    else SSL_free(ssl);
    return bev;
}

void hr_connections_add(hr_connections *all, int fd, void *ssl)
{
    hr_connection *c = hr_new0(hr_connection);
    struct bufferevent *bev = wrap(all, fd, ssl);
    if (!c || !bev) {
        hr_log(HR_LOG_WARNING, "server: no memory for a connection");
        if (bev) bufferevent_free(bev);
        else close(fd);
        hr_free(c);
        return;
    }
    *c = (hr_connection){ .all = all, .next = all->first, .bev = bev, .secure = ssl != NULL };
    c->since = c->read_s = c->wrote_s = hr_now_s();
    hr_http_init(&c->http, &all->limits);
    if (all->first) all->first->prev = c;
    all->first = c;
    all->n++;
    bufferevent_setcb(bev, on_read, on_written, on_event, c);
    evbuffer_add_cb(bufferevent_get_output(bev), on_output, c);
    bufferevent_set_max_single_read(bev, 64 << 10);
    if (bufferevent_enable(bev, EV_READ | EV_WRITE)) destroy(c);
}

size_t hr_connections_count(const hr_connections *all)
{
    return all->n;
}

size_t hr_connections_busy(const hr_connections *all)
{
    size_t n = 0;
    for (const hr_connection *c = all->first; c; c = c->next) n += c->own || unsent(c);
    return n;
}

void hr_connections_drain(hr_connections *all)
{
    for (hr_connection *c = all->first, *next; c; c = next) {
        next = c->next;
        if (!c->own && !has_begun(c) && !c->lingering) close_after_output(c);
    }
}
