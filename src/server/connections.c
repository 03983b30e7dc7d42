/* All connections: coming, going, and what time does to them.
 *
 * Runs on the I/O thread. One look a second over all of them takes the place of a timer for each:
 * deadlines here are tens of seconds. Connections that have ended are freed from an event of their
 * own, when nobody up the stack can still hold one. */
#include <errno.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "server/connection_int.h"

#define HELD_REQUESTS 16 /* so many largest requests' memory may be held in all */

/* Seconds. */
#define HEAD_TIME   30.0  /* from a request's first byte to the end of its head */
#define BODY_IDLE   30.0  /* without a byte of the body */
#define BODY_RATE   512.0 /* bytes a second that a body must come in with, after BODY_IDLE */
#define FIRST_TIME  30.0  /* a new connection without a byte */
#define IDLE_TIME   75.0  /* between two requests */
#define WRITE_TIME  60.0  /* without a byte of the answer taken */
#define LINGER_TIME 2.0   /* reading on after an answer that came before its request's end */

/* ---- ends ------------------------------------------------------------------------------------ */

static void release(hr_connection *c)
{
    SSL *ssl = bufferevent_openssl_get_ssl(c->bev);
    if (ssl && c->open) { /* tells the client that this is the end and no cut */
        SSL_set_shutdown(ssl, SSL_RECEIVED_SHUTDOWN);
        SSL_shutdown(ssl);
        ERR_clear_error(); /* the queue is the thread's: the next session must not find it */
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

/* A paused socket has hung up. */
static void on_hangup(evutil_socket_t fd, short what, void *self)
{
    (void)what, (void)self;
    struct epoll_event events[64];
    int n = epoll_wait(fd, events, 64, 0);
    for (int i = 0; i < n; i++) hr_connection_destroy(events[i].data.ptr);
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
    if (hr_connection_unsent(c) && (!c->secure || c->open)) {
        if (now - c->wrote_s > WRITE_TIME) hr_connection_cut(c, "its client takes no answer");
    } else if (c->lingering) {
        if (now - c->since > LINGER_TIME && now - c->read_s > LINGER_TIME / 2)
            hr_connection_destroy(c);
        else if (now - c->since > FIRST_TIME) hr_connection_destroy(c);
    } else if (c->own) {
        return; /* the answer is on its way */
    } else if (c->closing) {
        hr_connection_finish(c); /* its answer found no memory */
    } else if (hr_connection_has_begun(c)) {
        if (is_overdue(c, now)) hr_connection_refuse(c, 408, "it takes too long to come");
    } else if (now - c->since > (c->served ? IDLE_TIME : FIRST_TIME)) {
        hr_connection_destroy(c);
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
    while (all->first) hr_connection_destroy(all->first);
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
    hr_connection_start(c);
}

size_t hr_connections_count(const hr_connections *all)
{
    return all->n;
}

size_t hr_connections_busy(const hr_connections *all)
{
    size_t n = 0;
    for (const hr_connection *c = all->first; c; c = c->next)
        n += c->own || hr_connection_unsent(c);
    return n;
}

void hr_connections_drain(hr_connections *all)
{
    for (hr_connection *c = all->first, *next; c; c = next) {
        next = c->next;
        if (!c->own && !hr_connection_has_begun(c) && !c->lingering) hr_connection_close(c);
    }
}
