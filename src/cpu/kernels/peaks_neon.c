/* Dot products of 8-bit numbers on 64-bit Arm without SDOT: SMULL, SMLAL2 and SADALP for 16. */
#include <arm_neon.h>

#include "cpu/kernels/peaks.h"

enum { CHAINS = 8 };

const int64_t hr_peak_i8_ops_neon = 2 * 16 * CHAINS;

float hr_peak_i8_neon(const void *from, int64_t n)
{
    (void)from;
    int8x16_t u = vdupq_n_s8(3), x = vdupq_n_s8(-2);
    int32x4_t sums[CHAINS];
#pragma GCC unroll 8
    for (int i = 0; i < CHAINS; i++) sums[i] = vdupq_n_s32(i);
    for (int64_t round = 0; round < n; round++)
#pragma GCC unroll 8
        for (int i = 0; i < CHAINS; i++) {
            __asm__ volatile("" : "+w"(u)); /* or the product would be made once */
            int16x8_t pairs = vmull_s8(vget_low_s8(u), vget_low_s8(x));
            sums[i] = vpadalq_s16(sums[i], vmlal_high_s8(pairs, u, x));
        }
#pragma GCC unroll 8
    for (int i = 1; i < CHAINS; i++) sums[0] = vaddq_s32(sums[0], sums[i]);
    return (float)vaddvq_s32(sums[0]);
}
