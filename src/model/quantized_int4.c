/* Matrices of packed integers: compressed-tensors' pack-quantized, GPTQ, AWQ.
 *
 * Bound on the thread that loads; read by any number of packing threads. The 4-bit layouts differ
 * in which way eight numbers share a word and what is contiguous; all become rows of blocks of one
 * format (HR_FORMAT_I4G…), so nobody behind read_rows can tell. Two layouts run across the rows, so
 * the first reader of a matrix loads it whole and the last one of its N rows frees it: files are
 * read from end to end, and as much as one matrix is in memory twice. Packed 8-bit numbers are
 * int8 rows with another zero. */
#include <math.h>
#include <stdio.h>

#include "base/half.h"
#include "base/sync.h"
#include "model/quantized_int.h"

enum { WORD = 8, GROUP = 32 }; /* numbers in a word of 4-bit ones; columns of a run in a block */

typedef struct hr_int4 {
    struct hr_int4 *next; /* of the model */
    hr_quant_layout layout;
    const hr_tensor *codes, *scales, *zeros; /* zeros NULL: all are 8 */
    int64_t N, K, columns, groups;           /* columns share a scale; groups of a row */
    int zero_add;
    hr_mutex lock;   /* of what follows */
    int users;       /* readers at work */
    int64_t served;  /* rows read since it was loaded */
    void *code_data; /* owned while loaded, like the next two; the files' bytes */
    void *zero_data;
    float *scale_data;
} hr_int4;

bool hr_int4_format(int64_t columns, int64_t K, hr_format *out)
{
    static const hr_format formats[] = { HR_FORMAT_I4G128, HR_FORMAT_I4G64, HR_FORMAT_I4G32 };
    if (columns == 0) columns = K;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        int64_t block = hr_format_block(formats[i]);
        *out = formats[i];
        if (columns % block == 0 && K % block == 0) return true;
    }
    return false;
}

/* ---- loading -------------------------------------------------------------------------------- */

static hr_status load_bytes(const hr_tensor *t, void **out)
{
    *out = hr_alloc(t->bytes);
    if (!*out)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its %llu bytes", t->in_file,
                       (unsigned long long)t->bytes);
    return hr_file_read(t->file, t->offset, *out, t->bytes);
}

/* int8 numbers that 4 bits can hold. */
static hr_status check_bytes(const hr_tensor *t, const void *data)
{
    const int8_t *b = data;
    for (uint64_t i = 0; i < t->bytes; i++)
        if (b[i] < -8 || b[i] > 7)
            return hr_fail(HR_INVALID_ARGUMENT, "%s: tensor '%s' has %d, which is no 4-bit number",
                           t->file->path, t->in_file, b[i]);
    return HR_OK;
}

static bool is_bytes(const hr_tensor *t)
{
    return t && !t->integers;
}

static hr_status load(hr_int4 *s)
{
    size_t n = (size_t)hr_shape_count(s->scales->weight.shape);
    HR_TRY(load_bytes(s->codes, &s->code_data));
    if (s->zeros) HR_TRY(load_bytes(s->zeros, &s->zero_data));
    if (is_bytes(s->codes)) HR_TRY(check_bytes(s->codes, s->code_data));
    if (is_bytes(s->zeros)) HR_TRY(check_bytes(s->zeros, s->zero_data));
    s->scale_data = hr_alloc_array0(n, sizeof *s->scale_data);
    if (!s->scale_data)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its numbers", s->scales->in_file);
    return hr_quantized_numbers(&s->scales->weight, s->scale_data);
}

static void unload(hr_int4 *s)
{
    hr_free(s->code_data);
    hr_free(s->zero_data);
    hr_free(s->scale_data);
    s->code_data = s->zero_data = s->scale_data = NULL;
    s->served = 0;
}

static hr_status borrow(hr_int4 *s)
{
    hr_mutex_lock(&s->lock);
    hr_status st = s->scale_data ? HR_OK : load(s);
    if (st) unload(s);
    else s->users++;
    hr_mutex_unlock(&s->lock);
    return st;
}

static void give_back(hr_int4 *s, int64_t rows)
{
    hr_mutex_lock(&s->lock);
    s->served += rows;
    if (--s->users == 0 && s->served >= s->N) unload(s);
    hr_mutex_unlock(&s->lock);
}

/* ---- rows of 4-bit blocks -------------------------------------------------------------------- */

/* AWQ packs columns 0, 2, 4, 6, 1, 3, 5, 7 of eight from the low bits up. */
static int place_in_word(hr_quant_layout layout, int64_t i)
{
    return (int)(layout == HR_QUANT_AWQ ? i / 2 + i % 2 * 4 : i);
}

static uint8_t number_at(uint32_t word, int place)
{
    return word >> place * 4 & 15;
}

/* Columns [k, k + 32) of row n, unsigned. */
static void codes_of(const hr_int4 *s, int64_t n, int64_t k, uint8_t u[GROUP])
{
    const uint32_t *w = s->code_data;
    const int8_t *b = (const int8_t *)s->code_data + n * s->K + k;
    const int place = place_in_word(s->layout, n % WORD);
    switch (s->layout) {
    case HR_QUANT_BYTES:
        for (int i = 0; i < GROUP; i++) u[i] = (uint8_t)(b[i] + 8);
        return;
    case HR_QUANT_PACKED:
        w += (n * s->K + k) / WORD;
        for (int i = 0; i < GROUP; i++) u[i] = number_at(w[i / WORD], i % WORD);
        return;
    case HR_QUANT_GPTQ:
        w += k / WORD * s->N + n;
        for (int i = 0; i < GROUP; i++) u[i] = number_at(w[i / WORD * s->N], i % WORD);
        return;
    case HR_QUANT_AWQ:
        w += k * (s->N / WORD) + n / WORD;
        for (int i = 0; i < GROUP; i++) u[i] = number_at(w[i * (s->N / WORD)], place);
        return;
    }
}

static uint32_t zero_of(const hr_int4 *s, int64_t n, int64_t g)
{
    const uint32_t *w = s->zero_data;
    if (!s->zeros) return 8;
    if (is_bytes(s->zeros))
        return (uint32_t)(((const int8_t *)s->zero_data)[n * s->groups + g] + 8);
    int64_t at =
        s->layout == HR_QUANT_PACKED ? n / WORD * s->groups + g : g * (s->N / WORD) + n / WORD;
    return number_at(w[at], place_in_word(s->layout, n % WORD)) + (uint32_t)s->zero_add;
}

static float scale_of(const hr_int4 *s, int64_t n, int64_t g)
{
    return s->scale_data[hr_quant_is_across(s->layout) ? g * s->N + n : n * s->groups + g];
}

/* A block as types.h describes it. */
static void put_block(const hr_int4 *s, int64_t n, int64_t k, int64_t columns, uint8_t *to)
{
    float scale = scale_of(s, n, k / s->columns);
    uint32_t zero = zero_of(s, n, k / s->columns);
    memcpy(to, &scale, sizeof scale);
    memcpy(to + sizeof scale, &zero, sizeof zero);
    to += HR_I4G_HEAD;
    for (int64_t i = 0; i < columns; i += GROUP, to += GROUP / 2) {
        uint8_t u[GROUP];
        codes_of(s, n, k + i, u);
        for (int j = 0; j < GROUP / 2; j++) to[j] = (uint8_t)(u[j] | u[j + GROUP / 2] << 4);
    }
}

static hr_status read_blocks(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    hr_int4 *s = (hr_int4 *)(uintptr_t)w->source;
    int64_t block = hr_format_block(w->format);
    size_t bytes = hr_format_block_bytes(w->format);
    if (first < 0 || count < 0 || first > s->N - count)
        return hr_fail(HR_INTERNAL, "%s: rows %lld+%lld", w->name, (long long)first,
                       (long long)count);
    HR_TRY(borrow(s));
    uint8_t *p = to;
    for (int64_t n = first; n < first + count; n++)
        for (int64_t k = 0; k < s->K; k += block, p += bytes) put_block(s, n, k, block, p);
    give_back(s, count);
    return HR_OK;
}

/* ---- binding -------------------------------------------------------------------------------- */

static bool is_float(hr_format f)
{
    return f == HR_FORMAT_F32 || f == HR_FORMAT_F16 || f == HR_FORMAT_BF16;
}

static const char *dtype_of(const hr_tensor *t)
{
    return t->integers ? t->integers : hr_format_name(t->weight.format);
}

static hr_status check_part(const hr_tensor *t, bool right_dtype, const char *dtype, hr_shape shape)
{
    char is[96], wanted[96];
    if (right_dtype && hr_shape_eq(t->weight.shape, shape)) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT,
                   "%s: tensor '%s' is %s %s, quantization_config makes it %s "
                   "%s",
                   t->file->path, t->in_file, dtype_of(t), hr_model_shape_text(t->weight.shape, is),
                   dtype, hr_model_shape_text(shape, wanted));
}

static bool is_i32(const hr_tensor *t)
{
    return t->integers && !strcmp(t->integers, "I32");
}

static hr_status check_words(const hr_tensor *t, int64_t rows, int64_t columns)
{
    return check_part(t, is_i32(t), "I32", HR_SHAPE(rows, columns));
}

static hr_status check_scales(const hr_tensor *t, int64_t rows, int64_t columns)
{
    hr_shape shape = HR_SHAPE(rows, columns);
    if (columns == 1 && t->weight.shape.rank == 1) shape = HR_SHAPE(rows);
    return check_part(t, !t->integers && is_float(t->weight.format), "F32, F16 or BF16", shape);
}

/* Integers of a small tensor, at most `most` of them. */
static hr_status read_integers(const hr_tensor *t, int64_t most, int64_t *to, int64_t *n)
{
    *n = hr_shape_count(t->weight.shape);
    bool wide = t->integers && !strcmp(t->integers, "I64");
    if (!t->integers || *n > most)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%s: tensor '%s' is %s, not the integers that "
                       "quantization_config means",
                       t->file->path, t->in_file, dtype_of(t));
    void *raw;
    hr_status st = load_bytes(t, &raw);
    for (int64_t i = 0; !st && i < *n; i++)
        to[i] = wide ? ((const int64_t *)raw)[i] : ((const int32_t *)raw)[i];
    hr_free(raw);
    return st;
}

/* Columns must lie in their groups side by side: GPTQ's desc_act deals them out by importance. */
static hr_status check_order(const hr_tensor *t, const hr_int4 *s)
{
    int64_t n = 0, *group = hr_alloc_array0((size_t)s->K, sizeof *group);
    if (!group) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its numbers", t->in_file);
    hr_status st = read_integers(t, s->K, group, &n);
    if (!st && n != s->K)
        st = hr_fail(HR_INVALID_ARGUMENT, "%s: tensor '%s' has %lld numbers for %lld columns",
                     t->file->path, t->in_file, (long long)n, (long long)s->K);
    for (int64_t k = 0; !st && k < s->K; k++)
        if (group[k] != k / s->columns)
            st = hr_fail(HR_UNIMPLEMENTED,
                         "%s: tensor '%s' puts column %lld into group %lld: columns out of order "
                         "(quantization_config.desc_act) are not supported",
                         t->file->path, t->in_file, (long long)k, (long long)group[k]);
    hr_free(group);
    return st;
}

/* The matrix that `weight_shape` tells of is the one that is packed. */
static hr_status check_shape(hr_model *m, hr_str module, int64_t N, int64_t K)
{
    int64_t shape[2] = { 0 }, n;
    const hr_tensor *t = hr_quantized_take(m, module, ".weight_shape");
    if (!t) return HR_OK;
    HR_TRY(read_integers(t, 2, shape, &n));
    if (n == 2 && shape[0] == N && shape[1] == K) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT,
                   "%s: tensor '%s' says [%lld,%lld], the packed one is "
                   "[%lld,%lld]",
                   t->file->path, t->in_file, (long long)shape[0], (long long)shape[1],
                   (long long)N, (long long)K);
}

static hr_status bind_zeros(hr_model *m, hr_str module, const hr_quant_group *g, hr_int4 *s)
{
    const hr_tensor *t;
    if (!g->has_zero_points) return HR_OK;
    bool across = hr_quant_is_across(s->layout);
    HR_TRY(hr_quantized_need(m, module, across ? ".qzeros" : ".weight_zero_point", &t));
    s->zeros = t;
    if (across) return check_words(t, s->groups, s->N / WORD);
    if (s->layout == HR_QUANT_PACKED && t->integers)
        return check_words(t, (s->N + WORD - 1) / WORD, s->groups);
    return check_part(t, t->weight.format == HR_FORMAT_I8C && !t->integers, "I8",
                      HR_SHAPE(s->N, s->groups));
}

static hr_status bind_parts(hr_model *m, hr_str module, const hr_quant_group *g, hr_int4 *s)
{
    bool across = hr_quant_is_across(s->layout);
    HR_TRY(hr_quantized_need(m, module, across ? ".scales" : ".weight_scale", &s->scales));
    HR_TRY(across ? check_scales(s->scales, s->groups, s->N)
                  : check_scales(s->scales, s->N, s->groups));
    HR_TRY(bind_zeros(m, module, g, s));
    const hr_tensor *order = hr_quantized_take(m, module, across ? ".g_idx" : ".weight_g_idx");
    if (order) HR_TRY(check_order(order, s));
    return across ? HR_OK : check_shape(m, module, s->N, s->K);
}

/* Some exporters give every linear a bias, of zeros where the model has none. */
static hr_status leave_bias(hr_model *m, hr_str module)
{
    char name[256];
    int length = snprintf(name, sizeof name, "%.*s.bias", HR_STR_ARG(module));
    hr_tensor *t =
        length < (int)sizeof name ? hr_checkpoint_find(&m->checkpoint, hr_str_c(name)) : NULL;
    if (!t || t->integers || !is_float(t->weight.format)) return HR_OK;
    int64_t n = hr_shape_count(t->weight.shape);
    float *numbers = hr_alloc_array0((size_t)n + 1, sizeof *numbers);
    if (!numbers) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its numbers", t->in_file);
    hr_status st = n ? hr_quantized_numbers(&t->weight, numbers) : HR_OK;
    t->may_be_left = true;
    for (int64_t i = 0; i < n; i++) t->may_be_left &= numbers[i] == 0;
    hr_free(numbers);
    return st;
}

/* *s knows layout, codes, N and K; *w becomes the matrix. */
static hr_status finish(hr_model *m, hr_str module, const hr_quant_group *g, hr_int4 *s,
                        hr_weight *w)
{
    hr_format f;
    s->columns = g->columns ? g->columns : s->K;
    s->groups = (s->K + s->columns - 1) / s->columns;
    s->zero_add = g->zero_add;
    s->lock = (hr_mutex)HR_MUTEX_INIT;
    if (!s->N || !s->K || !hr_int4_format(g->columns, s->K, &f) ||
        (hr_quant_is_across(s->layout) && s->N % WORD))
        return hr_fail(HR_UNIMPLEMENTED,
                       "%s: '%.*s': a matrix [%lld,%lld] in groups of %lld "
                       "columns is not supported: multiples of 32 are, and 8 rows",
                       m->path, HR_STR_ARG(module), (long long)s->N, (long long)s->K,
                       (long long)s->columns);
    HR_TRY(bind_parts(m, module, g, s));
    w->shape = HR_SHAPE(s->N, s->K);
    w->format = f;
    w->rows = g->rows;
    w->read_rows = read_blocks;
    w->source = s;
    s->next = m->int4;
    m->int4 = s;
    return HR_OK;
}

hr_status hr_int4_bind_bytes(hr_model *m, hr_tensor *t, hr_str module, const hr_quant_group *g)
{
    hr_int4 *s = hr_arena_new(&m->arena, hr_int4);
    hr_tensor *codes = hr_arena_new(&m->arena, hr_tensor);
    if (!s || !codes) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its description", t->in_file);
    *codes = *t;
    *s = (hr_int4){ .layout = HR_QUANT_BYTES,
                    .codes = codes,
                    .N = t->weight.shape.dim[0],
                    .K = t->weight.shape.dim[1] };
    return finish(m, module, g, s, &t->weight);
}

/* ---- packed 8-bit rows ----------------------------------------------------------------------- */

static hr_status read_packed_bytes(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const hr_tensor *codes = w->source;
    uint64_t K = (uint64_t)w->shape.dim[1], n = (uint64_t)count * K;
    if (first < 0 || count < 0 || first > w->shape.dim[0] - count)
        return hr_fail(HR_INTERNAL, "%s: rows %lld+%lld", w->name, (long long)first,
                       (long long)count);
    HR_TRY(hr_file_read(codes->file, codes->offset + (uint64_t)first * K, to, n));
    for (uint64_t i = 0; i < n; i++) ((uint8_t *)to)[i] ^= 0x80; /* stored from 0 to 255 */
    return HR_OK;
}

static hr_status bind_packed_bytes(hr_model *m, hr_tensor *codes, hr_str module,
                                   const hr_quant_group *g, hr_tensor *t)
{
    int64_t N = codes->weight.shape.dim[0], K = codes->weight.shape.dim[1] * 4;
    HR_TRY(check_shape(m, module, N, K));
    t->weight.shape = HR_SHAPE(N, K);
    t->weight.format = HR_FORMAT_I8C;
    t->weight.rows = g->rows;
    t->weight.read_rows = read_packed_bytes;
    t->weight.source = codes;
    return hr_quantized_scales(m, t, module);
}

/* ---- the table ------------------------------------------------------------------------------ */

static hr_status bind_packed_int4(hr_model *m, hr_tensor *codes, hr_str module,
                                  const hr_quant_group *g, hr_tensor *t)
{
    const int64_t *dim = codes->weight.shape.dim;
    hr_int4 *s = hr_arena_new(&m->arena, hr_int4);
    if (!s) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its description", codes->in_file);
    *s = (hr_int4){ .layout = g->layout, .codes = codes, .N = dim[0], .K = dim[1] * WORD };
    if (g->layout == HR_QUANT_GPTQ) {
        s->N = dim[1];
        s->K = dim[0] * WORD;
        HR_TRY(leave_bias(m, module));
    } else if (g->layout == HR_QUANT_AWQ) {
        s->N = dim[1] * WORD;
        s->K = dim[0];
    }
    return finish(m, module, g, s, &t->weight);
}

/* Module and group of a tensor that holds packed numbers; *g NULL = it holds none. */
static hr_status packed_group(const hr_model *m, const hr_tensor *t, hr_str *module,
                              const hr_quant_group **g)
{
    static const struct {
        hr_str tail;
        bool by_presence;
    } kinds[] = { { { ".weight_packed", 14 }, false }, { { ".qweight", 8 }, true } };
    const hr_quantization *q = m->config.quantization;
    hr_str name = hr_str_c(t->weight.name);
    *g = NULL;
    for (size_t i = 0; q && i < 2; i++) {
        if (!hr_str_ends(name, kinds[i].tail)) continue;
        if (hr_quantization_is_by_presence(q) != kinds[i].by_presence) return HR_OK;
        *module = (hr_str){ name.p, name.n - kinds[i].tail.n };
        HR_TRY(hr_quantization_of(q, *module, g));
        if (*g && (*g)->layout == HR_QUANT_BYTES) *g = NULL;
        if (*g && is_i32(t) && t->weight.shape.rank == 2 && hr_shape_count(t->weight.shape))
            return HR_OK;
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%s: tensor '%s' is no packed matrix, or quantization_config has no group "
                       "that makes '%.*s' one",
                       t->file->path, t->in_file, HR_STR_ARG(*module));
    }
    return HR_OK;
}

static hr_status bind_packed(hr_model *m, hr_tensor *codes, hr_str module, const hr_quant_group *g)
{
    char name[256];
    int n = snprintf(name, sizeof name, "%.*s.weight", HR_STR_ARG(module));
    hr_tensor t = { .in_file = codes->in_file, .file = codes->file };
    if (n >= (int)sizeof name)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: tensor '%s': its name is too long",
                       codes->file->path, codes->in_file);
    codes->used = codes->is_part = true;
    HR_TRY(hr_checkpoint_add(&m->checkpoint, &t, (hr_str){ name, (size_t)n }));
    hr_tensor *added = m->checkpoint.tensors[m->checkpoint.n - 1];
    return (g->bits == 8 ? bind_packed_bytes : bind_packed_int4)(m, codes, module, g, added);
}

hr_status hr_int4_bind(hr_model *m)
{
    size_t n = m->checkpoint.n;
    for (size_t i = 0; i < n; i++) {
        hr_str module;
        const hr_quant_group *g;
        hr_tensor *t = m->checkpoint.tensors[i];
        HR_TRY(packed_group(m, t, &module, &g));
        if (g) HR_TRY(bind_packed(m, t, module, g));
    }
    return m->checkpoint.n > n ? hr_checkpoint_index(&m->checkpoint) : HR_OK;
}

void hr_quantized_deinit(hr_model *m)
{
    for (hr_int4 *s = m->int4; s; s = s->next) unload(s);
}

/* ---- dummy weights -------------------------------------------------------------------------- */

/* Codes of every value about a zero of 8, of the size that float dummy weights have. */
static hr_status read_dummy(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const hr_tensor *t = w->source;
    size_t bytes = hr_format_block_bytes(w->format),
           row = hr_format_row_bytes(w->format, w->shape.dim[1]);
    float scale = (float)(sqrt(3.0 / (double)w->shape.dim[1]) / 8);
    uint32_t zero = 8;
    for (size_t i = 0; i < (size_t)count * row; i++)
        ((uint8_t *)to)[i] = hr_dummy_byte(t->seed, (uint64_t)first * row + i);
    for (size_t at = 0; at < (size_t)count * row; at += bytes) {
        memcpy((char *)to + at, &scale, sizeof scale);
        memcpy((char *)to + at + sizeof scale, &zero, sizeof zero);
    }
    return HR_OK;
}

hr_status hr_int4_bind_dummy(hr_tensor *t, const hr_quant_group *g)
{
    int64_t K = t->weight.shape.dim[1];
    if (!hr_int4_format(g->columns, K, &t->weight.format))
        return hr_fail(HR_UNIMPLEMENTED,
                       "%s: rows of %lld columns in groups of %lld are not supported",
                       t->weight.name, (long long)K, (long long)g->columns);
    t->weight.rows = g->rows;
    t->weight.read_rows = read_dummy;
    return HR_OK;
}
