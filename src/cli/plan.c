/* headrace plan: what a start would take, without reading a weight.
 *
 * Main thread. Answers before a long load whether a machine can hold a model with these limits. */
#include <stdio.h>

#include "base/json.h"
#include "cli/cli.h"
#include "engine/fit.h"
#include "engine/plan.h"

static double mib(size_t bytes)
{
    return (double)bytes / 1048576.0;
}

/* Requests of the full context that the cache holds at once. */
static double full_requests(const hr_engine_plan *p)
{
    return (double)(p->blocks * p->block_size) / (double)p->max_model_len;
}

static void add_buckets(hr_buf *out, const hr_bucket_list *list, const char *what)
{
    hr_buf_add_c(out, out->n ? " ×" : "");
    for (int i = 0; i < list->n; i++) hr_buf_printf(out, " %lld", (long long)list->at[i]);
    hr_buf_printf(out, " %s", what);
}

static void print_stage(const hr_engine_plan *p, hr_stage stage)
{
    size_t peak = 0;
    int n = 0;
    int64_t tokens = 0, requests = 0; /* of its last row; 0 = no such axis */
    for (size_t i = 0; i < p->ledger.n; i++) {
        const hr_ledger_row *r = &p->ledger.rows[i];
        if (r->stage != stage) continue;
        n++;
        if (r->peak_bytes > peak) peak = r->peak_bytes;
        tokens = r->tokens;
        requests = r->requests;
    }
    if (!n) return;
    hr_buf buckets = { 0 };
    if (tokens) add_buckets(&buckets, &p->tokens, "tokens");
    hr_bucket_list last = { .at = { requests }, .n = 1 };
    if (requests) add_buckets(&buckets, n > 1 ? &p->requests : &last, "requests");
    printf("  %-16s %3d  %8.1f MiB peak %s\n", hr_stage_name(stage), n, mib(peak),
           buckets.n ? hr_buf_c(&buckets) : "");
    hr_buf_deinit(&buckets);
}

static void print_text(const hr_engine_plan *p)
{
    const hr_memory *m = &p->memory;
    size_t cache = (size_t)p->blocks * p->block_bytes;
    printf("model      %s, %lld layers, hidden %lld, vocabulary %lld\n", p->architecture,
           (long long)p->layers, (long long)p->hidden, (long long)p->vocab);
    printf("limits     %lld tokens of context, %lld sequences, %lld tokens a step\n",
           (long long)p->max_model_len, (long long)p->max_num_seqs,
           (long long)p->max_num_batched_tokens);
    printf("numbers    %s activations (rows %s), %s KV cache\n", p->activation, p->rows,
           p->kv_dtype);
    printf("programs   %zu\n", p->ledger.n);
    for (int s = 0; s < HR_STAGE_COUNT; s++) print_stage(p, (hr_stage)s);
    printf("memory     %.1f MiB available\n", mib(m->available));
    printf("  weights  %10.1f MiB\n  buffers  %10.1f MiB\n  peak     %10.1f MiB\n", mib(m->weights),
           mib(m->buffers), mib(m->peak));
    printf("  KV cache %10.1f MiB  %lld blocks of %lld tokens: %.1f requests of the full context\n",
           mib(cache), (long long)p->blocks, (long long)p->block_size, full_requests(p));
    printf("  total    %10.1f MiB\n", mib(m->weights + m->buffers + m->peak + cache));
}

static void add_programs(hr_json_writer *w, const hr_ledger *l)
{
    hr_json_key(w, HR_STR("programs"));
    hr_json_begin_array(w);
    for (size_t i = 0; i < l->n; i++) {
        const hr_ledger_row *r = &l->rows[i];
        hr_json_begin_object(w);
        hr_json_add_str(w, "program", hr_stage_name(r->stage));
        if (r->tokens) hr_json_add_i64(w, "tokens", r->tokens);
        if (r->requests) hr_json_add_i64(w, "requests", r->requests);
        hr_json_add_i64(w, "peak_bytes", (int64_t)r->peak_bytes);
        hr_json_add_i64(w, "steps", (int64_t)r->steps);
        hr_json_end_object(w);
    }
    hr_json_end_array(w);
}

static void print_json(const hr_engine_plan *p)
{
    hr_buf out = { 0 };
    hr_json_writer w = { .out = &out };
    hr_json_begin_object(&w);
    hr_json_add_str(&w, "architecture", p->architecture);
    hr_json_add_str(&w, "activation", p->activation);
    hr_json_add_str(&w, "rows", p->rows);
    hr_json_add_str(&w, "kv_cache_dtype", p->kv_dtype);
    hr_json_add_i64(&w, "max_model_len", p->max_model_len);
    hr_json_add_i64(&w, "max_num_seqs", p->max_num_seqs);
    hr_json_add_i64(&w, "max_num_batched_tokens", p->max_num_batched_tokens);
    hr_json_add_i64(&w, "available_bytes", (int64_t)p->memory.available);
    hr_json_add_i64(&w, "weight_bytes", (int64_t)p->memory.weights);
    hr_json_add_i64(&w, "buffer_bytes", (int64_t)p->memory.buffers);
    hr_json_add_i64(&w, "peak_bytes", (int64_t)p->memory.peak);
    hr_json_add_i64(&w, "kv_blocks", p->blocks);
    hr_json_add_i64(&w, "block_size", p->block_size);
    hr_json_add_i64(&w, "block_bytes", (int64_t)p->block_bytes);
    add_programs(&w, &p->ledger);
    hr_json_end_object(&w);
    puts(hr_buf_c(&out));
    hr_buf_deinit(&out);
}

/* ---- buckets for steps that were run --------------------------------------------------------- */

static hr_status fit_axis(hr_str programs, const char *key, const hr_bucket_list *now, int most,
                          hr_json_writer *w)
{
    int64_t limit = hr_buckets_last(now), before, after;
    uint64_t *counts = hr_alloc_array0((size_t)limit + 1, sizeof *counts);
    hr_bucket_list list;
    if (!counts) return hr_fail(HR_RESOURCE_EXHAUSTED, "step histogram");
    hr_status st = hr_buckets_read_steps(programs, key, limit, counts);
    if (!st) st = hr_buckets_padding(counts, limit, now, &before);
    if (!st) st = hr_buckets_fit(counts, limit, most ? most : now->n, &list, &after);
    hr_free(counts);
    if (st) return st;
    fprintf(stderr, "%-8s %d buckets pad %lld, %d fitted ones %lld\n", key, now->n,
            (long long)before, list.n, (long long)after);
    hr_json_key(w, hr_str_c(key));
    hr_json_begin_array(w);
    for (int i = 0; i < list.n; i++) hr_json_i64(w, list.at[i]);
    hr_json_end_array(w);
    return HR_OK;
}

static hr_status fit(hr_args *a, const hr_engine_plan *p)
{
    hr_buf out = { 0 };
    hr_json_writer w = { .out = &out };
    hr_str programs;
    HR_TRY(hr_args_slurp(&a->arena, a->own.fit_buckets, &programs));
    hr_json_begin_object(&w);
    hr_status st = fit_axis(programs, "tokens", &p->tokens, a->own.token_buckets, &w);
    if (!st) st = fit_axis(programs, "requests", &p->requests, a->own.request_buckets, &w);
    hr_json_end_object(&w);
    if (!st) st = hr_buf_status(&out);
    if (!st) puts(hr_buf_c(&out));
    hr_buf_deinit(&out);
    return st;
}

int hr_cli_plan(hr_args *a)
{
    hr_engine_plan plan;
    a->options.model = a->model;
    hr_status st = hr_engine_plan_make(&a->options, &plan);
    if (!st && a->own.fit_buckets) st = fit(a, &plan);
    else if (!st && a->own.json) print_json(&plan);
    else if (!st) print_text(&plan);
    hr_engine_plan_deinit(&plan);
    return st ? hr_cli_complain() : 0;
}
