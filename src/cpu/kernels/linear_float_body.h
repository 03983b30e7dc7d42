/* Linear tiles of f32 rows over weights dequantised in registers (pack.h, float rows).
 *
 * Part of linear_body.h, which says what must be defined before. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_FLOAT_BODY_H
#define HEADRACE_CPU_KERNELS_LINEAR_FLOAT_BODY_H

#include "cpu/kernels/linear_tile_body.h"

ALWAYS cols_f dense_load(hr_format f, const uint8_t *panel, int64_t k)
{
    if (f == HR_FORMAT_F32) return f_load_f32(panel + k * C * 4);
    return f_load_f16(panel + k * C * 2);
}

ALWAYS void block_bf16(const tile_job *j, int R, int64_t from, int64_t to, cols_f *part)
{
    for (int64_t k = from; k < to; k += 2) {
        cols_f w[2];
        f_load_bf16_pair(j->panel + k * C * 2, w);
        for (int i = 0; i < 2 && k + i < to; i++)
            for (int r = 0; r < R; r++)
                part[r] = f_madd(f_set1(j->x.f[r * j->x.k + k + i]), w[i], part[r]);
    }
}

ALWAYS void block_dense(hr_format f, const tile_job *j, int R, int64_t from, int64_t to,
                        cols_f *part)
{
    for (int64_t k = from; k < to; k++) {
        cols_f w = dense_load(f, j->panel, k);
        for (int r = 0; r < R; r++) part[r] = f_madd(f_set1(j->x.f[r * j->x.k + k]), w, part[r]);
    }
}

ALWAYS void block_codes(hr_format f, const tile_job *j, int R, int64_t g, int64_t count,
                        cols_f *part)
{
    const hr_pack_form form = hr_pack_form_of(f);
    cols_f scale[2], min;
    group_affine(f, j, g, scale, &min);
    for (int q = 0; q * 4 < count; q++) {
        code_quad u = codes_load(form, codes_of(form, j, g), q);
        for (int i = 0; i < 4 && q * 4 + i < count; i++) {
            cols_f v = f_from_i(i_add(codes_column(u, i), i_set1(-form.zero)));
            cols_f w = hr_pack_has_offset(form) ? f_mul(scale[q / 4], f_add(v, min))
                                                : f_add(f_mul(scale[q / 4], v), min);
            for (int r = 0; r < R; r++)
                part[r] = f_madd(f_set1(j->x.f[r * j->x.k + g * G + q * 4 + i]), w, part[r]);
        }
    }
}

ALWAYS void tile_float(hr_format f, const tile_job *j, int R)
{
    cols_f acc[MOST_ROWS];
    for (int r = 0; r < R; r++) acc[r] = f_set1(0);
    bool dense = hr_pack_form_of(f).group_bytes == 0;
    for (int64_t from = 0; from < j->x.k; from += G) {
        int64_t count = j->x.k - from < G ? j->x.k - from : G;
        cols_f part[MOST_ROWS];
        for (int r = 0; r < R; r++) part[r] = f_set1(0);
        prefetch_share(j, from / G, share_of(f));
        if (f == HR_FORMAT_BF16) block_bf16(j, R, from, from + count, part);
        else if (dense) block_dense(f, j, R, from, from + count, part);
        else block_codes(f, j, R, from / G, count, part);
        for (int r = 0; r < R; r++) acc[r] = f_add(acc[r], part[r]);
    }
    for (int r = 0; r < R; r++) put_sums(j, r, 0, acc[r]);
}

#endif
