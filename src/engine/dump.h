/* The programs of a start, without a start. A door for `headrace compile`. */
#ifndef HEADRACE_ENGINE_DUMP_H
#define HEADRACE_ENGINE_DUMP_H

#include "engine/engine.h"

/* One of `n` programs; what is not OK ends the walk. */
typedef hr_status (*hr_each_program_fn)(const hr_engine *e, const hr_ledger_row *r, size_t n,
                                        void *ctx);
/* Calls `fn` for each program that a start with these options on a PJRT device compiles. Reads no
 * weight and opens no plugin, whatever o->device says. */
HR_MUST_USE hr_status hr_engine_each_program(const headrace_options *o, hr_each_program_fn fn,
                                             void *ctx);

/* Writes each program's StableHLO as `dir`/backbone_t16.mlir and the like, as a PJRT device would
 * be given it; makes the folder. A line for each file is appended to `files`. */
HR_MUST_USE hr_status hr_engine_dump(const headrace_options *o, const char *dir, hr_buf *files);

#endif
