/* StableHLO of the cuts and the draw: searches over integers, no sort.
 *
 * R rows, V logits. A threshold is found by halving a range of bit patterns, each turn one pass
 * over all rows - unless every k is small, when the largest few values of each row show it, and
 * top_p's too; which it is, is decided by the rows of the step. A draw goes by the sums of chunks,
 * then inside one chunk. Masses are integers, so that
 * neither depends on the order of a sum. What no row asks for is branched around. */
#include <math.h>

#include "base/exact.h"
#include "pjrt/hlo_exact.h"

/* ---- threshold ------------------------------------------------------------------------------ */

/* Distances are the bits of how far a value lies below 0: i32 that rise as values fall, 0 for
 * values from 0 up, above NO_CUT for NaN. A cut is the largest distance that survives. */
#define NO_CUT 0x7F800000 /* of -inf */

static hr_hlo_value distance_of(hr_hlo *h, hr_hlo_value y)
{
    hr_hlo_value bits = hr_hlo_bitcast(h, y, HR_HLO_I32);
    hr_hlo_value size = hr_hlo_binary_i(h, "and", bits, INT32_MAX);
    hr_hlo_value positive = hr_hlo_binary(h, "and", hr_hlo_compare_i(h, "GE", bits, 0),
                                          hr_hlo_compare_i(h, "LE", bits, NO_CUT));
    return hr_hlo_select(h, positive, hr_hlo_splat_i(h, size.shape, 0), size);
}

/* The value that a cut stands for: f32 without a -0. */
static hr_hlo_value value_of(hr_hlo *h, hr_hlo_value cut)
{
    hr_hlo_value bits = hr_hlo_binary_i(h, "or", cut, INT32_MIN);
    bits = hr_hlo_select(h, hr_hlo_compare_i(h, "EQ", cut, 0), cut, bits);
    return hr_hlo_bitcast(h, bits, HR_HLO_F32);
}

/* What a search adds up, and how far it must get. */
typedef struct search {
    hr_hlo_value distance; /* i32 [R,V] */
    hr_hlo_value weight;   /* [R,V]; absent = 1 each */
    hr_hlo_value target;   /* [R], of weight's type, or i32 */
} search;

/* Weights of what survives each row's cut, [R]. */
static hr_hlo_value measure(hr_hlo *h, const search *s, hr_hlo_value cut)
{
    hr_hlo_value far = hr_hlo_along(h, cut, s->distance.shape, 0);
    hr_hlo_value in = hr_hlo_compare(h, "LE", s->distance, far);
    if (s->weight.id < 0) return hr_hlo_reduce(h, "add", hr_hlo_convert(h, in, HR_HLO_I32), 1);
    hr_hlo_value none = hr_hlo_splat_i(h, s->weight.shape, 0);
    return hr_hlo_reduce(h, "add", hr_hlo_select(h, in, s->weight, none), 1);
}

/* carried: low, high; the answer is in [low, high]. */
static hr_hlo_value search_more(hr_hlo *h, void *ctx, const hr_hlo_value *carried)
{
    (void)ctx;
    return hr_hlo_any(h, hr_hlo_compare(h, "LT", carried[0], carried[1]));
}

static void search_turn(hr_hlo *h, void *ctx, hr_hlo_value *carried)
{
    const search *s = ctx;
    hr_hlo_value low = carried[0], high = carried[1];
    hr_hlo_value middle = hr_hlo_binary(h, "subtract", high, low);
    middle = hr_hlo_binary_i(h, "shift_right_logical", middle, 1);
    middle = hr_hlo_binary(h, "add", low, middle);
    hr_hlo_value enough = hr_hlo_compare(h, "GE", measure(h, s, middle), s->target);
    hr_hlo_value open = hr_hlo_compare(h, "LT", low, high);
    hr_hlo_value rise = hr_hlo_binary(h, "and", open, hr_hlo_unary(h, "not", enough));
    carried[0] = hr_hlo_select(h, rise, hr_hlo_binary_i(h, "add", middle, 1), low);
    carried[1] = hr_hlo_select(h, hr_hlo_binary(h, "and", open, enough), middle, high);
}

/* The smallest distance up to `most` that measures the target, and not above `cut`; rows that do
 * not want it keep their cut. */
static hr_hlo_value search_cut(hr_hlo *h, search *s, hr_hlo_value wants, hr_hlo_value cut,
                               int64_t most)
{
    hr_hlo_value high = hr_hlo_splat_i(h, cut.shape, most), none = hr_hlo_splat_i(h, cut.shape, 0);
    hr_hlo_value range[] = { hr_hlo_select(h, wants, none, high), high };
    hr_hlo_while(h, range, 2, search_more, search_turn, s);
    hr_hlo_value found = hr_hlo_binary(h, "minimum", range[0], cut);
    return hr_hlo_select(h, wants, found, cut);
}

typedef struct cuts {
    const hr_hlo_emit *e;
    hr_hlo_value wants, cut; /* [R] */
    hr_hlo_value top;        /* [R,TOP], the largest of each row; -inf where nobody looked */
    hr_hlo_value large;      /* i1: some row's k is above TOP */
    hr_hlo_value from;       /* [R,n]: what cut_top_p looks at */
} cuts;

static void same_cut(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    (void)h;
    results[0] = ((const cuts *)ctx)->cut;
}

/* ---- top_k: of the largest few, or by a search ----------------------------------------------- */

enum {
    TOP = 64,       /* k up to here are read off the largest TOP values */
    TOP_FROM = 4096 /* columns from which that is worth a branch */
};

/* The cuts of rows that want one, whose k-th value is known: no larger distance than they had. */
static hr_hlo_value cut_at_kth(hr_hlo *h, const cuts *c, hr_hlo_value top)
{
    hr_hlo_value k = hr_hlo_binary_i(h, "subtract", c->e->in[2], 1);
    hr_hlo_value kth = distance_of(h, hr_hlo_at(h, top, k));
    return hr_hlo_select(h, c->wants, hr_hlo_binary(h, "minimum", kth, c->cut), c->cut);
}

static void cut_small_k(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const cuts *c = ctx;
    results[1] = hr_hlo_top(h, c->e->in[0], TOP);
    results[0] = cut_at_kth(h, c, results[1]);
}

static void search_top_k(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const cuts *c = ctx;
    search s = { .distance = distance_of(h, c->e->in[0]),
                 .weight = { .id = -1 },
                 .target = c->e->in[2] };
    results[0] = search_cut(h, &s, c->wants, c->cut, NO_CUT);
    if (c->top.id >= 0) results[1] = c->top;
}

static void cut_top_k(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    cuts *c = ctx;
    if (c->top.id < 0) search_top_k(h, c, results);
    else hr_hlo_if(h, c->large, search_top_k, cut_small_k, c, results, 2);
}

static void no_top_k(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const cuts *c = ctx;
    same_cut(h, ctx, results);
    if (c->top.id >= 0) results[1] = c->top;
}

static void find_top_k(hr_hlo *h, cuts *c, int64_t V)
{
    hr_hlo_value k = c->e->in[2], results[2];
    c->wants =
        hr_hlo_binary(h, "and", hr_hlo_compare_i(h, "GT", k, 0), hr_hlo_compare_i(h, "LT", k, V));
    c->top.id = -1;
    if (V >= TOP_FROM) {
        hr_hlo_shape s = HR_HLO_SHAPE(F32, k.shape.dim[0], TOP);
        c->top = hr_hlo_splat_f(h, s, -INFINITY);
        c->large =
            hr_hlo_any(h, hr_hlo_binary(h, "and", c->wants, hr_hlo_compare_i(h, "GT", k, TOP)));
    }
    bool listed = c->top.id >= 0;
    hr_hlo_if(h, hr_hlo_any(h, c->wants), cut_top_k, no_top_k, c, results, listed ? 2 : 1);
    c->cut = results[0];
    if (listed) c->top = results[1];
}

/* ---- top_p: among the largest few, or among all ---------------------------------------------- */

/* Nothing farther than HR_MASS_LEAST has a mass, so that is as far as the search goes. */
static void cut_top_p(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const cuts *c = ctx;
    hr_hlo_value y = c->from;
    float least = (float)-HR_MASS_LEAST;
    int32_t most;
    memcpy(&most, &least, sizeof most);
    search s = { .distance = distance_of(h, y),
                 .weight = hr_hlo_mass(h, hr_hlo_convert(h, y, HR_HLO_F64)) };
    s.target = hr_hlo_share(h, c->e->in[3], measure(h, &s, c->cut));
    results[0] = search_cut(h, &s, c->wants, c->cut, most);
}

static void cut_among_top(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    cuts few = *(const cuts *)ctx;
    few.from = few.top;
    cut_top_p(h, &few, results);
}

/* Every row that wants a cut has all that is left of it among its largest. */
static hr_hlo_value all_in_top(hr_hlo *h, const cuts *c)
{
    hr_hlo_value last = hr_hlo_reshape(h, hr_hlo_slice(h, c->top, 1, TOP - 1, TOP), c->cut.shape);
    hr_hlo_value looked = hr_hlo_reshape(h, hr_hlo_slice(h, c->top, 1, 0, 1), c->cut.shape);
    hr_hlo_value more = hr_hlo_compare(h, "LE", distance_of(h, last), c->cut);
    hr_hlo_value blind = hr_hlo_compare_f(h, "EQ", looked, -INFINITY);
    more = hr_hlo_binary(h, "and", c->wants, hr_hlo_binary(h, "or", more, blind));
    return hr_hlo_unary(h, "not", hr_hlo_any(h, more));
}

static void find_top_p_cut(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    cuts *c = ctx;
    c->from = c->e->in[0];
    if (c->top.id < 0) cut_top_p(h, c, results);
    else hr_hlo_if(h, all_in_top(h, c), cut_among_top, cut_top_p, c, results, 1);
}

static void find_top_p(hr_hlo *h, cuts *c)
{
    hr_hlo_value result;
    c->wants = hr_hlo_compare_f(h, "LT", c->e->in[3], 1);
    hr_hlo_if(h, hr_hlo_any(h, c->wants), find_top_p_cut, same_cut, c, &result, 1);
    c->cut = result;
}

hr_status hr_hlo_emit_threshold(hr_hlo_emit *e)
{
    hr_hlo *h = e->h;
    cuts c = { .e = e, .cut = distance_of(h, hr_hlo_min_p(h, e->in[1])) };
    hr_hlo_value each[3] = { c.cut };
    find_top_k(h, &c, e->in[0].shape.dim[1]);
    each[1] = c.cut;
    find_top_p(h, &c);
    each[2] = c.cut;
    for (int i = 0; i < 3; i++) each[i] = value_of(h, each[i]);
    e->out[0] = each[2];
    e->out[1] = hr_hlo_columns(h, each, 3);
    return HR_OK;
}

/* ---- draw ----------------------------------------------------------------------------------- */

/* Running sums along the last dim of i64 [R,n], by sums of twice as many at each step. */
static hr_hlo_value running_sum(hr_hlo *h, hr_hlo_value x)
{
    hr_hlo_value zero = hr_hlo_splat_i(h, hr_hlo_scalar(HR_HLO_I64), 0);
    int64_t n = x.shape.dim[1];
    for (int64_t step = 1; step < n; step *= 2) {
        hr_hlo_value before = hr_hlo_slice(h, x, 1, 0, n - step);
        x = hr_hlo_binary(h, "add", x, hr_hlo_pad(h, before, zero, 1, step, 0));
    }
    return x;
}

/* The first place of each row whose running sum exceeds `at`, i32 [R]; n where there is none. */
static hr_hlo_value first_above(hr_hlo *h, hr_hlo_value sums, hr_hlo_value at)
{
    hr_hlo_value passed = hr_hlo_compare(h, "LE", sums, hr_hlo_along(h, at, sums.shape, 0));
    return hr_hlo_reduce(h, "add", hr_hlo_convert(h, passed, HR_HLO_I32), 1);
}

/* i64 masses of the survivors among y [R,..] */
static hr_hlo_value survivor_masses(hr_hlo *h, hr_hlo_value y, hr_hlo_value cut)
{
    hr_hlo_value mass = hr_hlo_mass(h, hr_hlo_convert(h, y, HR_HLO_F64));
    return hr_hlo_select(h, hr_hlo_at_least(h, y, cut), mass, hr_hlo_splat_i(h, mass.shape, 0));
}

/* What comes before place `at` of x i64 [R,n], added up. */
static hr_hlo_value sum_before(hr_hlo *h, hr_hlo_value x, hr_hlo_value at)
{
    hr_hlo_value place = hr_hlo_iota(h, hr_hlo_retype(x.shape, HR_HLO_I32), 1);
    hr_hlo_value in = hr_hlo_compare(h, "LT", place, hr_hlo_along(h, at, place.shape, 0));
    return hr_hlo_reduce(h, "add", hr_hlo_select(h, in, x, hr_hlo_splat_i(h, x.shape, 0)), 1);
}

static void drawn(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    hr_hlo_value y = hr_hlo_chunks(h, e->in[0]), cut = e->in[1], position = e->in[3];
    hr_hlo_value sums = hr_hlo_reduce(h, "add", survivor_masses(h, y, cut), 2); /* [R,N] */
    hr_hlo_value total = hr_hlo_reduce(h, "add", sums, 1);
    hr_hlo_value at = hr_hlo_mul_high(h, hr_hlo_word(h, e->in[2], position), total);
    hr_hlo_value chunk = first_above(h, running_sum(h, sums), at);
    chunk = hr_hlo_clamp_i(h, chunk, 0, sums.shape.dim[1] - 1);
    at = hr_hlo_binary(h, "subtract", at, sum_before(h, sums, chunk));
    hr_hlo_value inside = survivor_masses(h, hr_hlo_at(h, y, chunk), cut); /* [R,C] */
    hr_hlo_value id = first_above(h, running_sum(h, inside), at);
    id = hr_hlo_binary(h, "add", hr_hlo_binary_i(h, "multiply", chunk, HR_HLO_CHUNK), id);
    hr_hlo_value live = hr_hlo_binary(h, "and", hr_hlo_compare_i(h, "GE", position, 0),
                                      hr_hlo_compare_i(h, "GT", total, 0));
    results[0] = hr_hlo_select(h, live, id, hr_hlo_splat_i(h, id.shape, -1));
}

static void not_drawn(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    results[0] = hr_hlo_splat_i(h, e->in[3].shape, -1);
}

hr_status hr_hlo_emit_draw(hr_hlo_emit *e)
{
    hr_hlo_value any = hr_hlo_any(e->h, hr_hlo_compare_i(e->h, "GE", e->in[3], 0));
    hr_hlo_if(e->h, any, drawn, not_drawn, e, e->out, 1);
    return HR_OK;
}
