/* 16 columns in arrays: what linear_body.h computes with, in plain C.
 *
 * Where the architecture has a fused multiply-add in its baseline, float rows use it; on others
 * fmaf is a library call, spent only once per group. */
#ifndef HEADRACE_CPU_KERNELS_COLUMNS_SCALAR_H
#define HEADRACE_CPU_KERNELS_COLUMNS_SCALAR_H

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "cpu/pack.h"

typedef struct cols_f {
    float v[HR_PACK_COLUMNS];
} cols_f;
typedef struct cols_i {
    int32_t v[HR_PACK_COLUMNS];
} cols_i;
typedef struct code_quad {
    uint8_t u[HR_PACK_COLUMNS * 4];
} code_quad;

enum { LANES = HR_PACK_COLUMNS };

static inline cols_f f_set1(float v)
{
    cols_f r;
    for (int c = 0; c < LANES; c++) r.v[c] = v;
    return r;
}
static inline cols_f f_load_f32(const void *p)
{
    cols_f r;
    memcpy(&r, p, sizeof r);
    return r;
}
static inline cols_f f_load_f16(const void *p)
{
    cols_f r;
    uint16_t h[LANES];
    memcpy(h, p, sizeof h);
    for (int c = 0; c < LANES; c++) r.v[c] = hr_f16_to_f32(h[c]);
    return r;
}
static inline void f_load_bf16_pair(const void *p, cols_f w[2])
{
    uint16_t h[2 * LANES];
    memcpy(h, p, sizeof h);
    for (int c = 0; c < 2 * LANES; c++) w[c % 2].v[c / 2] = hr_bf16_to_f32(h[c]);
}
static inline void f_store(float *to, cols_f v)
{
    memcpy(to, &v, sizeof v);
}
static inline cols_f f_add(cols_f a, cols_f b)
{
    for (int c = 0; c < LANES; c++) a.v[c] += b.v[c];
    return a;
}
static inline cols_f f_mul(cols_f a, cols_f b)
{
    for (int c = 0; c < LANES; c++) a.v[c] *= b.v[c];
    return a;
}
static inline cols_f f_fma(cols_f a, cols_f b, cols_f c)
{
    for (int i = 0; i < LANES; i++) c.v[i] = fmaf(a.v[i], b.v[i], c.v[i]);
    return c;
}
static inline cols_f f_madd(cols_f a, cols_f b, cols_f c)
{
#ifdef FP_FAST_FMAF
    return f_fma(a, b, c);
#else
    return f_add(f_mul(a, b), c);
#endif
}
static inline cols_f f_from_i(cols_i v)
{
    cols_f r;
    for (int c = 0; c < LANES; c++) r.v[c] = (float)v.v[c];
    return r;
}
static inline cols_i i_set1(int32_t v)
{
    cols_i r;
    for (int c = 0; c < LANES; c++) r.v[c] = v;
    return r;
}
static inline cols_i i_load_i32(const void *p)
{
    cols_i r;
    memcpy(&r, p, sizeof r);
    return r;
}
static inline cols_i i_load_u8(const void *p)
{
    cols_i r;
    for (int c = 0; c < LANES; c++) r.v[c] = ((const uint8_t *)p)[c];
    return r;
}
static inline cols_i i_load_i8(const void *p)
{
    cols_i r;
    for (int c = 0; c < LANES; c++) r.v[c] = ((const int8_t *)p)[c];
    return r;
}
/* Wraps, as the vector instructions do. */
static inline cols_i i_add(cols_i a, cols_i b)
{
    for (int c = 0; c < LANES; c++) a.v[c] = (int32_t)((uint32_t)a.v[c] + (uint32_t)b.v[c]);
    return a;
}
static inline cols_i i_shl(cols_i a, int bits)
{
    for (int c = 0; c < LANES; c++) a.v[c] = (int32_t)((uint32_t)a.v[c] << bits);
    return a;
}
static inline cols_i i_mul(cols_i a, cols_i b)
{
    for (int c = 0; c < LANES; c++) a.v[c] = (int32_t)((uint32_t)a.v[c] * (uint32_t)b.v[c]);
    return a;
}

static inline code_quad codes_load(hr_pack_form form, const uint8_t *group, int quad)
{
    code_quad r;
    if (form.group_bytes == 512) {
        memcpy(&r, group + quad * 64, sizeof r);
        return r;
    }
    int shift = quad >= 4 ? 4 : 0;
    for (int b = 0; b < LANES * 4; b++) r.u[b] = group[quad % 4 * 64 + b] >> shift & 15;
    for (int plane = 0; plane < form.planes; plane++)
        for (int b = 0; b < LANES * 4; b++) {
            int bit = group[256 + plane * 64 + quad * 8 + b / 8] >> b % 8 & 1;
            r.u[b] = (uint8_t)(r.u[b] | bit << (4 + plane));
        }
    return r;
}

static inline cols_i codes_column(code_quad u, int i)
{
    cols_i r;
    for (int c = 0; c < LANES; c++) r.v[c] = u.u[c * 4 + i];
    return r;
}

#endif
