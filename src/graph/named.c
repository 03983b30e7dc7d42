/* The words that model files are written in: one builder per backbone op, and the op table.
 *
 * Runs at start-up. Each is a line or two over hr_graph_op: operands in the order of ops.def,
 * attributes by name. */
#include "graph/graph_int.h"

typedef enum op_kind { PRIMITIVE, COMPOSITE } op_kind;

static const struct {
    const char *name;
    op_kind kind;
    int inputs, results;
} ops[] = {
#define HR_OP(name, kind, inputs, results, signature)                                              \
    [HR_OP_##name] = { #name, kind, inputs, results },
#include "graph/ops.def"
#undef HR_OP
};

const char *hr_op_name(hr_op op)
{
    return ops[op].name;
}

bool hr_op_is_composite(hr_op op)
{
    return ops[op].kind == COMPOSITE;
}

int hr_op_inputs(hr_op op)
{
    return ops[op].inputs;
}

int hr_op_results(hr_op op)
{
    return ops[op].results;
}

bool hr_op_is_in_place(hr_op op)
{
    return op == HR_OP_kv_write || op == HR_OP_count_tokens || op == HR_OP_write_rows;
}

const char *hr_activation_name(hr_activation a)
{
    switch (a) {
    case HR_ACT_NONE: return "none";
    case HR_ACT_SILU: return "silu";
    case HR_ACT_GELU: return "gelu";
    case HR_ACT_GELU_TANH: return "gelu_tanh";
    case HR_ACT_RELU: return "relu";
    }
    return "?";
}

/* One node: the operands, then the attributes by name. */
#define NODE(g, op, attrs, ...)                                                                    \
    hr_graph_op(g, op, (hr_value *[]){ __VA_ARGS__ },                                              \
                (int)(sizeof((hr_value *[]){ __VA_ARGS__ }) / sizeof(hr_value *)), attrs, NULL)

hr_value *hr_op_embed(hr_graph *g, hr_value *ids, hr_value *w, hr_dtype dtype)
{
    return NODE(g, HR_OP_embed, &(hr_attrs){ .dtype = dtype }, ids, w);
}

hr_value *hr_op_linear(hr_graph *g, hr_value *x, hr_value *w, hr_value *bias, hr_dtype dtype)
{
    return NODE(g, HR_OP_linear, &(hr_attrs){ .dtype = dtype }, x, w, bias);
}

hr_value *hr_op_linear_q8(hr_graph *g, hr_value *q, hr_value *scale, hr_value *w, hr_value *bias,
                          hr_dtype dtype)
{
    return NODE(g, HR_OP_linear, &(hr_attrs){ .dtype = dtype }, q, w, bias, NULL, scale);
}

hr_value *hr_op_linear_grouped(hr_graph *g, hr_value *x, hr_value *scale, hr_value *w,
                               hr_value *groups, hr_dtype dtype)
{
    return NODE(g, HR_OP_linear, &(hr_attrs){ .dtype = dtype }, x, w, NULL, groups, scale);
}

hr_value *hr_op_quantise_rows(hr_graph *g, hr_value *x, int32_t group, hr_value **scale)
{
    hr_node *node;
    hr_value *q = hr_graph_op(g, HR_OP_quantise_rows, &x, 1, &(hr_attrs){ .group = group }, &node);
    *scale = q ? node->out[1] : NULL;
    return q;
}

hr_value *hr_op_rms_norm(hr_graph *g, hr_value *x, hr_value *w, float eps, float offset)
{
    return NODE(g, HR_OP_rms_norm, (&(hr_attrs){ .eps = eps, .offset = offset }), x, w);
}

hr_value *hr_op_rope(hr_graph *g, hr_value *x, hr_value *positions, hr_value *inv_freq,
                     float attention_factor)
{
    return NODE(g, HR_OP_rope, &(hr_attrs){ .scale = attention_factor }, x, positions, inv_freq);
}

hr_value *hr_op_gated(hr_graph *g, hr_value *gate, hr_value *up, hr_activation act)
{
    return NODE(g, HR_OP_gated, &(hr_attrs){ .act = act }, gate, up);
}

hr_value *hr_op_activation(hr_graph *g, hr_value *x, hr_activation act)
{
    return NODE(g, HR_OP_activation, &(hr_attrs){ .act = act }, x);
}

hr_value *hr_op_add(hr_graph *g, hr_value *a, hr_value *b)
{
    return NODE(g, HR_OP_add, NULL, a, b);
}

hr_value *hr_op_scale(hr_graph *g, hr_value *x, float scale)
{
    return NODE(g, HR_OP_scale, &(hr_attrs){ .scale = scale }, x);
}

hr_value *hr_op_mul_rows(hr_graph *g, hr_value *x, hr_value *factor)
{
    return NODE(g, HR_OP_mul_rows, NULL, x, factor);
}

hr_value *hr_op_route(hr_graph *g, hr_value *x, int32_t n, int32_t group, hr_value **share)
{
    hr_node *node;
    hr_attrs attrs = { .n = n, .group = group };
    hr_value *ids = hr_graph_op(g, HR_OP_route, &x, 1, &attrs, &node);
    *share = ids ? node->out[1] : NULL;
    return ids;
}

hr_value *hr_op_softcap(hr_graph *g, hr_value *x, float cap)
{
    return NODE(g, HR_OP_softcap, &(hr_attrs){ .cap = cap }, x);
}

hr_value *hr_op_cast(hr_graph *g, hr_value *x, hr_dtype dtype)
{
    return NODE(g, HR_OP_cast, &(hr_attrs){ .dtype = dtype }, x);
}

hr_value *hr_op_kv_write(hr_graph *g, hr_value *cache, hr_value *x, hr_value *slots)
{
    return NODE(g, HR_OP_kv_write, NULL, cache, x, slots);
}

hr_value *hr_op_attention(hr_graph *g, hr_value *q, const hr_attention_inputs *a)
{
    hr_attrs attrs = { .scale = a->scale, .window = a->window, .cap = a->cap };
    return NODE(g, HR_OP_attention, &attrs, q, a->k_cache, a->v_cache, a->block_tables,
                a->query_starts, a->seq_lens, a->sink, a->k_scale, a->v_scale);
}

hr_value *hr_op_gather_rows(hr_graph *g, hr_value *x, hr_value *rows)
{
    return NODE(g, HR_OP_gather_rows, NULL, x, rows);
}

hr_value *hr_op_all_reduce(hr_graph *g, hr_value *x, hr_value *bias, int32_t group, hr_dtype dtype)
{
    return NODE(g, HR_OP_all_reduce, (&(hr_attrs){ .group = group, .dtype = dtype }), x, bias);
}

hr_value *hr_op_all_gather(hr_graph *g, hr_value *x, int32_t group, int64_t n)
{
    hr_attrs attrs = { .group = group, .n = (int32_t)n };
    if (n > INT32_MAX)
        return hr_graph_stick(
            g, hr_fail(HR_INVALID_ARGUMENT, "all_gather: %lld columns", (long long)n));
    return NODE(g, HR_OP_all_gather, &attrs, x);
}
