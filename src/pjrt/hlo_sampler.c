/* StableHLO of what the sampler does to logits: masks, biases, penalties, temperature, the best id.
 *
 * R rows, V logits. Where an op is off in every row, a branch passes the logits on: a greedy step
 * pays for its argmax and little more. */
#include <float.h>
#include <math.h>

#include "pjrt/hlo_exact.h"

static hr_hlo_value negative_infinity(hr_hlo *h, hr_hlo_shape s)
{
    return hr_hlo_splat_f(h, hr_hlo_retype(s, HR_HLO_F32), (double)-INFINITY);
}

/* Where an op changes nothing: operand 0 as it is. */
static void pass_on(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    (void)h;
    results[0] = e->in[0];
}

/* `changed` where the scalar p says so, otherwise operand 0. */
static void change_if(hr_hlo_emit *e, hr_hlo_value p, hr_hlo_branch_fn changed)
{
    hr_hlo_if(e->h, p, changed, pass_on, e, e->out, 1);
}

/* ---- tables --------------------------------------------------------------------------------- */

/* i1 [R]: a slot of operand `table` that is read. */
static hr_hlo_value has_slot(hr_hlo *h, hr_hlo_value table, hr_hlo_value slot)
{
    return hr_hlo_binary(h, "and", hr_hlo_compare_i(h, "GE", slot, 1),
                         hr_hlo_compare_i(h, "LT", slot, table.shape.dim[0]));
}

/* i1 [R,V] of ui32 words [R,W] */
static hr_hlo_value bits_of(hr_hlo *h, hr_hlo_value words, int64_t V)
{
    int64_t R = words.shape.dim[0], W = words.shape.dim[1];
    hr_hlo_shape wide = HR_HLO_SHAPE(UI32, R, W, 32);
    hr_hlo_value bits = hr_hlo_binary(h, "shift_right_logical", hr_hlo_along(h, words, wide, 0),
                                      hr_hlo_iota(h, wide, 2));
    bits = hr_hlo_binary_i(h, "and", bits, 1);
    bits = hr_hlo_reshape(h, bits, HR_HLO_SHAPE(UI32, R, W * 32));
    return hr_hlo_compare_i(h, "NE", hr_hlo_slice(h, bits, 1, 0, V), 0);
}

static void masked(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    hr_hlo_value x = e->in[0], table = e->in[1], slot = e->in[2];
    hr_hlo_value on = bits_of(h, hr_hlo_gather(h, table, slot), x.shape.dim[1]);
    hr_hlo_value all = hr_hlo_unary(h, "not", has_slot(h, table, slot));
    on = hr_hlo_binary(h, "or", on, hr_hlo_along(h, all, on.shape, 0));
    results[0] = hr_hlo_select(h, on, x, negative_infinity(h, x.shape));
}

hr_status hr_hlo_emit_mask_bits(hr_hlo_emit *e)
{
    hr_hlo *h = e->h;
    hr_hlo_shape s = e->in[0].shape;
    if (e->node->attrs.n && e->node->attrs.n < s.dim[1]) {
        hr_hlo_value id = hr_hlo_iota(h, hr_hlo_retype(s, HR_HLO_I32), 1);
        e->in[0] = hr_hlo_select(h, hr_hlo_compare_i(h, "LT", id, e->node->attrs.n), e->in[0],
                                 negative_infinity(h, s));
    }
    change_if(e, hr_hlo_any(h, has_slot(h, e->in[1], e->in[2])), masked);
    return HR_OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

/* Rows' lists are walked side by side, as far as the longest one goes. */
typedef struct lists {
    hr_hlo_value ids, values, count; /* [R,M], [R,M] or absent, [R] */
    hr_hlo_value longest;            /* i32 */
} lists;

static hr_hlo_value within_longest(hr_hlo *h, void *ctx, const hr_hlo_value *carried)
{
    const lists *l = ctx;
    return hr_hlo_compare(h, "LT", carried[0], l->longest);
}

/* Column i of [R,M], of any type, as [R] */
static hr_hlo_value column(hr_hlo *h, hr_hlo_value x, hr_hlo_value i)
{
    hr_hlo_value starts[] = { hr_hlo_splat_i(h, hr_hlo_scalar(HR_HLO_I32), 0), i };
    hr_hlo_value c = hr_hlo_dynamic_slice(h, x, starts, (int64_t[]){ x.shape.dim[0], 1 });
    return hr_hlo_reshape(h, c, HR_HLO_SHAPE(I32, x.shape.dim[0]));
}

/* [R,2]: row, and entry i of its list, -1 where the list has ended. */
static hr_hlo_value places(hr_hlo *h, const lists *l, hr_hlo_value i)
{
    hr_hlo_value id = column(h, l->ids, i);
    hr_hlo_value live = hr_hlo_compare(h, "LT", hr_hlo_along(h, i, id.shape, 0), l->count);
    id = hr_hlo_select(h, live, id, hr_hlo_splat_i(h, id.shape, -1));
    hr_hlo_shape one = HR_HLO_SHAPE(I32, id.shape.dim[0], 1);
    hr_hlo_value pair[] = { hr_hlo_iota(h, one, 0), hr_hlo_reshape(h, id, one) };
    return hr_hlo_concatenate(h, pair, 2, 1);
}

/* carried: i, x */
static void list_turn(hr_hlo *h, void *ctx, hr_hlo_value *carried)
{
    const lists *l = ctx;
    hr_hlo_value at = places(h, l, carried[0]);
    if (l->values.id >= 0)
        carried[1] =
            hr_hlo_scatter(h, carried[1], at, column(h, l->values, carried[0]), HR_HLO_SCATTER_ADD);
    else
        carried[1] = hr_hlo_scatter(h, carried[1], at, negative_infinity(h, l->count.shape),
                                    HR_HLO_SCATTER_SET);
    carried[0] = hr_hlo_binary_i(h, "add", carried[0], 1);
}

/* A loop that turns no times costs at most a copy of what it carries, as a branch would. */
static hr_hlo_value apply_lists(hr_hlo *h, hr_hlo_value x, lists l)
{
    hr_hlo_value carried[] = { hr_hlo_splat_i(h, hr_hlo_scalar(HR_HLO_I32), 0), x };
    l.longest = hr_hlo_clamp_i(h, hr_hlo_reduce(h, "maximum", l.count, 0), 0, l.ids.shape.dim[1]);
    hr_hlo_while(h, carried, 2, within_longest, list_turn, &l);
    return carried[1];
}

hr_status hr_hlo_emit_ban_ids(hr_hlo_emit *e)
{
    lists l = { .ids = e->in[1], .values = { .id = -1 }, .count = e->in[2] };
    e->out[0] = apply_lists(e->h, e->in[0], l);
    return HR_OK;
}

hr_status hr_hlo_emit_bias_ids(hr_hlo_emit *e)
{
    lists l = { .ids = e->in[1], .values = e->in[2], .count = e->in[3] };
    e->out[0] = apply_lists(e->h, e->in[0], l);
    return HR_OK;
}

/* ---- penalties ------------------------------------------------------------------------------ */

/* One logit each; see ref_sampler.c. repetition … f32 [R]. */
static hr_hlo_value penalised(const hr_hlo_emit *e, hr_hlo_value x, hr_hlo_value generated)
{
    hr_hlo *h = e->h;
    hr_hlo_value repetition = hr_hlo_along(h, e->in[3], x.shape, 0);
    hr_hlo_value frequency = hr_hlo_along(h, e->in[4], x.shape, 0);
    hr_hlo_value presence = hr_hlo_along(h, e->in[5], x.shape, 0);
    hr_hlo_value some = hr_hlo_compare_i(h, "GT", generated, 0);
    hr_hlo_value times = hr_hlo_convert(h, generated, HR_HLO_F32);
    hr_hlo_value y =
        hr_hlo_select(h, hr_hlo_compare_f(h, "GT", x, 0), hr_hlo_quotient(h, x, repetition),
                      hr_hlo_binary(h, "multiply", x, repetition));
    y = hr_hlo_apart(h, y);
    times = hr_hlo_apart(h, hr_hlo_binary(h, "multiply", frequency, times));
    hr_hlo_value less = hr_hlo_binary(h, "subtract", y, times);
    y = hr_hlo_select(h, some, hr_hlo_binary(h, "subtract", less, presence), y);
    hr_hlo_value most = hr_hlo_splat_f(h, x.shape, (double)FLT_MAX);
    y = hr_hlo_select(h, hr_hlo_compare(h, "GT", y, most), most, y);
    most = hr_hlo_splat_f(h, x.shape, (double)-FLT_MAX);
    return hr_hlo_select(h, hr_hlo_compare(h, "LT", y, most), most, y);
}

/* Counts i32 [R,V] with what rows' lists add to them. */
static hr_hlo_value with_more(hr_hlo *h, const hr_hlo_emit *e, hr_hlo_value counts)
{
    hr_hlo_value one = hr_hlo_splat_i(h, e->in[6].shape, 1);
    lists l = { .ids = e->in[6], .values = one, .count = e->in[7] };
    hr_hlo_value more = apply_lists(h, hr_hlo_splat_i(h, counts.shape, 0), l);
    hr_hlo_value in_prompt = hr_hlo_binary_i(h, "and", counts, 0x8000);
    more = hr_hlo_binary(h, "add", hr_hlo_binary_i(h, "and", counts, 0x7FFF), more);
    return hr_hlo_binary(h, "or", in_prompt, hr_hlo_binary_i(h, "minimum", more, 0x7FFF));
}

static void penalties(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    hr_hlo_value x = e->in[0], slot = e->in[2];
    hr_hlo_value counts = hr_hlo_convert(h, hr_hlo_gather(h, e->in[1], slot), HR_HLO_I32);
    hr_hlo_value applies = hr_hlo_along(h, has_slot(h, e->in[1], slot), counts.shape, 0);
    if (e->in[6].id >= 0) counts = with_more(h, e, counts);
    applies = hr_hlo_binary(h, "and", applies, hr_hlo_compare_i(h, "NE", counts, 0));
    applies = hr_hlo_binary(h, "and", applies, hr_hlo_unary(h, "is_finite", x));
    hr_hlo_value y = penalised(e, x, hr_hlo_binary_i(h, "and", counts, 0x7FFF));
    results[0] = hr_hlo_select(h, applies, y, x);
}

hr_status hr_hlo_emit_penalties(hr_hlo_emit *e)
{
    change_if(e, hr_hlo_any(e->h, has_slot(e->h, e->in[1], e->in[2])), penalties);
    return HR_OK;
}

/* ---- what a row is worth -------------------------------------------------------------------- */

/* Every logit is dead (0), alive (1) or broken (2); the row is what its worst makes it. */
hr_status hr_hlo_emit_row_status(hr_hlo_emit *e)
{
    hr_hlo *h = e->h;
    hr_hlo_value bits = hr_hlo_bitcast(h, e->in[0], HR_HLO_I32); /* [R,V] */
    hr_hlo_value zero = hr_hlo_splat_i(h, bits.shape, 0);
    hr_hlo_value size = hr_hlo_binary_i(h, "and", bits, INT32_MAX);
    hr_hlo_value dead = hr_hlo_compare_i(h, "EQ", bits, INT32_MIN | 0x7F800000);
    hr_hlo_value broken = hr_hlo_compare_i(h, "GE", size, 0x7F800000);
    hr_hlo_value state = hr_hlo_select(h, broken, hr_hlo_splat_i(h, bits.shape, 2),
                                       hr_hlo_splat_i(h, bits.shape, 1));
    state = hr_hlo_reduce(h, "maximum", hr_hlo_select(h, dead, zero, state), 1);
    zero = hr_hlo_splat_i(h, state.shape, 0);
    hr_hlo_value one = hr_hlo_splat_i(h, state.shape, 1);
    hr_hlo_value status = hr_hlo_select(h, hr_hlo_compare(h, "EQ", state, zero), one, state);
    status = hr_hlo_select(h, hr_hlo_compare(h, "EQ", state, one), zero, status);
    if (e->in[1].id >= 0)
        status = hr_hlo_select(h, hr_hlo_compare_i(h, "NE", e->in[1], 0), e->in[1], status);
    e->out[0] = status;
    return HR_OK;
}

hr_status hr_hlo_emit_argmax(hr_hlo_emit *e)
{
    hr_hlo *h = e->h;
    hr_hlo_value x = e->in[0];
    if (e->node->attrs.n && e->node->attrs.n < x.shape.dim[1])
        x = hr_hlo_slice(h, x, 1, 0, e->node->attrs.n);
    hr_hlo_value key = hr_hlo_key(h, x, HR_HLO_KEY_INFINITY);
    hr_hlo_value most = hr_hlo_reduce(h, "maximum", key, 1);
    hr_hlo_value best = hr_hlo_compare(h, "EQ", key, hr_hlo_along(h, most, key.shape, 0));
    hr_hlo_value id = hr_hlo_iota(h, key.shape, 1);
    id = hr_hlo_select(h, best, id, hr_hlo_splat_i(h, key.shape, INT32_MAX));
    id = hr_hlo_reduce(h, "minimum", id, 1);
    e->out[0] = hr_hlo_select(h, hr_hlo_compare_i(h, "GT", most, HR_HLO_KEY_INFINITY), id,
                              hr_hlo_splat_i(h, id.shape, -1));
    return HR_OK;
}

/* ---- temperature ---------------------------------------------------------------------------- */

/* x less its row's maximum: -inf for NaN, 0 for the maximum itself, whatever it is. */
static hr_hlo_value below(hr_hlo *h, hr_hlo_value x, hr_hlo_value most)
{
    hr_hlo_value least = hr_hlo_key(h, x, HR_HLO_KEY_INFINITY);
    least = hr_hlo_compare_i(h, "EQ", least, HR_HLO_KEY_INFINITY);
    most = hr_hlo_along(h, most, x.shape, 0);
    hr_hlo_value y =
        hr_hlo_select(h, hr_hlo_compare(h, "EQ", x, most), hr_hlo_splat_f(h, x.shape, 0),
                      hr_hlo_binary(h, "subtract", x, most));
    return hr_hlo_select(h, least, negative_infinity(h, x.shape), y);
}

static hr_hlo_value tempered_rows(const hr_hlo_emit *e)
{
    return hr_hlo_compare_f(e->h, "GT", e->in[1], 0);
}

static void tempered(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    hr_hlo_value x = e->in[0], t = e->in[1], most = hr_hlo_row_max(h, x), on = tempered_rows(e);
    hr_hlo_value y = hr_hlo_quotient(h, below(h, x, most), hr_hlo_along(h, t, x.shape, 0));
    results[0] = hr_hlo_select(h, hr_hlo_along(h, on, x.shape, 0), y, x);
    hr_hlo_value origin = hr_hlo_binary(h, "divide", hr_hlo_unary(h, "negate", most), t);
    on = hr_hlo_binary(h, "and", on, hr_hlo_unary(h, "is_finite", most));
    results[1] = hr_hlo_select(h, on, origin, hr_hlo_splat_f(h, t.shape, 0));
}

static void untempered(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    results[0] = e->in[0];
    results[1] = hr_hlo_splat_f(h, e->in[1].shape, 0);
}

hr_status hr_hlo_emit_temper(hr_hlo_emit *e)
{
    hr_hlo_value any = hr_hlo_any(e->h, tempered_rows(e));
    hr_hlo_if(e->h, any, tempered, untempered, e, e->out, 2);
    return HR_OK;
}

/* ---- choices -------------------------------------------------------------------------------- */

hr_status hr_hlo_emit_keep(hr_hlo_emit *e)
{
    hr_hlo_value y = e->in[0];
    e->out[0] = hr_hlo_select(e->h, hr_hlo_at_least(e->h, y, e->in[1]), y,
                              negative_infinity(e->h, y.shape));
    return HR_OK;
}

hr_status hr_hlo_emit_choose(hr_hlo_emit *e)
{
    e->out[0] = hr_hlo_select(e->h, hr_hlo_compare_i(e->h, "NE", e->in[0], 0), e->in[1], e->in[2]);
    return HR_OK;
}
