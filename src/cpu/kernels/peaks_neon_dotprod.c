/* Dot products of 8-bit numbers on 64-bit Arm by SDOT: sixteen of them each. */
#include <arm_neon.h>

#include "cpu/kernels/peaks.h"

enum { CHAINS = 16 };

const int64_t hr_peak_i8_ops_neon_dotprod = 2 * 16 * CHAINS;

float hr_peak_i8_neon_dotprod(const void *from, int64_t n)
{
    (void)from;
    int8x16_t u = vdupq_n_s8(3), x = vdupq_n_s8(-2);
    int32x4_t sums[CHAINS];
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++) sums[i] = vdupq_n_s32(i);
    for (int64_t round = 0; round < n; round++)
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++) sums[i] = vdotq_s32(sums[i], u, x);
#pragma GCC unroll 16
    for (int i = 1; i < CHAINS; i++) sums[0] = vaddq_s32(sums[0], sums[i]);
    return (float)vaddvq_s32(sums[0]);
}
