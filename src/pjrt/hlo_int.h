/* Inside the StableHLO writer: values, the words that emitters are written in, one emitter per op.
 *
 * Every word emits one operation and returns its result. Failures (memory only) are sticky in the
 * text buffer. Shapes are the caller's duty: the plugin's verifier tells who got one wrong. */
#ifndef HEADRACE_PJRT_HLO_INT_H
#define HEADRACE_PJRT_HLO_INT_H

#include "pjrt/hlo.h"

#define HR_HLO_MAX_PARTS   3  /* of one weight: numbers, scales, minima */
#define HR_HLO_MAX_CARRIED 16 /* values that a loop carries, or a branch results in */

typedef struct hr_hlo_value {
    int id; /* %v<id>; < 0 = absent */
    hr_hlo_shape shape;
} hr_hlo_value;

/* The writer. */
typedef struct hr_hlo {
    hr_buf *text;              /* borrowed */
    const hr_hlo_options *opt; /* borrowed */
    int next;                  /* first id that is free */
} hr_hlo;

/* What one op's emitter is given, and leaves in `out`. */
typedef struct hr_hlo_emit {
    hr_hlo *h;
    const hr_node *node;                                 /* shapes, dtypes, attributes */
    hr_hlo_value in[HR_NODE_MAX_IN];                     /* absent: id < 0. A weight: its part 0 */
    hr_hlo_value part[HR_NODE_MAX_IN][HR_HLO_MAX_PARTS]; /* of operands that are weights */
    hr_hlo_value out[HR_NODE_MAX_OUT]; /* set by the emitter, in the node's dtypes and shapes */
} hr_hlo_emit;

/* UNIMPLEMENTED only; memory is the buffer's to report. */
typedef hr_status (*hr_hlo_fn)(hr_hlo_emit *e);

#define HR_HLO_PRIMITIVE(name) hr_status hr_hlo_emit_##name(hr_hlo_emit *e);
#define HR_HLO_COMPOSITE(name)
#define HR_OP(name, kind, inputs, results, signature) HR_HLO_##kind(name)
#include "graph/ops.def"
#undef HR_OP
#undef HR_HLO_PRIMITIVE
#undef HR_HLO_COMPOSITE

/* ---- shapes --------------------------------------------------------------------------------- */

/* HR_HLO_SHAPE(F32, T, K): at least one dim. */
#define HR_HLO_SHAPE(t, ...)                                                                       \
    ((hr_hlo_shape){ .type = HR_HLO_##t,                                                           \
                     .rank = (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)),          \
                     .dim = { __VA_ARGS__ } })

static inline hr_hlo_shape hr_hlo_scalar(hr_hlo_type type)
{
    return (hr_hlo_shape){ .type = type };
}
static inline hr_hlo_shape hr_hlo_retype(hr_hlo_shape s, hr_hlo_type type)
{
    s.type = type;
    return s;
}
hr_hlo_shape hr_hlo_shape_of(const hr_value *v);
int64_t hr_hlo_shape_count(const hr_hlo_shape *s);
bool hr_hlo_shape_eq(const hr_hlo_shape *a, const hr_hlo_shape *b);
bool hr_hlo_type_is_float(hr_hlo_type t);
void hr_hlo_add_type(hr_buf *text, const hr_hlo_shape *s); /* tensor<16x64xf32> */

/* ---- constants ------------------------------------------------------------------------------ */

/* Floats: x rounded to the shape's type, written as its bits. */
hr_hlo_value hr_hlo_splat_f(hr_hlo *h, hr_hlo_shape s, double x);
/* Integers and i1. */
hr_hlo_value hr_hlo_splat_i(hr_hlo *h, hr_hlo_shape s, int64_t x);
/* Dense row-major host data of hr_hlo_shape_bytes; not for i1. */
hr_hlo_value hr_hlo_array(hr_hlo *h, hr_hlo_shape s, const void *data);
hr_hlo_value hr_hlo_iota(hr_hlo *h, hr_hlo_shape s, int dim);

/* ---- element by element --------------------------------------------------------------------- */

/* `name` is StableHLO's: exponential log sqrt rsqrt tanh cosine sine negate abs floor ceil
 * round_nearest_even not is_finite (i1) … */
hr_hlo_value hr_hlo_unary(hr_hlo *h, const char *name, hr_hlo_value x);
/* add subtract multiply divide maximum minimum and or xor remainder shift_left
 * shift_right_logical … ; both of one shape */
hr_hlo_value hr_hlo_binary(hr_hlo *h, const char *name, hr_hlo_value a, hr_hlo_value b);
/* With a splat of b's value, in a's type. */
hr_hlo_value hr_hlo_binary_f(hr_hlo *h, const char *name, hr_hlo_value a, double b);
hr_hlo_value hr_hlo_binary_i(hr_hlo *h, const char *name, hr_hlo_value a, int64_t b);
/* EQ NE LT LE GT GE -> i1; FLOAT, SIGNED or UNSIGNED by a's type */
hr_hlo_value hr_hlo_compare(hr_hlo *h, const char *direction, hr_hlo_value a, hr_hlo_value b);
hr_hlo_value hr_hlo_compare_f(hr_hlo *h, const char *direction, hr_hlo_value a, double b);
hr_hlo_value hr_hlo_compare_i(hr_hlo *h, const char *direction, hr_hlo_value a, int64_t b);
/* p i1 of a's shape, or a scalar */
hr_hlo_value hr_hlo_select(hr_hlo *h, hr_hlo_value p, hr_hlo_value a, hr_hlo_value b);
/* Integers: [low, high]. */
hr_hlo_value hr_hlo_clamp_i(hr_hlo *h, hr_hlo_value x, int64_t low, int64_t high);
/* The same value when it has that type already. */
hr_hlo_value hr_hlo_convert(hr_hlo *h, hr_hlo_value x, hr_hlo_type type);
hr_hlo_value hr_hlo_bitcast(hr_hlo *h, hr_hlo_value x, hr_hlo_type type); /* same width */

/* A constant that no simplifier sees: f32 `data` clamped to [x, x] (a NaN stays one). XLA makes a
 * product with the inverse of a division by a plain constant, which is off by a bit at times. */
hr_hlo_value hr_hlo_hidden(hr_hlo *h, hr_hlo_value data, double x);
/* a / b, rounded once, also where b was spread along a's rows: a newer XLA makes such a quotient a
 * product with the inverse of what was spread. Here b is clamped from a to itself, so that it is
 * every element's own. */
hr_hlo_value hr_hlo_quotient(hr_hlo *h, hr_hlo_value a, hr_hlo_value b);

/* ---- layout --------------------------------------------------------------------------------- */

/* To the dims of `s`, whose type is not looked at. The same value when they are its own. */
hr_hlo_value hr_hlo_reshape(hr_hlo *h, hr_hlo_value x, hr_hlo_shape s);
/* Dim i of x becomes dim map[i] of s, whose type is not looked at. */
hr_hlo_value hr_hlo_broadcast(hr_hlo *h, hr_hlo_value x, hr_hlo_shape s, const int *map);
/* x's dims are the dims `dim`, dim + 1 … of s: [T] along 0 of [T,K], [K] along 1, a scalar. */
hr_hlo_value hr_hlo_along(hr_hlo *h, hr_hlo_value x, hr_hlo_shape s, int dim);
/* Dim i of the result is dim perm[i] of x. */
hr_hlo_value hr_hlo_transpose(hr_hlo *h, hr_hlo_value x, const int *perm);
/* [from, to) of one dim, all of the others. */
hr_hlo_value hr_hlo_slice(hr_hlo *h, hr_hlo_value x, int dim, int64_t from, int64_t to);
hr_hlo_value hr_hlo_concatenate(hr_hlo *h, const hr_hlo_value *x, int n, int dim);
/* One dim made longer by copies of the scalar `fill`, low before and high behind. */
hr_hlo_value hr_hlo_pad(hr_hlo *h, hr_hlo_value x, hr_hlo_value fill, int dim, int64_t low,
                        int64_t high);
/* `sizes` numbers from the scalar starts (i32, one per dim; clamped so that it fits). */
hr_hlo_value hr_hlo_dynamic_slice(hr_hlo *h, hr_hlo_value x, const hr_hlo_value *starts,
                                  const int64_t *sizes);

/* ---- sums, rows, control (hlo_region.c) ------------------------------------------------------ */

/* add maximum minimum and or, over one dim, from the operation's neutral element. */
hr_hlo_value hr_hlo_reduce(hr_hlo *h, const char *name, hr_hlo_value x, int dim);

/* The n largest of each row of f32 x [R,V], by falling value -> [R,n]. No NaN is among them. */
hr_hlo_value hr_hlo_top(hr_hlo *h, hr_hlo_value x, int64_t n);

typedef struct hr_hlo_dot_dims {
    int n_batch, batch_a[2], batch_b[2];
    int contract_a, contract_b;
} hr_hlo_dot_dims;
/* Result dims: batch, the rest of a, the rest of b. `type` is that of the sums. */
hr_hlo_value hr_hlo_dot(hr_hlo *h, hr_hlo_value a, hr_hlo_value b, hr_hlo_dot_dims d,
                        hr_hlo_type type);

/* Rows of x by i32 (or ui32) `at`, [M] or [M,k]: each entry indexes the first k dims (k = 1 for
 * [M]) -> [M, rest of x]. An index out of range is clamped. */
hr_hlo_value hr_hlo_gather(hr_hlo *h, hr_hlo_value x, hr_hlo_value at);
typedef enum hr_hlo_scatter_mode {
    HR_HLO_SCATTER_SET, /* which of several rows with one index wins is not said */
    HR_HLO_SCATTER_ADD,
    HR_HLO_SCATTER_AND, /* integers and i1 */
    HR_HLO_SCATTER_OR,
    HR_HLO_SCATTER_MAX,
    HR_HLO_SCATTER_MIN,
} hr_hlo_scatter_mode;
/* x with rows [M, rest of x] put at `at` (as above). One out of range, negative too, is dropped. */
hr_hlo_value hr_hlo_scatter(hr_hlo *h, hr_hlo_value x, hr_hlo_value at, hr_hlo_value rows,
                            hr_hlo_scatter_mode mode);

/* A call of a kernel that the plugin has registered under `target`, by the typed foreign function
 * interface; `config` is the text of its attributes: "scale = 1 : i64, …". */
hr_hlo_value hr_hlo_custom_call(hr_hlo *h, const char *target, const char *config,
                                const hr_hlo_value *x, int n, hr_hlo_shape s);

/* Regions may use any value that is in sight where they are written. */
typedef hr_hlo_value (*hr_hlo_cond_fn)(hr_hlo *h, void *ctx, const hr_hlo_value *carried);
/* Given the values of one turn, leaves those of the next in their place. */
typedef void (*hr_hlo_body_fn)(hr_hlo *h, void *ctx, hr_hlo_value *carried);
/* `carried`: n start values, afterwards the last ones. */
void hr_hlo_while(hr_hlo *h, hr_hlo_value *carried, int n, hr_hlo_cond_fn cond, hr_hlo_body_fn body,
                  void *ctx);
typedef void (*hr_hlo_branch_fn)(hr_hlo *h, void *ctx, hr_hlo_value *results);
/* Scalar i1 p. Both branches set n results of the same shapes; afterwards the chosen ones. */
void hr_hlo_if(hr_hlo *h, hr_hlo_value p, hr_hlo_branch_fn then, hr_hlo_branch_fn otherwise,
               void *ctx, hr_hlo_value *results, int n);

/* ---- weights (hlo_weight.c, hlo_linear.c) ---------------------------------------------------- */

/* How many parts a weight has, and their shapes. UNIMPLEMENTED names a format without any. */
HR_MUST_USE hr_status hr_hlo_weight_parts(const hr_weight *w, const hr_hlo_options *opt,
                                          hr_hlo_shape *shapes, int *n);
/* Columns that share a scale; 0 when a format has none. */
int64_t hr_hlo_format_group(hr_format f);
/* Parts as f32 numbers. Rows [M,K] of a weight, with the other parts' rows likewise, or all. */
hr_hlo_value hr_hlo_dequantise(hr_hlo *h, const hr_weight *w, const hr_hlo_value *part);
/* f32 to a float dtype, nearest even, as its buffers hold it (hr_hlo_type_of). Written so that no
 * plugin keeps more bits than the dtype has: XLA drops a conversion there and back. */
hr_hlo_value hr_hlo_round(hr_hlo *h, hr_hlo_value x, hr_dtype d);
/* And back, exactly. */
hr_hlo_value hr_hlo_widen(hr_hlo *h, hr_hlo_value x, hr_dtype d);
/* The same where a node's result has that dtype. */
hr_hlo_value hr_hlo_round_to(hr_hlo_emit *e, hr_hlo_value x);
/* Operand i as f32. */
hr_hlo_value hr_hlo_f32(hr_hlo_emit *e, int i);

#endif
