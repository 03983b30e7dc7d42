/* Any bytes as what clients send, the first byte saying how they are cut: framing takes them a
 * piece at a time as it takes them at once, keeps to its limits, and what it calls a request has
 * the method, path and body that RFC 9112 gives it. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "server/http.h"

static const hr_http_limits limits = {
    .request_line = 256, .head = 1024, .headers = 16, .body = 512
};

static void check_request(const hr_http_message *m)
{
    const hr_http_request *r = &m->request;
    fuzz_require(r->method.n && (hr_str_eq_c(r->path, "*") || (r->path.n && r->path.p[0] == '/')),
                 "a method and a path");
    fuzz_require(r->n_headers <= limits.headers && m->body.n <= limits.body, "limits");
    for (size_t i = 0; i < r->n_headers; i++) {
        fuzz_require(r->headers[i].name.n > 0, "headers have names");
        fuzz_require(!r->headers[i].value.n ||
                         !memchr(r->headers[i].value.p, '\n', r->headers[i].value.n),
                     "a header is one line");
    }
    hr_str trace = hr_traceparent(hr_http_header_get(r, "traceparent"));
    fuzz_require(!trace.n || (trace.n >= 55 && trace.p[35] == '-'), "a trace is one");
}

/* What was understood, as text: the same however the bytes were cut. */
static void run(hr_str in, size_t piece, hr_buf *said)
{
    hr_http h;
    hr_http_init(&h, &limits);
    for (size_t at = 0; at < in.n;) {
        size_t end = in.n - at < piece ? in.n : at + piece, used = 0;
        hr_http_event e = hr_http_feed(&h, hr_str_slice(in, at, end), &used);
        fuzz_require(used <= end - at, "no more is taken than was given");
        fuzz_require(used || e != HR_HTTP_MORE, "it goes on");
        at += used;
        if (e == HR_HTTP_BAD) {
            fuzz_require(h.error >= 400 && h.error < 600 && h.reason, "a refusal has its words");
            hr_buf_add_c(said, "bad"); /* as what, may depend on what came first */
            break;
        }
        if (e != HR_HTTP_DONE) continue;
        hr_http_message m = hr_http_take(&h);
        check_request(&m);
        hr_buf_printf(said, "%.*s %.*s %zu ", HR_STR_ARG(m.request.method),
                      HR_STR_ARG(m.request.path), m.request.n_headers);
        hr_buf_add_str(said, hr_buf_str(&m.body));
        hr_http_message_deinit(&m);
        hr_http_reset(&h);
    }
    hr_http_deinit(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    hr_buf whole = { 0 }, pieces = { 0 };
    if (n < 2) return 0;
    hr_str in = { (const char *)data + 1, n - 1 };
    run(in, in.n, &whole);
    run(in, (size_t)data[0] % 31 + 1, &pieces);
    fuzz_require(hr_str_eq(hr_buf_str(&whole), hr_buf_str(&pieces)), "cuts mean nothing");
    hr_buf_deinit(&whole);
    hr_buf_deinit(&pieces);
    return 0;
}
