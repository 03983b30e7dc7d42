/* Dtypes are contracts: whoever breaks one stops the start, by the name of the layer. The faults
 * are set between the rooms by the linker (--wrap, cmake/tests.cmake), natively and on XLA:
 *   - a linear whose result is float32 where its rows are bfloat16, in a graph;
 *   - StableHLO whose linear results in float32;
 *   - programs that declare one dtype and come back with another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/half.h"
#include "engine_bed.h"
#ifdef HR_HAVE_PJRT
#include "pjrt/hlo_int.h"
#endif

/* What goes wrong, and where. */
static struct {
    const char *graph_linear, *hlo_linear; /* the weight whose product is float32 */
    const char *hlo_program;               /* whose first result comes back as float32 */
    const char *output;                    /* that is as wide as float32, or half as wide */
} fault;

/* ---- faults ---------------------------------------------------------------------------------- */

static hr_dtype leaked(const hr_value *w, hr_dtype dtype)
{
    return fault.graph_linear && w && strstr(w->name, fault.graph_linear) ? HR_DTYPE_F32 : dtype;
}

hr_value *__real_hr_op_linear(hr_graph *g, hr_value *x, hr_value *w, hr_value *bias,
                              hr_dtype dtype);
hr_value *__wrap_hr_op_linear(hr_graph *g, hr_value *x, hr_value *w, hr_value *bias,
                              hr_dtype dtype);
hr_value *__wrap_hr_op_linear(hr_graph *g, hr_value *x, hr_value *w, hr_value *bias, hr_dtype dtype)
{
    return __real_hr_op_linear(g, x, w, bias, leaked(w, dtype));
}

hr_value *__real_hr_op_linear_q8(hr_graph *g, hr_value *q, hr_value *scale, hr_value *w,
                                 hr_value *bias, hr_dtype dtype);
hr_value *__wrap_hr_op_linear_q8(hr_graph *g, hr_value *q, hr_value *scale, hr_value *w,
                                 hr_value *bias, hr_dtype dtype);
hr_value *__wrap_hr_op_linear_q8(hr_graph *g, hr_value *q, hr_value *scale, hr_value *w,
                                 hr_value *bias, hr_dtype dtype)
{
    return __real_hr_op_linear_q8(g, q, scale, w, bias, leaked(w, dtype));
}

/* After the run, what a kernel leaves that takes the output for one of twice or half the width. */
static hr_status rewrite(hr_backend *b, hr_buffer *x, size_t numbers)
{
    size_t wide = numbers * 4, narrow = numbers * 2;
    bool to_wide = !strcmp(fault.output, "wide");
    uint16_t *halves = malloc(narrow);
    float *floats = malloc(wide);
    hr_status st;
    if (to_wide) {
        st = hr_buffer_get(b, x, halves, narrow);
        for (size_t i = 0; i < numbers; i++) floats[i] = hr_bf16_to_f32(halves[i]);
        if (!st) st = hr_buffer_put(b, x, floats, wide);
    } else {
        st = hr_buffer_get(b, x, floats, wide);
        for (size_t i = 0; i < numbers; i++) halves[i] = hr_f32_to_bf16(floats[i]);
        memset(floats, 0xFF, wide); /* what was there before */
        if (!st) st = hr_buffer_put(b, x, floats, wide);
        if (!st) st = hr_buffer_put(b, x, halves, narrow);
    }
    free(halves);
    free(floats);
    return st;
}

hr_status __real_hr_program_execute(hr_backend *b, hr_program *p, const hr_execute_args *a,
                                    hr_event *done);
hr_status __wrap_hr_program_execute(hr_backend *b, hr_program *p, const hr_execute_args *a,
                                    hr_event *done);
hr_status __wrap_hr_program_execute(hr_backend *b, hr_program *p, const hr_execute_args *a,
                                    hr_event *done)
{
    hr_status st = __real_hr_program_execute(b, p, a, done);
    if (st || !fault.output) return st;
    return rewrite(b, a->outputs[0], (size_t)a->live[HR_LIVE_TOKENS] * 64);
}

#ifdef HR_HAVE_PJRT
hr_status __real_hr_hlo_emit_linear(hr_hlo_emit *e);
hr_status __wrap_hr_hlo_emit_linear(hr_hlo_emit *e);
hr_status __wrap_hr_hlo_emit_linear(hr_hlo_emit *e)
{
    hr_status st = __real_hr_hlo_emit_linear(e);
    if (!st && fault.hlo_linear && strstr(e->node->in[1]->name, fault.hlo_linear))
        e->out[0] = hr_hlo_convert(e->h, e->out[0], HR_HLO_F32);
    return st;
}

/* The text up to `at`, whose place in it is returned. */
static const char *copy_until(hr_buf *to, const char *from, const char *at)
{
    const char *end = strstr(from, at);
    assert_non_null(end);
    hr_buf_add(to, from, (size_t)(end - from));
    return end;
}

/* The first result converted to float32 behind everything else. */
static void widen_first_result(hr_hlo_program *p)
{
    hr_hlo_shape is = hr_hlo_shape_of(p->graph->outputs[0].value);
    hr_hlo_shape leak = hr_hlo_retype(is, HR_HLO_F32);
    hr_buf out = { 0 }, is_text = { 0 }, leak_text = { 0 };
    hr_hlo_add_type(&is_text, &is);
    hr_hlo_add_type(&leak_text, &leak);
    const char *at = copy_until(&out, hr_buf_c(&p->text), "-> (tensor");
    hr_buf_printf(&out, "-> (%s", hr_buf_c(&leak_text));
    at = copy_until(&out, at + strlen("-> (") + is_text.n, "func.return ");
    char *rest;
    long id = strtol(at + strlen("func.return %v"), &rest, 10);
    hr_buf_printf(&out, "%%leak = stablehlo.convert %%v%ld : (%s) -> %s\nfunc.return %%leak", id,
                  hr_buf_c(&is_text), hr_buf_c(&leak_text));
    at = copy_until(&out, rest, " : tensor");
    hr_buf_printf(&out, " : %s%s", hr_buf_c(&leak_text), at + strlen(" : ") + is_text.n);
    hr_buf_deinit(&p->text);
    hr_buf_deinit(&is_text);
    hr_buf_deinit(&leak_text);
    hr_buf_c(&out);
    p->text = out;
}

hr_status __real_hr_hlo_program_build(const hr_graph *g, const hr_hlo_options *opt,
                                      hr_hlo_program *out);
hr_status __wrap_hr_hlo_program_build(const hr_graph *g, const hr_hlo_options *opt,
                                      hr_hlo_program *out);
hr_status __wrap_hr_hlo_program_build(const hr_graph *g, const hr_hlo_options *opt,
                                      hr_hlo_program *out)
{
    hr_status st = __real_hr_hlo_program_build(g, opt, out);
    if (!st && fault.hlo_program && !strcmp(g->name, fault.hlo_program)) widen_first_result(out);
    return st;
}
#endif

/* ---- starts ---------------------------------------------------------------------------------- */

static const char native[] = "cpu";

/* The plugin's device, or NULL; tests/run.py names it, "" for none. */
static const char *xla(void)
{
#ifdef HR_HAVE_PJRT
    static char device[512];
    const char *named = getenv("HEADRACE_PJRT_PLUGIN");
    if (!named) named = HR_SOURCE_DIR "/.cache/pjrt/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so";
    snprintf(device, sizeof device, "pjrt:%s", named);
    return access(named, R_OK) ? NULL : device;
#else
    return NULL;
#endif
}

static hr_status start(const char *device, const char *dtype, const char *quantization)
{
    headrace_options o;
    headrace_engine *e;
    bed_options(&o);
    o.device = device;
    o.compile_cache = "";
    o.dtype = dtype;
    o.quantization = quantization;
    o.max_num_seqs = 8;
    o.max_num_batched_tokens = 16;
    o.threads = 0;
    hr_status st = (hr_status)headrace_engine_create(&o, &e);
    headrace_engine_destroy(e);
    return st;
}

static void refused(hr_status st, const char *const *says)
{
    assert_int_equal(st, HR_FAILED_PRECONDITION);
    for (; *says; says++)
        if (!strstr(headrace_message(), *says))
            fail_msg("'%s' is not in: %s", *says, headrace_message());
}
#define REFUSED(st, ...) refused(st, (const char *[]){ __VA_ARGS__, NULL })

/* ---- tests ----------------------------------------------------------------------------------- */

static int no_fault(void **state)
{
    (void)state;
    memset(&fault, 0, sizeof fault);
    return 0;
}

static void without_a_fault_all_start(void **state)
{
    (void)state;
    const char *devices[] = { native, xla() };
    for (int d = 0; d < 2 && devices[d]; d++) {
        assert_int_equal(start(devices[d], "bfloat16", NULL), HR_OK);
        assert_int_equal(start(devices[d], "bfloat16", "w8a8"), HR_OK);
    }
    assert_int_equal(start(native, "float32", NULL), HR_OK);
}

/* Each linear of a layer, of numbers and of integers. */
static void every_linear_is_named(void **state)
{
    (void)state;
    static const char *const linears[] = { "self_attn.q_proj", "self_attn.k_proj",
                                           "self_attn.v_proj", "self_attn.o_proj",
                                           "mlp.gate_proj",    "mlp.up_proj",
                                           "mlp.down_proj" };
    const char *devices[] = { native, xla() };
    for (int d = 0; d < 2 && devices[d]; d++)
        for (size_t i = 0; i < sizeof linears / sizeof *linears; i++) {
            char name[64];
            snprintf(name, sizeof name, "layers.1.%s", linears[i]);
            fault.graph_linear = name;
            REFUSED(start(devices[d], "bfloat16", NULL), name, "linear", "gives f32", "bf16");
            REFUSED(start(devices[d], "bfloat16", "w8a8"), name, "linear", "gives f32", "bf16");
        }
}

static void a_linear_of_stablehlo_is_named(void **state)
{
    (void)state;
    if (!xla()) skip();
    fault.hlo_linear = "layers.1.mlp.down_proj";
    for (int w8a8 = 0; w8a8 < 2; w8a8++) {
        assert_int_equal(start(xla(), "bfloat16", w8a8 ? "w8a8" : NULL), HR_INTERNAL);
        if (!strstr(headrace_message(), "linear with model.layers.1.mlp.down_proj.weight") ||
            !strstr(headrace_message(), "xf32>"))
            fail_msg("%s", headrace_message());
    }
}

/* The dummy step's result is looked at, not only what was planned. */
static void a_program_that_comes_back_otherwise(void **state)
{
    (void)state;
    fault.output = "wide";
    REFUSED(start(native, "bfloat16", NULL), "program backbone", "output hidden came back wider",
            "bf16", "model.norm.weight");
    fault.output = "narrow";
    REFUSED(start(native, "float32", NULL), "program backbone", "output hidden came back narrower",
            "f32", "model.norm.weight");
}

static void a_program_of_xla_that_comes_back_otherwise(void **state)
{
    (void)state;
    if (!xla()) skip();
    fault.hlo_program = "backbone";
    REFUSED(start(xla(), "bfloat16", NULL), "program backbone",
            "output hidden came back tensor<16x64xf32>", "bf16", "model.norm.weight");
    fault.hlo_program = "select";
    REFUSED(start(xla(), "bfloat16", NULL), "program select",
            "output selected came back tensor<8x64xf32>", "bf16");
}

/* The rule itself: a product of int8 rows goes back to the dtype that the rows had. */
static void rows_before_they_were_quantised(void **state)
{
    (void)state;
    for (int leak = 0; leak < 2; leak++) {
        static const float numbers[32] = { 0 };
        hr_graph *g;
        hr_value *scale;
        assert_int_equal(hr_graph_create("rows", &g), HR_OK);
        hr_graph_contract(g, HR_DTYPE_BF16);
        hr_weight w = { .name = "w", .shape = HR_SHAPE(32, 32), .format = HR_FORMAT_F32 };
        hr_value *x = hr_graph_input(g, "x", HR_DTYPE_BF16, HR_SHAPE(4, 32), HR_LIVE_TOKENS);
        hr_value *norm = hr_graph_const(g, "norm", numbers, HR_SHAPE(32));
        hr_value *q = hr_op_quantise_rows(g, hr_op_rms_norm(g, x, norm, 1e-5f, 0), 32, &scale);
        hr_value *y = hr_op_linear_q8(g, q, scale, hr_graph_weight(g, &w), NULL,
                                      leak ? HR_DTYPE_F32 : HR_DTYPE_BF16);
        hr_graph_output(g, "y", y);
        if (leak) REFUSED(hr_graph_finish(g), "linear with w gives f32 where its rows are bf16");
        else assert_int_equal(hr_graph_finish(g), HR_OK);
        hr_graph_destroy(g);
    }
}

/* What computes in float32 behind a cast that says so is no leak. */
static void a_cast_may_widen(void **state)
{
    (void)state;
    hr_graph *g;
    assert_int_equal(hr_graph_create("cast", &g), HR_OK);
    hr_graph_contract(g, HR_DTYPE_BF16);
    hr_weight w = { .name = "w", .shape = HR_SHAPE(32, 32), .format = HR_FORMAT_F32 };
    hr_value *x = hr_graph_input(g, "x", HR_DTYPE_BF16, HR_SHAPE(4, 32), HR_LIVE_TOKENS);
    x = hr_op_cast(g, x, HR_DTYPE_F32);
    hr_graph_output(g, "y", hr_op_linear(g, x, hr_graph_weight(g, &w), NULL, HR_DTYPE_F32));
    assert_int_equal(hr_graph_finish(g), HR_OK);
    hr_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_a_fault_all_start, no_fault),
        cmocka_unit_test_setup(every_linear_is_named, no_fault),
        cmocka_unit_test_setup(a_linear_of_stablehlo_is_named, no_fault),
        cmocka_unit_test_setup(a_program_that_comes_back_otherwise, no_fault),
        cmocka_unit_test_setup(a_program_of_xla_that_comes_back_otherwise, no_fault),
        cmocka_unit_test_setup(rows_before_they_were_quantised, no_fault),
        cmocka_unit_test_setup(a_cast_may_widen, no_fault),
    };
    return cmocka_run_group_tests(tests, bed_setup, scratch_teardown);
}
