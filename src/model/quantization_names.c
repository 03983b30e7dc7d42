/* Which modules a quantization_config speaks of.
 *
 * Runs on the thread that loads; owns nothing. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "model/quantization_fields.h"

enum { MATCH_LIMIT = 100000, HR_QUANT_MOST_NAME = 256 };

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

/* Some engines join matrices that read the same rows, and write lists by the joint's name. */
static hr_str fused_name(hr_str module, char out[HR_QUANT_MOST_NAME])
{
    static const struct {
        hr_str part, whole;
    } fused[] = {
        { { ".q_proj", 7 }, { ".qkv_proj", 9 } },
        { { ".k_proj", 7 }, { ".qkv_proj", 9 } },
        { { ".v_proj", 7 }, { ".qkv_proj", 9 } },
        { { ".gate_proj", 10 }, { ".gate_up_proj", 13 } },
        { { ".up_proj", 8 }, { ".gate_up_proj", 13 } },
    };
    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++) {
        size_t stem = module.n - fused[i].part.n;
        if (!hr_str_ends(module, fused[i].part) || stem + fused[i].whole.n > HR_QUANT_MOST_NAME)
            continue;
        memcpy(out, module.p, stem);
        memcpy(out + stem, fused[i].whole.p, fused[i].whole.n);
        return (hr_str){ out, stem + fused[i].whole.n };
    }
    return (hr_str){ 0 };
}

static hr_status is_meant(const hr_quant_names *names, hr_str module, bool *out)
{
    char name[HR_QUANT_MOST_NAME];
    HR_TRY(is_listed(names, module, out));
    hr_str fused = fused_name(module, name);
    return *out || !fused.n ? HR_OK : is_listed(names, fused, out);
}

hr_status hr_quant_read_names(const char *what, const hr_json *list, hr_arena *arena,
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
    HR_TRY(is_meant(&q->ignore, module, &hit));
    for (size_t i = 0; i < q->n_groups && !hit; i++) {
        HR_TRY(is_meant(&q->groups[i].targets, module, &hit));
        if (hit) *out = &q->groups[i];
    }
    return HR_OK;
}
