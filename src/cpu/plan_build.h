/* Inside the plan's making: what order, places and steps share. */
#ifndef HEADRACE_CPU_PLAN_BUILD_H
#define HEADRACE_CPU_PLAN_BUILD_H

#include "cpu/kernels/attention.h"
#include "cpu/kernels/linear.h"
#include "cpu/plan.h"

/* A node at its step. */
typedef struct plan_entry {
    const hr_node *node;
    int32_t step;    /* PLAN_NOWHERE for a reshape */
    int32_t prep_of; /* linear: first entry of its group; attention: itself */
    bool in_chain;   /* its step may hold more of its kind, run row by row in order of entry */
} plan_entry;

typedef struct plan_builder {
    hr_program *p; /* borrowed */
    const hr_graph *g;
    plan_entry *entries; /* owned, [n_nodes] */
    int32_t n_entries;
    int32_t *place; /* owned, [n_values]: of each value */
    int32_t
        *last_use; /* owned, [n_values]: entry, or PLAN_END; of the value that holds the bytes */
    int32_t *prep; /* owned, [n_nodes]: place of prep by first entry of a group */
    size_t steps_capacity, parts_capacity, places_capacity, copies_capacity;
} plan_builder;

/* plan_order.c: entries, steps and last uses. `done` [n_nodes] is false all over. */
void hr_plan_order(plan_builder *b, bool *done);
/* Bytes that another kernel leaves for this one in the step before; 0 = there is none. */
size_t hr_plan_prep_bytes(const hr_node *n);
/* The value whose bytes v names. */
const hr_value *hr_plan_root(const hr_value *v);

/* plan_places.c: every place, and the slab. */
HR_MUST_USE hr_status hr_plan_lay(plan_builder *b);

/* Operand i is a weight that kernels stream, and no plain memory. */
static inline bool hr_plan_packed(const hr_node *n, int i)
{
    return i == 1 && (n->op == HR_OP_linear || n->op == HR_OP_embed);
}

#endif
