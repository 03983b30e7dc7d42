/* Threads, queues, counters, reference counts: the only locks and atomics outside cpu/pool.c.
 *
 * Objects move through queues; the sender forgets them. */
#ifndef HEADRACE_BASE_SYNC_H
#define HEADRACE_BASE_SYNC_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* A number that any thread may add to; read for logs, metrics and tests. */
typedef struct hr_counter {
    _Atomic uint64_t value;
} hr_counter;

static inline void hr_counter_add(hr_counter *c, uint64_t n)
{
    /* relaxed: a statistic orders nothing */
    atomic_fetch_add_explicit(&c->value, n, memory_order_relaxed);
}
/* The value after adding: for limits that hold over all threads. */
static inline uint64_t hr_counter_add_get(hr_counter *c, uint64_t n)
{
    return atomic_fetch_add_explicit(&c->value, n, memory_order_relaxed) + n; /* as above */
}
/* For a number that one thread owns and others look at. */
static inline void hr_counter_set(hr_counter *c, uint64_t n)
{
    atomic_store_explicit(&c->value, n, memory_order_relaxed); /* as above */
}
static inline uint64_t hr_counter_get(const hr_counter *c)
{
    return atomic_load_explicit(&((hr_counter *)c)->value, memory_order_relaxed); /* as above */
}

/* The next of 1, 2, 3 …: unique over all threads. */
static inline uint64_t hr_counter_next(hr_counter *c)
{
    return atomic_fetch_add_explicit(&c->value, 1, memory_order_relaxed) + 1; /* as above */
}

/* A flag set on one thread and polled on others. */
typedef struct hr_flag {
    _Atomic int value;
} hr_flag;
static inline void hr_flag_set(hr_flag *f, int v)
{
    atomic_store(&f->value, v);
}
static inline int hr_flag_get(const hr_flag *f)
{
    return atomic_load(&((hr_flag *)f)->value);
}

/* Reference count. */
typedef struct hr_ref {
    _Atomic uint32_t count;
} hr_ref;
static inline void hr_ref_init(hr_ref *r)
{
    atomic_init(&r->count, 1);
}
static inline void hr_ref_retain(hr_ref *r)
{
    /* relaxed: the caller already holds a reference */
    atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);
}
/* True when the caller dropped the last reference and must free. */
static inline bool hr_ref_release(hr_ref *r)
{
    return atomic_fetch_sub(&r->count, 1) == 1;
}

/* What several threads look at in turn. */
typedef struct hr_mutex {
    pthread_mutex_t lock;
} hr_mutex;
#define HR_MUTEX_INIT                                                                              \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER                                                                  \
    }
static inline void hr_mutex_lock(hr_mutex *m)
{
    pthread_mutex_lock(&m->lock);
}
static inline void hr_mutex_unlock(hr_mutex *m)
{
    pthread_mutex_unlock(&m->lock);
}

/* Processors that this process may run on, by its affinity; at least 1. */
int hr_processors(void);

/* Threads. The name shows in top and gdb (15 bytes at most). The struct stays where it is until the
 * thread is joined. */
typedef struct hr_thread {
    pthread_t id;
    bool started;
    char name[16];
    void *(*run)(void *);
    void *arg;
} hr_thread;
HR_MUST_USE hr_status hr_thread_start(hr_thread *t, const char *name, void *(*run)(void *),
                                      void *arg);
void hr_thread_join(hr_thread *t); /* a thread that never started is fine */

/* An intrusive queue of many producers; first in, first out. Items embed a node. One thread takes
 * from it, or several where items are pushed one by one, for a push wakes one thread. */
typedef struct hr_queue_node {
    struct hr_queue_node *next;
} hr_queue_node;

typedef struct hr_queue {
    pthread_mutex_t lock;
    pthread_cond_t ready;
    hr_queue_node *first, *last;
    size_t length;
    bool closed;
    int wake_fd; /* borrowed eventfd written on push; -1 = none */
} hr_queue;

HR_MUST_USE hr_status hr_queue_init(hr_queue *q, int wake_fd);
void hr_queue_deinit(hr_queue *q); /* the owner has drained it */
/* False when the queue is closed: the item is still the caller's. */
HR_MUST_USE bool hr_queue_push(hr_queue *q, hr_queue_node *n);
/* n items joined by their nodes, at once, with one wake-up. */
HR_MUST_USE bool hr_queue_push_all(hr_queue *q, hr_queue_node *first, hr_queue_node *last,
                                   size_t n);
hr_queue_node *hr_queue_try_pop(hr_queue *q);
/* Waits for an item, a close (NULL), or timeout_ms (NULL; < 0 = for ever). */
hr_queue_node *hr_queue_pop(hr_queue *q, int timeout_ms);
/* Reads the wake descriptor empty; what is pushed from here on sets it again. */
void hr_queue_clear_wake(hr_queue *q);
/* Waits as pop does but takes nothing; true when an item is there. */
bool hr_queue_wait(hr_queue *q, int timeout_ms);
void hr_queue_close(hr_queue *q);
size_t hr_queue_length(hr_queue *q);

/* Monotonic seconds and nanoseconds; never goes back. */
double hr_now_s(void);
int64_t hr_now_ns(void);

#endif
