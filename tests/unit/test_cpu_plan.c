/* Plans: values never share memory while both are needed, padding rows are left alone, weights are
 * packed once, faults name what they are about, and an execute allocates nothing.
 *
 * The oracle for memory is the same graph with every value an output: each then lies in a buffer
 * of its own, so the bits that come out cannot have been disturbed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <math.h>

#include "base/sync.h"
#include "cpu/cpu.h"
#include "unit/tiny_graph.h"

enum { ROWS = 12, WIDTH = 64, NODES = 40, MOST_OUT = NODES + 8 };

static hr_backend *backend;

static int start(void **state)
{
    (void)state;
    return hr_cpu_backend_create(&(hr_cpu_options){ .threads = 3 }, &backend);
}

static int stop(void **state)
{
    (void)state;
    hr_backend_destroy(backend);
    backend = NULL;
    return 0;
}

/* ---- running a graph --------------------------------------------------------------------------
 */

typedef struct runner {
    hr_program *program;
    hr_buffer *inputs[16], *outputs[MOST_OUT];
    size_t n_inputs, n_outputs;
} runner;

static hr_buffer *buffer_for(const hr_value *v)
{
    hr_buffer *x;
    hr_tensor_desc d = { v->dtype, v->shape };
    assert_int_equal(hr_buffer_create(backend, &d, &x), HR_OK);
    return x;
}

static void runner_make(const hr_graph *g, runner *r)
{
    *r = (runner){ .n_inputs = g->n_inputs, .n_outputs = g->n_outputs };
    if (hr_backend_compile(backend, g, &r->program)) fail_msg("%s", hr_message());
    for (size_t i = 0; i < g->n_inputs; i++) r->inputs[i] = buffer_for(g->inputs[i]);
    for (size_t i = 0; i < g->n_outputs; i++)
        r->outputs[i] = g->outputs[i].donor >= 0 ? r->inputs[g->outputs[i].donor]
                                                 : buffer_for(g->outputs[i].value);
}

static hr_status runner_run(runner *r, int64_t live)
{
    hr_execute_args a = { .inputs = r->inputs, .outputs = r->outputs };
    a.live[HR_LIVE_TOKENS] = a.live[HR_LIVE_ROWS] = live;
    hr_event done;
    HR_TRY(hr_program_execute(backend, r->program, &a, &done));
    return hr_event_await(&done);
}

static void runner_free(runner *r)
{
    for (size_t i = 0; i < r->n_outputs; i++) {
        bool donated = false;
        for (size_t k = 0; k < r->n_inputs; k++) donated |= r->outputs[i] == r->inputs[k];
        if (!donated) hr_buffer_destroy(r->outputs[i], backend);
    }
    for (size_t i = 0; i < r->n_inputs; i++) hr_buffer_destroy(r->inputs[i], backend);
    hr_program_destroy(r->program, backend);
}

static void fill(hr_buffer *x, size_t n, uint32_t seed)
{
    float v[ROWS * WIDTH];
    for (size_t i = 0; i < n; i++)
        v[i] = (float)(int)((uint32_t)(i + seed) * 2654435761u >> 20) / 2048 - 1;
    assert_int_equal(hr_buffer_put(backend, x, v, n * sizeof *v), HR_OK);
}

/* ---- random graphs ----------------------------------------------------------------------------
 */

static uint32_t random_state;
static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

static hr_weight square = { .name = "square",
                            .shape = { 2, { WIDTH, WIDTH } },
                            .format = HR_FORMAT_Q4_0,
                            .read_rows = tiny_rows };
static hr_weight ones = {
    .name = "ones", .shape = { 1, { WIDTH } }, .format = HR_FORMAT_F32, .read_rows = tiny_rows
};

/* One number per row, made by the sampler's kernels on the way: operands of later ones. */
typedef struct columns {
    hr_value *at[NODES];
    uint32_t n;
} columns;

static hr_value *add_op(hr_graph *g, hr_op op, hr_value *a, hr_value *b, columns *c)
{
    hr_node *node = NULL;
    hr_value *made = hr_graph_op(g, op, (hr_value *[]){ a, b }, 2, NULL, &node);
    if (c) c->at[c->n++] = op == HR_OP_temper ? node->out[1] : made;
    return made;
}

/* Kernels that keep to their row, whose runs are chains. */
static hr_value *random_chain_node(hr_graph *g, hr_value *a, columns *c)
{
    hr_value *column = c->at[random_below(c->n)];
    switch (random_below(4)) {
    case 0: return add_op(g, HR_OP_temper, a, column, c);
    case 1: add_op(g, HR_OP_log_sum_exp, a, NULL, c); /* fall through */
    default: return add_op(g, HR_OP_keep, a, column, NULL);
    }
}

static hr_value *random_node(hr_graph *g, hr_value *const *v, uint32_t n, columns *c)
{
    hr_value *a = v[random_below(n)], *b = v[random_below(n)], *scale;
    if (c && random_below(4)) return random_chain_node(g, a, c);
    switch (random_below(8)) {
    case 0: return hr_op_add(g, a, b);
    case 1: return hr_op_gated(g, a, b, HR_ACT_SILU);
    case 2: return hr_op_rms_norm(g, a, hr_graph_weight(g, &ones), 1e-5f, 0);
    case 3: return hr_op_scale(g, a, 0.5f);
    case 4: return hr_op_softcap(g, a, 2);
    case 5: return hr_op_linear(g, a, hr_graph_weight(g, &square), NULL, HR_DTYPE_F32);
    case 6:
        a = hr_op_quantise_rows(g, a, 32, &scale);
        return hr_op_linear_q8(g, a, scale, hr_graph_weight(g, &square), NULL, HR_DTYPE_F32);
    default:
        a = hr_graph_reshape(g, a, HR_SHAPE(ROWS, WIDTH / 16, 16));
        return hr_graph_reshape(g, a, HR_SHAPE(ROWS, WIDTH));
    }
}

typedef enum shown { SHOW_SOME, SHOW_ALL } shown;
enum { CHAINS = 1000 }; /* seeds from here on: mostly chains */

/* The same values whatever is shown; the last four are outputs in both. */
static hr_graph *random_graph(uint32_t seed, shown what)
{
    hr_graph *g;
    columns c = { .n = 0 };
    hr_value *v[NODES + 2];
    random_state = seed;
    assert_int_equal(hr_graph_create("random", &g), HR_OK);
    v[0] = hr_graph_input(g, "a", HR_DTYPE_F32, HR_SHAPE(ROWS, WIDTH), HR_LIVE_TOKENS);
    v[1] = hr_graph_input(g, "b", HR_DTYPE_F32, HR_SHAPE(ROWS, WIDTH), HR_LIVE_TOKENS);
    if (seed >= CHAINS)
        c.at[c.n++] = hr_graph_input(g, "c", HR_DTYPE_F32, HR_SHAPE(ROWS), HR_LIVE_TOKENS);
    for (uint32_t i = 2; i < NODES + 2; i++) v[i] = random_node(g, v, i, c.n ? &c : NULL);
    for (uint32_t i = what == SHOW_ALL ? 2 : NODES - 2; i < NODES + 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%u", i);
        hr_graph_output(g, name, v[i]);
    }
    if (hr_graph_finish(g)) fail_msg("%s", hr_message());
    return g;
}

/* Fills the whole slab with NaN by computing with it. */
static void poison(runner *r)
{
    float nan_rows[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) nan_rows[i] = NAN;
    for (int i = 0; i < 2; i++)
        assert_int_equal(hr_buffer_put(backend, r->inputs[i], nan_rows, sizeof nan_rows), HR_OK);
    if (r->n_inputs > 2)
        assert_int_equal(hr_buffer_put(backend, r->inputs[2], nan_rows, ROWS * sizeof(float)),
                         HR_OK);
    assert_int_equal(runner_run(r, ROWS), HR_OK);
}

static void fill_inputs(runner *r, size_t rows, uint32_t seed)
{
    for (uint32_t i = 0; i < 2; i++) fill(r->inputs[i], rows * WIDTH, seed + i);
    if (r->n_inputs > 2) fill(r->inputs[2], rows, seed);
}

static void check_values_keep_apart(uint32_t first, uint32_t last)
{
    for (uint32_t seed = first; seed <= last; seed++) {
        hr_graph *some = random_graph(seed, SHOW_SOME), *all = random_graph(seed, SHOW_ALL);
        runner a, b;
        runner_make(some, &a);
        runner_make(all, &b);
        poison(&a);
        fill_inputs(&a, ROWS, seed);
        fill_inputs(&b, ROWS, seed);
        assert_int_equal(runner_run(&a, ROWS), HR_OK);
        assert_int_equal(runner_run(&b, ROWS), HR_OK);
        for (size_t i = 0; i < a.n_outputs; i++) {
            float x[ROWS * WIDTH], y[ROWS * WIDTH];
            hr_buffer *own = b.outputs[b.n_outputs - a.n_outputs + i];
            assert_int_equal(hr_buffer_get(backend, a.outputs[i], x, sizeof x), HR_OK);
            assert_int_equal(hr_buffer_get(backend, own, y, sizeof y), HR_OK);
            if (memcmp(x, y, sizeof x)) fail_msg("seed %u: output %zu was disturbed", seed, i);
        }
        runner_free(&a);
        runner_free(&b);
        hr_graph_destroy(some);
        hr_graph_destroy(all);
    }
}

static void test_values_keep_apart(void **state)
{
    (void)state;
    check_values_keep_apart(1, 60);
}

/* What a chain hands on lies in one row per worker; what leaves it, or is read beside it, must not.
 */
static void test_chains_keep_apart(void **state)
{
    (void)state;
    check_values_keep_apart(CHAINS, CHAINS + 200);
}

/* ---- live counts ------------------------------------------------------------------------------
 */

/* Padding holds NaN in, a pattern out; live rows do not depend on how many there are. */
static void check_padding(uint32_t seed)
{
    hr_graph *g = random_graph(seed, SHOW_SOME);
    runner full, part;
    runner_make(g, &full);
    runner_make(g, &part);
    fill_inputs(&full, ROWS, 0);
    assert_int_equal(runner_run(&full, ROWS), HR_OK);
    for (int64_t live = 0; live < ROWS; live += 5) {
        uint8_t pattern[ROWS * WIDTH * 4];
        memset(pattern, 0xa5, sizeof pattern);
        poison(&part);
        fill_inputs(&part, (size_t)live, 0);
        for (size_t i = 0; i < part.n_outputs; i++)
            assert_int_equal(hr_buffer_put(backend, part.outputs[i], pattern, sizeof pattern),
                             HR_OK);
        assert_int_equal(runner_run(&part, live), HR_OK);
        for (size_t i = 0; i < part.n_outputs; i++) {
            uint8_t x[sizeof pattern], y[sizeof pattern];
            size_t bytes = (size_t)live * WIDTH * 4;
            assert_int_equal(hr_buffer_get(backend, part.outputs[i], x, sizeof x), HR_OK);
            assert_int_equal(hr_buffer_get(backend, full.outputs[i], y, sizeof y), HR_OK);
            if (bytes) assert_memory_equal(x, y, bytes);
            assert_memory_equal(x + bytes, pattern, sizeof pattern - bytes);
        }
    }
    runner_free(&full);
    runner_free(&part);
    hr_graph_destroy(g);
}

static void test_padding(void **state)
{
    (void)state;
    check_padding(7);
    for (uint32_t seed = CHAINS; seed < CHAINS + 10; seed++) check_padding(seed);
}

/* ---- steps and weights ------------------------------------------------------------------------
 */

static void test_shared_rows_are_one_step(void **state)
{
    (void)state;
    hr_graph *g;
    hr_program_info info;
    runner r;
    assert_int_equal(hr_graph_create("qkv", &g), HR_OK);
    hr_value *x = hr_graph_input(g, "x", HR_DTYPE_F32, HR_SHAPE(ROWS, H), HR_LIVE_TOKENS);
    hr_value *scale, *q = hr_op_quantise_rows(g, x, 32, &scale);
    hr_weight *w[] = { &tiny.q, &tiny.k, &tiny.v };
    static const char *const names[] = { "q", "k", "v" };
    for (int i = 0; i < 3; i++)
        hr_graph_output(
            g, names[i],
            hr_op_linear_q8(g, q, scale, tiny_w(g, w[i], names[i]), NULL, HR_DTYPE_F32));
    assert_int_equal(hr_graph_finish(g), HR_OK);
    runner_make(g, &r);
    hr_program_info_get(backend, r.program, &info);
    assert_int_equal(info.steps, 3); /* quantise; sums of the rows; all three products */
    runner_free(&r);
    hr_graph_destroy(g);
}

/* keep(temper(x)) and what the sampler reads of it: one step, and no memory per row but the output.
 */
static void test_chain_is_one_step(void **state)
{
    (void)state;
    hr_graph *g;
    hr_program_info info;
    runner r;
    columns c = { .n = 0 };
    assert_int_equal(hr_graph_create("chain", &g), HR_OK);
    hr_value *x = hr_graph_input(g, "x", HR_DTYPE_F32, HR_SHAPE(ROWS, WIDTH), HR_LIVE_ROWS);
    hr_value *t = hr_graph_input(g, "t", HR_DTYPE_F32, HR_SHAPE(ROWS), HR_LIVE_ROWS);
    hr_value *y = add_op(g, HR_OP_temper, x, t, &c);
    y = add_op(g, HR_OP_keep, y, c.at[0], NULL);
    hr_graph_output(g, "sum", add_op(g, HR_OP_log_sum_exp, y, NULL, NULL));
    assert_int_equal(hr_graph_finish(g), HR_OK);
    runner_make(g, &r);
    hr_program_info_get(backend, r.program, &info);
    assert_int_equal(info.steps, 1);
    /* y, changed in place, and the column, for each of 3 workers */
    assert_int_equal(info.peak_bytes, 3 * (WIDTH * 4 + 64));
    runner_free(&r);
    hr_graph_destroy(g);
}

static hr_graph *tied_graph(hr_weight *w)
{
    hr_graph *g;
    assert_int_equal(hr_graph_create("tied", &g), HR_OK);
    hr_value *ids = hr_graph_input(g, "ids", HR_DTYPE_I32, HR_SHAPE(ROWS), HR_LIVE_TOKENS);
    hr_value *x = hr_op_embed(g, ids, tiny_w(g, w, "tied"), HR_DTYPE_F32);
    hr_graph_output(g, "y", hr_op_linear(g, x, tiny_w(g, w, "tied"), NULL, HR_DTYPE_F32));
    assert_int_equal(hr_graph_finish(g), HR_OK);
    return g;
}

static void test_weights_are_packed_once(void **state)
{
    (void)state;
    hr_weight w = tiny.embed;
    hr_graph *g = tied_graph(&w);
    size_t before = backend->v->weight_bytes(backend);
    runner a, b;
    runner_make(g, &a);
    size_t one = backend->v->weight_bytes(backend) - before;
    /* V 40 columns fill 3 panels of 16. */
    assert_int_equal(one, 48 * hr_format_row_bytes(w.format, H));
    runner_make(g, &b);
    assert_int_equal(backend->v->weight_bytes(backend) - before, one);
    runner_free(&a);
    runner_free(&b);
    hr_graph_destroy(g);
}

static hr_status zero_rows(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    (void)first;
    int64_t k = w->shape.dim[w->shape.rank - 1];
    memset(to, 0, (size_t)count * hr_format_row_bytes(w->format, k));
    return HR_OK;
}

static hr_status slow_scales(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    return zero_rows(w, first, count, to);
}

/* Scales are read while their matrix is, and the time is told once. */
static void test_time_of_weights(void **state)
{
    (void)state;
    hr_weight scale = {
        .name = "scale", .shape = HR_SHAPE(WIDTH), .format = HR_FORMAT_F32, .read_rows = slow_scales
    };
    hr_weight w = { .name = "w",
                    .shape = HR_SHAPE(WIDTH, WIDTH),
                    .format = HR_FORMAT_I8C,
                    .scale = &scale,
                    .read_rows = zero_rows };
    hr_graph *g;
    hr_program *p;
    hr_value *x_scale;
    assert_int_equal(hr_graph_create("integers", &g), HR_OK);
    hr_value *x = hr_graph_input(g, "x", HR_DTYPE_F32, HR_SHAPE(ROWS, WIDTH), HR_LIVE_TOKENS);
    hr_value *q = hr_op_quantise_rows(g, x, WIDTH, &x_scale);
    hr_graph_output(g, "y",
                    hr_op_linear_q8(g, q, x_scale, hr_graph_weight(g, &w), NULL, HR_DTYPE_F32));
    assert_int_equal(hr_graph_finish(g), HR_OK);
    double begin = hr_now_s();
    assert_int_equal(hr_backend_compile(backend, g, &p), HR_OK);
    double took = hr_now_s() - begin;
    assert_true(backend->weights_s >= 0.05 && backend->weights_s <= took);
    hr_program_destroy(p, backend);
    hr_graph_destroy(g);
}

static void test_numerics(void **state)
{
    (void)state;
    hr_weight w = tiny.embed;
    hr_graph *g = tied_graph(&w);
    runner r;
    hr_buf json = { 0 };
    runner_make(g, &r);
    backend->v->numerics(backend, &json);
    assert_non_null(strstr(hr_buf_c(&json), "\"backend\":\"cpu\",\"isa\":\""));
    assert_non_null(strstr(hr_buf_c(&json), "\"kernels\":{\"Q4_0\":\"f32"));
    hr_buf_deinit(&json);
    runner_free(&r);
    hr_graph_destroy(g);
}

/* ---- faults and limits ------------------------------------------------------------------------
 */

static hr_status no_rows(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    (void)to;
    if (first < 16) return tiny_rows(w, first, count, to);
    return hr_fail(HR_DATA_LOSS, "file.gguf: tensor %s ends at row %lld", w->name,
                   (long long)first);
}

/* A reader's failure on a worker of the pool arrives with its sentence. */
static void test_unreadable_weight(void **state)
{
    (void)state;
    hr_weight w = tiny.embed;
    w.read_rows = no_rows;
    hr_graph *g = tied_graph(&w);
    hr_program *p;
    size_t before = backend->v->weight_bytes(backend);
    assert_int_equal(hr_backend_compile(backend, g, &p), HR_DATA_LOSS);
    assert_null(p);
    assert_non_null(strstr(hr_message(), "program tied"));
    assert_non_null(strstr(hr_message(), "file.gguf: tensor tied ends at row"));
    assert_int_equal(backend->v->weight_bytes(backend), before);
    hr_graph_destroy(g);
}

static void test_wrong_buffers(void **state)
{
    (void)state;
    hr_graph *g = random_graph(3, SHOW_SOME);
    runner r;
    runner_make(g, &r);
    hr_buffer *own = r.outputs[0];
    r.outputs[0] = r.inputs[1];
    assert_int_equal(runner_run(&r, ROWS), HR_INVALID_ARGUMENT);
    assert_non_null(strstr(hr_message(), "also input b"));
    hr_tensor_desc small = { HR_DTYPE_F32, HR_SHAPE(1) };
    assert_int_equal(hr_buffer_create(backend, &small, &r.outputs[0]), HR_OK);
    assert_int_equal(runner_run(&r, ROWS), HR_INVALID_ARGUMENT);
    hr_buffer_destroy(r.outputs[0], backend);
    r.outputs[0] = own;
    runner_free(&r);
    hr_graph_destroy(g);
}

static void test_execute_allocates_nothing(void **state)
{
    (void)state;
    hr_graph *g;
    runner r;
    assert_int_equal(tiny_build(&g), HR_OK);
    assert_int_equal(hr_graph_finish(g), HR_OK);
    runner_make(g, &r);
    uint64_t before = hr_alloc_count();
    for (int i = 0; i < 20; i++) assert_int_equal(runner_run(&r, i % (T + 1)), HR_OK);
    assert_int_equal(hr_alloc_count(), before);
    runner_free(&r);
    hr_graph_destroy(g);
}

/* An allocator that refuses the n-th request and all after it. */
static long left;

static void *alloc_some(void *self, size_t bytes, size_t align)
{
    (void)self;
    if (left-- <= 0) return NULL;
    size_t whole = (bytes + align - 1) / align * align;
    return aligned_alloc(align, whole);
}
static void *realloc_some(void *self, void *p, size_t bytes)
{
    (void)self;
    return left-- <= 0 ? NULL : realloc(p, bytes);
}
static void free_all(void *self, void *p)
{
    (void)self;
    free(p);
}

/* Memory that ends anywhere between the backend's first byte and a compiled program's last. */
static void test_short_memory(void **state)
{
    (void)state;
    hr_graph *g;
    assert_int_equal(tiny_build(&g), HR_OK);
    assert_int_equal(hr_graph_finish(g), HR_OK);
    static const hr_allocator short_of_memory = { alloc_some, realloc_some, free_all, NULL };
    hr_status st = HR_UNKNOWN;
    long n = 0;
    for (; st; n++) {
        hr_backend *b = NULL;
        hr_program *p = NULL;
        left = n;
        hr_set_allocator(&short_of_memory);
        st = hr_cpu_backend_create(&(hr_cpu_options){ .threads = 2 }, &b);
        if (!st) st = hr_backend_compile(b, g, &p);
        left = 1000;
        if (b) hr_program_destroy(p, b);
        hr_backend_destroy(b);
        hr_set_allocator(NULL);
        if (st) assert_int_equal(st, HR_RESOURCE_EXHAUSTED);
    }
    assert_true(n > 20);
    hr_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_values_keep_apart, start, stop),
        cmocka_unit_test_setup_teardown(test_chains_keep_apart, start, stop),
        cmocka_unit_test_setup_teardown(test_padding, start, stop),
        cmocka_unit_test_setup_teardown(test_shared_rows_are_one_step, start, stop),
        cmocka_unit_test_setup_teardown(test_chain_is_one_step, start, stop),
        cmocka_unit_test_setup_teardown(test_weights_are_packed_once, start, stop),
        cmocka_unit_test_setup_teardown(test_time_of_weights, start, stop),
        cmocka_unit_test_setup_teardown(test_numerics, start, stop),
        cmocka_unit_test_setup_teardown(test_unreadable_weight, start, stop),
        cmocka_unit_test_setup_teardown(test_wrong_buffers, start, stop),
        cmocka_unit_test_setup_teardown(test_execute_allocates_nothing, start, stop),
        cmocka_unit_test(test_short_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
