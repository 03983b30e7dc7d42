/* What a row's filters left, for the rows whose requests ask to see it.
 *
 * x, y f32 [R,V]; an item is a row. Counts take a pass each; masses are looked at only where there
 * are any. Sums are of integers, so that no order shows in an entropy. A row that does not ask is
 * not read. */
#include "cpu/kernels/vec_mass.h"

static const float *row_in(const hr_kernel_args *a, int64_t r)
{
    return (const float *)a->in[0] + r * a->node->in[0]->shape.dim[1];
}

/* Values above -inf from `cut` up; lanes past the row's end are -inf. */
static int32_t alive_from(const float *x, int64_t n, float cut)
{
    int32_t count = 0;
    vf least = v_set1(cut), nothing = v_set1(-INFINITY);
    for (int64_t i = 0; i < n; i += V_LANES) {
        vf v = row_load(x, i, n);
        count += __builtin_popcount(vm_bits(vm_and(v_lt(nothing, v), v_le(least, v))));
    }
    return count;
}

void HR_KERNEL(alive)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const int32_t *wanted = a->in[1];
    int32_t *out = a->out[0];
    for (int64_t r = from; r < to; r++)
        out[r] =
            wanted[r] < 1 ? 0 : alive_from(row_in(a, r), a->node->in[0]->shape.dim[1], -INFINITY);
}

static void add_masses(const float *y, uint32_t which, uint64_t *total, uint64_t *spread)
{
    for (; which; which &= which - 1) {
        double one = (double)y[__builtin_ctz(which)];
        uint64_t mass = hr_exact_mass(one);
        *total += mass;
        *spread += hr_exact_spread(one, mass);
    }
}

/* Entropy of the masses from `cut` up, and the share of one of them. */
static void trace_masses(const float *y, int64_t n, float cut, int32_t id, float out[2])
{
    uint64_t total = 0, spread = 0, own = 0;
    vf least = v_set1(row_least(cut));
    for (int64_t i = 0; i < n; i += V_LANES)
        add_masses(y + i, vm_bits(v_le(least, row_load(y, i, n))), &total, &spread);
    if (id >= 0 && id < n && y[id] >= cut) own = hr_exact_mass((double)y[id]);
    out[0] = hr_exact_entropy(total, spread);
    out[1] = total ? (float)((double)own / (double)total) : 0;
}

void HR_KERNEL(trace)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const float *cuts = a->in[1]; /* [R,3] */
    const int32_t *id = a->in[2], *wanted = a->in[3];
    int32_t *counts = a->out[0]; /* [R,3] */
    float *sums = a->out[1];     /* [R,2] */
    int64_t n = a->node->in[0]->shape.dim[1];
    memset(counts + 3 * from, 0, (size_t)(to - from) * 3 * sizeof *counts);
    memset(sums + 2 * from, 0, (size_t)(to - from) * 2 * sizeof *sums);
    for (int64_t r = from; r < to; r++) {
        if (wanted[r] < 2) continue;
        for (int i = 0; i < 3; i++)
            counts[3 * r + i] = alive_from(row_in(a, r), n, cuts[3 * r + i]);
        trace_masses(row_in(a, r), n, cuts[3 * r + 2], id[r], sums + 2 * r);
    }
}
