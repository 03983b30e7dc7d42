/* The rows of ops_table.def and the operands that they stand for.
 *
 * Data are a pure function of (operand, row, column), so that a row keeps its numbers when the case
 * around it grows; rows past the live count hold NaN patterns. */
#ifndef HEADRACE_TESTS_OPS_DATA_H
#define HEADRACE_TESTS_OPS_DATA_H

#include "conformance/op_case.h"

/* How a result is compared with ref. */
typedef enum ops_agreement {
    EXACT,     /* to the bit */
    RELATIVE,  /* roundings beside |y| */
    BESIDE_X,  /* roundings beside the largest |x| of operand 0 */
    LINEAR,    /* roundings beside sum |x w| */
    ATTENTION, /* by the largest scores and values */
    OWN_TEST,  /* in test_backbone_ops.py or test_sampler_ops.py */
} ops_agreement;

typedef struct ops_row {
    const char *name;
    hr_op op;
    ops_agreement agreement;
    int64_t rows, roundings;
    const char *operands;
    hr_attrs attrs;
    hr_format format;
    hr_shape shape; /* reshape; dim 0 is T */
} ops_row;

extern const ops_row ops_table[];
extern const size_t ops_table_n;

/* The case with `rows` rows of which `live` are live. Its data are freed by ops_case_free. */
void ops_case_make(const ops_row *w, int64_t rows, int64_t live, hr_dtype dtype, op_case *c);
void ops_case_free(op_case *c);
/* True when the case differs from dtype to dtype. */
bool ops_has_dtypes(const ops_row *w);
/* Element i of a float operand or result. */
double ops_float(hr_dtype d, const void *from, int64_t i);
void *ops_alloc(size_t bytes);

#endif
