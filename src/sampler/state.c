/* One sequence's share of its request's parameters.
 *
 * Made on the input thread, where memory may be taken; then read by the engine thread, which only
 * moves its table slots and its place in the counts. */
#include "sampler/sampler_int.h"

static bool holds(const hr_id_list *l, int64_t id)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->ids[i] == id) return true;
    return false;
}

/* EOS ids and stop_token_ids, each once. EOS counts under ignore_eos too: it would end the text. */
static hr_status set_stop(hr_sampler_state *s, hr_arena *arena, int64_t vocab, const int64_t *eos,
                          size_t n_eos)
{
    const hr_sampling *p = s->sampling;
    int32_t *ids = hr_arena_array(arena, n_eos + p->n_stop_token_ids + 1, sizeof *ids);
    if (!ids) return hr_fail(HR_RESOURCE_EXHAUSTED, "stop ids");
    s->stop = (hr_id_list){ ids, 0 };
    for (size_t i = 0; i < n_eos + p->n_stop_token_ids; i++) {
        int64_t id = i < n_eos ? eos[i] : p->stop_token_ids[i - n_eos];
        if (id >= 0 && id < vocab && !holds(&s->stop, id)) ids[s->stop.n++] = (int32_t)id;
    }
    return HR_OK;
}

static hr_status set_allowed(hr_sampler_state *s, hr_arena *arena)
{
    const hr_sampling *p = s->sampling;
    if (!p->allowed_token_ids) return HR_OK;
    int32_t *ids = hr_arena_array(arena, p->n_allowed_token_ids, sizeof *ids);
    if (!ids) return hr_fail(HR_RESOURCE_EXHAUSTED, "allowed_token_ids");
    for (size_t i = 0; i < p->n_allowed_token_ids; i++) ids[i] = (int32_t)p->allowed_token_ids[i];
    s->allowed = (hr_id_list){ ids, p->n_allowed_token_ids };
    return HR_OK;
}

static hr_status check_bad_words(hr_sampler_state *s, int64_t vocab)
{
    const hr_sampling *p = s->sampling;
    if (p->n_bad_word_ids > HR_SAMPLING_MAX_BAD_WORDS)
        return hr_fail(HR_INVALID_ARGUMENT, "bad_words: %zu token sequences, at most %d are taken",
                       p->n_bad_word_ids, HR_SAMPLING_MAX_BAD_WORDS);
    for (size_t w = 0; w < p->n_bad_word_ids; w++) {
        const hr_id_list *word = &p->bad_word_ids[w];
        if (!word->n) return hr_fail(HR_INVALID_ARGUMENT, "bad_words: a word of no tokens");
        for (size_t i = 0; i < word->n; i++)
            if (word->ids[i] < 0 || word->ids[i] >= vocab)
                return hr_fail(HR_INVALID_ARGUMENT, "bad_words: token id %d is not in 0 to %lld",
                               word->ids[i], (long long)vocab - 1);
    }
    return HR_OK;
}

/* Never to be chosen, whatever has been generated before the first token. */
static bool banned_at_first(const hr_sampler_state *s, int64_t used, int64_t id)
{
    const hr_sampling *p = s->sampling;
    if (id >= used || (p->min_tokens > 0 && holds(&s->stop, id))) return true;
    for (size_t w = 0; w < p->n_bad_word_ids; w++)
        if (p->bad_word_ids[w].n == 1 && p->bad_word_ids[w].ids[0] == id) return true;
    return false;
}

static hr_status check_something_left(const hr_sampler_state *s, int64_t used)
{
    size_t n = s->allowed.n ? s->allowed.n : (size_t)used;
    for (size_t i = 0; i < n; i++) {
        int64_t id = s->allowed.n ? s->allowed.ids[i] : (int64_t)i;
        if (!banned_at_first(s, used, id)) return HR_OK;
    }
    return hr_fail(HR_INVALID_ARGUMENT,
                   "%s: bad_words, min_tokens and padding leave no token to choose",
                   s->allowed.n ? "allowed_token_ids" : "bad_words");
}

hr_status hr_sampler_state_init(hr_sampler_state *s, hr_arena *arena, const hr_sampling *sampling,
                                const hr_sampler_limits *l, const int64_t *eos, size_t n_eos,
                                uint32_t choice)
{
    *s = (hr_sampler_state){ .sampling = sampling, .seed = (uint64_t)sampling->seed + choice };
    HR_TRY(check_bad_words(s, l->vocab));
    HR_TRY(set_stop(s, arena, l->vocab, eos, n_eos));
    HR_TRY(set_allowed(s, arena));
    hr_sampler_state_set_slots(s, 0, 0);
    if (s->stop.n + sampling->n_bad_word_ids > HR_SAMPLING_MAX_BANNED)
        return hr_fail(HR_INVALID_ARGUMENT, "bad_words: with the stop ids more than %d are banned",
                       HR_SAMPLING_MAX_BANNED);
    return check_something_left(s, hr_used_vocab(l->vocab, l->used_vocab));
}

bool hr_sampler_state_wants_counts(const hr_sampler_state *s)
{
    const hr_sampling *p = s->sampling;
    return p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0;
}

bool hr_sampler_state_wants_allowed(const hr_sampler_state *s)
{
    return s->allowed.n > 0;
}

void hr_sampler_state_set_slots(hr_sampler_state *s, int32_t counts, int32_t allowed)
{
    s->counts_slot = counts;
    s->allowed_slot = allowed;
    s->counted = -1;
    s->allowed_written = false;
}
