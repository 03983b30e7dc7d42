/* Inside the peaks: which loop is whose, and how they are named. */
#ifndef HEADRACE_CPU_KERNELS_PEAKS_H
#define HEADRACE_CPU_KERNELS_PEAKS_H

#include "cpu/peaks.h"

/* family/peaks.c has the first three for every instruction set, peaks_<isa>.c the others. */
#define HR_PEAK_DECLARE(isa)                                                                       \
    float hr_peak_read_##isa(const void *from, int64_t n);                                         \
    float hr_peak_streams_##isa(const void *from, int64_t n);                                      \
    float hr_peak_f32_##isa(const void *from, int64_t n);                                          \
    float hr_peak_i8_##isa(const void *from, int64_t n);                                           \
    extern const int64_t hr_peak_f32_ops_##isa, hr_peak_i8_ops_##isa;
HR_ISA_LIST(HR_PEAK_DECLARE)
#undef HR_PEAK_DECLARE

float hr_peak_bf16_avx512(const void *from, int64_t n);
float hr_peak_bf16_amx(const void *from, int64_t n);
extern const int64_t hr_peak_bf16_ops_avx512, hr_peak_bf16_ops_amx;

#endif
