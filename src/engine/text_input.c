/* From a request to its sequences: template, ids, limits.
 *
 * Text thread. Everything that a sequence will need is allocated here, so that the engine thread
 * only ever moves pointers. */
#include <string.h>

#include "engine/text_int.h"

/* ---- ids ------------------------------------------------------------------------------------- */

static hr_status encode_text(hr_text *t, const hr_request *r, hr_ids *ids)
{
    hr_text_span span = { r->prompt, HR_SPAN_SPECIAL };
    return hr_tokenizer_encode(t->engine->tokenizer, &span, 1,
                               r->add_special_tokens ? HR_ENCODE_ADD_SPECIAL : HR_ENCODE_DEFAULT,
                               &t->scratch, ids);
}

static hr_status copy_ids(const hr_request *r, hr_ids *ids)
{
    HR_TRY(hr_grow((void **)&ids->p, &ids->capacity, r->n_prompt_ids, sizeof *ids->p));
    if (r->n_prompt_ids) memcpy(ids->p, r->prompt_ids, r->n_prompt_ids * sizeof *ids->p);
    ids->n = r->n_prompt_ids;
    return HR_OK;
}

static hr_status check_length(const hr_engine *e, const hr_request *r, size_t n)
{
    int64_t most = r->sampling.max_tokens;
    if (n == 0) return hr_fail(HR_INVALID_ARGUMENT, "prompt is empty: it has no tokens");
    if ((int64_t)n >= e->max_model_len)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "prompt: %zu tokens leave no room to answer in the context of %lld "
                       "(max_model_len)",
                       n, (long long)e->max_model_len);
    if (most > e->max_model_len - (int64_t)n)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "max_tokens: %lld after a prompt of %zu tokens is more than the context of "
                       "%lld (max_model_len)",
                       (long long)most, n, (long long)e->max_model_len);
    return HR_OK;
}

/* The prompt's ids, whatever they are. */
static hr_status encode(hr_text *t, const hr_request *r, hr_ids *ids)
{
    if (r->prompt_ids) return copy_ids(r, ids);
    if (r->has_prompt) return encode_text(t, r, ids);
    return hr_text_encode_chat(t, r, ids);
}

hr_status hr_text_encode(hr_text *t, hr_request *r, hr_ids *ids)
{
    HR_TRY(encode(t, r, ids));
    if (r->kind == HR_REQUEST_TOKENIZE) return HR_OK;
    int64_t vocab = t->engine->shapes.sampler.vocab;
    for (size_t i = 0; i < ids->n; i++)
        if (ids->p[i] >= vocab)
            return hr_fail(HR_INVALID_ARGUMENT,
                           "prompt: token id %d is above the model's vocabulary of %lld", ids->p[i],
                           (long long)vocab);
    return check_length(t->engine, r, ids->n);
}

/* ---- bad words ------------------------------------------------------------------------------- */

static hr_status encode_word(hr_text *t, hr_arena *a, const char *prefix, hr_str word,
                             hr_id_list *out)
{
    hr_ids ids = { 0 };
    hr_text_span spans[2] = { { hr_str_c(prefix), HR_SPAN_PLAIN }, { word, HR_SPAN_PLAIN } };
    hr_status st =
        hr_tokenizer_encode(t->engine->tokenizer, spans, 2, HR_ENCODE_DEFAULT, &t->scratch, &ids);
    int32_t *copy = st ? NULL : hr_arena_array(a, ids.n, sizeof *copy);
    if (!st && !copy) st = hr_fail(HR_RESOURCE_EXHAUSTED, "bad_words");
    if (!st) {
        if (ids.n) memcpy(copy, ids.p, ids.n * sizeof *copy);
        *out = (hr_id_list){ copy, ids.n };
    }
    hr_ids_deinit(&ids);
    return st;
}

/* Each word as it stands and after a space, without BOS. */
static hr_status encode_bad_words(hr_text *t, hr_request *r)
{
    hr_sampling *s = &r->sampling;
    if (!s->n_bad_words) return HR_OK;
    if (!t->engine->tokenizer)
        return hr_fail(HR_INVALID_ARGUMENT, "bad_words: the model has no tokenizer");
    hr_id_list *lists = hr_arena_array(&r->arena, s->n_bad_words * 2, sizeof *lists);
    if (!lists) return hr_fail(HR_RESOURCE_EXHAUSTED, "bad_words");
    for (size_t i = 0; i < s->n_bad_words * 2; i++) {
        HR_TRY(encode_word(t, &r->arena, i % 2 ? " " : "", s->bad_words[i / 2],
                           &lists[s->n_bad_word_ids]));
        if (lists[s->n_bad_word_ids].n) s->n_bad_word_ids++;
    }
    if (s->n_bad_word_ids > HR_SAMPLING_MAX_BAD_WORDS * 2)
        return hr_fail(HR_INVALID_ARGUMENT, "bad_words: more than %d sequences",
                       HR_SAMPLING_MAX_BAD_WORDS * 2);
    s->bad_word_ids = lists;
    return HR_OK;
}

/* ---- sequences ------------------------------------------------------------------------------- */

static void destroy_list(hr_seq *s)
{
    while (s) {
        hr_seq *next = s->next;
        hr_seq_destroy(s);
        s = next;
    }
}

/* Tokens to generate: what was asked for; else the rest of the context, or what the model's
 * generation_config.json says, or the caller's default, where that is less. At least the one that
 * a score takes along. */
static int64_t most_tokens(const hr_engine *e, const hr_reply *reply)
{
    int64_t most = reply->request->sampling.max_tokens;
    if (most >= 0) return most ? most : 1;
    const hr_generation_defaults *d = &hr_model_config(e->model)->generation;
    bool has = d->has_max_new_tokens && d->max_new_tokens > 0;
    int64_t usual = has ? d->max_new_tokens : reply->request->sampling.default_max_tokens;
    most = e->max_model_len - (int64_t)reply->prompt.n;
    return usual > 0 && usual < most ? usual : most;
}

hr_status hr_text_sequences(hr_text *t, hr_reply *reply, hr_seq **first)
{
    const hr_engine *e = t->engine;
    hr_request *r = reply->request;
    *first = NULL;
    HR_TRY(encode_bad_words(t, r));
    hr_sampler_limits limits = hr_engine_sampler_limits(e);
    hr_seq_spec spec = { .request = r->id,
                         .prompt = reply->prompt.p,
                         .n_prompt = (int64_t)reply->prompt.n,
                         .max_tokens = most_tokens(e, reply),
                         .block_size = e->shapes.build.block_size,
                         .sampling = &r->sampling,
                         .limits = &limits,
                         .eos = e->eos,
                         .n_eos = e->n_eos };
    hr_seq **end = first;
    for (int64_t i = 0; i < r->sampling.n; i++) {
        spec.choice = (uint32_t)i;
        hr_status st = hr_seq_create(&spec, end);
        if (st) {
            destroy_list(*first);
            *first = NULL;
            return st;
        }
        end = &(*end)->next;
    }
    return HR_OK;
}
