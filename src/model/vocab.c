/* What the tokenizer is made of: texts of a directory, arrays of a GGUF file, chat templates.
 *
 * Runs on the thread that loads; everything goes to the model's arena (GGUF arrays stay where the
 * reader put them). Nothing is interpreted here but the places where templates hide. */
#include <dirent.h>
#include <stdio.h>

#include "model/model_int.h"

#define MAX_TEXT      ((size_t)256 << 20) /* bytes of tokenizer.json */
#define MAX_TEMPLATES 64

/* dir/name into the arena; n 0 when the file is not there. */
static hr_status read_text(const char *dir, const char *name, hr_arena *arena, hr_str *out)
{
    hr_buf path = { 0 }, text = { 0 };
    *out = (hr_str){ 0 };
    hr_status st = hr_path_join(dir, hr_str_c(name), &path);
    if (!st && hr_path_exists(path.p)) {
        st = hr_file_slurp(path.p, MAX_TEXT, &text);
        char *copy = st ? NULL : hr_arena_copy(arena, text.p, text.n);
        if (!st && !copy) st = hr_fail(HR_RESOURCE_EXHAUSTED, "%s", path.p);
        if (copy) *out = (hr_str){ copy, text.n };
    }
    hr_buf_deinit(&path);
    hr_buf_deinit(&text);
    return st;
}

/* ---- templates ------------------------------------------------------------------------------ */

typedef struct template_list {
    hr_model_template *items; /* arena, MAX_TEMPLATES */
    size_t n;
    hr_arena *arena;
} template_list;

/* The one called "default" goes first. */
static hr_status add_template(template_list *l, hr_str name, hr_str text)
{
    if (l->n == MAX_TEMPLATES)
        return hr_fail(HR_INVALID_ARGUMENT, "more than %d chat templates", MAX_TEMPLATES);
    char *n = hr_arena_copy(l->arena, name.p, name.n), *t = hr_arena_copy(l->arena, text.p, text.n);
    if (!n || !t) return hr_fail(HR_RESOURCE_EXHAUSTED, "chat template");
    hr_model_template next = { { n, name.n }, { t, text.n } };
    if (hr_str_eq_c(name, "default") && l->n) {
        l->items[l->n++] = l->items[0];
        l->items[0] = next;
    } else {
        l->items[l->n++] = next;
    }
    return HR_OK;
}

static hr_status start_list(hr_arena *arena, template_list *l)
{
    *l = (template_list){ .arena = arena };
    l->items = hr_arena_array(arena, MAX_TEMPLATES, sizeof *l->items);
    return l->items ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "chat templates");
}

/* tokenizer_config.json: chat_template is a text, or a list of { name, template }. */
static hr_status read_config_templates(hr_str config, template_list *l)
{
    static const char what[] = "tokenizer_config.json: chat_template";
    hr_arena scratch = { 0 };
    const hr_json *json;
    hr_status st = hr_json_parse(config, NULL, &scratch, &json);
    if (st) st = hr_fail_prefix(st, "tokenizer_config.json");
    const hr_json *t = st ? NULL : hr_json_get(json, "chat_template");
    if (t && t->type == HR_JSON_STRING) {
        st = add_template(l, HR_STR("default"), t->text);
    } else if (t && t->type == HR_JSON_ARRAY) {
        for (size_t i = 0; i < t->count && !st; i++) {
            hr_str name, text;
            st = hr_json_to_str(hr_json_get(&t->items[i], "name"), what, &name);
            if (!st) st = hr_json_to_str(hr_json_get(&t->items[i], "template"), what, &text);
            if (!st) st = add_template(l, name, text);
        }
    } else if (t && t->type != HR_JSON_NULL) {
        st = hr_fail(HR_INVALID_ARGUMENT, "%s: must be a string or a list", what);
    }
    hr_arena_deinit(&scratch);
    return st;
}

/* additional_chat_templates/NAME.jinja, beside chat_template.jinja. */
static hr_status read_additional(const char *dir, template_list *l)
{
    hr_buf path = { 0 };
    hr_status st = hr_path_join(dir, HR_STR("additional_chat_templates"), &path);
    DIR *d = st ? NULL : opendir(path.p);
    for (struct dirent *e; d && !st && (e = readdir(d));) {
        hr_str name = hr_str_c(e->d_name), text;
        if (!hr_str_ends(name, HR_STR(".jinja"))) continue;
        st = read_text(path.p, e->d_name, l->arena, &text);
        if (!st) st = add_template(l, hr_str_slice(name, 0, name.n - 6), text);
    }
    if (d) closedir(d);
    hr_buf_deinit(&path);
    return st;
}

hr_status hr_vocab_read_dir(const char *dir, hr_arena *arena, hr_model_vocab *v)
{
    template_list l;
    hr_str jinja;
    HR_TRY(read_text(dir, "tokenizer.json", arena, &v->tokenizer_json));
    HR_TRY(read_text(dir, "tokenizer_config.json", arena, &v->tokenizer_config_json));
    HR_TRY(read_text(dir, "chat_template.jinja", arena, &jinja));
    HR_TRY(start_list(arena, &l));
    if (jinja.n) { /* the file wins over tokenizer_config.json, as in transformers */
        HR_TRY(add_template(&l, HR_STR("default"), jinja));
        HR_TRY(read_additional(dir, &l));
    } else if (v->tokenizer_config_json.n) {
        HR_TRY(read_config_templates(v->tokenizer_config_json, &l));
    }
    v->templates = l.items;
    v->n_templates = l.n;
    return HR_OK;
}

/* ---- GGUF ----------------------------------------------------------------------------------- */

static hr_status fault(const hr_gguf *g, const char *key, const char *what)
{
    return hr_fail(HR_INVALID_ARGUMENT, "%s: metadata key '%s': %s", g->path, key, what);
}

/* *items NULL when the key is absent. */
static hr_status get_array(const hr_gguf *g, const char *key, hr_gguf_type type, const void **items,
                           size_t *count)
{
    const hr_gguf_value *v = hr_gguf_get(g, key);
    *items = NULL;
    *count = 0;
    if (!v) return HR_OK;
    if (v->type != HR_GGUF_ARRAY || v->item_type != type)
        return fault(g, key,
                     type == HR_GGUF_STRING ? "must be a list of strings"
                     : type == HR_GGUF_F32  ? "must be a list of FLOAT32"
                                            : "must be a list of INT32");
    *items = v->items;
    *count = v->count;
    return HR_OK;
}

static hr_status get_strings(const hr_gguf *g, const char *key, const hr_str **items, size_t *count)
{
    const void *p;
    HR_TRY(get_array(g, key, HR_GGUF_STRING, &p, count));
    *items = p;
    for (size_t i = 0; i < *count; i++)
        if ((*items)[i].n && memchr((*items)[i].p, '\0', (*items)[i].n))
            return fault(g, key, "holds a string with a NUL inside");
    return HR_OK;
}

/* Tokens, their scores and types: as many of each. */
static hr_status read_tokens(const hr_gguf *g, hr_model_vocab *v)
{
    const void *scores, *types;
    size_t n_scores, n_types;
    HR_TRY(get_strings(g, "tokenizer.ggml.tokens", &v->tokens, &v->n_tokens));
    HR_TRY(get_strings(g, "tokenizer.ggml.merges", &v->merges, &v->n_merges));
    HR_TRY(get_array(g, "tokenizer.ggml.scores", HR_GGUF_F32, &scores, &n_scores));
    HR_TRY(get_array(g, "tokenizer.ggml.token_type", HR_GGUF_I32, &types, &n_types));
    if (scores && n_scores != v->n_tokens)
        return fault(g, "tokenizer.ggml.scores", "not as many as there are tokens");
    if (types && n_types != v->n_tokens)
        return fault(g, "tokenizer.ggml.token_type", "not as many as there are tokens");
    v->scores = scores;
    v->types = types;
    return HR_OK;
}

static hr_status read_flag(const hr_gguf *g, const char *key, int *out)
{
    bool on = false;
    *out = -1;
    if (!hr_gguf_get(g, key)) return HR_OK;
    HR_TRY(hr_gguf_bool(g, key, HR_REQUIRED, &on));
    *out = on;
    return HR_OK;
}

static hr_status read_special_ids(const hr_gguf *g, hr_model_vocab *v)
{
    const struct {
        const char *key;
        int64_t *out;
    } ids[] = {
        { "tokenizer.ggml.bos_token_id", &v->bos },
        { "tokenizer.ggml.eos_token_id", &v->eos },
        { "tokenizer.ggml.unknown_token_id", &v->unk },
        { "tokenizer.ggml.mask_token_id", &v->mask },
        { "tokenizer.ggml.padding_token_id", &v->pad },
        { "tokenizer.ggml.seperator_token_id", &v->sep }, /* spelt so by the format */
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        *ids[i].out = -1;
        HR_TRY(hr_gguf_i64(g, ids[i].key, HR_OPTIONAL, ids[i].out));
        if (v->n_tokens && (*ids[i].out < -1 || *ids[i].out >= (int64_t)v->n_tokens))
            return fault(g, ids[i].key, "is not the id of a token");
    }
    HR_TRY(read_flag(g, "tokenizer.ggml.add_bos_token", &v->add_bos));
    HR_TRY(read_flag(g, "tokenizer.ggml.add_eos_token", &v->add_eos));
    return read_flag(g, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix);
}

/* tokenizer.chat_template, and tokenizer.chat_template.NAME for each of chat_templates. */
static hr_status read_gguf_templates(const hr_gguf *g, hr_arena *arena, hr_model_vocab *v)
{
    template_list l;
    const hr_str *names;
    size_t n;
    hr_str text = { 0 };
    HR_TRY(start_list(arena, &l));
    HR_TRY(hr_gguf_str(g, "tokenizer.chat_template", HR_OPTIONAL, &text));
    if (text.n) HR_TRY(add_template(&l, HR_STR("default"), text));
    HR_TRY(get_strings(g, "tokenizer.chat_templates", &names, &n));
    for (size_t i = 0; i < n; i++) {
        char key[160];
        if (hr_str_eq_c(names[i], "default")) continue;
        snprintf(key, sizeof key, "tokenizer.chat_template.%.*s",
                 (int)(names[i].n > 100 ? 100 : names[i].n), names[i].p);
        HR_TRY(hr_gguf_str(g, key, HR_REQUIRED, &text));
        HR_TRY(add_template(&l, names[i], text));
    }
    v->templates = l.items;
    v->n_templates = l.n;
    return HR_OK;
}

hr_status hr_vocab_from_gguf(const hr_gguf *g, hr_arena *arena, hr_model_vocab *v)
{
    hr_str model = HR_STR("none"), pre = { "", 0 };
    HR_TRY(hr_gguf_str(g, "tokenizer.ggml.model", HR_OPTIONAL, &model));
    HR_TRY(hr_gguf_str(g, "tokenizer.ggml.pre", HR_OPTIONAL, &pre));
    v->gguf_model = hr_arena_copy(arena, model.p, model.n);
    v->gguf_pre = hr_arena_copy(arena, pre.p, pre.n);
    if (!v->gguf_model || !v->gguf_pre) return hr_fail(HR_RESOURCE_EXHAUSTED, "vocabulary");
    HR_TRY(read_tokens(g, v));
    HR_TRY(read_special_ids(g, v));
    return read_gguf_templates(g, arena, v);
}
