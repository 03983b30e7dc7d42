/* What the server measures, as Prometheus text: vllm: names where vLLM has them.
 *
 * I/O thread. metrics.def is the list; docs/METRICS.md the table for people. */
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

/* max_model_len 0: not known yet; then hr_metrics_ready tells it. */
HR_MUST_USE hr_status hr_metrics_create(const char *model_name, int64_t max_model_len,
                                        hr_metrics **out);
void hr_metrics_destroy(hr_metrics *m);
/* Once, when the engine is ready: how long requests may be, and cache_config_info. */
HR_MUST_USE hr_status hr_metrics_ready(hr_metrics *m, const hr_engine *e,
                                       const headrace_options *o);
void hr_metrics_first_token(hr_metrics *m, double seconds); /* TTFT of a choice */
void hr_metrics_inter_token(hr_metrics *m, double seconds,
                            int64_t tokens);                         /* per token, `tokens` times */
void hr_metrics_finished(hr_metrics *m, const char *reason);         /* of one choice */
void hr_metrics_observe(hr_metrics *m, const hr_metrics_request *r); /* of one request */
/* The whole page; engine NULL while loading: gauges and counters are 0, and what the model decides
 * (token histograms, programs, cache_config_info) is absent. */
void hr_metrics_write(const hr_metrics *m, const hr_engine *e, hr_buf *out);

#endif
