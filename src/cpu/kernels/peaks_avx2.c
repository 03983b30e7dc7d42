/* Dot products of 8-bit numbers on AVX2: VPMADDUBSW, VPMADDWD and an addition for 32 of them. */
#include <immintrin.h>

#include "cpu/kernels/peaks.h"

enum { CHAINS = 6 };

const int64_t hr_peak_i8_ops_avx2 = 2 * 32 * CHAINS;

float hr_peak_i8_avx2(const void *from, int64_t n)
{
    (void)from;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i u = _mm256_set1_epi8(3), x = _mm256_set1_epi8(-2), sums[CHAINS];
#pragma GCC unroll 6
    for (int i = 0; i < CHAINS; i++) sums[i] = _mm256_set1_epi32(i);
    for (int64_t round = 0; round < n; round++)
#pragma GCC unroll 6
        for (int i = 0; i < CHAINS; i++) {
            __asm__ volatile("" : "+x"(u)); /* or the product would be made once */
            __m256i pairs = _mm256_maddubs_epi16(u, x);
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, ones));
        }
#pragma GCC unroll 6
    for (int i = 1; i < CHAINS; i++) sums[0] = _mm256_add_epi32(sums[0], sums[i]);
    return (float)_mm256_extract_epi32(sums[0], 0);
}
