/* Joins row-wise neighbours so that a row is read once: add + rms_norm, with quantise_rows behind,
 * rms_norm + quantise_rows, gated + quantise_rows. Runs at start-up.
 *
 * A chain is found at its first node and the composite stands there, which is legal because what
 * the later links add is a weight. The sum keeps its other readers (it is a result of the
 * composite); a norm or product that somebody else reads too ends the chain before it. */
#include "passes/passes_int.h"

/* What starts at a node: NULL where a link is missing. */
typedef struct chain {
    const hr_node *add, *norm, *gated, *quantise;
} chain;

/* Who reads a value of the old graph. */
typedef struct readers {
    const hr_node *only; /* that reads it, once; NULL where none does, or several, or an output */
    const hr_node *norm; /* the first row norm of it */
    bool some, taken;    /* taken: its node was a later link of some chain */
} readers;

/* A rank-2 norm by a leaf weight: one that may move up to where its operand is made. */
static bool is_row_norm(const hr_node *n)
{
    return n->op == HR_OP_rms_norm && n->in[0]->shape.rank == 2 &&
           n->in[1]->kind != HR_VALUE_RESULT;
}

static void find_readers(const hr_graph *g, readers *r)
{
    for (size_t i = 0; i < g->n_outputs; i++) r[g->outputs[i].value->id].some = true;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const hr_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            readers *x = n->in[k] ? &r[n->in[k]->id] : NULL;
            if (!x) continue;
            x->only = x->some ? NULL : n;
            x->some = true;
        }
        readers *x = &r[n->in[0]->id];
        if (is_row_norm(n) && !x->norm) x->norm = n;
    }
}

static const hr_node *only_quantise(const readers *r, const hr_node *n)
{
    const hr_node *q = n->out[0]->shape.rank == 2 ? r[n->out[0]->id].only : NULL;
    return q && q->op == HR_OP_quantise_rows ? q : NULL;
}

static chain find(const readers *r, const hr_node *n)
{
    chain c = { 0 };
    if (n->op == HR_OP_add && (c.norm = r[n->out[0]->id].norm) != NULL) c.add = n;
    if (is_row_norm(n)) c.norm = n;
    if (n->op == HR_OP_gated) c.gated = n;
    if (c.norm || c.gated) c.quantise = only_quantise(r, c.norm ? c.norm : c.gated);
    return c;
}

static hr_op composite(const chain *c)
{
    if (c->add) return c->quantise ? HR_OP_add_rms_norm_q8 : HR_OP_add_rms_norm;
    return c->norm ? HR_OP_rms_norm_q8 : HR_OP_gated_q8;
}

static void emit(hr_rewrite *rw, const chain *c)
{
    const hr_node *first = c->add ? c->add : c->norm ? c->norm : c->gated;
    const hr_node *last = c->quantise ? c->quantise : c->norm;
    hr_value *in[3] = { hr_rewrite_value(rw, first->in[0]), hr_rewrite_value(rw, first->in[1]) };
    hr_attrs attrs = c->norm ? c->norm->attrs : c->gated->attrs;
    hr_node *node;
    if (c->add) in[2] = hr_rewrite_value(rw, c->norm->in[1]);
    if (c->quantise) attrs.group = c->quantise->attrs.group;
    if (!hr_graph_op(rw->to, composite(c), in, c->add ? 3 : 2, &attrs, &node)) return;
    if (c->add) hr_rewrite_replace(rw, c->add->out[0], node->out[0]);
    for (int i = 0; i < last->n_out; i++)
        hr_rewrite_replace(rw, last->out[i], node->out[(c->add ? 1 : 0) + i]);
}

static void rewrite_node(hr_rewrite *rw, const hr_node *n, readers *r)
{
    if (r[n->out[0]->id].taken) return;
    chain c = find(r, n);
    if (!c.add && !c.quantise) {
        hr_rewrite_copy(rw, n);
        return;
    }
    if (c.norm) r[c.norm->out[0]->id].taken = true;
    if (c.quantise) r[c.quantise->out[0]->id].taken = true;
    emit(rw, &c);
}

hr_status hr_pass_fuse(const hr_graph *g, hr_graph **out)
{
    hr_rewrite rw;
    *out = NULL;
    readers *r = hr_alloc_array0(g->n_values + 1, sizeof *r);
    if (!r) return hr_fail(HR_RESOURCE_EXHAUSTED, "graph %s: fusing", g->name);
    hr_status st = hr_rewrite_begin(g, &rw);
    if (!st) {
        find_readers(g, r);
        for (size_t i = 0; i < g->n_nodes && !rw.to->status; i++) rewrite_node(&rw, g->nodes[i], r);
        st = hr_rewrite_finish(&rw, out);
    }
    hr_free(r);
    return st;
}
