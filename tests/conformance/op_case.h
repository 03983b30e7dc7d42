/* One op, alone: a graph of a single node over host arrays, run through the backend vtable.
 *
 * Used by op_runner (NumPy oracles) and by the C conformance tests (backend against backend). */
#ifndef HEADRACE_TESTS_OP_CASE_H
#define HEADRACE_TESTS_OP_CASE_H

#include "backend/backend.h"

typedef enum op_operand_kind {
    OP_ABSENT,
    OP_INPUT,
    OP_WEIGHT, /* data = rows in `format`; scale = f32 [rows] for I8C */
    OP_CONST,
} op_operand_kind;

typedef struct op_operand {
    op_operand_kind kind;
    hr_dtype dtype;   /* INPUT */
    hr_format format; /* WEIGHT */
    hr_shape shape;
    hr_live live;       /* INPUT */
    const void *data;   /* borrowed */
    const float *scale; /* I8C, borrowed */
} op_operand;

typedef struct op_case {
    hr_op op;
    hr_attrs attrs;
    int n_in;
    op_operand in[HR_NODE_MAX_IN];
    hr_shape shape; /* reshape */
    int64_t live[HR_LIVE_COUNT];
} op_case;

typedef struct op_result {
    int n;
    struct {
        hr_dtype dtype;
        hr_shape shape;
        size_t bytes;
        void *data; /* owned */
    } out[HR_NODE_MAX_OUT];
} op_result;

/* Bytes of an operand's data, without its scales. */
size_t op_operand_bytes(const op_operand *o);
/* Result buffers start as zeros; rows past the live count stay so. In-place ops continue operand 0
 * as a donated input. */
HR_MUST_USE hr_status op_case_run(hr_backend *b, const op_case *c, op_result *out);
void op_result_deinit(op_result *r);
/* "ref", "cpu" (HEADRACE_ISA chooses the path) or "pjrt" (the plugin that HEADRACE_PJRT_PLUGIN
 * names); threads 0 = default, cpu's alone. UNIMPLEMENTED where this build has no such backend. */
HR_MUST_USE hr_status op_backend_create(const char *name, int threads, hr_backend **out);
/* With the last backend that is alive: frees the weights of all cases too. */
void op_backend_destroy(hr_backend *b);

/* A runner's main: [backend [threads]] on the command line, then one `answer` per line of standard
 * input, at last `end` (or NULL). Returns the exit status; a failure prints the thread's sentence
 * after `name`. */
int op_serve(const char *name, int argc, char **argv, hr_status (*answer)(hr_backend *, hr_str),
             void (*end)(void));

#endif
