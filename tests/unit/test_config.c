/* config.json in all its spellings (F07, F08), and what is refused. */
#include "model_files.h"

#include <math.h>

static hr_arena arena;

static int group_teardown(void **state)
{
    hr_arena_deinit(&arena);
    return scratch_teardown(state);
}

/* A tiny config with more keys put before or instead of its own; "key":null removes one. */
static hr_status read_config(const char *more, hr_config *c)
{
    static const char base[] =
        "\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":96,"
        "\"vocab_size\":128,\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-5,"
        "\"hidden_act\":\"silu\",\"torch_dtype\":\"bfloat16\",\"bos_token_id\":1,"
        "\"eos_token_id\":2";
    const hr_family *family;
    const hr_json *extra, *own, *merged;
    hr_buf b = { 0 };
    hr_json_writer w = { .out = &b };
    char text[1024];
    assert_int_equal(hr_json_parse(hr_str_c(more), NULL, &arena, &extra), HR_OK);
    int n = snprintf(text, sizeof text, "{%s}", base);
    char *kept = hr_arena_copy(&arena, text, (size_t)n);
    assert_int_equal(hr_json_parse(hr_str_c(kept), NULL, &arena, &own), HR_OK);
    hr_json_begin_object(&w);
    for (size_t i = 0; i < own->count; i++) {
        bool replaced = false;
        for (size_t k = 0; k < extra->count; k++)
            replaced |= hr_str_eq(extra->items[k].key, own->items[i].key);
        if (replaced) continue;
        hr_json_key(&w, own->items[i].key);
        hr_json_value(&w, &own->items[i]);
    }
    for (size_t k = 0; k < extra->count; k++) {
        hr_json_key(&w, extra->items[k].key);
        hr_json_value(&w, &extra->items[k]);
    }
    hr_json_end_object(&w);
    kept = hr_arena_copy(&arena, b.p, b.n);
    assert_int_equal(hr_json_parse((hr_str){ kept, b.n }, NULL, &arena, &merged), HR_OK);
    hr_buf_deinit(&b);
    return hr_config_from_json(merged, &arena, c, &family);
}

static hr_config good(const char *more)
{
    hr_config c;
    hr_status st = read_config(more, &c);
    if (st) fail_msg("%s: %s", more, hr_message());
    return c;
}

static void refuses(const char *more, const char *words)
{
    hr_config c;
    hr_status st = read_config(more, &c);
    if (st != HR_INVALID_ARGUMENT && st != HR_UNIMPLEMENTED && st != HR_OUT_OF_RANGE)
        fail_msg("%s: status %d", more, (int)st);
    if (!strstr(hr_message(), words)) fail_msg("'%s' is not in: %s", words, hr_message());
}

static void reads_the_plain_keys(void **state)
{
    (void)state;
    hr_config c = good("{}");
    assert_string_equal(c.architecture, "LlamaForCausalLM");
    assert_int_equal(c.hidden, 64);
    assert_int_equal(c.layers, 2);
    assert_int_equal(c.heads, 4);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.intermediate, 96);
    assert_int_equal(c.vocab, 128);
    assert_int_equal(c.max_positions, 8192);
    assert_true(c.rms_eps == 1e-5f);
    assert_int_equal(c.act, HR_ACT_SILU);
    assert_int_equal(c.dtype, HR_DTYPE_BF16);
    assert_int_equal(c.bos, 1);
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos[0], 2);
    assert_false(c.tie_word_embeddings);
    assert_null(c.windows);
    assert_int_equal(good("{\"num_key_value_heads\":null}").kv_heads, 4);
    assert_int_equal(good("{\"num_hidden_layers\":3.0}").layers, 3);
    assert_int_equal(good("{\"torch_dtype\":null}").dtype, HR_DTYPE_F32);
    assert_int_equal(good("{\"dtype\":\"float16\",\"torch_dtype\":null}").dtype, HR_DTYPE_F16);
    assert_int_equal(good("{\"hidden_act\":\"gelu_pytorch_tanh\"}").act, HR_ACT_GELU_TANH);
    assert_true(good("{\"tie_word_embeddings\":true}").tie_word_embeddings);
}

/* F08: an explicit head_dim wins, null is derived. */
static void head_dim_explicit_or_derived(void **state)
{
    (void)state;
    assert_int_equal(good("{\"head_dim\":32}").head_dim, 32);
    assert_int_equal(good("{\"head_dim\":null}").head_dim, 16);
    hr_config c = good("{\"architectures\":[\"Qwen3ForCausalLM\"],\"hidden_size\":2560,"
                       "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"head_dim\":128}");
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.rope.n_freq, 64);
    assert_true(c.qk_norm);
    refuses("{\"hidden_size\":65}", "hidden_size 65 is not a multiple of num_attention_heads 4");
    assert_int_equal(good("{\"hidden_size\":65,\"head_dim\":16}").head_dim, 16);
    refuses("{\"head_dim\":15}", "head dimension 15 is odd");
}

static void biases_by_family(void **state)
{
    (void)state;
    hr_config c = good("{\"attention_bias\":true,\"mlp_bias\":true}");
    assert_true(c.attention_bias && c.output_bias && c.mlp_bias);
    c = good("{}");
    assert_false(c.attention_bias || c.output_bias || c.mlp_bias || c.qk_norm);
    c = good("{\"architectures\":[\"Qwen2ForCausalLM\"]}");
    assert_true(c.attention_bias);
    assert_false(c.output_bias || c.mlp_bias || c.qk_norm);
    c = good("{\"architectures\":[\"Qwen3ForCausalLM\"],\"attention_bias\":false}");
    assert_false(c.attention_bias || c.output_bias);
    refuses("{\"attention_bias\":\"yes\"}", "config.json: attention_bias: must be true or false");
}

static void windows_by_layer(void **state)
{
    (void)state;
    hr_config c = good("{\"architectures\":[\"MistralForCausalLM\"],\"sliding_window\":4096}");
    assert_non_null(c.windows);
    assert_int_equal(c.windows[0], 4096);
    assert_int_equal(c.windows[1], 4096);
    assert_null(
        good("{\"architectures\":[\"MistralForCausalLM\"],\"sliding_window\":null}").windows);
    assert_null(good("{\"architectures\":[\"Qwen2ForCausalLM\"],\"sliding_window\":4096,"
                     "\"use_sliding_window\":false,\"max_window_layers\":1}")
                    .windows);
    c = good("{\"architectures\":[\"Qwen2ForCausalLM\"],\"sliding_window\":4096,"
             "\"use_sliding_window\":true,\"max_window_layers\":1}");
    assert_int_equal(c.windows[0], 0);
    assert_int_equal(c.windows[1], 4096);
    /* Qwen asks for windows; where it does not say from which layer on, it is the 28th */
    assert_null(good("{\"architectures\":[\"Qwen2ForCausalLM\"],\"sliding_window\":4096}").windows);
    c = good("{\"architectures\":[\"Qwen3ForCausalLM\"],\"sliding_window\":4096,"
             "\"use_sliding_window\":true,\"num_hidden_layers\":30}");
    assert_int_equal(c.windows[27], 0);
    assert_int_equal(c.windows[28], 4096);
    c = good("{\"sliding_window\":8,\"layer_types\":[\"sliding_attention\",\"full_attention\"]}");
    assert_int_equal(c.windows[0], 8);
    assert_int_equal(c.windows[1], 0);
    refuses("{\"layer_types\":[\"full_attention\"]}", "layer_types must list 2 layers");
    refuses("{\"layer_types\":[\"full_attention\",\"chunked_attention\"]}", "'chunked_attention'");
    refuses("{\"layer_types\":[\"sliding_attention\",\"full_attention\"]}", "sliding_window");
}

#define PHI3   "{\"architectures\":[\"Phi3ForCausalLM\"],"
#define GEMMA2 "{\"architectures\":[\"Gemma2ForCausalLM\"],\"hidden_act\":null,"
#define GEMMA3 "{\"architectures\":[\"Gemma3ForCausalLM\"],\"hidden_act\":null,"

static void phi3_keys(void **state)
{
    (void)state;
    hr_config c = good(PHI3 "\"partial_rotary_factor\":0.5,\"sliding_window\":7}");
    assert_int_equal(c.rope.n_freq, 4);
    assert_int_equal(c.windows[1], 7);
    assert_null(c.rope.long_inv_freq);
    refuses(PHI3 "\"attention_bias\":true}", "Phi3ForCausalLM: biases of linears");
}

static void gemma_keys(void **state)
{
    (void)state;
    hr_config c = good(GEMMA2 "\"sliding_window\":9,\"tie_word_embeddings\":null}");
    assert_true(c.tie_word_embeddings && c.post_norms && !c.qk_norm);
    assert_int_equal(c.act, HR_ACT_GELU_TANH);
    assert_true(c.norm_offset == 1 && c.embed_scale == 8);
    assert_true(c.attention_scale == 1.0f / 16); /* a scalar of 256 */
    assert_true(c.attention_cap == 50 && c.logit_cap == 30);
    assert_int_equal(c.windows[0], 9);
    assert_int_equal(c.windows[1], 0);
    assert_int_equal(c.local_rope.n_freq, 0);
    c = good(GEMMA3 "\"num_hidden_layers\":12,\"sliding_window\":9,\"query_pre_attn_scalar\":64,"
                    "\"attn_logit_softcapping\":null}");
    for (int l = 0; l < 12; l++) assert_int_equal(c.windows[l], l % 6 == 5 ? 0 : 9);
    assert_true(c.qk_norm && c.attention_cap == 0 && c.logit_cap == 0);
    assert_true(c.attention_scale == 0.125f);
    assert_true(c.rope.theta == 1000000 && c.local_rope.theta == 10000);
    refuses(GEMMA3 "\"use_bidirectional_attention\":true}", "use_bidirectional_attention");
    refuses(GEMMA3 "\"query_pre_attn_scalar\":0}", "query_pre_attn_scalar must be above 0");
    refuses(GEMMA2 "\"attention_bias\":true}", "Gemma2ForCausalLM: biases of linears");
}

/* One spelling has two bases at the top, the other an object for each kind of layer. */
static void gemma3_rope_spellings(void **state)
{
    (void)state;
    hr_config a = good(GEMMA3 "\"rope_theta\":5e5,\"rope_local_base_freq\":2e4,"
                              "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}}");
    hr_config b = good(
        GEMMA3 "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8,"
               "\"rope_theta\":5e5},\"sliding_attention\":{\"rope_type\":\"default\","
               "\"rope_theta\":2e4}}}");
    const hr_rope *pairs[][2] = { { &a.rope, &b.rope }, { &a.local_rope, &b.local_rope } };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pairs[i][0]->n_freq, 8);
        assert_memory_equal(pairs[i][0]->inv_freq, pairs[i][1]->inv_freq, 8 * sizeof(float));
    }
    assert_true(a.rope.inv_freq[0] == 0.125f && a.local_rope.inv_freq[0] == 1);
    refuses(GEMMA3 "\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":"
                   "{\"rope_type\":\"linear\",\"factor\":2}}}",
            "sliding_attention");
}

#define MOE "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"num_experts\":8,"

static void mixtures_of_experts(void **state)
{
    (void)state;
    hr_config c = good(MOE "\"num_experts_per_tok\":2,\"moe_intermediate_size\":48,"
                           "\"decoder_sparse_step\":2,\"mlp_only_layers\":[]}");
    assert_int_equal(c.expert_intermediate, 48);
    assert_false(c.expert_norm || hr_config_is_sparse(&c, 0));
    assert_true(hr_config_is_sparse(&c, 1));
    c = good("{\"architectures\":[\"MixtralForCausalLM\"],\"num_local_experts\":8,"
             "\"num_experts_per_tok\":2}");
    assert_int_equal(c.expert_intermediate, 96);
    assert_true(c.expert_norm && hr_config_is_sparse(&c, 0));
    refuses(MOE "\"num_experts_per_tok\":2}", "moe_intermediate_size is missing");
    refuses(MOE "\"num_experts_per_tok\":9,\"moe_intermediate_size\":48}", "9 of 8 experts");
    refuses(MOE "\"num_experts_per_tok\":2,\"moe_intermediate_size\":48,"
                "\"decoder_sparse_step\":0}",
            "every layer of 0");
    refuses(MOE "\"num_experts_per_tok\":2,\"moe_intermediate_size\":48,"
                "\"mlp_only_layers\":[1]}",
            "mlp_only_layers");
}

static void refuses_what_it_cannot_honour(void **state)
{
    (void)state;
    refuses("{\"architectures\":[\"GPT2LMHeadModel\"]}", "'GPT2LMHeadModel' is not supported");
    refuses("{\"architectures\":null}", "architectures must name one model");
    refuses("{\"architectures\":[]}", "architectures must name one model");
    refuses("{\"architectures\":[7]}", "architectures: must be a string");
    refuses("{\"hidden_size\":null}", "config.json: hidden_size is missing");
    refuses("{\"hidden_size\":\"64\"}", "config.json: hidden_size: must be an integer");
    refuses("{\"hidden_size\":64.5}", "config.json: hidden_size: 64.5 is not an integer");
    refuses("{\"hidden_size\":1e30}", "out of range");
    refuses("{\"hidden_size\":0}", "hidden_size 0");
    refuses("{\"hidden_size\":-64}", "hidden_size -64");
    refuses("{\"num_hidden_layers\":1000000}", "layer count of 1000000");
    refuses("{\"num_hidden_layers\":0}", "layer count of 0");
    refuses("{\"num_attention_heads\":0}", "num_attention_heads 0");
    refuses("{\"num_key_value_heads\":3}", "4 heads do not share 3");
    refuses("{\"num_key_value_heads\":0}", "key/value head count of 0");
    refuses("{\"vocab_size\":0}", "vocabulary size of 0");
    refuses("{\"vocab_size\":99999999999}", "vocabulary size");
    refuses("{\"max_position_embeddings\":0}", "context length of 0");
    refuses("{\"rms_norm_eps\":0}", "rms_norm_eps");
    refuses("{\"hidden_act\":\"xielu\"}", "unknown hidden_act 'xielu'");
    refuses("{\"torch_dtype\":\"int4\"}", "unknown torch_dtype 'int4'");
    refuses(
        "{\"quantization_config\":{\"quant_method\":\"hqq\"}}",
        "quantization_config.quant_method hqq is not supported; compressed-tensors or gptq or awq");
    refuses("{\"partial_rotary_factor\":0.5}", "partial_rotary_factor 0.5");
    refuses("{\"rope_interleaved\":true}", "rope_interleaved");
}

/* ---- rope (F07) ----------------------------------------------------------------------------- */

/* Against tables that numpy made in double precision: equal but for the rounding to f32. */
static void rope_tables_equal_numpy(void **state)
{
    (void)state;
    hr_buf text = { 0 };
    const hr_json *cases;
    if (hr_file_slurp(HR_SOURCE_DIR "/tests/golden/rope.json", 1 << 22, &text) ||
        hr_json_parse(hr_buf_str(&text), NULL, &arena, &cases))
        fail_msg("%s", hr_message());
    assert_true(cases->count > 10);
    for (size_t i = 0; i < cases->count; i++) {
        const hr_json *want = hr_json_get(&cases->items[i], "inv_freq");
        int64_t dim, positions;
        double attention;
        hr_config c = { .max_positions = 8192 };
        assert_int_equal(hr_json_to_i64(hr_json_get(&cases->items[i], "head_dim"), "", &dim), 0);
        assert_int_equal(
            hr_json_to_f64(hr_json_get(&cases->items[i], "attention_factor"), "", &attention), 0);
        assert_int_equal(
            hr_json_to_i64(hr_json_get(&cases->items[i], "max_positions"), "", &positions), 0);
        c.head_dim = dim;
        c.partial_rotary = true;
        if (hr_rope_from_json(hr_json_get(&cases->items[i], "config"), &arena, &c))
            fail_msg("case %zu: %s", i, hr_message());
        assert_int_equal(c.rope.n_freq, want->count);
        assert_int_equal(c.max_positions, positions);
        assert_true(fabs((double)c.rope.attention_factor - attention) <= attention * 0x1p-24);
        for (size_t k = 0; k < want->count; k++) {
            double w;
            assert_int_equal(hr_json_to_f64(&want->items[k], "", &w), 0);
            /* half a unit of f32, and what two double computations may differ by */
            if (fabs((double)c.rope.inv_freq[k] - w) > w * (0x1p-24 + 1e-13))
                fail_msg("case %zu, column %zu: %.9g, numpy %.17g", i, k,
                         (double)c.rope.inv_freq[k], w);
        }
    }
    hr_buf_deinit(&text);
}

static void same_rope(const char *a, const char *b)
{
    hr_config x = good(a), y = good(b);
    assert_int_equal(x.rope.n_freq, y.rope.n_freq);
    assert_true(x.rope.attention_factor == y.rope.attention_factor);
    assert_memory_equal(x.rope.inv_freq, y.rope.inv_freq, (size_t)x.rope.n_freq * sizeof(float));
}

#define LLAMA3                                                                                     \
    "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"                             \
    "\"original_max_position_embeddings\":8192"

static void rope_spellings_mean_the_same(void **state)
{
    (void)state;
    const char *theta = "{\"rope_theta\":500000.0}";
    same_rope(theta, "{\"rope_theta\":500000,\"rope_scaling\":null}");
    same_rope(theta, "{\"rope_theta\":5e5,\"rope_parameters\":null}");
    same_rope(theta, "{\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500000}}");
    same_rope(theta, "{\"rope_theta\":500000,\"rope_parameters\":{\"rope_type\":\"default\"}}");
    same_rope(theta, "{\"rope_theta\":500000,\"rope_scaling\":{\"type\":\"default\"}}");
    same_rope(theta, "{\"rope_theta\":500000,\"rope_scaling\":{}}");
    same_rope("{\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\"," LLAMA3 "}}",
              "{\"rope_parameters\":{\"type\":\"llama3\",\"rope_theta\":500000," LLAMA3 "}}");
    same_rope(
        "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}}",
        "{\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4.0,\"attention_factor\":null,"
        "\"original_max_position_embeddings\":8192}}");
    hr_config plain = good("{}"), other = good(theta);
    assert_memory_not_equal(plain.rope.inv_freq, other.rope.inv_freq, 8 * sizeof(float));
}

static void refuses_bad_rope(void **state)
{
    (void)state;
    refuses("{\"rope_scaling\":{\"type\":\"foo\",\"factor\":2}}", "unknown rope type 'foo'");
    refuses("{\"rope_scaling\":{\"rope_type\":\"longrope\",\"factor\":2}}",
            "longrope lacks original_max_position_embeddings");
    refuses("{\"rope_scaling\":{\"type\":\"su\",\"original_max_position_embeddings\":64,"
            "\"short_factor\":[1,2,3,4,5,6,7,8],\"long_factor\":[1,2,3,4,5,6,7]}}",
            "long_factor must list 8 numbers");
    refuses("{\"rope_scaling\":{\"type\":\"su\",\"original_max_position_embeddings\":64,"
            "\"short_factor\":[1,2,3,4,5,6,7,0],\"long_factor\":[1,2,3,4,5,6,7,8]}}",
            "short_factor holds 0");
    refuses("{\"rope_scaling\":{\"type\":\"su\",\"original_max_position_embeddings\":64,"
            "\"short_mscale\":1.1}}",
            "'short_mscale' is not supported");
    refuses("{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"long_factor\":[1]}}",
            "'long_factor' is not supported");
    refuses(PHI3 "\"partial_rotary_factor\":0.6}", "no even number");
    refuses(PHI3 "\"partial_rotary_factor\":1.5}", "no even number");
    refuses(PHI3 "\"partial_rotary_factor\":0.5,\"rope_parameters\":{\"partial_rotary_factor\":1}}",
            "0.5 at top level and 1 in");
    refuses("{\"rope_scaling\":{\"factor\":2}}", "rope settings lack rope_type");
    refuses("{\"rope_scaling\":{\"type\":\"linear\"}}", "rope settings lack factor");
    refuses("{\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", "factor is 0");
    refuses("{\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"2\"}}",
            "factor: must be a number");
    refuses("{\"rope_scaling\":{\"type\":\"linear\",\"rope_type\":\"yarn\",\"factor\":2}}",
            "rope_type is 'yarn' and type 'linear'");
    refuses("{\"rope_scaling\":\"linear\"}", "rope settings must be an object");
    refuses("{\"rope_theta\":-1}", "rope_theta is -1");
    refuses("{\"rope_theta\":1}", "rope_theta 1 must be above 1");
    refuses("{\"rope_theta\":10000,\"rope_parameters\":{\"rope_theta\":500000}}", "10000 at top");
    refuses("{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},\"rope_parameters\":{}}", "both");
    refuses("{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
            "\"high_freq_factor\":4}}",
            "lack original_max_position_embeddings");
    refuses("{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"high_freq_factor\":4}}",
            "lack low_freq_factor");
    refuses("{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
            "\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}",
            "high_freq_factor 4 is not above");
    refuses("{\"rope_scaling\":{\"type\":\"default\",\"mrope_section\":[1,2,3]}}", "mrope_section");
    refuses("{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}}",
            "'full_attention' is not supported");
}

/* ---- generation_config ---------------------------------------------------------------------- */

static void reads_generation_defaults(void **state)
{
    (void)state;
    const hr_json *json;
    hr_config c = good("{\"eos_token_id\":[2,7]}");
    assert_int_equal(hr_json_parse(HR_STR("{\"temperature\":0.6,\"top_p\":0.9,\"top_k\":0,"
                                          "\"repetition_penalty\":1.05,\"eos_token_id\":[7,9,500],"
                                          "\"max_length\":2048,\"min_p\":null}"),
                                   NULL, &arena, &json),
                     HR_OK);
    assert_int_equal(hr_config_read_generation(json, &c), HR_OK);
    const hr_generation_defaults *g = &c.generation;
    assert_true(g->has_temperature && g->temperature == 0.6);
    assert_true(g->has_top_p && g->top_p == 0.9);
    assert_true(g->has_top_k && g->top_k == 0); /* an explicit 0 counts */
    assert_true(g->has_repetition_penalty && g->repetition_penalty == 1.05);
    assert_false(g->has_min_p || g->has_max_new_tokens);
    assert_int_equal(c.n_eos, 3); /* 500 is outside the vocabulary */
    assert_int_equal(c.eos[0], 2);
    assert_int_equal(c.eos[1], 7);
    assert_int_equal(c.eos[2], 9);
    assert_int_equal(hr_json_parse(HR_STR("{\"temperature\":\"hot\"}"), NULL, &arena, &json), 0);
    assert_int_equal(hr_config_read_generation(json, &c), HR_INVALID_ARGUMENT);
    assert_non_null(strstr(hr_message(), "generation_config.json: temperature"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_plain_keys),
        cmocka_unit_test(head_dim_explicit_or_derived),
        cmocka_unit_test(biases_by_family),
        cmocka_unit_test(windows_by_layer),
        cmocka_unit_test(phi3_keys),
        cmocka_unit_test(gemma_keys),
        cmocka_unit_test(mixtures_of_experts),
        cmocka_unit_test(gemma3_rope_spellings),
        cmocka_unit_test(refuses_what_it_cannot_honour),
        cmocka_unit_test(rope_tables_equal_numpy),
        cmocka_unit_test(rope_spellings_mean_the_same),
        cmocka_unit_test(refuses_bad_rope),
        cmocka_unit_test(reads_generation_defaults),
    };
    return cmocka_run_group_tests(tests, scratch_setup, group_teardown);
}
