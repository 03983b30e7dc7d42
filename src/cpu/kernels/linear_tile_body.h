/* What every linear tile is made of: the rows it starts at, its panel, and how a group's integers
 * become a sum. Every formula of pack.h for int8 rows stands here and nowhere else, so that paths
 * agree to the bit.
 *
 * Part of linear_body.h, which says what must be defined before. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_TILE_BODY_H
#define HEADRACE_CPU_KERNELS_LINEAR_TILE_BODY_H

#include <string.h>

#include "base/half.h"
#include "cpu/kernels/linear.h"

#define ALWAYS static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#ifndef DOT_ZERO
#define DOT_ZERO(form) (form).zero
#endif

enum { C = HR_PACK_COLUMNS, G = HR_PACK_GROUP };

/* Rows that a tile starts at, and what belongs to them. */
typedef struct rows {
    const float *f;             /* [.., k] f32 rows */
    const int8_t *q;            /* [.., k] int8 rows */
    const float *scale;         /* INT8_ROW: [..] */
    const int32_t *minus_sum;   /* INT8_ROW: [..] */
    const hr_row_block *blocks; /* INT8_GROUP: [k / 32], of the block that the first row is in */
    int lane;                   /* of the first row in its block; a tile stays in one block */
    int64_t k;
} rows;

typedef struct tile_job {
    rows x;
    const uint8_t *panel;
    size_t panel_bytes; /* from it to the second one of a tile */
    size_t ahead;       /* bytes from what is multiplied to what is fetched; 0 = fetch nothing */
    size_t from, to;    /* the part of every group's bytes that this tile fetches */
    float *out;         /* sums of row r, panel p: at out + r · out_row + p · 16 */
    int64_t out_row;
} tile_job;

typedef void (*tile_fn)(const tile_job *j, int n_rows, int n_panels);

ALWAYS void put_sums(const tile_job *j, int row, int p, cols_f sums)
{
    f_store(j->out + row * j->out_row + p * C, sums);
}

/* The same rows before the p-th panel of the tile. */
ALWAYS tile_job at_panel(const tile_job *j, int p)
{
    tile_job one = *j;
    one.panel += (size_t)p * j->panel_bytes;
    return one;
}

/* While group g of a panel is multiplied, its share of the stream `ahead` bytes further on is
 * fetched, or this tile's part of it: panels are contiguous, so that the walk over codes and scales
 * of one panel covers both of the next without a gap. */
ALWAYS void prefetch_share(const tile_job *j, int64_t g, size_t share)
{
    const uint8_t *at = j->panel + j->ahead + (size_t)g * share;
    const size_t to = j->to < share ? j->to : share;
    UNROLL for (size_t i = j->from; i < to; i += 64) __builtin_prefetch(at + i, 0, 3);
}

/* Bytes of a panel per 32 k. */
ALWAYS size_t share_of(hr_format f)
{
    const hr_pack_form form = hr_pack_form_of(f);
    if (!form.group_bytes) return (f == HR_FORMAT_F32 ? 4u : 2u) * G * C;
    return form.span_bytes / form.span;
}

ALWAYS const uint8_t *codes_of(hr_pack_form form, const tile_job *j, int64_t g)
{
    return j->panel + hr_pack_codes_at(form, g);
}
ALWAYS const uint8_t *scales_of(hr_pack_form form, const tile_job *j, int64_t g)
{
    return j->panel + hr_pack_scales_at(form, g, j->x.k);
}

/* ---- from a group's integers to its sum --------------------------------------------------------
 */

/* -zero · Σ x, where Σ code · x begins: a zero is a power of two or nothing. */
ALWAYS cols_i less_zero(hr_pack_form form, int32_t minus_sum)
{
    const unsigned zero = DOT_ZERO(form);
    if (!zero) return i_set1(0);
    return i_shl(i_set1(minus_sum), __builtin_ctz(zero));
}

/* Scale of the first and second 16 k of group g, and its minimum, as f32 per column; of I4G the
 * negative zero point. The products are exact: 11-bit times at most 8-bit numbers. */
ALWAYS void group_affine(hr_format f, const tile_job *j, int64_t g, cols_f scale[2], cols_f *min)
{
    const hr_pack_form form = hr_pack_form_of(f);
    const uint8_t *s = scales_of(form, j, g);
    *min = f_set1(0);
    if (f == HR_FORMAT_I8C) {
        scale[0] = scale[1] = f_load_f32(s);
        return;
    }
    if (hr_pack_has_offset(form)) {
        scale[0] = scale[1] = f_load_f32(s);
        *min = f_from_i(i_load_i8(s + 64));
        return;
    }
    cols_f d = f_load_f16(s);
    scale[0] = scale[1] = d;
    if (form.groups_per_scale == 1) {
        if (form.scale_bytes == 64) *min = f_load_f16(s + 32);
        return;
    }
    const uint8_t *sc = s + (f == HR_FORMAT_Q6_K ? 32 : 64) + g % HR_PACK_SUPER * 32;
    if (f == HR_FORMAT_Q6_K) {
        scale[0] = f_mul(d, f_from_i(i_load_i8(sc)));
        scale[1] = f_mul(d, f_from_i(i_load_i8(sc + 16)));
    } else {
        scale[0] = scale[1] = f_mul(d, f_from_i(i_load_u8(sc)));
        *min = f_mul(f_load_f16(s + 32), f_from_i(i_load_u8(sc + 16)));
    }
}

/* acc + one row's share of a group: i = Σ (code - zero) · x of its 32 k. d · sc and m · mn of
 * pack.h are exact: they round once, with the integer. So is zero · s, at most 2^16. */
ALWAYS cols_f add_group(hr_pack_form form, cols_f scale, cols_f min, cols_i i,
                        const hr_row_block *b, int lane, cols_f acc)
{
    cols_f exact = f_from_i(i), t;
    if (hr_pack_has_offset(form)) t = f_mul(scale, f_fma(min, f_set1(b->all_f[lane]), exact));
    else if (form.scale_bytes != 32) t = f_fma(scale, exact, f_mul(min, f_set1(b->all_f[lane])));
    else t = f_mul(scale, exact);
    return f_fma(f_set1(b->scale[lane]), t, acc);
}

/* Q6_K: d, the scales sc of the halves, and the halves' integers. */
typedef struct q6_scales {
    cols_f d, sc[2];
} q6_scales;

ALWAYS q6_scales q6_scales_of(const tile_job *j, int64_t g)
{
    const uint8_t *s = scales_of(hr_pack_form_of(HR_FORMAT_Q6_K), j, g);
    q6_scales q = { .d = f_load_f16(s) };
    for (int h = 0; h < 2; h++)
        q.sc[h] = f_from_i(i_load_i8(s + 32 + g % HR_PACK_SUPER * 32 + h * 16));
    return q;
}

/* Products and their sum are integers of at most 2^24: f32 holds them exactly. */
ALWAYS cols_f add_q6_k(q6_scales q, cols_i low, cols_i high, const hr_row_block *b, int lane,
                       cols_f acc)
{
    cols_f t = f_mul(q.d, f_fma(q.sc[1], f_from_i(high), f_mul(q.sc[0], f_from_i(low))));
    return f_fma(f_set1(b->scale[lane]), t, acc);
}

#endif
