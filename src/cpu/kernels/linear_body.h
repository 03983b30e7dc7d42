/* The linear kernels, written once over vectors of 16 columns.
 *
 * Included by linear_<isa>.c after it has defined, for that instruction set:
 *   cols_f, cols_i        16 × f32, 16 × i32, one lane per output column
 *   f_load_bf16_pair      16 columns × 2 k of BF16, the two k apart
 *   f_* i_*               their arithmetic; f_fma is one rounding everywhere, f_madd is the path's
 *                         own multiply-add (pack.h, float rows)
 *   code_quad             16 columns × 4 k of unsigned 8-bit codes
 *   codes_load            quad j of a group, of either container
 *   codes_column          the i-th k of the quad as cols_i
 *   dot_half              adds 16 k of a group's products to one cols_i per row
 *   DOT_ZERO(form)        if other than form.zero: what dot_half leaves to be taken off each code
 *   MOST_ROWS             rows of the largest tile
 * Every formula of pack.h stands here and nowhere else, so that paths agree to the bit. A tile is
 * one panel times a constant number of rows: the functions below are inlined into one body per
 * format and row count, where all branches on either are decided. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_BODY_H
#define HEADRACE_CPU_KERNELS_LINEAR_BODY_H

#include <string.h>

#include "base/half.h"
#include "cpu/kernels/linear.h"

#define ALWAYS static inline __attribute__((always_inline))
#ifndef DOT_ZERO
#define DOT_ZERO(form) (form).zero
#endif

enum {
    C = HR_PACK_COLUMNS,
    G = HR_PACK_GROUP,
    BLOCK_BYTES = 256 << 10, /* panels walked together: they stay in L2 while the rows pass */
};

/* Rows that a tile starts at, and what belongs to them. */
typedef struct rows {
    const float *f;             /* [.., k] f32 rows */
    const int8_t *q;            /* [.., k] int8 rows */
    const float *scale;         /* INT8_ROW: [..] */
    const int32_t *sum;         /* INT8_ROW: [..] */
    const hr_row_block *blocks; /* INT8_GROUP: [k / 32], of the block that the first row is in */
    int lane;                   /* of the first row in its block; a tile stays in one block */
    int64_t k;
} rows;

typedef struct tile_job {
    rows x;
    const uint8_t *panel;
    size_t ahead; /* bytes to prefetch ahead; 0 = the panel is in cache already */
    float (*out)[C];
} tile_job;

typedef void (*tile_fn)(const tile_job *j, int n_rows);

/* While group g of a panel is multiplied, its share of the stream `ahead` bytes further on is
 * fetched: panels are contiguous, so that the walk over codes and scales of one panel covers both
 * of the next without a gap. */
ALWAYS void prefetch_share(const tile_job *j, int64_t g, size_t share)
{
    if (!j->ahead) return;
    const uint8_t *at = j->panel + j->ahead + (size_t)g * share;
    for (size_t i = 0; i < share; i += 64) __builtin_prefetch(at + i, 0, 3);
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

/* ---- int8 rows, one scale per group --------------------------------------------------------- */

/* Σ code · x less zero · Σ x: a zero is a power of two or nothing. */
ALWAYS cols_i less_zero(hr_pack_form form, cols_i codes, int32_t sum)
{
    const unsigned zero = DOT_ZERO(form);
    if (!zero) return codes;
    return i_sub(codes, i_shl(i_set1(sum), __builtin_ctz(zero)));
}

/* Scale of the first and second 16 k of group g, and its minimum, as f32 per column. The products
 * are exact: 11-bit times at most 8-bit numbers. */
ALWAYS void group_affine(hr_format f, const tile_job *j, int64_t g, cols_f scale[2], cols_f *min)
{
    const hr_pack_form form = hr_pack_form_of(f);
    const uint8_t *s = scales_of(form, j, g);
    *min = f_set1(0);
    if (f == HR_FORMAT_I8C) {
        scale[0] = scale[1] = f_load_f32(s);
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

ALWAYS void group_q6_k(const tile_job *j, int R, int64_t g, cols_f *acc)
{
    const hr_pack_form form = hr_pack_form_of(HR_FORMAT_Q6_K);
    const uint8_t *codes = codes_of(form, j, g), *s = scales_of(form, j, g);
    cols_i low[MOST_ROWS], high[MOST_ROWS];
    for (int r = 0; r < R; r++) low[r] = high[r] = i_set1(0);
    dot_half(form, codes, 0, j->x.q + g * G, j->x.k, R, low);
    dot_half(form, codes, 1, j->x.q + g * G, j->x.k, R, high);
    const hr_row_block *b = j->x.blocks + g;
    const int lane = j->x.lane;
    cols_f d = f_load_f16(s), sc[2];
    for (int h = 0; h < 2; h++)
        sc[h] = f_from_i(i_load_i8(s + 32 + g % HR_PACK_SUPER * 32 + h * 16));
    /* Products and their sum are integers of at most 2^24: f32 holds them exactly. */
    for (int r = 0; r < R; r++) {
        cols_f first = f_from_i(less_zero(form, low[r], b->half[0][lane + r]));
        cols_f second = f_from_i(less_zero(form, high[r], b->half[1][lane + r]));
        cols_f t = f_mul(d, f_fma(sc[1], second, f_mul(sc[0], first)));
        acc[r] = f_fma(f_set1(b->scale[lane + r]), t, acc[r]);
    }
}

ALWAYS void group_int8(hr_format f, const tile_job *j, int R, int64_t g, cols_f *acc)
{
    const hr_pack_form form = hr_pack_form_of(f);
    const uint8_t *codes = codes_of(form, j, g);
    const bool has_min = form.scale_bytes != 32;
    /* d · sc and m · mn of pack.h are exact: they round once, with the integer. */
    cols_f scale[2], min;
    group_affine(f, j, g, scale, &min);
    cols_i i[MOST_ROWS];
    for (int r = 0; r < R; r++) i[r] = i_set1(0);
    dot_half(form, codes, 0, j->x.q + g * G, j->x.k, R, i);
    dot_half(form, codes, 1, j->x.q + g * G, j->x.k, R, i);
    const hr_row_block *b = j->x.blocks + g;
    const int lane = j->x.lane;
    for (int r = 0; r < R; r++) {
        cols_f exact = f_from_i(less_zero(form, i[r], b->all[lane + r])), t;
        if (has_min) t = f_fma(scale[0], exact, f_mul(min, f_set1(b->all_f[lane + r])));
        else t = f_mul(scale[0], exact);
        acc[r] = f_fma(f_set1(b->scale[lane + r]), t, acc[r]);
    }
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

/* ---- float rows ----------------------------------------------------------------------------- */

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
            cols_f w = f_add(f_mul(scale[q / 4], v), min);
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
    for (int r = 0; r < R; r++) f_store(j->out[r], acc[r]);
}

/* ---- one body per format and row count ------------------------------------------------------ */

#define HR_TILE(name, text, elements, bytes)                                                       \
    static void int8_##name(const tile_job *j, int n_rows)                                         \
    {                                                                                              \
        switch (n_rows) {                                                                          \
        case 1: tile_int8_group(HR_FORMAT_##name, j, 1); break;                                    \
        case 2: tile_int8_group(HR_FORMAT_##name, j, 2); break;                                    \
        case 4: tile_int8_group(HR_FORMAT_##name, j, 4); break;                                    \
        default: tile_int8_group(HR_FORMAT_##name, j, MOST_ROWS);                                  \
        }                                                                                          \
    }                                                                                              \
    static void float_##name(const tile_job *j, int n_rows)                                        \
    {                                                                                              \
        switch (n_rows) {                                                                          \
        case 1: tile_float(HR_FORMAT_##name, j, 1); break;                                         \
        case 2: tile_float(HR_FORMAT_##name, j, 2); break;                                         \
        case 4: tile_float(HR_FORMAT_##name, j, 4); break;                                         \
        default: tile_float(HR_FORMAT_##name, j, MOST_ROWS);                                       \
        }                                                                                          \
    }
HR_FORMAT_LIST(HR_TILE)
#undef HR_TILE

static void int8_row(const tile_job *j, int n_rows)
{
    switch (n_rows) {
    case 1: tile_int8_row(j, 1); break;
    case 2: tile_int8_row(j, 2); break;
    case 4: tile_int8_row(j, 4); break;
    default: tile_int8_row(j, MOST_ROWS);
    }
}

static tile_fn tile_of(hr_linear_kind kind, hr_format f)
{
    static const tile_fn int8[] = {
#define HR_TILE(name, text, elements, bytes) int8_##name,
        HR_FORMAT_LIST(HR_TILE)
#undef HR_TILE
    };
    static const tile_fn floats[] = {
#define HR_TILE(name, text, elements, bytes) float_##name,
        HR_FORMAT_LIST(HR_TILE)
#undef HR_TILE
    };
    switch (kind) {
    case HR_LINEAR_FLOAT: return floats[f];
    case HR_LINEAR_INT8_GROUP: return int8[f];
    case HR_LINEAR_INT8_ROW: return int8_row;
    }
    return NULL;
}

/* ---- the end of a row: product in f32, cast, then bias in that dtype ------------------------- */

static void finish_half(const float *v, const float *bias, hr_dtype d, int64_t count, uint16_t *to)
{
    bool bf16 = d == HR_DTYPE_BF16;
    for (int64_t c = 0; c < count; c++) {
        uint16_t h = bf16 ? hr_f32_to_bf16(v[c]) : hr_f32_to_f16(v[c]);
        if (bias) {
            uint16_t b = bf16 ? hr_f32_to_bf16(bias[c]) : hr_f32_to_f16(bias[c]);
            float sum =
                bf16 ? hr_bf16_to_f32(h) + hr_bf16_to_f32(b) : hr_f16_to_f32(h) + hr_f16_to_f32(b);
            h = bf16 ? hr_f32_to_bf16(sum) : hr_f32_to_f16(sum);
        }
        to[c] = h;
    }
}

static void finish(const hr_kernel_args *a, int64_t row, int64_t panel, const float *v)
{
    int64_t n = a->packed->n, first = panel * C;
    int64_t count = n - first < C ? n - first : C;
    const float *bias = a->in[2] ? (const float *)a->in[2] + first : NULL;
    hr_dtype d = a->node->out[0]->dtype;
    if (d != HR_DTYPE_F32) {
        finish_half(v, bias, d, count, (uint16_t *)a->out[0] + row * n + first);
        return;
    }
    float *to = (float *)a->out[0] + row * n + first;
    if (bias)
        for (int64_t c = 0; c < count; c++) to[c] = v[c] + bias[c];
    else if (count == C) memcpy(to, v, C * sizeof *to);
    else memcpy(to, v, (size_t)count * sizeof *to);
}

/* ---- the walk ------------------------------------------------------------------------------- */

ALWAYS rows rows_of(const hr_kernel_args *a)
{
    rows r = { .q = a->in[0], .k = a->packed->k };
    switch (hr_linear_kind_of(a->node, a->packed->format)) {
    case HR_LINEAR_FLOAT: r.f = a->node->in[0]->dtype == HR_DTYPE_F32 ? a->in[0] : a->prep; break;
    case HR_LINEAR_INT8_GROUP: r.blocks = a->prep; break;
    case HR_LINEAR_INT8_ROW:
        r.sum = a->prep;
        r.scale = a->in[4];
        break;
    }
    return r;
}

ALWAYS rows rows_from(rows x, int64_t row)
{
    x.f = x.f ? x.f + row * x.k : NULL;
    x.q += row * x.k;
    x.scale = x.scale ? x.scale + row : NULL;
    x.sum = x.sum ? x.sum + row : NULL;
    x.blocks = x.blocks ? x.blocks + row / HR_ROW_BLOCK * (x.k / G) : NULL;
    x.lane = (int)(row % HR_ROW_BLOCK);
    return x;
}

/* Rows of the next tile: 8, 4, 2 or 1, whatever is left. */
ALWAYS int tile_rows(int64_t left)
{
    if (left >= MOST_ROWS) return MOST_ROWS;
    return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* A row that meets no matrix is zeros: no product, no bias. */
static void finish_zero(const hr_kernel_args *a, int64_t row, int64_t panel)
{
    size_t size = hr_dtype_size(a->node->out[0]->dtype);
    int64_t n = a->packed->n, first = panel * C;
    int64_t count = n - first < C ? n - first : C;
    memset((uint8_t *)a->out[0] + (size_t)(row * n + first) * size, 0, (size_t)count * size);
}

/* Each row goes through the matrix of its own expert: (row, panel) pairs, one row a tile. */
static void walk_experts(const hr_kernel_args *a, int64_t n_rows, int64_t from, int64_t to)
{
    const int32_t *expert = a->in[3];
    rows x = rows_of(a);
    tile_fn tile = tile_of(hr_linear_kind_of(a->node, a->packed->format), a->packed->format);
    _Alignas(64) float out[1][C];
    for (int64_t panel = from; panel < to; panel++)
        for (int64_t row = 0; row < n_rows; row++) {
            if (expert[row] < 0 || expert[row] >= a->packed->experts) {
                finish_zero(a, row, panel);
                continue;
            }
            tile_job j = { .x = rows_from(x, row),
                           .out = out,
                           .panel = hr_packed_panel(a->packed, expert[row], panel) };
            tile(&j, 1);
            finish(a, row, panel, out[0]);
        }
}

/* Bytes that the first tile fetches ahead. One or two rows are faster than memory, and processors
 * follow a single stream better by themselves; more rows leave them idle while they multiply.
 * Measured on EPYC 9004, GB/s of one core, Q8_0, ahead 0 / 2048 / 8192: one row 30 / 19 / 19, four
 * rows 17 / 23 / 20, eight 9 / 14 / 13. */
ALWAYS size_t fetch_ahead(int n_rows)
{
    return n_rows <= 2 ? 0 : 2048;
}

/* Panels [from, to) of one matrix: every tile of rows passes over a block of panels while it is in
 * cache. The first tile is the one that meets memory, so it alone prefetches. */
static void walk_panels(const hr_kernel_args *a, int64_t n_rows, int64_t from, int64_t to)
{
    const hr_packed *w = a->packed;
    rows x = rows_of(a);
    tile_fn tile = tile_of(hr_linear_kind_of(a->node, w->format), w->format);
    int64_t block = (int64_t)(BLOCK_BYTES / w->panel_bytes);
    if (block < 1) block = 1;
    _Alignas(64) float out[MOST_ROWS][C];
    for (int64_t first = from; first < to; first += block) {
        int64_t last = first + block < to ? first + block : to;
        for (int64_t row = 0; row < n_rows;) {
            int count = tile_rows(n_rows - row);
            for (int64_t panel = first; panel < last; panel++) {
                tile_job j = { .x = rows_from(x, row),
                               .out = out,
                               .panel = hr_packed_panel(w, 0, panel),
                               .ahead = row ? 0 : fetch_ahead(count) };
                tile(&j, count);
                for (int r = 0; r < count; r++) finish(a, row + r, panel, out[r]);
            }
            row += count;
        }
    }
}

ALWAYS void linear_items(const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t n_rows = hr_live_rows(a->node->in[0], a->live);
    if (a->in[3]) walk_experts(a, n_rows, from, to);
    else walk_panels(a, n_rows, from, to);
}

/* ---- prep: items are rows ------------------------------------------------------------------- */

static int32_t sum_of(const int8_t *q, int64_t n)
{
    int32_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += q[i];
    return sum;
}

static void prep_groups(const int8_t *q, const float *scale, int64_t k, hr_row_block *b, int lane)
{
    enum { HALF = G / 2 };
    for (int64_t g = 0; g < k / G; g++, q += G, b++) {
        b->scale[lane] = scale[g];
        b->half[0][lane] = sum_of(q, HALF);
        b->half[1][lane] = sum_of(q + HALF, HALF);
        b->all[lane] = b->half[0][lane] + b->half[1][lane];
        b->all_f[lane] = (float)b->all[lane];
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
    int64_t k = a->packed->k;
    const int8_t *q = a->in[0];
    const hr_linear_kind kind = hr_linear_kind_of(a->node, a->packed->format);
    for (int64_t row = from; row < to; row++) switch (kind) {
        case HR_LINEAR_FLOAT: prep_float(a, row, k, (float *)a->prep + row * k); break;
        case HR_LINEAR_INT8_GROUP:
            prep_groups(q + row * k, (const float *)a->in[4] + row * (k / G), k,
                        (hr_row_block *)a->prep + row / HR_ROW_BLOCK * (k / G),
                        (int)(row % HR_ROW_BLOCK));
            break;
        case HR_LINEAR_INT8_ROW: ((int32_t *)a->prep)[row] = sum_of(q + row * k, k); break;
        }
}

#endif
