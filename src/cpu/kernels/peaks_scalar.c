/* Dot products of 8-bit numbers in plain C: what a compiler makes of them for the baseline. */
#include "cpu/kernels/peaks.h"

enum { K = 2048 };

const int64_t hr_peak_i8_ops_scalar = 2 * K;

/* Rows of 2 KiB, which the first-level cache holds. */
float hr_peak_i8_scalar(const void *from, int64_t n)
{
    (void)from;
    int8_t x[K], w[K];
    int32_t sum = 0;
    for (int k = 0; k < K; k++) {
        x[k] = (int8_t)(k % 251 - 125);
        w[k] = (int8_t)(k % 127 - 63);
    }
    for (int64_t round = 0; round < n; round++) {
        int32_t part = 0;
        __asm__ volatile("" : : "r"(x), "r"(w) : "memory"); /* they may have changed */
        for (int k = 0; k < K; k++) part += x[k] * w[k];
        sum ^= part;
    }
    return (float)sum;
}
