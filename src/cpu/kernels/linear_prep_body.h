/* What is derived from rows once before the linears over them (linear.h); items are rows.
 *
 * Part of linear_body.h. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_PREP_BODY_H
#define HEADRACE_CPU_KERNELS_LINEAR_PREP_BODY_H

#include "cpu/kernels/linear_tile_body.h"

static int32_t sum_of(const int8_t *q, int64_t n)
{
    int32_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += q[i];
    return sum;
}

/* `scale` has `scales` numbers: one per group or one. */
static void prep_groups(const int8_t *q, const float *scale, int64_t scales, int64_t k,
                        hr_row_block *b, int lane)
{
    enum { HALF = G / 2 };
    for (int64_t g = 0; g < k / G; g++, q += G, b++) {
        b->scale[lane] = scale[scales == 1 ? 0 : g];
        int32_t low = sum_of(q, HALF), high = sum_of(q + HALF, HALF);
        b->minus_half[0][lane] = -low;
        b->minus_half[1][lane] = -high;
        b->minus_all[lane] = -(low + high);
        b->all_f[lane] = (float)(low + high);
    }
}

static void prep_float(const hr_kernel_args *a, int64_t row, int64_t k, float *to)
{
    const hr_value *x = a->node->in[0], *scale = a->node->in[4];
    if (x->dtype ==
        HR_DTYPE_I8) { /* rows quantised in a way that this weight has no integers for */
        int64_t scales = scale ? scale->shape.dim[1] : 1;
        const int8_t *q = (const int8_t *)a->in[0] + row * k;
        const float *s = scale ? (const float *)a->in[4] + row * scales : NULL;
        for (int64_t i = 0; i < k; i++) to[i] = (float)q[i] * (s ? s[i / (k / scales)] : 1.0f);
        return;
    }
    const uint16_t *h = (const uint16_t *)a->in[0] + row * k;
    if (x->dtype == HR_DTYPE_BF16)
        for (int64_t i = 0; i < k; i++) to[i] = hr_bf16_to_f32(h[i]);
    else
        for (int64_t i = 0; i < k; i++) to[i] = hr_f16_to_f32(h[i]);
}

ALWAYS void prep_items(const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t k = a->packed->k, scales = a->node->in[4] ? a->node->in[4]->shape.dim[1] : 0;
    const int8_t *q = a->in[0];
    const hr_linear_kind kind = hr_linear_kind_of(a->node, a->packed->format);
    for (int64_t row = from; row < to; row++) switch (kind) {
        case HR_LINEAR_BF16:
        case HR_LINEAR_FLOAT: prep_float(a, row, k, (float *)a->prep + row * k); break;
        case HR_LINEAR_INT8_GROUP:
            prep_groups(q + row * k, (const float *)a->in[4] + row * scales, scales, k,
                        (hr_row_block *)a->prep + row / HR_ROW_BLOCK * (k / G),
                        (int)(row % HR_ROW_BLOCK));
            break;
        case HR_LINEAR_INT8_ROW: ((int32_t *)a->prep)[row] = -sum_of(q + row * k, k); break;
        }
}

#endif
