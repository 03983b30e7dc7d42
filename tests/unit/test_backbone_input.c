/* The backbone on embeddings gives the bits that it gives on the ids they stand for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "backend/backend.h"
#include "cpu/cpu.h"
#include "model/model.h"
#include "model_files.h"
#include "ref/ref.h"

enum { T = 16, H = 32, TOKENS = 5, BLOCK = 4, BLOCKS = 3, MOST = 16 };

static hr_model *load(void)
{
    put_text(
        "config.json",
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\","
        "\"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 2,"
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"vocab_size\": 50,"
        "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0,"
        "\"hidden_act\": \"silu\", \"tie_word_embeddings\": true, \"torch_dtype\": \"float32\"}");
    hr_model *m;
    hr_model_options o = { .load_format = HR_LOAD_DUMMY, .dummy_seed = 5 };
    if (hr_model_load(scratch, &o, &m)) fail_msg("%s", hr_message());
    return m;
}

static const int32_t ids[T] = { 3, 41, 7, 7, 19 };

/* The rows of the embedding that `ids` name, f32 [T,H]. */
static void look_up(const hr_model *m, float to[T * H])
{
    size_t n;
    const hr_weight *const *all = hr_model_weights(m, &n);
    memset(to, 0, sizeof(float) * T * H);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(all[i]->name, "model.embed_tokens.weight")) continue;
        assert_int_equal(all[i]->format, HR_FORMAT_F32);
        for (int t = 0; t < TOKENS; t++)
            assert_int_equal(all[i]->read_rows(all[i], ids[t], 1, to + t * H), HR_OK);
        return;
    }
    fail_msg("no embedding");
}

static const void *host_input(const char *name, const float *embeddings)
{
    static int32_t positions[3 * T], slots[T], tables[BLOCKS] = { 0, 1, 2 };
    static const int32_t starts[2] = { 0, TOKENS }, lens[1] = { TOKENS };
    for (int t = 0; t < T; t++) {
        for (int axis = 0; axis < 3; axis++) positions[axis * T + t] = t;
        slots[t] = t < TOKENS ? t : -1;
    }
    const struct {
        const char *name;
        const void *data;
    } all[] = { { "ids", ids },      { "embeddings", embeddings }, { "positions", positions },
                { "slots", slots },  { "block_tables", tables },   { "query_starts", starts },
                { "seq_lens", lens } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) return all[i].data;
    return NULL; /* a cache */
}

static void run(hr_backend *b, const hr_model *m, hr_backbone_input input, const float *embeddings,
                float hidden[T * H])
{
    hr_build_options o = { .activation = HR_DTYPE_F32,
                           .kv_dtype = HR_DTYPE_F32,
                           .input = input,
                           .tokens = T,
                           .requests = 1,
                           .blocks = BLOCKS,
                           .block_size = BLOCK,
                           .table_width = BLOCKS };
    hr_graph *g;
    hr_program *p;
    hr_buffer *in[MOST] = { NULL }, *out[MOST] = { NULL };
    assert_int_equal(hr_model_build_backbone(m, &o, &g), HR_OK);
    assert_int_equal(hr_backend_compile(b, g, &p), HR_OK);
    assert_true(g->n_inputs <= MOST && g->n_outputs <= MOST);
    for (size_t i = 0; i < g->n_inputs; i++) {
        hr_tensor_desc d = { g->inputs[i]->dtype, g->inputs[i]->shape };
        const void *data = host_input(g->inputs[i]->name, embeddings);
        assert_int_equal(hr_buffer_create(b, &d, &in[i]), HR_OK);
        size_t bytes = (size_t)hr_shape_count(d.shape) * hr_dtype_size(d.dtype);
        if (data) assert_int_equal(hr_buffer_put(b, in[i], data, bytes), HR_OK);
    }
    hr_tensor_desc d = { HR_DTYPE_F32, HR_SHAPE(T, H) };
    assert_int_equal(hr_buffer_create(b, &d, &out[0]), HR_OK);
    for (size_t i = 1; i < g->n_outputs; i++) out[i] = in[g->outputs[i].donor];
    hr_execute_args args = { .inputs = in, .outputs = out };
    args.live[HR_LIVE_TOKENS] = TOKENS;
    hr_event done;
    assert_int_equal(hr_program_execute(b, p, &args, &done), HR_OK);
    assert_int_equal(hr_event_await(&done), HR_OK);
    assert_int_equal(hr_buffer_get(b, out[0], hidden, sizeof(float) * TOKENS * H), HR_OK);
    hr_buffer_destroy(out[0], b);
    for (size_t i = 0; i < g->n_inputs; i++) hr_buffer_destroy(in[i], b);
    hr_program_destroy(p, b);
    hr_graph_destroy(g);
}

static void same_bits(hr_backend *b)
{
    hr_model *m = load();
    float embeddings[T * H], from_ids[T * H], from_rows[T * H];
    look_up(m, embeddings);
    run(b, m, HR_INPUT_IDS, embeddings, from_ids);
    run(b, m, HR_INPUT_EMBEDDINGS, embeddings, from_rows);
    assert_memory_equal(from_ids, from_rows, sizeof(float) * TOKENS * H);
    embeddings[0] += 1.0f; /* and it is these rows that are read */
    run(b, m, HR_INPUT_EMBEDDINGS, embeddings, from_rows);
    assert_memory_not_equal(from_ids, from_rows, sizeof(float) * TOKENS * H);
    hr_backend_destroy(b);
    hr_model_release(m);
}

static void on_ref(void **state)
{
    (void)state;
    hr_backend *b;
    assert_int_equal(hr_ref_backend_create(&b), HR_OK);
    same_bits(b);
}

static void on_cpu(void **state)
{
    (void)state;
    hr_backend *b;
    assert_int_equal(hr_cpu_backend_create(NULL, &b), HR_OK);
    same_bits(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_ref),
        cmocka_unit_test(on_cpu),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
