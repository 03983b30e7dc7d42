/* The tensors of the new checkpoint: their names, dtypes and places, and their bytes. */
#include <errno.h>

#include "base/half.h"
#include "convert/convert_int.h"

enum { ROWS_AT_ONCE = 256 };

/* ---- the list -------------------------------------------------------------------------------- */

static const struct {
    hr_format format;
    const char *dtype;
    uint64_t bytes;
} dtypes[] = {
    { HR_FORMAT_F32, "F32", 4 },
    { HR_FORMAT_F16, "F16", 2 },
    { HR_FORMAT_BF16, "BF16", 2 },
    { HR_FORMAT_I8C, "I8", 1 },
};

static hr_status set_dtype(hr_entry *e, hr_format f)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (dtypes[i].format != f) continue;
        e->dtype = dtypes[i].dtype;
        e->bytes = dtypes[i].bytes;
        for (int r = 0; r < e->rank; r++) e->bytes *= (uint64_t)e->shape[r];
        return HR_OK;
    }
    return hr_fail(HR_UNIMPLEMENTED, "%s is %s, which safetensors has no name for", e->name,
                   hr_format_name(f));
}

static hr_status set_weight(hr_entry *e, const hr_weight *w)
{
    *e = (hr_entry){ .name = w->name, .weight = w, .rank = w->shape.rank };
    if (w->shape.rank > 2) return hr_fail(HR_UNIMPLEMENTED, "%s has more than two axes", w->name);
    for (int r = 0; r < e->rank; r++) e->shape[r] = w->shape.dim[r];
    return set_dtype(e, w->format);
}

/* A column, in the dtype that the scales were rounded to. */
static hr_status set_scale(hr_entry *e, const hr_weight *w)
{
    const hr_weight *old = hr_quantize_original(w);
    *e = (hr_entry){ .name = w->scale->name,
                     .weight = w,
                     .is_scale = true,
                     .shape = { w->shape.dim[0], 1 },
                     .rank = 2 };
    return set_dtype(e, old && old->format == HR_FORMAT_BF16 ? HR_FORMAT_BF16 : HR_FORMAT_F32);
}

static void deal_out(hr_entries *all, uint64_t shard_bytes)
{
    uint64_t filled = 0;
    for (size_t i = 0; i < all->n; i++) {
        hr_entry *e = &all->at[i];
        if (filled && e->bytes > shard_bytes - (filled < shard_bytes ? filled : shard_bytes)) {
            all->shards++;
            filled = 0;
        }
        e->shard = all->shards;
        e->offset = filled;
        filled += e->bytes;
        all->bytes += e->bytes;
    }
    all->shards++;
}

hr_status hr_entries_make(const hr_model *m, uint64_t shard_bytes, hr_entries *out)
{
    size_t n;
    const hr_weight *const *w = hr_model_weights(m, &n);
    *out = (hr_entries){ .at = hr_alloc_array0(2 * n + 1, sizeof *out->at) };
    if (!out->at) return hr_fail(HR_RESOURCE_EXHAUSTED, "%zu tensors", n);
    for (size_t i = 0; i < n; i++) {
        HR_TRY(set_weight(&out->at[out->n++], w[i]));
        if (w[i]->scale) HR_TRY(set_scale(&out->at[out->n++], w[i]));
    }
    deal_out(out, shard_bytes);
    return HR_OK;
}

void hr_entries_deinit(hr_entries *e)
{
    hr_free(e->at);
    *e = (hr_entries){ 0 };
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static hr_status put(FILE *file, const char *path, const void *p, size_t n)
{
    if (fwrite(p, 1, n, file) == n) return HR_OK;
    return hr_fail(errno == ENOSPC ? HR_RESOURCE_EXHAUSTED : HR_UNAVAILABLE, "%s: %s", path,
                   strerror(errno));
}

static hr_status read_scales(const hr_weight *w, float **out)
{
    *out = hr_alloc_array0((size_t)w->shape.dim[0], sizeof **out);
    if (!*out) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its scales", w->name);
    return w->scale->read_rows(w->scale, 0, 1, *out);
}

static hr_status write_scales(const hr_entry *e, FILE *file, const char *path)
{
    float *scales;
    int64_t n = e->shape[0];
    hr_status st = read_scales(e->weight, &scales);
    if (!st && strcmp(e->dtype, "F32")) /* they are bfloat16 already, so the halves fit in place */
        for (int64_t i = 0; i < n; i++) {
            uint16_t half = hr_f32_to_bf16(scales[i]);
            memcpy((char *)scales + i * 2, &half, 2);
        }
    if (!st) st = put(file, path, scales, (size_t)e->bytes);
    hr_free(scales);
    return st;
}

/* Rows of the new matrix, and of the old one where it was quantised. */
typedef struct piece {
    char *rows, *raw; /* owned */
    float *old;       /* owned */
    float *scales;    /* owned [N] */
} piece;

static hr_status piece_init(piece *p, const hr_weight *w, int64_t k)
{
    const hr_weight *old = hr_quantize_original(w);
    p->rows = hr_alloc_array0(ROWS_AT_ONCE, hr_format_row_bytes(w->format, k));
    if (!p->rows) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its rows", w->name);
    if (!old) return HR_OK;
    p->raw = hr_alloc_array0(ROWS_AT_ONCE, hr_format_row_bytes(old->format, k));
    p->old = hr_alloc_array0((size_t)(ROWS_AT_ONCE * k), sizeof *p->old);
    if (!p->raw || !p->old) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its rows", w->name);
    return read_scales(w, &p->scales);
}

static hr_status measure(const piece *p, hr_entry *e, int64_t first, int64_t n)
{
    const hr_weight *old = hr_quantize_original(e->weight);
    int64_t k = e->shape[1];
    if (!old) return HR_OK;
    HR_TRY(old->read_rows(old, first, n, p->raw));
    hr_format_dequantise(old->format, p->raw, n * k / hr_format_block(old->format), p->old);
    for (int64_t i = 0; i < n; i++)
        hr_loss_add(&e->loss, p->old + i * k, (const int8_t *)p->rows + i * k, p->scales[first + i],
                    k);
    return HR_OK;
}

static hr_status write_rows(hr_entry *e, piece *p, FILE *file, const char *path)
{
    const hr_weight *w = e->weight;
    int64_t k = e->rank ? e->shape[e->rank - 1] : 1, rows = e->rank > 1 ? e->shape[0] : 1;
    size_t row = hr_format_row_bytes(w->format, k);
    HR_TRY(piece_init(p, w, k));
    for (int64_t done = 0, n; done < rows; done += n) {
        n = rows - done < ROWS_AT_ONCE ? rows - done : ROWS_AT_ONCE;
        HR_TRY(w->read_rows(w, done, n, p->rows));
        HR_TRY(measure(p, e, done, n));
        HR_TRY(put(file, path, p->rows, (size_t)n * row));
    }
    return HR_OK;
}

hr_status hr_entry_write(hr_entry *e, FILE *file, const char *path)
{
    if (e->is_scale) return write_scales(e, file, path);
    piece p = { 0 };
    hr_status st = write_rows(e, &p, file, path);
    hr_free(p.rows);
    hr_free(p.raw);
    hr_free(p.old);
    hr_free(p.scales);
    return st;
}
