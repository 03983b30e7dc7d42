/* Computes equal things once: same op, same operands, same attributes. Runs at start-up.
 *
 * Values are immutable (each write to a donated buffer gives a new one), so equal operands are
 * enough, and reusing the earlier result only ever moves a read forward. In-place ops are left
 * alone. Earlier nodes are searched linearly: graphs have some thousand nodes, once. */
#include "passes/passes_int.h"

static bool same_attrs(const hr_attrs *a, const hr_attrs *b)
{
    return a->eps == b->eps && a->offset == b->offset && a->scale == b->scale && a->cap == b->cap &&
           a->group == b->group && a->window == b->window && a->n == b->n &&
           !memcmp(a->sections, b->sections, sizeof a->sections) && a->act == b->act &&
           a->dtype == b->dtype;
}

/* `n` is of the old graph, `made` of the new one. */
static bool same_node(hr_rewrite *rw, const hr_node *n, const hr_node *made)
{
    if (n->op != made->op || !same_attrs(&n->attrs, &made->attrs)) return false;
    if (n->op == HR_OP_reshape && !hr_shape_eq(n->out[0]->shape, made->out[0]->shape)) return false;
    for (int i = 0; i < n->n_in; i++)
        if (hr_rewrite_value(rw, n->in[i]) != made->in[i]) return false;
    return true;
}

static const hr_node *find(hr_rewrite *rw, const hr_node *n)
{
    if (hr_op_is_in_place(n->op)) return NULL;
    for (size_t i = rw->to->n_nodes; i-- > 0;)
        if (same_node(rw, n, rw->to->nodes[i])) return rw->to->nodes[i];
    return NULL;
}

/* Two outputs never share memory. */
static bool has_output(const hr_graph *g, const hr_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        if (hr_pass_is_output(g, n->out[i])) return true;
    return false;
}

hr_status hr_pass_common(const hr_graph *g, hr_graph **out)
{
    hr_rewrite rw;
    *out = NULL;
    HR_TRY(hr_rewrite_begin(g, &rw));
    for (size_t i = 0; i < g->n_nodes && !rw.to->status; i++) {
        const hr_node *n = g->nodes[i];
        const hr_node *made = has_output(g, n) ? NULL : find(&rw, n);
        if (!made) hr_rewrite_copy(&rw, n);
        for (int k = 0; made && k < n->n_out; k++) hr_rewrite_replace(&rw, n->out[k], made->out[k]);
    }
    return hr_rewrite_finish(&rw, out);
}
