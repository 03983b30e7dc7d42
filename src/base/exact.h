/* Arithmetic that must give the same bits on every machine and instruction set: the masses that
 * tokens are drawn by, and the random words.
 *
 * Each function is a fixed sequence of IEEE f64 additions and multiplications (never fused: the
 * project compiles with -ffp-contract=off) or of integers. A vector kernel repeats the sequence
 * lane by lane; the constants are here for it. */
#ifndef HEADRACE_BASE_EXACT_H
#define HEADRACE_BASE_EXACT_H

#include <stdint.h>
#include <string.h>

/* exp(r) = 1 + r + r² q(r) for |r| ≤ ln 2 / 2; relative error 3.7e-18, so that rounding alone
 * decides the last bit. A Remez fit, f64 coefficients, highest degree first. */
#define HR_EXACT_EXP_Q(FIRST, X)                                                                   \
    FIRST(0x1.ad7f6f0799ee2p-26)                                                                   \
    X(0x1.28ad72cc30daap-22)                                                                       \
    X(0x1.71df2552390c2p-19)                                                                       \
    X(0x1.a0199a0c677acp-16)                                                                       \
    X(0x1.a01a012a57b51p-13)                                                                       \
    X(0x1.6c16c1842a11dp-10)                                                                       \
    X(0x1.1111111127be5p-7)                                                                        \
    X(0x1.555555555087cp-5)                                                                        \
    X(0x1.55555555554fap-3)                                                                        \
    X(0x1.000000000000ap-1)

#define HR_EXACT_LOG2E  0x1.71547652b82fep+0
#define HR_EXACT_LN2_HI 0x1.62e42fee00000p-1 /* 32 bits: times a small integer it is exact */
#define HR_EXACT_LN2_LO 0x1.a39ef35793c76p-33
#define HR_EXACT_ROUND  0x1.8p52 /* adding and subtracting it rounds to an integer, ties even */

/* Masses are fixed-point with this many fractional bits. */
#define HR_MASS_BITS 40
#define HR_MASS_ONE  ((uint64_t)1 << HR_MASS_BITS)
/* exp of anything below is under 2^-41 and has no mass. */
#define HR_MASS_LEAST (-0x1.c6cp+4) /* -28.421875; ln 2^-41 = -28.4190… */

static inline uint64_t hr_exact_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline double hr_exact_double(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* round(exp(y) · 2^40), ties to even; y above 0 counts as 0, NaN has no mass. */
static inline uint64_t hr_exact_mass(double y)
{
    y = y > HR_MASS_LEAST ? y : HR_MASS_LEAST; /* whose own mass rounds to 0 */
    y = y < 0 ? y : 0;
    double shifted = y * HR_EXACT_LOG2E + HR_EXACT_ROUND;
    double n = shifted - HR_EXACT_ROUND;
    double r = (y - n * HR_EXACT_LN2_HI) - n * HR_EXACT_LN2_LO;
#define HR_EXACT_FIRST(c) double q = c;
#define HR_EXACT_STEP(c)  q = q * r + c;
    HR_EXACT_EXP_Q(HR_EXACT_FIRST, HR_EXACT_STEP)
#undef HR_EXACT_FIRST
#undef HR_EXACT_STEP
    double p = (r * r) * q + r + 1.0;
    /* 2^(n + 40): the low bits of `shifted` are n */
    double scale = hr_exact_double((hr_exact_bits(shifted) + 1023 + HR_MASS_BITS) << 52);
    return hr_exact_bits(p * scale + 0x1p52) - hr_exact_bits(0x1p52);
}

/* Natural logarithm of a positive normal x, to about one unit in the last place: x = m 2^e with
 * m in [2/3, 4/3), ln m = 2 atanh((m - 1) / (m + 1)) by its series. */
static inline double hr_exact_log(double x)
{
    uint64_t u = hr_exact_bits(x);
    int e = (int)(u >> 52) - 1023;
    double m = hr_exact_double((u & (((uint64_t)1 << 52) - 1)) | (uint64_t)1023 << 52);
    if (m >= 4.0 / 3.0) {
        m *= 0.5;
        e++;
    }
    double s = (m - 1) / (m + 1), z = s * s, sum = 0;
    for (int k = 25; k >= 3; k -= 2) sum = sum * z + 1.0 / k;
    double lo = (double)e * HR_EXACT_LN2_LO + 2 * s * (z * sum);
    return (double)e * HR_EXACT_LN2_HI + (2 * s + lo);
}

/* High word of a 64 × 64 bit product: floor(a · b / 2^64). */
static inline uint64_t hr_exact_mul_high(uint64_t a, uint64_t b)
{
    uint64_t al = a & UINT32_MAX, ah = a >> 32, bl = b & UINT32_MAX, bh = b >> 32;
    uint64_t middle = ah * bl + (al * bl >> 32);
    uint64_t other = al * bh + (middle & UINT32_MAX);
    return ah * bh + (middle >> 32) + (other >> 32);
}

/* Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011):
 * a counter of four words and a key of two become four random words. */
static inline void hr_exact_philox(const uint32_t counter[4], const uint32_t key[2],
                                   uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* The word that draws the token at `position`: counter (position, 0, 0, 0), key = the seed's low
 * and high words, low word first in the result. */
static inline uint64_t hr_exact_word(const uint32_t seed[2], int32_t position)
{
    uint32_t out[4];
    hr_exact_philox((uint32_t[4]){ (uint32_t)position, 0, 0, 0 }, seed, out);
    return out[0] | (uint64_t)out[1] << 32;
}

/* Mass that top_p's survivors must reach out of `total` (below 2^62): p in 24 bits, floor. */
static inline uint64_t hr_exact_share(float p, uint64_t total)
{
    uint64_t bits = p > 0 ? (uint64_t)((double)p * 0x1p24 + 0.5) : 0;
    return (total >> 24) * bits + ((total & 0xFFFFFF) * bits >> 24);
}

/* What a token adds to the entropy of the masses: mass · -y, y rounded to 2^-20, in the masses' own
 * units. Below 2^39, so that a row's sum fits; y as hr_exact_mass takes it. */
#define HR_EXACT_DEPTH_BITS 20
static inline uint64_t hr_exact_spread(double y, uint64_t mass)
{
    y = y > HR_MASS_LEAST ? y : HR_MASS_LEAST;
    y = y < 0 ? y : 0;
    double depth = 0x1p52 - y * 0x1p20; /* ties to even */
    return mass * (hr_exact_bits(depth) - hr_exact_bits(0x1p52)) >> HR_EXACT_DEPTH_BITS;
}

/* -Σ p ln p in nats, p = mass / total and ln p = y - ln(total / 2^40), from the sums of a row's
 * masses and spreads. */
static inline float hr_exact_entropy(uint64_t total, uint64_t spread)
{
    if (!total) return 0;
    return (float)(hr_exact_log((double)total * 0x1p-40) + (double)spread / (double)total);
}

/* Smallest f32 y with y ≥ ln(min_p); -inf when min_p is off. */
static inline float hr_exact_min_p(float min_p)
{
    if (!(min_p > 0)) return -__builtin_inff();
    if (min_p >= 1) return 0;
    double least = hr_exact_log((double)min_p);
    float y = (float)least;
    return (double)y < least ? __builtin_nextafterf(y, 0) : y;
}

#endif
