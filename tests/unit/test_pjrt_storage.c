/* How 4-bit weights lie on a device: packed where the plugin computes with them, else in bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plugin_bed.h"

#ifdef HR_HAVE_PJRT
#include <string.h>
#include <unistd.h>

#include "pjrt/pjrt.h"
#include "ref/ref.h"

enum { T = 3, V = 8, K = 256 };

/* Blocks of any bytes, but with scales that are numbers. */
static hr_status read_weight(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    size_t block = hr_format_block_bytes(w->format), row = hr_format_row_bytes(w->format, K);
    uint8_t *p = to;
    for (size_t at = (size_t)first * row; at < (size_t)(first + count) * row; at++, p++) {
        *p = (uint8_t)(at * 151 >> 3);
        if (at % block < 4) *p = at % 2 ? 0x34 : (uint8_t)(at / block * 5);
    }
    return HR_OK;
}

#define WEIGHT(f)                                                                                  \
    {                                                                                              \
        .name = #f, .shape = { 2, { V, K } }, .format = HR_FORMAT_##f, .read_rows = read_weight    \
    }
static const hr_weight weights[] = { WEIGHT(Q4_0), WEIGHT(Q4_1), WEIGHT(Q4_K), WEIGHT(Q8_0) };
enum { WEIGHTS = sizeof weights / sizeof weights[0], IS_8_BIT = WEIGHTS - 1 };

typedef struct rig {
    hr_backend *b;
    hr_graph *g;
    hr_program *p;
    hr_buffer *in, *out;
} rig;

/* rows[i] = weight[ids[i]] */
static hr_status rig_run(rig *r, const hr_weight *w, float rows[T * K])
{
    static const int32_t ids[T] = { V - 1, 0, 3 };
    static const hr_tensor_desc desc[] = { { HR_DTYPE_I32, { 1, { T } } },
                                           { HR_DTYPE_F32, { 2, { T, K } } } };
    hr_event done;
    HR_TRY(hr_graph_create("rows", &r->g));
    hr_value *in = hr_graph_input(r->g, "ids", HR_DTYPE_I32, HR_SHAPE(T), HR_LIVE_TOKENS);
    hr_graph_output(r->g, "rows", hr_op_embed(r->g, in, hr_graph_weight(r->g, w), HR_DTYPE_F32));
    HR_TRY(hr_graph_finish(r->g));
    HR_TRY(hr_backend_compile(r->b, r->g, &r->p));
    HR_TRY(hr_buffer_create(r->b, &desc[0], &r->in));
    HR_TRY(hr_buffer_create(r->b, &desc[1], &r->out));
    HR_TRY(hr_buffer_put(r->b, r->in, ids, sizeof ids));
    hr_execute_args a = { .inputs = &r->in, .outputs = &r->out, .live = { 0, T, T } };
    HR_TRY(hr_program_execute(r->b, r->p, &a, &done));
    HR_TRY(hr_event_await(&done));
    return hr_buffer_get(r->b, r->out, rows, sizeof(float) * T * K);
}

static void rig_close(rig *r)
{
    hr_program_destroy(r->p, r->b);
    hr_buffer_destroy(r->in, r->b);
    hr_buffer_destroy(r->out, r->b);
    hr_graph_destroy(r->g);
    hr_backend_destroy(r->b);
}

static bool says(hr_backend *b, const char *part)
{
    hr_buf text = { 0 };
    b->v->numerics(b, &text);
    bool found = strstr(hr_buf_c(&text), part) != NULL;
    hr_buf_deinit(&text);
    return found;
}

/* The stub's programs compute nothing, so its 4-bit numbers are wrong. */
static void test_wrong_numbers(void **state)
{
    (void)state;
    hr_pjrt_options o = { .plugin = STUB, .compile_threads = -1 };
    stub_state *s = stub_of(STUB);
    for (size_t results = 1; results <= 4; results += 3) { /* 4 are what the trial has */
        rig r = { 0 };
        float rows[T * K];
        *s = (stub_state){ .results = results };
        if (hr_pjrt_backend_create(&o, &r.b)) fail_msg("%s", hr_message());
        (void)rig_run(&r, &weights[0], rows);
        assert_true(says(r.b, "\"int4_weights\":false"));
        rig_close(&r);
        assert_int_equal(s->alive, 0);
    }
}

/* Whatever call fails, the trial leaves nothing behind, and no program thinks it passed. */
static void test_each_call(void **state)
{
    (void)state;
    hr_pjrt_options o = { .plugin = STUB, .compile_threads = -1 };
    stub_state *s = stub_of(STUB);
    for (int n = 1;; n++) {
        rig r = { 0 };
        float rows[T * K];
        *s = (stub_state){ .results = 4, .fail_at = n };
        if (!hr_pjrt_backend_create(&o, &r.b)) {
            (void)rig_run(&r, &weights[1], rows);
            assert_false(says(r.b, "\"int4_weights\":true"));
        }
        rig_close(&r);
        assert_int_equal(s->alive, 0);
        if (s->calls < n) break;
    }
}

static void test_xla_cpu(void **state)
{
    (void)state;
    hr_pjrt_options o = { .plugin = XLA_CPU };
    for (int i = 0; i < WEIGHTS; i++) {
        rig ours = { 0 }, want = { 0 };
        float a[T * K], b[T * K];
        if (hr_pjrt_backend_create(&o, &ours.b) || hr_ref_backend_create(&want.b))
            fail_msg("%s", hr_message());
        if (rig_run(&ours, &weights[i], a)) fail_msg("%s: %s", weights[i].name, hr_message());
        if (rig_run(&want, &weights[i], b)) fail_msg("%s: %s", weights[i].name, hr_message());
        assert_memory_equal(a, b, sizeof a);
        assert_int_equal(says(ours.b, "\"int4_weights\":true"), i != IS_8_BIT);
        size_t bytes = ours.b->v->weight_bytes(ours.b);
        assert_true(i == IS_8_BIT ? bytes >= V * K : bytes < V * K);
        rig_close(&ours);
        rig_close(&want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_numbers),
        cmocka_unit_test(test_each_call),
        cmocka_unit_test(test_xla_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
