/* Rows that move: kv_write into the paged cache, gather_rows out of a step's rows. */
#include "cpu/kernels/vec.h"

/* n elements of x at `from` to the cache at `to`, converted. */
V_INLINE void convert(hr_dtype in, hr_dtype out, const void *x, int64_t from, void *cache,
                      int64_t to, int64_t n)
{
    int64_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES)
        v_store_any(out, cache, to + i, v_load_any(in, x, from + i));
    if (i < n) v_store_any_n(out, cache, to + i, v_load_any_n(in, x, from + i, n - i), n - i);
}

V_INLINE void write_items(hr_dtype in, hr_dtype out, const hr_kernel_args *a, int64_t from,
                          int64_t to)
{
    const hr_shape cache = a->node->in[0]->shape; /* [blocks,block,N,D] */
    const int32_t *slots = a->in[2];              /* [T] */
    int64_t row = cache.dim[2] * cache.dim[3], places = cache.dim[0] * cache.dim[1];
    for (int64_t t = from; t < to; t++)
        if (slots[t] >= 0 && slots[t] < places)
            convert(in, out, a->in[1], t * row, a->out[0], slots[t] * row, row);
}

V_INLINE void write_from(hr_dtype in, const hr_kernel_args *a, int64_t from, int64_t to)
{
    hr_dtype out = a->node->out[0]->dtype;
    if (out == HR_DTYPE_F32) write_items(in, HR_DTYPE_F32, a, from, to);
    else if (out == HR_DTYPE_BF16) write_items(in, HR_DTYPE_BF16, a, from, to);
    else write_items(in, HR_DTYPE_F16, a, from, to);
}

static void copy_codes(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const hr_shape cache = a->node->in[0]->shape;
    const int32_t *slots = a->in[2];
    int64_t row = cache.dim[2] * cache.dim[3], places = cache.dim[0] * cache.dim[1];
    for (int64_t t = from; t < to; t++)
        if (slots[t] >= 0 && slots[t] < places)
            memcpy((int8_t *)a->out[0] + slots[t] * row, (const int8_t *)a->in[1] + t * row,
                   (size_t)row);
}

void HR_KERNEL(kv_write)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    hr_dtype d = a->node->in[1]->dtype;
    if (d == HR_DTYPE_F32) write_from(HR_DTYPE_F32, a, from, to);
    else if (d == HR_DTYPE_BF16) write_from(HR_DTYPE_BF16, a, from, to);
    else if (d == HR_DTYPE_I8) copy_codes(a, from, to);
    else write_from(HR_DTYPE_F16, a, from, to);
}

void HR_KERNEL(gather_rows)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const hr_value *x = a->node->in[0];
    const int32_t *rows = a->in[1]; /* [R] */
    int64_t T = x->shape.dim[0];
    size_t bytes = (size_t)hr_shape_row(x->shape) * hr_dtype_size(x->dtype);
    for (int64_t r = from; r < to; r++) {
        int64_t row = rows[r] < 0 ? 0 : rows[r] >= T ? T - 1 : rows[r];
        memcpy((char *)a->out[0] + (size_t)r * bytes, (const char *)a->in[0] + (size_t)row * bytes,
               bytes);
    }
}
