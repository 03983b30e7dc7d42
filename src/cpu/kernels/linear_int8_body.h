/* Linear tiles of int8 rows: integers by dot_half, sums by linear_tile_body.h.
 *
 * Part of linear_body.h, which says what must be defined before. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_INT8_BODY_H
#define HEADRACE_CPU_KERNELS_LINEAR_INT8_BODY_H

#include "cpu/kernels/linear_tile_body.h"

enum { MOST_SUMS = MOST_ROWS * MOST_PANELS, MOST_GROUP_SUMS = GROUP_ROWS * MOST_PANELS };

/* Codes of group g in every panel of the tile. */
typedef struct group_codes {
    const uint8_t *of[MOST_PANELS];
} group_codes;

ALWAYS group_codes group_codes_of(hr_pack_form form, const tile_job *j, int64_t g, int P)
{
    group_codes c = { 0 };
    for (int p = 0; p < P; p++) {
        const tile_job one = at_panel(j, p);
        c.of[p] = codes_of(form, &one, g);
    }
    return c;
}

ALWAYS void prefetch_panels(const tile_job *j, int64_t g, size_t share, int P)
{
    for (int p = 0; p < P; p++) {
        const tile_job one = at_panel(j, p);
        prefetch_share(&one, g, share);
    }
}

/* ---- one scale per group --------------------------------------------------------------------- */

ALWAYS void group_q6_k(const tile_job *j, int R, int P, int64_t g, cols_f *acc)
{
    const hr_pack_form form = hr_pack_form_of(HR_FORMAT_Q6_K);
    const group_codes codes = group_codes_of(form, j, g, P);
    cols_i low[MOST_GROUP_SUMS], high[MOST_GROUP_SUMS];
    UNROLL for (int i = 0; i < R * P; i++)
    {
        low[i] = less_zero(form, j->x.blocks[g].minus_half[0][j->x.lane + i / P]);
        high[i] = less_zero(form, j->x.blocks[g].minus_half[1][j->x.lane + i / P]);
    }
    dot_half(form, codes.of, 0, j->x.q + g * G, j->x.k, R, P, low);
    dot_half(form, codes.of, 1, j->x.q + g * G, j->x.k, R, P, high);
    for (int p = 0; p < P; p++) {
        const tile_job one = at_panel(j, p);
        const q6_scales q = q6_scales_of(&one, g);
        UNROLL for (int r = 0; r < R; r++)
        {
            const int i = r * P + p;
            acc[i] = add_q6_k(q, low[i], high[i], j->x.blocks + g, j->x.lane + r, acc[i]);
        }
    }
}

ALWAYS void group_int8(hr_format f, const tile_job *j, int R, int P, int64_t g, cols_f *acc)
{
    const hr_pack_form form = hr_pack_form_of(f);
    const group_codes codes = group_codes_of(form, j, g, P);
    cols_i i[MOST_GROUP_SUMS];
    UNROLL for (int s = 0; s < R * P; s++) i[s] =
        less_zero(form, j->x.blocks[g].minus_all[j->x.lane + s / P]);
    dot_half(form, codes.of, 0, j->x.q + g * G, j->x.k, R, P, i);
    dot_half(form, codes.of, 1, j->x.q + g * G, j->x.k, R, P, i);
    for (int p = 0; p < P; p++) {
        const tile_job one = at_panel(j, p);
        cols_f scale[2], min;
        group_affine(f, &one, g, scale, &min);
        UNROLL for (int r = 0; r < R; r++) acc[r * P + p] = add_group(
            form, scale[0], min, i[r * P + p], j->x.blocks + g, j->x.lane + r, acc[r * P + p]);
    }
}

ALWAYS void tile_int8_group(hr_format f, const tile_job *j, int R, int P)
{
    const hr_pack_form form = hr_pack_form_of(f);
    if (!form.groups_per_scale) return; /* dense and I8C never come here: hr_linear_kind_of */
    cols_f acc[MOST_GROUP_SUMS];
    UNROLL for (int i = 0; i < R * P; i++) acc[i] = f_set1(0);
    for (int64_t g = 0; g < j->x.k / G; g++) {
        prefetch_panels(j, g, share_of(f), P);
        if (f == HR_FORMAT_Q6_K) group_q6_k(j, R, P, g, acc);
        else group_int8(f, j, R, P, g, acc);
    }
    UNROLL for (int i = 0; i < R * P; i++) put_sums(j, i / P, i % P, acc[i]);
}

/* ---- int8 rows, one scale per row: I8C ------------------------------------------------------ */

/* The last k of the rows, fewer than a group. */
ALWAYS void i8c_tail(hr_pack_form form, const tile_job *j, int R, int P, int64_t g, cols_i *i)
{
    const rows *x = &j->x;
    const group_codes codes = group_codes_of(form, j, g, P);
    int8_t tail[MOST_ROWS][G] = { 0 };
    for (int r = 0; r < R; r++) memcpy(tail[r], x->q + r * x->k + g * G, (size_t)(x->k % G));
    dot_half(form, codes.of, 0, tail[0], G, R, P, i);
    dot_half(form, codes.of, 1, tail[0], G, R, P, i);
}

ALWAYS void tile_int8_row(const tile_job *j, int R, int P)
{
    const hr_pack_form form = hr_pack_form_of(HR_FORMAT_I8C);
    const rows *x = &j->x;
    cols_i i[MOST_SUMS];
    /* Sums of code · x may pass 2^31 before the zero point is taken off; the arithmetic wraps and
     * the difference, which fits, is exact. */
    UNROLL for (int s = 0; s < R * P; s++) i[s] = less_zero(form, x->minus_sum[s / P]);
    int64_t g = 0;
    for (; g < x->k / G; g++) {
        const group_codes codes = group_codes_of(form, j, g, P);
        prefetch_panels(j, g, share_of(HR_FORMAT_I8C), P);
        dot_half(form, codes.of, 0, x->q + g * G, x->k, R, P, i);
        dot_half(form, codes.of, 1, x->q + g * G, x->k, R, P, i);
    }
    if (x->k % G) i8c_tail(form, j, R, P, g, i);
    for (int p = 0; p < P; p++) {
        const tile_job one = at_panel(j, p);
        cols_f scale = f_load_f32(scales_of(form, &one, 0));
        UNROLL for (int r = 0; r < R; r++)
            put_sums(j, r, p, f_mul(f_mul(f_from_i(i[r * P + p]), f_set1(x->scale[r])), scale));
    }
}

#endif
