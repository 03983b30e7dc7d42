/* Rewrites that every backend but ref runs before planning. This room's door. */
#ifndef HEADRACE_PASSES_PASSES_H
#define HEADRACE_PASSES_PASSES_H

#include "graph/graph.h"

/* A pass makes a new graph out of one it leaves alone. Input order, output names and donations
 * stay; so do the numbers: every rewrite computes the same bits. */
typedef struct hr_pass {
    const char *name;
    hr_status (*run)(const hr_graph *g, hr_graph **out);
} hr_pass;

/* In the order in which they run. */
const hr_pass *hr_pass_list(size_t *count);
/* All of them; the graph is verified after each. */
HR_MUST_USE hr_status hr_pass_run_all(const hr_graph *g, hr_graph **out);

#endif
