/* Rows of bf16 for the paths that multiply bf16 as it is.
 *
 * prep copies each row to one of hr_linear_bf16_stride numbers, zeros at its end: a path reads
 * whole pairs or blocks of k wherever the row ends, and never another row's numbers. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_BF16_H
#define HEADRACE_CPU_KERNELS_LINEAR_BF16_H

#include <string.h>

#include "cpu/kernels/linear.h"

static inline bool hr_linear_is_bf16(const hr_kernel_args *a)
{
    return hr_linear_kind_of(a->node, a->packed->format) == HR_LINEAR_BF16;
}

/* Numbers from one row of prep to the next. */
static inline int64_t hr_linear_bf16_stride(int64_t k)
{
    return (k + HR_PACK_GROUP - 1) / HR_PACK_GROUP * HR_PACK_GROUP;
}

static inline void hr_linear_prep_bf16(const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t k = a->packed->k, stride = hr_linear_bf16_stride(k);
    const uint16_t *x = a->in[0];
    uint16_t *rows = a->prep;
    for (int64_t r = from; r < to; r++) {
        memcpy(rows + r * stride, x + r * k, (size_t)k * sizeof *x);
        memset(rows + r * stride + k, 0, (size_t)(stride - k) * sizeof *x);
    }
}

#endif
