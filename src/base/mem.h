/* Memory: one counted, failable allocator, arenas per lifetime, and sizes that cannot wrap. */
#ifndef HEADRACE_BASE_MEM_H
#define HEADRACE_BASE_MEM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Replaceable before threads start (tests make every allocation fail in turn). `realloc(p, 0)` is
 * never called. */
typedef struct hr_allocator {
    void *(*alloc)(void *self, size_t bytes, size_t align);
    void *(*realloc)(void *self, void *p, size_t bytes);
    void (*free)(void *self, void *p);
    void *self;
} hr_allocator;

/* NULL restores libc. */
void hr_set_allocator(const hr_allocator *a);

/* NULL when memory is short; the caller reports with hr_fail(HR_RESOURCE_EXHAUSTED, "what"). */
void *hr_alloc(size_t bytes);
void *hr_alloc0(size_t bytes);
/* `align` is a power of two ≤ 2 MiB. Not for hr_realloc. */
void *hr_alloc_aligned(size_t bytes, size_t align);
void *hr_realloc(void *p, size_t bytes);
void hr_free(void *p); /* NULL is fine */
/* Allocations made so far by this process through hr_alloc*, a counter for tests and metrics. */
uint64_t hr_alloc_count(void);

#define hr_new0(T) ((T *)hr_alloc0(sizeof(T)))

/* *out = a * b + c; false when it does not fit size_t. */
static inline bool hr_mul_add(size_t a, size_t b, size_t c, size_t *out)
{
    size_t p;
    return !__builtin_mul_overflow(a, b, &p) && !__builtin_add_overflow(p, c, out);
}

/* Zeroed array of n items; NULL when memory is short or the size wraps. */
void *hr_alloc_array0(size_t n, size_t item);
/* Grows an array to hold `need` items at least, doubling. On failure the array is unchanged. */
HR_MUST_USE hr_status hr_grow(void **items, size_t *capacity, size_t need, size_t item);

/* A bump arena: many small objects, one lifetime (graph, request, step). Not thread-safe.
 * `= { 0 }` is a valid empty arena. */
typedef struct hr_arena {
    struct hr_arena_block *head; /* owned; newest first */
    size_t limit;                /* 0 = none; total bytes above it fail */
    size_t used;                 /* bytes in all blocks */
} hr_arena;

/* NULL when memory is short or the limit is met. 16-byte aligned. Zeroed. */
void *hr_arena_alloc(hr_arena *a, size_t bytes);
void *hr_arena_raw(hr_arena *a, size_t bytes); /* not zeroed */
void *hr_arena_array(hr_arena *a, size_t n, size_t item);
/* Copies n bytes and adds a terminator that is not counted. */
char *hr_arena_copy(hr_arena *a, const char *p, size_t n);
/* Keeps the newest block, forgets what is in it: for per-step reuse without malloc. */
void hr_arena_reset(hr_arena *a);
void hr_arena_deinit(hr_arena *a);

#define hr_arena_new(a, T) ((T *)hr_arena_alloc((a), sizeof(T)))

#endif
