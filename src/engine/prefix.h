/* The names of full KV blocks: equal names mean equal tokens, and equal tokens before them. */
#ifndef HEADRACE_ENGINE_PREFIX_H
#define HEADRACE_ENGINE_PREFIX_H

#include <stdint.h>

#include "base/str.h"

typedef struct hr_block_hash {
    uint8_t bytes[32];
} hr_block_hash;

/* Hashes blocks on one thread; after create nothing is allocated. */
typedef struct hr_prefix_hasher hr_prefix_hasher;
HR_MUST_USE hr_status hr_prefix_hasher_create(hr_prefix_hasher **out);
void hr_prefix_hasher_destroy(hr_prefix_hasher *h); /* NULL is fine */

/* SHA-256 of (parent, extra, tokens [n]). `parent` is the hash of the block before, NULL for the
 * first; `extra` is whatever besides the tokens the block's keys and values depend on, or that is
 * to keep it apart from others': a salt, an adapter's name, an image's digest. */
HR_MUST_USE hr_status hr_prefix_hash(hr_prefix_hasher *h, const hr_block_hash *parent, hr_str extra,
                                     const int32_t *tokens, int64_t n, hr_block_hash *out);
/* The next blocks of a chain: out[from, to), reading out[from - 1]. `extra` is the first block's;
 * those after it inherit it through their parents. */
HR_MUST_USE hr_status hr_prefix_hash_chain(hr_prefix_hasher *h, hr_str extra, const int32_t *tokens,
                                           int64_t block_size, int64_t from, int64_t to,
                                           hr_block_hash *out);

#endif
