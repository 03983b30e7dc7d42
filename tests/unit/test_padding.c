/* Padding of a step's host inputs: a backend of static shapes computes it, so every cell of a
 * bucket must be safe, whatever the step before has left in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/batch.h"

enum { TOKENS = 16, ROWS = 8, WIDTH = 4, BLOCK = 2, VOCAB = 64, TOP = 4 };

typedef struct fixture {
    hr_batch batch;
    hr_sampling plain, busy;
    hr_seq *seq[2];
    hr_step_item items[2];
    hr_step_plan plan;
    int32_t ids[2][2];
} fixture;

static hr_seq *make_seq(fixture *f, int i, const hr_sampling *sampling, int64_t n)
{
    static const int32_t prompt[2] = { 5, 6 };
    static const hr_sampler_limits limits = { .vocab = VOCAB,
                                              .max_model_len = WIDTH * BLOCK,
                                              .max_logprobs = TOP };
    hr_seq_spec spec = { .prompt = prompt,
                         .n_prompt = n,
                         .max_tokens = 2,
                         .block_size = BLOCK,
                         .sampling = sampling,
                         .limits = &limits };
    hr_seq *s;
    assert_int_equal(hr_seq_create(&spec, &s), HR_OK);
    s->blocks.ids[0] = 3 + i;
    s->blocks.n = 1;
    hr_sampler_state_set_slots(&s->sampling, 1, 0);
    f->items[i] = (hr_step_item){ .seq = s, .count = n, .samples = true };
    return s;
}

static void set_up(fixture *f, bool static_shapes)
{
    hr_batch_limits limits = { .tokens = TOKENS,
                               .requests = ROWS,
                               .rows = ROWS,
                               .table_width = WIDTH,
                               .block_size = BLOCK,
                               .static_shapes = static_shapes };
    hr_sampler_options sampler = { .vocab = VOCAB, .slots = ROWS + 1, .max_logprobs = TOP };
    *f = (fixture){ 0 };
    assert_int_equal(hr_batch_init(&f->batch, &limits, &sampler), HR_OK);
    hr_sampling_init(&f->plain);
    hr_sampling_init(&f->busy);
    f->busy.temperature = 0.5;
    f->busy.repetition_penalty = 1.5;
    f->busy.prompt_logprobs = 1;
    f->seq[0] = make_seq(f, 0, &f->busy, 2);
    f->seq[1] = make_seq(f, 1, &f->plain, 1);
    f->plan = (hr_step_plan){ .items = f->items, .n_items = 2, .n_tokens = 3, .n_rows = 2 };
}

static void tear_down(fixture *f)
{
    hr_seq_destroy(f->seq[0]);
    hr_seq_destroy(f->seq[1]);
    hr_batch_deinit(&f->batch);
}

/* As if a step of every row had gone before, of nothing but nonsense. */
static void poison(hr_batch *b)
{
    hr_sampling_inputs *in = b->sampling;
    int32_t *arrays[] = { b->ids,      b->slots, b->block_tables, b->query_starts,
                          b->seq_lens, b->rows,  b->targets,      b->positions };
    size_t cells[] = { TOKENS, TOKENS, ROWS * WIDTH, ROWS + 1, ROWS, ROWS, ROWS, 3 * TOKENS };
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        memset(arrays[i], 0xAA, cells[i] * sizeof **arrays);
#define SAMPLER_BYTES(columns) ((size_t)ROWS * (columns))
#define TABLES_BYTES(columns)                                                                      \
    ((columns) ? (size_t)(columns) : (size_t)(HR_TABLE_ROWS * hr_sampler_words(VOCAB)))
#define POISON(field, program, dtype, type, columns, identity)                                     \
    memset(in->field, 0xAA, program##_BYTES(columns) * sizeof(type));
    HR_SAMPLING_INPUTS(POISON)
#undef POISON
    in->filled = ROWS;
    in->n_clear = HR_TABLE_CLEARS;
    in->n_counts = HR_TABLE_COUNTS;
    in->n_allowed = in->n_grammar = HR_TABLE_ROWS;
}

/* Rows of the sampler past the live ones change nothing and read no table. */
static void check_sampling(const hr_batch *b)
{
    const hr_sampling_inputs *in = b->sampling;
    for (int64_t r = b->n_rows; r < ROWS; r++) {
        assert_true(in->temperature[r] == 1.0f && in->top_p[r] == 1.0f && in->min_p[r] == 0.0f);
        assert_true(in->presence[r] == 0.0f && in->frequency[r] == 0.0f);
        assert_true(in->repetition[r] == 1.0f);
        assert_true(in->greedy[r] == 0 && in->top_k[r] == VOCAB && in->position[r] == 0);
        assert_true(in->seed[2 * r] == 0 && in->seed[2 * r + 1] == 0);
        assert_true(in->bias_count[r] == 0 && in->banned_count[r] == 0);
        assert_true(!in->allowed_slot[r] && !in->grammar_slot[r] && !in->counts_slot[r]);
        assert_int_equal(in->wanted[r], 0);
        for (int k = 0; k < HR_SAMPLING_MAX_EXTRA; k++)
            assert_int_equal(in->extra_ids[r * HR_SAMPLING_MAX_EXTRA + k], -1);
    }
}

static void check_tokens(const hr_batch *b, int64_t bucket)
{
    for (int64_t t = b->n_tokens; t < bucket; t++) {
        assert_int_equal(b->ids[t], 0);
        assert_int_equal(b->slots[t], -1);
        for (int axis = 0; axis < 3; axis++) assert_int_equal(b->positions[axis * bucket + t], 0);
    }
    for (int64_t i = b->n_requests; i < ROWS; i++) {
        assert_int_equal(b->query_starts[i + 1], b->n_tokens);
        assert_int_equal(b->seq_lens[i], 0);
    }
}

static void check_tables(const hr_batch *b)
{
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t w = i < b->n_requests ? 1 : 0; w < WIDTH; w++)
            assert_int_equal(b->block_tables[i * WIDTH + w], 0);
    assert_int_equal(b->block_tables[0], 3);
    assert_int_equal(b->block_tables[WIDTH], 4);
}

static void every_cell_of_a_step_is_safe(void **state)
{
    (void)state;
    fixture f;
    set_up(&f, true);
    poison(&f.batch);
    hr_batch_build(&f.batch, &f.plan, TOKENS, ROWS);
    assert_int_equal(f.batch.n_tokens, 3);
    assert_int_equal(f.batch.n_rows, 2);
    check_tokens(&f.batch, TOKENS);
    check_tables(&f.batch);
    for (int64_t r = 2; r < ROWS; r++) assert_int_equal(f.batch.rows[r], 0);
    check_sampling(&f.batch);
    tear_down(&f);
}

/* Positions lie as far apart as the bucket is wide, also where it is not the largest. */
static void a_smaller_bucket_is_padded_to_its_own_end(void **state)
{
    (void)state;
    fixture f;
    set_up(&f, true);
    poison(&f.batch);
    hr_batch_build(&f.batch, &f.plan, 4, ROWS);
    check_tokens(&f.batch, 4);
    for (int axis = 0; axis < 3; axis++) assert_int_equal(f.batch.positions[axis * 4 + 1], 1);
    tear_down(&f);
}

static void prompt_rows_are_safe(void **state)
{
    (void)state;
    fixture f;
    set_up(&f, true);
    hr_batch_build(&f.batch, &f.plan, TOKENS, ROWS);
    poison(&f.batch);
    hr_batch_build_prompt(&f.batch, &f.plan, 0, 0, 1);
    assert_int_equal(f.batch.targets[0], 6);
    for (int64_t r = 1; r < ROWS; r++) {
        assert_int_equal(f.batch.rows[r], 0);
        assert_int_equal(f.batch.targets[r], 0);
    }
    check_sampling(&f.batch);
    tear_down(&f);
}

static void unused_table_writes_go_nowhere(void **state)
{
    (void)state;
    fixture f;
    set_up(&f, true);
    hr_sampling_inputs *in = f.batch.sampling;
    poison(&f.batch);
    hr_sampling_inputs_clear_tables(in);
    hr_seq *q = f.seq[0];
    assert_true(hr_sampling_inputs_feed(in, &q->sampling, q->tokens, q->n_prompt, q->n_tokens));
    assert_true(in->n_clear == 1 && in->n_counts == 2);
    for (int i = 1; i < HR_TABLE_CLEARS; i++) assert_int_equal(in->count_clear[i], -1);
    for (int i = 2; i < HR_TABLE_COUNTS; i++) assert_int_equal(in->count_slots[i], -1);
    for (int i = 0; i < HR_TABLE_ROWS; i++)
        assert_true(in->allowed_slots[i] == -1 && in->grammar_slots[i] == -1);
    tear_down(&f);
}

/* Where live counts are looked at, nobody pays for block tables that nobody reads. */
static void natively_block_tables_stay(void **state)
{
    (void)state;
    fixture f;
    set_up(&f, false);
    poison(&f.batch);
    hr_batch_build(&f.batch, &f.plan, TOKENS, ROWS);
    check_tokens(&f.batch, TOKENS);
    assert_int_equal(f.batch.block_tables[0], 3);
    assert_int_equal(f.batch.block_tables[1], (int32_t)0xAAAAAAAA);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_of_a_step_is_safe),
        cmocka_unit_test(a_smaller_bucket_is_padded_to_its_own_end),
        cmocka_unit_test(prompt_rows_are_safe),
        cmocka_unit_test(unused_table_writes_go_nowhere),
        cmocka_unit_test(natively_block_tables_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
