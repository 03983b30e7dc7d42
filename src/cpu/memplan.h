/* Where intermediate values lie: life ranges packed into one slab. */
#ifndef HEADRACE_CPU_MEMPLAN_H
#define HEADRACE_CPU_MEMPLAN_H

#include <stdint.h>

#include "base/mem.h"

/* One stretch of memory that is live in steps [first, last], both included. */
typedef struct hr_span {
    size_t bytes;
    int32_t first, last;
    size_t offset; /* result: a multiple of HR_SPAN_ALIGN */
} hr_span;

#define HR_SPAN_ALIGN ((size_t)64)

/* Places all spans so that no two that are live in the same step overlap; *total is the slab. */
HR_MUST_USE hr_status hr_memplan(hr_span *spans, size_t n, size_t *total);

#endif
