/* Linear kernels in plain C: the form of pack.h, 16 columns at a time in arrays. What other paths
 * must equal to the bit. */
#include "cpu/kernels/columns_scalar.h"

enum { MOST_ROWS = 4, GROUP_ROWS = 4, MOST_PANELS = 1 };

static inline void dot_half(hr_pack_form form, const uint8_t *const *groups, int half,
                            const int8_t *x, int64_t stride, int R, int P, cols_i *acc)
{
    const uint8_t *group = groups[0];
    (void)P;
    for (int q = half * 4; q < half * 4 + 4; q++) {
        code_quad u = codes_load(form, group, q);
        for (int r = 0; r < R; r++) {
            const int8_t *v = x + r * stride + q * 4;
            for (int c = 0; c < LANES; c++) {
                int32_t sum = u.u[c * 4] * v[0] + u.u[c * 4 + 1] * v[1] + u.u[c * 4 + 2] * v[2] +
                              u.u[c * 4 + 3] * v[3];
                acc[r].v[c] = (int32_t)((uint32_t)acc[r].v[c] + (uint32_t)sum);
            }
        }
    }
}

#include "cpu/kernels/linear_body.h"

void hr_kernel_linear_scalar(const hr_kernel_args *a, int64_t from, int64_t to);
void hr_kernel_linear_prep_scalar(const hr_kernel_args *a, int64_t from, int64_t to);

void hr_kernel_linear_scalar(const hr_kernel_args *a, int64_t from, int64_t to)
{
    linear_items(a, from, to);
}

void hr_kernel_linear_prep_scalar(const hr_kernel_args *a, int64_t from, int64_t to)
{
    prep_items(a, from, to);
}
