/* The passes: what each makes of a layer, that the numbers stay, and what they must leave alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "passes/passes.h"
#include "ref/ref.h"
#include "unit/golden.h"
#include "unit/tiny_graph.h"

static hr_graph *run_pass(const char *name, const hr_graph *g)
{
    size_t n;
    const hr_pass *list = hr_pass_list(&n);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i].name, name)) {
            hr_graph *out;
            if (list[i].run(g, &out)) fail_msg("%s", hr_message());
            return out;
        }
    fail_msg("no pass called %s", name);
    return NULL;
}

static int count_op(const hr_graph *g, hr_op op)
{
    int n = 0;
    for (size_t i = 0; i < g->n_nodes; i++) n += g->nodes[i]->op == op;
    return n;
}

static hr_graph *tiny_graph(void)
{
    hr_graph *g;
    assert_int_equal(tiny_build(&g), HR_OK);
    assert_int_equal(hr_graph_finish(g), HR_OK);
    return g;
}

/* Each pass on the result of the one before, as run_all does. */
static void test_layer_after_each_pass(void **state)
{
    (void)state;
    static const char *const names[] = { "identity", "common", "dead", "fuse" };
    hr_graph *g = tiny_graph(), *all;
    assert_int_equal(hr_pass_run_all(g, &all), HR_OK);
    for (size_t i = 0; i < 4; i++) {
        char file[32];
        hr_graph *next = run_pass(names[i], g);
        hr_graph_destroy(g);
        g = next;
        snprintf(file, sizeof file, "tiny_%s", names[i]);
        golden_graph(g, file);
    }
    golden_graph(all, "tiny_fuse");
    hr_graph_destroy(all);
    hr_graph_destroy(g);
}

/* ---- the numbers stay ---------------------------------------------------------------------- */

typedef struct outputs {
    float hidden[T * H];
    float k[BLOCKS * BLOCK * KV * D], v[BLOCKS * BLOCK * KV * D];
} outputs;

/* Two requests: three tokens of one, one token of another that has 5 keys. */
static void run_tiny(const hr_graph *g, outputs *out)
{
    static const int32_t ids[T] = { 3, 17, 39, 8 }, slots[T] = { 4, 5, 6, 12 },
                         positions[3 * T] = { 0, 1, 2, 4 }, tables[B * W] = { 1, -1, -1, 2, 3, -1 },
                         starts[B + 1] = { 0, 3, 4 }, lens[B] = { 3, 5 };
    float cache[BLOCKS * BLOCK * KV * D];
    for (size_t i = 0; i < sizeof cache / sizeof *cache; i++) cache[i] = (float)(i % 23) / 23 - .5f;
    const void *data[] = { ids, cache, cache, positions, slots, tables, starts, lens };
    hr_buffer *in[8], *results[3];
    hr_backend *b;
    hr_program *p;
    hr_event done;
    assert_int_equal(hr_ref_backend_create(&b), HR_OK);
    assert_int_equal(hr_backend_compile(b, g, &p), HR_OK);
    assert_int_equal(g->n_inputs, 8);
    for (size_t i = 0; i < 8; i++) {
        const hr_value *v = g->inputs[i];
        size_t bytes = (size_t)hr_shape_count(v->shape) * hr_dtype_size(v->dtype);
        hr_tensor_desc d = { v->dtype, v->shape };
        assert_int_equal(hr_buffer_create(b, &d, &in[i]), HR_OK);
        assert_int_equal(hr_buffer_put(b, in[i], data[i], bytes), HR_OK);
    }
    hr_tensor_desc hidden = { HR_DTYPE_F32, HR_SHAPE(T, H) };
    results[0] = in[1];
    results[1] = in[2];
    assert_int_equal(hr_buffer_create(b, &hidden, &results[2]), HR_OK);
    hr_execute_args a = { .inputs = in, .outputs = results, .live = { 0, T, 0 } };
    if (hr_program_execute(b, p, &a, &done)) fail_msg("%s", hr_message());
    assert_int_equal(hr_event_await(&done), HR_OK);
    assert_int_equal(hr_buffer_get(b, results[0], out->k, sizeof out->k), HR_OK);
    assert_int_equal(hr_buffer_get(b, results[1], out->v, sizeof out->v), HR_OK);
    assert_int_equal(hr_buffer_get(b, results[2], out->hidden, sizeof out->hidden), HR_OK);
    hr_buffer_destroy(results[2], b);
    for (size_t i = 0; i < 8; i++) hr_buffer_destroy(in[i], b);
    hr_program_destroy(p, b);
    hr_backend_destroy(b);
}

static void test_numbers_stay(void **state)
{
    (void)state;
    static outputs before, after;
    hr_graph *g = tiny_graph(), *fused;
    assert_int_equal(hr_pass_run_all(g, &fused), HR_OK);
    run_tiny(g, &before);
    run_tiny(fused, &after);
    assert_memory_equal(&before, &after, sizeof before);
    float most = 0;
    for (size_t i = 0; i < T * H; i++)
        if (before.hidden[i] > most) most = before.hidden[i];
    assert_true(most > 0.5f && most < 100); /* a normed row: not zeros, not NaN */
    hr_graph_destroy(fused);
    hr_graph_destroy(g);
}

/* ---- what they leave alone ------------------------------------------------------------------- */

static hr_graph *empty_graph(hr_value **x, int64_t columns)
{
    hr_graph *g;
    assert_int_equal(hr_graph_create("g", &g), HR_OK);
    *x = hr_graph_input(g, "x", HR_DTYPE_F32, HR_SHAPE(4, columns), HR_LIVE_TOKENS);
    return g;
}

/* An output must be memory of its own: identity keeps its node, common keeps both. */
static void test_outputs_keep_their_nodes(void **state)
{
    (void)state;
    hr_value *x;
    hr_graph *g = empty_graph(&x, 64), *out;
    hr_graph_output(g, "same", hr_op_cast(g, x, HR_DTYPE_F32));
    hr_graph_output(g, "a", hr_op_scale(g, x, 3));
    hr_graph_output(g, "b", hr_op_scale(g, x, 3));
    assert_int_equal(hr_graph_finish(g), HR_OK);
    assert_int_equal(hr_pass_run_all(g, &out), HR_OK);
    assert_int_equal(count_op(out, HR_OP_cast), 1);
    assert_int_equal(count_op(out, HR_OP_scale), 2);
    assert_string_equal(out->outputs[2].name, "b");
    hr_graph_destroy(out);
    hr_graph_destroy(g);
}

static void test_identity(void **state)
{
    (void)state;
    hr_value *x;
    hr_graph *g = empty_graph(&x, 64), *out;
    hr_value *y = hr_op_scale(g, hr_op_cast(g, x, HR_DTYPE_F32), 1);
    y = hr_graph_reshape(g, hr_graph_reshape(g, y, HR_SHAPE(4, 8, 8)), HR_SHAPE(4, 2, 32));
    y = hr_op_activation(g, hr_graph_reshape(g, y, HR_SHAPE(4, 64)), HR_ACT_NONE);
    hr_graph_output(g, "y", hr_op_add(g, y, hr_op_scale(g, x, 1.5f)));
    assert_int_equal(hr_graph_finish(g), HR_OK);
    assert_int_equal(hr_pass_run_all(g, &out), HR_OK);
    /* the reshapes meet, and what is left gives x its own shape */
    assert_int_equal(count_op(out, HR_OP_scale), 1);
    assert_int_equal(count_op(out, HR_OP_cast), 0);
    assert_int_equal(count_op(out, HR_OP_activation), 0);
    assert_int_equal(count_op(out, HR_OP_reshape), 0);
    hr_graph_destroy(out);
    hr_graph_destroy(g);
}

/* A norm that somebody else reads too is not swallowed by its quantisation. */
static void test_fuse_keeps_what_is_read(void **state)
{
    (void)state;
    hr_value *x, *scale;
    hr_weight w = { .name = "w", .shape = HR_SHAPE(64), .format = HR_FORMAT_F32 };
    hr_graph *g = empty_graph(&x, 64), *out;
    hr_value *sum = hr_op_add(g, x, hr_op_scale(g, x, 2));
    hr_value *norm = hr_op_rms_norm(g, sum, hr_graph_weight(g, &w), 1e-5f, 0);
    hr_value *q = hr_op_quantise_rows(g, norm, 32, &scale);
    hr_graph_output(g, "q", q);
    hr_graph_output(g, "scale", scale);
    hr_graph_output(g, "norm", norm);
    assert_int_equal(hr_graph_finish(g), HR_OK);
    assert_int_equal(hr_pass_run_all(g, &out), HR_OK);
    assert_int_equal(count_op(out, HR_OP_add_rms_norm), 1);
    assert_int_equal(count_op(out, HR_OP_quantise_rows), 1);
    hr_graph_destroy(out);
    hr_graph_destroy(g);
}

/* Alike is not the same: other attributes, another shape. */
static void test_differences_stay(void **state)
{
    (void)state;
    hr_value *x, *s32, *s64;
    hr_weight w = { .name = "w", .shape = HR_SHAPE(64), .format = HR_FORMAT_F32 };
    hr_graph *g = empty_graph(&x, 64), *out;
    hr_value *norm = hr_op_rms_norm(g, x, hr_graph_weight(g, &w), 1e-5f, 0);
    hr_op_quantise_rows(g, norm, 32, &s32);
    hr_op_quantise_rows(g, norm, 64, &s64);
    hr_value *a = hr_op_scale(g, hr_graph_reshape(g, norm, HR_SHAPE(4, 8, 8)), 2);
    hr_value *b = hr_op_scale(g, hr_graph_reshape(g, norm, HR_SHAPE(4, 2, 32)), 2);
    hr_graph_output(g, "s32", hr_op_scale(g, s32, 3));
    hr_graph_output(g, "s64", hr_op_scale(g, s64, 3));
    hr_graph_output(g, "a", a);
    hr_graph_output(g, "b", b);
    assert_int_equal(hr_graph_finish(g), HR_OK);
    if (hr_pass_run_all(g, &out)) fail_msg("%s", hr_message());
    assert_int_equal(count_op(out, HR_OP_quantise_rows), 2);
    assert_int_equal(count_op(out, HR_OP_reshape), 2);
    assert_int_equal(count_op(out, HR_OP_rms_norm), 1);
    hr_graph_destroy(out);
    hr_graph_destroy(g);
}

/* Two quantisations of one norm: it stays, for both. */
static void test_two_readers_end_a_chain(void **state)
{
    (void)state;
    hr_value *x, *s32, *s64;
    hr_weight w = { .name = "w", .shape = HR_SHAPE(64), .format = HR_FORMAT_F32 };
    hr_graph *g = empty_graph(&x, 64), *out;
    hr_value *norm = hr_op_rms_norm(g, x, hr_graph_weight(g, &w), 1e-5f, 0);
    hr_op_quantise_rows(g, norm, 32, &s32);
    hr_op_quantise_rows(g, norm, 64, &s64);
    hr_graph_output(g, "s32", s32);
    hr_graph_output(g, "s64", s64);
    assert_int_equal(hr_graph_finish(g), HR_OK);
    if (hr_pass_run_all(g, &out)) fail_msg("%s", hr_message());
    assert_int_equal(count_op(out, HR_OP_rms_norm), 1);
    assert_int_equal(count_op(out, HR_OP_quantise_rows), 2);
    hr_graph_destroy(out);
    hr_graph_destroy(g);
}

/* A norm over heads and a norm by a computed weight stay as they are. */
static void test_fuse_only_rows(void **state)
{
    (void)state;
    hr_value *x;
    hr_weight w = { .name = "w", .shape = HR_SHAPE(16), .format = HR_FORMAT_F32 };
    hr_graph *g = empty_graph(&x, 64), *out;
    hr_value *h = hr_graph_reshape(g, x, HR_SHAPE(4, 4, 16));
    hr_value *sum = hr_op_add(g, h, hr_op_scale(g, h, 2));
    hr_graph_output(g, "y", hr_op_rms_norm(g, sum, hr_graph_weight(g, &w), 1e-5f, 0));
    assert_int_equal(hr_graph_finish(g), HR_OK);
    assert_int_equal(hr_pass_run_all(g, &out), HR_OK);
    assert_int_equal(count_op(out, HR_OP_rms_norm), 1);
    assert_int_equal(count_op(out, HR_OP_add), 1);
    hr_graph_destroy(out);
    hr_graph_destroy(g);
}

static void test_dead(void **state)
{
    (void)state;
    hr_value *x;
    hr_graph *g = empty_graph(&x, 64), *out;
    hr_op_softcap(g, hr_op_scale(g, x, 2), 3);
    hr_graph_output(g, "y", hr_op_scale(g, x, 4));
    assert_int_equal(hr_graph_finish(g), HR_OK);
    assert_int_equal(hr_pass_run_all(g, &out), HR_OK);
    assert_int_equal(out->n_nodes, 1);
    assert_int_equal(out->n_inputs, 1);
    hr_graph_destroy(out);
    hr_graph_destroy(g);
}

/* What a pass cannot build is reported with the pass's name. */
static void test_failures_name_the_pass(void **state)
{
    (void)state;
    hr_graph *g = tiny_graph(), *out;
    g->nodes[0]->attrs.dtype = HR_DTYPE_I8;
    assert_int_equal(hr_pass_run_all(g, &out), HR_INVALID_ARGUMENT);
    assert_string_equal(hr_message(),
                        "pass identity: graph tiny: embed: result dtype i8 is not a float");
    assert_null(out);
    hr_graph_destroy(g);
}

/* ---- memory that runs out ----------------------------------------------------------------------
 */

static int64_t calls_left, blocks_held;

static void *count_alloc(void *self, size_t bytes, size_t align)
{
    (void)self;
    if (calls_left-- <= 0) return NULL;
    blocks_held++;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void *count_realloc(void *self, void *p, size_t bytes)
{
    (void)self;
    if (calls_left-- <= 0) return NULL;
    blocks_held += p == NULL;
    return realloc(p, bytes);
}

static void count_free(void *self, void *p)
{
    (void)self;
    blocks_held--;
    free(p);
}

static hr_status passes_and_compile(const hr_graph *g)
{
    hr_graph *fused = NULL;
    hr_backend *b = NULL;
    hr_program *p = NULL;
    hr_status st = hr_pass_run_all(g, &fused);
    if (!st) st = hr_ref_backend_create(&b);
    if (!st) st = hr_backend_compile(b, fused, &p);
    hr_program_destroy(p, b);
    hr_backend_destroy(b);
    hr_graph_destroy(fused);
    return st;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    static const hr_allocator counting = { count_alloc, count_realloc, count_free, NULL };
    hr_graph *g = tiny_graph();
    hr_status st = HR_RESOURCE_EXHAUSTED;
    int64_t n = 0;
    hr_set_allocator(&counting);
    for (; st && n < 10000; n++) {
        calls_left = n;
        blocks_held = 0;
        st = passes_and_compile(g);
        if ((st && st != HR_RESOURCE_EXHAUSTED) || blocks_held) break;
    }
    hr_set_allocator(NULL);
    assert_int_equal(st, HR_OK);
    assert_int_equal(blocks_held, 0);
    assert_true(n > 20); /* it did fail, often */
    hr_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layer_after_each_pass),
        cmocka_unit_test(test_numbers_stay),
        cmocka_unit_test(test_outputs_keep_their_nodes),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_fuse_keeps_what_is_read),
        cmocka_unit_test(test_differences_stay),
        cmocka_unit_test(test_two_readers_end_a_chain),
        cmocka_unit_test(test_fuse_only_rows),
        cmocka_unit_test(test_dead),
        cmocka_unit_test(test_failures_name_the_pass),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
