/* Making graphs: create and destroy, leaves, outputs, one node of any op.
 *
 * Runs at start-up. The graph owns its arena and arrays; weights are borrowed from the model.
 * Failures are sticky: the first sentence is kept, every later builder returns NULL, and
 * hr_graph_finish reports it, so that a model file needs no checks between its lines. */
#include "graph/graph_int.h"

hr_status hr_graph_create(const char *name, hr_graph **out)
{
    *out = NULL;
    hr_graph *g = hr_new0(hr_graph);
    if (!g) return hr_fail(HR_RESOURCE_EXHAUSTED, "graph %s", name);
    g->name = hr_arena_copy(&g->arena, name, strlen(name));
    if (!g->name) {
        hr_graph_destroy(g);
        return hr_fail(HR_RESOURCE_EXHAUSTED, "graph %s", name);
    }
    *out = g;
    return HR_OK;
}

void hr_graph_destroy(hr_graph *g)
{
    if (!g) return;
    hr_free(g->values);
    hr_free(g->weights);
    hr_free(g->nodes);
    hr_free(g->inputs);
    hr_free(g->outputs);
    hr_arena_deinit(&g->arena);
    hr_free(g);
}

hr_value *hr_graph_stick(hr_graph *g, hr_status status)
{
    if (!g->status) {
        g->status = status;
        memcpy(g->message, hr_message(), strlen(hr_message()) + 1);
    }
    return NULL;
}

static hr_value *out_of_memory(hr_graph *g)
{
    return hr_graph_stick(g, hr_fail(HR_RESOURCE_EXHAUSTED, "graph node"));
}

hr_value *hr_graph_add_value(hr_graph *g, hr_value_kind kind, hr_dtype dtype, hr_shape shape,
                             hr_live live)
{
    hr_value *v = hr_arena_new(&g->arena, hr_value);
    if (!v || hr_grow((void **)&g->values, &g->values_capacity, g->n_values + 1, sizeof *g->values))
        return out_of_memory(g);
    *v = (hr_value){ .kind = kind, .dtype = dtype, .shape = shape, .live = live };
    v->id = (uint32_t)g->n_values;
    g->values[g->n_values++] = v;
    return v;
}

/* A named leaf whose shape is checked first: sizes may come from a hostile config. */
static hr_value *add_leaf(hr_graph *g, const char *name, hr_value_kind kind, hr_dtype dtype,
                          hr_shape shape, hr_live live)
{
    hr_status st = hr_shape_check(shape, name);
    if (st) return hr_graph_stick(g, st);
    hr_value *v = hr_graph_add_value(g, kind, dtype, shape, live);
    if (!v) return NULL;
    v->name = hr_arena_copy(&g->arena, name, strlen(name));
    return v->name ? v : out_of_memory(g);
}

hr_value *hr_graph_input(hr_graph *g, const char *name, hr_dtype dtype, hr_shape shape,
                         hr_live live)
{
    if (g->status) return NULL;
    for (size_t i = 0; i < g->n_inputs; i++)
        if (!strcmp(g->inputs[i]->name, name))
            return hr_graph_stick(g, hr_fail(HR_INVALID_ARGUMENT, "two inputs named %s", name));
    hr_value *v = add_leaf(g, name, HR_VALUE_INPUT, dtype, shape, live);
    if (!v) return NULL;
    if (hr_grow((void **)&g->inputs, &g->inputs_capacity, g->n_inputs + 1, sizeof *g->inputs))
        return out_of_memory(g);
    g->inputs[g->n_inputs++] = v;
    return v;
}

static hr_status check_weight(const hr_weight *w)
{
    HR_TRY(hr_shape_check(w->shape, w->name));
    if (w->shape.rank > 3)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: a weight of rank %d", w->name, w->shape.rank);
    int64_t k = w->shape.dim[w->shape.rank - 1];
    if (k % hr_format_block(w->format))
        return hr_fail(HR_INVALID_ARGUMENT, "%s: %lld columns are no whole number of %s blocks",
                       w->name, (long long)k, hr_format_name(w->format));
    if (w->format == HR_FORMAT_I8C &&
        (!w->scale || w->scale->format != HR_FORMAT_F32 ||
         hr_shape_count(w->scale->shape) * k != hr_shape_count(w->shape)))
        return hr_fail(HR_INVALID_ARGUMENT, "%s: int8 without one f32 scale per row", w->name);
    return HR_OK;
}

/* Where the value of w is, or would be. */
static hr_value **weight_slot(const hr_graph *g, const hr_weight *w)
{
    uint64_t h = (uint64_t)(uintptr_t)w * 0x9e3779b97f4a7c15u;
    size_t mask = g->weights_capacity - 1, i = (size_t)(h >> 32) & mask;
    while (g->weights[i] && g->weights[i]->weight != w) i = (i + 1) & mask;
    return &g->weights[i];
}

static bool grow_weights(hr_graph *g)
{
    hr_graph more = { .weights_capacity = g->weights_capacity ? 2 * g->weights_capacity : 64 };
    if (2 * g->n_weights < g->weights_capacity) return true;
    more.weights = hr_alloc_array0(more.weights_capacity, sizeof(hr_value *));
    if (!more.weights) return false;
    for (size_t i = 0; i < g->weights_capacity; i++)
        if (g->weights[i]) *weight_slot(&more, g->weights[i]->weight) = g->weights[i];
    hr_free(g->weights);
    g->weights = more.weights;
    g->weights_capacity = more.weights_capacity;
    return true;
}

hr_value *hr_graph_weight(hr_graph *g, const hr_weight *w)
{
    if (g->status) return NULL;
    if (!w) return hr_graph_stick(g, hr_fail(HR_INTERNAL, "graph %s: NULL weight", g->name));
    if (!grow_weights(g)) return out_of_memory(g);
    hr_value **slot = weight_slot(g, w);
    if (*slot) return *slot;
    hr_status st = check_weight(w);
    if (st) return hr_graph_stick(g, st);
    hr_value *v = add_leaf(g, w->name, HR_VALUE_WEIGHT, HR_DTYPE_F32, w->shape, HR_LIVE_ALL);
    if (!v) return NULL;
    v->weight = w;
    *slot = v;
    g->n_weights++;
    return v;
}

hr_value *hr_graph_const(hr_graph *g, const char *name, const float *data, hr_shape shape)
{
    if (g->status) return NULL;
    hr_value *v = add_leaf(g, name, HR_VALUE_CONST, HR_DTYPE_F32, shape, HR_LIVE_ALL);
    if (!v) return NULL;
    size_t bytes = (size_t)hr_shape_count(shape) * sizeof *data;
    float *copy = hr_arena_alloc(&g->arena, bytes);
    if (!copy) return out_of_memory(g);
    memcpy(copy, data, bytes);
    v->data = copy;
    return v;
}

static void add_output(hr_graph *g, const char *name, hr_value *v, int donor)
{
    if (g->status) return;
    for (size_t i = 0; i < g->n_outputs; i++)
        if (!strcmp(g->outputs[i].name, name)) {
            hr_graph_stick(g, hr_fail(HR_INVALID_ARGUMENT, "two outputs named %s", name));
            return;
        }
    const char *copy = hr_arena_copy(&g->arena, name, strlen(name));
    if (!copy ||
        hr_grow((void **)&g->outputs, &g->outputs_capacity, g->n_outputs + 1, sizeof *g->outputs)) {
        out_of_memory(g);
        return;
    }
    g->outputs[g->n_outputs++] = (struct hr_output){ v, copy, donor };
    if (!v->name) v->name = copy;
}

void hr_graph_output(hr_graph *g, const char *name, hr_value *v)
{
    add_output(g, name, v, -1);
}

void hr_graph_output_donated(hr_graph *g, const char *name, hr_value *v, hr_value *from)
{
    if (g->status) return;
    for (size_t i = 0; i < g->n_inputs; i++)
        if (g->inputs[i] == from) {
            add_output(g, name, v, (int)i);
            return;
        }
    hr_graph_stick(g, hr_fail(HR_INVALID_ARGUMENT, "output %s continues no input", name));
}

static hr_value *add_node(hr_graph *g, hr_op op, hr_value *const *in, int n_in,
                          const hr_attrs *attrs, const hr_shape *shape, hr_node **node)
{
    if (node) *node = NULL;
    if (g->status) return NULL;
    if (n_in > hr_op_inputs(op))
        return hr_graph_stick(g, hr_fail(HR_INVALID_ARGUMENT, "%s: %d operands, at most %d",
                                         hr_op_name(op), n_in, hr_op_inputs(op)));
    hr_node *n = hr_arena_new(&g->arena, hr_node);
    if (!n || hr_grow((void **)&g->nodes, &g->nodes_capacity, g->n_nodes + 1, sizeof *g->nodes))
        return out_of_memory(g);
    *n = (hr_node){ .op = op, .n_in = hr_op_inputs(op) };
    if (attrs) n->attrs = *attrs;
    for (int i = 0; i < n_in; i++) n->in[i] = in[i];
    hr_status st = hr_graph_infer(g, n, shape);
    if (!st) st = hr_graph_check_contract(g, n);
    if (st) return hr_graph_stick(g, st);
    g->nodes[g->n_nodes++] = n;
    if (node) *node = n;
    return n->out[0];
}

hr_value *hr_graph_op(hr_graph *g, hr_op op, hr_value *const *in, int n_in, const hr_attrs *attrs,
                      hr_node **node)
{
    return add_node(g, op, in, n_in, attrs, NULL, node);
}

hr_value *hr_graph_reshape(hr_graph *g, hr_value *x, hr_shape shape)
{
    return add_node(g, HR_OP_reshape, &x, 1, NULL, &shape, NULL);
}

hr_status hr_graph_finish(hr_graph *g)
{
    if (g->status) return hr_fail(g->status, "graph %s: %.440s", g->name, g->message);
    return hr_graph_verify(g);
}
