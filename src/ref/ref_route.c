/* Reference of what sends rows to experts, and of what weighs their answers.
 *
 * Pure functions. */
#include <math.h>

#include "ref/ref_int.h"

hr_status hr_ref_mul_rows(const hr_ref_args *a)
{
    const hr_value *x = a->node->in[0];
    const float *factor = a->in[1]; /* [T] */
    int64_t row = hr_shape_row(x->shape);
    for (int64_t i = 0; i < hr_ref_rows(a, x) * row; i++)
        hr_ref_put(x->dtype, a->out[0], i,
                   hr_ref_get(x->dtype, a->in[0], i) * (double)factor[i / row]);
    return HR_OK;
}

/* The id that comes after `last` when ids are ordered by falling x, then by rising id; -1 = none.
 */
static int64_t next_id(const float *x, int64_t E, int64_t last)
{
    int64_t best = -1;
    for (int64_t i = 0; i < E; i++) {
        bool after = last < 0 || x[i] < x[last] || (x[i] == x[last] && i > last);
        if (after && (best < 0 || x[i] > x[best])) best = i;
    }
    return best;
}

static void route_row(const float *x, int64_t E, const hr_attrs *at, int32_t *id, float *share)
{
    int64_t group = at->group ? at->group : E, last = -1, chosen = -1, first = -1;
    double sum = 0;
    *id = -1;
    *share = NAN;
    for (int64_t i = 0; i < E; i++)
        if (!isfinite(x[i])) return;
    for (int64_t rank = 0; rank < group || rank <= at->n; rank++) {
        last = next_id(x, E, last);
        if (rank == 0) first = last;
        if (rank == at->n) chosen = last;
        if (rank < group) sum += exp((double)x[last] - (double)x[first]);
    }
    *id = (int32_t)chosen;
    *share = (float)(exp((double)x[chosen] - (double)x[first]) / sum);
}

hr_status hr_ref_route(const hr_ref_args *a)
{
    const hr_value *x = a->node->in[0];
    int64_t E = x->shape.dim[1];
    for (int64_t t = 0; t < hr_ref_rows(a, x); t++)
        route_row((const float *)a->in[0] + t * E, E, &a->node->attrs, (int32_t *)a->out[0] + t,
                  (float *)a->out[1] + t);
    return HR_OK;
}
