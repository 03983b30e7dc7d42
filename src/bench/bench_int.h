/* Inside the bench room. */
#ifndef HEADRACE_BENCH_BENCH_INT_H
#define HEADRACE_BENCH_BENCH_INT_H

#include "bench/bench.h"

/* ---- random numbers: the same on every machine ----------------------------------------------- */

typedef struct hr_bench_random {
    uint32_t key[2];
    uint64_t next; /* number of the next word */
} hr_bench_random;

void hr_bench_random_init(hr_bench_random *r, uint64_t seed, uint64_t stream);
uint64_t hr_bench_random_below(hr_bench_random *r, uint64_t n); /* 0 … n-1; n ≥ 1 */
double hr_bench_random_unit(hr_bench_random *r);                /* [0, 1) */
double hr_bench_random_gamma(hr_bench_random *r, double shape); /* scale 1; shape > 0 */
/* [n] times at which requests are due, seconds from the start; an infinite rate: all at once. */
void hr_bench_arrivals(double rate, double burstiness, uint64_t seed, size_t n, double *at);

/* ---- statistics: as NumPy computes them ------------------------------------------------------ */

typedef struct hr_bench_series {
    double *v; /* owned [n] */
    size_t n, capacity;
} hr_bench_series;

HR_MUST_USE hr_status hr_bench_series_add(hr_bench_series *s, double v);
void hr_bench_series_sort(hr_bench_series *s);
/* Of a sorted series; 0 when it is empty. */
double hr_bench_percentile(const hr_bench_series *s, double p);
double hr_bench_mean(const hr_bench_series *s);
double hr_bench_std(const hr_bench_series *s);
void hr_bench_series_deinit(hr_bench_series *s);

/* ---- prompts --------------------------------------------------------------------------------- */

/* Token ids that prompts are drawn from. */
typedef struct hr_bench_vocab {
    int32_t *ids; /* owned [n] */
    size_t n;
} hr_bench_vocab;

/* The tokenizer's ordinary tokens, those below vocab_size if that is given; or, without one, the
 * ids below vocab_size that are surely no special ones; or what `http`'s server makes of a sample
 * text; or 1000 … 9999. */
HR_MUST_USE hr_status hr_bench_vocab_make(const hr_bench_data_options *o, hr_http *http,
                                          hr_bench_vocab *out);
void hr_bench_vocab_deinit(hr_bench_vocab *v);

typedef struct hr_bench_prompt {
    const int32_t *ids; /* [n_ids] or NULL */
    size_t n_ids;
    hr_str text;           /* UTF-8; n 0 = ids alone */
    int64_t input_tokens;  /* 0 = not known */
    int64_t output_tokens; /* to ask for */
} hr_bench_prompt;

typedef struct hr_bench_prompts {
    hr_bench_prompt *at; /* in the arena */
    size_t n;
    hr_arena arena; /* owns everything */
} hr_bench_prompts;

typedef enum hr_bench_form { HR_BENCH_IDS, HR_BENCH_TEXT } hr_bench_form;

/* num_prompts prompts, and `extra` more of the same kind behind them. HR_BENCH_TEXT turns drawn ids
 * into text, through the tokenizer or `http`'s server. */
HR_MUST_USE hr_status hr_bench_prompts_make(const hr_bench_data_options *o, hr_bench_form form,
                                            size_t extra, hr_http *http, hr_bench_prompts *out);
HR_MUST_USE hr_status hr_bench_prompts_sharegpt(const hr_bench_data_options *o, size_t n,
                                                hr_bench_prompts *out);
HR_MUST_USE hr_status hr_bench_prompts_custom(const hr_bench_data_options *o, size_t n,
                                              hr_bench_prompts *out);
void hr_bench_prompts_deinit(hr_bench_prompts *p);

/* ---- load ------------------------------------------------------------------------------------ */

/* What became of one request. Times in seconds. */
typedef struct hr_bench_record {
    double sent;          /* from the start of the benchmark */
    double ttft, latency; /* from `sent` to the first token, to the last byte of tokens or usage */
    hr_bench_series itl;  /* between chunks that stand for tokens */
    int64_t input_tokens, output_tokens;
    bool ok;
    char *error; /* owned, NULL = none */
} hr_bench_record;

typedef struct hr_bench_load {
    hr_http *http;
    const char *path;
    const hr_bench_prompt *prompts; /* [n] */
    const double *at;               /* [n] due times */
    size_t n, max_concurrency;      /* 0 = no limit */
    /* Request body of a prompt, appended. */
    void (*body)(void *context, const hr_bench_prompt *p, hr_buf *out);
    hr_bench_progress_fn progress;
    void *context; /* of body */
    void *progress_context;
} hr_bench_load;

/* Sends all, waits for all. `records` [n] zeroed; *duration in seconds. */
HR_MUST_USE hr_status hr_bench_load_run(const hr_bench_load *l, hr_bench_record *records,
                                        double *duration);
void hr_bench_record_deinit(hr_bench_record *r);

/* ---- report ---------------------------------------------------------------------------------- */

#define HR_BENCH_METRICS     4 /* TTFT, TPOT, ITL, E2EL */
#define HR_BENCH_PERCENTILES 16

/* What is printed: which metrics, which percentiles of them, which limits make a request good. */
typedef struct hr_bench_selection {
    bool metric[HR_BENCH_METRICS];
    double percentile[HR_BENCH_PERCENTILES];
    size_t n_percentiles;
    double limit_ms[HR_BENCH_METRICS]; /* of goodput; 0 = none */
    bool goodput;
} hr_bench_selection;

HR_MUST_USE hr_status hr_bench_select(const char *metrics, const char *percentiles,
                                      const char *goodput, hr_bench_selection *out);

typedef struct hr_bench_metric { /* milliseconds */
    double mean, median, std, percentile[HR_BENCH_PERCENTILES], p99;
} hr_bench_metric;

typedef struct hr_bench_report {
    size_t completed, failed;
    double duration;
    int64_t input_tokens, output_tokens;
    double request_throughput, request_goodput, output_throughput, total_throughput;
    int64_t max_concurrency; /* 0 = no limit */
    double request_rate;     /* 0 = all at once */
    hr_bench_metric metric[HR_BENCH_METRICS];
} hr_bench_report;

HR_MUST_USE hr_status hr_bench_report_make(const hr_bench_record *records, size_t n,
                                           double duration, const hr_bench_selection *s,
                                           hr_bench_report *out);
void hr_bench_report_table(const hr_bench_report *r, const hr_bench_selection *s, hr_buf *out);
/* Members of an object that the caller has opened. */
void hr_bench_report_json(const hr_bench_report *r, const hr_bench_selection *s, hr_json_writer *w);

/* kept.c: a plugin's compiled programs between the starts of bench startup. */
typedef struct hr_bench_kept {
    hr_buf folder; /* owned, terminated */
    bool made;     /* false: nothing is kept */
    char **argv;   /* owned: a start's arguments, with the folder; NULL = as they were */
} hr_bench_kept;
HR_MUST_USE hr_status hr_bench_kept_open(const headrace_options *o, char *const *argv,
                                         hr_bench_kept *out);
void hr_bench_kept_empty(const hr_bench_kept *k);
void hr_bench_kept_close(hr_bench_kept *k); /* also after a failed open */

#endif
