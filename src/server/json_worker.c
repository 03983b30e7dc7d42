/* Large bodies are parsed here, checkpoints hashed, and large bodies freed here, so that the I/O
 * thread never stands still for one: a hundred megabytes of parsed JSON take the kernel tens of
 * milliseconds to take back.
 *
 * One thread, one queue in, one queue out. An exchange inside belongs to the thread: a connection
 * that ends meanwhile only lets go of it, and it is freed when it comes back. */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "server/net.h"

struct hr_json_worker {
    hr_thread thread;
    hr_queue in, out; /* of hr_exchange_own.node */
    bool queues;      /* both are initialised */
    int fd;           /* owned eventfd: readable when `out` has something */
    struct event *wake;
};

static hr_exchange_own *from_node(hr_queue_node *n)
{
    return (hr_exchange_own *)((char *)n - offsetof(hr_exchange_own, node));
}

static void *work(void *self)
{
    hr_json_worker *w = self;
    for (hr_queue_node *n; (n = hr_queue_pop(&w->in, -1));) {
        if (from_node(n)->ended) {
            hr_exchange_destroy(from_node(n));
            continue;
        }
        if (from_node(n)->hashing) hr_exchange_hash(from_node(n));
        else hr_exchange_parse(from_node(n), &hr_server_json_limits);
        if (!hr_queue_push(&w->out, n)) break; /* cannot be: `out` closes after this thread ends */
    }
    return NULL;
}

static void take_parsed(evutil_socket_t fd, short what, void *self)
{
    (void)fd, (void)what;
    hr_json_worker *w = self;
    hr_queue_clear_wake(&w->out);
    for (hr_queue_node *node; (node = hr_queue_try_pop(&w->out));)
        hr_connection_parsed(from_node(node));
}

hr_status hr_json_worker_create(hr_server *s, hr_json_worker **out)
{
    *out = NULL;
    hr_json_worker *w = hr_new0(hr_json_worker);
    if (!w) return hr_fail(HR_RESOURCE_EXHAUSTED, "JSON worker");
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    hr_status st = w->fd < 0 ? hr_fail(HR_RESOURCE_EXHAUSTED, "eventfd: %s", strerror(errno))
                             : hr_queue_init(&w->in, -1);
    if (!st) st = hr_queue_init(&w->out, w->fd);
    w->queues = !st;
    if (!st) w->wake = event_new(s->base, w->fd, EV_READ | EV_PERSIST, take_parsed, w);
    if (!st && (!w->wake || event_add(w->wake, NULL)))
        st = hr_fail(HR_RESOURCE_EXHAUSTED, "JSON worker's event");
    if (!st) st = hr_thread_start(&w->thread, "hr-json", work, w);
    if (st) {
        hr_json_worker_destroy(w);
        return st;
    }
    *out = w;
    return HR_OK;
}

static void free_all(hr_queue *q)
{
    for (hr_queue_node *n; (n = hr_queue_try_pop(q));) hr_exchange_destroy(from_node(n));
}

void hr_json_worker_destroy(hr_json_worker *w)
{
    if (!w) return;
    if (w->queues) {
        free_all(&w->in); /* the thread ends after the one it has in hand */
        hr_queue_close(&w->in);
        hr_thread_join(&w->thread);
        free_all(&w->in);
        free_all(&w->out);
        hr_queue_deinit(&w->in);
        hr_queue_deinit(&w->out);
    }
    if (w->wake) event_free(w->wake);
    if (w->fd >= 0) close(w->fd);
    hr_free(w);
}

void hr_json_worker_free(hr_json_worker *w, hr_exchange_own *o)
{
    o->ended = true;
    if (!hr_queue_push(&w->in, &o->node)) hr_exchange_destroy(o);
}

void hr_json_worker_submit(hr_json_worker *w, hr_exchange_own *o)
{
    bool open = hr_queue_push(&w->in, &o->node);
    (void)open; /* it closes after the last connection */
}
