/* The backbone and head programs: what all families have around their layers.
 *
 * Runs at start-up, on the thread that builds programs. The inputs, their names and their order
 * are the contract that model.h states; the runner binds by it. */
#include <stdio.h>

#include "model/model_int.h"

void hr_model_kv_specs(const hr_model *m, const hr_kv_spec **specs, size_t *layers)
{
    *specs = m->kv_specs;
    *layers = (size_t)m->config.layers;
}

static hr_value *cache_input(hr_graph *g, const hr_build_options *opt, const hr_kv_spec *spec,
                             const char *which, size_t layer, char name[32])
{
    snprintf(name, 32, "%s.%zu", which, layer);
    return hr_graph_input(g, name, opt->kv_dtype,
                          HR_SHAPE(opt->blocks, opt->block_size, spec->heads, spec->head_dim),
                          HR_LIVE_ALL);
}

/* What the first layer reads [T,H]: rows of the embedding, or rows that an encoder made. */
static hr_value *first_hidden(hr_backbone *b)
{
    const hr_build_options *o = b->opt;
    if (o->input == HR_INPUT_EMBEDDINGS)
        return hr_graph_input(b->g, "embeddings", o->activation, HR_SHAPE(o->tokens, b->c->hidden),
                              HR_LIVE_TOKENS);
    hr_value *ids = hr_graph_input(b->g, "ids", HR_DTYPE_I32, HR_SHAPE(o->tokens), HR_LIVE_TOKENS);
    return hr_op_embed(b->g, ids, hr_graph_weight(b->g, b->m->embed), o->activation);
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

/* h [T,H] through all layers. `caches`, 2 per layer: the inputs on entry, what continues them
 * afterwards. */
static hr_value *run_layers(hr_backbone *b, hr_value *h, hr_value **caches)
{
    const hr_model *m = b->m;
    for (int64_t l = 0; l < b->c->layers; l++) {
        b->k_cache = caches[2 * l];
        b->v_cache = caches[2 * l + 1];
        b->window = m->kv_specs[l].window;
        h = m->family->layer(b, &m->layers[l], h);
        caches[2 * l] = b->k_cache;
        caches[2 * l + 1] = b->v_cache;
    }
    return h;
}

static hr_status build(hr_backbone *b)
{
    const hr_model *m = b->m;
    const hr_config *c = b->c;
    size_t layers = (size_t)c->layers;
    char name[32];
    hr_value *h = first_hidden(b);
    step_inputs(b);
    hr_value **inputs = hr_arena_array(&b->g->arena, 4 * layers, sizeof *inputs);
    if (!inputs) return hr_fail(HR_RESOURCE_EXHAUSTED, "cache inputs of the backbone");
    hr_value **caches = inputs + 2 * layers;
    for (size_t l = 0; l < layers; l++) {
        inputs[2 * l] = cache_input(b->g, b->opt, &m->kv_specs[l], "k_cache", l, name);
        inputs[2 * l + 1] = cache_input(b->g, b->opt, &m->kv_specs[l], "v_cache", l, name);
    }
    memcpy(caches, inputs, 2 * layers * sizeof *inputs);
    b->inv_freq = hr_graph_const(b->g, "inv_freq", c->rope.inv_freq, HR_SHAPE(c->rope.n_freq));
    h = run_layers(b, h, caches);
    hr_graph_output(b->g, "hidden", hr_block_norm(b, h, m->final_norm));
    for (size_t i = 0; i < 2 * layers; i++) {
        snprintf(name, sizeof name, "%c_cache.%zu", i % 2 ? 'v' : 'k', i / 2);
        hr_graph_output_donated(b->g, name, caches[i], inputs[i]);
    }
    return hr_graph_finish(b->g);
}

hr_status hr_model_build_backbone(const hr_model *m, const hr_build_options *opt, hr_graph **out)
{
    *out = NULL;
    hr_graph *g;
    HR_TRY(hr_graph_create("backbone", &g));
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
    return m->devices == 1 ? logits : hr_op_all_gather(g, logits, m->devices, m->config.vocab);
}
