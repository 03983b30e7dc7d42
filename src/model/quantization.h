/* What a checkpoint's quantization_config says: which linears hold integers, and of which kind.
 *
 * Parsed with the config (quantization.c), laid over the table of tensors before a family takes
 * them (quantized.c). Lives in the model's arena. */
#ifndef HEADRACE_MODEL_QUANTIZATION_H
#define HEADRACE_MODEL_QUANTIZATION_H

#include "base/json.h"
#include "model/model.h"

typedef struct hr_tensor hr_tensor;

/* Names of modules as the file lists them: plain, "re:" and a pattern, or a class ("Linear"). */
typedef struct hr_quant_names {
    const hr_str *items; /* [n] */
    size_t n;
} hr_quant_names;

/* A config group. There is one scheme: int8 numbers with a scale per channel or per tensor, met by
 * int8 rows with a scale per token (HR_FORMAT_I8C). */
typedef struct hr_quant_group {
    hr_str name;
    hr_quant_names targets;
} hr_quant_group;

struct hr_quantization {
    const hr_quant_group *groups; /* [n_groups], in the order of the file */
    size_t n_groups;
    hr_quant_names ignore;
};

/* *out NULL when the config has none. What is not supported is refused with its field. */
hr_status hr_quantization_from_json(const hr_json *config, hr_arena *arena,
                                    const hr_quantization **out);
/* The group that quantises a linear of this name ("lm_head"); NULL = none does. */
hr_status hr_quantization_of(const hr_quantization *q, hr_str module, const hr_quant_group **out);

/* Joins each quantised matrix with its scales and refuses integers that nothing explains. */
hr_status hr_quantized_bind(hr_model *m);
/* The same of one tensor of dummy weights. */
hr_status hr_quantized_bind_dummy(hr_model *m, hr_tensor *t);
/* "model.layers.0.mlp.up_proj" of its weight; false for what is no linear's matrix. */
bool hr_quantized_module(const hr_weight *w, hr_str *out);

/* The caller's wish as a quantization_config; refused where the checkpoint has one. */
hr_status hr_quantize_plan(hr_model *m, const hr_model_options *o);
/* After the family has its tensors: those that the plan names are quantised as they are read. */
hr_status hr_quantize_bind(hr_model *m);

#endif
