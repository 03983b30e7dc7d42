/* Memory straight from the system.
 *
 * Weights, the slab and buffers are large, live long and start as zeros: anonymous mappings give
 * zeros for nothing and cost memory only where touched, so a KV cache or a sampler table may be
 * declared far larger than what is ever used. Regions of several megabytes ask for huge pages:
 * a decode step walks all weights, and 4 KiB pages would miss the TLB once per 4 KiB. They begin
 * at a huge page's border, so that all of them can be had.
 *
 * What is filled from its beginning, bit by bit, keeps small pages in the first 2 MiB: a model has
 * a KV cache per layer, and to zero a huge page for the first token of each took longer than all
 * the rest of a start. */
#include <sys/mman.h>

#include "cpu/cpu_int.h"

#define HUGE ((size_t)2 << 20)
/* Below this, rounding to a huge page would waste more than it saves. */
#define HUGE_FROM (2 * HUGE)

hr_status hr_region_map(size_t bytes, hr_cpu_pages pages, hr_region_use use, const char *what,
                        hr_region *out)
{
    *out = (hr_region){ 0 };
    bool huge = pages == HR_CPU_PAGES_HUGE && bytes >= HUGE_FROM;
    size_t room = bytes ? bytes : 1;
    if (huge && !hr_mul_add(1, room, HUGE, &room)) room = SIZE_MAX; /* which is refused */
    void *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: %zu bytes of memory refused", what, bytes);
    *out = (hr_region){ .base = p, .bytes = bytes, .map = p, .map_bytes = room };
    if (!huge) return HR_OK;
    uint8_t *base = (uint8_t *)p + (-(uintptr_t)p & (HUGE - 1));
    size_t small = use == HR_REGION_FILLS ? HUGE : 0;
    out->base = base;
    (void)madvise(base + small, bytes - small, MADV_HUGEPAGE); /* a wish; else speed is lost */
    return HR_OK;
}

void hr_region_unmap(hr_region *r)
{
    if (r->map) munmap(r->map, r->map_bytes);
    *r = (hr_region){ 0 };
}
