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
    return set_dtype(e, hr_quantize_is(w) ? HR_FORMAT_I8C : w->format);
}

/* How many scales a row of a quantised matrix has. */
static int64_t groups_of(const hr_weight *w)
{
    return hr_format_is_blocks(w->format) ? w->shape.dim[1] / hr_format_block(w->format) : 1;
}

static const char *scale_name(hr_arena *arena, const hr_weight *w)
{
    size_t stem = strlen(w->name); /* "….weight", as linears have it */
    char *name = hr_arena_alloc(arena, stem + sizeof "_scale");
    if (!name) return NULL;
    memcpy(name, w->name, stem);
    memcpy(name + stem, "_scale", sizeof "_scale");
    return name;
}

/* [N,groups], in the dtype that the scales were rounded to. */
static hr_status set_scale(hr_arena *arena, hr_entry *e, const hr_weight *w)
{
    *e = (hr_entry){ .name = scale_name(arena, w),
                     .weight = w,
                     .is_scale = true,
                     .shape = { w->shape.dim[0], groups_of(w) },
                     .rank = 2 };
    if (!e->name) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its scales", w->name);
    return set_dtype(e, hr_quantize_stored(w) == HR_FORMAT_BF16 ? HR_FORMAT_BF16 : HR_FORMAT_F32);
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
        if (hr_quantize_is(w[i])) HR_TRY(set_scale(&out->names, &out->at[out->n++], w[i]));
    }
    deal_out(out, shard_bytes);
    return HR_OK;
}

void hr_entries_deinit(hr_entries *e)
{
    for (size_t i = 0; i < e->n; i++) hr_free(e->at[i].scales);
    hr_free(e->at);
    hr_arena_deinit(&e->names);
    *e = (hr_entries){ 0 };
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static hr_status put(FILE *file, const char *path, const void *p, size_t n)
{
    if (fwrite(p, 1, n, file) == n) return HR_OK;
    return hr_fail(errno == ENOSPC ? HR_RESOURCE_EXHAUSTED : HR_UNAVAILABLE, "%s: %s", path,
                   strerror(errno));
}

static hr_status write_scales(hr_entry *e, FILE *file, const char *path)
{
    float *scales = e->scales;
    int64_t n = e->shape[0] * e->shape[1];
    if (strcmp(e->dtype, "F32")) /* they are bfloat16 already, so the halves fit in place */
        for (int64_t i = 0; i < n; i++) {
            uint16_t half = hr_f32_to_bf16(scales[i]);
            memcpy((char *)scales + i * 2, &half, 2);
        }
    hr_status st = put(file, path, scales, (size_t)e->bytes);
    hr_free(scales);
    e->scales = NULL;
    return st;
}

/* Rows of a matrix as the model reads them; of a quantised one also what they were and became. */
typedef struct piece {
    char *rows;       /* owned */
    float *old, *new; /* owned */
    int8_t *q;        /* owned */
} piece;

static void piece_deinit(piece *p)
{
    hr_free(p->rows);
    hr_free(p->old);
    hr_free(p->new);
    hr_free(p->q);
}

static hr_status piece_init(piece *p, const hr_weight *w, int64_t k)
{
    p->rows = hr_alloc_array0(ROWS_AT_ONCE, hr_format_row_bytes(w->format, k));
    bool made = p->rows;
    if (hr_quantize_is(w)) {
        p->old = hr_alloc_array0((size_t)(ROWS_AT_ONCE * k), sizeof *p->old);
        p->new = hr_alloc_array0((size_t)(ROWS_AT_ONCE * k), sizeof *p->new);
        p->q = hr_alloc_array0((size_t)(ROWS_AT_ONCE * k), sizeof *p->q);
        made = made && p->old && p->new && p->q;
    }
    return made ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its rows", w->name);
}

/* Blocks of 4-bit groups to int8 numbers, and their scales. */
static void unpack(hr_format f, const char *row, int64_t k, int8_t *q, float *scales)
{
    int64_t block = hr_format_block(f);
    const uint8_t *b = (const uint8_t *)row;
    for (int64_t i = 0; i < k; i += block, b += hr_format_block_bytes(f)) {
        memcpy(&scales[i / block], b, sizeof *scales);
        for (int64_t j = 0; j < block; j++) {
            uint8_t both = b[HR_I4G_HEAD + j / 32 * 16 + j % 16];
            q[i + j] = (int8_t)((j % 32 < 16 ? both & 15 : both >> 4) - 8);
        }
    }
}

/* n rows to p->q, their scales, and the loss. */
static hr_status quantise(hr_entry *e, piece *p, int64_t first, int64_t n, float *scales)
{
    const hr_weight *w = e->weight;
    int64_t k = e->shape[1], groups = groups_of(w);
    bool blocks = hr_format_is_blocks(w->format);
    size_t row = hr_format_row_bytes(w->format, k);
    scales += first * groups;
    HR_TRY(hr_quantize_read(w, first, n, p->old, p->rows, scales));
    hr_format_dequantise(w->format, p->rows, n * k / hr_format_block(w->format), p->new);
    for (int64_t i = 0; i < n; i++) {
        if (blocks)
            unpack(w->format, p->rows + (size_t)i * row, k, p->q + i * k, scales + i * groups);
        else memcpy(p->q + i * k, p->rows + i * k, (size_t)k);
        hr_loss_add(&e->loss, p->old + i * k, p->new + i *k, blocks ? 1 : (double)scales[i], k);
    }
    return HR_OK;
}

static hr_status write_rows(hr_entry *e, piece *p, float *scales, FILE *file, const char *path)
{
    const hr_weight *w = e->weight;
    int64_t k = e->rank ? e->shape[e->rank - 1] : 1, rows = e->rank > 1 ? e->shape[0] : 1;
    size_t row = (size_t)e->bytes / (size_t)(rows ? rows : 1);
    HR_TRY(piece_init(p, w, k));
    for (int64_t done = 0, n; done < rows; done += n) {
        n = rows - done < ROWS_AT_ONCE ? rows - done : ROWS_AT_ONCE;
        HR_TRY(scales ? quantise(e, p, done, n, scales) : w->read_rows(w, done, n, p->rows));
        HR_TRY(put(file, path, scales ? (char *)p->q : p->rows, (size_t)n * row));
    }
    return HR_OK;
}

hr_status hr_entry_write(hr_entries *all, size_t i, FILE *file, const char *path)
{
    hr_entry *e = &all->at[i];
    float *scales = NULL;
    if (e->is_scale) return write_scales(e, file, path);
    if (hr_quantize_is(e->weight)) {
        scales = hr_alloc_array0((size_t)(e->shape[0] * groups_of(e->weight)), sizeof *scales);
        if (!scales) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its scales", e->name);
        all->at[i + 1].scales = scales;
    }
    piece p = { 0 };
    hr_status st = write_rows(e, &p, scales, file, path);
    piece_deinit(&p);
    return st;
}
