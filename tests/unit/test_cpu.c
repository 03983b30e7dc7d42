/* The native backend's start: threads under quotas, instruction sets by name, buffers, the memory
 * plan. Faults H01 of the known ones. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu/cpu.h"
#include "cpu/isa.h"
#include "cpu/memplan.h"
#include "cpu/threads_int.h"

/* ---- threads --------------------------------------------------------------------------------- */

static char root[128];

static const char *path_of(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

/* Writes a file below the test's folder; folders on the way are made. */
static void put_file(const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s", path_of(name));
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(path, 0700);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int quota(void)
{
    char proc[4096];
    snprintf(proc, sizeof proc, "%s", path_of("cgroup"));
    return hr_threads_quota(proc, path_of("fs"));
}

static int new_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/headrace-threads-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[200];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static void test_quota_v2(void **state)
{
    (void)state;
    assert_int_equal(quota(), INT_MAX); /* no files at all */
    put_file("cgroup", "0::/\n");
    put_file("fs/cpu.max", "200000 100000\n");
    assert_int_equal(quota(), 2);
    put_file("fs/cpu.max", "765000 100000\n");
    assert_int_equal(quota(), 7);
    put_file("fs/cpu.max", "50000 100000\n");
    assert_int_equal(quota(), 1); /* never 0 */
    put_file("fs/cpu.max", "max 100000\n");
    assert_int_equal(quota(), INT_MAX);
    put_file("fs/cpu.max", "");
    assert_int_equal(quota(), INT_MAX);
}

/* The tightest group on the way up decides. */
static void test_quota_of_parents(void **state)
{
    (void)state;
    put_file("cgroup", "0::/a/b/c\n");
    put_file("fs/a/b/c/cpu.max", "800000 100000\n");
    put_file("fs/a/cpu.max", "300000 100000\n");
    assert_int_equal(quota(), 3);
    put_file("fs/a/b/cpu.max", "250000 100000\n");
    assert_int_equal(quota(), 2);
}

static void test_quota_v1(void **state)
{
    (void)state;
    put_file("cgroup", "9:memory:/m\n4:cpu,cpuacct:/docker/x\n3:cpuset:/\n0::/\n");
    put_file("fs/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "400000\n");
    put_file("fs/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(quota(), 4);
    put_file("fs/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(quota(), INT_MAX);
    /* in a container the path above is not below the mount; the mount itself holds the limit */
    put_file("fs/cpu/cpu.cfs_quota_us", "150000\n");
    put_file("fs/cpu/cpu.cfs_period_us", "50000\n");
    assert_int_equal(quota(), 3);
}

static void test_thread_limit(void **state)
{
    (void)state;
    int n = hr_cpu_thread_limit();
    assert_true(n >= 1 && n <= sysconf(_SC_NPROCESSORS_CONF));
}

/* ---- instruction sets ------------------------------------------------------------------------ */

static void test_isa(void **state)
{
    (void)state;
    hr_isa isa;
    assert_int_equal(hr_isa_choose("scalar", &isa), HR_OK);
    assert_int_equal(isa, HR_ISA_scalar);
    assert_int_equal(hr_isa_choose("avx9", &isa), HR_INVALID_ARGUMENT);
    assert_non_null(strstr(hr_message(), "avx9"));
    assert_non_null(strstr(hr_message(), "avx2")); /* and says what is known */
    for (int i = 0; i < HR_ISA_COUNT; i++) {
        hr_status expected = hr_isa_available((hr_isa)i) ? HR_OK : HR_INVALID_ARGUMENT;
        assert_int_equal(hr_isa_choose(hr_isa_name((hr_isa)i), &isa), expected);
        if (expected) assert_non_null(strstr(hr_message(), hr_isa_name((hr_isa)i)));
    }
    setenv("HEADRACE_ISA", "scalar", 1);
    assert_int_equal(hr_isa_choose(NULL, &isa), HR_OK);
    assert_int_equal(isa, HR_ISA_scalar);
    setenv("HEADRACE_ISA", "sse", 1);
    assert_int_equal(hr_isa_choose(NULL, &isa), HR_INVALID_ARGUMENT);
    assert_non_null(strstr(hr_message(), "HEADRACE_ISA"));
    hr_backend *b;
    assert_int_equal(hr_cpu_backend_create(NULL, &b), HR_INVALID_ARGUMENT);
    assert_null(b);
    unsetenv("HEADRACE_ISA");
    assert_int_equal(hr_isa_choose(NULL, &isa), HR_OK);
    assert_true(hr_isa_available(isa));
}

/* ---- buffers --------------------------------------------------------------------------------- */

static void test_buffers(void **state)
{
    (void)state;
    hr_backend *b;
    assert_int_equal(hr_cpu_backend_create(&(hr_cpu_options){ .threads = -1 }, &b),
                     HR_INVALID_ARGUMENT);
    assert_int_equal(hr_cpu_backend_create(&(hr_cpu_options){ .threads = 1 }, &b), HR_OK);
    hr_tensor_desc d = { HR_DTYPE_F32, HR_SHAPE(3, 5) };
    hr_buffer *x;
    assert_int_equal(hr_buffer_create(b, &d, &x), HR_OK);
    float zeros[15], got[15];
    memset(zeros, 0, sizeof zeros);
    memset(got, 0xff, sizeof got);
    assert_int_equal(hr_buffer_get(b, x, got, sizeof got), HR_OK);
    assert_memory_equal(got, zeros, sizeof got);
    float v[2] = { 1, 2 };
    assert_int_equal(hr_buffer_put(b, x, v, sizeof v), HR_OK);
    assert_int_equal(hr_buffer_get(b, x, got, sizeof got), HR_OK);
    assert_memory_equal(got, v, sizeof v);
    assert_memory_equal(got + 2, zeros, sizeof got - sizeof v);
    assert_int_equal(hr_buffer_put(b, x, zeros, sizeof zeros + 1), HR_OUT_OF_RANGE);
    assert_int_equal(hr_buffer_get(b, x, got, sizeof zeros + 1), HR_OUT_OF_RANGE);
    hr_buffer_destroy(x, b);
    d.shape = HR_SHAPE(INT64_MAX / 2, INT64_MAX / 2);
    assert_int_equal(hr_buffer_create(b, &d, &x), HR_INVALID_ARGUMENT);
    assert_null(x);
    /* Far more than the machine has: declared, never touched, costs nothing. */
    d.shape = HR_SHAPE((int64_t)1 << 35);
    assert_int_equal(hr_buffer_create(b, &d, &x), HR_OK);
    assert_int_equal(hr_buffer_put(b, x, v, sizeof v), HR_OK);
    hr_buffer_destroy(x, b);
    hr_backend_destroy(b);
}

/* ---- memory plan ----------------------------------------------------------------------------- */

static uint32_t random_state = 1;
static uint32_t random_u32(void)
{
    return (random_state = random_state * 1664525u + 1013904223u) >> 8;
}

static bool overlap(const hr_span *a, const hr_span *b)
{
    bool in_time = a->first <= b->last && b->first <= a->last;
    return in_time && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static void test_memplan(void **state)
{
    (void)state;
    enum { SPANS = 60 };
    hr_span s[SPANS];
    for (int round = 0; round < 300; round++) {
        size_t n = 1 + random_u32() % SPANS, total, sum = 0, most_alive = 0;
        for (size_t i = 0; i < n; i++) {
            int32_t first = (int32_t)(random_u32() % 40);
            s[i] = (hr_span){ .bytes = 1 + random_u32() % 5000,
                              .first = first,
                              .last = random_u32() % 9 ? first + (int32_t)(random_u32() % 6)
                                                       : INT32_MAX };
            sum += (s[i].bytes + 63) / 64 * 64;
        }
        assert_int_equal(hr_memplan(s, n, &total), HR_OK);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(s[i].offset % HR_SPAN_ALIGN, 0);
            assert_true(s[i].offset + s[i].bytes <= total);
            for (size_t k = 0; k < i; k++) assert_false(overlap(&s[i], &s[k]));
        }
        for (int32_t t = 0; t < 50; t++) {
            size_t alive = 0;
            for (size_t i = 0; i < n; i++)
                if (s[i].first <= t && t <= s[i].last) alive += (s[i].bytes + 63) / 64 * 64;
            if (alive > most_alive) most_alive = alive;
        }
        assert_true(total >= most_alive && total <= sum);
        assert_true(total <= 2 * most_alive); /* it does reuse memory */
    }
    size_t total;
    assert_int_equal(hr_memplan(NULL, 0, &total), HR_OK);
    assert_int_equal(total, 0);
    s[0] = (hr_span){ .bytes = SIZE_MAX - 10 };
    s[1] = (hr_span){ .bytes = 100 };
    assert_int_equal(hr_memplan(s, 2, &total), HR_RESOURCE_EXHAUSTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_quota_v2, new_root, remove_root),
        cmocka_unit_test_setup_teardown(test_quota_of_parents, new_root, remove_root),
        cmocka_unit_test_setup_teardown(test_quota_v1, new_root, remove_root),
        cmocka_unit_test(test_thread_limit),
        cmocka_unit_test(test_isa),
        cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_memplan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
