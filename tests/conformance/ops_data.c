/* Makes the operands of ops_table.def. See ops_data.h. Test code, one thread. */
#include "conformance/ops_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/half.h"

const ops_row ops_table[] = {
#define CASE(o, how, t, n, words, ...)                                                             \
    { .name = #o,                                                                                  \
      .op = HR_OP_##o,                                                                             \
      .agreement = how,                                                                            \
      .rows = t,                                                                                   \
      .roundings = n,                                                                              \
      .operands = words,                                                                           \
      __VA_ARGS__ },
#include "conformance/ops_table.def"
#undef CASE
};
const size_t ops_table_n = sizeof ops_table / sizeof *ops_table;

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint32_t x = a * 0x9e3779b9u ^ b * 0x85ebca6bu;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* Sum of four uniform numbers: bell-shaped, about unit variance. */
static float number(uint32_t h)
{
    float sum = -2;
    for (uint32_t i = 0; i < 4; i++) sum += (float)(mix(h, i + 77) >> 8) * 0x1p-24f;
    return sum * 1.7320508f;
}

static void put_float(hr_dtype d, void *to, int64_t i, float x)
{
    if (d == HR_DTYPE_F32) ((float *)to)[i] = x;
    if (d == HR_DTYPE_BF16) ((uint16_t *)to)[i] = hr_f32_to_bf16(x);
    if (d == HR_DTYPE_F16) ((uint16_t *)to)[i] = hr_f32_to_f16(x);
}

double ops_float(hr_dtype d, const void *from, int64_t i)
{
    if (d == HR_DTYPE_F32) return (double)((const float *)from)[i];
    if (d == HR_DTYPE_I8) return (double)((const int8_t *)from)[i];
    uint16_t h = ((const uint16_t *)from)[i];
    return (double)(d == HR_DTYPE_BF16 ? hr_bf16_to_f32(h) : hr_f16_to_f32(h));
}

/* Three requests over 24 rows: a chunk that ends a prompt, a whole prompt, one decode. */
static const int32_t starts[] = { 0, 9, 23, 24 }, lens[] = { 30, 14, 61 };

static int32_t integer(char fill, int64_t r, int64_t c, uint32_t h, int64_t columns)
{
    switch (fill) {
    case 'i': return (int32_t)(h % 41) - 1;
    case 's': return r % 5 == 4 ? -1 : (int32_t)(r * 7 % 128);
    case 'c': return (int32_t)(h % 6);
    case 'g': return (int32_t)(h % 4) - 1;
    case 'B': return (int32_t)((r * columns + c) * 11 % 24);
    case 'S': return starts[r];
    case 'L': return lens[r];
    default: return (int32_t)(mix((uint32_t)r, (uint32_t)c) % 5000); /* P */
    }
}

/* A value of a tempered row: each row's best is 0, a few have been masked. */
static float tempered(int64_t r, int64_t c, int64_t columns, uint32_t h)
{
    float x = number(h);
    if (c == (r * 977 + 5) % columns) return 0;
    return h % 29 == 0 ? -INFINITY : -8 * (x < 0 ? -x : x);
}

/* A threshold: none, the best alone, or somewhere between. */
static float cut(uint32_t h)
{
    float x = number(h);
    if (h % 4 == 0) return -INFINITY;
    return h % 4 == 1 ? 0 : -3 * (x < 0 ? -x : x);
}

static hr_dtype dtype_of(char fill, hr_op op, hr_dtype dtype)
{
    if (fill == 'n') return dtype;
    if (strchr("fpthwv", fill)) return HR_DTYPE_F32;
    if (fill == 'q') return HR_DTYPE_I8;
    if (fill == 'b')
        return op == HR_OP_penalties || op == HR_OP_count_tokens ? HR_DTYPE_U16 : HR_DTYPE_U32;
    return HR_DTYPE_I32;
}

static void fill_element(const op_operand *o, char fill, void *to, int64_t i, uint32_t seed)
{
    int64_t columns = o->shape.rank > 1 ? hr_shape_row(o->shape) : 1;
    int64_t r = i / columns, c = i % columns;
    uint32_t h = mix(mix(seed, (uint32_t)r), (uint32_t)c);
    if (fill == 'n' || fill == 'f') put_float(o->dtype, to, i, number(h));
    else if (fill == 'p') ((float *)to)[i] = (float)(h % 1000 + 1) / 1000;
    else if (fill == 'v') ((float *)to)[i] = 1.0f / (float)(i % 50 + 1);
    else if (fill == 't') ((float *)to)[i] = tempered(r, c, columns, h);
    else if (fill == 'h') ((float *)to)[i] = cut(h);
    else if (fill == 'q') ((int8_t *)to)[i] = (int8_t)(h % 255 - 127);
    else if (fill == 'b' && o->dtype == HR_DTYPE_U16)
        ((uint16_t *)to)[i] = (uint16_t)(h % 3 ? 0 : h >> 16 & 0x8003);
    else if (fill == 'b') ((uint32_t *)to)[i] = h;
    else ((int32_t *)to)[i] = integer(fill, r, c, h, columns);
}

/* Where the f16 scales of a block lie; -1 ends. */
static void fill_blocks(const op_operand *o, unsigned char *to, size_t bytes)
{
    static const int at[][2] = {
        [HR_FORMAT_Q8_0] = { 0, -1 }, [HR_FORMAT_Q4_0] = { 0, -1 },   [HR_FORMAT_Q4_1] = { 0, 2 },
        [HR_FORMAT_Q5_0] = { 0, -1 }, [HR_FORMAT_Q5_1] = { 0, 2 },    [HR_FORMAT_Q4_K] = { 0, 2 },
        [HR_FORMAT_Q5_K] = { 0, 2 },  [HR_FORMAT_Q6_K] = { 208, -1 }, [HR_FORMAT_I4G32] = { -1 },
        [HR_FORMAT_I4G64] = { -1 },   [HR_FORMAT_I4G128] = { -1 }
    };
    size_t block = hr_format_block_bytes(o->format);
    hr_dtype d = o->format == HR_FORMAT_F32 ? HR_DTYPE_F32 : HR_DTYPE_BF16;
    if (o->format == HR_FORMAT_F16) d = HR_DTYPE_F16;
    for (size_t i = 0; i < bytes; i++) to[i] = (unsigned char)(mix(5, (uint32_t)i) >> 24);
    for (size_t i = 0; i < bytes / block; i++) {
        if (block <= 4 && o->format != HR_FORMAT_I8C)
            put_float(d, to, (int64_t)i, number(mix(6, (uint32_t)i)));
        if (hr_format_has_zero_points(o->format)) {
            float scale = number(mix(7, (uint32_t)i)) / 64;
            uint32_t zero = mix(8, (uint32_t)i) % 17;
            memcpy(to + i * block, &scale, sizeof scale);
            memcpy(to + i * block + 4, &zero, sizeof zero);
        }
        for (int s = 0; hr_format_is_blocks(o->format) && s < 2 && at[o->format][s] >= 0; s++) {
            float scale = number(mix(7, (uint32_t)i * 2 + (uint32_t)s)) / 256;
            put_float(HR_DTYPE_F16, to + i * block + at[o->format][s], 0, scale);
        }
    }
}

void *ops_alloc(size_t bytes)
{
    void *p = hr_alloc0(bytes);
    if (!p) abort();
    return p;
}

static const float *make_scales(int64_t n)
{
    float *scale = ops_alloc((size_t)n * sizeof *scale);
    for (int64_t i = 0; i < n; i++) scale[i] = (float)(i % 17 + 1) / 2000;
    return scale;
}

/* "n:T,96" into kind, dtype and shape. */
static void parse(const char *word, const ops_row *w, int64_t rows, hr_dtype dtype, op_operand *o)
{
    *o = (op_operand){ .kind = OP_INPUT, .format = w->format };
    if (*word == 'w') o->kind = OP_WEIGHT;
    if (*word == 'v') o->kind = OP_CONST;
    o->dtype = dtype_of(*word, w->op, dtype);
    for (const char *p = word + 2; *p && *p != ' '; p += *p == ',') {
        char *end;
        bool is_rows = *p == 'T';
        if (is_rows && !o->shape.rank)
            o->live =
                w->op >= HR_OP_gather_rows && w->op <= HR_OP_top_n ? HR_LIVE_ROWS : HR_LIVE_TOKENS;
        o->shape.dim[o->shape.rank++] = is_rows ? rows : strtoll(p, &end, 10);
        p = is_rows ? p + 1 : end;
    }
}

static void fill_operand(op_operand *o, char fill, int64_t live, uint32_t seed)
{
    int64_t count = hr_shape_count(o->shape), rows = o->shape.dim[0];
    size_t bytes = op_operand_bytes(o), row = bytes / (size_t)rows;
    void *data = ops_alloc(bytes);
    o->data = data;
    if (o->kind == OP_WEIGHT) {
        fill_blocks(o, data, bytes);
        if (o->format == HR_FORMAT_I8C) o->scale = make_scales(rows);
        return;
    }
    for (int64_t i = 0; i < count; i++) fill_element(o, fill, data, i, seed);
    if (o->live != HR_LIVE_ALL)
        memset((char *)data + (size_t)live * row, 0xff, (size_t)(rows - live) * row);
}

void ops_case_make(const ops_row *w, int64_t rows, int64_t live, hr_dtype dtype, op_case *c)
{
    const char *word = w->operands;
    *c = (op_case){ .op = w->op, .attrs = w->attrs, .shape = w->shape };
    if (!c->attrs.dtype) c->attrs.dtype = dtype;
    if (c->shape.rank) c->shape.dim[0] = rows;
    c->live[HR_LIVE_TOKENS] = c->live[HR_LIVE_ROWS] = live;
    for (c->n_in = 0; word; c->n_in++) {
        op_operand *o = &c->in[c->n_in];
        if (*word != '-') {
            parse(word, w, rows, dtype, o);
            fill_operand(o, *word, live, (uint32_t)c->n_in);
        }
        word = strchr(word, ' ');
        word = word ? word + 1 : NULL;
    }
}

void ops_case_free(op_case *c)
{
    for (int i = 0; i < c->n_in; i++) {
        hr_free((void *)(uintptr_t)c->in[i].data);
        hr_free((void *)(uintptr_t)c->in[i].scale);
    }
}

bool ops_has_dtypes(const ops_row *w)
{
    return strchr(w->operands, 'n') || strchr(w->operands, 'w');
}
