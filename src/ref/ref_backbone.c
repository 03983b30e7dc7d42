/* Reference of the backbone's row-wise ops: norms, rope, activations, arithmetic, copies.
 *
 * Pure functions. Each reads as its line in ops.def: float operands are taken to double, the
 * formula is evaluated there, and the result is rounded once, in hr_ref_put. */
#include "ref/ref_int.h"

#include <math.h>

/* Live elements of a value: whole rows. */
static int64_t live_count(const hr_ref_args *a, const hr_value *v)
{
    return hr_ref_rows(a, v) * hr_shape_row(v->shape);
}

hr_status hr_ref_embed(const hr_ref_args *a)
{
    const hr_value *y = a->node->out[0], *w = a->node->in[1];
    const int32_t *ids = a->in[0]; /* [T] */
    int64_t V = w->shape.dim[0], H = w->shape.dim[1];
    float *row = hr_alloc((size_t)H * sizeof *row);
    if (!row) return hr_fail(HR_RESOURCE_EXHAUSTED, "ref: embed");
    hr_status st = HR_OK;
    for (int64_t t = 0; !st && t < hr_ref_rows(a, y); t++) {
        bool known = ids[t] >= 0 && ids[t] < V;
        if (known) st = hr_ref_weight_row(w->weight, ids[t], row);
        for (int64_t h = 0; !st && h < H; h++)
            hr_ref_put(y->dtype, a->out[0], t * H + h, known ? (double)row[h] : 0);
    }
    hr_free(row);
    return st;
}

/* Groups of columns of one row: scale = absmax / 127 in f32, q = x / scale in f32, to nearest
 * even. A group of zeros has scale 1. One that holds an infinity or a NaN has scale NaN and zeros,
 * so that whatever is computed from it is NaN too. */
static void quantise_group(const hr_value *x, const void *in, int64_t at, int64_t n, int8_t *q,
                           float *scale)
{
    float most = 0;
    for (int64_t k = 0; k < n; k++) {
        float v = (float)hr_ref_get(x->dtype, in, at + k);
        if (!isfinite(v)) most = NAN;
        if (fabsf(v) > most) most = fabsf(v); /* never true once most is NaN */
    }
    *scale = most / 127;
    if (*scale == 0) *scale = 1; /* zeros, or so small that the scale would be */
    for (int64_t k = 0; k < n; k++) {
        float v = (float)hr_ref_get(x->dtype, in, at + k) / *scale;
        q[at + k] = isnan(*scale) ? 0 : (int8_t)fmin(fmax(nearbyint((double)v), -127), 127);
    }
}

hr_status hr_ref_quantise_rows(const hr_ref_args *a)
{
    const hr_value *x = a->node->in[0];
    int64_t K = x->shape.dim[1], group = a->node->attrs.group, G = K / group;
    float *scale = a->out[1]; /* [T,G] */
    for (int64_t i = 0; i < hr_ref_rows(a, x) * G; i++)
        quantise_group(x, a->in[0], i * group, group, a->out[0], &scale[i]);
    return HR_OK;
}

hr_status hr_ref_rms_norm(const hr_ref_args *a)
{
    const hr_value *x = a->node->in[0], *w = a->node->in[1];
    int64_t H = w->shape.dim[0];
    const float *weight = a->in[1]; /* [H] */
    for (int64_t row = 0; row < live_count(a, x) / H; row++) {
        double sum = 0;
        for (int64_t h = 0; h < H; h++) {
            double v = hr_ref_get(x->dtype, a->in[0], row * H + h);
            sum += v * v;
        }
        double r = 1 / sqrt(sum / (double)H + (double)a->node->attrs.eps);
        for (int64_t h = 0; h < H; h++) {
            double v = hr_ref_get(x->dtype, a->in[0], row * H + h);
            double g = (double)weight[h] + (double)a->node->attrs.offset;
            hr_ref_put(x->dtype, a->out[0], row * H + h, v * r * g);
        }
    }
    return HR_OK;
}

hr_status hr_ref_layer_norm(const hr_ref_args *a)
{
    const hr_value *x = a->node->in[0];
    int64_t H = x->shape.dim[1];
    const float *weight = a->in[1], *bias = a->in[2]; /* [H], [H] or NULL */
    for (int64_t t = 0; t < hr_ref_rows(a, x); t++) {
        double mean = 0, var = 0;
        for (int64_t h = 0; h < H; h++) mean += hr_ref_get(x->dtype, a->in[0], t * H + h);
        mean /= (double)H;
        for (int64_t h = 0; h < H; h++) {
            double d = hr_ref_get(x->dtype, a->in[0], t * H + h) - mean;
            var += d * d;
        }
        double r = 1 / sqrt(var / (double)H + (double)a->node->attrs.eps);
        for (int64_t h = 0; h < H; h++) {
            double d = hr_ref_get(x->dtype, a->in[0], t * H + h) - mean;
            double b = bias ? (double)bias[h] : 0;
            hr_ref_put(x->dtype, a->out[0], t * H + h, d * r * (double)weight[h] + b);
        }
    }
    return HR_OK;
}

/* Rotate-half: columns i and F + i turn by position × inv_freq[i], a product rounded to f32 as
 * Hugging Face does; columns from 2F on pass through. */
static void rope_head(const hr_ref_args *a, int64_t t, int64_t at)
{
    const hr_node *n = a->node;
    hr_dtype dtype = n->in[0]->dtype;
    int64_t T = n->in[0]->shape.dim[0], D = n->in[0]->shape.dim[2], F = n->in[2]->shape.dim[0];
    const int32_t *positions = a->in[1]; /* [3,T] */
    const float *inv_freq = a->in[2];    /* [F] */
    for (int64_t i = 0; i < F; i++) {
        int axis = hr_rope_axis(n->attrs.sections, (int32_t)i);
        float angle = (float)positions[axis * T + t] * inv_freq[i];
        double c = cos((double)angle) * (double)n->attrs.scale;
        double s = sin((double)angle) * (double)n->attrs.scale;
        double x = hr_ref_get(dtype, a->in[0], at + i);
        double y = hr_ref_get(dtype, a->in[0], at + F + i);
        hr_ref_put(dtype, a->out[0], at + i, x * c - y * s);
        hr_ref_put(dtype, a->out[0], at + F + i, y * c + x * s);
    }
    for (int64_t i = 2 * F; i < D; i++)
        hr_ref_put(dtype, a->out[0], at + i, hr_ref_get(dtype, a->in[0], at + i));
}

hr_status hr_ref_rope(const hr_ref_args *a)
{
    const hr_value *x = a->node->in[0];
    int64_t N = x->shape.dim[1], D = x->shape.dim[2];
    for (int64_t t = 0; t < hr_ref_rows(a, x); t++)
        for (int64_t n = 0; n < N; n++) rope_head(a, t, (t * N + n) * D);
    return HR_OK;
}

static double activate(hr_activation act, double x)
{
    switch (act) {
    case HR_ACT_NONE: return x;
    case HR_ACT_SILU: return x / (1 + exp(-x));
    case HR_ACT_GELU: return x * 0.5 * (1 + erf(x * M_SQRT1_2));
    case HR_ACT_GELU_TANH:
        return x * 0.5 * (1 + tanh(M_SQRT1_2 * M_2_SQRTPI * (x + 0.044715 * x * x * x)));
    case HR_ACT_RELU: return x < 0 ? 0 : x;
    }
    return x;
}

/* One float in, one float out. */
static double unary(const hr_node *n, double x)
{
    const hr_attrs *at = &n->attrs;
    if (n->op == HR_OP_activation) return activate(at->act, x);
    if (n->op == HR_OP_scale) return x * (double)at->scale;
    if (n->op == HR_OP_softcap) return (double)at->cap * tanh(x / (double)at->cap);
    return x; /* cast: rounding is what it does */
}

static hr_status map(const hr_ref_args *a)
{
    const hr_value *x = a->node->in[0], *y = a->node->out[0];
    for (int64_t i = 0; i < live_count(a, x); i++)
        hr_ref_put(y->dtype, a->out[0], i, unary(a->node, hr_ref_get(x->dtype, a->in[0], i)));
    return HR_OK;
}

hr_status hr_ref_activation(const hr_ref_args *a)
{
    return map(a);
}

hr_status hr_ref_scale(const hr_ref_args *a)
{
    return map(a);
}

hr_status hr_ref_softcap(const hr_ref_args *a)
{
    return map(a);
}

hr_status hr_ref_cast(const hr_ref_args *a)
{
    return map(a);
}

hr_status hr_ref_add(const hr_ref_args *a)
{
    hr_dtype d = a->node->in[0]->dtype;
    for (int64_t i = 0; i < live_count(a, a->node->in[0]); i++)
        hr_ref_put(d, a->out[0], i, hr_ref_get(d, a->in[0], i) + hr_ref_get(d, a->in[1], i));
    return HR_OK;
}

hr_status hr_ref_mul(const hr_ref_args *a)
{
    hr_dtype d = a->node->in[0]->dtype;
    for (int64_t i = 0; i < live_count(a, a->node->in[0]); i++)
        hr_ref_put(d, a->out[0], i, hr_ref_get(d, a->in[0], i) * hr_ref_get(d, a->in[1], i));
    return HR_OK;
}

hr_status hr_ref_reshape(const hr_ref_args *a)
{
    const hr_value *x = a->node->in[0];
    memcpy(a->out[0], a->in[0], (size_t)live_count(a, x) * hr_dtype_size(x->dtype));
    return HR_OK;
}

hr_status hr_ref_gather_rows(const hr_ref_args *a)
{
    const hr_value *x = a->node->in[0], *y = a->node->out[0];
    const int32_t *rows = a->in[1]; /* [R] */
    int64_t T = x->shape.dim[0];
    size_t bytes = (size_t)hr_shape_row(x->shape) * hr_dtype_size(x->dtype);
    for (int64_t r = 0; r < hr_ref_rows(a, y); r++) {
        int64_t from = rows[r] < 0 ? 0 : rows[r] >= T ? T - 1 : rows[r];
        memcpy((char *)a->out[0] + (size_t)r * bytes, (const char *)a->in[0] + (size_t)from * bytes,
               bytes);
    }
    return HR_OK;
}
