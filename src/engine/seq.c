/* Making and freeing sequences.
 *
 * Input and output thread. All that a sequence will need while it runs is there from the start,
 * sized by what it may become (prompt + max_tokens), so that a step never allocates. That room is
 * not cleared: what a short answer never reaches costs no memory. */
#include "engine/seq.h"

#include <string.h>

const char *hr_finish_name(hr_finish f)
{
    switch (f) {
    case HR_FINISH_NONE: return NULL;
    case HR_FINISH_STOP: return "stop";
    case HR_FINISH_LENGTH: return "length";
    case HR_FINISH_ABORT: return "abort";
    case HR_FINISH_ERROR: return "error";
    }
    return NULL;
}

/* The ids that end the sequence: EOS ids first (none under ignore_eos), then stop_token_ids. */
static hr_status set_stop_ids(hr_seq *s, const hr_seq_spec *spec)
{
    const hr_sampling *p = spec->sampling;
    s->n_eos = p->ignore_eos ? 0 : spec->n_eos;
    s->n_stop = s->n_eos + p->n_stop_token_ids;
    s->stop_ids = hr_arena_array(&s->arena, s->n_stop, sizeof *s->stop_ids);
    if (!s->stop_ids) return hr_fail(HR_RESOURCE_EXHAUSTED, "stop ids");
    for (size_t i = 0; i < s->n_eos; i++) s->stop_ids[i] = (int32_t)spec->eos[i];
    for (size_t i = 0; i < p->n_stop_token_ids; i++)
        s->stop_ids[s->n_eos + i] = (int32_t)p->stop_token_ids[i];
    return HR_OK;
}

static hr_status set_arrays(hr_seq *s, const hr_seq_spec *spec)
{
    s->capacity = spec->n_prompt + spec->max_tokens;
    int64_t full = spec->hashes ? s->capacity / spec->block_size : 0;
    s->blocks.capacity = (int32_t)((s->capacity + spec->block_size - 1) / spec->block_size);
    size_t ids = (size_t)s->capacity + (size_t)s->blocks.capacity, bytes;
    if (s->may_draft) ids += (size_t)s->capacity; /* the lists of its n-grams */
    bool fits = hr_mul_add((size_t)full, sizeof *s->hashes, 0, &bytes) &&
                hr_mul_add(ids, sizeof *s->tokens, bytes, &bytes);
    s->room = fits ? hr_alloc(bytes) : NULL;
    if (!s->room)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "sequence of %lld tokens", (long long)s->capacity);
    if (spec->hashes) s->hashes = s->room;
    s->tokens = (int32_t *)((char *)s->room + (size_t)full * sizeof *s->hashes);
    s->blocks.ids = s->tokens + s->capacity;
    int32_t *places = s->blocks.ids + s->blocks.capacity;
    memcpy(s->tokens, spec->prompt, (size_t)spec->n_prompt * sizeof *s->tokens);
    s->n_hashed = spec->hashes ? spec->n_prompt / spec->block_size : 0;
    if (s->n_hashed) memcpy(s->hashes, spec->hashes, (size_t)s->n_hashed * sizeof *s->hashes);
    if (!s->may_draft) return HR_OK;
    HR_TRY(hr_ngram_init(&s->ngram, &spec->speculation, places, s->capacity));
    hr_ngram_note(&s->ngram, s->tokens, s->n_tokens); /* here, so that no step waits for it */
    return HR_OK;
}

/* Several tokens can be drawn in one step where what a token is drawn from follows from the tokens
 * before it. A grammar and a processor see each token once, and cannot take one back. */
static bool may_draft(const hr_seq_spec *spec)
{
    return spec->speculation.tokens && !spec->grammar && !spec->processors;
}

static hr_status begin_grammar(hr_seq *s, const headrace_grammar *g)
{
    if (!g) return HR_OK;
    s->grammar_state = g->begin(g->context, s->choice);
    if (!s->grammar_state) return hr_fail(HR_RESOURCE_EXHAUSTED, "structured output: its state");
    s->grammar = g;
    return HR_OK;
}

hr_status hr_seq_create(const hr_seq_spec *spec, hr_seq **out)
{
    *out = NULL;
    hr_seq *s = hr_new0(hr_seq);
    if (!s) return hr_fail(HR_RESOURCE_EXHAUSTED, "sequence");
    s->msg.kind = HR_MSG_SEQ;
    s->request = spec->request;
    s->choice = spec->choice;
    s->priority = spec->priority;
    s->cache_key = spec->cache_key;
    s->queued_tokens = -1;
    s->n_tokens = s->n_prompt = spec->n_prompt;
    s->max_tokens = spec->max_tokens;
    s->stop_id = -1;
    s->may_draft = may_draft(spec);
    hr_status st = set_arrays(s, spec);
    if (!st) st = set_stop_ids(s, spec);
    if (!st)
        st = hr_sampler_state_init(&s->sampling, &s->arena, spec->sampling, spec->limits, spec->eos,
                                   spec->n_eos, spec->choice);
    if (!st) st = begin_grammar(s, spec->grammar);
    if (!st && spec->choice == 0 && spec->sampling->prompt_logprobs >= 0)
        st = hr_prompt_logprobs_create(spec->request, spec->n_prompt,
                                       spec->sampling->prompt_logprobs, &s->prompt);
    if (!st) st = hr_processing_begin(spec->processors, s);
    if (st) {
        hr_seq_destroy(s);
        return st;
    }
    *out = s;
    return HR_OK;
}

void hr_seq_destroy(hr_seq *s)
{
    if (!s) return;
    if (s->grammar) s->grammar->end(s->grammar_state);
    hr_processing_end(&s->processing);
    hr_prompt_logprobs_destroy(s->prompt);
    hr_ngram_deinit(&s->ngram);
    hr_arena_deinit(&s->arena);
    hr_free(s->room);
    hr_free(s);
}

hr_status hr_prompt_logprobs_create(uint64_t request, int64_t n, int32_t width,
                                    hr_prompt_logprobs **out)
{
    *out = NULL;
    size_t positions = (size_t)n, cells;
    hr_prompt_logprobs *p = hr_new0(hr_prompt_logprobs);
    if (!p || !hr_mul_add(positions, (size_t)width, 0, &cells)) {
        hr_free(p);
        return hr_fail(HR_RESOURCE_EXHAUSTED, "prompt log-probabilities");
    }
    p->msg.kind = HR_MSG_PROMPT;
    p->request = request;
    p->n = n;
    p->done = 1;
    p->width = width;
    p->logprob = hr_alloc_array0(positions, sizeof *p->logprob);
    p->rank = hr_alloc_array0(positions, sizeof *p->rank);
    p->top_ids = hr_alloc_array0(cells, sizeof *p->top_ids);
    p->top_logprob = hr_alloc_array0(cells, sizeof *p->top_logprob);
    if (!p->logprob || !p->rank || !p->top_ids || !p->top_logprob) {
        hr_prompt_logprobs_destroy(p);
        return hr_fail(HR_RESOURCE_EXHAUSTED, "prompt log-probabilities");
    }
    *out = p;
    return HR_OK;
}

void hr_prompt_logprobs_destroy(hr_prompt_logprobs *p)
{
    if (!p) return;
    hr_free(p->logprob);
    hr_free(p->rank);
    hr_free(p->top_ids);
    hr_free(p->top_logprob);
    hr_free(p);
}
