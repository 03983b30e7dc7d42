/* Memory straight from the system.
 *
 * Weights, the slab and buffers are large, live long and start as zeros: anonymous mappings give
 * zeros for nothing and cost memory only where touched, so a KV cache or a sampler table may be
 * declared far larger than what is ever used. Regions of several megabytes ask for huge pages:
 * a decode step walks all weights, and 4 KiB pages would miss the TLB once per 4 KiB. */
#include <sys/mman.h>

#include "cpu/cpu_int.h"

/* Below this, rounding to a huge page would waste more than it saves. */
#define HUGE_FROM ((size_t)4 << 20)

hr_status hr_region_map(size_t bytes, hr_cpu_pages pages, const char *what, hr_region *out)
{
    *out = (hr_region){ 0 };
    if (bytes == 0) bytes = 1;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: %zu bytes of memory refused", what, bytes);
    if (pages == HR_CPU_PAGES_HUGE && bytes >= HUGE_FROM)
        (void)madvise(p, bytes, MADV_HUGEPAGE); /* a wish: without it only speed is lost */
    *out = (hr_region){ .base = p, .bytes = bytes };
    return HR_OK;
}

void hr_region_unmap(hr_region *r)
{
    if (r->base) munmap(r->base, r->bytes);
    *r = (hr_region){ 0 };
}
