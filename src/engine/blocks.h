/* KV blocks: which of the cache's fixed-size blocks belong to whom, and what they hold. */
#ifndef HEADRACE_ENGINE_BLOCKS_H
#define HEADRACE_ENGINE_BLOCKS_H

#include "engine/prefix.h"

/* One block of the cache. Counted, so that it may serve several sequences. */
typedef struct hr_block {
    uint32_t ref;
    int32_t previous, next; /* in the free list while ref is 0; -1 = none */
    bool findable;          /* in the table under `hash` */
    hr_block_hash hash;
} hr_block;

/* Block ids [0, total). A free block keeps what it holds until it is taken: those that can be found
 * again wait at the end of the free list, in the order in which they were given up. */
typedef struct hr_block_pool {
    int32_t total, n_free;
    int32_t first, last; /* free list: `first` is handed out next */
    hr_block *blocks;    /* owned [total] */
    int64_t block_size;  /* tokens; 0 = blocks are never found again */
    int32_t *tokens;     /* owned [total,block_size]: what findable blocks hold */
    int32_t *table;      /* owned [table_mask + 1], open addressing: block id + 1, 0 = empty */
    uint64_t table_mask;
} hr_block_pool;

/* block_size 0: no block is ever found again. */
HR_MUST_USE hr_status hr_block_pool_init(hr_block_pool *p, int32_t total, int64_t block_size);
void hr_block_pool_deinit(hr_block_pool *p);
/* A block of nobody's, no longer findable; -1 when none is free. */
int32_t hr_block_pool_take(hr_block_pool *p);
void hr_block_pool_retain(hr_block_pool *p, int32_t id); /* a free one, too */
void hr_block_pool_release(hr_block_pool *p, int32_t id);

/* The block that holds these tokens [block_size] under this hash; -1 when there is none. */
int32_t hr_block_pool_find(const hr_block_pool *p, const hr_block_hash *h, const int32_t *tokens);
/* Makes a held block findable, unless one with the same content is already. */
void hr_block_pool_publish(hr_block_pool *p, int32_t id, const hr_block_hash *h,
                           const int32_t *tokens);
/* Makes it findable no more. */
void hr_block_pool_withdraw(hr_block_pool *p, int32_t id);

/* The blocks of one sequence, in position order. */
typedef struct hr_block_list {
    int32_t *ids; /* [capacity] */
    int32_t n, capacity;
} hr_block_list;

/* Room for `positions` tokens; false (and nothing taken) when the pool is short. No malloc. */
bool hr_block_list_cover(hr_block_list *l, hr_block_pool *p, int64_t positions, int64_t block_size);
/* The same for an empty list whose ids[0, found) name findable blocks, which it takes first. */
bool hr_block_list_adopt(hr_block_list *l, hr_block_pool *p, int32_t found, int64_t positions,
                         int64_t block_size);
/* Gives back every block past those that `positions` tokens need: rollback and release (0). */
void hr_block_list_trim(hr_block_list *l, hr_block_pool *p, int64_t positions, int64_t block_size);

#endif
