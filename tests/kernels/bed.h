/* A test bed for one kernel: a node, its operands at 64-byte addresses, its results, and no
 * backend. Kernels are called as a plan would call them, in any split.
 *
 * Result bytes start as 0xa5, so that whatever a kernel leaves alone is seen. Test code: short
 * memory aborts. */
#ifndef HEADRACE_TESTS_KERNELS_BED_H
#define HEADRACE_TESTS_KERNELS_BED_H

#include <stdlib.h>

#include "conformance/ops_data.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/linear.h"
#include "cpu/kernels/table.h"

enum { BED_UNTOUCHED = 0xa5 };

typedef struct bed {
    const op_case *c;
    hr_graph *graph;
    hr_node *node;
    hr_weight weight, scale; /* of the operand that is a weight */
    hr_packed packed;
    void *in[HR_NODE_MAX_IN], *out[HR_NODE_MAX_OUT]; /* owned */
    size_t out_bytes[HR_NODE_MAX_OUT];
    void *prep, *scratch; /* owned */
} bed;

static inline void *bed_alloc(size_t bytes)
{
    void *p = hr_alloc_aligned(bytes ? bytes : 1, 64);
    if (!p) abort();
    return p;
}

static inline hr_status bed_read_rows(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    size_t row = hr_format_row_bytes(w->format, w->shape.dim[w->shape.rank - 1]);
    memcpy(to, (const char *)w->source + (size_t)first * row, (size_t)count * row);
    return HR_OK;
}

static inline void bed_pack(bed *b, const op_operand *o)
{
    b->weight = (hr_weight){ .name = "weight",
                             .shape = o->shape,
                             .format = o->format,
                             .read_rows = bed_read_rows,
                             .source = o->data };
    b->scale =
        (hr_weight){ .name = "scale",
                     .shape = HR_SHAPE(hr_shape_count(o->shape) / o->shape.dim[o->shape.rank - 1]),
                     .format = HR_FORMAT_F32,
                     .read_rows = bed_read_rows,
                     .source = o->scale };
    if (o->scale) b->weight.scale = &b->scale;
    void *scratch = bed_alloc(hr_pack_scratch(&b->weight));
    if (hr_pack_measure(&b->weight, &b->packed)) abort();
    b->packed.data = bed_alloc(b->packed.bytes);
    memset(b->packed.data, 0xff, b->packed.bytes); /* packing must fill what is read */
    if (hr_pack_panels(&b->packed, &b->weight, o->scale, 0, b->packed.experts * b->packed.panels,
                       scratch))
        abort();
    hr_free(scratch);
}

static inline hr_value *bed_operand(bed *b, int i)
{
    const op_operand *o = &b->c->in[i];
    char name[16] = { (char)('a' + i) };
    if (o->kind == OP_ABSENT) return NULL;
    if (o->kind == OP_WEIGHT) {
        bed_pack(b, o);
        return hr_graph_weight(b->graph, &b->weight);
    }
    b->in[i] = bed_alloc(op_operand_bytes(o));
    memcpy(b->in[i], o->data, op_operand_bytes(o));
    if (o->kind == OP_CONST) return hr_graph_const(b->graph, name, o->data, o->shape);
    return hr_graph_input(b->graph, name, o->dtype, o->shape, o->live);
}

/* The case is borrowed until bed_free. */
static inline void bed_make(const op_case *c, bed *b)
{
    hr_value *in[HR_NODE_MAX_IN];
    *b = (bed){ .c = c };
    if (hr_graph_create("bed", &b->graph)) abort();
    for (int i = 0; i < c->n_in; i++) in[i] = bed_operand(b, i);
    hr_graph_op(b->graph, c->op, in, c->n_in, &c->attrs, &b->node);
    if (b->graph->status) {
        fprintf(stderr, "bed: %s\n", b->graph->message);
        abort();
    }
    for (int i = 0; i < b->node->n_out; i++) {
        const hr_value *v = b->node->out[i];
        b->out_bytes[i] = (size_t)hr_shape_count(v->shape) * hr_dtype_size(v->dtype);
        b->out[i] = bed_alloc(b->out_bytes[i]);
    }
    if (c->op == HR_OP_linear) {
        int64_t rows = c->in[0].shape.dim[0];
        b->prep = bed_alloc(hr_linear_prep_bytes(b->node, b->weight.format, rows));
    }
    if (c->op == HR_OP_attention && hr_attention_parts(b->node)) {
        b->prep = bed_alloc(hr_attention_prep_bytes(b->node));
        memset(b->prep, 0xff, hr_attention_prep_bytes(b->node));
    }
    b->scratch = bed_alloc(HR_KERNEL_SCRATCH);
}

static inline void bed_free(bed *b)
{
    hr_graph_destroy(b->graph);
    for (int i = 0; i < HR_NODE_MAX_IN; i++) hr_free(b->in[i]);
    for (int i = 0; i < HR_NODE_MAX_OUT; i++) hr_free(b->out[i]);
    hr_free(b->packed.data);
    hr_free(b->prep);
    hr_free(b->scratch);
}

static inline hr_kernel_args bed_args(const bed *b)
{
    hr_kernel_args a = { .node = b->node,
                         .packed = b->packed.data ? &b->packed : NULL,
                         .prep = b->prep,
                         .live = b->c->live,
                         .scratch = b->scratch };
    for (int i = 0; i < HR_NODE_MAX_IN; i++) a.in[i] = b->in[i];
    for (int i = 0; i < HR_NODE_MAX_OUT; i++) a.out[i] = b->out[i];
    return a;
}

/* Calls the kernel over all its items, `step` at a time; linear after its prep. */
static inline void bed_call(const bed *b, hr_isa isa, hr_kernel_args *a, int64_t step)
{
    const hr_kernel *k = hr_kernel_lookup(b->c->op, isa), *prep = hr_kernel_linear_prep(isa);
    int64_t items = k->items(b->node, b->c->live);
    if (b->c->op == HR_OP_attention && a->prep) {
        const hr_kernel *parts = hr_kernel_attention_parts(isa);
        int64_t n = hr_kernel_items(parts, a), some = step % 5 + 1;
        for (int64_t i = 0; i < n; i += some) parts->fn(a, i, i + some < n ? i + some : n);
    }
    if (b->c->op == HR_OP_linear && hr_linear_prep_bytes(b->node, b->weight.format, 1))
        prep->fn(a, 0, prep->items(b->node, b->c->live));
    if (b->c->op == HR_OP_linear && !hr_linear_prep_bytes(b->node, b->weight.format, 1))
        a->prep = NULL;
    for (int64_t i = 0; i < items; i += step) k->fn(a, i, i + step < items ? i + step : items);
}

/* From fresh result bytes (or the donated operand's). Scratch is filled with NaN patterns. */
static inline void bed_run(bed *b, hr_isa isa, int64_t step)
{
    const hr_kernel *k = hr_kernel_lookup(b->c->op, isa);
    hr_kernel_args a = bed_args(b);
    memset(b->scratch, 0xff, HR_KERNEL_SCRATCH);
    for (int i = 0; i < b->node->n_out; i++) memset(b->out[i], BED_UNTOUCHED, b->out_bytes[i]);
    if (k->place == HR_PLACE_DONATED) {
        memcpy(b->out[0], b->in[0], b->out_bytes[0]);
        a.in[0] = b->out[0];
    }
    bed_call(b, isa, &a, step);
}

/* The same with result 0 over operand 0. */
static inline void bed_run_in_place(bed *b, hr_isa isa)
{
    hr_kernel_args a = bed_args(b);
    for (int i = 1; i < b->node->n_out; i++) memset(b->out[i], BED_UNTOUCHED, b->out_bytes[i]);
    memcpy(b->out[0], b->in[0], b->out_bytes[0]);
    a.in[0] = b->out[0];
    bed_call(b, isa, &a, INT64_MAX / 2);
}

#endif
