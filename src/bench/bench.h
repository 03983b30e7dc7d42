/* Benchmarks: a load generator for any OpenAI-compatible server, and timings of the engine in this
 * process. This room's door.
 *
 * Names, definitions and the table follow vLLM's `vllm bench`, so that figures may be compared line
 * by line. The streamed HTTP client (bench/http.h, bench/stream.h) serves the terminal chat, too.
 *
 * Nothing here prints: results are appended to buffers, and progress goes to a callback. */
#ifndef HEADRACE_BENCH_BENCH_H
#define HEADRACE_BENCH_BENCH_H

#include "base/json.h"
#include "bench/http.h"
#include "headrace/headrace.h"
#include "text/tokenizer.h"

/* How far a benchmark is; `total` requests or runs in all. */
typedef struct hr_bench_progress {
    const char *what; /* "requests", "runs" */
    size_t total, done, failed;
    double seconds;
    int64_t output_tokens;
} hr_bench_progress;
typedef void (*hr_bench_progress_fn)(void *context, const hr_bench_progress *p);

/* ---- prompts --------------------------------------------------------------------------------- */

typedef struct hr_bench_data_options {
    const char *dataset;                         /* NULL = "random"; sharegpt, custom */
    const char *path;                            /* file of sharegpt and custom */
    int64_t random_input_len, random_output_len; /* 1024, 128 */
    int64_t random_prefix_len;                   /* 0: ids that every random prompt begins with */
    double random_range_ratio;     /* 0: lengths are drawn from len × [1 - r, 1 + r] */
    int64_t sharegpt_output_len;   /* 0 = as long as the recorded answer */
    int64_t custom_output_len;     /* 256, where a line names none */
    int64_t num_prompts;           /* 1000 */
    int64_t vocab_size;            /* 0 = ask the tokenizer or the server */
    int64_t seed;                  /* 0 */
    const hr_tokenizer *tokenizer; /* borrowed; NULL = none */
} hr_bench_data_options;

void hr_bench_data_init(hr_bench_data_options *o);

/* ---- bench serve ----------------------------------------------------------------------------- */

typedef struct hr_bench_serve_options {
    hr_http_options http; /* base_url: NULL = made of host and port */
    const char *host;     /* NULL = 127.0.0.1 */
    int port;             /* 8000 */
    const char *backend;  /* NULL = by the endpoint; openai, vllm (both completions), openai-chat */
    const char *endpoint; /* NULL = by the backend */
    const char *model;    /* NULL = the first of GET /v1/models */
    hr_bench_data_options data;
    double request_rate;     /* per second; INFINITY (the default): all at once */
    double burstiness;       /* 1: Poisson; shape of the gamma distribution of the intervals */
    int64_t max_concurrency; /* 0 = no limit */
    int64_t num_warmups;     /* 0: requests sent before, outside of every figure */
    const char *sampling; /* JSON members, such as "\"top_k\":5,\"ignore_eos\":true"; NULL = none */
    int logprobs;         /* -1 = none */
    const char *extra_body;  /* a JSON object whose members go into every request; NULL = none */
    const char *goodput;     /* "ttft:100 tpot:20", milliseconds; NULL = none */
    const char *metrics;     /* metrics in the table; NULL = "ttft,tpot,itl"; also e2el */
    const char *percentiles; /* NULL = "99" */
    int save_detailed;       /* the JSON also holds every request's figures */
    hr_bench_progress_fn progress; /* NULL = silent */
    void *context;
} hr_bench_serve_options;

void hr_bench_serve_init(hr_bench_serve_options *o);

typedef struct hr_bench_serve_result {
    hr_buf table; /* text */
    hr_buf json;  /* an object */
    size_t completed, failed;
    char first_error[512]; /* of the request that failed first; "" = none */
    char name[256];        /* a file name for it: backend, rate, concurrency, model, time */
} hr_bench_serve_result;

/* INVALID_ARGUMENT names the flag; UNAVAILABLE: no such server. Requests that fail are no failure
 * of the benchmark. */
HR_MUST_USE hr_status hr_bench_serve(const hr_bench_serve_options *o, hr_bench_serve_result *out);
/* The first model that GET /v1/models names, appended. */
HR_MUST_USE hr_status hr_bench_first_model(hr_http *h, hr_buf *name);
/* The table of a result saved as JSON. */
HR_MUST_USE hr_status hr_bench_table(hr_str json, const char *metrics, const char *percentiles,
                                     hr_buf *out);
void hr_bench_serve_result_deinit(hr_bench_serve_result *r);

/* ---- in this process ------------------------------------------------------------------------- */

typedef struct hr_bench_engine_options {
    headrace_options engine;
    /* Applied to every request but for max_tokens, over what headrace_sampling_init gives. */
    hr_status (*sampling)(void *context, headrace_sampling *s);
    hr_bench_data_options data;                /* throughput */
    int64_t input_len, output_len, batch_size; /* latency: 32, 128, 8 */
    int64_t num_warmups, num_runs;             /* latency: 10, 30; startup: 0, 5 */
    hr_bench_progress_fn progress;             /* NULL = silent */
    void *context;
} hr_bench_engine_options;

/* Lengths and batch as above; num_warmups and num_runs start at -1, not said. */
void hr_bench_engine_init(hr_bench_engine_options *o);

/* Requests and tokens per second of the whole set, submitted at once. */
HR_MUST_USE hr_status hr_bench_throughput(const hr_bench_engine_options *o, hr_buf *text,
                                          hr_buf *json);
/* Seconds from the first submit of a batch to its last token. */
HR_MUST_USE hr_status hr_bench_latency(const hr_bench_engine_options *o, hr_buf *text,
                                       hr_buf *json);

/* ---- bench startup --------------------------------------------------------------------------- */

/* One start in this process: load, compile, one token. Appends an object that hr_bench_startup, in
 * the process that launched this one, reads. */
HR_MUST_USE hr_status hr_bench_start_once(const hr_bench_engine_options *o, hr_buf *json);

/* Launches `argv` (NULL-terminated; a command that ends in hr_bench_start_once and prints its
 * object) num_runs times with the model's files out of the page cache as far as the kernel lets go
 * of them, and num_runs times with them in it. */
HR_MUST_USE hr_status hr_bench_startup(const hr_bench_engine_options *o, char *const *argv,
                                       hr_buf *text, hr_buf *json);

/* ---- bench sampler --------------------------------------------------------------------------- */

typedef struct hr_bench_sampler_options {
    headrace_options engine;     /* device_options, isa, threads */
    const char *devices;         /* NULL = "cpu"; names as of --device, commas between */
    const char *heads;           /* NULL = "float32"; of float32, bfloat16, w8a8 */
    const int64_t *hidden_sizes; /* [n_hidden_sizes], none = 896 */
    const int64_t *vocab_sizes;  /* [n_vocab_sizes], none = 151936 */
    const int64_t *batch_sizes;  /* [n_batch_sizes], none = 1, 4, 16, 32 */
    size_t n_hidden_sizes, n_vocab_sizes, n_batch_sizes;
    int64_t num_runs;              /* that count, of every case */
    bool sweep;                    /* cuts from narrow to wide as well */
    hr_bench_progress_fn progress; /* NULL = silent */
    void *context;
} hr_bench_sampler_options;

/* A random lm_head and the sampler behind it: what each option costs. */
HR_MUST_USE hr_status hr_bench_sampler(const hr_bench_sampler_options *o, hr_buf *text,
                                       hr_buf *json);

/* ---- bench kernels --------------------------------------------------------------------------- */

typedef struct hr_bench_kernels_options {
    headrace_options engine; /* isa, threads */
    const char *ops;         /* lists with commas: linear, attention, rms_norm_q8 … */
    const char *formats;     /* of weights: i8c, q8_0 … */
    const char *shapes;      /* of linears: KxN */
    const char *kv;          /* dtypes of the KV cache: f32, bf16, f16 */
    const char *heads;       /* QUERY/KEYxDIM */
    const int64_t *rows;     /* [n_rows] row counts */
    const int64_t *contexts; /* [n_contexts] keys that attention reads */
    size_t n_rows, n_contexts;
    int best;                      /* the table tells the best run of each figure, not the median */
    int64_t peak_mib;              /* size of the largest buffer that is read for the peaks */
    double run_ms;                 /* runs of each figure take about so long together */
    double run_limit;              /* seconds: what takes longer is left out */
    hr_bench_progress_fn progress; /* NULL = silent */
    void *context;
} hr_bench_kernels_options;

void hr_bench_kernels_init(hr_bench_kernels_options *o);
/* What the machine can do, and what of it each op reaches natively, over row counts. */
HR_MUST_USE hr_status hr_bench_kernels(const hr_bench_kernels_options *o, hr_buf *text,
                                       hr_buf *json);

/* ---- bench tokenizer ------------------------------------------------------------------------- */

typedef struct hr_bench_tokenizer_options {
    const hr_tokenizer *tokenizer; /* borrowed */
    double open_s;                 /* seconds that opening it took */
    hr_str lines;                  /* the texts, a JSON string a line */
    int64_t num_runs;              /* 1 or more: runs over all texts */
} hr_bench_tokenizer_options;

/* Megabytes and tokens per second, and a digest of the ids as int32. */
HR_MUST_USE hr_status hr_bench_tokenizer(const hr_bench_tokenizer_options *o, hr_buf *text,
                                         hr_buf *json);

#endif
