/* Reads the stages of a tokenizer.json: what all kinds share, and the post_processor.
 *
 * Runs once, on the loading thread. Each kind of stage is one line in a table; a type that is in
 * no table is refused by its name. */
#include "text/load_int.h"

#define MAX_DEPTH 8

hr_status hr_load_stage(const hr_json *v, hr_tokenizer *t, int depth, const char *what,
                        const hr_stage_type *types, size_t n)
{
    hr_str type;
    if (hr_load_is_null(v)) return HR_OK;
    HR_TRY(hr_load_type(v, what, &type));
    if (depth > MAX_DEPTH) return hr_fail(HR_INVALID_ARGUMENT, "%s: nested too deeply", what);
    for (size_t i = 0; i < n; i++)
        if (hr_str_eq_c(type, types[i].name)) return types[i].load(v, t, depth + 1);
    return hr_fail(HR_UNIMPLEMENTED, "%s of type %.*s is not supported", what, HR_STR_ARG(type));
}

hr_status hr_load_list(const hr_json *list, const char *what, hr_tokenizer *t, int depth,
                       hr_stage_loader load)
{
    if (!list || list->type != HR_JSON_ARRAY)
        return hr_fail(HR_INVALID_ARGUMENT, "%s is not an array", what);
    for (size_t i = 0; i < list->count; i++) HR_TRY(load(&list->items[i], t, depth));
    return HR_OK;
}

hr_status hr_load_pattern(const hr_json *v, const char *what, hr_str *text, bool *regex)
{
    const hr_json *p = hr_json_get(v, "pattern");
    const hr_json *s = hr_json_get(p, "String"), *r = hr_json_get(p, "Regex");
    *regex = r != NULL;
    if (!s == !r || p->count != 1)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: pattern is neither a String nor a Regex", what);
    return hr_json_to_str(s ? s : r, what, text);
}

hr_status hr_load_scheme(const hr_json *v, const char *what, hr_prepend_scheme *out)
{
    static const char *const names[] = { "always", "first", "never" };
    hr_str name;
    bool prefix;
    HR_TRY(hr_load_bool(v, "add_prefix_space", true, &prefix));
    HR_TRY(hr_load_str(v, "prepend_scheme", &name));
    *out = prefix ? HR_PREPEND_ALWAYS : HR_PREPEND_NEVER;
    if (!name.p) return HR_OK;
    for (size_t i = 0; i < HR_COUNT(names); i++) {
        if (!hr_str_eq_c(name, names[i])) continue;
        *out = (hr_prepend_scheme)i;
        if (prefix || *out == HR_PREPEND_NEVER) return HR_OK;
        return hr_fail(HR_INVALID_ARGUMENT, "%s: add_prefix_space is false, but prepend_scheme %s",
                       what, names[i]);
    }
    return hr_fail(HR_INVALID_ARGUMENT, "%s: prepend_scheme %.*s", what, HR_STR_ARG(name));
}

/* ---- post-processors --------------------------------------------------------------------------
 */

/* A post-processor ByteLevel trims offsets, which we do not give. */
static hr_status load_nothing(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)t, (void)depth;
    return HR_OK;
}

/* The ids that a template's special token stands for. */
static hr_status add_special(const hr_json *template, const hr_json *item, const hr_tokenizer *t,
                             hr_ids *ids)
{
    hr_str name;
    HR_TRY(hr_json_to_str(hr_json_get(item, "id"), "TemplateProcessing: id", &name));
    const hr_json *table = hr_json_get(template, "special_tokens"), *list = NULL;
    for (size_t i = 0; table && i < table->count; i++)
        if (hr_str_eq(table->items[i].key, name)) list = hr_json_get(&table->items[i], "ids");
    if (!list || list->type != HR_JSON_ARRAY)
        return hr_fail(HR_INVALID_ARGUMENT, "TemplateProcessing: no ids for '%.*s'",
                       HR_STR_ARG(name));
    for (size_t i = 0; i < list->count; i++) {
        int64_t id;
        HR_TRY(hr_json_to_i64(&list->items[i], "TemplateProcessing: ids", &id));
        if (id < 0 || (uint64_t)id >= t->vocab.size)
            return hr_fail(HR_OUT_OF_RANGE, "TemplateProcessing: id %lld is no token",
                           (long long)id);
        HR_TRY(hr_ids_add(ids, (int32_t)id));
    }
    return HR_OK;
}

/* inner becomes outer + inner, or inner + outer for what comes after a text. */
static hr_status wrap(hr_ids *inner, const hr_ids *outer, bool after)
{
    size_t n = inner->n;
    for (size_t i = 0; i < outer->n; i++) HR_TRY(hr_ids_add(inner, outer->p[i]));
    if (after || outer->n == 0) return HR_OK;
    memmove(inner->p + outer->n, inner->p, n * sizeof *inner->p);
    memcpy(inner->p, outer->p, outer->n * sizeof *inner->p);
    return HR_OK;
}

static hr_status read_template(const hr_json *v, const hr_tokenizer *t, hr_ids sides[2])
{
    const hr_json *single = hr_json_get(v, "single");
    size_t texts = 0;
    if (!single || single->type != HR_JSON_ARRAY)
        return hr_fail(HR_INVALID_ARGUMENT, "TemplateProcessing: single is not an array");
    for (size_t i = 0; i < single->count; i++) {
        const hr_json *special = hr_json_get(&single->items[i], "SpecialToken");
        if (special) HR_TRY(add_special(v, special, t, &sides[texts ? 1 : 0]));
        else if (hr_json_get(&single->items[i], "Sequence")) texts++;
    }
    if (texts != 1)
        return hr_fail(HR_INVALID_ARGUMENT, "TemplateProcessing: %zu texts instead of one", texts);
    return HR_OK;
}

static hr_status load_template(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_ids sides[2] = { { 0 }, { 0 } };
    hr_status st = read_template(v, t, sides);
    if (!st) st = wrap(&t->before, &sides[0], false);
    if (!st) st = wrap(&t->after, &sides[1], true);
    hr_ids_deinit(&sides[0]);
    hr_ids_deinit(&sides[1]);
    return st;
}

static hr_status load_post_processors(const hr_json *v, hr_tokenizer *t, int depth);

static const hr_stage_type post_processors[] = {
    { "Sequence", load_post_processors },
    { "ByteLevel", load_nothing },
    { "TemplateProcessing", load_template },
};

static hr_status load_one_post_processor(const hr_json *v, hr_tokenizer *t, int depth)
{
    return hr_load_stage(v, t, depth, "post_processor", post_processors, HR_COUNT(post_processors));
}

static hr_status load_post_processors(const hr_json *v, hr_tokenizer *t, int depth)
{
    return hr_load_list(hr_json_get(v, "processors"), "post_processor Sequence: processors", t,
                        depth, load_one_post_processor);
}

hr_status hr_load_post_processor(const hr_json *v, hr_tokenizer *t)
{
    return load_one_post_processor(v, t, 0);
}
