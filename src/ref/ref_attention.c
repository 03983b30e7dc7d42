/* Reference of the paged KV cache: writing it, and attention over it.
 *
 * Pure functions. Attention is the textbook form: all scores of one query and head, their softmax
 * in double, the weighted sum of values. A key's place: entry j / block of the request's row in the
 * block table, offset j % block. */
#include "ref/ref_int.h"

#include <math.h>

hr_status hr_ref_kv_write(const hr_ref_args *a)
{
    const hr_value *cache = a->node->in[0], *x = a->node->in[1];
    const int32_t *slots = a->in[2]; /* [T] */
    int64_t row = x->shape.dim[1] * x->shape.dim[2];
    int64_t places = cache->shape.dim[0] * cache->shape.dim[1];
    for (int64_t t = 0; t < hr_ref_rows(a, x); t++) {
        if (slots[t] < 0) continue;
        if (slots[t] >= places)
            return hr_fail(HR_OUT_OF_RANGE, "kv_write: slot %d of %lld", slots[t],
                           (long long)places);
        if (cache->dtype == HR_DTYPE_I8) {
            memcpy((int8_t *)a->out[0] + slots[t] * row, (const int8_t *)a->in[1] + t * row,
                   (size_t)row);
            continue;
        }
        for (int64_t i = 0; i < row; i++)
            hr_ref_put(cache->dtype, a->out[0], slots[t] * row + i,
                       hr_ref_get(x->dtype, a->in[1], t * row + i));
    }
    return HR_OK;
}

/* One query of one head: which keys it sees, and room for their scores. */
typedef struct query {
    const hr_ref_args *a;
    int64_t t, n;        /* row of q, head */
    int64_t request;     /* row of the block table */
    int64_t first, last; /* key positions, both seen */
    double *score;       /* [.. last] */
} query;

/* Index into a cache [blocks,block,KV,D] of key j, for this query's head. */
static hr_status key_at(const query *u, int64_t j, int64_t *at)
{
    const hr_node *n = u->a->node;
    const hr_shape c = n->in[1]->shape;
    const int32_t *tables = u->a->in[3]; /* [B,W] */
    int64_t W = n->in[3]->shape.dim[1], block = c.dim[1], KV = c.dim[2], D = c.dim[3];
    int64_t head = u->n / (n->in[0]->shape.dim[1] / KV);
    int32_t id = j / block < W ? tables[u->request * W + j / block] : -1;
    *at = 0;
    if (id < 0 || id >= c.dim[0])
        return hr_fail(HR_OUT_OF_RANGE, "attention: key %lld has no block", (long long)j);
    *at = (((int64_t)id * block + j % block) * KV + head) * D;
    return HR_OK;
}

/* Element d of the row of a cache at `at`: operand i, whose codes have their scales in operand
 * `scale` [blocks,block,KV,1]. */
static double cached(const query *u, int i, int scale, int64_t at, int64_t d)
{
    const hr_value *c = u->a->node->in[i];
    const float *scales = u->a->in[scale];
    double x = hr_ref_get(c->dtype, u->a->in[i], at + d);
    return scales ? x * (double)scales[at / c->shape.dim[3]] : x;
}

/* Scores, capped; returns their maximum in *most. */
static hr_status scores(const query *u, double *most)
{
    const hr_node *n = u->a->node;
    const hr_value *q = n->in[0];
    int64_t N = q->shape.dim[1], D = q->shape.dim[2];
    double cap = (double)n->attrs.cap;
    *most = -INFINITY;
    for (int64_t j = u->first; j <= u->last; j++) {
        int64_t at;
        double s = 0;
        HR_TRY(key_at(u, j, &at));
        for (int64_t d = 0; d < D; d++)
            s += hr_ref_get(q->dtype, u->a->in[0], (u->t * N + u->n) * D + d) *
                 cached(u, 1, 7, at, d);
        s *= (double)n->attrs.scale;
        u->score[j] = cap > 0 ? cap * tanh(s / cap) : s;
        *most = fmax(*most, u->score[j]);
    }
    return HR_OK;
}

/* The sink is one more score in the denominator, with no value. */
static hr_status attend(const query *u)
{
    const hr_node *n = u->a->node;
    const hr_value *y = n->out[0];
    const float *sink = u->a->in[6]; /* [N] or NULL */
    int64_t N = y->shape.dim[1], D = y->shape.dim[2];
    double most, sum = 0;
    HR_TRY(scores(u, &most));
    if (sink) most = fmax(most, (double)sink[u->n]);
    if (sink) sum = exp((double)sink[u->n] - most);
    for (int64_t j = u->first; j <= u->last; j++) sum += u->score[j] = exp(u->score[j] - most);
    for (int64_t d = 0; d < D; d++) {
        double acc = 0;
        for (int64_t j = u->first; j <= u->last; j++) {
            int64_t at;
            HR_TRY(key_at(u, j, &at));
            acc += u->score[j] * cached(u, 2, 8, at, d);
        }
        hr_ref_put(y->dtype, u->a->out[0], (u->t * N + u->n) * D + d, acc / sum);
    }
    return HR_OK;
}

/* Queries i of request b are rows query_starts[b] + i and sit at seq_len - queries + i. */
static hr_status attend_request(const hr_ref_args *a, int64_t b)
{
    const hr_node *n = a->node;
    const int32_t *starts = a->in[4], *lens = a->in[5]; /* [B+1], [B] */
    int64_t rows = hr_ref_rows(a, n->in[0]), N = n->in[0]->shape.dim[1], window = n->attrs.window;
    int64_t count = starts[b + 1] - starts[b];
    if (lens[b] <= 0 || count <= 0) return HR_OK;
    if (count > lens[b] || starts[b] < 0)
        return hr_fail(HR_OUT_OF_RANGE, "attention: request %lld has %lld queries, %d keys",
                       (long long)b, (long long)count, lens[b]);
    query u = { .a = a, .request = b };
    u.score = hr_alloc_array0((size_t)lens[b], sizeof *u.score);
    if (!u.score) return hr_fail(HR_RESOURCE_EXHAUSTED, "ref: attention");
    hr_status st = HR_OK;
    for (u.t = starts[b]; !st && u.t < starts[b + 1] && u.t < rows; u.t++) {
        u.last = lens[b] - count + (u.t - starts[b]);
        u.first = window > 0 && u.last - window + 1 > 0 ? u.last - window + 1 : 0;
        for (u.n = 0; !st && u.n < N; u.n++) st = attend(&u);
    }
    hr_free(u.score);
    return st;
}

hr_status hr_ref_attention(const hr_ref_args *a)
{
    int64_t B = a->node->in[3]->shape.dim[0];
    for (int64_t b = 0; b < B; b++) HR_TRY(attend_request(a, b));
    return HR_OK;
}
