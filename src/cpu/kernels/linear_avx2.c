/* Linear kernels for AVX2 with FMA and F16C.
 *
 * 16 columns are two registers. Codes of at most 6 bits go through VPMADDUBSW, whose pair sums
 * stay below 2^15 for as many quads as are added up in 16 bits; 8-bit codes would saturate it
 * (2 · 255 · 127), so they are split into even and odd bytes of 16 bits for VPMADDWD, which is
 * exact for every input. */
#include <immintrin.h>

#include "cpu/pack.h"

typedef struct cols_f {
    __m256 v[2];
} cols_f;
typedef struct cols_i {
    __m256i v[2];
} cols_i;
typedef cols_i code_quad;

enum { MOST_ROWS = 4, GROUP_ROWS = 4, MOST_PANELS = 1 };

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS cols_f f_set1(float v)
{
    return (cols_f){ { _mm256_set1_ps(v), _mm256_set1_ps(v) } };
}
ALWAYS cols_f f_load_f32(const void *p)
{
    return (cols_f){ { _mm256_loadu_ps(p), _mm256_loadu_ps((const float *)p + 8) } };
}
ALWAYS cols_f f_load_f16(const void *p)
{
    const __m128i *h = p;
    return (
        cols_f){ { _mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1)) } };
}
ALWAYS void f_load_bf16_pair(const void *p, cols_f w[2])
{
    const __m256i upper = _mm256_set1_epi32((int)0xffff0000);
    for (int h = 0; h < 2; h++) {
        __m256i both = _mm256_loadu_si256((const __m256i *)p + h);
        w[0].v[h] = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
        w[1].v[h] = _mm256_castsi256_ps(_mm256_and_si256(both, upper));
    }
}
ALWAYS void f_store(float *to, cols_f v)
{
    _mm256_storeu_ps(to, v.v[0]);
    _mm256_storeu_ps(to + 8, v.v[1]);
}
ALWAYS cols_f f_add(cols_f a, cols_f b)
{
    return (cols_f){ { _mm256_add_ps(a.v[0], b.v[0]), _mm256_add_ps(a.v[1], b.v[1]) } };
}
ALWAYS cols_f f_mul(cols_f a, cols_f b)
{
    return (cols_f){ { _mm256_mul_ps(a.v[0], b.v[0]), _mm256_mul_ps(a.v[1], b.v[1]) } };
}
ALWAYS cols_f f_fma(cols_f a, cols_f b, cols_f c)
{
    return (cols_f){ { _mm256_fmadd_ps(a.v[0], b.v[0], c.v[0]),
                       _mm256_fmadd_ps(a.v[1], b.v[1], c.v[1]) } };
}
ALWAYS cols_f f_madd(cols_f a, cols_f b, cols_f c)
{
    return f_fma(a, b, c);
}
ALWAYS cols_f f_from_i(cols_i v)
{
    return (cols_f){ { _mm256_cvtepi32_ps(v.v[0]), _mm256_cvtepi32_ps(v.v[1]) } };
}
ALWAYS cols_i i_set1(int32_t v)
{
    return (cols_i){ { _mm256_set1_epi32(v), _mm256_set1_epi32(v) } };
}
ALWAYS cols_i i_load_u8(const void *p)
{
    __m128i b = _mm_loadu_si128(p);
    return (cols_i){ { _mm256_cvtepu8_epi32(b), _mm256_cvtepu8_epi32(_mm_srli_si128(b, 8)) } };
}
ALWAYS cols_i i_load_i8(const void *p)
{
    __m128i b = _mm_loadu_si128(p);
    return (cols_i){ { _mm256_cvtepi8_epi32(b), _mm256_cvtepi8_epi32(_mm_srli_si128(b, 8)) } };
}
ALWAYS cols_i i_add(cols_i a, cols_i b)
{
    return (cols_i){ { _mm256_add_epi32(a.v[0], b.v[0]), _mm256_add_epi32(a.v[1], b.v[1]) } };
}
ALWAYS cols_i i_shl(cols_i a, int bits)
{
    return (cols_i){ { _mm256_slli_epi32(a.v[0], bits), _mm256_slli_epi32(a.v[1], bits) } };
}
ALWAYS cols_i i_mul(cols_i a, cols_i b)
{
    return (cols_i){ { _mm256_mullo_epi32(a.v[0], b.v[0]), _mm256_mullo_epi32(a.v[1], b.v[1]) } };
}

ALWAYS int32_t four_bytes(const void *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, 4);
    return v;
}

/* 32 bits to 32 bytes of 0 or `value`. */
ALWAYS __m256i spread_bits(const uint8_t *bits, int value)
{
    const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2,
                                             2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit_of = _mm256_set1_epi64x((long long)0x8040201008040201u);
    __m256i b = _mm256_shuffle_epi8(_mm256_set1_epi32(four_bytes(bits)), byte_of);
    __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(b, bit_of), bit_of);
    return _mm256_and_si256(set, _mm256_set1_epi8((char)value));
}

/* One half (8 columns) of quad j. */
ALWAYS __m256i codes_half(hr_pack_form form, const uint8_t *group, int quad, int h)
{
    if (form.group_bytes == 512)
        return _mm256_loadu_si256((const __m256i *)(group + quad * 64 + h * 32));
    __m256i both = _mm256_loadu_si256((const __m256i *)(group + quad % 4 * 64 + h * 32));
    if (quad >= 4) both = _mm256_srli_epi16(both, 4);
    __m256i u = _mm256_and_si256(both, _mm256_set1_epi8(15));
    for (int plane = 0; plane < form.planes; plane++) {
        const uint8_t *bits = group + 256 + plane * 64 + quad * 8 + h * 4;
        u = _mm256_or_si256(u, spread_bits(bits, 16 << plane));
    }
    return u;
}

ALWAYS code_quad codes_load(hr_pack_form form, const uint8_t *group, int quad)
{
    return (code_quad){ { codes_half(form, group, quad, 0), codes_half(form, group, quad, 1) } };
}

ALWAYS cols_i codes_column(code_quad u, int i)
{
    const __m256i byte = _mm256_set1_epi32(255);
    return (cols_i){ { _mm256_and_si256(_mm256_srli_epi32(u.v[0], i * 8), byte),
                       _mm256_and_si256(_mm256_srli_epi32(u.v[1], i * 8), byte) } };
}

/* 8-bit codes: even and odd bytes apart, as 16-bit numbers. */
ALWAYS void dot_bytes(const uint8_t *group, int half, const int8_t *x, int64_t stride, int R,
                      cols_i *acc)
{
    const __m256i low = _mm256_set1_epi16(255);
    for (int q = half * 4; q < half * 4 + 4; q++)
        for (int h = 0; h < 2; h++) {
            __m256i u = _mm256_loadu_si256((const __m256i *)(group + q * 64 + h * 32));
            __m256i even = _mm256_and_si256(u, low), odd = _mm256_srli_epi16(u, 8);
            for (int r = 0; r < R; r++) {
                __m256i v = _mm256_set1_epi32(four_bytes(x + r * stride + q * 4));
                __m256i v_even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
                __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(even, v_even),
                                               _mm256_madd_epi16(odd, _mm256_srai_epi16(v, 8)));
                acc[r].v[h] = _mm256_add_epi32(acc[r].v[h], sum);
            }
        }
}

/* Codes of 4, 5 or 6 bits. A pair is at most 2 · u · 128: four quads of 5-bit codes sum to 31,744
 * in 16 bits, two quads of 6-bit codes to 32,256. */
ALWAYS void dot_nibbles(hr_pack_form form, const uint8_t *group, int half, const int8_t *x,
                        int64_t stride, int R, cols_i *acc)
{
    const int run = form.planes == 2 ? 2 : 4; /* quads added up in 16 bits */
    const __m256i ones = _mm256_set1_epi16(1);
    for (int first = half * 4; first < half * 4 + 4; first += run)
        for (int h = 0; h < 2; h++) {
            __m256i sum[MOST_ROWS];
            for (int r = 0; r < R; r++) sum[r] = _mm256_setzero_si256();
            for (int q = first; q < first + run; q++) {
                __m256i u = codes_half(form, group, q, h);
                for (int r = 0; r < R; r++) {
                    __m256i v = _mm256_set1_epi32(four_bytes(x + r * stride + q * 4));
                    sum[r] = _mm256_add_epi16(sum[r], _mm256_maddubs_epi16(u, v));
                }
            }
            for (int r = 0; r < R; r++)
                acc[r].v[h] = _mm256_add_epi32(acc[r].v[h], _mm256_madd_epi16(sum[r], ones));
        }
}

ALWAYS void dot_half(hr_pack_form form, const uint8_t *const *groups, int half, const int8_t *x,
                     int64_t stride, int R, int P, cols_i *acc)
{
    const uint8_t *group = groups[0];
    (void)P;
    if (form.group_bytes == 512) dot_bytes(group, half, x, stride, R, acc);
    else dot_nibbles(form, group, half, x, stride, R, acc);
}

#undef ALWAYS
#include "cpu/kernels/linear_body.h"

void hr_kernel_linear_avx2(const hr_kernel_args *a, int64_t from, int64_t to);
void hr_kernel_linear_prep_avx2(const hr_kernel_args *a, int64_t from, int64_t to);

void hr_kernel_linear_avx2(const hr_kernel_args *a, int64_t from, int64_t to)
{
    linear_items(a, from, to);
}

void hr_kernel_linear_prep_avx2(const hr_kernel_args *a, int64_t from, int64_t to)
{
    prep_items(a, from, to);
}
