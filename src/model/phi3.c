/* Phi-3 and Phi-4 (Abdin et al. 2024): Llama, whose files join q, k and v, and gate and up (fused.c
 * parts them); rope may turn the first columns of a head only, with LongRoPE's factors.
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
    h = hr_op_add(b->g, h, hr_block_linear(b, o, w->o, NULL, dtype));

    hr_value *x = hr_block_norm(b, h, w->mlp_norm);
    return hr_op_add(b->g, h, hr_block_mlp(b, x, w));
}

static hr_status configure(hr_config *c, const hr_json *json)
{
    if (json) c->attention_bias = false;
    HR_TRY(hr_config_flag(json, "attention_bias", &c->attention_bias));
    if (!c->attention_bias && !c->output_bias && !c->mlp_bias) return HR_OK;
    return hr_fail(HR_UNIMPLEMENTED, "%s: biases of linears are not supported", c->architecture);
}

const hr_family hr_family_phi3 = {
    .architectures = { "Phi3ForCausalLM" },
    .gguf = "phi3",
    .partial_rotary = true,
    .fused = true,
    .configure = configure,
    .layer = layer,
};
