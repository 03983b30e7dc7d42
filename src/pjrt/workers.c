/* Compile threads and the two queues they stand between.
 *
 * Everything but a job's run is the engine thread's. Jobs come back in any order; whoever awaits
 * one marks the others that came before it. */
#include "pjrt/workers.h"

#include "base/log.h"

static int threads_here(void)
{
    int n = hr_processors();
    return n < HR_PJRT_WORKERS_MAX ? n : HR_PJRT_WORKERS_MAX;
}

hr_status hr_pjrt_workers_init(hr_pjrt_workers *w, int threads)
{
    *w = (hr_pjrt_workers){ .n = threads ? threads : threads_here() };
    if (w->n > HR_PJRT_WORKERS_MAX) w->n = HR_PJRT_WORKERS_MAX;
    HR_TRY(hr_queue_init(&w->todo, -1));
    hr_status st = hr_queue_init(&w->done, -1);
    if (st) hr_queue_deinit(&w->todo);
    w->queues = !st;
    return st;
}

static void *work(void *workers)
{
    hr_pjrt_workers *w = workers;
    for (hr_queue_node *n; (n = hr_queue_pop(&w->todo, -1));) {
        hr_pjrt_job *j = (hr_pjrt_job *)n;
        j->run(j);
        (void)!hr_queue_push(&w->done, n); /* it closes after this thread has ended */
    }
    return NULL;
}

/* Fewer threads are slower; with none, jobs run where they are started. */
static void start_threads(hr_pjrt_workers *w)
{
    if (w->n < 1 || w->threads[0].started) return;
    for (int i = 0; i < w->n; i++) {
        if (!hr_thread_start(&w->threads[i], "hr-compile", work, w)) continue;
        hr_log(HR_LOG_WARNING, "pjrt: %s: %d threads compile beside this one", hr_message(), i);
        w->n = i;
    }
}

void hr_pjrt_workers_start(hr_pjrt_workers *w, hr_pjrt_job *j)
{
    start_threads(w);
    j->started = true;
    if (w->threads[0].started && hr_queue_push(&w->todo, &j->node)) return;
    j->run(j);
    j->done = true;
}

void hr_pjrt_workers_await(hr_pjrt_workers *w, hr_pjrt_job *j)
{
    while (j->started && !j->done) ((hr_pjrt_job *)hr_queue_pop(&w->done, -1))->done = true;
    j->started = false;
}

void hr_pjrt_workers_drop(hr_pjrt_workers *w)
{
    for (hr_queue_node *n; (n = hr_queue_try_pop(&w->todo));) {
        ((hr_pjrt_job *)n)->dropped = true;
        (void)!hr_queue_push(&w->done, n);
    }
}

void hr_pjrt_workers_deinit(hr_pjrt_workers *w)
{
    if (!w->queues) return;
    hr_queue_close(&w->todo);
    for (int i = 0; i < HR_PJRT_WORKERS_MAX; i++) hr_thread_join(&w->threads[i]);
    hr_queue_deinit(&w->todo);
    hr_queue_deinit(&w->done);
    w->queues = false;
}
