/* The HTTP client: libevent's evhttp with a pool of kept-alive connections, TLS by its OpenSSL
 * bufferevents.
 *
 * Runs on the thread that runs the loop, and owns every connection. evhttp frees and resets its
 * connections in the middle of its own callbacks, so the one rule here is that no connection is
 * freed from within one: it is put on a list that an event of its own empties later.
 *
 * A kept-alive connection may be closed by the server just as a request goes out on it. Such a
 * call, of which no byte came back, is sent once more on a fresh connection, as every HTTP client
 * does. */
#include "bench/http.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/http.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/json.h"
#include "base/log.h"

/* As long as the longest queue that a benchmark may build up: what vLLM's client waits. */
#define TIMEOUT_S        (6 * 60 * 60)
#define PROBE_MS         3000
#define MAX_HEADER_BYTES (64 << 10)
#define MAX_ERROR_BYTES  (64 << 10)
#define MAX_FETCH_BYTES  ((size_t)256 << 20)

typedef struct connection {
    struct connection *next; /* in one of the client's lists, or NULL while a call uses it */
    hr_http *client;
    struct evhttp_connection *evcon; /* owned */
    hr_http_call *orphan;            /* owned: a cancelled call that evhttp still knows of */
    bool closed;                     /* the other side has closed it */
    bool used;                       /* has answered a request before */
} connection;

struct hr_http_call {
    hr_http_call *next, **at; /* in the client's list of calls under way */
    hr_http *client;
    connection *connection;
    hr_http_request what;
    char *path, *body; /* owned; what.body points to body */
    hr_buf error_body; /* of an answer that is no 2xx */
    char failure[256]; /* what evhttp says went wrong */
    bool answered;     /* something has come back */
    bool cancelled;    /* nobody waits for it; its connection owns it */
    bool starting, failed_early;
};

struct hr_http {
    struct event_base *base;    /* owned */
    struct event *sweep;        /* owned; frees what is on `dead` */
    SSL_CTX *tls;               /* owned; NULL = http */
    char *host, *header, *path; /* owned: name, Host header, prefix of every path */
    char *authorization;        /* owned or NULL */
    char address[NI_MAXHOST];   /* numeric */
    uint16_t port;
    hr_buf headers;      /* "Name\0value\0" pairs */
    connection *idle;    /* owned; newest first */
    connection *dead;    /* owned */
    hr_http_call *calls; /* owned */
};

static char *copy_text(hr_str s)
{
    char *p = hr_alloc(s.n + 1);
    if (!p) return NULL;
    if (s.n) memcpy(p, s.p, s.n);
    p[s.n] = '\0';
    return p;
}

/* ---- connections ----------------------------------------------------------------------------- */

static void call_free(hr_http_call *c)
{
    if (!c) return;
    hr_buf_deinit(&c->error_body);
    hr_free(c->path);
    hr_free(c->body);
    hr_free(c);
}

static void connection_free(connection *c)
{
    evhttp_connection_free(c->evcon);
    call_free(c->orphan);
    hr_free(c);
}

static void connection_bury(connection *c)
{
    hr_http *h = c->client;
    evhttp_connection_set_closecb(c->evcon, NULL, NULL);
    c->next = h->dead;
    h->dead = c;
    event_active(h->sweep, EV_TIMEOUT, 0);
}

static void on_sweep(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    hr_http *h = context;
    for (connection *c; (c = h->dead);) {
        h->dead = c->next;
        connection_free(c);
    }
}

static void on_close(struct evhttp_connection *evcon, void *context)
{
    (void)evcon;
    connection *c = context;
    c->closed = true;
    for (connection **at = &c->client->idle; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            connection_bury(c);
            return;
        }
}

/* A bufferevent over TLS that accepts nobody but the host asked for. */
static struct bufferevent *tls_bufferevent(hr_http *h)
{
    SSL *ssl = SSL_new(h->tls);
    if (!ssl) return NULL;
    unsigned char literal[sizeof(struct in6_addr)];
    bool numeric = evutil_inet_pton(AF_INET, h->host, literal) == 1 ||
                   evutil_inet_pton(AF_INET6, h->host, literal) == 1;
    int ok = numeric ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), h->host)
                     : SSL_set1_host(ssl, h->host) && SSL_set_tlsext_host_name(ssl, h->host);
    struct bufferevent *bev = NULL;
    if (ok)
        bev = bufferevent_openssl_socket_new(h->base, -1, ssl, BUFFEREVENT_SSL_CONNECTING,
                                             BEV_OPT_CLOSE_ON_FREE);
    if (!bev) SSL_free(ssl);
    else bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    return bev;
}

static connection *connection_open(hr_http *h)
{
    connection *c = hr_new0(connection);
    if (!c) return NULL;
    c->client = h;
    struct bufferevent *bev =
        h->tls ? tls_bufferevent(h) : bufferevent_socket_new(h->base, -1, BEV_OPT_CLOSE_ON_FREE);
    if (bev)
        c->evcon = evhttp_connection_base_bufferevent_new(h->base, NULL, bev, h->address, h->port);
    if (!c->evcon) {
        if (bev) bufferevent_free(bev);
        hr_free(c);
        return NULL;
    }
    evhttp_connection_set_timeout(c->evcon, TIMEOUT_S);
    evhttp_connection_set_max_headers_size(c->evcon, MAX_HEADER_BYTES);
    evhttp_connection_set_closecb(c->evcon, on_close, c);
    return c;
}

static connection *connection_take(hr_http *h, bool fresh)
{
    connection *c = h->idle;
    if (fresh || !c) return connection_open(h);
    h->idle = c->next;
    c->next = NULL;
    return c;
}

/* The call no longer needs it. */
static void connection_return(connection *c, bool reusable)
{
    if (!reusable || c->closed) {
        connection_bury(c);
        return;
    }
    c->used = true;
    c->next = c->client->idle;
    c->client->idle = c;
}

/* A request is small and wanted now: no waiting for the acknowledgement of its first half. */
static void send_at_once(connection *c)
{
    evutil_socket_t fd = bufferevent_getfd(evhttp_connection_get_bufferevent(c->evcon));
    int one = 1;
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void call_unlink(hr_http_call *c)
{
    *c->at = c->next;
    if (c->next) c->next->at = c->at;
}

static hr_status start(hr_http_call *c, bool fresh);

/* The message inside an OpenAI-like error body, or the body itself. */
static void explain(const hr_buf *body, int code, char *out, size_t size)
{
    hr_arena arena = { 0 };
    const hr_json *v = NULL;
    hr_str text = hr_str_trim(hr_buf_str(body));
    if (!hr_json_parse(text, NULL, &arena, &v)) {
        const hr_json *error = hr_json_get(v, "error");
        const hr_json *message = hr_json_get(error ? error : v, "message");
        if (message && message->type == HR_JSON_STRING) text = message->text;
        else if (error && error->type == HR_JSON_STRING) text = error->text;
    }
    snprintf(out, size, "HTTP %d%s%.*s", code, text.n ? ": " : "",
             (int)(text.n < 300 ? text.n : 300), text.n ? text.p : "");
    hr_arena_deinit(&arena);
}

static void call_end(hr_http_call *c, hr_status status, int code, const char *message)
{
    hr_http_result r = { .status = status, .code = code, .message = message };
    hr_http_request what = c->what;
    call_unlink(c);
    call_free(c);
    what.on_done(what.context, &r);
}

static void on_error(enum evhttp_request_error error, void *context)
{
    static const char *const texts[] = {
        [EVREQ_HTTP_TIMEOUT] = "no answer in time",
        [EVREQ_HTTP_EOF] = "the server closed the connection",
        [EVREQ_HTTP_INVALID_HEADER] = "what came back is not HTTP",
        [EVREQ_HTTP_BUFFER_ERROR] = "the connection broke",
        [EVREQ_HTTP_REQUEST_CANCEL] = "cancelled",
        [EVREQ_HTTP_DATA_TOO_LONG] = "the answer is too long",
    };
    hr_http_call *c = context;
    snprintf(c->failure, sizeof c->failure, "%s", texts[error]);
}

/* evhttp is through with the request: it has answered, or `q` is NULL or without a code. */
static void on_complete(struct evhttp_request *q, void *context)
{
    hr_http_call *c = context;
    if (c->cancelled) return;
    if (c->starting) { /* evhttp may fail before it has returned */
        c->failed_early = true;
        return;
    }
    int code = q ? evhttp_request_get_response_code(q) : 0;
    bool failed = !code || c->failure[0];
    bool again = failed && !c->answered && c->connection->used;
    connection_return(c->connection, !failed);
    c->connection = NULL;
    if (again) {
        c->failure[0] = '\0';
        hr_status st = start(c, true);
        if (st) call_end(c, st, 0, hr_message());
        return;
    }
    char text[400] = "";
    if (failed) {
        const char *why = c->failure[0] ? c->failure : "no connection";
        snprintf(text, sizeof text, "%s (%s)", why, c->client->header);
        call_end(c, HR_UNAVAILABLE, code, text);
    } else if (code / 100 != 2) {
        explain(&c->error_body, code, text, sizeof text);
        call_end(c, HR_FAILED_PRECONDITION, code, text);
    } else call_end(c, HR_OK, code, "");
}

static void on_chunk(struct evhttp_request *q, void *context)
{
    hr_http_call *c = context;
    struct evbuffer *in = evhttp_request_get_input_buffer(q);
    size_t n = evbuffer_get_length(in);
    unsigned char *p = evbuffer_pullup(in, -1);
    bool good = evhttp_request_get_response_code(q) / 100 == 2;
    c->answered = true;
    if (!n || !p || c->cancelled) return;
    hr_str bytes = { (const char *)p, n };
    if (good) {
        if (c->what.on_data) c->what.on_data(c->what.context, bytes);
    } else if (c->error_body.n < MAX_ERROR_BYTES) hr_buf_add_str(&c->error_body, bytes);
}

static int on_header(struct evhttp_request *q, void *context)
{
    (void)q;
    ((hr_http_call *)context)->answered = true;
    return 0;
}

static void add_headers(hr_http *h, struct evhttp_request *q, bool has_body)
{
    struct evkeyvalq *to = evhttp_request_get_output_headers(q);
    evhttp_add_header(to, "Host", h->header);
    evhttp_add_header(to, "User-Agent", "headrace/" HR_VERSION);
    evhttp_add_header(to, "Accept", "application/json, text/event-stream");
    if (has_body) evhttp_add_header(to, "Content-Type", "application/json");
    if (h->authorization) evhttp_add_header(to, "Authorization", h->authorization);
    for (size_t i = 0; i < h->headers.n;) {
        const char *name = h->headers.p + i, *value = name + strlen(name) + 1;
        evhttp_remove_header(to, name);
        evhttp_add_header(to, name, value);
        i += strlen(name) + strlen(value) + 2;
    }
}

static hr_status start(hr_http_call *c, bool fresh)
{
    hr_http *h = c->client;
    bool has_body = c->what.body.n > 0;
    c->connection = connection_take(h, fresh);
    if (!c->connection) return hr_fail(HR_RESOURCE_EXHAUSTED, "a connection to %s", h->header);
    struct evhttp_request *q = evhttp_request_new(on_complete, c);
    if (!q) {
        connection_return(c->connection, true);
        return hr_fail(HR_RESOURCE_EXHAUSTED, "a request");
    }
    evhttp_request_set_chunked_cb(q, on_chunk);
    evhttp_request_set_header_cb(q, on_header);
    evhttp_request_set_error_cb(q, on_error);
    add_headers(h, q, has_body);
    evbuffer_add(evhttp_request_get_output_buffer(q), c->what.body.p, c->what.body.n);
    c->starting = true;
    int failed = evhttp_make_request(c->connection->evcon, q,
                                     has_body ? EVHTTP_REQ_POST : EVHTTP_REQ_GET, c->path);
    c->starting = false;
    if (failed || c->failed_early) {
        connection_bury(c->connection);
        c->connection = NULL;
        return hr_fail(HR_UNAVAILABLE, "no connection (%s)", h->header);
    }
    send_at_once(c->connection);
    return HR_OK;
}

hr_status hr_http_send(hr_http *h, const hr_http_request *r, hr_http_call **out)
{
    *out = NULL;
    hr_http_call *c = hr_new0(hr_http_call);
    if (!c) return hr_fail(HR_RESOURCE_EXHAUSTED, "a call");
    c->client = h;
    c->what = *r;
    c->at = &h->calls;
    c->next = h->calls;
    if (c->next) c->next->at = &c->next;
    h->calls = c;
    hr_buf path = { 0 };
    hr_buf_add_c(&path, h->path);
    hr_buf_add_c(&path, r->path);
    c->path = copy_text(hr_buf_str(&path));
    c->body = copy_text(r->body);
    hr_buf_deinit(&path);
    c->what.body.p = c->body;
    hr_status st = c->path && c->body ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "a call");
    if (!st) st = start(c, false);
    if (st) {
        call_unlink(c);
        call_free(c);
        return st;
    }
    *out = c;
    return HR_OK;
}

void hr_http_cancel(hr_http_call *c)
{
    call_unlink(c);
    c->cancelled = true;
    c->connection->orphan = c; /* evhttp may call back once more before the connection is freed */
    connection_bury(c->connection);
}

/* ---- waiting for one ------------------------------------------------------------------------- */

typedef struct fetch {
    struct event_base *base;
    hr_buf *out;
    hr_status status;
    char message[512];
    bool done;
} fetch;

static void fetch_data(void *context, hr_str bytes)
{
    fetch *f = context;
    if (f->out->n + bytes.n <= MAX_FETCH_BYTES) hr_buf_add_str(f->out, bytes);
    else f->status = HR_OUT_OF_RANGE;
}

static void fetch_done(void *context, const hr_http_result *r)
{
    fetch *f = context;
    if (!f->status) {
        f->status = r->status;
        snprintf(f->message, sizeof f->message, "%s", r->message);
    } else snprintf(f->message, sizeof f->message, "the answer is too long");
    f->done = true;
    event_base_loopbreak(f->base);
}

hr_status hr_http_fetch(hr_http *h, const char *path, hr_str body, hr_buf *out)
{
    fetch f = { .base = h->base, .out = out };
    hr_http_call *c;
    HR_TRY(hr_http_send(h,
                        &(hr_http_request){ .path = path,
                                            .body = body,
                                            .on_data = fetch_data,
                                            .on_done = fetch_done,
                                            .context = &f },
                        &c));
    while (!f.done)
        if (event_base_dispatch(h->base) && !f.done) {
            hr_http_cancel(c);
            return hr_fail(HR_INTERNAL, "the event loop failed");
        }
    if (f.status) return hr_fail(f.status, "%s: %s", path, f.message);
    return hr_buf_status(out);
}

/* ---- the client ------------------------------------------------------------------------------ */

/* "https://host:port/prefix" into its parts. */
static hr_status take_url(hr_http *h, const char *url, bool *tls)
{
    struct evhttp_uri *u = evhttp_uri_parse(url);
    const char *scheme = u ? evhttp_uri_get_scheme(u) : NULL;
    const char *host = u ? evhttp_uri_get_host(u) : NULL;
    if (!scheme || !host || !*host || evhttp_uri_get_query(u) || evhttp_uri_get_userinfo(u) ||
        (strcmp(scheme, "http") && strcmp(scheme, "https"))) {
        if (u) evhttp_uri_free(u);
        return hr_fail(HR_INVALID_ARGUMENT, "'%s' is not http://host:port or https://host", url);
    }
    *tls = !strcmp(scheme, "https");
    int port = evhttp_uri_get_port(u);
    h->port = (uint16_t)(port > 0 ? port : *tls ? 443 : 80);
    hr_str name = hr_str_c(host), prefix = hr_str_c(evhttp_uri_get_path(u));
    bool literal = name.p[0] == '[';
    if (literal && name.n > 2) name = hr_str_slice(name, 1, name.n - 1);
    while (prefix.n && prefix.p[prefix.n - 1] == '/') prefix.n--;
    /* OpenAI's clients name a base that ends in /v1; our paths bring their own */
    if (hr_str_ends(prefix, HR_STR("/v1"))) prefix.n -= 3;
    hr_buf header = { 0 };
    hr_buf_add_c(&header, host);
    if (port > 0) hr_buf_printf(&header, ":%d", port);
    h->host = copy_text(name);
    h->path = copy_text(prefix);
    h->header = copy_text(hr_buf_str(&header));
    hr_buf_deinit(&header);
    evhttp_uri_free(u);
    return h->host && h->path && h->header ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "the URL");
}

/* Whether something listens there; waits a little for an answer. */
static bool listens(const struct addrinfo *a, uint16_t port)
{
    struct sockaddr_storage to = { 0 };
    memcpy(&to, a->ai_addr, a->ai_addrlen);
    if (a->ai_family == AF_INET6) ((struct sockaddr_in6 *)&to)->sin6_port = htons(port);
    else ((struct sockaddr_in *)&to)->sin_port = htons(port);
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0;
    if (fd < 0) return false;
    socklen_t size = sizeof error;
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    bool ok = !connect(fd, (struct sockaddr *)&to, a->ai_addrlen);
    if (!ok && errno == EINPROGRESS && poll(&p, 1, PROBE_MS) == 1)
        ok = !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) && !error;
    close(fd);
    return ok;
}

/* A name may have several addresses, such as ::1 and 127.0.0.1 for localhost, of which a server
 * listens on one: that one is taken, or the first when none answers. */
static hr_status resolve(hr_http *h)
{
    struct addrinfo want = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *found = NULL;
    int e = getaddrinfo(h->host, NULL, &want, &found);
    const struct addrinfo *use = found;
    if (!e && found->ai_next)
        for (const struct addrinfo *a = found; a; a = a->ai_next)
            if (listens(a, h->port)) {
                use = a;
                break;
            }
    if (!e)
        e = getnameinfo(use->ai_addr, use->ai_addrlen, h->address, sizeof h->address, NULL, 0,
                        NI_NUMERICHOST);
    if (found) freeaddrinfo(found);
    return e ? hr_fail(HR_UNAVAILABLE, "%s: %s", h->host, gai_strerror(e)) : HR_OK;
}

static hr_status set_up_tls(hr_http *h, bool insecure)
{
    h->tls = SSL_CTX_new(TLS_client_method());
    if (!h->tls || !SSL_CTX_set_min_proto_version(h->tls, TLS1_2_VERSION))
        return hr_fail(HR_INTERNAL, "TLS: %s", ERR_reason_error_string(ERR_get_error()));
    SSL_CTX_set_default_verify_paths(h->tls); /* honours SSL_CERT_FILE and SSL_CERT_DIR */
    SSL_CTX_set_verify(h->tls, insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    return HR_OK;
}

/* "Name: value" or "Name=value" into the list. */
static hr_status take_header(hr_http *h, const char *text)
{
    size_t n = strcspn(text, ":=");
    hr_str name = hr_str_trim((hr_str){ text, n });
    if (!text[n] || !name.n || strpbrk(text, "\r\n") || memchr(name.p, ' ', name.n))
        return hr_fail(HR_INVALID_ARGUMENT, "--header '%s' is not NAME: VALUE", text);
    hr_str value = hr_str_trim(hr_str_c(text + n + 1));
    hr_buf_add_str(&h->headers, name);
    hr_buf_add_byte(&h->headers, '\0');
    hr_buf_add_str(&h->headers, value);
    hr_buf_add_byte(&h->headers, '\0');
    return hr_buf_status(&h->headers);
}

static hr_status take_headers(hr_http *h, const hr_http_options *o)
{
    for (size_t i = 0; i < o->n_headers; i++) HR_TRY(take_header(h, o->headers[i]));
    if (!o->api_key) return HR_OK;
    if (strpbrk(o->api_key, "\r\n")) return hr_fail(HR_INVALID_ARGUMENT, "an API key is one line");
    hr_buf text = { 0 };
    hr_buf_add_c(&text, "Bearer ");
    hr_buf_add_c(&text, o->api_key);
    h->authorization = copy_text(hr_buf_str(&text));
    hr_buf_deinit(&text);
    return h->authorization ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "headers");
}

/* Timers to the microsecond, not to the tick that epoll rounds to: arrivals are drawn times. */
static hr_status make_base(hr_http *h)
{
    struct event_config *c = event_config_new();
    if (c) event_config_set_flag(c, EVENT_BASE_FLAG_PRECISE_TIMER);
    h->base = c ? event_base_new_with_config(c) : NULL;
    if (c) event_config_free(c);
    if (h->base) h->sweep = event_new(h->base, -1, 0, on_sweep, h);
    return h->sweep ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "an event loop");
}

/* libevent's own words go where everybody's go. */
static void on_log(int severity, const char *text)
{
    hr_log(severity >= EVENT_LOG_WARN ? HR_LOG_WARNING : HR_LOG_DEBUG, "libevent: %s", text);
}

hr_status hr_http_create(const hr_http_options *o, hr_http **out)
{
    *out = NULL;
    hr_http *h = hr_new0(hr_http);
    if (!h) return hr_fail(HR_RESOURCE_EXHAUSTED, "a client");
    event_set_log_callback(on_log);
    bool tls = false;
    hr_status st = take_url(h, o->base_url, &tls);
    if (!st) st = take_headers(h, o);
    if (!st) st = resolve(h);
    if (!st && tls) st = set_up_tls(h, o->insecure);
    if (!st) st = make_base(h);
    if (st) {
        hr_http_destroy(h);
        return st;
    }
    *out = h;
    return HR_OK;
}

struct event_base *hr_http_base(hr_http *h)
{
    return h->base;
}

void hr_http_destroy(hr_http *h)
{
    if (!h) return;
    while (h->calls) hr_http_cancel(h->calls);
    for (connection *c; (c = h->idle);) {
        h->idle = c->next;
        evhttp_connection_set_closecb(c->evcon, NULL, NULL);
        connection_free(c);
    }
    on_sweep(-1, 0, h);
    if (h->sweep) event_free(h->sweep);
    if (h->base) event_base_free(h->base);
    SSL_CTX_free(h->tls);
    hr_buf_deinit(&h->headers);
    hr_free(h->authorization);
    hr_free(h->header);
    hr_free(h->host);
    hr_free(h->path);
    hr_free(h);
}
