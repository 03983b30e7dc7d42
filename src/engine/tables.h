/* Keeping the sampler's device tables in step with the sequences. */
#ifndef HEADRACE_ENGINE_TABLES_H
#define HEADRACE_ENGINE_TABLES_H

#include "engine/scheduler.h"

/* Adds the writes that a sequence still needs before its next token is sampled: its row cleared,
 * its prompt marked, its outputs counted, its mask written. False when `w` is full: run the tables
 * program, reset, call again. No malloc. */
bool hr_tables_collect(hr_seq *q, hr_table_writes *w, int64_t vocab);

#endif
