/* Reading and rounding numbers, rows and weights for the reference ops. Pure functions. */
#include "ref/ref_int.h"

#include "base/half.h"

int64_t hr_ref_rows(const hr_ref_args *a, const hr_value *v)
{
    int64_t rows = v->shape.dim[0];
    if (v->live == HR_LIVE_ALL || a->live[v->live] > rows) return rows;
    return a->live[v->live] > 0 ? a->live[v->live] : 0;
}

double hr_ref_get(hr_dtype dtype, const void *data, int64_t i)
{
    if (dtype == HR_DTYPE_F32) return (double)((const float *)data)[i];
    if (dtype == HR_DTYPE_I8) return (double)((const int8_t *)data)[i];
    uint16_t h = ((const uint16_t *)data)[i];
    return (double)(dtype == HR_DTYPE_BF16 ? hr_bf16_to_f32(h) : hr_f16_to_f32(h));
}

void hr_ref_put(hr_dtype dtype, void *data, int64_t i, double x)
{
    if (dtype == HR_DTYPE_F32) ((float *)data)[i] = (float)x;
    else if (dtype == HR_DTYPE_BF16) ((uint16_t *)data)[i] = hr_f32_to_bf16((float)x);
    else ((uint16_t *)data)[i] = hr_f32_to_f16((float)x);
}

/* The I8C scale of one row. A vector of scales is one row to its reader, a column is N. */
static hr_status channel_scale(const hr_weight *w, int64_t row, float *scale)
{
    const hr_weight *s = w->scale;
    if (s->shape.dim[s->shape.rank - 1] == 1 && s->shape.rank > 1)
        return s->read_rows(s, row, 1, scale);
    int64_t N = s->shape.dim[s->shape.rank - 1];
    float *all = hr_alloc((size_t)N * sizeof *all);
    if (!all) return hr_fail(HR_RESOURCE_EXHAUSTED, "ref: scales of %s", w->name);
    hr_status st = s->read_rows(s, row / N, 1, all);
    *scale = st ? 0 : all[row % N];
    hr_free(all);
    return st;
}

hr_status hr_ref_int8_row(const hr_weight *w, int64_t row, int8_t *to, float *scale)
{
    *scale = 0;
    HR_TRY(w->read_rows(w, row, 1, to));
    return channel_scale(w, row, scale);
}

hr_status hr_ref_weight_row(const hr_weight *w, int64_t row, float *to)
{
    int64_t K = w->shape.dim[w->shape.rank - 1], block = hr_format_block(w->format);
    void *raw = hr_alloc(hr_format_row_bytes(w->format, K));
    if (!raw) return hr_fail(HR_RESOURCE_EXHAUSTED, "ref: a row of %s", w->name);
    float scale = 1;
    hr_status st = w->read_rows(w, row, 1, raw);
    if (!st && w->format == HR_FORMAT_I8C) st = channel_scale(w, row, &scale);
    if (!st) hr_format_dequantise(w->format, raw, K / block, to);
    for (int64_t k = 0; !st && scale != 1 && k < K; k++) to[k] *= scale;
    hr_free(raw);
    return st;
}
