/* quantization_config of GPTQ (AutoGPTQ, GPTQModel) and of AWQ (AutoAWQ).
 *
 * Runs on the thread that loads; owns nothing. Neither lists its modules reliably: the tensors say
 * which linears are quantised. How scales were found, and which kernels a Python library should
 * take, has no bearing on the numbers. GPTQ's desc_act needs no look either: each "g_idx" tells in
 * which group a column is, and is looked at when tensors are bound. */
#include <string.h>

#include "model/quantization_fields.h"

static const hr_quant_field gptq_fields[] = {
    { "quant_method", "null", { "gptq" } },
    { "bits", "null", { "4" } },
    { "checkpoint_format", "gptq", { "gptq", "gptq_v2" } },
    { "dynamic", "null", { "null", "{}" } }, /* other bits for some modules */
    { "is_marlin_format", "false", { "false" } },
    { "pack_dtype", "int32", { "int32" } },
    { "group_size", "null", { NULL } }, /* read below */
    HR_QUANT_ANY("sym"),                /* zero points are in the file */
    HR_QUANT_ANY("desc_act"),
    HR_QUANT_ANY("static_groups"),
    HR_QUANT_ANY("true_sequential"),
    HR_QUANT_ANY("damp_percent"),
    HR_QUANT_ANY("damp_auto_increment"),
    HR_QUANT_ANY("lm_head"),
    HR_QUANT_ANY("meta"),
    HR_QUANT_ANY("model_name_or_path"),
    HR_QUANT_ANY("model_file_base_name"),
    HR_QUANT_ANY("quant_path"),
    HR_QUANT_ANY("modules_in_block_to_quantize"),
    HR_QUANT_ANY("block_name_to_quantize"),
    HR_QUANT_ANY("module_name_preceding_first_block"),
    HR_QUANT_ANY("backend"),
    HR_QUANT_ANY("batch_size"),
    HR_QUANT_ANY("cache_block_outputs"),
    HR_QUANT_ANY("dataset"),
    HR_QUANT_ANY("disable_exllama"),
    HR_QUANT_ANY("exllama_config"),
    HR_QUANT_ANY("max_input_length"),
    HR_QUANT_ANY("model_seqlen"),
    HR_QUANT_ANY("pad_token_id"),
    HR_QUANT_ANY("tokenizer"),
    HR_QUANT_ANY("use_cuda_fp16"),
    HR_QUANT_ANY("use_exllama"),
    HR_QUANT_ANY("mse"),
    HR_QUANT_ANY("parallel_packing"),
    HR_QUANT_ANY("pack_impl"),
    HR_QUANT_ANY("adapter"),
    HR_QUANT_ANY("v2"),
};

static const hr_quant_field awq_fields[] = {
    { "quant_method", "null", { "awq" } },
    { "bits", "null", { "4" } },
    { "version", "gemm", { "gemm", "GEMM" } }, /* gemv packs in another order */
    { "zero_point", "true", { "true" } },
    { "group_size", "null", { NULL } }, /* read below */
    HR_QUANT_ANY("modules_to_not_convert"),
    HR_QUANT_ANY("backend"),
    HR_QUANT_ANY("do_fuse"),
    HR_QUANT_ANY("exllama_config"),
    HR_QUANT_ANY("fuse_max_seq_len"),
    HR_QUANT_ANY("modules_to_fuse"),
};

static hr_status read_columns(const hr_json *json, int64_t *out)
{
    const hr_json *size = hr_json_get(json, "group_size");
    hr_format f;
    int64_t columns = 0;
    *out = 0;
    if (size) HR_TRY(hr_json_to_i64(size, "quantization_config.group_size", &columns));
    if (columns == -1) return HR_OK;
    *out = columns;
    if (columns > 0 && hr_int4_format(columns, columns, &f)) return HR_OK;
    return hr_fail(HR_UNIMPLEMENTED,
                   "config.json: quantization_config.group_size %.*s is not supported; -1 and "
                   "multiples of 32 are",
                   HR_STR_ARG(size ? hr_quant_text(size) : HR_STR("(absent)")));
}

/* One group for all that is found. */
static hr_status put_group(const hr_json *json, hr_arena *arena, hr_quant_layout layout,
                           int zero_add, hr_quantization *q)
{
    hr_quant_group *g = hr_arena_new(arena, hr_quant_group);
    hr_str *target = hr_arena_new(arena, hr_str);
    if (!g || !target) return hr_fail(HR_RESOURCE_EXHAUSTED, "config.json: quantization_config");
    *target = HR_STR("Linear");
    *g = (hr_quant_group){ .name = layout == HR_QUANT_AWQ ? HR_STR("awq") : HR_STR("gptq"),
                           .targets = { target, 1 },
                           .layout = layout,
                           .bits = 4,
                           .has_zero_points = true,
                           .zero_add = zero_add };
    q->groups = g;
    q->n_groups = 1;
    return read_columns(json, &g->columns);
}

/* The first format holds each zero point less one. */
hr_status hr_quant_read_gptq(const hr_json *json, hr_arena *arena, hr_quantization *q)
{
    HR_TRY(hr_quant_check("quantization_config", HR_QUANT_FIELDS(gptq_fields), json));
    const hr_json *format = hr_json_get(json, "checkpoint_format");
    bool second = format && hr_str_eq_c(hr_quant_text(format), "gptq_v2");
    return put_group(json, arena, HR_QUANT_GPTQ, second ? 0 : 1, q);
}

hr_status hr_quant_read_awq(const hr_json *json, hr_arena *arena, hr_quantization *q)
{
    HR_TRY(hr_quant_check("quantization_config", HR_QUANT_FIELDS(awq_fields), json));
    return put_group(json, arena, HR_QUANT_AWQ, 0, q);
}
