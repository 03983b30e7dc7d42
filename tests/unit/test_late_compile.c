/* A compile after warm-up: counted and logged, or fatal by --check-recompilation, or expected under
 * --enforce-eager. A program is taken away from a running engine to make one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "engine/engine_int.h"
#include "model_files.h"

static int make_model(void **state)
{
    if (scratch_setup(state)) return 1;
    put_text(
        "config.json",
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\","
        "\"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 1,"
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"vocab_size\": 100,"
        "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0,"
        "\"hidden_act\": \"silu\", \"tie_word_embeddings\": true, \"torch_dtype\": \"float32\"}");
    return 0;
}

static void options(headrace_options *o)
{
    headrace_options_init(o);
    o->model = scratch;
    o->load_format = "dummy";
    o->max_num_seqs = 8;
    o->max_num_batched_tokens = 16;
    o->threads = 1;
}

static headrace_engine *start(int check, int eager)
{
    headrace_options o;
    options(&o);
    o.check_recompilation = check;
    o.enforce_eager = eager;
    headrace_engine *e;
    if (headrace_engine_create(&o, &e)) fail_msg("%s", headrace_message());
    return e;
}

/* Runs one request to its end; returns its status, the message in `message`. */
static int run(headrace_engine *e, char message[512])
{
    int64_t ids[] = { 1, 2, 3 };
    headrace_sampling s;
    headrace_request r;
    headrace_sampling_init(e, &s);
    headrace_request_init(&r);
    s.max_tokens = 2;
    r.prompt_ids = ids;
    r.n_prompt_ids = 3;
    r.sampling = &s;
    uint64_t id;
    assert_int_equal(headrace_submit(e, &r, &id), 0);
    int status = 0;
    headrace_event v = { .kind = HEADRACE_EVENT_STARTED };
    while (v.kind != HEADRACE_EVENT_DONE) {
        assert_int_equal(headrace_poll(e, &v, 30000), 0);
        if (v.kind != HEADRACE_EVENT_FAILED) continue;
        status = v.status;
        snprintf(message, 512, "%s", v.message);
    }
    return status;
}

/* The engine thread is idle here: it waits for a sequence. */
static void take_away(headrace_engine *e)
{
    hr_program_slot *s = &e->programs->backbone[0];
    hr_program_destroy(s->program, e->backend);
    for (size_t i = 0; i < s->n_inputs; i++)
        if (s->inputs[i].owned) hr_buffer_destroy(s->inputs[i].buffer, e->backend);
    s->program = NULL;
    s->n_inputs = s->n_outputs = 0;
}

static void is_counted_and_done(void **state)
{
    (void)state;
    char message[512];
    headrace_engine *e = start(0, 0);
    assert_int_equal(run(e, message), 0);
    take_away(e);
    assert_int_equal(run(e, message), 0);
    headrace_info info;
    headrace_info_get(e, &info);
    assert_int_equal(info.late_compilations, 1);
    assert_true(e->backend->sealed);
    headrace_engine_destroy(e);
}

static void is_fatal_when_checked(void **state)
{
    (void)state;
    char message[512] = "";
    headrace_engine *e = start(1, 0);
    assert_int_equal(run(e, message), 0);
    take_away(e);
    assert_int_equal(run(e, message), HEADRACE_FAILED_PRECONDITION);
    const char *says[] = { "late compilation", "backbone", "tokens=16", "f32",
                           "hr_runner_step",   "nearest",  "--buckets" };
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (!strstr(message, says[i])) fail_msg("'%s' is not in: %s", says[i], message);
    assert_int_equal(run(e, message), HEADRACE_FAILED_PRECONDITION); /* and stays so */
    headrace_engine_destroy(e);
}

static void is_expected_when_eager(void **state)
{
    (void)state;
    char message[512];
    headrace_engine *e = start(0, 1);
    assert_int_equal(e->backend->compiles, 0);
    assert_int_equal(run(e, message), 0);
    assert_int_equal(e->backend->compiles, 3); /* backbone, select, sampler */
    headrace_info info;
    headrace_info_get(e, &info);
    assert_int_equal(info.late_compilations, 0);
    headrace_engine_destroy(e);
}

static void eager_and_checked_are_refused_together(void **state)
{
    (void)state;
    headrace_options o;
    options(&o);
    o.check_recompilation = o.enforce_eager = 1;
    headrace_engine *e;
    assert_int_equal(headrace_engine_create(&o, &e), HEADRACE_INVALID_ARGUMENT);
    assert_null(e);
    assert_non_null(strstr(headrace_message(), "--enforce-eager"));
}

static void a_sealed_backend_refuses(void **state)
{
    (void)state;
    headrace_engine *e = start(0, 0);
    hr_graph *g;
    assert_int_equal(hr_graph_create("another", &g), HR_OK);
    hr_value *x = hr_graph_input(g, "x", HR_DTYPE_F32, HR_SHAPE(4, 4), HR_LIVE_ALL);
    hr_graph_output(g, "y", hr_op_scale(g, x, 2.0f));
    assert_int_equal(hr_graph_finish(g), HR_OK);
    hr_program *p;
    assert_int_equal(hr_backend_compile(e->backend, g, &p), HR_FAILED_PRECONDITION);
    assert_null(p);
    hr_graph_destroy(g);
    headrace_engine_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_counted_and_done),
        cmocka_unit_test(is_fatal_when_checked),
        cmocka_unit_test(is_expected_when_eager),
        cmocka_unit_test(eager_and_checked_are_refused_together),
        cmocka_unit_test(a_sealed_backend_refuses),
    };
    return cmocka_run_group_tests(tests, make_model, scratch_teardown);
}
