/* The table of a checkpoint's tensors, and how their rows are read.
 *
 * Built by the thread that loads; read afterwards by any number of packing threads at once (pread
 * keeps no position, and nothing here changes). Owns the open files. Its one clever idea: GGUF
 * interleaves the rows of llama's q and k for another rope; whole rows can be put back in order
 * while they are read, whatever their format, so graphs know a single rope. */
#include "model/model_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/half.h"

const char *hr_model_shape_text(hr_shape s, char out[96])
{
    size_t n = 1;
    out[0] = '[';
    for (int i = 0; i < s.rank; i++)
        n += (size_t)snprintf(out + n, 22, "%s%" PRId64, i ? "," : "", s.dim[i]);
    snprintf(out + n, 2, "]");
    return out;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Rows as read_rows counts them: the tensor as [product, K]; rank 1 is one row. */
static int64_t row_length(hr_shape s)
{
    return s.rank ? s.dim[s.rank - 1] : 1;
}

static hr_status check_range(const hr_weight *w, int64_t first, int64_t count)
{
    int64_t k = row_length(w->shape), rows = k ? hr_shape_count(w->shape) / k : 0;
    if (first < 0 || count < 0 || first > rows || count > rows - first)
        return hr_fail(HR_INTERNAL, "%s: rows %" PRId64 "+%" PRId64 " of %" PRId64, w->name, first,
                       count, rows);
    return HR_OK;
}

static hr_status read_plain(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const hr_tensor *t = w->source;
    HR_TRY(check_range(w, first, count));
    size_t row = hr_format_row_bytes(w->format, row_length(w->shape));
    hr_status st =
        hr_file_read(t->file, t->offset + (uint64_t)first * row, to, (size_t)count * row);
    return st ? hr_fail_prefix(st, "%s", w->name) : HR_OK;
}

/* Rows [from, end) of one half of one head: in the file they are every second row of a span, which
 * is read whole into `span`. */
static hr_status read_half(const hr_tensor *t, int64_t from, int64_t end, size_t row, char *span,
                           char *to)
{
    int64_t d = t->head_dim, head = from / d * d, i = from - head;
    int64_t first = head + (i < d / 2 ? 2 * i : 2 * (i - d / 2) + 1);
    size_t rows = (size_t)(2 * (end - from) - 1);
    hr_status st = hr_file_read(t->file, t->offset + (uint64_t)first * row, span, rows * row);
    for (size_t r = 0; r < rows && !st; r += 2) memcpy(to + r / 2 * row, span + r * row, row);
    return st ? hr_fail_prefix(st, "%s", t->weight.name) : HR_OK;
}

/* Row r of a head of d rows lies at row 2r of its file when in the first half, else at
 * 2(r - d/2) + 1. */
static hr_status read_interleaved(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const hr_tensor *t = w->source;
    HR_TRY(check_range(w, first, count));
    int64_t half = t->head_dim / 2, k = row_length(w->shape);
    if (w->shape.rank == 1) { /* a bias: its rows are its elements */
        count *= k;
        k = 1;
    }
    size_t row = hr_format_row_bytes(w->format, k);
    char *span = hr_alloc((size_t)t->head_dim * row);
    if (!span) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: memory for one head", w->name);
    hr_status st = HR_OK;
    for (int64_t r = first, next; r < first + count && !st; r = next) {
        next = (r / half + 1) * half < first + count ? (r / half + 1) * half : first + count;
        st = read_half(t, r, next, row, span, (char *)to + (size_t)(r - first) * row);
    }
    hr_free(span);
    return st;
}

/* ---- the table ------------------------------------------------------------------------------ */

hr_status hr_checkpoint_open(hr_checkpoint *c, const char *path, hr_file **out)
{
    *out = NULL;
    HR_TRY(hr_grow((void **)&c->files, &c->files_capacity, c->n_files + 1, sizeof *c->files));
    hr_file *f = hr_new0(hr_file);
    if (!f) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: file object", path);
    hr_status st = hr_file_open(path, f);
    if (st) {
        hr_free(f);
        return st;
    }
    c->files[c->n_files++] = *out = f;
    return HR_OK;
}

hr_status hr_checkpoint_add(hr_checkpoint *c, const hr_tensor *t, hr_str name)
{
    HR_TRY(hr_grow((void **)&c->tensors, &c->capacity, c->n + 1, sizeof *c->tensors));
    hr_tensor *copy = hr_arena_new(c->arena, hr_tensor);
    char *text = copy ? hr_arena_copy(c->arena, name.p, name.n) : NULL;
    if (!text) return hr_fail(HR_RESOURCE_EXHAUSTED, "table of tensors");
    *copy = *t;
    copy->weight.name = text;
    copy->weight.source = copy;
    if (!copy->in_file) copy->in_file = text;
    if (!copy->weight.read_rows) copy->weight.read_rows = read_plain;
    c->tensors[c->n++] = copy;
    return HR_OK;
}

void hr_tensor_interleave(hr_tensor *t, int64_t head_dim)
{
    t->head_dim = head_dim;
    t->weight.read_rows = read_interleaved;
}

static int compare_names(const void *a, const void *b)
{
    const hr_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->weight.name, (*y)->weight.name);
}

hr_status hr_checkpoint_index(hr_checkpoint *c)
{
    hr_free(c->by_name);
    c->by_name = hr_alloc_array0(c->n, sizeof *c->by_name);
    if (!c->by_name) return hr_fail(HR_RESOURCE_EXHAUSTED, "index of %zu tensors", c->n);
    c->n_indexed = c->n;
    if (c->n == 0) return HR_OK;
    memcpy(c->by_name, c->tensors, c->n * sizeof *c->by_name);
    qsort(c->by_name, c->n, sizeof *c->by_name, compare_names);
    for (size_t i = 1; i < c->n; i++)
        if (compare_names(&c->by_name[i - 1], &c->by_name[i]) == 0)
            return hr_fail(HR_INVALID_ARGUMENT, "%s: tensor '%s' is there twice",
                           c->by_name[i]->file->path, c->by_name[i]->in_file);
    return HR_OK;
}

static int compare_name(const void *key, const void *item)
{
    const hr_str *name = key;
    const hr_tensor *const *t = item;
    size_t n = strlen((*t)->weight.name), least = name->n < n ? name->n : n;
    int order = memcmp(name->p, (*t)->weight.name, least);
    return order ? order : (name->n > n) - (name->n < n);
}

hr_tensor *hr_checkpoint_find(const hr_checkpoint *c, hr_str name)
{
    if (c->n_indexed == 0 || !c->by_name) return NULL;
    hr_tensor **hit = bsearch(&name, c->by_name, c->n_indexed, sizeof *c->by_name, compare_name);
    return hit ? *hit : NULL;
}

void hr_checkpoint_deinit(hr_checkpoint *c)
{
    for (size_t i = 0; i < c->n_files; i++) {
        hr_file_close(c->files[i]);
        hr_free(c->files[i]);
    }
    hr_free(c->files);
    hr_free(c->tensors);
    hr_free(c->by_name);
    *c = (hr_checkpoint){ 0 };
}

/* ---- dummy weights -------------------------------------------------------------------------- */

/* SplitMix64 (Steele, Lea, Flood 2014) of a counter: any element is made alone, in any order. */
static double uniform(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1; /* [-1, 1) */
}

uint8_t hr_dummy_byte(uint64_t seed, uint64_t i)
{
    return (uint8_t)((uniform(seed, i) + 1) * 128);
}

/* Matrices of variance 1/K keep activations of unit size through any depth; norms near 1. */
static float dummy_value(const hr_weight *w, uint64_t seed, uint64_t i)
{
    double u = uniform(seed, i);
    if (w->shape.rank > 1) return (float)(u * sqrt(3.0 / (double)row_length(w->shape)));
    return (float)(hr_str_ends(hr_str_c(w->name), HR_STR("norm.weight")) ? 1 + 0.1 * u : 0.02 * u);
}

static hr_status read_dummy(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const hr_tensor *t = w->source;
    HR_TRY(check_range(w, first, count));
    uint64_t k = (uint64_t)row_length(w->shape), begin = (uint64_t)first * k;
    for (uint64_t i = 0; i < (uint64_t)count * k; i++) {
        float v = dummy_value(w, t->seed, begin + i);
        if (w->format == HR_FORMAT_F32) ((float *)to)[i] = v;
        else if (w->format == HR_FORMAT_I8C)
            ((int8_t *)to)[i] = (int8_t)lrint(uniform(t->seed, begin + i) * 127);
        else if (w->format == HR_FORMAT_F16) ((uint16_t *)to)[i] = hr_f32_to_f16(v);
        else ((uint16_t *)to)[i] = hr_f32_to_bf16(v);
    }
    return HR_OK;
}

hr_status hr_checkpoint_add_dummy(hr_checkpoint *c, const char *name, hr_shape shape,
                                  hr_dtype dtype, uint64_t seed, hr_tensor **out)
{
    for (const char *p = name; *p; p++) /* FNV-1a, so that each tensor has noise of its own */
        seed = (seed ^ (unsigned char)*p) * UINT64_C(0x100000001B3);
    hr_format format = dtype == HR_DTYPE_F16    ? HR_FORMAT_F16
                       : dtype == HR_DTYPE_BF16 ? HR_FORMAT_BF16
                                                : HR_FORMAT_F32;
    hr_tensor t = { .weight = { .shape = shape, .format = format, .read_rows = read_dummy },
                    .seed = seed };
    HR_TRY(hr_checkpoint_add(c, &t, hr_str_c(name)));
    *out = c->tensors[c->n - 1];
    return HR_OK;
}
