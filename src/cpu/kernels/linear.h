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
    HR_LINEAR_BF16,       /* bf16 rows × bf16: as they are where hr_isa_bf16, else FLOAT */
    HR_LINEAR_INT8_GROUP, /* int8 rows with a scale per 32 k or one × block formats: integers per
                             group */
    HR_LINEAR_INT8_ROW,   /* int8 rows with one scale × I8C: one integer over all k */
} hr_linear_kind;

static inline hr_linear_kind hr_linear_kind_of(const hr_node *n, hr_format f)
{
    const hr_value *x = n->in[0], *scale = n->in[4];
    if (x->dtype == HR_DTYPE_BF16 && f == HR_FORMAT_BF16) return HR_LINEAR_BF16;
    if (x->dtype != HR_DTYPE_I8 || !scale) return HR_LINEAR_FLOAT;
    int64_t k = x->shape.dim[x->shape.rank - 1], scales = scale->shape.dim[1];
    if (f == HR_FORMAT_I8C && scales == 1) return HR_LINEAR_INT8_ROW;
    if (hr_format_is_blocks(f) && (scales == 1 || scales == k / HR_PACK_GROUP))
        return HR_LINEAR_INT8_GROUP;
    return HR_LINEAR_FLOAT;
}

/* What prep makes of 8 neighbouring rows and one group of 32 k: everything that a tile broadcasts
 * beside the rows themselves, so that it lies at constant distances from one pointer. */
enum { HR_ROW_BLOCK = 8 };
typedef struct hr_row_block {
    float scale[HR_ROW_BLOCK];
    int32_t minus_all[HR_ROW_BLOCK];     /* minus the sum of the row's 32 */
    float all_f[HR_ROW_BLOCK];           /* the sum: at most 2^12 */
    int32_t minus_half[2][HR_ROW_BLOCK]; /* minus the sums of its first and second 16 */
} hr_row_block;

/* Bytes of prep for `rows` rows; 0 = they are used as they are.
 *   INT8_GROUP  hr_row_block [ceil(rows / 8)][k / 32]
 *   INT8_ROW    int32 [rows]: minus the sum of the whole row
 *   FLOAT       f32 [rows][k], unless they are f32
 *   BF16        as FLOAT, or bf16 rows filled up with zeros (linear_bf16.h) */
static inline size_t hr_linear_prep_bytes(const hr_node *n, hr_format f, int64_t rows)
{
    const hr_value *x = n->in[0];
    int64_t k = x->shape.dim[x->shape.rank - 1];
    switch (hr_linear_kind_of(n, f)) {
    case HR_LINEAR_INT8_GROUP:
        return (size_t)((rows + HR_ROW_BLOCK - 1) / HR_ROW_BLOCK * (k / HR_PACK_GROUP)) *
               sizeof(hr_row_block);
    case HR_LINEAR_INT8_ROW: return (size_t)rows * sizeof(int32_t);
    case HR_LINEAR_BF16:
        return (size_t)(rows * ((k + HR_PACK_GROUP - 1) / HR_PACK_GROUP * HR_PACK_GROUP)) *
               sizeof(float);
    case HR_LINEAR_FLOAT: return x->dtype == HR_DTYPE_F32 ? 0 : (size_t)(rows * k) * sizeof(float);
    }
    return 0;
}

#endif
