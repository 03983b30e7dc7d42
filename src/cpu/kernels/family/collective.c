/* Ops between devices, of which this backend is one: a sum of one operand, the columns of one
 * device. Programs for more are compiled to be measured, and never run (plan.c). */
#include "cpu/kernels/vec.h"

/* n elements from x, rounded to `out`; the bias, rounded likewise, is added in that dtype. */
V_INLINE void convert(hr_dtype in, hr_dtype out, const void *x, const float *bias, void *y,
                      int64_t at, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        v_store_any_n(out, y, at + i, v_load_any_n(in, x, at + i, 1), 1);
        if (!bias) continue;
        uint16_t half[2]; /* one number of any dtype */
        v_store_any_n(out, half, 0, v_load_n(bias + i, 1), 1);
        vf sum = v_add(v_load_any_n(out, y, at + i, 1), v_load_any_n(out, half, 0, 1));
        v_store_any_n(out, y, at + i, sum, 1);
    }
}

V_INLINE void reduce_to(hr_dtype out, const hr_kernel_args *a, int64_t from, int64_t to)
{
    hr_dtype in = a->node->in[0]->dtype;
    int64_t N = a->node->in[0]->shape.dim[1];
    for (int64_t t = from; t < to; t++) {
        if (in == HR_DTYPE_F32) convert(HR_DTYPE_F32, out, a->in[0], a->in[1], a->out[0], t * N, N);
        else if (in == HR_DTYPE_BF16)
            convert(HR_DTYPE_BF16, out, a->in[0], a->in[1], a->out[0], t * N, N);
        else convert(HR_DTYPE_F16, out, a->in[0], a->in[1], a->out[0], t * N, N);
    }
}

void HR_KERNEL(all_reduce)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    hr_dtype out = a->node->out[0]->dtype;
    if (out == HR_DTYPE_F32) reduce_to(HR_DTYPE_F32, a, from, to);
    else if (out == HR_DTYPE_BF16) reduce_to(HR_DTYPE_BF16, a, from, to);
    else reduce_to(HR_DTYPE_F16, a, from, to);
}

void HR_KERNEL(all_gather)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    size_t size = hr_dtype_size(a->node->in[0]->dtype);
    size_t in = (size_t)a->node->in[0]->shape.dim[1] * size;
    size_t out = (size_t)a->node->out[0]->shape.dim[1] * size;
    for (int64_t t = from; t < to; t++)
        memcpy((char *)a->out[0] + (size_t)t * out, (const char *)a->in[0] + (size_t)t * in, out);
}
