/* Linear kernels for 64-bit Arm of any age.
 *
 * SMULL makes 16-bit products of signed bytes. Those of codes below 64 may be added up four quads
 * long before they are widened (4 · 63 · 128 = 32,256); of full bytes two products can be 2^15
 * already (-128 · -128 twice), so each is added to 32 bits by itself. A register of sums holds two
 * columns, two partial sums each, until the half is done. */
#include "cpu/kernels/linear_neon_body.h"

ALWAYS int8x8_t twice(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return vreinterpret_s8_s32(vdup_n_s32(four));
}

/* sums[v][0] and [1]: columns 4v, 4v+1 and 4v+2, 4v+3 of one row. */
ALWAYS void dot_bytes(code_quad u, const int8_t *x, int32x4_t sums[REGISTERS][2])
{
    int8x8_t by = twice(x);
    EACH
    {
        int8x16_t s = signed_codes((hr_pack_form){ .group_bytes = 512 }, u.v[v]);
        sums[v][0] = vpadalq_s16(sums[v][0], vmull_s8(vget_low_s8(s), by));
        sums[v][1] = vpadalq_s16(sums[v][1], vmull_s8(vget_high_s8(s), by));
    }
}

ALWAYS void dot_narrow(hr_pack_form form, const uint8_t *group, int half, int v, const int8_t *x,
                       int64_t stride, int R, cols_i *acc)
{
    int16x8_t low[MOST_ROWS], high[MOST_ROWS];
    for (int r = 0; r < R; r++) low[r] = high[r] = vdupq_n_s16(0);
    for (int q = half * 4; q < half * 4 + 4; q++) {
        int8x16_t s = signed_codes(form, codes_load(form, group, q).v[v]);
        for (int r = 0; r < R; r++) {
            int8x8_t by = twice(x + r * stride + q * 4);
            low[r] = vmlal_s8(low[r], vget_low_s8(s), by);
            high[r] = vmlal_s8(high[r], vget_high_s8(s), by);
        }
    }
    for (int r = 0; r < R; r++)
        acc[r].v[v] = vaddq_s32(acc[r].v[v], vpaddq_s32(vpaddlq_s16(low[r]), vpaddlq_s16(high[r])));
}

ALWAYS void dot_half(hr_pack_form form, const uint8_t *const *groups, int half, const int8_t *x,
                     int64_t stride, int R, int P, cols_i *acc)
{
    const uint8_t *group = groups[0];
    (void)P;
    if (!codes_are_bytes(form)) {
        EACH dot_narrow(form, group, half, v, x, stride, R, acc);
        return;
    }
    for (int r = 0; r < R; r++) {
        int32x4_t sums[REGISTERS][2];
        EACH sums[v][0] = sums[v][1] = vdupq_n_s32(0);
        for (int q = half * 4; q < half * 4 + 4; q++)
            dot_bytes(codes_load(form, group, q), x + r * stride + q * 4, sums);
        EACH acc[r].v[v] = vaddq_s32(acc[r].v[v], vpaddq_s32(sums[v][0], sums[v][1]));
    }
}

#undef ALWAYS
#undef EACH
#include "cpu/kernels/linear_body.h"

void hr_kernel_linear_neon(const hr_kernel_args *a, int64_t from, int64_t to);
void hr_kernel_linear_prep_neon(const hr_kernel_args *a, int64_t from, int64_t to);

void hr_kernel_linear_neon(const hr_kernel_args *a, int64_t from, int64_t to)
{
    linear_items(a, from, to);
}

void hr_kernel_linear_prep_neon(const hr_kernel_args *a, int64_t from, int64_t to)
{
    prep_items(a, from, to);
}
