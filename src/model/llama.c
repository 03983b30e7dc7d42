/* Llama (Touvron et al. 2023; Dubey et al. 2024), and what is shaped like it: SmolLM2, TinyLlama,
 * Mistral 7B (Jiang et al. 2023).
 *
 *   a = norm(h)
 *   h = h + o · attention(rope(q · a), rope(k · a), v · a)
 *   h = h + down · (act(gate · norm(h)) * (up · norm(h)))
 */
#include "model/model_int.h"

static hr_value *layer(hr_backbone *b, const hr_layer *w, hr_value *h)
{
    const hr_config *c = b->c;
    hr_dtype dtype = b->opt->activation;

    hr_value *a = hr_block_norm(b, h, w->attn_norm);             /* [T,H] */
    hr_value *q = hr_block_linear(b, a, w->q, w->q_bias, dtype); /* [T,N*D] */
    hr_value *k = hr_block_linear(b, a, w->k, w->k_bias, dtype); /* [T,KV*D] */
    hr_value *v = hr_block_linear(b, a, w->v, w->v_bias, dtype); /* [T,KV*D] */
    q = hr_block_rope(b, hr_block_heads(b, q, c->heads));        /* [T,N,D] */
    k = hr_block_rope(b, hr_block_heads(b, k, c->kv_heads));     /* [T,KV,D] */
    v = hr_block_heads(b, v, c->kv_heads);                       /* [T,KV,D] */
    hr_value *o = hr_block_attention(b, q, k, v);                /* [T,N*D] */
    h = hr_op_add(b->g, h, hr_block_linear(b, o, w->o, w->o_bias, dtype));

    hr_value *x = hr_block_norm(b, h, w->mlp_norm);
    return hr_op_add(b->g, h, hr_block_mlp(b, x, w));
}

/* attention_bias is on q, k, v and o, mlp_bias on all three matrices; GGUF shows it by tensors. */
static hr_status configure(hr_config *c, const hr_json *json)
{
    HR_TRY(hr_config_flag(json, "attention_bias", &c->attention_bias));
    if (json) c->output_bias = c->attention_bias;
    return hr_config_flag(json, "mlp_bias", &c->mlp_bias);
}

/* Mixtral (Jiang et al. 2024): the MLP is two of eight, their shares a softmax over the two. */
static hr_status configure_mixtral(hr_config *c, const hr_json *json)
{
    HR_TRY(hr_config_integer(json, "num_local_experts", HR_REQUIRED, &c->experts));
    HR_TRY(hr_config_integer(json, "num_experts_per_tok", HR_REQUIRED, &c->experts_used));
    c->expert_intermediate = c->intermediate;
    c->sparse_step = 1;
    c->expert_norm = true;
    c->expert_module = "block_sparse_moe";
    return hr_experts_check(c);
}

const hr_family hr_family_mixtral = {
    .architectures = { "MixtralForCausalLM" },
    .configure = configure_mixtral,
    .layer = layer,
};

const hr_family hr_family_llama = {
    .architectures = { "LlamaForCausalLM", "MistralForCausalLM" },
    .gguf = "llama",
    .gguf_permutes_qk = true,
    .experts = true, /* Mixtral's files name it, too */
    .configure = configure,
    .layer = layer,
};
