/* The memory plan.
 *
 * Runs at compile. Largest spans first, each at the lowest offset that is free during its whole
 * life among those placed before: the greedy of Pisarchyk and Lee, "Efficient Memory Management
 * for Deep Neural Net Inference" (2020), within a few percent of the lower bound on such graphs.
 * Placed spans are kept in offset order, so one walk finds the gap. */
#include "cpu/memplan.h"

#include <stdlib.h>

static int larger_first(const void *a, const void *b)
{
    const hr_span *x = *(hr_span *const *)a, *y = *(hr_span *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y; /* a total order: the plan must not depend on qsort */
}

static size_t lowest_gap(const hr_span *s, size_t bytes, hr_span *const *placed, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const hr_span *p = placed[i];
        if (p->last < s->first || s->last < p->first) continue;
        if (p->offset >= at + bytes) break; /* the rest lies higher still */
        size_t end = p->offset + ((p->bytes + HR_SPAN_ALIGN - 1) & ~(HR_SPAN_ALIGN - 1));
        if (end > at) at = end;
    }
    return at;
}

static void insert(hr_span *s, hr_span **placed, size_t n)
{
    size_t i = n;
    for (; i > 0 && placed[i - 1]->offset > s->offset; i--) placed[i] = placed[i - 1];
    placed[i] = s;
}

hr_status hr_memplan(hr_span *spans, size_t n, size_t *total)
{
    *total = 0;
    if (n == 0) return HR_OK;
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        if (!hr_mul_add(1, sum, spans[i].bytes, &sum) || !hr_mul_add(1, sum, HR_SPAN_ALIGN, &sum))
            return hr_fail(HR_RESOURCE_EXHAUSTED, "working memory: size overflows");
    hr_span **order = hr_alloc_array0(n, 2 * sizeof *order);
    if (!order) return hr_fail(HR_RESOURCE_EXHAUSTED, "memory plan of %zu values", n);
    hr_span **placed = order + n;
    for (size_t i = 0; i < n; i++) order[i] = &spans[i];
    qsort(order, n, sizeof *order, larger_first);
    for (size_t i = 0; i < n; i++) {
        hr_span *s = order[i];
        size_t bytes = (s->bytes + HR_SPAN_ALIGN - 1) & ~(HR_SPAN_ALIGN - 1);
        s->offset = lowest_gap(s, bytes, placed, i);
        insert(s, placed, i);
        if (s->offset + bytes > *total) *total = s->offset + bytes;
    }
    hr_free(order);
    return HR_OK;
}
