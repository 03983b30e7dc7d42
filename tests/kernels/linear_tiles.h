/* Linear as the path amx computes it, on tiles in plain C. */
#ifndef HEADRACE_TESTS_KERNELS_LINEAR_TILES_H
#define HEADRACE_TESTS_KERNELS_LINEAR_TILES_H

#include "cpu/kernels/kernels.h"

void tiles_linear(const hr_kernel_args *a, int64_t from, int64_t to);
void tiles_linear_prep(const hr_kernel_args *a, int64_t from, int64_t to);

#endif
