/* A model: from a path to checked metadata, and no weight byte read.
 *
 * Loaded by one thread, immutable afterwards, shared by reference count: packing threads read
 * weights through it at the same time. Owns the open files and one arena with everything else. */
#include "model/model.h"

#include "model/model_int.h"

static hr_status load_dir(hr_model *m)
{
    HR_TRY(hr_config_read_dir(m->path, &m->arena, &m->config, &m->family));
    if (!m->dummy) HR_TRY(hr_safetensors_read_dir(m->path, &m->checkpoint));
    return hr_vocab_read_dir(m->path, &m->arena, &m->vocab);
}

static hr_status load_gguf(hr_model *m)
{
    HR_TRY(hr_gguf_read(m->path, &m->checkpoint, &m->gguf));
    HR_TRY(hr_config_from_gguf(&m->gguf, &m->checkpoint, &m->arena, &m->config, &m->family));
    HR_TRY(hr_vocab_from_gguf(&m->gguf, &m->arena, &m->vocab));
    if (m->vocab.n_tokens > (size_t)m->config.vocab)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: %zu tokens, but token_embd.weight has %lld rows",
                       m->path, m->vocab.n_tokens, (long long)m->config.vocab);
    return HR_OK;
}

static hr_status load(hr_model *m, const char *path, const hr_model_options *o)
{
    bool dir = hr_path_is_dir(path);
    m->path = hr_arena_copy(&m->arena, path, strlen(path));
    if (!m->path) return hr_fail(HR_RESOURCE_EXHAUSTED, "path of the model");
    m->dummy = o->load_format == HR_LOAD_DUMMY;
    m->dummy_seed = o->dummy_seed;
    if (m->dummy && !dir)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: dummy weights need a directory with a config.json",
                       path);
    HR_TRY(dir ? load_dir(m) : load_gguf(m));
    if (o->ignore_generation_defaults) m->config.generation = (hr_generation_defaults){ 0 };
    hr_generation_defaults *d = &m->config.generation;
    if (o->greedy)
        *d = (hr_generation_defaults){ .has_max_new_tokens = d->has_max_new_tokens,
                                       .max_new_tokens = d->max_new_tokens };
    if (o->override_generation.n)
        HR_TRY(hr_config_override_generation(o->override_generation, &m->config));
    if (o->quantize) HR_TRY(hr_quantize_plan(m, o));
    HR_TRY(hr_family_bind(m));
    hr_status st = hr_model_shard(m, o->devices ? o->devices : 1);
    return st ? hr_fail_prefix(st, "%s", path) : HR_OK;
}

hr_status hr_model_load(const char *path, const hr_model_options *options, hr_model **out)
{
    static const hr_model_options defaults = { 0 };
    *out = NULL;
    hr_model *m = hr_new0(hr_model);
    if (!m) return hr_fail(HR_RESOURCE_EXHAUSTED, "model object");
    hr_ref_init(&m->refs);
    m->checkpoint.arena = &m->arena;
    m->vocab = (hr_model_vocab){ .gguf_pre = "",
                                 .bos = -1,
                                 .eos = -1,
                                 .unk = -1,
                                 .sep = -1,
                                 .pad = -1,
                                 .mask = -1,
                                 .add_bos = -1,
                                 .add_eos = -1,
                                 .add_space_prefix = -1 };
    hr_status st = load(m, path, options ? options : &defaults);
    if (st) hr_model_release(m);
    else *out = m;
    return st;
}

hr_model *hr_model_retain(hr_model *m)
{
    hr_ref_retain(&m->refs);
    return m;
}

void hr_model_release(hr_model *m)
{
    if (!m || !hr_ref_release(&m->refs)) return;
    hr_gguf_deinit(&m->gguf);
    hr_quantized_deinit(m);
    hr_checkpoint_deinit(&m->checkpoint);
    hr_arena_deinit(&m->arena);
    hr_free(m);
}

const hr_config *hr_model_config(const hr_model *m)
{
    return &m->config;
}

const char *hr_model_path(const hr_model *m)
{
    return m->path;
}

const hr_weight *const *hr_model_weights(const hr_model *m, size_t *count)
{
    *count = m->n_weights;
    return m->weights;
}

bool hr_model_has_blocks(const hr_model *m)
{
    for (size_t i = 0; i < m->n_weights; i++)
        if (hr_format_is_blocks(m->weights[i]->format)) return true;
    return false;
}

bool hr_model_has_int8_rows(const hr_model *m)
{
    for (size_t i = 0; i < m->n_weights; i++)
        if (m->weights[i]->rows == HR_WEIGHT_ROWS_INT8) return true;
    return false;
}

const hr_model_vocab *hr_model_vocab_get(const hr_model *m)
{
    return &m->vocab;
}
