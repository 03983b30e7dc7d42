/* What the bytes of every weight format mean: blocks to f32.
 *
 * Pure functions, callable from any thread. Written from the block layouts of the GGUF format
 * document (ggml's block structs of the same names), I4G from types.h; GGUF's are checked against
 * the `gguf` package's NumPy dequantisation bit for bit. One function per format, so that a layout
 * reads in one place: scale products are rounded to f32 in the order written, which is part of the
 * definition. */
#include "graph/types.h"

#include "base/half.h"

/* Columns of one scale group in a K-quant superblock of 256. */
enum { GROUP = 32, GROUPS = 8 };

static uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load_u32(const uint8_t *p)
{
    return load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

static float load_f16(const uint8_t *p)
{
    return hr_f16_to_f32(load_u16(p));
}

static void f32_block(const uint8_t *b, float *y)
{
    *y = hr_f32_from_bits(load_u32(b));
}

static void f16_block(const uint8_t *b, float *y)
{
    *y = load_f16(b);
}

static void bf16_block(const uint8_t *b, float *y)
{
    *y = hr_bf16_to_f32(load_u16(b));
}

/* The integer itself: the channel's scale lies in another tensor. */
static void i8c_block(const uint8_t *b, float *y)
{
    *y = (float)(int8_t)*b;
}

/* d f16 | 32 × int8 */
static void q8_0_block(const uint8_t *b, float *y)
{
    float d = load_f16(b);
    for (int i = 0; i < 32; i++) y[i] = (float)(int8_t)b[2 + i] * d;
}

/* Nibble i of 32 packed in 16 bytes: the low halves come first, then the high halves. */
static int nibble(const uint8_t *q, int i)
{
    return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}

/* d f16 | 32 × 4 bits, centred on 8 */
static void q4_0_block(const uint8_t *b, float *y)
{
    float d = load_f16(b);
    for (int i = 0; i < 32; i++) y[i] = d * (float)(nibble(b + 2, i) - 8);
}

/* d f16 | min f16 | 32 × 4 bits */
static void q4_1_block(const uint8_t *b, float *y)
{
    float d = load_f16(b), m = load_f16(b + 2);
    for (int i = 0; i < 32; i++) y[i] = d * (float)nibble(b + 4, i) + m;
}

/* d f16 | 32 high bits | 32 × 4 bits, centred on 16 */
static void q5_0_block(const uint8_t *b, float *y)
{
    float d = load_f16(b);
    uint32_t high = load_u32(b + 2);
    for (int i = 0; i < 32; i++) {
        int q = nibble(b + 6, i) | (int)(high >> i & 1) << 4;
        y[i] = d * (float)(q - 16);
    }
}

/* d f16 | min f16 | 32 high bits | 32 × 4 bits */
static void q5_1_block(const uint8_t *b, float *y)
{
    float d = load_f16(b), m = load_f16(b + 2);
    uint32_t high = load_u32(b + 4);
    for (int i = 0; i < 32; i++) {
        int q = nibble(b + 8, i) | (int)(high >> i & 1) << 4;
        y[i] = d * (float)q + m;
    }
}

/* 6-bit scale and min of group g out of the 12 bytes that hold eight of each: groups 0-3 whole in
 * bytes 0-3 and 4-7; groups 4-7 have their low nibbles in bytes 8-11 and their two high bits in the
 * spare bits of bytes 0-7. */
static void k_scale_min(const uint8_t *s, int g, int *scale, int *min)
{
    if (g < 4) {
        *scale = s[g] & 63;
        *min = s[g + 4] & 63;
    } else {
        *scale = (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
        *min = s[g + 4] >> 4 | (s[g] >> 6) << 4;
    }
}

/* d f16 | dmin f16 | 12 bytes of scales and mins | 4 × 32 bytes: two groups' nibbles each */
static void q4_k_block(const uint8_t *b, float *y)
{
    float d = load_f16(b), dmin = load_f16(b + 2);
    for (int g = 0; g < GROUPS; g++) {
        int scale, min;
        k_scale_min(b + 4, g, &scale, &min);
        float ds = d * (float)scale, dm = dmin * (float)min;
        const uint8_t *q = b + 16 + g / 2 * GROUP;
        for (int i = 0; i < GROUP; i++)
            y[g * GROUP + i] = ds * (float)(q[i] >> g % 2 * 4 & 15) - dm;
    }
}

/* d f16 | dmin f16 | 12 bytes of scales and mins | 32 bytes of high bits, bit g for group g |
 * 4 × 32 bytes: two groups' nibbles each */
static void q5_k_block(const uint8_t *b, float *y)
{
    float d = load_f16(b), dmin = load_f16(b + 2);
    const uint8_t *high = b + 16;
    for (int g = 0; g < GROUPS; g++) {
        int scale, min;
        k_scale_min(b + 4, g, &scale, &min);
        float ds = d * (float)scale, dm = dmin * (float)min;
        const uint8_t *low = b + 48 + g / 2 * GROUP;
        for (int i = 0; i < GROUP; i++) {
            int q = (low[i] >> g % 2 * 4 & 15) | (high[i] >> g & 1) << 4;
            y[g * GROUP + i] = ds * (float)q - dm;
        }
    }
}

/* 128 bytes of low nibbles | 64 bytes of high pairs | 16 × int8 scales, one per 16 columns | d f16.
 * Each half of 128 columns: nibbles of columns l and l + 64 share a byte, pairs of l, l + 32,
 * l + 64 and l + 96 share one. Centred on 32. */
static void q6_k_block(const uint8_t *b, float *y)
{
    float d = load_f16(b + 208);
    const int8_t *scales = (const int8_t *)(b + 192);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, l = i % 128;
        int low = b[half * 64 + l % 64] >> l / 64 * 4 & 15;
        int high = b[128 + half * 32 + l % 32] >> l / 32 * 2 & 3;
        float ds = d * (float)scales[i / 16];
        y[i] = ds * (float)((low | high << 4) - 32);
    }
}

/* d f32 | zero u32 | per 32 columns 16 bytes of nibbles */
static void i4g_block(const uint8_t *b, float *y, int columns)
{
    float d = hr_f32_from_bits(load_u32(b));
    int zero = (int)(load_u32(b + 4) & 31);
    for (int i = 0; i < columns; i++)
        y[i] = d * (float)(nibble(b + HR_I4G_HEAD + i / 32 * 16, i % 32) - zero);
}

static void i4g32_block(const uint8_t *b, float *y)
{
    i4g_block(b, y, 32);
}

static void i4g64_block(const uint8_t *b, float *y)
{
    i4g_block(b, y, 64);
}

static void i4g128_block(const uint8_t *b, float *y)
{
    i4g_block(b, y, 128);
}

void hr_format_dequantise(hr_format f, const void *from, int64_t blocks, float *to)
{
    static void (*const block[])(const uint8_t *b, float *y) = {
        [HR_FORMAT_F32] = f32_block,       [HR_FORMAT_F16] = f16_block,
        [HR_FORMAT_BF16] = bf16_block,     [HR_FORMAT_I8C] = i8c_block,
        [HR_FORMAT_Q8_0] = q8_0_block,     [HR_FORMAT_Q4_0] = q4_0_block,
        [HR_FORMAT_Q4_1] = q4_1_block,     [HR_FORMAT_Q5_0] = q5_0_block,
        [HR_FORMAT_Q5_1] = q5_1_block,     [HR_FORMAT_Q4_K] = q4_k_block,
        [HR_FORMAT_Q5_K] = q5_k_block,     [HR_FORMAT_Q6_K] = q6_k_block,
        [HR_FORMAT_I4G32] = i4g32_block,   [HR_FORMAT_I4G64] = i4g64_block,
        [HR_FORMAT_I4G128] = i4g128_block,
    };
    const uint8_t *b = from;
    int64_t elements = hr_format_block(f);
    size_t bytes = hr_format_block_bytes(f);
    for (int64_t i = 0; i < blocks; i++) block[f](b + (size_t)i * bytes, to + i * elements);
}
