/* Inside the cpu room: the backend object and what its files share. */
#ifndef HEADRACE_CPU_CPU_INT_H
#define HEADRACE_CPU_CPU_INT_H

#include "base/mem.h"
#include "cpu/cpu.h"
#include "cpu/isa.h"
#include "cpu/kept.h"
#include "cpu/pack.h"
#include "cpu/pool.h"

/* ---- regions.c: zeroed memory from the system, touched lazily ------------------------------ */

typedef struct hr_region {
    void *base;   /* 64-byte aligned at least; NULL when empty */
    size_t bytes; /* from base */
    void *map;    /* owned: what the system gave */
    size_t map_bytes;
} hr_region;

typedef enum hr_region_use {
    HR_REGION_WHOLE, /* written all over, or anywhere */
    HR_REGION_FILLS, /* from the beginning, as tokens come */
} hr_region_use;

HR_MUST_USE hr_status hr_region_map(size_t bytes, hr_cpu_pages pages, hr_region_use use,
                                    const char *what, hr_region *out);
void hr_region_unmap(hr_region *r); /* an empty one is fine */

/* ---- weights.c: packed once per backend ----------------------------------------------------- */

/* Open addressing by address; grown at compile only. */
typedef struct hr_weight_table {
    struct hr_weight_slot {
        const hr_weight *key; /* borrowed from the model; NULL = free */
        hr_packed *packed;    /* owned */
        size_t serial;        /* which use was first: 0, 1, … */
    } * slots;                /* owned */
    size_t used, capacity;    /* capacity is a power of two or 0 */
    size_t bytes;             /* of all packed weights */
    hr_region *chunks;        /* owned; the last one is being filled */
    size_t n_chunks, chunks_capacity, filled;
} hr_weight_table;

struct hr_cpu_backend;
/* The packed form of w, made now when this is its first use. */
HR_MUST_USE hr_status hr_weights_get(struct hr_cpu_backend *b, const hr_weight *w,
                                     const hr_packed **out);
/* Writes what was packed to the compile cache, where that lacks it. */
void hr_weights_keep(struct hr_cpu_backend *b);
void hr_weights_deinit(hr_weight_table *t);

/* ---- backend.c ------------------------------------------------------------------------------ */

struct hr_buffer {
    hr_tensor_desc desc;
    size_t bytes;
    hr_region region;
};

typedef struct hr_cpu_backend {
    hr_backend base; /* first: the seam's view */
    hr_isa isa;
    hr_cpu_pages pages;
    hr_cpu_weights reads;
    hr_pool *pool;     /* owned */
    hr_region scratch; /* HR_KERNEL_SCRATCH per worker */
    hr_region slab;    /* working memory of whichever program runs */
    hr_weight_table weights;
    hr_kept kept; /* packed weights of an earlier start, which the table points into */
    /* Which products have been planned, for the numerics record: bit a of [format] is set when
     * rows of kind a met that weight format. */
    uint8_t products[HR_FORMAT_I8C + 16];
} hr_cpu_backend;

/* ---- plan.c ---------------------------------------------------------------------------------- */

HR_MUST_USE hr_status hr_plan_compile(hr_cpu_backend *b, const hr_graph *g, hr_program **out);
void hr_plan_destroy(hr_program *p);
void hr_plan_info(const hr_program *p, hr_program_info *out);
HR_MUST_USE hr_status hr_plan_execute(hr_program *p, const hr_execute_args *a);

#endif
