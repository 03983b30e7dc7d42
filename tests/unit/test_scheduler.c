/* The scheduler alone: budget, chunking, preemption, blocks; no model, no backend. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "engine/scheduler.h"

static const int64_t no_eos[1];

static hr_seq *make(uint64_t request, int64_t prompt, int64_t most)
{
    static hr_sampling sampling;
    hr_sampling_init(&sampling);
    sampling.seed = 1;
    int32_t *ids = calloc((size_t)prompt, sizeof *ids);
    hr_sampler_limits limits = { .vocab = 100, .max_model_len = 4096, .max_logprobs = 5 };
    hr_seq_spec spec = { .request = request,
                         .prompt = ids,
                         .n_prompt = prompt,
                         .max_tokens = most,
                         .block_size = 16,
                         .sampling = &sampling,
                         .limits = &limits,
                         .eos = no_eos };
    hr_seq *q;
    assert_int_equal(hr_seq_create(&spec, &q), HR_OK);
    free(ids);
    return q;
}

static void init(hr_scheduler *s, hr_step_plan *p, int64_t seqs, int64_t tokens, int32_t blocks)
{
    hr_scheduler_options o = {
        .max_num_seqs = seqs, .max_num_batched_tokens = tokens, .block_size = 16, .blocks = blocks
    };
    assert_int_equal(hr_scheduler_init(s, &o), HR_OK);
    assert_int_equal(hr_step_plan_init(p, seqs), HR_OK);
}

static void deinit(hr_scheduler *s, hr_step_plan *p)
{
    assert_int_equal(s->pool.n_free, s->pool.total); /* every block came back */
    assert_int_equal(s->n_slots, s->options.max_num_seqs);
    hr_step_plan_deinit(p);
    hr_scheduler_deinit(s);
}

/* Runs a planned step: what was computed is noted, each row that samples gains a token. */
static void run(hr_scheduler *s, hr_step_plan *p)
{
    hr_scheduler_commit(s, p);
    for (int64_t i = 0; i < p->n_items; i++)
        if (p->items[i].samples) p->items[i].seq->tokens[p->items[i].seq->n_tokens++] = 1;
}

static void end(hr_scheduler *s, hr_seq *q)
{
    hr_scheduler_remove(s, q);
    hr_seq_destroy(q);
}

static void a_long_prompt_is_chunked(void **state)
{
    (void)state;
    hr_scheduler s;
    hr_step_plan p;
    init(&s, &p, 4, 16, 64);
    hr_seq *q = make(1, 40, 4);
    hr_scheduler_add(&s, q);
    const int64_t counts[] = { 16, 16, 8, 1, 1 };
    for (size_t i = 0; i < 5; i++) {
        hr_scheduler_plan(&s, &p);
        assert_int_equal(p.n_items, 1);
        assert_int_equal(p.items[0].count, counts[i]);
        assert_int_equal(p.items[0].samples, i >= 2);
        run(&s, &p);
    }
    end(&s, q);
    deinit(&s, &p);
}

static void decode_goes_before_prefill(void **state)
{
    (void)state;
    hr_scheduler s;
    hr_step_plan p;
    init(&s, &p, 4, 16, 64);
    hr_seq *a = make(1, 8, 8), *b = make(2, 100, 8);
    hr_scheduler_add(&s, a);
    hr_scheduler_plan(&s, &p);
    run(&s, &p);
    hr_scheduler_add(&s, b);
    for (int i = 0; i < 4; i++) { /* a keeps its token a step beside b's chunks */
        hr_scheduler_plan(&s, &p);
        assert_int_equal(p.n_items, 2);
        assert_ptr_equal(p.items[0].seq, a);
        assert_int_equal(p.items[0].count, 1);
        assert_int_equal(p.items[1].count, 15);
        run(&s, &p);
    }
    end(&s, a);
    end(&s, b);
    deinit(&s, &p);
}

static void the_latest_makes_room(void **state)
{
    (void)state;
    hr_scheduler s;
    hr_step_plan p;
    init(&s, &p, 4, 64, 4); /* four blocks of 16 tokens */
    hr_seq *a = make(1, 30, 20), *b = make(2, 30, 20);
    hr_scheduler_add(&s, a);
    hr_scheduler_add(&s, b);
    int64_t most_steps = 100;
    while ((hr_seq_outputs(a) < 20 || hr_seq_outputs(b) < 20) && most_steps--) {
        hr_scheduler_plan(&s, &p);
        assert_true(p.n_items > 0);
        run(&s, &p);
        if (a->state == HR_SEQ_RUNNING && hr_seq_outputs(a) == 20) hr_scheduler_remove(&s, a);
    }
    assert_true(s.counts.preemptions > 0);
    assert_int_equal(a->preemptions, 0); /* the first one never gives way */
    assert_true(b->preemptions > 0);
    assert_int_equal(hr_seq_outputs(b), 20); /* and the other still gets its tokens */
    hr_seq_destroy(a);
    end(&s, b);
    deinit(&s, &p);
}

static void first_come_first_served(void **state)
{
    (void)state;
    hr_scheduler s;
    hr_step_plan p;
    init(&s, &p, 2, 64, 64);
    hr_seq *q[4];
    for (uint64_t i = 0; i < 4; i++) hr_scheduler_add(&s, q[i] = make(i, 4, 4));
    hr_scheduler_plan(&s, &p);
    assert_int_equal(p.n_items, 2); /* max_num_seqs */
    assert_ptr_equal(p.items[0].seq, q[0]);
    assert_ptr_equal(p.items[1].seq, q[1]);
    run(&s, &p);
    assert_ptr_equal(hr_scheduler_find(&s, 3, HR_ALL_CHOICES), q[3]);
    assert_null(hr_scheduler_find(&s, 9, HR_ALL_CHOICES));
    end(&s, q[0]);
    hr_scheduler_plan(&s, &p);
    assert_ptr_equal(p.items[1].seq, q[2]);
    for (int i = 1; i < 4; i++) end(&s, q[i]);
    deinit(&s, &p);
}

/* Random arrivals, ends and cancels under block pressure: nothing leaks, budgets hold. */
static void random_traffic(void **state)
{
    (void)state;
    hr_scheduler s;
    hr_step_plan p;
    init(&s, &p, 8, 48, 40);
    srand(7);
    uint64_t next = 0;
    for (int step = 0; step < 5000; step++) {
        if (rand() % 3 == 0 && s.waiting.n < 20)
            hr_scheduler_add(&s, make(next++, 1 + rand() % 200, 1 + rand() % 60));
        hr_scheduler_plan(&s, &p);
        assert_true(p.n_tokens <= 48 && p.n_items <= 8 && s.running.n <= 8);
        run(&s, &p);
        for (hr_seq *q = s.running.first, *after; q; q = after) {
            after = q->next;
            assert_true(q->blocks.n * 16 >= q->n_computed);
            if (hr_seq_outputs(q) == q->max_tokens || rand() % 50 == 0) end(&s, q);
        }
    }
    assert_true(s.counts.preemptions > 0);
    while (s.running.first) end(&s, s.running.first);
    while (s.waiting.first) end(&s, s.waiting.first);
    deinit(&s, &p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_prompt_is_chunked), cmocka_unit_test(decode_goes_before_prefill),
        cmocka_unit_test(the_latest_makes_room),    cmocka_unit_test(first_come_first_served),
        cmocka_unit_test(random_traffic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
