/* What GGUF metadata says under a key, with its type checked, and what its tensors are called here.
 *
 * Runs on the thread that loads; owns nothing. A wrong type is refused, never converted: a count
 * that is a string or a float is a damaged file. */
#include <stdio.h>

#include "model/model_int.h"

/* NULL with *st OK when absent and optional. */
static const hr_gguf_value *find(const hr_gguf *g, const char *key, hr_need need, hr_status *st)
{
    const hr_gguf_value *v = hr_gguf_get(g, key);
    *st = v || need == HR_OPTIONAL
              ? HR_OK
              : hr_fail(HR_INVALID_ARGUMENT, "%s: metadata key '%s' is missing", g->path, key);
    return v;
}

static hr_status wrong_type(const hr_gguf *g, const char *key, const char *wanted)
{
    return hr_fail(HR_INVALID_ARGUMENT, "%s: metadata key '%s' must be %s", g->path, key, wanted);
}

hr_status hr_gguf_i64(const hr_gguf *g, const char *key, hr_need need, int64_t *out)
{
    hr_status st;
    const hr_gguf_value *v = find(g, key, need, &st);
    if (!v) return st;
    switch (v->type) {
    case HR_GGUF_U8:
    case HR_GGUF_U16:
    case HR_GGUF_U32:
    case HR_GGUF_U64:
        if (v->as.u64 > INT64_MAX) return wrong_type(g, key, "below 2^63");
        *out = (int64_t)v->as.u64;
        return HR_OK;
    case HR_GGUF_I8:
    case HR_GGUF_I16:
    case HR_GGUF_I32:
    case HR_GGUF_I64: *out = v->as.i64; return HR_OK;
    case HR_GGUF_F32:
    case HR_GGUF_F64:
    case HR_GGUF_BOOL:
    case HR_GGUF_STRING:
    case HR_GGUF_ARRAY:
    case HR_GGUF_TYPES: break;
    }
    return wrong_type(g, key, "an integer");
}

hr_status hr_gguf_f64(const hr_gguf *g, const char *key, hr_need need, double *out)
{
    hr_status st;
    const hr_gguf_value *v = find(g, key, need, &st);
    if (!v) return st;
    if (v->type != HR_GGUF_F32 && v->type != HR_GGUF_F64) return wrong_type(g, key, "a float");
    *out = v->as.f64;
    return HR_OK;
}

hr_status hr_gguf_bool(const hr_gguf *g, const char *key, hr_need need, bool *out)
{
    hr_status st;
    const hr_gguf_value *v = find(g, key, need, &st);
    if (!v) return st;
    if (v->type != HR_GGUF_BOOL) return wrong_type(g, key, "a boolean");
    *out = v->as.u64 != 0;
    return HR_OK;
}

hr_status hr_gguf_str(const hr_gguf *g, const char *key, hr_need need, hr_str *out)
{
    hr_status st;
    const hr_gguf_value *v = find(g, key, need, &st);
    if (!v) return st;
    if (v->type != HR_GGUF_STRING) return wrong_type(g, key, "a string");
    *out = v->as.str;
    return HR_OK;
}

/* ---- names ---------------------------------------------------------------------------------- */

/* GGUF's word for a tensor and Hugging Face's, without ".weight" or ".bias". */
typedef struct name_pair {
    const char *gguf, *hf;
} name_pair;

static const name_pair top_names[] = {
    { "token_embd", "model.embed_tokens" },
    { "output_norm", "model.norm" },
    { "output", "lm_head" },
};

static const name_pair layer_names[] = {
    { "attn_norm", "input_layernorm" },
    { "attn_q", "self_attn.q_proj" },
    { "attn_k", "self_attn.k_proj" },
    { "attn_v", "self_attn.v_proj" },
    { "attn_output", "self_attn.o_proj" },
    { "attn_q_norm", "self_attn.q_norm" },
    { "attn_k_norm", "self_attn.k_norm" },
    { "ffn_norm", "post_attention_layernorm" },
    { "ffn_gate", "mlp.gate_proj" },
    { "ffn_up", "mlp.up_proj" },
    { "ffn_down", "mlp.down_proj" },
    { "ffn_gate_inp", "mlp.gate" },
    { "ffn_gate_exps", "mlp.experts.gate_proj" },
    { "ffn_up_exps", "mlp.experts.up_proj" },
    { "ffn_down_exps", "mlp.experts.down_proj" },
};

/* Where an architecture means another tensor by a name of a layer. */
static const struct own_name {
    const char *architecture;
    name_pair pair;
} own_names[] = {
    { "phi3", { "attn_qkv", "self_attn.qkv_proj" } },
    { "phi3", { "ffn_up", "mlp.gate_up_proj" } },
    { "gemma2", { "post_attention_norm", "post_attention_layernorm" } },
    { "gemma2", { "ffn_norm", "pre_feedforward_layernorm" } },
    { "gemma2", { "post_ffw_norm", "post_feedforward_layernorm" } },
    { "gemma3", { "post_attention_norm", "post_attention_layernorm" } },
    { "gemma3", { "ffn_norm", "pre_feedforward_layernorm" } },
    { "gemma3", { "post_ffw_norm", "post_feedforward_layernorm" } },
};

/* The pair of a GGUF name (by_gguf) or of a canonical one; NULL when there is none. */
static const name_pair *look_up(hr_str architecture, bool in_layer, bool by_gguf, hr_str name)
{
    size_t n =
        in_layer ? sizeof layer_names / sizeof *layer_names : sizeof top_names / sizeof *top_names;
    const name_pair *pairs = in_layer ? layer_names : top_names;
    for (size_t i = 0; in_layer && i < sizeof own_names / sizeof *own_names; i++) {
        const name_pair *p = &own_names[i].pair;
        if (hr_str_eq_c(architecture, own_names[i].architecture) &&
            hr_str_eq_c(name, by_gguf ? p->gguf : p->hf))
            return p;
    }
    for (size_t i = 0; i < n; i++)
        if (hr_str_eq_c(name, by_gguf ? pairs[i].gguf : pairs[i].hf)) return &pairs[i];
    return NULL;
}

hr_status hr_gguf_canonical_name(hr_str architecture, hr_str name, hr_arena *arena, hr_str *out)
{
    *out = name;
    hr_str kind = hr_str_ends(name, HR_STR(".weight")) ? HR_STR(".weight") : HR_STR(".bias");
    if (!hr_str_ends(name, kind)) return HR_OK;
    hr_str stem = hr_str_slice(name, 0, name.n - kind.n), layer = { 0 };
    const name_pair *pair;
    if (hr_str_starts(stem, HR_STR("blk."))) {
        stem = hr_str_slice(stem, 4, stem.n);
        size_t dot = hr_str_find(stem, HR_STR("."), 0);
        if (dot > stem.n) return HR_OK;
        layer = hr_str_slice(stem, 0, dot);
        stem = hr_str_slice(stem, dot + 1, stem.n);
        pair = look_up(architecture, true, true, stem);
    } else {
        pair = look_up(architecture, false, true, stem);
    }
    if (!pair) return HR_OK;
    hr_buf b = { 0 };
    if (layer.n) hr_buf_printf(&b, "model.layers.%.*s.", HR_STR_ARG(layer));
    hr_buf_add_c(&b, pair->hf);
    hr_buf_add_str(&b, kind);
    hr_status st = hr_buf_status(&b);
    char *copy = st ? NULL : hr_arena_copy(arena, b.p, b.n);
    if (!st && !copy) st = hr_fail(HR_RESOURCE_EXHAUSTED, "tensor name");
    if (copy) *out = (hr_str){ copy, b.n };
    hr_buf_deinit(&b);
    return st;
}

const char *hr_gguf_file_name(const char *architecture, const char *canonical, char out[160])
{
    unsigned layer;
    int used = 0;
    hr_str name = hr_str_c(canonical);
    hr_str kind = hr_str_ends(name, HR_STR(".bias")) ? HR_STR(".bias") : HR_STR(".weight");
    bool in_layer = sscanf(canonical, "model.layers.%u.%n", &layer, &used) == 1 && used;
    hr_str stem = hr_str_slice(name, (size_t)used, name.n - kind.n);
    const name_pair *pair = look_up(hr_str_c(architecture), in_layer, false, stem);
    if (!pair) return canonical;
    if (in_layer) snprintf(out, 160, "blk.%u.%s%s", layer, pair->gguf, kind.p);
    else snprintf(out, 160, "%s%s", pair->gguf, kind.p);
    return out;
}
