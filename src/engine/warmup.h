/* Warm-up: every program is compiled and run once before the first request. */
#ifndef HEADRACE_ENGINE_WARMUP_H
#define HEADRACE_ENGINE_WARMUP_H

#include "engine/runner.h"

/* Compiles and runs every program on every bucket through hr_runner_step, with a dummy sequence
 * whose blocks come from `scheduler`'s pool and go back to it, then seals. Logs a line per bucket
 * and a total per stage. */
HR_MUST_USE hr_status hr_warm_up(hr_runner *r, hr_scheduler *scheduler);

#endif
