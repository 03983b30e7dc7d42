/* Memory that ends anywhere between submit and the last event: the request is refused or it ends,
 * nothing is lost, and the engine serves the next one as if nothing had been. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_bed.h"

/* ---- an allocator that many threads share and that runs dry ---------------------------------- */

static hr_counter left; /* allocations that still succeed */

static bool draw(void)
{
    uint64_t n = hr_counter_add_get(&left, (uint64_t)-1);
    return n < (uint64_t)1 << 62;
}

static void *dry_alloc(void *self, size_t bytes, size_t align)
{
    (void)self;
    if (!draw()) return NULL;
    return align <= 16 ? malloc(bytes) : aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void *dry_realloc(void *self, void *p, size_t bytes)
{
    (void)self;
    return draw() ? realloc(p, bytes) : NULL;
}

static void dry_free(void *self, void *p)
{
    (void)self;
    free(p);
}

static const hr_allocator dry = { dry_alloc, dry_realloc, dry_free, NULL };

/* ---- one engine, many short memories --------------------------------------------------------- */

/* The events are looked at once there is memory again. */
static void ask(headrace_engine *e, int kind, bed_want *w, int *refused)
{
    hr_engine_event *events[512];
    size_t n = 0;
    static const char *const stops[] = { "never seen" }, *const words[] = { "bad" };
    static const int64_t ids[] = { 65, 66, 67 };
    headrace_sampling s;
    headrace_request r;
    hr_request *mine = NULL;
    headrace_sampling_init(e, &s);
    s.ignore_eos = 1;
    s.max_tokens = 5;
    s.seed = 4;
    s.n = 2;
    s.logprobs = 3;
    s.prompt_logprobs = kind == 1 ? 2 : -1;
    s.stop = stops;
    s.n_stop = 1;
    s.bad_words = words;
    s.n_bad_words = 1;
    s.logprob_token_ids = ids;
    s.n_logprob_token_ids = 3;
    s.allowed_token_ids = kind == 1 ? ids : NULL;
    s.n_allowed_token_ids = kind == 1 ? 3 : 0;
    bed_request(&r, kind == 2 ? NULL : "a prompt of several blocks, so that there is one to hash",
                &s);
    if (kind == 2) r.messages_json = "[{\"role\":\"user\",\"content\":\"and a chat\"}]";
    r.cache_salt = "salt";
    *refused = hr_request_create(e, &r, &mine);
    if (!*refused && kind == 3) hr_request_set_kind(mine, HR_REQUEST_TOKENIZE);
    if (!*refused) *refused = hr_engine_submit(e, mine, &w->id);
    do events[n] = *refused ? NULL : hr_engine_poll(e, 60000);
    while (events[n] && events[n++]->event.kind != HEADRACE_EVENT_DONE);
    hr_set_allocator(NULL);
    for (size_t i = 0; i < n; i++) {
        bed_note(w, &events[i]->event);
        hr_engine_event_destroy(events[i]);
    }
    assert_true(*refused || w->done);
}

/* Nothing is left out of an answer that says it is whole. */
static void check(const bed_want *w, const bed_want *whole, int kind)
{
    for (size_t i = 0; i < 2 && !w->choices[0].failed; i++) {
        const bed_answer *a = &w->choices[i], *b = &whole->choices[i];
        bool same = hr_str_eq(hr_buf_str(&a->essence), hr_buf_str(&b->essence));
        if (strcmp(a->finish, "error") == 0) assert_true(a->essence.n < b->essence.n);
        else if (strcmp(a->finish, b->finish) != 0 || !same)
            fail_msg("kind %d: '%s' %.*s instead of %.*s", kind, a->finish, (int)a->essence.n,
                     a->essence.p, (int)b->essence.n, b->essence.p);
        assert_int_equal(a->n_prompt_ids, b->n_prompt_ids);
    }
}

static void requests_end_without_memory(void **state)
{
    (void)state;
    headrace_options o;
    bed_options(&o);
    headrace_engine *e = bed_start(&o);
    for (int kind = 0; kind < 4; kind++) {
        bed_want whole = { 0 };
        int refused, answered = 0, cut = 0;
        ask(e, kind, &whole, &refused);
        assert_int_equal(refused, HR_OK);
        for (uint64_t n = 0; n < 400; n++) {
            bed_want w = { 0 };
            hr_counter_set(&left, n);
            hr_set_allocator(&dry); /* nobody else runs: the engine is idle */
            ask(e, kind, &w, &refused);
            if (refused) assert_int_equal(refused, HR_RESOURCE_EXHAUSTED);
            else if (w.choices[0].failed)
                assert_int_equal(w.choices[0].status, HR_RESOURCE_EXHAUSTED);
            if (!refused) check(&w, &whole, kind);
            bool same = !refused && !w.choices[0].failed &&
                        strcmp(w.choices[0].finish, whole.choices[0].finish) == 0;
            answered += same;
            cut += !same;
            bed_free(&w);
        }
        if (!answered || cut < 3) fail_msg("kind %d: %d answered, %d cut", kind, answered, cut);
        bed_want again = { 0 };
        ask(e, kind, &again, &refused);
        assert_true(hr_str_eq(hr_buf_str(&again.choices[0].essence),
                              hr_buf_str(&whole.choices[0].essence)));
        bed_free(&again);
        bed_free(&whole);
    }
    hr_engine_gauges g;
    hr_engine_gauges_get(e, &g);
    assert_true(g.running == 0 && g.waiting == 0 && g.blocks_in_use == 0);
    assert_int_equal(hr_counter_get(&e->stats.queued_requests), 0);
    assert_int_equal(hr_counter_get(&e->stats.queued_tokens), 0);
    headrace_engine_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(requests_end_without_memory) };
    return cmocka_run_group_tests(tests, bed_setup, scratch_teardown);
}
