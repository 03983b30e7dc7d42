/* Linear kernels for AMX with int8 and bf16, on top of the path avx512. A step of fewer than eight
 * int8 rows is bound by memory, and VNNI streams weights at least as fast (one tile instruction
 * takes as long for one row as for 16). */
#include "cpu/kernels/columns_avx512.h"
#include "cpu/kernels/linear.h"
#include "cpu/kernels/tiles_amx.h"

#define AMX_BASE(name) hr_kernel_##name##_avx512
#define AMX_FEW_ROWS   8

void hr_kernel_linear_avx512(const hr_kernel_args *a, int64_t from, int64_t to);
void hr_kernel_linear_prep_avx512(const hr_kernel_args *a, int64_t from, int64_t to);
void hr_kernel_linear_amx(const hr_kernel_args *a, int64_t from, int64_t to);
void hr_kernel_linear_prep_amx(const hr_kernel_args *a, int64_t from, int64_t to);

#include "cpu/kernels/linear_amx_body.h"

void hr_kernel_linear_amx(const hr_kernel_args *a, int64_t from, int64_t to)
{
    amx_items(a, from, to);
}

void hr_kernel_linear_prep_amx(const hr_kernel_args *a, int64_t from, int64_t to)
{
    amx_prep_items(a, from, to);
}
