/* The text form of a graph, for people, goldens and diffs. Runs anywhere; owns nothing.
 *
 *   graph backbone
 *   in  %0 ids : i32 [16] live=tokens
 *   %3 = embed(%0, w:model.embed_tokens.weight) {dtype=f32} : f32 [16,576] live=tokens
 *   out hidden = %3
 *   out k_cache.0 = %9 continues k_cache.0
 *
 * Weights and constants are spelt by name where they are used. */
#include "graph/graph_int.h"

static void print_type(const hr_value *v, hr_buf *out)
{
    static const char *const live[HR_LIVE_COUNT] = { "", " live=tokens", " live=rows" };
    char text[HR_SHAPE_TEXT];
    hr_buf_printf(out, "%s %s%s", hr_dtype_name(v->dtype), hr_shape_text(v->shape, text),
                  live[v->live]);
}

/* A slice says of how many, along which axis: "w:model.layers.0.mlp.down_proj.weight[1/2]". */
static void print_weight(const hr_value *v, hr_buf *out)
{
    hr_buf_printf(out, "w:%s", v->name);
    if (v->weight->shard.count)
        hr_buf_printf(out, "[%d/%d]", v->weight->shard.axis, v->weight->shard.count);
}

static void print_operand(const hr_value *v, hr_buf *out)
{
    if (!v) hr_buf_add_c(out, "-");
    else if (v->kind == HR_VALUE_WEIGHT) print_weight(v, out);
    else if (v->kind == HR_VALUE_CONST) hr_buf_printf(out, "c:%s", v->name);
    else hr_buf_printf(out, "%%%u", v->id);
}

static void print_float(const char *name, float value, const char **sep, hr_buf *out)
{
    if (value == 0) return;
    hr_buf_printf(out, "%s%s=%.9g", *sep, name, (double)value);
    *sep = ", ";
}

static void print_int(const char *name, int32_t value, const char **sep, hr_buf *out)
{
    if (value == 0) return;
    hr_buf_printf(out, "%s%s=%d", *sep, name, value);
    *sep = ", ";
}

/* Attributes that differ from zero. dtype is never shown: it is the result's. */
static void print_attrs(const hr_attrs *a, hr_buf *out)
{
    const char *sep = " {";
    print_float("eps", a->eps, &sep, out);
    print_float("offset", a->offset, &sep, out);
    print_float("scale", a->scale, &sep, out);
    print_float("cap", a->cap, &sep, out);
    print_int("group", a->group, &sep, out);
    print_int("window", a->window, &sep, out);
    print_int("n", a->n, &sep, out);
    if (a->sections[0] || a->sections[1] || a->sections[2]) {
        hr_buf_printf(out, "%ssections=%d/%d/%d", sep, a->sections[0], a->sections[1],
                      a->sections[2]);
        sep = ", ";
    }
    if (a->act) {
        hr_buf_printf(out, "%sact=%s", sep, hr_activation_name(a->act));
        sep = ", ";
    }
    if (sep[0] == ',') hr_buf_add_c(out, "}");
}

static void print_node(const hr_node *n, hr_buf *out)
{
    int n_in = n->n_in;
    while (n_in > 0 && !n->in[n_in - 1]) n_in--; /* trailing absent operands say nothing */
    for (int i = 0; i < n->n_out; i++) hr_buf_printf(out, i ? ", %%%u" : "%%%u", n->out[i]->id);
    hr_buf_printf(out, " = %s(", hr_op_name(n->op));
    for (int i = 0; i < n_in; i++) {
        if (i) hr_buf_add_c(out, ", ");
        print_operand(n->in[i], out);
    }
    hr_buf_add_c(out, ")");
    print_attrs(&n->attrs, out);
    for (int i = 0; i < n->n_out; i++) {
        hr_buf_add_c(out, i ? ", " : " : ");
        print_type(n->out[i], out);
    }
    hr_buf_add_c(out, "\n");
}

void hr_graph_print(const hr_graph *g, hr_buf *out)
{
    hr_buf_printf(out, "graph %s\n", g->name);
    for (size_t i = 0; i < g->n_inputs; i++) {
        hr_buf_printf(out, "in  %%%u %s : ", g->inputs[i]->id, g->inputs[i]->name);
        print_type(g->inputs[i], out);
        hr_buf_add_c(out, "\n");
    }
    for (size_t i = 0; i < g->n_nodes; i++) print_node(g->nodes[i], out);
    for (size_t i = 0; i < g->n_outputs; i++) {
        const struct hr_output *o = &g->outputs[i];
        hr_buf_printf(out, "out %s = ", o->name);
        print_operand(o->value, out);
        if (o->donor >= 0) hr_buf_printf(out, " continues %s", g->inputs[o->donor]->name);
        hr_buf_add_c(out, "\n");
    }
}
