/* The PJRT room over plugins that fail: every call in turn, late, too old, none at all. Then a
 * small program on XLA's CPU plugin, which is skipped where that has not been fetched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plugin_bed.h"

#ifdef HR_HAVE_PJRT
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/log.h"
#include "pjrt/pjrt.h"
#include "ref/ref.h"

enum { T = 3, N = 2, D = 4, BLOCKS = 2, BLOCK = 2, CACHE = BLOCKS * BLOCK * N * D };

static hr_status read_weight(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    (void)w;
    (void)first;
    for (int64_t i = 0; i < count * D; i++) ((float *)to)[i] = 1 + (float)i / 4;
    return HR_OK;
}

static const hr_weight norm = {
    .name = "norm", .shape = { 1, { D } }, .format = HR_FORMAT_F32, .read_rows = read_weight
};

/* cache[slots] = rms_norm(x), in place. Made once: tests with short memory are about the rest. */
static hr_graph *graph;

static int make_graph(void **state)
{
    (void)state;
    hr_graph *g;
    if (hr_graph_create("writer", &graph)) return 1;
    g = graph;
    hr_value *cache =
        hr_graph_input(g, "cache", HR_DTYPE_F32, HR_SHAPE(BLOCKS, BLOCK, N, D), HR_LIVE_ALL);
    hr_value *x = hr_graph_input(g, "x", HR_DTYPE_F32, HR_SHAPE(T, N, D), HR_LIVE_TOKENS);
    hr_value *slots = hr_graph_input(g, "slots", HR_DTYPE_I32, HR_SHAPE(T), HR_LIVE_TOKENS);
    hr_value *y = hr_op_rms_norm(g, x, hr_graph_weight(g, &norm), 1e-5f, 0);
    hr_graph_output_donated(g, "cache", hr_op_kv_write(g, cache, y, slots), cache);
    return (int)hr_graph_finish(g);
}

static int drop_graph(void **state)
{
    (void)state;
    hr_graph_destroy(graph);
    return 0;
}

/* What one run holds. */
typedef struct rig {
    hr_backend *b;
    hr_program *p;
    hr_buffer *in[3];
    hr_event done;
} rig;

static int devices = 1; /* of the backends that are opened */

static hr_status rig_open(rig *r, const char *plugin)
{
    hr_pjrt_options o = { .plugin = plugin, .devices = devices };
    o.compile_threads = -1; /* calls in a known order */
    *r = (rig){ 0 };
    return plugin ? hr_pjrt_backend_create(&o, &r->b) : hr_ref_backend_create(&r->b);
}

static hr_status rig_make(rig *r)
{
    static const hr_tensor_desc desc[] = {
        { HR_DTYPE_F32, { 4, { BLOCKS, BLOCK, N, D } } },
        { HR_DTYPE_F32, { 3, { T, N, D } } },
        { HR_DTYPE_I32, { 1, { T } } },
    };
    hr_status st = hr_backend_compile(r->b, graph, &r->p);
    for (int i = 0; !st && i < 3; i++) st = hr_buffer_create(r->b, &desc[i], &r->in[i]);
    return st;
}

static hr_status rig_put(rig *r)
{
    static const int32_t slots[T] = { 2, -1, 0 };
    static const float tail[2] = { 50, 60 };
    float x[T * N * D], cache[CACHE];
    for (int i = 0; i < T * N * D; i++) x[i] = (float)i - 7;
    for (int i = 0; i < CACHE; i++) cache[i] = (float)i;
    hr_status st = hr_buffer_put(r->b, r->in[0], cache, sizeof cache);
    if (!st) st = hr_buffer_put(r->b, r->in[0], tail, sizeof tail); /* the rest stays */
    if (!st) st = hr_buffer_put(r->b, r->in[1], x, sizeof x);
    if (!st) st = hr_buffer_put(r->b, r->in[2], slots, sizeof slots);
    return st;
}

static hr_status rig_execute(rig *r)
{
    hr_execute_args a = { .inputs = r->in, .outputs = r->in, .live = { 0, T, T } };
    HR_TRY(hr_program_execute(r->b, r->p, &a, &r->done));
    return hr_event_await(&r->done);
}

static hr_status rig_get(rig *r, float cache[CACHE])
{
    float part[3];
    HR_TRY(hr_buffer_get(r->b, r->in[0], cache, sizeof(float) * CACHE));
    HR_TRY(hr_buffer_get(r->b, r->in[0], part, sizeof part));
    assert_memory_equal(part, cache, sizeof part);
    return HR_OK;
}

static void rig_close(rig *r)
{
    hr_program_destroy(r->p, r->b);
    for (int i = 0; i < 3; i++) hr_buffer_destroy(r->in[i], r->b);
    hr_backend_destroy(r->b);
}

static hr_status rig_all(const char *plugin, float cache[CACHE])
{
    rig r;
    hr_status st = rig_open(&r, plugin);
    if (!st) st = rig_make(&r);
    if (!st) st = rig_put(&r);
    if (!st) st = rig_execute(&r);
    if (!st) st = rig_get(&r, cache);
    rig_close(&r);
    return st;
}

static void refused(const char *plugin, hr_status want, const char *part)
{
    hr_pjrt_options o = { .plugin = plugin };
    hr_backend *b = (hr_backend *)&o;
    assert_int_equal(hr_pjrt_backend_create(&o, &b), want);
    assert_null(b);
    if (!strstr(hr_message(), part)) fail_msg("'%s' says nothing of '%s'", hr_message(), part);
}

static void test_no_plugin(void **state)
{
    (void)state;
    refused(HR_STUB_FOLDER "/no_such_plugin.so", HR_NOT_FOUND, "no_such_plugin.so");
    refused(HR_SOURCE_DIR "/README.md", HR_FAILED_PRECONDITION, "is no plugin");
    refused("libm.so.6", HR_NOT_FOUND, "libm.so.6"); /* not looked for in the system's folders */
    refused(HR_STUB_FOLDER "/stub_short.so", HR_FAILED_PRECONDITION, "PJRT_Buffer_ToHostBuffer");
    refused(HR_STUB_FOLDER "/stub_major.so", HR_FAILED_PRECONDITION, "PJRT API 9.5");
    refused(HR_STUB_FOLDER "/stub_no_table.so", HR_FAILED_PRECONDITION, "no PJRT table");
}

static void test_bad_client(void **state)
{
    (void)state;
    stub_state *s = stub_of(STUB);
    *s = (stub_state){ .no_devices = 1 };
    refused(STUB, HR_UNAVAILABLE, "no device");
    hr_pjrt_options o = { .plugin = STUB, .create_options = "a=1,b" };
    hr_backend *b;
    *s = (stub_state){ 0 };
    assert_int_equal(hr_pjrt_backend_create(&o, &b), HR_INVALID_ARGUMENT);
    assert_int_equal(s->alive, 0);
}

/* Every call fails in turn: the stub's own sentence comes back, and nothing is left behind. */
static void test_each_call(void **state)
{
    stub_state *s = stub_of(STUB);
    float cache[CACHE];
    int n = 1;
    devices = *(int *)*state;
    for (;; n++) {
        *s = (stub_state){ .results = 1, .devices = 3, .fail_at = n };
        hr_status st = rig_all(STUB, cache);
        assert_int_equal(s->alive, 0);
        if (s->calls < n) {
            assert_int_equal(st, HR_OK);
            break;
        }
        assert_int_equal(st, HR_UNAVAILABLE);
        assert_non_null(strstr(hr_message(), "the stub was told to fail"));
    }
    assert_in_range(n, 20 * devices, 200);
    devices = 1;
    assert_true(cache[0] == 50 && cache[2] == 2); /* the stub gives the cache back as it was put */
}

static void test_short_memory(void **state)
{
    static const hr_allocator dry = { dry_alloc, dry_realloc, dry_free, NULL };
    devices = *(int *)*state;
    stub_state *s = stub_of(STUB);
    float cache[CACHE];
    hr_status st = HR_RESOURCE_EXHAUSTED;
    int n = 0;
    for (; st; n++) {
        *s = (stub_state){ .results = 1, .devices = 3 };
        memory_left = n;
        memory_held = 0;
        hr_set_allocator(&dry);
        st = rig_all(STUB, cache);
        hr_set_allocator(NULL);
        if (st) assert_int_equal(st, HR_RESOURCE_EXHAUSTED);
        assert_int_equal(memory_held, 0);
        assert_int_equal(s->alive, 0);
    }
    assert_in_range(n, 10, 400);
    devices = 1;
}

static void test_describe(void **state)
{
    (void)state;
    stub_state *s = stub_of(STUB);
    hr_pjrt_options o = { .plugin = STUB };
    for (int n = 1;; n++) {
        hr_buf text = { 0 };
        *s = (stub_state){ .fail_at = n };
        hr_status st = hr_pjrt_describe(&o, &text);
        bool whole = s->calls < n;
        assert_int_equal(s->alive, 0);
        if (st) assert_int_equal(st, HR_UNAVAILABLE);
        else
            assert_non_null(strstr(hr_buf_c(&text), "device 7: process 3, kind stub core, STUB_7 "
                                                    "coords=1,0,2 core_on_chip=1"));
        hr_buf_deinit(&text);
        if (whole) break;
    }
}

static void test_device_memory(void **state)
{
    (void)state;
    hr_device_memory m;
    hr_buf text = { 0 };
    hr_pjrt_options o = { .plugin = STUB };
    rig r;
    stub_state *s = stub_of(STUB);
    *s = (stub_state){ .results = 1, .memory = 3000000000 };
    assert_int_equal(rig_open(&r, STUB), HR_OK);
    assert_true(hr_backend_memory(r.b, &m));
    assert_true(m.in_use == 3000000000 && m.limit == 6000000000);
    s->memory = 0;
    assert_false(hr_backend_memory(r.b, &m));
    assert_true(m.in_use == 0 && m.limit == 0);
    rig_close(&r);
    s->memory = 3000000000;
    assert_int_equal(hr_pjrt_describe(&o, &text), HR_OK);
    assert_non_null(strstr(hr_buf_c(&text), ", 3.00 GB in use of 6.00 GB\n"));
    hr_buf_deinit(&text);
    assert_int_equal(s->alive, 0);
    if (rig_open(&r, NULL)) fail_msg("%s", hr_message());
    assert_false(hr_backend_memory(r.b, &m)); /* the reference has this machine's */
    rig_close(&r);
}

static void test_wrong_number_of_results(void **state)
{
    (void)state;
    stub_state *s = stub_of(STUB);
    rig r;
    *s = (stub_state){ .results = 2 };
    assert_int_equal(rig_open(&r, STUB), HR_OK);
    assert_int_equal(rig_make(&r), HR_INTERNAL);
    rig_close(&r);
    assert_int_equal(s->alive, 0);
}

static void test_names(void **state)
{
    (void)state;
    rig r;
    hr_buf text = { 0 };
    *stub_of(STUB) = (stub_state){ .results = 1 };
    assert_int_equal(rig_open(&r, STUB), HR_OK);
    r.b->v->numerics(r.b, &text);
    assert_string_equal(hr_buf_c(&text), "\"backend\":\"pjrt\",\"platform\":\"stub\","
                                         "\"plugin\":\"a  quoted  version\"");
    hr_buf_deinit(&text);
    rig_close(&r);
}

/* A cache that went with a failed run says so ever after. */
static void check_lost(rig *r)
{
    float cache[CACHE] = { 0 };
    assert_int_equal(hr_buffer_get(r->b, r->in[0], cache, sizeof cache), HR_FAILED_PRECONDITION);
    assert_int_equal(hr_buffer_put(r->b, r->in[0], cache, sizeof cache), HR_FAILED_PRECONDITION);
    assert_int_equal(rig_execute(r), HR_FAILED_PRECONDITION);
    assert_non_null(strstr(hr_message(), "cache was lost"));
    assert_int_equal(hr_buffer_put(r->b, r->in[1], cache, 8), HR_OK); /* not the others */
}

/* The call, then the event of each device. */
static void test_failed_execute(void **state)
{
    stub_state *s = stub_of(STUB);
    devices = *(int *)*state;
    for (int late = 0; late <= devices; late++) {
        rig r;
        *s = (stub_state){ .results = 1, .devices = 3 };
        assert_int_equal(rig_open(&r, STUB), HR_OK);
        assert_int_equal(rig_make(&r), HR_OK);
        assert_int_equal(rig_put(&r), HR_OK);
        if (late) s->fail_event = s->events + late;
        else s->fail_at = s->calls + 1;
        assert_int_equal(rig_execute(&r), HR_UNAVAILABLE);
        check_lost(&r);
        rig_close(&r);
        assert_int_equal(s->alive, 0);
    }
    devices = 1;
}

/* More runs under way than the room keeps count of: the rest are awaited at once. */
static void test_many_under_way(void **state)
{
    enum { RUNS = 20 };
    stub_state *s = stub_of(STUB);
    hr_event done[RUNS];
    rig r;
    devices = *(int *)*state;
    *s = (stub_state){ .results = 1, .devices = 3 };
    assert_int_equal(rig_open(&r, STUB), HR_OK);
    assert_int_equal(rig_make(&r), HR_OK);
    hr_execute_args a = { .inputs = r.in, .outputs = r.in };
    for (int i = 0; i < RUNS; i++)
        assert_int_equal(hr_program_execute(r.b, r.p, &a, &done[i]), HR_OK);
    for (int i = RUNS - 1; i >= 0; i--) assert_int_equal(hr_event_await(&done[i]), HR_OK);
    uint64_t before = hr_alloc_count();
    assert_int_equal(rig_execute(&r), HR_OK);
    assert_int_equal(hr_alloc_count(), before); /* a step allocates nothing of ours */
    rig_close(&r);
    assert_int_equal(s->alive, 0);
    devices = 1;
}

static void test_devices(void **state)
{
    (void)state;
    rig r;
    stub_state *s = stub_of(STUB);
    hr_buf text = { 0 };
    devices = 3;
    *s = (stub_state){ .results = 1, .devices = 2 };
    assert_int_equal(rig_open(&r, STUB), HR_INVALID_ARGUMENT);
    assert_non_null(strstr(hr_message(), "3 devices are wanted, platform stub has 2"));
    *s = (stub_state){ .results = 1, .devices = 3, .backwards = 1 };
    assert_int_equal(rig_open(&r, STUB), HR_OK);
    assert_int_equal(rig_make(&r), HR_INTERNAL);
    assert_non_null(strstr(hr_message(), "other devices than the first 3"));
    r.b->v->numerics(r.b, &text);
    assert_non_null(strstr(hr_buf_c(&text), "\"devices\":3"));
    hr_buf_deinit(&text);
    rig_close(&r);
    devices = 128;
    assert_int_equal(rig_open(&r, STUB), HR_INVALID_ARGUMENT);
    devices = 1;
    assert_int_equal(s->alive, 0);
}

/* A plugin that keeps host memory as its own has it for as long as the weight is there. */
static void test_lent_memory(void **state)
{
    (void)state;
    float cache[CACHE];
    stub_state *s = stub_of(STUB);
    for (int i = 0; i < 4; i++) {
        int borrows = i % 2;
        devices = i / 2 ? 3 : 1;
        *s = (stub_state){ .results = 1, .devices = 3, .borrows = borrows };
        assert_int_equal(rig_all(STUB, cache), HR_OK);
        assert_int_equal(s->lent, borrows * devices);
        assert_int_equal(s->spoiled, 0);
        assert_int_equal(s->alive, 0);
    }
    devices = 1;
}

static void test_xla_cpu(void **state)
{
    (void)state;
    float ours[CACHE], want[CACHE];
    if (rig_all(XLA_CPU, ours)) fail_msg("%s", hr_message());
    if (rig_all(NULL, want)) fail_msg("%s", hr_message());
    for (int i = 0; i < CACHE; i++)
        if (!(fabsf(ours[i] - want[i]) <= 1e-5f * fabsf(want[i])))
            fail_msg("cache[%d] is %g, ref gives %g", i, (double)ours[i], (double)want[i]);
}

static int warnings;
static void count_warnings(void *self, hr_log_level level, const char *line)
{
    (void)self;
    if (level == HR_LOG_WARNING) warnings++;
    if (level == HR_LOG_WARNING) print_message("%s\n", line);
}

static void test_xla_cpu_in_place(void **state)
{
    (void)state;
    rig r;
    hr_log_set(count_warnings, NULL, HR_LOG_INFO);
    if (rig_open(&r, XLA_CPU)) fail_msg("%s", hr_message());
    if (rig_make(&r) || rig_put(&r)) fail_msg("%s", hr_message());
    for (int i = 0; i < 3; i++)
        if (rig_execute(&r)) fail_msg("%s", hr_message());
    hr_log_set(NULL, NULL, HR_LOG_INFO);
    assert_int_equal(warnings, 0); /* the cache would be said to move */
    assert_int_equal(r.b->v->weight_bytes(r.b), D * sizeof(float));
    rig_close(&r);
}

static void test_xla_cpu_devices(void **state)
{
    (void)state;
    hr_pjrt_options o = { .plugin = XLA_CPU, .create_options = "cpu_device_count=2" };
    hr_buf text = { 0 };
    if (hr_pjrt_describe(&o, &text)) fail_msg("%s", hr_message());
    print_message("%s", hr_buf_c(&text));
    assert_non_null(strstr(hr_buf_c(&text), "platform cpu"));
    assert_non_null(strstr(hr_buf_c(&text), "device 1: process 0"));
    assert_null(strstr(hr_buf_c(&text), "device 2:"));
    hr_buf_deinit(&text);
}

static void test_xla_cpu_options(void **state)
{
    (void)state;
    hr_backend *b;
    hr_pjrt_options o = { .plugin = XLA_CPU, .create_options = "cpu_device_count=many" };
    assert_int_equal(hr_pjrt_backend_create(&o, &b), HR_INVALID_ARGUMENT);
    o.create_options = "cpu_device_count=0";
    assert_int_equal(hr_pjrt_backend_create(&o, &b), HR_UNAVAILABLE);
}

int main(void)
{
    static int one = 1, three = 3;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_plugin),
        cmocka_unit_test(test_bad_client),
        { "test_each_call, one device", test_each_call, NULL, NULL, &one },
        { "test_each_call, three devices", test_each_call, NULL, NULL, &three },
        { "test_short_memory, one device", test_short_memory, NULL, NULL, &one },
        { "test_short_memory, three devices", test_short_memory, NULL, NULL, &three },
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_device_memory),
        cmocka_unit_test(test_wrong_number_of_results),
        cmocka_unit_test(test_names),
        { "test_failed_execute, one device", test_failed_execute, NULL, NULL, &one },
        { "test_failed_execute, three devices", test_failed_execute, NULL, NULL, &three },
        { "test_many_under_way, one device", test_many_under_way, NULL, NULL, &one },
        { "test_many_under_way, three devices", test_many_under_way, NULL, NULL, &three },
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_lent_memory),
        cmocka_unit_test(test_xla_cpu),
        cmocka_unit_test(test_xla_cpu_in_place),
        cmocka_unit_test(test_xla_cpu_devices),
        cmocka_unit_test(test_xla_cpu_options),
    };
    return cmocka_run_group_tests(tests, make_graph, drop_graph);
}
#endif
