/* Checkpoints: what is read, and the graphs that it means. This room's door.
 *
 * A model is metadata first (config, weight descriptors, tokenizer data): no weight byte is read
 * until a backend packs it. Immutable once loaded; shared by reference count. */
#ifndef HEADRACE_MODEL_MODEL_H
#define HEADRACE_MODEL_MODEL_H

#include "graph/graph.h"

typedef struct hr_model hr_model;
typedef struct hr_quantization hr_quantization; /* quantization.h */

/* ---- loading ------------------------------------------------------------------------------ */

typedef enum hr_load_format {
    HR_LOAD_AUTO,  /* a Hugging Face directory or a .gguf, by what the path is */
    HR_LOAD_DUMMY, /* a directory's config.json alone; deterministic random weights */
} hr_load_format;

/* What a float checkpoint's linears become while they are read. */
typedef enum hr_quantize {
    HR_QUANTIZE_NONE,
    HR_QUANTIZE_W8A8, /* int8 with a scale per channel, met by int8 rows with a scale per token */
    HR_QUANTIZE_W4A8, /* 4 bits in groups of columns, met by such rows */
    HR_QUANTIZE_Q8_0, /* GGUF's blocks of 32, embedding and head included */
    HR_QUANTIZE_Q4_0, /* likewise; embedding and head are Q8_0 */
} hr_quantize;

/* "w8a8", "w4a8", "q8_0", "q4_0"; false for others. */
#define HR_QUANTIZE_NAMES "w8a8, w4a8, q8_0 or q4_0"
bool hr_quantize_parse(const char *name, hr_quantize *out);

typedef struct hr_model_options {
    hr_load_format load_format;
    hr_quantize quantize;
    const char *const *ignore; /* [n_ignore] modules that are left as they are, beside lm_head:
                                  names, or "re:" and a pattern. Read during the load only */
    size_t n_ignore;
    int64_t group_columns; /* W4A8: columns that share a scale; 0 = the most of 128, 64 and 32 that
                              every row is whole ones of */
    uint64_t dummy_seed;
    bool ignore_generation_defaults; /* no sampling defaults from generation_config.json */
    bool greedy;                     /* none of them that changes which token is chosen */
    hr_str override_generation;      /* a JSON object of such defaults, over whatever was read */
    int devices; /* that share each layer (tensor parallel); 0 = 1. Graphs and KV specs are one
                    device's then: local shapes, and all_reduce and all_gather between them */
} hr_model_options;

/* Reads metadata only and checks all of it: every tensor's place, shape and format, nothing
 * missing, nothing left over. `options` NULL = defaults. */
HR_MUST_USE hr_status hr_model_load(const char *path, const hr_model_options *options,
                                    hr_model **out);
hr_model *hr_model_retain(hr_model *m);
void hr_model_release(hr_model *m); /* NULL is fine; the last one frees */

/* A name to a path: an existing directory or .gguf file; a packaged model ("smollm2-135m") in
 * $XDG_CACHE_HOME/headrace/models; "org/name" in the Hugging Face cache (HF_HUB_CACHE, HF_HOME).
 * NOT_FOUND prints the command that would fetch it. */
HR_MUST_USE hr_status hr_model_locate(const char *name, hr_buf *path);

/* hr_model_locate, then hr_model_load. */
HR_MUST_USE hr_status hr_model_open(const char *name, const hr_model_options *options,
                                    hr_model **out);

/* SHA-256 over the bytes of the weights and config, 64 hex digits and a terminator. Slow the first
 * time (reads every byte), then remembered in the cache folder by (device, inode, size, mtime). */
HR_MUST_USE hr_status hr_model_hash(const hr_model *m, char out[65]);

/* ---- what the config says ------------------------------------------------------------------ */

typedef enum hr_rope_kind {
    HR_ROPE_DEFAULT,
    HR_ROPE_LINEAR,
    HR_ROPE_DYNAMIC, /* NTK: equal to default up to max_positions, which therefore bounds it */
    HR_ROPE_LLAMA3,
    HR_ROPE_YARN,
    HR_ROPE_LONG, /* LongRoPE: a factor for each frequency, others for long contexts */
} hr_rope_kind;

typedef struct hr_rope {
    hr_rope_kind kind;
    double theta, factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn; 0 = 32 and 1 */
    double mscale, mscale_all_dim;            /* yarn; 0 = not given */
    bool no_truncate;                         /* yarn: the ramp's ends are not rounded outwards */
    int64_t original_positions;               /* llama3, yarn, long: pretrained context */
    float *inv_freq;        /* [F], half of the columns that turn; owned by the model; computed in
                               f64 as Hugging Face defines it, rounded once */
    float *long_inv_freq;   /* [F], instead of those where a request may be longer than
                               original_positions; NULL but for long */
    int64_t n_freq;         /* F */
    float attention_factor; /* multiplies cos and sin; 1 but for yarn and long */
} hr_rope;

/* Sampling defaults of generation_config.json; each is set only where its flag is. */
typedef struct hr_generation_defaults {
    bool has_temperature, has_top_p, has_top_k, has_min_p, has_repetition_penalty,
        has_max_new_tokens;
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k, max_new_tokens;
} hr_generation_defaults;

#define HR_MODEL_MAX_EOS 32

typedef struct hr_config {
    const char *architecture; /* as the file names it: "LlamaForCausalLM", "llama" */
    int64_t hidden;           /* H */
    int64_t layers;           /* L */
    int64_t heads, kv_heads;  /* N, KV */
    int64_t head_dim;         /* D */
    int64_t intermediate;     /* I */
    int64_t vocab;            /* V: width of the logits, rows of the embedding */
    int64_t max_positions;    /* longest context the positions mean something for */
    float rms_eps;
    hr_activation act;
    hr_rope rope;
    hr_rope local_rope;    /* of layers with a window; n_freq 0 = rope is theirs too */
    bool partial_rotary;   /* the family can leave columns of a head unturned */
    double rotary;         /* share of a head's columns that rope turns, the first ones */
    float norm_offset;     /* added to the weights of norms */
    float embed_scale;     /* times the embedding; 0 = 1 */
    float attention_scale; /* times q·k; 0 = 1/sqrt(D) */
    float attention_cap;   /* soft cap of scores, 0 = none */
    float logit_cap;       /* soft cap of logits, 0 = none */
    const int32_t
        *windows; /* [L] sliding window of each layer, 0 = all keys; NULL = none has one */
    int64_t experts, experts_used; /* E, and how many a row goes to; 0 = no mixture */
    int64_t expert_intermediate;   /* I of an expert */
    int64_t sparse_step;           /* every so many layers one is a mixture, the others dense */
    bool expert_norm;              /* shares are of the chosen experts, not of all */
    const char *expert_module;     /* where a folder's files have them: "mlp" */
    bool tie_word_embeddings;
    bool attention_bias; /* on q, k, v */
    bool output_bias;    /* on o */
    bool mlp_bias;
    bool qk_norm;
    bool post_norms; /* what attention and MLP give is normalised before it is added */
    hr_dtype dtype;  /* what the checkpoint was trained or saved in; F32 where unknown */
    int64_t bos;     /* -1 = none */
    int64_t eos[HR_MODEL_MAX_EOS]; /* config and generation_config together */
    size_t n_eos;
    hr_generation_defaults generation;
    const hr_quantization *quantization; /* NULL = none */
} hr_config;

const hr_config *hr_model_config(const hr_model *m);
const char *hr_model_path(const hr_model *m);
/* Every weight the graphs use, in file order. */
const hr_weight *const *hr_model_weights(const hr_model *m, size_t *count);
/* True when any matrix is in a block format: HR_ROWS_INT8_32 is its natural activation. */
bool hr_model_has_blocks(const hr_model *m);
/* True when any matrix is one whose rows are int8 with a scale per token, whatever
 * hr_build_options.rows says. */
bool hr_model_has_int8_rows(const hr_model *m);
/* True for a weight that is quantised while it is read. */
bool hr_quantize_is(const hr_weight *w);
/* The format of the numbers that it is made of. */
hr_format hr_quantize_stored(const hr_weight *w);
/* Rows of such a weight from one reading: f32 [count,K] before they were rounded, raw rows, f32
 * [count] scales of I8C; each may be NULL. */
HR_MUST_USE hr_status hr_quantize_read(const hr_weight *w, int64_t first, int64_t count, float *old,
                                       void *raw, float *scale);
/* W4A8: the columns of a group. */
int64_t hr_quantize_columns(const hr_model *m);

/* ---- what the tokenizer is made of ---------------------------------------------------------- */

typedef struct hr_model_template {
    hr_str name; /* "default", "tool_use", … */
    hr_str text;
} hr_model_template;

/* Plain data, borrowed from the model; text/ turns it into a tokenizer. A directory fills the JSON
 * texts, a GGUF file the arrays. */
typedef struct hr_model_vocab {
    hr_str tokenizer_json;        /* n 0 = absent */
    hr_str tokenizer_config_json; /* n 0 = absent */
    const char *gguf_model;       /* "gpt2", "llama", "t5" …; NULL = not a GGUF file */
    const char *gguf_pre;         /* "smollm", "qwen2" …; "" = absent */
    const hr_str *tokens;         /* [n_tokens] */
    const float *scores;          /* [n_tokens] or NULL */
    const int32_t *types; /* [n_tokens] or NULL: 1 normal 2 unknown 3 control 4 user 5 unused
                             6 byte */
    size_t n_tokens;
    const hr_str *merges; /* "a b" */
    size_t n_merges;
    int64_t bos, eos, unk, sep, pad, mask;  /* -1 = absent */
    int add_bos, add_eos, add_space_prefix; /* -1 = the file does not say */
    const hr_model_template *templates;     /* chat templates; [0] is the default one */
    size_t n_templates;
} hr_model_vocab;

const hr_model_vocab *hr_model_vocab_get(const hr_model *m);

/* ---- graphs ------------------------------------------------------------------------------- */

/* What the KV cache of one layer must hold; the cache is a list of these, so that windows, int8
 * and other heads change no caller. */
typedef struct hr_kv_spec {
    int32_t heads, head_dim;
    int32_t window; /* 0 = all keys */
    hr_dtype dtype;
} hr_kv_spec;

typedef enum hr_row_quant {
    HR_ROWS_FLOAT,   /* linear takes activations as they are */
    HR_ROWS_INT8_32, /* int8 rows, one f32 scale per 32 columns, for block formats */
} hr_row_quant;

/* Where the backbone's first hidden states come from. */
typedef enum hr_backbone_input {
    HR_INPUT_IDS,        /* "ids" i32 [T], through the embedding */
    HR_INPUT_EMBEDDINGS, /* "embeddings" activation [T,H]: an encoder's output, or anybody's */
} hr_backbone_input;

typedef struct hr_build_options {
    hr_dtype activation; /* hidden dtype at every program boundary */
    hr_row_quant rows;
    hr_backbone_input input;
    hr_dtype kv_dtype;
    int64_t tokens;      /* T: token bucket */
    int64_t requests;    /* B: most requests of a step */
    int64_t blocks;      /* KV blocks in the cache */
    int64_t block_size;  /* tokens per block */
    int64_t table_width; /* W: ceil(max_model_len / block_size) */
    int64_t longest;     /* max_model_len: tokens of the longest context */
} hr_build_options;

/* One entry per layer, borrowed from the model; of one device. kv dtype is opt's when built. */
void hr_model_kv_specs(const hr_model *m, const hr_kv_spec **specs, size_t *layers);

/* The tensors that hold a layer's keys and values: "k_cache" and "v_cache" [blocks,block,KV,D] of
 * opt's kv_dtype, then, where that is int8, "k_scale" and "v_scale" f32 [blocks,block,KV,1]. */
#define HR_KV_MAX_PLANES 4
typedef struct hr_kv_plane {
    const char *name; /* of an input of the backbone, before ".layer" */
    hr_dtype dtype;
    hr_shape shape;
} hr_kv_plane;
/* Returns how many: 2 or 4, the same for every layer of a build. */
int hr_model_kv_planes(const hr_kv_spec *spec, const hr_build_options *opt,
                       hr_kv_plane out[HR_KV_MAX_PLANES]);

/* The backbone program. Inputs, in this order and with these names:
 *   ids i32 [T] (or embeddings [T,H]) live TOKENS · positions i32 [3,T] · slots i32 [T] live TOKENS
 *   block_tables i32 [B,W] · query_starts i32 [B+1] · seq_lens i32 [B]
 *   then per layer l the planes of its cache: k_cache.l, v_cache.l …, donated
 * Outputs: "hidden" activation [T,H] (after the final norm), then the same planes, donated. */
HR_MUST_USE hr_status hr_model_build_backbone(const hr_model *m, const hr_build_options *opt,
                                              hr_graph **out);
/* Appends the lm_head to a graph: hidden activation [R,H] → logits f32 [R,V] (softcap, logit scale
 * included; padded vocabulary rows of the checkpoint are -inf later, by the sampler's mask). */
hr_value *hr_model_build_head(hr_graph *g, const hr_model *m, hr_value *hidden,
                              const hr_build_options *opt);

#endif
