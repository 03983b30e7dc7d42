/* The framing of HTTP requests: a state machine over lines and counted bytes.
 *
 * Runs on the I/O thread, owns the bytes of the request being read. Its clever idea: the head grows
 * as one buffer of lines without their ends, and every name and value is a place in it, so a
 * request costs three allocations however many headers it has, and a hostile one costs the limits
 * at most. Bodies grow as they arrive; a stated length allocates nothing. */
#include "server/http.h"

#define CHUNK_LINE  1024 /* bytes of one chunk-size line with its extensions */
#define BLANK_LINES 2    /* tolerated before a request line (RFC 9112, 2.2) */

void hr_http_message_deinit(hr_http_message *m)
{
    hr_free(m->headers);
    hr_buf_deinit(&m->head);
    hr_buf_deinit(&m->body);
    *m = (hr_http_message){ 0 };
}

void hr_http_init(hr_http *h, const hr_http_limits *limits)
{
    *h = (hr_http){ .limits = limits };
}

void hr_http_deinit(hr_http *h)
{
    hr_http_message_deinit(&h->message);
    hr_free(h->spans);
    hr_buf_deinit(&h->line);
}

void hr_http_reset(hr_http *h)
{
    hr_http_message_deinit(&h->message);
    hr_http_span *spans = h->spans;
    size_t capacity = h->spans_capacity;
    hr_buf line = h->line;
    hr_buf_clear(&line);
    *h = (hr_http){ .limits = h->limits, .spans = spans, .spans_capacity = capacity, .line = line };
}

hr_http_message hr_http_take(hr_http *h)
{
    hr_http_message m = h->message;
    h->message = (hr_http_message){ 0 };
    return m;
}

static hr_http_event bad(hr_http *h, int error, const char *reason)
{
    h->phase = HR_HTTP_FAILED;
    h->error = error;
    h->reason = reason;
    return HR_HTTP_BAD;
}

static hr_http_event no_memory(hr_http *h)
{
    return bad(h, 503, "out of memory for this request");
}

/* ---- characters ------------------------------------------------------------------------------ */

static bool is_token_char(unsigned char c)
{
    if ((c | 32) >= 'a' && (c | 32) <= 'z') return true;
    return (c >= '0' && c <= '9') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(hr_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!is_token_char((unsigned char)s.p[i])) return false;
    return s.n > 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static hr_str trim_blanks(hr_str s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t')) s = hr_str_slice(s, 1, s.n);
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t')) s.n--;
    return s;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

bool hr_http_same(hr_str a, hr_str b)
{
    if (a.n != b.n) return false;
    for (size_t i = 0; i < a.n; i++)
        if (lower(a.p[i]) != lower(b.p[i])) return false;
    return true;
}

hr_str hr_http_header_get(const hr_http_request *r, const char *name)
{
    hr_str wanted = hr_str_c(name);
    for (size_t i = 0; i < r->n_headers; i++)
        if (hr_http_same(r->headers[i].name, wanted)) return r->headers[i].value;
    return (hr_str){ 0 };
}

bool hr_http_list_has(hr_str list, hr_str token)
{
    for (hr_str part; hr_str_next(&list, ',', &part);)
        if (hr_http_same(trim_blanks(part), token)) return true;
    return false;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* No line of a head holds other control characters; seen at once, so that a client which speaks
 * TLS or nonsense is answered without waiting for an end of line. */
static bool has_control(hr_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if ((c < 0x20 && c != '\t' && c != '\r' && c != '\n') || c == 0x7F) return true;
    }
    return false;
}

static hr_http_event line_too_long(hr_http *h)
{
    if (h->phase <= HR_HTTP_LINE) return bad(h, 414, "the request line is too long");
    if (h->phase == HR_HTTP_HEADERS) return bad(h, 431, "the header lines are too long");
    if (h->phase == HR_HTTP_TRAILERS) return bad(h, 431, "the trailers are too long");
    return bad(h, 400, "a chunk's first line is too long");
}

static size_t line_limit(const hr_http *h)
{
    if (h->phase <= HR_HTTP_LINE) return h->limits->request_line + 2;
    if (h->phase == HR_HTTP_HEADERS)
        return h->target_at + h->target_n + 16 + h->limits->head; /* the request line aside */
    if (h->phase == HR_HTTP_TRAILERS) return h->limits->head;
    return CHUNK_LINE;
}

static hr_buf *line_buf(hr_http *h)
{
    return h->phase <= HR_HTTP_HEADERS ? &h->message.head : &h->line;
}

/* Moves bytes into the line being read. DONE: the line is whole, *line without its CRLF. */
static hr_http_event take_line(hr_http *h, hr_str in, size_t *used, hr_str *line)
{
    hr_buf *b = line_buf(h);
    const char *lf = memchr(in.p, '\n', in.n);
    size_t n = lf ? (size_t)(lf - in.p) + 1 : in.n, room = line_limit(h) - b->n;
    *used = n < room ? n : room;
    if (has_control(hr_str_slice(in, 0, *used)))
        return bad(h, 400, "a control character in the head of the request");
    hr_buf_add(b, in.p, *used);
    if (b->status) return no_memory(h);
    if (n > room) return line_too_long(h);
    *line = hr_str_slice(hr_buf_str(b), h->line_at, b->n);
    const char *cr = memchr(line->p, '\r', line->n);
    if (!lf) {
        bool bare = cr && cr != line->p + line->n - 1;
        return bare ? bad(h, 400, "a CR that no LF follows") : HR_HTTP_MORE;
    }
    if (!cr) return bad(h, 400, "a line ends in LF without CR");
    if (cr != line->p + line->n - 2) return bad(h, 400, "a CR that no LF follows");
    line->n -= 2;
    b->n -= 2;
    h->line_at = b->n;
    return HR_HTTP_DONE;
}

/* ---- the request line ------------------------------------------------------------------------ */

static hr_http_event read_version(hr_http *h, hr_str v)
{
    if (v.n != 8 || memcmp(v.p, "HTTP/", 5) || v.p[6] != '.' || v.p[5] < '0' || v.p[5] > '9' ||
        v.p[7] < '0' || v.p[7] > '9')
        return bad(h, 400, "the request line does not end in an HTTP version");
    if (v.p[5] != '1') return bad(h, 505, "this server speaks HTTP/1.1 and HTTP/1.0");
    h->message.request.minor = v.p[7] == '0' ? 0 : 1;
    return HR_HTTP_MORE;
}

/* method SP target SP version, single spaces; the target of visible ASCII. */
static hr_http_event read_request_line(hr_http *h, hr_str line)
{
    size_t first = hr_str_find(line, HR_STR(" "), 0);
    if (first == SIZE_MAX || !is_token(hr_str_slice(line, 0, first)))
        return bad(h, 400, "the request line has no method");
    size_t second = hr_str_find(line, HR_STR(" "), first + 1);
    if (second == SIZE_MAX || second == first + 1)
        return bad(h, 400, "the request line is not 'METHOD /path HTTP/1.1'");
    hr_str target = hr_str_slice(line, first + 1, second);
    for (size_t i = 0; i < target.n; i++)
        if (target.p[i] <= 0x20 || target.p[i] >= 0x7F || target.p[i] == '#')
            return bad(h, 400, "the path holds a character that must be percent-encoded");
    h->method_n = (uint32_t)first;
    h->target_at = (uint32_t)(first + 1);
    h->target_n = (uint32_t)target.n;
    return read_version(h, hr_str_slice(line, second + 1, line.n));
}

/* ---- header lines ---------------------------------------------------------------------------- */

/* Splits "name: value"; the places are offsets from `base`. False where it is no header line. */
static bool split_header(hr_str line, const char *base, hr_http_span *out)
{
    size_t colon = hr_str_find(line, HR_STR(":"), 0);
    if (colon == SIZE_MAX || !is_token(hr_str_slice(line, 0, colon))) return false;
    hr_str value = trim_blanks(hr_str_slice(line, colon + 1, line.n));
    *out = (hr_http_span){ .name_at = (uint32_t)(line.p - base),
                           .name_n = (uint32_t)colon,
                           .value_at = (uint32_t)(value.p - base),
                           .value_n = (uint32_t)value.n };
    return true;
}

static hr_http_event bad_header(hr_http *h, hr_str line)
{
    if (line.p[0] == ' ' || line.p[0] == '\t')
        return bad(h, 400, "a header line that continues the one before");
    return bad(h, 400, "a header line is not 'Name: value'");
}

static hr_http_event read_header(hr_http *h, hr_str line)
{
    hr_http_span s;
    if (!split_header(line, h->message.head.p, &s)) return bad_header(h, line);
    if (h->n_spans == h->limits->headers) return bad(h, 431, "too many header lines");
    if (hr_grow((void **)&h->spans, &h->spans_capacity, h->n_spans + 1, sizeof *h->spans))
        return no_memory(h);
    h->spans[h->n_spans++] = s;
    return HR_HTTP_MORE;
}

/* ---- the head as a whole --------------------------------------------------------------------- */

/* Where the path begins: "/x" as it is, "http://host/x" after the host (RFC 9112, 3.2.2). */
static hr_str path_of(hr_str target)
{
    size_t scheme = hr_str_find(target, HR_STR("://"), 0);
    if (target.p[0] == '/' || scheme == SIZE_MAX) return target;
    for (size_t i = scheme + 3; i < target.n; i++)
        if (target.p[i] == '/' || target.p[i] == '?') return hr_str_slice(target, i, target.n);
    return (hr_str){ 0 };
}

/* Appends the decoded path to the head; its length, or SIZE_MAX. */
static size_t decode_path(hr_buf *head, hr_str raw)
{
    size_t n = 0;
    char *to = hr_buf_reserve(head, raw.n + 1);
    for (size_t i = 0; to && i < raw.n; i++) {
        int high = -1, low = -1;
        if (raw.p[i] == '%' && i + 2 < raw.n) {
            high = hex_digit(raw.p[i + 1]);
            low = hex_digit(raw.p[i + 2]);
        }
        if (raw.p[i] != '%') to[n++] = raw.p[i];
        else if (high < 0 || low < 0 || !(high | low)) return SIZE_MAX;
        else to[n++] = (char)(high << 4 | low), i += 2;
    }
    if (to) head->n += n;
    return n;
}

/* Splits target into path and query. From here on the head does not move. */
static hr_http_event read_target(hr_http *h)
{
    hr_http_message *m = &h->message;
    /* room first: decode_path must not move what `path` points to */
    if (!hr_buf_reserve(&m->head, h->target_n + 2)) return no_memory(h);
    hr_str target = { m->head.p + h->target_at, h->target_n };
    hr_str path = path_of(target), query = { 0 };
    size_t mark = path.n ? hr_str_find(path, HR_STR("?"), 0) : SIZE_MAX;
    if (mark != SIZE_MAX) {
        query = hr_str_slice(path, mark + 1, path.n);
        path.n = mark;
    }
    if (path.n == 0) path = HR_STR("/");
    if (path.p[0] != '/' && !hr_str_eq_c(target, "*"))
        return bad(h, 400, "the path does not begin with '/'");
    size_t at = m->head.n, n = decode_path(&m->head, path);
    if (n == SIZE_MAX) return bad(h, 400, "the path holds a broken percent code");
    m->request.method = (hr_str){ m->head.p, h->method_n };
    m->request.path = (hr_str){ m->head.p + at, n };
    m->request.query = query;
    return HR_HTTP_MORE;
}

static hr_http_event place_headers(hr_http *h)
{
    hr_http_message *m = &h->message;
    const char *base = m->head.p;
    m->headers = hr_alloc_array0(h->n_spans + 1, sizeof *m->headers);
    if (!m->headers) return no_memory(h);
    for (size_t i = 0; i < h->n_spans; i++) {
        const hr_http_span *s = &h->spans[i];
        m->headers[i] = (hr_http_header){ .name = { base + s->name_at, s->name_n },
                                          .value = { base + s->value_at, s->value_n } };
    }
    m->request.headers = m->headers;
    m->request.n_headers = h->n_spans;
    return HR_HTTP_MORE;
}

static hr_http_event read_length(hr_http *h, hr_str value)
{
    if (h->has_length) return bad(h, 400, "two Content-Length headers");
    if (value.n == 0) return bad(h, 400, "Content-Length is not a number");
    h->has_length = true;
    for (size_t i = 0; i < value.n; i++) {
        if (value.p[i] < '0' || value.p[i] > '9')
            return bad(h, 400, "Content-Length is not a number");
        /* saturates far above every limit */
        if (h->left < UINT64_MAX / 100) h->left = h->left * 10 + (uint64_t)(value.p[i] - '0');
    }
    return HR_HTTP_MORE;
}

static hr_http_event read_coding(hr_http *h, hr_str value)
{
    if (h->chunked) return bad(h, 400, "two Transfer-Encoding headers");
    if (!hr_http_same(value, HR_STR("chunked")))
        return bad(h, 501, "of transfer encodings this server knows chunked alone");
    h->chunked = true;
    return HR_HTTP_MORE;
}

/* What headers say about framing and about the connection. */
static hr_http_event read_framing(hr_http *h)
{
    hr_http_request *r = &h->message.request;
    size_t hosts = 0;
    bool close = r->minor == 0, keep = false;
    hr_http_event e = HR_HTTP_MORE;
    for (size_t i = 0; i < r->n_headers && e == HR_HTTP_MORE; i++) {
        hr_str name = r->headers[i].name, value = r->headers[i].value;
        if (hr_http_same(name, HR_STR("content-length"))) e = read_length(h, value);
        else if (hr_http_same(name, HR_STR("transfer-encoding"))) e = read_coding(h, value);
        else if (hr_http_same(name, HR_STR("host"))) hosts++;
        else if (hr_http_same(name, HR_STR("connection"))) {
            if (hr_http_list_has(value, HR_STR("close"))) close = true;
            if (hr_http_list_has(value, HR_STR("keep-alive"))) keep = true;
        } else if (hr_http_same(name, HR_STR("expect"))) {
            if (!hr_http_same(value, HR_STR("100-continue")))
                e = bad(h, 417, "of expectations this server knows 100-continue alone");
            h->expects_continue = r->minor > 0;
        }
    }
    if (e != HR_HTTP_MORE) return e;
    r->keep_alive = r->minor ? !close : keep;
    if (h->chunked && h->has_length)
        return bad(h, 400, "Content-Length together with Transfer-Encoding");
    if (h->chunked && !r->minor) return bad(h, 400, "chunks in an HTTP/1.0 request");
    if (hosts > 1 || (r->minor && !hosts)) return bad(h, 400, "one Host header is needed");
    return HR_HTTP_MORE;
}

static hr_http_event end_head(hr_http *h)
{
    hr_http_event e = read_target(h);
    if (e == HR_HTTP_MORE) e = place_headers(h);
    if (e == HR_HTTP_MORE) e = read_framing(h);
    if (e != HR_HTTP_MORE) return e;
    if (h->left > h->limits->body) return bad(h, 413, "the body is too large");
    h->phase = h->chunked ? HR_HTTP_CHUNK_SIZE : h->left ? HR_HTTP_BODY : HR_HTTP_WHOLE;
    h->line_at = 0;
    h->message.body.limit = h->limits->body;
    return HR_HTTP_HEAD;
}

bool hr_http_has_body(const hr_http *h)
{
    return h->chunked || h->left;
}

/* ---- the body -------------------------------------------------------------------------------- */

static hr_http_event take_body(hr_http *h, hr_str in, size_t *used)
{
    *used = in.n < h->left ? in.n : (size_t)h->left;
    h->left -= *used;
    h->length += *used;
    if (!h->discard) hr_buf_add(&h->message.body, in.p, *used);
    if (h->message.body.status) return no_memory(h);
    if (h->left == 0) h->phase = h->chunked ? HR_HTTP_CHUNK_END : HR_HTTP_WHOLE;
    return HR_HTTP_MORE;
}

/* 1*HEXDIG [";" extension]; extensions are bounded and forgotten. */
static hr_http_event read_chunk_size(hr_http *h, hr_str line)
{
    uint64_t size = 0;
    size_t i = 0;
    for (; i < line.n && hex_digit(line.p[i]) >= 0; i++) {
        if (size > h->limits->body) return bad(h, 413, "the body is too large");
        size = size << 4 | (uint64_t)hex_digit(line.p[i]);
    }
    if (i == 0 || i > 16) return bad(h, 400, "a chunk without a size");
    hr_str rest = trim_blanks(hr_str_slice(line, i, line.n));
    if (rest.n && rest.p[0] != ';') return bad(h, 400, "a chunk's size is not a number");
    h->extra += line.n - i;
    if (h->extra > h->limits->head) return bad(h, 431, "the chunk extensions are too long");
    if (size > h->limits->body - h->length) return bad(h, 413, "the body is too large");
    h->left = size;
    h->phase = size ? HR_HTTP_CHUNK_DATA : HR_HTTP_TRAILERS;
    return HR_HTTP_MORE;
}

/* Trailers are checked as headers are, and dropped: nothing here needs them. */
static hr_http_event read_trailer(hr_http *h, hr_str line)
{
    hr_http_span s;
    h->extra += line.n;
    if (h->extra > h->limits->head) return bad(h, 431, "the trailers are too long");
    if (line.n == 0) h->phase = HR_HTTP_WHOLE;
    else if (!split_header(line, h->line.p, &s)) return bad_header(h, line);
    return HR_HTTP_MORE;
}

static hr_http_event whole(hr_http *h)
{
    h->message.request.body = hr_buf_str(&h->message.body);
    return HR_HTTP_DONE;
}

/* ---- the machine ----------------------------------------------------------------------------- */

static hr_http_event read_line(hr_http *h, hr_str line)
{
    switch (h->phase) {
    case HR_HTTP_START:
        if (line.n) {
            h->phase = HR_HTTP_HEADERS;
            return read_request_line(h, line);
        }
        return ++h->blank > BLANK_LINES ? bad(h, 400, "empty lines in place of a request")
                                        : HR_HTTP_MORE;
    case HR_HTTP_LINE: h->phase = HR_HTTP_HEADERS; return read_request_line(h, line);
    case HR_HTTP_HEADERS: return line.n ? read_header(h, line) : end_head(h);
    case HR_HTTP_CHUNK_SIZE: return read_chunk_size(h, line);
    case HR_HTTP_CHUNK_END:
        h->phase = HR_HTTP_CHUNK_SIZE;
        return line.n ? bad(h, 400, "a chunk is longer than its size") : HR_HTTP_MORE;
    case HR_HTTP_TRAILERS: return read_trailer(h, line);
    case HR_HTTP_BODY:
    case HR_HTTP_CHUNK_DATA:
    case HR_HTTP_WHOLE:
    case HR_HTTP_FAILED: break;
    }
    return HR_HTTP_BAD;
}

/* One line, or as much of it as is there. */
static hr_http_event feed_line(hr_http *h, hr_str in, size_t *used)
{
    hr_str line;
    if (h->phase == HR_HTTP_START && in.p[0] != '\r' && in.p[0] != '\n' && h->line_at == 0 &&
        h->message.head.n == 0)
        h->phase = HR_HTTP_LINE;
    hr_http_event e = take_line(h, in, used, &line);
    if (e != HR_HTTP_DONE) return e;
    e = read_line(h, line);
    if (h->phase > HR_HTTP_HEADERS) { /* lines of the body's frame are kept one at a time */
        h->line_at = 0;
        hr_buf_clear(&h->line);
    }
    return e;
}

hr_http_event hr_http_feed(hr_http *h, hr_str in, size_t *used)
{
    hr_http_event e = HR_HTTP_MORE;
    *used = 0;
    if (h->phase == HR_HTTP_FAILED) return HR_HTTP_BAD;
    while (e == HR_HTTP_MORE && h->phase != HR_HTTP_WHOLE && *used < in.n) {
        size_t n = 0;
        hr_str rest = hr_str_slice(in, *used, in.n);
        bool data = h->phase == HR_HTTP_BODY || h->phase == HR_HTTP_CHUNK_DATA;
        e = data ? take_body(h, rest, &n) : feed_line(h, rest, &n);
        *used += n;
    }
    return e == HR_HTTP_MORE && h->phase == HR_HTTP_WHOLE ? whole(h) : e;
}
