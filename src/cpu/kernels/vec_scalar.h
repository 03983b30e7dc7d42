/* vec.h on plain C: one lane, the baseline of any architecture, no fused multiply-add. */
#ifndef HEADRACE_CPU_KERNELS_VEC_SCALAR_H
#define HEADRACE_CPU_KERNELS_VEC_SCALAR_H

#define V_LANES 1

typedef float vf;    /* f32 lanes */
typedef int32_t vi;  /* i32 lanes, arithmetic wraps */
typedef double vd;   /* f64 lanes */
typedef uint64_t vu; /* u64 lanes */
typedef uint32_t vm; /* one bit per lane */

V_INLINE vf v_set1(float x)
{
    return x;
}
V_INLINE vf v_load(const float *p)
{
    return *p;
}
V_INLINE vf v_load_n(const float *p, int64_t n)
{
    return n > 0 ? *p : 0;
}
V_INLINE vf v_load_f16(const uint16_t *p)
{
    return hr_f16_to_f32(*p);
}
V_INLINE vf v_load_bf16(const uint16_t *p)
{
    return hr_bf16_to_f32(*p);
}
V_INLINE vf v_load_i8(const int8_t *p)
{
    return (vf)*p;
}
V_INLINE void v_store(float *p, vf x)
{
    *p = x;
}
V_INLINE void v_store_n(float *p, vf x, int64_t n)
{
    if (n > 0) *p = x;
}
V_INLINE void v_store_f16(uint16_t *p, vf x)
{
    *p = hr_f32_to_f16(x);
}
V_INLINE void v_store_bf16(uint16_t *p, vf x)
{
    *p = hr_f32_to_bf16(x);
}
V_INLINE vf v_add(vf a, vf b)
{
    return a + b;
}
V_INLINE vf v_sub(vf a, vf b)
{
    return a - b;
}
V_INLINE vf v_mul(vf a, vf b)
{
    return a * b;
}
V_INLINE vf v_div(vf a, vf b)
{
    return a / b;
}
V_INLINE vf v_madd(vf a, vf b, vf c)
{
    return a * b + c;
}
V_INLINE vf v_min(vf a, vf b)
{
    return a < b ? a : b;
}
V_INLINE vf v_max(vf a, vf b)
{
    return a > b ? a : b;
}
V_INLINE vf v_abs(vf a)
{
    return hr_f32_from_bits(hr_f32_bits(a) & 0x7fffffffu);
}
V_INLINE vf v_copysign(vf a, vf sign)
{
    return hr_f32_from_bits((hr_f32_bits(a) & 0x7fffffffu) | (hr_f32_bits(sign) & 0x80000000u));
}
V_INLINE vf v_sqrt(vf a)
{
    return sqrtf(a);
}
/* To an integral value, nearest even. */
V_INLINE vf v_round(vf a)
{
    return rintf(a);
}
/* x · 2^n for integral n within ±254, in two steps so that denormal results round once more at
 * most. */
V_INLINE vf v_scale2(vf x, vf n)
{
    if (!(n >= -254 && n <= 254)) return x * n; /* NaN */
    int32_t whole = (int32_t)n, half = whole / 2;
    return x * hr_f32_from_bits((uint32_t)(half + 127) << 23) *
           hr_f32_from_bits((uint32_t)(whole - half + 127) << 23);
}
V_INLINE float v_sum(vf a)
{
    return a;
}
V_INLINE float v_max_lane(vf a)
{
    return a;
}

/* Row i, lane j to row j, lane i. */
V_INLINE void v_transpose(vf r[V_LANES])
{
    (void)r;
}

/* ---- masks ----------------------------------------------------------------------------------- */

V_INLINE vm v_lt(vf a, vf b)
{
    return a < b;
}
V_INLINE vm v_le(vf a, vf b)
{
    return a <= b;
}
V_INLINE vm v_eq(vf a, vf b)
{
    return a == b;
}
V_INLINE vm v_is_nan(vf a)
{
    return a != a;
}
V_INLINE vm vm_first(int64_t n) /* the first n lanes, 0 ≤ n ≤ V_LANES */
{
    return n > 0;
}
V_INLINE vm vm_from_bits(uint32_t bits)
{
    return bits & 1;
}
V_INLINE uint32_t vm_bits(vm m)
{
    return m;
}
V_INLINE vm vm_and(vm a, vm b)
{
    return a & b;
}
V_INLINE vm vm_or(vm a, vm b)
{
    return a | b;
}
/* m ? a : b */
V_INLINE vf v_select(vm m, vf a, vf b)
{
    return m ? a : b;
}

/* ---- i32 ------------------------------------------------------------------------------------- */

V_INLINE vi vi_set1(int32_t x)
{
    return x;
}
V_INLINE vi vi_load(const int32_t *p)
{
    return *p;
}
V_INLINE vi vi_load_n(const int32_t *p, int64_t n)
{
    return n > 0 ? *p : 0;
}
V_INLINE vi vi_load_u16(const uint16_t *p)
{
    return *p;
}
V_INLINE vi vi_lane_index(void) /* 0, 1, 2 … */
{
    return 0;
}
V_INLINE void vi_store(int32_t *p, vi x)
{
    *p = x;
}
V_INLINE vi vi_add(vi a, vi b)
{
    return (vi)((uint32_t)a + (uint32_t)b);
}
V_INLINE vi vi_sub(vi a, vi b)
{
    return (vi)((uint32_t)a - (uint32_t)b);
}
V_INLINE vi vi_and(vi a, vi b)
{
    return a & b;
}
V_INLINE vi vi_xor(vi a, vi b)
{
    return a ^ b;
}
V_INLINE vi vi_shr(vi a, int bits) /* logical */
{
    return (vi)((uint32_t)a >> bits);
}
V_INLINE vm vi_gt(vi a, vi b)
{
    return a > b;
}
V_INLINE vm vi_eq(vi a, vi b)
{
    return a == b;
}
V_INLINE vi vi_select(vm m, vi a, vi b)
{
    return m ? a : b;
}
V_INLINE vi vi_bits(vf a) /* the same 32 bits */
{
    return (vi)hr_f32_bits(a);
}
V_INLINE vf v_from_bits(vi a)
{
    return hr_f32_from_bits((uint32_t)a);
}
V_INLINE vf v_from_i(vi a)
{
    return (vf)a;
}
/* Integral values within i32. */
V_INLINE vi vi_from_f(vf a)
{
    return (vi)a;
}
/* Integral values within ±127 as bytes. */
V_INLINE void v_store_i8(int8_t *p, vf a)
{
    *p = (int8_t)a;
}

/* ---- f64 and u64: as many lanes as f32 ------------------------------------------------------- */

V_INLINE vd vd_set1(double x)
{
    return x;
}
V_INLINE vd vd_from_f(vf a)
{
    return a;
}
V_INLINE vd vd_from_i(vi a)
{
    return a;
}
V_INLINE vf v_from_d(vd a)
{
    return (vf)a;
}
V_INLINE vd vd_add(vd a, vd b)
{
    return a + b;
}
V_INLINE vd vd_sub(vd a, vd b)
{
    return a - b;
}
V_INLINE vd vd_mul(vd a, vd b)
{
    return a * b;
}
/* a > b ? a : b: a NaN in either gives b */
V_INLINE vd vd_max(vd a, vd b)
{
    return a > b ? a : b;
}
/* To an integral value, nearest even. */
V_INLINE vd vd_round(vd a)
{
    return rint(a);
}
/* x · 2^n of normal numbers, n the low twelve bits of n_bits as an integer. */
V_INLINE vd vd_raise2(vd x, vd n_bits)
{
    uint64_t bits, n;
    memcpy(&bits, &x, sizeof bits);
    memcpy(&n, &n_bits, sizeof n);
    bits += n << 52;
    memcpy(&x, &bits, sizeof x);
    return x;
}
V_INLINE vu vu_set1(uint64_t x)
{
    return x;
}
/* Nearest integer, ties to even, of 0 ≤ a < 2^51. */
V_INLINE vu vu_from_d(vd a)
{
    return (vu)rint(a);
}
V_INLINE vu vu_add(vu a, vu b)
{
    return a + b;
}
/* m ? a : 0 */
V_INLINE vu vu_keep(vm m, vu a)
{
    return m ? a : 0;
}
V_INLINE uint64_t vu_sum(vu a)
{
    return a;
}
V_INLINE void vu_store(uint64_t *p, vu a)
{
    *p = a;
}

#endif
