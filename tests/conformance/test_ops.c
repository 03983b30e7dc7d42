/* Every op on ref and on cpu, through the backend seam: the table of ops_table.def × dtypes.
 *
 * Asked of each row, under every instruction set of this machine:
 *   agreement    cpu is ref, within a bound derived from length and operands (agrees() below);
 * copies, single operations and integer results to the bit. Tighter oracles, independent of ref,
 * are in test_backbone_ops.py and test_sampler_ops.py. its own      a row's bits do not depend on
 * the number of threads, on how many rows are live, or on the bucket; padding rows hold NaN
 * patterns, which nobody may read, and result rows past the live count stay as they were. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>

#include "conformance/ops_data.h"
#include "cpu/cpu.h"
#include "cpu/isa.h"
#include "ref/ref.h"

enum { PAD = 13, MOST_THREADS = 3 };

/* ---- running -----------------------------------------------------------------------------------
 */

static void run(hr_backend *b, const ops_row *w, int64_t rows, int64_t live, hr_dtype d,
                op_result *out)
{
    op_case c;
    ops_case_make(w, rows, live, d, &c);
    hr_status st = op_case_run(b, &c, out);
    ops_case_free(&c);
    if (st) fail_msg("%s %s on %s: %s", w->name, hr_dtype_name(d), b->v->name, hr_message());
}

/* Bytes of the first n rows of a result; whole for what is bounded by no live count. */
static size_t row_bytes(const ops_row *w, const op_result *r, int i, int64_t n)
{
    if (hr_op_is_in_place(w->op)) return r->out[i].bytes;
    return r->out[i].bytes / (size_t)r->out[i].shape.dim[0] * (size_t)n;
}

static void assert_same_rows(const ops_row *w, const op_result *a, const op_result *b, int64_t n,
                             const char *what)
{
    for (int i = 0; i < a->n; i++)
        if (memcmp(a->out[i].data, b->out[i].data, row_bytes(w, a, i, n)))
            fail_msg("%s (format %s): result %d depends on %s", w->name, hr_format_name(w->format),
                     i, what);
}

static void assert_untouched(const ops_row *w, const op_result *r, int64_t live)
{
    for (int i = 0; i < r->n && !hr_op_is_in_place(w->op); i++)
        for (size_t k = row_bytes(w, r, i, live); k < r->out[i].bytes; k++)
            if (((const unsigned char *)r->out[i].data)[k])
                fail_msg("%s: result %d is written past the live count", w->name, i);
}

/* ---- agreement
 * ----------------------------------------------------------------------------------- */

static double largest(const op_operand *o)
{
    double most = 0;
    for (int64_t i = 0; i < hr_shape_count(o->shape); i++) {
        double v = fabs(ops_float(o->kind == OP_INPUT ? o->dtype : HR_DTYPE_F32, o->data, i));
        if (v > most) most = v; /* padding is NaN and never more */
    }
    return most;
}

/* The part of a block that is no code: with the codes at zero a weight is its minimum alone. */
static size_t codes_at(hr_format f)
{
    if (f == HR_FORMAT_Q4_1 || f == HR_FORMAT_Q5_1) return 4;
    return f == HR_FORMAT_Q4_K || f == HR_FORMAT_Q5_K ? 16 : 0;
}

/* |w| + 2 |min| of every weight: what meets a rounding when a group is scale × integer sum plus min
 * × sum of x. */
static double *magnitudes(const op_operand *o)
{
    int64_t count = hr_shape_count(o->shape), block = hr_format_block(o->format);
    size_t bytes = op_operand_bytes(o), block_bytes = hr_format_block_bytes(o->format);
    float *w = ops_alloc((size_t)count * sizeof *w), *m = ops_alloc((size_t)count * sizeof *m);
    double *size = ops_alloc((size_t)count * sizeof *size);
    unsigned char *bare = ops_alloc(bytes);
    memcpy(bare, o->data, bytes);
    for (size_t i = 0; i < bytes && codes_at(o->format); i++)
        if (i % block_bytes >= codes_at(o->format)) bare[i] = 0;
    hr_format_dequantise(o->format, o->data, count / block, w);
    if (codes_at(o->format)) hr_format_dequantise(o->format, bare, count / block, m);
    for (int64_t i = 0; i < count; i++) {
        int64_t n = i / o->shape.dim[o->shape.rank - 1];
        size[i] = fabs((double)w[i]) + 2 * fabs((double)m[i]);
        if (o->format == HR_FORMAT_I8C) size[i] *= (double)o->scale[n];
    }
    hr_free(w);
    hr_free(m);
    hr_free(bare);
    return size;
}

/* sum |x w| of one result of linear, and its bias. */
static double linear_size(const op_case *c, const double *w, int64_t t, int64_t n)
{
    const hr_shape s = c->in[1].shape;
    int64_t N = s.dim[s.rank - 2], K = s.dim[s.rank - 1];
    int64_t G = c->in[4].kind ? c->in[4].shape.dim[1] : 1;
    double sum = c->in[2].kind ? fabs(ops_float(HR_DTYPE_F32, c->in[2].data, n)) : 0;
    int64_t e = c->in[3].kind ? ((const int32_t *)c->in[3].data)[t] : 0;
    for (int64_t k = 0; k < K && e >= 0; k++) {
        double x = c->in[4].kind ? (double)((const int8_t *)c->in[0].data)[t * K + k] *
                                       (double)((const float *)c->in[4].data)[t * G + k * G / K]
                                 : ops_float(c->in[0].dtype, c->in[0].data, t * K + k);
        sum += fabs(x) * w[(e * N + n) * K + k];
    }
    return sum;
}

/* Error of any output of attention, in units of the roundoff, by the largest operands. */
static double attention_noise(const ops_row *w, const op_case *c)
{
    double D = (double)c->in[0].shape.dim[2], scale = (double)w->attrs.scale;
    double s = scale * D * largest(&c->in[0]) * largest(&c->in[1]), keys = 61;
    double score = 2 * (double)w->roundings * s + 4 * s + 8 * (double)w->attrs.cap;
    return (score + 2 * keys + 16) * largest(&c->in[2]);
}

/* Result element e within its bound: u = 2^-24 per rounding of f32 arithmetic in any order
 * (w->roundings of them along the longest sum), then one rounding to the result's dtype on each
 * side where the two may fall apart. */
static double noise_of(const ops_row *w, const op_case *c, const double *weights, int64_t e,
                       double y, int64_t columns)
{
    double n = (double)w->roundings;
    switch (w->agreement) {
    case RELATIVE: return n * fabs(y);
    case BESIDE_X: return n * 2 * largest(&c->in[0]) * (w->attrs.scale > 0 ? 1.1 : 1);
    case LINEAR: return n * linear_size(c, weights, e / columns, e % columns);
    case ATTENTION: return attention_noise(w, c);
    case EXACT:
    case OWN_TEST: break;
    }
    return 0;
}

/* The same numbers: to the bit, but for the sign of a zero, which no reader can tell. */
static bool same_number(hr_dtype d, const void *a, const void *b, int64_t i)
{
    size_t size = hr_dtype_size(d), at = (size_t)i * size;
    if (!memcmp((const char *)a + at, (const char *)b + at, size)) return true;
    return hr_dtype_is_float(d) && ops_float(d, a, i) == ops_float(d, b, i);
}

static void assert_equal(const ops_row *w, const op_result *got, const op_result *want)
{
    for (int k = 0; k < got->n; k++)
        for (int64_t i = 0; i < hr_shape_count(got->out[k].shape); i++)
            if (!same_number(got->out[k].dtype, got->out[k].data, want->out[k].data, i))
                fail_msg("%s %s (format %s): result %d, element %lld is not ref's", w->name,
                         hr_dtype_name(got->out[0].dtype), hr_format_name(w->format), k,
                         (long long)i);
}

static void agrees(const ops_row *w, const op_case *c, const op_result *got, const op_result *want,
                   int64_t live)
{
    hr_dtype d = got->out[0].dtype;
    int64_t columns = hr_shape_row(got->out[0].shape);
    double half = d == HR_DTYPE_F32 ? 0x1p-24 : d == HR_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    double smallest = d == HR_DTYPE_F16 ? 0x1p-24 : 0x1p-126;
    double *weights = w->agreement == LINEAR ? magnitudes(&c->in[1]) : NULL;
    /* the largest operand does not change from element to element */
    bool fixed = w->agreement == BESIDE_X || w->agreement == ATTENTION;
    double once = fixed ? noise_of(w, c, NULL, 0, 0, 1) : 0;
    for (int64_t e = 0; e < live * columns; e++) {
        double y = ops_float(d, want->out[0].data, e), g = ops_float(d, got->out[0].data, e);
        double noise = 0x1p-24 * (fixed ? once : noise_of(w, c, weights, e, y, columns));
        double inner = 0; /* a sum that is rounded to the dtype before its bias */
        if (w->agreement == LINEAR && c->in[2].kind)
            inner = fabs(y) + fabs(ops_float(HR_DTYPE_F32, c->in[2].data, e % columns));
        double bound = noise + 2 * half * (fabs(y) + noise + inner) + smallest;
        if (!(fabs(g - y) <= bound))
            fail_msg("%s %s: element %lld is %.9g, ref %.9g, bound %g", w->name, hr_dtype_name(d),
                     (long long)e, g, y, bound);
    }
    hr_free(weights);
}

static void check_agreement(hr_backend *ref, const ops_row *w, const op_result *got, hr_dtype d)
{
    op_result want;
    op_case c;
    run(ref, w, w->rows, w->rows, d, &want);
    if (w->agreement == EXACT) {
        assert_equal(w, got, &want);
    } else if (w->agreement != OWN_TEST) {
        ops_case_make(w, w->rows, w->rows, d, &c);
        agrees(w, &c, got, &want, w->rows);
        ops_case_free(&c);
    }
    op_result_deinit(&want);
}

static void check_row(hr_backend *ref, hr_backend *const cpu[MOST_THREADS], const ops_row *w,
                      hr_dtype d)
{
    op_result whole, other;
    run(cpu[0], w, w->rows, w->rows, d, &whole);
    check_agreement(ref, w, &whole, d);
    for (int t = 1; t < MOST_THREADS; t++) {
        run(cpu[t], w, w->rows, w->rows, d, &other);
        assert_same_rows(w, &whole, &other, w->rows, "the number of threads");
        op_result_deinit(&other);
    }
    for (int64_t live = 1; live < w->rows && !hr_op_is_in_place(w->op); live += live < 4 ? 1 : 5) {
        run(cpu[live % MOST_THREADS], w, w->rows, live, d, &other);
        assert_same_rows(w, &whole, &other, live, "the number of live rows");
        assert_untouched(w, &other, live);
        op_result_deinit(&other);
    }
    run(cpu[1], w, w->rows + PAD, w->rows, d, &other);
    assert_same_rows(w, &whole, &other, w->rows, "the bucket");
    assert_untouched(w, &other, w->rows);
    op_result_deinit(&other);
    op_result_deinit(&whole);
}

static void check_isa(const char *isa)
{
    hr_backend *ref, *cpu[MOST_THREADS];
    assert_int_equal(hr_ref_backend_create(&ref), HR_OK);
    for (int t = 0; t < MOST_THREADS; t++) {
        hr_cpu_options o = { .threads = t + 1, .isa = isa };
        if (hr_cpu_backend_create(&o, &cpu[t])) fail_msg("%s: %s", isa, hr_message());
    }
    for (size_t i = 0; i < ops_table_n; i++)
        for (hr_dtype d = HR_DTYPE_F32; d <= HR_DTYPE_F16; d++)
            if (d == HR_DTYPE_F32 || ops_has_dtypes(&ops_table[i]))
                check_row(ref, cpu, &ops_table[i], d);
    for (int t = 0; t < MOST_THREADS; t++) hr_backend_destroy(cpu[t]);
    op_backend_destroy(ref);
}

static void test_isa(void **state)
{
    hr_isa isa = *(const hr_isa *)*state;
    if (!hr_isa_available(isa)) skip();
    check_isa(hr_isa_name(isa));
}

/* Every op has a row here, or a test in test_sampler_ops.py. */
static void test_table_is_complete(void **state)
{
    (void)state;
    static const hr_op elsewhere[] = {
        HR_OP_bias_ids,     /* ids are unique per row */
        HR_OP_count_tokens, /* updates in list order */
        HR_OP_write_rows,
    };
    for (int op = 0; op < HR_OP_COUNT; op++) {
        bool found = false;
        for (size_t i = 0; i < ops_table_n; i++) found = found || (int)ops_table[i].op == op;
        for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
            found = found || (int)elsewhere[i] == op;
        if (!found) fail_msg("%s has no row", hr_op_name((hr_op)op));
    }
}

int main(void)
{
    static hr_isa isas[] = { HR_ISA_scalar, HR_ISA_avx2, HR_ISA_avx512 };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_complete),
        { "scalar", test_isa, NULL, NULL, &isas[0] },
        { "avx2", test_isa, NULL, NULL, &isas[1] },
        { "avx512", test_isa, NULL, NULL, &isas[2] },
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
