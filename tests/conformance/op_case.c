/* Builds, binds and runs a graph of one node. See op_case.h. Test code, one thread. */
#include "conformance/op_case.h"

#include <stdio.h>
#include <stdlib.h>

#include "cpu/cpu.h"
#include "ref/ref.h"
#ifdef HR_HAVE_PJRT
#include "pjrt/pjrt.h"
#endif

/* A backend knows a weight by its address, for as long as it lives: weights are never reused, and
 * are freed by op_backend_destroy. */
typedef struct case_weight case_weight;
struct case_weight {
    hr_weight weight, scale;
    char name[16];
    case_weight *next;
};

static case_weight *all_weights; /* owned */

typedef struct run {
    hr_backend *backend;
    const op_case *c;
    hr_graph *graph;
    hr_program *program;
    hr_buffer *inputs[HR_NODE_MAX_IN];
    hr_buffer *outputs[HR_NODE_MAX_OUT];
    bool donated;
} run;

static int64_t columns(hr_shape s)
{
    return s.dim[s.rank - 1];
}

size_t op_operand_bytes(const op_operand *o)
{
    size_t count = (size_t)hr_shape_count(o->shape);
    if (o->kind == OP_ABSENT) return 0;
    if (o->kind == OP_CONST) return count * sizeof(float);
    if (o->kind == OP_INPUT) return count * hr_dtype_size(o->dtype);
    size_t rows = count / (size_t)columns(o->shape);
    return rows * hr_format_row_bytes(o->format, columns(o->shape));
}

static hr_status read_rows(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    size_t row = hr_format_row_bytes(w->format, columns(w->shape));
    memcpy(to, (const char *)w->source + (size_t)first * row, (size_t)count * row);
    return HR_OK;
}

static hr_value *add_weight(run *r, int i)
{
    const op_operand *o = &r->c->in[i];
    case_weight *w = hr_new0(case_weight);
    if (!w) return NULL;
    w->next = all_weights;
    all_weights = w;
    snprintf(w->name, sizeof w->name, "weight.%d", i);
    w->weight = (hr_weight){ .name = w->name,
                             .shape = o->shape,
                             .format = o->format,
                             .read_rows = read_rows,
                             .source = o->data };
    if (o->format == HR_FORMAT_I8C) {
        w->scale = (hr_weight){ .name = "scale",
                                .shape = HR_SHAPE(hr_shape_count(o->shape) / columns(o->shape)),
                                .format = HR_FORMAT_F32,
                                .read_rows = read_rows,
                                .source = o->scale };
        w->weight.scale = &w->scale;
    }
    return hr_graph_weight(r->graph, &w->weight);
}

static hr_value *add_operand(run *r, int i)
{
    const op_operand *o = &r->c->in[i];
    char name[16];
    snprintf(name, sizeof name, "in.%d", i);
    switch (o->kind) {
    case OP_ABSENT: return NULL;
    case OP_INPUT: return hr_graph_input(r->graph, name, o->dtype, o->shape, o->live);
    case OP_WEIGHT: return add_weight(r, i);
    case OP_CONST: return hr_graph_const(r->graph, name, o->data, o->shape);
    }
    return NULL;
}

static hr_status build(run *r)
{
    const op_case *c = r->c;
    hr_value *in[HR_NODE_MAX_IN];
    hr_node *node = NULL;
    HR_TRY(hr_graph_create("op", &r->graph));
    for (int i = 0; i < c->n_in; i++) in[i] = add_operand(r, i);
    if (c->op == HR_OP_reshape) {
        hr_value *y = hr_graph_reshape(r->graph, in[0], c->shape);
        node = y ? y->producer : NULL;
    } else {
        hr_graph_op(r->graph, c->op, in, c->n_in, &c->attrs, &node);
    }
    r->donated = hr_op_is_in_place(c->op);
    for (int i = 0; node && i < node->n_out; i++) {
        char name[16];
        snprintf(name, sizeof name, "out.%d", i);
        if (r->donated) hr_graph_output_donated(r->graph, name, node->out[i], in[0]);
        else hr_graph_output(r->graph, name, node->out[i]);
    }
    return hr_graph_finish(r->graph);
}

static hr_status bind(run *r)
{
    size_t k = 0;
    for (int i = 0; i < r->c->n_in; i++) {
        const op_operand *o = &r->c->in[i];
        if (o->kind != OP_INPUT) continue;
        hr_tensor_desc d = { o->dtype, o->shape };
        HR_TRY(hr_buffer_create(r->backend, &d, &r->inputs[k]));
        HR_TRY(hr_buffer_put(r->backend, r->inputs[k++], o->data, op_operand_bytes(o)));
    }
    for (size_t i = 0; i < r->graph->n_outputs; i++) {
        const hr_value *v = r->graph->outputs[i].value;
        hr_tensor_desc d = { v->dtype, v->shape };
        if (r->donated) r->outputs[i] = r->inputs[0];
        else HR_TRY(hr_buffer_create(r->backend, &d, &r->outputs[i]));
    }
    return HR_OK;
}

static hr_status execute(run *r)
{
    hr_execute_args a = { .inputs = r->inputs, .outputs = r->outputs };
    hr_event done;
    memcpy(a.live, r->c->live, sizeof a.live);
    HR_TRY(hr_program_execute(r->backend, r->program, &a, &done));
    return hr_event_await(&done);
}

/* A program of fixed shapes runs in full: what it leaves in rows past the live count is nobody's.
 */
static void clear_padding(const run *r, const hr_value *v, void *data, size_t bytes)
{
    if (!r->backend->v->static_shapes || r->donated || v->live == HR_LIVE_ALL) return;
    int64_t rows = v->shape.dim[0], live = r->c->live[v->live];
    size_t row = bytes / (size_t)rows;
    if (live < rows) memset((char *)data + (size_t)live * row, 0, (size_t)(rows - live) * row);
}

static hr_status fetch(run *r, op_result *out)
{
    out->n = (int)r->graph->n_outputs;
    for (int i = 0; i < out->n; i++) {
        const hr_value *v = r->graph->outputs[i].value;
        out->out[i].dtype = v->dtype;
        out->out[i].shape = v->shape;
        out->out[i].bytes = (size_t)hr_shape_count(v->shape) * hr_dtype_size(v->dtype);
        out->out[i].data = hr_alloc0(out->out[i].bytes);
        if (!out->out[i].data) return hr_fail(HR_RESOURCE_EXHAUSTED, "op case");
        HR_TRY(hr_buffer_get(r->backend, r->outputs[i], out->out[i].data, out->out[i].bytes));
        clear_padding(r, v, out->out[i].data, out->out[i].bytes);
    }
    return HR_OK;
}

hr_status op_case_run(hr_backend *b, const op_case *c, op_result *out)
{
    run r = { .backend = b, .c = c };
    *out = (op_result){ 0 };
    hr_status st = build(&r);
    if (!st) st = hr_backend_compile(b, r.graph, &r.program);
    if (!st) st = bind(&r);
    if (!st) st = execute(&r);
    if (!st) st = fetch(&r, out);
    for (int i = 0; i < HR_NODE_MAX_OUT && !r.donated; i++) hr_buffer_destroy(r.outputs[i], b);
    for (int i = 0; i < HR_NODE_MAX_IN; i++) hr_buffer_destroy(r.inputs[i], b);
    hr_program_destroy(r.program, b);
    hr_graph_destroy(r.graph);
    if (st) op_result_deinit(out);
    return st;
}

void op_result_deinit(op_result *r)
{
    for (int i = 0; i < HR_NODE_MAX_OUT; i++) hr_free(r->out[i].data);
    *r = (op_result){ 0 };
}

static hr_status create_pjrt(hr_backend **out)
{
#ifdef HR_HAVE_PJRT
    const char *plugin = getenv("HEADRACE_PJRT_PLUGIN");
    if (!plugin) return hr_fail(HR_INVALID_ARGUMENT, "HEADRACE_PJRT_PLUGIN names no plugin");
    return hr_pjrt_backend_create(&(hr_pjrt_options){ .plugin = plugin }, out);
#else
    *out = NULL;
    return hr_fail(HR_UNIMPLEMENTED, "this build has no PJRT backend");
#endif
}

hr_status op_backend_create(const char *name, int threads, hr_backend **out)
{
    *out = NULL;
    if (!strcmp(name, "ref")) return hr_ref_backend_create(out);
    if (!strcmp(name, "cpu"))
        return hr_cpu_backend_create(&(hr_cpu_options){ .threads = threads }, out);
    if (!strcmp(name, "pjrt")) return create_pjrt(out);
    return hr_fail(HR_INVALID_ARGUMENT, "no backend called %s", name);
}

void op_backend_destroy(hr_backend *b)
{
    hr_backend_destroy(b);
    while (all_weights) {
        case_weight *next = all_weights->next;
        hr_free(all_weights);
        all_weights = next;
    }
}

int op_serve(const char *name, int argc, char **argv, hr_status (*answer)(hr_backend *, hr_str),
             void (*end)(void))
{
    hr_backend *backend = NULL;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    hr_status st =
        op_backend_create(argc > 1 ? argv[1] : "ref", argc > 2 ? atoi(argv[2]) : 0, &backend);
    while (!st && (n = getline(&line, &capacity, stdin)) > 0)
        st = answer(backend, (hr_str){ line, (size_t)n });
    if (st) fprintf(stderr, "%s: %s\n", name, hr_message());
    free(line);
    if (end) end();
    op_backend_destroy(backend);
    return st ? 1 : 0;
}
