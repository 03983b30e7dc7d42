/* Linear kernels for 64-bit Arm with SDOT: four products of signed bytes per 32-bit lane, exact for
 * every input. The four bytes of a row are a lane of the 16 that a half takes. */
#include "cpu/kernels/linear_neon_body.h"

/* `quad` picks a lane and must be a constant, also where nothing is unrolled: hence a macro. */
#define DOT_QUAD(quad)                                                                             \
    do {                                                                                           \
        code_quad u = codes_load(form, group, half * 4 + (quad));                                  \
        for (int r = 0; r < R; r++)                                                                \
            EACH acc[r].v[v] =                                                                     \
                vdotq_laneq_s32(acc[r].v[v], signed_codes(form, u.v[v]), by[r], quad);             \
    } while (0)

ALWAYS void dot_half(hr_pack_form form, const uint8_t *const *groups, int half, const int8_t *x,
                     int64_t stride, int R, int P, cols_i *acc)
{
    const uint8_t *group = groups[0];
    (void)P;
    int8x16_t by[MOST_ROWS];
    for (int r = 0; r < R; r++) by[r] = vld1q_s8(x + r * stride + half * 16);
    DOT_QUAD(0);
    DOT_QUAD(1);
    DOT_QUAD(2);
    DOT_QUAD(3);
}

#undef ALWAYS
#undef EACH
#include "cpu/kernels/linear_body.h"

void hr_kernel_linear_neon_dotprod(const hr_kernel_args *a, int64_t from, int64_t to);

void hr_kernel_linear_neon_dotprod(const hr_kernel_args *a, int64_t from, int64_t to)
{
    linear_items(a, from, to);
}
