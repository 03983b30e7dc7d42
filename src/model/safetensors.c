/* The safetensors reader: one file, or the shards that an index names.
 *
 * Runs on the thread that loads; owns nothing afterwards. Format: the safetensors document of
 * Hugging Face: 8 bytes of header length, a JSON header, then the data, which the tensors cover
 * without overlap and without a gap. A file that breaks any of this is refused whole. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/model_int.h"

/* The reference library refuses longer headers too. */
#define MAX_HEADER 100000000u
#define MAX_INDEX  ((size_t)1 << 28)
#define MAX_SHARDS 4096

/* A tensor's entry, its bytes counted from the start of the data. */
typedef struct entry {
    hr_str name;
    hr_tensor tensor;
    uint64_t begin, end;
} entry;

typedef struct reader {
    hr_file *file;  /* borrowed from the checkpoint */
    uint64_t data;  /* file offset of the first data byte */
    entry *entries; /* owned */
    size_t n;
} reader;

static hr_status fault(const reader *r, hr_str tensor, const char *what)
{
    return hr_fail(HR_INVALID_ARGUMENT, "%s: tensor '%.*s': %s", r->file->path,
                   (int)(tensor.n > 200 ? 200 : tensor.n), tensor.p, what);
}

/* The dtypes of the format and their bytes; those without a format are not read as weights. */
static const struct {
    const char *name;
    uint8_t bytes;
    int8_t format; /* hr_format, or -1; of integers one of the same bytes */
    bool integers;
} dtypes[] = {
    { "F32", 4, HR_FORMAT_F32, false },
    { "F16", 2, HR_FORMAT_F16, false },
    { "BF16", 2, HR_FORMAT_BF16, false },
    { "F64", 8, -1, false },
    { "I64", 8, HR_FORMAT_F32, true }, /* shapes of packed matrices: quantized_int4.c */
    { "U64", 8, -1, false },
    { "I32", 4, HR_FORMAT_F32, true },
    { "U32", 4, -1, false },
    { "I16", 2, -1, false },
    { "U16", 2, -1, false },
    { "I8", 1, HR_FORMAT_I8C, false }, /* quantized.c says where */
    { "U8", 1, -1, false },
    { "BOOL", 1, -1, false },
    { "F8_E4M3", 1, -1, false },
    { "F8_E5M2", 1, -1, false },
};

static hr_status read_dtype(const reader *r, const hr_json *json, entry *e, size_t *size)
{
    hr_str text;
    char why[160];
    *size = 0;
    if (hr_json_to_str(hr_json_get(json, "dtype"), "dtype", &text))
        return fault(r, e->name, "dtype must be a string");
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (!hr_str_eq_c(text, dtypes[i].name)) continue;
        *size = dtypes[i].bytes;
        if (dtypes[i].format < 0) break;
        e->tensor.weight.format = (hr_format)dtypes[i].format;
        if (dtypes[i].integers) e->tensor.integers = dtypes[i].name;
        return HR_OK;
    }
    snprintf(why, sizeof why, "%s dtype %.*s; F32, F16, BF16 and I8 are supported",
             *size ? "unsupported" : "unknown", (int)(text.n > 40 ? 40 : text.n), text.p);
    return fault(r, e->name, why);
}

/* *count = elements; refused when the product wraps. */
static hr_status read_shape(const reader *r, const hr_json *json, entry *e, size_t *count)
{
    const hr_json *shape = hr_json_get(json, "shape");
    hr_shape *s = &e->tensor.weight.shape;
    *count = 1;
    if (!shape || shape->type != HR_JSON_ARRAY) return fault(r, e->name, "shape must be a list");
    if (shape->count > HR_MAX_RANK) return fault(r, e->name, "more than four dimensions");
    s->rank = (int)shape->count;
    bool wraps = false;
    for (size_t i = 0; i < shape->count; i++) {
        int64_t d;
        if (hr_json_to_i64(&shape->items[i], "shape", &d) || d < 0)
            return fault(r, e->name, "a dimension is not an integer from 0 to 2^63-1");
        s->dim[i] = d;
        wraps |= !hr_mul_add(*count, (size_t)d, 0, count);
    }
    return wraps ? fault(r, e->name, "the product of its shape is above 2^64") : HR_OK;
}

static hr_status read_offsets(const reader *r, const hr_json *json, entry *e)
{
    const hr_json *pair = hr_json_get(json, "data_offsets");
    int64_t begin, end;
    if (!pair || pair->type != HR_JSON_ARRAY || pair->count != 2 ||
        hr_json_to_i64(&pair->items[0], "begin", &begin) ||
        hr_json_to_i64(&pair->items[1], "end", &end) || begin < 0)
        return fault(r, e->name, "data_offsets must be two integers from 0 to 2^63-1");
    if (begin > end) return fault(r, e->name, "data_offsets end before they begin");
    e->begin = (uint64_t)begin;
    e->end = (uint64_t)end;
    return HR_OK;
}

static hr_status read_entry(const reader *r, const hr_json *json, entry *e)
{
    size_t size, count, bytes;
    char text[96], why[256];
    e->name = json->key;
    if (json->type != HR_JSON_OBJECT) return fault(r, e->name, "its entry must be an object");
    if (e->name.n == 0 || memchr(e->name.p, '\0', e->name.n))
        return fault(r, e->name, "its name is empty or holds NUL");
    HR_TRY(read_dtype(r, json, e, &size));
    HR_TRY(read_shape(r, json, e, &count));
    HR_TRY(read_offsets(r, json, e));
    bool fits = hr_mul_add(count, size, 0, &bytes);
    if (fits && bytes == e->end - e->begin) {
        e->tensor.bytes = bytes;
        e->tensor.file = r->file;
        return HR_OK;
    }
    snprintf(why, sizeof why, "shape %s of %s does not fill its %" PRIu64 " bytes",
             hr_model_shape_text(e->tensor.weight.shape, text),
             e->tensor.integers ? e->tensor.integers : hr_format_name(e->tensor.weight.format),
             e->end - e->begin);
    return fault(r, e->name, why);
}

static int compare_begin(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Sorted by place, each tensor begins where the one before it ends. */
static hr_status check_cover(const reader *r)
{
    uint64_t at = 0, size = r->file->size - r->data;
    for (size_t i = 0; i < r->n; i++) {
        const entry *e = &r->entries[i];
        if (e->begin < at) return fault(r, e->name, "its bytes overlap those of another tensor");
        if (e->begin > at) return fault(r, e->name, "a gap lies before its bytes");
        if (e->end > size)
            return hr_fail(HR_DATA_LOSS,
                           "%s: tensor '%.*s' ends at %" PRIu64 " of %" PRIu64
                           " data bytes: the file is cut short",
                           r->file->path, HR_STR_ARG(e->name), e->end, size);
        at = e->end;
    }
    if (at < size)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%s: %" PRIu64 " bytes after the last tensor belong to none", r->file->path,
                       size - at);
    return HR_OK;
}

static hr_status read_entries(reader *r, const hr_json *header)
{
    if (header->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: the header is not an object", r->file->path);
    r->entries = hr_alloc_array0(header->count, sizeof *r->entries);
    if (!r->entries) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: tensor table", r->file->path);
    for (size_t i = 0; i < header->count; i++)
        if (!hr_str_eq_c(header->items[i].key, "__metadata__"))
            HR_TRY(read_entry(r, &header->items[i], &r->entries[r->n++]));
    qsort(r->entries, r->n, sizeof *r->entries, compare_begin);
    return check_cover(r);
}

static hr_status read_header(reader *r, hr_buf *text, hr_arena *arena)
{
    uint64_t n = 0;
    if (r->file->size >= sizeof n) HR_TRY(hr_file_read(r->file, 0, &n, sizeof n));
    if (n < 2 || n > MAX_HEADER || n > r->file->size - sizeof n)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%s: a header of %" PRIu64 " bytes in a file of %" PRIu64, r->file->path, n,
                       r->file->size);
    r->data = sizeof n + n;
    char *to = hr_buf_reserve(text, (size_t)n);
    if (!to) return hr_buf_status(text);
    HR_TRY(hr_file_read(r->file, sizeof n, to, (size_t)n));
    text->n = (size_t)n;
    const hr_json *header;
    hr_status st = hr_json_parse(hr_buf_str(text), NULL, arena, &header);
    return st ? hr_fail_prefix(st, "%s: header", r->file->path) : read_entries(r, header);
}

hr_status hr_safetensors_read(const char *path, hr_checkpoint *c)
{
    reader r = { 0 };
    hr_buf text = { 0 };
    hr_arena arena = { 0 };
    HR_TRY(hr_checkpoint_open(c, path, &r.file));
    hr_status st = read_header(&r, &text, &arena);
    for (size_t i = 0; i < r.n && !st; i++) {
        r.entries[i].tensor.offset = r.data + r.entries[i].begin;
        st = hr_checkpoint_add(c, &r.entries[i].tensor, r.entries[i].name);
    }
    hr_free(r.entries);
    hr_buf_deinit(&text);
    hr_arena_deinit(&arena);
    return st;
}

/* ---- shards --------------------------------------------------------------------------------- */

/* Reads every file that the map names, once, in the order of first mention. *files[i] is the name
 * of c->files[i]. */
static hr_status read_shards(const char *dir, const hr_json *map, hr_checkpoint *c, hr_str *files)
{
    hr_buf path = { 0 };
    hr_status st = HR_OK;
    for (size_t i = 0; i < map->count && !st; i++) {
        hr_str name = map->items[i].text;
        size_t k = 0;
        while (k < c->n_files && !hr_str_eq(files[k], name)) k++;
        if (k < c->n_files) continue;
        if (k == MAX_SHARDS) {
            st =
                hr_fail(HR_INVALID_ARGUMENT, "%s: an index of more than %d files", dir, MAX_SHARDS);
            break;
        }
        files[k] = name;
        st = hr_path_join(dir, name, &path);
        if (st) st = hr_fail_prefix(st, "%s/model.safetensors.index.json", dir);
        else st = hr_safetensors_read(hr_buf_c(&path), c);
    }
    hr_buf_deinit(&path);
    return st;
}

/* Each tensor of the map is in the file that the map says, and no file holds another. */
static hr_status check_map(const char *dir, const hr_json *map, hr_checkpoint *c,
                           const hr_str *files)
{
    for (size_t i = 0; i < map->count; i++) {
        const hr_tensor *t = hr_checkpoint_find(c, map->items[i].key);
        size_t k = 0;
        while (t && t->file != c->files[k]) k++;
        if (!t || !hr_str_eq(files[k], map->items[i].text))
            return hr_fail(HR_INVALID_ARGUMENT,
                           "%s/model.safetensors.index.json: tensor '%.*s' is not in %.*s", dir,
                           HR_STR_ARG(map->items[i].key), HR_STR_ARG(map->items[i].text));
    }
    if (c->n == map->count) return HR_OK; /* keys are unique, so the two sets are equal */
    return hr_fail(HR_INVALID_ARGUMENT,
                   "%s/model.safetensors.index.json: its files hold %zu tensors, it names %zu", dir,
                   c->n, map->count);
}

static hr_status read_index(const char *dir, hr_str text, hr_checkpoint *c, hr_arena *arena)
{
    const hr_json *index;
    hr_status st = hr_json_parse(text, NULL, arena, &index);
    if (st) return hr_fail_prefix(st, "%s/model.safetensors.index.json", dir);
    const hr_json *map = hr_json_get(index, "weight_map");
    if (!map || map->type != HR_JSON_OBJECT || map->count == 0)
        return hr_fail(HR_INVALID_ARGUMENT, "%s/model.safetensors.index.json: no weight_map", dir);
    for (size_t i = 0; i < map->count; i++)
        if (map->items[i].type != HR_JSON_STRING)
            return hr_fail(HR_INVALID_ARGUMENT,
                           "%s/model.safetensors.index.json: the file of '%.*s' is not a string",
                           dir, HR_STR_ARG(map->items[i].key));
    hr_str *files = hr_arena_array(arena, MAX_SHARDS, sizeof *files);
    if (!files) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: list of shards", dir);
    HR_TRY(read_shards(dir, map, c, files));
    HR_TRY(hr_checkpoint_index(c));
    return check_map(dir, map, c, files);
}

hr_status hr_safetensors_read_dir(const char *dir, hr_checkpoint *c)
{
    hr_buf path = { 0 }, text = { 0 };
    hr_arena arena = { 0 };
    hr_status st = hr_path_join(dir, HR_STR("model.safetensors.index.json"), &path);
    bool index = !st && hr_path_exists(hr_buf_c(&path));
    if (index) {
        st = hr_file_slurp(path.p, MAX_INDEX, &text);
        if (!st) st = read_index(dir, hr_buf_str(&text), c, &arena);
    } else if (!st) {
        st = hr_path_join(dir, HR_STR("model.safetensors"), &path);
        if (!st) st = hr_safetensors_read(hr_buf_c(&path), c);
        if (!st) st = hr_checkpoint_index(c);
    }
    hr_buf_deinit(&path);
    hr_buf_deinit(&text);
    hr_arena_deinit(&arena);
    return st;
}
