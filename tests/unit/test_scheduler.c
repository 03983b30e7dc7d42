/* The scheduler alone: budget, chunking, preemption, blocks; no model, no backend. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "engine/pace.h"
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

static void init_options(hr_scheduler *s, hr_step_plan *p, hr_scheduler_options o)
{
    o.block_size = 16;
    assert_int_equal(hr_scheduler_init(s, &o), HR_OK);
    assert_int_equal(hr_step_plan_init(p, o.max_num_seqs), HR_OK);
}

static void init(hr_scheduler *s, hr_step_plan *p, int64_t seqs, int64_t tokens, int32_t blocks)
{
    init_options(s, p,
                 (hr_scheduler_options){
                     .max_num_seqs = seqs, .max_num_batched_tokens = tokens, .blocks = blocks });
}

static void deinit(hr_scheduler *s, hr_step_plan *p)
{
    assert_int_equal(s->pool.n_free, s->pool.total); /* every block came back */
    assert_int_equal(s->n_slots, s->options.max_num_seqs);
    hr_step_plan_deinit(p);
    hr_scheduler_deinit(s);
}

/* A machine on which a step costs 8 ms, an answer 0.5 and a prompt token 0.25. */
static int64_t step_ns(const hr_step_plan *p)
{
    return 8000000 + (p->n_tokens - p->n_prefill) * 500000 + p->n_prefill * 250000;
}

/* Runs a planned step: what was computed is noted, each row that samples gains a token. */
static void run(hr_scheduler *s, hr_step_plan *p)
{
    hr_scheduler_commit(s, p, step_ns(p));
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

/* ---- order ----------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const hr_seq *x = *(hr_seq *const *)a, *y = *(hr_seq *const *)b;
    return hr_waiting_before(x, y) ? -1 : hr_waiting_before(y, x);
}

/* The heap gives what sorting gives, with removals from anywhere in between. */
static void waiting_is_sorted(void **state)
{
    (void)state;
    enum { N = 300 };
    hr_seq all[N] = { 0 }, *left[N];
    srand(3);
    for (int round = 0; round < 50; round++) {
        hr_waiting w = { 0 };
        int64_t n = 0;
        for (int i = 0; i < N; i++) {
            all[i] = (hr_seq){ .priority = rand() % 4 - 2,
                               .request = (uint64_t)(round % 2 ? i / 3 : rand() % 1000),
                               .choice = (uint32_t)i };
            hr_waiting_add(&w, &all[i]);
        }
        for (int i = 0; i < N; i++)
            if (rand() % 3 == 0) hr_waiting_remove(&w, &all[i]);
            else left[n++] = &all[i];
        assert_int_equal(w.n, n);
        qsort(left, (size_t)n, sizeof *left, by_place);
        for (int64_t i = 0; i < n; i++) {
            assert_ptr_equal(w.first, left[i]);
            hr_waiting_remove(&w, w.first);
            if (i % 5 || i + 1 == n) continue; /* one goes and comes back to its place */
            hr_waiting_remove(&w, left[i + 1]);
            hr_waiting_add(&w, left[i + 1]);
        }
        assert_null(w.first);
        assert_int_equal(w.n, 0);
    }
}

static hr_seq *make_urgent(uint64_t request, int64_t prompt, int64_t most, int64_t priority)
{
    hr_seq *q = make(request, prompt, most);
    q->priority = priority;
    return q;
}

static void smaller_priorities_run_first(void **state)
{
    (void)state;
    hr_scheduler s;
    hr_step_plan p;
    init_options(&s, &p,
                 (hr_scheduler_options){ .max_num_seqs = 2,
                                         .max_num_batched_tokens = 64,
                                         .blocks = 64,
                                         .policy = HR_POLICY_PRIORITY });
    hr_seq *q[4];
    const int64_t priorities[] = { 0, 5, -3, 0 };
    for (uint64_t i = 0; i < 4; i++)
        hr_scheduler_add(&s, q[i] = make_urgent(i, 4, 8, priorities[i]));
    hr_scheduler_plan(&s, &p);
    assert_ptr_equal(p.items[0].seq, q[2]);
    assert_ptr_equal(p.items[1].seq, q[0]);
    run(&s, &p);
    hr_seq *late = make_urgent(9, 4, 8, -100); /* arriving alone pushes nobody out */
    hr_scheduler_add(&s, late);
    hr_scheduler_plan(&s, &p);
    assert_ptr_equal(p.items[0].seq, q[2]);
    assert_int_equal(s.counts.preemptions, 0);
    run(&s, &p);
    end(&s, q[2]);
    hr_scheduler_plan(&s, &p);
    assert_ptr_equal(p.items[1].seq, late);
    end(&s, late);
    end(&s, q[0]);
    end(&s, q[1]);
    end(&s, q[3]);
    deinit(&s, &p);
}

/* Blocks run out: the worst priority gives way, though it was admitted first and has its place in
 * the step already; what it holds serves the others in the same step. */
static void the_worst_priority_gives_way(void **state)
{
    (void)state;
    hr_scheduler s;
    hr_step_plan p;
    init_options(&s, &p,
                 (hr_scheduler_options){ .max_num_seqs = 4,
                                         .max_num_batched_tokens = 256,
                                         .blocks = 4,
                                         .policy = HR_POLICY_PRIORITY });
    hr_seq *low = make_urgent(1, 30, 20, 9), *high = make_urgent(2, 31, 20, 1);
    hr_scheduler_add(&s, low);
    hr_scheduler_plan(&s, &p);
    run(&s, &p);
    hr_scheduler_add(&s, high);
    hr_scheduler_plan(&s, &p);
    assert_int_equal(p.n_items, 2);
    run(&s, &p); /* both hold two blocks of the four; high is full with its 32nd token */
    int64_t steps = 0;
    while (!s.counts.preemptions && steps++ < 10) {
        hr_scheduler_plan(&s, &p);
        int64_t tokens = 0, rows = 0;
        for (int64_t i = 0; i < p.n_items; i++) {
            tokens += p.items[i].count;
            rows += p.items[i].samples;
        }
        assert_int_equal(tokens, p.n_tokens);
        assert_int_equal(rows, p.n_rows);
        run(&s, &p);
    }
    assert_int_equal(low->preemptions, 1);
    assert_int_equal(high->preemptions, 0);
    assert_int_equal(low->state, HR_SEQ_WAITING);
    assert_int_equal(p.n_items, 1);
    assert_ptr_equal(p.items[0].seq, high);
    end(&s, low);
    end(&s, high);
    deinit(&s, &p);
}

/* ---- prompts beside answers ------------------------------------------------------------------ */

static void a_long_prompt_leaves_room(void **state)
{
    (void)state;
    hr_scheduler s;
    hr_step_plan p;
    init(&s, &p, 64, 2048, 4096);
    enum { ANSWERS = 20 };
    hr_seq *q[ANSWERS];
    for (uint64_t i = 0; i < ANSWERS; i++) hr_scheduler_add(&s, q[i] = make(i, 4, 200));
    hr_seq *prompt = make(100, 4000, 4);
    for (int i = 0; i < 10; i++) {
        hr_scheduler_plan(&s, &p);
        run(&s, &p);
    }
    hr_scheduler_add(&s, prompt);
    int64_t alone = 8000000 + ANSWERS * 500000, slowest = 0;
    for (int i = 0; i < 200 && hr_seq_outputs(prompt) == 0; i++) {
        hr_scheduler_plan(&s, &p);
        assert_int_equal(p.n_items, ANSWERS + 1);
        assert_true(p.n_rows >= ANSWERS); /* nobody misses a token */
        if (i > 20 && step_ns(&p) > slowest) slowest = step_ns(&p);
        run(&s, &p);
    }
    assert_int_equal(hr_seq_outputs(prompt), 1);
    assert_true(slowest > alone + alone / 2 && slowest < alone * 22 / 10);
    for (int i = 0; i < ANSWERS; i++) end(&s, q[i]);
    hr_seq *other = make(101, 4000, 4); /* alone it has the whole budget */
    end(&s, prompt);
    hr_scheduler_add(&s, other);
    hr_scheduler_plan(&s, &p);
    assert_int_equal(p.n_tokens, 2048);
    end(&s, other);
    deinit(&s, &p);
}

/* The more wait for their first token, the more of the step is theirs: answers do not starve them.
 */
static void many_prompts_get_the_budget(void **state)
{
    (void)state;
    hr_scheduler s;
    hr_step_plan p;
    init(&s, &p, 512, 2048, 8192);
    hr_seq *q[400], *answer = make(1000, 4, 50);
    hr_scheduler_add(&s, answer);
    for (int i = 0; i < 10; i++) {
        hr_scheduler_plan(&s, &p);
        run(&s, &p);
    }
    for (uint64_t i = 0; i < 400; i++) hr_scheduler_add(&s, q[i] = make(i, 100, 4));
    for (int i = 0; i < 3; i++) {
        hr_scheduler_plan(&s, &p);
        assert_ptr_equal(p.items[0].seq, answer);
        run(&s, &p);
    }
    assert_int_equal(p.n_tokens, 2048);
    end(&s, answer);
    for (int i = 0; i < 400; i++) end(&s, q[i]);
    deinit(&s, &p);
}

/* A burst, beside one answer or after it: first tokens come soon after one another, and not all at
 * the end. */
static void burst(bool beside)
{
    enum { BURST = 15, TOKENS = 128 };
    hr_scheduler s;
    hr_step_plan p;
    init(&s, &p, 16, 2048, 4096);
    hr_seq *q[BURST], *answer = make(1000, TOKENS, 100);
    hr_scheduler_add(&s, answer);
    for (int i = 0; i < 10; i++) {
        hr_scheduler_plan(&s, &p);
        run(&s, &p);
    }
    if (!beside) end(&s, answer);
    for (uint64_t i = 0; i < BURST; i++) hr_scheduler_add(&s, q[i] = make(i, TOKENS, 50));
    int64_t prompts = BURST * TOKENS * INT64_C(250000), now = 0, half = 0, all = 0;
    while (!all) {
        hr_scheduler_plan(&s, &p);
        now += step_ns(&p);
        run(&s, &p);
        int started = 0;
        for (int i = 0; i < BURST; i++) started += hr_seq_outputs(q[i]) > 0;
        if (!half && started > BURST / 2) half = now;
        if (started == BURST) all = now;
    }
    assert_true(half < prompts * 3 / 4);
    assert_true(all < prompts * 2);
    if (beside) end(&s, answer);
    for (int i = 0; i < BURST; i++) end(&s, q[i]);
    deinit(&s, &p);
}

static void a_burst_starts_soon(void **state)
{
    (void)state;
    burst(true);
    burst(false);
}

static void a_threshold_is_kept(void **state)
{
    (void)state;
    hr_scheduler s;
    hr_step_plan p;
    init_options(&s, &p,
                 (hr_scheduler_options){ .max_num_seqs = 4,
                                         .max_num_batched_tokens = 512,
                                         .long_prefill_token_threshold = 100,
                                         .blocks = 64 });
    hr_seq *a = make(1, 250, 4), *b = make(2, 40, 4);
    hr_scheduler_add(&s, a);
    hr_scheduler_add(&s, b);
    const int64_t counts[] = { 100, 100, 50 };
    for (int i = 0; i < 3; i++) {
        hr_scheduler_plan(&s, &p);
        hr_seq *second = p.n_items > 1 ? p.items[1].seq : NULL;
        int64_t of_a = p.items[0].seq == a ? 0 : 1;
        assert_int_equal(p.items[of_a].count, counts[i]);
        if (i == 0) assert_int_equal(p.items[1].count, 40);
        assert_non_null(second);
        run(&s, &p);
    }
    end(&s, a);
    end(&s, b);
    deinit(&s, &p);
}

/* ---- twins ----------------------------------------------------------------------------------- */

static hr_seq *make_hashed(uint64_t request, int64_t prompt, int64_t most, int32_t first)
{
    hr_seq *q = make(request, prompt, most);
    int64_t full = q->capacity / 16;
    q->hashes = calloc((size_t)full + 1, sizeof *q->hashes); /* freed by end_hashed */
    q->n_hashed = prompt / 16;
    q->tokens[0] = first;
    hr_prefix_hash_chain((hr_str){ 0 }, q->tokens, 16, 0, q->n_hashed, q->hashes);
    return q;
}

static void end_hashed(hr_scheduler *s, hr_seq *q)
{
    if (q->state != HR_SEQ_ENDED) hr_scheduler_remove(s, q);
    free(q->hashes);
    hr_seq_destroy(q);
}

static void init_caching(hr_scheduler *s, hr_step_plan *p, int32_t blocks, hr_policy policy)
{
    init_options(s, p,
                 (hr_scheduler_options){ .max_num_seqs = 8,
                                         .max_num_batched_tokens = 256,
                                         .blocks = blocks,
                                         .policy = policy,
                                         .prefix_caching = true });
}

static void twins_of_one_step_share(void **state)
{
    (void)state;
    hr_scheduler s;
    hr_step_plan p;
    init_caching(&s, &p, 64, HR_POLICY_FCFS);
    hr_seq *a = make_hashed(1, 50, 40, 0), *b = make_hashed(2, 50, 40, 0),
           *c = make_hashed(3, 50, 40, 0);
    hr_scheduler_add(&s, a);
    hr_scheduler_add(&s, b);
    hr_scheduler_plan(&s, &p);
    assert_int_equal(p.n_items, 2);
    assert_int_equal(p.items[1].start, 48);
    assert_int_equal(p.items[1].count, 2);
    assert_int_equal(b->cached, 48);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(a->blocks.ids[i], b->blocks.ids[i]);
        assert_int_equal(s.pool.blocks[a->blocks.ids[i]].ref, 2);
    }
    assert_int_not_equal(a->blocks.ids[3], b->blocks.ids[3]); /* what is not full is one's own */
    run(&s, &p);
    hr_scheduler_remove(&s, a); /* its share lives on in the other */
    assert_int_equal(s.pool.blocks[b->blocks.ids[0]].ref, 1);
    for (int i = 0; i < 16; i++) { /* the answer's first block becomes full */
        hr_scheduler_plan(&s, &p);
        run(&s, &p);
    }
    assert_int_equal(b->n_published, 4);
    hr_scheduler_distrust(&s, b); /* nobody finds it any more, it keeps what it has */
    hr_scheduler_add(&s, c);
    hr_scheduler_plan(&s, &p);
    assert_int_equal(c->cached, 0);
    end_hashed(&s, c);
    end_hashed(&s, b);
    end_hashed(&s, a);
    deinit(&s, &p);
}

/* A sequence that was pushed out finds its own blocks, unless others needed them. */
static void a_preempted_one_finds_its_own(void **state)
{
    (void)state;
    hr_scheduler s;
    hr_step_plan p;
    init_caching(&s, &p, 8, HR_POLICY_FCFS);
    hr_seq *a = make_hashed(1, 62, 40, 0), *b = make_hashed(2, 62, 40, 5);
    hr_scheduler_add(&s, a);
    hr_scheduler_add(&s, b);
    int steps = 0;
    while (!b->preemptions && steps++ < 10) {
        hr_scheduler_plan(&s, &p);
        run(&s, &p);
    }
    assert_int_equal(b->preemptions, 1);
    assert_int_equal(a->preemptions, 0);
    int64_t had = b->n_tokens;
    hr_scheduler_remove(&s, a);
    hr_scheduler_plan(&s, &p);
    assert_ptr_equal(p.items[0].seq, b);
    /* a took the one that lay loosest, the last of b's four */
    assert_int_equal(p.items[0].start, 48);
    assert_int_equal(p.items[0].count, had - 48);
    assert_int_equal(s.counts.prefix_hits, 0); /* counted at first admissions only */
    end_hashed(&s, b);
    end_hashed(&s, a);
    deinit(&s, &p);
}

/* Random traffic with shared prefixes, both policies: counts of blocks stay right. */
static void random_twins(void **state)
{
    (void)state;
    for (int policy = 0; policy < 2; policy++) {
        hr_scheduler s;
        hr_step_plan p;
        init_caching(&s, &p, 20, (hr_policy)policy);
        srand(11);
        uint64_t next = 0;
        for (int step = 0; step < 4000; step++) {
            if (rand() % 3 == 0 && s.waiting.n < 20) {
                hr_seq *q = make_hashed(next++, 1 + rand() % 200, 1 + rand() % 60, rand() % 6);
                q->priority = policy ? rand() % 3 : 0;
                hr_scheduler_add(&s, q);
            }
            hr_scheduler_plan(&s, &p);
            int64_t held = 0;
            for (int32_t i = 0; i < s.pool.total; i++) held += s.pool.blocks[i].ref;
            for (hr_seq *q = s.running.first; q; q = q->next) held -= q->blocks.n;
            assert_int_equal(held, 0);
            run(&s, &p);
            for (hr_seq *q = s.running.first, *after; q; q = after) {
                after = q->next;
                assert_true(q->blocks.n * 16 >= q->n_computed);
                assert_ptr_equal(hr_scheduler_find(&s, q->request, 0), q);
                if (hr_seq_outputs(q) == q->max_tokens || rand() % 50 == 0) end_hashed(&s, q);
            }
        }
        assert_true(s.counts.preemptions > 0 && s.counts.prefix_hits > 0);
        while (s.running.first) end_hashed(&s, s.running.first);
        while (s.waiting.first) end_hashed(&s, s.waiting.first);
        deinit(&s, &p);
    }
}

/* On any machine the pace comes to the prompt tokens that a step of answers is worth. */
static void the_pace_is_found(void **state)
{
    (void)state;
    const double costs[][3] = { { 7e6, 0.93e6, 0.7e6 }, { 3e6, 1e4, 2e3 }, { 1e8, 1e6, 5e7 } };
    for (size_t k = 0; k < 3; k++) {
        hr_pace pace = { 0 };
        srand(5);
        assert_int_equal(hr_pace_tokens(&pace, 16), 0);
        for (int i = 0; i < 500; i++) {
            int64_t answers = i < 3 ? 0 : 10 + i / 50, prompt = i < 3 ? 500 : rand() % 64;
            double ns = costs[k][0] + costs[k][1] * (double)answers + costs[k][2] * (double)prompt;
            ns *= 0.95 + 0.1 * rand() / RAND_MAX;
            if (i % 50 == 49) ns *= 30; /* the thread was not running */
            hr_pace_note(&pace, answers, prompt, (int64_t)ns);
        }
        double want = (costs[k][0] + costs[k][1] * 16) / costs[k][2];
        double got = (double)hr_pace_tokens(&pace, 16);
        if (got < want * 0.5 - 1 || got > want * 2) fail_msg("%g instead of %g", got, want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_prompt_is_chunked),
        cmocka_unit_test(decode_goes_before_prefill),
        cmocka_unit_test(the_latest_makes_room),
        cmocka_unit_test(first_come_first_served),
        cmocka_unit_test(random_traffic),
        cmocka_unit_test(waiting_is_sorted),
        cmocka_unit_test(smaller_priorities_run_first),
        cmocka_unit_test(the_worst_priority_gives_way),
        cmocka_unit_test(a_long_prompt_leaves_room),
        cmocka_unit_test(many_prompts_get_the_budget),
        cmocka_unit_test(a_burst_starts_soon),
        cmocka_unit_test(a_threshold_is_kept),
        cmocka_unit_test(twins_of_one_step_share),
        cmocka_unit_test(a_preempted_one_finds_its_own),
        cmocka_unit_test(random_twins),
        cmocka_unit_test(the_pace_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
