/* Compiling for devices that are not here: a stub that fails at each call in turn, a plugin that
 * knows no topology, and libtpu for TPUs where tools/setup.sh tpu has fetched it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plugin_bed.h"

#ifdef HR_HAVE_PJRT
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pjrt/pjrt.h"

enum { T = 16, N = 512, K = 256 };

/* Compiling reads no weight. */
static hr_status no_rows(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    (void)first, (void)count, (void)to;
    return hr_fail(HR_INTERNAL, "%s was read", w->name);
}

static const hr_weight scales = {
    .name = "scales", .shape = { 1, { N } }, .format = HR_FORMAT_F32, .read_rows = no_rows
};
static const hr_weight formats[] = {
    { .name = "w8a8",
      .shape = { 2, { N, K } },
      .format = HR_FORMAT_I8C,
      .scale = &scales,
      .read_rows = no_rows },
    { .name = "q4", .shape = { 2, { N, K } }, .format = HR_FORMAT_Q4_0, .read_rows = no_rows },
    { .name = "q4_k", .shape = { 2, { N, K } }, .format = HR_FORMAT_Q4_K, .read_rows = no_rows },
    { .name = "bf16", .shape = { 2, { N, K } }, .format = HR_FORMAT_BF16, .read_rows = no_rows },
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

/* quantise rows → linear; plain rows for bf16 */
static hr_graph *make_graph(const hr_weight *w)
{
    hr_graph *g;
    hr_value *scale = NULL;
    int32_t group = w->format == HR_FORMAT_I8C ? K : 32;
    assert_int_equal(hr_graph_create(w->name, &g), HR_OK);
    hr_value *x = hr_graph_input(g, "x", HR_DTYPE_BF16, HR_SHAPE(T, K), HR_LIVE_TOKENS);
    hr_value *q = w->format == HR_FORMAT_BF16 ? x : hr_op_quantise_rows(g, x, group, &scale);
    hr_value *weight = hr_graph_weight(g, w);
    hr_value *y = scale ? hr_op_linear_q8(g, q, scale, weight, NULL, HR_DTYPE_BF16)
                        : hr_op_linear(g, q, weight, NULL, HR_DTYPE_BF16);
    hr_graph_output(g, "y", y);
    if (hr_graph_finish(g)) fail_msg("%s", hr_message());
    return g;
}

static hr_status all_calls(const hr_graph *g, hr_buf *text, hr_pjrt_compiled *c)
{
    hr_pjrt_topology *t;
    hr_pjrt_options o = { .plugin = STUB };
    hr_status st = hr_pjrt_topology_create(&o, "any", &t);
    if (!st) st = hr_pjrt_topology_describe(t, text);
    if (!st) st = hr_pjrt_topology_compile(t, g, c);
    hr_pjrt_topology_destroy(t);
    return st;
}

static void test_each_call(void **state)
{
    (void)state;
    stub_state *s = stub_of(STUB);
    hr_graph *g = make_graph(&formats[0]);
    for (int n = 1;; n++) {
        hr_buf text = { 0 };
        hr_pjrt_compiled c;
        *s = (stub_state){ .fail_at = n };
        hr_status st = all_calls(g, &text, &c);
        bool whole = s->calls < n;
        assert_int_equal(s->alive, 0);
        assert_int_equal(st, whole ? HR_OK : HR_UNAVAILABLE);
        if (whole) {
            assert_int_equal(c.code_bytes, 1000);
            assert_non_null(strstr(hr_buf_c(&text), "topology any, platform stub (a version)"));
            assert_non_null(strstr(hr_buf_c(&text), "STUB_7 coords=1,0,2 core_on_chip=1\n"));
            assert_in_range(n, 8, 40);
        }
        hr_buf_deinit(&text);
        if (whole) break;
    }
    hr_graph_destroy(g);
}

static void refused(const char *path, const char *name, const char *part)
{
    hr_pjrt_options o = { .plugin = path };
    hr_pjrt_topology *t = (hr_pjrt_topology *)&o;
    assert_int_not_equal(hr_pjrt_topology_create(&o, name, &t), HR_OK);
    assert_null(t);
    if (!strstr(hr_message(), part)) fail_msg("'%s' says nothing of '%s'", hr_message(), part);
}

static void test_xla_cpu_has_none(void **state)
{
    (void)state;
    refused(XLA_CPU, "cpu:2", "Topology not supported");
}

/* The compiler for TPUs takes every kind of linear, w8a8 among them. */
static void test_tpu(void **state)
{
    (void)state;
    hr_pjrt_options o = { .plugin = LIBTPU };
    hr_pjrt_topology *t;
    hr_buf text = { 0 };
    if (hr_pjrt_topology_create(&o, "v6e:2x2x1", &t)) fail_msg("%s", hr_message());
    if (hr_pjrt_topology_describe(t, &text)) fail_msg("%s", hr_message());
    print_message("%s", hr_buf_c(&text));
    assert_non_null(strstr(hr_buf_c(&text), "topology v6e:2x2x1, platform tpu"));
    assert_non_null(strstr(hr_buf_c(&text), "device 3: process 0, kind TPU v6 lite"));
    assert_non_null(strstr(hr_buf_c(&text), "coords=1,1,0 core_on_chip=0"));
    hr_buf_deinit(&text);
    for (int i = 0; i < FORMATS; i++) {
        hr_pjrt_compiled c;
        hr_graph *g = make_graph(&formats[i]);
        if (hr_pjrt_topology_compile(t, g, &c)) fail_msg("%s", hr_message());
        assert_true(c.code_bytes > 0);
        assert_true(c.argument_bytes >= N * K / 2);
        assert_true(c.peak_bytes >= c.argument_bytes);
        hr_graph_destroy(g);
    }
    hr_pjrt_topology_destroy(t);
    refused(o.plugin, "v99:2x2x1", "v99");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_each_call),
                                        cmocka_unit_test(test_xla_cpu_has_none),
                                        cmocka_unit_test(test_tpu) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
