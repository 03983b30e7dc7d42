/* Copying a graph while changing it: what expand and every pass are made of.
 *
 * A rewrite reads `from` (never changed) and builds `to` node by node; `map` says which value of
 * `to` stands for each value of `from`. Inputs keep their binding order, outputs their names and
 * donations. */
#ifndef HEADRACE_GRAPH_REWRITE_H
#define HEADRACE_GRAPH_REWRITE_H

#include "graph/graph.h"

typedef struct hr_rewrite {
    const hr_graph *from; /* borrowed */
    hr_graph *to;         /* owned until finish */
    hr_value **map;       /* [from->n_values]; owned; NULL = not (yet) there */
} hr_rewrite;

/* Inputs are copied; weights and constants follow when first used. */
HR_MUST_USE hr_status hr_rewrite_begin(const hr_graph *from, hr_rewrite *rw);
/* The stand-in of v in `to`; NULL for NULL. */
hr_value *hr_rewrite_value(hr_rewrite *rw, const hr_value *v);
/* From now on `to_value` stands for v. */
void hr_rewrite_replace(hr_rewrite *rw, const hr_value *v, hr_value *to_value);
/* The node as it is, over the stand-ins of its operands. */
void hr_rewrite_copy(hr_rewrite *rw, const hr_node *n);
/* Outputs, then verification; the graph to *out. Ends the rewrite whether it works or not. */
HR_MUST_USE hr_status hr_rewrite_finish(hr_rewrite *rw, hr_graph **out);

#endif
