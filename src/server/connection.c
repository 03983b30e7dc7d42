/* Connections: bytes in, requests in order, answers out, and every way a client can leave.
 *
 * Runs on the I/O thread and owns the sockets. A connection answers one request at a time; what is
 * pipelined behind it waits unread, first in a bounded buffer, then in the kernel. A client that
 * has closed its side while its answer is being made has gone (its exchange is told so at once).
 * The clever idea is the second epoll: a socket that is not being read for the moment would, in
 * libevent's own, either not tell of a hang-up or spin on it, so it is watched there, edge by edge,
 * for that alone. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/log.h"
#include "server/connection_int.h"

#define PIPELINED      ((size_t)64 << 10)    /* bytes read ahead of the answer being made */
#define UNREAD_ANSWERS ((size_t)256 << 10)   /* answers unread before the next request is taken */
#define DISCARD        ((uint64_t)256 << 10) /* a refused body up to this is read to keep alive */
#define JSON_INLINE    ((size_t)64 << 10)    /* bodies up to this are parsed on this thread */

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

void hr_connection_destroy(hr_connection *c)
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

void hr_connection_cut(hr_connection *c, const char *why)
{
    hr_log(HR_LOG_WARNING, "server: a connection is cut: %s", why);
    hr_connection_destroy(c);
}

void hr_connection_finish(hr_connection *c)
{
    if (!c->unread || c->eof) {
        hr_connection_destroy(c);
        return;
    }
    SSL *ssl = bufferevent_openssl_get_ssl(c->bev);
    if (ssl) SSL_shutdown(ssl);
    ERR_clear_error(); /* the queue is the thread's: the next session must not find it */
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    c->lingering = true;
    c->since = hr_now_s();
    resume_reading(c);
}

void hr_connection_close(hr_connection *c)
{
    c->closing = true;
    if (!hr_connection_unsent(c)) hr_connection_finish(c);
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

void hr_connection_refuse(hr_connection *c, int status, const char *reason)
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
        else hr_connection_refuse(c, 0, NULL);
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
    if (c->own && c->eof) hr_connection_destroy(c);
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
        if (c->eof) hr_connection_destroy(c);
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
    if (o->hashing && !o->json_status) memcpy(o->x.server->model_hash, o->hash, sizeof o->hash);
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
    case HR_HTTP_BAD: hr_connection_refuse(c, h->error, h->reason); return;
    }
    size_t bytes = h->message.body.capacity + h->message.head.capacity;
    if (!hold(c, &c->held, bytes))
        hr_connection_refuse(c, 503, "the server holds too many large requests");
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
    return !c->own && !c->closing && !c->dead && hr_connection_unsent(c) <= UNREAD_ANSWERS;
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
        if (!hr_connection_has_begun(c)) c->since = hr_now_s();
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
    if (c->closing) hr_connection_finish(c);
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
    if (gone) hr_connection_destroy(c);
    else hr_connection_close(c); /* a half request ends here, too */
}

/* Output bytes come and go: the time of the last progress. */
static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *info, void *self)
{
    (void)out;
    hr_connection *c = self;
    if (info->n_deleted || info->orig_size == 0) c->wrote_s = hr_now_s();
}

void hr_connection_start(hr_connection *c)
{
    bufferevent_setcb(c->bev, on_read, on_written, on_event, c);
    evbuffer_add_cb(bufferevent_get_output(c->bev), on_output, c);
    bufferevent_set_max_single_read(c->bev, 64 << 10);
    if (bufferevent_enable(c->bev, EV_READ | EV_WRITE)) hr_connection_destroy(c);
}
