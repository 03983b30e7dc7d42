/* StableHLO of what meets a weight matrix: linear, embed; and of the int8 rows that linear takes.
 *
 * Weights stay on the device in their parts (hlo_weight.c) and become f32 in the graph, where a
 * compiler may fuse that into the product. Sums are f32. One case is exact: int8 rows with one
 * scale meet I8C weights in an integer product. */
#include <math.h>

#include "pjrt/hlo_int.h"

enum { NUMBERS, SCALES, MINIMA };

/* ---- weights as f32 ------------------------------------------------------------------------- */

/* x [.., K] and one number per group of K [.., K/g], joined as [.., K/g, g]. */
static hr_hlo_value by_group(hr_hlo *h, const char *name, hr_hlo_value x, hr_hlo_value groups)
{
    hr_hlo_shape s = x.shape, flat = x.shape;
    int map[HR_HLO_MAX_RANK];
    for (int i = 0; i < s.rank; i++) map[i] = i;
    s.dim[s.rank] = s.dim[s.rank - 1] / groups.shape.dim[s.rank - 1];
    s.dim[s.rank - 1] = groups.shape.dim[s.rank - 1];
    s.rank++;
    hr_hlo_value wide = hr_hlo_broadcast(h, groups, s, map);
    return hr_hlo_reshape(h, hr_hlo_binary(h, name, hr_hlo_reshape(h, x, s), wide), flat);
}

hr_hlo_value hr_hlo_dequantise(hr_hlo *h, const hr_weight *w, const hr_hlo_value *part)
{
    hr_dtype stored = w->format == HR_FORMAT_F16    ? HR_DTYPE_F16
                      : w->format == HR_FORMAT_BF16 ? HR_DTYPE_BF16
                                                    : HR_DTYPE_F32;
    hr_hlo_value x = hr_hlo_widen(h, part[NUMBERS], stored);
    if (part[SCALES].id < 0) return x;
    if (w->format == HR_FORMAT_I8C)
        return hr_hlo_binary(h, "multiply", x, hr_hlo_along(h, part[SCALES], x.shape, 0));
    if (hr_format_has_zero_points(w->format))
        return by_group(h, "multiply", by_group(h, "add", x, part[MINIMA]), part[SCALES]);
    x = by_group(h, "multiply", x, part[SCALES]);
    return part[MINIMA].id < 0 ? x : by_group(h, "add", x, part[MINIMA]);
}

/* ---- embed ---------------------------------------------------------------------------------- */

hr_status hr_hlo_emit_embed(hr_hlo_emit *e)
{
    hr_hlo *h = e->h;
    hr_hlo_value ids = e->in[0], part[HR_HLO_MAX_PARTS]; /* [T] */
    int64_t V = e->in[1].shape.dim[0];
    for (int i = 0; i < HR_HLO_MAX_PARTS; i++) {
        part[i] = e->part[1][i];
        if (part[i].id >= 0) part[i] = hr_hlo_gather(h, part[i], hr_hlo_clamp_i(h, ids, 0, V - 1));
    }
    hr_hlo_value rows = hr_hlo_dequantise(h, e->node->in[1]->weight, part); /* [T,H] */
    hr_hlo_value known = hr_hlo_binary(h, "and", hr_hlo_compare_i(h, "GE", ids, 0),
                                       hr_hlo_compare_i(h, "LT", ids, V));
    rows = hr_hlo_select(h, hr_hlo_along(h, known, rows.shape, 0), rows,
                         hr_hlo_splat_f(h, rows.shape, 0));
    e->out[0] = hr_hlo_round_to(e, rows);
    return HR_OK;
}

/* ---- quantise_rows -------------------------------------------------------------------------- */

hr_status hr_hlo_emit_quantise_rows(hr_hlo_emit *e)
{
    hr_hlo *h = e->h;
    hr_hlo_value x = hr_hlo_f32(e, 0); /* [T,K] */
    int64_t T = x.shape.dim[0], K = x.shape.dim[1], g = e->node->attrs.group;
    hr_hlo_shape flat = x.shape;
    x = hr_hlo_reshape(h, x, HR_HLO_SHAPE(F32, T, K / g, g));
    hr_hlo_value most = hr_hlo_reduce(h, "maximum", hr_hlo_unary(h, "abs", x), 2); /* [T,K/g] */
    hr_hlo_value scale = hr_hlo_binary(h, "divide", most, hr_hlo_hidden(h, most, 127));
    scale = hr_hlo_select(h, hr_hlo_compare_f(h, "EQ", scale, 0), hr_hlo_splat_f(h, scale.shape, 1),
                          scale);
    /* asked of x itself: a maximum over rows may lose a NaN */
    hr_hlo_value finite = hr_hlo_reduce(h, "and", hr_hlo_unary(h, "is_finite", x), 2);
    scale = hr_hlo_select(h, finite, scale, hr_hlo_splat_f(h, scale.shape, (double)NAN));
    hr_hlo_value q = hr_hlo_quotient(h, x, hr_hlo_along(h, scale, x.shape, 0));
    q = hr_hlo_unary(h, "round_nearest_even", q);
    q = hr_hlo_binary_f(h, "minimum", hr_hlo_binary_f(h, "maximum", q, -127), 127);
    q = hr_hlo_select(h, hr_hlo_along(h, finite, q.shape, 0), q, hr_hlo_splat_f(h, q.shape, 0));
    e->out[0] = hr_hlo_reshape(h, hr_hlo_convert(h, q, HR_HLO_I8), flat);
    e->out[1] = scale;
    return HR_OK;
}

/* ---- linear --------------------------------------------------------------------------------- */

static const hr_hlo_dot_dims rows_by_rows = { .contract_a = 1, .contract_b = 1 };

static bool is_w8a8(const hr_hlo_emit *e)
{
    return e->node->in[0]->dtype == HR_DTYPE_I8 && e->node->in[1]->weight->format == HR_FORMAT_I8C;
}

/* What the rows of x stand for, as f32. */
static hr_hlo_value float_rows(hr_hlo_emit *e)
{
    hr_hlo_value x = hr_hlo_f32(e, 0);
    return e->in[4].id < 0 ? x : by_group(e->h, "multiply", x, e->in[4]);
}

/* int8 × int8 → int32, exact; then × the row's scale, × the channel's scale, in f32. */
static hr_hlo_value product_w8a8(hr_hlo_emit *e, const hr_hlo_value *part)
{
    hr_hlo *h = e->h;
    hr_hlo_value y = hr_hlo_dot(h, e->in[0], part[NUMBERS], rows_by_rows, HR_HLO_I32);
    y = hr_hlo_convert(h, y, HR_HLO_F32);
    hr_hlo_value row = hr_hlo_reshape(h, e->in[4], HR_HLO_SHAPE(F32, y.shape.dim[0]));
    y = hr_hlo_binary(h, "multiply", y, hr_hlo_along(h, row, y.shape, 0));
    return hr_hlo_binary(h, "multiply", y, hr_hlo_along(h, part[SCALES], y.shape, 1));
}

/* y × 1, the 1 hidden. A compiler may fuse y's last product with an addition that follows, of the
 * bias or of another node, and drop a rounding that is part of the definition; fused with this
 * product the addition drops none. */
static hr_hlo_value keep_rounded(hr_hlo_emit *e, hr_hlo_value y)
{
    hr_hlo_value scale = hr_hlo_reshape(e->h, e->in[4], HR_HLO_SHAPE(F32, y.shape.dim[0]));
    hr_hlo_value one = hr_hlo_along(e->h, hr_hlo_hidden(e->h, scale, 1), y.shape, 0);
    return hr_hlo_binary(e->h, "multiply", y, one);
}

/* 1, known only when x is. */
static hr_hlo_value one_after(hr_hlo *h, hr_hlo_value x)
{
    x = hr_hlo_slice(h, hr_hlo_slice(h, x, 0, 0, 1), 1, 0, 1);
    x = hr_hlo_reshape(h, x, hr_hlo_scalar(x.shape.type));
    x = x.shape.type == HR_HLO_F32 ? hr_hlo_bitcast(h, x, HR_HLO_I32)
                                   : hr_hlo_convert(h, x, HR_HLO_I32);
    return hr_hlo_clamp_i(h, x, 1, 1);
}

/* The matrix as f32, not before x is there. Without that, a compiler that wants things done early
 * makes all matrices of a program first, and the whole model lies in memory as f32. */
static hr_hlo_value matrix(hr_hlo_emit *e, const hr_hlo_value *part)
{
    hr_hlo *h = e->h;
    const hr_weight *w = e->node->in[1]->weight;
    hr_hlo_value late[HR_HLO_MAX_PARTS] = { part[NUMBERS], part[SCALES], part[MINIMA] };
    if (w->format != HR_FORMAT_F32) {
        hr_hlo_value one = one_after(h, e->in[0]);
        bool scaled = late[SCALES].id >= 0;
        hr_hlo_value *to = &late[scaled ? SCALES : NUMBERS];
        if (!scaled) one = hr_hlo_binary_i(h, "subtract", one, 1); /* halves: 0 is added to bits */
        one = hr_hlo_along(h, hr_hlo_convert(h, one, to->shape.type), to->shape, 0);
        *to = hr_hlo_binary(h, scaled ? "multiply" : "add", *to, one);
    }
    return hr_hlo_dequantise(h, w, late);
}

/* y [T,N] by one matrix, whose parts are given: cast to the result's dtype, then + bias in it. */
static hr_hlo_value product(hr_hlo_emit *e, hr_hlo_value x, const hr_hlo_value *part)
{
    hr_hlo *h = e->h;
    hr_hlo_value y = is_w8a8(e) ? product_w8a8(e, part)
                                : hr_hlo_dot(h, x, matrix(e, part), rows_by_rows, HR_HLO_F32);
    y = hr_hlo_round_to(e, y);
    if (is_w8a8(e) && y.shape.type == HR_HLO_F32) y = keep_rounded(e, y);
    if (e->in[2].id < 0) return y;
    hr_dtype dtype = e->node->out[0]->dtype;
    hr_hlo_value bias = hr_hlo_widen(h, hr_hlo_round_to(e, e->in[2]), dtype);
    y = hr_hlo_widen(h, y, dtype);
    return hr_hlo_round_to(e, hr_hlo_binary(h, "add", y, hr_hlo_along(h, bias, y.shape, 1)));
}

/* Matrices one after the other: each result is kept by the rows that belong to it. */
typedef struct grouped {
    hr_hlo_emit *e;
    hr_hlo_value x; /* f32 [T,K], or absent */
} grouped;

static hr_hlo_value more_matrices(hr_hlo *h, void *ctx, const hr_hlo_value *carried)
{
    const grouped *u = ctx;
    return hr_hlo_compare_i(h, "LT", carried[0], u->e->in[1].shape.dim[0]);
}

/* Matrix `index` of a part [E,..]. */
static hr_hlo_value slice_part(hr_hlo *h, hr_hlo_value part, hr_hlo_value index)
{
    hr_hlo_value starts[HR_HLO_MAX_RANK];
    int64_t sizes[HR_HLO_MAX_RANK];
    hr_hlo_shape s = { .type = part.shape.type, .rank = part.shape.rank - 1 };
    if (part.id < 0) return part;
    for (int i = 0; i < part.shape.rank; i++) {
        starts[i] = i ? hr_hlo_splat_i(h, hr_hlo_scalar(HR_HLO_I32), 0) : index;
        sizes[i] = i ? part.shape.dim[i] : 1;
        if (i) s.dim[i - 1] = part.shape.dim[i];
    }
    return hr_hlo_reshape(h, hr_hlo_dynamic_slice(h, part, starts, sizes), s);
}

static void one_matrix(hr_hlo *h, void *ctx, hr_hlo_value *carried)
{
    const grouped *u = ctx;
    hr_hlo_value groups = u->e->in[3], part[HR_HLO_MAX_PARTS]; /* groups [T] */
    for (int i = 0; i < HR_HLO_MAX_PARTS; i++)
        part[i] = slice_part(h, u->e->part[1][i], carried[0]);
    hr_hlo_value y = product(u->e, u->x, part);
    hr_hlo_value mine =
        hr_hlo_compare(h, "EQ", groups, hr_hlo_along(h, carried[0], groups.shape, 0));
    carried[1] = hr_hlo_select(h, hr_hlo_along(h, mine, y.shape, 0), y, carried[1]);
    carried[0] = hr_hlo_binary_i(h, "add", carried[0], 1);
}

hr_status hr_hlo_emit_linear(hr_hlo_emit *e)
{
    hr_hlo *h = e->h;
    hr_hlo_value x = is_w8a8(e) ? (hr_hlo_value){ .id = -1 } : float_rows(e);
    if (e->in[3].id < 0) {
        e->out[0] = product(e, x, e->part[1]);
        return HR_OK;
    }
    grouped u = { .e = e, .x = x };
    hr_hlo_value none =
        hr_hlo_splat_f(h, HR_HLO_SHAPE(F32, e->in[0].shape.dim[0], e->in[1].shape.dim[1]), 0);
    hr_hlo_value carried[2] = { hr_hlo_splat_i(h, hr_hlo_scalar(HR_HLO_I32), 0),
                                hr_hlo_round_to(e, none) };
    hr_hlo_while(h, carried, 2, more_matrices, one_matrix, &u);
    e->out[0] = carried[1];
    return HR_OK;
}
