/* The contract of every CPU kernel: one signature, one line in kernels.def.
 *
 * A kernel computes work items [from, to) of one node; items are independent, so any split over
 * threads gives the same bits. It is pure and re-entrant: no malloc, no log, no errno, no globals.
 * Rows past the live count are neither read nor written. A result never depends on how many rows,
 * items or threads there are: reduction order is fixed by K and the weight format alone, and every
 * row count on a machine takes the same instruction-set path. */
#ifndef HEADRACE_CPU_KERNELS_H
#define HEADRACE_CPU_KERNELS_H

#include "graph/graph.h"

/* Private memory of one worker, bytes, 64-byte aligned; contents undefined at entry. */
#define HR_KERNEL_SCRATCH ((size_t)1 << 20)

struct hr_packed; /* cpu/pack.h: a weight in the layout its kernels stream */

typedef struct hr_kernel_args {
    const hr_node *node;            /* op, shapes, attributes */
    const void *in[HR_NODE_MAX_IN]; /* 64-byte aligned; NULL where absent or a packed weight */
    const struct hr_packed *packed; /* linear and embed: the weight */
    void *prep;                     /* linear: rows as linear_prep made them (linear.h) */
    void *out[HR_NODE_MAX_OUT];     /* may equal in[0] only where kernels.def says INPLACE */
    const int64_t *live;            /* hr_execute_args.live */
    void *scratch;                  /* HR_KERNEL_SCRATCH bytes of this worker */
} hr_kernel_args;

typedef void (*hr_kernel_fn)(const hr_kernel_args *a, int64_t from, int64_t to);

/* Number of live rows of a value under these counts. */
static inline int64_t hr_live_rows(const hr_value *v, const int64_t *live)
{
    int64_t rows = v->shape.rank ? v->shape.dim[0] : 1;
    if (v->live == HR_LIVE_ALL) return rows;
    return live[v->live] < rows ? live[v->live] : rows;
}

#endif
