/* Who may ask: API keys, and which web pages (CORS).
 *
 * Runs on the I/O thread; owns the keys' hashes. A key is compared as SHA-256 of both sides over
 * all keys, so that the time taken tells neither how much of a guess is right nor which key it is
 * near to. CORS answers as Starlette's middleware does, which vLLM uses: a preflight needs no key.
 */
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "server/net.h"

struct hr_access {
    unsigned char (*keys)[SHA256_DIGEST_LENGTH]; /* owned [n_keys] */
    size_t n_keys;
    const char *const *origins; /* borrowed [n_origins]; 0 = all */
    size_t n_origins;
};

static void hash(hr_str s, unsigned char out[SHA256_DIGEST_LENGTH])
{
    SHA256((const unsigned char *)s.p, s.n, out);
}

hr_status hr_access_create(const hr_server_options *o, hr_access **out)
{
    *out = NULL;
    hr_access *a = hr_new0(hr_access);
    if (a) a->keys = hr_alloc_array0(o->n_api_keys + 1, sizeof *a->keys);
    if (!a || !a->keys) {
        hr_access_destroy(a);
        return hr_fail(HR_RESOURCE_EXHAUSTED, "API keys");
    }
    a->n_keys = o->n_api_keys;
    for (size_t i = 0; i < a->n_keys; i++) {
        if (o->api_keys[i][0]) {
            hash(hr_str_c(o->api_keys[i]), a->keys[i]);
            continue;
        }
        hr_access_destroy(a);
        return hr_fail(HR_INVALID_ARGUMENT, "--api-key: an empty key would let everybody in");
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
    unsigned char given[SHA256_DIGEST_LENGTH];
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
    hr_buf_add_c(lines, "Access-Control-Expose-Headers: X-Request-Id, Retry-After\r\n");
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
