/* Removes what changes nothing: casts to the same dtype, scales by one, reshapes to the same shape;
 * a reshape of a reshape starts from the first one's operand. Runs at start-up.
 *
 * A node whose result is an output stays: the output must be memory of its own. */
#include "passes/passes_int.h"

static bool changes_nothing(const hr_node *n)
{
    const hr_attrs *a = &n->attrs;
    if (n->op == HR_OP_cast) return n->in[0]->dtype == n->out[0]->dtype;
    if (n->op == HR_OP_scale) return a->scale == 1;
    if (n->op == HR_OP_activation) return a->act == HR_ACT_NONE;
    return n->op == HR_OP_reshape && hr_shape_eq(n->in[0]->shape, n->out[0]->shape);
}

/* The reshape that made v in the new graph, or NULL. */
static const hr_node *reshape_of(const hr_value *v)
{
    return v && v->producer && v->producer->op == HR_OP_reshape ? v->producer : NULL;
}

/* Where a chain of reshapes that ends in n starts, in the new graph. */
static hr_value *start_of(hr_rewrite *rw, const hr_node *n)
{
    hr_value *x = hr_rewrite_value(rw, n->in[0]);
    const hr_node *before = reshape_of(x);
    return before ? before->in[0] : x;
}

static void rewrite_node(hr_rewrite *rw, const hr_node *n)
{
    const hr_value *y = n->out[0];
    bool is_output = hr_pass_is_output(rw->from, y);
    hr_value *x = n->op == HR_OP_reshape ? start_of(rw, n) : NULL;
    if (changes_nothing(n) && !is_output) hr_rewrite_replace(rw, y, hr_rewrite_value(rw, n->in[0]));
    else if (x && hr_shape_eq(x->shape, y->shape) && !is_output) hr_rewrite_replace(rw, y, x);
    else if (x) hr_rewrite_replace(rw, y, hr_graph_reshape(rw->to, x, y->shape));
    else hr_rewrite_copy(rw, n);
}

hr_status hr_pass_identity(const hr_graph *g, hr_graph **out)
{
    hr_rewrite rw;
    *out = NULL;
    HR_TRY(hr_rewrite_begin(g, &rw));
    for (size_t i = 0; i < g->n_nodes && !rw.to->status; i++) rewrite_node(&rw, g->nodes[i]);
    return hr_rewrite_finish(&rw, out);
}
