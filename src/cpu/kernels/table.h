/* Every kernel by op and instruction set, and how its work divides into items. */
#ifndef HEADRACE_CPU_KERNELS_TABLE_H
#define HEADRACE_CPU_KERNELS_TABLE_H

#include "cpu/isa.h"
#include "cpu/kernels/kernels.h"

/* Columns of a ROW_BLOCKS item; also the fixed block of every float reduction over V. */
#define HR_KERNEL_BLOCK 1024

typedef enum hr_kernel_place {
    HR_PLACE_APART,   /* no result overlaps an operand */
    HR_PLACE_INPLACE, /* result 0 may be operand 0's memory */
    HR_PLACE_DONATED, /* result 0 is operand 0's memory */
} hr_kernel_place;

typedef struct hr_kernel {
    hr_kernel_fn fn;
    /* Items of a node under these live counts (hr_execute_args.live); 0 is fine. */
    int64_t (*items)(const hr_node *n, const int64_t *live);
    /* Items that are worth handing to another thread, at least 1. */
    int64_t (*grain)(const hr_node *n, const int64_t *live, int32_t cost);
    int32_t cost;
    hr_kernel_place place;
    bool own_row; /* kernels.def says OWN_ROW */
    /* Set where the number of items depends on what operands hold, and asked in place of items. */
    int64_t (*items_held)(const hr_kernel_args *a);
} hr_kernel;

/* NULL when kernels.def has no line for the op. */
const hr_kernel *hr_kernel_lookup(hr_op op, hr_isa isa);
/* What runs once before the linears over the same rows (linear.h); items are rows. */
const hr_kernel *hr_kernel_linear_prep(hr_isa isa);
/* What runs in the step before attention over the same operands (attention.h). */
const hr_kernel *hr_kernel_attention_parts(hr_isa isa);
static inline int64_t hr_kernel_items(const hr_kernel *k, const hr_kernel_args *a)
{
    return k->items_held ? k->items_held(a) : k->items(a->node, a->live);
}
static inline int64_t hr_kernel_grain(const hr_kernel *k, const hr_node *n, const int64_t *live)
{
    return k->grain(n, live, k->cost);
}

#endif
