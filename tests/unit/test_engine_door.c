/* The engine's door, as a server uses it: kinds of requests, what a chat can be asked, refusals by
 * name, queue limits, cancels wherever a request may be, counters and gauges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>

#include "engine_bed.h"

static headrace_engine *engine;

static int start(void **state)
{
    headrace_options o;
    if (bed_setup(state)) return 1;
    bed_options(&o);
    engine = bed_start(&o);
    return 0;
}

static int end(void **state)
{
    headrace_engine_destroy(engine);
    return scratch_teardown(state);
}

/* ---- kinds ----------------------------------------------------------------------------------- */

static void ask_kind(const headrace_request *in, hr_request_kind kind, bed_want *w)
{
    hr_request *r;
    *w = (bed_want){ 0 };
    if (hr_request_create(engine, in, &r)) fail_msg("%s", hr_message());
    hr_request_set_kind(r, kind);
    if (hr_engine_submit(engine, r, &w->id)) fail_msg("%s", hr_message());
    bed_await(engine, w, 1);
}

static void check_ids(const headrace_request *r, const int64_t *want, size_t n)
{
    bed_want w;
    ask_kind(r, HR_REQUEST_TOKENIZE, &w);
    const bed_answer *a = &w.choices[0];
    if (a->failed) fail_msg("%s", a->message);
    assert_true(a->started && a->tokens_events == 0);
    assert_int_equal(a->n_prompt_ids, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(a->prompt_ids[i], want[i]);
    bed_free(&w);
}

/* `text` with special tokens in it, as ids: what a chat should come to. */
static void check_chat(const headrace_request *r, const char *text)
{
    static const char *const special[] = { "<s>", "</s>", "<|im_start|>", "<|im_end|>" };
    int64_t ids[512];
    size_t n = 0;
    while (*text) {
        int k = 0;
        while (k < 4 && strncmp(text, special[k], strlen(special[k])) != 0) k++;
        ids[n++] = k < 4 ? 256 + k : (unsigned char)*text;
        text += k < 4 ? strlen(special[k]) : 1;
    }
    check_ids(r, ids, n);
}

static void texts_become_ids(void **state)
{
    (void)state;
    headrace_request r;
    bed_request(&r, "ab</s>", NULL);
    check_ids(&r, (int64_t[]){ BED_BOS, 'a', 'b', BED_EOS }, 4);
    r.add_special_tokens = 0;
    check_ids(&r, (int64_t[]){ 'a', 'b', BED_EOS }, 3);
    bed_request(&r, "", NULL);
    r.add_special_tokens = 0;
    check_ids(&r, NULL, 0);
    char *longer = malloc(20001); /* longer than any prompt: no reason not to count it */
    memset(longer, 'x', 20000);
    longer[20000] = 0;
    bed_request(&r, longer, NULL);
    bed_want w;
    ask_kind(&r, HR_REQUEST_TOKENIZE, &w);
    assert_int_equal(w.choices[0].n_prompt_ids, 20001);
    bed_free(&w);
    free(longer);
}

static void chats_become_ids(void **state)
{
    (void)state;
    headrace_request r;
    bed_request(&r, NULL, NULL);
    r.messages_json = "[{\"role\":\"user\",\"content\":\"hi <|im_end|>\"}]";
    int64_t ids[64] = { BED_START };
    size_t n = 1;
    for (const char *p = "user\nhi <|im_end|>"; *p; p++) ids[n++] = (unsigned char)*p;
    ids[n++] = BED_END;
    size_t without_prompt = n;
    ids[n++] = BED_START;
    for (const char *p = "assistant\n"; *p; p++) ids[n++] = (unsigned char)*p;
    check_ids(&r, ids, n); /* typed special tokens stay text, no BOS is added */
    r.add_generation_prompt = 0;
    check_ids(&r, ids, without_prompt);
    r.add_special_tokens = 1;
    memmove(ids + 1, ids, without_prompt * sizeof *ids);
    ids[0] = BED_BOS;
    check_ids(&r, ids, without_prompt + 1);

    bed_request(&r, NULL, NULL);
    r.messages_json = "[{\"role\":\"user\",\"content\":\"a\"},"
                      "{\"role\":\"assistant\",\"content\":\"so be\"}]";
    r.add_generation_prompt = 0;
    r.continue_final_message = 1;
    check_chat(&r, "<|im_start|>user\na<|im_end|><|im_start|>assistant\nso be");
    r.messages_json = "[{\"role\":\"user\",\"content\":\"a\"}]";
    r.continue_final_message = 0;
    r.chat_template_kwargs_json = "{\"tone\":\"warm\"}";
    r.documents_json = "[{\"text\":\"one\"},{\"text\":\"two\"}]";
    check_chat(&r, "<|im_start|>user\na<|im_end|>[warm](one)(two)");
}

static void ids_become_text(void **state)
{
    (void)state;
    headrace_request r;
    headrace_sampling s;
    bed_want w;
    int64_t ids[] = { BED_BOS, 'h', 0xC3, 0xA9, BED_END, '!' };
    headrace_sampling_init(engine, &s);
    bed_request(&r, NULL, &s);
    r.prompt_ids = ids;
    r.n_prompt_ids = 6;
    ask_kind(&r, HR_REQUEST_DETOKENIZE, &w);
    assert_string_equal(hr_buf_c(&w.choices[0].essence), "|h\xC3\xA9!|");
    assert_int_equal(w.choices[0].tokens_events, 1);
    bed_free(&w);
    s.skip_special_tokens = 0;
    ask_kind(&r, HR_REQUEST_DETOKENIZE, &w);
    assert_string_equal(hr_buf_c(&w.choices[0].essence), "|<s>h\xC3\xA9<|im_end|>!|");
    bed_free(&w);
    bed_request(&r, "text", &s);
    ask_kind(&r, HR_REQUEST_DETOKENIZE, &w);
    assert_int_equal(w.choices[0].status, HEADRACE_INVALID_ARGUMENT);
    bed_free(&w);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refused(const headrace_request *r, const char *field)
{
    bed_want w = { 0 };
    int st = headrace_submit(engine, r, &w.id);
    const char *message = headrace_message();
    if (!st) {
        bed_await(engine, &w, 1);
        st = w.choices[0].failed ? w.choices[0].status : HEADRACE_OK;
        message = w.choices[0].message;
    }
    assert_int_equal(st, HEADRACE_INVALID_ARGUMENT);
    if (!strstr(message, field)) fail_msg("'%s' is not in: %s", field, message);
    bed_free(&w);
}

static void refusals_name_the_field(void **state)
{
    (void)state;
    headrace_request r;
    headrace_sampling s;
    bed_request(&r, "a", NULL);
    r.priority = 3;
    refused(&r, "priority");
    bed_request(&r, "a", NULL);
    r.cache_salt = "";
    refused(&r, "cache_salt");
    bed_request(&r, "a", NULL);
    r.documents_json = "[]";
    refused(&r, "documents");
    bed_request(&r, "a", NULL);
    r.chat_template_kwargs_json = "{}";
    refused(&r, "chat_template_kwargs");
    bed_request(&r, "a", NULL);
    r.continue_final_message = 1;
    refused(&r, "continue_final_message");
    bed_request(&r, NULL, NULL);
    r.messages_json = "[{\"role\":\"user\",\"content\":\"a\"}]";
    r.continue_final_message = 1;
    refused(&r, "add_generation_prompt");
    r.continue_final_message = 0;
    r.chat_template_kwargs_json = "[]";
    refused(&r, "chat_template_kwargs is not an object");
    r.chat_template_kwargs_json = NULL;
    r.documents_json = "{}";
    refused(&r, "documents is not a list");

    headrace_sampling_init(engine, &s);
    s.max_tokens = 1020;
    bed_request(&r, "abcdefgh", &s); /* with BOS nine tokens */
    refused(&r, "max_model_len");
}

static void what_cannot_fit_is_refused_at_once(void **state)
{
    (void)state;
    headrace_request r;
    headrace_sampling s;
    bed_want w;
    assert_int_equal(engine->longest_token, strlen("<|im_start|>"));
    size_t most = engine->longest_token * 1024;
    char *text = calloc(1, most + 2);
    memset(text, 'x', most + 1);
    bed_request(&r, text, NULL);
    refused(&r, "bytes of text"); /* without tokenising */
    r.prompt_bytes = most;
    refused(&r, "tokens leave no room");
    free(text);

    headrace_sampling_init(engine, &s);
    int64_t blocks = engine->shapes.build.blocks;
    engine->shapes.build.blocks = 2; /* the engine is idle; 32 tokens */
    s.max_tokens = 25;
    bed_request(&r, "abcdefg", &s);
    bed_ask(engine, &r, &w); /* 8 + 25 - 1: the last token is never in the cache */
    assert_false(w.choices[0].failed);
    bed_free(&w);
    s.max_tokens = 26;
    refused(&r, "--kv-cache-memory-bytes");
    s.max_tokens = -1;
    s.ignore_eos = 1;
    bed_ask(engine, &r, &w);
    assert_int_equal(w.choices[0].output_tokens, 25);
    bed_free(&w);
    engine->shapes.build.blocks = blocks;
}

/* ---- queue limits ---------------------------------------------------------------------------- */

static uint64_t waiting(const hr_engine_gauges *g)
{
    return g->waiting;
}

static uint64_t running(const hr_engine_gauges *g)
{
    return g->running;
}

static uint64_t in_use(const hr_engine_gauges *g)
{
    return (uint64_t)g->blocks_in_use;
}

static void the_queue_has_limits(void **state)
{
    (void)state;
    headrace_options o;
    headrace_sampling s;
    headrace_request r;
    bed_want w[4] = { 0 };
    bed_options(&o);
    o.max_model_len = 4096;
    o.max_num_seqs = 1;
    o.max_num_queued_reqs = 2;
    o.max_num_queued_tokens = 20;
    headrace_engine *e = bed_start(&o);
    headrace_sampling_init(e, &s);
    s.max_tokens = 4000;
    s.ignore_eos = 1;
    s.temperature = 0;
    bed_request(&r, "a", &s);
    bed_submit(e, &r, &w[0]);
    assert_true(bed_settles(e, running, 1));
    s.max_tokens = 2;
    s.n = 3; /* choices are one request */
    r.n_prompt_ids = 10;
    r.prompt_ids = (int64_t[10]){ 1 };
    r.prompt = NULL;
    bed_submit(e, &r, &w[1]);
    r.n_prompt_ids = 11;
    r.prompt_ids = (int64_t[11]){ 2 };
    uint64_t id;
    assert_int_equal(headrace_submit(e, &r, &id), HEADRACE_UNAVAILABLE);
    assert_non_null(strstr(headrace_message(), "max_num_queued_tokens"));
    r.n_prompt_ids = 10;
    bed_submit(e, &r, &w[2]);
    r.n_prompt_ids = 1;
    assert_int_equal(headrace_submit(e, &r, &id), HEADRACE_UNAVAILABLE);
    assert_non_null(strstr(headrace_message(), "max_num_queued_reqs"));
    assert_true(bed_settles(e, waiting, 6));
    headrace_cancel(e, w[1].id); /* makes room */
    assert_true(bed_settles(e, waiting, 3));
    bed_submit(e, &r, &w[3]);
    headrace_cancel(e, w[0].id);
    bed_await(e, w, 4);
    for (int i = 0; i < 4; i++) bed_free(&w[i]);
    assert_int_equal(hr_counter_get(&e->stats.queued_requests), 0);
    assert_int_equal(hr_counter_get(&e->stats.queued_tokens), 0);
    assert_true(bed_settles(e, waiting, 0));
    headrace_engine_destroy(e);
}

/* ---- cancels --------------------------------------------------------------------------------- */

static void a_cancel_finds_it_anywhere(void **state)
{
    (void)state;
    headrace_sampling s;
    headrace_request r;
    bed_want w[12] = { 0 };
    headrace_options o;
    bed_options(&o);
    o.max_model_len = 4096; /* long enough not to end by themselves */
    headrace_engine *e = bed_start(&o);
    headrace_sampling_init(e, &s);
    s.ignore_eos = 1;
    size_t bytes = 800;
    char *text = calloc(1, bytes + 1);
    for (size_t i = 0; i < bytes; i++) text[i] = (char)('a' + i % 7);
    for (size_t i = 0; i < 12; i++) {
        s.n = (uint32_t)(1 + i % 3);
        bed_request(&r, i % 2 ? text : "abc", &s);
        s.max_tokens = 3000;
        bed_submit(e, &r, &w[i]);
        if (i % 4 == 1) assert_int_equal(headrace_cancel(e, w[i].id), 0);
    }
    for (size_t i = 0; i < 12; i++) headrace_cancel(e, w[i].id);
    headrace_cancel(e, 1 << 20); /* unknown: no error */
    bed_await(e, w, 12);
    for (size_t i = 0; i < 12; i++) {
        for (size_t k = 0; k < 1 + i % 3; k++) assert_string_equal(w[i].choices[k].finish, "abort");
        bed_free(&w[i]);
    }
    free(text);
    assert_true(bed_settles(e, running, 0) && bed_settles(e, waiting, 0));
    assert_true(bed_settles(e, in_use, 0));
    headrace_engine_destroy(e);
}

/* Once a cancel is in, the step that runs is the last: nothing else has anything to compute. */
static void a_cancel_takes_one_step(void **state)
{
    (void)state;
    headrace_sampling s;
    headrace_request r;
    bed_want w[2] = { 0 };
    headrace_event v = { .kind = HEADRACE_EVENT_STARTED };
    headrace_options o;
    bed_options(&o);
    o.max_model_len = 4096;
    o.max_num_seqs = 1; /* so that the other one waits */
    headrace_engine *e = bed_start(&o);
    headrace_sampling_init(e, &s);
    s.ignore_eos = 1;
    s.max_tokens = 4000;
    bed_request(&r, "abc", &s);
    bed_submit(e, &r, &w[0]);
    bed_submit(e, &r, &w[1]);
    while (v.kind != HEADRACE_EVENT_TOKENS) assert_int_equal(headrace_poll(e, &v, 60000), 0);
    headrace_cancel(e, w[1].id);
    headrace_cancel(e, w[0].id);
    uint64_t steps = hr_counter_get(&e->stats.steps);
    bed_await(e, w, 2);
    assert_true(bed_settles(e, in_use, 0));
    assert_true(hr_counter_get(&e->stats.steps) <= steps + 1);
    bed_free(&w[0]);
    bed_free(&w[1]);
    headrace_engine_destroy(e);
}

/* A reader that takes one event each time the descriptor is readable is never left waiting. */
static void the_descriptor_tells_of_every_event(void **state)
{
    (void)state;
    headrace_sampling s;
    headrace_request r;
    uint64_t id;
    headrace_sampling_init(engine, &s);
    s.ignore_eos = 1;
    s.max_tokens = 50;
    s.n = 3;
    struct pollfd fd = { .fd = headrace_wake_fd(engine), .events = POLLIN };
    for (int round = 0; round < 20; round++) {
        headrace_event v = { .kind = HEADRACE_EVENT_STARTED };
        bed_request(&r, "tell me", &s);
        assert_int_equal(headrace_submit(engine, &r, &id), 0);
        while (v.kind != HEADRACE_EVENT_DONE) {
            assert_int_equal(poll(&fd, 1, 60000), 1);
            int st = headrace_poll(engine, &v, 0);
            assert_true(st == HEADRACE_OK || st == HEADRACE_DEADLINE_EXCEEDED);
        }
    }
}

static void *cancel_it(void *id)
{
    headrace_cancel(engine, *(uint64_t *)id); /* waits for the input's queue at its end */
    return NULL;
}

static void await_started(bed_want *w)
{
    headrace_event v = { .kind = HEADRACE_EVENT_DONE };
    while (v.kind != HEADRACE_EVENT_STARTED) {
        assert_int_equal(headrace_poll(engine, &v, 60000), 0);
        bed_note(w, &v);
    }
}

/* The input thread is stuck, as it would be in a text of megabytes: answers go on to their end, and
 * a cancel ends one all the same. */
static void answers_need_no_input_thread(void **state)
{
    (void)state;
    headrace_sampling s;
    headrace_request r;
    bed_want w = { 0 };
    pthread_t thread;
    headrace_sampling_init(engine, &s);
    s.ignore_eos = 1;
    s.max_tokens = 100;
    bed_request(&r, "abc", &s);
    bed_submit(engine, &r, &w);
    await_started(&w);
    pthread_mutex_lock(&engine->to_input.lock);
    bed_await(engine, &w, 1);
    pthread_mutex_unlock(&engine->to_input.lock);
    assert_string_equal(w.choices[0].finish, "length");
    bed_free(&w);

    pthread_mutex_lock(&engine->free_steps.lock); /* the engine thread stops before a step */
    bed_submit(engine, &r, &w);
    await_started(&w);
    assert_true(bed_settles(engine, running, 1));
    pthread_mutex_lock(&engine->to_input.lock);
    assert_int_equal(pthread_create(&thread, NULL, cancel_it, &w.id), 0);
    while (hr_queue_length(&engine->to_engine) == 0) usleep(1000);
    pthread_mutex_unlock(&engine->free_steps.lock);
    bed_await(engine, &w, 1);
    pthread_mutex_unlock(&engine->to_input.lock);
    pthread_join(thread, NULL);
    assert_string_equal(w.choices[0].finish, "abort");
    assert_true(w.choices[0].output_tokens <= 1);
    bed_free(&w);
}

/* ---- many threads ---------------------------------------------------------------------------- */

enum { THREADS = 4, EACH = 40 };

static hr_counter accepted;

/* Submits of every kind, a third of them cancelled again; refusals by the full queue are fine. */
static void *submit_many(void *seed)
{
    static const char *const stops[] = { "a" };
    unsigned state = *(const unsigned *)seed;
    for (int i = 0; i < EACH; i++) {
        headrace_sampling s;
        headrace_request r;
        hr_request *mine;
        uint64_t id;
        headrace_sampling_init(engine, &s);
        s.max_tokens = 1 + (int64_t)(rand_r(&state) % 40);
        s.n = (uint32_t)(1 + rand_r(&state) % 3);
        s.stop = stops;
        s.n_stop = (size_t)rand_r(&state) % 2;
        bed_request(&r, "a prompt that many share, more or less: all", &s);
        r.prompt_bytes -= (size_t)rand_r(&state) % 10;
        if (hr_request_create(engine, &r, &mine)) continue;
        if (rand_r(&state) % 5 == 0) hr_request_set_kind(mine, HR_REQUEST_TOKENIZE);
        if (hr_engine_submit(engine, mine, &id)) continue;
        hr_counter_add(&accepted, 1);
        if (rand_r(&state) % 3 == 0 && headrace_cancel(engine, id)) continue;
        hr_engine_gauges g;
        hr_engine_gauges_get(engine, &g);
    }
    return NULL;
}

static void many_threads_at_the_door(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    unsigned seeds[THREADS] = { 1, 2, 3, 4 };
    uint64_t done = 0;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, submit_many, &seeds[i]), 0);
    while (done < THREADS * EACH) { /* nothing refuses here: the engine has no limits */
        headrace_event v;
        assert_int_equal(headrace_poll(engine, &v, 60000), 0);
        assert_int_not_equal(v.kind, HEADRACE_EVENT_FAILED);
        done += v.kind == HEADRACE_EVENT_DONE;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(hr_counter_get(&accepted), THREADS * EACH);
    assert_true(bed_settles(engine, running, 0) && bed_settles(engine, waiting, 0));
    assert_true(bed_settles(engine, in_use, 0));
    assert_int_equal(hr_counter_get(&engine->stats.queued_requests), 0);
    assert_int_equal(hr_counter_get(&engine->stats.queued_tokens), 0);
    headrace_event v;
    assert_int_equal(headrace_poll(engine, &v, 0), HEADRACE_DEADLINE_EXCEEDED);
}

/* An engine that ends amid requests, wherever they are, frees them all. */
static void the_end_comes_any_time(void **state)
{
    (void)state;
    headrace_options o;
    headrace_sampling s;
    headrace_request r;
    bed_options(&o);
    for (int round = 0; round < 6; round++) {
        headrace_engine *e = bed_start(&o);
        headrace_sampling_init(e, &s);
        s.ignore_eos = 1;
        s.max_tokens = 500;
        s.n = 2;
        for (int i = 0; i < 5 + round * 5; i++) {
            uint64_t id;
            bed_request(&r, "until the end", &s);
            assert_int_equal(headrace_submit(e, &r, &id), 0);
        }
        headrace_event v;
        for (int i = 0; i < round * 3; i++) assert_int_equal(headrace_poll(e, &v, 60000), 0);
        headrace_engine_destroy(e);
    }
}

/* ---- counters -------------------------------------------------------------------------------- */

static void everything_is_counted(void **state)
{
    (void)state;
    headrace_options o;
    headrace_sampling s;
    headrace_request r;
    bed_want w[5] = { 0 };
    bed_options(&o);
    o.enable_prefix_caching = 0;
    double begin = hr_now_s();
    headrace_engine *e = bed_start(&o);
    headrace_sampling_init(e, &s);
    s.max_tokens = 7;
    s.ignore_eos = 1;
    for (size_t i = 0; i < 5; i++) {
        s.n = (uint32_t)(1 + i % 2);
        bed_request(&r, "count me", &s); /* nine tokens */
        bed_submit(e, &r, &w[i]);
    }
    bed_await(e, w, 5);
    hr_engine_gauges g;
    hr_engine_gauges_get(e, &g);
    assert_int_equal(g.prompt_tokens, 7 * 9);
    assert_int_equal(g.generation_tokens, 7 * 7);
    assert_int_equal(g.prefix_queries, 0);
    assert_int_equal(g.blocks, 256);
    assert_true(bed_settles(e, in_use, 0) && bed_settles(e, running, 0));
    const hr_histogram *h = hr_engine_iteration_tokens(e);
    assert_int_equal(hr_histogram_count(h), g.steps);
    assert_int_equal((int64_t)hr_histogram_sum(h), 7 * (9 + 6));
    for (size_t i = 0; i < e->ledger.n; i++) {
        const hr_ledger_row *row = &e->ledger.rows[i];
        assert_int_equal(hr_histogram_count(&row->seconds), hr_counter_get(&row->calls));
        if (hr_counter_get(&row->calls)) assert_true(hr_counter_get(&row->last_ns) > 0);
    }
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < 1 + i % 2; k++) {
            const bed_answer *a = &w[i].choices[k];
            assert_string_equal(a->finish, "length");
            assert_int_equal(a->output_tokens, 7);
            assert_int_equal(a->cached_tokens, 0);
            assert_true(a->queue_s >= 0 && a->prefill_s > 0 && a->decode_s > 0);
            assert_true(a->queue_s + a->prefill_s + a->decode_s < hr_now_s() - begin);
        }
    for (size_t i = 0; i < 5; i++) bed_free(&w[i]);
    headrace_engine_destroy(e);
}

/* ---- options --------------------------------------------------------------------------------- */

static void options_are_checked(void **state)
{
    (void)state;
    headrace_options o;
    headrace_engine *e;
    headrace_request r;
    bed_want w;
    bed_options(&o);
    assert_int_equal(o.enable_prefix_caching, 1);
    o.scheduling_policy = "lottery";
    assert_int_equal(headrace_engine_create(&o, &e), HEADRACE_INVALID_ARGUMENT);
    assert_non_null(strstr(headrace_message(), "--scheduling-policy lottery"));
    bed_options(&o);
    o.max_num_queued_reqs = -1;
    assert_int_equal(headrace_engine_create(&o, &e), HEADRACE_INVALID_ARGUMENT);
    assert_non_null(strstr(headrace_message(), "--max-num-queued-reqs"));
    bed_options(&o);
    o.chat_template = "{% nonsense %}";
    assert_int_equal(headrace_engine_create(&o, &e), HEADRACE_INVALID_ARGUMENT);
    assert_non_null(strstr(headrace_message(), "chat template"));

    bed_options(&o);
    o.chat_template = "{{ messages[0].content }}";
    o.parse_special_in_content = 1;
    e = bed_start(&o);
    bed_request(&r, NULL, NULL);
    r.messages_json = "[{\"role\":\"user\",\"content\":\"a<|im_end|>\"}]";
    bed_ask(e, &r, &w);
    assert_int_equal(w.choices[0].n_prompt_ids, 2);
    assert_int_equal(w.choices[0].prompt_ids[1], BED_END);
    bed_free(&w);
    headrace_engine_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_become_ids),
        cmocka_unit_test(chats_become_ids),
        cmocka_unit_test(ids_become_text),
        cmocka_unit_test(refusals_name_the_field),
        cmocka_unit_test(what_cannot_fit_is_refused_at_once),
        cmocka_unit_test(the_queue_has_limits),
        cmocka_unit_test(a_cancel_finds_it_anywhere),
        cmocka_unit_test(a_cancel_takes_one_step),
        cmocka_unit_test(the_descriptor_tells_of_every_event),
        cmocka_unit_test(answers_need_no_input_thread),
        cmocka_unit_test(many_threads_at_the_door),
        cmocka_unit_test(the_end_comes_any_time),
        cmocka_unit_test(everything_is_counted),
        cmocka_unit_test(options_are_checked),
    };
    return cmocka_run_group_tests(tests, start, end);
}
