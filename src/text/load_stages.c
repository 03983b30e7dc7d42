/* Reads the stages of a tokenizer.json: normalizer, pre_tokenizer, post_processor, decoder.
 *
 * Runs once, on the loading thread. Each kind of stage is one line in a table; a type that is in
 * no table is refused by its name. */
#include "text/load_int.h"

#include <utf8proc.h>

#define COUNT(a)  (sizeof(a) / sizeof((a)[0]))
#define MAX_DEPTH 8

typedef hr_status (*loader)(const hr_json *v, hr_tokenizer *t, int depth);

typedef struct stage_type {
    const char *name;
    loader load;
} stage_type;

static hr_status load_stage(const hr_json *v, hr_tokenizer *t, int depth, const char *what,
                            const stage_type *types, size_t n)
{
    hr_str type;
    if (hr_load_is_null(v)) return HR_OK;
    HR_TRY(hr_load_type(v, what, &type));
    if (depth > MAX_DEPTH) return hr_fail(HR_INVALID_ARGUMENT, "%s: nested too deeply", what);
    for (size_t i = 0; i < n; i++)
        if (hr_str_eq_c(type, types[i].name)) return types[i].load(v, t, depth + 1);
    return hr_fail(HR_UNIMPLEMENTED, "%s of type %.*s is not supported", what, HR_STR_ARG(type));
}

static hr_status load_list(const hr_json *list, const char *what, hr_tokenizer *t, int depth,
                           loader load)
{
    if (!list || list->type != HR_JSON_ARRAY)
        return hr_fail(HR_INVALID_ARGUMENT, "%s is not an array", what);
    for (size_t i = 0; i < list->count; i++) HR_TRY(load(&list->items[i], t, depth));
    return HR_OK;
}

/* {"String": "…"} or {"Regex": "…"}. */
static hr_status load_pattern(const hr_json *v, const char *what, hr_str *text, bool *regex)
{
    const hr_json *p = hr_json_get(v, "pattern");
    const hr_json *s = hr_json_get(p, "String"), *r = hr_json_get(p, "Regex");
    *regex = r != NULL;
    if (!s == !r || p->count != 1)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: pattern is neither a String nor a Regex", what);
    return hr_json_to_str(s ? s : r, what, text);
}

/* ---- normalizers ------------------------------------------------------------------------------
 */

static hr_status add_form(hr_tokenizer *t, int form)
{
    hr_normalizer *n;
    HR_TRY(hr_tokenizer_add_normalizer(t, &n));
    *n = (hr_normalizer){ .kind = HR_NORM_UNICODE, .form = form };
    return HR_OK;
}

static hr_status load_nfc(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    return add_form(t, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
}

static hr_status load_nfd(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    return add_form(t, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
}

static hr_status load_nfkc(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    return add_form(t, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
}

static hr_status load_nfkd(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    return add_form(t, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
}

static hr_status load_prepend(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_str text;
    hr_normalizer *n;
    HR_TRY(hr_json_to_str(hr_json_get(v, "prepend"), "normalizer Prepend: prepend", &text));
    HR_TRY(hr_tokenizer_add_normalizer(t, &n));
    n->kind = HR_NORM_PREPEND;
    return hr_tokenizer_keep(t, text, &n->to);
}

static hr_status load_replace(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_str from, to;
    bool regex;
    hr_normalizer *n;
    HR_TRY(load_pattern(v, "normalizer Replace", &from, &regex));
    HR_TRY(hr_json_to_str(hr_json_get(v, "content"), "normalizer Replace: content", &to));
    if (regex || from.n == 0)
        return hr_fail(HR_UNIMPLEMENTED, "normalizer Replace with a Regex or an empty String");
    HR_TRY(hr_tokenizer_add_normalizer(t, &n));
    n->kind = HR_NORM_REPLACE;
    HR_TRY(hr_tokenizer_keep(t, from, &n->from));
    return hr_tokenizer_keep(t, to, &n->to);
}

static hr_status load_normalizers(const hr_json *v, hr_tokenizer *t, int depth);

static const stage_type normalizers[] = {
    { "Sequence", load_normalizers },
    { "NFC", load_nfc },
    { "NFD", load_nfd },
    { "NFKC", load_nfkc },
    { "NFKD", load_nfkd },
    { "Prepend", load_prepend },
    { "Replace", load_replace },
};

static hr_status load_one_normalizer(const hr_json *v, hr_tokenizer *t, int depth)
{
    return load_stage(v, t, depth, "normalizer", normalizers, COUNT(normalizers));
}

static hr_status load_normalizers(const hr_json *v, hr_tokenizer *t, int depth)
{
    return load_list(hr_json_get(v, "normalizers"), "normalizer Sequence: normalizers", t, depth,
                     load_one_normalizer);
}

hr_status hr_load_normalizer(const hr_json *v, hr_tokenizer *t)
{
    return load_one_normalizer(v, t, 0);
}

/* ---- pre-tokenizers ---------------------------------------------------------------------------
 */

static hr_status load_behavior(const hr_json *v, hr_split_behavior *out)
{
    static const char *const names[] = { "Isolated", "Removed", "MergedWithPrevious",
                                         "MergedWithNext", "Contiguous" };
    hr_str name;
    HR_TRY(hr_json_to_str(hr_json_get(v, "behavior"), "pre_tokenizer Split: behavior", &name));
    for (size_t i = 0; i < COUNT(names); i++) {
        if (!hr_str_eq_c(name, names[i])) continue;
        *out = (hr_split_behavior)i;
        return HR_OK;
    }
    return hr_fail(HR_INVALID_ARGUMENT, "pre_tokenizer Split: behavior %.*s", HR_STR_ARG(name));
}

static hr_status load_split(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_splitter *s;
    hr_str text;
    bool regex;
    HR_TRY(load_pattern(v, "pre_tokenizer Split", &text, &regex));
    HR_TRY(hr_tokenizer_add_splitter(t, &s));
    HR_TRY(load_behavior(v, &s->behavior));
    HR_TRY(hr_load_bool(v, "invert", false, &s->invert));
    s->kind = regex ? HR_SPLIT_PATTERN : HR_SPLIT_LITERAL;
    if (regex) return hr_pattern_compile(text, &s->pattern);
    if (text.n == 0) return hr_fail(HR_UNIMPLEMENTED, "pre_tokenizer Split by an empty String");
    return hr_tokenizer_keep(t, text, &s->literal);
}

static hr_status load_byte_level(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    bool prefix, regex;
    HR_TRY(hr_load_bool(v, "add_prefix_space", true, &prefix));
    HR_TRY(hr_load_bool(v, "use_regex", true, &regex));
    t->bpe.byte_level = true;
    hr_splitter *s;
    if (prefix) {
        HR_TRY(hr_tokenizer_add_splitter(t, &s));
        s->kind = HR_SPLIT_PREFIX;
    }
    return regex ? hr_tokenizer_add_pattern(t, HR_STR(HR_PATTERN_GPT2)) : HR_OK;
}

static hr_status load_digits(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    bool individual;
    HR_TRY(hr_load_bool(v, "individual_digits", false, &individual));
    return hr_tokenizer_add_digits(t, individual ? HR_SPLIT_ISOLATED : HR_SPLIT_CONTIGUOUS);
}

static hr_status load_pre_tokenizers(const hr_json *v, hr_tokenizer *t, int depth);

static const stage_type pre_tokenizers[] = {
    { "Sequence", load_pre_tokenizers },
    { "Split", load_split },
    { "ByteLevel", load_byte_level },
    { "Digits", load_digits },
};

static hr_status load_one_pre_tokenizer(const hr_json *v, hr_tokenizer *t, int depth)
{
    if (t->bpe.byte_level && !hr_load_is_null(v))
        return hr_fail(HR_UNIMPLEMENTED, "pre_tokenizer: a stage after ByteLevel");
    return load_stage(v, t, depth, "pre_tokenizer", pre_tokenizers, COUNT(pre_tokenizers));
}

static hr_status load_pre_tokenizers(const hr_json *v, hr_tokenizer *t, int depth)
{
    return load_list(hr_json_get(v, "pretokenizers"), "pre_tokenizer Sequence: pretokenizers", t,
                     depth, load_one_pre_tokenizer);
}

hr_status hr_load_pre_tokenizer(const hr_json *v, hr_tokenizer *t)
{
    return load_one_pre_tokenizer(v, t, 0);
}

/* ---- post-processors --------------------------------------------------------------------------
 */

static hr_status load_nothing(const hr_json *v, hr_tokenizer *t, int depth)
{
    /* a post-processor ByteLevel trims offsets, which we do not give; Fuse is what all decoding is
     */
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

static const stage_type post_processors[] = {
    { "Sequence", load_post_processors },
    { "ByteLevel", load_nothing },
    { "TemplateProcessing", load_template },
};

static hr_status load_one_post_processor(const hr_json *v, hr_tokenizer *t, int depth)
{
    return load_stage(v, t, depth, "post_processor", post_processors, COUNT(post_processors));
}

static hr_status load_post_processors(const hr_json *v, hr_tokenizer *t, int depth)
{
    return load_list(hr_json_get(v, "processors"), "post_processor Sequence: processors", t, depth,
                     load_one_post_processor);
}

hr_status hr_load_post_processor(const hr_json *v, hr_tokenizer *t)
{
    return load_one_post_processor(v, t, 0);
}

/* ---- decoders ---------------------------------------------------------------------------------
 */

static hr_status load_byte_level_decoder(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    if (!t->bpe.byte_level)
        return hr_fail(HR_UNIMPLEMENTED, "decoder ByteLevel without pre_tokenizer ByteLevel");
    t->decoder.byte_level = true;
    return HR_OK;
}

static hr_status load_replace_decoder(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_str from, to;
    bool regex;
    HR_TRY(load_pattern(v, "decoder Replace", &from, &regex));
    HR_TRY(hr_json_to_str(hr_json_get(v, "content"), "decoder Replace: content", &to));
    if (regex || from.n == 0)
        return hr_fail(HR_UNIMPLEMENTED, "decoder Replace with a Regex or an empty String");
    HR_TRY(hr_tokenizer_keep(t, from, &t->decoder.from));
    return hr_tokenizer_keep(t, to, &t->decoder.to);
}

static hr_status load_byte_fallback(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    t->decoder.byte_fallback = true;
    return HR_OK;
}

static hr_status load_strip(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_str content;
    int64_t start, stop;
    HR_TRY(hr_json_to_str(hr_json_get(v, "content"), "decoder Strip: content", &content));
    HR_TRY(hr_json_to_i64(hr_json_get(v, "start"), "decoder Strip: start", &start));
    HR_TRY(hr_json_to_i64(hr_json_get(v, "stop"), "decoder Strip: stop", &stop));
    if (content.n != 1 || content.p[0] == '\0' || start != 1 || stop != 0)
        return hr_fail(HR_UNIMPLEMENTED,
                       "decoder Strip of other than one ASCII character in front");
    t->decoder.strip_first = content.p[0];
    return HR_OK;
}

/* The one order in which a sequence means what the detokeniser does: tokens one by one first, the
 * joined text afterwards. */
static const stage_type decoder_steps[] = {
    { "Replace", load_replace_decoder },
    { "ByteFallback", load_byte_fallback },
    { "Fuse", load_nothing },
    { "Strip", load_strip },
};

static hr_status load_decoder_steps(const hr_json *v, hr_tokenizer *t, int depth)
{
    const hr_json *list = hr_json_get(v, "decoders");
    if (!list || list->type != HR_JSON_ARRAY)
        return hr_fail(HR_INVALID_ARGUMENT, "decoder Sequence: decoders is not an array");
    if (t->bpe.byte_level)
        return hr_fail(HR_UNIMPLEMENTED, "decoder Sequence with pre_tokenizer ByteLevel");
    bool fused = false;
    for (size_t i = 0, next = 0; i < list->count; i++, next++) {
        hr_str type;
        HR_TRY(hr_load_type(&list->items[i], "decoder Sequence: an item", &type));
        while (next < COUNT(decoder_steps) && !hr_str_eq_c(type, decoder_steps[next].name)) next++;
        if (next == COUNT(decoder_steps))
            return hr_fail(HR_UNIMPLEMENTED, "decoder Sequence: %.*s at place %zu",
                           HR_STR_ARG(type), i);
        HR_TRY(decoder_steps[next].load(&list->items[i], t, depth));
        fused = fused || hr_str_eq_c(type, "Fuse");
    }
    return fused ? HR_OK : hr_fail(HR_UNIMPLEMENTED, "decoder Sequence without Fuse");
}

static const stage_type decoders[] = {
    { "ByteLevel", load_byte_level_decoder },
    { "Sequence", load_decoder_steps },
};

hr_status hr_load_decoder(const hr_json *v, hr_tokenizer *t)
{
    if (hr_load_is_null(v)) return hr_fail(HR_UNIMPLEMENTED, "decoder: there is none");
    return load_stage(v, t, 0, "decoder", decoders, COUNT(decoders));
}
