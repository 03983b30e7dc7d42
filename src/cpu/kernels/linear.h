/* What plan.c and the linear kernels agree on beyond kernels.h.
 *
 * A linear step is one item per panel of 16 output columns (pack.h). Before it, once for all
 * linears that share the rows, `linear_prep` derives what every panel would otherwise recompute:
 * sums of int8 rows (zero points and minima multiply them) or an f32 copy of half-width rows. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_H
#define HEADRACE_CPU_KERNELS_LINEAR_H

#include "cpu/kernels/kernels.h"
#include "cpu/pack.h"

/* How the rows of x meet the weight. */
typedef enum hr_linear_kind {
    HR_LINEAR_FLOAT,      /* f32 rows × weights dequantised in registers */
    HR_LINEAR_INT8_GROUP, /* int8 rows with a scale per 32 k × block formats: integers per group */
    HR_LINEAR_INT8_ROW,   /* int8 rows with one scale × I8C: one integer over all k */
} hr_linear_kind;

static inline hr_linear_kind hr_linear_kind_of(const hr_node *n, hr_format f)
{
    const hr_value *x = n->in[0], *scale = n->in[4];
    if (x->dtype != HR_DTYPE_I8 || !scale) return HR_LINEAR_FLOAT;
    int64_t k = x->shape.dim[x->shape.rank - 1], scales = scale->shape.dim[1];
    if (f == HR_FORMAT_I8C && scales == 1) return HR_LINEAR_INT8_ROW;
    if (hr_format_is_blocks(f) && scales == k / HR_PACK_GROUP) return HR_LINEAR_INT8_GROUP;
    return HR_LINEAR_FLOAT;
}

/* Sums of int8 rows: one per 16 k, then the sum of the whole row. */
static inline int64_t hr_linear_sums(int64_t k)
{
    return (k + 15) / 16 + 1;
}

/* Bytes of prep per row; 0 = the rows are used as they are. */
static inline size_t hr_linear_prep_row(const hr_node *n, hr_format f)
{
    const hr_value *x = n->in[0];
    int64_t k = x->shape.dim[x->shape.rank - 1];
    if (hr_linear_kind_of(n, f) != HR_LINEAR_FLOAT) return (size_t)hr_linear_sums(k) * 4;
    return x->dtype == HR_DTYPE_F32 ? 0 : (size_t)k * 4;
}

#endif
