/* Qwen3, dense (Yang et al. 2025): each head of q and k is normalised before rope, and D is chosen
 * apart from H/N.
 *
 *   a = norm(h)
 *   h = h + o · attention(rope(norm_q(q · a)), rope(norm_k(k · a)), v · a)
 *   h = h + down · (act(gate · norm(h)) * (up · norm(h)))
 */
#include "model/model_int.h"

static hr_value *layer(hr_backbone *b, const hr_layer *w, hr_value *h)
{
    const hr_config *c = b->c;
    hr_dtype dtype = b->opt->activation;

    hr_value *a = hr_block_norm(b, h, w->attn_norm);                    /* [T,H] */
    hr_value *q = hr_block_linear(b, a, w->q, w->q_bias, dtype);        /* [T,N*D] */
    hr_value *k = hr_block_linear(b, a, w->k, w->k_bias, dtype);        /* [T,KV*D] */
    hr_value *v = hr_block_linear(b, a, w->v, w->v_bias, dtype);        /* [T,KV*D] */
    q = hr_block_norm(b, hr_block_heads(b, q, c->heads), w->q_norm);    /* [T,N,D] */
    k = hr_block_norm(b, hr_block_heads(b, k, c->kv_heads), w->k_norm); /* [T,KV,D] */
    v = hr_block_heads(b, v, c->kv_heads);                              /* [T,KV,D] */
    hr_value *o = hr_block_attention(b, hr_block_rope(b, q), hr_block_rope(b, k), v);
    h = hr_op_add(b->g, h, hr_block_linear(b, o, w->o, w->o_bias, dtype));

    hr_value *x = hr_block_norm(b, h, w->mlp_norm);
    return hr_op_add(b->g, h, hr_block_mlp(b, x, w));
}

static hr_status configure(hr_config *c, const hr_json *json)
{
    HR_TRY(hr_config_flag(json, "attention_bias", &c->attention_bias));
    if (json) c->output_bias = c->attention_bias;
    c->qk_norm = true;
    return HR_OK;
}

const hr_family hr_family_qwen3 = {
    .architectures = { "Qwen3ForCausalLM" },
    .gguf = "qwen3",
    .windows_on_request = true,
    .configure = configure,
    .layer = layer,
};

/* Qwen3 with experts: every MLP, or every few layers' one, is a mixture. */
static hr_status configure_moe(hr_config *c, const hr_json *json)
{
    const hr_json *dense = json ? hr_json_get(json, "mlp_only_layers") : NULL;
    HR_TRY(configure(c, json));
    c->expert_module = "mlp";
    if (!json) return HR_OK; /* what a GGUF file says of experts is known */
    c->sparse_step = 1;
    HR_TRY(hr_config_integer(json, "num_experts", HR_REQUIRED, &c->experts));
    HR_TRY(hr_config_integer(json, "num_experts_per_tok", HR_REQUIRED, &c->experts_used));
    HR_TRY(hr_config_integer(json, "moe_intermediate_size", HR_REQUIRED, &c->expert_intermediate));
    HR_TRY(hr_config_integer(json, "decoder_sparse_step", HR_OPTIONAL, &c->sparse_step));
    HR_TRY(hr_config_flag(json, "norm_topk_prob", &c->expert_norm));
    if (dense && dense->type != HR_JSON_NULL && (dense->type != HR_JSON_ARRAY || dense->count))
        return hr_fail(HR_UNIMPLEMENTED,
                       "config.json: mlp_only_layers that names layers is not supported");
    return hr_experts_check(c);
}

const hr_family hr_family_qwen3_moe = {
    .architectures = { "Qwen3MoeForCausalLM" },
    .gguf = "qwen3moe",
    .experts = true,
    .windows_on_request = true,
    .configure = configure_moe,
    .layer = layer,
};
