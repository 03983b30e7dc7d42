/* Linear kernels for AVX512 with VNNI.
 *
 * 16 columns are one register. VPDPBUSD multiplies unsigned codes by signed rows straight from the
 * panel: no widening, no saturation, and the four bytes of a row come as a broadcast memory
 * operand. */
#include "cpu/kernels/columns_avx512.h"

enum { MOST_ROWS = 8 };

ALWAYS int32_t four_bytes(const int8_t *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, 4);
    return v;
}

ALWAYS void dot_half(hr_pack_form form, const uint8_t *group, int half, const int8_t *x,
                     int64_t stride, int R, cols_i *acc)
{
    for (int q = half * 4; q < half * 4 + 4; q++) {
        code_quad u = codes_load(form, group, q);
        for (int r = 0; r < R; r++)
            acc[r] = _mm512_dpbusd_epi32(acc[r], u,
                                         _mm512_set1_epi32(four_bytes(x + r * stride + q * 4)));
    }
}

#include "cpu/kernels/linear_body.h"

void hr_kernel_linear_avx512(const hr_kernel_args *a, int64_t from, int64_t to);
void hr_kernel_linear_prep_avx512(const hr_kernel_args *a, int64_t from, int64_t to);

void hr_kernel_linear_avx512(const hr_kernel_args *a, int64_t from, int64_t to)
{
    linear_items(a, from, to);
}

void hr_kernel_linear_prep_avx512(const hr_kernel_args *a, int64_t from, int64_t to)
{
    prep_items(a, from, to);
}
