/* Inside the cpu room: a compiled program. */
#ifndef HEADRACE_CPU_PLAN_H
#define HEADRACE_CPU_PLAN_H

#include "cpu/cpu_int.h"
#include "cpu/kernels/table.h"
#include "cpu/memplan.h"

/* Where a value lies. Values that continue one another in place share a place. */
typedef enum plan_place_kind {
    PLAN_SLAB,   /* at an offset of the backend's slab */
    PLAN_FRAME,  /* one row, at an offset of each worker's frame; between the parts of a chain */
    PLAN_INPUT,  /* in the buffer bound to input `index` */
    PLAN_OUTPUT, /* in the buffer bound to output `index` */
    PLAN_FIXED,  /* constants and packed vectors */
} plan_place_kind;

typedef struct plan_place {
    plan_place_kind kind;
    int32_t index;
    int32_t first,
        last;      /* while planning: entries, both included; PLAN_END for what outputs need */
    bool prep;     /* made in the step before */
    size_t bytes;  /* FRAME: of a row */
    size_t offset; /* SLAB, FRAME */
    void *fixed;   /* FIXED: borrowed from the weight table or the program's constants */
} plan_place;

enum { PLAN_END = INT32_MAX, PLAN_NOWHERE = -1 };

/* One node's share of a step. */
typedef struct plan_part {
    const hr_kernel *kernel;
    hr_kernel_args args;                                    /* pointers are set at execute */
    int32_t in[HR_NODE_MAX_IN], out[HR_NODE_MAX_OUT], prep; /* places, or PLAN_NOWHERE */
    int64_t run_items;                                      /* of the execute under way */
} plan_part;

/* Parts whose items are claimed together by the pool. Their results are independent, unless they
 * form a chain: then an item is a row, and goes through all parts in their order. */
typedef struct plan_step {
    int32_t first_part, n_parts;
    bool chain;
} plan_step;

/* A whole value copied from one place to another. */
typedef struct plan_copy {
    int32_t from, to; /* places */
    int32_t before;   /* step that it precedes; n_steps = at the end */
    size_t row_bytes;
    const hr_value *value; /* only its live rows are copied */
} plan_copy;

struct hr_program {
    hr_cpu_backend *backend; /* borrowed */
    hr_graph *graph;         /* owned: after passes */
    plan_place *places;      /* owned, as the rest */
    plan_part *parts;
    plan_step *steps;
    plan_copy *copies; /* in order of `before` */
    void **base;       /* [n_places]: pointers of the execute under way */
    hr_region constants;
    size_t n_places, n_parts, n_steps, n_copies;
    size_t slab_bytes;
    size_t frame_offset, frame_bytes; /* in the slab; of one worker */
};

/* plan_build.c: everything of *p but graph and backend, which are set. */
HR_MUST_USE hr_status hr_plan_build(hr_program *p);

#endif
