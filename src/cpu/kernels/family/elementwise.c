/* Ops that treat every element alike: activation, gated, add, mul, scale, softcap, cast.
 *
 * An item is a row, but rows lie end to end, so a chunk of rows is one run of elements. The run is
 * walked once by `walk`, into which each op's formula is inlined with the dtypes as constants: one
 * loop per op and dtype. The last, partial vector goes through the same formula. */
#include "cpu/kernels/family/activate.h"

/* One vector of the result from one of each operand; y is absent (zeros) in unary ops. */
typedef vf (*formula)(const hr_attrs *at, vf x, vf y);

V_INLINE void walk(formula f, const hr_kernel_args *a, hr_dtype in, hr_dtype out, int64_t from,
                   int64_t to)
{
    const hr_attrs *at = &a->node->attrs;
    const void *x = a->in[0], *y = a->in[1];
    int64_t i = from;
    for (; i + V_LANES <= to; i += V_LANES)
        v_store_any(out, a->out[0], i,
                    f(at, v_load_any(in, x, i), y ? v_load_any(in, y, i) : v_set1(0.0f)));
    if (i < to)
        v_store_any_n(out, a->out[0], i,
                      f(at, v_load_any_n(in, x, i, to - i),
                        y ? v_load_any_n(in, y, i, to - i) : v_set1(0.0f)),
                      to - i);
}

/* Rows [from, to) of an op whose result has its operand's dtype. */
V_INLINE void each(formula f, const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t row = hr_shape_row(a->node->in[0]->shape);
    hr_dtype d = a->node->in[0]->dtype;
    if (d == HR_DTYPE_F32) walk(f, a, HR_DTYPE_F32, HR_DTYPE_F32, from * row, to * row);
    else if (d == HR_DTYPE_BF16) walk(f, a, HR_DTYPE_BF16, HR_DTYPE_BF16, from * row, to * row);
    else walk(f, a, HR_DTYPE_F16, HR_DTYPE_F16, from * row, to * row);
}

/* ---- activation and gated: one loop per function --------------------------------------------- */

V_INLINE vf silu(const hr_attrs *at, vf x, vf y)
{
    (void)at, (void)y;
    return activate(HR_ACT_SILU, x);
}
V_INLINE vf gelu(const hr_attrs *at, vf x, vf y)
{
    (void)at, (void)y;
    return activate(HR_ACT_GELU, x);
}
V_INLINE vf tanh_gelu(const hr_attrs *at, vf x, vf y)
{
    (void)at, (void)y;
    return activate(HR_ACT_GELU_TANH, x);
}
V_INLINE vf relu(const hr_attrs *at, vf x, vf y)
{
    (void)at, (void)y;
    return activate(HR_ACT_RELU, x);
}
V_INLINE vf identity(const hr_attrs *at, vf x, vf y)
{
    (void)at, (void)y;
    return x;
}

void HR_KERNEL(activation)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    switch (a->node->attrs.act) {
    case HR_ACT_NONE: each(identity, a, from, to); break;
    case HR_ACT_SILU: each(silu, a, from, to); break;
    case HR_ACT_GELU: each(gelu, a, from, to); break;
    case HR_ACT_GELU_TANH: each(tanh_gelu, a, from, to); break;
    case HR_ACT_RELU: each(relu, a, from, to); break;
    }
}

/* Expanded, act(gate) is a value of its own and is rounded to the dtype before the product. */
V_INLINE void gate_walk(hr_activation act, hr_dtype d, const hr_kernel_args *a, int64_t from,
                        int64_t to)
{
    int64_t row = hr_shape_row(a->node->in[0]->shape), i = from * row, end = to * row;
    for (; i + V_LANES <= end; i += V_LANES) {
        vf g = v_round_to(d, activate(act, v_load_any(d, a->in[0], i)));
        v_store_any(d, a->out[0], i, v_mul(g, v_load_any(d, a->in[1], i)));
    }
    if (i < end) {
        vf g = v_round_to(d, activate(act, v_load_any_n(d, a->in[0], i, end - i)));
        v_store_any_n(d, a->out[0], i, v_mul(g, v_load_any_n(d, a->in[1], i, end - i)), end - i);
    }
}

V_INLINE void gate_each(hr_activation act, const hr_kernel_args *a, int64_t from, int64_t to)
{
    hr_dtype d = a->node->in[0]->dtype;
    if (d == HR_DTYPE_F32) gate_walk(act, HR_DTYPE_F32, a, from, to);
    else if (d == HR_DTYPE_BF16) gate_walk(act, HR_DTYPE_BF16, a, from, to);
    else gate_walk(act, HR_DTYPE_F16, a, from, to);
}

void HR_KERNEL(gated)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    switch (a->node->attrs.act) {
    case HR_ACT_NONE: gate_each(HR_ACT_NONE, a, from, to); break;
    case HR_ACT_SILU: gate_each(HR_ACT_SILU, a, from, to); break;
    case HR_ACT_GELU: gate_each(HR_ACT_GELU, a, from, to); break;
    case HR_ACT_GELU_TANH: gate_each(HR_ACT_GELU_TANH, a, from, to); break;
    case HR_ACT_RELU: gate_each(HR_ACT_RELU, a, from, to); break;
    }
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

V_INLINE vf sum(const hr_attrs *at, vf x, vf y)
{
    (void)at;
    return v_add(x, y);
}
V_INLINE vf product(const hr_attrs *at, vf x, vf y)
{
    (void)at;
    return v_mul(x, y);
}
V_INLINE vf scaled(const hr_attrs *at, vf x, vf y)
{
    (void)y;
    return v_mul(x, v_set1(at->scale));
}
V_INLINE vf capped(const hr_attrs *at, vf x, vf y)
{
    (void)y;
    return v_mul(v_set1(at->cap), v_tanh(v_div(x, v_set1(at->cap))));
}

void HR_KERNEL(add)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    each(sum, a, from, to);
}
void HR_KERNEL(mul)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    each(product, a, from, to);
}
void HR_KERNEL(scale)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    each(scaled, a, from, to);
}
void HR_KERNEL(softcap)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    each(capped, a, from, to);
}

/* ---- cast: a loop per pair of dtypes --------------------------------------------------------- */

V_INLINE void cast_from(hr_dtype in, const hr_kernel_args *a, int64_t from, int64_t to)
{
    hr_dtype out = a->node->out[0]->dtype;
    if (out == HR_DTYPE_F32) walk(identity, a, in, HR_DTYPE_F32, from, to);
    else if (out == HR_DTYPE_BF16) walk(identity, a, in, HR_DTYPE_BF16, from, to);
    else walk(identity, a, in, HR_DTYPE_F16, from, to);
}

void HR_KERNEL(cast)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t row = hr_shape_row(a->node->in[0]->shape);
    hr_dtype d = a->node->in[0]->dtype;
    if (d == HR_DTYPE_F32) cast_from(HR_DTYPE_F32, a, from * row, to * row);
    else if (d == HR_DTYPE_BF16) cast_from(HR_DTYPE_BF16, a, from * row, to * row);
    else cast_from(HR_DTYPE_F16, a, from * row, to * row);
}
