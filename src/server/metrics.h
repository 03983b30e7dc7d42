/* What the server measures, as Prometheus text: vllm: names where vLLM has them. */
#ifndef HEADRACE_SERVER_METRICS_H
#define HEADRACE_SERVER_METRICS_H

#include "engine/engine.h"

typedef struct hr_metrics hr_metrics;

/* How an answer went, observed once, when it has ended. Seconds. */
typedef struct hr_metrics_request {
    int64_t prompt_tokens, generation_tokens; /* over all choices */
    int64_t n, max_tokens;                    /* as asked for; max_tokens < 0 = not given */
    double e2e_s, queue_s, prefill_s, decode_s;
} hr_metrics_request;

HR_MUST_USE hr_status hr_metrics_create(const char *model_name, int64_t max_model_len,
                                        hr_metrics **out);
void hr_metrics_destroy(hr_metrics *m);
void hr_metrics_first_token(hr_metrics *m, double seconds); /* TTFT of a choice */
void hr_metrics_inter_token(hr_metrics *m, double seconds,
                            int64_t tokens);                         /* per token, `tokens` times */
void hr_metrics_finished(hr_metrics *m, const char *reason);         /* of one choice */
void hr_metrics_observe(hr_metrics *m, const hr_metrics_request *r); /* of one request */
/* The whole page; engine NULL while loading. */
void hr_metrics_write(const hr_metrics *m, const hr_engine *e, hr_buf *out);

#endif
