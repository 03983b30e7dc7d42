/* The block pool: a stack of free ids and a count per block.
 *
 * Engine thread only. Everything is allocated once at start; taking and giving back are a push and
 * a pop. Which block a sequence gets never shows in its answer: attention reads positions through
 * the block table, in position order. */
#include "engine/blocks.h"

#include <assert.h>

hr_status hr_block_pool_init(hr_block_pool *p, int32_t total)
{
    *p = (hr_block_pool){ .total = total, .n_free = total };
    p->free_ids = hr_alloc_array0((size_t)total, sizeof *p->free_ids);
    p->ref = hr_alloc_array0((size_t)total, sizeof *p->ref);
    if (!p->free_ids || !p->ref) {
        hr_block_pool_deinit(p);
        return hr_fail(HR_RESOURCE_EXHAUSTED, "pool of %d KV blocks", total);
    }
    for (int32_t i = 0; i < total; i++) p->free_ids[i] = total - 1 - i;
    return HR_OK;
}

void hr_block_pool_deinit(hr_block_pool *p)
{
    hr_free(p->free_ids);
    hr_free(p->ref);
    *p = (hr_block_pool){ 0 };
}

int32_t hr_block_pool_take(hr_block_pool *p)
{
    if (p->n_free == 0) return -1;
    int32_t id = p->free_ids[--p->n_free];
    assert(p->ref[id] == 0);
    p->ref[id] = 1;
    return id;
}

void hr_block_pool_retain(hr_block_pool *p, int32_t id)
{
    assert(p->ref[id] > 0);
    p->ref[id]++;
}

void hr_block_pool_release(hr_block_pool *p, int32_t id)
{
    assert(p->ref[id] > 0);
    if (--p->ref[id] == 0) p->free_ids[p->n_free++] = id;
}

static int64_t blocks_for(int64_t positions, int64_t block_size)
{
    return (positions + block_size - 1) / block_size;
}

bool hr_block_list_cover(hr_block_list *l, hr_block_pool *p, int64_t positions, int64_t block_size)
{
    int64_t need = blocks_for(positions, block_size);
    assert(need <= l->capacity);
    if (need - l->n > p->n_free) return false;
    while (l->n < need) l->ids[l->n++] = hr_block_pool_take(p);
    return true;
}

void hr_block_list_trim(hr_block_list *l, hr_block_pool *p, int64_t positions, int64_t block_size)
{
    int64_t keep = blocks_for(positions, block_size);
    while (l->n > keep) hr_block_pool_release(p, l->ids[--l->n]);
}
