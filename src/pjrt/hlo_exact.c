/* base/exact.h in StableHLO, so that a device chooses the tokens that ref chooses.
 *
 * Pure functions over a text buffer. The f64 sequences hold bit for bit on any device whose f64 is
 * IEEE's, although compilers behind a plugin may fuse a product into the sum that follows: each
 * product that is not exact goes through hr_hlo_apart first. */
#include <math.h>

#include "base/exact.h"
#include "pjrt/hlo_exact.h"

/* ---- exact f64 ------------------------------------------------------------------------------ */

/* A minimum of the bits as a signed integer, with a bound that only one NaN is above: it changes no
 * number, no compiler can know that, and a sum cannot be fused with an integer operation. */
hr_hlo_value hr_hlo_apart(hr_hlo *h, hr_hlo_value x)
{
    bool wide = x.shape.type == HR_HLO_F64;
    hr_hlo_value bits = hr_hlo_bitcast(h, x, wide ? HR_HLO_I64 : HR_HLO_I32);
    bits = hr_hlo_binary_i(h, "minimum", bits, wide ? INT64_MAX - 1 : INT32_MAX - 1);
    return hr_hlo_bitcast(h, bits, x.shape.type);
}

static hr_hlo_value add(hr_hlo *h, hr_hlo_value a, hr_hlo_value b)
{
    return hr_hlo_binary(h, "add", a, b);
}
static hr_hlo_value subtract(hr_hlo *h, hr_hlo_value a, hr_hlo_value b)
{
    return hr_hlo_binary(h, "subtract", a, b);
}
/* Rounded, whatever comes after. */
static hr_hlo_value times(hr_hlo *h, hr_hlo_value a, hr_hlo_value b)
{
    return hr_hlo_apart(h, hr_hlo_binary(h, "multiply", a, b));
}
static hr_hlo_value times_f(hr_hlo *h, hr_hlo_value a, double b)
{
    return hr_hlo_apart(h, hr_hlo_binary_f(h, "multiply", a, b));
}

/* y within what has a mass and 0; NaN becomes the lower end. */
static hr_hlo_value within_masses(hr_hlo *h, hr_hlo_value y)
{
    hr_hlo_value least = hr_hlo_splat_f(h, y.shape, HR_MASS_LEAST);
    y = hr_hlo_select(h, hr_hlo_compare(h, "GT", y, least), y, least);
    return hr_hlo_select(h, hr_hlo_compare_f(h, "LT", y, 0), y, hr_hlo_splat_f(h, y.shape, 0));
}

static hr_hlo_value exp_polynomial(hr_hlo *h, hr_hlo_value r)
{
    static const double c[] = {
#define COEFFICIENT(x) x,
        HR_EXACT_EXP_Q(COEFFICIENT, COEFFICIENT)
#undef COEFFICIENT
    };
    hr_hlo_value q = hr_hlo_splat_f(h, r.shape, c[0]);
    for (size_t i = 1; i < sizeof c / sizeof *c; i++)
        q = hr_hlo_binary_f(h, "add", times(h, q, r), c[i]);
    return hr_hlo_binary_f(h, "add", add(h, times(h, times(h, r, r), q), r), 1.0);
}

/* p · 2^(n + HR_MASS_BITS), rounded to an integer; the low bits of `shifted` are n. */
static hr_hlo_value scaled(hr_hlo *h, hr_hlo_value p, hr_hlo_value shifted)
{
    hr_hlo_value e = hr_hlo_bitcast(h, shifted, HR_HLO_I64);
    e = hr_hlo_binary_i(h, "add", e, 1023 + HR_MASS_BITS);
    e = hr_hlo_bitcast(h, hr_hlo_binary_i(h, "shift_left", e, 52), HR_HLO_F64);
    hr_hlo_value sum = hr_hlo_binary_f(h, "add", times(h, p, e), 0x1p52);
    return hr_hlo_binary_i(h, "subtract", hr_hlo_bitcast(h, sum, HR_HLO_I64),
                           (int64_t)hr_exact_bits(0x1p52));
}

hr_hlo_value hr_hlo_mass(hr_hlo *h, hr_hlo_value y)
{
    y = within_masses(h, y);
    hr_hlo_value shifted = hr_hlo_binary_f(h, "add", times_f(h, y, HR_EXACT_LOG2E), HR_EXACT_ROUND);
    shifted = hr_hlo_apart(h, shifted); /* what was added must not be taken off as a constant */
    hr_hlo_value n = hr_hlo_binary_f(h, "subtract", shifted, HR_EXACT_ROUND);
    hr_hlo_value r = subtract(h, y, times_f(h, n, HR_EXACT_LN2_HI));
    r = subtract(h, r, times_f(h, n, HR_EXACT_LN2_LO));
    return scaled(h, exp_polynomial(h, r), shifted);
}

/* x = m 2^e, m in [2/3, 4/3) */
static void split(hr_hlo *h, hr_hlo_value x, hr_hlo_value *m, hr_hlo_value *e)
{
    hr_hlo_value u = hr_hlo_bitcast(h, x, HR_HLO_I64);
    hr_hlo_value fraction = hr_hlo_binary_i(h, "and", u, ((int64_t)1 << 52) - 1);
    fraction = hr_hlo_binary_i(h, "or", fraction, (int64_t)1023 << 52);
    *m = hr_hlo_bitcast(h, fraction, HR_HLO_F64);
    *e = hr_hlo_binary_i(h, "shift_right_logical", u, 52);
    *e = hr_hlo_convert(h, hr_hlo_binary_i(h, "subtract", *e, 1023), HR_HLO_F64);
    hr_hlo_value high = hr_hlo_compare_f(h, "GE", *m, 4.0 / 3.0);
    *m = hr_hlo_select(h, high, hr_hlo_binary_f(h, "multiply", *m, 0.5), *m);
    *e = hr_hlo_select(h, high, hr_hlo_binary_f(h, "add", *e, 1), *e);
}

hr_hlo_value hr_hlo_log(hr_hlo *h, hr_hlo_value x)
{
    hr_hlo_value m, e;
    split(h, x, &m, &e);
    hr_hlo_value s = hr_hlo_binary(h, "divide", hr_hlo_binary_f(h, "subtract", m, 1),
                                   hr_hlo_binary_f(h, "add", m, 1));
    hr_hlo_value z = times(h, s, s), sum = hr_hlo_splat_f(h, x.shape, 1.0 / 25);
    for (int k = 23; k >= 3; k -= 2) sum = hr_hlo_binary_f(h, "add", times(h, sum, z), 1.0 / k);
    hr_hlo_value twice = times_f(h, s, 2);
    hr_hlo_value lo = add(h, times_f(h, e, HR_EXACT_LN2_LO), times(h, twice, times(h, z, sum)));
    return add(h, times_f(h, e, HR_EXACT_LN2_HI), add(h, twice, lo));
}

hr_hlo_value hr_hlo_spread(hr_hlo *h, hr_hlo_value y, hr_hlo_value mass)
{
    hr_hlo_value depth = times_f(h, within_masses(h, y), -0x1p20);
    depth = hr_hlo_bitcast(h, hr_hlo_binary_f(h, "add", depth, 0x1p52), HR_HLO_I64);
    depth = hr_hlo_binary_i(h, "subtract", depth, (int64_t)hr_exact_bits(0x1p52));
    return hr_hlo_binary_i(h, "shift_right_logical", hr_hlo_binary(h, "multiply", mass, depth),
                           HR_EXACT_DEPTH_BITS);
}

hr_hlo_value hr_hlo_entropy(hr_hlo *h, hr_hlo_value total, hr_hlo_value spread)
{
    hr_hlo_value one = hr_hlo_splat_f(h, hr_hlo_retype(total.shape, HR_HLO_F64), 1);
    hr_hlo_value some = hr_hlo_compare_i(h, "GT", total, 0);
    total = hr_hlo_select(h, some, hr_hlo_convert(h, total, HR_HLO_F64), one);
    hr_hlo_value mean = hr_hlo_binary(h, "divide", hr_hlo_convert(h, spread, HR_HLO_F64), total);
    hr_hlo_value log = hr_hlo_log(h, hr_hlo_binary_f(h, "multiply", total, 0x1p-40));
    hr_hlo_value nats = hr_hlo_convert(h, add(h, log, mean), HR_HLO_F32);
    return hr_hlo_select(h, some, nats, hr_hlo_splat_f(h, nats.shape, 0));
}

hr_hlo_value hr_hlo_min_p(hr_hlo *h, hr_hlo_value p)
{
    hr_hlo_value on = hr_hlo_compare_f(h, "GT", p, 0), full = hr_hlo_compare_f(h, "GE", p, 1);
    hr_hlo_value least = hr_hlo_log(h, hr_hlo_convert(h, p, HR_HLO_F64));
    hr_hlo_value y = hr_hlo_convert(h, least, HR_HLO_F32);
    hr_hlo_value below = hr_hlo_compare(h, "LT", hr_hlo_convert(h, y, HR_HLO_F64), least);
    hr_hlo_value bits = hr_hlo_bitcast(h, y, HR_HLO_I32);
    bits = hr_hlo_binary_i(h, "subtract", bits, 1); /* y < 0: one step nearer to it */
    y = hr_hlo_select(h, below, hr_hlo_bitcast(h, bits, HR_HLO_F32), y);
    y = hr_hlo_select(h, full, hr_hlo_splat_f(h, p.shape, 0), y);
    return hr_hlo_select(h, on, y, hr_hlo_splat_f(h, p.shape, (double)-INFINITY));
}

/* ---- exact integers ------------------------------------------------------------------------- */

hr_hlo_value hr_hlo_share(hr_hlo *h, hr_hlo_value p, hr_hlo_value total)
{
    hr_hlo_value bits = times_f(h, hr_hlo_convert(h, p, HR_HLO_F64), 0x1p24);
    bits = hr_hlo_convert(h, hr_hlo_binary_f(h, "add", bits, 0.5), HR_HLO_I64);
    bits =
        hr_hlo_select(h, hr_hlo_compare_f(h, "GT", p, 0), bits, hr_hlo_splat_i(h, bits.shape, 0));
    hr_hlo_value high = hr_hlo_binary_i(h, "shift_right_logical", total, 24);
    hr_hlo_value low = hr_hlo_binary_i(h, "and", total, 0xFFFFFF);
    low = hr_hlo_binary(h, "multiply", low, bits);
    return add(h, hr_hlo_binary(h, "multiply", high, bits),
               hr_hlo_binary_i(h, "shift_right_logical", low, 24));
}

static hr_hlo_value low_half(hr_hlo *h, hr_hlo_value x)
{
    return hr_hlo_binary_i(h, "and", x, UINT32_MAX);
}
static hr_hlo_value high_half(hr_hlo *h, hr_hlo_value x)
{
    return hr_hlo_binary_i(h, "shift_right_logical", x, 32);
}

hr_hlo_value hr_hlo_mul_high(hr_hlo *h, hr_hlo_value a, hr_hlo_value b)
{
    b = hr_hlo_convert(h, b, HR_HLO_UI64);
    hr_hlo_value al = low_half(h, a), ah = high_half(h, a);
    hr_hlo_value bl = low_half(h, b), bh = high_half(h, b);
    hr_hlo_value middle = high_half(h, hr_hlo_binary(h, "multiply", al, bl));
    middle = add(h, hr_hlo_binary(h, "multiply", ah, bl), middle);
    hr_hlo_value other = add(h, hr_hlo_binary(h, "multiply", al, bh), low_half(h, middle));
    hr_hlo_value high = add(h, hr_hlo_binary(h, "multiply", ah, bh), high_half(h, middle));
    return hr_hlo_convert(h, add(h, high, high_half(h, other)), HR_HLO_I64);
}

/* ui32 [R] × a constant: both words of the product. */
static void multiply_wide(hr_hlo *h, hr_hlo_value x, uint32_t by, hr_hlo_value *high,
                          hr_hlo_value *low)
{
    hr_hlo_value wide = hr_hlo_binary_i(h, "multiply", hr_hlo_convert(h, x, HR_HLO_UI64), by);
    *high = hr_hlo_convert(h, high_half(h, wide), HR_HLO_UI32);
    *low = hr_hlo_convert(h, wide, HR_HLO_UI32);
}

static hr_hlo_value exclusive_or(hr_hlo *h, hr_hlo_value a, hr_hlo_value b, hr_hlo_value c)
{
    return hr_hlo_binary(h, "xor", hr_hlo_binary(h, "xor", a, b), c);
}

static void philox_round(hr_hlo *h, hr_hlo_value c[4], hr_hlo_value k[2])
{
    hr_hlo_value a_high, a_low, b_high, b_low;
    multiply_wide(h, c[0], 0xD2511F53u, &a_high, &a_low);
    multiply_wide(h, c[2], 0xCD9E8D57u, &b_high, &b_low);
    c[0] = exclusive_or(h, b_high, c[1], k[0]);
    c[1] = b_low;
    c[2] = exclusive_or(h, a_high, c[3], k[1]);
    c[3] = a_low;
    k[0] = hr_hlo_binary_i(h, "add", k[0], 0x9E3779B9u);
    k[1] = hr_hlo_binary_i(h, "add", k[1], 0xBB67AE85u);
}

hr_hlo_value hr_hlo_word(hr_hlo *h, hr_hlo_value seed, hr_hlo_value position)
{
    hr_hlo_shape rows = hr_hlo_retype(position.shape, HR_HLO_UI32);
    hr_hlo_value zero = hr_hlo_splat_i(h, rows, 0);
    hr_hlo_value c[4] = { hr_hlo_bitcast(h, position, HR_HLO_UI32), zero, zero, zero };
    hr_hlo_value k[2];
    for (int i = 0; i < 2; i++) k[i] = hr_hlo_reshape(h, hr_hlo_slice(h, seed, 1, i, i + 1), rows);
    for (int round = 0; round < 10; round++) philox_round(h, c, k);
    hr_hlo_value high = hr_hlo_convert(h, c[1], HR_HLO_UI64);
    high = hr_hlo_binary_i(h, "shift_left", high, 32);
    return hr_hlo_binary(h, "or", hr_hlo_convert(h, c[0], HR_HLO_UI64), high);
}
