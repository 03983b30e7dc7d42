/* Drops the nodes that no output needs. Runs at start-up.
 *
 * One walk backwards: a node is needed when one of its results is; then so are its operands. */
#include "passes/passes_int.h"

static void mark(const hr_graph *g, bool *needed)
{
    for (size_t i = 0; i < g->n_outputs; i++) needed[g->outputs[i].value->id] = true;
    for (size_t i = g->n_nodes; i-- > 0;) {
        const hr_node *n = g->nodes[i];
        bool any = false;
        for (int k = 0; k < n->n_out; k++) any = any || needed[n->out[k]->id];
        for (int k = 0; any && k < n->n_in; k++)
            if (n->in[k]) needed[n->in[k]->id] = true;
    }
}

static bool is_needed(const hr_node *n, const bool *needed)
{
    for (int k = 0; k < n->n_out; k++)
        if (needed[n->out[k]->id]) return true;
    return false;
}

hr_status hr_pass_dead(const hr_graph *g, hr_graph **out)
{
    hr_rewrite rw;
    *out = NULL;
    bool *needed = hr_alloc_array0(g->n_values + 1, sizeof *needed);
    if (!needed) return hr_fail(HR_RESOURCE_EXHAUSTED, "graph %s: dead nodes", g->name);
    hr_status st = hr_rewrite_begin(g, &rw);
    if (!st) {
        mark(g, needed);
        for (size_t i = 0; i < g->n_nodes && !rw.to->status; i++)
            if (is_needed(g->nodes[i], needed)) hr_rewrite_copy(&rw, g->nodes[i]);
        st = hr_rewrite_finish(&rw, out);
    }
    hr_free(needed);
    return st;
}
