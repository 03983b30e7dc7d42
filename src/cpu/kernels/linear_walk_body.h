/* Which tile of a linear meets which rows and panels.
 *
 * Part of linear_body.h, which says what must be defined before. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_WALK_BODY_H
#define HEADRACE_CPU_KERNELS_LINEAR_WALK_BODY_H

#include "cpu/kernels/linear_finish.h"
#include "cpu/kernels/linear_float_body.h"
#include "cpu/kernels/linear_int8_body.h"

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
    case HR_LINEAR_BF16:
    case HR_LINEAR_FLOAT: return floats[f];
    case HR_LINEAR_INT8_GROUP: return int8[f];
    case HR_LINEAR_INT8_ROW: return int8_row;
    }
    return NULL;
}

/* ---- the walk ------------------------------------------------------------------------------- */

ALWAYS rows rows_of(const hr_kernel_args *a)
{
    rows r = { .q = a->in[0], .k = a->packed->k };
    switch (hr_linear_kind_of(a->node, a->packed->format)) {
    case HR_LINEAR_BF16:
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
                hr_linear_finish_zero(a, row, panel);
                continue;
            }
            tile_job j = { .x = rows_from(x, row),
                           .out = out,
                           .panel = hr_packed_panel(a->packed, expert[row], panel) };
            tile(&j, 1);
            hr_linear_finish(a, row, panel, out[0]);
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
    int64_t block = (int64_t)(HR_LINEAR_BLOCK_BYTES / w->panel_bytes);
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
                for (int r = 0; r < count; r++) hr_linear_finish(a, row + r, panel, out[r]);
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

#endif
