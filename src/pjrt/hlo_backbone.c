/* StableHLO of the backbone's row-wise ops: norms, rope, activations, arithmetic, rows, the cache.
 *
 * One emitter per op, its formula in f32, rounded to the node's dtype once, at the end. */
#include <math.h>

#include "pjrt/hlo_int.h"

static hr_hlo_value f32_splat(hr_hlo *h, hr_hlo_shape s, double x)
{
    return hr_hlo_splat_f(h, hr_hlo_retype(s, HR_HLO_F32), x);
}

/* ---- norms ---------------------------------------------------------------------------------- */

/* Mean over the last axis, with that axis put back. */
static hr_hlo_value mean(hr_hlo *h, hr_hlo_value x)
{
    int last = x.shape.rank - 1;
    hr_hlo_value sum = hr_hlo_reduce(h, "add", x, last);
    hr_hlo_value n = f32_splat(h, sum.shape, (double)x.shape.dim[last]);
    return hr_hlo_along(h, hr_hlo_binary(h, "divide", sum, n), x.shape, 0);
}

/* x / sqrt(mean of x² + eps) */
static hr_hlo_value over_rms(hr_hlo *h, hr_hlo_value x, float eps)
{
    hr_hlo_value m = mean(h, hr_hlo_binary(h, "multiply", x, x));
    hr_hlo_value root = hr_hlo_unary(h, "sqrt", hr_hlo_binary_f(h, "add", m, (double)eps));
    return hr_hlo_binary(h, "divide", x, root);
}

hr_status hr_hlo_emit_rms_norm(hr_hlo_emit *e)
{
    hr_hlo *h = e->h;
    hr_hlo_value x = hr_hlo_f32(e, 0), w = e->in[1]; /* [T,..,H], [H] */
    float offset = e->node->attrs.offset;
    hr_hlo_value y = over_rms(h, x, e->node->attrs.eps);
    if (offset < 0 || offset > 0) w = hr_hlo_binary_f(h, "add", w, (double)offset);
    w = hr_hlo_along(h, w, x.shape, x.shape.rank - 1);
    e->out[0] = hr_hlo_round_to(e, hr_hlo_binary(h, "multiply", y, w));
    return HR_OK;
}

hr_status hr_hlo_emit_layer_norm(hr_hlo_emit *e)
{
    hr_hlo *h = e->h;
    hr_hlo_value x = hr_hlo_f32(e, 0); /* [T,H] */
    hr_hlo_value y = hr_hlo_binary(h, "subtract", x, mean(h, x));
    y = over_rms(h, y, e->node->attrs.eps);
    y = hr_hlo_binary(h, "multiply", y, hr_hlo_along(h, e->in[1], y.shape, 1));
    if (e->in[2].id >= 0) y = hr_hlo_binary(h, "add", y, hr_hlo_along(h, e->in[2], y.shape, 1));
    e->out[0] = hr_hlo_round_to(e, y);
    return HR_OK;
}

/* ---- rope ----------------------------------------------------------------------------------- */

/* f32 [T,F]: position of the axis that each column pair follows. */
static hr_hlo_value axis_positions(hr_hlo_emit *e, int64_t T, int64_t F)
{
    const int32_t *sections = e->node->attrs.sections;
    hr_hlo_value piece[3];
    int n = 0, axes = sections[0] + sections[1] + sections[2] ? 3 : 1;
    for (int axis = 0; axis < axes; axis++) {
        int64_t columns = axes == 1 ? F : sections[axis];
        if (!columns) continue;
        hr_hlo_value row = hr_hlo_slice(e->h, e->in[1], 0, axis, axis + 1);
        row = hr_hlo_convert(e->h, hr_hlo_reshape(e->h, row, HR_HLO_SHAPE(I32, T)), HR_HLO_F32);
        piece[n++] = hr_hlo_along(e->h, row, HR_HLO_SHAPE(F32, T, columns), 0);
    }
    return n == 1 ? piece[0] : hr_hlo_concatenate(e->h, piece, n, 1);
}

/* cosine or sine of the angles [T,F], × the attention factor, for all heads. */
static hr_hlo_value turn(hr_hlo_emit *e, const char *name, hr_hlo_value angle, hr_hlo_shape half)
{
    hr_hlo_value v = hr_hlo_unary(e->h, name, angle);
    v = hr_hlo_binary_f(e->h, "multiply", v, (double)e->node->attrs.scale);
    return hr_hlo_broadcast(e->h, v, half, (int[]){ 0, 2 });
}

hr_status hr_hlo_emit_rope(hr_hlo_emit *e)
{
    hr_hlo *h = e->h;
    hr_hlo_value x = hr_hlo_f32(e, 0); /* [T,N,D] */
    int64_t T = x.shape.dim[0], N = x.shape.dim[1], D = x.shape.dim[2];
    int64_t F = e->in[2].shape.dim[0];
    hr_hlo_shape half = HR_HLO_SHAPE(F32, T, N, F);
    hr_hlo_value angle = axis_positions(e, T, F);
    angle = hr_hlo_binary(h, "multiply", angle, hr_hlo_along(h, e->in[2], angle.shape, 1));
    hr_hlo_value c = turn(e, "cosine", angle, half), s = turn(e, "sine", angle, half);
    hr_hlo_value a = hr_hlo_slice(h, x, 2, 0, F), b = hr_hlo_slice(h, x, 2, F, 2 * F);
    hr_hlo_value piece[3] = {
        hr_hlo_binary(h, "subtract", hr_hlo_binary(h, "multiply", a, c),
                      hr_hlo_binary(h, "multiply", b, s)),
        hr_hlo_binary(h, "add", hr_hlo_binary(h, "multiply", b, c),
                      hr_hlo_binary(h, "multiply", a, s)),
    };
    if (2 * F < D) piece[2] = hr_hlo_slice(h, x, 2, 2 * F, D);
    e->out[0] = hr_hlo_round_to(e, hr_hlo_concatenate(h, piece, 2 * F < D ? 3 : 2, 2));
    return HR_OK;
}

/* ---- element by element --------------------------------------------------------------------- */

/* x / (1 + e^-u) */
static hr_hlo_value over_logistic(hr_hlo *h, hr_hlo_value x, hr_hlo_value u)
{
    hr_hlo_value e = hr_hlo_unary(h, "exponential", hr_hlo_unary(h, "negate", u));
    return hr_hlo_binary(h, "divide", x, hr_hlo_binary_f(h, "add", e, 1));
}

/* x · Φ(x). StableHLO has no erf: Φ(-|x|) = erfc(z) / 2 = e^-z² · t · P(t) / 2, t = 1 / (1 + z/2),
 * z = |x|/√2, the fit of the native kernels, of relative error 5e-8 over all z. */
static hr_hlo_value gelu(hr_hlo *h, hr_hlo_value x)
{
    static const double P[] = { 0.28208435, 0.28241211,  0.24283481, 0.20375475, -0.02915602,
                                0.28174707, -0.49042073, 0.28613192, -0.05938827 };
    hr_hlo_value one = f32_splat(h, x.shape, 1);
    hr_hlo_value z = hr_hlo_binary_f(h, "multiply", hr_hlo_unary(h, "abs", x), 0.70710678118654752);
    hr_hlo_value t = hr_hlo_binary(
        h, "divide", one, hr_hlo_binary_f(h, "add", hr_hlo_binary_f(h, "multiply", z, 0.5), 1));
    hr_hlo_value p = f32_splat(h, x.shape, P[8]);
    for (int i = 7; i >= 0; i--)
        p = hr_hlo_binary_f(h, "add", hr_hlo_binary(h, "multiply", p, t), P[i]);
    hr_hlo_value square = hr_hlo_binary(h, "multiply", x, x);
    hr_hlo_value tail =
        hr_hlo_unary(h, "exponential", hr_hlo_binary_f(h, "multiply", square, -0.5));
    tail = hr_hlo_binary(h, "multiply", tail, hr_hlo_binary(h, "multiply", p, t));
    tail = hr_hlo_binary_f(h, "multiply", tail, 0.5); /* Φ(-|x|) */
    hr_hlo_value phi = hr_hlo_select(h, hr_hlo_compare_f(h, "LT", x, 0), tail,
                                     hr_hlo_binary(h, "subtract", one, tail));
    return hr_hlo_binary(h, "multiply", x, phi);
}

/* x · (1 + tanh u) / 2 is x / (1 + e^-2u), u = √(2/π) (x + 0.044715 x³) */
static hr_hlo_value gelu_tanh(hr_hlo *h, hr_hlo_value x)
{
    hr_hlo_value cube = hr_hlo_binary(h, "multiply", hr_hlo_binary(h, "multiply", x, x), x);
    hr_hlo_value u = hr_hlo_binary(h, "add", hr_hlo_binary_f(h, "multiply", cube, 0.044715), x);
    return over_logistic(h, x, hr_hlo_binary_f(h, "multiply", u, 1.5957691216057308));
}

static hr_hlo_value activate(hr_hlo *h, hr_activation act, hr_hlo_value x)
{
    switch (act) {
    case HR_ACT_NONE: return x;
    case HR_ACT_SILU: return over_logistic(h, x, x);
    case HR_ACT_GELU: return gelu(h, x);
    case HR_ACT_GELU_TANH: return gelu_tanh(h, x);
    case HR_ACT_RELU: return hr_hlo_binary_f(h, "maximum", x, 0);
    }
    return x;
}

hr_status hr_hlo_emit_activation(hr_hlo_emit *e)
{
    e->out[0] = hr_hlo_round_to(e, activate(e->h, e->node->attrs.act, hr_hlo_f32(e, 0)));
    return HR_OK;
}

/* Divided by 1. A sum is cheap, so XLA computes it again wherever it is used, and a residual stream
 * is all sums of the layers before: text and time grow with the square of the depth (a bf16 model
 * of 30 layers takes 40 s to compile). What divides is kept. */
hr_status hr_hlo_emit_add(hr_hlo_emit *e)
{
    hr_hlo_value sum = hr_hlo_binary(e->h, "add", hr_hlo_f32(e, 0), hr_hlo_f32(e, 1));
    sum = hr_hlo_binary(e->h, "divide", sum, hr_hlo_hidden(e->h, sum, 1));
    e->out[0] = hr_hlo_round_to(e, sum);
    return HR_OK;
}

hr_status hr_hlo_emit_mul(hr_hlo_emit *e)
{
    hr_hlo_value product = hr_hlo_binary(e->h, "multiply", hr_hlo_f32(e, 0), hr_hlo_f32(e, 1));
    e->out[0] = hr_hlo_round_to(e, product);
    return HR_OK;
}

hr_status hr_hlo_emit_mul_rows(hr_hlo_emit *e)
{
    hr_hlo_value x = hr_hlo_f32(e, 0);
    hr_hlo_value by = hr_hlo_along(e->h, e->in[1], x.shape, 0);
    e->out[0] = hr_hlo_round_to(e, hr_hlo_binary(e->h, "multiply", x, by));
    return HR_OK;
}

/* Rank after rank: the largest number that is left, and the lowest id that has it; then it is gone.
 */
hr_status hr_hlo_emit_route(hr_hlo_emit *e)
{
    hr_hlo *h = e->h;
    const hr_attrs *at = &e->node->attrs;
    hr_hlo_value x = e->in[0], left = x, id = hr_hlo_iota(h, hr_hlo_retype(x.shape, HR_HLO_I32), 1),
                 first = { 0 };
    hr_hlo_value chosen = { 0 }, share = { 0 }, sum = { 0 };
    for (int32_t rank = 0; rank <= at->n || rank < at->group; rank++) {
        hr_hlo_value most = hr_hlo_reduce(h, "maximum", left, 1);
        hr_hlo_value has = hr_hlo_compare(h, "EQ", left, hr_hlo_along(h, most, x.shape, 0));
        hr_hlo_value best = hr_hlo_select(h, has, id, hr_hlo_splat_i(h, id.shape, INT32_MAX));
        best = hr_hlo_reduce(h, "minimum", best, 1);
        hr_hlo_value gone = hr_hlo_compare(h, "EQ", id, hr_hlo_along(h, best, id.shape, 0));
        left = hr_hlo_select(h, gone, hr_hlo_splat_f(h, x.shape, (double)-INFINITY), left);
        if (rank == 0) first = most;
        hr_hlo_value p = hr_hlo_unary(h, "exponential", hr_hlo_binary(h, "subtract", most, first));
        if (rank == at->n) chosen = best, share = p;
        if (rank < at->group) sum = rank ? hr_hlo_binary(h, "add", sum, p) : p;
    }
    if (!at->group) {
        hr_hlo_value apart = hr_hlo_binary(h, "subtract", x, hr_hlo_along(h, first, x.shape, 0));
        sum = hr_hlo_reduce(h, "add", hr_hlo_unary(h, "exponential", apart), 1);
    }
    hr_hlo_value fine = hr_hlo_reduce(h, "and", hr_hlo_unary(h, "is_finite", x), 1);
    share = hr_hlo_binary(h, "divide", share, sum);
    e->out[0] = hr_hlo_select(h, fine, chosen, hr_hlo_splat_i(h, chosen.shape, -1));
    e->out[1] = hr_hlo_select(h, fine, share, hr_hlo_splat_f(h, share.shape, (double)NAN));
    return HR_OK;
}

hr_status hr_hlo_emit_scale(hr_hlo_emit *e)
{
    double scale = (double)e->node->attrs.scale;
    e->out[0] = hr_hlo_round_to(e, hr_hlo_binary_f(e->h, "multiply", hr_hlo_f32(e, 0), scale));
    return HR_OK;
}

hr_status hr_hlo_emit_softcap(hr_hlo_emit *e)
{
    double cap = (double)e->node->attrs.cap;
    hr_hlo_value y = hr_hlo_binary_f(e->h, "divide", hr_hlo_f32(e, 0), cap);
    y = hr_hlo_binary_f(e->h, "multiply", hr_hlo_unary(e->h, "tanh", y), cap);
    e->out[0] = hr_hlo_round_to(e, y);
    return HR_OK;
}

hr_status hr_hlo_emit_cast(hr_hlo_emit *e)
{
    e->out[0] = hr_hlo_round_to(e, hr_hlo_f32(e, 0));
    return HR_OK;
}

hr_status hr_hlo_emit_reshape(hr_hlo_emit *e)
{
    e->out[0] = hr_hlo_reshape(e->h, e->in[0], hr_hlo_shape_of(e->node->out[0]));
    return HR_OK;
}

/* ---- rows ----------------------------------------------------------------------------------- */

hr_status hr_hlo_emit_gather_rows(hr_hlo_emit *e)
{
    hr_hlo_value rows = hr_hlo_clamp_i(e->h, e->in[1], 0, e->in[0].shape.dim[0] - 1);
    e->out[0] = hr_hlo_gather(e->h, e->in[0], rows);
    return HR_OK;
}

/* A slot is a row of the cache seen as [blocks × block, N, D]; one below 0 is dropped. */
hr_status hr_hlo_emit_kv_write(hr_hlo_emit *e)
{
    hr_hlo *h = e->h;
    hr_hlo_shape c = e->in[0].shape;
    hr_hlo_shape rows = { c.type, 3, { c.dim[0] * c.dim[1], c.dim[2], c.dim[3] } };
    hr_dtype d = e->node->out[0]->dtype;
    hr_hlo_value x = d == HR_DTYPE_I8 ? e->in[1] : hr_hlo_round(h, hr_hlo_f32(e, 1), d);
    hr_hlo_value y =
        hr_hlo_scatter(h, hr_hlo_reshape(h, e->in[0], rows), e->in[2], x, HR_HLO_SCATTER_SET);
    e->out[0] = hr_hlo_reshape(h, y, c);
    return HR_OK;
}
