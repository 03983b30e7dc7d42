/* The JSON reader: strict RFC 8259, one pass, no recursion.
 *
 * Runs on every thread; the tree lives in the caller's arena. Its clever idea: values wait on one
 * growing stack, and a container that closes moves its members from the top of that stack into one
 * arena array, so no container is ever grown or relinked and a nesting bomb costs a counter, not
 * the C stack. Duplicate keys of large objects are found with SipHash under a key drawn per parse,
 * so that hostile keys cannot make the check quadratic. */
#include "base/json.h"

#include <stdlib.h>
#include <sys/random.h>

#include "base/utf8.h"

#define DEFAULT_DEPTH 64
/* Objects up to this many members compare all pairs: cheaper than a table. */
#define SMALL_OBJECT 8

/* A container still open. */
typedef struct frame {
    hr_json_type type;
    hr_str key;   /* its own name in its parent */
    size_t first; /* its first member on the value stack */
    size_t start; /* offset of its bracket */
} frame;

typedef struct parser {
    hr_str text;
    size_t at; /* byte offset of the next character */
    size_t max_depth, max_values;
    size_t n_values; /* so far */
    hr_arena *arena; /* borrowed */
    hr_json *values; /* owned: finished values whose container is open */
    size_t n, capacity;
    frame *frames; /* owned */
    size_t depth, frames_capacity;
    hr_str key;           /* name of the value that comes next */
    uint64_t hash_key[2]; /* drawn when the first large object closes */
    bool hash_ready;
} parser;

static hr_status fault(const parser *p, const char *what)
{
    return hr_fail(HR_INVALID_ARGUMENT, "JSON at byte %zu: %s", p->at, what);
}

static hr_status no_memory(void)
{
    return hr_fail(HR_RESOURCE_EXHAUSTED, "JSON: memory for the parsed text");
}

static int peek(const parser *p)
{
    return p->at < p->text.n ? (unsigned char)p->text.p[p->at] : -1;
}

static void skip_space(parser *p)
{
    for (int c = peek(p); c == ' ' || c == '\n' || c == '\t' || c == '\r'; c = peek(p)) p->at++;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

/* ---- strings ------------------------------------------------------------------------------ */

/* The high bit of each byte of `word` that is zero; of bytes after the first such one, maybe more.
 */
static uint64_t zero_bytes(uint64_t word)
{
    return (word - 0x0101010101010101u) & ~word & 0x8080808080808080u;
}

/* Moves past characters that a string holds as they are, eight at a time. */
static void skip_plain(parser *p)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t w;
    for (; p->at + 8 <= p->text.n; p->at += 8) {
        memcpy(&w, p->text.p + p->at, 8);
        uint64_t special = (w & 0x8080808080808080u) | zero_bytes(w ^ ones * '"') |
                           zero_bytes(w ^ ones * '\\') | zero_bytes(w & ones * 0xE0);
        if (special) return;
    }
}

/* Moves past the body of a string to its closing quote; checks everything but the escapes'
 * meaning. */
static hr_status scan_string(parser *p, bool *escaped)
{
    *escaped = false;
    for (;;) {
        int c = peek(p);
        if (c < 0) return fault(p, "the string does not end");
        if (c == '"') return HR_OK;
        if (c < 0x20) return fault(p, "a control character inside a string must be escaped");
        if (c == '\\') {
            *escaped = true;
            if (p->at + 1 >= p->text.n) return fault(p, "the string does not end");
            p->at += 2;
        } else if (c < 0x80) {
            p->at++;
            skip_plain(p);
        } else {
            size_t len;
            if (hr_utf8_decode(hr_str_slice(p->text, p->at, p->text.n), &len) == HR_UTF8_BAD)
                return fault(p, "the text is not valid UTF-8");
            p->at += len;
        }
    }
}

static bool hex4(const char *s, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        int digit = is_digit(c)              ? c - '0'
                    : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                    : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                             : -1;
        if (digit < 0) return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

/* One \uXXXX or a surrogate pair of them; `raw` begins at the 'u'. */
static hr_status unescape_unicode(parser *p, hr_str raw, size_t *used, uint32_t *c)
{
    uint32_t low;
    *used = 0;
    *c = 0;
    if (raw.n < 5 || !hex4(raw.p + 1, c)) return fault(p, "\\u needs four hexadecimal digits");
    *used = 5;
    if (*c < 0xD800 || *c > 0xDFFF) return HR_OK;
    if (*c > 0xDBFF || raw.n < 11 || raw.p[5] != '\\' || raw.p[6] != 'u' ||
        !hex4(raw.p + 7, &low) || low < 0xDC00 || low > 0xDFFF)
        return fault(p, "a lone surrogate in a \\u escape");
    *used = 11;
    *c = 0x10000 + ((*c - 0xD800) << 10) + (low - 0xDC00);
    return HR_OK;
}

/* Decodes an escaped body. An escape is never shorter than what it means, so raw.n bytes do. */
static hr_status unescape(parser *p, size_t from, hr_str *out)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    size_t end = p->at, n = 0;
    char *to = hr_arena_alloc(p->arena, end - from + 1);
    if (!to) return no_memory();
    for (p->at = from; p->at < end;) {
        char c = p->text.p[p->at];
        if (c != '\\') {
            to[n++] = c;
            p->at++;
            continue;
        }
        char e = p->text.p[p->at + 1];
        const char *name = e ? strchr(names, e) : NULL;
        if (name) {
            to[n++] = meanings[name - names];
            p->at += 2;
        } else if (e == 'u') {
            size_t used;
            uint32_t code;
            HR_TRY(unescape_unicode(p, hr_str_slice(p->text, p->at + 1, end), &used, &code));
            n += hr_utf8_encode(code, to + n);
            p->at += 1 + used;
        } else {
            return fault(p, "unknown escape");
        }
    }
    *out = (hr_str){ to, n };
    return HR_OK;
}

/* At the opening quote; ends after the closing one. */
static hr_status parse_string(parser *p, hr_str *out)
{
    bool escaped;
    size_t from = ++p->at;
    HR_TRY(scan_string(p, &escaped));
    if (escaped) HR_TRY(unescape(p, from, out));
    else *out = hr_str_slice(p->text, from, p->at);
    p->at++;
    return HR_OK;
}

/* ---- numbers and words -------------------------------------------------------------------- */

static hr_status digits(parser *p)
{
    if (!is_digit(peek(p))) return fault(p, "a digit is missing in a number");
    while (is_digit(peek(p))) p->at++;
    return HR_OK;
}

static hr_status parse_number(parser *p, hr_str *out)
{
    size_t from = p->at;
    if (peek(p) == '-') p->at++;
    if (peek(p) == '0') {
        p->at++;
        if (is_digit(peek(p))) return fault(p, "a number must not begin with 0");
    } else {
        HR_TRY(digits(p));
    }
    if (peek(p) == '.') {
        p->at++;
        HR_TRY(digits(p));
    }
    if (peek(p) == 'e' || peek(p) == 'E') {
        p->at++;
        if (peek(p) == '+' || peek(p) == '-') p->at++;
        HR_TRY(digits(p));
    }
    *out = hr_str_slice(p->text, from, p->at);
    return HR_OK;
}

static hr_status parse_word(parser *p, hr_json_type *type)
{
    static const struct {
        hr_str word;
        hr_json_type type;
    } words[] = { { { "true", 4 }, HR_JSON_TRUE },
                  { { "false", 5 }, HR_JSON_FALSE },
                  { { "null", 4 }, HR_JSON_NULL } };
    hr_str rest = hr_str_slice(p->text, p->at, p->text.n);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!hr_str_starts(rest, words[i].word)) continue;
        *type = words[i].type;
        p->at += words[i].word.n;
        return HR_OK;
    }
    return fault(p, p->at < p->text.n ? "a value is expected" : "the text ends too early");
}

/* ---- duplicate keys ----------------------------------------------------------------------- */

static uint64_t rotl(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] = rotl(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] = rotl(v[2], 32);
}

/* SipHash-1-3 (Aumasson, Bernstein 2012). */
static uint64_t sip_hash(const uint64_t key[2], hr_str s)
{
    uint64_t v[4] = { key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                      key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u };
    size_t i = 0;
    for (; i + 8 <= s.n; i += 8) {
        uint64_t m;
        memcpy(&m, s.p + i, 8);
        v[3] ^= m;
        sip_round(v);
        v[0] ^= m;
    }
    uint64_t last = (uint64_t)s.n << 56;
    for (int shift = 0; i < s.n; i++, shift += 8) last |= (uint64_t)(unsigned char)s.p[i] << shift;
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int r = 0; r < 3; r++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static hr_status duplicate(const parser *p, hr_str key)
{
    return hr_fail(HR_INVALID_ARGUMENT,
                   "JSON at byte %zu: the object that ends here has the key \"%.*s\" twice", p->at,
                   (int)(key.n > 100 ? 100 : key.n), key.p);
}

/* Open addressing over indices; the table is at most half full. */
static hr_status check_keys_large(parser *p, const hr_json *items, size_t n)
{
    if (!p->hash_ready && getrandom(p->hash_key, sizeof p->hash_key, 0) < 0)
        return hr_fail(HR_UNAVAILABLE, "JSON: no random bytes from the system");
    p->hash_ready = true;
    size_t size = 32;
    while (size < 2 * n) size *= 2;
    size_t *table = hr_alloc_array0(size, sizeof *table); /* index + 1; 0 = free */
    if (!table) return no_memory();
    hr_status st = HR_OK;
    for (size_t i = 0; i < n && !st; i++) {
        size_t slot = (size_t)sip_hash(p->hash_key, items[i].key) & (size - 1);
        for (; table[slot]; slot = (slot + 1) & (size - 1))
            if (hr_str_eq(items[table[slot] - 1].key, items[i].key)) break;
        if (table[slot]) st = duplicate(p, items[i].key);
        table[slot] = i + 1;
    }
    hr_free(table);
    return st;
}

static hr_status check_keys(parser *p, const hr_json *items, size_t n)
{
    if (n > SMALL_OBJECT) return check_keys_large(p, items, n);
    for (size_t i = 1; i < n; i++)
        for (size_t j = 0; j < i; j++)
            if (hr_str_eq(items[i].key, items[j].key)) return duplicate(p, items[i].key);
    return HR_OK;
}

/* ---- values ------------------------------------------------------------------------------- */

static hr_status push_value(parser *p, hr_json v)
{
    if (++p->n_values > p->max_values)
        return hr_fail(HR_OUT_OF_RANGE, "JSON at byte %zu: more than %zu values", p->at,
                       p->max_values);
    HR_TRY(hr_grow((void **)&p->values, &p->capacity, p->n + 1, sizeof *p->values));
    p->values[p->n++] = v;
    p->key = (hr_str){ 0 };
    return HR_OK;
}

static hr_status open_container(parser *p, hr_json_type type)
{
    if (p->depth >= p->max_depth)
        return hr_fail(HR_INVALID_ARGUMENT, "JSON at byte %zu: nested deeper than %zu", p->at,
                       p->max_depth);
    HR_TRY(hr_grow((void **)&p->frames, &p->frames_capacity, p->depth + 1, sizeof *p->frames));
    p->frames[p->depth++] = (frame){ .type = type, .key = p->key, .first = p->n, .start = p->at };
    p->key = (hr_str){ 0 };
    p->at++;
    return HR_OK;
}

static hr_status close_container(parser *p)
{
    frame f = p->frames[--p->depth];
    size_t count = p->n - f.first;
    if (f.type == HR_JSON_OBJECT) HR_TRY(check_keys(p, p->values + f.first, count));
    hr_json *items = hr_arena_array(p->arena, count, sizeof *items);
    if (!items) return no_memory();
    if (count) memcpy(items, p->values + f.first, count * sizeof *items);
    p->n = f.first;
    p->at++;
    return push_value(p, (hr_json){ .type = f.type,
                                    .text = hr_str_slice(p->text, f.start, p->at),
                                    .key = f.key,
                                    .items = items,
                                    .count = count });
}

static hr_status parse_key(parser *p)
{
    skip_space(p);
    if (peek(p) != '"') return fault(p, "a key in quotes is expected");
    HR_TRY(parse_string(p, &p->key));
    skip_space(p);
    if (peek(p) != ':') return fault(p, "':' is expected");
    p->at++;
    return HR_OK;
}

/* One scalar, or the opening of a container. *opened: its first member or its end comes next. */
static hr_status parse_value(parser *p, bool *opened)
{
    *opened = false;
    skip_space(p);
    hr_json v = { .key = p->key };
    int c = peek(p);
    if (c == '{' || c == '[') {
        *opened = true;
        return open_container(p, c == '{' ? HR_JSON_OBJECT : HR_JSON_ARRAY);
    }
    if (c == '"') {
        v.type = HR_JSON_STRING;
        HR_TRY(parse_string(p, &v.text));
    } else if (c == '-' || is_digit(c)) {
        v.type = HR_JSON_NUMBER;
        HR_TRY(parse_number(p, &v.text));
    } else {
        HR_TRY(parse_word(p, &v.type));
    }
    return push_value(p, v);
}

/* After a value or an opening: closes what closes here, moves past one comma. */
static hr_status parse_between(parser *p, bool opened)
{
    while (p->depth) {
        bool object = p->frames[p->depth - 1].type == HR_JSON_OBJECT;
        skip_space(p);
        int c = peek(p);
        if (c == (object ? '}' : ']')) {
            HR_TRY(close_container(p));
            opened = false;
            continue;
        }
        if (!opened) {
            if (c < 0) return fault(p, "the text ends too early");
            if (c != ',')
                return fault(p, object ? "',' or '}' is expected" : "',' or ']' is expected");
            p->at++;
        }
        return object ? parse_key(p) : HR_OK;
    }
    return HR_OK;
}

static hr_status parse_text(parser *p)
{
    do {
        bool opened;
        HR_TRY(parse_value(p, &opened));
        HR_TRY(parse_between(p, opened));
    } while (p->depth);
    skip_space(p);
    return p->at < p->text.n ? fault(p, "more text follows the value") : HR_OK;
}

hr_status hr_json_parse(hr_str text, const hr_json_limits *limits, hr_arena *arena,
                        const hr_json **out)
{
    *out = NULL;
    parser p = { .text = text,
                 .arena = arena,
                 .max_depth = limits && limits->max_depth ? limits->max_depth : DEFAULT_DEPTH,
                 .max_values = limits && limits->max_values ? limits->max_values : SIZE_MAX };
    hr_status st = parse_text(&p);
    hr_json *root = st ? NULL : hr_arena_new(arena, hr_json);
    if (!st && !root) st = no_memory();
    if (root) *root = p.values[0];
    hr_free(p.values);
    hr_free(p.frames);
    *out = root;
    return st;
}
