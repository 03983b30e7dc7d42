/* SHA-256 over a chain of blocks.
 *
 * Input thread for prompts, engine thread for the blocks that answers fill. A hash covers its
 * parent's, so one compare of 32 bytes speaks for the whole text before the block. Lengths come
 * before what varies in length: two inputs never run together into the same bytes.
 * libcrypto's EVP interface allocates a context for every digest, and the engine thread allocates
 * nothing: so this is the older interface, whose state is a plain struct. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "engine/prefix.h"

#include <openssl/sha.h>

void hr_prefix_hash(const hr_block_hash *parent, hr_str extra, const int32_t *tokens, int64_t n,
                    hr_block_hash *out)
{
    static const hr_block_hash none;
    const uint64_t lengths[2] = { extra.n, (uint64_t)n };
    SHA256_CTX c;
    SHA256_Init(&c);
    SHA256_Update(&c, parent ? parent : &none, sizeof none);
    SHA256_Update(&c, lengths, sizeof lengths);
    if (extra.n) SHA256_Update(&c, extra.p, extra.n);
    SHA256_Update(&c, tokens, (size_t)n * sizeof *tokens);
    SHA256_Final(out->bytes, &c);
}

void hr_prefix_hash_chain(hr_str extra, const int32_t *tokens, int64_t block_size, int64_t from,
                          int64_t to, hr_block_hash *out)
{
    for (int64_t i = from; i < to; i++)
        hr_prefix_hash(i ? &out[i - 1] : NULL, i ? (hr_str){ 0 } : extra, tokens + i * block_size,
                       block_size, &out[i]);
}
