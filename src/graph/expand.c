/* Composites into primitives: what ref and StableHLO run, and what a fused kernel must equal.
 *
 * Runs at start-up. One function per composite, each the formula of its line in ops.def. */
#include "graph/graph_int.h"
#include "graph/rewrite.h"

static hr_value *operand(hr_rewrite *rw, const hr_node *n, int i)
{
    return hr_rewrite_value(rw, n->in[i]);
}

static hr_value *binary(hr_rewrite *rw, hr_op op, hr_value *a, hr_value *b)
{
    return hr_graph_op(rw->to, op, (hr_value *[]){ a, b }, 2, NULL, NULL);
}

static hr_value *gated(hr_rewrite *rw, const hr_node *n)
{
    hr_value *gate = hr_op_activation(rw->to, operand(rw, n, 0), n->attrs.act);
    return binary(rw, HR_OP_mul, gate, operand(rw, n, 1));
}

static hr_value *norm(hr_rewrite *rw, const hr_node *n, hr_value *x, hr_value *weight)
{
    return hr_op_rms_norm(rw->to, x, weight, n->attrs.eps, n->attrs.offset);
}

/* Results `first` and `first + 1` of n are the rows of x quantised. */
static void quantise(hr_rewrite *rw, const hr_node *n, hr_value *x, int first)
{
    hr_value *scale, *q = hr_op_quantise_rows(rw->to, x, n->attrs.group, &scale);
    hr_rewrite_replace(rw, n->out[first], q);
    hr_rewrite_replace(rw, n->out[first + 1], scale);
}

static void expand_add_rms_norm(hr_rewrite *rw, const hr_node *n)
{
    hr_value *sum = binary(rw, HR_OP_add, operand(rw, n, 0), operand(rw, n, 1));
    hr_value *y = norm(rw, n, sum, operand(rw, n, 2));
    hr_rewrite_replace(rw, n->out[0], sum);
    if (n->op == HR_OP_add_rms_norm) hr_rewrite_replace(rw, n->out[1], y);
    else quantise(rw, n, y, 1);
}

static void expand_node(hr_rewrite *rw, const hr_node *n)
{
    if (!hr_op_is_composite(n->op)) {
        hr_rewrite_copy(rw, n);
    } else if (n->op == HR_OP_gated) {
        hr_rewrite_replace(rw, n->out[0], gated(rw, n));
    } else if (n->op == HR_OP_gated_q8) {
        quantise(rw, n, gated(rw, n), 0);
    } else if (n->op == HR_OP_rms_norm_q8) {
        quantise(rw, n, norm(rw, n, operand(rw, n, 0), operand(rw, n, 1)), 0);
    } else if (n->op == HR_OP_add_rms_norm || n->op == HR_OP_add_rms_norm_q8) {
        expand_add_rms_norm(rw, n);
    } else {
        hr_graph_stick(rw->to, hr_fail(HR_UNIMPLEMENTED, "%s: no expansion", hr_op_name(n->op)));
    }
}

hr_status hr_graph_expand(const hr_graph *g, hr_graph **out)
{
    hr_rewrite rw;
    *out = NULL;
    HR_TRY(hr_rewrite_begin(g, &rw));
    for (size_t i = 0; i < g->n_nodes && !rw.to->status; i++) expand_node(&rw, g->nodes[i]);
    return hr_rewrite_finish(&rw, out);
}
