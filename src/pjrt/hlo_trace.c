/* StableHLO of the sampling trace: what each filter left, and how spread out that is.
 *
 * R rows, V logits. A branch that most steps do not take: nothing is computed unless a row asks. */
#include <math.h>

#include "pjrt/hlo_exact.h"

/* i1 [R] of operand `operand`, at least `least` */
static hr_hlo_value asks(const hr_hlo_emit *e, int operand, int64_t least)
{
    return hr_hlo_compare_i(e->h, "GE", e->in[operand], least);
}

/* How many of x [R,V] lie above -inf, and at or above cut [R] unless it is absent; i32 [R] */
static hr_hlo_value count_alive(hr_hlo *h, hr_hlo_value x, hr_hlo_value cut)
{
    hr_hlo_value key = hr_hlo_key(h, x, HR_HLO_KEY_INFINITY);
    hr_hlo_value in = hr_hlo_compare_i(h, "GT", key, HR_HLO_KEY_INFINITY);
    if (cut.id >= 0) in = hr_hlo_binary(h, "and", in, hr_hlo_at_least(h, x, cut));
    return hr_hlo_reduce(h, "add", hr_hlo_convert(h, in, HR_HLO_I32), 1);
}

static void alive(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    hr_hlo_value count = count_alive(h, e->in[0], (hr_hlo_value){ .id = -1 });
    results[0] = hr_hlo_select(h, asks(e, 1, 1), count, hr_hlo_splat_i(h, count.shape, 0));
}

static void not_asked(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    results[0] = hr_hlo_splat_i(h, e->in[1].shape, 0);
}

hr_status hr_hlo_emit_alive(hr_hlo_emit *e)
{
    hr_hlo_if(e->h, hr_hlo_any(e->h, asks(e, 1, 1)), alive, not_asked, e, e->out, 1);
    return HR_OK;
}

/* ---- from the cuts to the entropy ------------------------------------------------------------ */

/* Column i of cuts [R,3], as [R]. */
static hr_hlo_value cut_at(const hr_hlo_emit *e, int i)
{
    return hr_hlo_reshape(e->h, hr_hlo_slice(e->h, e->in[1], 1, i, i + 1),
                          hr_hlo_retype(e->in[2].shape, HR_HLO_F32));
}

/* i64 [R,..]: x where `in`, else 0 */
static hr_hlo_value where(hr_hlo *h, hr_hlo_value in, hr_hlo_value x)
{
    return hr_hlo_select(h, in, x, hr_hlo_splat_i(h, x.shape, 0));
}

/* The mass of the row's id, i64 [R]: 0 for an id outside [0,V) or below the cut. */
static hr_hlo_value own_mass(const hr_hlo_emit *e, hr_hlo_value mass)
{
    hr_hlo *h = e->h;
    hr_hlo_value id = e->in[2];
    hr_hlo_value inside = hr_hlo_binary(h, "and", hr_hlo_compare_i(h, "GE", id, 0),
                                        hr_hlo_compare_i(h, "LT", id, mass.shape.dim[1]));
    return where(h, inside, hr_hlo_at(h, mass, id));
}

/* f32 [R]: entropy, and the id's share. */
static void trace_masses(const hr_hlo_emit *e, hr_hlo_value sums[2])
{
    hr_hlo *h = e->h;
    hr_hlo_value y = e->in[0], in = hr_hlo_at_least(h, y, cut_at(e, 2));
    hr_hlo_value wide = hr_hlo_convert(h, y, HR_HLO_F64), mass = where(h, in, hr_hlo_mass(h, wide));
    hr_hlo_value total = hr_hlo_reduce(h, "add", mass, 1);
    hr_hlo_value spread = hr_hlo_reduce(h, "add", hr_hlo_spread(h, wide, mass), 1);
    sums[0] = hr_hlo_entropy(h, total, spread);
    hr_hlo_value some = hr_hlo_compare_i(h, "GT", total, 0);
    hr_hlo_value by = hr_hlo_select(h, some, total, hr_hlo_splat_i(h, total.shape, 1));
    sums[1] = hr_hlo_binary(h, "divide", hr_hlo_convert(h, own_mass(e, mass), HR_HLO_F64),
                            hr_hlo_convert(h, by, HR_HLO_F64));
    sums[1] = hr_hlo_convert(h, sums[1], HR_HLO_F32);
}

static void traced(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    hr_hlo_value counts[3], sums[2], on = asks(e, 3, 2);
    for (int i = 0; i < 3; i++) counts[i] = count_alive(h, e->in[0], cut_at(e, i));
    trace_masses(e, sums);
    for (int i = 0; i < 3; i++)
        counts[i] = hr_hlo_select(h, on, counts[i], hr_hlo_splat_i(h, counts[i].shape, 0));
    for (int i = 0; i < 2; i++)
        sums[i] = hr_hlo_select(h, on, sums[i], hr_hlo_splat_f(h, sums[i].shape, 0));
    results[0] = hr_hlo_columns(h, counts, 3);
    results[1] = hr_hlo_columns(h, sums, 2);
}

static void not_traced(hr_hlo *h, void *ctx, hr_hlo_value *results)
{
    const hr_hlo_emit *e = ctx;
    int64_t R = e->in[0].shape.dim[0];
    results[0] = hr_hlo_splat_i(h, HR_HLO_SHAPE(I32, R, 3), 0);
    results[1] = hr_hlo_splat_f(h, HR_HLO_SHAPE(F32, R, 2), 0);
}

hr_status hr_hlo_emit_trace(hr_hlo_emit *e)
{
    hr_hlo_if(e->h, hr_hlo_any(e->h, asks(e, 3, 2)), traced, not_traced, e, e->out, 2);
    return HR_OK;
}
