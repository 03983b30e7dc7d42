/* bench throughput and bench latency: the engine in this process, without a server.
 *
 * Main thread; the engine has its own. The engine's door is headrace.h, so that what is measured is
 * what an embedder gets; only the tokenizer, for prompts, comes from the engine room. */
#include <stdio.h>

#include "base/sync.h"
#include "bench/bench_int.h"
#include "engine/engine.h"

void hr_bench_engine_init(hr_bench_engine_options *o)
{
    *o = (hr_bench_engine_options){
        .input_len = 32, .output_len = 128, .batch_size = 8, .num_warmups = -1, .num_runs = -1
    };
}

typedef struct batch {
    headrace_engine *engine;
    const hr_bench_engine_options *o;
    headrace_sampling sampling;
    size_t n, done;
    int64_t prompt_tokens, output_tokens;
    double started;
} batch;

static hr_status submit(batch *b, const hr_bench_prompt *p)
{
    headrace_request r;
    headrace_request_init(&r);
    headrace_sampling s = b->sampling;
    s.max_tokens = p->output_tokens;
    r.sampling = &s;
    int64_t *ids = NULL;
    if (p->n_ids) {
        ids = hr_alloc_array0(p->n_ids, sizeof *ids);
        if (!ids) return hr_fail(HR_RESOURCE_EXHAUSTED, "a prompt");
        for (size_t i = 0; i < p->n_ids; i++) ids[i] = p->ids[i];
        r.prompt_ids = ids;
        r.n_prompt_ids = p->n_ids;
    } else {
        r.prompt = p->text.p;
        r.prompt_bytes = p->text.n;
    }
    uint64_t id;
    hr_status st = (hr_status)headrace_submit(b->engine, &r, &id);
    hr_free(ids);
    return st;
}

static void tell(const batch *b)
{
    if (!b->o->progress) return;
    hr_bench_progress p = {
        .what = "requests",
        .total = b->n,
        .done = b->done,
        .seconds = hr_now_s() - b->started,
        .output_tokens = b->output_tokens,
    };
    b->o->progress(b->o->context, &p);
}

/* Until all have ended; the first failure ends it. */
static hr_status collect(batch *b)
{
    while (b->done < b->n) {
        headrace_event v;
        HR_TRY((hr_status)headrace_poll(b->engine, &v, -1));
        if (v.kind == HEADRACE_EVENT_FAILED) return hr_fail((hr_status)v.status, "%s", v.message);
        if (v.kind == HEADRACE_EVENT_STARTED) b->prompt_tokens += (int64_t)v.n_prompt_ids;
        if (v.kind == HEADRACE_EVENT_FINISHED) b->output_tokens += v.output_tokens;
        if (v.kind == HEADRACE_EVENT_DONE) b->done++;
    }
    return HR_OK;
}

/* All at once; *seconds from the first submit to the last token. */
static hr_status run_batch(batch *b, const hr_bench_prompt *prompts, size_t n, double *seconds)
{
    b->n = n;
    b->done = 0;
    b->prompt_tokens = b->output_tokens = 0;
    b->started = hr_now_s();
    for (size_t i = 0; i < n; i++) HR_TRY(submit(b, &prompts[i]));
    hr_status st = collect(b);
    *seconds = hr_now_s() - b->started;
    return st;
}

/* An engine, its sampling defaults, and prompts of its vocabulary. */
static hr_status open_engine(batch *b, const hr_bench_engine_options *o,
                             const hr_bench_data_options *data, hr_bench_prompts *prompts)
{
    HR_TRY((hr_status)headrace_engine_create(&o->engine, &b->engine));
    headrace_sampling_init(b->engine, &b->sampling);
    b->sampling.ignore_eos = 1;
    if (o->sampling) HR_TRY(o->sampling(o->context, &b->sampling));
    hr_bench_data_options d = *data;
    if (!d.tokenizer) d.tokenizer = hr_engine_tokenizer(b->engine);
    if (!d.tokenizer && !d.vocab_size && !d.path) {
        headrace_info info;
        headrace_info_get(b->engine, &info);
        d.vocab_size = info.vocab_size;
    }
    return hr_bench_prompts_make(&d, HR_BENCH_IDS, 0, NULL, prompts);
}

static void key(hr_json_writer *w, const char *name)
{
    hr_json_key(w, hr_str_c(name));
}
/* What was measured, and on what. */
static void put_engine(hr_json_writer *w, const batch *b)
{
    headrace_info i;
    headrace_info_get(b->engine, &i);
    hr_json_add_str(w, "model", i.model_name);
    hr_json_add_i64(w, "late_compilations", (int64_t)i.late_compilations);
    key(w, "numerics");
    hr_json_raw(w, hr_str_c(i.numerics));
}

/* ---- throughput ------------------------------------------------------------------------------ */

static void report_throughput(const batch *b, double seconds, hr_buf *text, hr_buf *json)
{
    double per_second = seconds > 0 ? 1 / seconds : 0;
    int64_t total = b->prompt_tokens + b->output_tokens;
    double requests = (double)b->n * per_second, tokens = (double)total * per_second,
           output = (double)b->output_tokens * per_second;
    hr_buf_printf(text,
                  "Throughput: %.2f requests/s, %.2f total tokens/s, %.2f output tokens/s\n"
                  "Total num prompt tokens:  %lld\nTotal num output tokens:  %lld\n",
                  requests, tokens, output, (long long)b->prompt_tokens,
                  (long long)b->output_tokens);
    hr_json_writer w = { .out = json };
    hr_json_begin_object(&w);
    hr_json_add_f64(&w, "elapsed_time", seconds);
    hr_json_add_i64(&w, "num_requests", (int64_t)b->n);
    hr_json_add_i64(&w, "total_num_tokens", total);
    hr_json_add_i64(&w, "prompt_tokens", b->prompt_tokens);
    hr_json_add_i64(&w, "output_tokens", b->output_tokens);
    hr_json_add_f64(&w, "requests_per_second", requests);
    hr_json_add_f64(&w, "tokens_per_second", tokens);
    hr_json_add_f64(&w, "output_tokens_per_second", output);
    put_engine(&w, b);
    hr_json_end_object(&w);
}

/* As collect, but telling how far it is. */
static hr_status collect_telling(batch *b)
{
    size_t all = b->n;
    for (size_t i = 1; i <= all; i++) {
        b->n = i; /* until one more has ended */
        HR_TRY(collect(b));
        b->n = all;
        tell(b);
    }
    return HR_OK;
}

hr_status hr_bench_throughput(const hr_bench_engine_options *o, hr_buf *text, hr_buf *json)
{
    batch b = { .o = o };
    hr_bench_prompts prompts = { 0 };
    hr_status st = open_engine(&b, o, &o->data, &prompts);
    b.n = prompts.n;
    b.started = hr_now_s();
    for (size_t i = 0; !st && i < prompts.n; i++) st = submit(&b, &prompts.at[i]);
    if (!st) st = collect_telling(&b);
    if (!st) report_throughput(&b, hr_now_s() - b.started, text, json);
    headrace_engine_destroy(b.engine);
    hr_bench_prompts_deinit(&prompts);
    if (!st) st = hr_buf_status(text);
    return st ? st : hr_buf_status(json);
}

/* ---- latency --------------------------------------------------------------------------------- */

static hr_status check_latency(const hr_bench_engine_options *o)
{
    const struct {
        const char *flag;
        int64_t v, least;
    } rules[] = {
        { "--input-len", o->input_len, 1 },          { "--output-len", o->output_len, 1 },
        { "--batch-size", o->batch_size, 1 },        { "--num-iters", o->num_runs, 1 },
        { "--num-iters-warmup", o->num_warmups, 0 },
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].v < rules[i].least || rules[i].v > 1 << 20)
            return hr_fail(HR_INVALID_ARGUMENT, "%s must be %lld to %d", rules[i].flag,
                           (long long)rules[i].least, 1 << 20);
    return HR_OK;
}

static hr_status time_runs(batch *b, const hr_bench_prompts *prompts, hr_bench_series *times)
{
    const hr_bench_engine_options *o = b->o;
    double from = hr_now_s(), seconds;
    for (int64_t i = 0; i < o->num_warmups; i++)
        HR_TRY(run_batch(b, prompts->at, prompts->n, &seconds));
    for (int64_t i = 0; i < o->num_runs; i++) {
        HR_TRY(run_batch(b, prompts->at, prompts->n, &seconds));
        HR_TRY(hr_bench_series_add(times, seconds));
        if (!o->progress) continue;
        hr_bench_progress p = { .what = "runs",
                                .total = (size_t)o->num_runs,
                                .done = (size_t)i + 1,
                                .seconds = hr_now_s() - from };
        o->progress(o->context, &p);
    }
    return HR_OK;
}

static void report_latency(const batch *b, hr_bench_series *times, hr_buf *text, hr_buf *json)
{
    static const int percentiles[] = { 10, 25, 50, 75, 90, 99 };
    hr_json_writer w = { .out = json };
    hr_json_begin_object(&w);
    hr_json_add_f64(&w, "avg_latency", hr_bench_mean(times));
    key(&w, "latencies");
    hr_json_begin_array(&w);
    for (size_t i = 0; i < times->n; i++) hr_json_f64(&w, times->v[i]);
    hr_json_end_array(&w);
    hr_buf_printf(text, "Avg latency: %.6f seconds\n", hr_bench_mean(times));
    hr_bench_series_sort(times);
    key(&w, "percentiles");
    hr_json_begin_object(&w);
    for (size_t i = 0; i < sizeof percentiles / sizeof *percentiles; i++) {
        char name[16];
        double v = hr_bench_percentile(times, percentiles[i]);
        snprintf(name, sizeof name, "%d", percentiles[i]);
        hr_json_add_f64(&w, name, v);
        hr_buf_printf(text, "%d%% percentile latency: %.6f seconds\n", percentiles[i], v);
    }
    hr_json_end_object(&w);
    put_engine(&w, b);
    hr_json_end_object(&w);
}

hr_status hr_bench_latency(const hr_bench_engine_options *o, hr_buf *text, hr_buf *json)
{
    HR_TRY(check_latency(o));
    batch b = { .o = o };
    hr_bench_prompts prompts = { 0 };
    hr_bench_series times = { 0 };
    hr_bench_data_options data = o->data;
    data.dataset = NULL;
    data.num_prompts = o->batch_size;
    data.random_input_len = o->input_len;
    data.random_output_len = o->output_len;
    hr_status st = open_engine(&b, o, &data, &prompts);
    if (!st) st = time_runs(&b, &prompts, &times);
    if (!st) report_latency(&b, &times, text, json);
    headrace_engine_destroy(b.engine);
    hr_bench_series_deinit(&times);
    hr_bench_prompts_deinit(&prompts);
    if (!st) st = hr_buf_status(text);
    return st ? st : hr_buf_status(json);
}
