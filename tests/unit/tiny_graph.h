/* A decoder of one layer, built as a model file would: what the graph and pass tests work on.
 *
 * T 4 tokens, H 64, N 4 heads, KV 2, D 16, I 96, V 40; Q4_0 matrices, f32 norms. Weight
 * bytes come from a fixed generator, so that the graph also runs. */
#ifndef HEADRACE_TESTS_TINY_GRAPH_H
#define HEADRACE_TESTS_TINY_GRAPH_H

#include "base/half.h"
#include "graph/graph.h"

enum { T = 4, H = 64, N = 4, KV = 2, D = 16, I = 96, V = 40, BLOCKS = 6, BLOCK = 4, B = 2, W = 3 };

/* Small f16 scales, any nibbles; f32 rows lie near one. */
static hr_status tiny_rows(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    size_t row = hr_format_row_bytes(w->format, w->shape.dim[w->shape.rank - 1]);
    unsigned char *p = to;
    for (size_t i = 0; i < (size_t)count * row; i++) {
        uint32_t x = (uint32_t)((size_t)first * row + i) * 2654435761u + (uint32_t)w->name[0] * 97u;
        p[i] = (unsigned char)(x >> 13);
    }
    for (size_t i = 0; w->format == HR_FORMAT_Q4_0 && i < (size_t)count * row; i += 18) {
        uint16_t d = hr_f32_to_f16(1.0f / 64);
        memcpy(p + i, &d, sizeof d);
    }
    for (size_t i = 0; w->format == HR_FORMAT_F32 && i < (size_t)count * row; i += 4) {
        float f = 1.0f + (float)(p[i] % 16) / 64;
        memcpy(p + i, &f, sizeof f);
    }
    return HR_OK;
}

#define TINY_MATRIX(n, k)                                                                          \
    {                                                                                              \
        .name = NULL, .shape = { 2, { n, k } }, .format = HR_FORMAT_Q4_0, .read_rows = tiny_rows   \
    }
#define TINY_VECTOR(n)                                                                             \
    {                                                                                              \
        .name = NULL, .shape = { 1, { n } }, .format = HR_FORMAT_F32, .read_rows = tiny_rows       \
    }

typedef struct tiny_weights {
    hr_weight embed, norm, q, k, v, o, mlp_norm, gate, up, down, last_norm;
} tiny_weights;

static tiny_weights tiny = {
    .embed = TINY_MATRIX(V, H),
    .norm = TINY_VECTOR(H),
    .q = TINY_MATRIX(N * D, H),
    .k = TINY_MATRIX(KV * D, H),
    .v = TINY_MATRIX(KV * D, H),
    .o = TINY_MATRIX(H, N *D),
    .mlp_norm = TINY_VECTOR(H),
    .gate = TINY_MATRIX(I, H),
    .up = TINY_MATRIX(I, H),
    .down = TINY_MATRIX(H, I),
    .last_norm = TINY_VECTOR(H),
};

static hr_value *tiny_w(hr_graph *g, hr_weight *w, const char *name)
{
    w->name = name;
    return hr_graph_weight(g, w);
}

/* A linear that quantises its own rows: q, k and v each ask, and the passes make it one. */
static hr_value *tiny_linear(hr_graph *g, hr_value *x, hr_weight *w, const char *name)
{
    hr_value *scale, *q = hr_op_quantise_rows(g, x, 32, &scale);
    return hr_op_linear_q8(g, q, scale, tiny_w(g, w, name), NULL, HR_DTYPE_F32);
}

static hr_value *tiny_attention(hr_graph *g, hr_value *x, hr_value *k_cache, hr_value *v_cache)
{
    static const float inv_freq[D / 2] = { 1, .5f, .25f, .125f, .0625f, .03125f, .01f, .001f };
    hr_value *positions = hr_graph_input(g, "positions", HR_DTYPE_I32, HR_SHAPE(3, T), HR_LIVE_ALL);
    hr_value *slots = hr_graph_input(g, "slots", HR_DTYPE_I32, HR_SHAPE(T), HR_LIVE_TOKENS);
    hr_value *freq = hr_graph_const(g, "inv_freq", inv_freq, HR_SHAPE(D / 2));
    hr_value *q = hr_graph_reshape(g, tiny_linear(g, x, &tiny.q, "q"), HR_SHAPE(T, N, D));
    hr_value *k = hr_graph_reshape(g, tiny_linear(g, x, &tiny.k, "k"), HR_SHAPE(T, KV, D));
    hr_value *v = hr_graph_reshape(g, tiny_linear(g, x, &tiny.v, "v"), HR_SHAPE(T, KV, D));
    hr_value *k_now = hr_op_kv_write(g, k_cache, hr_op_rope(g, k, positions, freq, 1), slots);
    hr_value *v_now = hr_op_kv_write(g, v_cache, v, slots);
    hr_attention_inputs a = {
        .k_cache = k_now,
        .v_cache = v_now,
        .block_tables = hr_graph_input(g, "tables", HR_DTYPE_I32, HR_SHAPE(B, W), HR_LIVE_ALL),
        .query_starts = hr_graph_input(g, "starts", HR_DTYPE_I32, HR_SHAPE(B + 1), HR_LIVE_ALL),
        .seq_lens = hr_graph_input(g, "lens", HR_DTYPE_I32, HR_SHAPE(B), HR_LIVE_ALL),
        .scale = 0.25f,
    };
    hr_value *y = hr_op_attention(g, hr_op_rope(g, q, positions, freq, 1), &a);
    hr_graph_output_donated(g, "k_cache", k_now, k_cache);
    hr_graph_output_donated(g, "v_cache", v_now, v_cache);
    return tiny_linear(g, hr_graph_reshape(g, y, HR_SHAPE(T, N * D)), &tiny.o, "o");
}

/* Unfinished: the caller may add to it. */
static hr_status tiny_build(hr_graph **out)
{
    hr_graph *g;
    HR_TRY(hr_graph_create("tiny", out));
    g = *out;
    hr_shape cache = HR_SHAPE(BLOCKS, BLOCK, KV, D);
    hr_value *ids = hr_graph_input(g, "ids", HR_DTYPE_I32, HR_SHAPE(T), HR_LIVE_TOKENS);
    hr_value *k_cache = hr_graph_input(g, "k_cache", HR_DTYPE_F32, cache, HR_LIVE_ALL);
    hr_value *v_cache = hr_graph_input(g, "v_cache", HR_DTYPE_F32, cache, HR_LIVE_ALL);
    hr_value *x = hr_op_embed(g, ids, tiny_w(g, &tiny.embed, "embed"), HR_DTYPE_F32);
    hr_value *y = hr_op_rms_norm(g, x, tiny_w(g, &tiny.norm, "norm"), 1e-5f, 0);
    x = hr_op_add(g, x, tiny_attention(g, y, k_cache, v_cache));
    y = hr_op_rms_norm(g, x, tiny_w(g, &tiny.mlp_norm, "mlp_norm"), 1e-5f, 0.25f);
    hr_value *gate = tiny_linear(g, y, &tiny.gate, "gate"), *up = tiny_linear(g, y, &tiny.up, "up");
    x = hr_op_add(g, x, tiny_linear(g, hr_op_gated(g, gate, up, HR_ACT_SILU), &tiny.down, "down"));
    x = hr_op_rms_norm(g, x, tiny_w(g, &tiny.last_norm, "last_norm"), 1e-5f, 0);
    hr_graph_output(g, "hidden", x);
    return HR_OK;
}

#endif
