/* Graph to plan: order, places, steps.
 *
 * Runs at compile, on the engine thread. What decides is in plan_order.c and plan_places.c; here
 * their entries become parts with kernels. */
#include "cpu/plan_build.h"

#include "cpu/kernels/table.h"

/* ---- steps ----------------------------------------------------------------------------------- */

static hr_status fill_part(plan_builder *b, const plan_entry *e, plan_part *part)
{
    const hr_node *n = e->node;
    hr_cpu_backend *backend = b->p->backend;
    part->args.node = n;
    for (int k = 0; k < HR_NODE_MAX_IN; k++) {
        part->in[k] = PLAN_NOWHERE;
        if (k < n->n_in && n->in[k] && !hr_plan_packed(n, k)) part->in[k] = b->place[n->in[k]->id];
    }
    for (int k = 0; k < HR_NODE_MAX_OUT; k++)
        part->out[k] = k < n->n_out ? b->place[n->out[k]->id] : PLAN_NOWHERE;
    part->prep = e->prep_of == PLAN_NOWHERE ? PLAN_NOWHERE : b->prep[e->prep_of];
    if (n->op == HR_OP_linear || n->op == HR_OP_embed)
        HR_TRY(hr_weights_get(backend, n->in[1]->weight, &part->args.packed));
    part->kernel = hr_kernel_lookup(n->op, backend->isa);
    if (!part->kernel)
        return hr_fail(HR_UNIMPLEMENTED, "op %s has no %s kernel", hr_op_name(n->op),
                       hr_isa_name(backend->isa));
    if (n->op == HR_OP_linear) {
        hr_format f = part->args.packed->format;
        backend->products[f] |= (uint8_t)(1u << hr_linear_kind_of(n, f));
    }
    return HR_OK;
}

static hr_status add_part(plan_builder *b, const plan_part *part, int32_t step)
{
    hr_program *p = b->p;
    HR_TRY(hr_grow((void **)&p->parts, &b->parts_capacity, p->n_parts + 1, sizeof *part));
    p->parts[p->n_parts] = *part;
    plan_step *s = &p->steps[step];
    if (s->n_parts++ == 0) s->first_part = (int32_t)p->n_parts;
    p->n_parts++;
    return HR_OK;
}

static hr_status add_prep(plan_builder *b, const plan_part *user, int32_t step)
{
    plan_part prep = *user;
    hr_isa isa = b->p->backend->isa;
    bool linear = user->args.node->op == HR_OP_linear;
    prep.kernel = linear ? hr_kernel_linear_prep(isa) : hr_kernel_attention_parts(isa);
    return add_part(b, &prep, step);
}

static hr_status build_steps(plan_builder *b)
{
    hr_program *p = b->p;
    p->steps = hr_alloc_array0(p->n_steps + 1, sizeof *p->steps);
    if (!p->steps) return hr_fail(HR_RESOURCE_EXHAUSTED, "plan of %zu steps", p->n_steps);
    for (int32_t i = 0; i < b->n_entries; i++) {
        const plan_entry *e = &b->entries[i];
        if (e->step == PLAN_NOWHERE) continue;
        plan_part part = { 0 };
        HR_TRY(fill_part(b, e, &part));
        if (e->prep_of == i && part.prep != PLAN_NOWHERE) HR_TRY(add_prep(b, &part, e->step - 1));
        HR_TRY(add_part(b, &part, e->step));
        p->steps[e->step].chain = e->in_chain;
    }
    return HR_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static hr_status build(plan_builder *b, bool *done)
{
    for (size_t i = 0; i < b->g->n_values; i++) b->place[i] = PLAN_NOWHERE;
    for (size_t i = 0; i < b->g->n_nodes; i++) b->prep[i] = PLAN_NOWHERE;
    hr_plan_order(b, done);
    HR_TRY(hr_plan_lay(b));
    HR_TRY(build_steps(b));
    b->p->base = hr_alloc_array0(b->p->n_places + 1, sizeof *b->p->base);
    return b->p->base ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "plan");
}

hr_status hr_plan_build(hr_program *p)
{
    plan_builder b = { .p = p, .g = p->graph };
    size_t nodes = b.g->n_nodes + 1, values = b.g->n_values + 1;
    b.entries = hr_alloc_array0(nodes, sizeof *b.entries);
    b.place = hr_alloc_array0(values, sizeof *b.place);
    b.last_use = hr_alloc_array0(values, sizeof *b.last_use);
    b.prep = hr_alloc_array0(nodes, sizeof *b.prep);
    bool *done = hr_alloc_array0(nodes, sizeof *done);
    hr_status st = b.entries && b.place && b.last_use && b.prep && done
                       ? build(&b, done)
                       : hr_fail(HR_RESOURCE_EXHAUSTED, "plan of %zu nodes", b.g->n_nodes);
    hr_free(done);
    hr_free(b.prep);
    hr_free(b.last_use);
    hr_free(b.place);
    hr_free(b.entries);
    return st;
}
