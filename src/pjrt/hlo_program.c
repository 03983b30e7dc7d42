/* A graph to a whole StableHLO program: arguments, one emitter per node, results.
 *
 * Runs wherever compile does; several programs may be written at once, each by its own thread. The
 * program owns its expanded graph, in whose arena the list of arguments lies. Live counts have no
 * meaning here: every row is computed, and padding rows carry values that are safe. */
#include "pjrt/hlo_int.h"
#include "pjrt/pjrt.h"

static const hr_hlo_fn emitters[HR_OP_COUNT] = {
#define HLO_PRIMITIVE(name) [HR_OP_##name] = hr_hlo_emit_##name,
#define HLO_COMPOSITE(name)
#define HR_OP(name, kind, inputs, results, signature) HLO_##kind(name)
#include "graph/ops.def"
#undef HR_OP
#undef HLO_PRIMITIVE
#undef HLO_COMPOSITE
};

static const hr_hlo_value absent = { .id = -1 };

/* Where each value of the graph is in the text. */
typedef struct writer {
    hr_hlo h;
    hr_hlo_program *program;
    hr_hlo_value (*at)[HR_HLO_MAX_PARTS]; /* [n_values]; arena */
} writer;

/* ---- arguments ------------------------------------------------------------------------------ */

static size_t count_weights(const hr_graph *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_values; i++) n += g->values[i]->kind == HR_VALUE_WEIGHT;
    return n;
}

/* Only what a node reads becomes an argument: a pass may leave values that nothing uses. */
static bool *used_values(hr_graph *g)
{
    bool *used = hr_arena_array(&g->arena, g->n_values + 1, sizeof *used);
    for (size_t i = 0; used && i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k]) used[g->nodes[i]->in[k]->id] = true;
    return used;
}

static void add_argument(writer *w, const hr_value *v, int part, hr_hlo_argument a)
{
    w->program->arguments[w->program->n_arguments++] = a;
    w->at[v->id][part] = (hr_hlo_value){ .id = w->h.next++, .shape = a.shape };
}

static hr_status collect_arguments(writer *w, const bool *used)
{
    const hr_graph *g = w->program->graph;
    for (size_t i = 0; i < g->n_inputs; i++)
        add_argument(w, g->inputs[i], 0,
                     (hr_hlo_argument){ .shape = hr_hlo_shape_of(g->inputs[i]), .input = (int)i });
    for (size_t i = 0; i < g->n_values; i++) {
        const hr_value *v = g->values[i];
        hr_hlo_shape shapes[HR_HLO_MAX_PARTS];
        int n = 0;
        if (v->kind != HR_VALUE_WEIGHT || !used[i]) continue;
        HR_TRY(hr_hlo_weight_parts(v->weight, w->h.opt, shapes, &n));
        for (int k = 0; k < n; k++)
            add_argument(w, v, k,
                         (hr_hlo_argument){
                             .shape = shapes[k], .input = -1, .weight = v->weight, .part = k });
    }
    return HR_OK;
}

/* The result that continues argument i in place, or -1. */
static int result_in_place(const hr_graph *g, const hr_hlo_argument *a)
{
    for (size_t i = 0; a->input >= 0 && i < g->n_outputs; i++)
        if (g->outputs[i].donor == a->input) return (int)i;
    return -1;
}

static void write_head(writer *w)
{
    const hr_graph *g = w->program->graph;
    hr_buf *text = w->h.text;
    hr_buf_add_c(text, "func.func @main(");
    for (size_t i = 0; i < w->program->n_arguments; i++) {
        const hr_hlo_argument *a = &w->program->arguments[i];
        int result = result_in_place(g, a);
        hr_buf_printf(text, "%s%%v%zu: ", i ? ",\n    " : "", i);
        hr_hlo_add_type(text, &a->shape);
        if (result >= 0) hr_buf_printf(text, " {tf.aliasing_output = %d : i32}", result);
    }
    hr_buf_add_c(text, ")\n    -> (");
    for (size_t i = 0; i < g->n_outputs; i++) {
        hr_hlo_shape s = hr_hlo_shape_of(g->outputs[i].value);
        if (i) hr_buf_add_c(text, ", ");
        hr_hlo_add_type(text, &s);
    }
    hr_buf_add_c(text, ") {\n");
}

/* ---- body ----------------------------------------------------------------------------------- */

static void write_consts(writer *w, const bool *used)
{
    const hr_graph *g = w->program->graph;
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i]->kind == HR_VALUE_CONST && used[i])
            w->at[i][0] = hr_hlo_array(&w->h, hr_hlo_shape_of(g->values[i]), g->values[i]->data);
}

static hr_status refuse_result(const hr_node *n, int i, const hr_hlo_shape *want,
                               const hr_hlo_shape *got)
{
    char text[HR_NODE_TEXT];
    hr_buf types = { 0 };
    hr_hlo_add_type(&types, got);
    hr_buf_add_c(&types, " in StableHLO, declared is ");
    hr_hlo_add_type(&types, want);
    hr_status st = hr_fail(HR_INTERNAL, "%s: result %d is %s", hr_graph_node_text(n, text), i,
                           hr_buf_c(&types));
    hr_buf_deinit(&types);
    return st;
}

static hr_status write_node(writer *w, const hr_node *n)
{
    hr_hlo_emit e = { .h = &w->h, .node = n };
    for (int i = 0; i < HR_NODE_MAX_IN; i++) {
        const hr_value *v = i < n->n_in ? n->in[i] : NULL;
        e.in[i] = v ? w->at[v->id][0] : absent;
        for (int k = 0; k < HR_HLO_MAX_PARTS; k++) e.part[i][k] = v ? w->at[v->id][k] : absent;
    }
    hr_buf_printf(w->h.text, "// %s\n", hr_op_name(n->op));
    if (!emitters[n->op])
        return hr_fail(HR_UNIMPLEMENTED, "%s has no StableHLO form", hr_op_name(n->op));
    HR_TRY(emitters[n->op](&e));
    for (int i = 0; i < n->n_out; i++) {
        hr_hlo_shape want = hr_hlo_shape_of(n->out[i]);
        if (!hr_hlo_shape_eq(&want, &e.out[i].shape))
            return refuse_result(n, i, &want, &e.out[i].shape);
        w->at[n->out[i]->id][0] = e.out[i];
    }
    return HR_OK;
}

static void write_tail(writer *w)
{
    const hr_graph *g = w->program->graph;
    hr_buf *text = w->h.text;
    hr_buf_add_c(text, "func.return ");
    for (size_t i = 0; i < g->n_outputs; i++)
        hr_buf_printf(text, "%s%%v%d", i ? ", " : "", w->at[g->outputs[i].value->id][0].id);
    hr_buf_add_c(text, g->n_outputs ? " : " : "");
    for (size_t i = 0; i < g->n_outputs; i++) {
        if (i) hr_buf_add_c(text, ", ");
        hr_hlo_add_type(text, &w->at[g->outputs[i].value->id][0].shape);
    }
    hr_buf_add_c(text, "\n}\n");
    hr_buf_c(text); /* terminates */
}

static hr_status prepare(writer *w)
{
    hr_graph *g = w->program->graph;
    size_t most = g->n_inputs + count_weights(g) * HR_HLO_MAX_PARTS;
    w->at = hr_arena_array(&g->arena, g->n_values + 1, sizeof *w->at);
    w->program->arguments = hr_arena_array(&g->arena, most + 1, sizeof *w->program->arguments);
    if (!w->at || !w->program->arguments)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "StableHLO of %s", g->name);
    for (size_t i = 0; i < g->n_values; i++)
        for (int k = 0; k < HR_HLO_MAX_PARTS; k++) w->at[i][k] = absent;
    return HR_OK;
}

static hr_status write_program(hr_hlo_program *p, const hr_hlo_options *opt)
{
    writer w = { .h = { .text = &p->text, .opt = opt }, .program = p };
    HR_TRY(prepare(&w));
    const bool *used = used_values(p->graph);
    if (!used) return hr_fail(HR_RESOURCE_EXHAUSTED, "StableHLO of %s", p->graph->name);
    HR_TRY(collect_arguments(&w, used));
    write_head(&w);
    write_consts(&w, used);
    for (size_t i = 0; i < p->graph->n_nodes; i++) HR_TRY(write_node(&w, p->graph->nodes[i]));
    write_tail(&w);
    if (hr_buf_status(&p->text))
        return hr_fail(hr_buf_status(&p->text), "StableHLO of %s", p->graph->name);
    return HR_OK;
}

/* ---- doors ---------------------------------------------------------------------------------- */

hr_status hr_hlo_program_build(const hr_graph *g, const hr_hlo_options *opt, hr_hlo_program *out)
{
    *out = (hr_hlo_program){ 0 };
    hr_status st = hr_graph_expand(g, &out->graph);
    if (!st) st = write_program(out, opt);
    if (st) hr_hlo_program_deinit(out);
    return st;
}

void hr_hlo_program_deinit(hr_hlo_program *p)
{
    hr_buf_deinit(&p->text);
    hr_graph_destroy(p->graph);
    *p = (hr_hlo_program){ 0 };
}

hr_status hr_pjrt_stablehlo(const hr_graph *g, const hr_pjrt_options *o, hr_buf *out)
{
    const hr_hlo_options opt = { .attention_custom_call = o->attention_custom_call };
    hr_hlo_program p;
    HR_TRY(hr_hlo_program_build(g, &opt, &p));
    hr_buf_add_str(out, hr_buf_str(&p.text));
    hr_hlo_program_deinit(&p);
    if (hr_buf_status(out)) return hr_fail(hr_buf_status(out), "StableHLO text of %s", g->name);
    return HR_OK;
}
