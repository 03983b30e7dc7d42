/* Every allocation of an engine's whole life fails in turn, from the first of loading over warm-up
 * and a request to the last of its end: the start is refused, the request is refused or ends with
 * an error, or all is as if nothing had been; nothing stays behind. Each life has one failure, at a
 * place that moves on; HEADRACE_SWEEP=1 visits every one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_bed.h"

/* Where not all places are visited. */
#define LIVES           400
#define LIVES_SANITIZED 100

static hr_counter made, live; /* allocations; of them, those not freed */
static uint64_t victim;       /* the one that fails; UINT64_MAX = none */

static bool fails(void)
{
    return hr_counter_next(&made) - 1 == victim;
}

static void *one_alloc(void *self, size_t bytes, size_t align)
{
    (void)self;
    if (fails()) return NULL;
    hr_counter_add(&live, 1);
    return align <= 16 ? malloc(bytes) : aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void *one_realloc(void *self, void *p, size_t bytes)
{
    (void)self;
    if (fails()) return NULL;
    if (!p) hr_counter_add(&live, 1);
    return realloc(p, bytes);
}

static void one_free(void *self, void *p)
{
    (void)self;
    if (p) hr_counter_add(&live, (uint64_t)-1);
    free(p);
}

/* What an answer comes to, kept without memory of headrace's. */
typedef struct life {
    int started, asked; /* statuses */
    bool failed, done;
    char finish[16];
    int64_t ids[16];
    size_t n;
} life;

static void note(life *l, const headrace_event *v)
{
    if (v->kind == HEADRACE_EVENT_TOKENS)
        for (size_t i = 0; i < v->n_tokens && l->n < 16; i++)
            l->ids[l->n++] = v->tokens[i].chosen.token_id;
    if (v->kind == HEADRACE_EVENT_FINISHED)
        snprintf(l->finish, sizeof l->finish, "%s", v->finish_reason);
    l->failed |= v->kind == HEADRACE_EVENT_FAILED;
    l->done |= v->kind == HEADRACE_EVENT_DONE;
}

static void ask(headrace_engine *e, life *l)
{
    headrace_sampling s;
    headrace_request r;
    headrace_event v;
    uint64_t id;
    headrace_sampling_init(e, &s);
    s.seed = 4;
    s.max_tokens = 5;
    s.ignore_eos = 1;
    bed_request(&r, "a prompt", &s);
    l->asked = headrace_submit(e, &r, &id);
    while (!l->asked && !l->done) {
        int st = headrace_poll(e, &v, 60000);
        if (st == HEADRACE_DEADLINE_EXCEEDED) fail_msg("no event within a minute");
        l->asked = st; /* the engine has ended by itself */
        if (!st) note(l, &v);
    }
}

static life live_once(void)
{
    headrace_options o;
    headrace_engine *e;
    life l = { 0 };
    bed_options(&o);
    o.kv_cache_memory_bytes = 64 * BED_BLOCK_BYTES;
    l.started = headrace_engine_create(&o, &e);
    if (l.started) return l;
    ask(e, &l);
    headrace_engine_destroy(e);
    return l;
}

static bool is_whole(const life *l, const life *whole)
{
    return !l->started && !l->asked && !l->failed && l->n == whole->n &&
           !strcmp(l->finish, whole->finish) && !memcmp(l->ids, whole->ids, sizeof l->ids);
}

static void check(const life *l, const life *whole)
{
    if (l->started) assert_int_equal(l->started, HEADRACE_RESOURCE_EXHAUSTED);
    else if (l->asked) assert_int_equal(l->asked, HEADRACE_RESOURCE_EXHAUSTED);
    else if (!l->failed && strcmp(l->finish, "error") != 0 && !is_whole(l, whole))
        fail_msg("allocation %llu: %zu tokens, '%s'", (unsigned long long)victim, l->n, l->finish);
    if (l->started) assert_true(headrace_message()[0]);
}

static void every_allocation_fails(void **state)
{
    (void)state;
    const hr_allocator one = { one_alloc, one_realloc, one_free, NULL };
    hr_set_allocator(&one);
    victim = UINT64_MAX;
    life whole = live_once();
    uint64_t kept = hr_counter_get(&live); /* what the first life made for all */
    hr_counter_set(&made, 0);
    life again = live_once();
    uint64_t count = hr_counter_get(&made);
    assert_true(is_whole(&again, &whole) && whole.n == 5 && count > 100);
    assert_int_equal(hr_counter_get(&live), kept);
    uint64_t lives = getenv("HEADRACE_SANITIZED") ? LIVES_SANITIZED : LIVES;
    uint64_t step = getenv("HEADRACE_SWEEP") ? 1 : count / lives + 1;
    int refused = 0, as_before = 0;
    for (uint64_t n = 0; n < count; n += step) {
        victim = n;
        hr_counter_set(&made, 0);
        life l = live_once();
        check(&l, &whole);
        if (hr_counter_get(&live) != kept)
            fail_msg("allocation %llu of %llu: %lld pieces stay behind", (unsigned long long)n,
                     (unsigned long long)count, (long long)(hr_counter_get(&live) - kept));
        refused += l.started != 0;
        as_before += is_whole(&l, &whole);
    }
    hr_set_allocator(NULL);
    printf("%llu allocations, every %lluth: %d starts refused, %d lives as before\n",
           (unsigned long long)count, (unsigned long long)step, refused, as_before);
    assert_true(refused > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_allocation_fails) };
    return cmocka_run_group_tests(tests, bed_setup, scratch_teardown);
}
