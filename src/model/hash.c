/* The model's hash: what identifies its weights across machines and restarts.
 *
 * Runs on the thread that asks; owns nothing. SHA-256 of each file of the checkpoint, then of the
 * list of those. Reading 16 GB takes seconds, so each file's digest is remembered under its
 * (device, inode, size, mtime): a file that was rewritten has another key, and a remembered digest
 * that is not 64 hex digits is computed anew. */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>

#include "base/log.h"
#include "model/model_int.h"

#define CHUNK     ((size_t)4 << 20)
#define HEX_BYTES 64

static hr_status no_digest(void)
{
    return hr_fail(HR_INTERNAL, "SHA-256 is not available in libcrypto");
}

static void to_hex(const unsigned char digest[32], char out[65])
{
    for (int i = 0; i < 32; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

static hr_status hash_bytes(hr_str s, char out[65])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    if (!EVP_Digest(s.p, s.n, digest, NULL, EVP_sha256(), NULL)) return no_digest();
    to_hex(digest, out);
    return HR_OK;
}

static hr_status hash_chunks(const hr_file *f, EVP_MD_CTX *ctx, char *chunk, char out[65])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    if (!EVP_DigestInit_ex(ctx, EVP_sha256(), NULL)) return no_digest();
    for (uint64_t at = 0; at < f->size;) {
        size_t n = f->size - at < CHUNK ? (size_t)(f->size - at) : CHUNK;
        HR_TRY(hr_file_read(f, at, chunk, n));
        if (!EVP_DigestUpdate(ctx, chunk, n)) return no_digest();
        at += n;
    }
    if (!EVP_DigestFinal_ex(ctx, digest, NULL)) return no_digest();
    to_hex(digest, out);
    return HR_OK;
}

static hr_status hash_file(const hr_file *f, char out[65])
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
static hr_status cache_name(const hr_file *f, hr_buf *dir, hr_buf *path)
{
    HR_TRY(hr_model_cache_root(dir));
    hr_buf_add_c(dir, "/headrace/hashes");
    hr_buf_c(dir);
    HR_TRY(hr_buf_status(dir));
    hr_buf_printf(path, "%s/%" PRIx64 "-%" PRIx64 "-%" PRIx64 "-%" PRIx64, dir->p, f->device,
                  f->inode, f->size, (uint64_t)f->mtime_ns);
    hr_buf_c(path);
    return hr_buf_status(path);
}

static bool recall(const char *path, char out[65])
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

static hr_status hash_remembered(const hr_file *f, char out[65])
{
    hr_buf dir = { 0 }, path = { 0 };
    hr_status cached = cache_name(f, &dir, &path), st = HR_OK;
    if (cached || !recall(path.p, out)) {
        st = hash_file(f, out);
        if (!st && !cached) cached = hr_model_make_dirs(dir.p);
        if (!st && !cached) cached = hr_file_write_atomic(path.p, (hr_str){ out, HEX_BYTES });
        if (!st && cached) hr_log(HR_LOG_DEBUG, "model: hash not remembered: %s", hr_message());
    }
    hr_buf_deinit(&dir);
    hr_buf_deinit(&path);
    return st;
}

/* config.json is a few kilobytes: read, never remembered. */
static hr_status add_config(const hr_model *m, hr_buf *list)
{
    hr_buf path = { 0 }, text = { 0 };
    char hex[65];
    hr_status st = hr_path_join(m->path, HR_STR("config.json"), &path);
    if (!st) st = hr_file_slurp(path.p, (size_t)16 << 20, &text);
    if (!st) st = hash_bytes(hr_buf_str(&text), hex);
    if (!st) hr_buf_printf(list, "%s\n", hex);
    hr_buf_deinit(&path);
    hr_buf_deinit(&text);
    return st;
}

hr_status hr_model_hash(const hr_model *m, char out[65])
{
    const hr_checkpoint *c = &m->checkpoint;
    hr_buf list = { 0 };
    out[0] = '\0';
    if (m->gguf.path) return hash_remembered(c->files[0], out);
    hr_status st = add_config(m, &list);
    for (size_t i = 0; i < c->n_files && !st; i++) {
        char hex[65];
        st = hash_remembered(c->files[i], hex);
        if (!st) hr_buf_printf(&list, "%s\n", hex);
    }
    if (m->dummy) hr_buf_printf(&list, "dummy %" PRIu64 "\n", m->dummy_seed);
    if (!st) st = hr_buf_status(&list);
    if (!st) st = hash_bytes(hr_buf_str(&list), out);
    hr_buf_deinit(&list);
    return st;
}
