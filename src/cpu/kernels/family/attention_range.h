/* One range of keys for the rows of a tile.
 *
 * Keys pass in chunks of 64 at absolute positions with the online softmax of Milakov and
 * Gimelshein (arXiv 1805.02867): per row a running maximum, a running denominator, and the
 * weighted sum of values, all rescaled when the maximum grows. Codes of a cache in int8 are
 * multiplied as they are: a key's scale joins its scores, a value's its weights. */
#ifndef HEADRACE_CPU_KERNELS_FAMILY_ATTENTION_RANGE_H
#define HEADRACE_CPU_KERNELS_FAMILY_ATTENTION_RANGE_H

#include "cpu/kernels/attention.h"
#include "cpu/kernels/family/attention_tile.h"

/* What rows have of the keys so far. */
typedef struct sums {
    float *o;    /* [rows][D] weighted sum of values */
    float *most; /* [rows] maximum */
    float *sum;  /* [rows] denominator */
} sums;

/* What a tile works in, all in the worker's scratch. */
typedef struct tile {
    const hr_kernel_args *a;
    int64_t request, head; /* head: of keys */
    int64_t token;         /* first row of q */
    int64_t tokens, group; /* rows = tokens × group, token-major */
    int64_t first_query;   /* query head of row 0 */
    int64_t position;      /* of the first token; the others follow */
    int64_t D;
    float *q;     /* [rows][D], times scale */
    float *s;     /* [rows][CHUNK]: scores, then weights */
    float *t;     /* [DIM_BLOCK][CHUNK] keys, or [CHUNK][SLICE] values */
    float *alpha; /* [rows] factor of what the row has so far */
    sums now;     /* of the range under way */
    sums all;     /* of all ranges until then */
    keys k, v;
} tile;

V_INLINE int64_t rows_of(const tile *x)
{
    return x->tokens * x->group;
}

/* Ranges of row r: the first and the last that have keys for it. */
V_INLINE int64_t first_range(const tile *x, int64_t r)
{
    return hr_attention_first_key(x->a->node, x->position + r / x->group) / HR_ATTENTION_RANGE;
}
V_INLINE int64_t last_range(const tile *x, int64_t r)
{
    return (x->position + r / x->group) / HR_ATTENTION_RANGE;
}

/* A sink, one more score with no value, belongs to the first range that a row sees. */
static void begin_range(tile *x, int64_t range)
{
    const float *sink = x->a->in[6]; /* [N] or NULL */
    for (int64_t r = 0; r < rows_of(x); r++) {
        bool sunk = sink && range == first_range(x, r);
        x->now.most[r] = sunk ? sink[x->first_query + r % x->group] : -INFINITY;
        x->now.sum[r] = sunk ? 1.0f : 0.0f;
    }
    memset(x->now.o, 0, (size_t)(rows_of(x) * x->D) * sizeof *x->now.o);
}

/* ---- one chunk ------------------------------------------------------------------------------- */

/* Where keys and values [first, last) of the chunk at `base` lie. A block id outside the cache is
 * the engine's fault; it is clamped so that memory stays safe. */
static void find_keys(tile *x, int64_t base, int64_t first, int64_t last)
{
    const hr_node *n = x->a->node;
    const hr_shape c = n->in[1]->shape; /* [blocks,block,KV,D] */
    int64_t W = n->in[3]->shape.dim[1], KV = c.dim[2];
    const int32_t *table = (const int32_t *)x->a->in[3] + x->request * W;
    size_t k_size = hr_dtype_size(n->in[1]->dtype), v_size = hr_dtype_size(n->in[2]->dtype);
    const float *k_scale = x->a->in[7], *v_scale = x->a->in[8]; /* [blocks,block,KV] or NULL */
    memset(x->k.row, 0, sizeof x->k.row);
    if (k_scale) memset(x->k.scale, 0, sizeof x->k.scale);
    if (v_scale) memset(x->v.scale, 0, sizeof x->v.scale);
    x->k.first = x->v.first = first;
    x->k.last = x->v.last = last;
    int64_t entry = (base + first) / c.dim[1], offset = (base + first) % c.dim[1];
    for (int64_t j = first; j < last; entry++, offset = 0) {
        int64_t id = table[entry < W ? entry : W - 1];
        id = id < 0 ? 0 : id >= c.dim[0] ? c.dim[0] - 1 : id;
        int64_t at = ((id * c.dim[1] + offset) * KV + x->head) * x->D, step = KV * x->D;
        const char *k = (const char *)x->a->in[1] + (size_t)at * k_size;
        const char *v = (const char *)x->a->in[2] + (size_t)at * v_size;
        for (; offset < c.dim[1] && j < last; offset++, j++) {
            int64_t place = (id * c.dim[1] + offset) * KV + x->head;
            if (k_scale) x->k.scale[j] = k_scale[place];
            if (v_scale) x->v.scale[j] = v_scale[place];
            x->k.row[j] = k;
            x->v.row[j] = v;
            k += (size_t)step * k_size;
            v += (size_t)step * v_size;
        }
    }
}

/* s = q · keys of the chunk. */
static void score_chunk(tile *x)
{
    for (int64_t d = 0; d < x->D; d += DIM_BLOCK) {
        int64_t n = x->D - d < DIM_BLOCK ? x->D - d : DIM_BLOCK;
        if (x->k.dtype == HR_DTYPE_F32) load_transposed(HR_DTYPE_F32, &x->k, d, n, x->t);
        else if (x->k.dtype == HR_DTYPE_BF16) load_transposed(HR_DTYPE_BF16, &x->k, d, n, x->t);
        else if (x->k.dtype == HR_DTYPE_I8) load_transposed(HR_DTYPE_I8, &x->k, d, n, x->t);
        else load_transposed(HR_DTYPE_F16, &x->k, d, n, x->t);
        score_all(&x->k, rows_of(x), x->q + d, x->D, x->t, n, x->s, d == 0);
    }
}

/* Lanes j .. of the chunk that lie in [first, last). */
V_INLINE vm seen(int64_t j, int64_t first, int64_t last)
{
    uint32_t all = (uint32_t)((1ull << V_LANES) - 1);
    int64_t low = first - j, high = last - j;
    uint32_t from = low <= 0 ? all : low >= V_LANES ? 0 : all << low;
    uint32_t to = high >= V_LANES ? all : high <= 0 ? 0 : all >> (V_LANES - high);
    return vm_from_bits(from & to & all);
}

/* Scores of one row that sees keys [first, last) to weights; sum and maximum are carried on. alpha
 * is left as the factor of what the row has so far. */
V_INLINE void weigh_row(tile *x, int64_t r, int64_t first, int64_t last, float cap)
{
    float *s = x->s + r * CHUNK;
    vf high = v_set1(-INFINITY), total = v_set1(0.0f);
    for (int64_t j = 0; j < CHUNK; j += V_LANES) {
        vf v = v_load(s + j);
        if (x->k.dtype == HR_DTYPE_I8) v = v_mul(v, v_load(x->k.scale + j));
        if (cap > 0) v = v_mul(v_set1(cap), v_tanh(v_div(v, v_set1(cap))));
        v = v_select(seen(j, first, last), v, v_set1(-INFINITY));
        high = v_max(v, high);
        v_store(s + j, v);
    }
    float most = v_max_lane(high), before = x->now.most[r];
    most = most > before ? most : before;
    for (int64_t j = 0; j < CHUNK; j += V_LANES) {
        vf p = v_exp(v_sub(v_load(s + j), v_set1(most)));
        vm in = seen(j, first, last);
        p = v_select(in, p, v_set1(0.0f));
        total = v_add(total, p);
        if (x->v.dtype == HR_DTYPE_I8)
            p = v_select(in, v_mul(p, v_load(x->v.scale + j)), v_set1(0.0f));
        v_store(s + j, p);
    }
    float alpha[V_LANES];
    v_store(alpha, v_exp(v_set1(before - most)));
    x->alpha[r] = alpha[0];
    x->now.most[r] = most;
    x->now.sum[r] = x->now.sum[r] * alpha[0] + v_sum(total);
}

static void weigh_chunk(tile *x, int64_t base)
{
    const hr_node *n = x->a->node;
    for (int64_t r = 0; r < rows_of(x); r++) {
        int64_t position = x->position + r / x->group;
        int64_t first = hr_attention_first_key(n, position) - base, last = position + 1 - base;
        if (last <= 0 || first >= CHUNK) { /* this row sees nothing here and stays as it is */
            memset(x->s + r * CHUNK, 0, CHUNK * sizeof *x->s);
            x->alpha[r] = 1.0f;
            continue;
        }
        weigh_row(x, r, first < 0 ? 0 : first, last > CHUNK ? CHUNK : last, n->attrs.cap);
    }
}

/* Values [d, d + n) of the chunk as f32 rows [CHUNK][SLICE] of t; `to` is their keys. */
V_INLINE void convert_values(hr_dtype dtype, const tile *x, int64_t d, int64_t n, keys *to)
{
    to->first = x->v.first;
    to->last = x->v.last;
    for (int64_t j = to->first; j < to->last; j++) {
        float *row = x->t + j * SLICE;
        to->row[j] = (const char *)row;
        for (int64_t i = 0; i < n; i += V_LANES) {
            vf v = v_load_upto(dtype, x->v.row[j], d + i, n - i);
            v_store_upto(HR_DTYPE_F32, row, i, v, n - i);
        }
    }
}

static void mix_f32(tile *x, const keys *k, int64_t d, int64_t n)
{
    mix_all(HR_DTYPE_F32, k, rows_of(x), n, x->s, x->alpha, x->now.o + d, x->D);
}
static void mix_bf16(tile *x)
{
    mix_all(HR_DTYPE_BF16, &x->v, rows_of(x), x->D, x->s, x->alpha, x->now.o, x->D);
}
static void mix_f16(tile *x)
{
    mix_all(HR_DTYPE_F16, &x->v, rows_of(x), x->D, x->s, x->alpha, x->now.o, x->D);
}
static void mix_i8(tile *x)
{
    mix_all(HR_DTYPE_I8, &x->v, rows_of(x), x->D, x->s, x->alpha, x->now.o, x->D);
}

/* o = o · alpha + weights · values. f32 values are read where they lie; so are others when few rows
 * share them, for more they are converted once. */
static void mix_chunk(tile *x)
{
    hr_dtype d = x->v.dtype;
    if (d == HR_DTYPE_F32 || rows_of(x) <= 2 * MOST_ROWS) {
        if (d == HR_DTYPE_F32) mix_f32(x, &x->v, 0, x->D);
        else if (d == HR_DTYPE_BF16) mix_bf16(x);
        else if (d == HR_DTYPE_I8) mix_i8(x);
        else mix_f16(x);
        return;
    }
    keys slice;
    for (int64_t at = 0; at < x->D; at += SLICE) {
        int64_t n = x->D - at < SLICE ? x->D - at : SLICE;
        if (d == HR_DTYPE_BF16) convert_values(HR_DTYPE_BF16, x, at, n, &slice);
        else if (d == HR_DTYPE_I8) convert_values(HR_DTYPE_I8, x, at, n, &slice);
        else convert_values(HR_DTYPE_F16, x, at, n, &slice);
        mix_f32(x, &slice, at, n);
    }
}

/* Everything that the rows see of a range, to x->now. */
static void run_range(tile *x, int64_t range)
{
    int64_t start = hr_attention_first_key(x->a->node, x->position);
    int64_t end = x->position + x->tokens; /* keys of the last token */
    int64_t from = range * HR_ATTENTION_RANGE, to = from + HR_ATTENTION_RANGE;
    begin_range(x, range);
    if (start < from) start = from;
    if (end > to) end = to;
    for (int64_t base = start / CHUNK * CHUNK; base < end; base += CHUNK) {
        find_keys(x, base, start > base ? start - base : 0,
                  end - base < CHUNK ? end - base : CHUNK);
        score_chunk(x);
        weigh_chunk(x, base);
        mix_chunk(x);
    }
}

#endif
