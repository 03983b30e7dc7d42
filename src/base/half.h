/* f16 and bf16 to and from f32, round to nearest even, NaN kept: the scalar definition.
 * Bit layouts: IEEE 754 binary16; bfloat16 is the upper half of binary32. */
#ifndef HEADRACE_BASE_HALF_H
#define HEADRACE_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t hr_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
static inline float hr_f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline float hr_bf16_to_f32(uint16_t h)
{
    return hr_f32_from_bits((uint32_t)h << 16);
}
static inline uint16_t hr_f32_to_bf16(float f)
{
    uint32_t u = hr_f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
static inline float hr_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 0x3ff;
    if (exp == 31) return hr_f32_from_bits(sign | 0x7f800000u | man << 13);
    if (exp) return hr_f32_from_bits(sign | (exp + 112) << 23 | man << 13);
    float f = (float)man * 0x1p-24f; /* zero and denormals, exact */
    return sign ? -f : f;
}
static inline uint16_t hr_f32_to_f16(float f)
{
    uint32_t u = hr_f32_bits(f), sign = u >> 16 & 0x8000, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));
    if (mag >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* rounds to infinity */
    if (mag < 0x38800000u) { /* denormal result: adding 0.5 lines the bits up and rounds */
        float shifted = hr_f32_from_bits(mag) + 0.5f;
        return (uint16_t)(sign | (hr_f32_bits(shifted) - 0x3f000000u));
    }
    mag += 0xfffu + (mag >> 13 & 1);
    return (uint16_t)(sign | (mag - 0x38000000u) >> 13);
}

#endif
