/* rms_norm, layer_norm and add_rms_norm.
 *
 * An item is one token: its row, or in rms_norm each of its rows (heads) over the last axis. A row
 * is read twice (thrice in layer_norm), from L1 after the first time, and needs no scratch. Sums
 * are read before anything is written, so results may lie over operand 0. */
#include "cpu/kernels/family/norm.h"

V_INLINE void rms_row(hr_dtype d, const void *x, void *out, int64_t at, int64_t H,
                      const float *weight, const hr_attrs *attrs)
{
    float factor = rms_factor(d, x, at, H, attrs->eps);
    for (int64_t h = 0; h < H; h += V_LANES)
        v_store_upto(d, out, at + h,
                     rms_apply(d, v_load_upto(d, x, at + h, H - h), factor,
                               v_load_upto(HR_DTYPE_F32, weight, h, H - h), attrs->offset),
                     H - h);
}

V_INLINE void rms_items(hr_dtype d, const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t H = a->node->in[1]->shape.dim[0];
    int64_t rows = hr_shape_row(a->node->in[0]->shape) / H; /* per token */
    for (int64_t r = from * rows; r < to * rows; r++)
        rms_row(d, a->in[0], a->out[0], r * H, H, a->in[1], &a->node->attrs);
}

void HR_KERNEL(rms_norm)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    hr_dtype d = a->node->in[0]->dtype;
    if (d == HR_DTYPE_F32) rms_items(HR_DTYPE_F32, a, from, to);
    else if (d == HR_DTYPE_BF16) rms_items(HR_DTYPE_BF16, a, from, to);
    else rms_items(HR_DTYPE_F16, a, from, to);
}

/* ---- layer_norm ------------------------------------------------------------------------------ */

V_INLINE float row_mean(hr_dtype d, const void *x, int64_t at, int64_t H)
{
    vf part[ROW_SUMS];
    for (int i = 0; i < ROW_SUMS; i++) part[i] = v_set1(0.0f);
    int64_t h = 0;
    for (; h + ROW_SUMS * V_LANES <= H; h += ROW_SUMS * V_LANES)
        for (int i = 0; i < ROW_SUMS; i++)
            part[i] = v_add(part[i], v_load_any(d, x, at + h + i * V_LANES));
    for (int i = 0; h < H; i++, h += V_LANES) {
        int64_t n = H - h < V_LANES ? H - h : V_LANES;
        part[i] = v_add(part[i], v_load_any_n(d, x, at + h, n));
    }
    return sums_end(part) / (float)H;
}

V_INLINE void layer_row(hr_dtype d, const hr_kernel_args *a, int64_t at, int64_t H)
{
    const void *x = a->in[0];
    const float *weight = a->in[1], *bias = a->in[2]; /* [H], [H] or NULL */
    float mean = row_mean(d, x, at, H);
    float var = square_sum(d, x, at, H, mean) / (float)H;
    vf m = v_set1(mean), factor = v_set1(1.0f / sqrtf(var + a->node->attrs.eps));
    for (int64_t h = 0; h < H; h += V_LANES) {
        int64_t left = H - h;
        vf v = v_mul(v_sub(v_load_upto(d, x, at + h, left), m), factor);
        vf b = bias ? v_load_upto(HR_DTYPE_F32, bias, h, left) : v_set1(0.0f);
        vf w = v_load_upto(HR_DTYPE_F32, weight, h, left);
        v_store_upto(d, a->out[0], at + h, v_madd(v, w, b), left);
    }
}

V_INLINE void layer_items(hr_dtype d, const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t H = a->node->in[0]->shape.dim[1];
    for (int64_t t = from; t < to; t++) layer_row(d, a, t * H, H);
}

void HR_KERNEL(layer_norm)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    hr_dtype d = a->node->in[0]->dtype;
    if (d == HR_DTYPE_F32) layer_items(HR_DTYPE_F32, a, from, to);
    else if (d == HR_DTYPE_BF16) layer_items(HR_DTYPE_BF16, a, from, to);
    else layer_items(HR_DTYPE_F16, a, from, to);
}

/* ---- add_rms_norm: the sum is stored, rounded, and the norm reads it back ---------------------
 */

V_INLINE void add_rms_items(hr_dtype d, const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t H = a->node->in[2]->shape.dim[0];
    for (int64_t t = from; t < to; t++) {
        int64_t at = t * H;
        for (int64_t h = 0; h < H; h += V_LANES)
            v_store_upto(d, a->out[0], at + h,
                         v_add(v_load_upto(d, a->in[0], at + h, H - h),
                               v_load_upto(d, a->in[1], at + h, H - h)),
                         H - h);
        rms_row(d, a->out[0], a->out[1], at, H, a->in[2], &a->node->attrs);
    }
}

void HR_KERNEL(add_rms_norm)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    hr_dtype d = a->node->in[0]->dtype;
    if (d == HR_DTYPE_F32) add_rms_items(HR_DTYPE_F32, a, from, to);
    else if (d == HR_DTYPE_BF16) add_rms_items(HR_DTYPE_BF16, a, from, to);
    else add_rms_items(HR_DTYPE_F16, a, from, to);
}
