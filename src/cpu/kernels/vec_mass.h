/* Rows of logits on vec.h, and base/exact.h's masses lane by lane. */
#ifndef HEADRACE_CPU_KERNELS_VEC_MASS_H
#define HEADRACE_CPU_KERNELS_VEC_MASS_H

#include "base/exact.h"
#include "cpu/kernels/vec.h"

/* x[i ..] of a row of n; lanes past its end are -inf, which has no mass and never wins. */
V_INLINE vf row_load(const float *x, int64_t i, int64_t n)
{
    if (n - i >= V_LANES) return v_load(x + i);
    return v_select(vm_first(n - i), v_load_n(x + i, n - i), v_set1(-INFINITY));
}
V_INLINE void row_store(float *x, int64_t i, int64_t n, vf v)
{
    if (n - i >= V_LANES) v_store(x + i, v);
    else v_store_n(x + i, v, n - i);
}

/* Largest value, NaN passed over; -inf when there is none. */
V_INLINE float row_most(const float *x, int64_t n)
{
    vf most = v_set1(-INFINITY);
    for (int64_t i = 0; i < n; i += V_LANES) most = v_max(row_load(x, i, n), most);
    return v_max_lane(most);
}

/* hr_exact_mass for HR_MASS_LEAST ≤ y ≤ 0: the same operations in the same order, but that the
 * power of two goes straight into the exponent, as it does exactly. */
V_INLINE vu v_mass_in_range(vd y)
{
    vd round = vd_set1(HR_EXACT_ROUND + HR_MASS_BITS); /* an even integer more: ties stay even */
    vd shifted = vd_add(vd_mul(y, vd_set1(HR_EXACT_LOG2E)), round), n = vd_sub(shifted, round);
    vd r =
        vd_sub(vd_sub(y, vd_mul(n, vd_set1(HR_EXACT_LN2_HI))), vd_mul(n, vd_set1(HR_EXACT_LN2_LO)));
#define V_MASS_FIRST(c) vd q = vd_set1(c);
#define V_MASS_STEP(c)  q = vd_add(vd_mul(q, r), vd_set1(c));
    HR_EXACT_EXP_Q(V_MASS_FIRST, V_MASS_STEP)
#undef V_MASS_FIRST
#undef V_MASS_STEP
    vd p = vd_add(vd_add(vd_mul(vd_mul(r, r), q), r), vd_set1(1));
    return vu_from_d(vd_raise2(p, shifted)); /* whose low bits are n + HR_MASS_BITS */
}
V_INLINE vu v_mass(vf y)
{
    y = v_min(v_max(y, v_set1((float)HR_MASS_LEAST)), v_set1(0));
    return v_mass_in_range(vd_from_f(y));
}

/* The least value at or above `cut` that may have mass. */
V_INLINE float row_least(float cut)
{
    return cut > (float)HR_MASS_LEAST ? cut : (float)HR_MASS_LEAST;
}
/* Mass of the values at or above `cut` in columns [from, to); to ends the row or a vector. */
V_INLINE uint64_t row_mass(const float *x, int64_t from, int64_t to, float cut)
{
    vf least = v_set1(row_least(cut));
    vu sum = vu_set1(0);
    for (int64_t i = from; i < to; i += V_LANES) {
        vf v = row_load(x, i, to);
        vm has = v_le(least, v);
        if (vm_bits(has)) sum = vu_add(sum, vu_keep(has, v_mass(v)));
    }
    return vu_sum(sum);
}

#endif
