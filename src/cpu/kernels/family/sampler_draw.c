/* The token drawn from what is left of a row.
 *
 * y f32 [R,V], at most 0; an item is a row. Masses are integers: the block that the random word
 * falls into is the same whatever the lanes. */
#include "cpu/kernels/vec_mass.h"

/* One pass for the masses of blocks; then only the block that the word falls into is walked. */
static int32_t draw_row(const float *y, int64_t n, float cut, uint64_t word, uint64_t *blocks)
{
    uint64_t total = 0, sum = 0;
    int64_t step = HR_KERNEL_BLOCK, most = (int64_t)(HR_KERNEL_SCRATCH / sizeof *blocks), b = 0;
    while ((n + step - 1) / step > most) step *= 2;
    for (int64_t i = 0; i < n; i += step, b++) {
        blocks[b] = row_mass(y, i, i + step < n ? i + step : n, cut);
        total += blocks[b];
    }
    if (!total) return -1;
    uint64_t at = hr_exact_mul_high(word, total); /* < total */
    for (b = 0; sum + blocks[b] <= at; b++) sum += blocks[b];
    for (int64_t i = b * step;; i++) {
        if (y[i] >= cut) sum += hr_exact_mass((double)y[i]);
        if (sum > at) return (int32_t)i;
    }
}

void HR_KERNEL(draw)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const float *cut = a->in[1];
    const uint32_t *seed = a->in[2]; /* [R,2] */
    const int32_t *position = a->in[3];
    int64_t n = a->node->in[0]->shape.dim[1];
    int32_t *out = a->out[0];
    for (int64_t r = from; r < to; r++) {
        uint64_t word = hr_exact_word(seed + 2 * r, position[r]);
        const float *y = (const float *)a->in[0] + r * n;
        out[r] = position[r] < 0 ? -1 : draw_row(y, n, cut[r], word, a->scratch);
    }
}
