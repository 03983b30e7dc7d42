/* The bucket lists of the compile specification, exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/bucket_list.h"

static void expect(const hr_bucket_list *b, const int64_t *want, int n)
{
    assert_int_equal(b->n, n);
    for (int i = 0; i < n; i++) assert_int_equal(b->at[i], want[i]);
}
#define EXPECT(list, ...)                                                                          \
    expect(&(list), (const int64_t[]){ __VA_ARGS__ },                                              \
           (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)))

static void tokens(void **state)
{
    (void)state;
    hr_bucket_list b;
    assert_int_equal(hr_buckets_tokens(512, 64, &b), HR_OK);
    EXPECT(b, 16, 32, 64, 128, 192, 256, 320, 384, 448, 512);
    assert_int_equal(hr_buckets_tokens(317, 64, &b), HR_OK);
    EXPECT(b, 16, 32, 64, 128, 192, 256, 320);
    assert_int_equal(hr_buckets_tokens(317, 0, &b), HR_OK);
    EXPECT(b, 16, 32, 64, 128, 256, 512);
    assert_int_equal(hr_buckets_tokens(2048, 0, &b), HR_OK);
    EXPECT(b, 16, 32, 64, 128, 256, 512, 1024, 2048);
    assert_int_equal(hr_buckets_tokens(1, 0, &b), HR_OK);
    EXPECT(b, 16);
    assert_int_equal(hr_buckets_tokens(586, 0, &b), HR_OK);
    EXPECT(b, 16, 32, 64, 128, 256, 512, 1024);
    assert_int_equal(hr_buckets_tokens(1 << 20, 1, &b), HR_INVALID_ARGUMENT);
}

static void requests(void **state)
{
    (void)state;
    hr_bucket_list b;
    assert_int_equal(hr_buckets_requests(36, &b), HR_OK);
    EXPECT(b, 8, 16, 32, 36);
    assert_int_equal(hr_buckets_requests(1, &b), HR_OK);
    EXPECT(b, 8);
    assert_int_equal(hr_buckets_requests(256, &b), HR_OK);
    EXPECT(b, 8, 16, 32, 64, 128, 256);
}

static void find(void **state)
{
    (void)state;
    hr_bucket_list b;
    assert_int_equal(hr_buckets_tokens(512, 64, &b), HR_OK);
    for (int64_t n = 0; n <= 512; n++) {
        int i = hr_buckets_find(&b, n);
        assert_true(b.at[i] >= n);
        assert_true(i == 0 || b.at[i - 1] < n);
    }
}

static void given(void **state)
{
    (void)state;
    hr_bucket_list t, r;
    hr_str good = HR_STR("{\"tokens\": [16, 100, 512], \"requests\": [4, 36]}");
    assert_int_equal(hr_buckets_parse(good, 512, 36, &t, &r), HR_OK);
    EXPECT(t, 16, 100, 512);
    EXPECT(r, 4, 36);
    assert_int_equal(hr_buckets_parse(good, 513, 36, &t, &r), HR_INVALID_ARGUMENT);
    assert_int_equal(hr_buckets_parse(good, 512, 37, &t, &r), HR_INVALID_ARGUMENT);
    const char *bad[] = { "{\"tokens\": [], \"requests\": [8]}",
                          "{\"tokens\": [16, 16], \"requests\": [8]}",
                          "{\"tokens\": [0, 16], \"requests\": [8]}",
                          "{\"tokens\": [16.5], \"requests\": [8]}",
                          "{\"tokens\": [16]}",
                          "[]",
                          "{" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_not_equal(hr_buckets_parse(hr_str_c(bad[i]), 1, 1, &t, &r), HR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens),
        cmocka_unit_test(requests),
        cmocka_unit_test(find),
        cmocka_unit_test(given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
