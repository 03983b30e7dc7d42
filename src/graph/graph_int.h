/* Inside the graph room: what builder, inference and verification share. */
#ifndef HEADRACE_GRAPH_GRAPH_INT_H
#define HEADRACE_GRAPH_GRAPH_INT_H

#include "graph/graph.h"

/* What inference says of one result. */
typedef struct hr_result_spec {
    hr_dtype dtype;
    hr_shape shape;
    hr_live live;
} hr_result_spec;

/* Checks a node's operands and attributes and states its results, creating nothing. `shape` is
 * reshape's; NULL else. A refusal is a sentence naming the op and the operand. */
HR_MUST_USE hr_status hr_graph_results(const hr_node *n, const hr_shape *shape,
                                       hr_result_spec out[HR_NODE_MAX_OUT]);

/* One node under inference: operands are matched against dimension letters (docs/SHAPES.md). The
 * first use of a letter binds it, later ones must agree. Failures are sticky. */
typedef struct hr_infer {
    const hr_node *node;
    const hr_shape *shape; /* reshape's */
    int64_t dim['z' + 1];  /* by letter; 0 = not yet bound */
    hr_result_spec *out;   /* [HR_NODE_MAX_OUT] */
    hr_status status;
} hr_infer;

/* Sets of dtypes that an operand may have. */
enum {
    HR_SET_F32 = 1u << HR_DTYPE_F32,
    HR_SET_FLOAT = 1u << HR_DTYPE_F32 | 1u << HR_DTYPE_BF16 | 1u << HR_DTYPE_F16,
    HR_SET_I8 = 1u << HR_DTYPE_I8,
    HR_SET_U16 = 1u << HR_DTYPE_U16,
    HR_SET_I32 = 1u << HR_DTYPE_I32,
    HR_SET_U32 = 1u << HR_DTYPE_U32,
    HR_SET_ANY = (1u << (HR_DTYPE_U32 + 1)) - 1,
};

/* Operand i, called `name` in messages, must be there with a dtype of `set` and the dims `letters`;
 * '*' stands for any number of dims. Returns it, or NULL after a failure. */
const hr_value *hr_infer_operand(hr_infer *m, int i, const char *name, unsigned set,
                                 const char *letters);
/* As above; an absent operand is fine and gives NULL. */
const hr_value *hr_infer_optional(hr_infer *m, int i, const char *name, unsigned set,
                                  const char *letters);
/* Sticky refusal: "op: sentence", unless one is recorded already or `ok` holds. */
void hr_infer_require(hr_infer *m, bool ok, const char *fmt, ...) HR_PRINTF(3, 4);
/* Result i has these dims; the live count of operand 0. */
void hr_infer_result(hr_infer *m, int i, hr_dtype dtype, const char *letters);
/* Result i has the shape and live count of `like`. */
void hr_infer_result_like(hr_infer *m, int i, hr_dtype dtype, const hr_value *like);

/* infer_sampler.c: ops from mask_bits to write_rows. */
void hr_infer_sampler(hr_infer *m);

/* contract.c: FAILED_PRECONDITION where n breaks its graph's contract, if that has one. */
HR_MUST_USE hr_status hr_graph_check_contract(const hr_graph *g, const hr_node *n);

/* Every dim positive and the bytes countable. */
HR_MUST_USE hr_status hr_shape_check(hr_shape s, const char *what);
/* "[16,576]" into `to`; returns `to`. */
#define HR_SHAPE_TEXT 96
const char *hr_shape_text(hr_shape s, char to[HR_SHAPE_TEXT]);

/* Appends a value; NULL when memory is short (recorded in g->status). */
hr_value *hr_graph_add_value(hr_graph *g, hr_value_kind kind, hr_dtype dtype, hr_shape shape,
                             hr_live live);
/* Records the thread's message as the graph's first failure; returns NULL for builders. */
hr_value *hr_graph_stick(hr_graph *g, hr_status status);

#endif
