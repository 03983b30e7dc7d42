/* Whole tiny checkpoints: what a family takes, refuses and skips (F06, F08), GGUF's interleaved
 * rows, dummy weights, graphs, hashes and names. */
#include "model_files.h"

#include <math.h>

#define H  64
#define L  2
#define N  4
#define KV 2
#define D  16
#define I  96
#define V  128

#define ROUNDS 500 /* of random damage */

/* ---- tiny checkpoints ----------------------------------------------------------------------- */

typedef struct tiny {
    const char *architecture;
    const char *config; /* more keys, each with a leading comma */
    bool qkv_bias, qk_norm;
    bool no_head;      /* leave lm_head out */
    const char *extra; /* one more tensor [H], or NULL */
    const char *drop;  /* leave this one out, or NULL */
} tiny;

static void tensor(st_file *f, const tiny *t, const char *name, hr_shape s)
{
    if (!t->drop || strcmp(t->drop, name) != 0) st_tensor(f, name, s);
}

static void layer_tensors(st_file *f, const tiny *t, int l)
{
    const struct {
        const char *name;
        hr_shape shape;
        bool there;
    } rows[] = {
        { "input_layernorm.weight", HR_SHAPE(H), true },
        { "self_attn.q_proj.weight", HR_SHAPE(N * D, H), true },
        { "self_attn.k_proj.weight", HR_SHAPE(KV * D, H), true },
        { "self_attn.v_proj.weight", HR_SHAPE(KV * D, H), true },
        { "self_attn.o_proj.weight", HR_SHAPE(H, N * D), true },
        { "post_attention_layernorm.weight", HR_SHAPE(H), true },
        { "mlp.gate_proj.weight", HR_SHAPE(I, H), true },
        { "mlp.up_proj.weight", HR_SHAPE(I, H), true },
        { "mlp.down_proj.weight", HR_SHAPE(H, I), true },
        { "self_attn.q_proj.bias", HR_SHAPE(N * D), t->qkv_bias },
        { "self_attn.k_proj.bias", HR_SHAPE(KV * D), t->qkv_bias },
        { "self_attn.v_proj.bias", HR_SHAPE(KV * D), t->qkv_bias },
        { "self_attn.q_norm.weight", HR_SHAPE(D), t->qk_norm },
        { "self_attn.k_norm.weight", HR_SHAPE(D), t->qk_norm },
    };
    char name[128];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(name, sizeof name, "model.layers.%d.%s", l, rows[i].name);
        if (rows[i].there) tensor(f, t, name, rows[i].shape);
    }
}

static void put_tiny(const tiny *t)
{
    hr_buf config = { 0 };
    st_file f = { 0 };
    hr_buf_printf(&config,
                  "{\"architectures\":[\"%s\"],\"hidden_size\":%d,\"num_hidden_layers\":%d,"
                  "\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"head_dim\":%d,"
                  "\"intermediate_size\":%d,\"vocab_size\":%d,\"max_position_embeddings\":256,"
                  "\"eos_token_id\":2%s}",
                  t->architecture, H, L, N, KV, D, I, V, t->config ? t->config : "");
    put_text("config.json", hr_buf_c(&config));
    hr_buf_deinit(&config);
    tensor(&f, t, "model.embed_tokens.weight", HR_SHAPE(V, H));
    for (int l = 0; l < L; l++) layer_tensors(&f, t, l);
    tensor(&f, t, "model.norm.weight", HR_SHAPE(H));
    if (!t->no_head) tensor(&f, t, "lm_head.weight", HR_SHAPE(V, H));
    if (t->extra) st_tensor(&f, t->extra, HR_SHAPE(H));
    st_finish(&f, "model.safetensors");
}

static hr_model *load_good(const tiny *t)
{
    hr_model *m;
    put_tiny(t);
    if (hr_model_load(scratch, NULL, &m)) fail_msg("%s: %s", t->architecture, hr_message());
    return m;
}

static void refuses(const tiny *t, const char *words)
{
    hr_model *m;
    put_tiny(t);
    hr_status st = hr_model_load(scratch, NULL, &m);
    assert_null(m);
    if (st != HR_INVALID_ARGUMENT) fail_msg("'%s': status %d", words, (int)st);
    if (!strstr(hr_message(), words)) fail_msg("'%s' is not in: %s", words, hr_message());
}

static const tiny llama = { .architecture = "LlamaForCausalLM" };
static const tiny mistral = { .architecture = "MistralForCausalLM" };
static const tiny qwen2 = { .architecture = "Qwen2ForCausalLM", .qkv_bias = true };
static const tiny qwen3 = { .architecture = "Qwen3ForCausalLM", .qk_norm = true };

/* ---- families ------------------------------------------------------------------------------- */

static hr_build_options options(hr_row_quant rows)
{
    return (hr_build_options){ .activation = HR_DTYPE_F32,
                               .rows = rows,
                               .kv_dtype = HR_DTYPE_F32,
                               .tokens = 16,
                               .requests = 8,
                               .blocks = 32,
                               .block_size = 16,
                               .table_width = 16 };
}

static size_t count_ops(const hr_graph *g, hr_op op)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_nodes; i++) n += g->nodes[i]->op == op;
    return n;
}

/* The backbone of a family: its inputs and outputs are the contract of model.h. */
static void check_backbone(const tiny *t, size_t norms)
{
    static const char *const names[] = { "ids",          "positions", "slots",     "block_tables",
                                         "query_starts", "seq_lens",  "k_cache.0", "v_cache.0",
                                         "k_cache.1",    "v_cache.1" };
    hr_model *m = load_good(t);
    hr_build_options o = options(HR_ROWS_FLOAT);
    hr_graph *g;
    if (hr_model_build_backbone(m, &o, &g)) fail_msg("%s: %s", t->architecture, hr_message());
    assert_int_equal(g->n_inputs, 10);
    for (size_t i = 0; i < 10; i++) assert_string_equal(g->inputs[i]->name, names[i]);
    assert_int_equal(g->n_outputs, 5);
    assert_string_equal(g->outputs[0].name, "hidden");
    assert_true(hr_shape_eq(g->outputs[0].value->shape, HR_SHAPE(16, H)));
    for (int i = 1; i < 5; i++) {
        assert_string_equal(g->outputs[i].name, names[5 + i]);
        assert_int_equal(g->outputs[i].donor, 5 + i);
    }
    assert_int_equal(count_ops(g, HR_OP_rms_norm), norms);
    assert_int_equal(count_ops(g, HR_OP_linear), 7 * L);
    assert_int_equal(count_ops(g, HR_OP_rope), 2 * L);
    hr_graph_destroy(g);
    hr_model_release(m);
}

static void families_build_their_backbones(void **state)
{
    (void)state;
    check_backbone(&llama, 2 * L + 1);
    check_backbone(&mistral, 2 * L + 1);
    check_backbone(&qwen2, 2 * L + 1);
    check_backbone(&qwen3, 4 * L + 1);
}

static void windows_reach_attention_and_cache(void **state)
{
    (void)state;
    tiny t = mistral;
    t.config = ",\"sliding_window\":32";
    hr_model *m = load_good(&t);
    const hr_kv_spec *specs;
    size_t layers;
    hr_model_kv_specs(m, &specs, &layers);
    assert_int_equal(layers, L);
    assert_int_equal(specs[1].window, 32);
    assert_int_equal(specs[1].heads, KV);
    assert_int_equal(specs[1].head_dim, D);
    hr_build_options o = options(HR_ROWS_FLOAT);
    hr_graph *g;
    assert_int_equal(hr_model_build_backbone(m, &o, &g), HR_OK);
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == HR_OP_attention) assert_int_equal(g->nodes[i]->attrs.window, 32);
    hr_graph_destroy(g);
    hr_model_release(m);
}

static void building_survives_short_memory(void **state)
{
    (void)state;
    hr_model *m = load_good(&qwen3);
    hr_build_options o = options(HR_ROWS_FLOAT);
    long n = 0;
    for (hr_status st = HR_RESOURCE_EXHAUSTED; st; n++) {
        watch w;
        hr_graph *g;
        watch_start(&w, n);
        st = hr_model_build_backbone(m, &o, &g);
        hr_graph_destroy(g);
        hr_set_allocator(NULL);
        if (st && st != HR_RESOURCE_EXHAUSTED) fail_msg("%ld: %s", n, hr_message());
    }
    assert_true(n > 5);
    hr_model_release(m);
}

/* ---- what is taken -------------------------------------------------------------------------- */

/* F06: tie_word_embeddings × lm_head present. */
static void tied_embeddings_four_cases(void **state)
{
    (void)state;
    tiny t = llama;
    t.config = ",\"tie_word_embeddings\":true";
    t.no_head = true;
    hr_model *m = load_good(&t);
    assert_ptr_equal(m->head, m->embed);
    hr_model_release(m);

    t.no_head = false; /* a stray head is skipped */
    m = load_good(&t);
    assert_ptr_equal(m->head, m->embed);
    size_t n;
    const hr_weight *const *all = hr_model_weights(m, &n);
    for (size_t i = 0; i < n; i++) assert_string_not_equal(all[i]->name, "lm_head.weight");
    hr_model_release(m);

    t.config = ",\"tie_word_embeddings\":false";
    m = load_good(&t);
    assert_ptr_not_equal(m->head, m->embed);
    assert_string_equal(m->head->name, "lm_head.weight");
    hr_model_release(m);

    t.no_head = true;
    refuses(&t, "tensor 'lm_head.weight' is missing");
}

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    tiny t = llama;
    t.extra = "model.layers.0.self_attn.o_proj.bias";
    refuses(&t, "tensor 'model.layers.0.self_attn.o_proj.bias' has no place");
    t.extra = "model.layers.0.self_attn.q_norm.weight";
    refuses(&t, "tensor 'model.layers.0.self_attn.q_norm.weight' has no place");
    t.extra = "model.layers.7.input_layernorm.weight";
    refuses(&t, "tensor 'model.layers.7.input_layernorm.weight' has no place");
    t = llama;
    t.drop = "model.layers.1.mlp.up_proj.weight";
    refuses(&t, "tensor 'model.layers.1.mlp.up_proj.weight' is missing");
    t = qwen2;
    t.qkv_bias = false;
    refuses(&t, "tensor 'model.layers.0.self_attn.q_proj.bias' is missing");
    t = qwen2;
    t.extra = "model.layers.0.self_attn.o_proj.bias";
    refuses(&t, "has no place in a Qwen2ForCausalLM");
    t = qwen3;
    t.qk_norm = false;
    refuses(&t, "tensor 'model.layers.0.self_attn.q_norm.weight' is missing");
    t = (tiny){ .architecture = "Phi3ForCausalLM",
                .extra = "model.layers.0.mlp.gate_up_proj.weight" };
    refuses(&t, "gate_up_proj.weight' is [64], the config makes its rows 192");
    t.extra = NULL; /* a file that was parted before */
    hr_model_release(load_good(&t));
    t = llama;
    t.qkv_bias = true;
    refuses(&t, "_proj.bias' has no place");
    t = llama;
    t.config = ",\"attention_bias\":true";
    t.qkv_bias = true;
    refuses(&t, "tensor 'model.layers.0.self_attn.o_proj.bias' is missing");
    t = llama; /* wrong shape: the extra is [H], norm of q in Qwen3 is [D] */
    t.drop = "model.norm.weight";
    t.config = ",\"attention_bias\":false";
    t.extra = "model.norm.weight";
    hr_model_release(load_good(&t));
    t.drop = "model.embed_tokens.weight";
    t.extra = "model.embed_tokens.weight";
    refuses(&t, "tensor 'model.embed_tokens.weight' is [64], the config makes it [128,64]");
    refuses(&t, "model.safetensors");
}

static void skips_known_buffers(void **state)
{
    (void)state;
    tiny t = llama;
    t.extra = "model.layers.0.self_attn.rotary_emb.inv_freq";
    hr_model_release(load_good(&t));
}

/* No tensor is left at random when memory is short: every failure is a status. */
static void survives_short_memory(void **state)
{
    (void)state;
    put_tiny(&qwen3);
    put_text("tokenizer_config.json", "{\"chat_template\":\"x\"}");
    long last = 0;
    for (long n = 0;; n = n < 40 ? n + 1 : n + 7) {
        watch w;
        hr_model *m;
        watch_start(&w, n);
        hr_status st = hr_model_load(scratch, NULL, &m);
        hr_model_release(m);
        hr_set_allocator(NULL);
        if (!st) break;
        if (st != HR_RESOURCE_EXHAUSTED) fail_msg("%ld: %s", n, hr_message());
        last = n;
    }
    assert_true(last > 20);
    unlink(at("tokenizer_config.json"));
}

/* ---- dummy weights -------------------------------------------------------------------------- */

static void dummy_weights_need_a_config_alone(void **state)
{
    (void)state;
    hr_model *m, *other;
    put_tiny(&qwen2);
    unlink(at("model.safetensors"));
    assert_int_equal(hr_model_load(scratch, NULL, &m), HR_NOT_FOUND);
    hr_model_options o = { .load_format = HR_LOAD_DUMMY, .dummy_seed = 1 };
    assert_int_equal(hr_model_load(scratch, &o, &m), HR_OK);
    o.dummy_seed = 2;
    assert_int_equal(hr_model_load(scratch, &o, &other), HR_OK);
    float a[4][H], b[4][H], c[H];
    const hr_weight *q = m->layers[1].q, *q2 = other->layers[1].q;
    assert_int_equal(q->read_rows(q, 0, 4, a), HR_OK);
    assert_int_equal(q->read_rows(q, 2, 1, c), HR_OK); /* any order gives the same numbers */
    assert_memory_equal(a[2], c, sizeof c);
    assert_int_equal(q2->read_rows(q2, 0, 4, b), HR_OK);
    assert_memory_not_equal(a, b, sizeof a);
    double sum = 0;
    for (int i = 0; i < 4 * H; i++)
        sum += (double)(a[i / H][i % H] * a[i / H][i % H]) * H / (4 * H);
    assert_true(sum > 0.7 && sum < 1.3); /* variance 1/K: 256 draws, sd 0.056 */
    const hr_weight *norm = m->final_norm;
    assert_int_equal(norm->read_rows(norm, 0, 1, c), HR_OK);
    for (int i = 0; i < H; i++) assert_true(c[i] >= 0.9f && c[i] <= 1.1f);
    hr_model_release(m);
    hr_model_release(other);
    assert_int_equal(hr_model_load(at("config.json"), &o, &m), HR_INVALID_ARGUMENT);
}

/* ---- GGUF ----------------------------------------------------------------------------------- */

typedef struct gguf_tiny {
    const char *architecture;
    uint32_t matrix_type; /* ggml type of the matrices: 0 F32 or 8 Q8_0 */
    bool head, rope_freqs, bias;
} gguf_tiny;

/* Element i of row r of any matrix, in the order of the file. */
static float element(uint64_t r, uint64_t i)
{
    return (float)r + (float)i / 1024;
}

static void gguf_matrix(gguf_file *f, const gguf_tiny *t, const char *name, uint64_t rows,
                        uint64_t k)
{
    hr_buf b = { 0 };
    for (uint64_t r = 0; r < rows; r++) {
        for (uint64_t i = 0; i < k; i++) {
            float v = element(r, i);
            signed char code = (signed char)r; /* Q8_0: scale 1, all codes the row's number */
            uint16_t one = 0x3c00;
            if (t->matrix_type == 8 && i % 32 == 0) hr_buf_add(&b, &one, 2);
            if (t->matrix_type == 8) hr_buf_add(&b, &code, 1);
            else hr_buf_add(&b, &v, 4);
        }
    }
    gguf_tensor(f, name, (const uint64_t[4]){ k, rows }, t->matrix_type, b.p, b.n);
    hr_buf_deinit(&b);
}

static void gguf_vector(gguf_file *f, const char *name, uint64_t n)
{
    float v[512];
    for (uint64_t i = 0; i < n; i++) v[i] = (float)(i + 1);
    gguf_tensor(f, name, (const uint64_t[4]){ n }, 0, v, n * 4);
}

static void gguf_layer(gguf_file *f, const gguf_tiny *t, int l)
{
    const struct {
        const char *name;
        uint64_t rows, k; /* k 0 = vector */
        bool there;
    } rows[] = { { "attn_norm.weight", H, 0, true },       { "attn_q.weight", N * D, H, true },
                 { "attn_k.weight", KV * D, H, true },     { "attn_v.weight", KV * D, H, true },
                 { "attn_output.weight", H, N * D, true }, { "ffn_norm.weight", H, 0, true },
                 { "ffn_gate.weight", I, H, true },        { "ffn_up.weight", I, H, true },
                 { "ffn_down.weight", H, I, true },        { "attn_q.bias", N * D, 0, t->bias },
                 { "attn_k.bias", KV * D, 0, t->bias },    { "attn_v.bias", KV * D, 0, t->bias } };
    char name[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(name, sizeof name, "blk.%d.%s", l, rows[i].name);
        if (!rows[i].there) continue;
        if (rows[i].k) gguf_matrix(f, t, name, rows[i].rows, rows[i].k);
        else gguf_vector(f, name, rows[i].rows);
    }
}

static void gguf_sizes(gguf_file *f, const char *architecture)
{
    const struct {
        const char *key;
        uint32_t v;
    } keys[] = { { "block_count", L },          { "context_length", 256 },
                 { "embedding_length", H },     { "feed_forward_length", I },
                 { "attention.head_count", N }, { "attention.head_count_kv", KV },
                 { "rope.dimension_count", D } };
    char key[96];
    gguf_text(f, "general.architecture", architecture);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, keys[i].key);
        gguf_u32(f, key, keys[i].v);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
    gguf_f32(f, key, 1e-5f);
}

static void gguf_tensors(gguf_file *f, const gguf_tiny *t)
{
    gguf_matrix(f, t, "token_embd.weight", V, H);
    for (int l = 0; l < L; l++) gguf_layer(f, t, l);
    gguf_vector(f, "output_norm.weight", H);
    if (t->head) gguf_matrix(f, t, "output.weight", V, H);
    if (t->rope_freqs) gguf_vector(f, "rope_freqs.weight", D / 2);
}

static void put_gguf(gguf_file *f, const char *name)
{
    hr_buf b = { 0 };
    gguf_finish(f, &b);
    put_file(name, b.p, b.n);
    hr_buf_deinit(&b);
}

static hr_model *load_gguf(const gguf_tiny *t)
{
    gguf_file f = { .alignment = 32 };
    hr_model *m;
    gguf_sizes(&f, t->architecture);
    gguf_tensors(&f, t);
    put_gguf(&f, "tiny.gguf");
    if (hr_model_load(at("tiny.gguf"), NULL, &m)) fail_msg("%s", hr_message());
    return m;
}

/* Where the converter put row r of a head: it splits each head in halves and deals them out. */
static int64_t file_row(int64_t r)
{
    int64_t head = r / D, i = r % D;
    return head * D + (i < D / 2 ? 2 * i : 2 * (i - D / 2) + 1);
}

static void llama_rows_are_put_back(void **state)
{
    (void)state;
    hr_model *m = load_gguf(&(gguf_tiny){ .architecture = "llama", .bias = true });
    assert_false(hr_model_has_blocks(m));
    static float all[N * D][H], some[3][H];
    const hr_weight *q = m->layers[1].q, *v = m->layers[1].v;
    assert_int_equal(q->read_rows(q, 0, N * D, all), HR_OK);
    for (int64_t r = 0; r < N * D; r++)
        for (uint64_t i = 0; i < H; i++)
            assert_true(all[r][i] == element((uint64_t)file_row(r), i));
    for (int64_t first = 0; first + 3 <= N * D; first++) { /* ranges that cross heads */
        assert_int_equal(q->read_rows(q, first, 3, some), HR_OK);
        assert_memory_equal(some, all[first], sizeof some);
    }
    assert_int_equal(v->read_rows(v, 5, 1, some), HR_OK);
    assert_true(some[0][1] == element(5, 1)); /* v is not interleaved */
    float bias[N * D];
    assert_int_equal(m->layers[0].q_bias->read_rows(m->layers[0].q_bias, 0, 1, bias), HR_OK);
    for (int64_t r = 0; r < N * D; r++) assert_true(bias[r] == (float)(file_row(r) + 1));
    hr_model_release(m);
}

static void quantised_rows_are_put_back(void **state)
{
    (void)state;
    hr_model *m =
        load_gguf(&(gguf_tiny){ .architecture = "llama", .matrix_type = 8, .head = true });
    assert_true(hr_model_has_blocks(m));
    assert_ptr_not_equal(m->head, m->embed);
    const hr_weight *k = m->layers[0].k;
    unsigned char row[H / 32 * 34];
    for (int64_t r = 0; r < KV * D; r++) {
        assert_int_equal(k->read_rows(k, r, 1, row), HR_OK);
        assert_int_equal(row[2], file_row(r));
        assert_int_equal(row[sizeof row - 1], file_row(r));
    }
    /* the 8-bit build quantises once for q, k and v, once for o, gate with up, down */
    hr_build_options o = options(HR_ROWS_INT8_32);
    hr_graph *g;
    if (hr_model_build_backbone(m, &o, &g)) fail_msg("%s", hr_message());
    assert_int_equal(count_ops(g, HR_OP_quantise_rows), 4 * L);
    assert_int_equal(count_ops(g, HR_OP_linear), 7 * L);
    hr_graph_destroy(g);
    hr_model_release(m);
}

static void qwen_rows_are_left_alone(void **state)
{
    (void)state;
    hr_model *m = load_gguf(&(gguf_tiny){ .architecture = "qwen2", .bias = true });
    float row[H];
    const hr_weight *q = m->layers[0].q;
    assert_int_equal(q->read_rows(q, 1, 1, row), HR_OK);
    assert_true(row[0] == element(1, 0));
    hr_model_release(m);
}

static void rope_factors_divide_frequencies(void **state)
{
    (void)state;
    hr_model *plain = load_gguf(&(gguf_tiny){ .architecture = "llama" });
    hr_model *scaled = load_gguf(&(gguf_tiny){ .architecture = "llama", .rope_freqs = true });
    const hr_rope *a = &hr_model_config(plain)->rope, *b = &hr_model_config(scaled)->rope;
    for (int64_t i = 0; i < a->n_freq; i++) {
        double want = pow(10000, -2.0 * (double)i / D) / (double)(i + 1);
        assert_true(b->inv_freq[i] == (float)want);
    }
    assert_true(a->inv_freq[0] == 1 && b->inv_freq[1] < a->inv_freq[1]);
    size_t n;
    const hr_weight *const *all = hr_model_weights(scaled, &n);
    for (size_t i = 0; i < n; i++) assert_string_not_equal(all[i]->name, "rope_freqs.weight");
    hr_model_release(plain);
    hr_model_release(scaled);
}

/* One key or tensor more or else, and what is said of it. */
static void refuses_gguf(void (*more)(gguf_file *), const char *architecture, const char *words)
{
    gguf_file f = { .alignment = 32 };
    hr_model *m;
    gguf_sizes(&f, architecture);
    gguf_tensors(&f, &(gguf_tiny){ .architecture = architecture });
    if (more) more(&f);
    put_gguf(&f, "bad.gguf");
    hr_status st = hr_model_load(at("bad.gguf"), NULL, &m);
    hr_model_release(m);
    if (st != HR_INVALID_ARGUMENT && st != HR_UNIMPLEMENTED)
        fail_msg("'%s': status %d", words, (int)st);
    if (!strstr(hr_message(), words)) fail_msg("'%s' is not in: %s", words, hr_message());
}

static void more_tensor(gguf_file *f)
{
    gguf_vector(f, "blk.0.attn_sinks.weight", N);
}
static void more_layers(gguf_file *f)
{
    gguf_vector(f, "blk.2.attn_norm.weight", H);
}
static void more_rope(gguf_file *f)
{
    gguf_text(f, "llama.rope.scaling.type", "foo");
}
static void more_split(gguf_file *f)
{
    gguf_u32(f, "split.count", 3);
}
static void more_adapter(gguf_file *f)
{
    gguf_text(f, "general.type", "adapter");
}
static void more_nul(gguf_file *f)
{
    gguf_key(f, "tokenizer.ggml.tokens", HR_GGUF_ARRAY);
    put_u32(&f->values, HR_GGUF_STRING);
    put_u64(&f->values, 1);
    put_u64(&f->values, 3);
    hr_buf_add(&f->values, "a\0b", 3);
}
static void more_tokens(gguf_file *f)
{
    gguf_key(f, "tokenizer.ggml.tokens", HR_GGUF_ARRAY);
    put_u32(&f->values, HR_GGUF_STRING);
    put_u64(&f->values, V + 1);
    for (int i = 0; i <= V; i++) put_str(&f->values, "t");
}
static void more_scores(gguf_file *f)
{
    gguf_key(f, "tokenizer.ggml.scores", HR_GGUF_ARRAY);
    put_u32(&f->values, HR_GGUF_F32);
    put_u64(&f->values, 1);
    put_u32(&f->values, 0);
}
static void more_experts(gguf_file *f)
{
    gguf_u32(f, "llama.expert_count", 8);
    gguf_u32(f, "qwen2.expert_count", 8);
}
static void too_few_experts(gguf_file *f)
{
    more_experts(f);
    gguf_u32(f, "llama.expert_used_count", 9);
}
static void no_router(gguf_file *f)
{
    more_experts(f);
    gguf_u32(f, "llama.expert_used_count", 2);
}
static void more_key_length(gguf_file *f)
{
    gguf_u32(f, "llama.attention.key_length", 32);
}

static void refuses_bad_gguf_models(void **state)
{
    (void)state;
    refuses_gguf(NULL, "gpt2", "architecture 'gpt2' is not supported");
    refuses_gguf(NULL, "qwen2", "tensor 'blk.0.attn_q.bias' is missing");
    refuses_gguf(more_tensor, "llama", "tensor 'blk.0.attn_sinks.weight' has no place");
    refuses_gguf(more_layers, "llama", "tensor 'blk.2.attn_norm.weight' has no");
    refuses_gguf(more_rope, "llama", "unknown rope scaling type 'foo'");
    refuses_gguf(more_split, "llama", "one of 3 parts");
    refuses_gguf(more_adapter, "llama", "general.type is 'adapter'");
    refuses_gguf(more_nul, "llama", "tokenizer.ggml.tokens': holds a string with a NUL");
    refuses_gguf(more_tokens, "llama", "129 tokens, but token_embd.weight has 128 rows");
    refuses_gguf(more_scores, "llama", "tokenizer.ggml.scores': not as many");
    refuses_gguf(more_experts, "qwen2", "a mixture of 8 experts");
    refuses_gguf(more_experts, "llama", "'llama.expert_used_count' is missing");
    refuses_gguf(too_few_experts, "llama", "9 of 8 experts");
    refuses_gguf(no_router, "llama", "tensor 'blk.0.ffn_gate_inp.weight' is missing");
    refuses_gguf(more_key_length, "llama", "rope over 16 of 32 columns");
}

static void refuses_giant_block_count(void **state)
{
    (void)state;
    gguf_file f = { .alignment = 32 };
    hr_model *m;
    gguf_text(&f, "general.architecture", "llama");
    gguf_u32(&f, "llama.block_count", 1000000);
    gguf_u32(&f, "llama.context_length", 256);
    gguf_u32(&f, "llama.embedding_length", H);
    gguf_u32(&f, "llama.feed_forward_length", I);
    gguf_u32(&f, "llama.attention.head_count", N);
    gguf_f32(&f, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_matrix(&f, &(gguf_tiny){ 0 }, "token_embd.weight", V, H);
    put_gguf(&f, "bad.gguf");
    assert_int_equal(hr_model_load(at("bad.gguf"), NULL, &m), HR_INVALID_ARGUMENT);
    assert_non_null(strstr(hr_message(), "layer count of 1000000"));
}

/* Loads what may be damaged, reads a row of everything and builds the graph: any status will do,
 * any crash will not. */
static bool load_damaged(const char *path)
{
    hr_model *m;
    hr_graph *g = NULL;
    size_t n = 0;
    if (hr_model_load(path, NULL, &m)) {
        assert_null(m);
        return false;
    }
    const hr_weight *const *all = hr_model_weights(m, &n);
    for (size_t i = 0; i < n; i++) {
        int64_t k = all[i]->shape.dim[all[i]->shape.rank - 1];
        void *row = malloc(hr_format_row_bytes(all[i]->format, k));
        assert_int_equal(all[i]->read_rows(all[i], 0, 1, row), HR_OK);
        free(row);
    }
    hr_build_options o = options(HR_ROWS_INT8_32);
    hr_status st = hr_model_build_backbone(m, &o, &g); /* may be refused, by graph rules */
    assert_true(!st == (g != NULL));
    hr_graph_destroy(g);
    hr_model_release(m);
    return true;
}

static void damaged_models_are_statuses(void **state)
{
    (void)state;
    hr_buf gguf = { 0 }, config = { 0 };
    int loaded = 0;
    hr_model_release(load_gguf(&(gguf_tiny){ .architecture = "llama", .rope_freqs = true }));
    hr_model_release(load_good(&qwen3));
    assert_int_equal(hr_file_slurp(at("tiny.gguf"), 1 << 24, &gguf), HR_OK);
    assert_int_equal(hr_file_slurp(at("config.json"), 1 << 16, &config), HR_OK);
    char *copy = malloc(gguf.n);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        uint64_t seed = round * 131;
        memcpy(copy, gguf.p, gguf.n);
        damage(copy, 2048, &seed); /* metadata and the tensor table */
        put_file("damaged.gguf", copy, gguf.n);
        loaded += load_damaged(at("damaged.gguf"));
        memcpy(copy, config.p, config.n);
        damage(copy, config.n, &seed);
        put_file("config.json", copy, config.n);
        loaded += load_damaged(scratch);
    }
    assert_true(loaded < 2 * ROUNDS);
    free(copy);
    hr_buf_deinit(&gguf);
    hr_buf_deinit(&config);
}

/* ---- tokenizer data ------------------------------------------------------------------------- */

static void templates_of_a_directory(void **state)
{
    (void)state;
    put_text("tokenizer.json", "{\"version\":\"1.0\"}");
    put_text("tokenizer_config.json", "{\"chat_template\":\"one\"}");
    hr_model *m = load_good(&llama);
    const hr_model_vocab *v = hr_model_vocab_get(m);
    assert_true(hr_str_eq_c(v->tokenizer_json, "{\"version\":\"1.0\"}"));
    assert_int_equal(v->n_templates, 1);
    assert_true(hr_str_eq_c(v->templates[0].text, "one"));
    assert_null(v->gguf_model);
    hr_model_release(m);

    put_text("tokenizer_config.json",
             "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"t\"},"
             "{\"name\":\"default\",\"template\":\"d\"}]}");
    m = load_good(&llama);
    v = hr_model_vocab_get(m);
    assert_int_equal(v->n_templates, 2);
    assert_true(hr_str_eq_c(v->templates[0].name, "default"));
    assert_true(hr_str_eq_c(v->templates[0].text, "d"));
    assert_true(hr_str_eq_c(v->templates[1].name, "tool_use"));
    hr_model_release(m);

    put_text("chat_template.jinja", "file");
    m = load_good(&llama);
    v = hr_model_vocab_get(m);
    assert_int_equal(v->n_templates, 1);
    assert_true(hr_str_eq_c(v->templates[0].text, "file"));
    hr_model_release(m);
    unlink(at("chat_template.jinja"));

    put_text("tokenizer_config.json", "{\"chat_template\":7}");
    refuses(&llama, "tokenizer_config.json: chat_template: must be a string or a list");
    unlink(at("tokenizer_config.json"));
    unlink(at("tokenizer.json"));
}

static void vocabulary_of_a_gguf(void **state)
{
    (void)state;
    gguf_file f = { .alignment = 32 };
    hr_model *m;
    gguf_sizes(&f, "llama");
    gguf_tensors(&f, &(gguf_tiny){ .architecture = "llama" });
    gguf_text(&f, "tokenizer.ggml.model", "gpt2");
    gguf_text(&f, "tokenizer.ggml.pre", "smollm");
    gguf_text(&f, "tokenizer.chat_template", "tpl");
    gguf_u32(&f, "tokenizer.ggml.eos_token_id", 1);
    gguf_u32(&f, "tokenizer.ggml.eot_token_id", 0);
    gguf_key(&f, "tokenizer.ggml.add_bos_token", HR_GGUF_BOOL);
    hr_buf_add_byte(&f.values, 0);
    gguf_key(&f, "tokenizer.ggml.tokens", HR_GGUF_ARRAY);
    put_u32(&f.values, HR_GGUF_STRING);
    put_u64(&f.values, 2);
    put_str(&f.values, "<a>");
    put_str(&f.values, "b");
    gguf_key(&f, "tokenizer.ggml.token_type", HR_GGUF_ARRAY);
    put_u32(&f.values, HR_GGUF_I32);
    put_u64(&f.values, 2);
    put_u32(&f.values, 3);
    put_u32(&f.values, 1);
    put_gguf(&f, "vocab.gguf");
    if (hr_model_load(at("vocab.gguf"), NULL, &m)) fail_msg("%s", hr_message());
    const hr_model_vocab *v = hr_model_vocab_get(m);
    assert_string_equal(v->gguf_model, "gpt2");
    assert_string_equal(v->gguf_pre, "smollm");
    assert_int_equal(v->n_tokens, 2);
    assert_true(hr_str_eq_c(v->tokens[0], "<a>"));
    assert_int_equal(v->types[0], 3);
    assert_null(v->scores);
    assert_int_equal(v->eos, 1);
    assert_int_equal(v->bos, -1);
    assert_int_equal(v->add_bos, 0);
    assert_int_equal(v->add_space_prefix, -1);
    assert_true(hr_str_eq_c(v->templates[0].text, "tpl"));
    const hr_config *c = hr_model_config(m);
    assert_int_equal(c->n_eos, 2);
    hr_model_release(m);
}

/* ---- names and hashes ----------------------------------------------------------------------- */

static void names_become_paths(void **state)
{
    (void)state;
    hr_buf path = { 0 };
    assert_int_equal(hr_model_locate(scratch, &path), HR_OK);
    assert_string_equal(path.p, scratch);
    setenv("XDG_CACHE_HOME", scratch, 1);
    unsetenv("HF_HOME");
    unsetenv("HF_HUB_CACHE");
    assert_int_equal(hr_model_locate("smollm2-135m", &path), HR_NOT_FOUND);
    assert_non_null(strstr(hr_message(), "fetch it with: tools/setup.sh model"));
    assert_int_equal(hr_make_dirs(at("headrace/models/smollm2-135m"), 0755), HR_OK);
    put_text("headrace/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf", "x");
    assert_int_equal(hr_model_locate("smollm2-135m", &path), HR_OK);
    assert_string_equal(path.p, at("headrace/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"));

    assert_int_equal(hr_model_locate("org/name-1.5", &path), HR_NOT_FOUND);
    assert_non_null(strstr(hr_message(), "hf download org/name-1.5"));
    setenv("HF_HOME", at("hf"), 1);
    assert_int_equal(hr_make_dirs(at("hf/hub/models--org--name-1.5/snapshots/abc"), 0755), HR_OK);
    assert_int_equal(hr_make_dirs(at("hf/hub/models--org--name-1.5/refs"), 0755), HR_OK);
    put_text("hf/hub/models--org--name-1.5/refs/main", "abc\n");
    assert_int_equal(hr_model_locate("org/name-1.5", &path), HR_OK);
    assert_string_equal(path.p, at("hf/hub/models--org--name-1.5/snapshots/abc"));
    put_text("hf/hub/models--org--name-1.5/refs/main", "../../../etc");
    assert_int_equal(hr_model_locate("org/name-1.5", &path), HR_INVALID_ARGUMENT);
    setenv("HF_HUB_CACHE", at("nowhere"), 1);
    assert_int_equal(hr_model_locate("org/name-1.5", &path), HR_NOT_FOUND);

    static const char *const bad[] = { "nothing", "a/b/c", "../x", "org/../x",
                                       "org/",    "/abs",  "",     "some/file.gguf" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(hr_model_locate(bad[i], &path), HR_NOT_FOUND);
        assert_non_null(strstr(hr_message(), "no such file or folder"));
    }
    hr_buf_deinit(&path);
}

static void hashes_name_the_weights(void **state)
{
    (void)state;
    char first[65], again[65], other[65];
    setenv("XDG_CACHE_HOME", at("cache"), 1);
    hr_model *m = load_good(&llama);
    assert_int_equal(hr_model_hash(m, first), HR_OK);
    assert_int_equal(strlen(first), 64);
    assert_true(hr_path_is_dir(at("cache/headrace/hashes")));
    assert_int_equal(hr_model_hash(m, again), HR_OK);
    assert_string_equal(first, again);
    hr_model_release(m);

    tiny t = llama;
    t.config = ",\"rope_theta\":20000";
    m = load_good(&t); /* same weights, another config */
    assert_int_equal(hr_model_hash(m, other), HR_OK);
    assert_string_not_equal(first, other);
    hr_model_release(m);

    m = load_good(&llama);
    assert_int_equal(hr_model_hash(m, again), HR_OK);
    assert_string_equal(first, again);
    hr_model_release(m);
    setenv("XDG_CACHE_HOME", "/dev/null/x", 1); /* a cache that cannot be written does no harm */
    m = load_good(&llama);
    assert_int_equal(hr_model_hash(m, again), HR_OK);
    assert_string_equal(first, again);
    hr_model_release(m);
}

/* The oracle is coreutils' sha256sum. */
static void hash_of_a_gguf_is_its_sha256(void **state)
{
    (void)state;
    setenv("XDG_CACHE_HOME", at("cache2"), 1);
    hr_model *m = load_gguf(&(gguf_tiny){ .architecture = "llama" });
    char ours[65], theirs[65] = { 0 }, command[512];
    assert_int_equal(hr_model_hash(m, ours), HR_OK);
    snprintf(command, sizeof command, "sha256sum '%s'", at("tiny.gguf"));
    FILE *p = popen(command, "r");
    assert_non_null(p);
    assert_int_equal(fread(theirs, 1, 64, p), 64);
    pclose(p);
    assert_string_equal(ours, theirs);
    hr_model_release(m);

    /* what is remembered is used, unless it is no digest */
    char kept[300];
    const hr_file *f = NULL;
    m = load_gguf(&(gguf_tiny){ .architecture = "llama" });
    f = m->checkpoint.files[0];
    snprintf(kept, sizeof kept, "cache2/headrace/hashes/%llx-%llx-%llx-%llx",
             (unsigned long long)f->device, (unsigned long long)f->inode,
             (unsigned long long)f->size, (unsigned long long)f->mtime_ns);
    put_text(kept, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    assert_int_equal(hr_model_hash(m, ours), HR_OK);
    assert_string_equal(ours, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    put_text(kept, "not a digest, though it is as long as one is: 64 characters here");
    assert_int_equal(hr_model_hash(m, ours), HR_OK);
    assert_string_equal(ours, theirs);
    hr_model_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_build_their_backbones),
        cmocka_unit_test(windows_reach_attention_and_cache),
        cmocka_unit_test(building_survives_short_memory),
        cmocka_unit_test(tied_embeddings_four_cases),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(skips_known_buffers),
        cmocka_unit_test(survives_short_memory),
        cmocka_unit_test(dummy_weights_need_a_config_alone),
        cmocka_unit_test(llama_rows_are_put_back),
        cmocka_unit_test(quantised_rows_are_put_back),
        cmocka_unit_test(qwen_rows_are_left_alone),
        cmocka_unit_test(rope_factors_divide_frequencies),
        cmocka_unit_test(refuses_bad_gguf_models),
        cmocka_unit_test(refuses_giant_block_count),
        cmocka_unit_test(damaged_models_are_statuses),
        cmocka_unit_test(templates_of_a_directory),
        cmocka_unit_test(vocabulary_of_a_gguf),
        cmocka_unit_test(names_become_paths),
        cmocka_unit_test(hashes_name_the_weights),
        cmocka_unit_test(hash_of_a_gguf_is_its_sha256),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
