/* Recorded answers: what `headrace replay` reads. */
#ifndef HEADRACE_CLI_REPLAY_H
#define HEADRACE_CLI_REPLAY_H

#include "base/json.h"
#include "headrace/headrace.h"

typedef struct hr_record_prompt {
    const int64_t *ids; /* [n] */
    size_t n;
    int64_t seed, max_tokens;
} hr_record_prompt;

typedef struct hr_record_choice {
    const hr_json **tokens; /* owned [n]: entries of the trace */
    size_t n, capacity;
    hr_str finish_reason; /* n 0 = its end was not recorded */
} hr_record_choice;

/* An answer with a sampling trace. Everything but lists of tokens lives in the arena it was read
 * into. */
typedef struct hr_record {
    const hr_json *header;
    headrace_sampling sampling;
    const hr_record_prompt *prompts; /* [n_prompts] */
    size_t n_prompts;
    hr_record_choice *choices; /* [n_choices], n_prompts × sampling.n */
    size_t n_choices;
} hr_record;

/* An answer's JSON as a client saved it, or its stream's events. INVALID_ARGUMENT says what is
 * missing or wrong. hr_record_deinit also after a failure. */
HR_MUST_USE hr_status hr_record_read(hr_str text, hr_arena *arena, hr_record *out);
void hr_record_deinit(hr_record *r);

/* A member of the header by name, text; NULL where it is absent or null. */
const char *hr_record_text(const hr_record *r, hr_arena *arena, const char *object,
                           const char *name);

/* Where two values differ first: the path of the member ("candidates.top_k") into `path`. Numbers
 * are compared as numbers. */
bool hr_json_differs(const hr_json *a, const hr_json *b, hr_buf *path, const hr_json **in_a,
                     const hr_json **in_b);

#endif
