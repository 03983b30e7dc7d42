/* What sends rows to experts, and what weighs their answers.
 *
 * An item is a row. The ranks of a row are found one after the other, each by a pass over its few
 * numbers: no list is kept, and equal numbers come in the order of their ids. */
#include "cpu/kernels/vec.h"

V_INLINE void mul_row(hr_dtype d, const hr_kernel_args *a, int64_t r, int64_t n)
{
    vf by = v_set1(((const float *)a->in[1])[r]);
    int64_t i = r * n, end = i + n;
    for (; i + V_LANES <= end; i += V_LANES)
        v_store_any(d, a->out[0], i, v_mul(v_load_any(d, a->in[0], i), by));
    if (i < end)
        v_store_any_n(d, a->out[0], i, v_mul(v_load_any_n(d, a->in[0], i, end - i), by), end - i);
}

void HR_KERNEL(mul_rows)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t n = hr_shape_row(a->node->in[0]->shape);
    hr_dtype d = a->node->in[0]->dtype;
    for (int64_t r = from; r < to; r++) {
        if (d == HR_DTYPE_F32) mul_row(HR_DTYPE_F32, a, r, n);
        else if (d == HR_DTYPE_BF16) mul_row(HR_DTYPE_BF16, a, r, n);
        else mul_row(HR_DTYPE_F16, a, r, n);
    }
}

/* The id that comes after `last` when ids are ordered by falling x, then by rising id. */
static int64_t next_id(const float *x, int64_t E, int64_t last)
{
    int64_t best = -1;
    for (int64_t i = 0; i < E; i++) {
        bool after = last < 0 || x[i] < x[last] || (x[i] == x[last] && i > last);
        if (after && (best < 0 || x[i] > x[best])) best = i;
    }
    return best;
}

static float exp_of(float x)
{
    float lanes[V_LANES];
    v_store(lanes, v_exp(v_set1(x)));
    return lanes[0];
}

static bool all_finite(const float *x, int64_t E)
{
    for (int64_t i = 0; i < E; i++)
        if (x[i] - x[i] != 0) return false;
    return true;
}

static void route_row(const float *x, int64_t E, const hr_attrs *at, int32_t *id, float *share)
{
    int64_t group = at->group ? at->group : E, first = 0, last = -1, chosen = -1;
    float sum = 0;
    for (int64_t rank = 0; rank <= at->n || (at->group && rank < group); rank++) {
        last = next_id(x, E, last);
        if (rank == 0) first = last;
        if (rank == at->n) chosen = last;
        if (at->group && rank < group) sum += exp_of(x[last] - x[first]);
    }
    for (int64_t i = 0; !at->group && i < E; i++) sum += exp_of(x[i] - x[first]);
    *id = (int32_t)chosen;
    *share = exp_of(x[chosen] - x[first]) / sum;
}

void HR_KERNEL(route)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t E = a->node->in[0]->shape.dim[1];
    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)a->in[0] + r * E;
        int32_t *id = (int32_t *)a->out[0] + r;
        float *share = (float *)a->out[1] + r;
        *id = -1;
        *share = __builtin_nanf("");
        if (all_finite(x, E)) route_row(x, E, &a->node->attrs, id, share);
    }
}
