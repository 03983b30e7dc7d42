/* The backbone and head programs: what all families have around their layers.
 *
 * Runs at start-up, on the thread that builds programs. The inputs, their names and their order
 * are the contract that model.h states; the runner binds by it. */
#include <stdio.h>

#include "base/half.h"
#include "model/model_int.h"

void hr_model_kv_specs(const hr_model *m, const hr_kv_spec **specs, size_t *layers)
{
    *specs = m->kv_specs;
    *layers = (size_t)m->config.layers;
}

int hr_model_kv_planes(const hr_kv_spec *spec, const hr_build_options *opt,
                       hr_kv_plane out[HR_KV_MAX_PLANES])
{
    hr_shape pages = HR_SHAPE(opt->blocks, opt->block_size, spec->heads, spec->head_dim);
    hr_shape scales = HR_SHAPE(opt->blocks, opt->block_size, spec->heads, 1);
    out[0] = (hr_kv_plane){ "k_cache", opt->kv_dtype, pages };
    out[1] = (hr_kv_plane){ "v_cache", opt->kv_dtype, pages };
    out[2] = (hr_kv_plane){ "k_scale", HR_DTYPE_F32, scales };
    out[3] = (hr_kv_plane){ "v_scale", HR_DTYPE_F32, scales };
    return opt->kv_dtype == HR_DTYPE_I8 ? 4 : 2;
}

/* The planes of all layers, layer by layer, as inputs; `names` likewise. Returns how many a layer
 * has. */
static int cache_inputs(hr_backbone *b, hr_value **inputs, char (*names)[32])
{
    hr_kv_plane plane[HR_KV_MAX_PLANES];
    int n = 0;
    for (int64_t l = 0; l < b->c->layers; l++) {
        n = hr_model_kv_planes(&b->m->kv_specs[l], b->opt, plane);
        for (int i = 0; i < n; i++) {
            char *name = names[l * n + i];
            snprintf(name, sizeof *names, "%s.%lld", plane[i].name, (long long)l);
            inputs[l * n + i] =
                hr_graph_input(b->g, name, plane[i].dtype, plane[i].shape, HR_LIVE_ALL);
        }
    }
    return n;
}

/* Rounded as the activations are: the factor was a tensor of that dtype in training. */
static float embed_scale(const hr_backbone *b)
{
    float scale = b->c->embed_scale;
    if (b->opt->activation == HR_DTYPE_BF16) return hr_bf16_to_f32(hr_f32_to_bf16(scale));
    return b->opt->activation == HR_DTYPE_F16 ? hr_f16_to_f32(hr_f32_to_f16(scale)) : scale;
}

/* The rope tables of the layers. Which of LongRoPE's two holds is decided for all requests at once,
 * or one's numbers would depend on its neighbours'. */
static void rope_tables(hr_backbone *b)
{
    const hr_rope *r = &b->c->rope, *local = &b->c->local_rope;
    bool is_long = r->long_inv_freq && b->opt->longest > r->original_positions;
    b->inv_freq = hr_graph_const(b->g, "inv_freq", is_long ? r->long_inv_freq : r->inv_freq,
                                 HR_SHAPE(r->n_freq));
    if (local->n_freq)
        b->local_inv_freq =
            hr_graph_const(b->g, "local_inv_freq", local->inv_freq, HR_SHAPE(local->n_freq));
}

/* What the first layer reads [T,H]: rows of the embedding, or rows that an encoder made. */
static hr_value *first_hidden(hr_backbone *b)
{
    const hr_build_options *o = b->opt;
    if (o->input == HR_INPUT_EMBEDDINGS)
        return hr_graph_input(b->g, "embeddings", o->activation, HR_SHAPE(o->tokens, b->c->hidden),
                              HR_LIVE_TOKENS);
    hr_value *ids = hr_graph_input(b->g, "ids", HR_DTYPE_I32, HR_SHAPE(o->tokens), HR_LIVE_TOKENS);
    hr_value *h = hr_op_embed(b->g, ids, hr_graph_weight(b->g, b->m->embed), o->activation);
    return b->c->embed_scale > 0 ? hr_op_scale(b->g, h, embed_scale(b)) : h;
}

/* The small inputs of a step, after what the first layer reads. */
static void step_inputs(hr_backbone *b)
{
    const hr_build_options *o = b->opt;
    hr_graph *g = b->g;
    b->positions =
        hr_graph_input(g, "positions", HR_DTYPE_I32, HR_SHAPE(3, o->tokens), HR_LIVE_ALL);
    b->slots = hr_graph_input(g, "slots", HR_DTYPE_I32, HR_SHAPE(o->tokens), HR_LIVE_TOKENS);
    b->block_tables = hr_graph_input(g, "block_tables", HR_DTYPE_I32,
                                     HR_SHAPE(o->requests, o->table_width), HR_LIVE_ALL);
    b->query_starts =
        hr_graph_input(g, "query_starts", HR_DTYPE_I32, HR_SHAPE(o->requests + 1), HR_LIVE_ALL);
    b->seq_lens = hr_graph_input(g, "seq_lens", HR_DTYPE_I32, HR_SHAPE(o->requests), HR_LIVE_ALL);
}

/* h [T,H] through all layers. `caches`, n per layer: the inputs on entry, what continues them
 * afterwards. */
static hr_value *run_layers(hr_backbone *b, hr_value *h, hr_value **caches, int n)
{
    const hr_model *m = b->m;
    for (int64_t l = 0; l < b->c->layers; l++) {
        b->planes = caches + l * n;
        b->window = m->kv_specs[l].window;
        h = m->family->layer(b, &m->layers[l], h);
    }
    return h;
}

static hr_status build(hr_backbone *b)
{
    const hr_model *m = b->m;
    const hr_config *c = b->c;
    size_t most = (size_t)c->layers * HR_KV_MAX_PLANES;
    hr_value *h = first_hidden(b);
    step_inputs(b);
    hr_value **inputs = hr_arena_array(&b->g->arena, 2 * most, sizeof *inputs);
    char(*names)[32] = hr_arena_array(&b->g->arena, most, sizeof *names);
    if (!inputs || !names) return hr_fail(HR_RESOURCE_EXHAUSTED, "cache inputs of the backbone");
    hr_value **caches = inputs + most;
    int planes = cache_inputs(b, inputs, names);
    size_t n = (size_t)c->layers * (size_t)planes;
    memcpy(caches, inputs, n * sizeof *inputs);
    rope_tables(b);
    h = run_layers(b, h, caches, planes);
    hr_graph_output(b->g, "hidden", hr_block_norm(b, h, m->final_norm));
    for (size_t i = 0; i < n; i++) hr_graph_output_donated(b->g, names[i], caches[i], inputs[i]);
    return hr_graph_finish(b->g);
}

hr_status hr_model_build_backbone(const hr_model *m, const hr_build_options *opt, hr_graph **out)
{
    *out = NULL;
    hr_graph *g;
    HR_TRY(hr_graph_create("backbone", &g));
    hr_graph_contract(g, opt->activation);
    hr_backbone b = { .g = g, .m = m, .c = &m->local, .opt = opt };
    hr_status st = build(&b);
    if (st) hr_graph_destroy(g);
    else *out = g;
    return st;
}

hr_value *hr_model_build_head(hr_graph *g, const hr_model *m, hr_value *hidden,
                              const hr_build_options *opt)
{
    hr_backbone b = { .g = g, .m = m, .c = &m->local, .opt = opt };
    hr_value *logits = hr_block_linear(&b, hidden, m->head, NULL, HR_DTYPE_F32);
    /* ids in their order; the rows that filled up the last slices are dropped */
    if (m->devices > 1) logits = hr_op_all_gather(g, logits, m->devices, m->config.vocab);
    return b.c->logit_cap > 0 ? hr_op_softcap(g, logits, b.c->logit_cap) : logits;
}
