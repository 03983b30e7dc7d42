/* embed: rows of a packed matrix, dequantised, one item per row.
 *
 * Reads the same panels as linear, so an embedding tied to the head is in memory once. A column of
 * a panel is strided, but a step gathers a handful of rows; nothing here is hot. */
#include <string.h>

#include "base/half.h"
#include "cpu/kernels/vec.h"
#include "cpu/pack.h"

static void to_half(hr_dtype d, const float *from, int64_t n, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = d == HR_DTYPE_BF16 ? hr_f32_to_bf16(from[i]) : hr_f32_to_f16(from[i]);
}

void HR_KERNEL(embed)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    enum { PIECE = HR_KERNEL_SCRATCH / sizeof(float) };
    const int32_t *ids = a->in[0];
    int64_t h = a->packed->k;
    hr_dtype d = a->node->out[0]->dtype;
    size_t row_bytes = (size_t)h * hr_dtype_size(d);
    for (int64_t row = from; row < to; row++) {
        uint8_t *out = (uint8_t *)a->out[0] + (size_t)row * row_bytes;
        if (ids[row] < 0 || ids[row] >= a->packed->n) {
            memset(out, 0, row_bytes);
        } else if (d == HR_DTYPE_F32) {
            hr_packed_row(a->packed, ids[row], 0, h, (float *)out);
        } else {
            for (int64_t k = 0; k < h; k += PIECE) {
                int64_t n = h - k < PIECE ? h - k : PIECE;
                hr_packed_row(a->packed, ids[row], k, n, a->scratch);
                to_half(d, a->scratch, n, (uint16_t *)out + k);
            }
        }
    }
}
