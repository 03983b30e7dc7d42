/* The dtype contract of a model's graph: an activation keeps its dtype from the embedding to the
 * last norm.
 *
 * Runs at start-up, for every node as it is added and again whenever a graph is verified. Most ops
 * cannot break it, for inference gives their result the dtype of their rows. Those whose dtype is
 * stated can: an embedding, a linear (float32 scales once promoted a quantised product unnoticed),
 * a sum over devices. A cast says what it does, and what computes behind it keeps its dtype. */
#include "graph/graph_int.h"

#include <stdio.h>

void hr_graph_contract(hr_graph *g, hr_dtype activation)
{
    g->has_contract = true;
    g->activation = activation;
}

/* The dtype that rows had before they became int8; false where nobody here made them so. */
static bool rows_dtype(const hr_value *x, hr_dtype *out)
{
    while (x->dtype == HR_DTYPE_I8) {
        if (!x->producer) return false;
        x = x->producer->in[0];
    }
    *out = x->dtype;
    return true;
}

/* Slices of a matrix cut by columns give partial sums, which stay float32 until they are added. */
static bool gives_partial_sums(const hr_node *n)
{
    const hr_weight *w = n->in[1]->weight;
    return w->shard.count && w->shard.axis == 1;
}

static hr_status refuse(const hr_graph *g, const hr_node *n, hr_dtype want, const char *whose)
{
    char text[HR_NODE_TEXT];
    return hr_fail(HR_FAILED_PRECONDITION, "graph %s: %s gives %s where %s %s", g->name,
                   hr_graph_node_text(n, text), hr_dtype_name(n->out[0]->dtype), whose,
                   hr_dtype_name(want));
}

hr_status hr_graph_check_contract(const hr_graph *g, const hr_node *n)
{
    hr_dtype want;
    if (!g->has_contract) return HR_OK;
    if (n->op == HR_OP_linear) {
        if (gives_partial_sums(n) || !rows_dtype(n->in[0], &want) || n->out[0]->dtype == want)
            return HR_OK;
        return refuse(g, n, want, "its rows are");
    }
    if ((n->op == HR_OP_embed || n->op == HR_OP_all_reduce) && n->out[0]->dtype != g->activation)
        return refuse(g, n, g->activation, "the activation dtype is");
    return HR_OK;
}

static const char *weight_of(const hr_node *n)
{
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] && n->in[k]->kind == HR_VALUE_WEIGHT) return n->in[k]->name;
    return NULL;
}

const char *hr_graph_node_text(const hr_node *n, char out[HR_NODE_TEXT])
{
    const hr_node *near = n;
    const char *weight = NULL;
    while (near && !(weight = weight_of(near))) near = near->in[0] ? near->in[0]->producer : NULL;
    snprintf(out, HR_NODE_TEXT, "%s%s%s", hr_op_name(n->op),
             !weight     ? ""
             : near == n ? " with "
                         : " behind ",
             weight ? weight : "");
    return out;
}
