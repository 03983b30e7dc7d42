/* Graphs: building, inference, verification, text form, expansion, and every allocation failing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "unit/golden.h"
#include "unit/tiny_graph.h"

static void assert_says(hr_status got, hr_status want, const char *sentence)
{
    assert_int_equal(got, want);
    if (!strstr(hr_message(), sentence)) fail_msg("'%s' is not in '%s'", sentence, hr_message());
}

static hr_graph *tiny_graph(void)
{
    hr_graph *g;
    assert_int_equal(tiny_build(&g), HR_OK);
    assert_int_equal(hr_graph_finish(g), HR_OK);
    return g;
}

static void test_tables(void **state)
{
    (void)state;
    assert_string_equal(hr_dtype_name(HR_DTYPE_U32), "ui32");
    assert_int_equal(hr_dtype_size(HR_DTYPE_BF16), 2);
    assert_int_equal(hr_format_row_bytes(HR_FORMAT_Q4_K, 512), 288);
    assert_true(hr_format_is_blocks(HR_FORMAT_Q8_0));
    assert_false(hr_format_is_blocks(HR_FORMAT_I8C));
    assert_int_equal(hr_shape_count(HR_SHAPE(3, 4, 5)), 60);
    assert_int_equal(hr_shape_row(HR_SHAPE(3, 4, 5)), 20);
    assert_int_equal(hr_shape_count((hr_shape){ 0 }), 1);
    assert_false(hr_shape_eq(HR_SHAPE(2, 3), HR_SHAPE(2, 3, 1)));
    for (int op = 0; op < HR_OP_COUNT; op++) {
        assert_in_range(hr_op_inputs((hr_op)op), 1, HR_NODE_MAX_IN);
        assert_in_range(hr_op_results((hr_op)op), 1, HR_NODE_MAX_OUT);
    }
    assert_true(hr_op_is_composite(HR_OP_gated));
    assert_false(hr_op_is_composite(HR_OP_linear));
}

static void test_print(void **state)
{
    (void)state;
    hr_graph *g = tiny_graph();
    golden_graph(g, "tiny");
    hr_graph_destroy(g);
}

static void test_expand(void **state)
{
    (void)state;
    hr_graph *g = tiny_graph(), *primitives;
    assert_int_equal(hr_graph_expand(g, &primitives), HR_OK);
    golden_graph(primitives, "tiny_expanded");
    for (size_t i = 0; i < primitives->n_nodes; i++)
        assert_false(hr_op_is_composite(primitives->nodes[i]->op));
    hr_graph_destroy(primitives);
    hr_graph_destroy(g);
}

/* The live count of gathered rows is that of their indices. */
static void test_live(void **state)
{
    (void)state;
    hr_graph *g;
    assert_int_equal(hr_graph_create("live", &g), HR_OK);
    hr_value *x = hr_graph_input(g, "x", HR_DTYPE_BF16, HR_SHAPE(8, 3), HR_LIVE_TOKENS);
    hr_value *r = hr_graph_input(g, "rows", HR_DTYPE_I32, HR_SHAPE(5), HR_LIVE_ROWS);
    hr_value *y = hr_op_gather_rows(g, hr_op_scale(g, x, 2), r);
    assert_non_null(y);
    assert_int_equal(y->producer->in[0]->live, HR_LIVE_TOKENS);
    assert_int_equal(y->live, HR_LIVE_ROWS);
    assert_int_equal(y->dtype, HR_DTYPE_BF16);
    assert_true(hr_shape_eq(y->shape, HR_SHAPE(5, 3)));
    hr_graph_output(g, "y", y);
    assert_int_equal(hr_graph_finish(g), HR_OK);
    hr_graph_destroy(g);
}

static void test_first_failure_sticks(void **state)
{
    (void)state;
    hr_graph *g;
    assert_int_equal(hr_graph_create("bad", &g), HR_OK);
    hr_value *x = hr_graph_input(g, "x", HR_DTYPE_F32, HR_SHAPE(2, 8), HR_LIVE_ALL);
    hr_value *z = hr_graph_input(g, "z", HR_DTYPE_F32, HR_SHAPE(2, 9), HR_LIVE_ALL);
    assert_null(hr_op_add(g, x, z));
    assert_null(hr_op_scale(g, x, 2));
    assert_null(hr_graph_input(g, "later", HR_DTYPE_F32, HR_SHAPE(1), HR_LIVE_ALL));
    assert_says(hr_graph_finish(g), HR_INVALID_ARGUMENT,
                "graph bad: add: a is f32 [2,8], b is f32 [2,9]");
    hr_graph_destroy(g);
}

static void refused_input(hr_shape shape, const char *sentence)
{
    hr_graph *g;
    assert_int_equal(hr_graph_create("bad", &g), HR_OK);
    assert_null(hr_graph_input(g, "x", HR_DTYPE_I8, shape, HR_LIVE_ALL));
    assert_says(hr_graph_finish(g), HR_INVALID_ARGUMENT, sentence);
    hr_graph_destroy(g);
}

static void test_hostile_shapes(void **state)
{
    (void)state;
    refused_input(HR_SHAPE(4, 0), "bad shape [4,0]");
    refused_input(HR_SHAPE(-1), "bad shape [-1]");
    refused_input(HR_SHAPE(INT64_MAX / 8, 2), "bad shape");
    refused_input((hr_shape){ 0 }, "rank 0");
    /* sizes that are fine alone and whose product is not */
    hr_graph *g;
    hr_weight w = tiny.q;
    w.name = "w";
    w.shape = HR_SHAPE((int64_t)1 << 40, 32);
    assert_int_equal(hr_graph_create("bad", &g), HR_OK);
    hr_value *x = hr_graph_input(g, "x", HR_DTYPE_F32, HR_SHAPE((int64_t)1 << 40, 32), HR_LIVE_ALL);
    assert_null(hr_op_linear(g, x, hr_graph_weight(g, &w), NULL, HR_DTYPE_F32));
    assert_says(hr_graph_finish(g), HR_INVALID_ARGUMENT, "linear: bad shape");
    hr_graph_destroy(g);
}

static void refused_weight(hr_weight w, const char *sentence)
{
    hr_graph *g;
    w.name = "w";
    assert_int_equal(hr_graph_create("bad", &g), HR_OK);
    assert_null(hr_graph_weight(g, &w));
    assert_says(hr_graph_finish(g), HR_INVALID_ARGUMENT, sentence);
    hr_graph_destroy(g);
}

static void test_weights(void **state)
{
    (void)state;
    refused_weight((hr_weight){ .shape = HR_SHAPE(4, 48), .format = HR_FORMAT_Q8_0 },
                   "w: 48 columns are no whole number of Q8_0 blocks");
    refused_weight((hr_weight){ .shape = HR_SHAPE(4, 48), .format = HR_FORMAT_I8C },
                   "w: int8 without one f32 scale per row");
    hr_graph *g = tiny_graph();
    size_t n = g->n_values;
    assert_ptr_equal(hr_graph_weight(g, &tiny.embed), hr_graph_weight(g, &tiny.embed));
    assert_int_equal(g->n_values, n);
    hr_graph_destroy(g);
}

static void test_names_are_unique(void **state)
{
    (void)state;
    hr_graph *g;
    assert_int_equal(hr_graph_create("twice", &g), HR_OK);
    hr_graph_input(g, "x", HR_DTYPE_F32, HR_SHAPE(1), HR_LIVE_ALL);
    assert_null(hr_graph_input(g, "x", HR_DTYPE_F32, HR_SHAPE(1), HR_LIVE_ALL));
    assert_says(hr_graph_finish(g), HR_INVALID_ARGUMENT, "two inputs named x");
    hr_graph_destroy(g);
}

static void test_verify_sees_damage(void **state)
{
    (void)state;
    hr_graph *g = tiny_graph();
    hr_node *first = g->nodes[0];

    g->nodes[0] = g->nodes[1];
    g->nodes[1] = first;
    assert_says(hr_graph_verify(g), HR_INTERNAL, "used before it is computed");
    g->nodes[1] = g->nodes[0];
    g->nodes[0] = first;
    assert_int_equal(hr_graph_verify(g), HR_OK);

    first->out[0]->shape.dim[1]++;
    assert_says(hr_graph_verify(g), HR_INTERNAL, "not what inference says");
    first->out[0]->shape.dim[1]--;
    first->out[0]->live = HR_LIVE_ALL;
    assert_says(hr_graph_verify(g), HR_INTERNAL, "not what inference says");
    first->out[0]->live = HR_LIVE_TOKENS;

    first->n_in = 1;
    assert_says(hr_graph_verify(g), HR_INTERNAL, "wrong number of operands");
    first->n_in = 2;
    hr_value stranger = *g->inputs[0], *ids = first->in[0];
    first->in[0] = &stranger;
    assert_says(hr_graph_verify(g), HR_INTERNAL, "an operand of another graph");
    first->in[0] = ids;

    g->n_nodes--; /* the last norm */
    assert_says(hr_graph_verify(g), HR_INTERNAL, "output hidden is never computed");
    g->n_nodes++;
    assert_int_equal(hr_graph_verify(g), HR_OK);
    hr_graph_destroy(g);
}

/* A cache, its rows, and one write; `kind` says what is done wrong. */
static void donation(int kind, const char *sentence)
{
    hr_graph *g;
    assert_int_equal(hr_graph_create("donation", &g), HR_OK);
    hr_shape s = HR_SHAPE(2, 4, 1, 8);
    hr_value *cache = hr_graph_input(g, "cache", HR_DTYPE_F32, s, HR_LIVE_ALL);
    hr_value *other = hr_graph_input(g, "other", HR_DTYPE_F32, s, HR_LIVE_ALL);
    hr_value *x = hr_graph_input(g, "x", HR_DTYPE_F32, HR_SHAPE(3, 1, 8), HR_LIVE_TOKENS);
    hr_value *slots = hr_graph_input(g, "slots", HR_DTYPE_I32, HR_SHAPE(3), HR_LIVE_TOKENS);
    if (kind == 1) hr_graph_output(g, "early", hr_op_scale(g, cache, 2));
    hr_value *now = hr_op_kv_write(g, cache, x, slots);
    hr_value *then = hr_op_kv_write(g, now, x, slots);
    if (kind == 2) hr_graph_output(g, "late", hr_op_scale(g, now, 2));
    if (kind == 3) hr_graph_output(g, "before", now);
    if (kind == 4) hr_graph_output(g, "cache", then);
    else hr_graph_output_donated(g, "cache", then, kind == 5 ? other : cache);
    if (kind == 6) hr_graph_output_donated(g, "again", then, cache);
    if (kind == 7) hr_graph_output_donated(g, "computed", then, now);
    hr_status st = hr_graph_finish(g);
    if (sentence) assert_says(st, kind == 7 ? HR_INVALID_ARGUMENT : HR_INTERNAL, sentence);
    else assert_int_equal(st, HR_OK);
    hr_graph_destroy(g);
}

static void test_donation(void **state)
{
    (void)state;
    donation(0, NULL);
    donation(1, NULL); /* read before it is overwritten */
    donation(2, "cache is read after kv_write overwrote it");
    donation(3, "cache is read after kv_write overwrote it");
    donation(4, "2 in-place writes reach no donated output");
    donation(5, "output cache does not continue other in place");
    donation(6, "outputs cache and again continue one input");
    donation(7, "output computed continues no input");
}

/* ---- an allocator that fails at the n-th call --------------------------------------------------
 */

static int64_t calls_left, blocks_held;

static void *count_alloc(void *self, size_t bytes, size_t align)
{
    (void)self;
    if (calls_left-- <= 0) return NULL;
    void *p =
        align <= 16 ? malloc(bytes) : aligned_alloc(align, (bytes + align - 1) & ~(align - 1));
    blocks_held += p != NULL;
    return p;
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

static hr_status build_and_expand(void)
{
    hr_graph *g = NULL, *primitives = NULL;
    hr_status st = tiny_build(&g);
    if (!st) st = hr_graph_finish(g);
    if (!st) st = hr_graph_expand(g, &primitives);
    hr_graph_destroy(primitives);
    hr_graph_destroy(g);
    return st;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    static const hr_allocator counting = { count_alloc, count_realloc, count_free, NULL };
    hr_set_allocator(&counting);
    hr_status st = HR_RESOURCE_EXHAUSTED;
    int64_t n = 0;
    for (; st && n < 10000; n++) {
        calls_left = n;
        blocks_held = 0;
        st = build_and_expand();
        if ((st && st != HR_RESOURCE_EXHAUSTED) || blocks_held) break;
    }
    hr_set_allocator(NULL);
    assert_int_equal(st, HR_OK);
    assert_int_equal(blocks_held, 0);
    assert_true(n > 10); /* it did fail, often */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_live),
        cmocka_unit_test(test_first_failure_sticks),
        cmocka_unit_test(test_hostile_shapes),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_names_are_unique),
        cmocka_unit_test(test_verify_sees_damage),
        cmocka_unit_test(test_donation),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
