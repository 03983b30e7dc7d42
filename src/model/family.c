/* The table of families, and what a checkpoint of one must hold.
 *
 * Runs on the thread that loads. A family takes its tensors by name and shape; what it did not take
 * is an error by name, so no bias, norm or head is ever dropped in silence. Supporting a new family
 * means one file and one line here. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "model/model_int.h"

static const hr_family *const families[] = {
    &hr_family_llama,     &hr_family_qwen2, &hr_family_mixtral, &hr_family_qwen3,
    &hr_family_qwen3_moe, &hr_family_phi3,  &hr_family_gemma2,  &hr_family_gemma3,
};
#define FAMILIES (sizeof families / sizeof *families)

const hr_family *hr_family_by_architecture(hr_str name)
{
    for (size_t i = 0; i < FAMILIES; i++)
        for (const char *const *a = families[i]->architectures; *a; a++)
            if (hr_str_eq_c(name, *a)) return families[i];
    return NULL;
}

const hr_family *hr_family_by_gguf(hr_str name)
{
    for (size_t i = 0; i < FAMILIES; i++)
        if (families[i]->gguf && hr_str_eq_c(name, families[i]->gguf)) return families[i];
    return NULL;
}

const char *hr_family_names(hr_buf *out)
{
    for (size_t i = 0; i < FAMILIES; i++)
        for (const char *const *a = families[i]->architectures; *a; a++)
            hr_buf_printf(out, "%s%s", out->n ? ", " : "", *a);
    return hr_buf_c(out);
}

/* ---- taking tensors ------------------------------------------------------------------------- */

static hr_status check_tensor(const hr_tensor *t, hr_shape shape)
{
    char is[96], wanted[96];
    const hr_weight *w = &t->weight;
    if (!hr_shape_eq(w->shape, shape))
        return hr_fail(HR_INVALID_ARGUMENT, "%s: tensor '%s' is %s, the config makes it %s",
                       t->file->path, t->in_file, hr_model_shape_text(w->shape, is),
                       hr_model_shape_text(shape, wanted));
    if (shape.rank == 1 && hr_format_is_blocks(w->format))
        return hr_fail(HR_INVALID_ARGUMENT, "%s: tensor '%s' is a vector in %s blocks",
                       t->file->path, t->in_file, hr_format_name(w->format));
    return HR_OK;
}

hr_status hr_model_take(hr_model *m, const hr_weight **out, hr_shape shape, const char *fmt, ...)
{
    char name[160], in_file[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    *out = NULL;
    hr_tensor *t = NULL;
    if (m->dummy) {
        HR_TRY(hr_checkpoint_add_dummy(&m->checkpoint, name, shape, m->config.dtype, m->dummy_seed,
                                       &t));
        HR_TRY(hr_quantized_bind_dummy(m, t));
    } else {
        t = hr_checkpoint_find(&m->checkpoint, hr_str_c(name));
        if (!t)
            return hr_fail(HR_INVALID_ARGUMENT, "%s: tensor '%s' is missing", m->path,
                           m->gguf.path ? hr_gguf_file_name(m->config.architecture, name, in_file)
                                        : name);
        HR_TRY(check_tensor(t, shape));
    }
    t->used = true;
    *out = &t->weight;
    return HR_OK;
}

/* The output matrix: the embedding when tied, else lm_head, which must then be there. */
static hr_status take_head(hr_model *m)
{
    const hr_config *c = &m->config;
    if (!c->tie_word_embeddings)
        return hr_model_take(m, &m->head, HR_SHAPE(c->vocab, c->hidden), "lm_head.weight");
    m->head = m->embed;
    hr_tensor *stray = hr_checkpoint_find(&m->checkpoint, HR_STR("lm_head.weight"));
    if (!stray) return HR_OK;
    stray->used = true;
    hr_log(HR_LOG_INFO, "model: %s: lm_head.weight is not used: tie_word_embeddings is true",
           m->path);
    return HR_OK;
}

/* Buffers that old exporters saved beside the weights; they say what the config says. */
static bool is_known_buffer(const hr_tensor *t)
{
    return hr_str_ends(hr_str_c(t->weight.name), HR_STR(".rotary_emb.inv_freq")) ||
           hr_shape_count(t->weight.shape) == 0;
}

static hr_status refuse_unused(hr_model *m)
{
    for (size_t i = 0; i < m->checkpoint.n; i++) {
        const hr_tensor *t = m->checkpoint.tensors[i];
        if (t->used || t->may_be_left || is_known_buffer(t)) continue;
        return hr_fail(HR_INVALID_ARGUMENT, "%s: tensor '%s' has no place in a %s with this config",
                       t->file->path, t->in_file, m->config.architecture);
    }
    return HR_OK;
}

static hr_status take_all(hr_model *m)
{
    const hr_config *c = &m->config;
    HR_TRY(hr_model_take(m, &m->embed, HR_SHAPE(c->vocab, c->hidden), "model.embed_tokens.weight"));
    m->layers = hr_arena_array(&m->arena, (size_t)c->layers, sizeof *m->layers);
    m->kv_specs = hr_arena_array(&m->arena, (size_t)c->layers, sizeof *m->kv_specs);
    if (!m->layers || !m->kv_specs) return hr_fail(HR_RESOURCE_EXHAUSTED, "layers");
    for (int64_t l = 0; l < c->layers; l++) {
        HR_TRY(hr_block_take_layer(m, l, &m->layers[l]));
        m->kv_specs[l] = (hr_kv_spec){ .heads = (int32_t)c->kv_heads,
                                       .head_dim = (int32_t)c->head_dim,
                                       .window = c->windows ? c->windows[l] : 0,
                                       .dtype = HR_DTYPE_F32 };
    }
    HR_TRY(hr_model_take(m, &m->final_norm, HR_SHAPE(c->hidden), "model.norm.weight"));
    return take_head(m);
}

/* The rows of q and k that this family's GGUF files interleave (see checkpoint.c). */
static void mark_interleaved(hr_model *m)
{
    static const char *const tails[] = { ".self_attn.q_proj.weight", ".self_attn.k_proj.weight",
                                         ".self_attn.q_proj.bias", ".self_attn.k_proj.bias" };
    for (size_t i = 0; i < m->checkpoint.n; i++) {
        hr_tensor *t = m->checkpoint.tensors[i];
        for (size_t k = 0; k < sizeof tails / sizeof *tails; k++)
            if (hr_str_ends(hr_str_c(t->weight.name), hr_str_c(tails[k])))
                hr_tensor_interleave(t, m->config.head_dim);
    }
}

hr_status hr_family_bind(hr_model *m)
{
    if (m->quantize && m->config.experts)
        return hr_fail(HR_UNIMPLEMENTED, "--quantization: a mixture of experts is not supported");
    if (m->family->fused) HR_TRY(hr_fused_split(m));
    if (!m->quantize) HR_TRY(hr_quantized_bind(m));
    HR_TRY(take_all(m));
    HR_TRY(refuse_unused(m));
    /* after take_all: its shapes say that whole heads are there */
    if (m->gguf.path && m->family->gguf_permutes_qk) mark_interleaved(m);
    if (m->quantize && (!m->dummy || hr_quantize_of_dummies(m))) HR_TRY(hr_quantize_bind(m));
    m->weights = hr_arena_array(&m->arena, m->checkpoint.n, sizeof *m->weights);
    if (!m->weights) return hr_fail(HR_RESOURCE_EXHAUSTED, "list of weights");
    for (size_t i = 0; i < m->checkpoint.n; i++) {
        const hr_weight *w = &m->checkpoint.tensors[i]->weight;
        const hr_tensor *t = m->checkpoint.tensors[i];
        bool skipped = !t->used || t->is_part ||
                       hr_str_starts(hr_str_c(w->name), HR_STR("rope_f")) ||
                       (m->head == m->embed && strcmp(w->name, "lm_head.weight") == 0);
        if (!skipped) m->weights[m->n_weights++] = w;
    }
    return HR_OK;
}
