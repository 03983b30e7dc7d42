/* The StableHLO of every program of a start. A door for `headrace compile`. */
#ifndef HEADRACE_ENGINE_DUMP_H
#define HEADRACE_ENGINE_DUMP_H

#include "base/str.h"
#include "headrace/headrace.h"

/* Writes each program as `dir`/backbone_t16.mlir and the like, as a PJRT device would be given it;
 * makes the folder. Reads no weight and opens no plugin, whatever o->device says. A line for each
 * file is appended to `files`. */
HR_MUST_USE hr_status hr_engine_dump(const headrace_options *o, const char *dir, hr_buf *files);

#endif
