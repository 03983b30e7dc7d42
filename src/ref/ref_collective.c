/* Reference of the ops between devices. This backend is one device: a group of one, which is all
 * that it compiles, sums nothing and gathers itself. */
#include "ref/ref_int.h"

hr_status hr_ref_all_reduce(const hr_ref_args *a)
{
    const hr_value *x = a->node->in[0], *y = a->node->out[0];
    const float *bias = a->in[1]; /* [N] or NULL */
    int64_t N = x->shape.dim[1];
    float b;
    for (int64_t i = 0; i < hr_ref_rows(a, x) * N; i++) {
        hr_ref_put(y->dtype, a->out[0], i, hr_ref_get(x->dtype, a->in[0], i));
        if (!bias) continue;
        hr_ref_put(y->dtype, &b, 0, (double)bias[i % N]);
        hr_ref_put(y->dtype, a->out[0], i,
                   hr_ref_get(y->dtype, a->out[0], i) + hr_ref_get(y->dtype, &b, 0));
    }
    return HR_OK;
}

hr_status hr_ref_all_gather(const hr_ref_args *a)
{
    const hr_value *x = a->node->in[0], *y = a->node->out[0];
    size_t from = (size_t)x->shape.dim[1] * hr_dtype_size(x->dtype);
    size_t to = (size_t)y->shape.dim[1] * hr_dtype_size(x->dtype);
    for (size_t t = 0; t < (size_t)hr_ref_rows(a, x); t++)
        memcpy((char *)a->out[0] + t * to, (const char *)a->in[0] + t * from, to);
    return HR_OK;
}
