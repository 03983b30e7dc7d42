/* Prefix caching: names of blocks, the pool that finds them again, and answers that must not show
 * whether anything was found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "engine_bed.h"

/* ---- names ----------------------------------------------------------------------------------- */

static hr_block_hash name(const hr_block_hash *parent, const char *extra, const int32_t *tokens,
                          int64_t n)
{
    hr_block_hash out;
    hr_prefix_hash(parent, hr_str_c(extra), tokens, n, &out);
    return out;
}

static void names_differ(void **state)
{
    (void)state;
    const int32_t tokens[] = { 1, 2, 3, 4, 0x61 };
    hr_block_hash all[16], again = name(NULL, NULL, tokens, 4);
    size_t n = 0;
    all[n++] = name(NULL, NULL, tokens, 4);
    all[n++] = name(NULL, NULL, tokens + 1, 4);
    all[n++] = name(NULL, NULL, tokens, 3);
    all[n++] = name(NULL, "a", tokens, 4);
    all[n++] = name(NULL, "b", tokens, 4);
    all[n++] = name(NULL, "ab", tokens, 4);
    all[n++] = name(&all[0], NULL, tokens, 4);
    all[n++] = name(&all[3], NULL, tokens, 4);
    all[n++] = name(&all[6], NULL, tokens, 4);
    /* bytes that could move from the tokens into the extra key */
    hr_block_hash moved;
    hr_prefix_hash(NULL, (hr_str){ (const char *)tokens, 4 }, tokens + 1, 3, &moved);
    all[n++] = moved;
    assert_memory_equal(&all[0], &again, sizeof again);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) assert_memory_not_equal(&all[i], &all[k], sizeof *all);
}

/* The digest is SHA-256 of the bytes that prefix.h describes, from libcrypto's one-call form. */
static void a_name_is_sha_256(void **state)
{
    (void)state;
    const int32_t tokens[] = { 7, 8, 9, 70000 };
    const uint64_t lengths[2] = { 4, 2 };
    unsigned char text[32 + 16 + 4 + 8] = { 0 }, want[32];
    memcpy(text + 32, lengths, 16);
    memcpy(text + 48, "salt", 4);
    memcpy(text + 52, tokens, 8);
    assert_true(EVP_Digest(text, sizeof text, want, NULL, EVP_sha256(), NULL));
    hr_block_hash chain[2], second;
    hr_prefix_hash_chain(HR_STR("salt"), tokens, 2, 0, 2, chain);
    assert_memory_equal(&chain[0], want, 32);
    second = name(&chain[0], NULL, tokens + 2, 2);
    assert_memory_equal(&chain[1], &second, 32);
}

/* ---- the pool -------------------------------------------------------------------------------- */

enum { POOL = 12, NAMES = 40 };

/* What the pool should be, written the slow way: order[] is the free list from its head. */
typedef struct model {
    int ref[POOL], holds[POOL]; /* holds: name + 1, 0 = not findable */
    int order[POOL], n;
} model;

static void model_drop(model *m, int at)
{
    for (m->n--; at < m->n; at++) m->order[at] = m->order[at + 1];
}

static void model_free(model *m, int id)
{
    if (m->holds[id]) m->order[m->n++] = id;
    else {
        memmove(m->order + 1, m->order, (size_t)m->n * sizeof *m->order);
        m->order[0] = id;
        m->n++;
    }
}

static void model_retain(model *m, int id)
{
    if (m->ref[id]++) return;
    int at = 0;
    while (m->order[at] != id) at++;
    model_drop(m, at);
}

static int model_find(const model *m, int what)
{
    for (int i = 0; i < POOL; i++)
        if (m->holds[i] == what + 1) return i;
    return -1;
}

/* Names whose first bytes collide in every way, so that probing and closing gaps are at work. */
static hr_block_hash colliding(int i)
{
    hr_block_hash h = { { (uint8_t)(i % 3 + 14) } };
    h.bytes[20] = (uint8_t)i;
    return h;
}

static void the_pool_matches_its_model(void **state)
{
    (void)state;
    hr_block_pool p;
    model m = { .n = POOL };
    uint64_t seed = 99;
    assert_int_equal(hr_block_pool_init(&p, POOL, 2), HR_OK);
    for (int i = 0; i < POOL; i++) m.order[i] = i;
    for (int round = 0; round < 200000; round++) {
        int what = (int)(noise(&seed) % NAMES);
        int32_t tokens[2] = { what, -what };
        hr_block_hash h = colliding(what);
        int found = hr_block_pool_find(&p, &h, tokens);
        assert_int_equal(found, model_find(&m, what));
        int id = (int)(noise(&seed) % POOL);
        switch (noise(&seed) % 5) {
        case 0: {
            int want = m.n ? m.order[0] : -1;
            assert_int_equal(hr_block_pool_take(&p), want);
            if (want < 0) break;
            model_drop(&m, 0);
            m.ref[want] = 1;
            m.holds[want] = 0;
            break;
        }
        case 1:
            if (found < 0) break;
            hr_block_pool_retain(&p, found);
            model_retain(&m, found);
            break;
        case 2:
            if (!m.ref[id]) break;
            hr_block_pool_release(&p, id);
            if (--m.ref[id] == 0) model_free(&m, id);
            break;
        case 3:
            if (!m.ref[id]) break;
            hr_block_pool_publish(&p, id, &h, tokens);
            if (found < 0 && !m.holds[id]) m.holds[id] = what + 1;
            break;
        case 4:
            if (!m.ref[id] || noise(&seed) % 4) break;
            hr_block_pool_withdraw(&p, id);
            m.holds[id] = 0;
            break;
        }
        assert_int_equal(p.n_free, m.n);
    }
    hr_block_pool_deinit(&p);
}

static void tokens_are_compared(void **state)
{
    (void)state;
    hr_block_pool p;
    assert_int_equal(hr_block_pool_init(&p, 4, 2), HR_OK);
    hr_block_hash h = colliding(1);
    int32_t id = hr_block_pool_take(&p);
    hr_block_pool_publish(&p, id, &h, (int32_t[]){ 5, 6 });
    assert_int_equal(hr_block_pool_find(&p, &h, (int32_t[]){ 5, 6 }), id);
    assert_int_equal(hr_block_pool_find(&p, &h, (int32_t[]){ 5, 7 }), -1);
    hr_block_pool_deinit(&p);
}

/* ---- engines --------------------------------------------------------------------------------- */

static headrace_engine *with, *without;

static int start(void **state)
{
    headrace_options o;
    if (bed_setup(state)) return 1;
    bed_options(&o);
    with = bed_start(&o);
    o.enable_prefix_caching = 0;
    without = bed_start(&o);
    return 0;
}

static int end(void **state)
{
    headrace_engine_destroy(with);
    headrace_engine_destroy(without);
    return scratch_teardown(state);
}

static void prompt_of(headrace_request *r, int64_t *ids, size_t n, int64_t salt,
                      const headrace_sampling *s)
{
    for (size_t i = 0; i < n; i++) ids[i] = (int64_t)(i * 7 + (i * i) % 13 + 31) % 250;
    ids[0] = salt;
    headrace_request_init(r);
    r->prompt_ids = ids;
    r->n_prompt_ids = n;
    r->sampling = s;
}

static void options_of(headrace_sampling *s)
{
    headrace_sampling_init(NULL, s);
    s->seed = 5;
    s->temperature = 0.8;
    s->max_tokens = 9;
    s->ignore_eos = 1;
    s->logprobs = 3;
}

static void same(const bed_answer *a, const bed_answer *b)
{
    assert_true(a->essence.n > 0);
    if (!hr_str_eq(hr_buf_str(&a->essence), hr_buf_str(&b->essence)))
        fail_msg("%.*s\n instead of\n%.*s", (int)a->essence.n, a->essence.p, (int)b->essence.n,
                 b->essence.p);
}

/* B06: prompts around the block size, each three times. */
static void whole_prompts_in_the_cache(void **state)
{
    (void)state;
    const size_t lengths[] = { 15, 16, 17, 32, 48, 33, 1, 2 };
    headrace_sampling s;
    headrace_request r;
    options_of(&s);
    for (size_t i = 0; i < 8; i++) {
        int64_t ids[64];
        size_t n = lengths[i];
        bed_want plain;
        prompt_of(&r, ids, n, (int64_t)i, &s);
        bed_ask(without, &r, &plain);
        assert_int_equal(plain.choices[0].cached_tokens, 0);
        for (int round = 0; round < 3; round++) {
            bed_want w;
            bed_ask(with, &r, &w);
            same(&w.choices[0], &plain.choices[0]);
            /* whole blocks, and never the last token */
            assert_int_equal(w.choices[0].cached_tokens, round ? (n - 1) / 16 * 16 : 0);
            bed_free(&w);
        }
        bed_free(&plain);
    }
}

static void hits_are_counted(void **state)
{
    (void)state;
    headrace_sampling s;
    headrace_request r;
    int64_t ids[100];
    hr_engine_gauges before, after;
    bed_want w;
    options_of(&s);
    prompt_of(&r, ids, 100, 40, &s);
    hr_engine_gauges_get(with, &before);
    bed_ask(with, &r, &w);
    bed_free(&w);
    bed_ask(with, &r, &w);
    bed_free(&w);
    hr_engine_gauges_get(with, &after);
    assert_int_equal(after.prefix_queries - before.prefix_queries, 200);
    assert_int_equal(after.prefix_hits - before.prefix_hits, 96);
}

/* An answer's blocks are found, too: a next turn begins with the turn before. */
static void answers_are_found_again(void **state)
{
    (void)state;
    headrace_sampling s;
    headrace_request r;
    int64_t ids[200];
    bed_want w, plain;
    options_of(&s);
    s.max_tokens = 60;
    s.logprobs = -1;
    prompt_of(&r, ids, 30, 41, &s);
    bed_ask(with, &r, &w);
    const char *p = w.choices[0].essence.p; /* "id:bits:rank |text|id:…" */
    size_t n = 30;
    for (const char *q = p; n < 90 && (q = strchr(q, ':')); q = strchr(q + 1, ':') + 1) {
        const char *from = q;
        while (from > p && from[-1] >= '0' && from[-1] <= '9') from--;
        ids[n++] = strtol(from, NULL, 10);
    }
    assert_int_equal(n, 90);
    bed_free(&w);
    s.max_tokens = 5;
    s.logprobs = 2;
    r.n_prompt_ids = 90; /* of the 60 tokens drawn the last was never computed: 89 are known */
    bed_ask(with, &r, &w);
    assert_int_equal(w.choices[0].cached_tokens, 80);
    bed_ask(without, &r, &plain);
    same(&w.choices[0], &plain.choices[0]);
    bed_free(&w);
    bed_free(&plain);
}

static void salts_keep_apart(void **state)
{
    (void)state;
    headrace_sampling s;
    headrace_request r;
    int64_t ids[50];
    const char *const salts[] = { NULL, "red", "blue", "red", NULL, "re" };
    const int64_t want[] = { 0, 0, 0, 48, 48, 0 };
    options_of(&s);
    prompt_of(&r, ids, 50, 42, &s);
    for (size_t i = 0; i < 6; i++) {
        bed_want w;
        r.cache_salt = salts[i];
        bed_ask(with, &r, &w);
        assert_int_equal(w.choices[0].cached_tokens, want[i]);
        bed_free(&w);
    }
}

/* Choices of one request, and twins in one step, share the prompt from the first. */
static void choices_share_the_prompt(void **state)
{
    (void)state;
    headrace_sampling s;
    headrace_request r;
    int64_t ids[70];
    bed_want w, plain, twins[2];
    options_of(&s);
    s.n = 4;
    prompt_of(&r, ids, 70, 43, &s);
    bed_ask(with, &r, &w);
    bed_ask(without, &r, &plain);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(w.choices[i].cached_tokens, i ? 64 : 0);
        same(&w.choices[i], &plain.choices[i]);
    }
    bed_free(&w);
    bed_free(&plain);
    s.n = 1;
    prompt_of(&r, ids, 70, 44, &s);
    bed_submit(with, &r, &twins[0]);
    bed_submit(with, &r, &twins[1]);
    bed_await(with, twins, 2);
    bed_ask(without, &r, &plain);
    assert_int_equal(twins[1].choices[0].cached_tokens, 64);
    same(&twins[0].choices[0], &plain.choices[0]);
    same(&twins[1].choices[0], &plain.choices[0]);
    bed_free(&twins[0]);
    bed_free(&twins[1]);
    bed_free(&plain);
}

/* B05: the values of a prompt do not depend on who came before. */
static void prompt_logprobs_read_nothing(void **state)
{
    (void)state;
    headrace_sampling s;
    headrace_request r;
    int64_t ids[2][80];
    bed_want w[2], plain[2], follower;
    options_of(&s);
    s.prompt_logprobs = 4;
    for (int order = 0; order < 2; order++)
        for (int i = 0; i < 2; i++) {
            int k = order ? 1 - i : i;
            prompt_of(&r, ids[k], 80, 45 + order, &s);
            ids[k][70] = k; /* 64 shared */
            bed_ask(with, &r, &w[k]);
            bed_ask(without, &r, &plain[k]);
            assert_int_equal(w[k].choices[0].cached_tokens, 0);
            same(&w[k].choices[0], &plain[k].choices[0]);
            bed_free(&w[k]);
            bed_free(&plain[k]);
        }
    s.prompt_logprobs = -1; /* but what it computed serves others */
    r.prompt_ids = ids[0];
    bed_ask(with, &r, &follower);
    assert_int_equal(follower.choices[0].cached_tokens, 64);
    bed_free(&follower);
}

/* More prefixes than blocks: old ones make room, answers stay. */
static void old_prefixes_make_room(void **state)
{
    (void)state;
    headrace_options o;
    headrace_sampling s;
    headrace_request r;
    int64_t ids[120];
    bed_options(&o);
    o.max_model_len = 160;
    o.kv_cache_memory_bytes = 24 * BED_BLOCK_BYTES;
    headrace_engine *small = bed_start(&o);
    options_of(&s);
    s.max_tokens = 4;
    for (int64_t round = 0; round < 3; round++)
        for (int64_t i = 0; i < 6; i++) {
            bed_want w, plain;
            prompt_of(&r, ids, 100, 60 + i, &s);
            bed_ask(small, &r, &w);
            bed_ask(without, &r, &plain);
            assert_int_equal(w.choices[0].cached_tokens, 0); /* six times six blocks came between */
            same(&w.choices[0], &plain.choices[0]);
            bed_free(&w);
            bed_ask(small, &r, &w);
            assert_int_equal(w.choices[0].cached_tokens, 96);
            same(&w.choices[0], &plain.choices[0]);
            bed_free(&w);
            bed_free(&plain);
        }
    assert_int_equal(small->scheduler.pool.n_free, small->scheduler.pool.total);
    headrace_engine_destroy(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_differ),
        cmocka_unit_test(a_name_is_sha_256),
        cmocka_unit_test(the_pool_matches_its_model),
        cmocka_unit_test(tokens_are_compared),
        cmocka_unit_test(whole_prompts_in_the_cache),
        cmocka_unit_test(hits_are_counted),
        cmocka_unit_test(answers_are_found_again),
        cmocka_unit_test(salts_keep_apart),
        cmocka_unit_test(choices_share_the_prompt),
        cmocka_unit_test(prompt_logprobs_read_nothing),
        cmocka_unit_test(old_prefixes_make_room),
    };
    return cmocka_run_group_tests(tests, start, end);
}
