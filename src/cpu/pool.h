/* The compute pool: one step at a time, split into chunks that threads claim.
 *
 * The caller of hr_pool_run is worker 0 and always the same thread. Others spin briefly after a
 * step, since the next one follows within microseconds, then park. */
#ifndef HEADRACE_CPU_POOL_H
#define HEADRACE_CPU_POOL_H

#include <stdint.h>

#include "base/status.h"

typedef struct hr_pool hr_pool;

/* Work items [from, to) of one step, on one worker. */
typedef void (*hr_pool_fn)(void *ctx, int worker, int64_t from, int64_t to);

HR_MUST_USE hr_status hr_pool_create(int threads, hr_pool **out);
void hr_pool_destroy(hr_pool *p); /* NULL is fine; no run is under way */
int hr_pool_threads(const hr_pool *p);
/* Calls fn over [0, items) in chunks of `grain` (≥ 1) and returns when all are done. A single chunk
 * runs on the caller without waking anybody. Never allocates. */
void hr_pool_run(hr_pool *p, hr_pool_fn fn, void *ctx, int64_t items, int64_t grain);

#endif
