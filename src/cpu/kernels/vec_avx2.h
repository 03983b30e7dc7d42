/* vec.h on AVX2, FMA and F16C: eight lanes; f64 and u64 are two registers. */
#ifndef HEADRACE_CPU_KERNELS_VEC_AVX2_H
#define HEADRACE_CPU_KERNELS_VEC_AVX2_H

#include <immintrin.h>

#define V_LANES 8

typedef __m256 vf;
typedef __m256i vi;
typedef struct vd {
    __m256d low, high;
} vd;
typedef struct vu {
    __m256i low, high;
} vu;
typedef __m256i vm; /* all bits of a lane set or clear */

/* Lanes below n: 8 words loaded from a sliding window. */
V_INLINE __m256i lanes_below(int64_t n)
{
    static const int32_t window[16] = { -1, -1, -1, -1, -1, -1, -1, -1 };
    return _mm256_loadu_si256((const __m256i *)(const void *)(window + 8 - n));
}

V_INLINE vf v_set1(float x)
{
    return _mm256_set1_ps(x);
}
V_INLINE vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
V_INLINE vf v_load_n(const float *p, int64_t n)
{
    return _mm256_maskload_ps(p, lanes_below(n));
}
V_INLINE vf v_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
V_INLINE vf v_load_bf16(const uint16_t *p)
{
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
V_INLINE vf v_load_i8(const int8_t *p)
{
    __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b));
}
V_INLINE void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
V_INLINE void v_store_n(float *p, vf x, int64_t n)
{
    _mm256_maskstore_ps(p, lanes_below(n), x);
}
V_INLINE void v_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
V_INLINE void v_store_bf16(uint16_t *p, vf x)
{
    __m256i u = _mm256_castps_si256(x), upper = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    __m256i r = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), quiet, nan);
    __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
    _mm_storeu_si128((__m128i *)(void *)p, packed);
}
V_INLINE vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
V_INLINE vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
V_INLINE vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
V_INLINE vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
V_INLINE vf v_madd(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
V_INLINE vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
V_INLINE vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
V_INLINE vf v_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
V_INLINE vf v_copysign(vf a, vf sign)
{
    return _mm256_or_ps(v_abs(a), _mm256_and_ps(_mm256_set1_ps(-0.0f), sign));
}
V_INLINE vf v_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}
V_INLINE vf v_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
V_INLINE vf v_scale2(vf x, vf n)
{
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    __m256i bias = _mm256_set1_epi32(127), rest = _mm256_sub_epi32(whole, half);
    __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i b = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
    return v_mul(v_mul(x, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
}
V_INLINE float v_sum(vf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
V_INLINE float v_max_lane(vf a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* Row i, lane j to row j, lane i: pairs of rows, of pairs, of halves. */
V_INLINE void v_transpose(vf r[V_LANES])
{
    vf a[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        vf low = r[i], high = r[i + 4];
        r[i] = _mm256_permute2f128_ps(low, high, 0x20);
        r[i + 4] = _mm256_permute2f128_ps(low, high, 0x31);
    }
}

/* ---- masks ----------------------------------------------------------------------------------- */

V_INLINE vm v_lt(vf a, vf b)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
V_INLINE vm v_le(vf a, vf b)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LE_OQ));
}
V_INLINE vm v_eq(vf a, vf b)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}
V_INLINE vm v_is_nan(vf a)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
V_INLINE vm vm_first(int64_t n)
{
    return lanes_below(n);
}
V_INLINE vm vm_from_bits(uint32_t bits)
{
    __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), lane), lane);
}
V_INLINE uint32_t vm_bits(vm m)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(m));
}
V_INLINE vm vm_and(vm a, vm b)
{
    return _mm256_and_si256(a, b);
}
V_INLINE vm vm_or(vm a, vm b)
{
    return _mm256_or_si256(a, b);
}
V_INLINE vf v_select(vm m, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(m));
}

/* ---- i32 ------------------------------------------------------------------------------------- */

V_INLINE vi vi_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}
V_INLINE vi vi_load(const int32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
V_INLINE vi vi_load_n(const int32_t *p, int64_t n)
{
    return _mm256_maskload_epi32(p, lanes_below(n));
}
V_INLINE vi vi_load_u16(const uint16_t *p)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
V_INLINE vi vi_lane_index(void)
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}
V_INLINE void vi_store(int32_t *p, vi x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, x);
}
V_INLINE vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}
V_INLINE vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}
V_INLINE vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}
V_INLINE vi vi_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}
V_INLINE vi vi_shr(vi a, int bits)
{
    return _mm256_srl_epi32(a, _mm_cvtsi32_si128(bits));
}
V_INLINE vm vi_gt(vi a, vi b)
{
    return _mm256_cmpgt_epi32(a, b);
}
V_INLINE vm vi_eq(vi a, vi b)
{
    return _mm256_cmpeq_epi32(a, b);
}
V_INLINE vi vi_select(vm m, vi a, vi b)
{
    return _mm256_blendv_epi8(b, a, m);
}
V_INLINE vi vi_bits(vf a)
{
    return _mm256_castps_si256(a);
}
V_INLINE vf v_from_bits(vi a)
{
    return _mm256_castsi256_ps(a);
}
V_INLINE vf v_from_i(vi a)
{
    return _mm256_cvtepi32_ps(a);
}
V_INLINE vi vi_from_f(vf a)
{
    return _mm256_cvtps_epi32(a);
}
V_INLINE void v_store_i8(int8_t *p, vf a)
{
    __m256i i = _mm256_cvtps_epi32(a);
    __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(w, w));
}

/* ---- f64 and u64 ----------------------------------------------------------------------------- */

V_INLINE vd vd_set1(double x)
{
    return (vd){ _mm256_set1_pd(x), _mm256_set1_pd(x) };
}
V_INLINE vd vd_from_f(vf a)
{
    return (vd){ _mm256_cvtps_pd(_mm256_castps256_ps128(a)),
                 _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)) };
}
V_INLINE vd vd_from_i(vi a)
{
    return (vd){ _mm256_cvtepi32_pd(_mm256_castsi256_si128(a)),
                 _mm256_cvtepi32_pd(_mm256_extracti128_si256(a, 1)) };
}
V_INLINE vf v_from_d(vd a)
{
    return _mm256_set_m128(_mm256_cvtpd_ps(a.high), _mm256_cvtpd_ps(a.low));
}
V_INLINE vd vd_add(vd a, vd b)
{
    return (vd){ _mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high) };
}
V_INLINE vd vd_sub(vd a, vd b)
{
    return (vd){ _mm256_sub_pd(a.low, b.low), _mm256_sub_pd(a.high, b.high) };
}
V_INLINE vd vd_mul(vd a, vd b)
{
    return (vd){ _mm256_mul_pd(a.low, b.low), _mm256_mul_pd(a.high, b.high) };
}
V_INLINE vd vd_max(vd a, vd b)
{
    return (vd){ _mm256_max_pd(a.low, b.low), _mm256_max_pd(a.high, b.high) };
}
V_INLINE vd vd_round(vd a)
{
    return (vd){ _mm256_round_pd(a.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                 _mm256_round_pd(a.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC) };
}
V_INLINE vd vd_raise2(vd x, vd n_bits)
{
    __m256i low = _mm256_slli_epi64(_mm256_castpd_si256(n_bits.low), 52);
    __m256i high = _mm256_slli_epi64(_mm256_castpd_si256(n_bits.high), 52);
    return (vd){ _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(x.low), low)),
                 _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(x.high), high)) };
}
V_INLINE vu vu_set1(uint64_t x)
{
    __m256i v = _mm256_set1_epi64x((long long)x);
    return (vu){ v, v };
}
/* Adding 2^52 puts the rounded integer into the low bits of the significand. */
V_INLINE vu vu_from_d(vd a)
{
    __m256d shift = _mm256_set1_pd(0x1p52);
    __m256i bits = _mm256_castpd_si256(shift);
    return (vu){
        _mm256_xor_si256(_mm256_castpd_si256(_mm256_add_pd(a.low, shift)), bits),
        _mm256_xor_si256(_mm256_castpd_si256(_mm256_add_pd(a.high, shift)), bits),
    };
}
V_INLINE vu vu_add(vu a, vu b)
{
    return (vu){ _mm256_add_epi64(a.low, b.low), _mm256_add_epi64(a.high, b.high) };
}
V_INLINE vu vu_keep(vm m, vu a)
{
    __m256i low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(m));
    __m256i high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(m, 1));
    return (vu){ _mm256_and_si256(low, a.low), _mm256_and_si256(high, a.high) };
}
V_INLINE void vu_store(uint64_t *p, vu a)
{
    _mm256_storeu_si256((__m256i *)(void *)p, a.low);
    _mm256_storeu_si256((__m256i *)(void *)(p + 4), a.high);
}
V_INLINE uint64_t vu_sum(vu a)
{
    __m256i s = _mm256_add_epi64(a.low, a.high);
    __m128i t = _mm_add_epi64(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    return (uint64_t)_mm_cvtsi128_si64(t) + (uint64_t)_mm_extract_epi64(t, 1);
}

#endif
