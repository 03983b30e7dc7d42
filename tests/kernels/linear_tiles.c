/* The kernels of linear_amx_body.h on tiles in plain C: every format and number of rows through
 * tiles, on any machine. Compiled into test_linear. */
#include "kernels/linear_tiles.h"

#include "cpu/kernels/columns_scalar.h"
#include "cpu/kernels/linear.h"
#include "kernels/tiles_plain.h"

#define AMX_BASE(name) hr_kernel_##name##_scalar
#define AMX_FEW_ROWS   0

void hr_kernel_linear_scalar(const hr_kernel_args *a, int64_t from, int64_t to);
void hr_kernel_linear_prep_scalar(const hr_kernel_args *a, int64_t from, int64_t to);

#include "cpu/kernels/linear_amx_body.h"

void tiles_linear(const hr_kernel_args *a, int64_t from, int64_t to)
{
    amx_items(a, from, to);
}

void tiles_linear_prep(const hr_kernel_args *a, int64_t from, int64_t to)
{
    amx_prep_items(a, from, to);
}
