/* Threads that compile while the engine thread goes on. */
#ifndef HEADRACE_PJRT_WORKERS_H
#define HEADRACE_PJRT_WORKERS_H

#include "base/sync.h"

enum { HR_PJRT_WORKERS_MAX = 4 }; /* a compiler may take a gigabyte for one program */

/* Embedded in what it is about, and its owner's to keep until it is awaited. */
typedef struct hr_pjrt_job {
    hr_queue_node node; /* first */
    void (*run)(struct hr_pjrt_job *j);
    bool started; /* was handed to workers and is not awaited yet */
    bool done;    /* engine thread: it has come back */
    bool dropped; /* it was never run */
} hr_pjrt_job;

typedef struct hr_pjrt_workers {
    hr_queue todo, done;
    hr_thread threads[HR_PJRT_WORKERS_MAX];
    int n; /* that run */
    bool queues;
} hr_pjrt_workers;

/* `threads`: 0 is as many as this process may run on, at most HR_PJRT_WORKERS_MAX; below 0 is
 * none: a job runs where it is started. Threads start with the first job. */
HR_MUST_USE hr_status hr_pjrt_workers_init(hr_pjrt_workers *w, int threads);
void hr_pjrt_workers_start(hr_pjrt_workers *w, hr_pjrt_job *j);
void hr_pjrt_workers_await(hr_pjrt_workers *w, hr_pjrt_job *j);
/* Jobs that no thread has begun come back dropped. */
void hr_pjrt_workers_drop(hr_pjrt_workers *w);
/* Every job is awaited. */
void hr_pjrt_workers_deinit(hr_pjrt_workers *w);

#endif
