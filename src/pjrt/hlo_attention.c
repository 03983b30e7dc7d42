/* StableHLO of ragged paged attention: one loop over the cache's blocks, online softmax.
 *
 * Tokens of any requests, prompts and answers mixed, sit in one row each. Turn i of the loop takes
 * entry i of every token's block table: a few blocks of keys per token are gathered, never the
 * table's width. The number of turns is known when the program runs: it starts where the earliest
 * window of this step does and ends with the longest request. Running maximum, sum and weighted
 * values are f32. A token of no request sees no key, and its row is zeros. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "pjrt/hlo_int.h"

enum { KEYS_PER_TURN = 64 }; /* at least, by whole blocks: fewer turns, a small gather */

typedef struct attention {
    hr_hlo_emit *e;
    int64_t T, N, D, KV, G;   /* G query heads share a key head */
    int64_t B, W, block, few; /* blocks that a turn takes */
    hr_hlo_value q;           /* f32 [T,KV,G,D] */
    hr_hlo_value request;     /* i32 [T], in [0,B) */
    hr_hlo_value first, last; /* i32 [T]: keys seen; last is -1 where there is none */
    hr_hlo_value turns;       /* i32: one past the last turn */
} attention;

enum { TURN, MOST, SUM, VALUES, CARRIED };

static hr_hlo_value i32_scalar(hr_hlo *h, int64_t x)
{
    return hr_hlo_splat_i(h, hr_hlo_scalar(HR_HLO_I32), x);
}

/* ---- who sees what -------------------------------------------------------------------------- */

/* i32 [T]: how many requests end at or before each token; B for padding. */
static hr_hlo_value requests_before(attention *a, hr_hlo_value ends)
{
    hr_hlo *h = a->e->h;
    hr_hlo_shape s = HR_HLO_SHAPE(I32, a->T, a->B);
    hr_hlo_value over = hr_hlo_compare(h, "GE", hr_hlo_iota(h, s, 0), hr_hlo_along(h, ends, s, 1));
    return hr_hlo_reduce(h, "add", hr_hlo_convert(h, over, HR_HLO_I32), 1);
}

/* Token t of a request that ends before `end` sits at seq_len - end + t. */
static void place_tokens(attention *a)
{
    hr_hlo *h = a->e->h;
    hr_hlo_value ends = hr_hlo_slice(h, a->e->in[4], 0, 1, a->B + 1);
    hr_hlo_value before = requests_before(a, ends);
    a->request = hr_hlo_binary_i(h, "minimum", before, a->B - 1);
    hr_hlo_value length = hr_hlo_gather(h, a->e->in[5], a->request);
    hr_hlo_value end = hr_hlo_gather(h, ends, a->request);
    hr_hlo_value at = hr_hlo_binary(h, "add", hr_hlo_binary(h, "subtract", length, end),
                                    hr_hlo_iota(h, HR_HLO_SHAPE(I32, a->T), 0));
    hr_hlo_value real = hr_hlo_binary(h, "and", hr_hlo_compare_i(h, "LT", before, a->B),
                                      hr_hlo_compare_i(h, "GT", length, 0));
    hr_hlo_value none = hr_hlo_splat_i(h, at.shape, -1);
    a->last = hr_hlo_binary(h, "maximum", hr_hlo_select(h, real, at, none), none);
    a->first = hr_hlo_splat_i(h, at.shape, 0);
    if (a->e->node->attrs.window > 0)
        a->first =
            hr_hlo_binary(h, "maximum", a->first,
                          hr_hlo_binary_i(h, "subtract", a->last, a->e->node->attrs.window - 1));
}

/* The first turn that any token needs, and one past the last; no more than the table has, whatever
 * the lengths say. A step without any token takes one turn, in which nothing is seen. A padding
 * token's first key is put behind all others, or it would start the loop at 0. */
static hr_hlo_value bound_turns(attention *a)
{
    hr_hlo *h = a->e->h;
    int64_t keys = a->few * a->block;
    hr_hlo_value most = hr_hlo_reduce(h, "maximum", a->last, 0);
    a->turns = hr_hlo_binary_i(h, "add", hr_hlo_binary_i(h, "divide", most, keys), 1);
    a->turns = hr_hlo_binary_i(h, "minimum", a->turns, (a->W + a->few - 1) / a->few);
    if (a->e->node->attrs.window <= 0) return i32_scalar(h, 0);
    hr_hlo_value none = hr_hlo_compare_i(h, "LT", a->last, 0);
    hr_hlo_value first =
        hr_hlo_select(h, none, hr_hlo_splat_i(h, a->first.shape, INT32_MAX), a->first);
    return hr_hlo_binary_i(h, "divide", hr_hlo_reduce(h, "minimum", first, 0), keys);
}

/* ---- one turn ------------------------------------------------------------------------------- */

static hr_hlo_value more_turns(hr_hlo *h, void *ctx, const hr_hlo_value *carried)
{
    return hr_hlo_compare(h, "LT", carried[TURN], ((attention *)ctx)->turns);
}

/* i32 [T × few]: the blocks that this turn meets. Entries past the table's width are its last one;
 * their keys are behind every token and masked. */
static hr_hlo_value blocks_of_turn(attention *a, hr_hlo_value turn)
{
    hr_hlo *h = a->e->h;
    hr_hlo_shape s = HR_HLO_SHAPE(I32, a->T, a->few, 1);
    hr_hlo_value entry = hr_hlo_binary_i(h, "multiply", turn, a->few);
    entry = hr_hlo_binary(h, "add", hr_hlo_along(h, entry, s, 0), hr_hlo_iota(h, s, 1));
    hr_hlo_value at[] = { hr_hlo_along(h, a->request, s, 0),
                          hr_hlo_binary_i(h, "minimum", entry, a->W - 1) };
    hr_hlo_value both = hr_hlo_concatenate(h, at, 2, 2);
    both = hr_hlo_reshape(h, both, HR_HLO_SHAPE(I32, a->T * a->few, 2));
    return hr_hlo_gather(h, a->e->in[3], both);
}

/* f32 [T,keys,KV,D] of cache operand i, whose codes have their scales in operand `scale`. A block
 * id out of range is clamped, and masked too. */
static hr_hlo_value rows_of_turn(attention *a, int i, int scale, hr_hlo_value blocks)
{
    hr_hlo *h = a->e->h;
    int64_t keys = a->few * a->block;
    hr_hlo_value rows = hr_hlo_gather(h, a->e->in[i], blocks);
    rows = hr_hlo_reshape(h, rows, HR_HLO_SHAPE(F32, a->T, keys, a->KV, a->D));
    if (a->e->in[scale].id < 0) return hr_hlo_widen(h, rows, a->e->node->in[i]->dtype);
    hr_hlo_value by = hr_hlo_gather(h, a->e->in[scale], blocks);
    by = hr_hlo_reshape(h, by, HR_HLO_SHAPE(F32, a->T, keys, a->KV));
    rows = hr_hlo_convert(h, rows, HR_HLO_F32);
    return hr_hlo_binary(h, "multiply", rows, hr_hlo_along(h, by, rows.shape, 0));
}

/* i1 [T,keys]: which of the turn's keys each token sees. */
static hr_hlo_value seen_keys(attention *a, hr_hlo_value turn)
{
    hr_hlo *h = a->e->h;
    hr_hlo_shape s = HR_HLO_SHAPE(I32, a->T, a->few * a->block);
    hr_hlo_value base = hr_hlo_binary_i(h, "multiply", turn, a->few * a->block);
    hr_hlo_value key = hr_hlo_binary(h, "add", hr_hlo_along(h, base, s, 0), hr_hlo_iota(h, s, 1));
    return hr_hlo_binary(h, "and", hr_hlo_compare(h, "LE", key, hr_hlo_along(h, a->last, s, 0)),
                         hr_hlo_compare(h, "GE", key, hr_hlo_along(h, a->first, s, 0)));
}

/* f32 [T,KV,G,keys]; -inf where a key is not seen. */
static hr_hlo_value scores_of_turn(attention *a, hr_hlo_value k, hr_hlo_value seen)
{
    hr_hlo *h = a->e->h;
    double cap = (double)a->e->node->attrs.cap;
    hr_hlo_dot_dims d = { 2, { 0, 1 }, { 0, 2 }, .contract_a = 3, .contract_b = 3 };
    hr_hlo_value s = hr_hlo_dot(h, a->q, k, d, HR_HLO_F32);
    s = hr_hlo_binary_f(h, "multiply", s, (double)a->e->node->attrs.scale);
    if (cap > 0) {
        s = hr_hlo_unary(h, "tanh", hr_hlo_binary_f(h, "divide", s, cap));
        s = hr_hlo_binary_f(h, "multiply", s, cap);
    }
    return hr_hlo_select(h, hr_hlo_broadcast(h, seen, s.shape, (int[]){ 0, 3 }), s,
                         hr_hlo_splat_f(h, s.shape, (double)-INFINITY));
}

/* Values of keys that are not seen may be anything, NaN too, which no weight of 0 would stop. */
static hr_hlo_value values_of_turn(attention *a, hr_hlo_value blocks, hr_hlo_value seen)
{
    hr_hlo *h = a->e->h;
    hr_hlo_value v = rows_of_turn(a, 2, 8, blocks);
    return hr_hlo_select(h, hr_hlo_along(h, seen, v.shape, 0), v, hr_hlo_splat_f(h, v.shape, 0));
}

static void one_turn(hr_hlo *h, void *ctx, hr_hlo_value *carried)
{
    attention *a = ctx;
    hr_hlo_value blocks = blocks_of_turn(a, carried[TURN]), seen = seen_keys(a, carried[TURN]);
    hr_hlo_value s = scores_of_turn(a, rows_of_turn(a, 1, 7, blocks), seen);
    hr_hlo_value most =
        hr_hlo_binary(h, "maximum", carried[MOST], hr_hlo_reduce(h, "maximum", s, 3));
    hr_hlo_value fade =
        hr_hlo_unary(h, "exponential", hr_hlo_binary(h, "subtract", carried[MOST], most));
    hr_hlo_value p = hr_hlo_unary(
        h, "exponential",
        hr_hlo_binary(h, "subtract", s, hr_hlo_along(h, most, s.shape, 0))); /* [T,KV,G,keys] */
    hr_hlo_dot_dims d = { 2, { 0, 1 }, { 0, 2 }, .contract_a = 3, .contract_b = 1 };
    hr_hlo_value y = hr_hlo_dot(h, p, values_of_turn(a, blocks, seen), d, HR_HLO_F32);
    hr_hlo_value old = carried[VALUES];
    old = hr_hlo_binary(h, "multiply", old, hr_hlo_along(h, fade, old.shape, 0));
    carried[VALUES] = hr_hlo_binary(h, "add", old, y);
    carried[SUM] = hr_hlo_binary(h, "add", hr_hlo_binary(h, "multiply", carried[SUM], fade),
                                 hr_hlo_reduce(h, "add", p, 3));
    carried[MOST] = most;
    carried[TURN] = hr_hlo_binary_i(h, "add", carried[TURN], 1);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Before any key: the maximum is finite, so that differences of it are never NaN. A sink is one
 * more score, without a value. */
static void start(attention *a, hr_hlo_value *carried)
{
    hr_hlo *h = a->e->h;
    hr_hlo_shape s = HR_HLO_SHAPE(F32, a->T, a->KV, a->G);
    carried[MOST] = hr_hlo_splat_f(h, s, (double)-FLT_MAX);
    carried[SUM] = hr_hlo_splat_f(h, s, 0);
    carried[VALUES] = hr_hlo_splat_f(h, HR_HLO_SHAPE(F32, a->T, a->KV, a->G, a->D), 0);
    if (a->e->in[6].id < 0) return;
    hr_hlo_value sink = hr_hlo_reshape(h, a->e->in[6], HR_HLO_SHAPE(F32, a->KV, a->G));
    sink = hr_hlo_along(h, sink, s, 1);
    carried[MOST] = hr_hlo_binary(h, "maximum", carried[MOST], sink);
    carried[SUM] =
        hr_hlo_unary(h, "exponential", hr_hlo_binary(h, "subtract", sink, carried[MOST]));
}

static hr_hlo_value finish(attention *a, const hr_hlo_value *carried)
{
    hr_hlo *h = a->e->h;
    hr_hlo_value y = carried[VALUES];
    y = hr_hlo_binary(h, "divide", y, hr_hlo_along(h, carried[SUM], y.shape, 0));
    hr_hlo_value real = hr_hlo_compare_i(h, "GE", a->last, 0);
    y = hr_hlo_select(h, hr_hlo_along(h, real, y.shape, 0), y, hr_hlo_splat_f(h, y.shape, 0));
    return hr_hlo_reshape(h, y, HR_HLO_SHAPE(F32, a->T, a->N, a->D));
}

/* ---- a device's own kernel ------------------------------------------------------------------- */

/* Halves as such, not as their bits: a kernel is somebody else's. */
static hr_hlo_value plain(hr_hlo *h, hr_hlo_value x, hr_dtype d)
{
    if (d == HR_DTYPE_BF16) return hr_hlo_bitcast(h, x, HR_HLO_BF16);
    return d == HR_DTYPE_F16 ? hr_hlo_bitcast(h, x, HR_HLO_F16) : x;
}

/* Operands and attributes are the op's, in its order; a sink and scales are there or are not. */
static void call_kernel(hr_hlo_emit *e, const char *target)
{
    const hr_attrs *a = &e->node->attrs;
    hr_hlo_value in[HR_NODE_MAX_IN];
    uint32_t scale, cap;
    char config[128];
    int n = 0;
    for (int i = 0; i < e->node->n_in; i++)
        if (e->in[i].id >= 0) in[n++] = plain(e->h, e->in[i], e->node->in[i]->dtype);
    memcpy(&scale, &a->scale, sizeof scale);
    memcpy(&cap, &a->cap, sizeof cap);
    snprintf(config, sizeof config, "cap = 0x%08X : f32, scale = 0x%08X : f32, window = %d : i64",
             cap, scale, a->window);
    hr_hlo_shape s = e->in[0].shape;
    s.type = in[0].shape.type;
    hr_hlo_value y = hr_hlo_custom_call(e->h, target, config, in, n, s);
    e->out[0] = s.type == HR_HLO_F32 ? y : hr_hlo_bitcast(e->h, y, HR_HLO_UI16);
}

hr_status hr_hlo_emit_attention(hr_hlo_emit *e)
{
    const hr_hlo_shape q = e->in[0].shape, k = e->in[1].shape, tables = e->in[3].shape;
    attention a = { .e = e, .T = q.dim[0], .N = q.dim[1], .D = q.dim[2] };
    if (e->h->opt->attention_custom_call) {
        call_kernel(e, e->h->opt->attention_custom_call);
        return HR_OK;
    }
    a.block = k.dim[1];
    a.KV = k.dim[2];
    a.G = a.N / a.KV;
    a.B = tables.dim[0];
    a.W = tables.dim[1];
    a.few = a.block < KEYS_PER_TURN ? KEYS_PER_TURN / a.block : 1;
    if (a.few > a.W) a.few = a.W;
    a.q = hr_hlo_reshape(e->h, hr_hlo_f32(e, 0), HR_HLO_SHAPE(F32, a.T, a.KV, a.G, a.D));
    place_tokens(&a);
    hr_hlo_value carried[CARRIED];
    carried[TURN] = bound_turns(&a);
    start(&a, carried);
    hr_hlo_while(e->h, carried, CARRIED, more_turns, one_turn, &a);
    e->out[0] = hr_hlo_round_to(e, finish(&a, carried));
    return HR_OK;
}
