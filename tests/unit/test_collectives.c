/* all_reduce and all_gather between devices of XLA's CPU plugin, against sums in double. Every
 * device multiplies the same rows by its own slice of a matrix; the last slice is filled up with
 * zeros. Skipped where the plugin has not been fetched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plugin_bed.h"

#ifdef HR_HAVE_PJRT
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/half.h"
#include "cpu/cpu.h"
#include "pjrt/pjrt.h"
#include "ref/ref.h"

enum { T = 5, K = 24, M = 7, MOST = 4 }; /* M rows of the matrix on each device */

static float x_at(int64_t t, int64_t k)
{
    return (float)((t * 37 + k * 11) % 64 - 32) / 32; /* exact in every dtype */
}

static float w_at(int64_t n, int64_t k)
{
    return (float)((n * 53 + k * 29 + n * k) % 201 - 100) / 73;
}

static float bias_at(int64_t n)
{
    return (float)(n - 3) / 3;
}

static hr_status read_slice(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    for (int64_t i = 0; i < count * K; i++) {
        int64_t n = w->shard.rank * M + first + i / K;
        ((float *)to)[i] = n < w->shard.count * M - 1 ? w_at(n, i % K) : 0;
    }
    return HR_OK;
}

static hr_status read_bias(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    (void)w, (void)first, (void)count;
    for (int64_t n = 0; n < M; n++) ((float *)to)[n] = bias_at(n);
    return HR_OK;
}

typedef struct rig {
    hr_weight w, bias;
    hr_graph *g;
    hr_backend *b;
    hr_program *p;
    hr_buffer *x, *out[2];
} rig;

static void make_graph(rig *r, int devices, hr_dtype d)
{
    r->w = (hr_weight){ .name = "w",
                        .shape = HR_SHAPE(M, K),
                        .format = HR_FORMAT_F32,
                        .read_rows = read_slice,
                        .shard = { .axis = 0, .rank = 0, .count = devices } };
    r->bias = (hr_weight){
        .name = "bias", .shape = HR_SHAPE(M), .format = HR_FORMAT_F32, .read_rows = read_bias
    };
    assert_int_equal(hr_graph_create("collectives", &r->g), HR_OK);
    hr_value *x = hr_graph_input(r->g, "x", HR_DTYPE_F32, HR_SHAPE(T, K), HR_LIVE_TOKENS);
    hr_value *y = hr_op_linear(r->g, x, hr_graph_weight(r->g, &r->w), NULL, d);
    hr_graph_output(r->g, "gathered", hr_op_all_gather(r->g, y, devices, devices * M - 1));
    hr_graph_output(r->g, "reduced",
                    hr_op_all_reduce(r->g, y, hr_graph_weight(r->g, &r->bias), devices, d));
    if (hr_graph_finish(r->g)) fail_msg("%s", hr_message());
}

static void run(rig *r, void *gathered, void *reduced)
{
    float x[T * K];
    for (int i = 0; i < T * K; i++) x[i] = x_at(i / K, i % K);
    hr_tensor_desc of_x = { HR_DTYPE_F32, HR_SHAPE(T, K) };
    hr_status st = hr_backend_compile(r->b, r->g, &r->p);
    if (!st) st = hr_program_await(r->b, r->p);
    if (!st) st = hr_buffer_create(r->b, &of_x, &r->x);
    if (!st) st = hr_buffer_put(r->b, r->x, x, sizeof x);
    for (int i = 0; !st && i < 2; i++) {
        const hr_value *v = r->g->outputs[i].value;
        hr_tensor_desc d = { v->dtype, v->shape };
        st = hr_buffer_create(r->b, &d, &r->out[i]);
    }
    hr_execute_args a = { .inputs = &r->x, .outputs = r->out, .live = { 0, T, T } };
    hr_event done;
    if (!st) st = hr_program_execute(r->b, r->p, &a, &done);
    if (!st) st = hr_event_await(&done);
    void *to[] = { gathered, reduced };
    for (int i = 0; !st && i < 2; i++) {
        const hr_value *v = r->g->outputs[i].value;
        st = hr_buffer_get(r->b, r->out[i], to[i],
                           (size_t)hr_shape_count(v->shape) * hr_dtype_size(v->dtype));
    }
    if (st) fail_msg("%s", hr_message());
}

static void end(rig *r)
{
    for (int i = 0; i < 2; i++) hr_buffer_destroy(r->out[i], r->b);
    hr_buffer_destroy(r->x, r->b);
    hr_program_destroy(r->p, r->b);
    hr_backend_destroy(r->b);
    hr_graph_destroy(r->g);
}

static double get(hr_dtype d, const void *data, int64_t i)
{
    if (d == HR_DTYPE_F32) return (double)((const float *)data)[i];
    uint16_t h = ((const uint16_t *)data)[i];
    return (double)(d == HR_DTYPE_BF16 ? hr_bf16_to_f32(h) : hr_f16_to_f32(h));
}

/* `units` roundings of f32 beside magnitude `size`, and `last` ones of the dtype beside `ends`. */
static void close_to(double got, double want, double units, double size, hr_dtype d, double ends)
{
    double u = d == HR_DTYPE_F32 ? 0x1p-24 : d == HR_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    double bound = units * 0x1p-24 * size + 1.01 * u * ends + 0x1p-24 * u;
    if (!(fabs(got - want) <= bound)) fail_msg("%.9g, not %.9g, bound %g", got, want, bound);
}

/* Ids in their order, the filled row dropped. */
static void check_gathered(const void *data, int devices, hr_dtype d)
{
    int64_t N = devices * M - 1;
    for (int64_t i = 0; i < T * N; i++) {
        double y = 0, size = 0;
        for (int64_t k = 0; k < K; k++) {
            double term = (double)x_at(i / N, k) * (double)w_at(i % N, k);
            y += term;
            size += fabs(term);
        }
        close_to(get(d, data, i), y, K + 1, size, d, fabs(y) + size * K * 0x1p-24);
    }
}

/* Of what was gathered: the operands of the sum, to the bit. */
static void check_reduced(const void *data, const void *gathered, int devices, hr_dtype d)
{
    int64_t N = devices * M - 1;
    for (int64_t i = 0; i < T * M; i++) {
        double y = 0, size = 0, bias = (double)bias_at(i % M);
        for (int64_t r = 0; r < devices; r++) {
            int64_t n = r * M + i % M;
            double part = n < N ? get(d, gathered, i / M * N + n) : 0;
            y += part;
            size += fabs(part);
        }
        close_to(get(d, data, i), y + bias, devices, size, d, 2 * fabs(y) + 2 * fabs(bias));
    }
}

static void test_devices(void **state)
{
    int devices = *(int *)*state;
    hr_pjrt_options o = { .plugin = XLA_CPU, .devices = devices };
    for (hr_dtype d = HR_DTYPE_F32; d <= HR_DTYPE_F16; d++) {
        rig r = { .b = NULL };
        float gathered[T * M * MOST], reduced[T * M];
        make_graph(&r, devices, d);
        if (hr_pjrt_backend_create(&o, &r.b)) fail_msg("%s", hr_message());
        run(&r, gathered, reduced);
        check_gathered(gathered, devices, d);
        check_reduced(reduced, gathered, devices, d);
        end(&r);
    }
}

/* One device cannot stand for two, natively. */
static void test_native(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        rig r = { .b = NULL };
        make_graph(&r, 2, HR_DTYPE_F32);
        hr_status st = i ? hr_ref_backend_create(&r.b)
                         : hr_cpu_backend_create(&(hr_cpu_options){ .threads = 1 }, &r.b);
        assert_int_equal(st, HR_OK);
        assert_int_equal(hr_backend_compile(r.b, r.g, &r.p), HR_UNIMPLEMENTED);
        assert_non_null(strstr(hr_message(), "is one device, the program is for 2"));
        end(&r);
    }
}

int main(void)
{
    static int one = 1, two = 2, three = 3, four = 4;
    setenv("TF_CPP_MIN_LOG_LEVEL", "3", 0);
    const struct CMUnitTest tests[] = {
        { "one device", test_devices, NULL, NULL, &one },
        { "two devices", test_devices, NULL, NULL, &two },
        { "three devices", test_devices, NULL, NULL, &three },
        { "four devices", test_devices, NULL, NULL, &four },
        cmocka_unit_test(test_native),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
