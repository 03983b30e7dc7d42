/* Dot products on AVX512: of 8-bit numbers by VNNI, of bf16 where the machine has AVX512-BF16. */
#include <immintrin.h>

#include "cpu/kernels/peaks.h"

enum { CHAINS = 12 };

const int64_t hr_peak_i8_ops_avx512 = 2 * 64 * CHAINS;

float hr_peak_i8_avx512(const void *from, int64_t n)
{
    (void)from;
    __m512i u = _mm512_set1_epi8(3), x = _mm512_set1_epi8(-2), sums[CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++) sums[i] = _mm512_set1_epi32(i);
    for (int64_t round = 0; round < n; round++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) sums[i] = _mm512_dpbusd_epi32(sums[i], u, x);
#pragma GCC unroll 12
    for (int i = 1; i < CHAINS; i++) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
    return (float)_mm512_reduce_add_epi32(sums[0]);
}

const int64_t hr_peak_bf16_ops_avx512 = 2 * 32 * CHAINS;

__attribute__((target("avx512bf16"))) float hr_peak_bf16_avx512(const void *from, int64_t n)
{
    (void)from;
    __m512 one = _mm512_set1_ps(1), sums[CHAINS];
    __m512bh x = _mm512_cvtne2ps_pbh(one, one);
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++) sums[i] = _mm512_set1_ps((float)i);
    for (int64_t round = 0; round < n; round++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) sums[i] = _mm512_dpbf16_ps(sums[i], x, x);
#pragma GCC unroll 12
    for (int i = 1; i < CHAINS; i++) sums[0] = _mm512_add_ps(sums[0], sums[i]);
    return _mm512_reduce_add_ps(sums[0]);
}
