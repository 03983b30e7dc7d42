/* StableHLO programs: the text of a graph and what its arguments are. No plugin is needed here. */
#ifndef HEADRACE_PJRT_HLO_H
#define HEADRACE_PJRT_HLO_H

#include "graph/graph.h"

/* X(NAME, text in StableHLO, bytes of one element in a host buffer) */
#define HR_HLO_TYPE_LIST(X)                                                                        \
    X(F32, "f32", 4)                                                                               \
    X(BF16, "bf16", 2)                                                                             \
    X(F16, "f16", 2)                                                                               \
    X(F64, "f64", 8)                                                                               \
    X(I1, "i1", 1)                                                                                 \
    X(I4, "i4", 1)                                                                                 \
    X(UI4, "ui4", 1)                                                                               \
    X(I8, "i8", 1)                                                                                 \
    X(UI8, "ui8", 1)                                                                               \
    X(UI16, "ui16", 2)                                                                             \
    X(I32, "i32", 4)                                                                               \
    X(UI32, "ui32", 4)                                                                             \
    X(I64, "i64", 8)                                                                               \
    X(UI64, "ui64", 8)

typedef enum hr_hlo_type {
#define HR_HLO_TYPE_ENUM(name, text, bytes) HR_HLO_##name,
    HR_HLO_TYPE_LIST(HR_HLO_TYPE_ENUM)
#undef HR_HLO_TYPE_ENUM
} hr_hlo_type;

#define HR_HLO_MAX_RANK 6
typedef struct hr_hlo_shape {
    hr_hlo_type type;
    int rank;
    int64_t dim[HR_HLO_MAX_RANK];
} hr_hlo_shape;

/* One argument of @main: the graph's inputs in their order, then the parts of its weights. */
typedef struct hr_hlo_argument {
    hr_hlo_shape shape;
    int input;               /* index into graph->inputs, or -1 */
    const hr_weight *weight; /* with input -1: whose part it is */
    int part;                /* which one: numbers, scales, minima … (hlo_weight.c) */
} hr_hlo_argument;

typedef struct hr_hlo_program {
    hr_buf text;                /* owned, terminated */
    hr_graph *graph;            /* owned: the expanded graph that the text is of */
    hr_hlo_argument *arguments; /* owned by graph->arena */
    size_t n_arguments;
} hr_hlo_program;

/* How a program is written for one plugin. Zeroed is what every plugin takes. */
typedef struct hr_hlo_options {
    bool int4;                         /* numbers of 4-bit formats are i4 or ui4, else i8 */
    const char *attention_custom_call; /* target of a custom call in attention's place, or NULL */
} hr_hlo_options;

/* Results of @main are the graph's outputs in their order; donated inputs carry
 * tf.aliasing_output. UNIMPLEMENTED names an op or format that cannot be written. */
HR_MUST_USE hr_status hr_hlo_program_build(const hr_graph *g, const hr_hlo_options *opt,
                                           hr_hlo_program *out);
void hr_hlo_program_deinit(hr_hlo_program *p);

/* Whether numbers of that format are 4 bits wide. */
bool hr_hlo_format_is_4_bit(hr_format f);
size_t hr_hlo_shape_bytes(const hr_hlo_shape *s); /* of a host buffer, dense row-major */
/* What a buffer of that dtype is to a plugin. Halves are their bits, ui16: XLA's CPU compiler moves
 * a table of halves through f32 whole, where it would move integers in place. */
hr_hlo_type hr_hlo_type_of(hr_dtype d);
/* Reads and converts a weight's part to a host buffer of hr_hlo_shape_bytes. Thread-safe. Two
 * arguments with the same (weight, part) have the same bytes in every program. */
HR_MUST_USE hr_status hr_hlo_part_read(const hr_hlo_argument *a, void *to);

#endif
