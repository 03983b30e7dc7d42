/* Programs of a step follow each other without a wait between them, on a device that takes them so:
 * the native backend's, made to tell only when it is asked that a program is done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_bed.h"

static const hr_backend_vtable *native;
static hr_backend_vtable late;
static int under_way, most, awaited, fail_at; /* fail_at: the await that fails, from 1; 0 = none */
static bool read_early;

static hr_status execute(hr_program *p, const hr_execute_args *a, hr_event *done)
{
    hr_status st = native->execute(p, a, done);
    if (st) return st;
    done->pending = p;
    if (++under_way > most) most = under_way;
    return HR_OK;
}

static hr_status event_await(hr_event *e)
{
    e->pending = NULL;
    under_way--;
    if (++awaited == fail_at || (fail_at && awaited > fail_at))
        return hr_fail(HR_UNAVAILABLE, "await %d failed", awaited);
    return HR_OK;
}

static hr_status buffer_get(hr_buffer *x, void *host, size_t bytes)
{
    read_early |= under_way > 0;
    return native->buffer_get(x, host, bytes);
}

/* The engine thread is idle here: it waits for a sequence. */
static headrace_engine *start(void)
{
    headrace_options o;
    bed_options(&o);
    headrace_engine *e = bed_start(&o);
    native = e->backend->v;
    late = *native;
    late.execute = execute;
    late.event_await = event_await;
    late.buffer_get = buffer_get;
    e->backend->v = &late;
    under_way = most = awaited = fail_at = 0;
    read_early = false;
    return e;
}

static void ask(headrace_engine *e, double penalty, bed_want *w)
{
    headrace_sampling s;
    headrace_request r;
    headrace_sampling_init(e, &s);
    s.max_tokens = 4;
    s.seed = 3;
    s.ignore_eos = 1;
    s.repetition_penalty = penalty;
    s.prompt_logprobs = 1;
    bed_request(&r, "what was it again", &s);
    bed_ask(e, &r, w);
}

static void programs_follow_each_other(void **state)
{
    (void)state;
    bed_want plain = { 0 }, waited = { 0 };
    headrace_engine *e = start();
    ask(e, 1.0, &plain);
    assert_int_equal(most, 3); /* backbone, select, sampler */
    assert_true(awaited >= 3 * 4 && under_way == 0);
    assert_false(read_early);
    bed_free(&plain);
    ask(e, 1.5, &plain);
    assert_int_equal(most, 4); /* and the tables before them */
    assert_false(read_early);
    hr_ledger_row *row = e->programs->backbone[0].row;
    uint64_t calls = hr_counter_get(&row->calls);
    e->backend->v = native;
    ask(e, 1.5, &waited);
    assert_true(
        hr_str_eq(hr_buf_str(&plain.choices[0].essence), hr_buf_str(&waited.choices[0].essence)));
    assert_true(hr_counter_get(&row->calls) > calls && calls >= 6);
    assert_int_equal(hr_counter_get(&row->calls), hr_histogram_count(&row->seconds));
    bed_free(&plain);
    bed_free(&waited);
    headrace_engine_destroy(e);
}

/* The first program that failed is told, whichever it was, and the rest are waited for. */
static void the_first_failure_is_told(void **state)
{
    (void)state;
    for (int n = 1; n <= 9; n++) {
        char want[64];
        bed_want w = { 0 };
        headrace_engine *e = start();
        fail_at = n;
        ask(e, 1.5, &w);
        snprintf(want, sizeof want, "await %d failed", n);
        assert_true(w.choices[0].failed);
        assert_int_equal(w.choices[0].status, HR_UNAVAILABLE);
        assert_non_null(strstr(w.choices[0].message, want));
        assert_int_equal(under_way, 0);
        bed_free(&w);
        headrace_engine_destroy(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_follow_each_other),
        cmocka_unit_test(the_first_failure_is_told),
    };
    return cmocka_run_group_tests(tests, bed_setup, scratch_teardown);
}
