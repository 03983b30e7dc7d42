/* bench kernels: what each op reaches of what the machine can do, over row counts.
 *
 * Peaks first. Then each op at each shape goes through the backend's seam as a graph of one node,
 * so that what is timed is what serves: packing, plan, threads and all. Row counts take turns, two
 * rounds of them, so that a noisy moment is not one row count's; told are medians, and which part
 * of the time the peak would take that bounds the op: reading its bytes from where they lie, or
 * its multiplications. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/sync.h"
#include "bench/kernels_int.h"
#include "cpu/cpu.h"

enum { TURNS = 2, LEAST_RUNS = 2, MOST_RUNS = 2000 }; /* runs of one turn */
#define MOST_COLD ((size_t)1 << 30)

typedef struct bench {
    const hr_bench_kernels_options *o;
    hr_arena arena;
    hr_bench_kernels_result result;
    size_t capacity;
    hr_bench_progress shown;
    double start;
} bench;

/* ---- what is asked for ----------------------------------------------------------------------- */

static hr_status add(bench *b, const hr_bench_kernel *k)
{
    hr_bench_kernels_result *r = &b->result;
    HR_TRY(hr_grow((void **)&r->at, &b->capacity, r->n + 1, sizeof *r->at));
    r->at[r->n] = *k;
    r->at[r->n].at = hr_arena_array(&b->arena, r->n_rows, sizeof *k->at);
    if (!r->at[r->n].at) return hr_fail(HR_RESOURCE_EXHAUSTED, "figures");
    r->n++;
    return HR_OK;
}

/* Is `name` among the parts of the list? */
static bool listed(const char *list, const char *name)
{
    hr_str rest = hr_str_c(list);
    for (hr_str part; hr_str_next(&rest, ',', &part);)
        if (hr_str_eq_c(hr_str_trim(part), name)) return true;
    return false;
}

static hr_status parse_format(hr_str name, hr_format *out)
{
#define FORMAT(id, text, elements, bytes) { text, HR_FORMAT_##id },
    static const struct {
        const char *name;
        hr_format format;
    } formats[] = { HR_FORMAT_LIST(FORMAT){ "w8a8", HR_FORMAT_I8C } };
#undef FORMAT
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strlen(formats[i].name) == name.n && !strncasecmp(formats[i].name, name.p, name.n)) {
            *out = formats[i].format;
            return HR_OK;
        }
#define WORD(id, text, elements, bytes) " " text
    return hr_fail(HR_INVALID_ARGUMENT, "--formats %.*s: known are" HR_FORMAT_LIST(WORD) " w8a8",
                   HR_STR_ARG(name));
#undef WORD
}

/* 896x9728: columns x rows of the weight. */
static hr_status parse_shape(hr_str text, int64_t *k, int64_t *n)
{
    size_t x = hr_str_find(text, HR_STR("x"), 0);
    if (x == SIZE_MAX || hr_str_to_i64(hr_str_slice(text, 0, x), k) ||
        hr_str_to_i64(hr_str_slice(text, x + 1, text.n), n) || *k < 32 || *k % 32 || *k > 1 << 20 ||
        *n < 1 || *n > 1 << 22)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--shapes %.*s: a shape is KxN, as 896x9728: K inputs, a multiple of 32, "
                       "and N outputs",
                       HR_STR_ARG(text));
    return HR_OK;
}

static hr_status add_linears(bench *b)
{
    hr_str shapes = hr_str_c(b->o->shapes), shape, format;
    while (hr_str_next(&shapes, ',', &shape)) {
        hr_bench_kernel k = { .op = HR_BENCH_OP_LINEAR };
        HR_TRY(parse_shape(hr_str_trim(shape), &k.k, &k.n));
        hr_str formats = hr_str_c(b->o->formats);
        while (hr_str_next(&formats, ',', &format)) {
            HR_TRY(parse_format(hr_str_trim(format), &k.format));
            HR_TRY(add(b, &k));
        }
    }
    return HR_OK;
}

static hr_status parse_cache(hr_str name, hr_dtype *out)
{
    static const hr_dtype dtypes[] = { HR_DTYPE_F32, HR_DTYPE_BF16, HR_DTYPE_F16, HR_DTYPE_I8 };
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (hr_str_eq_c(name, hr_dtype_name(*out = dtypes[i]))) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "--kv %.*s: it is f32, bf16, f16 or i8", HR_STR_ARG(name));
}

/* 14/2x64: query heads / key heads x dimension. */
static hr_status parse_heads(const char *text, hr_bench_heads *h)
{
    char end;
    long long query, kv, dim;
    if (sscanf(text, "%lld/%lldx%lld%c", &query, &kv, &dim, &end) != 3 || kv < 1 || kv > 1024 ||
        query < kv || query > 4096 || query % kv || dim < 2 || dim % 2 ||
        dim > HR_BENCH_MOST_HEAD_DIM)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--heads %s: heads are QUERY/KEYxDIM, as 14/2x64: QUERY a multiple of KEY, "
                       "DIM even and at most %d",
                       text, HR_BENCH_MOST_HEAD_DIM);
    *h = (hr_bench_heads){ query, kv, dim };
    return HR_OK;
}

static hr_status add_attention(bench *b, const hr_bench_heads *heads)
{
    hr_str caches = hr_str_c(b->o->kv), cache;
    while (hr_str_next(&caches, ',', &cache)) {
        hr_bench_kernel k = { .heads = *heads };
        HR_TRY(parse_cache(hr_str_trim(cache), &k.cache));
        for (int op = HR_BENCH_OP_DECODE; op <= HR_BENCH_OP_PREFILL; op++)
            for (size_t i = 0; i < b->o->n_contexts; i++) {
                k.op = (hr_bench_op)op;
                k.context = b->o->contexts[i];
                HR_TRY(add(b, &k));
            }
    }
    return HR_OK;
}

/* At the widths of Qwen2.5-0.5B. */
static hr_status add_row_ops(bench *b, const hr_bench_heads *heads)
{
    const hr_bench_kernel all[] = {
        { .op = HR_BENCH_OP_NORM, .k = 896, .group = 32 },
        { .op = HR_BENCH_OP_GATED, .k = 4864, .group = 32 },
        { .op = HR_BENCH_OP_ROPE, .heads = *heads },
        { .op = HR_BENCH_OP_QUANTISE, .k = 896, .group = 32 },
        { .op = HR_BENCH_OP_QUANTISE, .k = 896, .group = 896 },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (listed(b->o->ops, hr_bench_op_flags[all[i].op])) HR_TRY(add(b, &all[i]));
    return HR_OK;
}

static hr_status check_ops(const char *ops)
{
    hr_str rest = hr_str_c(ops);
    for (hr_str part; hr_str_next(&rest, ',', &part);) {
        bool known = false;
        for (int i = 0; i < HR_BENCH_OP_COUNT; i++)
            known = known || hr_str_eq_c(hr_str_trim(part), hr_bench_op_flags[i]);
        if (!known)
            return hr_fail(HR_INVALID_ARGUMENT,
                           "--ops %.*s: known are linear, attention, rms_norm_q8, gated_q8, rope "
                           "and quantise_rows",
                           HR_STR_ARG(part));
    }
    return HR_OK;
}

static hr_status check_numbers(const char *flag, const int64_t *at, size_t n, int64_t most)
{
    for (size_t i = 0; i < n; i++)
        if (at[i] < 1 || at[i] > most)
            return hr_fail(HR_INVALID_ARGUMENT, "%s: %lld is not in 1..%lld", flag,
                           (long long)at[i], (long long)most);
    return HR_OK;
}

static hr_status check(const hr_bench_kernels_options *o)
{
    HR_TRY(check_ops(o->ops));
    HR_TRY(check_numbers("--rows", o->rows, o->n_rows, 8192));
    HR_TRY(check_numbers("--contexts", o->contexts, o->n_contexts, HR_BENCH_MOST_KEYS));
    HR_TRY(check_numbers("--peak-mib", &o->peak_mib, 1, 1 << 20));
    if (!(o->run_ms > 0 && o->run_ms <= 60000))
        return hr_fail(HR_INVALID_ARGUMENT, "--run-ms must be above 0 and at most 60000");
    if (!(o->run_limit > 0 && o->run_limit <= 3600))
        return hr_fail(HR_INVALID_ARGUMENT, "--run-limit must be above 0 and at most 3600 seconds");
    return HR_OK;
}

static hr_status collect(bench *b)
{
    hr_bench_heads heads;
    HR_TRY(parse_heads(b->o->heads, &heads));
    if (listed(b->o->ops, "linear")) HR_TRY(add_linears(b));
    if (listed(b->o->ops, "attention")) HR_TRY(add_attention(b, &heads));
    return add_row_ops(b, &heads);
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Runs for about that long; *one is what a run took. */
static hr_status run_for(hr_bench_op_rig *r, int64_t rows, double seconds, hr_bench_series *out,
                         double *one)
{
    HR_TRY(hr_bench_op_aim(r, rows));
    HR_TRY(hr_bench_op_run(r, rows, one)); /* what the turn before left in the caches */
    double n = seconds / (*one > 0 ? *one : 1e-6), took;
    n = n < LEAST_RUNS ? LEAST_RUNS : n > MOST_RUNS ? MOST_RUNS : n;
    for (int i = 0; i < (int)n; i++) {
        HR_TRY(hr_bench_op_run(r, rows, &took));
        HR_TRY(hr_bench_series_add(out, took));
    }
    return HR_OK;
}

/* Weights and keys lie in memory, unless all copies of a small matrix fit a cache; rows lie in
 * caches. */
static double read_gb_s(const bench *b, const hr_bench_kernel *k, const hr_bench_figure *f)
{
    const hr_bench_peaks *p = &b->result.peaks;
    size_t l3 = b->result.machine.l3;
    if (k->op == HR_BENCH_OP_LINEAR && k->weight_bytes < 2 * l3)
        return hr_bench_peaks_cached(p, (double)k->weight_bytes);
    return f->ops > 0 ? hr_bench_peaks_memory(p) : hr_bench_peaks_cached(p, f->bytes);
}

static void finish(const bench *b, const hr_bench_kernel *k, int64_t rows, hr_bench_series *s,
                   hr_bench_figure *f)
{
    const hr_bench_peaks *p = &b->result.peaks;
    hr_bench_series_sort(s);
    f->measured = true;
    f->runs = s->n;
    f->seconds = hr_bench_percentile(s, 50);
    f->best = hr_bench_percentile(s, 0);
    hr_bench_kernel_work(k, k->weight_bytes / k->copies, rows, f);
    double by_bytes = f->bytes / (read_gb_s(b, k, f) * 1e9);
    double by_ops = f->ops / (hr_bench_kernel_gop_s(k, p) * 1e9);
    f->by_ops = by_ops > by_bytes;
    f->limit_s = f->by_ops ? by_ops : by_bytes;
}

/* One turn of all row counts; `last` is the row count measured before, and took `one`. */
static hr_status turn(bench *b, hr_bench_op_rig *r, hr_bench_kernel *k, hr_bench_series *s)
{
    int64_t last = 0;
    double one = 0;
    for (size_t i = 0; i < b->result.n_rows; i++) {
        int64_t rows = b->result.rows[i];
        hr_bench_figure *f = &k->at[i];
        if (f->why) continue;
        if (last && rows > last && one * (double)rows / (double)last > b->o->run_limit && !s[i].n) {
            f->why = "a run would take longer than --run-limit";
            continue;
        }
        HR_TRY(run_for(r, rows, b->o->run_ms / 1e3 / TURNS, &s[i], &one));
        last = rows;
    }
    return HR_OK;
}

static hr_status measure(bench *b, hr_bench_op_rig *r, hr_bench_kernel *k)
{
    hr_bench_series *s = hr_alloc_array0(b->result.n_rows, sizeof *s);
    if (!s) return hr_fail(HR_RESOURCE_EXHAUSTED, "times");
    k->weight_bytes = r->backend->v->weight_bytes(r->backend);
    k->copies = r->copies;
    hr_status st = HR_OK;
    for (int i = 0; !st && i < TURNS; i++) st = turn(b, r, k, s);
    for (size_t i = 0; !st && i < b->result.n_rows; i++)
        if (!k->at[i].why) finish(b, k, b->result.rows[i], &s[i], &k->at[i]);
    for (size_t i = 0; i < b->result.n_rows; i++) hr_bench_series_deinit(&s[i]);
    hr_free(s);
    return st;
}

/* Four times the shared cache, as far as memory allows. */
static size_t cold_bytes(const bench *b)
{
    size_t cold = 4 * b->result.machine.l3, most = b->result.machine.available / 4;
    if (cold < 4 * b->result.machine.l2) cold = 4 * b->result.machine.l2;
    if (cold > MOST_COLD) cold = MOST_COLD;
    return cold < most ? cold : most;
}

static hr_status run_kernel(bench *b, hr_bench_kernel *k)
{
    int64_t most = 0;
    for (size_t i = 0; i < b->result.n_rows; i++) {
        k->at[i].why = hr_bench_kernel_refuses(k, b->result.rows[i]);
        if (!k->at[i].why && b->result.rows[i] > most) most = b->result.rows[i];
    }
    hr_bench_op_rig r = { 0 };
    hr_status st = HR_OK;
    if (most) {
        st = hr_bench_op_open(&r, k, &b->o->engine, most, cold_bytes(b));
        if (!st) st = measure(b, &r, k);
        hr_bench_op_close(&r);
    }
    b->shown.done++;
    b->shown.seconds = hr_now_s() - b->start;
    if (!st && b->o->progress) b->o->progress(b->o->context, &b->shown);
    return st ? hr_fail_prefix(st, "%s", hr_bench_op_names[k->op]) : HR_OK;
}

static hr_status run_all(bench *b)
{
    hr_bench_kernels_result *r = &b->result;
    size_t largest = (size_t)b->o->peak_mib << 20;
    HR_TRY(check(b->o));
    HR_TRY(collect(b));
    HR_TRY(hr_isa_choose(b->o->engine.isa, &r->peaks.isa));
    hr_bench_machine_read(&r->machine);
    r->peaks.threads = b->o->engine.threads ? b->o->engine.threads : hr_cpu_thread_limit();
    if (r->peaks.threads < 1 || r->peaks.threads > HR_CPU_MAX_THREADS)
        return hr_fail(HR_INVALID_ARGUMENT, "--threads must be 0..%d", HR_CPU_MAX_THREADS);
    if (largest > r->machine.available / 2) largest = r->machine.available / 2;
    b->start = hr_now_s();
    b->shown = (hr_bench_progress){ .what = "ops", .total = r->n };
    HR_TRY(hr_bench_peaks_measure(&r->peaks, &r->machine, largest));
    for (size_t i = 0; i < r->n; i++) HR_TRY(run_kernel(b, &r->at[i]));
    return HR_OK;
}

void hr_bench_kernels_init(hr_bench_kernels_options *o)
{
    static const int64_t rows[] = { 1, 2, 4, 8, 16, 32, 64, 128, 512 };
    static const int64_t contexts[] = { 128, 1024, 4096, 32768 };
    *o = (hr_bench_kernels_options){
        .ops = "linear,attention,rms_norm_q8,gated_q8,rope,quantise_rows",
        .formats = "i8c,q8_0,q4_0,q4_1,q4_k,q5_k,q6_k,bf16,f32",
        .shapes = "896x9728,4864x896,2048x11008,896x151936",
        .kv = "f32",
        .heads = "14/2x64",
        .rows = rows,
        .n_rows = sizeof rows / sizeof *rows,
        .contexts = contexts,
        .n_contexts = sizeof contexts / sizeof *contexts,
        .peak_mib = 2048,
        .run_ms = 40,
        .run_limit = 0.5,
    };
}

hr_status hr_bench_kernels(const hr_bench_kernels_options *o, hr_buf *text, hr_buf *json)
{
    bench b = { .o = o, .result = { .rows = o->rows, .n_rows = o->n_rows, .best = o->best } };
    hr_status st = run_all(&b);
    if (!st) hr_bench_kernels_table(&b.result, text);
    if (!st) hr_bench_kernels_json(&b.result, json);
    if (!st) st = hr_buf_status(text);
    if (!st) st = hr_buf_status(json);
    hr_free(b.result.at);
    hr_arena_deinit(&b.arena);
    return st;
}
