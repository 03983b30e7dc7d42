/* The names of full KV blocks: equal names mean equal tokens, and equal tokens before them. */
#ifndef HEADRACE_ENGINE_PREFIX_H
#define HEADRACE_ENGINE_PREFIX_H

#include <stdint.h>

#include "base/str.h"

typedef struct hr_block_hash {
    uint8_t bytes[32];
} hr_block_hash;

/* SHA-256 of (parent, lengths, extra, tokens [n]). `parent` is the hash of the block before, NULL
 * for the first; `extra` is whatever besides the tokens the block's keys and values depend on, or
 * that is to keep it apart from others': a salt, an adapter's name, an image's digest. Any thread,
 * no malloc. */
void hr_prefix_hash(const hr_block_hash *parent, hr_str extra, const int32_t *tokens, int64_t n,
                    hr_block_hash *out);
/* The next blocks of a chain: out[from, to), reading out[from - 1]. `extra` is the first block's;
 * those after it inherit it through their parents. */
void hr_prefix_hash_chain(hr_str extra, const int32_t *tokens, int64_t block_size, int64_t from,
                          int64_t to, hr_block_hash *out);

#endif
