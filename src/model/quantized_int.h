/* What the two halves of the binding of quantised matrices share. */
#ifndef HEADRACE_MODEL_QUANTIZED_INT_H
#define HEADRACE_MODEL_QUANTIZED_INT_H

#include "model/model_int.h"

/* The tensor "module.tail", which is then a part of another and no weight of its own; NULL = there
 * is none. */
hr_tensor *hr_quantized_take(hr_model *m, hr_str module, const char *tail);
/* The same; a missing one is refused. */
hr_status hr_quantized_need(hr_model *m, hr_str module, const char *tail, const hr_tensor **out);
/* All numbers of a tensor as f32. */
hr_status hr_quantized_numbers(const hr_weight *w, float *to);
/* t, int8 [N,K], gets the scales of its module. */
hr_status hr_quantized_scales(hr_model *m, hr_tensor *t, hr_str module);

/* ---- quantized_int4.c ------------------------------------------------------------------------ */

/* Adds "module.weight" for each "module.weight_packed" and "module.qweight". */
hr_status hr_int4_bind(hr_model *m);
/* t, int8 [N,K] of -8 to 7, becomes a matrix of 4-bit groups. */
hr_status hr_int4_bind_bytes(hr_model *m, hr_tensor *t, hr_str module, const hr_quant_group *g);
hr_status hr_int4_bind_dummy(hr_tensor *t, const hr_quant_group *g);

#endif
