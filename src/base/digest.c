/* SHA-256 of bytes and of files, by libcrypto.
 *
 * Runs on the thread that asks; owns nothing. A large file's digest is remembered as a small file
 * whose name says which file it was of; a remembered text that is not 64 hex digits is computed
 * anew. */
#include "base/digest.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>

#include "base/log.h"

#define CHUNK     ((size_t)4 << 20)
#define HEX_BYTES (HR_DIGEST_TEXT - 1)

static hr_status no_digest(void)
{
    return hr_fail(HR_INTERNAL, "SHA-256 is not available in libcrypto");
}

void hr_digest_text(const hr_digest *d, char out[HR_DIGEST_TEXT])
{
    for (int i = 0; i < HR_DIGEST_BYTES; i++) snprintf(out + 2 * i, 3, "%02x", d->at[i]);
}

hr_status hr_digest_of(const hr_str *parts, size_t n, hr_digest *out)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (!ctx) return hr_fail(HR_RESOURCE_EXHAUSTED, "memory to hash");
    int good = EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);
    for (size_t i = 0; i < n && good; i++)
        if (parts[i].n) good = EVP_DigestUpdate(ctx, parts[i].p, parts[i].n);
    good = good && EVP_DigestFinal_ex(ctx, out->at, NULL);
    EVP_MD_CTX_free(ctx);
    return good ? HR_OK : no_digest();
}

static hr_status hash_chunks(const hr_file *f, EVP_MD_CTX *ctx, char *chunk, hr_digest *out)
{
    if (!EVP_DigestInit_ex(ctx, EVP_sha256(), NULL)) return no_digest();
    for (uint64_t at = 0; at < f->size;) {
        size_t n = f->size - at < CHUNK ? (size_t)(f->size - at) : CHUNK;
        HR_TRY(hr_file_read(f, at, chunk, n));
        if (!EVP_DigestUpdate(ctx, chunk, n)) return no_digest();
        at += n;
    }
    return EVP_DigestFinal_ex(ctx, out->at, NULL) ? HR_OK : no_digest();
}

hr_status hr_digest_file(const hr_file *f, hr_digest *out)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    char *chunk = hr_alloc(CHUNK);
    hr_status st = ctx && chunk ? hash_chunks(f, ctx, chunk, out)
                                : hr_fail(HR_RESOURCE_EXHAUSTED, "%s: memory to hash it", f->path);
    EVP_MD_CTX_free(ctx);
    hr_free(chunk);
    return st;
}

/* Where the digest of this very file is remembered. */
static hr_status remembered_name(const hr_file *f, hr_buf *dir, hr_buf *path)
{
    HR_TRY(hr_cache_root(dir));
    hr_buf_add_c(dir, "/headrace/hashes");
    hr_buf_c(dir);
    HR_TRY(hr_buf_status(dir));
    hr_buf_printf(path, "%s/%" PRIx64 "-%" PRIx64 "-%" PRIx64 "-%" PRIx64, dir->p, f->device,
                  f->inode, f->size, (uint64_t)f->mtime_ns);
    hr_buf_c(path);
    return hr_buf_status(path);
}

static bool recall(const char *path, char out[HR_DIGEST_TEXT])
{
    hr_buf text = { 0 };
    bool good = !hr_file_slurp(path, HEX_BYTES, &text) && text.n == HEX_BYTES;
    for (size_t i = 0; i < HEX_BYTES && good; i++)
        good = text.p[i] && strchr("0123456789abcdef", text.p[i]);
    if (good) {
        memcpy(out, text.p, HEX_BYTES);
        out[HEX_BYTES] = '\0';
    }
    hr_buf_deinit(&text);
    return good;
}

hr_status hr_digest_file_remembered(const hr_file *f, char out[HR_DIGEST_TEXT])
{
    hr_buf dir = { 0 }, path = { 0 };
    hr_digest digest;
    hr_status named = remembered_name(f, &dir, &path), st = HR_OK;
    if (named || !recall(path.p, out)) {
        st = hr_digest_file(f, &digest);
        if (!st) hr_digest_text(&digest, out);
        if (!st && !named) named = hr_make_dirs(dir.p, 0755);
        if (!st && !named) named = hr_file_write_atomic(path.p, (hr_str){ out, HEX_BYTES });
        if (!st && named) hr_log(HR_LOG_DEBUG, "hash not remembered: %s", hr_message());
    }
    hr_buf_deinit(&dir);
    hr_buf_deinit(&path);
    return st;
}
