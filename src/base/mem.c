/* The allocator behind everything, and bump arenas.
 *
 * Runs on every thread. The allocator is set before threads start. Its clever idea: there is only
 * one door to the heap, so tests can count it and make each call fail in turn. */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#include "base/sync.h"

struct hr_arena_block {
    struct hr_arena_block *next;
    size_t capacity; /* bytes after this header */
    size_t used;
    _Alignas(16) unsigned char data[];
};

static void *libc_alloc(void *self, size_t bytes, size_t align)
{
    (void)self;
    if (align <= 16) return malloc(bytes);
    size_t rounded;
    if (!hr_mul_add(bytes / align + (bytes % align != 0), align, 0, &rounded)) return NULL;
    return aligned_alloc(align, rounded);
}

static void *libc_realloc(void *self, void *p, size_t bytes)
{
    (void)self;
    return realloc(p, bytes);
}

static void libc_free(void *self, void *p)
{
    (void)self;
    free(p);
}

static const hr_allocator libc_allocator = { libc_alloc, libc_realloc, libc_free, NULL };
static hr_allocator allocator = { libc_alloc, libc_realloc, libc_free, NULL };
static hr_counter alloc_calls;

void hr_set_allocator(const hr_allocator *a)
{
    allocator = a ? *a : libc_allocator;
}

void *hr_alloc_aligned(size_t bytes, size_t align)
{
    hr_counter_add(&alloc_calls, 1);
    return allocator.alloc(allocator.self, bytes ? bytes : 1, align);
}

void *hr_alloc(size_t bytes)
{
    return hr_alloc_aligned(bytes, 16);
}

void *hr_alloc0(size_t bytes)
{
    void *p = hr_alloc(bytes);
    if (p) memset(p, 0, bytes);
    return p;
}

void *hr_realloc(void *p, size_t bytes)
{
    hr_counter_add(&alloc_calls, 1);
    return allocator.realloc(allocator.self, p, bytes ? bytes : 1);
}

void hr_free(void *p)
{
    if (p) allocator.free(allocator.self, p);
}

uint64_t hr_alloc_count(void)
{
    return hr_counter_get(&alloc_calls);
}

void *hr_alloc_array0(size_t n, size_t item)
{
    size_t bytes;
    return hr_mul_add(n, item, 0, &bytes) ? hr_alloc0(bytes) : NULL;
}

hr_status hr_grow(void **items, size_t *capacity, size_t need, size_t item)
{
    if (need <= *capacity) return HR_OK;
    size_t next = *capacity < 8 ? 8 : *capacity;
    while (next < need && next <= SIZE_MAX / 2) next *= 2;
    size_t bytes;
    if (next < need || !hr_mul_add(next, item, 0, &bytes))
        return hr_fail(HR_RESOURCE_EXHAUSTED, "array of %zu items of %zu bytes", need, item);
    void *p = hr_realloc(*items, bytes);
    if (!p) return hr_fail(HR_RESOURCE_EXHAUSTED, "array of %zu bytes", bytes);
    *items = p;
    *capacity = next;
    return HR_OK;
}

/* Not zeroed. */
static void *take(hr_arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 4) return NULL;
    size_t need = (bytes + 15) & ~(size_t)15;
    struct hr_arena_block *b = a->head;
    if (!b || b->capacity - b->used < need) {
        size_t capacity = b ? b->capacity * 2 : 4096;
        if (capacity > (size_t)1 << 22) capacity = (size_t)1 << 22;
        if (capacity < need) capacity = need;
        if (a->limit && capacity > a->limit - a->used) capacity = need;
        if (a->limit && need > a->limit - a->used) return NULL;
        b = hr_alloc(sizeof *b + capacity);
        if (!b) return NULL;
        *b = (struct hr_arena_block){ .next = a->head, .capacity = capacity };
        a->head = b;
        a->used += capacity;
    }
    void *p = b->data + b->used;
    b->used += need;
    return p;
}

void *hr_arena_alloc(hr_arena *a, size_t bytes)
{
    void *p = take(a, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

void *hr_arena_raw(hr_arena *a, size_t bytes)
{
    return take(a, bytes);
}

void *hr_arena_array(hr_arena *a, size_t n, size_t item)
{
    size_t bytes;
    return hr_mul_add(n, item, 0, &bytes) ? hr_arena_alloc(a, bytes) : NULL;
}

char *hr_arena_copy(hr_arena *a, const char *p, size_t n)
{
    if (n == SIZE_MAX) return NULL;
    char *copy = take(a, n + 1);
    if (!copy) return NULL;
    if (n) memcpy(copy, p, n);
    copy[n] = '\0';
    return copy;
}

static void free_blocks(struct hr_arena_block *b)
{
    while (b) {
        struct hr_arena_block *next = b->next;
        hr_free(b);
        b = next;
    }
}

void hr_arena_reset(hr_arena *a)
{
    if (!a->head) return;
    free_blocks(a->head->next);
    a->head->next = NULL;
    a->head->used = 0;
    a->used = a->head->capacity;
}

void hr_arena_deinit(hr_arena *a)
{
    free_blocks(a->head);
    a->head = NULL;
    a->used = 0;
}
