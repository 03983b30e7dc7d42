/* Linear kernels for AVX512 with VNNI.
 *
 * 16 columns are one register. VPDPBUSD multiplies unsigned codes by signed rows straight from the
 * panel: no widening, no saturation. Two of them start in a cycle, and so do two loads: eight rows
 * by two panels need ten loads for sixteen, one panel alone would wait for its nine. Groups keep an
 * f32 sum beside each integer, so their tiles have half as many rows. */
#include "cpu/kernels/columns_avx512.h"

enum { MOST_ROWS = 8, GROUP_ROWS = 4, MOST_PANELS = 2 };

ALWAYS int32_t four_bytes(const int8_t *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, 4);
    return v;
}

ALWAYS void dot_half(hr_pack_form form, const uint8_t *const *group, int half, const int8_t *x,
                     int64_t stride, int R, int P, cols_i *acc)
{
    for (int q = half * 4; q < half * 4 + 4; q++) {
        code_quad u[MOST_PANELS];
        for (int p = 0; p < P; p++) u[p] = codes_load(form, group[p], q);
        for (int r = 0; r < R; r++) {
            cols_i four = _mm512_set1_epi32(four_bytes(x + r * stride + q * 4));
            for (int p = 0; p < P; p++)
                acc[r * P + p] = _mm512_dpbusd_epi32(acc[r * P + p], u[p], four);
        }
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
