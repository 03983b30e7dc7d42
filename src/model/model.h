/* Checkpoints: what is read, and the graphs that it means. This room's door.
 *
 * A model is metadata first (config, weight descriptors, tokenizer data): no weight byte is read
 * until a backend packs it. Immutable once loaded; shared by reference count. */
#ifndef HEADRACE_MODEL_MODEL_H
#define HEADRACE_MODEL_MODEL_H

#include "graph/graph.h"

typedef struct hr_model hr_model;

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
    HR_ROWS_INT8_32, /* int8 rows, one f32 scale per 32 columns, for GGUF block formats */
} hr_row_quant;

typedef struct hr_build_options {
    hr_dtype activation; /* hidden dtype at every program boundary */
    hr_row_quant rows;
    hr_dtype kv_dtype;
    int64_t tokens;     /* T: token bucket */
    int64_t requests;   /* B: most requests of a step */
    int64_t blocks;     /* KV blocks in the cache */
    int64_t block_size; /* tokens per block */
    int64_t table_width; /* W: ceil(max_model_len / block_size) */
} hr_build_options;

/* One entry per layer, borrowed from the model. kv dtype is opt's when built. */
void hr_model_kv_specs(const hr_model *m, const hr_kv_spec **specs, size_t *layers);

/* The backbone program. Inputs, in this order and with these names:
 *   ids i32 [T] live TOKENS · positions i32 [3,T] · slots i32 [T] live TOKENS
 *   block_tables i32 [B,W] · query_starts i32 [B+1] · seq_lens i32 [B]
 *   then per layer l: k_cache.l and v_cache.l [blocks,block,KV,D], donated
 * Outputs: "hidden" activation [T,H] (after the final norm), then k_cache.l, v_cache.l donated. */
HR_MUST_USE hr_status hr_model_build_backbone(const hr_model *m, const hr_build_options *opt,
                                              hr_graph **out);
/* Appends the lm_head to a graph: hidden activation [R,H] → logits f32 [R,V] (softcap, logit scale
 * included; padded vocabulary rows of the checkpoint are -inf later, by the sampler's mask). */
hr_value *hr_model_build_head(hr_graph *g, const hr_model *m, hr_value *hidden,
                              const hr_build_options *opt);

#endif
