/* Accuracy: perplexity of a text, the distance between two models' predictions, and GSM8K. This
 * room's door.
 *
 * Each runs on an engine in this process, or on a server that speaks OpenAI's completions with
 * vLLM's prompt_logprobs and /tokenize. Definitions follow the tools that people compare with:
 * Hugging Face's strided perplexity, lm-evaluation-harness's gsm8k prompt, filters and standard
 * error.
 *
 * Nothing here prints: results are appended to buffers, and progress goes to a callback. */
#ifndef HEADRACE_EVAL_EVAL_H
#define HEADRACE_EVAL_EVAL_H

#include "bench/bench.h"

/* Who answers. */
typedef struct hr_eval_target {
    headrace_options engine;
    hr_http_options http;    /* base_url: ask this server; NULL: an engine of the options above */
    const char *model;       /* the server's name for it; NULL = the first of GET /v1/models */
    int64_t max_concurrency; /* requests at once at a server; 0 = 32 */
    hr_bench_progress_fn progress; /* NULL = silent */
    void *context;
} hr_eval_target;

/* A text cut into windows. */
typedef struct hr_eval_text_options {
    hr_str text;     /* UTF-8 */
    int64_t context; /* tokens of a window; 0 = 1024, or what the model has if that is less */
    int64_t stride;  /* tokens that a window scores anew; 0 = half of context */
    int64_t limit;   /* tokens of the text that are read; 0 = all */
} hr_eval_text_options;

/* exp of the mean negative log-probability. The whole text is tokenised once; every token after the
 * first is scored once, with at least context - stride tokens before it where there are so many. */
HR_MUST_USE hr_status hr_eval_perplexity(const hr_eval_target *target,
                                         const hr_eval_text_options *o, hr_buf *text, hr_buf *json);

/* How far `target` is from `reference` over the same windows: mean KL(reference || target), in
 * nats, over the `top` likeliest tokens that both tell of and one bucket for all others, so a lower
 * bound that is near from 100 tokens on; agreement of the likeliest token; the text's
 * log-probabilities side by side. Vocabularies must be of one size. One after the other is loaded.
 */
HR_MUST_USE hr_status hr_eval_kl(const hr_eval_target *reference, const hr_eval_target *target,
                                 const hr_eval_text_options *o, int64_t top, hr_buf *text,
                                 hr_buf *json);

typedef struct hr_eval_gsm8k_options {
    const char *data;    /* JSONL of {"question", "answer"}: GSM8K's test.jsonl */
    const char *shots;   /* the same, solved examples: GSM8K's train.jsonl; NULL with num_shots 0 */
    int64_t num_shots;   /* 8: the first of them stand before each question */
    int64_t limit;       /* questions; 0 = all */
    int64_t max_tokens;  /* 256: most of an answer */
    int loglikelihood;   /* 1: score the published answers instead of asking for new ones */
    const char *answers; /* JSONL that every answer is added to, and from which a run that was
                            broken off goes on; NULL = none */
} hr_eval_gsm8k_options;

void hr_eval_gsm8k_init(hr_eval_gsm8k_options *o);
/* Greedy chain of thought. strict: the number after "####" is the published one; flexible: the last
 * number of the answer is. */
HR_MUST_USE hr_status hr_eval_gsm8k(const hr_eval_target *target, const hr_eval_gsm8k_options *o,
                                    hr_buf *text, hr_buf *json);

#endif
