/* Copying a graph while changing it. See rewrite.h. Runs at start-up.
 *
 * Builders' sticky failures make this short: a rewrite never checks between nodes, and finish
 * reports what went wrong first. */
#include "graph/rewrite.h"

hr_status hr_rewrite_begin(const hr_graph *from, hr_rewrite *rw)
{
    *rw = (hr_rewrite){ .from = from };
    HR_TRY(hr_graph_create(from->name, &rw->to));
    rw->map = hr_alloc_array0(from->n_values + 1, sizeof *rw->map);
    if (!rw->map) {
        hr_graph_destroy(rw->to);
        return hr_fail(HR_RESOURCE_EXHAUSTED, "graph %s: rewriting", from->name);
    }
    if (from->has_contract) hr_graph_contract(rw->to, from->activation);
    for (size_t i = 0; i < from->n_inputs; i++) {
        const hr_value *v = from->inputs[i];
        rw->map[v->id] = hr_graph_input(rw->to, v->name, v->dtype, v->shape, v->live);
    }
    return HR_OK;
}

hr_value *hr_rewrite_value(hr_rewrite *rw, const hr_value *v)
{
    if (!v) return NULL;
    if (!rw->map[v->id] && v->kind == HR_VALUE_WEIGHT)
        rw->map[v->id] = hr_graph_weight(rw->to, v->weight);
    if (!rw->map[v->id] && v->kind == HR_VALUE_CONST)
        rw->map[v->id] = hr_graph_const(rw->to, v->name, v->data, v->shape);
    return rw->map[v->id];
}

void hr_rewrite_replace(hr_rewrite *rw, const hr_value *v, hr_value *to_value)
{
    rw->map[v->id] = to_value;
}

void hr_rewrite_copy(hr_rewrite *rw, const hr_node *n)
{
    hr_value *in[HR_NODE_MAX_IN];
    hr_node *node = NULL;
    for (int i = 0; i < n->n_in; i++) in[i] = hr_rewrite_value(rw, n->in[i]);
    if (n->op == HR_OP_reshape) {
        rw->map[n->out[0]->id] = hr_graph_reshape(rw->to, in[0], n->out[0]->shape);
        return;
    }
    hr_graph_op(rw->to, n->op, in, n->n_in, &n->attrs, &node);
    for (int i = 0; node && i < n->n_out; i++) rw->map[n->out[i]->id] = node->out[i];
}

static void copy_outputs(hr_rewrite *rw)
{
    for (size_t i = 0; i < rw->from->n_outputs && !rw->to->status; i++) {
        const struct hr_output *o = &rw->from->outputs[i];
        hr_value *v = hr_rewrite_value(rw, o->value);
        if (o->donor < 0) hr_graph_output(rw->to, o->name, v);
        else hr_graph_output_donated(rw->to, o->name, v, rw->to->inputs[o->donor]);
    }
}

hr_status hr_rewrite_finish(hr_rewrite *rw, hr_graph **out)
{
    *out = NULL;
    copy_outputs(rw);
    hr_free(rw->map);
    hr_status st = hr_graph_finish(rw->to);
    if (st) hr_graph_destroy(rw->to);
    else *out = rw->to;
    return st;
}
