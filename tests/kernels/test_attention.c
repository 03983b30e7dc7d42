/* Attention: a token's bits are its own.
 *
 * One sequence, asked in every way a scheduler may: the whole prompt at once, token by token, in
 * chunks, beside other requests, under other block tables, split into any items. Whatever must not
 * be read is NaN (paged.h). The whole prompt is compared with a softmax in double; so is one query
 * over 32,768 keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <math.h>

#include "kernels/paged.h"

static const double U = 0x1p-24; /* unit roundoff of f32 */

static size_t row_bytes(const paged *p)
{
    return (size_t)(p->s.N * p->s.D) * hr_dtype_size(p->dtype);
}

/* Rows of a step that are not the whole prompt's, and bytes past them that were written. */
static void check_rows(const paged *p, const paged_ask *asks, int64_t n, const paged_step *s,
                       hr_isa isa, const char *whole, const char *what)
{
    const char *got = s->b.out[0];
    size_t row = row_bytes(p);
    for (int64_t r = 0; r < n; r++)
        for (int32_t t = asks[r].from; t < asks[r].to; t++, got += row)
            if (memcmp(got, whole + (size_t)t * row, row))
                fail_msg("%s, %s cache, D %lld, block %lld: token %d differs %s", hr_isa_name(isa),
                         hr_dtype_name(p->cache), (long long)p->s.D, (long long)p->s.block, t,
                         what);
    for (const char *end = (char *)s->b.out[0] + s->b.out_bytes[0]; got < end; got++)
        if ((unsigned char)*got != BED_UNTOUCHED) fail_msg("attention writes its padding");
}

/* Runs asks as one step, with ranges as items of their own and without, and compares their rows
 * with those of the whole prompt. */
static void check_step(const paged *p, const paged_ask *asks, int64_t n, hr_isa isa, int64_t items,
                       const char *whole, const char *what)
{
    paged_step s;
    paged_step_make(p, asks, n, &s);
    bed_run(&s.b, isa, items);
    check_rows(p, asks, n, &s, isa, whole, what);
    if (s.b.prep) {
        void *prep = s.b.prep;
        s.b.prep = NULL;
        bed_run(&s.b, isa, items);
        s.b.prep = prep;
        check_rows(p, asks, n, &s, isa, whole, "with no room for parts");
    }
    paged_step_free(&s);
}

static void check_ways(const paged *p, const char *whole, hr_isa isa)
{
    int32_t L = (int32_t)p->s.length;
    const paged_ask all = { 0, L };
    check_step(p, &all, 1, isa, 1, whole, "item by item");
    check_step(p, &all, 1, isa, 7, whole, "in runs of 7 items");
    for (int32_t t = 0; t < L; t += t < 70 ? 1 : t < 256 ? 13 : 37)
        check_step(p, &(paged_ask){ t, t + 1 }, 1, isa, 2, whole, "decoded alone");
    for (int32_t t = 0; t < L; t += 16)
        check_step(p, &(paged_ask){ t, t + 16 < L ? t + 16 : L }, 1, isa, 16, whole,
                   "in chunks of 16");
    /* prefill and decode of several requests in one step, in two orders of rows and tables */
    const paged_ask mixed[] = { { L - 1, L }, { 0, 5 }, { 60, 131 }, { 64, 65 }, { 17, 40 } };
    check_step(p, mixed, 5, isa, INT64_MAX / 2, whole, "beside other requests");
    const paged_ask other[] = { { 17, 40 }, { 60, 131 }, { L - 1, L }, { 3, 4 } };
    check_step(p, other, 4, isa, 5, whole, "beside yet other requests");
}

/* ---- the definition -------------------------------------------------------------------------- */

static double stored(hr_dtype d, float x)
{
    char as[4];
    paged_put(d, as, 0, x);
    return ops_float(d, as, 0);
}

/* Number d of a row of keys or values, as the cache holds it. */
static double cached(const paged *p, const float *row, int64_t d)
{
    if (p->cache != HR_DTYPE_I8) return stored(p->cache, row[d]);
    float scale = paged_scale(row, p->s.D);
    return (double)rintf(row[d] / scale) * (double)scale;
}

/* One query and head in double; *bound for f32 arithmetic: scores are off by their roundings (a
 * chain of 32 and its blocks, the scales, the cap), weights by that, the exponential and a scale,
 * sums by a chain of 64 keys and one step per chunk. */
static void define(const paged *p, int64_t t, int64_t n, double *y, double *bound)
{
    int64_t D = p->s.D, KV = p->s.KV, head = n / (p->s.N / KV), first = 0;
    const hr_attrs *at = &p->s.attrs;
    if (at->window > 0 && t - at->window + 1 > 0) first = t - at->window + 1;
    double *s = bed_alloc((size_t)(t + 1) * sizeof *s), most = -INFINITY, sum = 0, noise = 0;
    for (int64_t j = first; j <= t; j++) {
        double dot = 0, size = 0;
        for (int64_t d = 0; d < D; d++) {
            double x = stored(p->dtype, p->q[(t * p->s.N + n) * D + d]) *
                       cached(p, p->k + (j * KV + head) * D, d);
            dot += x;
            size += fabs(x);
        }
        s[j] = dot * (double)at->scale;
        noise = fmax(noise, size * (double)at->scale * (35 + (double)D / 32));
        if (at->cap > 0) s[j] = (double)at->cap * tanh(s[j] / (double)at->cap);
        most = fmax(most, s[j]);
    }
    if (p->s.sink) most = fmax(most, (double)p->sink[n]);
    if (p->s.sink) sum = exp((double)p->sink[n] - most);
    for (int64_t j = first; j <= t; j++) sum += s[j] = exp(s[j] - most);
    double chunks = (double)(t + 1 - first) / 64 + 2, in_exp = noise + 16 * (double)at->cap + 60;
    for (int64_t d = 0; d < D; d++) {
        double size = 0;
        y[d] = 0;
        for (int64_t j = first; j <= t; j++) {
            double v = cached(p, p->v + (j * KV + head) * D, d);
            y[d] += s[j] / sum * v;
            size += s[j] / sum * fabs(v);
        }
        bound[d] = U * size * (2 * in_exp + 2 * (64 + 3 * chunks) + 5);
    }
    hr_free(s);
}

static void check_definition(const paged *p, int64_t t, const void *row, hr_isa isa)
{
    double y[256], bound[256],
        half = p->dtype == HR_DTYPE_F32   ? U
               : p->dtype == HR_DTYPE_F16 ? 0x1p-11
                                          : 0x1p-8;
    for (int64_t n = 0; n < p->s.N; n++) {
        define(p, t, n, y, bound);
        for (int64_t d = 0; d < p->s.D; d++) {
            double got = ops_float(p->dtype, row, n * p->s.D + d);
            if (!(fabs(got - y[d]) <= bound[d] + half * (fabs(y[d]) + bound[d])))
                fail_msg("%s: token %lld, head %lld, dim %lld: %.9g, not %.9g ± %g",
                         hr_isa_name(isa), (long long)t, (long long)n, (long long)d, got, y[d],
                         bound[d]);
        }
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const paged_shape shapes[] = {
    { .N = 6, .KV = 2, .D = 64, .block = 16, .length = 200 },
    { .N = 3, .KV = 3, .D = 40, .block = 8, .length = 150, .attrs = { .window = 50 } },
    { .N = 4, .KV = 1, .D = 128, .block = 32, .length = 140, .attrs = { .cap = 2 } },
    { .N = 10, .KV = 2, .D = 20, .block = 5, .length = 135, .sink = true },
    { .N = 70, .KV = 1, .D = 33, .block = 64, .length = 133, .attrs = { .window = 70, .cap = 5 } },
    { .N = 2,
      .KV = 1,
      .D = 256,
      .block = 16,
      .length = 132,
      .sink = true,
      .attrs = { .window = 3 } },
    /* several ranges of keys */
    { .N = 3, .KV = 1, .D = 16, .block = 16, .length = 600, .sink = true },
    { .N = 4, .KV = 2, .D = 24, .block = 32, .length = 550, .attrs = { .window = 300 } },
};

static void check_shape(const paged_shape *s, hr_dtype dtype, hr_dtype cache, hr_isa isa)
{
    paged p;
    paged_step whole;
    paged_shape fits = *s;
    if (s->N > 64) fits.sink = false; /* paged.h has 64 */
    paged_make(&fits, dtype, cache, &p);
    paged_fill(&p, 0, s->length, 7);
    paged_step_make(&p, &(paged_ask){ 0, (int32_t)s->length }, 1, &whole);
    bed_run(&whole.b, isa, INT64_MAX / 2);
    for (int64_t t = 0; t < s->length; t += 11)
        check_definition(&p, t, (char *)whole.b.out[0] + (size_t)t * row_bytes(&p), isa);
    check_ways(&p, whole.b.out[0], isa);
    paged_step_free(&whole);
    paged_free(&p);
}

static void test_bits_are_a_tokens_own(void **state)
{
    (void)state;
    static const hr_dtype dtypes[][2] = {
        { HR_DTYPE_F32, HR_DTYPE_F32 },   { HR_DTYPE_F32, HR_DTYPE_F16 },
        { HR_DTYPE_BF16, HR_DTYPE_BF16 }, { HR_DTYPE_F32, HR_DTYPE_I8 },
        { HR_DTYPE_BF16, HR_DTYPE_I8 },   { HR_DTYPE_F16, HR_DTYPE_F32 }
    };
    for (int isa = 0; isa < HR_ISA_COUNT; isa++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes && hr_isa_available((hr_isa)isa); i++)
            for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
                check_shape(&shapes[i], dtypes[d][0], dtypes[d][1], (hr_isa)isa);
}

static void test_long_context(void **state)
{
    (void)state;
    const paged_shape s = { .N = 1, .KV = 1, .D = 64, .block = 16, .length = 32768 };
    paged p;
    paged_step one;
    paged_make(&s, HR_DTYPE_F32, HR_DTYPE_BF16, &p);
    paged_fill(&p, 0, s.length, 3);
    paged_step_make(&p, &(paged_ask){ 32767, 32768 }, 1, &one);
    for (int isa = 0; isa < HR_ISA_COUNT; isa++) {
        if (!hr_isa_available((hr_isa)isa)) continue;
        bed_run(&one.b, (hr_isa)isa, 1);
        check_definition(&p, 32767, one.b.out[0], (hr_isa)isa);
    }
    paged_step_free(&one);
    paged_free(&p);
}

/* A NaN in one request's keys stays in that request. */
static void check_nan(hr_dtype cache)
{
    const paged_shape s = { .N = 2, .KV = 1, .D = 32, .block = 16, .length = 40 };
    paged p;
    paged_make(&s, HR_DTYPE_F32, cache, &p);
    paged_fill(&p, 0, 40, 5);
    p.k[30 * 32 + 7] = NAN;
    const paged_ask asks[] = { { 10, 12 }, { 35, 36 }, { 28, 30 } };
    paged_step step;
    paged_step_make(&p, asks, 3, &step);
    for (int isa = 0; isa < HR_ISA_COUNT; isa++) {
        if (!hr_isa_available((hr_isa)isa)) continue;
        bed_run(&step.b, (hr_isa)isa, INT64_MAX / 2);
        const float *y = step.b.out[0];
        for (int i = 0; i < 5 * 64; i++)
            if (!isnan(y[i]) != (i / 64 != 2))
                fail_msg("%s: row %d is %g", hr_isa_name((hr_isa)isa), i / 64, (double)y[i]);
    }
    paged_step_free(&step);
    paged_free(&p);
}

static void test_nan_stays_at_home(void **state)
{
    (void)state;
    check_nan(HR_DTYPE_F32);
    check_nan(HR_DTYPE_I8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_are_a_tokens_own),
        cmocka_unit_test(test_long_context),
        cmocka_unit_test(test_nan_stays_at_home),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
