/* Inside the model room: the checkpoint's table of tensors, its readers, and what a family is. */
#ifndef HEADRACE_MODEL_INT_H
#define HEADRACE_MODEL_INT_H

#include "base/file.h"
#include "base/json.h"
#include "base/sync.h"
#include "model/model.h"
#include "model/quantization.h"

/* ---- the table ------------------------------------------------------------------------------ */

/* A tensor of the checkpoint: where its bytes are, and the door's view of it. */
typedef struct hr_tensor {
    hr_weight weight;     /* .source points back here */
    const char *in_file;  /* its name there, for messages: "blk.0.attn_q.weight" */
    const char *integers; /* "I32" or "I64": no numbers of a matrix, whatever weight.format says,
                             but parts of one that is packed; else NULL */
    const hr_file *file;  /* borrowed from the checkpoint; NULL = dummy */
    uint64_t offset;      /* of its first byte in file */
    uint64_t bytes;
    int64_t head_dim; /* > 0: a file's rows alternate between the two halves of each head of this
                         many rows, as GGUF stores llama's q and k; reading puts them back */
    const hr_weight **stack; /* [E]: whose rows follow one another in this; NULL = no stack */
    uint64_t seed;           /* dummy */
    bool used;               /* a family took it, or said why it is skipped */
    bool is_part;            /* scales of another, or never read: no weight of its own */
    bool may_be_left;        /* nothing but zeros, which no family need take */
} hr_tensor;

/* All tensors of all files of one checkpoint. Lives in the model. */
typedef struct hr_checkpoint {
    hr_arena *arena; /* borrowed from the model: tensors, names */
    hr_file **files; /* owned */
    size_t n_files, files_capacity;
    hr_tensor **tensors; /* owned array of arena tensors, file order */
    size_t n, capacity;
    hr_tensor **by_name; /* [n_indexed], owned, sorted; after hr_checkpoint_index */
    size_t n_indexed;    /* those added since are not found by name */
} hr_checkpoint;

/* Opens a file that lives as long as the checkpoint. */
hr_status hr_checkpoint_open(hr_checkpoint *c, const char *path, hr_file **out);
/* Adds a tensor; name is copied. Bounds were checked by the reader. */
hr_status hr_checkpoint_add(hr_checkpoint *c, const hr_tensor *t, hr_str name);
/* Sorts by name and refuses a name that two tensors have. */
hr_status hr_checkpoint_index(hr_checkpoint *c);
hr_tensor *hr_checkpoint_find(const hr_checkpoint *c, hr_str name);
/* Adds what config asks for, made of noise: how dummy weights come to be. */
hr_status hr_checkpoint_add_dummy(hr_checkpoint *c, const char *name, hr_shape shape,
                                  hr_dtype dtype, uint64_t seed, hr_tensor **out);
uint8_t hr_dummy_byte(uint64_t seed, uint64_t i); /* of that noise */
void hr_checkpoint_deinit(hr_checkpoint *c);
/* From now on rows are read back into order; shape is [heads*head_dim] or [heads*head_dim,K]. */
void hr_tensor_interleave(hr_tensor *t, int64_t head_dim);
/* "f32 [49152,576]" for messages. */
const char *hr_model_shape_text(hr_shape s, char out[96]);

/* ---- readers -------------------------------------------------------------------------------- */

typedef enum hr_gguf_type {
    HR_GGUF_U8,
    HR_GGUF_I8,
    HR_GGUF_U16,
    HR_GGUF_I16,
    HR_GGUF_U32,
    HR_GGUF_I32,
    HR_GGUF_F32,
    HR_GGUF_BOOL,
    HR_GGUF_STRING,
    HR_GGUF_ARRAY,
    HR_GGUF_U64,
    HR_GGUF_I64,
    HR_GGUF_F64,
    HR_GGUF_TYPES,
} hr_gguf_type;

/* One metadata entry. Everything it points to is in the checkpoint's arena. */
typedef struct hr_gguf_value {
    hr_str key;
    hr_gguf_type type;
    union {
        uint64_t u64; /* unsigned types, BOOL */
        int64_t i64;  /* signed types */
        double f64;
        hr_str str;
    } as;
    hr_gguf_type item_type; /* ARRAY */
    size_t count;           /* ARRAY */
    const void *items;      /* ARRAY: packed little-endian items, or hr_str for strings */
} hr_gguf_value;

typedef struct hr_gguf {
    const char *path;      /* borrowed */
    hr_gguf_value *values; /* owned, sorted by key */
    size_t n, capacity;
} hr_gguf;

/* Reads metadata into *g and tensors, under their canonical names, into *c. */
hr_status hr_gguf_read(const char *path, hr_checkpoint *c, hr_gguf *g);
void hr_gguf_deinit(hr_gguf *g);
const hr_gguf_value *hr_gguf_get(const hr_gguf *g, const char *key);
/* Typed reads; a missing key leaves *out alone and is OK unless `need`. */
typedef enum hr_need { HR_OPTIONAL, HR_REQUIRED } hr_need;
hr_status hr_gguf_i64(const hr_gguf *g, const char *key, hr_need need, int64_t *out);
hr_status hr_gguf_f64(const hr_gguf *g, const char *key, hr_need need, double *out);
hr_status hr_gguf_bool(const hr_gguf *g, const char *key, hr_need need, bool *out);
hr_status hr_gguf_str(const hr_gguf *g, const char *key, hr_need need, hr_str *out);
/* "blk.3.attn_q.weight" → "model.layers.3.self_attn.q_proj.weight"; unknown names unchanged. A few
 * mean something else in some architectures. */
hr_status hr_gguf_canonical_name(hr_str architecture, hr_str name, hr_arena *arena, hr_str *out);

/* The way back, for messages. */
const char *hr_gguf_file_name(const char *architecture, const char *canonical, char out[160]);

/* model.safetensors, or the shards its index names, of a directory. */
hr_status hr_safetensors_read_dir(const char *dir, hr_checkpoint *c);
/* One file. */
hr_status hr_safetensors_read(const char *path, hr_checkpoint *c);

/* ---- config --------------------------------------------------------------------------------- */

typedef struct hr_family hr_family;

/* config.json and generation_config.json of a directory. `config->rope.inv_freq` and the strings
 * live in `arena`. */
hr_status hr_config_read_dir(const char *dir, hr_arena *arena, hr_config *config,
                             const hr_family **family);
hr_status hr_config_from_json(const hr_json *json, hr_arena *arena, hr_config *config,
                              const hr_family **family);
hr_status hr_config_read_generation(const hr_json *json, hr_config *config);
/* A JSON object of sampling defaults over those the config has; any other member is refused. */
hr_status hr_config_override_generation(hr_str text, hr_config *config);
hr_status hr_config_from_gguf(const hr_gguf *g, const hr_checkpoint *c, hr_arena *arena,
                              hr_config *config, const hr_family **family);
/* A boolean of config.json; json NULL or the key absent leaves *out alone. */
hr_status hr_config_flag(const hr_json *json, const char *key, bool *out);
hr_status hr_config_integer(const hr_json *json, const char *key, hr_need need, int64_t *out);
/* A number above 0; json NULL or the key absent leaves *out alone. */
hr_status hr_config_number(const hr_json *json, const char *key, float *out);
/* Ranges and divisibility, whatever the source; `where` opens the message. */
hr_status hr_config_check(const hr_config *config, const char *where);

/* rope_scaling, rope_parameters, rope_theta in all their spellings. config->head_dim,
 * max_positions, partial_rotary and rope.theta (the default; 0 = 10000) are set already. */
hr_status hr_rope_from_json(const hr_json *config_json, hr_arena *arena, hr_config *config);
/* Fills inv_freq and attention_factor from the other fields, for heads of which rope turns the
 * first `columns`. `factors` [F] or NULL divide the frequencies (GGUF's rope_freqs.weight).
 * attention_factor > 0 on entry is kept. */
hr_status hr_rope_compute(hr_rope *rope, int64_t columns, const float *factors, hr_arena *arena);
/* What LongRoPE computes, from its two lists [F]. */
hr_status hr_rope_compute_long(hr_rope *rope, int64_t columns, const float *short_factors,
                               const float *long_factors, int64_t max_positions, hr_arena *arena);
/* How many columns of a head rope turns; refused where it is no even number. */
hr_status hr_rope_columns(const hr_config *config, const char *where, int64_t *out);

/* ---- tokenizer data ------------------------------------------------------------------------- */

hr_status hr_vocab_read_dir(const char *dir, hr_arena *arena, hr_model_vocab *v);
hr_status hr_vocab_from_gguf(const hr_gguf *g, hr_arena *arena, hr_model_vocab *v);

/* ---- families ------------------------------------------------------------------------------- */

/* The tensors of one transformer layer; NULL where the family has none. */
typedef struct hr_layer {
    const hr_weight *attn_norm;                /* [H] */
    const hr_weight *q, *k, *v, *o;            /* [N*D,H] [KV*D,H] [KV*D,H] [H,N*D] */
    const hr_weight *q_bias, *k_bias, *v_bias; /* [N*D] [KV*D] [KV*D] */
    const hr_weight *o_bias;                   /* [H] */
    const hr_weight *q_norm, *k_norm;          /* [D] */
    const hr_weight *attn_post_norm;           /* [H] */
    const hr_weight *mlp_norm, *mlp_post_norm; /* [H] */
    const hr_weight *gate, *up, *down;         /* [I,H] [I,H] [H,I]; [E,…] of experts */
    const hr_weight *router;                   /* [E,H]; NULL = no experts */
    const hr_weight *gate_bias, *up_bias, *down_bias;
} hr_layer;

struct hr_model {
    hr_ref refs;
    hr_arena arena; /* owns config strings, tensors, tokenizer data, layers */
    char *path;     /* arena */
    hr_config config;
    hr_config local; /* heads, kv_heads and intermediate: one device's */
    int devices;     /* that share the model; 1 = none is cut */
    const hr_family *family;
    hr_checkpoint checkpoint;
    hr_gguf gguf; /* empty for a directory */
    hr_model_vocab vocab;
    uint64_t dummy_seed;
    bool dummy;
    hr_quantize quantize;     /* if any, config.quantization is the caller's wish, not the file's */
    int64_t quantize_columns; /* W4A8: of a group */
    struct hr_int4 *int4;     /* quantized_int4.c: matrices read from packed integers */

    const hr_weight *embed;      /* [V,H] */
    const hr_weight *final_norm; /* [H] */
    const hr_weight *head;       /* [V,H]; == embed when tied; a slice of it with devices > 1 */
    hr_layer *layers;            /* [L]; slices with devices > 1 */
    hr_kv_spec *kv_specs;        /* [L]; one device's */
    const hr_weight **weights;   /* those used, file order */
    size_t n_weights;
};

/* Takes the tensor of that name and shape, or refuses with file, tensor and both shapes. */
hr_status hr_model_take(hr_model *m, const hr_weight **out, hr_shape shape, const char *fmt, ...)
    HR_PRINTF(4, 5);

/* fused.c: tensors that hold the rows of several linears one after another become one tensor for
 * each, under the names that other families have. Before anything takes them. */
hr_status hr_fused_split(hr_model *m);

/* Takes all tensors of m->family and refuses what is left over. */
hr_status hr_family_bind(hr_model *m);

/* shard.c: after binding, the model becomes one device's part of it. Refuses counts that cannot be
 * dealt out. */
hr_status hr_model_shard(hr_model *m, int devices);

/* A graph under construction, and what its blocks need to know. */
typedef struct hr_backbone {
    hr_graph *g;
    const hr_model *m;
    const hr_config *c; /* the model's local one */
    const hr_build_options *opt;
    hr_value *positions, *slots, *block_tables, *query_starts, *seq_lens;
    hr_value *inv_freq, *local_inv_freq; /* the latter NULL where no layer has its own */
    hr_value **planes; /* of the layer being built, in the order of hr_model_kv_planes; replaced by
                          what follows them */
    int32_t window;    /* of the layer being built; 0 = all keys */
    hr_value *quantised, *q8,
        *q8_scale;    /* the last rows quantised, for the linears that share them */
    int64_t q8_group; /* how many columns share a scale in them */
} hr_backbone;

/* Words shared by the families. x is the activation [T,·]. */
hr_value *hr_block_linear(hr_backbone *b, hr_value *x, const hr_weight *w, const hr_weight *bias,
                          hr_dtype dtype);
hr_value *hr_block_norm(hr_backbone *b, hr_value *x, const hr_weight *w);
hr_value *hr_block_heads(hr_backbone *b, hr_value *x,
                         int64_t heads); /* [T,heads*D] → [T,heads,D] */
hr_value *hr_block_rope(hr_backbone *b, hr_value *x);
/* Writes k and v to the cache and attends; → [T,N*D]. */
hr_value *hr_block_attention(hr_backbone *b, hr_value *q, hr_value *k, hr_value *v);
/* down(act(gate(x)) * up(x)) */
hr_value *hr_block_mlp(hr_backbone *b, hr_value *x, const hr_layer *w);

/* The same of a weight [E,N,K]: each row by the matrix that `groups` [T] names. */
hr_value *hr_block_grouped(hr_backbone *b, hr_value *x, const hr_weight *w, hr_value *groups,
                           hr_dtype dtype);

/* experts.c: a mixture in the place of the MLP. The sum over a row's experts of share · expert(x);
 * hr_block_mlp calls it where the layer has a router. */
hr_value *hr_block_experts(hr_backbone *b, hr_value *x, const hr_layer *w);
hr_status hr_experts_take(hr_model *m, int64_t l, hr_layer *w);
hr_status hr_experts_check(const hr_config *c);
bool hr_config_is_sparse(const hr_config *c, int64_t layer);

/* What the tensors of a Llama-shaped layer are called; families add theirs. */
hr_status hr_block_take_layer(hr_model *m, int64_t l, hr_layer *w);

/* A family: the names it answers to, what its config means, and its layer as a graph. */
struct hr_family {
    const char *architectures[4]; /* config.json's, NULL-terminated */
    const char *gguf;             /* general.architecture */
    bool gguf_permutes_qk;        /* its GGUF files interleave the rows of q and k */
    bool experts;                 /* its MLP may be a mixture */
    bool partial_rotary;          /* rope may turn a part of a head's columns */
    bool fused;                   /* its files join q, k and v, and gate and up */
    int window_period;            /* every so many layers one sees all keys though a window is
                                     given; 0 = none does */
    bool windows_on_request;      /* config.json's sliding_window holds where use_sliding_window is
                                     true, from max_window_layers on; else for all layers */
    /* Sets what the family fixes or reads under its own names; json NULL = from GGUF. */
    hr_status (*configure)(hr_config *c, const hr_json *json);
    /* One transformer layer: h [T,H] → [T,H]. */
    hr_value *(*layer)(hr_backbone *b, const hr_layer *w, hr_value *h);
};

extern const hr_family hr_family_mixtral, hr_family_qwen3_moe, hr_family_llama, hr_family_qwen2,
    hr_family_qwen3, hr_family_phi3, hr_family_gemma2, hr_family_gemma3;
const hr_family *hr_family_by_architecture(hr_str name);
const hr_family *hr_family_by_gguf(hr_str name);
/* Every name, comma separated, for "supported are …". */
const char *hr_family_names(hr_buf *out);

#endif
