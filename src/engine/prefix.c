/* SHA-256 over a chain of blocks.
 *
 * Input thread for prompts, engine thread for the blocks that answers fill: each has its own
 * hasher. A hash covers its parent's, so one compare of 32 bytes speaks for the whole text before
 * the block. Lengths are written before what varies in length: two inputs never run together into
 * the same bytes. The digest is fetched once, so that hashing allocates nothing. */
#include "engine/prefix.h"

#include <openssl/evp.h>

#include "base/mem.h"

struct hr_prefix_hasher {
    EVP_MD *md;      /* owned */
    EVP_MD_CTX *ctx; /* owned */
};

hr_status hr_prefix_hasher_create(hr_prefix_hasher **out)
{
    *out = NULL;
    hr_prefix_hasher *h = hr_new0(hr_prefix_hasher);
    if (!h) return hr_fail(HR_RESOURCE_EXHAUSTED, "prefix hasher");
    h->md = EVP_MD_fetch(NULL, "SHA256", NULL);
    h->ctx = EVP_MD_CTX_new();
    if (!h->md || !h->ctx || !EVP_DigestInit_ex(h->ctx, h->md, NULL)) {
        hr_prefix_hasher_destroy(h);
        return hr_fail(HR_INTERNAL, "SHA-256 is not available in libcrypto");
    }
    *out = h;
    return HR_OK;
}

void hr_prefix_hasher_destroy(hr_prefix_hasher *h)
{
    if (!h) return;
    EVP_MD_CTX_free(h->ctx);
    EVP_MD_free(h->md);
    hr_free(h);
}

hr_status hr_prefix_hash(hr_prefix_hasher *h, const hr_block_hash *parent, hr_str extra,
                         const int32_t *tokens, int64_t n, hr_block_hash *out)
{
    static const hr_block_hash none;
    const uint64_t lengths[2] = { extra.n, (uint64_t)n };
    bool good = EVP_DigestInit_ex(h->ctx, h->md, NULL) &&
                EVP_DigestUpdate(h->ctx, parent ? parent : &none, sizeof none) &&
                EVP_DigestUpdate(h->ctx, lengths, sizeof lengths) &&
                EVP_DigestUpdate(h->ctx, extra.p, extra.n) &&
                EVP_DigestUpdate(h->ctx, tokens, (size_t)n * sizeof *tokens) &&
                EVP_DigestFinal_ex(h->ctx, out->bytes, NULL);
    return good ? HR_OK : hr_fail(HR_INTERNAL, "SHA-256 failed");
}

hr_status hr_prefix_hash_chain(hr_prefix_hasher *h, hr_str extra, const int32_t *tokens,
                               int64_t block_size, int64_t from, int64_t to, hr_block_hash *out)
{
    for (int64_t i = from; i < to; i++)
        HR_TRY(hr_prefix_hash(h, i ? &out[i - 1] : NULL, i ? (hr_str){ 0 } : extra,
                              tokens + i * block_size, block_size, &out[i]));
    return HR_OK;
}
