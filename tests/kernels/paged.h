/* Attention on the test bed: one long sequence, of which any steps ask any queries.
 *
 * The sequence's q, k and v are fixed; a step lays the keys that exist by then into a fresh cache
 * under a block table of its own. Whatever a kernel must not read is NaN: blocks of nobody, places
 * past the last key, and, with a window, blocks before every window of the step. A cache in int8
 * has a scale for each token and head, as quantise_rows makes them. */
#ifndef HEADRACE_TESTS_KERNELS_PAGED_H
#define HEADRACE_TESTS_KERNELS_PAGED_H

#include "base/half.h"
#include "kernels/bed.h"

typedef struct paged_shape {
    int64_t N, KV, D, block, length;
    hr_attrs attrs; /* scale 0 = 1/√D */
    bool sink;
} paged_shape;

typedef struct paged {
    paged_shape s;
    hr_dtype dtype, cache;
    float *q, *k, *v; /* owned; [length][N][D], [length][KV][D] twice */
    float sink[64];   /* [N] */
} paged;

/* Queries [from, to) of the sequence, with keys [0, to) present. */
typedef struct paged_ask {
    int32_t from, to;
} paged_ask;

typedef struct paged_step {
    op_case c;
    bed b;
    void *data[9]; /* owned */
} paged_step;

static inline void paged_make(const paged_shape *s, hr_dtype dtype, hr_dtype cache, paged *p)
{
    *p = (paged){ .s = *s, .dtype = dtype, .cache = cache };
    if (p->s.attrs.scale == 0) p->s.attrs.scale = 1 / sqrtf((float)s->D);
    p->q = bed_alloc((size_t)(s->length * s->N * s->D) * sizeof(float));
    p->k = bed_alloc((size_t)(s->length * s->KV * s->D) * sizeof(float));
    p->v = bed_alloc((size_t)(s->length * s->KV * s->D) * sizeof(float));
    for (int n = 0; n < 64; n++) p->sink[n] = (float)(n % 5) - 1;
}

static inline void paged_free(paged *p)
{
    hr_free(p->q);
    hr_free(p->k);
    hr_free(p->v);
}

static inline float paged_number(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) * 0x1p-23f - 1;
}

/* Tokens [from, to) with numbers within ±2 of their own. */
static inline void paged_fill(paged *p, int64_t from, int64_t to, uint32_t seed)
{
    int64_t nd = p->s.N * p->s.D, kd = p->s.KV * p->s.D;
    for (int64_t i = from * nd; i < to * nd; i++) p->q[i] = 2 * paged_number(&seed);
    for (int64_t i = from * kd; i < to * kd; i++) p->k[i] = 2 * paged_number(&seed);
    for (int64_t i = from * kd; i < to * kd; i++) p->v[i] = 2 * paged_number(&seed);
}

static inline void paged_put(hr_dtype d, void *to, int64_t i, float x)
{
    if (d == HR_DTYPE_F32) ((float *)to)[i] = x;
    else ((uint16_t *)to)[i] = d == HR_DTYPE_BF16 ? hr_f32_to_bf16(x) : hr_f32_to_f16(x);
}

/* Largest magnitude of D numbers over 127; NaN where one is not finite. */
static inline float paged_scale(const float *x, int64_t D)
{
    float most = 0;
    for (int64_t d = 0; d < D; d++)
        most = isfinite(x[d]) && !isnan(most) ? fmaxf(most, fabsf(x[d])) : NAN;
    return most == 0 ? 1 : most / 127;
}

/* One token's keys or values to place `at` of a cache and of its scales. */
static inline void paged_lay_row(const paged *p, const float *x, int64_t at, void *cache,
                                 float *scales)
{
    int64_t KV = p->s.KV, D = p->s.D;
    for (int64_t i = 0; i < KV * D && p->cache != HR_DTYPE_I8; i++)
        paged_put(p->cache, cache, at * KV * D + i, x[i]);
    for (int64_t h = 0; h < KV && p->cache == HR_DTYPE_I8; h++) {
        float scale = scales[at * KV + h] = paged_scale(x + h * D, D);
        int8_t *codes = (int8_t *)cache + (at * KV + h) * D;
        for (int64_t d = 0; d < D; d++)
            codes[d] = isnan(scale) ? 0 : (int8_t)rintf(x[h * D + d] / scale);
    }
}

/* Lays request r's keys into blocks r, r + stride … of the cache and names them in its table. */
static inline void paged_lay(const paged *p, const paged_ask *ask, int64_t r, int64_t requests,
                             int64_t W, int32_t *table, void *const *data)
{
    int64_t row = p->s.KV * p->s.D, block = p->s.block, oldest = 0;
    if (p->s.attrs.window > 0 && ask->from >= p->s.attrs.window)
        oldest = (ask->from - p->s.attrs.window + 1) / block;
    for (int64_t w = 0; w < W; w++) {
        /* blocks fall where they may: last first for odd requests */
        int64_t id = (r % 2 ? W - 1 - w : w) * requests + r + 1;
        table[r * W + w] = w < oldest ? 0 : (int32_t)id; /* block 0 is nobody's */
        for (int64_t t = w * block; t < (w + 1) * block && t < ask->to && w >= oldest; t++) {
            paged_lay_row(p, p->k + t * row, id * block + t % block, data[1], data[7]);
            paged_lay_row(p, p->v + t * row, id * block + t % block, data[2], data[8]);
        }
    }
}

/* A step of several requests, each a view of the same sequence. Two rows of padding and an unused
 * request follow. Results: b.out[0], rows in the order of the asks. */
static inline void paged_step_make(const paged *p, const paged_ask *asks, int64_t n, paged_step *s)
{
    int64_t W = (p->s.length + p->s.block - 1) / p->s.block, T = 0;
    int64_t nd = p->s.N * p->s.D, B = n + 1, blocks = W * n + 1;
    for (int64_t r = 0; r < n; r++) T += asks[r].to - asks[r].from;
    size_t cache = (size_t)(blocks * p->s.block * p->s.KV * p->s.D) * hr_dtype_size(p->cache);
    size_t q_bytes = (size_t)((T + 2) * nd) * hr_dtype_size(p->dtype);
    size_t scales = (size_t)(blocks * p->s.block * p->s.KV) * sizeof(float);
    size_t bytes[9] = {
        q_bytes,        cache,  cache, (size_t)(B * W) * 4, (size_t)(B + 1) * 4, (size_t)B * 4,
        sizeof p->sink, scales, scales
    };
    for (int i = 0; i < 9; i++) memset(s->data[i] = bed_alloc(bytes[i]), 0xff, bytes[i]);
    int32_t *table = s->data[3], *starts = s->data[4], *lens = s->data[5], row = 0;
    memset(table, 0, bytes[3]);
    for (int64_t r = 0; r < n; r++) {
        starts[r] = row;
        lens[r] = asks[r].to;
        paged_lay(p, &asks[r], r, n, W, table, s->data);
        for (int64_t t = asks[r].from; t < asks[r].to; t++, row++)
            for (int64_t i = 0; i < nd; i++)
                paged_put(p->dtype, s->data[0], row * nd + i, p->q[t * nd + i]);
    }
    starts[n] = starts[n + 1] = row;
    lens[n] = 0;
    memcpy(s->data[6], p->sink, sizeof p->sink);
    const hr_shape pages = HR_SHAPE(blocks, p->s.block, p->s.KV, p->s.D);
    const op_operand scale = { p->cache == HR_DTYPE_I8 ? OP_INPUT : OP_ABSENT,
                               HR_DTYPE_F32,
                               0,
                               HR_SHAPE(blocks, p->s.block, p->s.KV, 1),
                               HR_LIVE_ALL,
                               NULL,
                               NULL };
    s->c = (op_case){
        .op = HR_OP_attention,
        .attrs = p->s.attrs,
        .n_in = 9,
        .in = { { OP_INPUT, p->dtype, 0, HR_SHAPE(T + 2, p->s.N, p->s.D), HR_LIVE_TOKENS,
                  s->data[0], NULL },
                { OP_INPUT, p->cache, 0, pages, HR_LIVE_ALL, s->data[1], NULL },
                { OP_INPUT, p->cache, 0, pages, HR_LIVE_ALL, s->data[2], NULL },
                { OP_INPUT, HR_DTYPE_I32, 0, HR_SHAPE(B, W), HR_LIVE_ALL, table, NULL },
                { OP_INPUT, HR_DTYPE_I32, 0, HR_SHAPE(B + 1), HR_LIVE_ALL, starts, NULL },
                { OP_INPUT, HR_DTYPE_I32, 0, HR_SHAPE(B), HR_LIVE_ALL, lens, NULL },
                { p->s.sink ? OP_INPUT : OP_ABSENT, HR_DTYPE_F32, 0, HR_SHAPE(p->s.N), HR_LIVE_ALL,
                  s->data[6], NULL },
                scale,
                scale },
    };
    s->c.in[7].data = s->data[7];
    s->c.in[8].data = s->data[8];
    s->c.live[HR_LIVE_TOKENS] = T;
    bed_make(&s->c, &s->b);
}

static inline void paged_step_free(paged_step *s)
{
    bed_free(&s->b);
    for (int i = 0; i < 9; i++) hr_free(s->data[i]);
}

#endif
