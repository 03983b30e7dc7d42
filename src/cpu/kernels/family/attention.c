/* Causal attention over the paged cache: one kernel for decode, prefill and any mixture.
 *
 * An item is one key/value head of one token. Neighbouring items of one head and request form a
 * tile: its rows (tokens × query heads of the group) share every key and value that is loaded.
 * Keys are cut into ranges (attention.h), each of which gives sums of its own; a row merges its
 * ranges in ascending order. What a row computes depends on its own query, keys and position
 * alone, never on its tile nor on who computed a range, so a token's bits are the same decoded, in
 * any chunk of a prompt, beside any other request and under any block table. */
#include "cpu/kernels/family/attention_range.h"

enum { TILE_ROWS = 64 }; /* most rows of a tile */

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

static void load_rows(tile *x)
{
    const hr_node *n = x->a->node;
    hr_dtype d = n->in[0]->dtype;
    for (int64_t r = 0; r < rows_of(x); r++) {
        float *to = x->q + r * x->D;
        if (d == HR_DTYPE_F32)
            load_row(HR_DTYPE_F32, x->a->in[0], row_at(x, r), x->D, n->attrs.scale, to);
        else if (d == HR_DTYPE_BF16)
            load_row(HR_DTYPE_BF16, x->a->in[0], row_at(x, r), x->D, n->attrs.scale, to);
        else load_row(HR_DTYPE_F16, x->a->in[0], row_at(x, r), x->D, n->attrs.scale, to);
    }
}

static void end_rows(const tile *x)
{
    hr_dtype d = x->a->node->out[0]->dtype;
    for (int64_t r = 0; r < rows_of(x); r++) {
        const float *o = x->all.o + r * x->D;
        float sum = x->all.sum[r];
        if (d == HR_DTYPE_F32) store_row(HR_DTYPE_F32, o, sum, x->D, x->a->out[0], row_at(x, r));
        else if (d == HR_DTYPE_BF16)
            store_row(HR_DTYPE_BF16, o, sum, x->D, x->a->out[0], row_at(x, r));
        else store_row(HR_DTYPE_F16, o, sum, x->D, x->a->out[0], row_at(x, r));
    }
}

/* ---- ranges merged --------------------------------------------------------------------------- */

/* Row r of `all` takes one more range's sums: both scaled to the larger maximum, then added. */
static void merge_row(const tile *x, int64_t r, const float *o, float most, float sum)
{
    float *to = x->all.o + r * x->D, factor[2][V_LANES];
    float top = most > x->all.most[r] ? most : x->all.most[r];
    v_store(factor[0], v_exp(v_set1(x->all.most[r] - top)));
    v_store(factor[1], v_exp(v_set1(most - top)));
    vf a = v_set1(factor[0][0]), b = v_set1(factor[1][0]);
    for (int64_t i = 0; i < x->D; i += V_LANES) {
        vf now = v_mul(v_load_upto(HR_DTYPE_F32, to, i, x->D - i), a);
        now = v_madd(v_load_upto(HR_DTYPE_F32, o, i, x->D - i), b, now);
        v_store_upto(HR_DTYPE_F32, to, i, now, x->D - i);
    }
    x->all.most[r] = top;
    x->all.sum[r] = x->all.sum[r] * factor[0][0] + sum * factor[1][0];
}

/* Row r's sums of `range` into `all`; nothing when it sees none of the range. */
static void take_range(const tile *x, int64_t r, int64_t range, const float *o, float most,
                       float sum)
{
    int64_t first = first_range(x, r);
    if (range < first || range > last_range(x, r)) return;
    if (range > first) {
        merge_row(x, r, o, most, sum);
        return;
    }
    memcpy(x->all.o + r * x->D, o, (size_t)x->D * sizeof *o);
    x->all.most[r] = most;
    x->all.sum[r] = sum;
}

/* The tile's rows over all of their keys. */
static void attend_whole(tile *x)
{
    int64_t first = first_range(x, 0), last = last_range(x, rows_of(x) - 1);
    load_rows(x);
    if (first == last) {
        tile only = *x;
        only.now = x->all;
        run_range(&only, first);
    }
    for (int64_t range = first; range <= last && first < last; range++) {
        run_range(x, range);
        for (int64_t r = 0; r < rows_of(x); r++)
            take_range(x, r, range, x->now.o + r * x->D, x->now.most[r], x->now.sum[r]);
    }
    end_rows(x);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Where row r of a tile of a split request keeps its sums of `range`: D values, maximum, sum. */
static float *part_of(const tile *x, const hr_attention_split *s, int64_t r, int64_t range)
{
    const hr_node *n = x->a->node;
    int64_t token = x->token + r / x->group - s->token;
    int64_t part = s->part + token * s->ranges + range - s->range;
    return (float *)x->a->prep + part * hr_attention_part_floats(n) +
           (x->first_query + r % x->group) * (x->D + 2);
}

static void make_parts(tile *x, const hr_attention_split *s, int64_t range)
{
    load_rows(x);
    run_range(x, range);
    for (int64_t r = 0; r < rows_of(x); r++) {
        if (range < first_range(x, r) || range > last_range(x, r)) continue;
        float *to = part_of(x, s, r, range);
        memcpy(to, x->now.o + r * x->D, (size_t)x->D * sizeof *to);
        to[x->D] = x->now.most[r];
        to[x->D + 1] = x->now.sum[r];
    }
}

static void merge_parts(tile *x, const hr_attention_split *s)
{
    for (int64_t r = 0; r < rows_of(x); r++)
        for (int64_t range = first_range(x, r); range <= last_range(x, r); range++) {
            const float *part = part_of(x, s, r, range);
            take_range(x, r, range, part, part[x->D], part[x->D + 1]);
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
    x->s = x->t + CHUNK * SLICE;
    x->alpha = x->s + rows * CHUNK;
    x->q = x->alpha + rows;
    x->now.o = x->q + rows * x->D;
    x->all.o = x->now.o + rows * x->D;
    x->now.most = x->all.o + rows * x->D;
    x->now.sum = x->now.most + rows;
    x->all.most = x->now.sum + rows;
    x->all.sum = x->all.most + rows;
}

/* Most rows whose scratch fits: at least one for any D below 80,000. */
static int64_t most_rows(int64_t D)
{
    int64_t floats = (int64_t)(HR_KERNEL_SCRATCH / sizeof(float)) - CHUNK * SLICE;
    int64_t rows = floats / (3 * D + CHUNK + 5);
    return rows > TILE_ROWS ? TILE_ROWS : rows;
}

static tile start(const hr_kernel_args *a)
{
    const hr_node *n = a->node;
    return (tile){ .a = a,
                   .D = n->in[0]->shape.dim[2],
                   .k = { .dtype = n->in[1]->dtype },
                   .v = { .dtype = n->in[2]->dtype } };
}

static int64_t group_of(const hr_node *n)
{
    return n->in[0]->shape.dim[1] / n->in[1]->shape.dim[2];
}

/* Tokens that share a tile. */
static int64_t tile_tokens(const hr_node *n)
{
    int64_t tokens = most_rows(n->in[0]->shape.dim[2]) / group_of(n);
    return tokens > 1 ? tokens : 1;
}

/* What is done with the query heads of x->head for x->tokens tokens: parts of a range, parts
 * merged, or, without a split, all. */
static void attend_group(tile *x, const hr_attention_split *s, int64_t range)
{
    int64_t G = group_of(x->a->node), limit = most_rows(x->D);
    for (int64_t g = 0; g < G; g += limit) {
        x->group = G - g < limit ? G - g : limit;
        x->first_query = x->head * G + g;
        carve(x, rows_of(x));
        if (!s) attend_whole(x);
        else if (range >= 0) make_parts(x, s, range);
        else merge_parts(x, s);
    }
}

/* One range of a split request for one head. */
static void attend_part(tile *x, const hr_attention_split *s, int64_t range, int64_t head)
{
    int64_t step = tile_tokens(x->a->node);
    x->request = s->request;
    x->head = head;
    for (int64_t t = 0; t < s->tokens; t += x->tokens) {
        x->tokens = s->tokens - t < step ? s->tokens - t : step;
        x->token = s->token + t;
        x->position = s->position + t;
        attend_group(x, s, range);
    }
}

void HR_KERNEL(attention_parts)(const hr_kernel_args *a, int64_t from, int64_t to);
void HR_KERNEL(attention_parts)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t KV = a->node->in[1]->shape.dim[2], first = 0;
    hr_attention_split s = { .request = -1 };
    tile x = start(a);
    for (; from < to && hr_attention_next_split(a, &s); first += s.ranges * KV)
        for (; from < to && from < first + s.ranges * KV; from++)
            attend_part(&x, &s, s.range + (from - first) / KV, (from - first) % KV);
}

/* Tokens [from, to) of one head, in tiles of about the same size. */
static void attend_tokens(tile *x, int64_t from, int64_t to)
{
    const hr_kernel_args *a = x->a;
    const int32_t *starts = a->in[4], *lens = a->in[5];
    int64_t B = a->node->in[3]->shape.dim[0], step = tile_tokens(a->node), request = 0;
    hr_attention_split s = { .request = -1 };
    for (int64_t t = from; t < to; t += x->tokens) {
        int64_t b = request_of(a, t, request);
        if (b == B) b = request_of(a, t, 0); /* starts that fall: a padding entry's */
        x->tokens = 1;
        if (b == B) continue;
        if (b < request) s = (hr_attention_split){ .request = -1 };
        while (s.request < b && hr_attention_next_split(a, &s)) {
        }
        request = b;
        int64_t left = starts[b + 1] < to ? starts[b + 1] - t : to - t;
        int64_t tiles = (left + step - 1) / step;
        x->tokens = (left + tiles - 1) / tiles;
        x->request = b;
        x->token = t;
        x->position = lens[b] - (starts[b + 1] - t);
        attend_group(x, s.request == b ? &s : NULL, -1);
    }
}

/* Items are head-major, with a head's last tokens first: late tokens see most keys, and chunks of
 * items that are claimed last had better be short. */
void HR_KERNEL(attention)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t T = hr_live_rows(a->node->in[0], a->live);
    tile x = start(a);
    for (int64_t n; from < to; from += n) {
        int64_t i = from % T;
        n = to - from < T - i ? to - from : T - i;
        x.head = from / T;
        attend_tokens(&x, T - i - n, T - i);
    }
}
