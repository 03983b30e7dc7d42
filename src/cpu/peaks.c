/* The table of peak loops, a row per instruction set. */
#include "cpu/peaks.h"

#include "cpu/kernels/peaks.h"

typedef struct peak_row {
    hr_peak_fn run[HR_PEAK_COUNT];
    const int64_t *ops[HR_PEAK_COUNT];
} peak_row;

/* int8's own, the others those of the path that it extends. */
#define EXTENDS(isa, base)                                                                         \
    [HR_ISA_##isa] = {                                                                             \
        .run = { hr_peak_read_##base, hr_peak_streams_##base, hr_peak_f32_##base,                  \
                 hr_peak_i8_##isa },                                                               \
        .ops = { [HR_PEAK_F32] = &hr_peak_f32_ops_##base, [HR_PEAK_I8] = &hr_peak_i8_ops_##isa }   \
    }
#define ROW(isa) EXTENDS(isa, isa)
static const peak_row rows[HR_ISA_COUNT] = {
    ROW(scalar),
#if defined(__x86_64__)
    ROW(avx2),
    ROW(avx512),
#elif defined(__aarch64__)
    ROW(neon),
    EXTENDS(neon_dotprod, neon),
#endif
};
#undef ROW
#undef EXTENDS

/* The bf16 of a path, where the machine goes beyond what the path asks of it. */
static hr_peak_loop bf16_of(hr_isa isa)
{
#if defined(__x86_64__)
    if (isa == HR_ISA_avx512 && __builtin_cpu_supports("avx512bf16"))
        return (hr_peak_loop){ hr_peak_bf16_avx512, hr_peak_bf16_ops_avx512 };
#endif
    (void)isa;
    return (hr_peak_loop){ 0 };
}

hr_peak_loop hr_peak_loop_of(hr_isa isa, hr_peak what)
{
    if (what == HR_PEAK_BF16) return bf16_of(isa);
    const int64_t *ops = rows[isa].ops[what];
    return (hr_peak_loop){ rows[isa].run[what], ops ? *ops : 0 };
}
