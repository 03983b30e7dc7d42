/* Is this graph what it claims to be? Order, arity, shapes, dtypes, donation.
 *
 * Runs at start-up: when a graph is finished, after every pass, and before a backend compiles it.
 * Everything inference states is computed again and compared, so a pass that edits a value by hand
 * is caught here. Donation is checked by walking each donated output back to its input: along that
 * chain every operand must have had its last reader. */
#include "graph/graph_int.h"

static hr_status refuse(const hr_graph *g, size_t node, const char *what)
{
    return hr_fail(HR_INTERNAL, "graph %s: node %zu (%s): %s", g->name, node,
                   hr_op_name(g->nodes[node]->op), what);
}

static bool owns(const hr_graph *g, const hr_value *v)
{
    return v && v->id < g->n_values && g->values[v->id] == v;
}

/* What the walk over all nodes finds out about each value. */
typedef struct seen {
    bool ready, is_output;
    const hr_node *last_reader; /* NULL = none */
} seen;

/* Leaves are always there; a result is there once its node has run. */
static hr_status verify_operands(const hr_graph *g, size_t i, seen *values)
{
    const hr_node *n = g->nodes[i];
    if (n->n_in != hr_op_inputs(n->op) || n->n_out != hr_op_results(n->op))
        return refuse(g, i, "wrong number of operands or results");
    for (int k = 0; k < n->n_in; k++) {
        const hr_value *v = n->in[k];
        if (!v) continue;
        if (!owns(g, v)) return refuse(g, i, "an operand of another graph");
        if (v->kind == HR_VALUE_RESULT && !values[v->id].ready)
            return refuse(g, i, "an operand is used before it is computed");
        values[v->id].last_reader = n;
    }
    return HR_OK;
}

static hr_status verify_results(const hr_graph *g, size_t i, seen *values)
{
    const hr_node *n = g->nodes[i];
    hr_result_spec spec[HR_NODE_MAX_OUT];
    if (!owns(g, n->out[0])) return refuse(g, i, "no result");
    hr_shape shape = n->out[0]->shape;
    HR_TRY(hr_graph_results(n, n->op == HR_OP_reshape ? &shape : NULL, spec));
    for (int k = 0; k < n->n_out; k++) {
        const hr_value *v = n->out[k];
        if (!owns(g, v) || v->kind != HR_VALUE_RESULT || v->producer != n || v->result != k)
            return refuse(g, i, "a result that is not its own");
        if (v->dtype != spec[k].dtype || !hr_shape_eq(v->shape, spec[k].shape) ||
            v->live != spec[k].live)
            return refuse(g, i, "a result's shape or dtype is not what inference says");
        if (values[v->id].ready) return refuse(g, i, "it stands in the list twice");
        values[v->id].ready = true;
    }
    return hr_graph_check_contract(g, n);
}

/* From a donated output back to its input, counting the in-place nodes passed. */
static hr_status verify_donation(const hr_graph *g, const struct hr_output *o, const seen *values,
                                 size_t *writes)
{
    const hr_value *from = g->inputs[o->donor], *v = o->value;
    while (v != from) {
        const hr_node *n = v->kind == HR_VALUE_RESULT ? v->producer : NULL;
        if (!n || !hr_op_is_in_place(n->op))
            return hr_fail(HR_INTERNAL, "graph %s: output %s does not continue %s in place",
                           g->name, o->name, from->name);
        const hr_value *before = n->in[0];
        if (values[before->id].last_reader != n || values[before->id].is_output)
            return hr_fail(HR_INTERNAL, "graph %s: %s is read after %s overwrote it", g->name,
                           from->name, hr_op_name(n->op));
        for (int k = 1; k < n->n_in; k++)
            if (n->in[k] == before)
                return hr_fail(HR_INTERNAL, "graph %s: %s overwrites its own operand", g->name,
                               hr_op_name(n->op));
        ++*writes;
        v = before;
    }
    return HR_OK;
}

static hr_status verify_outputs(const hr_graph *g, seen *values)
{
    size_t writes = 0, in_place = 0;
    for (size_t i = 0; i < g->n_outputs; i++) {
        const struct hr_output *o = &g->outputs[i];
        if (!owns(g, o->value) ||
            (o->value->kind == HR_VALUE_RESULT && !values[o->value->id].ready))
            return hr_fail(HR_INTERNAL, "graph %s: output %s is never computed", g->name, o->name);
        values[o->value->id].is_output = true;
    }
    for (size_t i = 0; i < g->n_outputs; i++) {
        const struct hr_output *o = &g->outputs[i];
        if (o->donor < 0) continue;
        if ((size_t)o->donor >= g->n_inputs)
            return hr_fail(HR_INTERNAL, "graph %s: output %s continues no input", g->name, o->name);
        for (size_t k = 0; k < i; k++)
            if (g->outputs[k].donor == o->donor)
                return hr_fail(HR_INTERNAL, "graph %s: outputs %s and %s continue one input",
                               g->name, g->outputs[k].name, o->name);
        HR_TRY(verify_donation(g, o, values, &writes));
    }
    for (size_t i = 0; i < g->n_nodes; i++) in_place += hr_op_is_in_place(g->nodes[i]->op);
    if (writes != in_place)
        return hr_fail(HR_INTERNAL, "graph %s: %zu in-place writes reach no donated output",
                       g->name, in_place - writes);
    return HR_OK;
}

static hr_status verify_values(const hr_graph *g)
{
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i]->id != i)
            return hr_fail(HR_INTERNAL, "graph %s: value %zu is numbered %u", g->name, i,
                           g->values[i]->id);
    for (size_t i = 0; i < g->n_inputs; i++)
        if (!owns(g, g->inputs[i]) || g->inputs[i]->kind != HR_VALUE_INPUT)
            return hr_fail(HR_INTERNAL, "graph %s: input %zu is none", g->name, i);
    return HR_OK;
}

hr_status hr_graph_verify(const hr_graph *g)
{
    if (g->status) return hr_fail(g->status, "graph %s: %.440s", g->name, g->message);
    HR_TRY(verify_values(g));
    seen *values = hr_alloc_array0(g->n_values + 1, sizeof *values);
    if (!values) return hr_fail(HR_RESOURCE_EXHAUSTED, "graph %s: verification", g->name);
    hr_status st = HR_OK;
    for (size_t i = 0; !st && i < g->n_nodes; i++) {
        st = verify_operands(g, i, values);
        if (!st) st = verify_results(g, i, values);
    }
    if (!st) st = verify_outputs(g, values);
    hr_free(values);
    return st;
}

hr_status hr_graph_check_one_device(const hr_graph *g, const char *backend)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const hr_node *n = g->nodes[i];
        if ((n->op == HR_OP_all_reduce || n->op == HR_OP_all_gather) && n->attrs.group > 1)
            return hr_fail(HR_UNIMPLEMENTED,
                           "%s: the %s backend is one device, the program is for %d",
                           hr_op_name(n->op), backend, n->attrs.group);
    }
    return HR_OK;
}
