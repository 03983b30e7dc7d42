/* KV blocks: which of the cache's fixed-size blocks belong to whom. */
#ifndef HEADRACE_ENGINE_BLOCKS_H
#define HEADRACE_ENGINE_BLOCKS_H

#include <stdint.h>

#include "base/mem.h"

/* A pool of block ids [0, total). Counted, so that a block may serve several sequences. */
typedef struct hr_block_pool {
    int32_t total;
    int32_t n_free;
    int32_t *free_ids; /* owned [total]; the last n_free-th is handed out next */
    uint32_t *ref;     /* owned [total] */
} hr_block_pool;

HR_MUST_USE hr_status hr_block_pool_init(hr_block_pool *p, int32_t total);
void hr_block_pool_deinit(hr_block_pool *p);
/* -1 when none is free. */
int32_t hr_block_pool_take(hr_block_pool *p);
void hr_block_pool_retain(hr_block_pool *p, int32_t id);
void hr_block_pool_release(hr_block_pool *p, int32_t id);

/* The blocks of one sequence, in position order. */
typedef struct hr_block_list {
    int32_t *ids; /* owned [capacity] */
    int32_t n, capacity;
} hr_block_list;

/* Room for `positions` tokens; false (and nothing taken) when the pool is short. No malloc. */
bool hr_block_list_cover(hr_block_list *l, hr_block_pool *p, int64_t positions, int64_t block_size);
/* Gives back every block past those that `positions` tokens need: rollback and release (0). */
void hr_block_list_trim(hr_block_list *l, hr_block_pool *p, int64_t positions, int64_t block_size);

#endif
