/* vec.h on the vector unit that every 64-bit Arm has: four lanes; f64 and u64 are two registers. */
#ifndef HEADRACE_CPU_KERNELS_VEC_NEON_H
#define HEADRACE_CPU_KERNELS_VEC_NEON_H

#include <arm_neon.h>

#define V_LANES 4

typedef float32x4_t vf;
typedef int32x4_t vi;
typedef struct vd {
    float64x2_t low, high;
} vd;
typedef struct vu {
    uint64x2_t low, high;
} vu;
typedef uint32x4_t vm; /* all bits of a lane set or clear */

V_INLINE vf v_set1(float x)
{
    return vdupq_n_f32(x);
}
V_INLINE vf v_load(const float *p)
{
    return vld1q_f32(p);
}
V_INLINE vf v_load_n(const float *p, int64_t n)
{
    if (n >= 4) return vld1q_f32(p);
    vf x = vsetq_lane_f32(p[0], vdupq_n_f32(0), 0);
    if (n >= 2) x = vsetq_lane_f32(p[1], x, 1);
    if (n >= 3) x = vsetq_lane_f32(p[2], x, 2);
    return x;
}
V_INLINE vf v_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
V_INLINE vf v_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
V_INLINE vf v_load_i8(const int8_t *p)
{
    int8_t four[8] = { p[0], p[1], p[2], p[3] };
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(four)))));
}
V_INLINE void v_store(float *p, vf x)
{
    vst1q_f32(p, x);
}
V_INLINE void v_store_n(float *p, vf x, int64_t n)
{
    if (n >= 4) {
        vst1q_f32(p, x);
        return;
    }
    p[0] = vgetq_lane_f32(x, 0);
    if (n >= 2) p[1] = vgetq_lane_f32(x, 1);
    if (n >= 3) p[2] = vgetq_lane_f32(x, 2);
}
V_INLINE void v_store_f16(uint16_t *p, vf x)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x)));
}
V_INLINE void v_store_bf16(uint16_t *p, vf x)
{
    uint32x4_t u = vreinterpretq_u32_f32(x), upper = vshrq_n_u32(u, 16);
    uint32x4_t odd = vandq_u32(upper, vdupq_n_u32(1));
    uint32x4_t up = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd);
    uint32x4_t quiet = vorrq_u32(upper, vdupq_n_u32(0x40));
    vst1_u16(p, vmovn_u32(vbslq_u32(vceqq_f32(x, x), vshrq_n_u32(up, 16), quiet)));
}
V_INLINE vf v_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}
V_INLINE vf v_sub(vf a, vf b)
{
    return vsubq_f32(a, b);
}
V_INLINE vf v_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}
V_INLINE vf v_div(vf a, vf b)
{
    return vdivq_f32(a, b);
}
V_INLINE vf v_madd(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}
/* FMIN and FMAX would hand a NaN on from either side. */
V_INLINE vf v_min(vf a, vf b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
V_INLINE vf v_max(vf a, vf b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
V_INLINE vf v_abs(vf a)
{
    return vabsq_f32(a);
}
V_INLINE vf v_copysign(vf a, vf sign)
{
    return vbslq_f32(vdupq_n_u32(0x80000000u), sign, a);
}
V_INLINE vf v_sqrt(vf a)
{
    return vsqrtq_f32(a);
}
V_INLINE vf v_round(vf a)
{
    return vrndnq_f32(a);
}
V_INLINE vf v_scale2(vf x, vf n)
{
    int32x4_t whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1); /* of NaN: 0 */
    int32x4_t bias = vdupq_n_s32(127), rest = vsubq_s32(whole, half);
    int32x4_t a = vshlq_n_s32(vaddq_s32(half, bias), 23);
    int32x4_t b = vshlq_n_s32(vaddq_s32(rest, bias), 23);
    return v_mul(v_mul(x, vreinterpretq_f32_s32(a)), vreinterpretq_f32_s32(b));
}
V_INLINE float v_sum(vf a)
{
    float32x2_t s = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(s, 0) + vget_lane_f32(s, 1);
}
V_INLINE float v_max_lane(vf a)
{
    vf s = v_max(a, vextq_f32(a, a, 2));
    return vgetq_lane_f32(v_max(s, vextq_f32(s, s, 1)), 0);
}

/* Row i, lane j to row j, lane i: pairs of rows, of pairs. */
V_INLINE void v_transpose(vf r[V_LANES])
{
    float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1]));
    float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3]));
    float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
    r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

/* ---- masks ----------------------------------------------------------------------------------- */

V_INLINE vm v_lt(vf a, vf b)
{
    return vcltq_f32(a, b);
}
V_INLINE vm v_le(vf a, vf b)
{
    return vcleq_f32(a, b);
}
V_INLINE vm v_eq(vf a, vf b)
{
    return vceqq_f32(a, b);
}
V_INLINE vm v_is_nan(vf a)
{
    return vmvnq_u32(vceqq_f32(a, a));
}
V_INLINE vi vi_lane_index(void)
{
    static const int32_t index[4] = { 0, 1, 2, 3 };
    return vld1q_s32(index);
}
V_INLINE vm vm_first(int64_t n)
{
    return vcltq_s32(vi_lane_index(), vdupq_n_s32((int32_t)n));
}
V_INLINE uint32x4_t lane_bits(void)
{
    static const uint32_t bits[4] = { 1, 2, 4, 8 };
    return vld1q_u32(bits);
}
V_INLINE vm vm_from_bits(uint32_t bits)
{
    return vtstq_u32(vdupq_n_u32(bits), lane_bits());
}
V_INLINE uint32_t vm_bits(vm m)
{
    return vaddvq_u32(vandq_u32(m, lane_bits()));
}
V_INLINE vm vm_and(vm a, vm b)
{
    return vandq_u32(a, b);
}
V_INLINE vm vm_or(vm a, vm b)
{
    return vorrq_u32(a, b);
}
V_INLINE vf v_select(vm m, vf a, vf b)
{
    return vbslq_f32(m, a, b);
}

/* ---- i32 ------------------------------------------------------------------------------------- */

V_INLINE vi vi_set1(int32_t x)
{
    return vdupq_n_s32(x);
}
V_INLINE vi vi_load(const int32_t *p)
{
    return vld1q_s32(p);
}
V_INLINE vi vi_load_n(const int32_t *p, int64_t n)
{
    if (n >= 4) return vld1q_s32(p);
    vi x = vsetq_lane_s32(p[0], vdupq_n_s32(0), 0);
    if (n >= 2) x = vsetq_lane_s32(p[1], x, 1);
    if (n >= 3) x = vsetq_lane_s32(p[2], x, 2);
    return x;
}
V_INLINE vi vi_load_u16(const uint16_t *p)
{
    return vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p)));
}
V_INLINE void vi_store(int32_t *p, vi x)
{
    vst1q_s32(p, x);
}
V_INLINE vi vi_add(vi a, vi b)
{
    return vaddq_s32(a, b);
}
V_INLINE vi vi_sub(vi a, vi b)
{
    return vsubq_s32(a, b);
}
V_INLINE vi vi_and(vi a, vi b)
{
    return vandq_s32(a, b);
}
V_INLINE vi vi_xor(vi a, vi b)
{
    return veorq_s32(a, b);
}
V_INLINE vi vi_shr(vi a, int bits)
{
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-bits)));
}
V_INLINE vm vi_gt(vi a, vi b)
{
    return vcgtq_s32(a, b);
}
V_INLINE vm vi_eq(vi a, vi b)
{
    return vceqq_s32(a, b);
}
V_INLINE vi vi_select(vm m, vi a, vi b)
{
    return vbslq_s32(m, a, b);
}
V_INLINE vi vi_bits(vf a)
{
    return vreinterpretq_s32_f32(a);
}
V_INLINE vf v_from_bits(vi a)
{
    return vreinterpretq_f32_s32(a);
}
V_INLINE vf v_from_i(vi a)
{
    return vcvtq_f32_s32(a);
}
V_INLINE vi vi_from_f(vf a)
{
    return vcvtq_s32_f32(a);
}
V_INLINE void v_store_i8(int8_t *p, vf a)
{
    int16x4_t w = vmovn_s32(vcvtq_s32_f32(a));
    int8x8_t b = vmovn_s16(vcombine_s16(w, w));
    int32_t four = vget_lane_s32(vreinterpret_s32_s8(b), 0);
    memcpy(p, &four, sizeof four);
}

/* ---- f64 and u64 ----------------------------------------------------------------------------- */

V_INLINE vd vd_set1(double x)
{
    return (vd){ vdupq_n_f64(x), vdupq_n_f64(x) };
}
V_INLINE vd vd_from_f(vf a)
{
    return (vd){ vcvt_f64_f32(vget_low_f32(a)), vcvt_high_f64_f32(a) };
}
V_INLINE vd vd_from_i(vi a)
{
    return (vd){ vcvtq_f64_s64(vmovl_s32(vget_low_s32(a))), vcvtq_f64_s64(vmovl_high_s32(a)) };
}
V_INLINE vf v_from_d(vd a)
{
    return vcvt_high_f32_f64(vcvt_f32_f64(a.low), a.high);
}
V_INLINE vd vd_add(vd a, vd b)
{
    return (vd){ vaddq_f64(a.low, b.low), vaddq_f64(a.high, b.high) };
}
V_INLINE vd vd_sub(vd a, vd b)
{
    return (vd){ vsubq_f64(a.low, b.low), vsubq_f64(a.high, b.high) };
}
V_INLINE vd vd_mul(vd a, vd b)
{
    return (vd){ vmulq_f64(a.low, b.low), vmulq_f64(a.high, b.high) };
}
V_INLINE vd vd_max(vd a, vd b)
{
    return (vd){ vbslq_f64(vcgtq_f64(a.low, b.low), a.low, b.low),
                 vbslq_f64(vcgtq_f64(a.high, b.high), a.high, b.high) };
}
V_INLINE vd vd_round(vd a)
{
    return (vd){ vrndnq_f64(a.low), vrndnq_f64(a.high) };
}
V_INLINE float64x2_t raise2(float64x2_t x, float64x2_t n_bits)
{
    uint64x2_t n = vshlq_n_u64(vreinterpretq_u64_f64(n_bits), 52);
    return vreinterpretq_f64_u64(vaddq_u64(vreinterpretq_u64_f64(x), n));
}
V_INLINE vd vd_raise2(vd x, vd n_bits)
{
    return (vd){ raise2(x.low, n_bits.low), raise2(x.high, n_bits.high) };
}
V_INLINE vu vu_set1(uint64_t x)
{
    return (vu){ vdupq_n_u64(x), vdupq_n_u64(x) };
}
V_INLINE vu vu_from_d(vd a)
{
    return (vu){ vcvtnq_u64_f64(a.low), vcvtnq_u64_f64(a.high) };
}
V_INLINE vu vu_add(vu a, vu b)
{
    return (vu){ vaddq_u64(a.low, b.low), vaddq_u64(a.high, b.high) };
}
V_INLINE vu vu_keep(vm m, vu a)
{
    int32x4_t wide = vreinterpretq_s32_u32(m); /* -1 widens to -1 */
    uint64x2_t low = vreinterpretq_u64_s64(vmovl_s32(vget_low_s32(wide)));
    uint64x2_t high = vreinterpretq_u64_s64(vmovl_high_s32(wide));
    return (vu){ vandq_u64(low, a.low), vandq_u64(high, a.high) };
}
V_INLINE void vu_store(uint64_t *p, vu a)
{
    vst1q_u64(p, a.low);
    vst1q_u64(p + 2, a.high);
}
V_INLINE uint64_t vu_sum(vu a)
{
    return vaddvq_u64(vaddq_u64(a.low, a.high));
}

#endif
