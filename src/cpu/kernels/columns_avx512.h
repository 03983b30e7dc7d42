/* 16 columns in one AVX512 register: what linear_body.h computes with. High bits of 5- and 6-bit
 * codes are mask registers loaded from the bit planes. */
#ifndef HEADRACE_CPU_KERNELS_COLUMNS_AVX512_H
#define HEADRACE_CPU_KERNELS_COLUMNS_AVX512_H

#include <immintrin.h>

#include "cpu/pack.h"

#define ALWAYS static inline __attribute__((always_inline))

typedef __m512 cols_f;
typedef __m512i cols_i;
typedef __m512i code_quad;

ALWAYS cols_f f_set1(float v)
{
    return _mm512_set1_ps(v);
}
ALWAYS cols_f f_load_f32(const void *p)
{
    return _mm512_loadu_ps(p);
}
ALWAYS cols_f f_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
ALWAYS void f_load_bf16_pair(const void *p, cols_f w[2])
{
    __m512i both = _mm512_loadu_si512(p);
    w[0] = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    w[1] = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000)));
}
ALWAYS void f_store(float *to, cols_f v)
{
    _mm512_storeu_ps(to, v);
}
ALWAYS cols_f f_add(cols_f a, cols_f b)
{
    return _mm512_add_ps(a, b);
}
ALWAYS cols_f f_mul(cols_f a, cols_f b)
{
    return _mm512_mul_ps(a, b);
}
ALWAYS cols_f f_fma(cols_f a, cols_f b, cols_f c)
{
    return _mm512_fmadd_ps(a, b, c);
}
ALWAYS cols_f f_madd(cols_f a, cols_f b, cols_f c)
{
    return _mm512_fmadd_ps(a, b, c);
}
ALWAYS cols_f f_from_i(cols_i v)
{
    return _mm512_cvtepi32_ps(v);
}
ALWAYS cols_i i_set1(int32_t v)
{
    return _mm512_set1_epi32(v);
}
ALWAYS cols_i i_load_i32(const void *p)
{
    return _mm512_loadu_si512(p);
}
ALWAYS cols_i i_load_u8(const void *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
}
ALWAYS cols_i i_load_i8(const void *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(p));
}
ALWAYS cols_i i_add(cols_i a, cols_i b)
{
    return _mm512_add_epi32(a, b);
}
ALWAYS cols_i i_shl(cols_i a, int bits)
{
    return _mm512_slli_epi32(a, (unsigned)bits);
}
ALWAYS cols_i i_mul(cols_i a, cols_i b)
{
    return _mm512_mullo_epi32(a, b);
}

ALWAYS code_quad codes_load(hr_pack_form form, const uint8_t *group, int quad)
{
    if (form.group_bytes == 512) return _mm512_loadu_si512(group + quad * 64);
    __m512i both = _mm512_loadu_si512(group + quad % 4 * 64);
    if (quad >= 4) both = _mm512_srli_epi16(both, 4);
    code_quad u = _mm512_and_si512(both, _mm512_set1_epi8(15));
    for (int plane = 0; plane < form.planes; plane++) {
        __mmask64 m = _load_mask64((__mmask64 *)(uintptr_t)(group + 256 + plane * 64 + quad * 8));
        u = _mm512_mask_add_epi8(u, m, u, _mm512_set1_epi8((char)(16 << plane)));
    }
    return u;
}

ALWAYS cols_i codes_column(code_quad u, int i)
{
    return _mm512_and_si512(_mm512_srli_epi32(u, (unsigned)i * 8), _mm512_set1_epi32(255));
}

#endif
