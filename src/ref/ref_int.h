/* Inside the reference room: what one op's function is given.
 *
 * Every primitive op of ops.def has one function hr_ref_<op>; the table in ref.c and the
 * declarations below are made from that list, so an op without a reference does not link. */
#ifndef HEADRACE_REF_REF_INT_H
#define HEADRACE_REF_REF_INT_H

#include "graph/graph.h"

typedef struct hr_ref_args {
    const hr_node *node; /* shapes, dtypes, attributes: node->in[i]->shape … */
    /* Dense row-major data of each operand, in its dtype. NULL = absent, or a weight of rank > 1,
     * which is read row by row with hr_ref_weight_row. A weight of rank 1 is an f32 array. */
    const void *in[HR_NODE_MAX_IN];
    /* As above, zeroed. In-place ops (hr_op_is_in_place): out[0] is in[0], already holding it. */
    void *out[HR_NODE_MAX_OUT];
    const int64_t *live; /* hr_execute_args.live */
} hr_ref_args;

/* Fails only for what a caller got wrong (an index outside its table) or for a short read. */
typedef hr_status (*hr_ref_fn)(const hr_ref_args *a);

#define HR_REF_PRIMITIVE(name) hr_status hr_ref_##name(const hr_ref_args *a);
#define HR_REF_COMPOSITE(name)
#define HR_OP(name, kind, inputs, results, signature) HR_REF_##kind(name)
#include "graph/ops.def"
#undef HR_OP
#undef HR_REF_PRIMITIVE
#undef HR_REF_COMPOSITE

/* Rows of dim 0 that are real in this step: rows past it are neither read nor written. */
int64_t hr_ref_rows(const hr_ref_args *a, const hr_value *v);
/* Element i of an array of floats or of int8, and the rounding of one back to a float dtype: to
 * f32, then to nearest even of the dtype. */
double hr_ref_get(hr_dtype dtype, const void *data, int64_t i);
void hr_ref_put(hr_dtype dtype, void *data, int64_t i, double x);
/* Row `row` of a weight seen as [product, K]: its K numbers, dequantised (I8C: times its scale). */
HR_MUST_USE hr_status hr_ref_weight_row(const hr_weight *w, int64_t row, float *to);
/* The same of an I8C weight, not multiplied out. */
HR_MUST_USE hr_status hr_ref_int8_row(const hr_weight *w, int64_t row, int8_t *to, float *scale);

#endif
