/* The config that GGUF metadata means.
 *
 * Runs on the thread that loads; owns nothing. GGUF keeps sizes under "<architecture>.<key>" and
 * leaves flags to the tensors: a bias or an output matrix is there or it is not. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "model/model_int.h"

/* Where keys are read: the file and its architecture's prefix. */
typedef struct source {
    const hr_gguf *g;
    const hr_checkpoint *c;
    hr_str architecture;
    const hr_family *family;
} source;

static const char *key_of(const source *s, const char *key, char out[160])
{
    snprintf(out, 160, "%.*s.%s", (int)s->architecture.n, s->architecture.p, key);
    return out;
}

static hr_status read_i64(const source *s, const char *key, hr_need need, int64_t *out)
{
    char full[160];
    return hr_gguf_i64(s->g, key_of(s, key, full), need, out);
}

static hr_status read_f64(const source *s, const char *key, hr_need need, double *out)
{
    char full[160];
    return hr_gguf_f64(s->g, key_of(s, key, full), need, out);
}

static bool has_tensor(const source *s, const char *name)
{
    return hr_checkpoint_find(s->c, hr_str_c(name)) != NULL;
}

static hr_status fault(const source *s, const char *what)
{
    return hr_fail(HR_INVALID_ARGUMENT, "%s: %s", s->g->path, what);
}

static hr_status read_family(source *s, hr_arena *arena, hr_config *c, const hr_family **family)
{
    hr_str type = HR_STR("model");
    int64_t splits = 1;
    HR_TRY(hr_gguf_str(s->g, "general.type", HR_OPTIONAL, &type));
    if (!hr_str_eq_c(type, "model"))
        return hr_fail(HR_INVALID_ARGUMENT, "%s: general.type is '%.*s', not a model", s->g->path,
                       HR_STR_ARG(type));
    HR_TRY(hr_gguf_i64(s->g, "split.count", HR_OPTIONAL, &splits));
    if (splits > 1)
        return hr_fail(HR_UNIMPLEMENTED,
                       "%s: one of %" PRId64 " parts; join them with gguf-split --merge first",
                       s->g->path, splits);
    HR_TRY(hr_gguf_str(s->g, "general.architecture", HR_REQUIRED, &s->architecture));
    *family = hr_family_by_gguf(s->architecture);
    if (!*family) {
        hr_buf names = { 0 };
        hr_status st =
            hr_fail(HR_UNIMPLEMENTED, "%s: architecture '%.*s' is not supported; supported are %s",
                    s->g->path, HR_STR_ARG(s->architecture), hr_family_names(&names));
        hr_buf_deinit(&names);
        return st;
    }
    s->family = *family;
    c->architecture = hr_arena_copy(arena, s->architecture.p, s->architecture.n);
    return c->architecture ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "architecture");
}

static hr_status read_head_dim(const source *s, hr_config *c)
{
    int64_t key = 0, value = 0, rotated;
    HR_TRY(read_i64(s, "attention.key_length", HR_OPTIONAL, &key));
    if (key == 0 && (c->heads <= 0 || c->hidden <= 0 || c->hidden % c->heads))
        return fault(s, "the embedding length is not a multiple of the head count");
    c->head_dim = rotated = value = key ? key : c->hidden / c->heads;
    HR_TRY(read_i64(s, "attention.value_length", HR_OPTIONAL, &value));
    HR_TRY(read_i64(s, "rope.dimension_count", HR_OPTIONAL, &rotated));
    if (value != c->head_dim)
        return hr_fail(HR_UNIMPLEMENTED,
                       "%s: keys of %" PRId64 " and values of %" PRId64 " columns", s->g->path,
                       c->head_dim, value);
    if (rotated < 1 || rotated > c->head_dim ||
        (rotated < c->head_dim && !s->family->partial_rotary))
        return hr_fail(HR_UNIMPLEMENTED, "%s: rope over %" PRId64 " of %" PRId64 " columns",
                       s->g->path, rotated, c->head_dim);
    c->rotary = (double)rotated / (double)c->head_dim;
    return HR_OK;
}

static hr_status read_sizes(const source *s, hr_config *c)
{
    double eps = 0;
    HR_TRY(read_i64(s, "embedding_length", HR_REQUIRED, &c->hidden));
    HR_TRY(read_i64(s, "block_count", HR_REQUIRED, &c->layers));
    HR_TRY(read_i64(s, "attention.head_count", HR_REQUIRED, &c->heads));
    HR_TRY(read_i64(s, "feed_forward_length", HR_REQUIRED, &c->intermediate));
    HR_TRY(read_i64(s, "context_length", HR_REQUIRED, &c->max_positions));
    c->kv_heads = c->heads;
    HR_TRY(read_i64(s, "attention.head_count_kv", HR_OPTIONAL, &c->kv_heads));
    HR_TRY(read_f64(s, "attention.layer_norm_rms_epsilon", HR_REQUIRED, &eps));
    c->rms_eps = (float)eps;
    HR_TRY(read_head_dim(s, c));
    const hr_tensor *embed = hr_checkpoint_find(s->c, HR_STR("model.embed_tokens.weight"));
    if (!embed || embed->weight.shape.rank != 2)
        return fault(s, "tensor 'token_embd.weight' is missing or not a matrix");
    c->vocab = embed->weight.shape.dim[0];
    return hr_config_check(c, s->g->path);
}

/* Every layer is a mixture then, and shares are of the chosen. */
static hr_status read_experts(const source *s, hr_config *c)
{
    HR_TRY(read_i64(s, "expert_count", HR_OPTIONAL, &c->experts));
    if (!c->experts) return HR_OK;
    if (!s->family->experts)
        return hr_fail(HR_UNIMPLEMENTED, "%s: a mixture of %" PRId64 " experts is not supported",
                       s->g->path, c->experts);
    HR_TRY(read_i64(s, "expert_used_count", HR_REQUIRED, &c->experts_used));
    c->expert_intermediate = c->intermediate;
    HR_TRY(read_i64(s, "expert_feed_forward_length", HR_OPTIONAL, &c->expert_intermediate));
    c->sparse_step = 1;
    c->expert_norm = true;
    c->expert_module = "mlp";
    return hr_experts_check(c);
}

static hr_status read_window(const source *s, hr_arena *arena, hr_config *c)
{
    int64_t window = 0;
    HR_TRY(read_i64(s, "attention.sliding_window", HR_OPTIONAL, &window));
    if (window < 0 || window > INT32_MAX) return fault(s, "attention.sliding_window out of range");
    if (window == 0) return HR_OK;
    int32_t *windows = hr_arena_array(arena, (size_t)c->layers, sizeof *windows);
    if (!windows) return hr_fail(HR_RESOURCE_EXHAUSTED, "windows");
    int64_t period = s->family->window_period;
    if (period) HR_TRY(read_i64(s, "attention.sliding_window_pattern", HR_OPTIONAL, &period));
    for (int64_t l = 0; l < c->layers; l++)
        windows[l] = period > 0 && (l + 1) % period == 0 ? 0 : (int32_t)window;
    c->windows = windows;
    return HR_OK;
}

static hr_status read_rope_kind(const source *s, hr_rope *r)
{
    char full[160];
    hr_str type = HR_STR("none");
    double linear = 1;
    HR_TRY(hr_gguf_str(s->g, key_of(s, "rope.scaling.type", full), HR_OPTIONAL, &type));
    HR_TRY(read_f64(s, "rope.scale_linear", HR_OPTIONAL, &linear)); /* an older spelling */
    r->factor = linear;
    HR_TRY(read_f64(s, "rope.scaling.factor", HR_OPTIONAL, &r->factor));
    if (!(r->factor > 0 && isfinite(r->factor))) return fault(s, "rope scaling factor");
    if (hr_str_eq_c(type, "yarn")) r->kind = HR_ROPE_YARN;
    else if (hr_str_eq_c(type, "linear") || (hr_str_eq_c(type, "none") && linear != 1))
        r->kind = HR_ROPE_LINEAR;
    else if (!hr_str_eq_c(type, "none"))
        return hr_fail(HR_INVALID_ARGUMENT, "%s: unknown rope scaling type '%.*s'", s->g->path,
                       HR_STR_ARG(type));
    return HR_OK;
}

static hr_status read_yarn(const source *s, hr_config *c)
{
    hr_rope *r = &c->rope;
    double factor = 1;
    r->original_positions = c->max_positions;
    HR_TRY(
        read_i64(s, "rope.scaling.original_context_length", HR_OPTIONAL, &r->original_positions));
    HR_TRY(read_f64(s, "rope.scaling.attn_factor", HR_OPTIONAL, &factor));
    HR_TRY(read_f64(s, "rope.scaling.yarn_beta_fast", HR_OPTIONAL, &r->beta_fast));
    HR_TRY(read_f64(s, "rope.scaling.yarn_beta_slow", HR_OPTIONAL, &r->beta_slow));
    if (r->original_positions < 1 || r->original_positions > INT32_MAX || !(factor > 0))
        return fault(s, "rope scaling: original context length or attention factor");
    double magnitude = r->factor > 1 ? 1 + 0.1 * log(r->factor) : 1;
    r->attention_factor = (float)(factor * magnitude);
    double reach = (double)r->original_positions * r->factor;
    if (reach > (double)c->max_positions && reach < INT32_MAX) c->max_positions = (int64_t)reach;
    return HR_OK;
}

/* Numbers that divide the frequencies: rope_freqs.weight is how GGUF writes llama3 scaling, two
 * others are LongRoPE's. *out NULL when the tensor is not there. */
static hr_status read_rope_factors(const source *s, const char *name, int64_t n, hr_arena *arena,
                                   const float **out)
{
    hr_tensor *t = hr_checkpoint_find(s->c, hr_str_c(name));
    *out = NULL;
    if (!t) return HR_OK;
    if (t->weight.format != HR_FORMAT_F32 || !hr_shape_eq(t->weight.shape, HR_SHAPE(n)))
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%s: tensor '%s' is not F32 of half the columns that turn", s->g->path,
                       name);
    float *factors = hr_arena_array(arena, (size_t)n, sizeof *factors);
    if (!factors) return hr_fail(HR_RESOURCE_EXHAUSTED, "rope factors");
    HR_TRY(t->weight.read_rows(&t->weight, 0, 1, factors));
    for (int64_t i = 0; i < n; i++)
        if (!(factors[i] > 0) || !isfinite((double)factors[i]))
            return hr_fail(HR_INVALID_ARGUMENT,
                           "%s: tensor '%s' holds a number that is not positive", s->g->path, name);
    t->used = true;
    *out = factors;
    return HR_OK;
}

/* Both lists, or neither. */
static hr_status read_long(const source *s, int64_t columns, hr_arena *arena, hr_config *c)
{
    hr_rope *r = &c->rope;
    const float *near, *far;
    double attention = 0;
    HR_TRY(read_rope_factors(s, "rope_factors_short.weight", columns / 2, arena, &near));
    HR_TRY(read_rope_factors(s, "rope_factors_long.weight", columns / 2, arena, &far));
    if (!near && !far) return HR_OK;
    if (!near || !far)
        return fault(s, "rope factors for short contexts or for long ones are missing");
    if (r->kind != HR_ROPE_DEFAULT) return fault(s, "rope scaling beside rope factors");
    HR_TRY(
        read_i64(s, "rope.scaling.original_context_length", HR_REQUIRED, &r->original_positions));
    HR_TRY(read_f64(s, "rope.scaling.attn_factor", HR_OPTIONAL, &attention));
    if (r->original_positions < 2 || r->original_positions > INT32_MAX || attention < 0)
        return fault(s, "rope scaling: original context length or attention factor");
    r->attention_factor = (float)attention;
    r->kind = HR_ROPE_LONG;
    return hr_rope_compute_long(r, columns, near, far, c->max_positions, arena);
}

static hr_status read_theta(const source *s, const char *key, double *out)
{
    HR_TRY(read_f64(s, key, HR_OPTIONAL, out));
    if (*out > 1 && isfinite(*out)) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "%s: %s %g", s->g->path, key, *out);
}

static hr_status read_rope(const source *s, hr_arena *arena, hr_config *c)
{
    const float *factors;
    int64_t columns;
    if (c->rope.theta == 0) c->rope.theta = 10000;
    HR_TRY(hr_rope_columns(c, s->g->path, &columns));
    HR_TRY(read_theta(s, "rope.freq_base", &c->rope.theta));
    HR_TRY(read_rope_kind(s, &c->rope));
    if (c->local_rope.theta > 0) {
        HR_TRY(read_theta(s, "rope.freq_base_swa", &c->local_rope.theta));
        HR_TRY(hr_rope_compute(&c->local_rope, columns, NULL, arena));
    }
    if (c->rope.kind == HR_ROPE_YARN) HR_TRY(read_yarn(s, c));
    HR_TRY(read_long(s, columns, arena, c));
    if (c->rope.kind == HR_ROPE_LONG) return HR_OK;
    HR_TRY(read_rope_factors(s, "rope_freqs.weight", columns / 2, arena, &factors));
    return hr_rope_compute(&c->rope, columns, factors, arena);
}

/* Soft caps, as Gemma 2 has them; 0 or absent = none. */
static hr_status read_caps(const source *s, hr_config *c)
{
    double scores = 0, logits = 0;
    HR_TRY(read_f64(s, "attn_logit_softcapping", HR_OPTIONAL, &scores));
    HR_TRY(read_f64(s, "final_logit_softcapping", HR_OPTIONAL, &logits));
    if (!(scores >= 0 && logits >= 0 && isfinite(scores + logits))) return fault(s, "soft caps");
    c->attention_cap = (float)scores;
    c->logit_cap = (float)logits;
    return HR_OK;
}

static hr_status read_special(const source *s, hr_config *c)
{
    static const char *const keys[] = { "tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id" };
    c->bos = -1;
    HR_TRY(hr_gguf_i64(s->g, "tokenizer.ggml.bos_token_id", HR_OPTIONAL, &c->bos));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t id = -1;
        HR_TRY(hr_gguf_i64(s->g, keys[i], HR_OPTIONAL, &id));
        bool seen = id < 0;
        for (size_t k = 0; k < c->n_eos; k++) seen |= c->eos[k] == id;
        if (id >= c->vocab) {
            hr_log(HR_LOG_WARNING, "model: %s: %s %" PRId64 " is outside the vocabulary",
                   s->g->path, keys[i], id);
            continue;
        }
        if (!seen) c->eos[c->n_eos++] = id;
    }
    return HR_OK;
}

hr_status hr_config_from_gguf(const hr_gguf *g, const hr_checkpoint *checkpoint, hr_arena *arena,
                              hr_config *c, const hr_family **family)
{
    source s = { .g = g, .c = checkpoint };
    *c = (hr_config){ .bos = -1, .act = HR_ACT_SILU, .dtype = HR_DTYPE_F32 };
    *family = NULL;
    HR_TRY(read_family(&s, arena, c, family));
    HR_TRY(read_sizes(&s, c));
    HR_TRY(read_window(&s, arena, c));
    HR_TRY(read_caps(&s, c));
    HR_TRY(read_experts(&s, c));
    HR_TRY(read_special(&s, c));
    c->tie_word_embeddings = !has_tensor(&s, "lm_head.weight");
    c->attention_bias = has_tensor(&s, "model.layers.0.self_attn.q_proj.bias");
    c->output_bias = has_tensor(&s, "model.layers.0.self_attn.o_proj.bias");
    c->mlp_bias = has_tensor(&s, "model.layers.0.mlp.gate_proj.bias");
    HR_TRY((*family)->configure(c, NULL));
    return read_rope(&s, arena, c);
}
