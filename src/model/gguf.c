/* The GGUF reader: metadata and tensor table of versions 2 and 3.
 *
 * Runs on the thread that loads; owns nothing afterwards but what it put into the checkpoint.
 * Format: the GGUF document of the ggml project. Every length is held against the bytes that are
 * left in the file before anything is allocated or read, and every product is checked. Its one
 * clever idea: the file is seen through one moving window, so arrays of 150,000 strings are copied
 * from memory, not read one by one, and a header of any size needs no guess. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "model/model_int.h"

#define WINDOW            ((size_t)1 << 20)
#define DEFAULT_ALIGNMENT 32
#define MAX_DIMS          4
#define MAX_ALIGNMENT     ((uint64_t)1 << 20)

typedef struct reader {
    hr_file *file; /* borrowed from the checkpoint */
    hr_checkpoint *c;
    hr_gguf *g;
    hr_str architecture; /* n 0 until metadata is read */
    uint64_t at;         /* file offset of the next byte */
    char *window;        /* owned, WINDOW bytes */
    uint64_t from;       /* file offset of window[0] */
    size_t filled;
} reader;

static hr_status fault(const reader *r, const char *what)
{
    return hr_fail(HR_INVALID_ARGUMENT, "%s: at byte %" PRIu64 ": %s", r->file->path, r->at, what);
}

static hr_status no_memory(const reader *r)
{
    return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: memory for its metadata", r->file->path);
}

static uint64_t left(const reader *r)
{
    return r->file->size - r->at;
}

static hr_status take(reader *r, void *to, size_t n)
{
    if (n > left(r)) return fault(r, "the file ends inside its header");
    if (n > WINDOW) {
        HR_TRY(hr_file_read(r->file, r->at, to, n));
    } else if (n) {
        if (r->at < r->from || r->at + n > r->from + r->filled) {
            r->filled = left(r) < WINDOW ? (size_t)left(r) : WINDOW;
            r->from = r->at;
            HR_TRY(hr_file_read(r->file, r->from, r->window, r->filled));
        }
        memcpy(to, r->window + (r->at - r->from), n);
    }
    r->at += n;
    return HR_OK;
}

static hr_status take_u32(reader *r, uint32_t *out)
{
    *out = 0;
    return take(r, out, sizeof *out);
}

static hr_status take_u64(reader *r, uint64_t *out)
{
    *out = 0;
    return take(r, out, sizeof *out);
}

static hr_status take_str(reader *r, hr_str *out)
{
    *out = (hr_str){ 0 };
    uint64_t n;
    HR_TRY(take_u64(r, &n));
    if (n > left(r)) return fault(r, "a string is longer than the file");
    char *p = hr_arena_alloc(r->c->arena, (size_t)n + 1);
    if (!p) return no_memory(r);
    HR_TRY(take(r, p, (size_t)n));
    *out = (hr_str){ p, (size_t)n };
    return HR_OK;
}

/* A key or a tensor's name: not empty, UTF-8, without NUL. */
static hr_status take_name(reader *r, hr_str *out)
{
    HR_TRY(take_str(r, out));
    if (out->n == 0 || out->n > 65535 || memchr(out->p, '\0', out->n) || !hr_utf8_valid(*out))
        return fault(r, "a name that is empty, too long, not UTF-8 or holds NUL");
    return HR_OK;
}

/* ---- metadata ------------------------------------------------------------------------------- */

static size_t type_size(hr_gguf_type t)
{
    static const uint8_t sizes[HR_GGUF_TYPES] = {
        [HR_GGUF_U8] = 1,  [HR_GGUF_I8] = 1,  [HR_GGUF_U16] = 2, [HR_GGUF_I16] = 2,
        [HR_GGUF_U32] = 4, [HR_GGUF_I32] = 4, [HR_GGUF_F32] = 4, [HR_GGUF_BOOL] = 1,
        [HR_GGUF_U64] = 8, [HR_GGUF_I64] = 8, [HR_GGUF_F64] = 8,
    };
    return sizes[t]; /* 0 for strings and arrays */
}

static hr_status take_type(reader *r, hr_gguf_type *out)
{
    uint32_t t;
    HR_TRY(take_u32(r, &t));
    if (t >= HR_GGUF_TYPES) return fault(r, "unknown metadata type");
    *out = (hr_gguf_type)t;
    return HR_OK;
}

/* Sign- or zero-extends a scalar of `type` at p into the value's union. */
static void widen(const char *p, hr_gguf_type type, hr_gguf_value *v)
{
    int8_t i8;
    int16_t i16;
    int32_t i32;
    float f32;
    v->as.u64 = 0;
    switch (type) {
    case HR_GGUF_U8:
    case HR_GGUF_BOOL:
    case HR_GGUF_U16:
    case HR_GGUF_U32:
    case HR_GGUF_U64:
    case HR_GGUF_I64:
    case HR_GGUF_F64: memcpy(&v->as.u64, p, type_size(type)); return; /* little-endian host */
    case HR_GGUF_I8:
        memcpy(&i8, p, 1);
        v->as.i64 = i8;
        return;
    case HR_GGUF_I16:
        memcpy(&i16, p, 2);
        v->as.i64 = i16;
        return;
    case HR_GGUF_I32:
        memcpy(&i32, p, 4);
        v->as.i64 = i32;
        return;
    case HR_GGUF_F32:
        memcpy(&f32, p, 4);
        v->as.f64 = (double)f32;
        return;
    case HR_GGUF_STRING:
    case HR_GGUF_ARRAY:
    case HR_GGUF_TYPES: return;
    }
}

static hr_status take_strings(reader *r, hr_gguf_value *v)
{
    hr_str *items = hr_arena_array(r->c->arena, v->count, sizeof *items);
    if (!items) return no_memory(r);
    for (size_t i = 0; i < v->count; i++) HR_TRY(take_str(r, &items[i]));
    v->items = items;
    return HR_OK;
}

static hr_status take_array(reader *r, hr_gguf_value *v)
{
    uint64_t count;
    HR_TRY(take_type(r, &v->item_type));
    HR_TRY(take_u64(r, &count));
    if (v->item_type == HR_GGUF_ARRAY) return fault(r, "arrays of arrays are not supported");
    bool strings = v->item_type == HR_GGUF_STRING;
    size_t least = strings ? sizeof(uint64_t) : type_size(v->item_type); /* bytes per item */
    if (count > left(r) / least) return fault(r, "an array is longer than the file");
    v->count = (size_t)count;
    if (strings) return take_strings(r, v);
    char *items = hr_arena_array(r->c->arena, v->count, least);
    if (!items) return no_memory(r);
    v->items = items;
    return take(r, items, v->count * least);
}

static hr_status take_value(reader *r, hr_gguf_value *v)
{
    char raw[8];
    HR_TRY(take_name(r, &v->key));
    HR_TRY(take_type(r, &v->type));
    if (v->type == HR_GGUF_STRING) return take_str(r, &v->as.str);
    if (v->type == HR_GGUF_ARRAY) return take_array(r, v);
    HR_TRY(take(r, raw, type_size(v->type)));
    widen(raw, v->type, v);
    if (v->type == HR_GGUF_BOOL && v->as.u64 > 1) return fault(r, "a boolean that is not 0 or 1");
    return HR_OK;
}

static int order_str(hr_str a, hr_str b)
{
    int order = memcmp(a.p, b.p, a.n < b.n ? a.n : b.n);
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

static int compare_keys(const void *a, const void *b)
{
    return order_str(((const hr_gguf_value *)a)->key, ((const hr_gguf_value *)b)->key);
}

static hr_status read_metadata(reader *r, uint64_t count)
{
    hr_gguf *g = r->g;
    /* grown as entries arrive: the count itself sizes nothing */
    for (uint64_t i = 0; i < count; i++) {
        HR_TRY(hr_grow((void **)&g->values, &g->capacity, g->n + 1, sizeof *g->values));
        g->values[g->n] = (hr_gguf_value){ 0 };
        HR_TRY(take_value(r, &g->values[g->n]));
        g->n++;
    }
    if (g->n > 1) qsort(g->values, g->n, sizeof *g->values, compare_keys);
    for (size_t i = 1; i < g->n; i++)
        if (hr_str_eq(g->values[i].key, g->values[i - 1].key))
            return hr_fail(HR_INVALID_ARGUMENT, "%s: metadata key '%.*s' is there twice",
                           r->file->path, HR_STR_ARG(g->values[i].key));
    return HR_OK;
}

static hr_status read_alignment(const reader *r, uint64_t *out)
{
    *out = DEFAULT_ALIGNMENT;
    const hr_gguf_value *v = hr_gguf_get(r->g, "general.alignment");
    if (!v) return HR_OK;
    if (v->type != HR_GGUF_U32)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: general.alignment must be a UINT32",
                       r->file->path);
    *out = v->as.u64;
    if (*out == 0 || (*out & (*out - 1)) || *out > MAX_ALIGNMENT)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%s: general.alignment %" PRIu64 " is not a power of two up to %" PRIu64,
                       r->file->path, *out, MAX_ALIGNMENT);
    return HR_OK;
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* ggml's type numbers. Those named without a format are known and not supported. */
static const struct {
    uint32_t type;
    const char *name;
    int format; /* hr_format, or -1 */
} tensor_types[] = {
    { 0, "F32", HR_FORMAT_F32 },
    { 1, "F16", HR_FORMAT_F16 },
    { 2, "Q4_0", HR_FORMAT_Q4_0 },
    { 3, "Q4_1", HR_FORMAT_Q4_1 },
    { 6, "Q5_0", HR_FORMAT_Q5_0 },
    { 7, "Q5_1", HR_FORMAT_Q5_1 },
    { 8, "Q8_0", HR_FORMAT_Q8_0 },
    { 9, "Q8_1", -1 },
    { 10, "Q2_K", -1 },
    { 11, "Q3_K", -1 },
    { 12, "Q4_K", HR_FORMAT_Q4_K },
    { 13, "Q5_K", HR_FORMAT_Q5_K },
    { 14, "Q6_K", HR_FORMAT_Q6_K },
    { 15, "Q8_K", -1 },
    { 16, "IQ2_XXS", -1 },
    { 17, "IQ2_XS", -1 },
    { 18, "IQ3_XXS", -1 },
    { 19, "IQ1_S", -1 },
    { 20, "IQ4_NL", -1 },
    { 21, "IQ3_S", -1 },
    { 22, "IQ2_S", -1 },
    { 23, "IQ4_XS", -1 },
    { 24, "I8", -1 },
    { 25, "I16", -1 },
    { 26, "I32", -1 },
    { 27, "I64", -1 },
    { 28, "F64", -1 },
    { 29, "IQ1_M", -1 },
    { 30, "BF16", HR_FORMAT_BF16 },
    { 34, "TQ1_0", -1 },
    { 35, "TQ2_0", -1 },
    { 39, "MXFP4", -1 },
};

static hr_status tensor_format(const reader *r, hr_str name, uint32_t type, hr_format *out)
{
    const char *known = "unknown";
    for (size_t i = 0; i < sizeof tensor_types / sizeof *tensor_types; i++) {
        if (tensor_types[i].type != type) continue;
        known = tensor_types[i].name;
        *out = (hr_format)tensor_types[i].format;
        if (tensor_types[i].format >= 0) return HR_OK;
    }
    return hr_fail(HR_INVALID_ARGUMENT,
                   "%s: tensor '%.*s' has type %" PRIu32 " (%s), which is not "
                   "supported",
                   r->file->path, HR_STR_ARG(name), type, known);
}

/* ne[0] is the row; the door's shape has it last. */
static hr_status take_shape(reader *r, hr_str name, hr_shape *out)
{
    uint32_t n;
    uint64_t ne;
    HR_TRY(take_u32(r, &n));
    if (n == 0 || n > MAX_DIMS)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%s: tensor '%.*s' has %" PRIu32 " dimensions, 1 to %d "
                       "are possible",
                       r->file->path, HR_STR_ARG(name), n, MAX_DIMS);
    *out = (hr_shape){ .rank = (int)n };
    for (uint32_t i = 0; i < n; i++) {
        HR_TRY(take_u64(r, &ne));
        if (ne == 0 || ne > INT64_MAX)
            return hr_fail(HR_INVALID_ARGUMENT, "%s: tensor '%.*s' has a dimension of %" PRIu64,
                           r->file->path, HR_STR_ARG(name), ne);
        out->dim[n - 1 - i] = (int64_t)ne;
    }
    return HR_OK;
}

static hr_status tensor_bytes(const reader *r, hr_str name, const hr_weight *w, size_t *out)
{
    int64_t k = w->shape.dim[w->shape.rank - 1], block = hr_format_block(w->format);
    char text[96];
    *out = 0;
    if (k % block)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%s: tensor '%.*s' has rows of %" PRId64 " elements, not a multiple of the "
                       "%" PRId64 " in a block of %s",
                       r->file->path, HR_STR_ARG(name), k, block, hr_format_name(w->format));
    bool fits = hr_mul_add((size_t)(k / block), hr_format_block_bytes(w->format), 0, out);
    for (int i = 0; i < w->shape.rank - 1 && fits; i++)
        fits = hr_mul_add(*out, (size_t)w->shape.dim[i], 0, out);
    if (!fits || *out > r->file->size)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: tensor '%.*s' %s %s is larger than the file",
                       r->file->path, HR_STR_ARG(name), hr_format_name(w->format),
                       hr_model_shape_text(w->shape, text));
    return HR_OK;
}

/* A tensor's table entry, its offset still counted from the start of the data. */
static hr_status take_tensor(reader *r)
{
    hr_tensor t = { .file = r->file };
    hr_str name, canonical;
    uint32_t type;
    size_t bytes;
    HR_TRY(take_name(r, &name));
    HR_TRY(take_shape(r, name, &t.weight.shape));
    HR_TRY(take_u32(r, &type));
    HR_TRY(tensor_format(r, name, type, &t.weight.format));
    HR_TRY(take_u64(r, &t.offset));
    HR_TRY(tensor_bytes(r, name, &t.weight, &bytes));
    t.bytes = bytes;
    t.in_file = name.p;
    HR_TRY(hr_gguf_canonical_name(r->architecture, name, r->c->arena, &canonical));
    return hr_checkpoint_add(r->c, &t, canonical);
}

/* Tensors lie one after another in the order of the table, each padded to the alignment: that is
 * what writers do and what excludes overlap and gap at once. */
static hr_status place_tensors(const reader *r, uint64_t alignment)
{
    uint64_t data = (r->at + alignment - 1) & ~(alignment - 1), expected = 0;
    for (size_t i = 0; i < r->c->n; i++) {
        hr_tensor *t = r->c->tensors[i];
        if (t->offset != expected)
            return hr_fail(HR_INVALID_ARGUMENT,
                           "%s: tensor '%s' is at offset %" PRIu64 ", %" PRIu64 " is expected",
                           r->file->path, t->in_file, t->offset, expected);
        /* no sum here can wrap: bytes ≤ size, and expected ≤ size + alignment on success */
        if (data > r->file->size || expected > r->file->size - data ||
            t->bytes > r->file->size - data - expected)
            return hr_fail(HR_DATA_LOSS,
                           "%s: tensor '%s' ends past the end of the file: the file is cut short",
                           r->file->path, t->in_file);
        expected = (expected + t->bytes + alignment - 1) & ~(alignment - 1);
        t->offset += data;
    }
    return HR_OK;
}

static hr_status read_all(reader *r)
{
    char magic[4];
    uint32_t version;
    uint64_t tensors, values, alignment;
    HR_TRY(take(r, magic, sizeof magic));
    if (memcmp(magic, "GGUF", 4) != 0) return fault(r, "not a GGUF file");
    HR_TRY(take_u32(r, &version));
    if (version == 0x02000000 || version == 0x03000000)
        return fault(r, "a big-endian GGUF file, which is not supported");
    if (version != 2 && version != 3)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: GGUF version %" PRIu32 ", 2 and 3 are supported",
                       r->file->path, version);
    HR_TRY(take_u64(r, &tensors));
    HR_TRY(take_u64(r, &values));
    HR_TRY(read_metadata(r, values));
    HR_TRY(hr_gguf_str(r->g, "general.architecture", HR_OPTIONAL, &r->architecture));
    HR_TRY(read_alignment(r, &alignment));
    for (uint64_t i = 0; i < tensors; i++) HR_TRY(take_tensor(r));
    return place_tensors(r, alignment);
}

hr_status hr_gguf_read(const char *path, hr_checkpoint *c, hr_gguf *g)
{
    reader r = { .c = c, .g = g };
    HR_TRY(hr_checkpoint_open(c, path, &r.file));
    g->path = r.file->path;
    r.window = hr_alloc(WINDOW);
    if (!r.window) return no_memory(&r);
    hr_status st = read_all(&r);
    hr_free(r.window);
    return st ? st : hr_checkpoint_index(c);
}

void hr_gguf_deinit(hr_gguf *g)
{
    hr_free(g->values);
    *g = (hr_gguf){ 0 };
}

const hr_gguf_value *hr_gguf_get(const hr_gguf *g, const char *key)
{
    hr_gguf_value wanted = { .key = hr_str_c(key) };
    if (g->n == 0) return NULL;
    return bsearch(&wanted, g->values, g->n, sizeof *g->values, compare_keys);
}
