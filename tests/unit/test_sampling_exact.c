/* base/exact.h: masses, logarithm, random words, against libm in long double and published values.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/exact.h"

/* The declared value is the exact one rounded. A result may differ from it only where the exact
 * value lies within the polynomial's error, 2^-12 at most, of half-way between two integers. */
static void test_masses_are_rounded_exponentials(void **state)
{
    (void)state;
    srand48(1);
    long ties = 0;
    for (int i = 0; i < 2000000; i++) {
        double y = -30 * drand48() * drand48();
        if (i % 2) y = (double)(float)y;
        long double exact = expl((long double)y) * 0x1p40L;
        long double off = fabsl(exact - (long double)hr_exact_mass(y));
        assert_true(off <= 0.5L + 0x1p-12L);
        ties += off > 0.5L;
    }
    assert_true(ties < 200);
}

static void test_masses_at_the_ends(void **state)
{
    (void)state;
    assert_true(hr_exact_mass(0) == HR_MASS_ONE);
    assert_true(hr_exact_mass(-0.0) == HR_MASS_ONE);
    assert_true(hr_exact_mass(5) == HR_MASS_ONE);
    assert_true(hr_exact_mass(-1e-300) == HR_MASS_ONE);
    assert_true(hr_exact_mass(-28.418) == 1);
    assert_true(hr_exact_mass(-28.420) == 0);
    assert_true(hr_exact_mass(HR_MASS_LEAST) == 0);
    assert_true(hr_exact_mass(-1e300) == 0);
    assert_true(hr_exact_mass(-INFINITY) == 0);
    assert_true(hr_exact_mass(NAN) == 0);
}

/* A larger value never weighs less: thresholds rely on it. Neighbouring floats all along. */
static void test_masses_rise(void **state)
{
    (void)state;
    for (float y = -28.5f; y < 0; y += 0.37f) {
        float at = y;
        uint64_t before = hr_exact_mass((double)at);
        for (int i = 0; i < 2000; i++) {
            at = nextafterf(at, 1);
            uint64_t w = hr_exact_mass((double)at);
            assert_true(w >= before);
            before = w;
        }
    }
}

static void test_logarithm(void **state)
{
    (void)state;
    srand48(2);
    assert_true(hr_exact_log(1) == 0);
    for (int i = 0; i < 500000; i++) {
        double x = i % 2 ? exp(100 * drand48() - 50) : 1 + 1e-3 * (drand48() - 0.5);
        long double exact = logl((long double)x);
        assert_true(fabsl((long double)hr_exact_log(x) - exact) <= 3 * 0x1p-53L * fabsl(exact));
    }
}

static void test_high_word(void **state)
{
    (void)state;
    assert_true(hr_exact_mul_high(UINT64_MAX, UINT64_MAX) == UINT64_MAX - 1);
    assert_true(hr_exact_mul_high(UINT64_MAX, 1) == 0);
    assert_true(hr_exact_mul_high(0, UINT64_MAX) == 0);
    assert_true(hr_exact_mul_high((uint64_t)1 << 63, 10) == 5);
    assert_true(hr_exact_mul_high(0xDEADBEEFCAFEBABE, 0x0123456789ABCDEF) == 0xFD5BDEEEB2A01D);
}

/* Random123's known-answer file, philox4x32 with 10 rounds. */
static void test_published_words(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        { { 0 }, { 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        hr_exact_philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
    assert_true(hr_exact_word((uint32_t[]){ 0, 0 }, 0) == 0xe169c58d6627e8d5);
}

static void test_shares(void **state)
{
    (void)state;
    assert_true(hr_exact_share(0.5f, HR_MASS_ONE * 2) == HR_MASS_ONE);
    assert_true(hr_exact_share(0, HR_MASS_ONE) == 0);
    assert_true(hr_exact_share(1e-9f, HR_MASS_ONE) == 0);
    assert_true(hr_exact_share(0.25f, 7) == 1);
    assert_true(hr_exact_share(0.75f, ((uint64_t)1 << 61) + 2) == ((uint64_t)3 << 59) + 1);
}

static void test_min_p_as_a_distance(void **state)
{
    (void)state;
    assert_true(hr_exact_min_p(0) == -INFINITY);
    assert_true(hr_exact_min_p(NAN) == -INFINITY);
    assert_true(hr_exact_min_p(1) == 0);
    srand48(3);
    for (int i = 0; i < 100000; i++) {
        float p = (float)(drand48() * drand48()) + 1e-12f, y = hr_exact_min_p(p);
        assert_true(expl((long double)y) >= (long double)p * (1 - 0x1p-50L));
        assert_true(expl((long double)nextafterf(y, -100)) < (long double)p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masses_are_rounded_exponentials),
        cmocka_unit_test(test_masses_at_the_ends),
        cmocka_unit_test(test_masses_rise),
        cmocka_unit_test(test_logarithm),
        cmocka_unit_test(test_high_word),
        cmocka_unit_test(test_published_words),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_min_p_as_a_distance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
