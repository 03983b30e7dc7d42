/* Linear tiles of int8 rows: integers by dot_half, sums by linear_tile_body.h.
 *
 * Part of linear_body.h, which says what must be defined before. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_INT8_BODY_H
#define HEADRACE_CPU_KERNELS_LINEAR_INT8_BODY_H

#include "cpu/kernels/linear_tile_body.h"

/* ---- one scale per group --------------------------------------------------------------------- */

ALWAYS void group_q6_k(const tile_job *j, int R, int64_t g, cols_f *acc)
{
    const hr_pack_form form = hr_pack_form_of(HR_FORMAT_Q6_K);
    const uint8_t *codes = codes_of(form, j, g);
    cols_i low[MOST_ROWS], high[MOST_ROWS];
    for (int r = 0; r < R; r++) low[r] = high[r] = i_set1(0);
    dot_half(form, codes, 0, j->x.q + g * G, j->x.k, R, low);
    dot_half(form, codes, 1, j->x.q + g * G, j->x.k, R, high);
    const q6_scales q = q6_scales_of(j, g);
    for (int r = 0; r < R; r++)
        acc[r] = add_q6_k(q, low[r], high[r], j->x.blocks + g, j->x.lane + r, acc[r]);
}

ALWAYS void group_int8(hr_format f, const tile_job *j, int R, int64_t g, cols_f *acc)
{
    const hr_pack_form form = hr_pack_form_of(f);
    const uint8_t *codes = codes_of(form, j, g);
    cols_f scale[2], min;
    group_affine(f, j, g, scale, &min);
    cols_i i[MOST_ROWS];
    for (int r = 0; r < R; r++) i[r] = i_set1(0);
    dot_half(form, codes, 0, j->x.q + g * G, j->x.k, R, i);
    dot_half(form, codes, 1, j->x.q + g * G, j->x.k, R, i);
    for (int r = 0; r < R; r++)
        acc[r] = add_group(form, scale[0], min, i[r], j->x.blocks + g, j->x.lane + r, acc[r]);
}

ALWAYS void tile_int8_group(hr_format f, const tile_job *j, int R)
{
    const hr_pack_form form = hr_pack_form_of(f);
    if (!form.groups_per_scale) return; /* dense and I8C never come here: hr_linear_kind_of */
    cols_f acc[MOST_ROWS];
    for (int r = 0; r < R; r++) acc[r] = f_set1(0);
    for (int64_t g = 0; g < j->x.k / G; g++) {
        prefetch_share(j, g, share_of(f));
        if (f == HR_FORMAT_Q6_K) group_q6_k(j, R, g, acc);
        else group_int8(f, j, R, g, acc);
    }
    for (int r = 0; r < R; r++) f_store(j->out[r], acc[r]);
}

/* ---- int8 rows, one scale per row: I8C ------------------------------------------------------ */

ALWAYS void tile_int8_row(const tile_job *j, int R)
{
    const hr_pack_form form = hr_pack_form_of(HR_FORMAT_I8C);
    const rows *x = &j->x;
    cols_i i[MOST_ROWS];
    /* Sums of code · x may pass 2^31 before the zero point is taken off; the arithmetic wraps and
     * the difference, which fits, is exact. */
    for (int r = 0; r < R; r++) i[r] = less_zero(form, i_set1(0), x->sum[r]);
    int64_t g = 0;
    for (; g < x->k / G; g++) {
        const uint8_t *codes = codes_of(form, j, g);
        prefetch_share(j, g, share_of(HR_FORMAT_I8C));
        dot_half(form, codes, 0, x->q + g * G, x->k, R, i);
        dot_half(form, codes, 1, x->q + g * G, x->k, R, i);
    }
    if (x->k % G) {
        int8_t tail[MOST_ROWS][G] = { 0 };
        for (int r = 0; r < R; r++) memcpy(tail[r], x->q + r * x->k + g * G, (size_t)(x->k % G));
        const uint8_t *codes = codes_of(form, j, g);
        dot_half(form, codes, 0, tail[0], G, R, i);
        dot_half(form, codes, 1, tail[0], G, R, i);
    }
    cols_f scale = f_load_f32(scales_of(form, j, 0));
    for (int r = 0; r < R; r++)
        f_store(j->out[r], f_mul(f_mul(f_from_i(i[r]), f_set1(x->scale[r])), scale));
}

#endif
