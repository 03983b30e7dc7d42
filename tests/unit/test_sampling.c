/* The sampler room without a backend: what is refused, what a row becomes, how tables are fed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sampler/sampler.h"

enum { V = 100 };
static const hr_sampler_limits limits = { .vocab = V, .max_model_len = 512, .max_logprobs = 20 };
static const hr_sampler_options options = { .vocab = V, .slots = 5, .max_logprobs = 20 };

static void refused(const hr_sampling *s, const char *field)
{
    assert_int_equal(hr_sampling_check(s, &limits), HR_INVALID_ARGUMENT);
    if (strncmp(hr_message(), field, strlen(field)))
        fail_msg("expected %s, got '%s'", field, hr_message());
}

static hr_sampling defaults(void)
{
    hr_sampling s;
    hr_sampling_init(&s);
    return s;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void test_defaults_pass(void **state)
{
    (void)state;
    hr_sampling s = defaults();
    assert_int_equal(hr_sampling_check(&s, &limits), HR_OK);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.seed, -1);
    assert_int_equal(s.max_tokens, -1);
    assert_int_equal(s.logprobs, -1);
    assert_true(s.temperature == 1 && s.top_p == 1 && s.repetition_penalty == 1);
    assert_true(s.skip_special_tokens);
    assert_false(hr_sampling_is_greedy(&s));
}

static void test_numbers_out_of_range(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t at;
        double bad[5], good[2];
    } rules[] = {
        { "temperature",
          offsetof(hr_sampling, temperature),
          { -0.1, 2.01, NAN, INFINITY, -1 },
          { 0, 2 } },
        { "top_p", offsetof(hr_sampling, top_p), { 0, -0.1, 1.5, NAN, INFINITY }, { 1e-9, 1 } },
        { "min_p",
          offsetof(hr_sampling, min_p),
          { -0.1, 1.01, NAN, INFINITY, -INFINITY },
          { 0, 1 } },
        { "presence_penalty",
          offsetof(hr_sampling, presence_penalty),
          { -2.1, 2.1, NAN, INFINITY, 3 },
          { -2, 2 } },
        { "frequency_penalty",
          offsetof(hr_sampling, frequency_penalty),
          { -2.1, 2.1, NAN, INFINITY, 3 },
          { -2, 2 } },
        { "repetition_penalty",
          offsetof(hr_sampling, repetition_penalty),
          { 0, -1, NAN, INFINITY, -INFINITY },
          { 1e-3, 50 } },
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        for (int k = 0; k < 5; k++) {
            hr_sampling s = defaults();
            *(double *)((char *)&s + rules[i].at) = rules[i].bad[k];
            refused(&s, rules[i].name);
        }
        for (int k = 0; k < 2; k++) {
            hr_sampling s = defaults();
            *(double *)((char *)&s + rules[i].at) = rules[i].good[k];
            assert_int_equal(hr_sampling_check(&s, &limits), HR_OK);
        }
    }
}

static void test_integers_out_of_range(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t at;
        int64_t bad[2], good[2];
    } rules[] = {
        { "n", offsetof(hr_sampling, n), { 0, 1025 }, { 1, 1024 } },
        { "top_k", offsetof(hr_sampling, top_k), { -2, INT64_MIN }, { -1, INT64_MAX } },
        { "max_tokens", offsetof(hr_sampling, max_tokens), { 0, -2 }, { 1, INT64_MAX } },
        { "min_tokens", offsetof(hr_sampling, min_tokens), { -1, 513 }, { 0, 512 } },
        { NULL, offsetof(hr_sampling, seed), { 0 }, { INT64_MIN, INT64_MAX } },
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        for (int k = 0; k < 2; k++) {
            hr_sampling s = defaults();
            *(int64_t *)((char *)&s + rules[i].at) = rules[i].bad[k];
            if (rules[i].name) refused(&s, rules[i].name);
            s = defaults();
            *(int64_t *)((char *)&s + rules[i].at) = rules[i].good[k];
            assert_int_equal(hr_sampling_check(&s, &limits), HR_OK);
        }
    hr_sampling s = defaults();
    s.max_tokens = 3, s.min_tokens = 4;
    refused(&s, "min_tokens");
    s = defaults();
    s.logprobs = 21;
    refused(&s, "logprobs");
    s = defaults();
    s.prompt_logprobs = 21;
    refused(&s, "prompt_logprobs");
    s.max_tokens = 0, s.prompt_logprobs = 0; /* scoring a prompt */
    assert_int_equal(hr_sampling_check(&s, &limits), HR_OK);
}

/* A10: ids outside the width of the logits, each list in turn. */
static void test_ids_outside_the_vocabulary(void **state)
{
    (void)state;
    static const int64_t bad[] = { -1, V, 10000000, INT64_MAX, INT64_MIN, 5279552648203111001 };
    double value = 5;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hr_sampling s = defaults();
        s.stop_token_ids = &bad[i], s.n_stop_token_ids = 1, s.min_tokens = 1;
        refused(&s, "stop_token_ids");
        s = defaults();
        s.logit_bias_ids = &bad[i], s.logit_bias_values = &value, s.n_logit_bias = 1;
        refused(&s, "logit_bias");
        s = defaults();
        s.allowed_token_ids = &bad[i], s.n_allowed_token_ids = 1;
        refused(&s, "allowed_token_ids");
        s = defaults();
        s.logprob_token_ids = &bad[i], s.n_logprob_token_ids = 1;
        refused(&s, "logprob_token_ids");
    }
}

static void test_lists_too_long_or_empty(void **state)
{
    (void)state;
    static int64_t ids[2000];
    static double values[2000];
    static hr_str words[200];
    for (size_t i = 0; i < 200; i++) words[i] = HR_STR("x");
    hr_sampling s = defaults();
    s.stop = words, s.n_stop = 65;
    refused(&s, "stop");
    s = defaults();
    s.stop_token_ids = ids, s.n_stop_token_ids = 65;
    refused(&s, "stop_token_ids");
    s = defaults();
    s.logit_bias_ids = ids, s.logit_bias_values = values, s.n_logit_bias = 1025;
    refused(&s, "logit_bias");
    s.n_logit_bias = 2; /* the same id twice */
    refused(&s, "logit_bias");
    s.n_logit_bias = 1, values[0] = NAN;
    refused(&s, "logit_bias");
    s = defaults();
    s.allowed_token_ids = ids, s.n_allowed_token_ids = 0;
    refused(&s, "allowed_token_ids");
    s = defaults();
    s.logprob_token_ids = ids, s.n_logprob_token_ids = 129;
    refused(&s, "logprob_token_ids");
    s = defaults();
    s.bad_words = words, s.n_bad_words = 129;
    refused(&s, "bad_words");
    words[1] = HR_STR("");
    s.n_bad_words = 2;
    refused(&s, "bad_words");
    s = defaults();
    s.stop = words, s.n_stop = 2;
    refused(&s, "stop");
}

static void test_modes(void **state)
{
    (void)state;
    hr_logprobs_mode m;
    for (int i = HR_LOGPROBS_RAW; i <= HR_LOGPROBS_PROCESSED_LOGITS; i++) {
        const char *name = hr_logprobs_mode_name((hr_logprobs_mode)i);
        assert_int_equal(hr_logprobs_mode_parse(hr_str_c(name), &m), HR_OK);
        assert_int_equal(m, i);
    }
    assert_int_equal(hr_logprobs_mode_parse(HR_STR("raw"), &m), HR_INVALID_ARGUMENT);
}

static void test_drawn_seeds(void **state)
{
    (void)state;
    hr_sampling a = defaults(), b = defaults();
    assert_int_equal(hr_sampling_draw_seed(&a), HR_OK);
    assert_int_equal(hr_sampling_draw_seed(&b), HR_OK);
    assert_true(a.seed >= 0 && b.seed >= 0 && a.seed != b.seed);
    a.seed = -7;
    assert_int_equal(hr_sampling_draw_seed(&a), HR_OK);
    assert_int_equal(a.seed, -7);
}

/* ---- a greedy sampler ------------------------------------------------------------------------ */

/* NULL: taken. Otherwise the message must begin with the field and say why. */
static void expect_greedy(const hr_sampling *s, const char *field)
{
    hr_sampler_limits l = limits;
    l.kind = HR_SAMPLER_GREEDY;
    hr_status st = hr_sampling_check(s, &l);
    assert_int_equal(st, field ? HR_INVALID_ARGUMENT : HR_OK);
    if (!field) return;
    assert_memory_equal(hr_message(), field, strlen(field));
    assert_non_null(strstr(hr_message(), "--sampler greedy"));
    assert_int_equal(hr_sampling_check(s, &limits), HR_OK); /* a full one takes it */
}

static void test_a_greedy_sampler_refuses_what_it_has_not(void **state)
{
    (void)state;
    static const int64_t id = 4;
    static const double value = 1;
    static const hr_str word = { "word", 4 };
    hr_sampling s = defaults();
    expect_greedy(&s, "temperature");
    s.temperature = 1e-4;
    expect_greedy(&s, "temperature");
    s.top_k = 1; /* is greedy by definition */
    expect_greedy(&s, NULL);
    hr_sampling g = defaults();
    g.temperature = 0;
    expect_greedy(&g, NULL);
#define REFUSED(field, ...) s = g, __VA_ARGS__, expect_greedy(&s, field)
    REFUSED("presence_penalty", s.presence_penalty = 1);
    REFUSED("frequency_penalty", s.frequency_penalty = -1);
    REFUSED("repetition_penalty", s.repetition_penalty = 1.1);
    REFUSED("min_tokens", s.min_tokens = 1);
    REFUSED("logit_bias", s.logit_bias_ids = &id, s.logit_bias_values = &value, s.n_logit_bias = 1);
    REFUSED("allowed_token_ids", s.allowed_token_ids = &id, s.n_allowed_token_ids = 1);
    REFUSED("bad_words", s.bad_words = &word, s.n_bad_words = 1);
    REFUSED("logprobs", s.logprobs = 0);
    REFUSED("prompt_logprobs", s.prompt_logprobs = 0);
    REFUSED("sampling_trace", s.sampling_trace = true);
    REFUSED("logprob_token_ids", s.logprob_token_ids = &id, s.n_logprob_token_ids = 1);
#undef REFUSED
    s = g, s.top_p = 0.5, s.min_p = 0.1, s.top_k = 7, s.seed = 3, s.n = 4, s.max_tokens = 9;
    s.stop = &word, s.n_stop = 1, s.stop_token_ids = &id, s.n_stop_token_ids = 1;
    s.ignore_eos = s.include_stop_str_in_output = true;
    expect_greedy(&s, NULL); /* nothing that the sampler would see */
}

static void test_a_greedy_sampler_is_an_argmax(void **state)
{
    (void)state;
    enum { R = 3 };
    hr_sampler_options o = options;
    o.kind = HR_SAMPLER_GREEDY;
    o.used_vocab = V - 7;
    hr_graph *g;
    assert_int_equal(hr_graph_create("sampler", &g), HR_OK);
    hr_sampler_build(g, hr_graph_input(g, "logits", HR_DTYPE_F32, HR_SHAPE(R, V), HR_LIVE_ROWS),
                     &o);
    assert_int_equal(hr_graph_finish(g), HR_OK);
    assert_int_equal(g->n_inputs, 1);
    assert_int_equal(g->n_outputs, 2);
    assert_string_equal(g->outputs[0].name, "token");
    assert_string_equal(g->outputs[1].name, "status");
    const hr_node *token = g->outputs[0].value->producer, *status = g->outputs[1].value->producer;
    assert_true(token->op == HR_OP_argmax && token->in[0] == g->inputs[0]);
    assert_int_equal(token->attrs.n, V - 7);
    assert_true(status->op == HR_OP_row_status && status->in[0] == g->inputs[0]);
    hr_graph_destroy(g);
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct fixture {
    hr_arena arena;
    hr_sampling_inputs *in;
    hr_sampling sampling;
    hr_sampler_state s;
} fixture;

static void open_fixture(fixture *f)
{
    *f = (fixture){ .sampling = defaults() };
    assert_int_equal(hr_sampling_inputs_create(&options, 4, &f->in), HR_OK);
}

static void close_fixture(fixture *f)
{
    hr_sampling_inputs_destroy(f->in);
    hr_arena_deinit(&f->arena);
}

static void make_state(fixture *f, uint32_t choice)
{
    static const int64_t eos[] = { 2, 3, -1, V }; /* what the model does not have is left out */
    assert_int_equal(hr_sampler_state_init(&f->s, &f->arena, &f->sampling, &limits, eos, 4, choice),
                     HR_OK);
}

static void assert_identity(const hr_sampling_inputs *in, int64_t r)
{
    assert_true(in->temperature[r] == 1 && in->top_p[r] == 1 && in->min_p[r] == 0);
    assert_true(in->presence[r] == 0 && in->frequency[r] == 0 && in->repetition[r] == 1);
    assert_true(in->greedy[r] == 0 && in->top_k[r] == V && in->position[r] == 0);
    assert_true(in->seed[2 * r] == 0 && in->seed[2 * r + 1] == 0 && in->wanted[r] == 0);
    assert_true(in->bias_count[r] == 0 && in->banned_count[r] == 0);
    assert_true(in->allowed_slot[r] == 0 && in->grammar_slot[r] == 0 && in->counts_slot[r] == 0);
    for (int i = 0; i < HR_SAMPLING_MAX_EXTRA; i++)
        assert_int_equal(in->extra_ids[r * HR_SAMPLING_MAX_EXTRA + i], -1);
}

static void test_rows_start_and_end_as_the_identity(void **state)
{
    (void)state;
    static const int64_t ids[] = { 7, 9 };
    static const double values[] = { 3, -400 };
    static const int32_t tokens[] = { 1, 2, 3 };
    fixture f;
    open_fixture(&f);
    for (int r = 0; r < 4; r++) assert_identity(f.in, r);
    f.sampling.temperature = 0.5, f.sampling.top_k = 7, f.sampling.top_p = 0.9;
    f.sampling.min_p = 0.1, f.sampling.presence_penalty = 1, f.sampling.seed = -5;
    f.sampling.logprobs = 3, f.sampling.min_tokens = 9;
    f.sampling.logit_bias_ids = f.sampling.logprob_token_ids = ids;
    f.sampling.logit_bias_values = values;
    f.sampling.n_logit_bias = f.sampling.n_logprob_token_ids = 2;
    make_state(&f, 3);
    hr_sampler_state_set_slots(&f.s, 4, 0);
    hr_sampling_inputs_set_row(f.in, 2, &f.s, tokens, 2, 3);
    assert_true(f.in->temperature[2] == 0.5f && f.in->top_k[2] == 7 && f.in->position[2] == 3);
    assert_true(f.in->seed[4] == (uint32_t)-2 && f.in->seed[5] == UINT32_MAX); /* -5 + 3 */
    assert_true(f.in->bias_count[2] == 2 &&
                f.in->bias_values[2 * HR_SAMPLING_MAX_BIAS + 1] == -100);
    assert_true(f.in->banned_count[2] == 2 && f.in->banned_ids[2 * HR_SAMPLING_MAX_BANNED] == 2);
    assert_true(f.in->counts_slot[2] == 4 && f.in->wanted[2] == 3);
    assert_identity(f.in, 1);
    assert_identity(f.in, 3);
    hr_sampling_inputs_clear(f.in, 0);
    for (int r = 0; r < 4; r++) assert_identity(f.in, r);
    close_fixture(&f);
}

/* Children's seeds wrap modulo 2^64. */
static void test_seed_of_a_choice(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    f.sampling.seed = -1;
    make_state(&f, 1);
    assert_true(f.s.seed == 0);
    f.sampling.seed = INT64_MAX;
    make_state(&f, 1023);
    assert_true(f.s.seed == (uint64_t)INT64_MAX + 1023);
    close_fixture(&f);
}

static void test_greedy_rows_ask_for_nothing(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    f.sampling.top_p = 0.5, f.sampling.top_k = 40, f.sampling.min_p = 0.1;
    f.sampling.temperature = 9e-6;
    make_state(&f, 0);
    hr_sampling_inputs_set_row(f.in, 0, &f.s, NULL, 0, 0);
    assert_true(f.in->greedy[0] == 1 && f.in->temperature[0] == 0 && f.in->position[0] == -1);
    assert_true(f.in->top_k[0] == V && f.in->top_p[0] == 1 && f.in->min_p[0] == 0);
    assert_true(f.in->wanted[0] == -1); /* no logprobs: no softmax */
    f.sampling.temperature = 1e-5;      /* the least that is drawn, raised to 0.01 */
    hr_sampling_inputs_set_row(f.in, 0, &f.s, NULL, 0, 0);
    assert_true(f.in->greedy[0] == 0 && f.in->temperature[0] == 0.01f && f.in->top_k[0] == 40);
    f.sampling.top_k = 1;
    hr_sampling_inputs_set_row(f.in, 0, &f.s, NULL, 0, 0);
    assert_true(f.in->greedy[0] == 1 && f.in->position[0] == -1);
    close_fixture(&f);
}

static void test_bad_words(void **state)
{
    (void)state;
    static const int32_t one[] = { 5 }, two[] = { 6, 7 }, three[] = { 6, 6, 8 };
    static const hr_id_list words[] = { { one, 1 }, { two, 2 }, { three, 3 } };
    static const int32_t tokens[] = { 6, 6, 6, 6 };
    fixture f;
    open_fixture(&f);
    f.sampling.bad_word_ids = words, f.sampling.n_bad_word_ids = 3;
    make_state(&f, 0);
    static const int expected[] = { 1, 2, 3, 3 }; /* by output length; the prompt is no prefix */
    for (int64_t n_output = 0; n_output < 4; n_output++) {
        hr_sampling_inputs_set_row(f.in, 0, &f.s, tokens, 4 - n_output, 4);
        assert_int_equal(f.in->banned_count[0], expected[n_output]);
    }
    assert_true(f.in->banned_ids[0] == 5 && f.in->banned_ids[1] == 7 && f.in->banned_ids[2] == 8);
    static const int32_t outside[] = { V };
    static const hr_id_list bad[] = { { outside, 1 } }, empty[] = { { one, 0 } };
    f.sampling.n_bad_word_ids = 1;
    f.sampling.bad_word_ids = bad;
    assert_int_equal(hr_sampler_state_init(&f.s, &f.arena, &f.sampling, &limits, NULL, 0, 0),
                     HR_INVALID_ARGUMENT);
    f.sampling.bad_word_ids = empty;
    assert_int_equal(hr_sampler_state_init(&f.s, &f.arena, &f.sampling, &limits, NULL, 0, 0),
                     HR_INVALID_ARGUMENT);
    close_fixture(&f);
}

/* Everything that can be banned at once fits: 128 bad words, 64 stop ids, the model's EOS ids. */
static void test_ban_lists_fit(void **state)
{
    (void)state;
    static int32_t ids[HR_SAMPLING_MAX_BAD_WORDS];
    static hr_id_list words[HR_SAMPLING_MAX_BAD_WORDS];
    static int64_t stop[HR_SAMPLING_MAX_STOP], eos[32];
    const hr_sampler_limits wide = { .vocab = 1000, .max_model_len = 512 };
    for (int i = 0; i < HR_SAMPLING_MAX_BAD_WORDS; i++) {
        ids[i] = i;
        words[i] = (hr_id_list){ &ids[i], 1 };
    }
    for (int i = 0; i < HR_SAMPLING_MAX_STOP; i++) stop[i] = 200 + i;
    for (int i = 0; i < 32; i++) eos[i] = 300 + i;
    fixture f;
    open_fixture(&f);
    f.sampling.bad_word_ids = words, f.sampling.n_bad_word_ids = HR_SAMPLING_MAX_BAD_WORDS;
    f.sampling.stop_token_ids = stop, f.sampling.n_stop_token_ids = HR_SAMPLING_MAX_STOP;
    f.sampling.min_tokens = 1;
    assert_int_equal(hr_sampler_state_init(&f.s, &f.arena, &f.sampling, &wide, eos, 32, 0), HR_OK);
    hr_sampling_inputs_set_row(f.in, 3, &f.s, NULL, 0, 0);
    assert_int_equal(f.in->banned_count[3], 128 + 64 + 32);
    assert_true(f.in->banned_count[3] <= HR_SAMPLING_MAX_BANNED);
    close_fixture(&f);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void test_feeding_counts(void **state)
{
    (void)state;
    static int32_t tokens[HR_TABLE_COUNTS + 100];
    int64_t n_prompt = HR_TABLE_COUNTS + 50, n = HR_TABLE_COUNTS + 60;
    fixture f;
    open_fixture(&f);
    f.sampling.repetition_penalty = 1.5;
    make_state(&f, 0);
    assert_true(hr_sampler_state_wants_counts(&f.s));
    assert_false(hr_sampler_state_wants_allowed(&f.s));
    hr_sampler_state_set_slots(&f.s, 2, 0);
    assert_false(hr_sampling_inputs_changes(f.in));
    assert_false(hr_sampling_inputs_feed(f.in, &f.s, tokens, n_prompt, n)); /* full */
    assert_true(hr_sampling_inputs_changes(f.in));
    assert_true(f.in->n_clear == 1 && f.in->count_clear[0] == 2 && f.in->count_clear[1] == -1);
    assert_int_equal(f.in->n_counts, HR_TABLE_COUNTS);
    hr_sampling_inputs_clear_tables(f.in);
    assert_true(hr_sampling_inputs_feed(f.in, &f.s, tokens, n_prompt, n));
    assert_true(f.in->n_clear == 0 && f.in->n_counts == 60);
    assert_true(f.in->count_add[49] == -1 && f.in->count_add[50] == 1);
    assert_true(f.in->count_slots[59] == 2 && f.in->count_slots[60] == -1);
    hr_sampling_inputs_clear_tables(f.in);
    assert_true(hr_sampling_inputs_feed(f.in, &f.s, tokens, n_prompt, n)); /* nothing is new */
    assert_false(hr_sampling_inputs_changes(f.in));
    f.sampling.repetition_penalty = 1, f.sampling.presence_penalty = 1; /* the prompt is no use */
    hr_sampler_state_set_slots(&f.s, 3, 0);
    assert_true(hr_sampling_inputs_feed(f.in, &f.s, tokens, n_prompt, n));
    assert_true(f.in->n_counts == 10 && f.in->count_clear[0] == 3);
    close_fixture(&f);
}

static void test_feeding_masks(void **state)
{
    (void)state;
    static const int64_t ids[] = { 0, 31, 32, 99 };
    fixture f;
    open_fixture(&f);
    f.sampling.allowed_token_ids = ids, f.sampling.n_allowed_token_ids = 4;
    make_state(&f, 0);
    assert_true(hr_sampler_state_wants_allowed(&f.s));
    for (int i = 0; i < HR_TABLE_ROWS; i++) {
        hr_sampler_state_set_slots(&f.s, 0, 1 + i);
        assert_true(hr_sampling_inputs_feed(f.in, &f.s, NULL, 0, 0));
    }
    const uint32_t *row = f.in->allowed_rows + hr_sampler_words(V);
    assert_true(row[0] == 0x80000001u && row[1] == 1 && row[2] == 0 && row[3] == 8);
    assert_true(f.in->allowed_slots[1] == 2);
    hr_sampler_state_set_slots(&f.s, 0, 1);
    assert_false(hr_sampling_inputs_feed(f.in, &f.s, NULL, 0, 0));
    static const uint32_t grammar[4] = { 1, 2, 3, 4 };
    for (int i = 0; i < HR_TABLE_ROWS; i++)
        memcpy(hr_sampling_inputs_grammar(f.in, 1 + i), grammar, sizeof grammar);
    assert_null(hr_sampling_inputs_grammar(f.in, 1));
    hr_sampling_inputs_clear_tables(f.in);
    assert_false(hr_sampling_inputs_changes(f.in));
    assert_int_equal(f.in->grammar_slots[0], -1);
    close_fixture(&f);
}

/* ---- binding --------------------------------------------------------------------------------- */

static void test_every_graph_input_has_an_array(void **state)
{
    (void)state;
    enum { R = 3 };
    hr_graph *g[3];
    fixture f;
    open_fixture(&f);
    for (int k = 0; k < 3; k++) {
        hr_sampling_array a;
        assert_int_equal(hr_graph_create("sampler", &g[k]), HR_OK);
        hr_value *x =
            k < 2 ? hr_graph_input(g[k], "logits", HR_DTYPE_F32, HR_SHAPE(R, V), HR_LIVE_ROWS)
                  : NULL;
        if (k == 0) hr_sampler_build(g[k], x, &options);
        if (k == 1) hr_sampler_build_prompt(g[k], x, &options);
        if (k == 2) hr_sampler_build_tables(g[k], &options);
        assert_int_equal(hr_graph_finish(g[k]), HR_OK);
        for (size_t i = 0; i < g[k]->n_inputs; i++) {
            const hr_value *v = g[k]->inputs[i];
            if (!strcmp(v->name, "logits") || !strcmp(v->name, "targets") ||
                !strcmp(v->name, "counts") || !strcmp(v->name, "allowed") ||
                !strcmp(v->name, "grammar"))
                continue;
            assert_true(hr_sampling_inputs_find(f.in, v->name, R, &a));
            size_t bytes = (size_t)hr_shape_count(v->shape) * hr_dtype_size(v->dtype);
            assert_true((size_t)a.rows * a.row_bytes <= bytes);
            assert_int_equal((size_t)hr_shape_row(v->shape) * hr_dtype_size(v->dtype), a.row_bytes);
        }
        hr_graph_destroy(g[k]);
    }
    hr_sampling_array none;
    assert_false(hr_sampling_inputs_find(f.in, "nothing", R, &none));
    close_fixture(&f);
}

/* Bias and ban lists travel only as far as a row uses them. */
static void test_unused_lists_are_not_copied(void **state)
{
    (void)state;
    static const int64_t id = 4;
    static const double value = 1;
    hr_sampling_array a;
    fixture f;
    open_fixture(&f);
    assert_true(hr_sampling_inputs_find(f.in, "bias_ids", 4, &a) && a.rows == 0);
    f.sampling.logit_bias_ids = &id, f.sampling.logit_bias_values = &value;
    f.sampling.n_logit_bias = 1;
    make_state(&f, 0);
    hr_sampling_inputs_set_row(f.in, 1, &f.s, NULL, 0, 0);
    assert_true(hr_sampling_inputs_find(f.in, "bias_ids", 4, &a) && a.rows == 2);
    assert_true(hr_sampling_inputs_find(f.in, "bias_values", 1, &a) && a.rows == 1);
    assert_true(hr_sampling_inputs_find(f.in, "banned_ids", 4, &a) && a.rows == 0);
    assert_true(hr_sampling_inputs_find(f.in, "temperature", 4, &a) && a.rows == 4);
    hr_sampling_inputs_clear(f.in, 0);
    assert_true(hr_sampling_inputs_find(f.in, "bias_ids", 4, &a) && a.rows == 0);
    close_fixture(&f);
}

static void test_rows_and_tables_take_no_memory(void **state)
{
    (void)state;
    static const int32_t tokens[] = { 1, 2, 3 };
    fixture f;
    open_fixture(&f);
    f.sampling.repetition_penalty = 2;
    make_state(&f, 0);
    hr_sampler_state_set_slots(&f.s, 1, 0);
    uint64_t before = hr_alloc_count();
    for (int i = 0; i < 100; i++) {
        hr_sampling_inputs_clear(f.in, 0);
        hr_sampling_inputs_set_row(f.in, i % 4, &f.s, tokens, 1, 3);
        hr_sampling_inputs_clear_tables(f.in);
        assert_true(hr_sampling_inputs_feed(f.in, &f.s, tokens, 1, 3));
    }
    assert_true(hr_alloc_count() == before);
    close_fixture(&f);
}

/* ---- short memory ---------------------------------------------------------------------------- */

static int64_t calls_left, blocks_held;

static void *count_alloc(void *self, size_t bytes, size_t align)
{
    (void)self;
    void *p = NULL;
    if (calls_left-- <= 0) return NULL;
    if (align < sizeof(void *)) align = sizeof(void *);
    if (posix_memalign(&p, align, bytes)) return NULL;
    blocks_held++;
    return p;
}

static void *count_realloc(void *self, void *p, size_t bytes)
{
    (void)self;
    if (calls_left-- <= 0) return NULL;
    blocks_held += !p;
    return realloc(p, bytes);
}

static void count_free(void *self, void *p)
{
    (void)self;
    blocks_held -= p != NULL;
    free(p);
}

static hr_status make_all(void)
{
    static const int64_t ids[] = { 1, 2, 3 };
    hr_arena arena = { 0 };
    hr_sampling s = defaults();
    hr_sampler_state made;
    hr_sampling_inputs *in = NULL;
    s.allowed_token_ids = s.stop_token_ids = ids;
    s.n_allowed_token_ids = s.n_stop_token_ids = 3;
    hr_status st = hr_sampler_state_init(&made, &arena, &s, &limits, ids, 1, 0);
    if (!st) st = hr_sampling_inputs_create(&options, 8, &in);
    assert_true(st || in);
    hr_sampling_inputs_destroy(in);
    hr_arena_deinit(&arena);
    return st;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    static const hr_allocator counting = { count_alloc, count_realloc, count_free, NULL };
    hr_set_allocator(&counting);
    hr_status st = HR_RESOURCE_EXHAUSTED;
    int64_t n = 0;
    for (; st == HR_RESOURCE_EXHAUSTED && n < 1000; n++) {
        calls_left = n;
        blocks_held = 0;
        st = make_all();
        if (blocks_held) break;
    }
    hr_set_allocator(NULL);
    assert_int_equal(blocks_held, 0);
    assert_int_equal(st, HR_OK);
    assert_true(n > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_pass),
        cmocka_unit_test(test_numbers_out_of_range),
        cmocka_unit_test(test_integers_out_of_range),
        cmocka_unit_test(test_ids_outside_the_vocabulary),
        cmocka_unit_test(test_lists_too_long_or_empty),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_a_greedy_sampler_refuses_what_it_has_not),
        cmocka_unit_test(test_a_greedy_sampler_is_an_argmax),
        cmocka_unit_test(test_drawn_seeds),
        cmocka_unit_test(test_rows_start_and_end_as_the_identity),
        cmocka_unit_test(test_seed_of_a_choice),
        cmocka_unit_test(test_greedy_rows_ask_for_nothing),
        cmocka_unit_test(test_bad_words),
        cmocka_unit_test(test_ban_lists_fit),
        cmocka_unit_test(test_feeding_counts),
        cmocka_unit_test(test_feeding_masks),
        cmocka_unit_test(test_every_graph_input_has_an_array),
        cmocka_unit_test(test_unused_lists_are_not_copied),
        cmocka_unit_test(test_rows_and_tables_take_no_memory),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
