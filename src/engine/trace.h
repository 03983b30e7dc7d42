/* Sampling traces as JSON: what an answer tells of how it came to be, and what replays it.
 *
 * Any thread. Written by whoever answers, read by `headrace replay`; docs/SAMPLING.md has the
 * members. */
#ifndef HEADRACE_ENGINE_TRACE_H
#define HEADRACE_ENGINE_TRACE_H

#include "base/json.h"
#include "engine/engine.h"

#define HR_TRACE_VERSION 1

/* A token's entry, an object; nothing where the token has no trace. */
void hr_trace_write_token(hr_json_writer *w, const headrace_token *t, bool with_logprob);
/* Members of the header: all but "prompts". `hash` is the model's. */
void hr_trace_write_header(hr_json_writer *w, const hr_engine *e, const headrace_sampling *s,
                           const char *hash);

/* Parameters under the names that requests give them, an object. */
void hr_sampling_write(hr_json_writer *w, const headrace_sampling *s);
/* And back, over the defaults; lists live in `arena`. A member that this build does not know is
 * refused by name. */
HR_MUST_USE hr_status hr_sampling_read(const hr_json *v, hr_arena *arena, headrace_sampling *s);

#endif
