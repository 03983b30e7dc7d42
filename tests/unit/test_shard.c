/* Slices of a model for several devices, against the whole tensors: put together again they are
 * them, byte for byte, and what lies past the end is zeros. */
#include "unit/model_files.h"

static const char config[] =
    "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\",\"hidden_size\":48,"
    "\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":6,"
    "\"num_key_value_heads\":3,\"vocab_size\":50,\"max_position_embeddings\":64,"
    "\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"hidden_act\":\"silu\","
    "\"tie_word_embeddings\":true,\"torch_dtype\":\"float32\"}";

static hr_status load(int devices, hr_model **out)
{
    hr_model_options o = { .load_format = HR_LOAD_DUMMY, .dummy_seed = 9, .devices = devices };
    put_file("config.json", config, sizeof config - 1);
    return hr_model_load(scratch, &o, out);
}

/* All numbers of a weight, as its reader gives them. */
static float *numbers(const hr_weight *w)
{
    int64_t n = hr_shape_count(w->shape);
    float *to = hr_alloc((size_t)n * sizeof *to);
    assert_non_null(to);
    if (w->read_rows(w, 0, n / w->shape.dim[w->shape.rank - 1], to)) fail_msg("%s", hr_message());
    return to;
}

/* Element (row, column) of the whole, a vector being one column; zero past its end. */
static float whole_at(const hr_weight *w, const float *data, int64_t row, int64_t column)
{
    int64_t columns = w->shape.rank == 1 ? 1 : w->shape.dim[1];
    return row < w->shape.dim[0] ? data[row * columns + column] : 0;
}

/* Device r reads slice r * count / devices. */
static void check(const hr_weight *slice, const hr_weight *whole, int devices)
{
    assert_true(slice->shard.count > 1);
    float *all = numbers(whole);
    for (int r = 0; r < devices; r++) {
        hr_weight own = *slice;
        own.shard.rank = r * slice->shard.count / devices;
        float *part = numbers(&own);
        int64_t rows = own.shape.dim[0], columns = own.shape.rank == 1 ? 1 : own.shape.dim[1];
        int64_t row = own.shard.axis == 0 ? own.shard.rank * rows : 0;
        int64_t column = own.shard.axis == 1 ? own.shard.rank * columns : 0;
        for (int64_t i = 0; i < rows * columns; i++)
            if (part[i] != whole_at(whole, all, row + i / columns, column + i % columns))
                fail_msg("%s: slice %d of %d, element %lld", own.name, own.shard.rank,
                         own.shard.count, (long long)i);
        hr_free(part);
    }
    hr_free(all);
}

static void check_model(int devices)
{
    hr_model *m, *one;
    const hr_kv_spec *specs;
    size_t layers;
    if (load(devices, &m) || load(1, &one)) fail_msg("%s", hr_message());
    for (size_t l = 0; l < 2; l++) {
        const hr_layer *a = &m->layers[l], *b = &one->layers[l];
        const hr_weight *slices[] = { a->q,  a->k,    a->v,      a->o,      a->gate,
                                      a->up, a->down, a->q_bias, a->k_bias, a->v_bias };
        const hr_weight *wholes[] = { b->q,  b->k,    b->v,      b->o,      b->gate,
                                      b->up, b->down, b->q_bias, b->k_bias, b->v_bias };
        for (size_t i = 0; i < sizeof slices / sizeof *slices; i++)
            check(slices[i], wholes[i], devices);
        assert_int_equal(a->attn_norm->shard.count, 0);
    }
    check(m->head, one->head, devices);
    assert_int_equal(m->embed->shard.count, 0); /* tied, and whole where it is looked up */
    hr_model_kv_specs(m, &specs, &layers);
    assert_int_equal(specs[1].heads, devices > 3 ? 1 : 3 / devices);
    hr_model_release(m);
    hr_model_release(one);
}

static void test_slices(void **state)
{
    (void)state;
    check_model(3);
    check_model(6); /* two devices share a key/value head; 9 rows of logits each, 4 of them none */
}

static void refused(int devices, const char *part)
{
    hr_model *m;
    assert_int_equal(load(devices, &m), HR_INVALID_ARGUMENT);
    if (!strstr(hr_message(), part)) fail_msg("'%s' says nothing of '%s'", hr_message(), part);
}

static void test_counts(void **state)
{
    (void)state;
    refused(4, "6 attention heads cannot be dealt to 4 devices");
    refused(2, "3 key/value heads cannot be dealt to 2 devices");
    refused(-1, "-1 devices");
}

/* What a device reads of a slice may be any rows of it. */
static void test_parts_of_a_slice(void **state)
{
    (void)state;
    hr_model *m;
    if (load(3, &m)) fail_msg("%s", hr_message());
    const hr_weight *two[] = { m->head, m->layers[0].down };
    for (size_t i = 0; i < 2; i++) {
        hr_weight own = *two[i];
        own.shard.rank = 2;
        int64_t columns = own.shape.dim[1];
        float *all = numbers(&own), row[96];
        for (int64_t r = 0; r < own.shape.dim[0]; r++) {
            assert_int_equal(own.read_rows(&own, r, 1, row), HR_OK);
            assert_memory_equal(row, all + r * columns, (size_t)columns * sizeof *row);
        }
        hr_free(all);
    }
    hr_model_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_parts_of_a_slice),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
