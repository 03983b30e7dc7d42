/* TLS: one context from certificate and key, one session per connection.
 *
 * Runs on the I/O thread. TLS 1.2 and 1.3, no renegotiation; the protocol offered is http/1.1. */
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "server/net.h"

struct hr_tls {
    SSL_CTX *context; /* owned */
};

/* What OpenSSL says, without its codes. */
static hr_status tls_failed(const char *flag, const char *file)
{
    unsigned long e = ERR_peek_last_error();
    const char *reason = e ? ERR_reason_error_string(e) : NULL;
    char text[128];
    snprintf(text, sizeof text, "%s", reason ? reason : "OpenSSL gives no reason");
    ERR_clear_error();
    return hr_fail(HR_INVALID_ARGUMENT, "%s %s: %s", flag, file, text);
}

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_n,
                           const unsigned char *in, unsigned in_n, void *self)
{
    static const unsigned char mine[] = "\x08http/1.1";
    (void)ssl, (void)self;
    unsigned char *chosen;
    int found = SSL_select_next_proto(&chosen, out_n, mine, sizeof mine - 1, in, in_n);
    *out = chosen;
    return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

static hr_status load(SSL_CTX *c, const hr_server_options *o)
{
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(c, o->ssl_certfile) != 1)
        return tls_failed("--ssl-certfile", o->ssl_certfile);
    if (SSL_CTX_use_PrivateKey_file(c, o->ssl_keyfile, SSL_FILETYPE_PEM) != 1)
        return tls_failed("--ssl-keyfile", o->ssl_keyfile);
    if (SSL_CTX_check_private_key(c) != 1)
        return hr_fail(HR_INVALID_ARGUMENT, "--ssl-keyfile %s is not the key of --ssl-certfile %s",
                       o->ssl_keyfile, o->ssl_certfile);
    return HR_OK;
}

/* A connection keeps the context that it began with. */
hr_status hr_tls_reload(hr_tls *t, const hr_server_options *o)
{
    SSL_CTX *c = SSL_CTX_new(TLS_server_method());
    hr_status st = c ? load(c, o) : hr_fail(HR_RESOURCE_EXHAUSTED, "TLS");
    if (st) {
        SSL_CTX_free(c);
        return st;
    }
    SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                               SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(c, choose_protocol, NULL);
    SSL_CTX_free(t->context);
    t->context = c;
    return HR_OK;
}

hr_status hr_tls_create(const hr_server_options *o, hr_tls **out)
{
    *out = NULL;
    OPENSSL_init_ssl(0, NULL); /* reads openssl.cnf, which is out of reach later */
    if (!o->ssl_certfile && !o->ssl_keyfile) return HR_OK;
    if (!o->ssl_certfile || !o->ssl_keyfile)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--ssl-certfile and --ssl-keyfile belong together: %s "
                       "is missing",
                       o->ssl_certfile ? "--ssl-keyfile" : "--ssl-certfile");
    hr_tls *t = hr_new0(hr_tls);
    hr_status st = t ? hr_tls_reload(t, o) : hr_fail(HR_RESOURCE_EXHAUSTED, "TLS");
    if (st) {
        hr_tls_destroy(t);
        return st;
    }
    *out = t;
    return HR_OK;
}

void hr_tls_destroy(hr_tls *t)
{
    if (!t) return;
    SSL_CTX_free(t->context);
    hr_free(t);
}

void *hr_tls_session(hr_tls *t)
{
    return SSL_new(t->context);
}
