/* What a checkpoint's quantization_config says: which linears hold integers, and of which kind.
 *
 * Parsed with the config (quantization*.c), laid over the table of tensors before a family takes
 * them (quantized*.c). Lives in the model's arena. */
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

/* How a module's integers lie in the file. */
typedef enum hr_quant_layout {
    HR_QUANT_BYTES,  /* "weight" int8 [N,K], one number a byte, and "weight_scale" */
    HR_QUANT_PACKED, /* "weight_packed" int32 [N,K*bits/32], unsigned, and "weight_scale" */
    HR_QUANT_GPTQ,   /* "qweight" int32 [K/8,N], "qzeros" [K/group,N/8], "scales" [K/group,N] */
    HR_QUANT_AWQ,    /* the same, "qweight" [K,N/8], columns of eight interleaved */
} hr_quant_layout;

/* Words run across the rows of the matrix, and tensors have the names of GPTQ's files. */
static inline bool hr_quant_is_across(hr_quant_layout layout)
{
    return layout == HR_QUANT_GPTQ || layout == HR_QUANT_AWQ;
}

/* A config group. 8 bits: a scale per channel or per tensor (HR_FORMAT_I8C). 4 bits: one per group
 * of columns (HR_FORMAT_I4G…). */
typedef struct hr_quant_group {
    hr_str name;
    hr_quant_names targets;
    hr_quant_layout layout;
    int bits;
    int64_t columns;      /* that share a scale; 0 = all of a row */
    int zero_add;         /* what the stored zero points lack */
    bool has_zero_points; /* else the zero is 8, whatever else a file has */
    hr_weight_rows rows;  /* what the linear takes */
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
/* GPTQ and AWQ name no modules: those are quantised that have a "qweight". */
bool hr_quantization_is_by_presence(const hr_quantization *q);

/* Joins each quantised matrix with its scales and refuses integers that nothing explains. */
hr_status hr_quantized_bind(hr_model *m);
/* The same of one tensor of dummy weights. */
hr_status hr_quantized_bind_dummy(hr_model *m, hr_tensor *t);
void hr_quantized_deinit(hr_model *m);
/* "model.layers.0.mlp.up_proj" of its weight; false for what is no linear's matrix. */
bool hr_quantized_module(const hr_weight *w, hr_str *out);
/* The format of 4-bit groups of so many columns (0 = K) in rows of K; false where there is none. */
bool hr_int4_format(int64_t columns, int64_t K, hr_format *out);

/* The caller's wish as a quantization_config; refused where the checkpoint has one. */
hr_status hr_quantize_plan(hr_model *m, const hr_model_options *o);
/* After the family has its tensors: those that the plan names are quantised as they are read. */
hr_status hr_quantize_bind(hr_model *m);
/* Whether that goes for dummy weights too. */
bool hr_quantize_of_dummies(const hr_model *m);

#endif
