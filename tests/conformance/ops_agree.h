/* One row of ops_table.def on two backends: whether they agree. Included by one test program each.
 *
 * Asked of a row is what its `agreement` says: the same bits, or a bound derived from length and
 * operands. Failures are cmocka's. */
#ifndef HEADRACE_TESTS_OPS_AGREE_H
#define HEADRACE_TESTS_OPS_AGREE_H

#include <math.h>

#include "conformance/ops_data.h"

static void ops_run(hr_backend *b, const ops_row *w, int64_t rows, int64_t live, hr_dtype d,
                    op_result *out)
{
    op_case c;
    ops_case_make(w, rows, live, d, &c);
    hr_status st = op_case_run(b, &c, out);
    ops_case_free(&c);
    if (st) fail_msg("%s %s on %s: %s", w->name, hr_dtype_name(d), b->v->name, hr_message());
}

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
    if (hr_format_has_zero_points(f)) return HR_I4G_HEAD;
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

/* The largest number of a cache of attention, whose codes have scales. */
static double largest_cached(const op_case *c, int pages, int scale)
{
    return largest(&c->in[pages]) * (c->in[scale].kind ? largest(&c->in[scale]) : 1);
}

/* Error of any output of attention, in units of the roundoff, by the largest operands. */
static double attention_noise(const ops_row *w, const op_case *c)
{
    double D = (double)c->in[0].shape.dim[2], scale = (double)w->attrs.scale;
    double s = scale * D * largest(&c->in[0]) * largest_cached(c, 1, 7), keys = 61;
    double score = 2 * (double)w->roundings * s + 4 * s + 8 * (double)w->attrs.cap;
    return (score + 2 * keys + 16) * largest_cached(c, 2, 8);
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

/* `got` is row w over `rows` rows, of which w->rows are live. */
static void ops_check_agreement(hr_backend *ref, const ops_row *w, const op_result *got,
                                int64_t rows, hr_dtype d)
{
    op_result want;
    op_case c;
    ops_run(ref, w, rows, w->rows, d, &want);
    if (w->agreement == EXACT) {
        assert_equal(w, got, &want);
    } else if (w->agreement != OWN_TEST) {
        ops_case_make(w, rows, w->rows, d, &c);
        agrees(w, &c, got, &want, w->rows);
        ops_case_free(&c);
    }
    op_result_deinit(&want);
}

#endif
