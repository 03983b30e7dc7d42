/* Continuous batching with a token budget: the policy of vLLM's V1 scheduler, with a limit on what
 * prompts may cost running answers.
 *
 * Engine thread only; owns the block pool and both lists, not the sequences' memory. There is no
 * prefill phase and no decode phase: a sequence has tokens, some of them computed, and a step takes
 * as many of the rest as budget and blocks allow. Chunked prefill, decode, recomputation after a
 * preemption and a prompt that is half in the cache are then the same thing, and none of them can
 * change an answer.
 *
 * Full blocks become findable when the step that fills them is planned, not when it has run: every
 * layer writes the keys and values of all the step's tokens before any of them attends, so a twin
 * in the same step already reads what its sibling writes. Nothing can come between a plan and its
 * step but the end of the engine.
 *
 * Drafts come last, out of what the step has left of the budget and of blocks: they push nobody
 * out, take no prompt's place, and are never findable before they have become tokens. */
#include "engine/scheduler.h"

#include <assert.h>
#include <string.h>

/* Beside answers, prompts get what takes half as long as a step in which every sequence is
 * answered, so that a step takes no more than one and a half times that: measured, since the tail
 * of the times between tokens then stays below twice their median. While many wait for their first
 * token beside few who are answered, a step's time is theirs in that proportion, up to eight such
 * steps: what is spent on prompts makes each answer wait, what is spent on answers each prompt; and
 * a step that took them all at once would end late for all, also where nobody is answered yet.
 * Never less than what keeps the matrices busy. */
enum { PREFILL_LEAST = 16, PREFILL_ALONE = 256 };
static const double prefill_least_steps = 0.5, prefill_most_steps = 8;

/* ---- life ------------------------------------------------------------------------------------ */

hr_status hr_scheduler_init(hr_scheduler *s, const hr_scheduler_options *o)
{
    *s = (hr_scheduler){ .options = *o };
    s->slots = hr_alloc_array0((size_t)o->max_num_seqs, sizeof *s->slots);
    s->chains = hr_alloc_array0(HR_SCHEDULER_CHAINS, sizeof *s->chains);
    hr_status st = HR_OK;
    if (!s->slots || !s->chains) st = hr_fail(HR_RESOURCE_EXHAUSTED, "scheduler");
    if (!st) st = hr_block_pool_init(&s->pool, o->blocks, o->prefix_caching ? o->block_size : 0);
    if (st) {
        hr_scheduler_deinit(s);
        return st;
    }
    for (int32_t i = 0; i < (int32_t)o->max_num_seqs; i++) s->slots[s->n_slots++] = i + 1;
    return HR_OK;
}

void hr_scheduler_deinit(hr_scheduler *s)
{
    hr_block_pool_deinit(&s->pool);
    hr_free(s->chains);
    hr_free(s->slots);
    *s = (hr_scheduler){ 0 };
}

hr_status hr_step_plan_init(hr_step_plan *p, int64_t max_num_seqs)
{
    *p = (hr_step_plan){ 0 };
    p->items = hr_alloc_array0((size_t)max_num_seqs, sizeof *p->items);
    return p->items ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "step plan");
}

void hr_step_plan_deinit(hr_step_plan *p)
{
    hr_free(p->items);
    *p = (hr_step_plan){ 0 };
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void running_add(hr_running *l, hr_seq *q)
{
    q->previous = l->last;
    q->next = NULL;
    if (l->last) l->last->next = q;
    else l->first = q;
    l->last = q;
    l->n++;
}

static void running_remove(hr_running *l, hr_seq *q)
{
    if (q->previous) q->previous->next = q->next;
    else l->first = q->next;
    if (q->next) q->next->previous = q->previous;
    else l->last = q->previous;
    q->next = q->previous = NULL;
    l->n--;
}

static hr_seq **chain_of(const hr_scheduler *s, uint64_t request)
{
    return &s->chains[request % HR_SCHEDULER_CHAINS];
}

hr_seq *hr_scheduler_find(const hr_scheduler *s, uint64_t request, uint32_t choice)
{
    hr_seq *q = *chain_of(s, request);
    while (q && (q->request != request || (choice != HR_ALL_CHOICES && q->choice != choice)))
        q = q->chain;
    return q;
}

void hr_scheduler_add(hr_scheduler *s, hr_seq *seq)
{
    hr_seq **chain = chain_of(s, seq->request);
    seq->chain = *chain;
    *chain = seq;
    seq->state = HR_SEQ_WAITING;
    hr_waiting_add(&s->waiting, seq);
}

/* Everything a running sequence holds on the device goes back: blocks and its table row. */
static void release(hr_scheduler *s, hr_seq *q)
{
    hr_block_list_trim(&q->blocks, &s->pool, 0, s->options.block_size);
    q->n_computed = q->n_published = 0;
    if (q->slot) s->slots[s->n_slots++] = q->slot;
    q->slot = 0;
}

/* Its request no longer counts as queued. */
static void dequeue(hr_scheduler *s, hr_seq *q)
{
    if (q->queued_tokens < 0) return;
    s->counts.dequeued_requests++;
    s->counts.dequeued_tokens += (uint64_t)q->queued_tokens;
    q->queued_tokens = -1;
}

void hr_scheduler_remove(hr_scheduler *s, hr_seq *seq)
{
    hr_seq **chain = chain_of(s, seq->request);
    while (*chain != seq) chain = &(*chain)->chain;
    *chain = seq->chain;
    if (seq->state == HR_SEQ_RUNNING) running_remove(&s->running, seq);
    else hr_waiting_remove(&s->waiting, seq);
    release(s, seq);
    dequeue(s, seq);
    seq->state = HR_SEQ_ENDED;
}

/* ---- the prefix cache ------------------------------------------------------------------------ */

/* Leading blocks of a waiting sequence that the cache holds, their ids in its list, not yet taken.
 * At least one token stays to be computed. Log-probabilities of a prompt need it all computed. */
static int32_t find_prefix(const hr_scheduler *s, hr_seq *q)
{
    int64_t size = s->options.block_size, most = (q->n_tokens - 1) / size;
    int32_t n = 0;
    if (!q->hashes || q->prompt) return 0;
    if (most > q->n_hashed) most = q->n_hashed;
    for (; n < most; n++) {
        int32_t id = hr_block_pool_find(&s->pool, &q->hashes[n], q->tokens + n * size);
        if (id < 0) break;
        q->blocks.ids[n] = id;
    }
    return n;
}

/* The blocks that are full once `positions` are computed can be found from here on. */
static void publish(hr_scheduler *s, hr_seq *q, int64_t positions)
{
    int64_t size = s->options.block_size, full = positions / size;
    if (!q->hashes || full == q->n_published) return;
    hr_prefix_hash_chain(q->cache_key, q->tokens, size, q->n_hashed, full, q->hashes);
    if (full > q->n_hashed) q->n_hashed = full;
    for (int64_t i = q->n_published; i < full; i++)
        hr_block_pool_publish(&s->pool, q->blocks.ids[i], &q->hashes[i], q->tokens + i * size);
    q->n_published = full;
}

void hr_scheduler_distrust(hr_scheduler *s, hr_seq *seq)
{
    for (int32_t i = 0; i < seq->blocks.n; i++)
        hr_block_pool_withdraw(&s->pool, seq->blocks.ids[i]);
}

/* ---- planning -------------------------------------------------------------------------------- */

/* A step being planned. */
typedef struct planning {
    hr_scheduler *s;
    hr_step_plan *plan;
    int64_t prefill; /* tokens that prompts may still take */
    bool preempted;
} planning;

static bool decodes(const hr_seq *q)
{
    return q->n_tokens - q->n_computed == 1;
}

/* Tokens of q, computed up to `from`, that this step may take under what is left of the budgets. */
static int64_t share(const planning *p, const hr_seq *q, int64_t from)
{
    const hr_scheduler_options *o = &p->s->options;
    int64_t n = q->n_tokens - from, most = o->long_prefill_token_threshold;
    if (most > 0 && n > most) n = most;
    if (n > 1 && n > p->prefill) n = p->prefill;
    int64_t budget = o->max_num_batched_tokens - p->plan->n_tokens;
    return n < budget ? n : budget;
}

static void schedule(planning *p, hr_seq *q, int64_t count)
{
    hr_step_plan *plan = p->plan;
    bool samples = q->n_computed + count == q->n_tokens;
    plan->items[plan->n_items++] =
        (hr_step_item){ .seq = q, .start = q->n_computed, .count = count, .samples = samples };
    plan->n_tokens += count;
    plan->n_rows += samples;
    if (count == 1) return;
    plan->n_prefill += count;
    p->prefill -= count;
}

static void unschedule(planning *p, const hr_seq *q)
{
    hr_step_plan *plan = p->plan;
    int64_t i = 0;
    while (i < plan->n_items && plan->items[i].seq != q) i++;
    if (i == plan->n_items) return;
    plan->n_tokens -= plan->items[i].count;
    plan->n_rows -= plan->items[i].samples;
    if (plan->items[i].count > 1) {
        plan->n_prefill -= plan->items[i].count;
        p->prefill += plan->items[i].count;
    }
    for (plan->n_items--; i < plan->n_items; i++) plan->items[i] = plan->items[i + 1];
}

/* Who gives way: the latest admitted, or the one with the worst priority and latest arrival. */
static hr_seq *victim_of(const hr_scheduler *s)
{
    hr_seq *worst = s->running.last;
    if (s->options.policy == HR_POLICY_FCFS) return worst;
    for (hr_seq *q = s->running.first; q; q = q->next)
        if (hr_waiting_before(worst, q)) worst = q;
    return worst;
}

/* Frees its blocks; it will be computed again from its tokens, as far as the cache forgets them. */
static void preempt(planning *p, hr_seq *victim)
{
    hr_scheduler *s = p->s;
    unschedule(p, victim);
    running_remove(&s->running, victim);
    release(s, victim);
    victim->preemptions++;
    s->counts.preemptions++;
    p->preempted = true;
    victim->state = HR_SEQ_WAITING;
    hr_waiting_add(&s->waiting, victim);
}

/* Schedules running sequences that decode, or those that do not; each may push out who is to give
 * way, even if it had its place in the step already. */
static void plan_running(planning *p, bool decoding)
{
    hr_scheduler *s = p->s;
    for (hr_seq *q = s->running.first, *next; q; q = next) {
        next = q->next;
        if (decodes(q) != decoding) continue;
        int64_t n = share(p, q, q->n_computed);
        if (n == 0) return;
        bool out = false; /* alone it always fits: its request was checked */
        while (!out && !hr_block_list_cover(&q->blocks, &s->pool, q->n_computed + n,
                                            s->options.block_size)) {
            hr_seq *victim = victim_of(s);
            out = victim == q;
            if (victim == next) next = victim->next;
            preempt(p, victim);
        }
        if (!out) schedule(p, q, n);
    }
}

static void admit(hr_scheduler *s, hr_seq *q)
{
    hr_waiting_remove(&s->waiting, q);
    running_add(&s->running, q);
    q->state = HR_SEQ_RUNNING;
    q->slot = s->slots[--s->n_slots];
    hr_sampler_state *state = &q->sampling;
    hr_sampler_state_set_slots(state, hr_sampler_state_wants_counts(state) ? q->slot : 0,
                               hr_sampler_state_wants_allowed(state) ? q->slot : 0);
    dequeue(s, q);
    if (q->started_s > 0) return;
    q->started_s = hr_now_s();
    q->cached = q->n_computed;
    if (!q->hashes || q->prompt) return;
    s->counts.prefix_queries += (uint64_t)q->n_prompt;
    s->counts.prefix_hits += (uint64_t)q->cached;
}

static void plan_waiting(planning *p)
{
    hr_scheduler *s = p->s;
    while (s->waiting.first && s->running.n < s->options.max_num_seqs && s->pool.n_free &&
           p->prefill > 0 && p->plan->n_tokens < s->options.max_num_batched_tokens) {
        hr_seq *q = s->waiting.first;
        int32_t found = find_prefix(s, q);
        int64_t from = found * s->options.block_size, n = share(p, q, from);
        if (n == 0) return;
        if (!hr_block_list_adopt(&q->blocks, &s->pool, found, from + n, s->options.block_size))
            return;
        q->n_computed = from;
        q->n_published = found;
        admit(s, q);
        schedule(p, q, n);
        publish(s, q, from + n);
    }
}

/* Tokens that prompts get in a step beside so many answers. With none, one prompt gets all that the
 * budget has, and so do several until it is known what a step costs. */
static int64_t prefill_beside(const hr_scheduler *s, int64_t answers)
{
    int64_t all = s->waiting.n + s->running.n, most = s->options.max_num_seqs;
    if (all > most) all = most;
    int64_t pace = hr_pace_tokens(&s->pace, all);
    if (!answers && (all < 2 || !pace)) return INT64_MAX;
    double steps = answers ? 2.0 * (double)(all - answers) / (double)answers : prefill_most_steps;
    if (steps < prefill_least_steps) steps = prefill_least_steps;
    if (steps > prefill_most_steps) steps = prefill_most_steps;
    int64_t n = (int64_t)((double)pace * steps), least = answers ? PREFILL_LEAST : PREFILL_ALONE;
    return n < least ? least : n;
}

/* Guesses behind the newest token of a sequence; the last token it may have needs none. */
static void plan_drafts_of(planning *p, hr_step_item *item, double price)
{
    const hr_scheduler_options *o = &p->s->options;
    hr_seq *q = item->seq;
    int64_t budget = o->max_num_batched_tokens - p->plan->n_tokens;
    int64_t left = q->capacity - q->n_tokens - 1;
    hr_ngram_guess(&q->ngram, q->tokens, q->n_tokens);
    int64_t n = hr_ngram_worth(&q->ngram, price);
    if (n > budget) n = budget;
    if (n > left) n = left;
    while (n > 0 && !hr_block_list_cover(&q->blocks, &p->s->pool, q->n_tokens + n, o->block_size))
        n--;
    if (n <= 0) return;
    memcpy(q->tokens + q->n_tokens, q->ngram.guesses, (size_t)n * sizeof *q->tokens);
    item->drafts = n;
    item->count += n;
    p->plan->n_tokens += n;
    p->plan->n_rows += n;
    p->plan->n_drafts += n;
}

/* A right draft saves an answer's share of a later step, and each costs what one more answer costs
 * this one. */
static void plan_drafts(planning *p)
{
    const hr_scheduler *s = p->s;
    double price = s->options.adaptive_drafts ? hr_pace_part(&s->pace, p->plan->n_rows) : 0;
    for (int64_t i = 0; i < p->plan->n_items; i++) {
        hr_step_item *item = &p->plan->items[i];
        if (item->samples && item->count == 1 && item->seq->may_draft)
            plan_drafts_of(p, item, price);
    }
}

void hr_scheduler_plan(hr_scheduler *s, hr_step_plan *plan)
{
    plan->n_items = plan->n_tokens = plan->n_rows = plan->n_prefill = plan->n_drafts = 0;
    planning p = { .s = s, .plan = plan, .prefill = INT64_MAX };
    plan_running(&p, true);
    if (s->options.long_prefill_token_threshold == 0) p.prefill = prefill_beside(s, plan->n_items);
    plan_running(&p, false);
    for (int64_t i = 0; i < plan->n_items; i++) /* from here on nobody is pushed out */
        publish(s, plan->items[i].seq, plan->items[i].start + plan->items[i].count);
    /* blocks were short a moment ago: letting others in would only push them out again */
    if (!p.preempted) plan_waiting(&p);
    if (s->options.drafts) plan_drafts(&p);
}

void hr_scheduler_commit(hr_scheduler *s, const hr_step_plan *plan, int64_t ns)
{
    hr_pace_note(&s->pace, plan->n_tokens - plan->n_prefill, plan->n_prefill, ns);
    for (int64_t i = 0; i < plan->n_items; i++) {
        const hr_step_item *item = &plan->items[i];
        assert(item->seq->n_computed == item->start);
        item->seq->n_computed += item->count - item->drafts;
    }
}

void hr_scheduler_accept(hr_scheduler *s, const hr_step_item *item)
{
    hr_seq *q = item->seq;
    assert(q->n_tokens > q->n_computed && q->n_tokens - q->n_computed <= item->drafts + 1);
    q->n_computed = q->n_tokens - 1;
    hr_block_list_trim(&q->blocks, &s->pool, q->n_computed, s->options.block_size);
}
