/* Reading and f32 multiply-adds as fast as an instruction set goes.
 *
 * Sums go to enough accumulators that no addition waits for the one before: a fused multiply-add
 * takes four cycles and two begin in each. Eight loads of a line each are under way in a stream;
 * four streams with prefetch keep more of the memory's banks busy than the hardware's prefetchers
 * do for one. */
#include "cpu/kernels/peaks.h"
#include "cpu/kernels/vec.h"

#define PEAK_NAME2(name, isa) hr_peak_##name##_##isa
#define PEAK_NAME1(name, isa) PEAK_NAME2(name, isa)
#define PEAK(name)            PEAK_NAME1(name, HR_ISA)

enum {
    SUMS = 8,
    CHAINS = 12,
    STREAMS = 4,
    LINE = 16,        /* floats of a cache line */
    AHEAD = 2048 / 4, /* floats from what is read to what is asked for */
    PER_LINE = LINE / V_LANES,
    PARTS = PER_LINE < 4 ? PER_LINE : 4, /* sums of a stream */
};

/* Loops over the accumulators are unrolled everywhere, so that none of them has an address. */
V_INLINE float total(const vf *sums, int n)
{
    vf all = sums[0];
#pragma GCC unroll 16
    for (int i = 1; i < n; i++) all = v_add(all, sums[i]);
    return v_sum(all);
}

V_INLINE void clear(vf *sums, int n)
{
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) sums[i] = v_set1((float)i);
}

float PEAK(read)(const void *from, int64_t n)
{
    const float *p = from, *end = p + n / 4;
    vf sums[SUMS];
    clear(sums, SUMS);
    for (; p < end; p += SUMS * V_LANES)
#pragma GCC unroll 8
        for (int i = 0; i < SUMS; i++) sums[i] = v_add(sums[i], v_load(p + i * V_LANES));
    return total(sums, SUMS);
}

/* One line of each stream at a time. */
float PEAK(streams)(const void *from, int64_t n)
{
    const float *p = from;
    int64_t apart = n / 4 / STREAMS;
    vf sums[STREAMS * PARTS];
    clear(sums, STREAMS * PARTS);
    for (int64_t at = 0; at < apart; at += LINE)
#pragma GCC unroll 4
        for (int s = 0; s < STREAMS; s++) {
            const float *line = p + s * apart + at;
            __builtin_prefetch(line + AHEAD);
#pragma GCC unroll 16
            for (int i = 0; i < PER_LINE; i++) {
                vf *sum = &sums[s * PARTS + i % PARTS];
                *sum = v_add(*sum, v_load(line + i * V_LANES));
            }
        }
    return total(sums, STREAMS * PARTS);
}

const int64_t PEAK(f32_ops) = 2 * CHAINS * V_LANES;

float PEAK(f32)(const void *from, int64_t n)
{
    (void)from;
    vf sums[CHAINS], a = v_set1(0.5f), b = v_set1(0.25f);
    clear(sums, CHAINS);
    for (int64_t round = 0; round < n; round++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) sums[i] = v_madd(sums[i], a, b); /* tends to 2b */
    return total(sums, CHAINS);
}
