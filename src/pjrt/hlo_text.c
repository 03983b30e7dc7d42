/* The StableHLO writer's plain words: constants, element-wise operations, layout.
 *
 * Pure functions over a text buffer, one line of text per call. The pretty form is used wherever
 * one exists that plugins of every age parse. Floats are written as their bits: the decimal forms
 * of infinity and of integers are not accepted, and bits cannot round. */
#include <math.h>

#include "base/half.h"
#include "pjrt/hlo_int.h"

/* ---- shapes --------------------------------------------------------------------------------- */

static const struct type_info {
    const char *text;
    size_t bytes;
} types[] = {
#define TYPE_INFO(name, text, bytes) [HR_HLO_##name] = { text, bytes },
    HR_HLO_TYPE_LIST(TYPE_INFO)
#undef TYPE_INFO
};

int64_t hr_hlo_shape_count(const hr_hlo_shape *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++) n *= s->dim[i];
    return n;
}

size_t hr_hlo_shape_bytes(const hr_hlo_shape *s)
{
    return (size_t)hr_hlo_shape_count(s) * types[s->type].bytes;
}

static bool same_dims(const hr_hlo_shape *a, const hr_hlo_shape *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

bool hr_hlo_shape_eq(const hr_hlo_shape *a, const hr_hlo_shape *b)
{
    return a->type == b->type && same_dims(a, b);
}

bool hr_hlo_type_is_float(hr_hlo_type t)
{
    return t == HR_HLO_F32 || t == HR_HLO_BF16 || t == HR_HLO_F16 || t == HR_HLO_F64;
}

hr_hlo_type hr_hlo_type_of(hr_dtype d)
{
    switch (d) {
    case HR_DTYPE_F32: return HR_HLO_F32;
    case HR_DTYPE_BF16:
    case HR_DTYPE_F16: return HR_HLO_UI16;
    case HR_DTYPE_I8: return HR_HLO_I8;
    case HR_DTYPE_U8: return HR_HLO_UI8;
    case HR_DTYPE_U16: return HR_HLO_UI16;
    case HR_DTYPE_I32: return HR_HLO_I32;
    case HR_DTYPE_U32: return HR_HLO_UI32;
    }
    return HR_HLO_F32;
}

hr_hlo_shape hr_hlo_shape_of(const hr_value *v)
{
    hr_hlo_shape s = { .type = hr_hlo_type_of(v->dtype), .rank = v->shape.rank };
    for (int i = 0; i < s.rank; i++) s.dim[i] = v->shape.dim[i];
    return s;
}

void hr_hlo_add_type(hr_buf *text, const hr_hlo_shape *s)
{
    hr_buf_add_c(text, "tensor<");
    for (int i = 0; i < s->rank; i++) hr_buf_printf(text, "%lldx", (long long)s->dim[i]);
    hr_buf_printf(text, "%s>", types[s->type].text);
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* "%v7 = stablehlo.NAME " */
static hr_hlo_value begin(hr_hlo *h, const char *name, hr_hlo_shape s)
{
    hr_hlo_value v = { .id = h->next++, .shape = s };
    hr_buf_printf(h->text, "%%v%d = stablehlo.%s ", v.id, name);
    return v;
}

static void operands(hr_hlo *h, const hr_hlo_value *x, int n)
{
    for (int i = 0; i < n; i++) hr_buf_printf(h->text, "%s%%v%d", i ? ", " : "", x[i].id);
}

/* " : tensor<…>", where all types are one */
static hr_hlo_value end(hr_hlo *h, hr_hlo_value v)
{
    hr_buf_add_c(h->text, " : ");
    hr_hlo_add_type(h->text, &v.shape);
    hr_buf_add_byte(h->text, '\n');
    return v;
}

/* " : (tensor<…>, tensor<…>) -> tensor<…>" */
static hr_hlo_value end_of(hr_hlo *h, const hr_hlo_value *x, int n, hr_hlo_value v)
{
    hr_buf_add_c(h->text, " : (");
    for (int i = 0; i < n; i++) {
        if (i) hr_buf_add_c(h->text, ", ");
        hr_hlo_add_type(h->text, &x[i].shape);
    }
    hr_buf_add_c(h->text, ") -> ");
    hr_hlo_add_type(h->text, &v.shape);
    hr_buf_add_byte(h->text, '\n');
    return v;
}

hr_hlo_value hr_hlo_custom_call(hr_hlo *h, const char *target, const char *config,
                                const hr_hlo_value *x, int n, hr_hlo_shape s)
{
    hr_hlo_value v = begin(h, "custom_call", s);
    hr_buf_printf(h->text, "@\"%s\"(", target);
    operands(h, x, n);
    hr_buf_printf(h->text, ") {api_version = 4 : i32, backend_config = {%s}}", config);
    return end_of(h, x, n, v);
}

/* "[1, 0]" */
static void add_dims(hr_hlo *h, const int *dims, int n)
{
    hr_buf_add_byte(h->text, '[');
    for (int i = 0; i < n; i++) hr_buf_printf(h->text, "%s%d", i ? ", " : "", dims[i]);
    hr_buf_add_byte(h->text, ']');
}

/* ---- constants ------------------------------------------------------------------------------ */

hr_hlo_value hr_hlo_splat_f(hr_hlo *h, hr_hlo_shape s, double x)
{
    hr_hlo_value v = begin(h, "constant", s);
    uint64_t wide;
    memcpy(&wide, &x, sizeof wide);
    if (s.type == HR_HLO_F64) hr_buf_printf(h->text, "dense<0x%016llX>", (unsigned long long)wide);
    else if (s.type == HR_HLO_BF16)
        hr_buf_printf(h->text, "dense<0x%04X>", hr_f32_to_bf16((float)x));
    else if (s.type == HR_HLO_F16) hr_buf_printf(h->text, "dense<0x%04X>", hr_f32_to_f16((float)x));
    else hr_buf_printf(h->text, "dense<0x%08X>", hr_f32_bits((float)x));
    return end(h, v);
}

hr_hlo_value hr_hlo_splat_i(hr_hlo *h, hr_hlo_shape s, int64_t x)
{
    hr_hlo_value v = begin(h, "constant", s);
    if (s.type == HR_HLO_I1) hr_buf_printf(h->text, "dense<%s>", x ? "true" : "false");
    else if (s.type == HR_HLO_UI64) hr_buf_printf(h->text, "dense<%llu>", (unsigned long long)x);
    else hr_buf_printf(h->text, "dense<%lld>", (long long)x);
    return end(h, v);
}

/* The bytes as one hexadecimal string, which needs no nested brackets at any rank. */
hr_hlo_value hr_hlo_array(hr_hlo *h, hr_hlo_shape s, const void *data)
{
    static const char digits[] = "0123456789ABCDEF";
    const uint8_t *from = data;
    size_t bytes = hr_hlo_shape_bytes(&s);
    hr_hlo_value v = begin(h, "constant", s);
    hr_buf_add_c(h->text, "dense<\"0x");
    char *to = hr_buf_reserve(h->text, bytes * 2);
    for (size_t i = 0; to && i < bytes; i++) {
        to[i * 2] = digits[from[i] >> 4];
        to[i * 2 + 1] = digits[from[i] & 15];
    }
    if (to) h->text->n += bytes * 2;
    hr_buf_add_c(h->text, "\">");
    return end(h, v);
}

hr_hlo_value hr_hlo_iota(hr_hlo *h, hr_hlo_shape s, int dim)
{
    hr_hlo_value v = begin(h, "iota", s);
    hr_buf_printf(h->text, "dim = %d", dim);
    return end(h, v);
}

/* ---- element by element --------------------------------------------------------------------- */

hr_hlo_value hr_hlo_unary(hr_hlo *h, const char *name, hr_hlo_value x)
{
    bool predicate = strcmp(name, "is_finite") == 0;
    hr_hlo_value v = begin(h, name, predicate ? hr_hlo_retype(x.shape, HR_HLO_I1) : x.shape);
    operands(h, &x, 1);
    return predicate ? end_of(h, &x, 1, v) : end(h, v);
}

hr_hlo_value hr_hlo_binary(hr_hlo *h, const char *name, hr_hlo_value a, hr_hlo_value b)
{
    hr_hlo_value v = begin(h, name, a.shape);
    operands(h, (hr_hlo_value[]){ a, b }, 2);
    return end(h, v);
}

hr_hlo_value hr_hlo_binary_f(hr_hlo *h, const char *name, hr_hlo_value a, double b)
{
    return hr_hlo_binary(h, name, a, hr_hlo_splat_f(h, a.shape, b));
}

hr_hlo_value hr_hlo_binary_i(hr_hlo *h, const char *name, hr_hlo_value a, int64_t b)
{
    return hr_hlo_binary(h, name, a, hr_hlo_splat_i(h, a.shape, b));
}

static const char *comparison(hr_hlo_type t)
{
    if (hr_hlo_type_is_float(t)) return "FLOAT";
    return t == HR_HLO_I8 || t == HR_HLO_I32 || t == HR_HLO_I64 ? "SIGNED" : "UNSIGNED";
}

hr_hlo_value hr_hlo_compare(hr_hlo *h, const char *direction, hr_hlo_value a, hr_hlo_value b)
{
    hr_hlo_value x[] = { a, b }, v = begin(h, "compare", hr_hlo_retype(a.shape, HR_HLO_I1));
    hr_buf_printf(h->text, "%s, ", direction);
    operands(h, x, 2);
    hr_buf_printf(h->text, ", %s", comparison(a.shape.type));
    return end_of(h, x, 2, v);
}

hr_hlo_value hr_hlo_compare_f(hr_hlo *h, const char *direction, hr_hlo_value a, double b)
{
    return hr_hlo_compare(h, direction, a, hr_hlo_splat_f(h, a.shape, b));
}

hr_hlo_value hr_hlo_compare_i(hr_hlo *h, const char *direction, hr_hlo_value a, int64_t b)
{
    return hr_hlo_compare(h, direction, a, hr_hlo_splat_i(h, a.shape, b));
}

hr_hlo_value hr_hlo_select(hr_hlo *h, hr_hlo_value p, hr_hlo_value a, hr_hlo_value b)
{
    hr_hlo_value v = begin(h, "select", a.shape);
    operands(h, (hr_hlo_value[]){ p, a, b }, 3);
    hr_buf_add_c(h->text, " : ");
    hr_hlo_add_type(h->text, &p.shape);
    hr_buf_add_c(h->text, ", ");
    hr_hlo_add_type(h->text, &a.shape);
    hr_buf_add_byte(h->text, '\n');
    return v;
}

hr_hlo_value hr_hlo_clamp_i(hr_hlo *h, hr_hlo_value x, int64_t low, int64_t high)
{
    return hr_hlo_binary_i(h, "minimum", hr_hlo_binary_i(h, "maximum", x, low), high);
}

/* "%v7 = stablehlo.NAME %v3 : (tensor<…>) -> tensor<…>" */
static hr_hlo_value change(hr_hlo *h, const char *name, hr_hlo_value x, hr_hlo_shape s)
{
    hr_hlo_value v = begin(h, name, s);
    operands(h, &x, 1);
    return end_of(h, &x, 1, v);
}

hr_hlo_value hr_hlo_convert(hr_hlo *h, hr_hlo_value x, hr_hlo_type type)
{
    return x.shape.type == type ? x : change(h, "convert", x, hr_hlo_retype(x.shape, type));
}

hr_hlo_value hr_hlo_bitcast(hr_hlo *h, hr_hlo_value x, hr_hlo_type type)
{
    return change(h, "bitcast_convert", x, hr_hlo_retype(x.shape, type));
}

static hr_hlo_value reduce_precision(hr_hlo *h, hr_hlo_value x, const char *format)
{
    hr_hlo_value v = begin(h, "reduce_precision", x.shape);
    operands(h, &x, 1);
    hr_buf_printf(h->text, ", format = %s", format);
    return end(h, v);
}

/* reduce_precision makes zeros of f16's denormals, which are multiples of 2^-24. */
static hr_hlo_value reduce_to_f16(hr_hlo *h, hr_hlo_value x)
{
    hr_hlo_value steps =
        hr_hlo_unary(h, "round_nearest_even", hr_hlo_binary_f(h, "multiply", x, 0x1p24));
    hr_hlo_value small = hr_hlo_compare_f(h, "LT", hr_hlo_unary(h, "abs", x), 0x1p-14);
    return hr_hlo_select(h, small, hr_hlo_binary_f(h, "multiply", steps, 0x1p-24),
                         reduce_precision(h, x, "e5m10"));
}

hr_hlo_value hr_hlo_round(hr_hlo *h, hr_hlo_value x, hr_dtype d)
{
    if (d == HR_DTYPE_F32) return x;
    bool f16 = d == HR_DTYPE_F16;
    x = f16 ? reduce_to_f16(h, x) : reduce_precision(h, x, "e8m7");
    return hr_hlo_bitcast(h, hr_hlo_convert(h, x, f16 ? HR_HLO_F16 : HR_HLO_BF16), HR_HLO_UI16);
}

hr_hlo_value hr_hlo_widen(hr_hlo *h, hr_hlo_value x, hr_dtype d)
{
    if (d != HR_DTYPE_BF16 && d != HR_DTYPE_F16) return hr_hlo_convert(h, x, HR_HLO_F32);
    x = hr_hlo_bitcast(h, x, d == HR_DTYPE_F16 ? HR_HLO_F16 : HR_HLO_BF16);
    return hr_hlo_convert(h, x, HR_HLO_F32);
}

hr_hlo_value hr_hlo_round_to(hr_hlo_emit *e, hr_hlo_value x)
{
    return hr_hlo_round(e->h, x, e->node->out[0]->dtype);
}

hr_hlo_value hr_hlo_f32(hr_hlo_emit *e, int i)
{
    return hr_hlo_widen(e->h, e->in[i], e->node->in[i]->dtype);
}

hr_hlo_value hr_hlo_hidden(hr_hlo *h, hr_hlo_value data, double x)
{
    data = hr_hlo_binary_f(h, "maximum", hr_hlo_unary(h, "abs", data), x);
    return hr_hlo_binary_f(h, "minimum", data, x);
}

hr_hlo_value hr_hlo_quotient(hr_hlo *h, hr_hlo_value a, hr_hlo_value b)
{
    hr_hlo_value own = hr_hlo_binary(h, "minimum", a, b);
    return hr_hlo_binary(h, "divide", a, hr_hlo_binary(h, "maximum", own, b));
}

/* ---- layout --------------------------------------------------------------------------------- */

hr_hlo_value hr_hlo_reshape(hr_hlo *h, hr_hlo_value x, hr_hlo_shape s)
{
    return same_dims(&x.shape, &s) ? x : change(h, "reshape", x, hr_hlo_retype(s, x.shape.type));
}

hr_hlo_value hr_hlo_broadcast(hr_hlo *h, hr_hlo_value x, hr_hlo_shape s, const int *map)
{
    hr_hlo_value v = begin(h, "broadcast_in_dim", hr_hlo_retype(s, x.shape.type));
    operands(h, &x, 1);
    hr_buf_add_c(h->text, ", dims = ");
    add_dims(h, map, x.shape.rank);
    return end_of(h, &x, 1, v);
}

hr_hlo_value hr_hlo_along(hr_hlo *h, hr_hlo_value x, hr_hlo_shape s, int dim)
{
    int map[HR_HLO_MAX_RANK];
    if (same_dims(&x.shape, &s)) return x;
    for (int i = 0; i < x.shape.rank; i++) map[i] = dim + i;
    return hr_hlo_broadcast(h, x, s, map);
}

hr_hlo_value hr_hlo_transpose(hr_hlo *h, hr_hlo_value x, const int *perm)
{
    hr_hlo_shape s = x.shape;
    for (int i = 0; i < s.rank; i++) s.dim[i] = x.shape.dim[perm[i]];
    hr_hlo_value v = begin(h, "transpose", s);
    operands(h, &x, 1);
    hr_buf_add_c(h->text, ", dims = ");
    add_dims(h, perm, s.rank);
    return end_of(h, &x, 1, v);
}

hr_hlo_value hr_hlo_slice(hr_hlo *h, hr_hlo_value x, int dim, int64_t from, int64_t to)
{
    hr_hlo_shape s = x.shape;
    if (from == 0 && to == s.dim[dim]) return x;
    s.dim[dim] = to - from;
    hr_hlo_value v = begin(h, "slice", s);
    operands(h, &x, 1);
    for (int i = 0; i < s.rank; i++)
        hr_buf_printf(h->text, "%s%lld:%lld", i ? ", " : " [", i == dim ? (long long)from : 0ll,
                      (long long)(i == dim ? to : s.dim[i]));
    hr_buf_add_byte(h->text, ']');
    return end_of(h, &x, 1, v);
}

hr_hlo_value hr_hlo_concatenate(hr_hlo *h, const hr_hlo_value *x, int n, int dim)
{
    hr_hlo_shape s = x[0].shape;
    for (int i = 1; i < n; i++) s.dim[dim] += x[i].shape.dim[dim];
    hr_hlo_value v = begin(h, "concatenate", s);
    operands(h, x, n);
    hr_buf_printf(h->text, ", dim = %d", dim);
    return end_of(h, x, n, v);
}

/* ", low = [0, 3]" */
static void add_padding(hr_hlo *h, const char *name, int rank, int dim, int64_t x)
{
    hr_buf_printf(h->text, ", %s = [", name);
    for (int i = 0; i < rank; i++)
        hr_buf_printf(h->text, "%s%lld", i ? ", " : "", i == dim ? (long long)x : 0ll);
    hr_buf_add_byte(h->text, ']');
}

hr_hlo_value hr_hlo_pad(hr_hlo *h, hr_hlo_value x, hr_hlo_value fill, int dim, int64_t low,
                        int64_t high)
{
    hr_hlo_shape s = x.shape;
    hr_hlo_value in[] = { x, fill };
    s.dim[dim] += low + high;
    hr_hlo_value v = begin(h, "pad", s);
    operands(h, in, 2);
    add_padding(h, "low", s.rank, dim, low);
    add_padding(h, "high", s.rank, dim, high);
    add_padding(h, "interior", s.rank, dim, 0);
    return end_of(h, in, 2, v);
}

hr_hlo_value hr_hlo_dynamic_slice(hr_hlo *h, hr_hlo_value x, const hr_hlo_value *starts,
                                  const int64_t *sizes)
{
    hr_hlo_value in[1 + HR_HLO_MAX_RANK] = { x };
    hr_hlo_shape s = x.shape;
    for (int i = 0; i < s.rank; i++) in[1 + i] = starts[i];
    for (int i = 0; i < s.rank; i++) s.dim[i] = sizes[i];
    hr_hlo_value v = begin(h, "dynamic_slice", s);
    operands(h, in, 1 + s.rank);
    hr_buf_add_c(h->text, ", sizes = [");
    for (int i = 0; i < s.rank; i++)
        hr_buf_printf(h->text, "%s%lld", i ? ", " : "", (long long)sizes[i]);
    hr_buf_add_byte(h->text, ']');
    return end_of(h, in, 1 + s.rank, v);
}
