/* Instruction-set paths: one list, weakest first. A path is everything one machine computes with;
 * results may differ between paths in the last bits, never within one. */
#ifndef HEADRACE_CPU_ISA_H
#define HEADRACE_CPU_ISA_H

#include <stdbool.h>

#include "base/status.h"

#define HR_ISA_LIST(X)                                                                             \
    X(scalar)       /* plain C for the baseline of the architecture */                             \
    X(avx2)         /* AVX2, FMA, F16C, BMI2 */                                                    \
    X(avx512)       /* AVX512 F BW DQ VL VNNI */                                                   \
    X(avx512_bf16)  /* products of bf16 besides, where they pay (isa.c) */                         \
    X(amx)          /* tiles of int8 and bf16 besides; when asked */                               \
    X(neon)         /* what every 64-bit Arm has */                                                \
    X(neon_dotprod) /* SDOT and UDOT besides */

typedef enum hr_isa {
#define HR_ISA_ENUM(name) HR_ISA_##name,
    HR_ISA_LIST(HR_ISA_ENUM)
#undef HR_ISA_ENUM
        HR_ISA_COUNT,
} hr_isa;

const char *hr_isa_name(hr_isa isa);
/* The processor has the instructions and the operating system saves their registers. */
bool hr_isa_available(hr_isa isa);
/* bf16 rows and bf16 weights are multiplied as they are, not as f32. */
bool hr_isa_bf16(hr_isa isa);
/* `name` forces a path; NULL asks HEADRACE_ISA; without either, the best available that pays on
 * this processor. */
HR_MUST_USE hr_status hr_isa_choose(const char *name, hr_isa *out);

/* Tells the processor that this thread polls. */
void hr_isa_relax(void);

#endif
