/* config.json and generation_config.json into one struct for all families.
 *
 * Runs on the thread that loads; owns nothing (strings and tables go to the model's arena). A key
 * that is null is absent. What would change the mathematics and is not implemented is refused by
 * name; what only describes (torch versions, training details) is not looked at. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "model/model_int.h"

#define MAX_CONFIG ((size_t)16 << 20) /* bytes of a config file */

static const hr_json *get(const hr_json *o, const char *key)
{
    const hr_json *v = hr_json_get(o, key);
    return v && v->type != HR_JSON_NULL ? v : NULL;
}

static hr_status missing(const char *key)
{
    return hr_fail(HR_INVALID_ARGUMENT, "config.json: %s is missing", key);
}

/* Optional reads leave *out alone when the key is absent. */
hr_status hr_config_integer(const hr_json *o, const char *key, hr_need need, int64_t *out)
{
    char what[96];
    const hr_json *v = get(o, key);
    if (!v) return need == HR_REQUIRED ? missing(key) : HR_OK;
    snprintf(what, sizeof what, "config.json: %s", key);
    return hr_json_to_i64(v, what, out);
}

static hr_status read_f64(const hr_json *o, const char *key, double *out)
{
    char what[96];
    const hr_json *v = get(o, key);
    if (!v) return HR_OK;
    snprintf(what, sizeof what, "config.json: %s", key);
    return hr_json_to_f64(v, what, out);
}

hr_status hr_config_number(const hr_json *o, const char *key, float *out)
{
    double x;
    if (!get(o, key)) return HR_OK;
    HR_TRY(read_f64(o, key, &x));
    *out = (float)x;
    if (x > 0 && isfinite(*out)) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "config.json: %s must be above 0, not %g", key, x);
}

hr_status hr_config_flag(const hr_json *o, const char *key, bool *out)
{
    char what[96];
    const hr_json *v = get(o, key);
    if (!v) return HR_OK;
    snprintf(what, sizeof what, "config.json: %s", key);
    return hr_json_to_bool(v, what, out);
}

/* ---- parts ---------------------------------------------------------------------------------- */

static hr_status read_architecture(const hr_json *json, hr_arena *arena, hr_config *c,
                                   const hr_family **family)
{
    hr_str name;
    const hr_json *list = get(json, "architectures");
    if (!list || list->type != HR_JSON_ARRAY || list->count != 1)
        return hr_fail(HR_INVALID_ARGUMENT, "config.json: architectures must name one model");
    HR_TRY(hr_json_to_str(&list->items[0], "config.json: architectures", &name));
    *family = hr_family_by_architecture(name);
    if (!*family) {
        hr_buf names = { 0 };
        hr_status st = hr_fail(
            HR_UNIMPLEMENTED, "config.json: architecture '%.*s' is not supported; supported are %s",
            HR_STR_ARG(name), hr_family_names(&names));
        hr_buf_deinit(&names);
        return st;
    }
    c->architecture = hr_arena_copy(arena, name.p, name.n);
    return c->architecture ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "config.json: architecture");
}

/* Keys that change what is computed, in ways no family here implements. */
static hr_status refuse_unsupported(const hr_json *json)
{
    bool interleaved = false;
    HR_TRY(hr_config_flag(json, "rope_interleaved", &interleaved));
    if (interleaved)
        return hr_fail(HR_UNIMPLEMENTED, "config.json: rope_interleaved true is not supported");
    return HR_OK;
}

static hr_status read_sizes(const hr_json *json, hr_config *c)
{
    HR_TRY(hr_config_integer(json, "hidden_size", HR_REQUIRED, &c->hidden));
    HR_TRY(hr_config_integer(json, "num_hidden_layers", HR_REQUIRED, &c->layers));
    HR_TRY(hr_config_integer(json, "num_attention_heads", HR_REQUIRED, &c->heads));
    HR_TRY(hr_config_integer(json, "intermediate_size", HR_REQUIRED, &c->intermediate));
    HR_TRY(hr_config_integer(json, "vocab_size", HR_REQUIRED, &c->vocab));
    HR_TRY(hr_config_integer(json, "max_position_embeddings", HR_REQUIRED, &c->max_positions));
    c->kv_heads = c->heads;
    HR_TRY(hr_config_integer(json, "num_key_value_heads", HR_OPTIONAL, &c->kv_heads));
    if (get(json, "head_dim"))
        return hr_config_integer(json, "head_dim", HR_REQUIRED, &c->head_dim);
    if (c->heads <= 0 || c->hidden <= 0 || c->hidden % c->heads)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "config.json: hidden_size %" PRId64 " is not a multiple of "
                       "num_attention_heads %" PRId64 ", and head_dim is not given",
                       c->hidden, c->heads);
    c->head_dim = c->hidden / c->heads;
    return HR_OK;
}

static hr_status read_activation(const hr_json *json, hr_config *c)
{
    static const struct {
        const char *name;
        hr_activation act;
    } names[] = { { "silu", HR_ACT_SILU }, { "swish", HR_ACT_SILU },
                  { "gelu", HR_ACT_GELU }, { "gelu_new", HR_ACT_GELU_TANH },
                  { "relu", HR_ACT_RELU }, { "gelu_pytorch_tanh", HR_ACT_GELU_TANH } };
    hr_str text = HR_STR("silu");
    const char *key = get(json, "hidden_activation") ? "hidden_activation" : "hidden_act";
    if (get(json, key)) HR_TRY(hr_json_to_str(get(json, key), "config.json: hidden_act", &text));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!hr_str_eq_c(text, names[i].name)) continue;
        c->act = names[i].act;
        return HR_OK;
    }
    return hr_fail(HR_INVALID_ARGUMENT, "config.json: unknown hidden_act '%.*s'", HR_STR_ARG(text));
}

static hr_status read_dtype(const hr_json *json, hr_config *c)
{
    const char *key = get(json, "dtype") ? "dtype" : "torch_dtype";
    hr_str text = HR_STR("float32");
    if (get(json, key)) HR_TRY(hr_json_to_str(get(json, key), "config.json: torch_dtype", &text));
    if (hr_str_eq_c(text, "float32")) c->dtype = HR_DTYPE_F32;
    else if (hr_str_eq_c(text, "float16")) c->dtype = HR_DTYPE_F16;
    else if (hr_str_eq_c(text, "bfloat16")) c->dtype = HR_DTYPE_BF16;
    else
        return hr_fail(HR_INVALID_ARGUMENT, "config.json: unknown torch_dtype '%.*s'",
                       HR_STR_ARG(text));
    return HR_OK;
}

/* layer_types says it per layer. Without them, a window holds for all layers, for all but every so
 * many, or for those from max_window_layers on (28 where it is not given, as Hugging Face has it).
 */
static hr_status layer_has_window(const hr_json *json, const hr_family *family, int64_t layer,
                                  bool *out)
{
    const hr_json *types = get(json, "layer_types");
    int64_t first = 28;
    *out = !family->windows_on_request;
    HR_TRY(hr_config_flag(json, "use_sliding_window", out));
    if (!*out) return HR_OK;
    if (!types) {
        int64_t period = family->window_period;
        HR_TRY(hr_config_integer(json, "max_window_layers", HR_OPTIONAL, &first));
        if (period) HR_TRY(hr_config_integer(json, "sliding_window_pattern", HR_OPTIONAL, &period));
        if (!family->windows_on_request) first = 0;
        *out = layer >= first && (period < 1 || (layer + 1) % period != 0);
        return HR_OK;
    }
    hr_str type;
    HR_TRY(hr_json_to_str(&types->items[layer], "config.json: layer_types", &type));
    *out = hr_str_eq_c(type, "sliding_attention");
    if (*out || hr_str_eq_c(type, "full_attention")) return HR_OK;
    return hr_fail(HR_UNIMPLEMENTED, "config.json: layer type '%.*s' is not supported",
                   HR_STR_ARG(type));
}

static hr_status read_windows(const hr_json *json, const hr_family *family, hr_arena *arena,
                              hr_config *c)
{
    int64_t window = 0;
    const hr_json *types = get(json, "layer_types");
    HR_TRY(hr_config_integer(json, "sliding_window", HR_OPTIONAL, &window));
    if (window < 0 || window > INT32_MAX)
        return hr_fail(HR_INVALID_ARGUMENT, "config.json: sliding_window %" PRId64, window);
    if (types && (types->type != HR_JSON_ARRAY || types->count != (size_t)c->layers))
        return hr_fail(HR_INVALID_ARGUMENT, "config.json: layer_types must list %" PRId64 " layers",
                       c->layers);
    int32_t *windows = hr_arena_array(arena, (size_t)c->layers, sizeof *windows);
    if (!windows) return hr_fail(HR_RESOURCE_EXHAUSTED, "config.json: windows");
    bool any = false;
    for (int64_t l = 0; l < c->layers; l++) {
        bool has;
        HR_TRY(layer_has_window(json, family, l, &has));
        if (types && has && window == 0)
            return hr_fail(HR_INVALID_ARGUMENT,
                           "config.json: layer_types wants a window, sliding_window gives none");
        windows[l] = has ? (int32_t)window : 0;
        any |= windows[l] != 0;
    }
    c->windows = any ? windows : NULL;
    return HR_OK;
}

/* Adds an id unless it is there; one that the logits cannot produce is dropped with a warning. */
static hr_status add_eos(hr_config *c, int64_t id, const char *where)
{
    if (id < 0 || id >= c->vocab) {
        hr_log(HR_LOG_WARNING, "model: %s: eos_token_id %" PRId64 " is outside the vocabulary",
               where, id);
        return HR_OK;
    }
    for (size_t i = 0; i < c->n_eos; i++)
        if (c->eos[i] == id) return HR_OK;
    if (c->n_eos == HR_MODEL_MAX_EOS)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: more than %d eos_token_ids", where,
                       HR_MODEL_MAX_EOS);
    c->eos[c->n_eos++] = id;
    return HR_OK;
}

static hr_status read_eos(const hr_json *json, const char *where, hr_config *c)
{
    const hr_json *v = get(json, "eos_token_id");
    if (!v) return HR_OK;
    bool list = v->type == HR_JSON_ARRAY;
    for (size_t i = 0; i < (list ? v->count : 1); i++) {
        int64_t id;
        HR_TRY(hr_json_to_i64(list ? &v->items[i] : v, "eos_token_id", &id));
        HR_TRY(add_eos(c, id, where));
    }
    return HR_OK;
}

/* ---- whole files ---------------------------------------------------------------------------- */

static hr_status check_one(const char *where, const char *name, int64_t v, int64_t most)
{
    if (v >= 1 && v <= most) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "%s: %s of %" PRId64 ", 1 to %" PRId64 " is possible",
                   where, name, v, most);
}

hr_status hr_config_check(const hr_config *c, const char *where)
{
    /* far above any model, low enough that no product of three wraps or exhausts memory */
    HR_TRY(check_one(where, "hidden size", c->hidden, 1 << 20));
    HR_TRY(check_one(where, "layer count", c->layers, 1 << 12));
    HR_TRY(check_one(where, "head count", c->heads, 1 << 12));
    HR_TRY(check_one(where, "key/value head count", c->kv_heads, 1 << 12));
    HR_TRY(check_one(where, "head dimension", c->head_dim, 1 << 12));
    HR_TRY(check_one(where, "intermediate size", c->intermediate, 1 << 22));
    HR_TRY(check_one(where, "vocabulary size", c->vocab, 1 << 24));
    HR_TRY(check_one(where, "context length", c->max_positions, INT32_MAX));
    if (c->heads % c->kv_heads)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%s: %" PRId64 " heads do not share %" PRId64 " key/value heads evenly",
                       where, c->heads, c->kv_heads);
    if (c->head_dim % 2)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: head dimension %" PRId64 " is odd", where,
                       c->head_dim);
    if (!(c->rms_eps > 0 && c->rms_eps < 1))
        return hr_fail(HR_INVALID_ARGUMENT, "%s: rms_norm_eps %g", where, (double)c->rms_eps);
    return HR_OK;
}

hr_status hr_config_from_json(const hr_json *json, hr_arena *arena, hr_config *c,
                              const hr_family **family)
{
    double eps = 1e-6;
    *c = (hr_config){ .bos = -1 };
    *family = NULL;
    if (json->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT, "config.json: must be an object");
    HR_TRY(read_architecture(json, arena, c, family));
    HR_TRY(refuse_unsupported(json));
    HR_TRY(hr_quantization_from_json(json, arena, &c->quantization));
    HR_TRY(read_sizes(json, c));
    HR_TRY(read_f64(json, "rms_norm_eps", &eps));
    c->rms_eps = (float)eps;
    HR_TRY(hr_config_check(c, "config.json"));
    HR_TRY(read_activation(json, c));
    HR_TRY(read_dtype(json, c));
    HR_TRY(hr_config_flag(json, "tie_word_embeddings", &c->tie_word_embeddings));
    HR_TRY(read_windows(json, *family, arena, c));
    HR_TRY(read_eos(json, "config.json", c));
    HR_TRY(hr_config_integer(json, "bos_token_id", HR_OPTIONAL, &c->bos));
    c->partial_rotary = (*family)->partial_rotary;
    HR_TRY((*family)->configure(c, json));
    return hr_rope_from_json(json, arena, c);
}

static hr_status read_default(const hr_json *json, const char *key, bool *has, double *out)
{
    char what[96];
    const hr_json *v = get(json, key);
    if (!v) return HR_OK;
    *has = true;
    snprintf(what, sizeof what, "generation_config.json: %s", key);
    return hr_json_to_f64(v, what, out);
}

static hr_status read_default_i64(const hr_json *json, const char *key, bool *has, int64_t *out)
{
    char what[96];
    const hr_json *v = get(json, key);
    if (!v) return HR_OK;
    *has = true;
    snprintf(what, sizeof what, "generation_config.json: %s", key);
    return hr_json_to_i64(v, what, out);
}

hr_status hr_config_read_generation(const hr_json *json, hr_config *c)
{
    hr_generation_defaults *g = &c->generation;
    if (json->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT, "generation_config.json: must be an object");
    HR_TRY(read_eos(json, "generation_config.json", c));
    HR_TRY(read_default(json, "temperature", &g->has_temperature, &g->temperature));
    HR_TRY(read_default(json, "top_p", &g->has_top_p, &g->top_p));
    HR_TRY(read_default(json, "min_p", &g->has_min_p, &g->min_p));
    HR_TRY(read_default(json, "repetition_penalty", &g->has_repetition_penalty,
                        &g->repetition_penalty));
    HR_TRY(read_default_i64(json, "top_k", &g->has_top_k, &g->top_k));
    return read_default_i64(json, "max_new_tokens", &g->has_max_new_tokens, &g->max_new_tokens);
}

static hr_status check_override(const hr_json *json)
{
    static const char *const known[] = { "eos_token_id",  "temperature",        "top_p",
                                         "min_p",         "repetition_penalty", "top_k",
                                         "max_new_tokens" };
    for (size_t i = 0; i < json->count; i++) {
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            found = found || hr_str_eq_c(json->items[i].key, known[k]);
        if (!found)
            return hr_fail(HR_INVALID_ARGUMENT, "%.*s is no sampling default",
                           HR_STR_ARG(json->items[i].key));
    }
    return HR_OK;
}

hr_status hr_config_override_generation(hr_str text, hr_config *c)
{
    hr_arena arena = { 0 };
    const hr_json *json;
    hr_status st = hr_json_parse(text, NULL, &arena, &json);
    if (!st) st = check_override(json);
    if (!st) st = hr_config_read_generation(json, c);
    hr_arena_deinit(&arena);
    return st ? hr_fail_prefix(st, "--override-generation-config") : HR_OK;
}

/* Parses dir/name; *out NULL when the file is not there. */
static hr_status parse_file(const char *dir, const char *name, hr_buf *text, hr_arena *arena,
                            const hr_json **out)
{
    hr_buf path = { 0 };
    *out = NULL;
    hr_status st = hr_path_join(dir, hr_str_c(name), &path);
    bool there = !st && hr_path_exists(path.p);
    if (there) st = hr_file_slurp(path.p, MAX_CONFIG, text);
    if (there && !st) st = hr_json_parse(hr_buf_str(text), NULL, arena, out);
    if (there && st) st = hr_fail_prefix(st, "%s", name);
    hr_buf_deinit(&path);
    return st;
}

hr_status hr_config_read_dir(const char *dir, hr_arena *arena, hr_config *config,
                             const hr_family **family)
{
    hr_buf text = { 0 }, generation_text = { 0 };
    hr_arena scratch = { 0 };
    const hr_json *json, *generation = NULL;
    hr_status st = parse_file(dir, "config.json", &text, &scratch, &json);
    if (!st && !json) st = hr_fail(HR_NOT_FOUND, "%s: no config.json", dir);
    if (!st) st = hr_config_from_json(json, arena, config, family);
    if (!st)
        st = parse_file(dir, "generation_config.json", &generation_text, &scratch, &generation);
    if (!st && generation) st = hr_config_read_generation(generation, config);
    hr_buf_deinit(&text);
    hr_buf_deinit(&generation_text);
    hr_arena_deinit(&scratch);
    return st;
}
