/* Rows of int8 with a scale per group of columns: quantise_rows, and the kernels that make the row
 * first (rms_norm_q8, add_rms_norm_q8, gated_q8).
 *
 * A row is produced piece by piece into a buffer that stays in L1; the piece's maker is inlined as
 * a constant function, so that a fused kernel is the unfused formulas in sequence and equals them
 * to the bit. Groups that fit the buffer pass once; a longer one is made twice, for its largest
 * magnitude and for its codes, which is cheaper than a buffer of unbounded length.
 * The definition: scale = largest magnitude / 127 (f32), 1 where that is zero, NaN where a number
 * is not finite (then codes are 0, so that what is computed from them is NaN too);
 * code = x / scale, nearest even, within ±127. Every instruction set gives the same bits. */
#include "cpu/kernels/family/activate.h"
#include "cpu/kernels/family/norm.h"

enum { PIECE = 1024 }; /* columns; a multiple of V_LANES */

typedef struct row_job {
    const hr_kernel_args *a;
    int64_t at;   /* element where the row starts */
    int64_t K;    /* columns */
    float factor; /* of the norm */
} row_job;

/* Columns [k, k + n) of the row, as the unfused op would store them, to `to`. Lanes past n are
 * arbitrary. */
typedef void (*maker)(hr_dtype d, const row_job *j, int64_t k, int64_t n, float *to);

V_INLINE void make_plain(hr_dtype d, const row_job *j, int64_t k, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += V_LANES)
        v_store(to + i, v_load_upto(d, j->a->in[0], j->at + k + i, n - i));
}

/* `x` and `weight` are where this op keeps them. */
V_INLINE void make_norm(hr_dtype d, const row_job *j, const void *x, const float *weight, int64_t k,
                        int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += V_LANES) {
        vf w = v_load_upto(HR_DTYPE_F32, weight, k + i, n - i);
        v_store(to + i, rms_apply(d, v_load_upto(d, x, j->at + k + i, n - i), j->factor, w,
                                  j->a->node->attrs.offset));
    }
}
V_INLINE void make_rms(hr_dtype d, const row_job *j, int64_t k, int64_t n, float *to)
{
    make_norm(d, j, j->a->in[0], j->a->in[1], k, n, to);
}
V_INLINE void make_add_rms(hr_dtype d, const row_job *j, int64_t k, int64_t n, float *to)
{
    make_norm(d, j, j->a->out[0], j->a->in[2], k, n, to);
}

V_INLINE void make_act(hr_activation act, hr_dtype d, const row_job *j, int64_t k, int64_t n,
                       float *to)
{
    for (int64_t i = 0; i < n; i += V_LANES) {
        vf g = v_round_to(d, activate(act, v_load_upto(d, j->a->in[0], j->at + k + i, n - i)));
        v_store(to + i, v_round_to(d, v_mul(g, v_load_upto(d, j->a->in[1], j->at + k + i, n - i))));
    }
}
V_INLINE void make_gated(hr_dtype d, const row_job *j, int64_t k, int64_t n, float *to)
{
    switch (j->a->node->attrs.act) {
    case HR_ACT_NONE: make_act(HR_ACT_NONE, d, j, k, n, to); break;
    case HR_ACT_SILU: make_act(HR_ACT_SILU, d, j, k, n, to); break;
    case HR_ACT_GELU: make_act(HR_ACT_GELU, d, j, k, n, to); break;
    case HR_ACT_GELU_TANH: make_act(HR_ACT_GELU_TANH, d, j, k, n, to); break;
    case HR_ACT_RELU: make_act(HR_ACT_RELU, d, j, k, n, to); break;
    }
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* Largest magnitude so far and of the n numbers at x; NaN once a number is not finite: infinity
 * times zero and NaN times zero are NaN, and a NaN sum never gets well. */
typedef struct extent {
    vf most, poison;
} extent;

V_INLINE void widen(extent *e, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += V_LANES) {
        vf v = v_load(x + i);
        if (n - i < V_LANES) v = v_select(vm_first(n - i), v, v_set1(0.0f));
        e->most = v_max(v_abs(v), e->most);
        e->poison = v_madd(v, v_set1(0.0f), e->poison);
    }
}

V_INLINE float scale_of(const extent *e)
{
    float scale = (v_max_lane(e->most) + v_sum(e->poison)) / 127.0f;
    return scale == 0 ? 1.0f : scale;
}

V_INLINE void encode(const float *x, int64_t n, float scale, int8_t *q)
{
    vf s = v_set1(scale), low = v_set1(-127.0f), high = v_set1(127.0f);
    if (scale != scale) {
        memset(q, 0, (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i += V_LANES) {
        vf v = v_min(high, v_max(low, v_round(v_div(v_load(x + i), s))));
        int8_t part[V_LANES];
        if (n - i >= V_LANES) {
            v_store_i8(q + i, v);
        } else {
            v_store_i8(part, v_select(vm_first(n - i), v, v_set1(0.0f)));
            memcpy(q + i, part, (size_t)(n - i));
        }
    }
}

/* One group, columns [at, at + group), that is longer than the buffer. */
V_INLINE void quantise_long(maker make, hr_dtype d, const row_job *j, int64_t at, float *buffer,
                            int8_t *q, float *scale)
{
    int64_t end = at + j->a->node->attrs.group;
    extent e = { v_set1(0.0f), v_set1(0.0f) };
    for (int64_t k = at; k < end; k += PIECE) {
        int64_t n = end - k < PIECE ? end - k : PIECE;
        make(d, j, k, n, buffer);
        widen(&e, buffer, n);
    }
    *scale = scale_of(&e);
    for (int64_t k = at; k < end; k += PIECE) {
        int64_t n = end - k < PIECE ? end - k : PIECE;
        make(d, j, k, n, buffer);
        encode(buffer, n, *scale, q + k);
    }
}

/* One row to codes q [K] and scales [K/group]. */
V_INLINE void quantise_row(maker make, hr_dtype d, const row_job *j, int8_t *q, float *scale)
{
    _Alignas(64) float buffer[PIECE];
    int64_t group = j->a->node->attrs.group, K = j->K;
    if (group > PIECE) {
        for (int64_t k = 0; k < K; k += group) quantise_long(make, d, j, k, buffer, q, scale++);
        return;
    }
    int64_t step = PIECE / group * group;
    for (int64_t k = 0; k < K; k += step) {
        int64_t n = K - k < step ? K - k : step;
        make(d, j, k, n, buffer);
        for (int64_t g = 0; g < n; g += group, scale++) {
            extent e = { v_set1(0.0f), v_set1(0.0f) };
            widen(&e, buffer + g, group);
            *scale = scale_of(&e);
            encode(buffer + g, group, *scale, q + k + g);
        }
    }
}

/* Row t of results `first` (codes) and `first + 1` (scales). */
V_INLINE void quantise_to(maker make, hr_dtype d, const row_job *j, int64_t t, int first)
{
    int64_t scales = j->K / j->a->node->attrs.group;
    quantise_row(make, d, j, (int8_t *)j->a->out[first] + t * j->K,
                 (float *)j->a->out[first + 1] + t * scales);
}

/* ---- kernels --------------------------------------------------------------------------------- */

V_INLINE void plain_items(hr_dtype d, const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t K = hr_shape_row(a->node->in[0]->shape);
    for (int64_t t = from; t < to; t++) {
        row_job j = { .a = a, .at = t * K, .K = K };
        quantise_to(make_plain, d, &j, t, 0);
    }
}

void HR_KERNEL(quantise_rows)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    hr_dtype d = a->node->in[0]->dtype;
    if (d == HR_DTYPE_F32) plain_items(HR_DTYPE_F32, a, from, to);
    else if (d == HR_DTYPE_BF16) plain_items(HR_DTYPE_BF16, a, from, to);
    else plain_items(HR_DTYPE_F16, a, from, to);
}

V_INLINE void rms_items(hr_dtype d, const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t K = hr_shape_row(a->node->in[0]->shape);
    for (int64_t t = from; t < to; t++) {
        row_job j = { .a = a, .at = t * K, .K = K };
        j.factor = rms_factor(d, a->in[0], j.at, K, a->node->attrs.eps);
        quantise_to(make_rms, d, &j, t, 0);
    }
}

void HR_KERNEL(rms_norm_q8)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    hr_dtype d = a->node->in[0]->dtype;
    if (d == HR_DTYPE_F32) rms_items(HR_DTYPE_F32, a, from, to);
    else if (d == HR_DTYPE_BF16) rms_items(HR_DTYPE_BF16, a, from, to);
    else rms_items(HR_DTYPE_F16, a, from, to);
}

V_INLINE void add_rms_items(hr_dtype d, const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t K = hr_shape_row(a->node->in[0]->shape);
    for (int64_t t = from; t < to; t++) {
        row_job j = { .a = a, .at = t * K, .K = K };
        for (int64_t k = 0; k < K; k += V_LANES)
            v_store_upto(d, a->out[0], j.at + k,
                         v_add(v_load_upto(d, a->in[0], j.at + k, K - k),
                               v_load_upto(d, a->in[1], j.at + k, K - k)),
                         K - k);
        j.factor = rms_factor(d, a->out[0], j.at, K, a->node->attrs.eps);
        quantise_to(make_add_rms, d, &j, t, 1);
    }
}

void HR_KERNEL(add_rms_norm_q8)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    hr_dtype d = a->node->in[0]->dtype;
    if (d == HR_DTYPE_F32) add_rms_items(HR_DTYPE_F32, a, from, to);
    else if (d == HR_DTYPE_BF16) add_rms_items(HR_DTYPE_BF16, a, from, to);
    else add_rms_items(HR_DTYPE_F16, a, from, to);
}

V_INLINE void gated_items(hr_dtype d, const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t K = hr_shape_row(a->node->in[0]->shape);
    for (int64_t t = from; t < to; t++) {
        row_job j = { .a = a, .at = t * K, .K = K };
        quantise_to(make_gated, d, &j, t, 0);
    }
}

void HR_KERNEL(gated_q8)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    hr_dtype d = a->node->in[0]->dtype;
    if (d == HR_DTYPE_F32) gated_items(HR_DTYPE_F32, a, from, to);
    else if (d == HR_DTYPE_BF16) gated_items(HR_DTYPE_BF16, a, from, to);
    else gated_items(HR_DTYPE_F16, a, from, to);
}
