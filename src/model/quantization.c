/* quantization_config of config.json, as compressed-tensors writes it.
 *
 * Runs on the thread that loads; owns nothing. Each object has a table of the fields that are known
 * and of what they may say: a new scheme is rows, not code. A field that is not in its table, or
 * that says something else, changes the mathematics in a way that nobody here implements, and is
 * refused by name. Fields that are absent stand for the default of that library. */
#include "model/quantization.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

enum { MOST_CHOICES = 3, MATCH_LIMIT = 100000 };

/* `choices` are the JSON texts that are supported, strings without their quotes; none = whatever it
 * says has no bearing on what is computed. */
typedef struct field {
    const char *key, *absent;
    const char *choices[MOST_CHOICES];
} field;

typedef struct field_table {
    const field *fields;
    size_t n;
} field_table;

#define TABLE(fields) ((field_table){ fields, sizeof(fields) / sizeof *(fields) })

static const field top_fields[] = {
    { "quant_method", "null", { "compressed-tensors" } },
    { "format", "null", { "int-quantized" } },
    { "kv_cache_scheme", "null", { "null" } },
    { "transform_config", "null", { "null", "{}" } },
    { "config_groups", "null", { NULL } },   /* read below */
    { "sparsity_config", "null", { NULL } }, /* read below */
    { "ignore", "null", { NULL } },          /* read below */
    { "quantization_status", "", { NULL } }, /* the tensors themselves say */
    { "global_compression_ratio", "", { NULL } },
    { "version", "", { NULL } },
};

static const field group_fields[] = {
    { "output_activations", "null", { "null" } },
    { "format", "null", { "null", "int-quantized" } },
    { "targets", "null", { NULL } },           /* read below */
    { "weights", "null", { NULL } },           /* read below */
    { "input_activations", "null", { NULL } }, /* read below */
};

/* How scales were found, and their dtype, which the file's tensor has. */
#define OBSERVED                                                                                   \
    { "observer", "", { NULL } }, { "observer_kwargs", "", { NULL } },                             \
        { "scale_dtype", "", { NULL } },                                                           \
    {                                                                                              \
        "zp_dtype", "",                                                                            \
        {                                                                                          \
            NULL                                                                                   \
        }                                                                                          \
    }

static const field weight_fields[] = {
    { "num_bits", "8", { "8" } },
    { "type", "int", { "int" } },
    { "symmetric", "true", { "true" } },
    { "strategy", "null", { "channel", "tensor" } },
    { "dynamic", "false", { "false" } },
    { "group_size", "null", { "null", "-1" } },
    { "block_structure", "null", { "null" } },
    { "actorder", "null", { "null" } },
    OBSERVED,
};

static const field activation_fields[] = {
    { "num_bits", "8", { "8" } },
    { "type", "int", { "int" } },
    { "symmetric", "true", { "true" } },
    { "strategy", "null", { "token" } },
    { "dynamic", "false", { "true" } },
    { "group_size", "null", { "null" } },
    { "block_structure", "null", { "null" } },
    { "actorder", "null", { "null" } },
    OBSERVED,
};

/* ---- tables --------------------------------------------------------------------------------- */

static hr_str json_text(const hr_json *v)
{
    switch (v->type) {
    case HR_JSON_NULL: return HR_STR("null");
    case HR_JSON_FALSE: return HR_STR("false");
    case HR_JSON_TRUE: return HR_STR("true");
    case HR_JSON_NUMBER:
    case HR_JSON_STRING:
    case HR_JSON_ARRAY:
    case HR_JSON_OBJECT: return v->text;
    }
    return HR_STR("");
}

static hr_status refuse(const char *where, hr_str key, hr_str text, const char *const *choices)
{
    char wanted[160] = "";
    size_t n = 0;
    for (int i = 0; choices && i < MOST_CHOICES && choices[i]; i++)
        n += (size_t)snprintf(wanted + n, sizeof wanted - n, "%s%s", i ? " or " : "; ", choices[i]);
    return hr_fail(HR_UNIMPLEMENTED, "config.json: %s.%.*s %.*s is not supported%s%s", where,
                   HR_STR_ARG(key), (int)(text.n > 80 ? 80 : text.n), text.p, wanted,
                   n ? " is" : "");
}

static hr_status check_field(const char *where, const field *f, const hr_json *v)
{
    hr_str text = v ? json_text(v) : hr_str_c(f->absent);
    if (!f->choices[0]) return HR_OK;
    for (int i = 0; i < MOST_CHOICES && f->choices[i]; i++)
        if (hr_str_eq_c(text, f->choices[i])) return HR_OK;
    return refuse(where, hr_str_c(f->key), v ? text : HR_STR("(absent)"), f->choices);
}

static bool is_known(const field_table *t, hr_str key)
{
    for (size_t i = 0; i < t->n; i++)
        if (hr_str_eq_c(key, t->fields[i].key)) return true;
    return false;
}

static hr_status check_object(const char *where, field_table t, const hr_json *o)
{
    if (!o || o->type != HR_JSON_OBJECT)
        return hr_fail(HR_UNIMPLEMENTED, "config.json: %s %.*s is not supported; an object is",
                       where, HR_STR_ARG(o ? json_text(o) : HR_STR("(absent)")));
    for (size_t i = 0; i < t.n; i++)
        HR_TRY(check_field(where, &t.fields[i], hr_json_get(o, t.fields[i].key)));
    for (size_t i = 0; i < o->count; i++)
        if (o->items[i].type != HR_JSON_NULL && !is_known(&t, o->items[i].key))
            return refuse(where, o->items[i].key, json_text(&o->items[i]), NULL);
    return HR_OK;
}

/* ---- names ---------------------------------------------------------------------------------- */

static hr_status compile(hr_str pattern, pcre2_code **out)
{
    int code;
    size_t at;
    char why[120];
    *out = pcre2_compile((PCRE2_SPTR)pattern.p, pattern.n, PCRE2_ANCHORED | PCRE2_UTF, &code, &at,
                         NULL);
    if (*out) return HR_OK;
    pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
    return hr_fail(HR_INVALID_ARGUMENT, "config.json: quantization_config: pattern '%.*s': %s",
                   HR_STR_ARG(pattern), why);
}

/* As Python's re.match: from the start of the name, to wherever the pattern ends. */
static hr_status matches_pattern(hr_str pattern, hr_str name, bool *out)
{
    pcre2_code *code;
    HR_TRY(compile(pattern, &code));
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    int rc = PCRE2_ERROR_NOMEMORY;
    if (data && context) {
        pcre2_set_match_limit(context, MATCH_LIMIT);
        rc = pcre2_match(code, (PCRE2_SPTR)name.p, name.n, 0, 0, data, context);
    }
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    *out = rc >= 0;
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) return HR_OK;
    return hr_fail(HR_RESOURCE_EXHAUSTED,
                   "config.json: quantization_config: pattern '%.*s' on '%.*s' takes too long",
                   HR_STR_ARG(pattern), HR_STR_ARG(name));
}

/* Every module asked about is a Linear. */
static hr_status is_listed(const hr_quant_names *names, hr_str module, bool *out)
{
    *out = false;
    for (size_t i = 0; i < names->n && !*out; i++) {
        hr_str item = names->items[i];
        if (hr_str_starts(item, HR_STR("re:")))
            HR_TRY(matches_pattern((hr_str){ item.p + 3, item.n - 3 }, module, out));
        else *out = hr_str_eq(item, module) || hr_str_eq_c(item, "Linear");
    }
    return HR_OK;
}

static hr_status read_names(const char *what, const hr_json *list, hr_arena *arena,
                            hr_quant_names *out)
{
    *out = (hr_quant_names){ 0 };
    if (!list || list->type == HR_JSON_NULL) return HR_OK;
    if (list->type != HR_JSON_ARRAY)
        return hr_fail(HR_INVALID_ARGUMENT, "config.json: %s must be a list", what);
    hr_str *items = hr_arena_array(arena, list->count + 1, sizeof *items);
    if (!items) return hr_fail(HR_RESOURCE_EXHAUSTED, "config.json: %s", what);
    for (size_t i = 0; i < list->count; i++) {
        pcre2_code *code = NULL;
        hr_str name;
        HR_TRY(hr_json_to_str(&list->items[i], what, &name));
        if (hr_str_starts(name, HR_STR("re:")))
            HR_TRY(compile((hr_str){ name.p + 3, name.n - 3 }, &code));
        pcre2_code_free(code);
        char *copy = hr_arena_copy(arena, name.p, name.n);
        if (!copy) return hr_fail(HR_RESOURCE_EXHAUSTED, "config.json: %s", what);
        items[i] = (hr_str){ copy, name.n };
    }
    *out = (hr_quant_names){ items, list->count };
    return HR_OK;
}

hr_status hr_quantization_of(const hr_quantization *q, hr_str module, const hr_quant_group **out)
{
    bool hit = false;
    *out = NULL;
    if (!q) return HR_OK;
    HR_TRY(is_listed(&q->ignore, module, &hit));
    for (size_t i = 0; i < q->n_groups && !hit; i++) {
        HR_TRY(is_listed(&q->groups[i].targets, module, &hit));
        if (hit) *out = &q->groups[i];
    }
    return HR_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static hr_status read_group(const hr_json *json, hr_arena *arena, hr_quant_group *out)
{
    char where[160], part[200];
    snprintf(where, sizeof where, "quantization_config.config_groups.%.*s",
             (int)(json->key.n > 80 ? 80 : json->key.n), json->key.p);
    HR_TRY(check_object(where, TABLE(group_fields), json));
    snprintf(part, sizeof part, "%s.weights", where);
    HR_TRY(check_object(part, TABLE(weight_fields), hr_json_get(json, "weights")));
    snprintf(part, sizeof part, "%s.input_activations", where);
    HR_TRY(check_object(part, TABLE(activation_fields), hr_json_get(json, "input_activations")));
    char *name = hr_arena_copy(arena, json->key.p, json->key.n);
    if (!name) return hr_fail(HR_RESOURCE_EXHAUSTED, "config.json: %s", where);
    out->name = (hr_str){ name, json->key.n };
    snprintf(part, sizeof part, "%s.targets", where);
    return read_names(part, hr_json_get(json, "targets"), arena, &out->targets);
}

/* Zeros that are stored as such are numbers like others. */
static hr_status check_sparsity(const hr_json *json)
{
    static const char *const dense[MOST_CHOICES] = { "dense" };
    const hr_json *o = hr_json_get(json, "sparsity_config");
    if (!o || o->type == HR_JSON_NULL || (o->type == HR_JSON_OBJECT && o->count == 0)) return HR_OK;
    const hr_json *format = hr_json_get(o, "format");
    if (format && hr_str_eq_c(json_text(format), "dense")) return HR_OK;
    return refuse("quantization_config.sparsity_config", HR_STR("format"),
                  format ? json_text(format) : HR_STR("(absent)"), dense);
}

static hr_status read_all(const hr_json *json, hr_arena *arena, hr_quantization *q)
{
    HR_TRY(check_object("quantization_config", TABLE(top_fields), json));
    HR_TRY(check_sparsity(json));
    HR_TRY(
        read_names("quantization_config.ignore", hr_json_get(json, "ignore"), arena, &q->ignore));
    const hr_json *groups = hr_json_get(json, "config_groups");
    if (!groups || groups->type != HR_JSON_OBJECT || groups->count == 0)
        return hr_fail(
            HR_INVALID_ARGUMENT,
            "config.json: quantization_config.config_groups must be an object of groups");
    hr_quant_group *list = hr_arena_array(arena, groups->count, sizeof *list);
    if (!list) return hr_fail(HR_RESOURCE_EXHAUSTED, "config.json: quantization_config");
    for (size_t i = 0; i < groups->count; i++)
        HR_TRY(read_group(&groups->items[i], arena, &list[i]));
    q->groups = list;
    q->n_groups = groups->count;
    return HR_OK;
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
    HR_TRY(read_all(json, arena, q));
    *out = q;
    return HR_OK;
}
