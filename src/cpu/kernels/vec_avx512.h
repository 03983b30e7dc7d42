/* vec.h on AVX512 F BW DQ VL: sixteen lanes; f64 and u64 are two registers. */
#ifndef HEADRACE_CPU_KERNELS_VEC_AVX512_H
#define HEADRACE_CPU_KERNELS_VEC_AVX512_H

#include <immintrin.h>

#define V_LANES 16

typedef __m512 vf;
typedef __m512i vi;
typedef struct vd {
    __m512d low, high;
} vd;
typedef struct vu {
    __m512i low, high;
} vu;
typedef __mmask16 vm;

V_INLINE __mmask16 lanes_below(int64_t n)
{
    return (__mmask16)_bzhi_u32(0xffff, (uint32_t)n);
}

V_INLINE vf v_set1(float x)
{
    return _mm512_set1_ps(x);
}
V_INLINE vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
V_INLINE vf v_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(lanes_below(n), p);
}
V_INLINE vf v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
V_INLINE vf v_load_bf16(const uint16_t *p)
{
    __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}
V_INLINE vf v_load_i8(const int8_t *p)
{
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b));
}
V_INLINE void v_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
V_INLINE void v_store_n(float *p, vf x, int64_t n)
{
    _mm512_mask_storeu_ps(p, lanes_below(n), x);
}
V_INLINE void v_store_f16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
V_INLINE void v_store_bf16(uint16_t *p, vf x)
{
    __m512i u = _mm512_castps_si512(x), upper = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    __m512i r =
        _mm512_mask_or_epi32(_mm512_srli_epi32(up, 16), nan, upper, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(r));
}
V_INLINE vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
V_INLINE vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
V_INLINE vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
V_INLINE vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
V_INLINE vf v_madd(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
V_INLINE vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
V_INLINE vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
V_INLINE vf v_abs(vf a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}
V_INLINE vf v_copysign(vf a, vf sign)
{
    return _mm512_or_ps(v_abs(a), _mm512_and_ps(_mm512_set1_ps(-0.0f), sign));
}
V_INLINE vf v_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}
V_INLINE vf v_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
V_INLINE vf v_scale2(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}
/* Halves are added down to one lane: 8, 4, 2, 1. */
V_INLINE float v_sum(vf a)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
V_INLINE float v_max_lane(vf a)
{
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* Row i, lane j to row j, lane i: pairs of rows, of pairs, of quarters, of halves. */
V_INLINE void v_transpose(vf r[V_LANES])
{
    vf a[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int i = 0; i < 16; i += 8)
        for (int j = 0; j < 4; j++) {
            a[i + j] = _mm512_shuffle_f32x4(r[i + j], r[i + j + 4], 0x88);
            a[i + j + 4] = _mm512_shuffle_f32x4(r[i + j], r[i + j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        r[j] = _mm512_shuffle_f32x4(a[j], a[j + 8], 0x88);
        r[j + 8] = _mm512_shuffle_f32x4(a[j], a[j + 8], 0xdd);
    }
}

/* ---- masks ----------------------------------------------------------------------------------- */

V_INLINE vm v_lt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
V_INLINE vm v_le(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
V_INLINE vm v_eq(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
V_INLINE vm v_is_nan(vf a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
V_INLINE vm vm_first(int64_t n)
{
    return lanes_below(n);
}
V_INLINE vm vm_from_bits(uint32_t bits)
{
    return (__mmask16)bits;
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
V_INLINE vf v_select(vm m, vf a, vf b)
{
    return _mm512_mask_blend_ps(m, b, a);
}

/* ---- i32 ------------------------------------------------------------------------------------- */

V_INLINE vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
V_INLINE vi vi_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}
V_INLINE vi vi_load_n(const int32_t *p, int64_t n)
{
    return _mm512_maskz_loadu_epi32(lanes_below(n), p);
}
V_INLINE vi vi_load_u16(const uint16_t *p)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
V_INLINE vi vi_lane_index(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
V_INLINE void vi_store(int32_t *p, vi x)
{
    _mm512_storeu_si512(p, x);
}
V_INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
V_INLINE vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}
V_INLINE vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}
V_INLINE vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}
V_INLINE vi vi_shr(vi a, int bits)
{
    return _mm512_srl_epi32(a, _mm_cvtsi32_si128(bits));
}
V_INLINE vm vi_gt(vi a, vi b)
{
    return _mm512_cmpgt_epi32_mask(a, b);
}
V_INLINE vm vi_eq(vi a, vi b)
{
    return _mm512_cmpeq_epi32_mask(a, b);
}
V_INLINE vi vi_select(vm m, vi a, vi b)
{
    return _mm512_mask_blend_epi32(m, b, a);
}
V_INLINE vi vi_bits(vf a)
{
    return _mm512_castps_si512(a);
}
V_INLINE vf v_from_bits(vi a)
{
    return _mm512_castsi512_ps(a);
}
V_INLINE vf v_from_i(vi a)
{
    return _mm512_cvtepi32_ps(a);
}
V_INLINE vi vi_from_f(vf a)
{
    return _mm512_cvtps_epi32(a);
}
V_INLINE void v_store_i8(int8_t *p, vf a)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
}

/* ---- f64 and u64 ----------------------------------------------------------------------------- */

V_INLINE vd vd_set1(double x)
{
    return (vd){ _mm512_set1_pd(x), _mm512_set1_pd(x) };
}
V_INLINE vd vd_from_f(vf a)
{
    return (vd){ _mm512_cvtps_pd(_mm512_castps512_ps256(a)),
                 _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)) };
}
V_INLINE vd vd_from_i(vi a)
{
    return (vd){ _mm512_cvtepi32_pd(_mm512_castsi512_si256(a)),
                 _mm512_cvtepi32_pd(_mm512_extracti32x8_epi32(a, 1)) };
}
V_INLINE vf v_from_d(vd a)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(a.low)),
                              _mm512_cvtpd_ps(a.high), 1);
}
V_INLINE vd vd_add(vd a, vd b)
{
    return (vd){ _mm512_add_pd(a.low, b.low), _mm512_add_pd(a.high, b.high) };
}
V_INLINE vd vd_sub(vd a, vd b)
{
    return (vd){ _mm512_sub_pd(a.low, b.low), _mm512_sub_pd(a.high, b.high) };
}
V_INLINE vd vd_mul(vd a, vd b)
{
    return (vd){ _mm512_mul_pd(a.low, b.low), _mm512_mul_pd(a.high, b.high) };
}
V_INLINE vd vd_max(vd a, vd b)
{
    return (vd){ _mm512_max_pd(a.low, b.low), _mm512_max_pd(a.high, b.high) };
}
V_INLINE vd vd_round(vd a)
{
    return (vd){ _mm512_roundscale_pd(a.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                 _mm512_roundscale_pd(a.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC) };
}
V_INLINE vd vd_raise2(vd x, vd n_bits)
{
    __m512i low = _mm512_slli_epi64(_mm512_castpd_si512(n_bits.low), 52);
    __m512i high = _mm512_slli_epi64(_mm512_castpd_si512(n_bits.high), 52);
    return (vd){ _mm512_castsi512_pd(_mm512_add_epi64(_mm512_castpd_si512(x.low), low)),
                 _mm512_castsi512_pd(_mm512_add_epi64(_mm512_castpd_si512(x.high), high)) };
}
V_INLINE vu vu_set1(uint64_t x)
{
    __m512i v = _mm512_set1_epi64((long long)x);
    return (vu){ v, v };
}
V_INLINE vu vu_from_d(vd a)
{
    return (vu){ _mm512_cvtpd_epu64(a.low), _mm512_cvtpd_epu64(a.high) };
}
V_INLINE vu vu_add(vu a, vu b)
{
    return (vu){ _mm512_add_epi64(a.low, b.low), _mm512_add_epi64(a.high, b.high) };
}
V_INLINE vu vu_keep(vm m, vu a)
{
    return (vu){ _mm512_maskz_mov_epi64((__mmask8)m, a.low),
                 _mm512_maskz_mov_epi64((__mmask8)(m >> 8), a.high) };
}
V_INLINE void vu_store(uint64_t *p, vu a)
{
    _mm512_storeu_si512(p, a.low);
    _mm512_storeu_si512(p + 8, a.high);
}
V_INLINE uint64_t vu_sum(vu a)
{
    return (uint64_t)_mm512_reduce_add_epi64(_mm512_add_epi64(a.low, a.high));
}

#endif
