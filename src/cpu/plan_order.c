/* The order of a plan: which node runs in which step, and who reads a value last.
 *
 * Nodes keep their order except that linears over the same rows (q, k, v; gate, up) move together
 * to the first of them and become one step, so that the pool is woken once for all. Kernels that
 * keep to their own row (the sampler's) become one step, too, as long as they follow one another:
 * a chain. A worker takes a row through the whole chain before the next one, so that a row of
 * logits is fetched from memory once, however many ops look at it. */
#include "cpu/kernels/table.h"
#include "cpu/plan_build.h"

const hr_value *hr_plan_root(const hr_value *v)
{
    while (v->kind == HR_VALUE_RESULT && v->producer->op == HR_OP_reshape) v = v->producer->in[0];
    return v;
}

/* ---- linears --------------------------------------------------------------------------------- */

static bool same_rows(const hr_node *a, const hr_node *b)
{
    return b->op == HR_OP_linear && hr_plan_root(a->in[0]) == hr_plan_root(b->in[0]) &&
           a->in[4] == b->in[4] && a->in[3] == b->in[3] &&
           (!b->in[2] || b->in[2]->kind != HR_VALUE_RESULT);
}

size_t hr_plan_prep_bytes(const hr_node *n)
{
    if (n->op == HR_OP_attention) return hr_attention_prep_bytes(n);
    if (n->op != HR_OP_linear) return 0;
    return hr_linear_prep_bytes(n, n->in[1]->weight->format, n->in[0]->shape.dim[0]);
}

/* The linears of one step must agree on what prep makes. */
static bool same_prep(const hr_node *a, const hr_node *b)
{
    return hr_linear_kind_of(a, a->in[1]->weight->format) ==
           hr_linear_kind_of(b, b->in[1]->weight->format);
}

static int32_t add_linears(plan_builder *b, size_t i, int32_t step, bool *done)
{
    enum { WINDOW = 64 }; /* nodes looked ahead for a linear over the same rows */
    const hr_node *n = b->g->nodes[i];
    if (hr_plan_prep_bytes(n)) step++;
    int32_t first = b->n_entries;
    for (size_t j = i; j < b->g->n_nodes && j < i + WINDOW; j++) {
        const hr_node *m = b->g->nodes[j];
        if (done[j] || !same_rows(n, m) || !same_prep(n, m)) continue;
        b->entries[b->n_entries++] = (plan_entry){ m, step, first, false };
        done[j] = true;
    }
    return step + 1;
}

/* ---- chains ---------------------------------------------------------------------------------- */

static bool keeps_to_its_row(const plan_builder *b, const hr_node *n)
{
    const hr_kernel *k = hr_kernel_lookup(n->op, b->p->backend->isa);
    return k && k->own_row;
}

/* n goes on with the chain that the last entry belongs to: rows are the same, one by one. */
static bool continues_chain(const plan_builder *b, const hr_node *n)
{
    if (!b->n_entries) return false;
    const plan_entry *last = &b->entries[b->n_entries - 1];
    if (!last->in_chain || !keeps_to_its_row(b, n)) return false;
    const hr_value *x = last->node->out[0], *y = n->out[0];
    return x->live == y->live && x->shape.dim[0] == y->shape.dim[0];
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void schedule(plan_builder *b, bool *done)
{
    int32_t step = 0;
    for (size_t i = 0; i < b->g->n_nodes; i++) {
        const hr_node *n = b->g->nodes[i];
        if (done[i]) continue;
        if (n->op == HR_OP_linear) {
            step = add_linears(b, i, step, done);
            continue;
        }
        plan_entry e = { n, PLAN_NOWHERE, PLAN_NOWHERE, false };
        if (n->op == HR_OP_attention && hr_plan_prep_bytes(n)) {
            e.prep_of = b->n_entries;
            step++;
        }
        if (n->op != HR_OP_reshape) {
            e.step = continues_chain(b, n) ? step - 1 : step++;
            e.in_chain = keeps_to_its_row(b, n);
        }
        b->entries[b->n_entries++] = e;
    }
    b->p->n_steps = (size_t)step;
}

static void find_last_uses(plan_builder *b)
{
    for (size_t i = 0; i < b->g->n_values; i++) b->last_use[i] = PLAN_NOWHERE;
    for (int32_t i = 0; i < b->n_entries; i++) {
        const plan_entry *e = &b->entries[i];
        for (int k = 0; k < e->node->n_in && e->step != PLAN_NOWHERE; k++)
            if (e->node->in[k]) b->last_use[hr_plan_root(e->node->in[k])->id] = i;
    }
    for (size_t i = 0; i < b->g->n_outputs; i++)
        b->last_use[hr_plan_root(b->g->outputs[i].value)->id] = PLAN_END;
}

void hr_plan_order(plan_builder *b, bool *done)
{
    schedule(b, done);
    find_last_uses(b);
}
