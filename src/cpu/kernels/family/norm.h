/* The root-mean-square norm of one row, shared by the kernels that contain one. */
#ifndef HEADRACE_CPU_KERNELS_FAMILY_NORM_H
#define HEADRACE_CPU_KERNELS_FAMILY_NORM_H

#include "cpu/kernels/vec.h"

/* A row reduction keeps this many partial sums, vector i going to sum i mod ROW_SUMS: short chains
 * for the processor and for rounding. The order depends on the row's length alone. */
enum { ROW_SUMS = 4 };

V_INLINE float sums_end(const vf part[ROW_SUMS])
{
    return v_sum(v_add(v_add(part[0], part[1]), v_add(part[2], part[3])));
}

/* Σ (x - mean)² over H elements at `at`. */
V_INLINE float square_sum(hr_dtype d, const void *x, int64_t at, int64_t H, float mean)
{
    vf part[ROW_SUMS], m = v_set1(mean);
    for (int i = 0; i < ROW_SUMS; i++) part[i] = v_set1(0.0f);
    int64_t h = 0;
    for (; h + ROW_SUMS * V_LANES <= H; h += ROW_SUMS * V_LANES)
        for (int i = 0; i < ROW_SUMS; i++) {
            vf v = v_sub(v_load_any(d, x, at + h + i * V_LANES), m);
            part[i] = v_madd(v, v, part[i]);
        }
    for (int i = 0; h < H; i++, h += V_LANES) {
        int64_t n = H - h < V_LANES ? H - h : V_LANES;
        vf v = v_sub(v_load_any_n(d, x, at + h, n), m);
        v = v_select(vm_first(n), v, v_set1(0.0f));
        part[i] = v_madd(v, v, part[i]);
    }
    return sums_end(part);
}

/* 1 / √(mean of squares + eps) */
V_INLINE float rms_factor(hr_dtype d, const void *x, int64_t at, int64_t H, float eps)
{
    return 1.0f / sqrtf(square_sum(d, x, at, H, 0.0f) / (float)H + eps);
}

/* One vector of the normalised row, as the unfused op would store it. */
V_INLINE vf rms_apply(hr_dtype d, vf x, float factor, vf weight, float offset)
{
    return v_round_to(d, v_mul(v_mul(x, v_set1(factor)), v_add(weight, v_set1(offset))));
}

#endif
