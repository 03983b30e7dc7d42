/* The end of a linear's row: the product in f32 is cast to the result's dtype, then the bias is
 * added in that dtype. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_FINISH_H
#define HEADRACE_CPU_KERNELS_LINEAR_FINISH_H

#include <string.h>

#include "base/half.h"
#include "cpu/kernels/linear.h"

/* Panels walked together: they stay in L2 while the rows pass. */
enum { HR_LINEAR_BLOCK_BYTES = 128 << 10 };

/* How many, a multiple of what a tile takes at once. */
static inline int64_t hr_linear_block(size_t panel_bytes, int at_once)
{
    int64_t panels = (int64_t)(HR_LINEAR_BLOCK_BYTES / panel_bytes);
    panels -= panels % at_once;
    return panels < at_once ? at_once : panels;
}

/* All 16 columns, so that the compiler makes vectors of them; `count` are the caller's. */
static inline void hr_linear_finish_bf16(const float *v, const float *bias, size_t count,
                                         uint16_t *to)
{
    uint16_t h[HR_PACK_COLUMNS];
    float b[HR_PACK_COLUMNS] = { 0 };
    for (int c = 0; c < HR_PACK_COLUMNS; c++) h[c] = hr_f32_to_bf16(v[c]);
    if (bias) {
        memcpy(b, bias, count * sizeof *b);
        for (int c = 0; c < HR_PACK_COLUMNS; c++)
            h[c] = hr_f32_to_bf16(hr_bf16_to_f32(h[c]) + hr_bf16_to_f32(hr_f32_to_bf16(b[c])));
    }
    if (count == HR_PACK_COLUMNS) memcpy(to, h, sizeof h);
    else memcpy(to, h, count * sizeof *h);
}

static inline void hr_linear_finish_f16(const float *v, const float *bias, size_t count,
                                        uint16_t *to)
{
    for (size_t c = 0; c < count; c++) {
        to[c] = hr_f32_to_f16(v[c]);
        if (bias)
            to[c] = hr_f32_to_f16(hr_f16_to_f32(to[c]) + hr_f16_to_f32(hr_f32_to_f16(bias[c])));
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
        uint16_t *half = (uint16_t *)a->out[0] + row * n + first;
        if (d == HR_DTYPE_BF16) hr_linear_finish_bf16(v, bias, (size_t)count, half);
        else hr_linear_finish_f16(v, bias, (size_t)count, half);
        return;
    }
    float *to = (float *)a->out[0] + row * n + first;
    if (bias)
        for (int64_t c = 0; c < count; c++) to[c] = v[c] + bias[c];
    else if (count == HR_PACK_COLUMNS) memcpy(to, v, HR_PACK_COLUMNS * sizeof *to);
    else memcpy(to, v, (size_t)count * sizeof *to);
}

/* Sums are the result as they are. */
static inline bool hr_linear_is_direct(const hr_kernel_args *a)
{
    return a->node->out[0]->dtype == HR_DTYPE_F32 && !a->in[2];
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
