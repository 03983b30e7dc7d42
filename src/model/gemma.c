/* Gemma 2 and Gemma 3, text (Gemma Team 2024, 2025).
 *
 *   h = embedding * sqrt(H)
 *   a = norm(h)
 *   h = h + norm(o · attention(rope(q · a), rope(k · a), v · a))
 *   h = h + norm(down · (gelu(gate · norm(h)) * (up · norm(h))))
 *
 * Hugging Face's norms multiply by 1 + weight; GGUF's weights have the 1 in them. Most layers see a
 * window. Gemma 2 caps scores and logits; Gemma 3 normalises the heads of q and k instead, and its
 * layers with a window turn by another base. */
#include <math.h>

#include "model/model_int.h"

static hr_value *layer(hr_backbone *b, const hr_layer *w, hr_value *h)
{
    const hr_config *c = b->c;
    hr_dtype dtype = b->opt->activation;

    hr_value *a = hr_block_norm(b, h, w->attn_norm); /* [T,H] */
    hr_value *q = hr_block_heads(b, hr_block_linear(b, a, w->q, NULL, dtype), c->heads);
    hr_value *k = hr_block_heads(b, hr_block_linear(b, a, w->k, NULL, dtype), c->kv_heads);
    hr_value *v = hr_block_heads(b, hr_block_linear(b, a, w->v, NULL, dtype), c->kv_heads);
    if (c->qk_norm) q = hr_block_norm(b, q, w->q_norm); /* [T,N,D] */
    if (c->qk_norm) k = hr_block_norm(b, k, w->k_norm); /* [T,KV,D] */
    hr_value *o = hr_block_attention(b, hr_block_rope(b, q), hr_block_rope(b, k), v);
    o = hr_block_linear(b, o, w->o, NULL, dtype); /* [T,H] */
    h = hr_op_add(b->g, h, hr_block_norm(b, o, w->attn_post_norm));

    hr_value *x = hr_block_mlp(b, hr_block_norm(b, h, w->mlp_norm), w);
    return hr_op_add(b->g, h, hr_block_norm(b, x, w->mlp_post_norm));
}

static bool given(const hr_json *json, const char *key)
{
    const hr_json *v = hr_json_get(json, key);
    return v && v->type != HR_JSON_NULL;
}

/* Keys that Hugging Face leaves out where they are the class's own default. */
static hr_status read_keys(hr_config *c, const hr_json *json)
{
    bool bidirectional = false;
    float scalar = 256;
    if (!given(json, "tie_word_embeddings")) c->tie_word_embeddings = true;
    if (!given(json, "hidden_activation") && !given(json, "hidden_act")) c->act = HR_ACT_GELU_TANH;
    HR_TRY(hr_config_flag(json, "attention_bias", &c->attention_bias));
    HR_TRY(hr_config_flag(json, "use_bidirectional_attention", &bidirectional));
    HR_TRY(hr_config_number(json, "query_pre_attn_scalar", &scalar));
    HR_TRY(hr_config_number(json, "attn_logit_softcapping", &c->attention_cap));
    HR_TRY(hr_config_number(json, "final_logit_softcapping", &c->logit_cap));
    c->attention_scale = (float)(1 / sqrt((double)scalar));
    if (!bidirectional) return HR_OK;
    return hr_fail(HR_UNIMPLEMENTED,
                   "config.json: use_bidirectional_attention true is not supported");
}

/* GGUF has no key for the scale of q·k: it is that of a head but in the 27B models, which are known
 * by their layers. */
static void known_from_gguf(hr_config *c, int64_t layers_of_27b)
{
    double columns =
        c->layers == layers_of_27b ? (double)c->hidden / (double)c->heads : (double)c->head_dim;
    c->attention_scale = (float)(1 / sqrt(columns));
    c->act = HR_ACT_GELU_TANH;
}

static hr_status configure(hr_config *c, const hr_json *json, int64_t layers_of_27b)
{
    c->norm_offset = json ? 1 : 0;
    c->embed_scale = (float)sqrt((double)c->hidden);
    c->post_norms = true;
    if (json) HR_TRY(read_keys(c, json));
    else known_from_gguf(c, layers_of_27b);
    if (!c->attention_bias && !c->output_bias && !c->mlp_bias) return HR_OK;
    return hr_fail(HR_UNIMPLEMENTED, "%s: biases of linears are not supported", c->architecture);
}

static hr_status configure_2(hr_config *c, const hr_json *json)
{
    if (json) { /* the defaults of its class; null switches them off */
        c->attention_cap = hr_json_get(json, "attn_logit_softcapping") ? 0 : 50;
        c->logit_cap = hr_json_get(json, "final_logit_softcapping") ? 0 : 30;
    }
    return configure(c, json, 46);
}

static hr_status configure_3(hr_config *c, const hr_json *json)
{
    c->qk_norm = true;
    c->rope.theta = 1000000;
    c->local_rope.theta = 10000;
    return configure(c, json, 62);
}

const hr_family hr_family_gemma2 = {
    .architectures = { "Gemma2ForCausalLM" },
    .gguf = "gemma2",
    .window_period = 2,
    .configure = configure_2,
    .layer = layer,
};

const hr_family hr_family_gemma3 = {
    .architectures = { "Gemma3ForCausalLM" },
    .gguf = "gemma3",
    .window_period = 6,
    .configure = configure_3,
    .layer = layer,
};
