/* Linear kernels for 64-bit Arm, up to the integer product.
 *
 * Included by linear_neon.c, linear_neon_dotprod.c and linear_neon_i8mm.c, which add dot_half in
 * the instructions they may use, and then linear_body.h. 16 columns are four registers; a quad's
 * register v holds the codes of columns 4v … 4v+3, four k each, as SDOT and USDOT want them. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_NEON_BODY_H
#define HEADRACE_CPU_KERNELS_LINEAR_NEON_BODY_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cpu/pack.h"

enum { MOST_ROWS = 4, GROUP_ROWS = 4, MOST_PANELS = 1, REGISTERS = 4 };

typedef struct cols_f {
    float32x4_t v[REGISTERS];
} cols_f;
typedef struct cols_i {
    int32x4_t v[REGISTERS];
} cols_i;
typedef struct code_quad {
    uint8x16_t v[REGISTERS];
} code_quad;

#define ALWAYS static inline __attribute__((always_inline))
#define EACH   for (int v = 0; v < REGISTERS; v++)

ALWAYS cols_f f_set1(float x)
{
    cols_f r;
    EACH r.v[v] = vdupq_n_f32(x);
    return r;
}
ALWAYS cols_f f_load_f32(const void *p)
{
    cols_f r;
    EACH r.v[v] = vld1q_f32((const float *)p + v * 4);
    return r;
}
ALWAYS cols_f f_load_f16(const void *p)
{
    cols_f r;
    EACH r.v[v] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)p + v * 4)));
    return r;
}
ALWAYS void f_load_bf16_pair(const void *p, cols_f w[2])
{
    EACH
    {
        uint32x4_t both = vld1q_u32((const uint32_t *)p + v * 4);
        w[0].v[v] = vreinterpretq_f32_u32(vshlq_n_u32(both, 16));
        w[1].v[v] = vreinterpretq_f32_u32(vandq_u32(both, vdupq_n_u32(0xffff0000)));
    }
}
ALWAYS void f_store(float *to, cols_f x)
{
    EACH vst1q_f32(to + v * 4, x.v[v]);
}
ALWAYS cols_f f_add(cols_f a, cols_f b)
{
    EACH a.v[v] = vaddq_f32(a.v[v], b.v[v]);
    return a;
}
ALWAYS cols_f f_mul(cols_f a, cols_f b)
{
    EACH a.v[v] = vmulq_f32(a.v[v], b.v[v]);
    return a;
}
ALWAYS cols_f f_fma(cols_f a, cols_f b, cols_f c)
{
    EACH c.v[v] = vfmaq_f32(c.v[v], a.v[v], b.v[v]);
    return c;
}
ALWAYS cols_f f_madd(cols_f a, cols_f b, cols_f c)
{
    return f_fma(a, b, c);
}
ALWAYS cols_f f_from_i(cols_i x)
{
    cols_f r;
    EACH r.v[v] = vcvtq_f32_s32(x.v[v]);
    return r;
}
ALWAYS cols_i i_set1(int32_t x)
{
    cols_i r;
    EACH r.v[v] = vdupq_n_s32(x);
    return r;
}
ALWAYS cols_i i_load_u8(const void *p)
{
    uint8x16_t b = vld1q_u8(p);
    uint16x8_t low = vmovl_u8(vget_low_u8(b)), high = vmovl_high_u8(b);
    return (cols_i){ { vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
                       vreinterpretq_s32_u32(vmovl_high_u16(low)),
                       vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
                       vreinterpretq_s32_u32(vmovl_high_u16(high)) } };
}
ALWAYS cols_i i_load_i8(const void *p)
{
    int8x16_t b = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(b)), high = vmovl_high_s8(b);
    return (cols_i){ { vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low),
                       vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high) } };
}
ALWAYS cols_i i_add(cols_i a, cols_i b)
{
    EACH a.v[v] = vaddq_s32(a.v[v], b.v[v]);
    return a;
}
ALWAYS cols_i i_shl(cols_i a, int bits)
{
    EACH a.v[v] = vshlq_s32(a.v[v], vdupq_n_s32(bits));
    return a;
}
ALWAYS cols_i i_mul(cols_i a, cols_i b)
{
    EACH a.v[v] = vmulq_s32(a.v[v], b.v[v]);
    return a;
}

/* Bits 0 … 15 to 16 bytes of 0 or `value`. */
ALWAYS uint8x16_t spread_bits(const uint8_t *bits, uint8_t value)
{
    static const uint8_t bit_of[8] = { 1, 2, 4, 8, 16, 32, 64, 128 };
    uint8x8_t each = vld1_u8(bit_of);
    uint8x16_t b = vcombine_u8(vdup_n_u8(bits[0]), vdup_n_u8(bits[1]));
    return vandq_u8(vtstq_u8(b, vcombine_u8(each, each)), vdupq_n_u8(value));
}

ALWAYS code_quad codes_load(hr_pack_form form, const uint8_t *group, int quad)
{
    code_quad u;
    if (form.group_bytes == 512) {
        EACH u.v[v] = vld1q_u8(group + quad * 64 + v * 16);
        return u;
    }
    EACH
    {
        uint8x16_t both = vld1q_u8(group + quad % 4 * 64 + v * 16);
        u.v[v] = quad >= 4 ? vshrq_n_u8(both, 4) : vandq_u8(both, vdupq_n_u8(15));
        for (int plane = 0; plane < form.planes; plane++) {
            const uint8_t *bits = group + 256 + plane * 64 + quad * 8 + v * 2;
            u.v[v] = vorrq_u8(u.v[v], spread_bits(bits, (uint8_t)(16 << plane)));
        }
    }
    return u;
}

ALWAYS cols_i codes_column(code_quad u, int i)
{
    cols_i r;
    EACH
    {
        uint32x4_t all = vreinterpretq_u32_u8(u.v[v]);
        uint32x4_t down = vshlq_u32(all, vdupq_n_s32(-8 * i));
        r.v[v] = vreinterpretq_s32_u32(vandq_u32(down, vdupq_n_u32(255)));
    }
    return r;
}

/* Signed multiplication takes codes of 8 bits less 128, which is what they stand for; codes of
 * fewer bits are below 64 and stay as they are. */
ALWAYS bool codes_are_bytes(hr_pack_form form)
{
    return form.group_bytes == 512;
}
#define DOT_ZERO(form) (codes_are_bytes(form) ? 0 : (form).zero)

ALWAYS int8x16_t signed_codes(hr_pack_form form, uint8x16_t u)
{
    if (codes_are_bytes(form)) u = veorq_u8(u, vdupq_n_u8(128));
    return vreinterpretq_s8_u8(u);
}

#endif
