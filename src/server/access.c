/* Who may ask: API keys, and which web pages (CORS).
 *
 * Runs on the I/O thread; owns the keys' hashes. A key is compared as SHA-256 of both sides over
 * all keys, so that the time taken tells neither how much of a guess is right nor which key it is
 * near to. CORS answers as Starlette's middleware does, which vLLM uses: a preflight needs no key.
 */
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/file.h"
#include "base/log.h"
#include "server/net.h"

#define MAX_KEY_FILE ((size_t)1 << 20)

typedef unsigned char key_hash[SHA256_DIGEST_LENGTH];

struct hr_access {
    key_hash *keys; /* owned [n_keys]: those of flags and environment, then the file's */
    size_t n_keys, n_fixed, capacity;
    const char *file;           /* borrowed; NULL = none */
    const char *const *origins; /* borrowed [n_origins]; 0 = all */
    size_t n_origins;
};

static void hash(hr_str s, key_hash out)
{
    SHA256((const unsigned char *)s.p, s.n, out);
}

static hr_status add_key(hr_access *a, hr_str key)
{
    HR_TRY(hr_grow((void **)&a->keys, &a->capacity, a->n_keys + 1, sizeof *a->keys));
    hash(key, a->keys[a->n_keys++]);
    return HR_OK;
}

static hr_status add_fixed(hr_access *a, const hr_server_options *o)
{
    for (size_t i = 0; i < o->n_api_keys; i++) {
        if (!o->api_keys[i][0])
            return hr_fail(HR_INVALID_ARGUMENT, "--api-key: an empty key would let everybody in");
        HR_TRY(add_key(a, hr_str_c(o->api_keys[i])));
    }
    a->n_fixed = a->n_keys;
    return HR_OK;
}

/* A key a line; empty lines and those that begin with # do not count. */
static hr_status add_lines(hr_access *a, hr_str text)
{
    size_t before = a->n_keys;
    for (hr_str line; hr_str_next(&text, '\n', &line);) {
        line = hr_str_trim(line);
        if (line.n && line.p[0] != '#') HR_TRY(add_key(a, line));
    }
    return a->n_keys > before ? HR_OK
                              : hr_fail(HR_INVALID_ARGUMENT, "%s: no key is in it", a->file);
}

/* What the log may show of keys: the beginning of each one's hash. */
static void tell(const hr_access *a)
{
    hr_buf line = { 0 };
    for (size_t i = 0; i < a->n_keys && i < 16; i++)
        hr_buf_printf(&line, " %02x%02x%02x%02x", a->keys[i][0], a->keys[i][1], a->keys[i][2],
                      a->keys[i][3]);
    hr_log(HR_LOG_INFO, "server: %zu API key%s, SHA-256%s%s", a->n_keys, a->n_keys == 1 ? "" : "s",
           hr_buf_c(&line), a->n_keys > 16 ? " …" : "");
    hr_buf_deinit(&line);
}

/* The old keys stay until the new ones are there, whole. */
hr_status hr_access_reload(hr_access *a)
{
    hr_buf text = { 0 };
    hr_access next = { .file = a->file };
    hr_status st = HR_OK;
    if (a->file) st = hr_file_slurp(a->file, MAX_KEY_FILE, &text);
    for (size_t i = 0; i < a->n_fixed && !st; i++) {
        st = hr_grow((void **)&next.keys, &next.capacity, i + 1, sizeof *next.keys);
        if (!st) memcpy(next.keys[next.n_keys++], a->keys[i], sizeof *next.keys);
    }
    if (!st && a->file) st = add_lines(&next, hr_buf_str(&text));
    if (text.p) OPENSSL_cleanse(text.p, text.capacity);
    hr_buf_deinit(&text);
    if (st) {
        hr_free(next.keys);
        return hr_fail_prefix(st, "--api-key-file");
    }
    hr_free(a->keys);
    a->keys = next.keys;
    a->n_keys = next.n_keys;
    a->capacity = next.capacity;
    if (a->n_keys) tell(a);
    return HR_OK;
}

hr_status hr_access_create(const hr_server_options *o, hr_access **out)
{
    *out = NULL;
    hr_access *a = hr_new0(hr_access);
    if (!a) return hr_fail(HR_RESOURCE_EXHAUSTED, "API keys");
    hr_status st = add_fixed(a, o);
    a->file = o->api_key_file;
    if (!st) st = hr_access_reload(a);
    if (st) {
        hr_access_destroy(a);
        return st;
    }
    a->origins = o->allowed_origins;
    a->n_origins = o->n_allowed_origins;
    for (size_t i = 0; i < a->n_origins; i++)
        if (!strcmp(a->origins[i], "*")) a->n_origins = 0;
    *out = a;
    return HR_OK;
}

void hr_access_destroy(hr_access *a)
{
    if (!a) return;
    hr_free(a->keys);
    hr_free(a);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* The KEY of "Bearer KEY", the scheme in any case; n 0 when there is none. */
static hr_str bearer(const hr_http_request *r)
{
    hr_str v = hr_http_header_get(r, "authorization");
    hr_str scheme = HR_STR("bearer");
    if (v.n <= scheme.n || !hr_http_same(hr_str_slice(v, 0, scheme.n), scheme) ||
        v.p[scheme.n] != ' ')
        return (hr_str){ 0 };
    return hr_str_trim(hr_str_slice(v, scheme.n, v.n));
}

bool hr_access_allows(const hr_access *a, const hr_http_request *r)
{
    if (a->n_keys == 0) return true;
    key_hash given;
    hr_str key = bearer(r);
    hash(key, given);
    int found = 0;
    for (size_t i = 0; i < a->n_keys; i++)
        found |= CRYPTO_memcmp(given, a->keys[i], sizeof given) == 0;
    return found;
}

/* ---- origins --------------------------------------------------------------------------------- */

static bool is_allowed_origin(const hr_access *a, hr_str origin)
{
    for (size_t i = 0; i < a->n_origins; i++)
        if (hr_str_eq_c(origin, a->origins[i])) return true;
    return a->n_origins == 0;
}

void hr_access_add_cors(const hr_access *a, const hr_http_request *r, hr_buf *lines)
{
    hr_str origin = hr_http_header_get(r, "origin");
    if (a->n_origins) hr_buf_add_c(lines, "Vary: Origin\r\n");
    if (!origin.n || !is_allowed_origin(a, origin)) return;
    hr_str shown = a->n_origins ? origin : HR_STR("*");
    hr_buf_printf(lines, "Access-Control-Allow-Origin: %.*s\r\n", HR_STR_ARG(shown));
    hr_buf_add_c(lines,
                 "Access-Control-Expose-Headers: X-Request-Id, Retry-After, traceparent\r\n");
}

bool hr_access_is_preflight(const hr_http_request *r)
{
    return hr_str_eq_c(r->method, "OPTIONS") && hr_http_header_get(r, "origin").n &&
           hr_http_header_get(r, "access-control-request-method").n;
}

/* Asked-for header names are reflected: the keys of a credential-less API are no secret. */
void hr_access_preflight(const hr_access *a, hr_exchange *x)
{
    if (!is_allowed_origin(a, hr_exchange_header(x, "origin"))) {
        hr_exchange_error(x, 400, NULL, "This origin is not among --allowed-origins.");
        return;
    }
    hr_buf names = { 0 };
    hr_buf_add_str(&names, hr_exchange_header(x, "access-control-request-headers"));
    hr_exchange_set_header(x, "Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
    if (names.n) hr_exchange_set_header(x, "Access-Control-Allow-Headers", hr_buf_c(&names));
    hr_exchange_set_header(x, "Access-Control-Max-Age", "600");
    hr_buf_deinit(&names);
    hr_exchange_reply(x, 204, NULL, (hr_str){ 0 });
}
