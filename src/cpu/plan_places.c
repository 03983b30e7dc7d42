/* Where every value of a plan lies.
 *
 * A reshape is another name for its input's place; ops that continue a donated input write where it
 * lies; elementwise ops may overwrite an input that nobody reads later; an output's place is the
 * caller's buffer from the start, so nothing is copied at the end in the usual case. What only a
 * chain's own nodes see has one row in every worker's frame instead of a row for each of the
 * program's. What remains are slab places with a life range each, for memplan.c. */
#include <string.h>

#include "cpu/kernels/table.h"
#include "cpu/plan_build.h"

/* ---- values ---------------------------------------------------------------------------------- */

static size_t row_bytes(const hr_value *v)
{
    return (size_t)(v->shape.rank ? hr_shape_row(v->shape) : 1) * hr_dtype_size(v->dtype);
}

static size_t value_bytes(const hr_value *v)
{
    return (size_t)hr_shape_count(v->shape) * hr_dtype_size(v->dtype);
}

static hr_kernel_place place_rule(const plan_builder *b, hr_op op)
{
    const hr_kernel *k = hr_kernel_lookup(op, b->p->backend->isa);
    return k ? k->place : HR_PLACE_APART;
}

/* ---- places ---------------------------------------------------------------------------------- */

static hr_status add_place(plan_builder *b, plan_place place, int32_t *out)
{
    *out = PLAN_NOWHERE;
    HR_TRY(hr_grow((void **)&b->p->places, &b->places_capacity, b->p->n_places + 1, sizeof place));
    *out = (int32_t)b->p->n_places;
    b->p->places[b->p->n_places++] = place;
    return HR_OK;
}

static hr_status add_copy(plan_builder *b, plan_copy copy)
{
    HR_TRY(hr_grow((void **)&b->p->copies, &b->copies_capacity, b->p->n_copies + 1, sizeof copy));
    b->p->copies[b->p->n_copies++] = copy;
    return HR_OK;
}

static hr_status place_inputs(plan_builder *b)
{
    for (size_t i = 0; i < b->g->n_inputs; i++) {
        const hr_value *v = b->g->inputs[i];
        plan_place place = { .kind = PLAN_INPUT, .index = (int32_t)i, .bytes = value_bytes(v) };
        HR_TRY(add_place(b, place, &b->place[v->id]));
    }
    return HR_OK;
}

/* Constants, copied so that the plan outlives nothing and kernels may load whole registers. */
static hr_status place_constants(plan_builder *b)
{
    size_t bytes = 0;
    for (size_t i = 0; i < b->g->n_values; i++)
        if (b->g->values[i]->kind == HR_VALUE_CONST)
            bytes += (value_bytes(b->g->values[i]) + 63) & ~(size_t)63;
    if (!bytes) return HR_OK;
    HR_TRY(
        hr_region_map(bytes, HR_CPU_PAGES_SMALL, HR_REGION_WHOLE, "constants", &b->p->constants));
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
static hr_status place_vector(plan_builder *b, const hr_value *v)
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

static hr_status place_weights(plan_builder *b)
{
    for (size_t i = 0; i < b->g->n_nodes; i++) {
        const hr_node *n = b->g->nodes[i];
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] && n->in[k]->kind == HR_VALUE_WEIGHT && !hr_plan_packed(n, k))
                HR_TRY(place_vector(b, n->in[k]));
    }
    return HR_OK;
}

/* The step of an entry, or PLAN_END. */
static int32_t step_of(const plan_builder *b, int32_t entry)
{
    return entry == PLAN_END ? PLAN_END : b->entries[entry].step;
}

static void extend_life(plan_builder *b, int32_t place, const hr_value *v)
{
    plan_place *p = &b->p->places[place];
    int32_t last = b->last_use[v->id];
    if (p->last < last) p->last = last;
}

/* Nobody outside the chain of entry e looks at v, which it makes. */
static bool stays_in_chain(const plan_builder *b, const plan_entry *e, const hr_value *v)
{
    int32_t last = b->last_use[v->id];
    return e->in_chain && (last == PLAN_NOWHERE || step_of(b, last) == e->step);
}

/* May result r of this entry overwrite input 0? The kernel allows it, the bytes fit, and nobody
 * reads the input later or through another operand. */
static bool may_overwrite(const plan_builder *b, int32_t entry, int r)
{
    const plan_entry *e = &b->entries[entry];
    const hr_node *n = e->node;
    const hr_value *x = n->in[0], *y = n->out[0];
    if (r != 0 || place_rule(b, n->op) != HR_PLACE_INPLACE || x->kind != HR_VALUE_RESULT)
        return false;
    const plan_place *p = &b->p->places[b->place[x->id]];
    if (p->last != entry) return false;
    if (p->kind == PLAN_FRAME) {
        if (!stays_in_chain(b, e, y) || p->bytes != row_bytes(y)) return false;
    } else if (p->kind != PLAN_SLAB || p->bytes != value_bytes(y)) {
        return false;
    }
    for (int k = 1; k < n->n_in; k++)
        if (n->in[k] && b->place[n->in[k]->id] == b->place[x->id]) return false;
    return true;
}

/* Does the place of input 0 belong to whoever continues it? */
static bool may_continue(const plan_builder *b, int32_t entry)
{
    const plan_place *p = &b->p->places[b->place[b->entries[entry].node->in[0]->id]];
    if (p->kind == PLAN_SLAB) return p->last == entry;
    if (p->kind != PLAN_INPUT) return false;
    for (size_t i = 0; i < b->g->n_outputs; i++)
        if (b->g->outputs[i].donor == p->index) return true;
    return false;
}

static hr_status place_result(plan_builder *b, int32_t entry, int r)
{
    const plan_entry *e = &b->entries[entry];
    const hr_value *v = e->node->out[r], *x = e->node->in[0];
    bool continues = r == 0 && place_rule(b, e->node->op) == HR_PLACE_DONATED;
    if (continues ? may_continue(b, entry) : may_overwrite(b, entry, r)) {
        b->place[v->id] = b->place[x->id];
        extend_life(b, b->place[v->id], v);
        return HR_OK;
    }
    bool frame = stays_in_chain(b, e, v);
    plan_place place = { .kind = frame ? PLAN_FRAME : PLAN_SLAB,
                         .bytes = frame ? row_bytes(v) : value_bytes(v),
                         .first = entry,
                         .last = entry };
    HR_TRY(add_place(b, place, &b->place[v->id]));
    extend_life(b, b->place[v->id], v);
    if (!continues) return HR_OK;
    /* A table that is not donated must survive: its continuation starts as a copy. */
    return add_copy(b, (plan_copy){ .from = b->place[x->id],
                                    .to = b->place[v->id],
                                    .before = e->step,
                                    .row_bytes = row_bytes(v),
                                    .value = v });
}

static hr_status place_prep(plan_builder *b, const plan_entry *e, int32_t index)
{
    size_t bytes = e->prep_of == index ? hr_plan_prep_bytes(e->node) : 0;
    if (!bytes) return HR_OK;
    plan_place place = {
        .kind = PLAN_SLAB, .bytes = bytes, .first = index, .last = index, .prep = true
    };
    return add_place(b, place, &b->prep[index]);
}

static hr_status place_results(plan_builder *b)
{
    for (int32_t i = 0; i < b->n_entries; i++) {
        const plan_entry *e = &b->entries[i];
        if (e->node->op == HR_OP_reshape) {
            b->place[e->node->out[0]->id] = b->place[e->node->in[0]->id];
            continue;
        }
        for (int r = 0; r < e->node->n_out; r++) HR_TRY(place_result(b, i, r));
        HR_TRY(place_prep(b, e, i));
    }
    return HR_OK;
}

static hr_status copy_at_end(plan_builder *b, const hr_value *v, int32_t to)
{
    return add_copy(b, (plan_copy){ .from = b->place[v->id],
                                    .to = to,
                                    .before = (int32_t)b->p->n_steps,
                                    .row_bytes = row_bytes(v),
                                    .value = v });
}

/* An output is made where the caller wants it; what cannot be is copied at the end. */
static hr_status place_outputs(plan_builder *b)
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

/* A worker's frame: what chains keep of the row at hand, placed as the slab is, but by entries. */
static hr_status lay_frame(hr_program *p, hr_span *spans)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_places; i++) {
        const plan_place *v = &p->places[i];
        if (v->kind == PLAN_FRAME)
            spans[n++] = (hr_span){ .bytes = v->bytes, .first = v->first, .last = v->last };
    }
    HR_TRY(hr_memplan(spans, n, &p->frame_bytes));
    n = 0;
    for (size_t i = 0; i < p->n_places; i++)
        if (p->places[i].kind == PLAN_FRAME) p->places[i].offset = spans[n++].offset;
    return HR_OK;
}

/* The steps that a place, or all frames, must outlast. Prep is made a step before its linears. */
static hr_span slab_span(const plan_builder *b, size_t place)
{
    const plan_place *v = &b->p->places[place];
    hr_span s = { .bytes = v->bytes,
                  .first = step_of(b, v->first) - v->prep,
                  .last = step_of(b, v->last) };
    return s;
}

static hr_span frame_span(const plan_builder *b)
{
    size_t workers = (size_t)hr_pool_threads(b->p->backend->pool);
    hr_span s = { .bytes = b->p->frame_bytes * workers, .first = PLAN_END };
    for (int32_t i = 0; i < b->n_entries; i++) {
        if (!b->entries[i].in_chain) continue;
        if (s.first == PLAN_END) s.first = b->entries[i].step;
        s.last = b->entries[i].step;
    }
    return s;
}

static hr_status lay_slab(plan_builder *b, hr_span *spans)
{
    hr_program *p = b->p;
    size_t n = 0;
    for (size_t i = 0; i < p->n_places; i++)
        if (p->places[i].kind == PLAN_SLAB) spans[n++] = slab_span(b, i);
    if (p->frame_bytes) spans[n++] = frame_span(b);
    HR_TRY(hr_memplan(spans, n, &p->slab_bytes));
    n = 0;
    for (size_t i = 0; i < p->n_places; i++)
        if (p->places[i].kind == PLAN_SLAB) p->places[i].offset = spans[n++].offset;
    if (p->frame_bytes) p->frame_offset = spans[n].offset;
    return HR_OK;
}

static hr_status lay_memory(plan_builder *b)
{
    hr_span *spans = hr_alloc_array0(b->p->n_places + 1, sizeof *spans);
    if (!spans) return hr_fail(HR_RESOURCE_EXHAUSTED, "memory plan of %zu values", b->p->n_places);
    hr_status st = lay_frame(b->p, spans);
    if (!st) st = lay_slab(b, spans);
    hr_free(spans);
    return st;
}

hr_status hr_plan_lay(plan_builder *b)
{
    HR_TRY(place_inputs(b));
    HR_TRY(place_constants(b));
    HR_TRY(place_weights(b));
    HR_TRY(place_results(b));
    HR_TRY(place_outputs(b));
    return lay_memory(b);
}
