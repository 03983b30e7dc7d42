/* Every op on ref and on PJRT plugins: the table of ops_table.def × dtypes, in fitting buckets and
 * in ones with padding, whose rows hold NaN patterns.
 *
 * Agreement is that of ops_agree.h: bounds, and the same bits for copies, single operations and
 * integers. A plugin may abort, so each is loaded by a child of its own; how one ended, and in
 * which row, is said. Skipped without plugins (tools/setup.sh test) and under sanitizers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HR_HAVE_PJRT
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/ops_agree.h"
#include "conformance/w8a8.h"
#include "cpu/cpu.h"
#include "ref/ref.h"

enum { PAD = 13 };

/* tests/run.py names them, "" for none; by hand they are those that setup fetched. */
static const char *const plugins[][2] = {
    { "HEADRACE_PJRT_PLUGIN",
      HR_SOURCE_DIR "/.cache/pjrt/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so" },
    { "HEADRACE_PJRT_PLUGIN_NEWER",
      HR_SOURCE_DIR "/.cache/pjrt/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so" },
};

static hr_backend *ref, *pjrt;
static char *where; /* shared with the parent: the row under way */
enum { WHERE_BYTES = 128 };
static bool fitting; /* buckets without padding too: once will do */

static int open_backends(void **state)
{
    (void)state;
    hr_status st = hr_ref_backend_create(&ref);
    if (!st) st = op_backend_create("pjrt", 0, &pjrt);
    if (st) print_error("%s\n", hr_message());
    return (int)st;
}

static int close_backends(void **state)
{
    (void)state;
    hr_backend_destroy(ref);
    op_backend_destroy(pjrt);
    return 0;
}

static void check(const ops_row *w, int64_t rows, hr_dtype d)
{
    op_result got;
    snprintf(where, WHERE_BYTES, "%s %s %s, %lld rows", w->name, hr_format_name(w->format),
             hr_dtype_name(d), (long long)rows);
    ops_run(pjrt, w, rows, w->rows, d, &got);
    ops_check_agreement(ref, w, &got, rows, d);
    op_result_deinit(&got);
}

static void test_row(void **state)
{
    const ops_row *w = *state;
    for (hr_dtype d = HR_DTYPE_F32; d <= HR_DTYPE_F16; d++) {
        if (d != HR_DTYPE_F32 && !ops_has_dtypes(w)) continue;
        if (d == HR_DTYPE_F32 && fitting) check(w, w->rows, d);
        check(w, w->rows + PAD, d);
    }
}

/* The same bits as on ref, and as on cpu. */
static void test_w8a8(void **state)
{
    (void)state;
    static w8a8 m;
    float ours[W8A8_ROWS * W8A8_H], want[W8A8_ROWS * W8A8_H], native[W8A8_ROWS * W8A8_H];
    hr_backend *cpu;
    w8a8_init(&m);
    assert_int_equal(hr_cpu_backend_create(&(hr_cpu_options){ .threads = 2 }, &cpu), HR_OK);
    for (hr_dtype d = HR_DTYPE_F32; d <= HR_DTYPE_F16; d++) {
        size_t bytes = W8A8_ROWS * W8A8_H * hr_dtype_size(d);
        snprintf(where, WHERE_BYTES, "w8a8 layers, %s", hr_dtype_name(d));
        if (w8a8_run(ref, &m, d, want) || w8a8_run(cpu, &m, d, native) ||
            w8a8_run(pjrt, &m, d, ours))
            fail_msg("%s: %s", where, hr_message());
        for (int i = 0; i < W8A8_ROWS * W8A8_H; i++)
            if (!(fabs(ops_float(d, want, i)) < 1e4)) fail_msg("the numbers leave all bounds");
        assert_memory_equal(native, want, bytes);
        assert_memory_equal(ours, want, bytes);
    }
    hr_backend_destroy(cpu);
}

/* In the child: all rows on the plugin that HEADRACE_PJRT_PLUGIN names. */
static int run_table(void)
{
    size_t n = ops_table_n + 1;
    struct CMUnitTest *tests = ops_alloc(n * sizeof *tests);
    tests[ops_table_n] = (struct CMUnitTest){ "w8a8 layers", test_w8a8, NULL, NULL, NULL };
    for (size_t i = 0; i < ops_table_n; i++) {
        ops_row *row = (ops_row *)(uintptr_t)&ops_table[i]; /* cmocka's state; only read */
        tests[i] = (struct CMUnitTest){ ops_table[i].name, test_row, NULL, NULL, row };
    }
    int failed =
        _cmocka_run_group_tests("ops on a plugin", tests, n, open_backends, close_backends);
    hr_free(tests);
    return failed;
}

static int run_plugin(const char *path)
{
    int status = 0;
    printf("plugin %s\n", path);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        setenv("HEADRACE_PJRT_PLUGIN", path, 1);
        exit(run_table() ? 1 : 0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    if (WIFSIGNALED(status))
        printf("signal %d ended the child, in %s, on %s\n", WTERMSIG(status), where, path);
    return status ? 1 : 0;
}

static int run_plugins(int *n)
{
    const char *path[2];
    int failed = 0;
    if (getenv("HEADRACE_SANITIZED")) return 0; /* a plugin is not instrumented */
    setenv("TF_CPP_MIN_LOG_LEVEL", "3", 0);
    where = mmap(NULL, WHERE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (where == MAP_FAILED) return 1;
    for (int i = 0; i < 2; i++) {
        path[i] = getenv(plugins[i][0]);
        if (!path[i]) path[i] = plugins[i][1];
    }
    for (int i = 0; i < 2; i++) {
        if (access(path[i], R_OK)) continue;
        fitting = ++*n == 1;
        failed |= run_plugin(path[i]);
    }
    return failed;
}
#else
static int run_plugins(int *n)
{
    (void)n;
    return 0;
}
#endif

static void test_no_plugin(void **state)
{
    (void)state;
    skip();
}

int main(void)
{
    int n = 0, failed = run_plugins(&n);
    const struct CMUnitTest none[] = { cmocka_unit_test(test_no_plugin) };
    return n || failed ? failed : cmocka_run_group_tests(none, NULL, NULL);
}
