/* --bench: time and memory traffic of every kernel on every instruction set, one thread, the best
 * of several runs. Never a test: figures are for people, who know what else the machine did. */
#ifndef HEADRACE_TESTS_KERNELS_BENCH_H
#define HEADRACE_TESTS_KERNELS_BENCH_H

#include <time.h>

#include "kernels/paged.h"

static const ops_row bench_table[] = {
#define CASE(o, how, t, n, words, ...)                                                             \
    { .name = #o, .op = HR_OP_##o, .agreement = how, .rows = t, .operands = words, __VA_ARGS__ },
#include "kernels/bench.def"
#undef CASE
};
enum { BENCH_ROWS = sizeof bench_table / sizeof *bench_table };

static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Best nanoseconds of one call over all items: 7 rounds of about 2 ms. */
static inline double bench_time(bed *b, hr_isa isa)
{
    hr_kernel_args a = bed_args(b);
    double best = INFINITY;
    if (hr_op_is_in_place(b->c->op)) {
        memcpy(b->out[0], b->in[0], b->out_bytes[0]);
        a.in[0] = b->out[0];
    }
    for (int round = 0; round < 7; round++) {
        double start = bench_now(), end = start;
        int64_t calls = 0;
        for (; end - start < 2e6; calls++, end = bench_now()) bed_call(b, isa, &a, INT64_MAX / 2);
        if ((end - start) / (double)calls < best) best = (end - start) / (double)calls;
    }
    return best;
}

/* `work`: what the kernel must move or compute, in `unit`s. `from`: first instruction set. */
static inline void bench_line(bed *b, const char *what, double work, const char *unit, int from)
{
    printf("%-16s %-22s", hr_op_name(b->c->op), what);
    for (int isa = from; isa < HR_ISA_COUNT; isa++) {
        if (!hr_isa_available((hr_isa)isa)) continue;
        double ns = bench_time(b, (hr_isa)isa);
        printf("  %-6s %11.0f ns %7.2f %s", hr_isa_name((hr_isa)isa), ns, work / ns, unit);
    }
    printf("\n");
}

static inline void bench_row(const ops_row *w)
{
    op_case c;
    bed b;
    char what[64];
    double bytes = 0;
    ops_case_make(w, w->rows, w->rows, HR_DTYPE_F32, &c);
    bed_make(&c, &b);
    snprintf(what, sizeof what, "%s", w->operands);
    for (int i = 0; i < c.n_in; i++)
        if (!(i == 0 && hr_op_is_in_place(w->op))) bytes += (double)op_operand_bytes(&c.in[i]);
    for (int i = 0; i < b.node->n_out && !hr_op_is_in_place(w->op); i++)
        bytes += (double)b.out_bytes[i];
    what[22] = 0;
    bench_line(&b, what, bytes, "GB/s", 0);
    bed_free(&b);
    ops_case_free(&c);
}

/* One request of `keys` keys of which the last `queries` are asked, SmolLM2's heads. One query is
 * bound by the keys and values it reads, many by their products; plain C waits out the long ones.
 */
static inline void bench_attention(hr_dtype cache, int32_t keys, int32_t queries)
{
    char what[64];
    const paged_shape s = { .N = 9, .KV = 3, .D = 64, .block = 16, .length = keys };
    paged p;
    paged_make(&s, HR_DTYPE_F32, cache, &p);
    paged_fill(&p, 0, keys, 1);
    paged_ask ask = { .from = keys - queries, .to = keys };
    paged_step step;
    paged_step_make(&p, &ask, 1, &step);
    snprintf(what, sizeof what, "%d of %d, %s", queries, keys, hr_dtype_name(cache));
    double pairs = 0, bytes = 2.0 * keys * 3 * 64 * (double)hr_dtype_size(cache);
    for (int32_t t = ask.from; t < ask.to; t++) pairs += t + 1;
    bool many = queries > 1;
    bench_line(&step.b, what, many ? pairs * 9 * 64 * 4 : bytes, many ? "GFLOP/s" : "GB/s",
               (double)queries * keys > 1e5);
    paged_step_free(&step);
    paged_free(&p);
}

static inline int bench_all(const char *only)
{
    for (int i = 0; i < BENCH_ROWS; i++)
        if (!only || !strcmp(only, bench_table[i].name)) bench_row(&bench_table[i]);
    if (only && strcmp(only, "attention") != 0) return 0;
    static const int32_t asks[][2] = { { 128, 1 },   { 1024, 1 },  { 8192, 1 },   { 32768, 1 },
                                       { 1024, 16 }, { 512, 512 }, { 2048, 512 }, { 4096, 2048 } };
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        bench_attention(HR_DTYPE_F32, asks[i][0], asks[i][1]);
        bench_attention(HR_DTYPE_BF16, asks[i][0], asks[i][1]);
        bench_attention(HR_DTYPE_I8, asks[i][0], asks[i][1]);
    }
    return 0;
}

static inline void test_every_kernel_has_a_bench(void **state)
{
    (void)state;
    for (int op = 0; op < HR_OP_COUNT; op++) {
        bool found = op == HR_OP_attention || !hr_kernel_lookup((hr_op)op, HR_ISA_scalar);
        for (int i = 0; i < BENCH_ROWS; i++) found = found || bench_table[i].op == (hr_op)op;
        if (!found) fail_msg("bench.def has no line for %s", hr_op_name((hr_op)op));
    }
}

#endif
