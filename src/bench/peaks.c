/* The peaks of this machine, measured: reading buffers that lie in memory and in caches, and
 * computing in registers, with one thread and with all of them.
 *
 * The threads are a pool like the one that serves, and the buffer is touched by the threads that
 * read it, in huge pages as weights are. A peak is the best of several rounds: whoever shares the
 * machine can only take away. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sync.h"
#include "bench/kernels_int.h"
#include "cpu/pool.h"

const char *const hr_bench_ops_names[HR_BENCH_OPS] = { "f32", "int8", "bf16" };

enum { ROUNDS = 5, PIECES = 64 };
#define MIB       ((size_t)1 << 20)
#define LEAST_S   0.01 /* of a round */
#define PAGE_HUGE ((size_t)2 << 20)

typedef struct job {
    hr_peak_loop loop;
    uint8_t *buffer; /* reads; NULL = arithmetic */
    size_t piece;    /* bytes of an item */
    bool own;        /* each worker reads a piece of its own, again and again */
    int64_t rounds;  /* of an item, arithmetic */
    volatile float kept;
} job;

static void work(void *ctx, int worker, int64_t from, int64_t to)
{
    job *j = ctx;
    for (int64_t i = from; i < to; i++) {
        size_t at = j->own ? (size_t)worker : (size_t)i;
        j->kept = j->buffer ? j->loop.run(j->buffer + at * j->piece, (int64_t)j->piece)
                            : j->loop.run(NULL, j->rounds);
    }
}

static void touch(void *ctx, int worker, int64_t from, int64_t to)
{
    const job *j = ctx;
    (void)worker;
    memset(j->buffer + (size_t)from * j->piece, 0x3e, (size_t)(to - from) * j->piece);
}

/* Items per second, the best of some rounds; items are many enough for a clock. */
static double rate(hr_pool *pool, job *j, int64_t items)
{
    double best = 0;
    for (int round = 0; round < ROUNDS;) {
        double start = hr_now_s();
        hr_pool_run(pool, work, j, items, 1);
        double took = hr_now_s() - start;
        if (took < LEAST_S && (j->own || !j->buffer)) {
            items *= 2;
            continue;
        }
        if ((double)items / took > best) best = (double)items / took;
        round++;
        if (took > 0.1 && round >= 3) break;
    }
    return best;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

static double measure_ops(hr_pool *pool, hr_peak_loop loop)
{
    job j = { .loop = loop, .rounds = 2000 };
    if (!loop.run) return 0;
    return rate(pool, &j, 16 * hr_pool_threads(pool)) * (double)j.rounds * (double)loop.ops / 1e9;
}

static void measure_arithmetic(hr_bench_peaks *p, hr_pool *pool, int all)
{
    static const hr_peak what[HR_BENCH_OPS] = { HR_PEAK_F32, HR_PEAK_I8, HR_PEAK_BF16 };
    for (int isa = 0; isa < HR_ISA_COUNT; isa++)
        for (int k = 0; k < HR_BENCH_OPS && hr_isa_available((hr_isa)isa); k++)
            p->ops[isa][k][all] = measure_ops(pool, hr_peak_loop_of((hr_isa)isa, what[k]));
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A buffer of 1 MiB is each thread's own; larger ones are read together, piece by piece. */
static double measure_read(hr_pool *pool, hr_peak_loop loop, uint8_t *buffer, size_t bytes)
{
    job j = { .loop = loop, .buffer = buffer, .own = bytes <= MIB, .piece = bytes };
    if (!j.own) j.piece = bytes / PIECES & ~(size_t)(HR_PEAK_BLOCK - 1);
    return rate(pool, &j, j.own ? 64 : PIECES) * (double)j.piece / 1e9;
}

static void measure_reading(hr_bench_peaks *p, hr_pool *pool, int all, uint8_t *buffer)
{
    for (int isa = 0; isa < HR_ISA_COUNT; isa++) {
        if (!hr_isa_available((hr_isa)isa)) continue;
        for (size_t s = 0; s < p->n_reads; s++)
            for (int streams = 0; streams < 2; streams++)
                p->read[isa][s][streams][all] = measure_read(
                    pool, hr_peak_loop_of((hr_isa)isa, streams ? HR_PEAK_STREAMS : HR_PEAK_READ),
                    buffer, p->read_bytes[s]);
    }
}

/* What was asked for, 64 MiB, half of the shared cache, 1 MiB: those that are less than the one
 * before. */
static void choose_sizes(hr_bench_peaks *p, const hr_bench_machine *m, size_t largest)
{
    const size_t sizes[HR_BENCH_READS] = { largest, 64 * MIB, m->l3 / 2, MIB };
    for (int i = 0; i < HR_BENCH_READS; i++) {
        size_t bytes = sizes[i] / MIB * MIB;
        if (bytes < MIB || (p->n_reads && bytes >= p->read_bytes[p->n_reads - 1])) continue;
        p->read_bytes[p->n_reads++] = bytes;
    }
}

static void measure_all(hr_bench_peaks *p, hr_pool *one, hr_pool *all, uint8_t *buffer,
                        size_t bytes)
{
    job whole = { .buffer = buffer, .piece = MIB };
    (void)madvise(buffer, bytes, MADV_HUGEPAGE); /* a wish */
    hr_pool_run(all, touch, &whole, (int64_t)(bytes / MIB), 8);
    for (int k = 0; k < 2; k++) {
        measure_reading(p, k ? all : one, k, buffer);
        measure_arithmetic(p, k ? all : one, k);
    }
}

/* ---- the barrier ----------------------------------------------------------------------------- */

static void nothing(void *ctx, int worker, int64_t from, int64_t to)
{
    (void)ctx;
    (void)worker;
    (void)from;
    (void)to;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What a step of a plan costs beside its work: an item for each thread, and the wait for all. The
 * median, since one wait for a core that somebody else has is as long as thousands. */
static double measure_barrier(hr_pool *pool)
{
    enum { RUNS = 2001, BATCH = 20 };
    static double took[RUNS];
    for (int i = 0; i < RUNS; i++) {
        double start = hr_now_s();
        for (int k = 0; k < BATCH; k++) hr_pool_run(pool, nothing, NULL, hr_pool_threads(pool), 1);
        took[i] = (hr_now_s() - start) * 1e6 / BATCH;
    }
    qsort(took, RUNS, sizeof *took, ascending);
    return took[RUNS / 2];
}

hr_status hr_bench_peaks_measure(hr_bench_peaks *p, const hr_bench_machine *m, size_t largest)
{
    hr_pool *one = NULL, *all = NULL;
    choose_sizes(p, m, largest);
    size_t bytes = p->read_bytes[0], least = (size_t)p->threads * MIB;
    if (bytes < least) bytes = least;
    uint8_t *buffer = hr_alloc_aligned(bytes, PAGE_HUGE);
    hr_status st = buffer
                       ? HR_OK
                       : hr_fail(HR_RESOURCE_EXHAUSTED,
                                 "peaks: a buffer of %zu MiB; --peak-mib takes less", bytes / MIB);
    if (!st) st = hr_pool_create(1, &one);
    if (!st) st = hr_pool_create(p->threads, &all);
    if (!st) measure_all(p, one, all, buffer, bytes);
    if (!st && p->threads > 1) p->barrier_us = measure_barrier(all);
    hr_pool_destroy(all);
    hr_pool_destroy(one);
    hr_free(buffer);
    return st;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static double best_read(const hr_bench_peaks *p, size_t s)
{
    double best = 0;
    for (int isa = 0; isa < HR_ISA_COUNT; isa++)
        for (int k = 0; k < 4; k++)
            if (p->read[isa][s][k % 2][k / 2] > best) best = p->read[isa][s][k % 2][k / 2];
    return best;
}

double hr_bench_peaks_memory(const hr_bench_peaks *p)
{
    return best_read(p, 0);
}

double hr_bench_peaks_arithmetic(const hr_bench_peaks *p, hr_bench_ops what)
{
    const double *v = p->ops[p->isa][what];
    return v[0] > v[1] ? v[0] : v[1];
}

double hr_bench_peaks_cached(const hr_bench_peaks *p, double bytes)
{
    size_t s = 0;
    while (s + 1 < p->n_reads && (double)p->read_bytes[s] > bytes) s++;
    return best_read(p, s);
}

/* ---- telling --------------------------------------------------------------------------------- */

static void add_size(hr_buf *out, size_t bytes, const char *isa)
{
    char size[32];
    if (bytes >= 1024 * MIB && bytes % (1024 * MIB) == 0)
        snprintf(size, sizeof size, "%zu GiB", bytes / MIB / 1024);
    else snprintf(size, sizeof size, "%zu MiB", bytes / MIB);
    hr_buf_printf(out, "  %-12s%-10s", size, isa);
}

static void add_reads(const hr_bench_peaks *p, hr_buf *out)
{
    char threads[32];
    snprintf(threads, sizeof threads, "%d thread%s", p->threads, p->threads == 1 ? "" : "s");
    hr_buf_printf(out, "%-24s%20s%20s\n%-24s%10s%10s%10s%10s\n", "read, GB/s", "1 thread", threads,
                  "", "plain", "streams", "plain", "streams");
    for (size_t s = 0; s < p->n_reads; s++)
        for (int isa = 0; isa < HR_ISA_COUNT; isa++) {
            if (!hr_isa_available((hr_isa)isa)) continue;
            add_size(out, p->read_bytes[s], hr_isa_name((hr_isa)isa));
            for (int k = 0; k < 4; k++) hr_buf_printf(out, "%10.1f", p->read[isa][s][k % 2][k / 2]);
            hr_buf_add_byte(out, '\n');
        }
}

void hr_bench_peaks_table(const hr_bench_peaks *p, hr_buf *out)
{
    add_reads(p, out);
    hr_buf_printf(out, "%-24s%20s%20s%20s\n", "arithmetic, Gop/s", hr_bench_ops_names[0],
                  hr_bench_ops_names[1], hr_bench_ops_names[2]);
    for (int isa = 0; isa < HR_ISA_COUNT; isa++) {
        if (!hr_isa_available((hr_isa)isa)) continue;
        hr_buf_printf(out, "  %-22s", hr_isa_name((hr_isa)isa));
        for (int k = 0; k < HR_BENCH_OPS; k++) {
            const double *v = p->ops[isa][k];
            char pair[32];
            snprintf(pair, sizeof pair, v[0] > 0 ? "%.1f / %.1f" : "-", v[0], v[1]);
            hr_buf_printf(out, "%20s", pair);
        }
        hr_buf_add_c(out, "\n");
    }
    if (p->threads > 1)
        hr_buf_printf(out, "%-24s%20.2f us, %d threads, median\n", "barrier", p->barrier_us,
                      p->threads);
}

static void add_json_read(const hr_bench_peaks *p, int isa, size_t s, hr_json_writer *w)
{
    for (int all = 0; all < (p->threads > 1 ? 2 : 1); all++) {
        hr_json_begin_object(w);
        hr_json_add_str(w, "isa", hr_isa_name((hr_isa)isa));
        hr_json_add_i64(w, "bytes", (int64_t)p->read_bytes[s]);
        hr_json_add_i64(w, "threads", all ? p->threads : 1);
        hr_json_add_f64(w, "plain_gb_s", p->read[isa][s][0][all]);
        hr_json_add_f64(w, "streams_gb_s", p->read[isa][s][1][all]);
        hr_json_end_object(w);
    }
}

static void add_json_ops(const hr_bench_peaks *p, int isa, int k, hr_json_writer *w)
{
    for (int all = 0; all < (p->threads > 1 ? 2 : 1) && p->ops[isa][k][0] > 0; all++) {
        hr_json_begin_object(w);
        hr_json_add_str(w, "isa", hr_isa_name((hr_isa)isa));
        hr_json_add_str(w, "what", hr_bench_ops_names[k]);
        hr_json_add_i64(w, "threads", all ? p->threads : 1);
        hr_json_add_f64(w, "gop_s", p->ops[isa][k][all]);
        hr_json_end_object(w);
    }
}

void hr_bench_peaks_json(const hr_bench_peaks *p, hr_json_writer *w)
{
    hr_json_begin_object(w);
    hr_json_key(w, HR_STR("read"));
    hr_json_begin_array(w);
    for (int isa = 0; isa < HR_ISA_COUNT; isa++)
        for (size_t s = 0; s < p->n_reads && hr_isa_available((hr_isa)isa); s++)
            add_json_read(p, isa, s, w);
    hr_json_end_array(w);
    hr_json_key(w, HR_STR("arithmetic"));
    hr_json_begin_array(w);
    for (int isa = 0; isa < HR_ISA_COUNT; isa++)
        for (int k = 0; k < HR_BENCH_OPS && hr_isa_available((hr_isa)isa); k++)
            add_json_ops(p, isa, k, w);
    hr_json_end_array(w);
    hr_json_add_f64(w, "memory_gb_s", hr_bench_peaks_memory(p));
    hr_json_key(w, HR_STR("barrier_us"));
    if (p->threads > 1) hr_json_f64(w, p->barrier_us);
    else hr_json_null(w);
    hr_json_end_object(w);
}
