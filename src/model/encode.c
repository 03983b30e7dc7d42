/* Rounding to nearest, format by format.
 *
 * Pure functions, any thread. I8C and I4G: as compressed-tensors rounds, ties to even; a scale has
 * the dtype of the checkpoint, rounded up to it before numbers are divided by it, so that a tool
 * that keeps scales so computes with these very integers. Q8_0 and Q4_0: as the `gguf` package
 * quantises, byte for byte. */
#include "model/encode.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

enum { BLOCK = 32 };

/* Largest size among n numbers; NaN and infinities stay. */
static float largest(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        if (!(size <= most)) most = size;
        if (most != most) break;
    }
    return most;
}

/* The least number of the checkpoint's dtype that is not below s; s is positive. */
static float scale_in_dtype(hr_format stored, float s)
{
    if (stored != HR_FORMAT_BF16) return s;
    uint32_t u = hr_f32_bits(s);
    return hr_f32_from_bits((u + 0xffffu) & 0xffff0000u);
}

/* Zeros have a scale too, for somebody will divide by it. */
static float scale_of(hr_format stored, const float *x, int64_t n, float steps)
{
    float most = largest(x, n);
    return most > 0 ? scale_in_dtype(stored, most / steps) : 1.0f;
}

static int rounded(float x, float scale, int low, int high)
{
    float q = rintf(x / scale);
    return q > (float)high ? high : q < (float)low ? low : (int)q;
}

static float encode_i8c(hr_format stored, const float *row, int64_t K, int8_t *to)
{
    float scale = scale_of(stored, row, K, 127.0f);
    for (int64_t i = 0; i < K; i++) to[i] = (int8_t)rounded(row[i], scale, -127, 127);
    return scale;
}

/* Two numbers a byte: of 32 the i-th and the one 16 further on. */
static void put_nibbles(const uint8_t u[BLOCK], uint8_t *to)
{
    for (int i = 0; i < BLOCK / 2; i++) to[i] = (uint8_t)(u[i] | u[i + BLOCK / 2] << 4);
}

/* -8 to 7, the largest number being 7.5 steps. */
static float encode_i4g(hr_format f, hr_format stored, const float *row, uint8_t *to)
{
    int64_t columns = hr_format_block(f);
    const uint32_t zero = 8;
    float scale = scale_of(stored, row, columns, 7.5f);
    memcpy(to, &scale, sizeof scale);
    memcpy(to + sizeof scale, &zero, sizeof zero);
    to += HR_I4G_HEAD;
    for (int64_t k = 0; k < columns; k += BLOCK, to += BLOCK / 2) {
        uint8_t u[BLOCK];
        for (int i = 0; i < BLOCK; i++) u[i] = (uint8_t)(rounded(row[k + i], scale, -8, 7) + 8);
        put_nibbles(u, to);
    }
    return scale;
}

static void put_f16(float d, uint8_t *to)
{
    uint16_t half = hr_f32_to_f16(d);
    memcpy(to, &half, sizeof half);
}

/* The scale of a block is rounded to f16 after the numbers were divided by it; halves go away from
 * zero. */
static void encode_q8_0(const float *row, uint8_t *to)
{
    float d = largest(row, BLOCK) / 127, inverse = d > 0 ? 1 / d : 0;
    put_f16(d, to);
    for (int i = 0; i < BLOCK; i++) to[2 + i] = (uint8_t)(int8_t)roundf(row[i] * inverse);
}

/* The number of the largest size is -8 steps, whatever its sign. */
static void encode_q4_0(const float *row, uint8_t *to)
{
    float most = 0;
    uint8_t u[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        if (fabsf(row[i]) > fabsf(most)) most = row[i];
    float d = most / -8, inverse = d != 0 ? 1 / d : 0;
    put_f16(d, to);
    for (int i = 0; i < BLOCK; i++) {
        float q = truncf(row[i] * inverse + 8.5f);
        u[i] = (uint8_t)(q > 15 ? 15 : q < 0 ? 0 : q);
    }
    put_nibbles(u, to + 2);
}

/* A block of a format that has scales inside. */
static float encode_block(hr_format f, hr_format stored, const float *row, uint8_t *to)
{
    if (hr_format_has_zero_points(f)) return encode_i4g(f, stored, row, to);
    if (f == HR_FORMAT_Q8_0) encode_q8_0(row, to);
    else encode_q4_0(row, to);
    return 1;
}

static void encode_dense(hr_format f, const float *row, int64_t K, void *to)
{
    for (int64_t i = 0; i < K; i++)
        if (f == HR_FORMAT_F32) ((float *)to)[i] = row[i];
        else if (f == HR_FORMAT_F16) ((uint16_t *)to)[i] = hr_f32_to_f16(row[i]);
        else ((uint16_t *)to)[i] = hr_f32_to_bf16(row[i]);
}

hr_status hr_encode_row(const char *name, hr_format f, hr_format stored, const float *row,
                        int64_t K, void *to, float *scale)
{
    int64_t block = hr_format_block(f);
    size_t bytes = hr_format_block_bytes(f);
    float least = 1;
    if (!(largest(row, K) < INFINITY))
        return hr_fail(HR_INVALID_ARGUMENT, "%s has numbers that are not finite", name);
    if (f == HR_FORMAT_I8C) {
        *scale = least = encode_i8c(stored, row, K, to);
    } else if (hr_format_is_blocks(f)) {
        for (int64_t k = 0; k < K; k += block) {
            float s = encode_block(f, stored, row + k, (uint8_t *)to + (size_t)(k / block) * bytes);
            if (!(s >= least)) least = s;
        }
    } else {
        encode_dense(f, row, K, to);
    }
    return least > 0 ? HR_OK : hr_fail(HR_INVALID_ARGUMENT, "%s: a row is too small", name);
}
