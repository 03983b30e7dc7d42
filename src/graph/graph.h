/* The intermediate representation: a straight list of nodes over typed values, static shapes.
 *
 * A model file builds a graph op by op and reads like its paper. Failures are sticky: after one,
 * every builder returns NULL and hr_graph_finish reports the first sentence. Ops are named in
 * ops.def; what each means is there and in src/ref. */
#ifndef HEADRACE_GRAPH_GRAPH_H
#define HEADRACE_GRAPH_GRAPH_H

#include "base/str.h"
#include "graph/types.h"

typedef enum hr_op {
#define HR_OP(name, kind, inputs, results, signature) HR_OP_##name,
#include "graph/ops.def"
#undef HR_OP
    HR_OP_COUNT,
} hr_op;

typedef enum hr_activation {
    HR_ACT_NONE,
    HR_ACT_SILU,
    HR_ACT_GELU,      /* erf */
    HR_ACT_GELU_TANH, /* tanh approximation */
    HR_ACT_RELU,
} hr_activation;

#define HR_NODE_MAX_IN    9
#define HR_PENALTIES_MORE 64 /* most columns of its operand `more` */
#define HR_NODE_MAX_OUT   3

typedef struct hr_node hr_node;
typedef struct hr_graph hr_graph;

typedef enum hr_value_kind {
    HR_VALUE_INPUT,  /* bound at execute */
    HR_VALUE_WEIGHT, /* a checkpoint tensor */
    HR_VALUE_CONST,  /* f32 data owned by the graph (rope frequencies) */
    HR_VALUE_RESULT, /* of a node */
} hr_value_kind;

typedef struct hr_value {
    uint32_t id; /* position in hr_graph.values */
    hr_value_kind kind;
    hr_dtype dtype; /* of a weight: the dtype its dequantised numbers have, F32 */
    hr_shape shape;
    hr_live live;            /* what bounds dim 0 */
    const char *name;        /* inputs, outputs, weights; NULL else */
    const hr_weight *weight; /* WEIGHT, borrowed from the model */
    const float *data;       /* CONST, arena */
    hr_node *producer;       /* RESULT */
    int result;              /* which of the producer's results */
} hr_value;

/* Attributes: those that an op's signature does not name are zero. */
typedef struct hr_attrs {
    float eps, offset, scale, cap;
    int32_t group, window, n;
    int32_t sections[3];
    hr_activation act;
    hr_dtype dtype;
} hr_attrs;

struct hr_node {
    hr_op op;
    int n_in, n_out;
    hr_value *in[HR_NODE_MAX_IN]; /* NULL = optional and absent */
    hr_value *out[HR_NODE_MAX_OUT];
    hr_attrs attrs;
};

struct hr_graph {
    const char *name;    /* program name: "backbone", "head_sampler" … */
    hr_arena arena;      /* owns everything below */
    bool has_contract;   /* see hr_graph_contract */
    hr_dtype activation; /* of it */
    hr_status status;    /* first failure of a builder */
    char message[HR_MESSAGE_MAX];
    hr_value **values;
    size_t n_values, values_capacity;
    hr_value **weights;                 /* open addressing by the weight's address; NULL = free */
    size_t n_weights, weights_capacity; /* a power of two, or 0 */
    hr_node **nodes;                    /* in execution order */
    size_t n_nodes, nodes_capacity;
    hr_value **inputs; /* in binding order */
    size_t n_inputs, inputs_capacity;
    struct hr_output {
        hr_value *value;
        const char *name;
        int donor; /* index of the donated input that this output continues in place; -1 = none */
    } * outputs;
    size_t n_outputs, outputs_capacity;
};

hr_status hr_graph_create(const char *name, hr_graph **out);
void hr_graph_destroy(hr_graph *g);

/* Leaves. Names are copied. A weight used twice is one value. */
hr_value *hr_graph_input(hr_graph *g, const char *name, hr_dtype dtype, hr_shape shape,
                         hr_live live);
hr_value *hr_graph_weight(hr_graph *g, const hr_weight *w);
hr_value *hr_graph_const(hr_graph *g, const char *name, const float *data, hr_shape shape);
void hr_graph_output(hr_graph *g, const char *name, hr_value *v);
/* `v` continues the donated input `from` in place (KV cache, tables). */
void hr_graph_output_donated(hr_graph *g, const char *name, hr_value *v, hr_value *from);

/* One node of any op: runs shape and dtype inference and returns its first result; others are in
 * (*node)->out. `in` holds n_in values, NULL where absent. */
hr_value *hr_graph_op(hr_graph *g, hr_op op, hr_value *const *in, int n_in, const hr_attrs *attrs,
                      hr_node **node);
/* As above with a result shape, for reshape. */
hr_value *hr_graph_reshape(hr_graph *g, hr_value *x, hr_shape shape);

/* Named builders, the words that model files are written in. */
hr_value *hr_op_embed(hr_graph *g, hr_value *ids, hr_value *w, hr_dtype dtype);
hr_value *hr_op_linear(hr_graph *g, hr_value *x, hr_value *w, hr_value *bias, hr_dtype dtype);
/* x quantised by hr_op_quantise_rows: (q, scale). */
hr_value *hr_op_linear_q8(hr_graph *g, hr_value *q, hr_value *scale, hr_value *w, hr_value *bias,
                          hr_dtype dtype);
/* w [E,N,K]: each row meets the matrix that groups [T] names. `scale` of quantised rows, or NULL.
 */
hr_value *hr_op_linear_grouped(hr_graph *g, hr_value *x, hr_value *scale, hr_value *w,
                               hr_value *groups, hr_dtype dtype);
hr_value *hr_op_quantise_rows(hr_graph *g, hr_value *x, int32_t group, hr_value **scale);
hr_value *hr_op_rms_norm(hr_graph *g, hr_value *x, hr_value *w, float eps, float offset);
hr_value *hr_op_rope(hr_graph *g, hr_value *x, hr_value *positions, hr_value *inv_freq,
                     float attention_factor);
hr_value *hr_op_gated(hr_graph *g, hr_value *gate, hr_value *up, hr_activation act);
hr_value *hr_op_activation(hr_graph *g, hr_value *x, hr_activation act);
hr_value *hr_op_add(hr_graph *g, hr_value *a, hr_value *b);
hr_value *hr_op_scale(hr_graph *g, hr_value *x, float scale);
hr_value *hr_op_mul_rows(hr_graph *g, hr_value *x, hr_value *factor);
/* The expert of rank n of each row of x [T,E], and its share among the `group` first (0 = all). */
hr_value *hr_op_route(hr_graph *g, hr_value *x, int32_t n, int32_t group, hr_value **share);
hr_value *hr_op_softcap(hr_graph *g, hr_value *x, float cap);
hr_value *hr_op_cast(hr_graph *g, hr_value *x, hr_dtype dtype);
hr_value *hr_op_kv_write(hr_graph *g, hr_value *cache, hr_value *x, hr_value *slots);
typedef struct hr_attention_inputs {
    hr_value *k_cache, *v_cache; /* [blocks,block,KV,D] */
    hr_value *k_scale, *v_scale; /* f32 [blocks,block,KV,1] of i8 caches, NULL else */
    hr_value *block_tables;      /* i32 [B,W] */
    hr_value *query_starts;      /* i32 [B+1] */
    hr_value *seq_lens;          /* i32 [B]; 0 = no such request */
    hr_value *sink;              /* f32 [N] or NULL */
    float scale;
    float cap;      /* 0 = none */
    int32_t window; /* 0 = all keys */
} hr_attention_inputs;
hr_value *hr_op_attention(hr_graph *g, hr_value *q, const hr_attention_inputs *a);
hr_value *hr_op_gather_rows(hr_graph *g, hr_value *x, hr_value *rows);
hr_value *hr_op_all_reduce(hr_graph *g, hr_value *x, hr_value *bias, int32_t group, hr_dtype dtype);
/* The first n columns; 0 = all. */
hr_value *hr_op_all_gather(hr_graph *g, hr_value *x, int32_t group, int64_t n);

/* From here on activations keep their dtype: a linear whose result has another dtype than its rows
 * (before they were quantised), and an embedding or a sum over devices in another one than
 * `activation`, are FAILED_PRECONDITION, by the name of their weight. Partial sums of a matrix cut
 * by columns may be float32, and a cast may do what it says. Passes keep the contract. */
void hr_graph_contract(hr_graph *g, hr_dtype activation);
/* "linear with model.layers.0.mlp.up_proj.weight", or "attention behind …": the nearest weight that
 * its rows went through. Returns out. */
enum { HR_NODE_TEXT = 200 };
const char *hr_graph_node_text(const hr_node *n, char out[HR_NODE_TEXT]);

/* Shape and dtype inference of one node whose inputs and attributes are set; creates its results
 * (reshape alone takes `shape`). Every result dtype is stated here and nowhere else. */
hr_status hr_graph_infer(hr_graph *g, hr_node *n, const hr_shape *shape);
/* Reports the first failure of building, then verifies. */
HR_MUST_USE hr_status hr_graph_finish(hr_graph *g);
/* Order, arity, shapes and dtypes recomputed and compared, donations legal. After every pass. */
HR_MUST_USE hr_status hr_graph_verify(const hr_graph *g);
/* UNIMPLEMENTED where a node exchanges with other devices: `backend` is one. */
HR_MUST_USE hr_status hr_graph_check_one_device(const hr_graph *g, const char *backend);
/* Text dump, one node a line: "%5 = linear(%3, w:model.layers.0…) : f32 [16,576] live=tokens". */
void hr_graph_print(const hr_graph *g, hr_buf *out);
/* A copy whose composites are rewritten into primitives: what ref and StableHLO run. */
HR_MUST_USE hr_status hr_graph_expand(const hr_graph *g, hr_graph **out);

const char *hr_op_name(hr_op op);
bool hr_op_is_composite(hr_op op);
int hr_op_inputs(hr_op op); /* n_in of every node of it: absent operands are NULL, never cut off */
int hr_op_results(hr_op op);
/* kv_write, count_tokens, write_rows: the result continues operand 0 in place, which therefore is
 * a donated input or the result of another such op. */
bool hr_op_is_in_place(hr_op op);
const char *hr_activation_name(hr_activation a);
/* Multi-axis positions: row of `positions` that column pair i of F uses (mrope). */
static inline int hr_rope_axis(const int32_t sections[3], int32_t i)
{
    if (sections[0] + sections[1] + sections[2] == 0) return 0;
    return i < sections[0] ? 0 : i < sections[0] + sections[1] ? 1 : 2;
}

#endif
