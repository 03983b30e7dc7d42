/* Which tile of a linear meets which rows and panels.
 *
 * Part of linear_body.h, which says what must be defined before. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_WALK_BODY_H
#define HEADRACE_CPU_KERNELS_LINEAR_WALK_BODY_H

#include "cpu/kernels/linear_finish.h"
#include "cpu/kernels/linear_float_body.h"
#include "cpu/kernels/linear_int8_body.h"

/* ---- one body per format, row count and width ----------------------------------------------- */

#define HR_TILE(name, text, elements, bytes)                                                       \
    static void int8_##name(const tile_job *j, int n_rows, int n_panels)                           \
    {                                                                                              \
        switch (n_rows) {                                                                          \
        case 1: tile_int8_group(HR_FORMAT_##name, j, 1, 1); break;                                 \
        case 2: tile_int8_group(HR_FORMAT_##name, j, 2, 1); break;                                 \
        default:                                                                                   \
            if (n_panels > 1) tile_int8_group(HR_FORMAT_##name, j, GROUP_ROWS, MOST_PANELS);       \
            else tile_int8_group(HR_FORMAT_##name, j, GROUP_ROWS, 1);                              \
        }                                                                                          \
    }                                                                                              \
    static void float_##name(const tile_job *j, int n_rows, int n_panels)                          \
    {                                                                                              \
        (void)n_panels;                                                                            \
        switch (n_rows) {                                                                          \
        case 1: tile_float(HR_FORMAT_##name, j, 1); break;                                         \
        case 2: tile_float(HR_FORMAT_##name, j, 2); break;                                         \
        case 4: tile_float(HR_FORMAT_##name, j, 4); break;                                         \
        default: tile_float(HR_FORMAT_##name, j, MOST_ROWS);                                       \
        }                                                                                          \
    }
HR_FORMAT_LIST(HR_TILE)
#undef HR_TILE

static void int8_row(const tile_job *j, int n_rows, int n_panels)
{
    switch (n_rows) {
    case 1: tile_int8_row(j, 1, 1); break;
    case 2: tile_int8_row(j, 2, 1); break;
    case 4:
        if (n_panels > 1) tile_int8_row(j, 4, MOST_PANELS);
        else tile_int8_row(j, 4, 1);
        break;
    default:
        if (n_panels > 1) tile_int8_row(j, MOST_ROWS, MOST_PANELS);
        else tile_int8_row(j, MOST_ROWS, 1);
    }
}

/* The bodies of one kind of product, and the largest tile among them. Of up to stream_rows rows a
 * tile one panel wide is as fast as memory. */
typedef struct tile_kind {
    tile_fn fn;
    int most_rows, most_panels, stream_rows;
} tile_kind;

static tile_kind tile_of(hr_linear_kind kind, hr_format f)
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
    case HR_LINEAR_FLOAT: break;
    case HR_LINEAR_INT8_GROUP:
        return (tile_kind){ int8[f], GROUP_ROWS, MOST_PANELS, MOST_PANELS > 1 ? 2 : GROUP_ROWS };
    case HR_LINEAR_INT8_ROW:
        return (tile_kind){ int8_row, MOST_ROWS, MOST_PANELS, MOST_PANELS > 1 ? 4 : MOST_ROWS };
    }
    return (tile_kind){ floats[f], MOST_ROWS, 1, MOST_ROWS };
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
        r.minus_sum = a->prep;
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
    x.minus_sum = x.minus_sum ? x.minus_sum + row : NULL;
    x.blocks = x.blocks ? x.blocks + row / HR_ROW_BLOCK * (x.k / G) : NULL;
    x.lane = (int)(row % HR_ROW_BLOCK);
    return x;
}

/* Rows of the next tile: the most there can be, or 4, 2, 1, whatever is left. */
ALWAYS int tile_rows(tile_kind kind, int64_t left)
{
    if (left >= kind.most_rows) return kind.most_rows;
    return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* Each row goes through the matrix of its own expert: (row, panel) pairs, one row a tile. */
static void walk_experts(const hr_kernel_args *a, int64_t n_rows, int64_t from, int64_t to)
{
    const int32_t *expert = a->in[3];
    rows x = rows_of(a);
    tile_kind tile = tile_of(hr_linear_kind_of(a->node, a->packed->format), a->packed->format);
    _Alignas(64) float out[C];
    for (int64_t panel = from; panel < to; panel++)
        for (int64_t row = 0; row < n_rows; row++) {
            if (expert[row] < 0 || expert[row] >= a->packed->experts) {
                hr_linear_finish_zero(a, row, panel);
                continue;
            }
            tile_job j = { .x = rows_from(x, row),
                           .out = out,
                           .panel = hr_packed_panel(a->packed, expert[row], panel) };
            tile.fn(&j, 1, 1);
            hr_linear_finish(a, row, panel, out);
        }
}

/* How the panels of a block meet memory. Steps of few rows, which a tile computes as fast as memory
 * gives, follow one stream: processors do it best by themselves, and from three rows on with some
 * help (EPYC 9004, GB/s of one core, Q8_0, ahead 0 / 2048 / 8192 bytes: one row 30 / 19 / 19, four
 * rows 17 / 23 / 20). All others pass over a block tile of rows by tile of rows, and each of these
 * fetches its part of the next block: memory and multiplications keep each other's pace. */
typedef struct block_walk {
    tile_kind tile;
    bool stream;
    int64_t from, to;   /* panels */
    size_t ahead, part; /* tile_job; of each tile of rows in turn */
} block_walk;

ALWAYS void walk_tiles(const hr_kernel_args *a, const block_walk *b, int64_t row, int count,
                       size_t turn)
{
    const hr_packed *w = a->packed;
    const int most = count > 2 && !b->stream ? b->tile.most_panels : 1;
    const bool direct = hr_linear_is_direct(a);
    _Alignas(64) float out[MOST_ROWS][MOST_PANELS * C];
    tile_job j = { .x = rows_from(rows_of(a), row), .panel_bytes = w->panel_bytes };
    j.ahead = b->ahead;
    j.from = turn * b->part;
    j.to = b->ahead ? j.from + b->part : 0;
    for (int64_t panel = b->from; panel < b->to;) {
        int wide = b->to - panel >= most ? most : 1;
        j.panel = hr_packed_panel(w, 0, panel);
        const bool whole = direct && (panel + wide) * C <= w->n;
        j.out = whole ? (float *)a->out[0] + row * w->n + panel * C : out[0];
        j.out_row = whole ? w->n : MOST_PANELS * C;
        b->tile.fn(&j, count, wide);
        for (int i = 0; i < count * wide && !whole; i++)
            hr_linear_finish(a, row + i / wide, panel + i % wide, out[i / wide] + i % wide * C);
        panel += wide;
    }
}

ALWAYS size_t ahead_of(const hr_kernel_args *a, const block_walk *b, int64_t n_rows, int64_t to)
{
    if (b->stream) return n_rows <= 2 ? 0 : 2048;
    return b->to < to ? (size_t)(b->to - b->from) * a->packed->panel_bytes : 0;
}

/* Panels [from, to) of one matrix, block by block. */
static void walk_panels(const hr_kernel_args *a, int64_t n_rows, int64_t from, int64_t to)
{
    const hr_packed *w = a->packed;
    block_walk b = { .tile = tile_of(hr_linear_kind_of(a->node, w->format), w->format) };
    const int64_t block = hr_linear_block(w->panel_bytes, b.tile.most_panels);
    const int64_t tiles = (n_rows + b.tile.most_rows - 1) / b.tile.most_rows;
    b.stream = n_rows <= b.tile.stream_rows;
    b.part = (share_of(w->format) / (size_t)tiles + 63) / 64 * 64;
    for (b.from = from; b.from < to; b.from = b.to) {
        b.to = b.from + block < to ? b.from + block : to;
        b.ahead = ahead_of(a, &b, n_rows, to);
        size_t turn = 0;
        for (int64_t row = 0; row < n_rows; turn++) {
            int count = tile_rows(b.tile, n_rows - row);
            walk_tiles(a, &b, row, count, turn);
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
