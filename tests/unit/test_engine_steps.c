/* After warm-up: no compile, no malloc on the engine's threads, one execute per program and one
 * read-back a step, whatever the schedule.
 *
 * malloc is interposed, not our own counter: every allocation made on the threads that run steps
 * is seen, from anybody's code. Random requests with every kind of sampling option come and go
 * until 2,000 steps have run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "engine/engine_int.h"
#include "model_files.h"
#include "unit/byte_vocab.h"

/* ---- malloc, watched ------------------------------------------------------------------------- */

static hr_counter on_step_threads; /* allocations there since `armed` */
static hr_flag armed;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WATCHED 0
#else
#define WATCHED 1
static _Thread_local int is_step_thread = -1;

/* The threads that run steps are named: hr-engine, and the pool's workers. */
static void note_allocation(void)
{
    if (!hr_flag_get(&armed)) return;
    if (is_step_thread < 0) {
        char name[16] = { 0 };
        prctl(PR_GET_NAME, name);
        is_step_thread = (!strcmp(name, "hr-engine") || !strcmp(name, "hr-compute"));
    }
    if (is_step_thread) hr_counter_add(&on_step_threads, 1);
}

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
void *malloc(size_t n)
{
    note_allocation();
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
    note_allocation();
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
    note_allocation();
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n)
{
    note_allocation();
    return __libc_memalign(align, n);
}
#endif

/* ---- a model of random weights --------------------------------------------------------------- */

static const char config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\","
    "\"hidden_size\": 64, \"intermediate_size\": 128, \"num_hidden_layers\": 2,"
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 500,"
    "\"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0,"
    "\"hidden_act\": \"silu\", \"tie_word_embeddings\": true, \"bos_token_id\": 1,"
    "\"eos_token_id\": 2, \"torch_dtype\": \"float32\"}";

static void set_options(headrace_options *o)
{
    headrace_options_init(o);
    o->model = scratch;
    o->load_format = "dummy";
    o->max_num_seqs = 12;
    o->max_num_batched_tokens = 80;
    o->max_model_len = 256;
    o->kv_cache_memory_bytes = 400 << 10; /* small enough that sequences push each other out */
    o->check_recompilation = 1;
    o->threads = 2;
}

/* Bytes, then words that nobody writes, up to the model's vocabulary. */
static void put_tokenizer(void)
{
    hr_buf json = { 0 };
    byte_vocab_begin(&json);
    for (int id = 256; id < 500; id++)
        hr_buf_printf(&json, "%s{\"id\":%d,\"content\":\"<%d>\",\"special\":false}",
                      id > 256 ? "," : "", id, id);
    hr_buf_add_c(&json, "],\"pre_tokenizer\":{\"type\":\"ByteLevel\"},"
                        "\"decoder\":{\"type\":\"ByteLevel\"}}");
    put_text("tokenizer.json", hr_buf_c(&json));
    hr_buf_deinit(&json);
}

static int start(void **state)
{
    if (scratch_setup(state)) return 1;
    put_text("config.json", config);
    put_tokenizer();
    headrace_options o;
    set_options(&o);
    headrace_engine *e;
    if (headrace_engine_create(&o, &e)) fail_msg("%s", headrace_message());
    *state = e;
    return 0;
}

static int end(void **state)
{
    headrace_engine_destroy(*state);
    return scratch_teardown(state);
}

/* ---- a grammar ------------------------------------------------------------------------------- */

/* Every third token is let through, each time another third, and now and then all are. */
static void *grammar_begin(void *context, uint32_t choice)
{
    int *accepted = malloc(sizeof *accepted);
    (void)context, (void)choice;
    if (accepted) *accepted = 0;
    return accepted;
}

static int grammar_fill(void *state, uint32_t *words, size_t n_words)
{
    int accepted = *(int *)state;
    for (size_t id = 0; id < n_words * 32; id++)
        if ((int)(id % 3) == accepted % 3) words[id / 32] |= (uint32_t)1 << (id % 32);
    return accepted % 5 != 4;
}

static hr_counter astray; /* tokens that the mask did not let through */

static void grammar_accept(void *state, int64_t token)
{
    int *accepted = state;
    if (*accepted % 5 != 4 && token % 3 != *accepted % 3) hr_counter_add(&astray, 1);
    ++*accepted;
}

static const headrace_grammar thirds = { .size = sizeof thirds,
                                         .begin = grammar_begin,
                                         .fill = grammar_fill,
                                         .accept = grammar_accept,
                                         .end = free };

/* ---- traffic --------------------------------------------------------------------------------- */

/* What needs the tokenizer, and what may come; not so many at once that nothing is left. */
static void vary_words(headrace_sampling *s)
{
    static const int64_t asked[] = { 1, 99, 499 };
    static const char *const bad[] = { "a", "bc", "<77>" };
    static const char *const choice[] = { "yes", "no, never", "maybe", "may" };
    if (rand() % 4 == 0) {
        s->logprob_token_ids = asked;
        s->n_logprob_token_ids = 3;
    }
    if (s->allowed_token_ids || s->ignore_eos) return;
    int which = rand() % 6;
    if (which < 2) s->grammar = &thirds;
    if (which == 2 && !s->min_tokens) {
        s->choice = choice;
        s->n_choice = 4;
    }
    if (which > 3) {
        s->bad_words = bad;
        s->n_bad_words = 3;
    }
}

static void vary(headrace_sampling *s)
{
    static const int64_t some[] = { 5, 7, 11, 300 };
    static const double values[] = { 4, -4, 100, -100 };
    s->temperature = rand() % 3 ? 0.7 : 0;
    if (rand() % 2) s->top_k = 1 + rand() % 50;
    if (rand() % 2) s->top_p = 0.5;
    if (rand() % 2) s->min_p = 0.05;
    if (rand() % 3 == 0) s->presence_penalty = 1;
    if (rand() % 3 == 0) s->frequency_penalty = 0.5;
    if (rand() % 3 == 0) s->repetition_penalty = 1.3;
    if (rand() % 4 == 0) s->logprobs = rand() % 6;
    if (rand() % 4 == 0) s->prompt_logprobs = rand() % 6;
    if (rand() % 4 == 0) s->min_tokens = 3;
    if (rand() % 5 == 0) s->ignore_eos = 1;
    s->max_tokens = 1 + rand() % 60;
    if (s->min_tokens > s->max_tokens) s->min_tokens = s->max_tokens;
    if (rand() % 4 == 0) {
        s->logit_bias_ids = some;
        s->logit_bias_values = values;
        s->n_logit_bias = 4;
    }
    if (rand() % 5 == 0) {
        s->allowed_token_ids = some;
        s->n_allowed_token_ids = 4;
    }
    if (rand() % 5 == 0) {
        s->stop_token_ids = some;
        s->n_stop_token_ids = 2;
    }
    if (rand() % 6 == 0) s->n = 2;
    if (rand() % 4 == 0) s->sampling_trace = 1;
    vary_words(s);
}

static uint64_t submit(headrace_engine *e)
{
    int64_t ids[180];
    headrace_sampling s;
    headrace_request r;
    headrace_sampling_init(e, &s);
    headrace_request_init(&r);
    vary(&s);
    r.prompt_ids = ids;
    r.n_prompt_ids = 1 + (size_t)(rand() % (rand() % 4 ? 40 : 180));
    size_t shared = rand() % 2 ? r.n_prompt_ids / 2 : 0; /* with others' prompts */
    int64_t family = rand() % 3;
    for (size_t i = 0; i < r.n_prompt_ids; i++)
        ids[i] = i < shared ? ((int64_t)i * 7 + family) % 500 : rand() % 500;
    r.sampling = &s;
    uint64_t id = 0;
    if (headrace_submit(e, &r, &id)) fail_msg("%s", headrace_message());
    return id;
}

static uint64_t traced; /* tokens */
static bool may_err;    /* four allowed ids and a mask may leave nothing */

/* A filter adds nobody, and n ids cannot be more uncertain than n equal ones. */
static void check_trace(const headrace_trace *t)
{
    if (!t) return;
    traced++;
    for (int i = 1; i < 5; i++) assert_true(t->candidates[i] <= t->candidates[i - 1]);
    if (!t->drawn) return;
    assert_true(t->candidates[4] >= 1);
    assert_true(t->probability > 0 && t->probability <= 1);
    assert_true(t->entropy >= 0 && t->entropy <= log((double)t->candidates[4]) + 1e-5);
}

/* One event; true when it was a request's last. */
static bool drain_one(headrace_engine *e)
{
    headrace_event v;
    assert_int_equal(headrace_poll(e, &v, 60000), HEADRACE_OK);
    if (v.kind == HEADRACE_EVENT_FAILED) fail_msg("%s", v.message);
    for (size_t i = 0; v.kind == HEADRACE_EVENT_TOKENS && i < v.n_tokens; i++)
        check_trace(v.tokens[i].trace);
    if (v.kind == HEADRACE_EVENT_FINISHED && !may_err)
        assert_string_not_equal(v.finish_reason, "error");
    return v.kind == HEADRACE_EVENT_DONE;
}

static void run_traffic(headrace_engine *e, uint64_t steps)
{
    int open = 0;
    while (hr_counter_get(&e->stats.steps) < steps || open > 0) {
        while (hr_counter_get(&e->stats.steps) < steps && open < 30) {
            uint64_t id = submit(e);
            open++;
            if (rand() % 8 == 0) headrace_cancel(e, id);
        }
        if (drain_one(e)) open--;
    }
}

static uint64_t calls(const hr_ledger *l, hr_stage stage)
{
    uint64_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        if (l->rows[i].stage == stage) n += hr_counter_get(&l->rows[i].calls);
    return n;
}

static void two_thousand_steps(void **state)
{
    headrace_engine *e = *state;
    uint64_t steps = 2000, compiles = e->backend->compiles;
    uint64_t read_backs = e->runner.read_backs;
    srand(11);
    hr_flag_set(&armed, 1);
    run_traffic(e, steps);
    hr_flag_set(&armed, 0);
    assert_int_equal(e->backend->compiles, compiles);
    assert_int_equal(compiles, e->ledger.n); /* each program once, nothing besides */
    assert_int_equal(hr_counter_get(&e->ledger.late), 0);
    if (WATCHED) assert_int_equal(hr_counter_get(&on_step_threads), 0);

    uint64_t ran = hr_counter_get(&e->stats.steps), scored = calls(&e->ledger, HR_STAGE_PROMPT);
    uint64_t sampled = calls(&e->ledger, HR_STAGE_SAMPLER);
    assert_int_equal(calls(&e->ledger, HR_STAGE_BACKBONE), ran);
    assert_true(sampled <= ran && sampled > 0 && scored > 0);
    assert_int_equal(calls(&e->ledger, HR_STAGE_SELECT), sampled + scored);
    assert_int_equal(e->runner.read_backs - read_backs, sampled + scored);
    assert_true(calls(&e->ledger, HR_STAGE_TABLES) > 0);
    assert_true(traced > 1000);
    assert_int_equal(hr_counter_get(&astray), 0);
    assert_true(hr_counter_get(&e->stats.preemptions) > 0);
    assert_true(hr_counter_get(&e->stats.prefix_hits) > 0);
    assert_int_equal(e->scheduler.pool.n_free, e->scheduler.pool.total);
}

/* Masks that are others at every token, and biases, of every choice. */
static void steps_with_processors(void **state)
{
    (void)state;
    const char *all[] = { HR_PROCESSOR_FOLDER "/logits_processor_trigram.so",
                          HR_PROCESSOR_FOLDER "/logits_processor_bias.so=1:-2,20:3,300:0.5",
                          HR_PROCESSOR_FOLDER "/stub_processor.so=thirds" };
    headrace_options o;
    set_options(&o);
    o.logits_processors = all;
    o.n_logits_processors = 3;
    headrace_engine *e;
    if (headrace_engine_create(&o, &e)) fail_msg("%s", headrace_message());
    uint64_t before = hr_counter_get(&on_step_threads);
    srand(5);
    may_err = true;
    hr_flag_set(&armed, 1);
    run_traffic(e, 500);
    hr_flag_set(&armed, 0);
    may_err = false;
    if (WATCHED) assert_int_equal(hr_counter_get(&on_step_threads), before);
    assert_true(calls(&e->ledger, HR_STAGE_TABLES) > 100);
    assert_int_equal(hr_counter_get(&e->ledger.late), 0);
    headrace_engine_destroy(e);
}

/* ---- several tokens a step ------------------------------------------------------------------- */

enum { ASKED = 150, CHOICES = 2 * ASKED };

static const char speculation[] = "{\"method\":\"ngram\",\"num_speculative_tokens\":5,"
                                  "\"prompt_lookup_max\":3,\"prompt_lookup_min\":1,"
                                  "\"enable_adaptive_verification\":false}";

/* What a choice came to: ids, and a hash over ids and the bits of all that is told of them. */
typedef struct outcome {
    uint64_t bits, tokens;
    char reason[8];
} outcome;

static void mix(uint64_t *bits, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++) *bits = (*bits ^ ((const uint8_t *)p)[i]) * 0x100000001b3u;
}

static void take_token(outcome *o, const headrace_token *t)
{
    o->tokens++;
    mix(&o->bits, &t->chosen.token_id, sizeof t->chosen.token_id);
    mix(&o->bits, &t->chosen.logprob, sizeof t->chosen.logprob);
    for (size_t i = 0; i < t->n_top; i++) {
        mix(&o->bits, &t->top[i].token_id, sizeof t->top[i].token_id);
        mix(&o->bits, &t->top[i].logprob, sizeof t->top[i].logprob);
    }
    if (!t->trace) return;
    mix(&o->bits, t->trace->candidates, sizeof t->trace->candidates);
    mix(&o->bits, t->trace->thresholds, sizeof t->trace->thresholds);
    mix(&o->bits, &t->trace->entropy, sizeof t->trace->entropy);
    mix(&o->bits, &t->trace->position, sizeof t->trace->position);
}

/* Text repeats itself, and few ids may come, so that drafts are often right; a seed of its own. */
static uint64_t ask(headrace_engine *e, int number)
{
    static const int64_t few[] = { 3, 5, 7 };
    int64_t ids[60];
    headrace_sampling s;
    headrace_request r;
    headrace_sampling_init(e, &s);
    headrace_request_init(&r);
    vary(&s);
    s.seed = number;
    s.presence_penalty = s.frequency_penalty = rand() % 4 ? 0 : 0.5;
    s.repetition_penalty = rand() % 6 ? 1 : 1.2;
    if (rand() % 2 && !s.grammar && !s.n_choice) {
        s.allowed_token_ids = few;
        s.n_allowed_token_ids = 3;
    }
    r.prompt_ids = ids;
    r.n_prompt_ids = 1 + (size_t)(rand() % 60);
    int period = 1 + rand() % 6;
    for (size_t i = 0; i < r.n_prompt_ids; i++) ids[i] = 3 + (int)i % period * 2;
    r.sampling = &s;
    uint64_t id = 0;
    if (headrace_submit(e, &r, &id)) fail_msg("%s", headrace_message());
    return id;
}

static void collect(headrace_engine *e, uint64_t first, outcome *out, int *open)
{
    headrace_event v;
    assert_int_equal(headrace_poll(e, &v, 60000), HEADRACE_OK);
    if (v.kind == HEADRACE_EVENT_FAILED) fail_msg("%s", v.message);
    outcome *o = &out[(v.id - first) * 2 + v.choice];
    for (size_t i = 0; v.kind == HEADRACE_EVENT_TOKENS && i < v.n_tokens; i++)
        take_token(o, &v.tokens[i]);
    if (v.kind == HEADRACE_EVENT_TOKENS) mix(&o->bits, v.text, v.text_bytes);
    if (v.kind == HEADRACE_EVENT_FINISHED)
        snprintf(o->reason, sizeof o->reason, "%s", v.finish_reason);
    *open -= v.kind == HEADRACE_EVENT_DONE;
}

static void answer_all(headrace_engine *e, outcome *out)
{
    uint64_t first = 0;
    int open = 0, asked = 0;
    srand(23);
    while (asked < ASKED || open) {
        for (; asked < ASKED && open < 20; asked++, open++) {
            uint64_t id = ask(e, asked);
            if (!asked) first = id;
        }
        collect(e, first, out, &open);
    }
}

/* The same requests one token a step and several, in engines that push sequences out: the same. */
static void drafts_change_nothing(void **state)
{
    static outcome want[CHOICES], got[CHOICES];
    headrace_options o;
    set_options(&o);
    o.speculative_config_json = speculation;
    o.kv_cache_memory_bytes = 200 << 10;
    headrace_engine *e;
    if (headrace_engine_create(&o, &e)) fail_msg("%s", headrace_message());
    uint64_t compiles = e->backend->compiles, before = hr_counter_get(&on_step_threads);
    hr_flag_set(&armed, 1);
    answer_all(e, got);
    hr_flag_set(&armed, 0);
    if (WATCHED) assert_int_equal(hr_counter_get(&on_step_threads), before);
    assert_int_equal(e->backend->compiles, compiles);
    assert_int_equal(compiles, e->ledger.n);
    assert_true(hr_counter_get(&e->stats.preemptions) > 0);
    assert_true(hr_counter_get(&e->stats.prefix_hits) > 0);
    assert_int_equal(e->scheduler.pool.n_free, e->scheduler.pool.total);
    uint64_t accepted = hr_counter_get(&e->stats.accepted_tokens), at = 0;
    assert_true(hr_counter_get(&e->stats.drafts) > 100 && accepted > 100);
    assert_true(accepted < hr_counter_get(&e->stats.draft_tokens));
    for (int i = 0; i < HR_SPECULATION_TOKENS; i++) at += hr_counter_get(&e->stats.accepted_at[i]);
    assert_int_equal(at, accepted);
    headrace_engine_destroy(e);

    answer_all(*state, want);
    for (int i = 0; i < CHOICES; i++) {
        assert_int_equal(got[i].tokens, want[i].tokens);
        assert_int_equal(got[i].bits, want[i].bits);
        assert_string_equal(got[i].reason, want[i].reason);
    }
}

/* The watch itself sees what it is there to see. */
static void *allocate_once(void *unused)
{
    (void)unused;
    prctl(PR_SET_NAME, "hr-engine");
    void *volatile p = malloc(10);
    free(p);
    return NULL;
}

static void the_watch_sees(void **state)
{
    (void)state;
    if (!WATCHED) skip();
    uint64_t before = hr_counter_get(&on_step_threads);
    hr_flag_set(&armed, 1);
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, allocate_once, NULL), 0);
    pthread_join(t, NULL);
    hr_flag_set(&armed, 0);
    assert_true(hr_counter_get(&on_step_threads) > before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_thousand_steps),
        cmocka_unit_test(steps_with_processors),
        cmocka_unit_test(drafts_change_nothing),
        cmocka_unit_test(the_watch_sees),
    };
    return cmocka_run_group_tests(tests, start, end);
}
