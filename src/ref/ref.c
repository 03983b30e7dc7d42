/* The reference backend: an interpreter that walks the expanded graph, one function per op.
 *
 * Runs on the thread that calls it, to the end: execute is finished when it returns. A program owns
 * its expanded graph and one block of memory per result, zeroed before each run; in-place ops work
 * straight on the donated buffer. Nothing here is clever, and that is the idea: whoever doubts a
 * kernel reads this room. */
#include "ref/ref.h"

#include <stdio.h>

#include "ref/ref_int.h"

struct hr_buffer {
    hr_tensor_desc desc;
    size_t bytes;
    void *data; /* owned */
};

struct hr_program {
    hr_graph *graph; /* owned; expanded; borrows the model's weights */
    void **own;      /* [n_values]; owned: results, and weights of rank 1 as f32 */
    void **at;       /* [n_values]; where each value lies during execute, borrowed */
    size_t bytes;    /* in `own` */
};

static const hr_ref_fn ops[HR_OP_COUNT] = {
#define REF_PRIMITIVE(name) [HR_OP_##name] = hr_ref_##name,
#define REF_COMPOSITE(name)
#define HR_OP(name, kind, inputs, results, signature) REF_##kind(name)
#include "graph/ops.def"
#undef HR_OP
#undef REF_PRIMITIVE
#undef REF_COMPOSITE
};

static size_t value_bytes(const hr_value *v)
{
    return (size_t)hr_shape_count(v->shape) * hr_dtype_size(v->dtype);
}

static void program_destroy(hr_program *p)
{
    if (!p) return;
    for (size_t i = 0; p->own && i < p->graph->n_values; i++) hr_free(p->own[i]);
    hr_free(p->own);
    hr_free(p->at);
    hr_graph_destroy(p->graph);
    hr_free(p);
}

/* Memory for a result; a weight of rank 1 is read here, once. */
static hr_status prepare_value(hr_program *p, const hr_value *v)
{
    bool vector = v->kind == HR_VALUE_WEIGHT && v->shape.rank == 1;
    bool in_place = v->kind == HR_VALUE_RESULT && hr_op_is_in_place(v->producer->op);
    if ((v->kind != HR_VALUE_RESULT || in_place) && !vector) return HR_OK;
    p->own[v->id] = hr_alloc0(value_bytes(v));
    if (!p->own[v->id]) return hr_fail(HR_RESOURCE_EXHAUSTED, "ref: result of %s", p->graph->name);
    p->bytes += value_bytes(v);
    return vector ? hr_ref_weight_row(v->weight, 0, p->own[v->id]) : HR_OK;
}

static hr_status compile(hr_backend *b, const hr_graph *g, hr_program **out)
{
    (void)b;
    HR_TRY(hr_graph_check_one_device(g, "ref"));
    hr_program *p = hr_new0(hr_program);
    if (!p) return hr_fail(HR_RESOURCE_EXHAUSTED, "ref: program");
    hr_status st = hr_graph_expand(g, &p->graph);
    size_t n = p->graph ? p->graph->n_values : 0;
    if (!st) {
        p->own = hr_alloc_array0(n + 1, sizeof *p->own);
        p->at = hr_alloc_array0(n + 1, sizeof *p->at);
        if (!p->own || !p->at) st = hr_fail(HR_RESOURCE_EXHAUSTED, "ref: program %s", g->name);
    }
    for (size_t i = 0; !st && i < n; i++) st = prepare_value(p, p->graph->values[i]);
    if (st) program_destroy(p);
    else *out = p;
    return st;
}

static void program_info(const hr_program *p, hr_program_info *out)
{
    out->peak_bytes = p->bytes;
    out->steps = p->graph->n_nodes;
}

static void buffer_destroy(hr_buffer *x)
{
    if (!x) return;
    hr_free(x->data);
    hr_free(x);
}

static hr_status buffer_create(hr_backend *b, const hr_tensor_desc *d, hr_buffer **out)
{
    (void)b;
    hr_buffer *x = hr_new0(hr_buffer);
    if (!x) return hr_fail(HR_RESOURCE_EXHAUSTED, "ref: buffer");
    x->desc = *d;
    x->bytes = (size_t)hr_shape_count(d->shape) * hr_dtype_size(d->dtype);
    x->data = hr_alloc0(x->bytes);
    if (!x->data) {
        hr_free(x);
        return hr_fail(HR_RESOURCE_EXHAUSTED, "ref: buffer");
    }
    *out = x;
    return HR_OK;
}

static hr_status buffer_put(hr_buffer *x, const void *host, size_t bytes)
{
    if (bytes > x->bytes)
        return hr_fail(HR_OUT_OF_RANGE, "ref: put %zu bytes into a buffer of %zu", bytes, x->bytes);
    memcpy(x->data, host, bytes);
    return HR_OK;
}

static hr_status buffer_get(hr_buffer *x, void *host, size_t bytes)
{
    if (bytes > x->bytes)
        return hr_fail(HR_OUT_OF_RANGE, "ref: get %zu bytes of a buffer of %zu", bytes, x->bytes);
    memcpy(host, x->data, bytes);
    return HR_OK;
}

static hr_status check_buffer(const hr_program *p, const hr_buffer *x, const hr_value *v,
                              const char *name)
{
    if (x && x->desc.dtype == v->dtype && hr_shape_eq(x->desc.shape, v->shape)) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "program %s: %s is bound to %s buffer", p->graph->name,
                   name, x ? "the wrong kind of" : "no");
}

static hr_status bind(hr_program *p, const hr_execute_args *a)
{
    const hr_graph *g = p->graph;
    for (size_t i = 0; i < g->n_values; i++) {
        const hr_value *v = g->values[i];
        p->at[i] = p->own[i];
        if (v->kind == HR_VALUE_CONST) p->at[i] = (void *)(uintptr_t)v->data;
        if (v->kind == HR_VALUE_RESULT && p->own[i]) memset(p->own[i], 0, value_bytes(v));
    }
    for (size_t i = 0; i < g->n_inputs; i++) {
        HR_TRY(check_buffer(p, a->inputs[i], g->inputs[i], g->inputs[i]->name));
        p->at[g->inputs[i]->id] = a->inputs[i]->data;
    }
    for (size_t i = 0; i < g->n_outputs; i++) {
        const struct hr_output *o = &g->outputs[i];
        HR_TRY(check_buffer(p, a->outputs[i], o->value, o->name));
        if (o->donor >= 0 && a->outputs[i] != a->inputs[o->donor])
            return hr_fail(HR_INVALID_ARGUMENT, "program %s: %s is not in its donor's buffer",
                           g->name, o->name);
    }
    return HR_OK;
}

static hr_status run_node(hr_program *p, const hr_node *n, const int64_t *live)
{
    hr_ref_args a = { .node = n, .live = live };
    for (int i = 0; i < n->n_in; i++) a.in[i] = n->in[i] ? p->at[n->in[i]->id] : NULL;
    if (hr_op_is_in_place(n->op)) p->at[n->out[0]->id] = p->at[n->in[0]->id];
    for (int i = 0; i < n->n_out; i++) a.out[i] = p->at[n->out[i]->id];
    return ops[n->op](&a);
}

static hr_status execute(hr_program *p, const hr_execute_args *a, hr_event *done)
{
    const hr_graph *g = p->graph;
    hr_status st = bind(p, a);
    for (size_t i = 0; !st && i < g->n_nodes; i++) st = run_node(p, g->nodes[i], a->live);
    for (size_t i = 0; !st && i < g->n_outputs; i++) {
        const hr_value *v = g->outputs[i].value;
        hr_ref_args view = { .live = a->live };
        size_t row = (size_t)hr_shape_row(v->shape) * hr_dtype_size(v->dtype);
        if (g->outputs[i].donor < 0)
            memcpy(a->outputs[i]->data, p->at[v->id], (size_t)hr_ref_rows(&view, v) * row);
    }
    done->status = st;
    return st;
}

static hr_status event_await(hr_event *e)
{
    return e->status;
}

static void numerics(hr_backend *b, hr_buf *out)
{
    (void)b;
    hr_buf_add_c(out, "\"backend\":\"ref\",\"accumulation\":\"f64\"");
}

static size_t weight_bytes(const hr_backend *b)
{
    (void)b;
    return 0; /* rows are read where they are used */
}

static void destroy(hr_backend *b)
{
    hr_free(b);
}

static const hr_backend_vtable vtable = {
    .name = "ref",
    .destroy = destroy,
    .compile = compile,
    .program_destroy = program_destroy,
    .program_info = program_info,
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .buffer_put = buffer_put,
    .buffer_get = buffer_get,
    .execute = execute,
    .event_await = event_await,
    .numerics = numerics,
    .weight_bytes = weight_bytes,
};

hr_status hr_ref_backend_create(hr_backend **out)
{
    *out = hr_new0(hr_backend);
    if (!*out) return hr_fail(HR_RESOURCE_EXHAUSTED, "ref: backend");
    (*out)->v = &vtable;
    return HR_OK;
}
