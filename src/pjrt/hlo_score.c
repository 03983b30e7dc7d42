/* StableHLO of what is reported of a choice: log-probabilities, ranks, the best ids.
 *
 * R rows, V logits. What no row wants is branched around. */
#include <math.h>

#include "pjrt/hlo_exact.h"

static hr_hlo_value negative_infinity(hr_hlo *h, hr_hlo_shape s)
{
    return hr_hlo_splat_f(h, hr_hlo_retype(s, HR_HLO_F32), (double)-INFINITY);
}

/* i1 [R]; all true where there is no `wanted`. */
static hr_hlo_value wanted_rows(const hr_hlo_emit *e, int operand)
{
    hr_hlo_shape rows = HR_HLO_SHAPE(I1, e->in[0].shape.dim[0]);
    if (e->in[operand].id < 0) return hr_hlo_splat_i(e->h, rows, 1);
    return hr_hlo_compare_i(e->h, "GE", e->in[operand], 0);
}

/* i1, the shape of ids */
static hr_hlo_value inside(hr_hlo *h, hr_hlo_value ids, int64_t V)
{
    return hr_hlo_binary(h, "and", hr_hlo_compare_i(h, "GE", ids, 0),
                         hr_hlo_compare_i(h, "LT", ids, V));
}

/* NaN as -inf */
static hr_hlo_value ordered(hr_hlo *h, hr_hlo_value x)
{
    return hr_hlo_select(h, hr_hlo_compare(h, "NE", x, x), negative_infinity(h, x.shape), x);
}

/* ---- log_sum_exp ---------------------------------------------------------------------------- */

static void summed(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    hr_hlo_value x = e->in[0], most = hr_hlo_row_max(h, x);
    hr_hlo_value wide = hr_hlo_convert(h, most, HR_HLO_F64);
    hr_hlo_value far = hr_hlo_convert(h, x, HR_HLO_F64);
    far = hr_hlo_binary(h, "subtract", far, hr_hlo_along(h, wide, far.shape, 0));
    hr_hlo_value sum = hr_hlo_reduce(h, "add", hr_hlo_mass(h, far), 1);
    sum = hr_hlo_convert(h, sum, HR_HLO_F64);
    hr_hlo_value lse = hr_hlo_log(h, hr_hlo_binary_f(h, "multiply", sum, 0x1p-40));
    lse = hr_hlo_convert(h, hr_hlo_binary(h, "add", wide, lse), HR_HLO_F32);
    lse = hr_hlo_select(h, hr_hlo_unary(h, "is_finite", most), lse, most);
    results[0] =
        hr_hlo_select(h, wanted_rows(e, 1), lse, hr_hlo_splat_f(h, lse.shape, (double)INFINITY));
}

static void not_summed(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    results[0] = hr_hlo_splat_f(h, HR_HLO_SHAPE(F32, e->in[0].shape.dim[0]), (double)INFINITY);
}

hr_status hr_hlo_emit_log_sum_exp(hr_hlo_emit *e)
{
    hr_hlo_value any = hr_hlo_any(e->h, wanted_rows(e, 1));
    hr_hlo_if(e->h, any, summed, not_summed, e, e->out, 1);
    return HR_OK;
}

/* ---- single ids ----------------------------------------------------------------------------- */

/* x at ids [R] or [R,M], which are clamped; f32 [R,M] */
static hr_hlo_value values_at(hr_hlo *h, hr_hlo_value x, hr_hlo_value ids, int64_t M)
{
    int64_t R = x.shape.dim[0];
    hr_hlo_shape list = HR_HLO_SHAPE(I32, R * M, 1);
    hr_hlo_value row = hr_hlo_reshape(h, hr_hlo_iota(h, HR_HLO_SHAPE(I32, R, M), 0), list);
    hr_hlo_value pair[] = { row, hr_hlo_reshape(h, ids, list) };
    hr_hlo_value v = hr_hlo_gather(h, x, hr_hlo_concatenate(h, pair, 2, 1));
    return hr_hlo_reshape(h, v, HR_HLO_SHAPE(F32, R, M));
}

hr_status hr_hlo_emit_pick(hr_hlo_emit *e)
{
    hr_hlo *h = e->h;
    hr_hlo_value x = e->in[0], lse = e->in[2];
    int64_t R = x.shape.dim[0], M = e->in[1].shape.rank == 2 ? e->in[1].shape.dim[1] : 1;
    hr_hlo_value ids = hr_hlo_reshape(h, e->in[1], HR_HLO_SHAPE(I32, R, M));
    hr_hlo_value none = negative_infinity(h, ids.shape);
    hr_hlo_value v = ordered(h, values_at(h, x, ids, M));
    v = hr_hlo_select(h, inside(h, ids, x.shape.dim[1]), v, none);
    if (lse.id >= 0) {
        hr_hlo_value less = hr_hlo_binary(h, "subtract", v, hr_hlo_along(h, lse, v.shape, 0));
        v = hr_hlo_select(h, hr_hlo_compare(h, "GT", v, none), ordered(h, less), v);
    }
    e->out[0] = hr_hlo_reshape(h, v, e->in[1].shape);
    return HR_OK;
}

static void ranked(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    hr_hlo_value x = e->in[0], ids = e->in[1];
    hr_hlo_value count = hr_hlo_at_least(h, x, hr_hlo_at(h, x, ids));
    count = hr_hlo_reduce(h, "add", hr_hlo_convert(h, count, HR_HLO_I32), 1);
    hr_hlo_value has = hr_hlo_binary(h, "and", inside(h, ids, x.shape.dim[1]), wanted_rows(e, 2));
    results[0] = hr_hlo_select(h, has, count, hr_hlo_splat_i(h, count.shape, 0));
}

static void not_ranked(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    results[0] = hr_hlo_splat_i(h, e->in[1].shape, 0);
}

hr_status hr_hlo_emit_rank(hr_hlo_emit *e)
{
    hr_hlo_value any = hr_hlo_any(e->h, wanted_rows(e, 2));
    hr_hlo_if(e->h, any, ranked, not_ranked, e, e->out, 1);
    return HR_OK;
}

/* ---- top_n ---------------------------------------------------------------------------------- */

/* Place of a value in the order of the best ids, larger is better: its key, then its id, the lower
 * the better. No two places of a row are equal. */
static hr_hlo_value places(hr_hlo *h, hr_hlo_value x, hr_hlo_value id)
{
    hr_hlo_value key = hr_hlo_key(h, x, HR_HLO_KEY_INFINITY);
    key = hr_hlo_binary_i(h, "shift_left", hr_hlo_convert(h, key, HR_HLO_I64), 32);
    id = hr_hlo_binary(h, "subtract", hr_hlo_splat_i(h, id.shape, INT32_MAX), id);
    return hr_hlo_binary(h, "or", key, hr_hlo_convert(h, id, HR_HLO_I64));
}

static hr_hlo_value id_of(hr_hlo *h, hr_hlo_value place)
{
    hr_hlo_value id = hr_hlo_binary_i(h, "and", place, INT32_MAX);
    id = hr_hlo_convert(h, id, HR_HLO_I32);
    return hr_hlo_binary(h, "subtract", hr_hlo_splat_i(h, id.shape, INT32_MAX), id);
}

/* Each chunk is kept by its best place that is still to come; a turn takes the best of those, and
 * looks through the one chunk that it came from. */
typedef struct tops {
    hr_hlo_value x;      /* f32 [R,N,C] */
    hr_hlo_value wanted; /* i32 [R] */
    hr_hlo_value turns;  /* i32: the most that a row wants */
} tops;

/* carried: turn i32, best i64 [R,N], ids i32 [R,n] */
static hr_hlo_value top_more(hr_hlo *h, void *ctx, const hr_hlo_value *carried)
{
    return hr_hlo_compare(h, "LT", carried[0], ((const tops *)ctx)->turns);
}

/* The best place of chunk [R] that comes after `last` [R]. */
static hr_hlo_value next_place(hr_hlo *h, const tops *t, hr_hlo_value chunk, hr_hlo_value last)
{
    hr_hlo_value x = hr_hlo_at(h, t->x, chunk); /* [R,C] */
    hr_hlo_shape s = hr_hlo_retype(x.shape, HR_HLO_I32);
    hr_hlo_value first = hr_hlo_binary_i(h, "multiply", chunk, HR_HLO_CHUNK);
    hr_hlo_value id = hr_hlo_binary(h, "add", hr_hlo_iota(h, s, 1), hr_hlo_along(h, first, s, 0));
    hr_hlo_value place = places(h, x, id);
    hr_hlo_value after = hr_hlo_compare(h, "LT", place, hr_hlo_along(h, last, place.shape, 0));
    place = hr_hlo_select(h, after, place, hr_hlo_splat_i(h, place.shape, INT64_MIN));
    return hr_hlo_reduce(h, "maximum", place, 1);
}

/* x [R,..] with column at[r] of row r set to v[r]; -1 = none. */
static hr_hlo_value set_column(hr_hlo *h, hr_hlo_value x, hr_hlo_value at, hr_hlo_value v)
{
    hr_hlo_value column = hr_hlo_iota(h, hr_hlo_retype(x.shape, HR_HLO_I32), 1);
    hr_hlo_value here = hr_hlo_compare(h, "EQ", column, hr_hlo_along(h, at, column.shape, 0));
    return hr_hlo_select(h, here, hr_hlo_along(h, v, x.shape, 0), x);
}

static void top_turn(hr_hlo *h, void *ctx, hr_hlo_value *carried)
{
    const tops *t = ctx;
    hr_hlo_value last = hr_hlo_reduce(h, "maximum", carried[1], 1), id = id_of(h, last);
    hr_hlo_value chunk = hr_hlo_binary_i(h, "divide", id, HR_HLO_CHUNK);
    hr_hlo_value turn = hr_hlo_along(h, carried[0], id.shape, 0);
    hr_hlo_value wants = hr_hlo_compare(h, "LT", turn, t->wanted);
    turn = hr_hlo_select(h, wants, turn, hr_hlo_splat_i(h, turn.shape, -1));
    carried[2] = set_column(h, carried[2], turn, id);
    carried[1] = set_column(h, carried[1], chunk, next_place(h, t, chunk, last));
    carried[0] = hr_hlo_binary_i(h, "add", carried[0], 1);
}

/* Ids past V, which fill the last chunk, are -inf and higher than any real id: they come last. */
static hr_hlo_value best_of_chunks(hr_hlo *h, hr_hlo_value x)
{
    hr_hlo_shape s = hr_hlo_retype(x.shape, HR_HLO_I32);
    hr_hlo_value id = hr_hlo_binary_i(h, "multiply", hr_hlo_iota(h, s, 1), HR_HLO_CHUNK);
    id = hr_hlo_binary(h, "add", id, hr_hlo_iota(h, s, 2));
    return hr_hlo_reduce(h, "maximum", places(h, x, id), 2);
}

static hr_hlo_value no_ids(const hr_hlo_emit *e)
{
    hr_hlo_shape s = HR_HLO_SHAPE(I32, e->in[0].shape.dim[0], e->node->attrs.n);
    return hr_hlo_splat_i(e->h, s, -1);
}

static void topped(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    tops t = { .x = hr_hlo_chunks(h, e->in[0]), .wanted = e->in[1] };
    t.turns = hr_hlo_clamp_i(h, hr_hlo_reduce(h, "maximum", t.wanted, 0), 0, e->node->attrs.n);
    hr_hlo_value carried[] = { hr_hlo_splat_i(h, hr_hlo_scalar(HR_HLO_I32), 0),
                               best_of_chunks(h, t.x), no_ids(e) };
    hr_hlo_while(h, carried, 3, top_more, top_turn, &t);
    results[0] = carried[2];
}

static void not_topped(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    (void)h;
    results[0] = no_ids(ctx);
}

hr_status hr_hlo_emit_top_n(hr_hlo_emit *e)
{
    hr_hlo_value any = hr_hlo_any(e->h, hr_hlo_compare_i(e->h, "GT", e->in[1], 0));
    hr_hlo_if(e->h, any, topped, not_topped, e, e->out, 1);
    return HR_OK;
}
