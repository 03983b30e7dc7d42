/* The end of a linear's row: the product in f32 is cast to the result's dtype, then the bias is
 * added in that dtype. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_FINISH_H
#define HEADRACE_CPU_KERNELS_LINEAR_FINISH_H

#include <string.h>

#include "base/half.h"
#include "cpu/kernels/linear.h"

/* Panels walked together: they stay in L2 while the rows pass. */
enum { HR_LINEAR_BLOCK_BYTES = 256 << 10 };

static inline void hr_linear_finish_half(const float *v, const float *bias, hr_dtype d,
                                         int64_t count, uint16_t *to)
{
    bool bf16 = d == HR_DTYPE_BF16;
    for (int64_t c = 0; c < count; c++) {
        uint16_t h = bf16 ? hr_f32_to_bf16(v[c]) : hr_f32_to_f16(v[c]);
        if (bias) {
            uint16_t b = bf16 ? hr_f32_to_bf16(bias[c]) : hr_f32_to_f16(bias[c]);
            float sum =
                bf16 ? hr_bf16_to_f32(h) + hr_bf16_to_f32(b) : hr_f16_to_f32(h) + hr_f16_to_f32(b);
            h = bf16 ? hr_f32_to_bf16(sum) : hr_f32_to_f16(sum);
        }
        to[c] = h;
    }
}

static inline void hr_linear_finish(const hr_kernel_args *a, int64_t row, int64_t panel,
                                    const float *v)
{
    int64_t n = a->packed->n, first = panel * HR_PACK_COLUMNS;
    int64_t count = n - first < HR_PACK_COLUMNS ? n - first : HR_PACK_COLUMNS;
    const float *bias = a->in[2] ? (const float *)a->in[2] + first : NULL;
    hr_dtype d = a->node->out[0]->dtype;
    if (d != HR_DTYPE_F32) {
        hr_linear_finish_half(v, bias, d, count, (uint16_t *)a->out[0] + row * n + first);
        return;
    }
    float *to = (float *)a->out[0] + row * n + first;
    if (bias)
        for (int64_t c = 0; c < count; c++) to[c] = v[c] + bias[c];
    else if (count == HR_PACK_COLUMNS) memcpy(to, v, HR_PACK_COLUMNS * sizeof *to);
    else memcpy(to, v, (size_t)count * sizeof *to);
}

/* A row that meets no matrix is zeros: no product, no bias. */
static inline void hr_linear_finish_zero(const hr_kernel_args *a, int64_t row, int64_t panel)
{
    size_t size = hr_dtype_size(a->node->out[0]->dtype);
    int64_t n = a->packed->n, first = panel * HR_PACK_COLUMNS;
    int64_t count = n - first < HR_PACK_COLUMNS ? n - first : HR_PACK_COLUMNS;
    memset((uint8_t *)a->out[0] + (size_t)(row * n + first) * size, 0, (size_t)count * size);
}

#endif
