/* The OpenAI layer over a real engine and an exchange made here: memory that ends at any allocation
 * of the I/O thread, and clients that leave at any event. An answer is then whole, byte for byte,
 * or it is an error; nothing stays behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "engine_bed.h"
#include "server/generation.h"
#include "server/metrics.h"

/* ---- memory that ends ------------------------------------------------------------------------ */

static pthread_t io_thread;
static int64_t left = -1; /* allocations of that thread until one fails; < 0 = none does */
static bool for_good;     /* all that follow fail, too */
static bool failed;

static bool fails(void)
{
    if (left < 0 || !pthread_equal(pthread_self(), io_thread)) return false;
    if (left > 0) {
        left--;
        return false;
    }
    failed = true;
    if (!for_good) left = -1;
    return true;
}

static void *alloc_or_fail(void *self, size_t bytes, size_t align)
{
    (void)self;
    if (fails()) return NULL;
    return align <= 16 ? malloc(bytes) : aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void *realloc_or_fail(void *self, void *p, size_t bytes)
{
    (void)self;
    return fails() ? NULL : realloc(p, bytes);
}

static void plain_free(void *self, void *p)
{
    (void)self;
    free(p);
}

/* ---- the exchange ---------------------------------------------------------------------------- */

static hr_server server;
static hr_exchange *current; /* NULL: it has ended */
static struct {
    int status; /* 0 = not answered; 499 = the client has left */
    bool begun, done;
    char *text; /* of a body, or of a stream's data, a line each */
    size_t n;
} got;

static void add_text(hr_str s)
{
    got.text = realloc(got.text, got.n + s.n + 2);
    memcpy(got.text + got.n, s.p, s.n);
    got.n += s.n;
    got.text[got.n] = '\0';
}

static void end_exchange(hr_exchange *x)
{
    assert_ptr_equal(x, current);
    hr_arena_deinit(&x->arena);
    free(x);
    current = NULL;
}

static void client_leaves(void)
{
    got.status = 499;
    if (current->on_gone) current->on_gone(current);
    end_exchange(current);
}

hr_str hr_exchange_header(const hr_exchange *x, const char *name)
{
    (void)x;
    (void)name;
    return (hr_str){ 0 };
}

void hr_exchange_await_hash(hr_exchange *x)
{
    (void)x;
    fail_msg("nobody asked for a trace");
}

void hr_exchange_reply(hr_exchange *x, int http_status, const char *content_type, hr_str body)
{
    assert_string_equal(content_type, "application/json");
    assert_false(got.begun);
    got.status = http_status;
    add_text(body);
    end_exchange(x);
}

void hr_exchange_error(hr_exchange *x, int http_status, const char *param, const char *format, ...)
{
    (void)param;
    (void)format;
    assert_true(http_status >= 400 && !got.begun);
    got.status = http_status;
    end_exchange(x);
}

void hr_exchange_fail(hr_exchange *x, hr_status st, const char *param)
{
    hr_exchange_error(x, hr_exchange_http_status((int)st), param, "%s", hr_message());
}

void hr_exchange_stream_begin(hr_exchange *x)
{
    assert_ptr_equal(x, current);
    assert_false(got.begun);
    got.begun = true;
}

bool hr_exchange_stream_data(hr_exchange *x, hr_str json)
{
    assert_ptr_equal(x, current);
    assert_true(got.begun && json.n);
    add_text(json);
    add_text(HR_STR("\n"));
    return true;
}

void hr_exchange_stream_end(hr_exchange *x)
{
    got.done = true;
    got.status = strstr(got.text, "{\"error\":") ? 500 : 200;
    end_exchange(x);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void forget_answer(void)
{
    free(got.text);
    memset(&got, 0, sizeof got);
}

/* Begins; the body is parsed before memory may end, as it is by another part of the server. */
static void ask(hr_openai_endpoint endpoint, const char *body, int64_t allocations)
{
    forget_answer();
    current = calloc(1, sizeof *current);
    current->server = &server;
    current->request.method = HR_STR("POST");
    current->request.path = HR_STR("/");
    current->request_id = HR_STR("one");
    current->began_s = hr_now_s();
    if (hr_json_parse(hr_str_c(body), NULL, &current->arena, &current->json))
        fail_msg("%s: %s", body, hr_message());
    failed = false;
    left = allocations;
    hr_openai_handle(current, endpoint);
}

/* Takes events until the exchange has ended, or `most` of them. */
static void take_events(int64_t most)
{
    for (; current && most != 0; most--) {
        hr_engine_event *v = hr_engine_poll(server.engine, 20000);
        if (!v) fail_msg("no event came");
        hr_generations_event(&server, v);
    }
}

/* What was cancelled ends, and the events of it are dropped. */
static void settle(void)
{
    left = -1;
    hr_engine_gauges g;
    for (int i = 0;; i++) {
        hr_engine_event *v = hr_engine_poll(server.engine, i ? 1 : 0);
        if (v) hr_generations_event(&server, v);
        hr_engine_gauges_get(server.engine, &g);
        if (!v && !g.running && !g.waiting) break;
        if (i > 20000) fail_msg("something still runs");
    }
    assert_int_equal(hr_generations_running(server.generations), 0);
}

static const struct {
    hr_openai_endpoint endpoint;
    const char *body;
} cases[] = {
    { HR_OPENAI_COMPLETIONS, "{\"prompt\":\"ab\",\"max_tokens\":3,\"seed\":1,\"other\":1}" },
    { HR_OPENAI_COMPLETIONS,
      "{\"prompt\":[\"ab\",\"c\"],\"n\":2,\"max_tokens\":3,\"seed\":1,\"logprobs\":2,\"echo\":true,"
      "\"return_token_ids\":true,\"logit_bias\":{\"5\":1},\"stop_token_ids\":[3],"
      "\"bad_words\":\"q\"}" },
    { HR_OPENAI_COMPLETIONS,
      "{\"prompt\":[[97,98],[99]],\"max_tokens\":2,\"seed\":1,\"prompt_logprobs\":1,"
      "\"echo\":true}" },
    { HR_OPENAI_COMPLETIONS,
      "{\"prompt\":\"ab\",\"max_tokens\":3,\"seed\":1,\"stream\":true,\"echo\":true,"
      "\"logprobs\":1,\"n\":2,\"stream_options\":{\"include_usage\":true}}" },
    { HR_OPENAI_COMPLETIONS, "{\"prompt\":\"a\",\"max_tokens\":4,\"seed\":1,\"allowed_token_ids\":["
                             "97],\"stop\":\"aaa\"}" },
    { HR_OPENAI_CHAT,
      "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":3,\"seed\":1,"
      "\"logprobs\":true,\"top_logprobs\":2,\"reasoning_effort\":\"low\",\"stream\":true}" },
    { HR_OPENAI_CHAT,
      "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
      "[{\"type\":\"text\",\"text\":\"b\"}]}],\"continue_final_message\":true,\"echo\":true,"
      "\"max_tokens\":2,\"seed\":1,\"return_token_ids\":true}" },
    { HR_OPENAI_TOKENIZE, "{\"prompt\":\"ab\",\"return_token_strs\":true}" },
    { HR_OPENAI_DETOKENIZE, "{\"tokens\":[97,98]}" },
};
enum { CASES = sizeof cases / sizeof *cases };

/* Appends the lines of `text` that are choice `index`'s, or with -1 those of none. */
static void add_choice(char *out, const char *text, int index)
{
    for (const char *line = text, *end; *line; line = end) {
        end = strchr(line, '\n');
        end = end ? end + 1 : line + strlen(line);
        const char *is = memmem(line, (size_t)(end - line), "\"index\":", 8);
        if ((is ? atoi(is + 8) : -1) == index) strncat(out, line, (size_t)(end - line));
    }
}

/* An answer without what changes from one time to the next: times, and which of two choices of a
 * stream is a step ahead. */
static char *essence(const char *text)
{
    char *out = calloc(1, (text ? strlen(text) : 0) + 1);
    for (int i = 0; text && i < 3; i++) add_choice(out, text, i < 2 ? i : -1);
    for (char *p = out; (p = strstr(p, "\"created\":")) != NULL;)
        for (p += 10; *p >= '0' && *p <= '9'; p++) *p = '0';
    return out;
}

static void whole_or_an_error(size_t i, const char *want, int64_t at)
{
    char *have = essence(got.text);
    bool whole = got.status == 200 && strcmp(have, want) == 0;
    bool refused = got.status == 503 || got.status == 500;
    if (got.status == 200 && !whole) fail_msg("case %zu, allocation %d:\n%s", i, (int)at, have);
    if (!whole && !refused) fail_msg("case %zu, allocation %d: %d", i, (int)at, got.status);
    free(have);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void memory_may_end_anywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        ask(cases[i].endpoint, cases[i].body, -1);
        take_events(-1);
        settle();
        if (got.status != 200) fail_msg("case %zu: %d %s", i, got.status, hr_message());
        char *want = essence(got.text);
        for (int mode = 0; mode < 2; mode++) {
            int64_t at = 0;
            for_good = mode;
            do {
                ask(cases[i].endpoint, cases[i].body, at);
                take_events(-1);
                settle();
                whole_or_an_error(i, want, at);
                at++;
            } while (failed);
            assert_true(at > 3);
        }
        free(want);
    }
}

static void clients_may_leave_anywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        int64_t at = 0;
        do {
            ask(cases[i].endpoint, cases[i].body, -1);
            take_events(at++);
            if (current) client_leaves();
            settle();
        } while (got.status == 499);
        assert_int_equal(got.status, 200);
        assert_true(at > 1);
    }
}

static void all_may_be_ended_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < 7; i++) {
        ask(cases[i].endpoint, cases[i].body, -1);
        take_events((int64_t)i % 3);
        if (current) hr_generations_abort_all(&server, 503, "the server is stopping");
        assert_null(current);
        bool streams = got.begun;
        assert_int_equal(got.status, got.status == 200 ? 200 : streams ? 500 : 503);
        settle();
    }
}

static int start(void **state)
{
    static headrace_options o;
    io_thread = pthread_self();
    const hr_allocator ending = { alloc_or_fail, realloc_or_fail, plain_free, NULL };
    hr_set_allocator(&ending);
    if (bed_setup(state)) return 1;
    bed_options(&o);
    server.engine_options = &o;
    server.engine = bed_start(&o);
    server.model_name = HR_STR("tiny");
    return (hr_metrics_create("tiny", o.max_model_len, &server.metrics) != HR_OK) +
           (hr_generations_create(&server.generations) != HR_OK);
}

static int finish(void **state)
{
    forget_answer();
    hr_generations_destroy(server.generations);
    hr_metrics_destroy(server.metrics);
    headrace_engine_destroy(server.engine);
    hr_set_allocator(NULL);
    return scratch_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_may_end_anywhere),
        cmocka_unit_test(clients_may_leave_anywhere),
        cmocka_unit_test(all_may_be_ended_at_once),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
