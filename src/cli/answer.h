/* What comes back for one prompt, gathered event by event, printed as text or as JSON. */
#ifndef HEADRACE_CLI_ANSWER_H
#define HEADRACE_CLI_ANSWER_H

#include "base/json.h"
#include "headrace/headrace.h"

typedef struct hr_answer_choice {
    hr_buf text;
    hr_buf ids;      /* "1,2,3" */
    hr_buf logprobs; /* JSON objects, comma-separated */
    hr_buf trace;    /* likewise */
    char finish[16], *stop_string;
    int64_t stop_token_id, tokens;
} hr_answer_choice;

typedef struct hr_answer {
    uint64_t id;               /* of the request */
    int64_t n;                 /* choices */
    hr_answer_choice *choices; /* owned [n] */
    hr_buf prompt_ids;         /* "1,2,3" */
    hr_buf prompt_logprobs;    /* JSON values, comma-separated; n 0 = not asked for */
    size_t prompt_tokens;
    int64_t seed, max_tokens;
    int status; /* headrace_status of a request that failed */
    char message[512];
    int done;
} hr_answer;

HR_MUST_USE hr_status hr_answer_init(hr_answer *a, int64_t n);
void hr_answer_deinit(hr_answer *a);
/* Adds an event of this request. `with_logprobs`: keep what --json prints of them. */
void hr_answer_add(hr_answer *a, const headrace_event *v, int with_logprobs);
/* What an answer's JSON tells besides the answer. */
typedef struct hr_answer_style {
    int with_logprobs;
    const headrace_engine *engine;
    const headrace_sampling *sampling;
    const char *model_hash; /* with a sampling trace; NULL = without */
} hr_answer_style;
/* One JSON object, one line. */
void hr_answer_json(const hr_answer *a, const headrace_info *info, const hr_answer_style *style,
                    hr_buf *out);

#endif
