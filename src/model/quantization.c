/* quantization_config of config.json: whose it is, and compressed-tensors' own.
 *
 * Runs on the thread that loads; owns nothing. A group's tables depend on its bits; fields that are
 * absent stand for the default of that library. */
#include "model/quantization.h"

#include <stdio.h>
#include <string.h>

#include "model/quantization_fields.h"

#define FORMATS                                                                                    \
    {                                                                                              \
        "int-quantized", "pack-quantized", "mixed-precision"                                       \
    }

static const hr_quant_field top_fields[] = {
    { "quant_method", "null", { "compressed-tensors" } },
    { "format", "null", FORMATS },
    { "kv_cache_scheme", "null", { "null" } },
    { "transform_config", "null", { "null", "{}" } },
    { "config_groups", "null", { NULL } },   /* read below */
    { "sparsity_config", "null", { NULL } }, /* read below */
    { "ignore", "null", { NULL } },          /* read below */
    { "quantization_status", "", { NULL } }, /* the tensors themselves say */
    { "global_compression_ratio", "", { NULL } },
    { "version", "", { NULL } },
};

static const hr_quant_field group_fields[] = {
    { "output_activations", "null", { "null" } },
    { "format", "null", { "null", "int-quantized", "pack-quantized" } },
    { "targets", "null", { NULL } },           /* read below */
    { "weights", "null", { NULL } },           /* read below */
    { "input_activations", "null", { NULL } }, /* read below */
};

static const hr_quant_field weight_fields_8[] = {
    { "num_bits", "8", { "8", "4" } },
    { "type", "int", { "int" } },
    { "symmetric", "true", { "true" } },
    { "strategy", "null", { "channel", "tensor" } },
    { "dynamic", "false", { "false" } },
    { "group_size", "null", { "null", "-1" } },
    { "block_structure", "null", { "null" } },
    { "actorder", "null", { "null", "static", "weight" } },
    HR_QUANT_ANY("observer"), /* how scales were found, and their dtype, which the file has */
    HR_QUANT_ANY("observer_kwargs"),
    HR_QUANT_ANY("scale_dtype"),
    HR_QUANT_ANY("zp_dtype"),
};

static const hr_quant_field weight_fields_4[] = {
    { "num_bits", "8", { "4" } },
    { "type", "int", { "int" } },
    { "symmetric", "true", { "true", "false" } },
    { "strategy", "null", { "group", "channel" } },
    { "dynamic", "false", { "false" } },
    { "group_size", "null", { NULL } }, /* read below */
    { "block_structure", "null", { "null" } },
    { "actorder", "null", { "null", "static", "weight" } }, /* groups lie side by side */
    HR_QUANT_ANY("observer"), /* how scales were found, and their dtype, which the file has */
    HR_QUANT_ANY("observer_kwargs"),
    HR_QUANT_ANY("scale_dtype"),
    HR_QUANT_ANY("zp_dtype"),
};

static const hr_quant_field activation_fields[] = {
    { "num_bits", "8", { "8" } },
    { "type", "int", { "int" } },
    { "symmetric", "true", { "true" } },
    { "strategy", "null", { "token" } },
    { "dynamic", "false", { "true" } },
    { "group_size", "null", { "null" } },
    { "block_structure", "null", { "null" } },
    { "actorder", "null", { "null" } },
    HR_QUANT_ANY("observer"), /* how scales were found, and their dtype, which the file has */
    HR_QUANT_ANY("observer_kwargs"),
    HR_QUANT_ANY("scale_dtype"),
    HR_QUANT_ANY("zp_dtype"),
};

static bool says(const hr_json *o, const char *key, const char *text)
{
    const hr_json *v = hr_json_get(o, key);
    return v && hr_str_eq_c(hr_quant_text(v), text);
}

/* ---- a group -------------------------------------------------------------------------------- */

/* The group's own format, else the config's, which may only be a mixture where each has its own. */
static hr_status read_layout(const char *where, const hr_json *config, const hr_json *json,
                             hr_quant_group *out)
{
    const hr_json *from =
        says(json, "format", "int-quantized") || says(json, "format", "pack-quantized") ? json
                                                                                        : config;
    if (says(from, "format", "mixed-precision"))
        return hr_fail(HR_INVALID_ARGUMENT,
                       "config.json: %s.format is missing: quantization_config.format is "
                       "mixed-precision",
                       where);
    out->layout = says(from, "format", "pack-quantized") ? HR_QUANT_PACKED : HR_QUANT_BYTES;
    return HR_OK;
}

/* strategy group has a group_size, channel none. */
static hr_status read_columns(const char *where, const hr_json *weights, hr_quant_group *out)
{
    const hr_json *size = hr_json_get(weights, "group_size");
    bool none = !size || size->type == HR_JSON_NULL;
    int64_t columns = -1;
    if (!none) HR_TRY(hr_json_to_i64(size, "quantization_config: group_size", &columns));
    bool groups = says(weights, "strategy", "group");
    hr_format f;
    if (groups ? columns > 0 && hr_int4_format(columns, columns, &f) : columns == -1) {
        out->columns = groups ? columns : 0;
        return HR_OK;
    }
    return hr_fail(HR_UNIMPLEMENTED, "config.json: %s.group_size %.*s is not supported; %s", where,
                   HR_STR_ARG(none ? HR_STR("(absent)") : hr_quant_text(size)),
                   groups ? "multiples of 32 are" : "with strategy channel it is -1 or null");
}

static hr_status read_weights(const char *where, const hr_json *json, hr_quant_group *out)
{
    const hr_json *w = hr_json_get(json, "weights");
    char part[200];
    snprintf(part, sizeof part, "%s.weights", where);
    bool four = says(w, "num_bits", "4");
    HR_TRY(hr_quant_check(
        part, four ? HR_QUANT_FIELDS(weight_fields_4) : HR_QUANT_FIELDS(weight_fields_8), w));
    out->bits = four ? 4 : 8;
    out->has_zero_points = says(w, "symmetric", "false");
    if (out->layout == HR_QUANT_PACKED && says(w, "strategy", "tensor"))
        return hr_fail(HR_UNIMPLEMENTED,
                       "config.json: %s.strategy tensor is not supported with pack-quantized; "
                       "channel is",
                       part);
    return four ? read_columns(part, w, out) : HR_OK;
}

static hr_status read_activations(const char *where, const hr_json *json, hr_quant_group *out)
{
    const hr_json *a = hr_json_get(json, "input_activations");
    char part[200];
    snprintf(part, sizeof part, "%s.input_activations", where);
    if (a && a->type != HR_JSON_NULL) {
        out->rows = HR_WEIGHT_ROWS_INT8;
        return hr_quant_check(part, HR_QUANT_FIELDS(activation_fields), a);
    }
    out->rows = out->bits == 8 ? HR_WEIGHT_ROWS_FLOAT : HR_WEIGHT_ROWS_ANY;
    return HR_OK;
}

static hr_status read_group(const hr_json *config, const hr_json *json, hr_arena *arena,
                            hr_quant_group *out)
{
    char where[160], part[200];
    snprintf(where, sizeof where, "quantization_config.config_groups.%.*s",
             (int)(json->key.n > 80 ? 80 : json->key.n), json->key.p);
    HR_TRY(hr_quant_check(where, HR_QUANT_FIELDS(group_fields), json));
    HR_TRY(read_layout(where, config, json, out));
    HR_TRY(read_weights(where, json, out));
    HR_TRY(read_activations(where, json, out));
    char *name = hr_arena_copy(arena, json->key.p, json->key.n);
    if (!name) return hr_fail(HR_RESOURCE_EXHAUSTED, "config.json: %s", where);
    out->name = (hr_str){ name, json->key.n };
    snprintf(part, sizeof part, "%s.targets", where);
    return hr_quant_read_names(part, hr_json_get(json, "targets"), arena, &out->targets);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Zeros that are stored as such are numbers like others. */
static hr_status check_sparsity(const hr_json *json)
{
    static const char *const dense[HR_QUANT_MOST_CHOICES] = { "dense" };
    const hr_json *o = hr_json_get(json, "sparsity_config");
    if (!o || o->type == HR_JSON_NULL || (o->type == HR_JSON_OBJECT && o->count == 0)) return HR_OK;
    const hr_json *format = hr_json_get(o, "format");
    if (format && hr_str_eq_c(hr_quant_text(format), "dense")) return HR_OK;
    return hr_quant_refuse("quantization_config.sparsity_config", HR_STR("format"),
                           format ? hr_quant_text(format) : HR_STR("(absent)"), dense);
}

static hr_status read_compressed(const hr_json *json, hr_arena *arena, hr_quantization *q)
{
    HR_TRY(hr_quant_check("quantization_config", HR_QUANT_FIELDS(top_fields), json));
    HR_TRY(check_sparsity(json));
    HR_TRY(hr_quant_read_names("quantization_config.ignore", hr_json_get(json, "ignore"), arena,
                               &q->ignore));
    const hr_json *groups = hr_json_get(json, "config_groups");
    if (!groups || groups->type != HR_JSON_OBJECT || groups->count == 0)
        return hr_fail(
            HR_INVALID_ARGUMENT,
            "config.json: quantization_config.config_groups must be an object of groups");
    hr_quant_group *list = hr_arena_array(arena, groups->count, sizeof *list);
    if (!list) return hr_fail(HR_RESOURCE_EXHAUSTED, "config.json: quantization_config");
    memset(list, 0, groups->count * sizeof *list);
    for (size_t i = 0; i < groups->count; i++)
        HR_TRY(read_group(json, &groups->items[i], arena, &list[i]));
    q->groups = list;
    q->n_groups = groups->count;
    return HR_OK;
}

static hr_status read_any(const hr_json *json, hr_arena *arena, hr_quantization *q)
{
    static const char *const methods[HR_QUANT_MOST_CHOICES] = { "compressed-tensors", "gptq",
                                                                "awq" };
    const hr_json *method = hr_json_get(json, "quant_method");
    if (says(json, "quant_method", "gptq")) return hr_quant_read_gptq(json, arena, q);
    if (says(json, "quant_method", "awq")) return hr_quant_read_awq(json, arena, q);
    if (json->type != HR_JSON_OBJECT || says(json, "quant_method", "compressed-tensors"))
        return read_compressed(json, arena, q);
    return hr_quant_refuse("quantization_config", HR_STR("quant_method"),
                           method ? hr_quant_text(method) : HR_STR("(absent)"), methods);
}

bool hr_quantization_is_by_presence(const hr_quantization *q)
{
    return hr_quant_is_across(q->groups[0].layout);
}

hr_status hr_quantization_from_json(const hr_json *config, hr_arena *arena,
                                    const hr_quantization **out)
{
    *out = NULL;
    const hr_json *json = hr_json_get(config, "quantization_config");
    if (!json || json->type == HR_JSON_NULL) /* its name in the library's first years */
        json = hr_json_get(config, "compression_config");
    if (!json || json->type == HR_JSON_NULL) return HR_OK;
    hr_quantization *q = hr_arena_new(arena, hr_quantization);
    if (!q) return hr_fail(HR_RESOURCE_EXHAUSTED, "config.json: quantization_config");
    HR_TRY(read_any(json, arena, q));
    *out = q;
    return HR_OK;
}
