/* Graph to plan: order, places, steps.
 *
 * Runs at compile, on the engine thread. Nodes keep their order except that linears over the same
 * rows (q, k, v; gate, up) move together to the first of them and become one step, so that the
 * pool is woken once for all. A reshape is another name for its input's place; ops that continue a
 * donated input write where it lies; elementwise ops may overwrite an input that nobody reads
 * later; an output's place is the caller's buffer from the start, so nothing is copied at the end
 * in the usual case. What remains are slab places with a life range each, for memplan.c. */
#include <string.h>

#include "cpu/kernels/linear.h"
#include "cpu/kernels/table.h"
#include "cpu/plan.h"

/* A node at its step. */
typedef struct entry {
    const hr_node *node;
    int32_t step;    /* NOWHERE for a reshape */
    int32_t prep_of; /* linear: first entry of its group */
} entry;

typedef struct builder {
    hr_program *p; /* borrowed */
    const hr_graph *g;
    entry *entries; /* owned, [n_nodes] */
    int32_t n_entries;
    int32_t *place;    /* owned, [n_values]: of each value */
    int32_t *last_use; /* owned, [n_values]: step; of the value that holds the bytes */
    int32_t *prep;     /* owned, [n_nodes]: place of prep by first entry of a group */
    size_t steps_capacity, parts_capacity, places_capacity, copies_capacity;
} builder;

/* ---- values ---------------------------------------------------------------------------------- */

/* The value whose bytes v names. */
static const hr_value *root_of(const hr_value *v)
{
    while (v->kind == HR_VALUE_RESULT && v->producer->op == HR_OP_reshape) v = v->producer->in[0];
    return v;
}

static size_t row_bytes(const hr_value *v)
{
    return (size_t)(v->shape.rank ? hr_shape_row(v->shape) : 1) * hr_dtype_size(v->dtype);
}

static size_t value_bytes(const hr_value *v)
{
    return (size_t)hr_shape_count(v->shape) * hr_dtype_size(v->dtype);
}

static hr_kernel_place place_rule(const builder *b, hr_op op)
{
    const hr_kernel *k = hr_kernel_lookup(op, b->p->backend->isa);
    return k ? k->place : HR_PLACE_APART;
}

static bool is_packed(const hr_node *n, int i)
{
    return i == 1 && (n->op == HR_OP_linear || n->op == HR_OP_embed);
}

/* ---- order ----------------------------------------------------------------------------------- */

static bool same_rows(const hr_node *a, const hr_node *b)
{
    return b->op == HR_OP_linear && root_of(a->in[0]) == root_of(b->in[0]) &&
           a->in[4] == b->in[4] && a->in[3] == b->in[3] &&
           (!b->in[2] || b->in[2]->kind != HR_VALUE_RESULT);
}

static bool needs_prep(const hr_node *n)
{
    return hr_linear_prep_row(n, n->in[1]->weight->format) > 0;
}

/* The linears of one step must agree on what prep makes. */
static bool same_prep(const hr_node *a, const hr_node *b)
{
    return hr_linear_kind_of(a, a->in[1]->weight->format) ==
           hr_linear_kind_of(b, b->in[1]->weight->format);
}

static void schedule(builder *b, bool *done)
{
    enum { WINDOW = 64 }; /* nodes looked ahead for a linear over the same rows */
    int32_t step = 0;
    for (size_t i = 0; i < b->g->n_nodes; i++) {
        const hr_node *n = b->g->nodes[i];
        if (done[i]) continue;
        if (n->op == HR_OP_reshape) {
            b->entries[b->n_entries++] = (entry){ n, PLAN_NOWHERE, PLAN_NOWHERE };
            continue;
        }
        if (n->op != HR_OP_linear) {
            b->entries[b->n_entries++] = (entry){ n, step++, PLAN_NOWHERE };
            continue;
        }
        if (needs_prep(n)) step++;
        int32_t first = b->n_entries;
        for (size_t j = i; j < b->g->n_nodes && j < i + WINDOW; j++) {
            const hr_node *m = b->g->nodes[j];
            if (done[j] || !same_rows(n, m) || !same_prep(n, m)) continue;
            b->entries[b->n_entries++] = (entry){ m, step, first };
            done[j] = true;
        }
        step++;
    }
    b->p->n_steps = (size_t)step;
}

static void find_last_uses(builder *b)
{
    for (size_t i = 0; i < b->g->n_values; i++) b->last_use[i] = PLAN_NOWHERE;
    for (int32_t i = 0; i < b->n_entries; i++) {
        const entry *e = &b->entries[i];
        for (int k = 0; k < e->node->n_in && e->step != PLAN_NOWHERE; k++)
            if (e->node->in[k]) {
                int32_t *last = &b->last_use[root_of(e->node->in[k])->id];
                if (*last < e->step) *last = e->step;
            }
    }
    for (size_t i = 0; i < b->g->n_outputs; i++)
        b->last_use[root_of(b->g->outputs[i].value)->id] = PLAN_END;
}

/* ---- places ---------------------------------------------------------------------------------- */

static hr_status add_place(builder *b, plan_place place, int32_t *out)
{
    *out = PLAN_NOWHERE;
    HR_TRY(hr_grow((void **)&b->p->places, &b->places_capacity, b->p->n_places + 1, sizeof place));
    *out = (int32_t)b->p->n_places;
    b->p->places[b->p->n_places++] = place;
    return HR_OK;
}

static hr_status add_copy(builder *b, plan_copy copy)
{
    HR_TRY(hr_grow((void **)&b->p->copies, &b->copies_capacity, b->p->n_copies + 1, sizeof copy));
    b->p->copies[b->p->n_copies++] = copy;
    return HR_OK;
}

static hr_status place_inputs(builder *b)
{
    for (size_t i = 0; i < b->g->n_inputs; i++) {
        const hr_value *v = b->g->inputs[i];
        plan_place place = { .kind = PLAN_INPUT, .index = (int32_t)i, .bytes = value_bytes(v) };
        HR_TRY(add_place(b, place, &b->place[v->id]));
    }
    return HR_OK;
}

/* Constants, copied so that the plan outlives nothing and kernels may load whole registers. */
static hr_status place_constants(builder *b)
{
    size_t bytes = 0;
    for (size_t i = 0; i < b->g->n_values; i++)
        if (b->g->values[i]->kind == HR_VALUE_CONST)
            bytes += (value_bytes(b->g->values[i]) + 63) & ~(size_t)63;
    if (!bytes) return HR_OK;
    HR_TRY(hr_region_map(bytes, HR_CPU_PAGES_SMALL, "constants", &b->p->constants));
    uint8_t *at = b->p->constants.base;
    for (size_t i = 0; i < b->g->n_values; i++) {
        const hr_value *v = b->g->values[i];
        if (v->kind != HR_VALUE_CONST) continue;
        memcpy(at, v->data, value_bytes(v));
        HR_TRY(add_place(b, (plan_place){ .kind = PLAN_FIXED, .fixed = at }, &b->place[v->id]));
        at += (value_bytes(v) + 63) & ~(size_t)63;
    }
    return HR_OK;
}

/* A weight read as a plain vector (norms, biases, sinks). */
static hr_status place_vector(builder *b, const hr_value *v)
{
    if (b->place[v->id] != PLAN_NOWHERE) return HR_OK;
    if (v->shape.rank > 1)
        return hr_fail(HR_UNIMPLEMENTED, "weight %s: only linear and embed take a matrix",
                       v->weight->name);
    const hr_packed *packed;
    HR_TRY(hr_weights_get(b->p->backend, v->weight, &packed));
    return add_place(b, (plan_place){ .kind = PLAN_FIXED, .fixed = packed->data },
                     &b->place[v->id]);
}

static hr_status place_weights(builder *b)
{
    for (size_t i = 0; i < b->g->n_nodes; i++) {
        const hr_node *n = b->g->nodes[i];
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] && n->in[k]->kind == HR_VALUE_WEIGHT && !is_packed(n, k))
                HR_TRY(place_vector(b, n->in[k]));
    }
    return HR_OK;
}

static void extend_life(builder *b, int32_t place, const hr_value *v)
{
    plan_place *p = &b->p->places[place];
    int32_t last = b->last_use[v->id];
    if (p->last < last) p->last = last;
}

/* May result r of this entry overwrite input 0? The kernel allows it, the bytes fit, and nobody
 * reads the input later or through another operand. */
static bool may_overwrite(const builder *b, const entry *e, int r)
{
    const hr_node *n = e->node;
    const hr_value *x = n->in[0];
    if (r != 0 || place_rule(b, n->op) != HR_PLACE_INPLACE || x->kind != HR_VALUE_RESULT)
        return false;
    const plan_place *p = &b->p->places[b->place[x->id]];
    if (p->kind != PLAN_SLAB || p->last != e->step || p->bytes != value_bytes(n->out[0]))
        return false;
    for (int k = 1; k < n->n_in; k++)
        if (n->in[k] && b->place[n->in[k]->id] == b->place[x->id]) return false;
    return true;
}

/* Does the place of input 0 belong to whoever continues it? */
static bool may_continue(const builder *b, const entry *e)
{
    const plan_place *p = &b->p->places[b->place[e->node->in[0]->id]];
    if (p->kind == PLAN_SLAB) return p->last == e->step;
    if (p->kind != PLAN_INPUT) return false;
    for (size_t i = 0; i < b->g->n_outputs; i++)
        if (b->g->outputs[i].donor == p->index) return true;
    return false;
}

static hr_status place_result(builder *b, const entry *e, int r)
{
    const hr_value *v = e->node->out[r];
    bool continues = r == 0 && place_rule(b, e->node->op) == HR_PLACE_DONATED;
    if (continues ? may_continue(b, e) : may_overwrite(b, e, r)) {
        b->place[v->id] = b->place[e->node->in[0]->id];
        extend_life(b, b->place[v->id], v);
        return HR_OK;
    }
    plan_place place = {
        .kind = PLAN_SLAB, .bytes = value_bytes(v), .first = e->step, .last = e->step
    };
    HR_TRY(add_place(b, place, &b->place[v->id]));
    extend_life(b, b->place[v->id], v);
    if (!continues) return HR_OK;
    /* A table that is not donated must survive: its continuation starts as a copy. */
    return add_copy(b, (plan_copy){ .from = b->place[e->node->in[0]->id],
                                    .to = b->place[v->id],
                                    .before = e->step,
                                    .row_bytes = row_bytes(v),
                                    .value = v });
}

static hr_status place_prep(builder *b, const entry *e, int32_t index)
{
    const hr_node *n = e->node;
    if (n->op != HR_OP_linear || e->prep_of != index || !needs_prep(n)) return HR_OK;
    size_t bytes = hr_linear_prep_row(n, n->in[1]->weight->format) * (size_t)n->in[0]->shape.dim[0];
    plan_place place = { .kind = PLAN_SLAB, .bytes = bytes, .first = e->step - 1, .last = e->step };
    return add_place(b, place, &b->prep[index]);
}

static hr_status place_results(builder *b)
{
    for (int32_t i = 0; i < b->n_entries; i++) {
        const entry *e = &b->entries[i];
        if (e->node->op == HR_OP_reshape) {
            b->place[e->node->out[0]->id] = b->place[e->node->in[0]->id];
            continue;
        }
        for (int r = 0; r < e->node->n_out; r++) HR_TRY(place_result(b, e, r));
        HR_TRY(place_prep(b, e, i));
    }
    return HR_OK;
}

static hr_status copy_at_end(builder *b, const hr_value *v, int32_t to)
{
    return add_copy(b, (plan_copy){ .from = b->place[v->id],
                                    .to = to,
                                    .before = (int32_t)b->p->n_steps,
                                    .row_bytes = row_bytes(v),
                                    .value = v });
}

/* An output is made where the caller wants it; what cannot be is copied at the end. */
static hr_status place_outputs(builder *b)
{
    for (size_t i = 0; i < b->g->n_outputs; i++) {
        const hr_value *v = b->g->outputs[i].value;
        int donor = b->g->outputs[i].donor;
        int32_t at = b->place[v->id];
        plan_place *p = &b->p->places[at];
        if (donor >= 0) {
            int32_t to = b->place[b->g->inputs[donor]->id];
            if (at != to) HR_TRY(copy_at_end(b, v, to));
        } else if (p->kind == PLAN_SLAB) {
            p->kind = PLAN_OUTPUT;
            p->index = (int32_t)i;
        } else {
            plan_place place = { .kind = PLAN_OUTPUT,
                                 .index = (int32_t)i,
                                 .bytes = value_bytes(v) };
            int32_t to;
            HR_TRY(add_place(b, place, &to));
            HR_TRY(copy_at_end(b, v, to));
        }
    }
    return HR_OK;
}

/* ---- slab ------------------------------------------------------------------------------------ */

static hr_status lay_slab(hr_program *p)
{
    size_t n = 0;
    hr_span *spans = hr_alloc_array0(p->n_places + 1, sizeof *spans);
    if (!spans) return hr_fail(HR_RESOURCE_EXHAUSTED, "memory plan of %zu values", p->n_places);
    for (size_t i = 0; i < p->n_places; i++) {
        const plan_place *v = &p->places[i];
        if (v->kind == PLAN_SLAB)
            spans[n++] = (hr_span){ .bytes = v->bytes, .first = v->first, .last = v->last };
    }
    hr_status st = hr_memplan(spans, n, &p->slab_bytes);
    n = 0;
    for (size_t i = 0; i < p->n_places && !st; i++)
        if (p->places[i].kind == PLAN_SLAB) p->places[i].offset = spans[n++].offset;
    hr_free(spans);
    return st;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static hr_status fill_part(builder *b, const entry *e, plan_part *part)
{
    const hr_node *n = e->node;
    hr_cpu_backend *backend = b->p->backend;
    part->args.node = n;
    for (int k = 0; k < HR_NODE_MAX_IN; k++) {
        part->in[k] = PLAN_NOWHERE;
        if (k < n->n_in && n->in[k] && !is_packed(n, k)) part->in[k] = b->place[n->in[k]->id];
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

static hr_status add_part(builder *b, const plan_part *part, int32_t step)
{
    hr_program *p = b->p;
    HR_TRY(hr_grow((void **)&p->parts, &b->parts_capacity, p->n_parts + 1, sizeof *part));
    p->parts[p->n_parts] = *part;
    plan_step *s = &p->steps[step];
    if (s->n_parts++ == 0) s->first_part = (int32_t)p->n_parts;
    p->n_parts++;
    return HR_OK;
}

static hr_status add_prep(builder *b, const plan_part *linear, int32_t step)
{
    plan_part prep = *linear;
    prep.kernel = hr_kernel_linear_prep(b->p->backend->isa);
    return add_part(b, &prep, step);
}

static hr_status build_steps(builder *b)
{
    hr_program *p = b->p;
    p->steps = hr_alloc_array0(p->n_steps + 1, sizeof *p->steps);
    if (!p->steps) return hr_fail(HR_RESOURCE_EXHAUSTED, "plan of %zu steps", p->n_steps);
    for (int32_t i = 0; i < b->n_entries; i++) {
        const entry *e = &b->entries[i];
        if (e->step == PLAN_NOWHERE) continue;
        plan_part part = { 0 };
        HR_TRY(fill_part(b, e, &part));
        if (e->prep_of == i && part.prep != PLAN_NOWHERE) HR_TRY(add_prep(b, &part, e->step - 1));
        HR_TRY(add_part(b, &part, e->step));
    }
    return HR_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static hr_status build(builder *b, bool *done)
{
    for (size_t i = 0; i < b->g->n_values; i++) b->place[i] = PLAN_NOWHERE;
    for (size_t i = 0; i < b->g->n_nodes; i++) b->prep[i] = PLAN_NOWHERE;
    schedule(b, done);
    find_last_uses(b);
    HR_TRY(place_inputs(b));
    HR_TRY(place_constants(b));
    HR_TRY(place_weights(b));
    HR_TRY(place_results(b));
    HR_TRY(place_outputs(b));
    HR_TRY(lay_slab(b->p));
    HR_TRY(build_steps(b));
    b->p->base = hr_alloc_array0(b->p->n_places + 1, sizeof *b->p->base);
    return b->p->base ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "plan");
}

hr_status hr_plan_build(hr_program *p)
{
    builder b = { .p = p, .g = p->graph };
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
