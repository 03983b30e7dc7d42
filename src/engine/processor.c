/* Running logits processors: what they ask for becomes a row's bias list and its mask.
 *
 * A choice begins on the input thread, is processed on the engine's and ends on any. Each processor
 * writes to arrays of ours that it sees empty; what it wrote is checked before it is merged with
 * the request's own and the others'. One that breaks the rules costs its choice, nobody else. All
 * memory was taken at start. The device's table of masks is mirrored here, so that a mask travels
 * when it is another one than last time, not with every token. */
#include "engine/processor.h"

#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "engine/processor_int.h"
#include "engine/seq.h"

/* ---- one choice ------------------------------------------------------------------------------ */

hr_status hr_processing_begin(hr_processor_chain *p, hr_seq *q)
{
    hr_processing *x = &q->processing;
    char message[HR_PROCESSOR_MESSAGE] = { 0 }, otherwise[32];
    headrace_processor_choice c = { .size = sizeof c,
                                    .request = q->request,
                                    .choice = q->choice,
                                    .max_tokens = q->max_tokens,
                                    .prompt_ids = q->tokens,
                                    .n_prompt = q->n_prompt,
                                    .message = message,
                                    .message_bytes = sizeof message };
    if (!p) return HR_OK;
    x->states = hr_arena_array(&q->arena, p->n, sizeof *x->states);
    if (!x->states) return hr_fail(HR_RESOURCE_EXHAUSTED, "logits processors");
    x->owner = p;
    for (; x->n_begun < p->n; x->n_begun++) {
        const hr_processor *one = &p->list[x->n_begun];
        headrace_processor_choice seen = c; /* it may write to what it is given */
        if (!one->it->begin) continue;
        int code = one->it->begin(one->self, &seen, &x->states[x->n_begun]);
        if (!code) continue;
        snprintf(otherwise, sizeof otherwise, "status %d", code);
        hr_processor_said(message, otherwise);
        return hr_fail(hr_processor_status(code), "logits processor %s: %s", one->name, message);
    }
    return HR_OK;
}

void hr_processing_end(hr_processing *x)
{
    while (x->n_begun--) {
        const hr_processor *one = &x->owner->list[x->n_begun];
        if (one->it->end) one->it->end(one->self, x->states[x->n_begun]);
    }
    *x = (hr_processing){ 0 };
}

/* ---- merging --------------------------------------------------------------------------------- */

/* False where the list is full. */
static bool add_bias(hr_merge *m, int32_t id, double value)
{
    if (!m->places[id]) {
        if (m->n == HR_SAMPLING_MAX_BIAS) return false;
        m->ids[m->n] = id;
        m->sums[m->n++] = 0;
        m->places[id] = (uint16_t)m->n;
    }
    m->sums[m->places[id] - 1] += value;
    return true;
}

/* What the request itself asks for. */
static void merge_request(hr_processor_chain *p, const hr_seq *q, int64_t row)
{
    hr_merge *m = &p->merge;
    const hr_sampling *s = q->sampling.sampling;
    m->ids = p->ids + row * HR_SAMPLING_MAX_BIAS;
    m->n = 0;
    m->masked = q->sampling.allowed.n > 0;
    for (size_t i = 0; i < s->n_logit_bias; i++)
        (void)add_bias(m, (int32_t)s->logit_bias_ids[i],
                       hr_sampling_clamp_bias(s->logit_bias_values[i]));
    if (!m->masked) return;
    memset(m->mask, 0, (size_t)p->words * sizeof *m->mask);
    for (size_t i = 0; i < q->sampling.allowed.n; i++) {
        int32_t id = q->sampling.allowed.ids[i];
        m->mask[id / 32] |= (uint32_t)1 << (id % 32);
    }
}

static void merge_mask(hr_merge *m, const uint32_t *words, int64_t n)
{
    if (!m->masked) memcpy(m->mask, words, (size_t)n * sizeof *words);
    else
        for (int64_t i = 0; i < n; i++) m->mask[i] &= words[i];
    m->masked = true;
}

/* Sums become the row's values; the places are free again. */
static void finish_merge(hr_processor_chain *p, hr_sampler_state *s, int32_t slot, int64_t row)
{
    hr_merge *m = &p->merge;
    float *values = p->values + row * HR_SAMPLING_MAX_BIAS;
    for (int32_t i = 0; i < m->n; i++) {
        values[i] = (float)hr_sampling_clamp_bias(m->sums[i]);
        m->places[m->ids[i]] = 0;
    }
    s->bias = (hr_bias_list){ m->ids, values, m->n };
    s->allowed_slot = m->masked ? slot : 0;
    s->allowed_written = true; /* hr_processing_feed does it */
}

/* ---- one processor --------------------------------------------------------------------------- */

static const uint32_t guard = 0x5AFEC0DE;

static void set_guard(void *array, int64_t cells)
{
    for (int64_t i = 0; i < HR_PROCESSOR_GUARD; i++)
        memcpy((uint32_t *)array + cells + i, &guard, sizeof guard);
}

static bool guard_holds(const void *array, int64_t cells)
{
    for (int64_t i = 0; i < HR_PROCESSOR_GUARD; i++)
        if (memcmp((const uint32_t *)array + cells + i, &guard, sizeof guard) != 0) return false;
    return true;
}

static void open_row(hr_processor_chain *p, const hr_seq *q, headrace_processor_row *row)
{
    memset(p->own_mask, 0xFF, (size_t)p->words * sizeof *p->own_mask);
    set_guard(p->own_ids, HR_SAMPLING_MAX_BIAS);
    set_guard(p->own_values, HR_SAMPLING_MAX_BIAS);
    set_guard(p->own_mask, p->words);
    *row = (headrace_processor_row){ .size = sizeof *row,
                                     .tokens = q->tokens,
                                     .n_prompt = q->n_prompt,
                                     .n_tokens = q->n_tokens,
                                     .bias_ids = p->own_ids,
                                     .bias_values = p->own_values,
                                     .bias_capacity = HR_SAMPLING_MAX_BIAS - p->merge.n,
                                     .mask = p->own_mask,
                                     .mask_words = p->words };
}

enum { FAULT_BYTES = 128 };

/* What is wrong with what it wrote, if anything; else it is merged. */
static bool take_row(hr_processor_chain *p, int32_t n, bool masked, char fault[FAULT_BYTES])
{
    int32_t room = HR_SAMPLING_MAX_BIAS - p->merge.n;
    if (!guard_holds(p->own_ids, HR_SAMPLING_MAX_BIAS) ||
        !guard_holds(p->own_values, HR_SAMPLING_MAX_BIAS) || !guard_holds(p->own_mask, p->words)) {
        snprintf(fault, FAULT_BYTES, "it wrote past the end of its bias or mask");
        return false;
    }
    if (n < 0 || n > room) {
        snprintf(fault, FAULT_BYTES, "n_bias %d is not in 0 to bias_capacity %d", n, room);
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t id = p->own_ids[i];
        if (id < 0 || id >= p->limits.vocab) {
            snprintf(fault, FAULT_BYTES, "bias_ids[%d]: token id %d is not in 0 to %lld", i, id,
                     (long long)p->limits.vocab - 1);
            return false;
        }
        if (!isfinite(p->own_values[i])) {
            snprintf(fault, FAULT_BYTES, "bias_values[%d], of token id %d, is not finite", i, id);
            return false;
        }
        (void)add_bias(&p->merge, id, (double)p->own_values[i]); /* n is within the room */
    }
    if (masked) merge_mask(&p->merge, p->own_mask, p->words);
    return true;
}

static bool run_one(hr_processor_chain *p, hr_seq *q, size_t i)
{
    const hr_processor *one = &p->list[i];
    char fault[FAULT_BYTES];
    headrace_processor_row row;
    open_row(p, q, &row);
    int code = one->it->process(one->self, q->processing.states[i], &row);
    if (code) snprintf(fault, sizeof fault, "it failed with status %d", code);
    else if (take_row(p, row.n_bias, row.masked != 0, fault)) return true;
    hr_log(HR_LOG_WARNING, "engine: req=%llu choice=%u: logits processor %s: %s",
           (unsigned long long)q->request, q->choice, one->name, fault);
    return false;
}

/* ---- a row ----------------------------------------------------------------------------------- */

void hr_processing_run(hr_seq *q, int64_t row)
{
    hr_processor_chain *p = q->processing.owner;
    if (!p) return;
    merge_request(p, q, row);
    for (size_t i = 0; i < p->n && !q->processing.failed; i++)
        q->processing.failed = !run_one(p, q, i);
    finish_merge(p, &q->sampling, q->slot, row);
}

bool hr_processing_feed(const hr_seq *q, hr_sampling_inputs *in)
{
    hr_processor_chain *p = q->processing.owner;
    int32_t slot = q->sampling.allowed_slot;
    if (!p || !slot) return true;
    uint32_t *held = p->table + slot * p->words;
    size_t bytes = (size_t)p->words * sizeof *held;
    if (p->table_is_known[slot] && memcmp(held, p->merge.mask, bytes) == 0) return true;
    if (!hr_sampling_inputs_allowed(in, slot, p->merge.mask)) return false;
    memcpy(held, p->merge.mask, bytes);
    p->table_is_known[slot] = true;
    return true;
}
