/* Reference of linear: every weight format, float and int8 rows, grouped weights.
 *
 * Pure functions. In general y = sum of x[k] × w[k] in double over the dequantised weight row, int8
 * rows standing for integer × scale of their group. One case is defined tighter, because int32 sums
 * are exact: I8C weights with one scale per row (spec/compile.md, "Quantised matmul"). Each weight
 * row is read once and meets all rows of x. */
#include "ref/ref_int.h"

typedef struct job {
    const hr_ref_args *a;
    int64_t rows, N, K;
    double *x; /* [rows,K]: what the rows of x stand for */
    float *w;  /* [K]: one weight row */
    int8_t *q; /* [K]: one weight row of I8C */
    float scale;
} job;

static void load_rows(const job *j)
{
    const hr_node *n = j->a->node;
    const int8_t *q = j->a->in[0];
    const float *scale = j->a->in[4]; /* [T,G] */
    int64_t group = n->in[4] ? j->K / n->in[4]->shape.dim[1] : 0;
    for (int64_t i = 0; i < j->rows * j->K; i++)
        j->x[i] =
            group ? (double)q[i] * (double)scale[i / group] : hr_ref_get(n->in[0]->dtype, q, i);
}

/* y[t,n]: the sum is cast to the result's dtype; the bias, cast to it too, is added in it. */
static void finish(const job *j, int64_t t, int64_t n, double sum)
{
    hr_dtype dtype = j->a->node->out[0]->dtype;
    const float *bias = j->a->in[2]; /* [N] or NULL */
    int64_t at = t * j->N + n;
    float b;
    hr_ref_put(dtype, j->a->out[0], at, sum);
    if (!bias) return;
    hr_ref_put(dtype, &b, 0, (double)bias[n]);
    sum = hr_ref_get(dtype, j->a->out[0], at) + hr_ref_get(dtype, &b, 0);
    hr_ref_put(dtype, j->a->out[0], at, sum);
}

/* By the weight row that is loaded. */
static void dot(const job *j, int64_t t, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < j->K; k++) sum += j->x[t * j->K + k] * (double)j->w[k];
    finish(j, t, n, sum);
}

/* int8 × int8 → int32; × the row's scale, × the channel's scale, in f32. */
static void dot_w8a8(const job *j, int64_t t, int64_t n)
{
    const float *x_scale = j->a->in[4]; /* [T,1] */
    const int8_t *x = (const int8_t *)j->a->in[0] + t * j->K;
    int32_t sum = 0;
    for (int64_t k = 0; k < j->K; k++) sum += x[k] * j->q[k];
    float y = (float)sum * x_scale[t];
    y *= j->scale;
    finish(j, t, n, (double)y);
}

static bool is_w8a8(const hr_node *n)
{
    return n->in[0]->dtype == HR_DTYPE_I8 && n->in[1]->weight->format == HR_FORMAT_I8C;
}

/* Column n by matrix e of the weight. groups[t] says which matrix row t meets; a row that meets
 * none stays zero. */
static hr_status column(job *j, int64_t e, int64_t n)
{
    const hr_weight *w = j->a->node->in[1]->weight;
    const int32_t *groups = j->a->in[3]; /* [T] or NULL */
    bool w8a8 = is_w8a8(j->a->node);
    if (w8a8) HR_TRY(hr_ref_int8_row(w, e * j->N + n, j->q, &j->scale));
    else HR_TRY(hr_ref_weight_row(w, e * j->N + n, j->w));
    for (int64_t t = 0; t < j->rows; t++)
        if (!groups || groups[t] == e) (w8a8 ? dot_w8a8 : dot)(j, t, n);
    return HR_OK;
}

hr_status hr_ref_linear(const hr_ref_args *a)
{
    const hr_shape w = a->node->in[1]->shape;
    job j = { .a = a, .rows = hr_ref_rows(a, a->node->in[0]) };
    j.N = w.dim[w.rank - 2];
    j.K = w.dim[w.rank - 1];
    j.x = hr_alloc_array0((size_t)(j.rows * j.K), sizeof *j.x);
    j.w = hr_alloc_array0((size_t)j.K, sizeof *j.w);
    j.q = hr_alloc_array0((size_t)j.K, sizeof *j.q);
    hr_status st = HR_OK;
    if (!j.x || !j.w || !j.q) st = hr_fail(HR_RESOURCE_EXHAUSTED, "ref: linear");
    if (!st) load_rows(&j);
    for (int64_t i = 0; !st && i < hr_shape_count(w) / j.K; i++) st = column(&j, i / j.N, i % j.N);
    hr_free(j.x);
    hr_free(j.w);
    hr_free(j.q);
    return st;
}
