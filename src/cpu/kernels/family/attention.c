/* Causal attention over the paged cache: one kernel for decode, prefill and any mixture.
 *
 * An item is one key/value head of one token. Neighbouring items of one head and request form a
 * tile: its rows (tokens × query heads of the group) share every key and value that is loaded.
 * Keys pass in chunks of 64 at absolute positions with the online softmax of Milakov and
 * Gimelshein (arXiv 1805.02867): per row a running maximum, a running denominator, and the
 * weighted sum of values, all rescaled when the maximum grows. What a row computes depends on its
 * own query, keys and position alone, never on its tile, so a token's bits are the same decoded,
 * in any chunk of a prompt, beside any other request and under any block table. */
#include "cpu/kernels/family/attention_tile.h"

enum { TILE_ROWS = 64 }; /* most rows of a tile */

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
    float *o;     /* [rows][D] */
    float *s;     /* [rows][CHUNK]: scores, then weights */
    float *t;     /* [DIM_BLOCK][CHUNK] keys, or [CHUNK][SLICE] values */
    float *most;  /* [rows] running maximum */
    float *sum;   /* [rows] running denominator */
    float *alpha; /* [rows] factor of what the row has so far */
    keys k, v;
} tile;

V_INLINE int64_t rows_of(const tile *x)
{
    return x->tokens * x->group;
}

/* First key that a query at `position` sees. */
V_INLINE int64_t window_start(const hr_node *n, int64_t position)
{
    int64_t start = n->attrs.window > 0 ? position - n->attrs.window + 1 : 0;
    return start > 0 ? start : 0;
}

/* ---- rows of q in, rows of the result out ---------------------------------------------------- */

V_INLINE void load_row(hr_dtype d, const void *q, int64_t at, int64_t D, float scale, float *to)
{
    for (int64_t i = 0; i < D; i += V_LANES) {
        vf v = v_mul(v_load_upto(d, q, at + i, D - i), v_set1(scale));
        v_store_upto(HR_DTYPE_F32, to, i, v, D - i);
    }
}

/* Adding zero turns -0 into 0: see attention_tile.h. */
V_INLINE void store_row(hr_dtype d, const float *o, float sum, int64_t D, void *out, int64_t at)
{
    for (int64_t i = 0; i < D; i += V_LANES) {
        vf v = v_div(v_load_upto(HR_DTYPE_F32, o, i, D - i), v_set1(sum));
        v_store_upto(d, out, at + i, v_add(v, v_set1(0.0f)), D - i);
    }
}

/* Element of q and of the result where row r starts. */
V_INLINE int64_t row_at(const tile *x, int64_t r)
{
    int64_t N = x->a->node->in[0]->shape.dim[1];
    return ((x->token + r / x->group) * N + x->first_query + r % x->group) * x->D;
}

static void begin_rows(tile *x)
{
    const hr_node *n = x->a->node;
    const float *sink = x->a->in[6]; /* [N] or NULL: one more score, with no value */
    hr_dtype d = n->in[0]->dtype;
    for (int64_t r = 0; r < rows_of(x); r++) {
        float *to = x->q + r * x->D;
        if (d == HR_DTYPE_F32)
            load_row(HR_DTYPE_F32, x->a->in[0], row_at(x, r), x->D, n->attrs.scale, to);
        else if (d == HR_DTYPE_BF16)
            load_row(HR_DTYPE_BF16, x->a->in[0], row_at(x, r), x->D, n->attrs.scale, to);
        else load_row(HR_DTYPE_F16, x->a->in[0], row_at(x, r), x->D, n->attrs.scale, to);
        x->most[r] = sink ? sink[x->first_query + r % x->group] : -INFINITY;
        x->sum[r] = sink ? 1.0f : 0.0f;
    }
    memset(x->o, 0, (size_t)(rows_of(x) * x->D) * sizeof *x->o);
}

static void end_rows(const tile *x)
{
    hr_dtype d = x->a->node->out[0]->dtype;
    for (int64_t r = 0; r < rows_of(x); r++) {
        const float *o = x->o + r * x->D;
        if (d == HR_DTYPE_F32)
            store_row(HR_DTYPE_F32, o, x->sum[r], x->D, x->a->out[0], row_at(x, r));
        else if (d == HR_DTYPE_BF16)
            store_row(HR_DTYPE_BF16, o, x->sum[r], x->D, x->a->out[0], row_at(x, r));
        else store_row(HR_DTYPE_F16, o, x->sum[r], x->D, x->a->out[0], row_at(x, r));
    }
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
    memset(x->k.row, 0, sizeof x->k.row);
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
 * is left as the exponent of the factor. */
V_INLINE void weigh_row(tile *x, int64_t r, int64_t first, int64_t last, float cap)
{
    float *s = x->s + r * CHUNK;
    vf high = v_set1(-INFINITY), total = v_set1(0.0f);
    for (int64_t j = 0; j < CHUNK; j += V_LANES) {
        vf v = v_load(s + j);
        if (cap > 0) v = v_mul(v_set1(cap), v_tanh(v_div(v, v_set1(cap))));
        v = v_select(seen(j, first, last), v, v_set1(-INFINITY));
        high = v_max(v, high);
        v_store(s + j, v);
    }
    float most = v_max_lane(high), before = x->most[r];
    most = most > before ? most : before;
    for (int64_t j = 0; j < CHUNK; j += V_LANES) {
        vf p = v_exp(v_sub(v_load(s + j), v_set1(most)));
        p = v_select(seen(j, first, last), p, v_set1(0.0f));
        total = v_add(total, p);
        v_store(s + j, p);
    }
    float alpha[V_LANES];
    v_store(alpha, v_exp(v_set1(before - most)));
    x->alpha[r] = alpha[0];
    x->most[r] = most;
    x->sum[r] = x->sum[r] * alpha[0] + v_sum(total);
}

static void weigh_chunk(tile *x, int64_t base)
{
    const hr_node *n = x->a->node;
    for (int64_t r = 0; r < rows_of(x); r++) {
        int64_t position = x->position + r / x->group;
        int64_t first = window_start(n, position) - base, last = position + 1 - base;
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
    mix_all(HR_DTYPE_F32, k, rows_of(x), n, x->s, x->alpha, x->o + d, x->D);
}
static void mix_bf16(tile *x)
{
    mix_all(HR_DTYPE_BF16, &x->v, rows_of(x), x->D, x->s, x->alpha, x->o, x->D);
}
static void mix_f16(tile *x)
{
    mix_all(HR_DTYPE_F16, &x->v, rows_of(x), x->D, x->s, x->alpha, x->o, x->D);
}

/* o = o · alpha + weights · values. f32 values are read where they lie; so are others when few rows
 * share them, for more they are converted once. */
static void mix_chunk(tile *x)
{
    hr_dtype d = x->v.dtype;
    if (d == HR_DTYPE_F32 || rows_of(x) <= 2 * MOST_ROWS) {
        if (d == HR_DTYPE_F32) mix_f32(x, &x->v, 0, x->D);
        else if (d == HR_DTYPE_BF16) mix_bf16(x);
        else mix_f16(x);
        return;
    }
    keys slice;
    for (int64_t at = 0; at < x->D; at += SLICE) {
        int64_t n = x->D - at < SLICE ? x->D - at : SLICE;
        if (d == HR_DTYPE_BF16) convert_values(HR_DTYPE_BF16, x, at, n, &slice);
        else convert_values(HR_DTYPE_F16, x, at, n, &slice);
        mix_f32(x, &slice, at, n);
    }
}

static void attend(tile *x)
{
    int64_t start = window_start(x->a->node, x->position);
    int64_t end = x->position + x->tokens; /* keys of the last token */
    begin_rows(x);
    for (int64_t base = start / CHUNK * CHUNK; base < end; base += CHUNK) {
        find_keys(x, base, start > base ? start - base : 0,
                  end - base < CHUNK ? end - base : CHUNK);
        score_chunk(x);
        weigh_chunk(x, base);
        mix_chunk(x);
    }
    end_rows(x);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* The request that token t belongs to, from `b` on; B when there is none. */
static int64_t request_of(const hr_kernel_args *a, int64_t t, int64_t b)
{
    int64_t B = a->node->in[3]->shape.dim[0];
    const int32_t *starts = a->in[4], *lens = a->in[5]; /* [B+1], [B] */
    for (; b < B; b++)
        if (starts[b] <= t && t < starts[b + 1] && lens[b] >= starts[b + 1] - starts[b]) break;
    return b;
}

/* Scratch of a tile of `rows`, carved in order. */
static void carve(tile *x, int64_t rows)
{
    float *at = x->a->scratch;
    x->t = at;
    at += CHUNK * SLICE;
    x->s = at;
    at += rows * CHUNK;
    x->most = at;
    x->sum = x->most + rows;
    x->alpha = x->sum + rows;
    x->q = x->alpha + rows;
    x->o = x->q + rows * x->D;
}

/* Most rows whose scratch fits: at least one for any D below 120,000. */
static int64_t most_rows(int64_t D)
{
    int64_t floats = (int64_t)(HR_KERNEL_SCRATCH / sizeof(float)) - CHUNK * SLICE;
    int64_t rows = floats / (2 * D + CHUNK + 3);
    return rows > TILE_ROWS ? TILE_ROWS : rows;
}

/* Query heads of the key head, for `tokens` neighbouring tokens of a request. */
static void attend_group(tile *x, int64_t tokens, int64_t limit)
{
    int64_t G = x->a->node->in[0]->shape.dim[1] / x->a->node->in[1]->shape.dim[2];
    for (int64_t g = 0; g < G; g += limit) {
        x->group = G - g < limit ? G - g : limit;
        x->first_query = x->head * G + g;
        x->tokens = tokens;
        carve(x, rows_of(x));
        attend(x);
    }
}

void HR_KERNEL(attention)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const hr_node *n = a->node;
    const int32_t *starts = a->in[4], *lens = a->in[5];
    int64_t T = hr_live_rows(n->in[0], a->live), B = n->in[3]->shape.dim[0];
    int64_t N = n->in[0]->shape.dim[1], D = n->in[0]->shape.dim[2], G = N / n->in[1]->shape.dim[2];
    int64_t limit = most_rows(D), request = 0, step = limit / G > 1 ? limit / G : 1;
    tile x = {
        .a = a, .D = D, .k = { .dtype = n->in[1]->dtype }, .v = { .dtype = n->in[2]->dtype }
    };
    for (int64_t i = from, tokens; i < to; i += tokens) {
        int64_t t = i % T, b = request_of(a, t, i == from || t == 0 ? 0 : request);
        if (b == B && t) b = request_of(a, t, 0); /* starts that fall: a padding entry's */
        tokens = 1;
        if (b == B) continue;
        request = b;
        int64_t left = starts[b + 1] - t < T - t ? starts[b + 1] - t : T - t;
        if (left > to - i) left = to - i;
        tokens = left < step ? left : step;
        x.request = b;
        x.head = i / T;
        x.token = t;
        x.position = lens[b] - (starts[b + 1] - t);
        attend_group(&x, tokens, limit);
    }
}
