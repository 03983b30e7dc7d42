/* The words that families are written in: what every Llama-shaped transformer shares.
 *
 * Runs at start-up, on the thread that builds programs; owns nothing (values belong to the graph).
 * A linear over a weight in blocks takes 8-bit rows when the build asks for them, one whose
 * checkpoint means such rows always does; the rows are quantised once for all linears that read
 * the same x, which is remembered in the backbone. */
#include <math.h>

#include "model/model_int.h"

static hr_value *weight(hr_backbone *b, const hr_weight *w)
{
    return w ? hr_graph_weight(b->g, w) : NULL;
}

/* How many columns of x share a scale where this weight meets int8 rows; 0 = float rows. A
 * checkpoint may say which; else it is the build's choice, of block formats. */
static int64_t scale_group(const hr_backbone *b, const hr_weight *w)
{
    switch (w->rows) {
    case HR_WEIGHT_ROWS_INT8: return w->shape.dim[1];
    case HR_WEIGHT_ROWS_FLOAT: return 0;
    case HR_WEIGHT_ROWS_ANY: break;
    }
    return b->opt->rows == HR_ROWS_INT8_32 && hr_format_is_blocks(w->format) ? 32 : 0;
}

/* x as int8 to b->q8, unless it was the last to be. */
static void quantise_once(hr_backbone *b, hr_value *x, int64_t group)
{
    if (b->quantised == x && b->q8_group == group) return;
    b->q8 = hr_op_quantise_rows(b->g, x, (int32_t)group, &b->q8_scale);
    b->quantised = x;
    b->q8_group = group;
}

/* One matrix, whole or a slice, by the rows of one device. */
static hr_value *multiply(hr_backbone *b, hr_value *x, const hr_weight *w, const hr_weight *bias,
                          hr_dtype dtype)
{
    int64_t group = scale_group(b, w);
    if (!group) return hr_op_linear(b->g, x, weight(b, w), weight(b, bias), dtype);
    quantise_once(b, x, group);
    return hr_op_linear_q8(b->g, b->q8, b->q8_scale, weight(b, w), weight(b, bias), dtype);
}

hr_value *hr_block_grouped(hr_backbone *b, hr_value *x, const hr_weight *w, hr_value *groups,
                           hr_dtype dtype)
{
    int64_t group = scale_group(b, w);
    if (group) quantise_once(b, x, group);
    return hr_op_linear_grouped(b->g, group ? b->q8 : x, group ? b->q8_scale : NULL, weight(b, w),
                                groups, dtype);
}

/* A matrix cut by columns meets the device's own columns of x, and the devices' results are summed;
 * one that stayed whole needs all columns. */
hr_value *hr_block_linear(hr_backbone *b, hr_value *x, const hr_weight *w, const hr_weight *bias,
                          hr_dtype dtype)
{
    int devices = b->m->devices;
    if (w->shard.count && w->shard.axis == 1) {
        x = multiply(b, x, w, NULL, HR_DTYPE_F32);
        return hr_op_all_reduce(b->g, x, weight(b, bias), devices, dtype);
    }
    if (x && x->shape.dim[1] < w->shape.dim[1])
        x = hr_op_all_gather(b->g, x, devices, w->shape.dim[1]);
    return multiply(b, x, w, bias, dtype);
}

hr_value *hr_block_norm(hr_backbone *b, hr_value *x, const hr_weight *w)
{
    return hr_op_rms_norm(b->g, x, weight(b, w), b->c->rms_eps, b->c->norm_offset);
}

hr_value *hr_block_heads(hr_backbone *b, hr_value *x, int64_t heads)
{
    return hr_graph_reshape(b->g, x, HR_SHAPE(b->opt->tokens, heads, b->c->head_dim));
}

hr_value *hr_block_rope(hr_backbone *b, hr_value *x)
{
    bool local = b->window && b->local_inv_freq;
    const hr_rope *r = local ? &b->c->local_rope : &b->c->rope;
    hr_value *inv_freq = local ? b->local_inv_freq : b->inv_freq;
    return hr_op_rope(b->g, x, b->positions, inv_freq, r->attention_factor);
}

/* x [T,KV,D] into plane i, in int8 as codes, and a scale for each token and head into plane i + 2.
 */
static void write_plane(hr_backbone *b, int i, hr_value *x)
{
    int64_t T = b->opt->tokens, heads = b->c->kv_heads, D = b->c->head_dim;
    if (b->opt->kv_dtype == HR_DTYPE_I8) {
        hr_value *scale;
        x = hr_graph_reshape(b->g, x, HR_SHAPE(T, heads * D));
        x = hr_op_quantise_rows(b->g, x, (int32_t)D, &scale);
        x = hr_graph_reshape(b->g, x, HR_SHAPE(T, heads, D));
        scale = hr_graph_reshape(b->g, scale, HR_SHAPE(T, heads, 1));
        b->planes[i + 2] = hr_op_kv_write(b->g, b->planes[i + 2], scale, b->slots);
    }
    b->planes[i] = hr_op_kv_write(b->g, b->planes[i], x, b->slots);
}

hr_value *hr_block_attention(hr_backbone *b, hr_value *q, hr_value *k, hr_value *v)
{
    const hr_config *c = b->c;
    bool codes = b->opt->kv_dtype == HR_DTYPE_I8;
    float scale = (float)(1 / sqrt((double)c->head_dim));
    write_plane(b, 0, k);
    write_plane(b, 1, v);
    hr_value *o = hr_op_attention(b->g, q,
                                  &(hr_attention_inputs){
                                      .k_cache = b->planes[0],
                                      .v_cache = b->planes[1],
                                      .k_scale = codes ? b->planes[2] : NULL,
                                      .v_scale = codes ? b->planes[3] : NULL,
                                      .block_tables = b->block_tables,
                                      .query_starts = b->query_starts,
                                      .seq_lens = b->seq_lens,
                                      .scale = c->attention_scale > 0 ? c->attention_scale : scale,
                                      .cap = c->attention_cap,
                                      .window = b->window,
                                  });
    return hr_graph_reshape(b->g, o, HR_SHAPE(b->opt->tokens, c->heads * c->head_dim));
}

hr_value *hr_block_mlp(hr_backbone *b, hr_value *x, const hr_layer *w)
{
    hr_dtype dtype = b->opt->activation;
    if (w->router) return hr_block_experts(b, x, w);
    hr_value *gate = hr_block_linear(b, x, w->gate, w->gate_bias, dtype); /* [T,I] */
    hr_value *up = hr_block_linear(b, x, w->up, w->up_bias, dtype);       /* [T,I] */
    hr_value *y = hr_op_gated(b->g, gate, up, b->c->act);
    return hr_block_linear(b, y, w->down, w->down_bias, dtype); /* [T,H] */
}

/* ---- the tensors of a layer ----------------------------------------------------------------- */

/* One row: the field, its shape and its name; taken when the config says that it is there. */
typedef struct tensor_row {
    const hr_weight **out;
    bool there;
    hr_shape shape;
    const char *name; /* after "model.layers.N." */
} tensor_row;

hr_status hr_block_take_layer(hr_model *m, int64_t l, hr_layer *w)
{
    const hr_config *c = &m->config;
    int64_t H = c->hidden, I = c->intermediate, D = c->head_dim, N = c->heads, KV = c->kv_heads;
    bool dense = !hr_config_is_sparse(c, l);
    const tensor_row rows[] = {
        { &w->attn_norm, true, HR_SHAPE(H), "input_layernorm.weight" },
        { &w->q, true, HR_SHAPE(N * D, H), "self_attn.q_proj.weight" },
        { &w->k, true, HR_SHAPE(KV * D, H), "self_attn.k_proj.weight" },
        { &w->v, true, HR_SHAPE(KV * D, H), "self_attn.v_proj.weight" },
        { &w->q_bias, c->attention_bias, HR_SHAPE(N * D), "self_attn.q_proj.bias" },
        { &w->k_bias, c->attention_bias, HR_SHAPE(KV * D), "self_attn.k_proj.bias" },
        { &w->v_bias, c->attention_bias, HR_SHAPE(KV * D), "self_attn.v_proj.bias" },
        { &w->q_norm, c->qk_norm, HR_SHAPE(D), "self_attn.q_norm.weight" },
        { &w->k_norm, c->qk_norm, HR_SHAPE(D), "self_attn.k_norm.weight" },
        { &w->o, true, HR_SHAPE(H, N * D), "self_attn.o_proj.weight" },
        { &w->o_bias, c->output_bias, HR_SHAPE(H), "self_attn.o_proj.bias" },
        { &w->mlp_norm, !c->post_norms, HR_SHAPE(H), "post_attention_layernorm.weight" },
        { &w->attn_post_norm, c->post_norms, HR_SHAPE(H), "post_attention_layernorm.weight" },
        { &w->mlp_norm, c->post_norms, HR_SHAPE(H), "pre_feedforward_layernorm.weight" },
        { &w->mlp_post_norm, c->post_norms, HR_SHAPE(H), "post_feedforward_layernorm.weight" },
        { &w->gate, dense, HR_SHAPE(I, H), "mlp.gate_proj.weight" },
        { &w->up, dense, HR_SHAPE(I, H), "mlp.up_proj.weight" },
        { &w->down, dense, HR_SHAPE(H, I), "mlp.down_proj.weight" },
        { &w->gate_bias, dense && c->mlp_bias, HR_SHAPE(I), "mlp.gate_proj.bias" },
        { &w->up_bias, dense && c->mlp_bias, HR_SHAPE(I), "mlp.up_proj.bias" },
        { &w->down_bias, dense && c->mlp_bias, HR_SHAPE(H), "mlp.down_proj.bias" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].there)
            HR_TRY(hr_model_take(m, rows[i].out, rows[i].shape, "model.layers.%lld.%s",
                                 (long long)l, rows[i].name));
    return dense ? HR_OK : hr_experts_take(m, l, w);
}
