/* Continuous batching with a token budget: the policy of vLLM's V1 scheduler.
 *
 * Engine thread only; owns the block pool and both lists, not the sequences' memory. There is no
 * prefill phase and no decode phase: a sequence has tokens, some of them computed, and a step takes
 * as many of the rest as budget and blocks allow. Chunked prefill, decode and recomputation after a
 * preemption are then the same thing, and none of them can change an answer. */
#include "engine/scheduler.h"

#include <assert.h>

hr_status hr_scheduler_init(hr_scheduler *s, const hr_scheduler_options *o)
{
    *s = (hr_scheduler){ .options = *o };
    s->slots = hr_alloc_array0((size_t)o->max_num_seqs, sizeof *s->slots);
    if (!s->slots) return hr_fail(HR_RESOURCE_EXHAUSTED, "scheduler");
    for (int32_t i = 0; i < (int32_t)o->max_num_seqs; i++) s->slots[s->n_slots++] = i + 1;
    return hr_block_pool_init(&s->pool, o->blocks);
}

void hr_scheduler_deinit(hr_scheduler *s)
{
    hr_block_pool_deinit(&s->pool);
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

static void push_back(hr_seq_list *l, hr_seq *q)
{
    q->previous = l->last;
    q->next = NULL;
    if (l->last) l->last->next = q;
    else l->first = q;
    l->last = q;
    l->n++;
}

static void push_front(hr_seq_list *l, hr_seq *q)
{
    q->next = l->first;
    q->previous = NULL;
    if (l->first) l->first->previous = q;
    else l->last = q;
    l->first = q;
    l->n++;
}

static void take_out(hr_seq_list *l, hr_seq *q)
{
    if (q->previous) q->previous->next = q->next;
    else l->first = q->next;
    if (q->next) q->next->previous = q->previous;
    else l->last = q->previous;
    q->next = q->previous = NULL;
    l->n--;
}

void hr_scheduler_add(hr_scheduler *s, hr_seq *seq)
{
    seq->state = HR_SEQ_WAITING;
    push_back(&s->waiting, seq);
}

/* Everything a running sequence holds on the device goes back: blocks and its table row. */
static void release(hr_scheduler *s, hr_seq *q)
{
    hr_block_list_trim(&q->blocks, &s->pool, 0, s->options.block_size);
    q->n_computed = 0;
    if (q->slot) s->slots[s->n_slots++] = q->slot;
    q->slot = 0;
}

static void admit(hr_scheduler *s, hr_seq *q)
{
    take_out(&s->waiting, q);
    push_back(&s->running, q);
    q->state = HR_SEQ_RUNNING;
    if (q->started_s == 0) q->started_s = hr_now_s();
    q->slot = s->slots[--s->n_slots];
    hr_sampler_state *state = &q->sampling;
    hr_sampler_state_set_slots(state, hr_sampler_state_wants_counts(state) ? q->slot : 0,
                               hr_sampler_state_wants_allowed(state) ? q->slot : 0);
}

void hr_scheduler_remove(hr_scheduler *s, hr_seq *seq)
{
    take_out(seq->state == HR_SEQ_RUNNING ? &s->running : &s->waiting, seq);
    release(s, seq);
    seq->state = HR_SEQ_ENDED;
}

hr_seq *hr_scheduler_find(hr_scheduler *s, uint64_t request, uint32_t choice)
{
    hr_seq_list *lists[] = { &s->running, &s->waiting };
    for (size_t i = 0; i < 2; i++)
        for (hr_seq *q = lists[i]->first; q; q = q->next)
            if (q->request == request && (choice == HR_ALL_CHOICES || q->choice == choice))
                return q;
    return NULL;
}

/* Frees the blocks of the latest admitted sequence; it will be computed again from its tokens. */
static hr_seq *preempt_last(hr_scheduler *s)
{
    hr_seq *victim = s->running.last;
    take_out(&s->running, victim);
    release(s, victim);
    victim->preemptions++;
    s->preemptions++;
    victim->state = HR_SEQ_WAITING;
    push_front(&s->waiting, victim);
    return victim;
}

/* Tokens of q that this step may take under what is left of the budget. */
static int64_t share(const hr_scheduler *s, const hr_seq *q, int64_t budget)
{
    int64_t n = q->n_tokens - q->n_computed, most = s->options.long_prefill_token_threshold;
    if (most > 0 && n > most) n = most;
    return n < budget ? n : budget;
}

static void schedule(hr_step_plan *plan, hr_seq *q, int64_t count)
{
    bool samples = q->n_computed + count == q->n_tokens;
    plan->items[plan->n_items++] =
        (hr_step_item){ .seq = q, .start = q->n_computed, .count = count, .samples = samples };
    plan->n_tokens += count;
    plan->n_rows += samples;
}

/* Running sequences first, in order of admission; the latest make room for the earliest. */
static void plan_running(hr_scheduler *s, hr_step_plan *plan)
{
    for (hr_seq *q = s->running.first, *next; q; q = next) {
        next = q->next;
        int64_t n = share(s, q, s->options.max_num_batched_tokens - plan->n_tokens);
        if (n == 0) break;
        while (
            !hr_block_list_cover(&q->blocks, &s->pool, q->n_computed + n, s->options.block_size)) {
            hr_seq *victim = preempt_last(s);
            if (victim == q) return; /* alone it always fits: admission checked that */
        }
        schedule(plan, q, n);
        next = q->next;
    }
}

static void plan_waiting(hr_scheduler *s, hr_step_plan *plan)
{
    while (s->waiting.first && s->running.n < s->options.max_num_seqs) {
        hr_seq *q = s->waiting.first;
        int64_t n = share(s, q, s->options.max_num_batched_tokens - plan->n_tokens);
        if (n == 0) return;
        if (!hr_block_list_cover(&q->blocks, &s->pool, q->n_computed + n, s->options.block_size))
            return;
        admit(s, q);
        schedule(plan, q, n);
    }
}

void hr_scheduler_plan(hr_scheduler *s, hr_step_plan *plan)
{
    plan->n_items = plan->n_tokens = plan->n_rows = 0;
    uint64_t before = s->preemptions;
    plan_running(s, plan);
    /* blocks were short a moment ago: letting others in would only push them out again */
    if (s->preemptions == before) plan_waiting(s, plan);
}

void hr_scheduler_commit(hr_scheduler *s, const hr_step_plan *plan)
{
    (void)s;
    for (int64_t i = 0; i < plan->n_items; i++) {
        const hr_step_item *item = &plan->items[i];
        assert(item->seq->n_computed == item->start);
        item->seq->n_computed += item->count;
    }
}
