/* What memory a cache is sized by: a device's own, where its plugin says what it has, else this
 * machine's. And that small changes of it leave the programs of fixed shapes as they were. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_bed.h"

static hr_device_memory device;
static bool tells;

static bool memory(hr_backend *b, hr_device_memory *out)
{
    (void)b;
    *out = device;
    return tells;
}

static const hr_backend_vtable vtable = { .name = "a device", .memory = memory };

/* An engine as far as the model and the options; with a backend that only knows its memory. */
static hr_engine *open_engine(hr_backend *b, int64_t max_model_len)
{
    headrace_options o;
    bed_options(&o);
    o.max_model_len = max_model_len;
    o.kv_cache_memory_bytes = 0;
    hr_engine *e = hr_new0(hr_engine);
    assert_non_null(e);
    e->wake_fd = -1;
    if (hr_engine_open(e, &o)) fail_msg("%s", hr_message());
    e->backend = b;
    return e;
}

static hr_status size(hr_engine *e)
{
    if (hr_engine_measure(e, NULL, &e->memory)) fail_msg("%s", hr_message());
    return hr_engine_size_cache(e);
}

static void close_engine(hr_engine *e)
{
    e->backend = NULL;
    hr_engine_destroy(e);
}

static void a_device_tells(void **state)
{
    (void)state;
    hr_backend b = { .v = &vtable };
    hr_engine *e = open_engine(&b, 1024);
    tells = true;
    device = (hr_device_memory){ .limit = (size_t)3 << 40, .in_use = (size_t)1 << 40 };
    assert_int_equal(size(e), HR_OK);
    assert_true(e->memory.of_device && e->memory.available == (size_t)2 << 40);
    device.in_use = (size_t)4 << 40; /* more than it has */
    assert_int_equal(size(e), HR_RESOURCE_EXHAUSTED);
    assert_true(e->memory.of_device && e->memory.available == 0);
    device = (hr_device_memory){ .limit = 0, .in_use = 5 };
    assert_int_equal(size(e), HR_OK);
    assert_true(!e->memory.of_device && e->memory.available < (size_t)1 << 50);
    tells = false;
    device.limit = 1;
    assert_int_equal(size(e), HR_OK);
    assert_false(e->memory.of_device);
    close_engine(e);
}

/* Blocks for half of what the limits would take, on a device of fixed shapes. */
static int64_t blocks_with(hr_engine *e, size_t more)
{
    const hr_memory *m = &e->memory;
    size_t half = (size_t)(e->options.max_num_seqs * e->shapes.build.table_width / 2);
    size_t cache = (half + more) * hr_engine_block_bytes(e);
    e->memory.available = (m->weights + m->buffers + m->peak + cache) / 9 * 10 + 100;
    if (hr_engine_size_cache(e)) fail_msg("%s", hr_message());
    return e->shapes.build.blocks;
}

static void small_changes_are_none(void **state)
{
    (void)state;
    hr_backend b = { .v = &vtable };
    hr_engine *e = open_engine(&b, 1024);
    assert_int_equal(size(e), HR_OK);
    int64_t half = e->options.max_num_seqs * e->shapes.build.table_width / 2;
    assert_int_equal(half, 512);
    assert_in_range(blocks_with(e, 9), half + 8, half + 9); /* natively every block counts */
    e->device.kind = HR_DEVICE_PJRT;
    int64_t blocks = blocks_with(e, 0);
    assert_int_equal(blocks, 512);
    for (size_t more = 1; more < 60; more++) assert_int_equal(blocks_with(e, more), blocks);
    assert_int_equal(blocks_with(e, 70), 576);
    assert_int_equal(blocks_with(e, 1000), 1024); /* all that the limits take */
    close_engine(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_tells),
        cmocka_unit_test(small_changes_are_none),
    };
    return cmocka_run_group_tests(tests, bed_setup, scratch_teardown);
}
