/* Tensor parallel: the part of a model that each of several devices holds.
 *
 * Runs once, on the thread that loads; reading is any thread's. All devices run one graph, in local
 * shapes: a weight in it is slice `shard.rank` of a tensor, and a backend reads another rank's
 * bytes through a copy of the descriptor with that rank in it. Heads and the columns of the MLP are
 * dealt out, so q, k, v, gate and up are cut by rows, o and down by columns; the head by vocabulary
 * rows, the last slices filled up with zeros. Where o or down cannot be cut between two blocks of
 * its format it stays whole, and its rows are gathered first (blocks.c). */
#include "model/model_int.h"

enum { ROWS_AT_ONCE = 64 };

/* ---- reading -------------------------------------------------------------------------------- */

static int64_t last_dim(hr_shape s)
{
    return s.dim[s.rank - 1];
}

/* A slice of rows; what lies past the tensor's last one is zeros. */
static hr_status read_row_slice(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const hr_weight *whole = w->source;
    size_t row = hr_format_row_bytes(w->format, last_dim(w->shape));
    int64_t rows = hr_shape_count(whole->shape) / last_dim(whole->shape);
    int64_t from = w->shard.rank * w->shape.dim[0] + first, n = rows - from;
    n = n < 0 ? 0 : n < count ? n : count;
    if (n) HR_TRY(whole->read_rows(whole, from, n, to));
    memset((char *)to + (size_t)n * row, 0, (size_t)(count - n) * row);
    return HR_OK;
}

/* A slice of every row: of a matrix its columns, of a vector, which is one row, its numbers. */
static hr_status read_column_slice(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const hr_weight *whole = w->source;
    size_t all = hr_format_row_bytes(w->format, last_dim(whole->shape));
    size_t own = hr_format_row_bytes(w->format, last_dim(w->shape));
    size_t from = (size_t)w->shard.rank * own, there = from < all ? all - from : 0;
    if (there > own) there = own;
    char *rows = hr_alloc_array0(ROWS_AT_ONCE, all);
    if (!rows) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: a slice of its rows", w->name);
    hr_status st = HR_OK;
    for (int64_t r = 0; !st && r < count; r += ROWS_AT_ONCE) {
        int64_t n = count - r < ROWS_AT_ONCE ? count - r : ROWS_AT_ONCE;
        st = whole->read_rows(whole, first + r, n, rows);
        for (int64_t i = 0; !st && i < n; i++) {
            char *row = (char *)to + (size_t)(r + i) * own;
            memcpy(row, rows + (size_t)i * all + from, there);
            memset(row + there, 0, own - there);
        }
    }
    hr_free(rows);
    return st;
}

/* ---- making slices -------------------------------------------------------------------------- */

/* *w becomes slice 0 of `count` along `axis`; NULL stays NULL. */
static hr_status cut(hr_model *m, const hr_weight **w, int axis, int count)
{
    const hr_weight *whole = *w;
    if (!whole) return HR_OK;
    hr_weight *s = hr_arena_new(&m->arena, hr_weight);
    if (!s) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its slices", whole->name);
    *s = *whole;
    bool columns = axis == whole->shape.rank - 1;
    s->shape.dim[axis] = (whole->shape.dim[axis] + count - 1) / count;
    s->read_rows = columns ? read_column_slice : read_row_slice;
    s->source = whole;
    s->shard.axis = axis;
    s->shard.rank = 0;
    s->shard.count = count;
    if (axis == 0 && whole->scale) HR_TRY(cut(m, &s->scale, 0, count));
    *w = s;
    return HR_OK;
}

/* Whether a cut of the columns falls between two blocks. A scale per row of x is of all its
 * columns: they are gathered, and rounded as one device rounds them. */
static bool can_cut_columns(const hr_weight *w, int count)
{
    int64_t k = last_dim(w->shape);
    if (w->rows == HR_WEIGHT_ROWS_INT8) return false;
    return k % count == 0 && k / count % hr_format_block(w->format) == 0;
}

static hr_status cut_layer(hr_model *m, hr_layer *w, int devices)
{
    int64_t kv = m->config.kv_heads;
    int kv_slices = kv < devices ? (int)kv : devices;
    const hr_weight **rows[] = { &w->q, &w->q_bias, &w->gate, &w->up, &w->gate_bias, &w->up_bias };
    const hr_weight **kv_rows[] = { &w->k, &w->v, &w->k_bias, &w->v_bias };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) HR_TRY(cut(m, rows[i], 0, devices));
    for (size_t i = 0; i < sizeof kv_rows / sizeof *kv_rows; i++)
        HR_TRY(cut(m, kv_rows[i], 0, kv_slices));
    if (can_cut_columns(w->o, devices)) HR_TRY(cut(m, &w->o, 1, devices));
    return can_cut_columns(w->down, devices) ? cut(m, &w->down, 1, devices) : HR_OK;
}

static hr_status check(const hr_config *c, int devices)
{
    if (devices < 1)
        return hr_fail(HR_INVALID_ARGUMENT, "%d devices: it is a number from 1 on", devices);
    if (devices > 1 && c->experts)
        return hr_fail(HR_UNIMPLEMENTED, "a mixture of experts cannot be dealt to %d devices",
                       devices);
    if (c->heads % devices)
        return hr_fail(HR_INVALID_ARGUMENT, "%lld attention heads cannot be dealt to %d devices",
                       (long long)c->heads, devices);
    if (c->kv_heads % devices && devices % c->kv_heads)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%lld key/value heads cannot be dealt to %d devices: one number must be a "
                       "multiple of the other",
                       (long long)c->kv_heads, devices);
    if (c->intermediate % devices)
        return hr_fail(HR_INVALID_ARGUMENT, "%lld columns of the MLP cannot be dealt to %d devices",
                       (long long)c->intermediate, devices);
    return HR_OK;
}

hr_status hr_model_shard(hr_model *m, int devices)
{
    hr_config *local = &m->local;
    HR_TRY(check(&m->config, devices));
    m->devices = devices;
    *local = m->config;
    if (devices == 1) return HR_OK;
    local->heads /= devices;
    local->kv_heads = local->kv_heads < devices ? 1 : local->kv_heads / devices;
    local->intermediate /= devices;
    for (int64_t l = 0; l < local->layers; l++) {
        HR_TRY(cut_layer(m, &m->layers[l], devices));
        m->kv_specs[l].heads = (int32_t)local->kv_heads;
    }
    return cut(m, &m->head, 0, devices);
}
