/* Drafts: what is read of the flag, what is proposed against a search of the whole text, and what
 * the scheduler makes of them - without a model. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/prefix.h"
#include "engine/scheduler.h"

/* ---- the flag -------------------------------------------------------------------------------- */

static void the_flag(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int64_t tokens, least, most;
        bool fixed;
    } good[] = {
        { "{\"method\":\"ngram\",\"num_speculative_tokens\":3}", 3, 5, 5, false },
        { "{\"num_speculative_tokens\":32,\"method\":\"ngram\",\"prompt_lookup_max\":4}", 32, 4, 4,
          false },
        { "{\"method\":\"ngram\",\"num_speculative_tokens\":1,\"prompt_lookup_min\":2}", 1, 2, 2,
          false },
        { "{\"method\":\"ngram\",\"num_speculative_tokens\":5,\"prompt_lookup_max\":64,"
          "\"prompt_lookup_min\":1}",
          5, 1, 64, false },
        { "{\"method\":\"ngram\",\"num_speculative_tokens\":2,"
          "\"enable_adaptive_verification\":false}",
          2, 5, 5, true },
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        hr_speculation s;
        assert_int_equal(hr_speculation_parse(hr_str_c(good[i].json), &s), HR_OK);
        assert_int_equal(s.tokens, good[i].tokens);
        assert_int_equal(s.least, good[i].least);
        assert_int_equal(s.most, good[i].most);
        assert_int_equal(s.adaptive, !good[i].fixed);
    }
}

static void the_flag_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "", "--speculative-config" },
        { "5", "JSON object" },
        { "{\"num_speculative_tokens\":5}", "method" },
        { "{\"method\":7,\"num_speculative_tokens\":5}", "method" },
        { "{\"method\":\"eagle\",\"num_speculative_tokens\":5}", "eagle" },
        { "{\"method\":\"ngram\"}", "num_speculative_tokens" },
        { "{\"method\":\"ngram\",\"num_speculative_tokens\":0}", "num_speculative_tokens" },
        { "{\"method\":\"ngram\",\"num_speculative_tokens\":33}", "num_speculative_tokens" },
        { "{\"method\":\"ngram\",\"num_speculative_tokens\":null}", "num_speculative_tokens" },
        { "{\"method\":\"ngram\",\"num_speculative_tokens\":5,\"prompt_lookup_max\":0}",
          "prompt_lookup_max" },
        { "{\"method\":\"ngram\",\"num_speculative_tokens\":5,\"prompt_lookup_max\":65}",
          "prompt_lookup_max" },
        { "{\"method\":\"ngram\",\"num_speculative_tokens\":5,\"prompt_lookup_min\":-1}",
          "prompt_lookup_min" },
        { "{\"method\":\"ngram\",\"num_speculative_tokens\":5,\"prompt_lookup_min\":3,"
          "\"prompt_lookup_max\":2}",
          "prompt_lookup_min" },
        { "{\"method\":\"ngram\",\"num_speculative_tokens\":5,\"model\":\"tiny\"}", "model" },
        { "{\"method\":\"ngram\",\"num_speculative_tokens\":5,"
          "\"enable_adaptive_verification\":1}",
          "enable_adaptive_verification" },
        { "{\"method\":\"ngram\",\"num_speculative_tokens\":5,\"num_speculative_tokens\":5}",
          "num_speculative_tokens" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hr_speculation s;
        assert_int_not_equal(hr_speculation_parse(hr_str_c(bad[i][0]), &s), HR_OK);
        assert_int_equal(s.tokens, 0);
        assert_non_null(strstr(hr_message(), bad[i][1]));
    }
}

/* ---- proposals ------------------------------------------------------------------------------- */

enum { LENGTH = 120, ROOM = 160 };

/* Every place from the newest to the oldest; the longest match wins, the newer of two alike. */
static int64_t search(const int32_t *tokens, int64_t n, int64_t least, int64_t most)
{
    int64_t best = least - 1, from = 0;
    for (int64_t place = n - 1; place >= least; place--) {
        int64_t length = 0;
        while (length < most && length < place &&
               tokens[place - 1 - length] == tokens[n - 1 - length])
            length++;
        if (length <= best) continue;
        best = length;
        from = place;
    }
    return from;
}

/* Of texts in which no run of tokens stands more often than a lookup goes back. */
static void the_longest_newest_match(void **state)
{
    (void)state;
    int proposed = 0;
    srand(3);
    for (int round = 0; round < 300; round++) {
        hr_speculation s = { .tokens = 6, .least = 1 + rand() % 4 };
        s.most = s.least + rand() % 4;
        int32_t tokens[ROOM], before[ROOM], letters = s.least > 2 ? 4 : 12;
        hr_ngram g;
        assert_int_equal(hr_ngram_init(&g, &s, before, ROOM), HR_OK);
        for (int64_t n = 1; n < LENGTH; n++) {
            tokens[n - 1] = rand() % letters;
            if (rand() % 4 == 0) continue; /* several tokens between two lookups */
            int64_t from = search(tokens, n, s.least, s.most);
            hr_ngram_guess(&g, tokens, n);
            assert_int_equal(g.n_guesses, from ? s.tokens : 0);
            for (int64_t i = 0; i < g.n_guesses; i++) {
                tokens[n + i] = tokens[from + i];
                assert_int_equal(g.guesses[i], tokens[n + i]);
            }
            proposed += g.n_guesses > 0;
        }
        hr_ngram_deinit(&g);
    }
    assert_true(proposed > 10000);
}

/* What is copied goes on in the copy. */
static void a_short_period_is_drawn_out(void **state)
{
    (void)state;
    hr_speculation s = { .tokens = 32, .least = 2, .most = 4 };
    int32_t tokens[64] = { 9, 1, 2, 1, 2 }, before[64];
    hr_ngram g;
    assert_int_equal(hr_ngram_init(&g, &s, before, 64), HR_OK);
    hr_ngram_guess(&g, tokens, 5);
    assert_int_equal(g.n_guesses, 32);
    for (int i = 0; i < 32; i++) assert_int_equal(g.guesses[i], i % 2 ? 2 : 1);
    hr_ngram_deinit(&g);
}

static int64_t worth(double rate, double price)
{
    hr_ngram g = { .n_guesses = 5, .right = rate * 1e9, .tried = 1e9 };
    return hr_ngram_worth(&g, price);
}

/* At a price of p, as many as have a chance above p, each needing those before it. */
static void what_guesses_are_worth(void **state)
{
    (void)state;
    assert_int_equal(worth(1, 0.99), 5);
    assert_int_equal(worth(0.8, 0), 5);
    assert_int_equal(worth(0.8, 0.6), 2); /* 0.8, 0.64, 0.512 */
    assert_int_equal(worth(0.8, 0.5), 3);
    assert_int_equal(worth(0.8, 0.85), 0);
    assert_int_equal(worth(0.01, 0), 5);
    hr_ngram none = { .right = 1, .tried = 1 }, fresh = { .n_guesses = 5 };
    assert_int_equal(hr_ngram_worth(&none, 0), 0);
    assert_int_equal(hr_ngram_worth(&fresh, 0.3), 1); /* 0.5, 0.25 */
}

/* What became of guesses, whether they were checked or not. */
static void guesses_are_counted(void **state)
{
    (void)state;
    hr_speculation s = { .tokens = 4, .least = 1, .most = 2 };
    int32_t tokens[64], before[64];
    for (int i = 0; i < 64; i++) tokens[i] = 1;
    hr_ngram g;
    assert_int_equal(hr_ngram_init(&g, &s, before, 64), HR_OK);
    for (int64_t n = 4; n <= 10; n++) hr_ngram_guess(&g, tokens, n); /* six came true one by one */
    assert_true(g.right == g.tried && g.right > 4.5 && g.right < 5);
    double right = g.right, tried = g.tried;
    tokens[12] = 2;
    hr_ngram_guess(&g, tokens, 13); /* two, and then another token */
    assert_true(fabs(g.right - (right * 0.9 + 2)) < 1e-9);
    assert_true(fabs(g.tried - (tried * 0.9 + 3)) < 1e-9);
    right = g.right, tried = g.tried;
    hr_ngram_guess(&g, tokens, 14); /* after a 2 nothing was known */
    assert_true(g.right == right && g.tried == tried);
    hr_ngram_guess(&g, tokens, 15); /* after a 1 that 2 was known */
    assert_true(fabs(g.right - right * 0.9) < 1e-9);
    assert_true(fabs(g.tried - (tried * 0.9 + 1)) < 1e-9);
    hr_ngram_guess(&g, tokens, 16); /* once more */
    right = g.right, tried = g.tried;
    hr_ngram_guess(&g, tokens, 30); /* all four, and more tokens than were guessed */
    assert_true(fabs(g.right - (right * 0.9 + 4)) < 1e-9);
    assert_true(fabs(g.tried - (tried * 0.9 + 4)) < 1e-9);
    hr_ngram_deinit(&g);
}

/* ---- the scheduler --------------------------------------------------------------------------- */

enum { DRAFTS = 4, BLOCK = 4 };

static const int64_t no_eos[1];

static void *grammar_begin(void *context, uint32_t choice)
{
    (void)choice;
    return context;
}

static void grammar_end(void *state)
{
    (void)state;
}

/* A prompt of ones, which proposes ones for ever; `plain` is one with a grammar. */
static hr_seq *make(uint64_t request, int64_t prompt, int64_t most, bool plain)
{
    static hr_sampling sampling;
    static const headrace_grammar grammar = {
        .size = sizeof grammar, .context = &sampling, .begin = grammar_begin, .end = grammar_end
    };
    hr_sampling_init(&sampling);
    sampling.seed = 1;
    int32_t ids[64];
    for (int i = 0; i < 64; i++) ids[i] = 1;
    hr_sampler_limits limits = { .vocab = 100, .max_model_len = 4096, .max_logprobs = 5 };
    hr_seq_spec spec = { .request = request,
                         .prompt = ids,
                         .n_prompt = prompt,
                         .max_tokens = most,
                         .block_size = BLOCK,
                         .sampling = &sampling,
                         .grammar = plain ? &grammar : NULL,
                         .limits = &limits,
                         .eos = no_eos,
                         .speculation = { .tokens = DRAFTS, .least = 1, .most = 2 } };
    spec.hashes = calloc(16, sizeof *spec.hashes);
    hr_block_hash *hashes = (hr_block_hash *)spec.hashes;
    hr_prefix_hash_chain((hr_str){ 0 }, ids, BLOCK, 0, prompt / BLOCK, hashes);
    hr_seq *q;
    assert_int_equal(hr_seq_create(&spec, &q), HR_OK);
    free(hashes);
    return q;
}

typedef struct bed {
    hr_scheduler s;
    hr_step_plan p;
    int64_t token_ns;
    int32_t other; /* tokens that nobody expects */
} bed;

static void init(bed *b, int64_t seqs, int64_t tokens, int32_t blocks)
{
    b->token_ns = 500000;
    b->other = 0;
    hr_scheduler_options o = { .max_num_seqs = seqs,
                               .max_num_batched_tokens = tokens,
                               .blocks = blocks,
                               .block_size = BLOCK,
                               .prefix_caching = true,
                               .drafts = true };
    assert_int_equal(hr_scheduler_init(&b->s, &o), HR_OK);
    assert_int_equal(hr_step_plan_init(&b->p, seqs), HR_OK);
}

static void deinit(bed *b)
{
    while (b->s.running.first || b->s.waiting.first) {
        hr_seq *q = b->s.running.first ? b->s.running.first : b->s.waiting.first;
        hr_scheduler_remove(&b->s, q);
        hr_seq_destroy(q);
    }
    assert_int_equal(b->s.pool.n_free, b->s.pool.total);
    hr_step_plan_deinit(&b->p);
    hr_scheduler_deinit(&b->s);
}

/* A step by itself takes 8 ms; an answer or a draft as much as the bed says. */
static int64_t step_ns(const bed *b)
{
    return 8000000 + b->p.n_tokens * b->token_ns;
}

/* No block is findable under tokens that are not a sequence's own. */
static void check_published(const bed *b)
{
    for (const hr_seq *q = b->s.running.first; q; q = q->next)
        assert_true(q->n_published * BLOCK <= q->n_tokens);
}

/* Plans and runs a step in which the first `right` drafts of every item are right, and then
 * something else. */
static void step(bed *b, int64_t right)
{
    int64_t tokens = 0, rows = 0;
    hr_scheduler_plan(&b->s, &b->p);
    check_published(b);
    for (int64_t i = 0; i < b->p.n_items; i++) {
        const hr_step_item *item = &b->p.items[i];
        tokens += item->count;
        rows += item->samples ? 1 + item->drafts : 0;
        assert_true(item->start + item->count <= item->seq->capacity);
        assert_true(item->start + item->count <= item->seq->blocks.n * BLOCK);
    }
    assert_int_equal(tokens, b->p.n_tokens);
    assert_int_equal(rows, b->p.n_rows);
    assert_true(tokens <= b->s.options.max_num_batched_tokens);
    hr_scheduler_commit(&b->s, &b->p, step_ns(b));
    for (int64_t i = 0; i < b->p.n_items; i++) {
        hr_step_item *item = &b->p.items[i];
        hr_seq *q = item->seq;
        if (!item->samples) continue;
        int64_t accepted = right < item->drafts ? right : item->drafts;
        q->n_tokens += accepted;
        q->tokens[q->n_tokens++] = right > item->drafts ? 1 : 2 + b->other++ % 90;
        if (item->drafts) hr_scheduler_accept(&b->s, item);
        assert_int_equal(q->n_computed, q->n_tokens - 1);
        assert_int_equal(q->blocks.n, (q->n_computed + BLOCK - 1) / BLOCK);
    }
}

static void drafts_are_planned_and_taken_back(void **state)
{
    (void)state;
    bed b;
    init(&b, 4, 64, 64);
    hr_seq *q = make(1, 6, 40, false), *plain = make(2, 6, 40, true);
    hr_scheduler_add(&b.s, q);
    hr_scheduler_add(&b.s, plain);
    step(&b, 9); /* the prompts */
    assert_int_equal(b.p.n_drafts, 0);
    step(&b, 2);
    assert_int_equal(b.p.n_drafts, DRAFTS);
    assert_int_equal(b.p.items[0].drafts, DRAFTS);
    assert_int_equal(b.p.items[1].drafts, 0); /* a grammar takes nothing back */
    assert_int_equal(b.p.n_prefill, 0);
    assert_int_equal(q->n_tokens, 6 + 1 + 3);
    step(&b, 0); /* after 1 1 2 nothing is known to follow */
    assert_int_equal(b.p.n_drafts, 0);
    deinit(&b);
}

/* The last token that a sequence may have is drawn after what is there; no draft goes past it. */
static void no_draft_is_past_the_end(void **state)
{
    (void)state;
    bed b;
    init(&b, 1, 64, 64);
    hr_seq *q = make(1, 4, 4, false);
    hr_scheduler_add(&b.s, q);
    step(&b, 9);
    step(&b, 0); /* of 4 two are left: one draft, since a token follows the last draft, too */
    assert_int_equal(b.p.n_drafts, 2);
    q->tokens[q->n_tokens - 1] = 1;
    step(&b, 9);
    assert_int_equal(b.p.n_drafts, 1);
    assert_int_equal(q->n_tokens, q->capacity);
    deinit(&b);
}

/* A budget of 8: everybody's next token first, then prompts, then drafts. */
static void drafts_take_what_is_left(void **state)
{
    (void)state;
    bed b;
    init(&b, 4, 8, 64);
    for (uint64_t i = 0; i < 3; i++) hr_scheduler_add(&b.s, make(i, 2, 30, false));
    step(&b, 9);
    step(&b, 9);
    assert_int_equal(b.p.n_items, 3);
    assert_int_equal(b.p.items[0].drafts, DRAFTS);
    assert_int_equal(b.p.items[1].drafts, 1);
    assert_int_equal(b.p.items[2].drafts, 0);
    hr_scheduler_add(&b.s, make(9, 40, 4, false));
    step(&b, 9);
    assert_int_equal(b.p.n_items, 4);
    assert_int_equal(b.p.items[3].count, 5); /* all that three answers leave */
    assert_int_equal(b.p.n_drafts, 0);
    deinit(&b);
}

/* Two sequences and no free block beyond what their next tokens need. */
static void drafts_push_nobody_out(void **state)
{
    (void)state;
    bed b;
    init(&b, 4, 64, 3); /* the first block is the same */
    hr_seq *q = make(1, 5, 11, false), *other = make(2, 6, 10, false);
    hr_scheduler_add(&b.s, q);
    hr_scheduler_add(&b.s, other);
    step(&b, 9);
    assert_int_equal(b.s.pool.n_free, 0);
    step(&b, 9); /* position 5 of q, and 6 and 7 behind it; position 6 of the other, and 7 */
    assert_int_equal(b.p.n_items, 2);
    assert_int_equal(b.p.items[0].drafts, 2);
    assert_int_equal(b.p.items[1].drafts, 1);
    assert_int_equal(b.s.counts.preemptions, 0);
    deinit(&b);
}

/* Drafts that are never right, of eight sequences, or always: with rows that cost little, or as
 * much as the rest of a step. */
static int64_t drafts_late(int64_t seqs, int64_t token_ns, int64_t right)
{
    bed b;
    init(&b, 8, 64, 1024);
    b.s.options.adaptive_drafts = true;
    b.token_ns = token_ns;
    for (int64_t i = 0; i < seqs; i++) hr_scheduler_add(&b.s, make((uint64_t)i, 8, 400, false));
    int64_t drafts = 0;
    for (int i = 0; i < 40; i++) {
        step(&b, i % 3 == 0 ? 9 : right); /* so that ones are there to be looked up */
        if (i >= 30) drafts += b.p.n_drafts;
    }
    deinit(&b);
    return drafts;
}

static void drafts_that_do_not_pay_are_few(void **state)
{
    (void)state;
    int64_t all = 8 * 10 * DRAFTS;
    assert_int_equal(drafts_late(8, 20000, 9), all);
    assert_int_equal(drafts_late(8, 2000000, 9), all);
    assert_true(drafts_late(1, 20000, 0) > 0);
    assert_int_equal(drafts_late(8, 4000000, 0), 0);
}

/* Sequences of all lengths that push each other out, whose drafts are right as chance has it. */
static void random_drafts(void **state)
{
    (void)state;
    bed b;
    int64_t drafts = 0, added = 0;
    srand(17);
    init(&b, 5, 24, 14);
    for (int i = 0; i < 3000; i++) {
        if (added < 400 && rand() % 3 == 0 && b.s.waiting.n < 4) {
            int64_t prompt = 1 + rand() % 30;
            hr_scheduler_add(&b.s,
                             make((uint64_t)added++, prompt, 1 + rand() % 20, rand() % 5 == 0));
        }
        step(&b, rand() % 6);
        drafts += b.p.n_drafts;
        for (hr_seq *q = b.s.running.first, *next; q; q = next) {
            next = q->next;
            assert_true(q->n_tokens <= q->capacity);
            if (q->n_tokens < q->capacity && rand() % 40) continue;
            hr_scheduler_remove(&b.s, q);
            hr_seq_destroy(q);
        }
    }
    assert_int_equal(added, 400);
    assert_true(drafts > 300);
    assert_true(b.s.counts.preemptions > 20);
    deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_flag),
        cmocka_unit_test(the_flag_refused),
        cmocka_unit_test(the_longest_newest_match),
        cmocka_unit_test(a_short_period_is_drawn_out),
        cmocka_unit_test(what_guesses_are_worth),
        cmocka_unit_test(guesses_are_counted),
        cmocka_unit_test(drafts_are_planned_and_taken_back),
        cmocka_unit_test(no_draft_is_past_the_end),
        cmocka_unit_test(drafts_take_what_is_left),
        cmocka_unit_test(drafts_push_nobody_out),
        cmocka_unit_test(drafts_that_do_not_pay_are_few),
        cmocka_unit_test(random_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
