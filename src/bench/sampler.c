/* bench sampler: seconds of a random lm_head and the sampler behind it, option by option.
 *
 * For each device, head, hidden size, vocabulary and batch: the head alone, the two together, the
 * sampler alone. The cases take turns, four times over, so that a noisy machine is noisy for all of
 * them; what is told are medians, and the ratio to a greedy step, in which the sampler does least.
 * Beneath stand the figures that were published for such a benchmark on other hardware. */
#include <stdio.h>
#include <stdlib.h>

#include "base/sync.h"
#include "bench/sampler_int.h"
#include "engine/devices.h"

enum { TURNS = 4 };

/* What one batch took, seconds. */
typedef struct batch_times {
    int64_t rows;
    size_t weight_bytes; /* on the device */
    double warm_up;      /* compile and first run of head and sampler */
    double head;         /* medians */
    double both[HR_BENCH_CASE_COUNT], alone[HR_BENCH_SWEEP_END];
    double turn[TURNS]; /* everything, head and sampler, a median of each turn */
} batch_times;

typedef struct bench {
    const hr_bench_sampler_options *o;
    hr_buf *text;
    hr_json_writer *json;
    const char *device;
    hr_device on;
    batch_times *times; /* [n_batch_sizes] of the table at hand */
    hr_bench_progress shown;
    double start;
} bench;

/* ---- measuring ------------------------------------------------------------------------------- */

typedef struct samples {
    hr_bench_series head, both[HR_BENCH_CASE_COUNT], alone[HR_BENCH_SWEEP_END];
} samples;

static void samples_deinit(samples *s)
{
    hr_bench_series_deinit(&s->head);
    for (int c = 0; c < HR_BENCH_CASE_COUNT; c++) hr_bench_series_deinit(&s->both[c]);
    for (int c = 0; c < HR_BENCH_SWEEP_END; c++) hr_bench_series_deinit(&s->alone[c]);
}

static double median(hr_bench_series *s)
{
    hr_bench_series_sort(s);
    return hr_bench_percentile(s, 50);
}

static hr_status time_runs(hr_bench_rig *r, int program, int64_t n, hr_bench_series *out)
{
    double seconds;
    HR_TRY(hr_bench_rig_run(r, program, &seconds)); /* what the turn before left in the caches */
    for (int64_t i = 0; i < n; i++) {
        HR_TRY(hr_bench_rig_run(r, program, &seconds));
        HR_TRY(hr_bench_series_add(out, seconds));
    }
    return HR_OK;
}

static hr_status one_turn(bench *b, hr_bench_rig *r, samples *s, double *everything)
{
    int64_t n = (b->o->num_runs + TURNS - 1) / TURNS;
    hr_bench_series last = { 0 };
    HR_TRY(time_runs(r, HR_BENCH_HEAD_ALONE, n, &s->head));
    hr_status st = HR_OK;
    for (int c = 0; !st && c < HR_BENCH_CASE_COUNT; c++) {
        size_t before = s->both[c].n;
        st = hr_bench_rig_set(r, (hr_bench_case)c);
        if (!st) st = time_runs(r, HR_BENCH_BOTH, n, &s->both[c]);
        if (!st) st = time_runs(r, HR_BENCH_SAMPLER_ALONE, n, &s->alone[c]);
        for (size_t i = before; !st && c == HR_BENCH_CASE_EVERYTHING && i < s->both[c].n; i++)
            st = hr_bench_series_add(&last, s->both[c].v[i]);
    }
    *everything = median(&last);
    hr_bench_series_deinit(&last);
    for (int c = HR_BENCH_CASE_COUNT; !st && b->o->sweep && c < HR_BENCH_SWEEP_END; c++) {
        st = hr_bench_rig_set(r, (hr_bench_case)c);
        if (!st) st = time_runs(r, HR_BENCH_SAMPLER_ALONE, n, &s->alone[c]);
    }
    return st;
}

static hr_status measure(bench *b, hr_bench_rig *r, batch_times *t)
{
    samples s = { 0 };
    hr_status st = HR_OK;
    for (int i = 0; !st && i < TURNS; i++) st = one_turn(b, r, &s, &t->turn[i]);
    t->head = median(&s.head);
    for (int c = 0; c < HR_BENCH_CASE_COUNT; c++) t->both[c] = median(&s.both[c]);
    for (int c = 0; c < HR_BENCH_SWEEP_END; c++) t->alone[c] = median(&s.alone[c]);
    samples_deinit(&s);
    return st;
}

static hr_status run_batch(bench *b, hr_bench_rig *shape, int64_t rows, batch_times *t)
{
    hr_bench_rig r = *shape;
    r.rows = t->rows = rows;
    hr_status st = hr_bench_rig_open(&r);
    t->warm_up = r.compile_s[HR_BENCH_BOTH];
    t->weight_bytes = r.backend->v->weight_bytes(r.backend);
    double first;
    if (!st) st = hr_bench_rig_run(&r, HR_BENCH_BOTH, &first);
    if (!st) t->warm_up += first;
    if (!st) st = measure(b, &r, t);
    hr_bench_rig_close(&r);
    b->shown.done++;
    b->shown.seconds = hr_now_s() - b->start;
    if (!st && b->o->progress) b->o->progress(b->o->context, &b->shown);
    return st ? hr_fail_prefix(st, "batch %lld", (long long)rows) : HR_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void add_row(bench *b, const char *name, size_t offset, double factor, const char *form)
{
    hr_buf_printf(b->text, "%-28s", name);
    for (size_t i = 0; i < b->o->n_batch_sizes; i++)
        hr_buf_printf(b->text, form, factor * *(double *)((char *)&b->times[i] + offset));
    hr_buf_add_byte(b->text, '\n');
}

static void add_case_rows(bench *b, const char *title, size_t offset, size_t from, size_t end)
{
    hr_buf_printf(b->text, "%s\n", title);
    for (size_t c = from; c < end; c++) {
        char name[64];
        snprintf(name, sizeof name, "  %s", hr_bench_case_names[c]);
        add_row(b, name, offset + c * sizeof(double), 1e3, "%10.3f");
    }
}

static void add_ratio(bench *b)
{
    hr_buf_printf(b->text, "%-28s", "  everything / greedy");
    for (size_t i = 0; i < b->o->n_batch_sizes; i++)
        hr_buf_printf(b->text, "%10.3f",
                      b->times[i].both[HR_BENCH_CASE_EVERYTHING] /
                          b->times[i].both[HR_BENCH_CASE_GREEDY]);
    hr_buf_add_byte(b->text, '\n');
}

/* Seconds, as they were published for 151936 columns (reference: the vLLM pull request of 2025 on
 * sampling for TPU). */
static const struct published {
    const char *name, *warm_up;
    double seconds[4];
} published[] = {
    { "torch-xla, TPU v6", "4.4-4.6", { .0205, .0785, .2562, .5077 } },
    { "torch native, CUDA L4", ".013-.83", { .0086, .0095, .0106, .0132 } },
    { "bare JAX, TPU v6", "17.7-40.1", { .0033, .0067, .0220, .0432 } },
};

static void add_published(bench *b)
{
    static const int64_t batches[] = { 1, 4, 16, 32 };
    hr_buf_add_c(b->text, "published, s (warm-up)\n");
    for (size_t k = 0; k < sizeof published / sizeof *published; k++) {
        hr_buf_printf(b->text, "  %-26s", published[k].name);
        for (size_t i = 0; i < b->o->n_batch_sizes; i++) {
            double s = 0;
            for (int j = 0; j < 4; j++)
                if (batches[j] == b->times[i].rows) s = published[k].seconds[j];
            if (s > 0) hr_buf_printf(b->text, "%10.4f", s);
            else hr_buf_printf(b->text, "%10s", "-");
        }
        hr_buf_printf(b->text, "   (%s)\n", published[k].warm_up);
    }
}

static void add_turns(bench *b)
{
    static const char *const names[TURNS] = { "everything, run 1, s", "  run 2", "  run 3",
                                              "  run 4" };
    for (int i = 0; i < TURNS; i++)
        add_row(b, names[i], offsetof(batch_times, turn) + (size_t)i * sizeof(double), 1, "%10.4f");
}

static void add_table(bench *b, const hr_bench_rig *r)
{
    hr_buf_printf(b->text, "%s, head %s, hidden %lld, vocabulary %lld; ms, medians of %lld\n%-28s",
                  b->device, hr_bench_head_names[r->head], (long long)r->hidden,
                  (long long)r->vocab, (long long)((b->o->num_runs + TURNS - 1) / TURNS * TURNS),
                  "batch");
    for (size_t i = 0; i < b->o->n_batch_sizes; i++)
        hr_buf_printf(b->text, "%10lld", (long long)b->times[i].rows);
    hr_buf_add_byte(b->text, '\n');
    add_row(b, "warm-up, s", offsetof(batch_times, warm_up), 1, "%10.3f");
    add_row(b, "head alone", offsetof(batch_times, head), 1e3, "%10.3f");
    add_case_rows(b, "head and sampler", offsetof(batch_times, both), 0, HR_BENCH_CASE_COUNT);
    add_ratio(b);
    add_case_rows(b, "sampler alone", offsetof(batch_times, alone), 0, HR_BENCH_CASE_COUNT);
    if (b->o->sweep)
        add_case_rows(b, "sampler alone, temperature .8", offsetof(batch_times, alone),
                      HR_BENCH_CASE_COUNT, HR_BENCH_SWEEP_END);
    add_turns(b);
    if (r->vocab == 151936) add_published(b);
    hr_buf_add_byte(b->text, '\n');
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_cases(hr_json_writer *w, const char *key, const double *seconds, int from, int end)
{
    hr_json_key(w, hr_str_c(key));
    hr_json_begin_object(w);
    for (int c = from; c < end; c++) hr_json_add_f64(w, hr_bench_case_names[c], seconds[c]);
    hr_json_end_object(w);
}

static void add_json(bench *b, const hr_bench_rig *r)
{
    hr_json_writer *w = b->json;
    for (size_t i = 0; i < b->o->n_batch_sizes; i++) {
        const batch_times *t = &b->times[i];
        hr_json_begin_object(w);
        hr_json_add_str(w, "device", b->device);
        hr_json_add_str(w, "head", hr_bench_head_names[r->head]);
        hr_json_add_i64(w, "hidden_size", r->hidden);
        hr_json_add_i64(w, "vocab_size", r->vocab);
        hr_json_add_i64(w, "batch_size", t->rows);
        hr_json_add_i64(w, "weight_bytes", (int64_t)t->weight_bytes);
        hr_json_add_f64(w, "warm_up_s", t->warm_up);
        hr_json_add_f64(w, "head_s", t->head);
        add_cases(w, "head_and_sampler_s", t->both, 0, HR_BENCH_CASE_COUNT);
        add_cases(w, "sampler_s", t->alone, 0, HR_BENCH_CASE_COUNT);
        if (b->o->sweep) add_cases(w, "sweep_s", t->alone, HR_BENCH_CASE_COUNT, HR_BENCH_SWEEP_END);
        hr_json_key(w, HR_STR("everything_runs_s"));
        hr_json_begin_array(w);
        for (int k = 0; k < TURNS; k++) hr_json_f64(w, t->turn[k]);
        hr_json_end_array(w);
        hr_json_end_object(w);
    }
}

/* ---- what is asked for ----------------------------------------------------------------------- */

/* A backend reads a weight once and keeps it, so each head has a backend of its own. */
static hr_status run_shape(bench *b, hr_bench_head head, int64_t hidden, int64_t vocab)
{
    hr_bench_weights weights;
    hr_backend *backend;
    hr_bench_weights_make(&weights, head, hidden, vocab);
    HR_TRY(hr_device_create(&b->on, &b->o->engine, (hr_str){ 0 }, &backend));
    hr_bench_rig shape = { .backend = backend,
                           .head = head,
                           .hidden = hidden,
                           .vocab = vocab,
                           .weight = &weights.matrix };
    hr_status st = HR_OK;
    for (size_t i = 0; !st && i < b->o->n_batch_sizes; i++)
        st = run_batch(b, &shape, b->o->batch_sizes[i], &b->times[i]);
    if (!st) add_table(b, &shape);
    if (!st) add_json(b, &shape);
    hr_backend_destroy(backend);
    return st;
}

static hr_status run_head(bench *b, hr_bench_head head)
{
    const hr_bench_sampler_options *o = b->o;
    for (size_t h = 0; h < o->n_hidden_sizes; h++)
        for (size_t v = 0; v < o->n_vocab_sizes; v++)
            HR_TRY(run_shape(b, head, o->hidden_sizes[h], o->vocab_sizes[v]));
    return HR_OK;
}

/* The n-th name of a list with commas, in `to`; false past the end. */
static bool nth_name(const char *list, size_t n, char *to, size_t size)
{
    hr_str rest = hr_str_c(list), part;
    for (size_t i = 0; hr_str_next(&rest, ',', &part); i++) {
        if (i < n) continue;
        snprintf(to, size, "%.*s", HR_STR_ARG(part));
        return true;
    }
    return false;
}

static hr_status find_head(const char *name, hr_bench_head *out)
{
    for (int i = 0; i < HR_BENCH_HEADS; i++) {
        *out = (hr_bench_head)i;
        if (!strcmp(name, hr_bench_head_names[i])) return HR_OK;
    }
    return hr_fail(HR_INVALID_ARGUMENT, "--head %s: it is float32, bfloat16 or w8a8", name);
}

static hr_status run_device(bench *b, const char *name)
{
    char head[32];
    hr_bench_head which;
    bool plugin = strcmp(name, "cpu") && strcmp(name, "ref");
    HR_TRY(hr_device_parse(name, plugin ? b->o->engine.device_options : NULL, &b->on));
    b->device = name;
    for (size_t i = 0; nth_name(b->o->heads, i, head, sizeof head); i++) {
        HR_TRY(find_head(head, &which));
        HR_TRY(run_head(b, which));
    }
    return HR_OK;
}

static hr_status check(const hr_bench_sampler_options *o)
{
    const struct list {
        const char *flag;
        const int64_t *at;
        size_t n;
        int64_t least, most;
    } lists[] = { { "--hidden-sizes", o->hidden_sizes, o->n_hidden_sizes, 32, 65536 },
                  { "--vocab-sizes", o->vocab_sizes, o->n_vocab_sizes, 1024, 1 << 20 },
                  { "--batch-sizes", o->batch_sizes, o->n_batch_sizes, 1, 1024 } };
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        for (size_t i = 0; i < lists[k].n; i++)
            if (lists[k].at[i] < lists[k].least || lists[k].at[i] > lists[k].most)
                return hr_fail(HR_INVALID_ARGUMENT, "%s: %lld is not in %lld..%lld", lists[k].flag,
                               (long long)lists[k].at[i], (long long)lists[k].least,
                               (long long)lists[k].most);
    if (o->num_runs >= 1 && o->num_runs <= 100000) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "--num-runs must be 1..100000, not %lld",
                   (long long)o->num_runs);
}

static size_t count_names(const char *list)
{
    size_t n = 1;
    for (; *list; list++) n += *list == ',';
    return n;
}

static hr_status run_all(bench *b)
{
    char name[4096];
    const hr_bench_sampler_options *o = b->o;
    b->times = hr_alloc_array0(o->n_batch_sizes, sizeof *b->times);
    if (!b->times) return hr_fail(HR_RESOURCE_EXHAUSTED, "benchmark");
    b->start = hr_now_s();
    b->shown =
        (hr_bench_progress){ .what = "batches",
                             .total = count_names(o->devices) * count_names(o->heads) *
                                      o->n_hidden_sizes * o->n_vocab_sizes * o->n_batch_sizes };
    hr_json_begin_array(b->json);
    hr_status st = HR_OK;
    for (size_t i = 0; !st && nth_name(o->devices, i, name, sizeof name); i++)
        st = run_device(b, name);
    hr_json_end_array(b->json);
    hr_free(b->times);
    return st ? st : hr_buf_status(b->text);
}

hr_status hr_bench_sampler(const hr_bench_sampler_options *o, hr_buf *text, hr_buf *json)
{
    static const int64_t hidden[] = { 896 }, vocab[] = { 151936 }, batch[] = { 1, 4, 16, 32 };
    hr_bench_sampler_options own = *o;
    hr_json_writer w = { .out = json };
    bench b = { .o = &own, .text = text, .json = &w };
    if (!own.devices) own.devices = "cpu";
    if (!own.heads) own.heads = "float32";
    if (!own.n_hidden_sizes) own.hidden_sizes = hidden, own.n_hidden_sizes = 1;
    if (!own.n_vocab_sizes) own.vocab_sizes = vocab, own.n_vocab_sizes = 1;
    if (!own.n_batch_sizes) own.batch_sizes = batch, own.n_batch_sizes = 4;
    HR_TRY(check(&own));
    return run_all(&b);
}
