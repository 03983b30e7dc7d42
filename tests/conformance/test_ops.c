/* Every op on ref and on cpu, through the backend seam: the table of ops_table.def × dtypes.
 *
 * Asked of each row, under every instruction set of this machine:
 *   agreement    cpu is ref, within a bound derived from length and operands (ops_agree.h); copies,
 *                single operations and integer results to the bit;
 *   its own      a row's bits do not depend on the number of threads, on how many rows are live, or
 *                on the bucket; padding rows hold NaN patterns, which nobody may read, and result
 *                rows past the live count stay as they were.
 * Tighter oracles, independent of ref, are in test_backbone_ops.py and test_sampler_ops.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "conformance/ops_agree.h"
#include "cpu/cpu.h"
#include "cpu/isa.h"
#include "ref/ref.h"

enum { PAD = 13, MOST_THREADS = 3 };

/* Bytes of the first n rows of a result; whole for what is bounded by no live count. */
static size_t row_bytes(const ops_row *w, const op_result *r, int i, int64_t n)
{
    if (hr_op_is_in_place(w->op)) return r->out[i].bytes;
    return r->out[i].bytes / (size_t)r->out[i].shape.dim[0] * (size_t)n;
}

static void assert_same_rows(const ops_row *w, const op_result *a, const op_result *b, int64_t n,
                             const char *what)
{
    for (int i = 0; i < a->n; i++)
        if (memcmp(a->out[i].data, b->out[i].data, row_bytes(w, a, i, n)))
            fail_msg("%s (format %s): result %d depends on %s", w->name, hr_format_name(w->format),
                     i, what);
}

static void assert_untouched(const ops_row *w, const op_result *r, int64_t live)
{
    for (int i = 0; i < r->n && !hr_op_is_in_place(w->op); i++)
        for (size_t k = row_bytes(w, r, i, live); k < r->out[i].bytes; k++)
            if (((const unsigned char *)r->out[i].data)[k])
                fail_msg("%s: result %d is written past the live count", w->name, i);
}

static void check_row(hr_backend *ref, hr_backend *const cpu[MOST_THREADS], const ops_row *w,
                      hr_dtype d)
{
    op_result whole, other;
    ops_run(cpu[0], w, w->rows, w->rows, d, &whole);
    ops_check_agreement(ref, w, &whole, w->rows, d);
    for (int t = 1; t < MOST_THREADS; t++) {
        ops_run(cpu[t], w, w->rows, w->rows, d, &other);
        assert_same_rows(w, &whole, &other, w->rows, "the number of threads");
        op_result_deinit(&other);
    }
    for (int64_t live = 1; live < w->rows && !hr_op_is_in_place(w->op); live += live < 4 ? 1 : 5) {
        ops_run(cpu[live % MOST_THREADS], w, w->rows, live, d, &other);
        assert_same_rows(w, &whole, &other, live, "the number of live rows");
        assert_untouched(w, &other, live);
        op_result_deinit(&other);
    }
    ops_run(cpu[1], w, w->rows + PAD, w->rows, d, &other);
    assert_same_rows(w, &whole, &other, w->rows, "the bucket");
    assert_untouched(w, &other, w->rows);
    op_result_deinit(&other);
    op_result_deinit(&whole);
}

static void check_isa(const char *isa)
{
    hr_backend *ref, *cpu[MOST_THREADS];
    assert_int_equal(hr_ref_backend_create(&ref), HR_OK);
    for (int t = 0; t < MOST_THREADS; t++) {
        hr_cpu_options o = { .threads = t + 1, .isa = isa };
        if (hr_cpu_backend_create(&o, &cpu[t])) fail_msg("%s: %s", isa, hr_message());
    }
    for (size_t i = 0; i < ops_table_n; i++)
        for (hr_dtype d = HR_DTYPE_F32; d <= HR_DTYPE_F16; d++)
            if (d == HR_DTYPE_F32 || ops_has_dtypes(&ops_table[i]))
                check_row(ref, cpu, &ops_table[i], d);
    for (int t = 0; t < MOST_THREADS; t++) hr_backend_destroy(cpu[t]);
    op_backend_destroy(ref);
}

static void test_isa(void **state)
{
    check_isa(hr_isa_name(*(const hr_isa *)*state));
}

/* Every op has a row here, or a test in test_sampler_ops.py. */
static void test_table_is_complete(void **state)
{
    (void)state;
    static const hr_op elsewhere[] = {
        HR_OP_bias_ids,     /* ids are unique per row */
        HR_OP_count_tokens, /* updates in list order */
        HR_OP_write_rows,
    };
    for (int op = 0; op < HR_OP_COUNT; op++) {
        bool found = false;
        for (size_t i = 0; i < ops_table_n; i++) found = found || (int)ops_table[i].op == op;
        for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
            found = found || (int)elsewhere[i] == op;
        if (!found) fail_msg("%s has no row", hr_op_name((hr_op)op));
    }
}

/* One test per instruction set of this machine. */
int main(void)
{
    hr_isa isas[HR_ISA_COUNT];
    struct CMUnitTest tests[1 + HR_ISA_COUNT] = { cmocka_unit_test(test_table_is_complete) };
    size_t n = 1;
    for (int i = 0; i < HR_ISA_COUNT; i++) {
        isas[i] = (hr_isa)i;
        if (hr_isa_available(isas[i]))
            tests[n++] =
                (struct CMUnitTest){ hr_isa_name(isas[i]), test_isa, NULL, NULL, &isas[i] };
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
