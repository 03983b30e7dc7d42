/* HTTP framing: good and bad requests after RFC 9112, whole, split at every byte, byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/http.h"

static const hr_http_limits limits = { .request_line = 64, .head = 256, .headers = 6, .body = 32 };

#define HOST    "Host: a\r\n"
#define POST    "POST /p HTTP/1.1\r\n" HOST
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

/* Feeds pieces [0,a) [a,b) [b,n) until something but MORE and HEAD comes; *heads counts HEADs.
 * What is not used of a piece is fed again, as a connection does. */
static hr_http_event feed_split(hr_http *h, hr_str in, size_t a, size_t b, int *heads,
                                size_t *total)
{
    const size_t ends[] = { a, b, in.n };
    *heads = 0;
    *total = 0;
    for (int i = 0; i < 3; i++) {
        while (*total < ends[i] || h->phase == HR_HTTP_WHOLE) {
            size_t used;
            hr_http_event e = hr_http_feed(h, hr_str_slice(in, *total, ends[i]), &used);
            *total += used;
            assert_true(*total <= ends[i]);
            if (e == HR_HTTP_HEAD) ++*heads;
            else if (e != HR_HTTP_MORE) return e;
            else assert_int_equal(*total, ends[i]);
        }
    }
    return HR_HTTP_MORE;
}

/* ---- good ones ------------------------------------------------------------------------------- */

typedef struct good {
    const char *in;
    const char *method, *path, *query, *body;
    int minor;
    bool keep_alive;
    const char *header, *value; /* NULL = not looked at */
    size_t rest;                /* bytes of `in` that belong to the next request */
} good;

static const good goods[] = {
    { "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/", NULL, "", 1, true, "host", "a", 0 },
    { "GET /a?b=c&d HTTP/1.1\r\nhOST:a\r\n\r\n", "GET", "/a", "b=c&d", "", 1, true, "Host", "a",
      0 },
    { "GET /%41%2f%C3%A9? HTTP/1.1\r\n" HOST "\r\n", "GET", "/A/\xC3\xA9", "", "", 1, true, NULL,
      NULL, 0 },
    { "GET http://h:1/x?y HTTP/1.1\r\n" HOST "\r\n", "GET", "/x", "y", "", 1, true, NULL, NULL, 0 },
    { "GET http://h HTTP/1.1\r\n" HOST "\r\n", "GET", "/", NULL, "", 1, true, NULL, NULL, 0 },
    { "GET http://h?q HTTP/1.1\r\n" HOST "\r\n", "GET", "/", "q", "", 1, true, NULL, NULL, 0 },
    { "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS", "*", NULL, "", 1, true, NULL, NULL, 0 },
    { "GET / HTTP/1.0\r\n\r\n", "GET", "/", NULL, "", 0, false, NULL, NULL, 0 },
    { "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "GET", "/", NULL, "", 0, true, NULL, NULL,
      0 },
    { "GET / HTTP/1.1\r\n" HOST "Connection: x, Close\r\n\r\n", "GET", "/", NULL, "", 1, false,
      NULL, NULL, 0 },
    { "GET / HTTP/1.9\r\n" HOST "\r\n", "GET", "/", NULL, "", 1, true, NULL, NULL, 0 },
    { "\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", "GET", "/", NULL, "", 1, true, NULL, NULL, 0 },
    { "GET / HTTP/1.1\r\n" HOST "X: \t a b\xE9 \t\r\n\r\n", "GET", "/", NULL, "", 1, true, "x",
      "a b\xE9", 0 },
    { "GET / HTTP/1.1\r\n" HOST "X:\r\n\r\n", "GET", "/", NULL, "", 1, true, "x", "", 0 },
    { POST "Content-Length: 5\r\n\r\nhello", "POST", "/p", NULL, "hello", 1, true, NULL, NULL, 0 },
    { POST "Content-Length: 0\r\n\r\n", "POST", "/p", NULL, "", 1, true, NULL, NULL, 0 },
    { POST "Content-Length: 002\r\n\r\nhiGET", "POST", "/p", NULL, "hi", 1, true, NULL, NULL, 3 },
    { POST "Content-Length: 32\r\n\r\n01234567890123456789012345678901", "POST", "/p", NULL,
      "01234567890123456789012345678901", 1, true, NULL, NULL, 0 },
    { CHUNKED "5\r\nhello\r\n0\r\n\r\n", "POST", "/p", NULL, "hello", 1, true, NULL, NULL, 0 },
    { CHUNKED "0\r\n\r\nGET / HT", "POST", "/p", NULL, "", 1, true, NULL, NULL, 8 },
    { CHUNKED "a;x=\"y\"\r\n0123\n\r6789\r\n01 ;z\r\n!\r\n00\r\nT: v\r\n\r\n", "POST", "/p", NULL,
      "0123\n\r6789!", 1, true, NULL, NULL, 0 },
    { POST "transfer-encoding:CHUNKED\r\n\r\n1\r\n\0\r\n0\r\n\r\n", "POST", "/p", NULL, NULL, 1,
      true, NULL, NULL, 0 },
    { POST "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\nx", "POST", "/p", NULL, "x", 1, true,
      NULL, NULL, 0 },
};

static void check_good(const good *g, hr_http *h, size_t total, size_t n)
{
    const hr_http_request *r = &h->message.request;
    assert_true(hr_str_eq_c(r->method, g->method));
    assert_true(hr_str_eq_c(r->path, g->path));
    assert_true(hr_str_eq_c(r->query, g->query ? g->query : ""));
    assert_int_equal(r->query.p != NULL, g->query != NULL);
    if (g->body) assert_true(hr_str_eq_c(r->body, g->body));
    else assert_int_equal(r->body.n, 1);
    assert_int_equal(r->minor, g->minor);
    assert_int_equal(r->keep_alive, g->keep_alive);
    assert_int_equal(n - total, g->rest);
    if (!g->header) return;
    hr_str v = hr_http_header_get(r, g->header);
    assert_non_null(v.p);
    assert_true(hr_str_eq_c(v, g->value));
}

/* The text of a row, which may hold one NUL. */
static hr_str text_of(const char *in)
{
    hr_str s = hr_str_c(in);
    if (s.n > 6 && !memcmp(s.p + s.n - 5, "\r\n1\r\n", 5)) s.n += 8;
    return s;
}

static void takes_good_requests_however_they_come(void **state)
{
    (void)state;
    hr_http h;
    hr_http_init(&h, &limits);
    for (size_t i = 0; i < sizeof goods / sizeof *goods; i++) {
        hr_str in = text_of(goods[i].in);
        for (size_t a = 0; a <= in.n; a++) {
            for (size_t b = a; b <= in.n; b++) {
                int heads;
                size_t total;
                hr_http_event e = feed_split(&h, in, a, b, &heads, &total);
                if (e != HR_HTTP_DONE) {
                    print_error("%s\nsplit at %zu, %zu: %d %s\n", in.p, a, b, h.error,
                                h.reason ? h.reason : "");
                    fail();
                }
                assert_int_equal(heads, 1);
                check_good(&goods[i], &h, total, in.n);
                hr_http_reset(&h);
            }
        }
    }
    hr_http_deinit(&h);
}

/* ---- bad ones -------------------------------------------------------------------------------- */

typedef struct bad {
    const char *in;
    int error;
} bad;

static const bad bads[] = {
    /* lines */
    { "GET / HTTP/1.1\nHost: a\n\n", 400 },
    { "GET / HTTP/1.1\r\nHost: a\n\r\n", 400 },
    { "GET / HTTP/1.1\r\rHost: a\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", 400 },
    { "\r\n\r\n\r\nGET / HTTP/1.1\r\n", 400 },
    { "\x16\x03\x01\x02", 400 },
    { "GET /\x7F HTTP/1.1\r\n", 400 },
    /* request line */
    { " GET / HTTP/1.1\r\n", 400 },
    { "GET  / HTTP/1.1\r\n", 400 },
    { "GET /  HTTP/1.1\r\n", 400 },
    { "GET / HTTP/1.1 \r\n", 400 },
    { "GET\t/\tHTTP/1.1\r\n", 400 },
    { "GET /\r\n", 400 },
    { "GET\r\n", 400 },
    { "G@T / HTTP/1.1\r\n", 400 },
    { "GET / HTTP/1\r\n", 400 },
    { "GET / http/1.1\r\n", 400 },
    { "GET / HTTP/1.10\r\n", 400 },
    { "GET / HTTP/1.x\r\n", 400 },
    { "GET / HTTP/2.0\r\n", 505 },
    { "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505 },
    { "GET /\xC3\xA9 HTTP/1.1\r\n", 400 },
    { "GET /#f HTTP/1.1\r\n", 400 },
    { "GET /%4 HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET /%zz HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET /%00 HTTP/1.1\r\n" HOST "\r\n", 400 },
    /* header lines */
    { "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n: a\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHo(st: a\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nH\xC3\xA9: a\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: a\x01\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST HOST "\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Expect: 200-ok\r\n\r\n", 417 },
    { "GET / HTTP/1.1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\n", 431 },
    /* framing */
    { POST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400 },
    { POST "Content-Length: 1, 1\r\n\r\n", 400 },
    { POST "Content-Length: +1\r\n\r\n", 400 },
    { POST "Content-Length: -1\r\n\r\n", 400 },
    { POST "Content-Length: 0x1\r\n\r\n", 400 },
    { POST "Content-Length: 1 1\r\n\r\n", 400 },
    { POST "Content-Length:\r\n\r\n", 400 },
    { POST "Content-Length: 33\r\n\r\n", 413 },
    { POST "Content-Length: 18446744073709551617\r\n\r\n", 413 },
    { POST "Content-Length: 99999999999999999999999999999999999\r\n\r\n", 413 },
    { POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
    { POST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400 },
    { POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
    { "GET +x HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET *x HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n", 400 },
    { POST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501 },
    { POST "Transfer-Encoding: chunked, chunked\r\n\r\n", 501 },
    { POST "Transfer-Encoding: identity\r\n\r\n", 501 },
    { POST "Transfer-Encoding: xchunked\r\n\r\n", 501 },
    { POST "Transfer-Encoding:\r\n\r\n", 501 },
    { "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
    /* chunks */
    { CHUNKED "\r\n", 400 },
    { CHUNKED "x\r\n", 400 },
    { CHUNKED "-1\r\n", 400 },
    { CHUNKED "0x1\r\n", 400 },
    { CHUNKED " 1\r\n", 400 },
    { CHUNKED "1 2\r\n", 400 },
    { CHUNKED "1\n", 400 },
    { CHUNKED "00000000000000001\r\n", 400 },
    { CHUNKED "21\r\n", 413 },
    { CHUNKED "ffffffffffffffff\r\n", 413 },
    { CHUNKED "10\r\n0123456789abcdef\r\n11\r\n", 413 },
    { CHUNKED "1\r\nab\r\n0\r\n\r\n", 400 },
    { CHUNKED "1\r\na\n0\r\n\r\n", 400 },
    { CHUNKED "0\r\nT\r\n\r\n", 400 },
    { CHUNKED "0\r\n T: v\r\n\r\n", 400 },
    { CHUNKED "0\r\nT: v\n\r\n", 400 },
};

static void refuses_bad_requests_however_they_come(void **state)
{
    (void)state;
    hr_http h;
    hr_http_init(&h, &limits);
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        hr_str in = hr_str_c(bads[i].in);
        for (size_t a = 0; a <= in.n; a++) {
            int heads;
            size_t total;
            hr_http_event e = feed_split(&h, in, a, a, &heads, &total);
            if (e != HR_HTTP_BAD || h.error != bads[i].error) {
                print_error("%s\nsplit at %zu: event %d, %d %s\n", in.p, a, (int)e, h.error,
                            h.reason ? h.reason : "");
                fail();
            }
            assert_non_null(h.reason);
            hr_http_reset(&h);
        }
    }
    hr_http_deinit(&h);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* One request made of a beginning, n times a filler, and an end: 0 when it is taken, else the
 * error. */
static int answer_to(const char *begin, const char *filler, size_t n, const char *end)
{
    hr_http h;
    hr_buf text = { 0 };
    hr_http_init(&h, &limits);
    hr_buf_add_c(&text, begin);
    for (size_t i = 0; i < n; i++) hr_buf_add_c(&text, filler);
    hr_buf_add_c(&text, end);
    int heads;
    size_t total;
    hr_http_event e = feed_split(&h, hr_buf_str(&text), 0, text.n / 2, &heads, &total);
    int error = e == HR_HTTP_BAD ? h.error : e == HR_HTTP_DONE ? 0 : -1;
    hr_buf_deinit(&text);
    hr_http_deinit(&h);
    return error;
}

static void holds_its_limits(void **state)
{
    (void)state;
    static const char host_end[] = "\r\n" HOST "\r\n";
    /* "GET /" + 50 + " HTTP/1.1" = 64 */
    assert_int_equal(answer_to("GET /", "a", 50, " HTTP/1.1\r\n" HOST "\r\n"), 0);
    assert_int_equal(answer_to("GET /", "a", 51, " HTTP/1.1\r\n" HOST "\r\n"), 414);
    assert_int_equal(answer_to("GET /", "a", 100000, ""), 414);
    assert_int_equal(answer_to("GET / HTTP/1.1\r\nX: ", "a", 200, host_end), 0);
    assert_int_equal(answer_to("GET / HTTP/1.1\r\nX: ", "a", 300, host_end), 431);
    assert_int_equal(answer_to("GET / HTTP/1.1\r\nX: ", "a", 100000, ""), 431);
    assert_int_equal(answer_to(CHUNKED "1;", "a", 200, "\r\nx\r\n0\r\n\r\n"), 0);
    assert_int_equal(answer_to(CHUNKED "1;", "a", 300, "\r\nx\r\n0\r\n\r\n"), 431);
    assert_int_equal(answer_to(CHUNKED "1;", "a", 100000, ""), 400);
    /* many small extensions are as bad as one large */
    assert_int_equal(answer_to(CHUNKED, "1;123456789\r\nx\r\n", 25, "0\r\n\r\n"), 0);
    assert_int_equal(answer_to(CHUNKED, "1;123456789\r\nx\r\n", 26, "0\r\n\r\n"), 431);
    assert_int_equal(answer_to(CHUNKED "0\r\n", "T: 1\r\n", 60, "\r\n"), 0);
    assert_int_equal(answer_to(CHUNKED "0\r\n", "T: 1\r\n", 70, "\r\n"), 431);
    assert_int_equal(answer_to(CHUNKED "0\r\nT: ", "a", 100000, ""), 431);
    assert_int_equal(answer_to(CHUNKED, "1\r\nx\r\n", 32, "0\r\n\r\n"), 0);
    assert_int_equal(answer_to(CHUNKED, "1\r\nx\r\n", 33, "0\r\n\r\n"), 413);
}

/* A body that nobody wants is read and not kept; the next request starts where it ends. */
static void discards_what_is_not_wanted(void **state)
{
    (void)state;
    static const char in[] =
        POST "Content-Length: 9\r\n\r\n012345678GET / HTTP/1.1\r\n" HOST "\r\n";
    hr_http h;
    size_t used, at;
    hr_http_init(&h, &limits);
    assert_int_equal(hr_http_feed(&h, HR_STR(in), &at), HR_HTTP_HEAD);
    assert_true(hr_http_has_body(&h));
    h.discard = true;
    assert_int_equal(hr_http_feed(&h, hr_str_slice(HR_STR(in), at, sizeof in - 1), &used),
                     HR_HTTP_DONE);
    assert_int_equal(used, 9);
    assert_int_equal(h.message.request.body.n, 0);
    assert_null(h.message.body.p);
    hr_http_message m = hr_http_take(&h);
    hr_http_reset(&h);
    at += used;
    assert_int_equal(hr_http_feed(&h, hr_str_slice(HR_STR(in), at, sizeof in - 1), &used),
                     HR_HTTP_HEAD);
    assert_false(hr_http_has_body(&h));
    assert_true(hr_str_eq_c(m.request.path, "/p")); /* the taken one lives on */
    hr_http_message_deinit(&m);
    hr_http_deinit(&h);
}

static void a_stated_length_allocates_nothing(void **state)
{
    (void)state;
    static const hr_http_limits large = {
        .request_line = 64, .head = 256, .headers = 6, .body = (size_t)1 << 40
    };
    static const char in[] = POST "Content-Length: 1000000000000\r\n\r\nabc";
    hr_http h;
    size_t used, at;
    hr_http_init(&h, &large);
    assert_int_equal(hr_http_feed(&h, HR_STR(in), &at), HR_HTTP_HEAD);
    assert_int_equal(hr_http_feed(&h, hr_str_slice(HR_STR(in), at, sizeof in - 1), &used),
                     HR_HTTP_MORE);
    assert_true(h.message.body.capacity < 64);
    hr_http_deinit(&h);
}

/* ---- any bytes ------------------------------------------------------------------------------- */

static uint64_t random_state;

static size_t random_below(size_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(random_state >> 33) % n;
}

/* A good or bad row with some bytes changed, taken out or put in. */
static void mutate(hr_buf *out)
{
    static const char spice[] = "\r\n \t:;,0aF%?#/\x00\x7F\xFF";
    size_t pick = random_below(sizeof goods / sizeof *goods + sizeof bads / sizeof *bads);
    bool good_one = pick < sizeof goods / sizeof *goods;
    hr_str text =
        good_one ? text_of(goods[pick].in) : hr_str_c(bads[pick - sizeof goods / sizeof *goods].in);
    size_t changes = random_below(4);
    hr_buf_clear(out);
    for (size_t i = 0; i < text.n; i++) {
        size_t what = changes ? random_below(text.n * 2) : 3;
        if (what == 0) hr_buf_add_byte(out, spice[random_below(sizeof spice - 1)]);
        if (what == 1) continue;
        if (what == 2) hr_buf_add_byte(out, spice[random_below(sizeof spice - 1)]);
        else hr_buf_add_byte(out, text.p[i]);
    }
}

/* However it is cut, a text means the same: same event, same error, same bytes taken. */
static void cutting_changes_nothing(void **state)
{
    (void)state;
    hr_http whole, cut;
    hr_buf text = { 0 };
    size_t events[4] = { 0 };
    hr_http_init(&whole, &limits);
    hr_http_init(&cut, &limits);
    random_state = 1;
    for (int round = 0; round < 200000; round++) {
        int heads, heads_cut;
        size_t total, total_cut;
        mutate(&text);
        hr_str in = hr_buf_str(&text);
        size_t b = random_below(in.n + 1), a = random_below(b + 1);
        hr_http_event e = feed_split(&whole, in, in.n, in.n, &heads, &total);
        assert_int_equal(feed_split(&cut, in, a, b, &heads_cut, &total_cut), e);
        assert_int_equal(heads, heads_cut);
        if (e == HR_HTTP_BAD) assert_int_equal(whole.error, cut.error);
        else assert_int_equal(total, total_cut);
        if (e == HR_HTTP_DONE)
            assert_true(hr_str_eq(whole.message.request.body, cut.message.request.body));
        events[e]++;
        hr_http_reset(&whole);
        hr_http_reset(&cut);
    }
    assert_true(events[HR_HTTP_MORE] && events[HR_HTTP_DONE] && events[HR_HTTP_BAD]);
    hr_buf_deinit(&text);
    hr_http_deinit(&whole);
    hr_http_deinit(&cut);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t allowed, living; /* allocations still granted; blocks not yet freed */

static void *alloc_or_fail(void *self, size_t bytes, size_t align)
{
    (void)self, (void)align;
    if (allowed == 0) return NULL;
    allowed--;
    living++;
    return malloc(bytes);
}

static void *realloc_or_fail(void *self, void *p, size_t bytes)
{
    (void)self;
    if (allowed == 0) return NULL;
    allowed--;
    if (!p) living++;
    return realloc(p, bytes);
}

static void count_free(void *self, void *p)
{
    (void)self;
    living--;
    free(p);
}

static void memory_that_ends_is_503(void **state)
{
    (void)state;
    static const char in[] =
        CHUNKED "a;x\r\n0123456789\r\n10\r\n0123456789abcdef\r\n0\r\nT: v\r\n\r\n";
    const hr_allocator ending = { alloc_or_fail, realloc_or_fail, count_free, NULL };
    hr_set_allocator(&ending);
    hr_http_event e = HR_HTTP_MORE;
    size_t n = 0;
    for (; e != HR_HTTP_DONE && n < 100; n++) {
        hr_http h;
        int heads;
        size_t total;
        allowed = n;
        hr_http_init(&h, &limits);
        e = feed_split(&h, HR_STR(in), 20, 50, &heads, &total);
        int error = h.error;
        hr_http_deinit(&h);
        if (living || (e != HR_HTTP_DONE && (e != HR_HTTP_BAD || error != 503))) break;
    }
    hr_set_allocator(NULL);
    assert_int_equal(living, 0);
    assert_int_equal(e, HR_HTTP_DONE);
    assert_true(n > 4); /* some have failed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_good_requests_however_they_come),
        cmocka_unit_test(refuses_bad_requests_however_they_come),
        cmocka_unit_test(holds_its_limits),
        cmocka_unit_test(discards_what_is_not_wanted),
        cmocka_unit_test(a_stated_length_allocates_nothing),
        cmocka_unit_test(cutting_changes_nothing),
        cmocka_unit_test(memory_that_ends_is_503),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
