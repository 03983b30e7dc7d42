/* The compute pool.
 *
 * Worker 0 is the engine thread; the others live here. All of a run's coordination is one word,
 * `ticket` = (run number, chunks claimed): a worker claims a chunk by compare-and-swap, so a
 * worker that was asleep or descheduled during a whole run can never take a chunk of the next one
 * by mistake, and worker 0 never waits for a worker that claimed nothing. The job's fields are
 * read only after a successful claim, when the run cannot end before that chunk is done.
 * Which worker takes which chunk varies; kernels give the same bits for any split. */
#include "cpu/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sync.h"
#include "cpu/isa.h"

/* Polls before parking: about 50 µs, longer than the gap between two steps of a plan. */
enum { SPIN_POLLS = 2000 };

typedef struct worker {
    hr_thread thread;
    hr_pool *pool; /* borrowed: the owner */
    int index;
} worker;

struct hr_pool {
    /* Written by worker 0 before a run is published. */
    hr_pool_fn fn;
    void *ctx;
    int64_t items, grain;
    /* Low half: chunks not yet claimed. High half: number of the run. */
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic uint32_t done;  /* chunks finished in this run; worker 0 waits on it */
    _Alignas(64) _Atomic uint32_t epoch; /* futex that workers park on; counts runs */
    _Atomic uint32_t parked;
    _Atomic uint32_t caller_waits; /* worker 0 sleeps on `done` */
    _Atomic int stop;
    uint32_t run;
    int threads;
    worker *workers; /* owned, [threads]; entry 0 has no thread */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Claims chunks of run `run` until none is left. */
static void work(hr_pool *p, uint32_t run, int index)
{
    for (;;) {
        uint64_t t = atomic_load(&p->ticket);
        if ((uint32_t)(t >> 32) != run || (uint32_t)t == 0) return;
        if (!atomic_compare_exchange_weak(&p->ticket, &t, t - 1)) continue;
        int64_t chunks = (p->items + p->grain - 1) / p->grain;
        int64_t from = (chunks - (int64_t)(uint32_t)t) * p->grain;
        int64_t to = from + p->grain < p->items ? from + p->grain : p->items;
        p->fn(p->ctx, index, from, to);
        atomic_fetch_add(&p->done, 1);
        if (atomic_load(&p->caller_waits)) futex_wake(&p->done);
    }
}

/* Returns the new epoch once it differs from `seen`. */
static uint32_t await_epoch(hr_pool *p, uint32_t seen)
{
    for (int i = 0; i < SPIN_POLLS; i++) {
        uint32_t e = atomic_load(&p->epoch);
        if (e != seen) return e;
        hr_isa_relax();
    }
    atomic_fetch_add(&p->parked, 1);
    uint32_t e;
    while ((e = atomic_load(&p->epoch)) == seen) futex_wait(&p->epoch, seen);
    atomic_fetch_sub(&p->parked, 1);
    return e;
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    hr_pool *p = w->pool;
    uint32_t seen = 0;
    while (!atomic_load(&p->stop)) {
        seen = await_epoch(p, seen);
        work(p, seen, w->index);
    }
    return NULL;
}

static void publish(hr_pool *p, uint32_t epoch)
{
    atomic_store(&p->epoch, epoch);
    if (atomic_load(&p->parked)) futex_wake(&p->epoch);
}

static void await_done(hr_pool *p, uint32_t chunks)
{
    uint32_t d;
    for (int i = 0; i < SPIN_POLLS; i++) {
        if (atomic_load(&p->done) == chunks) return;
        hr_isa_relax();
    }
    atomic_store(&p->caller_waits, 1);
    while ((d = atomic_load(&p->done)) != chunks) futex_wait(&p->done, d);
    atomic_store(&p->caller_waits, 0);
}

void hr_pool_run(hr_pool *p, hr_pool_fn fn, void *ctx, int64_t items, int64_t grain)
{
    if (items <= 0) return;
    /* The claim counter has 32 bits. */
    while ((items + grain - 1) / grain > UINT32_MAX) grain *= 2;
    uint32_t chunks = (uint32_t)((items + grain - 1) / grain);
    if (chunks == 1 || p->threads == 1) {
        fn(ctx, 0, 0, items);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    p->items = items;
    p->grain = grain;
    atomic_store(&p->done, 0);
    p->run++;
    atomic_store(&p->ticket, (uint64_t)p->run << 32 | chunks);
    publish(p, p->run);
    work(p, p->run, 0);
    await_done(p, chunks);
}

int hr_pool_threads(const hr_pool *p)
{
    return p->threads;
}

hr_status hr_pool_create(int threads, hr_pool **out)
{
    *out = NULL;
    hr_pool *p = hr_alloc_aligned(sizeof *p, _Alignof(hr_pool));
    if (!p) return hr_fail(HR_RESOURCE_EXHAUSTED, "compute pool");
    *p = (hr_pool){ .threads = threads };
    p->workers = hr_alloc_array0((size_t)threads, sizeof *p->workers);
    hr_status st = p->workers ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "compute pool");
    for (int i = 1; i < threads && !st; i++) {
        p->workers[i] = (worker){ .pool = p, .index = i };
        st = hr_thread_start(&p->workers[i].thread, "hr-compute", worker_main, &p->workers[i]);
    }
    if (st) {
        hr_pool_destroy(p);
        return st;
    }
    *out = p;
    return HR_OK;
}

void hr_pool_destroy(hr_pool *p)
{
    if (!p) return;
    atomic_store(&p->stop, 1);
    publish(p, p->run + 1); /* the ticket stays at an older run: nothing can be claimed */
    for (int i = 1; p->workers && i < p->threads; i++) hr_thread_join(&p->workers[i].thread);
    hr_free(p->workers);
    hr_free(p);
}
