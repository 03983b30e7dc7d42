/* The block pool: a free list, a count per block, and a table to find full blocks by what they
 * hold.
 *
 * Engine thread only. Everything is allocated once at start. The free list is the cache's
 * least-recently-used order at the same time: blocks nobody could find are taken first, then the
 * findable ones in the order in which they were given up, a sequence's last block before its
 * first, since a prefix is worth more than what follows it. Taking, giving back and finding are
 * all O(1). Which block a sequence gets never shows in its answer: attention reads positions
 * through the block table, in position order. */
#include "engine/blocks.h"

#include <assert.h>
#include <string.h>

/* ---- life ------------------------------------------------------------------------------------ */

static hr_status create_table(hr_block_pool *p)
{
    uint64_t size = 16;
    while (size < (uint64_t)p->total * 2) size *= 2;
    size_t cells;
    bool fits = hr_mul_add((size_t)p->total, (size_t)p->block_size, 0, &cells);
    p->table_mask = size - 1;
    p->table = hr_alloc_array0((size_t)size, sizeof *p->table);
    p->tokens = fits ? hr_alloc_array0(cells, sizeof *p->tokens) : NULL;
    return p->table && p->tokens ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "prefix cache table");
}

hr_status hr_block_pool_init(hr_block_pool *p, int32_t total, int64_t block_size)
{
    *p = (hr_block_pool){
        .total = total, .n_free = total, .last = total - 1, .block_size = block_size
    };
    p->blocks = hr_alloc_array0((size_t)total, sizeof *p->blocks);
    hr_status st = HR_OK;
    if (!p->blocks) st = hr_fail(HR_RESOURCE_EXHAUSTED, "pool of %d KV blocks", total);
    if (!st && block_size) st = create_table(p);
    if (st) {
        hr_block_pool_deinit(p);
        return st;
    }
    for (int32_t i = 0; i < total; i++) {
        p->blocks[i].previous = i - 1;
        p->blocks[i].next = i + 1 < total ? i + 1 : -1;
    }
    return HR_OK;
}

void hr_block_pool_deinit(hr_block_pool *p)
{
    hr_free(p->blocks);
    hr_free(p->tokens);
    hr_free(p->table);
    *p = (hr_block_pool){ 0 };
}

/* ---- the free list --------------------------------------------------------------------------- */

static void unlink_free(hr_block_pool *p, int32_t id)
{
    hr_block *b = &p->blocks[id];
    if (b->previous >= 0) p->blocks[b->previous].next = b->next;
    else p->first = b->next;
    if (b->next >= 0) p->blocks[b->next].previous = b->previous;
    else p->last = b->previous;
    p->n_free--;
}

/* Between two neighbours of the list, -1 = its end. */
static void link_free(hr_block_pool *p, int32_t id, int32_t previous, int32_t next)
{
    p->blocks[id].previous = previous;
    p->blocks[id].next = next;
    if (previous >= 0) p->blocks[previous].next = id;
    else p->first = id;
    if (next >= 0) p->blocks[next].previous = id;
    else p->last = id;
    p->n_free++;
}

int32_t hr_block_pool_take(hr_block_pool *p)
{
    if (p->n_free == 0) return -1;
    int32_t id = p->first;
    assert(p->blocks[id].ref == 0);
    unlink_free(p, id);
    hr_block_pool_withdraw(p, id);
    p->blocks[id].ref = 1;
    return id;
}

void hr_block_pool_retain(hr_block_pool *p, int32_t id)
{
    if (p->blocks[id].ref++ == 0) unlink_free(p, id);
}

void hr_block_pool_release(hr_block_pool *p, int32_t id)
{
    hr_block *b = &p->blocks[id];
    assert(b->ref > 0);
    if (--b->ref) return;
    if (b->findable) link_free(p, id, p->last, -1);
    else link_free(p, id, -1, p->first);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Where a hash would like to be. Its bytes are as good as random. */
static uint64_t home(const hr_block_pool *p, const hr_block_hash *h)
{
    uint64_t word;
    memcpy(&word, h->bytes, sizeof word);
    return word & p->table_mask;
}

static bool equal(const hr_block_hash *a, const hr_block_hash *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

/* The cell of a hash, or the empty one where it would go. Never full: at most half is used. */
static uint64_t locate(const hr_block_pool *p, const hr_block_hash *h)
{
    uint64_t at = home(p, h);
    while (p->table[at] && !equal(&p->blocks[p->table[at] - 1].hash, h))
        at = (at + 1) & p->table_mask;
    return at;
}

int32_t hr_block_pool_find(const hr_block_pool *p, const hr_block_hash *h, const int32_t *tokens)
{
    if (!p->block_size) return -1;
    int32_t id = p->table[locate(p, h)] - 1;
    if (id < 0) return -1;
    size_t n = (size_t)p->block_size;
    return memcmp(p->tokens + (size_t)id * n, tokens, n * sizeof *tokens) ? -1 : id;
}

void hr_block_pool_publish(hr_block_pool *p, int32_t id, const hr_block_hash *h,
                           const int32_t *tokens)
{
    if (!p->block_size) return;
    hr_block *b = &p->blocks[id];
    uint64_t at = locate(p, h);
    assert(b->ref > 0);
    if (p->table[at] || b->findable) return;
    b->findable = true;
    b->hash = *h;
    size_t n = (size_t)p->block_size;
    memcpy(p->tokens + (size_t)id * n, tokens, n * sizeof *tokens);
    p->table[at] = id + 1;
}

/* The cells after a removed one move up unless that would put them before their home, so a search
 * never needs a marker for what was removed. */
static void close_gap(hr_block_pool *p, uint64_t gap)
{
    for (uint64_t at = (gap + 1) & p->table_mask; p->table[at]; at = (at + 1) & p->table_mask) {
        uint64_t from_home = (at - home(p, &p->blocks[p->table[at] - 1].hash)) & p->table_mask;
        if (from_home < ((at - gap) & p->table_mask)) continue;
        p->table[gap] = p->table[at];
        gap = at;
    }
    p->table[gap] = 0;
}

void hr_block_pool_withdraw(hr_block_pool *p, int32_t id)
{
    hr_block *b = &p->blocks[id];
    if (!b->findable) return;
    b->findable = false;
    close_gap(p, locate(p, &b->hash));
}

/* ---- lists ----------------------------------------------------------------------------------- */

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

bool hr_block_list_adopt(hr_block_list *l, hr_block_pool *p, int32_t found, int64_t positions,
                         int64_t block_size)
{
    int64_t new = blocks_for(positions, block_size) - found, idle = 0;
    assert(l->n == 0);
    for (int32_t i = 0; i < found; i++) idle += p->blocks[l->ids[i]].ref == 0;
    if (new + idle > p->n_free) return false;
    for (int32_t i = 0; i < found; i++) hr_block_pool_retain(p, l->ids[i]);
    l->n = found;
    return hr_block_list_cover(l, p, positions, block_size);
}

void hr_block_list_trim(hr_block_list *l, hr_block_pool *p, int64_t positions, int64_t block_size)
{
    int64_t keep = blocks_for(positions, block_size);
    while (l->n > keep) hr_block_pool_release(p, l->ids[--l->n]);
}
