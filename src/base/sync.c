/* Threads, one mutex-and-condition queue, the monotonic clock.
 *
 * Runs on every thread. A queue is plain on purpose: a few hundred items a second cross it, so a
 * lock is invisible, while a lock-free list would have to be proven. */
#include "base/sync.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

/* A thread names itself: another's name is a file to write, which a sandbox may forbid. */
static void *begin(void *self)
{
    const hr_thread *t = self;
    prctl(PR_SET_NAME, t->name); /* best effort */
    return t->run(t->arg);
}

hr_status hr_thread_start(hr_thread *t, const char *name, void *(*run)(void *), void *arg)
{
    *t = (hr_thread){ .run = run, .arg = arg };
    strncpy(t->name, name, sizeof t->name - 1);
    int e = pthread_create(&t->id, NULL, begin, t);
    if (e) return hr_fail(HR_RESOURCE_EXHAUSTED, "thread %s: %s", name, strerror(e));
    t->started = true;
    return HR_OK;
}

void hr_thread_join(hr_thread *t)
{
    if (t->started) pthread_join(t->id, NULL);
    t->started = false;
}

int hr_processors(void)
{
    /* The kernel refuses a mask smaller than its own: grow until it fits. */
    for (size_t cpus = CPU_SETSIZE; cpus <= 1 << 16; cpus *= 2) {
        cpu_set_t *set = hr_alloc0(CPU_ALLOC_SIZE(cpus));
        if (!set) return 1;
        int failed = sched_getaffinity(0, CPU_ALLOC_SIZE(cpus), set);
        int n = failed ? 0 : CPU_COUNT_S(CPU_ALLOC_SIZE(cpus), set);
        hr_free(set);
        if (n > 0) return n;
    }
    return 1;
}

hr_status hr_queue_init(hr_queue *q, int wake_fd)
{
    *q = (hr_queue){ .wake_fd = wake_fd };
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int e = pthread_mutex_init(&q->lock, NULL);
    if (!e) e = pthread_cond_init(&q->ready, &attr);
    pthread_condattr_destroy(&attr);
    return e ? hr_fail(HR_RESOURCE_EXHAUSTED, "queue: %s", strerror(e)) : HR_OK;
}

void hr_queue_deinit(hr_queue *q)
{
    pthread_cond_destroy(&q->ready);
    pthread_mutex_destroy(&q->lock);
}

static void wake(const hr_queue *q)
{
    if (q->wake_fd < 0) return;
    uint64_t one = 1;
    ssize_t n = write(q->wake_fd, &one, sizeof one); /* a full counter already wakes the reader */
    (void)n;
}

bool hr_queue_push_all(hr_queue *q, hr_queue_node *first, hr_queue_node *last, size_t n)
{
    last->next = NULL;
    pthread_mutex_lock(&q->lock);
    bool open = !q->closed;
    if (open) {
        if (q->last) q->last->next = first;
        else q->first = first;
        q->last = last;
        q->length += n;
        pthread_cond_signal(&q->ready);
    }
    pthread_mutex_unlock(&q->lock);
    if (open) wake(q);
    return open;
}

bool hr_queue_push(hr_queue *q, hr_queue_node *n)
{
    return hr_queue_push_all(q, n, n, 1);
}

static hr_queue_node *take(hr_queue *q)
{
    hr_queue_node *n = q->first;
    if (!n) return NULL;
    q->first = n->next;
    if (!q->first) q->last = NULL;
    q->length--;
    n->next = NULL;
    return n;
}

hr_queue_node *hr_queue_try_pop(hr_queue *q)
{
    pthread_mutex_lock(&q->lock);
    hr_queue_node *n = take(q);
    pthread_mutex_unlock(&q->lock);
    return n;
}

/* Called with the lock held; returns with an item, closed, or time over. */
static void await_item(hr_queue *q, int timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + (int64_t)timeout_ms % 1000 * 1000000;
    until.tv_sec += timeout_ms / 1000 + (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    while (!q->first && !q->closed) {
        int e = timeout_ms < 0 ? pthread_cond_wait(&q->ready, &q->lock)
                               : pthread_cond_timedwait(&q->ready, &q->lock, &until);
        if (e == ETIMEDOUT) return;
    }
}

hr_queue_node *hr_queue_pop(hr_queue *q, int timeout_ms)
{
    pthread_mutex_lock(&q->lock);
    await_item(q, timeout_ms);
    hr_queue_node *n = take(q);
    pthread_mutex_unlock(&q->lock);
    return n;
}

void hr_queue_clear_wake(hr_queue *q)
{
    uint64_t count;
    ssize_t n = read(q->wake_fd, &count, sizeof count);
    (void)n; /* nothing there is as good */
}

bool hr_queue_wait(hr_queue *q, int timeout_ms)
{
    pthread_mutex_lock(&q->lock);
    await_item(q, timeout_ms);
    bool any = q->first != NULL;
    pthread_mutex_unlock(&q->lock);
    return any;
}

void hr_queue_close(hr_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->ready);
    pthread_mutex_unlock(&q->lock);
    wake(q);
}

size_t hr_queue_length(hr_queue *q)
{
    pthread_mutex_lock(&q->lock);
    size_t n = q->length;
    pthread_mutex_unlock(&q->lock);
    return n;
}

int64_t hr_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double hr_now_s(void)
{
    return (double)hr_now_ns() * 1e-9;
}
