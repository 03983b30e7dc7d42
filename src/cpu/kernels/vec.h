/* Width-agnostic vectors: what kernel families are written on.
 *
 * A family includes this file once and is compiled once per instruction set (HR_ISA). V_LANES is
 * the number of f32 lanes: 1, 4, 8 or 16; every other type here has as many lanes. The primitives
 * of each instruction set live in vec_<isa>.h; what is made of primitives is below and the same
 * everywhere. Fixed rules, so that results are a matter of the path alone:
 *   v_madd       a*b+c, fused where the path has it (scalar: two roundings)
 *   v_min, v_max a < b ? a : b and a > b ? a : b: a NaN in either gives b
 *   v_sum        a fixed tree over the lanes
 *   *_n          the first n lanes (0 < n ≤ V_LANES); others load 0, are not stored */
#ifndef HEADRACE_CPU_KERNELS_VEC_H
#define HEADRACE_CPU_KERNELS_VEC_H

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/table.h"

/* HR_KERNEL(rms_norm) is hr_kernel_rms_norm_avx2 in the AVX2 compilation. */
#define HR_KERNEL_NAME2(op, isa) hr_kernel_##op##_##isa
#define HR_KERNEL_NAME(op, isa)  HR_KERNEL_NAME2(op, isa)
#define HR_KERNEL(op)            HR_KERNEL_NAME(op, HR_ISA)
#define HR_K(op, items, cost, place)                                                               \
    void HR_KERNEL(op)(const hr_kernel_args *a, int64_t from, int64_t to);
#include "cpu/kernels/kernels.def"
#undef HR_K

#define V_INLINE static inline __attribute__((always_inline))

#if defined(HR_ISA_IS_avx512)
#include "cpu/kernels/vec_avx512.h"
#elif defined(HR_ISA_IS_avx2)
#include "cpu/kernels/vec_avx2.h"
#elif defined(HR_ISA_IS_neon)
#include "cpu/kernels/vec_neon.h"
#else
#include "cpu/kernels/vec_scalar.h"
#endif

/* ---- numbers of any float dtype --------------------------------------------------------------
 * `dtype` is a constant at every use after inlining; `i` counts elements. Codes, of I8, are only
 * loaded. */

V_INLINE vf v_load_any(hr_dtype dtype, const void *p, int64_t i)
{
    if (dtype == HR_DTYPE_F32) return v_load((const float *)p + i);
    if (dtype == HR_DTYPE_F16) return v_load_f16((const uint16_t *)p + i);
    if (dtype == HR_DTYPE_I8) return v_load_i8((const int8_t *)p + i);
    return v_load_bf16((const uint16_t *)p + i);
}
V_INLINE vf v_load_any_n(hr_dtype dtype, const void *p, int64_t i, int64_t n)
{
    if (dtype == HR_DTYPE_F32) return v_load_n((const float *)p + i, n);
    uint16_t part[V_LANES] = { 0 };
    size_t size = dtype == HR_DTYPE_I8 ? 1 : 2;
    memcpy(part, (const char *)p + (size_t)i * size, (size_t)n * size);
    return v_load_any(dtype, part, 0);
}
/* Round to nearest even, NaN kept. */
V_INLINE void v_store_any(hr_dtype dtype, void *p, int64_t i, vf x)
{
    if (dtype == HR_DTYPE_F32) v_store((float *)p + i, x);
    else if (dtype == HR_DTYPE_F16) v_store_f16((uint16_t *)p + i, x);
    else v_store_bf16((uint16_t *)p + i, x);
}
V_INLINE void v_store_any_n(hr_dtype dtype, void *p, int64_t i, vf x, int64_t n)
{
    if (dtype == HR_DTYPE_F32) {
        v_store_n((float *)p + i, x, n);
        return;
    }
    uint16_t half[V_LANES];
    v_store_any(dtype, half, 0, x);
    memcpy((uint16_t *)p + i, half, (size_t)n * 2);
}
/* All lanes where `left` numbers are at least a vector, else the first `left`: loops over rows of
 * any length, whose tails alone pay for masks. */
V_INLINE vf v_load_upto(hr_dtype dtype, const void *p, int64_t i, int64_t left)
{
    return left >= V_LANES ? v_load_any(dtype, p, i) : v_load_any_n(dtype, p, i, left);
}
V_INLINE void v_store_upto(hr_dtype dtype, void *p, int64_t i, vf x, int64_t left)
{
    if (left >= V_LANES) v_store_any(dtype, p, i, x);
    else v_store_any_n(dtype, p, i, x, left);
}
/* x as it would read back after a store: what a fused kernel hands on instead of memory. */
V_INLINE vf v_round_to(hr_dtype dtype, vf x)
{
    if (dtype == HR_DTYPE_F32) return x;
    uint16_t half[V_LANES];
    v_store_any(dtype, half, 0, x);
    return v_load_any(dtype, half, 0);
}

/* ---- functions ------------------------------------------------------------------------------- */

/* e^x: Taylor of degree 7 on |r| ≤ ln2/2 (remainder below 6e-9), about 1 ulp; 0 below -104, inf
 * above 88.7, NaN kept. ln2 is split so that n · LN2_HIGH is exact without fma. */
V_INLINE vf v_exp(vf x)
{
    const float LOG2E = 0x1.715476p+0f, LN2_HIGH = 0x1.62ep-1f, LN2_LOW = 0x1.0bfbe8p-15f;
    x = v_min(v_set1(89.0f), v_max(v_set1(-105.0f), x));
    vf n = v_round(v_mul(x, v_set1(LOG2E)));
    vf r = v_madd(n, v_set1(-LN2_HIGH), x);
    r = v_madd(n, v_set1(-LN2_LOW), r);
    vf p = v_set1(1.0f / 5040);
    p = v_madd(p, r, v_set1(1.0f / 720));
    p = v_madd(p, r, v_set1(1.0f / 120));
    p = v_madd(p, r, v_set1(1.0f / 24));
    p = v_madd(p, r, v_set1(1.0f / 6));
    p = v_madd(p, r, v_set1(0.5f));
    p = v_madd(v_mul(p, r), r, r);
    return v_scale2(v_add(p, v_set1(1.0f)), n);
}

/* tanh x: Padé [7/6] of the continued fraction where |x| < 0.625, else 1 - 2 / (e^2|x| + 1). */
V_INLINE vf v_tanh(vf x)
{
    vf z = v_mul(x, x), a = v_abs(x), one = v_set1(1.0f);
    vf top = v_madd(v_add(z, v_set1(378.0f)), z, v_set1(17325.0f));
    top = v_madd(top, z, v_set1(135135.0f));
    vf bottom = v_madd(v_madd(v_set1(28.0f), z, v_set1(3150.0f)), z, v_set1(62370.0f));
    bottom = v_madd(bottom, z, v_set1(135135.0f));
    vf small = v_mul(x, v_div(top, bottom));
    vf e = v_exp(v_add(a, a));
    vf large = v_sub(one, v_div(v_set1(2.0f), v_add(e, one)));
    return v_select(v_lt(a, v_set1(0.625f)), small, v_copysign(large, x));
}

/* 1 / (1 + e^-x) */
V_INLINE vf v_sigmoid(vf x)
{
    vf one = v_set1(1.0f);
    return v_div(one, v_add(one, v_exp(v_sub(v_set1(0.0f), x))));
}

#endif
