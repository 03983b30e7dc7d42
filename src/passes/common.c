/* Computes equal things once: same op, same operands, same attributes. Runs at start-up.
 *
 * Values are immutable (each write to a donated buffer gives a new one), so equal operands are
 * enough, and reusing the earlier result only ever moves a read forward. In-place ops are left
 * alone. Earlier nodes are found by op and first operand: each new value has a list of the nodes
 * that read it first, the latest in front. */
#include "passes/passes_int.h"

typedef struct common {
    hr_rewrite rw;
    size_t *latest; /* owned, by value of the new graph: its latest reader's number + 1 */
    size_t *before; /* owned, by node of the new graph: the reader before it, + 1 */
    size_t listed;  /* nodes of the new graph that are in the lists */
} common;

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

/* Puts what was made since the last call into the lists. */
static void list_new(common *c)
{
    const hr_graph *to = c->rw.to;
    for (; c->listed < to->n_nodes; c->listed++) {
        size_t *latest = &c->latest[to->nodes[c->listed]->in[0]->id];
        c->before[c->listed] = *latest;
        *latest = c->listed + 1;
    }
}

static const hr_node *find(common *c, const hr_node *n)
{
    const hr_value *x = hr_rewrite_value(&c->rw, n->in[0]);
    if (!x || hr_op_is_in_place(n->op)) return NULL;
    for (size_t i = c->latest[x->id]; i; i = c->before[i - 1])
        if (same_node(&c->rw, n, c->rw.to->nodes[i - 1])) return c->rw.to->nodes[i - 1];
    return NULL;
}

/* Two outputs never share memory. */
static bool has_output(const hr_graph *g, const hr_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        if (hr_pass_is_output(g, n->out[i])) return true;
    return false;
}

static void rewrite_node(common *c, const hr_node *n)
{
    const hr_node *made = has_output(c->rw.from, n) ? NULL : find(c, n);
    for (int k = 0; made && k < n->n_out; k++) hr_rewrite_replace(&c->rw, n->out[k], made->out[k]);
    if (made) return;
    hr_rewrite_copy(&c->rw, n);
    list_new(c);
}

static hr_status rewrite(common *c, const hr_graph *g, hr_graph **out)
{
    HR_TRY(hr_rewrite_begin(g, &c->rw));
    for (size_t i = 0; i < g->n_nodes && !c->rw.to->status; i++) rewrite_node(c, g->nodes[i]);
    return hr_rewrite_finish(&c->rw, out);
}

hr_status hr_pass_common(const hr_graph *g, hr_graph **out)
{
    common c = { 0 };
    *out = NULL;
    /* a rewrite that only leaves out makes no more than there was */
    c.latest = hr_alloc_array0(g->n_values + 1, sizeof *c.latest);
    c.before = hr_alloc_array0(g->n_nodes + 1, sizeof *c.before);
    hr_status st = c.latest && c.before
                       ? rewrite(&c, g, out)
                       : hr_fail(HR_RESOURCE_EXHAUSTED, "graph %s: equal nodes", g->name);
    hr_free(c.latest);
    hr_free(c.before);
    return st;
}
