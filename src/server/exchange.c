/* Answers: status line, headers, body or stream, written into the connection's output.
 *
 * Runs on the I/O thread (parsing may run on the JSON worker, which then owns the exchange). Owns
 * one request's memory. An answer is written once and whole; what the client has not read waits in
 * the connection's output, and a stream that piles up more than STREAM_UNREAD there is cut, so that
 * a slow reader costs bounded memory and slows nobody. */
#include "server/exchange.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include "base/log.h"
#include "server/net.h"

#define STREAM_UNREAD ((size_t)4 << 20)
#define ID_BYTES      128 /* longest X-Request-Id that is taken over */

/* ---- life ------------------------------------------------------------------------------------ */

static bool is_printable(hr_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= 0x20 || s.p[i] >= 0x7F) return false;
    return s.n > 0;
}

/* The client's id where it can be written anywhere, else 128 random bits. */
static hr_str choose_id(hr_exchange *x)
{
    static const char digits[] = "0123456789abcdef";
    hr_str given = hr_http_header_get(&x->request, "x-request-id");
    if (given.n <= ID_BYTES && is_printable(given)) return given;
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return HR_STR("0");
    char *hex = hr_arena_alloc(&x->arena, 33);
    if (!hex) return HR_STR("0");
    for (int i = 0; i < 16; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    return (hr_str){ hex, 32 };
}

hr_exchange_own *hr_exchange_create(hr_connection *c, hr_http_message message)
{
    hr_exchange_own *o = hr_new0(hr_exchange_own);
    if (!o) {
        hr_http_message_deinit(&message);
        return NULL;
    }
    o->c = c;
    o->message = message;
    o->close = !message.request.keep_alive;
    o->x.server = hr_connection_server(c);
    o->x.request = message.request;
    o->x.began_s = hr_now_s();
    o->x.request_id = choose_id(&o->x);
    o->x.trace = hr_traceparent(hr_exchange_header(&o->x, "traceparent"));
    return o;
}

void hr_exchange_destroy(hr_exchange_own *o)
{
    hr_http_message_deinit(&o->message);
    hr_buf_deinit(&o->lines);
    hr_arena_deinit(&o->x.arena);
    hr_free(o);
}

void hr_exchange_parse(hr_exchange_own *o, const hr_json_limits *limits)
{
    o->json_status = hr_json_parse(o->x.request.body, limits, &o->x.arena, &o->x.json);
    if (o->json_status) snprintf(o->json_message, sizeof o->json_message, "%s", hr_message());
}

void hr_exchange_hash(hr_exchange_own *o)
{
    o->json_status = (hr_status)headrace_model_hash(o->x.server->engine, o->hash);
    if (o->json_status) snprintf(o->json_message, sizeof o->json_message, "%s", hr_message());
}

void hr_exchange_await_hash(hr_exchange *x)
{
    hr_exchange_own *o = hr_exchange_own_of(x);
    o->hashing = o->parsing = true;
    hr_json_worker_submit(x->server->json_worker, o);
}

hr_str hr_exchange_header(const hr_exchange *x, const char *name)
{
    return hr_http_header_get(&x->request, name);
}

void hr_exchange_set_header(hr_exchange *x, const char *name, const char *value)
{
    hr_buf_printf(&hr_exchange_own_of(x)->lines, "%s: %s\r\n", name, value);
}

/* ---- heads ----------------------------------------------------------------------------------- */

static const char *reason_of(int status)
{
    switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return status < 400 ? "OK" : "Error";
    }
}

/* "Date: …" of this second, made once per second. */
static const char *date_line(hr_server *s)
{
    int64_t now = (int64_t)time(NULL);
    if (now == s->date_unix) return s->date;
    struct tm t;
    gmtime_r(&(time_t){ (time_t)now }, &t);
    strftime(s->date, sizeof s->date, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &t);
    s->date_unix = now;
    return s->date;
}

/* All but the empty line and what frames the body. */
static void add_head(hr_exchange_own *o, int status, const char *content_type)
{
    hr_exchange *x = &o->x;
    struct evbuffer *out = hr_connection_output(o->c);
    hr_access_add_cors(x->server->access, &x->request, &o->lines);
    if (x->server->options.enable_request_id_headers)
        hr_buf_printf(&o->lines, "X-Request-Id: %.*s\r\n", HR_STR_ARG(x->request_id));
    if (x->trace.n) hr_buf_printf(&o->lines, "traceparent: %.*s\r\n", HR_STR_ARG(x->trace));
    if (o->close) hr_buf_add_c(&o->lines, "Connection: close\r\n");
    else if (x->request.minor == 0) hr_buf_add_c(&o->lines, "Connection: keep-alive\r\n");
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\n%sServer: headrace\r\n", status, reason_of(status),
                        date_line(x->server));
    if (content_type) evbuffer_add_printf(out, "Content-Type: %s\r\n", content_type);
    /* lines cut short by want of memory would be no head at all */
    if (!hr_buf_status(&o->lines)) evbuffer_add(out, o->lines.p, o->lines.n);
}

static bool is_head(const hr_exchange *x)
{
    return hr_str_eq_c(x->request.method, "HEAD");
}

/* ---- whole answers --------------------------------------------------------------------------- */

void hr_exchange_reply(hr_exchange *x, int http_status, const char *content_type, hr_str body)
{
    hr_exchange_own *o = hr_exchange_own_of(x);
    struct evbuffer *out = hr_connection_output(o->c);
    if (x->server->phase >= HR_SERVER_DRAINING) o->close = true;
    add_head(o, http_status, content_type);
    bool bodiless = http_status == 204 || http_status == 304;
    if (!bodiless) evbuffer_add_printf(out, "Content-Length: %zu\r\n", body.n);
    evbuffer_add(out, "\r\n", 2);
    if (body.n && !bodiless && !is_head(x)) {
        /* an answer that cannot be written whole must not look whole */
        if (evbuffer_add(out, body.p, body.n)) o->close = true;
    }
    hr_connection_answered(o->c, o);
}

static void reply_error(hr_exchange *x, int http_status, const char *param, const char *message)
{
    hr_buf body = { 0 };
    hr_json_writer w = { .out = &body };
    hr_exchange_error_body(&w, http_status, param, hr_str_c(message));
    if (http_status == 503) hr_exchange_set_header(x, "Retry-After", "1");
    hr_str text = hr_buf_status(&body) ? HR_STR("{}") : hr_buf_str(&body);
    hr_exchange_reply(x, http_status, "application/json", text);
    hr_buf_deinit(&body);
}

void hr_exchange_error(hr_exchange *x, int http_status, const char *param, const char *format, ...)
{
    hr_buf message = { 0 };
    va_list args;
    va_start(args, format);
    hr_buf_vprintf(&message, format, args);
    va_end(args);
    reply_error(x, http_status, param, hr_buf_c(&message));
    hr_buf_deinit(&message);
}

void hr_exchange_fail(hr_exchange *x, hr_status st, const char *param)
{
    char message[HR_MESSAGE_MAX]; /* the thread's own may change on the way */
    snprintf(message, sizeof message, "%s", hr_message());
    int http_status = hr_exchange_http_status(st);
    if (http_status == 500)
        hr_log(HR_LOG_ERROR, "server: req=%.*s: %s", HR_STR_ARG(x->request_id), message);
    reply_error(x, http_status, param, message);
}

/* ---- streams --------------------------------------------------------------------------------- */

void hr_exchange_stream_begin(hr_exchange *x)
{
    hr_exchange_own *o = hr_exchange_own_of(x);
    struct evbuffer *out = hr_connection_output(o->c);
    o->streaming = true;
    o->chunked = x->request.minor > 0;
    if (!o->chunked) o->close = true;
    add_head(o, 200, "text/event-stream; charset=utf-8");
    static const char end[] = "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
    evbuffer_add(out, end, sizeof end - 1);
    if (o->chunked) evbuffer_add(out, "Transfer-Encoding: chunked\r\n\r\n", 30);
    else evbuffer_add(out, "\r\n", 2);
}

/* False when memory is short: what is written is no event. */
static bool add_event(hr_exchange_own *o, hr_str data)
{
    struct evbuffer *out = hr_connection_output(o->c);
    char begin[40];
    int n = o->chunked ? snprintf(begin, sizeof begin, "%zx\r\ndata: ", data.n + 8)
                       : snprintf(begin, sizeof begin, "data: ");
    return !evbuffer_add(out, begin, (size_t)n) && !evbuffer_add(out, data.p, data.n) &&
           !evbuffer_add(out, "\n\n\r\n", o->chunked ? 4 : 2);
}

bool hr_exchange_stream_data(hr_exchange *x, hr_str json)
{
    hr_exchange_own *o = hr_exchange_own_of(x);
    const char *fault = NULL;
    if (evbuffer_get_length(hr_connection_output(o->c)) > STREAM_UNREAD)
        fault = "a client leaves 4 MiB of its stream unread";
    else if (!add_event(o, json)) fault = "out of memory";
    if (fault) hr_connection_cut(o->c, fault);
    return !fault;
}

void hr_exchange_stream_end(hr_exchange *x)
{
    hr_exchange_own *o = hr_exchange_own_of(x);
    if (!add_event(o, HR_STR("[DONE]"))) o->close = true;
    else if (o->chunked) evbuffer_add(hr_connection_output(o->c), "0\r\n\r\n", 5);
    if (x->server->phase >= HR_SERVER_DRAINING) o->close = true;
    hr_connection_answered(o->c, o);
}
