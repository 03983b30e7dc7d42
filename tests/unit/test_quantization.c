/* The graph and the slices of a checkpoint of int8 linears, on dummy weights: rows quantised once
 * for the linears that share them, fused into what makes them, whole where matrices are cut. */
#include "passes/passes.h"
#include "unit/model_files.h"

enum { L = 2, H = 48, I = 96, VOCAB = 50 };

#define CONFIG(ignore)                                                                             \
    "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\",\"hidden_size\":48,"       \
    "\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":6,"                  \
    "\"num_key_value_heads\":3,\"vocab_size\":50,\"max_position_embeddings\":64,"                  \
    "\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"hidden_act\":\"silu\","                        \
    "\"tie_word_embeddings\":false,\"torch_dtype\":\"float32\",\"quantization_config\":{"          \
    "\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\",\"ignore\":" ignore      \
    ",\"config_groups\":{\"g\":{\"targets\":[\"Linear\"],\"weights\":{\"strategy\":\"channel\"},"  \
    "\"input_activations\":{\"strategy\":\"token\",\"dynamic\":true}}}}}"

static hr_model *load(const char *config, int devices)
{
    hr_model *m;
    hr_model_options o = { .load_format = HR_LOAD_DUMMY, .dummy_seed = 9, .devices = devices };
    put_text("config.json", config);
    if (hr_model_load(scratch, &o, &m)) fail_msg("%s", hr_message());
    return m;
}

static size_t count(const hr_graph *g, hr_op op)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_nodes; i++) n += g->nodes[i]->op == op;
    return n;
}

static hr_graph *backbone(const hr_model *m, hr_graph **fused)
{
    hr_build_options o = { .activation = HR_DTYPE_F32,
                           .kv_dtype = HR_DTYPE_F32,
                           .tokens = 8,
                           .requests = 2,
                           .blocks = 4,
                           .block_size = 16,
                           .table_width = 4 };
    hr_graph *g;
    if (hr_model_build_backbone(m, &o, &g)) fail_msg("%s", hr_message());
    if (hr_pass_run_all(g, fused)) fail_msg("%s", hr_message());
    return g;
}

static void rows_are_quantised_once_and_in_passing(void **state)
{
    (void)state;
    hr_model *m = load(CONFIG("[\"lm_head\"]"), 1);
    hr_graph *fused, *g = backbone(m, &fused);
    assert_true(hr_model_has_int8_rows(m));
    assert_int_equal(m->head->format, HR_FORMAT_F32);
    assert_int_equal(count(g, HR_OP_quantise_rows), 4 * L); /* qkv, o, gate and up, down */
    assert_int_equal(count(g, HR_OP_linear), 7 * L);
    /* attention's result alone has nothing to be fused with; the first norm follows no sum, and
     * the last norm is of no linear */
    assert_int_equal(count(fused, HR_OP_quantise_rows), L);
    assert_int_equal(count(fused, HR_OP_rms_norm_q8), 1);
    assert_int_equal(count(fused, HR_OP_add_rms_norm_q8), 2 * L - 1);
    assert_int_equal(count(fused, HR_OP_gated_q8), L);
    for (size_t i = 0; i < fused->n_nodes; i++) {
        const hr_node *n = fused->nodes[i];
        if (n->op == HR_OP_gated_q8) assert_int_equal(n->attrs.group, I);
        if (n->op == HR_OP_add_rms_norm_q8) assert_int_equal(n->attrs.group, H);
    }
    hr_graph_destroy(g);
    hr_graph_destroy(fused);
    hr_model_release(m);
}

/* Of q, k and v one stays float: the norm has two readers then, and both get what they need. */
static void a_float_neighbour_keeps_the_norm(void **state)
{
    (void)state;
    hr_model *m = load(CONFIG("[\"lm_head\",\"re:.*k_proj\"]"), 1);
    hr_graph *fused, *g = backbone(m, &fused);
    assert_int_equal(m->layers[1].k->format, HR_FORMAT_F32);
    assert_int_equal(m->layers[1].q->format, HR_FORMAT_I8C);
    assert_int_equal(count(g, HR_OP_quantise_rows), 4 * L);
    assert_int_equal(count(fused, HR_OP_quantise_rows), 2 * L);
    hr_graph_destroy(g);
    hr_graph_destroy(fused);
    hr_model_release(m);
}

/* Scales follow their rows; what is cut by columns elsewhere stays whole here. */
static void slices_have_their_scales(void **state)
{
    (void)state;
    hr_model *m = load(CONFIG("[]"), 3), *one = load(CONFIG("[]"), 1);
    const hr_weight *cut = m->layers[1].up, *whole = one->layers[1].up;
    float all[I], part[I / 3];
    int8_t rows[I / 3][H], whole_row[H];
    assert_int_equal(cut->shard.count, 3);
    assert_int_equal(cut->scale->shard.count, 3);
    assert_int_equal(whole->scale->read_rows(whole->scale, 0, 1, all), HR_OK);
    for (int r = 0; r < 3; r++) {
        hr_weight own = *cut, scale = *cut->scale;
        own.shard.rank = scale.shard.rank = r;
        assert_int_equal(own.read_rows(&own, 0, I / 3, rows), HR_OK);
        assert_int_equal(whole->read_rows(whole, r * I / 3 + 5, 1, whole_row), HR_OK);
        assert_memory_equal(rows[5], whole_row, H);
        assert_int_equal(scale.read_rows(&scale, 0, 1, part), HR_OK);
        assert_memory_equal(part, all + r * I / 3, sizeof part);
    }
    assert_int_equal(m->layers[0].down->shard.count, 0);
    assert_int_equal(m->layers[0].o->shard.count, 0);
    assert_int_equal(m->head->format, HR_FORMAT_I8C);
    hr_model_release(m);
    hr_model_release(one);
}

/* A pattern that backtracks without end is refused; it holds no start up. */
static void patterns_end(void **state)
{
    (void)state;
    hr_model *m;
    hr_model_options o = { .load_format = HR_LOAD_DUMMY };
    put_text("config.json", CONFIG("[\"re:(([a-z._0-9]+)+)+[!?]\"]"));
    assert_int_equal(hr_model_load(scratch, &o, &m), HR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(hr_message(), "takes too long"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_quantised_once_and_in_passing),
        cmocka_unit_test(a_float_neighbour_keeps_the_norm),
        cmocka_unit_test(slices_have_their_scales),
        cmocka_unit_test(patterns_end),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
