/* The table of peak loops, a row per instruction set. */
#include "cpu/peaks.h"

#include "cpu/kernels/peaks.h"

typedef struct peak_row {
    hr_peak_fn run[HR_PEAK_COUNT];
    const int64_t *ops[HR_PEAK_COUNT];
} peak_row;

/* A path's loops are those of the one that it extends, but for its own products of int8. */
#define LOOPS(isa, base, int8)                                                                     \
    [HR_ISA_##isa] = {                                                                             \
        .run = { hr_peak_read_##base, hr_peak_streams_##base, hr_peak_f32_##base,                  \
                 hr_peak_i8_##int8 },                                                              \
        .ops = { [HR_PEAK_F32] = &hr_peak_f32_ops_##base, [HR_PEAK_I8] = &hr_peak_i8_ops_##int8 }  \
    }
#define ROW(isa) LOOPS(isa, isa, isa)
static const peak_row rows[HR_ISA_COUNT] = {
    ROW(scalar),
#if defined(__x86_64__)
    ROW(avx2),   ROW(avx512), LOOPS(avx512_bf16, avx512, avx512), LOOPS(amx, avx512, amx),
#elif defined(__aarch64__)
    ROW(neon),
    LOOPS(neon_dotprod, neon, neon_dotprod),
#endif
};
#undef ROW
#undef LOOPS

static hr_peak_loop bf16_of(hr_isa isa)
{
#if defined(__x86_64__)
    if (isa == HR_ISA_avx512_bf16)
        return (hr_peak_loop){ hr_peak_bf16_avx512, hr_peak_bf16_ops_avx512 };
    if (isa == HR_ISA_amx) return (hr_peak_loop){ hr_peak_bf16_amx, hr_peak_bf16_ops_amx };
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
