/* Log-probabilities: the sum they are taken against, single values, ranks, the best n.
 *
 * x f32 [R,V]; an item is a row. The sum is of integer masses, so its order, the lanes and the
 * threads cannot show. The best n are kept in a short list in falling order; a row is read once and
 * only what beats the list's last entry is looked at twice. */
#include "cpu/kernels/vec_mass.h"

static int64_t columns(const hr_kernel_args *a)
{
    return a->node->in[0]->shape.dim[1];
}
static const float *row_in(const hr_kernel_args *a, int64_t r)
{
    return (const float *)a->in[0] + r * columns(a);
}
static bool unwanted(const int32_t *wanted, int64_t r)
{
    return wanted && wanted[r] < 0;
}

static float log_sum_exp(const float *x, int64_t n)
{
    float most = row_most(x, n);
    if (!(most > -INFINITY && most < INFINITY)) return most;
    vd top = vd_set1((double)most), least = vd_set1(HR_MASS_LEAST);
    vu sum = vu_set1(0);
    for (int64_t i = 0; i < n; i += V_LANES) {
        vd y = vd_sub(vd_from_f(row_load(x, i, n)), top);
        sum = vu_add(sum, v_mass_in_range(vd_max(y, least))); /* NaN becomes `least` */
    }
    return (float)((double)most + hr_exact_log((double)vu_sum(sum) * 0x1p-40));
}

void HR_KERNEL(log_sum_exp)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    float *out = a->out[0];
    for (int64_t r = from; r < to; r++)
        out[r] = unwanted(a->in[1], r) ? INFINITY : log_sum_exp(row_in(a, r), columns(a));
}

static float pick(const float *x, int64_t n, int32_t id, const float *lse)
{
    float v = id >= 0 && id < n ? x[id] : -INFINITY;
    if (!(v > -INFINITY)) return -INFINITY;
    if (lse) v -= *lse;
    return v > -INFINITY ? v : -INFINITY; /* inf - inf */
}

void HR_KERNEL(pick)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const int32_t *ids = a->in[1]; /* [R] or [R,m] */
    const float *lse = a->in[2];   /* [R] or NULL */
    int64_t m = hr_shape_row(a->node->in[1]->shape);
    float *out = a->out[0];
    for (int64_t r = from; r < to; r++)
        for (int64_t i = r * m; i < (r + 1) * m; i++)
            out[i] = pick(row_in(a, r), columns(a), ids[i], lse ? lse + r : NULL);
}

static int32_t rank_of(const float *x, int64_t n, float value)
{
    int32_t count = 0;
    for (int64_t i = 0; i < n; i += V_LANES) {
        vm at_least = v_le(v_set1(value), row_load(x, i, n));
        if (n - i < V_LANES) at_least = vm_and(at_least, vm_first(n - i));
        count += __builtin_popcount(vm_bits(at_least));
    }
    return count;
}

void HR_KERNEL(rank)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const int32_t *ids = a->in[1];
    int32_t *out = a->out[0];
    for (int64_t r = from; r < to; r++) {
        bool inside = ids[r] >= 0 && ids[r] < columns(a) && !unwanted(a->in[2], r);
        out[r] = inside ? rank_of(row_in(a, r), columns(a), row_in(a, r)[ids[r]]) : 0;
    }
}

/* ---- the best n ------------------------------------------------------------------------------ */

/* The list so far: ids by falling value; within a value in the order they came, which is rising. */
typedef struct best {
    int32_t *ids;
    int64_t n, most;
} best;

static float ordered(float x)
{
    return x > -INFINITY ? x : -INFINITY; /* NaN */
}

/* `id` comes after all that are in the list; it beats the last one or there is room. */
static void insert(best *b, const float *x, int32_t id)
{
    int64_t i = b->n < b->most ? b->n++ : b->most - 1;
    for (; i > 0 && ordered(x[b->ids[i - 1]]) < ordered(x[id]); i--) b->ids[i] = b->ids[i - 1];
    b->ids[i] = id;
}

static void top_row(const float *x, int64_t n, best *b)
{
    int64_t i = 0;
    for (; i < b->most; i++) insert(b, x, (int32_t)i);
    for (; i < n; i += V_LANES) {
        float last = ordered(x[b->ids[b->most - 1]]);
        uint32_t hits = vm_bits(v_lt(v_set1(last), row_load(x, i, n)));
        for (; hits; hits &= hits - 1) {
            int32_t id = (int32_t)i + __builtin_ctz(hits);
            if (x[id] > ordered(x[b->ids[b->most - 1]])) insert(b, x, id);
        }
    }
}

void HR_KERNEL(top_n)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const int32_t *wanted = a->in[1];
    int64_t n = a->node->out[0]->shape.dim[1];
    for (int64_t r = from; r < to; r++) {
        int32_t *ids = (int32_t *)a->out[0] + r * n;
        best b = { ids, 0, wanted[r] < n ? wanted[r] : n };
        if (b.most > 0) top_row(row_in(a, r), columns(a), &b);
        for (int64_t i = b.n; i < n; i++) ids[i] = -1;
    }
}
