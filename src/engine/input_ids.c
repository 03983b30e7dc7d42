/* From a request to its sequences: ids, limits, hashes.
 *
 * Input thread. Everything that a sequence will need is allocated here, so that the engine thread
 * only ever moves pointers. */
#include <string.h>

#include "engine/text_int.h"

/* ---- ids ------------------------------------------------------------------------------------- */

/* No token stands for more bytes than the longest, so this many cannot come to few enough tokens.
 * (White space that a special token swallows could; a prompt of it is no loss.) TOKENIZE may go
 * beyond the context, to a bound: prompts of others wait behind it. */
hr_status hr_reader_check_bytes(const hr_reader *t, const hr_request *r, size_t bytes)
{
    const hr_engine *e = t->engine;
    size_t most;
    if (!e->longest_token) return HR_OK;
    bool fits = hr_mul_add((size_t)e->max_model_len, e->longest_token, 0, &most);
    if (!fits || bytes <= most) return HR_OK;
    if (r->kind != HR_REQUEST_GENERATE) {
        if (bytes <= HR_TOKENIZE_BYTES) return HR_OK;
        return hr_fail(HR_INVALID_ARGUMENT,
                       "prompt: %zu bytes of text are more than are tokenised at once: %zu", bytes,
                       most > HR_TOKENIZE_BYTES ? most : HR_TOKENIZE_BYTES);
    }
    return hr_fail(HR_INVALID_ARGUMENT,
                   "prompt: %zu bytes of text are more than the context of %lld tokens "
                   "(max_model_len) can hold; no token is longer than %zu bytes",
                   bytes, (long long)e->max_model_len, e->longest_token);
}

static hr_status encode_text(hr_reader *t, const hr_request *r, hr_ids *ids)
{
    hr_text_span span = { r->prompt, HR_SPAN_SPECIAL };
    HR_TRY(hr_reader_check_bytes(t, r, r->prompt.n));
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

/* Against the context, and against the KV cache: what never fits must not wait for ever. */
static hr_status check_length(const hr_engine *e, const hr_request *r, size_t n)
{
    int64_t most = r->sampling.max_tokens, length = (int64_t)n;
    int64_t cache = e->shapes.build.blocks * e->shapes.build.block_size;
    if (n == 0) return hr_fail(HR_INVALID_ARGUMENT, "prompt is empty: it has no tokens");
    if (length >= e->max_model_len)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "prompt: %zu tokens leave no room to answer in the context of %lld "
                       "(max_model_len)",
                       n, (long long)e->max_model_len);
    if (most > e->max_model_len - length)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "max_tokens: %lld after a prompt of %zu tokens is more than the context of "
                       "%lld (max_model_len)",
                       (long long)most, n, (long long)e->max_model_len);
    if (length + (most > 1 ? most : 1) - 1 > cache)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "prompt: %zu tokens and max_tokens %lld never fit the KV cache of %lld "
                       "tokens (--kv-cache-memory-bytes)",
                       n, (long long)most, (long long)cache);
    return HR_OK;
}

/* The prompt's ids, whatever they are. */
static hr_status encode(hr_reader *t, const hr_request *r, hr_ids *ids)
{
    if (r->prompt_ids) return copy_ids(r, ids);
    if (r->has_prompt) return encode_text(t, r, ids);
    return hr_reader_encode_chat(t, r, ids);
}

hr_status hr_reader_encode(hr_reader *t, hr_request *r)
{
    HR_TRY(encode(t, r, &r->ids));
    if (r->kind != HR_REQUEST_GENERATE) return HR_OK;
    int64_t vocab = t->engine->shapes.sampler.vocab;
    for (size_t i = 0; i < r->ids.n; i++)
        if (r->ids.p[i] >= vocab)
            return hr_fail(HR_INVALID_ARGUMENT,
                           "prompt: token id %d is above the model's vocabulary of %lld",
                           r->ids.p[i], (long long)vocab);
    return check_length(t->engine, r, r->ids.n);
}

/* ---- bad words ------------------------------------------------------------------------------- */

static hr_status encode_word(hr_reader *t, hr_arena *a, const char *prefix, hr_str word,
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

static hr_status check_words(const hr_sampling *s)
{
    size_t bytes = 0;
    for (size_t i = 0; i < s->n_bad_words; i++) bytes += s->bad_words[i].n;
    return bytes <= HR_TOKENIZE_BYTES
               ? HR_OK
               : hr_fail(HR_INVALID_ARGUMENT,
                         "bad_words: %zu bytes of text are more than are tokenised at once: %zu",
                         bytes, HR_TOKENIZE_BYTES);
}

/* Each word as it stands and after a space, without BOS. */
static hr_status encode_bad_words(hr_reader *t, hr_request *r)
{
    hr_sampling *s = &r->sampling;
    if (!s->n_bad_words) return HR_OK;
    if (!t->engine->tokenizer)
        return hr_fail(HR_INVALID_ARGUMENT, "bad_words: the model has no tokenizer");
    HR_TRY(check_words(s));
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

/* ---- structured output ----------------------------------------------------------------------- */

/* The vocabulary by its bytes, once it is asked for; sorting it takes a moment. */
static hr_status index_tokens(hr_reader *t)
{
    if (t->index.ids) return HR_OK;
    return hr_token_index_init(&t->index, t->engine->tokenizer);
}

static hr_status make_grammar(hr_reader *t, hr_request *r)
{
    const hr_sampling *s = &r->sampling;
    if (!s->n_choice) return HR_OK;
    HR_TRY(index_tokens(t));
    return hr_grammar_of_choice(&r->arena, &t->index, s->choice, s->n_choice, t->engine->eos,
                                t->engine->n_eos, &r->grammar);
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

static hr_status open_choices(hr_reader *t, hr_request *r)
{
    const hr_sampling *s = &r->sampling;
    r->choices = hr_alloc_array0((size_t)s->n, sizeof *r->choices);
    if (!r->choices) return hr_fail(HR_RESOURCE_EXHAUSTED, "choices");
    HR_TRY(hr_stops_init(&r->stops, &r->arena, s->stop, s->n_stop));
    for (int64_t i = 0; i < s->n; i++) {
        r->choices[i].stop_id = -1;
        r->choices[i].end = hr_event_new(HEADRACE_EVENT_FINISHED, r->id, (uint32_t)i);
        if (!r->choices[i].end) return hr_fail(HR_RESOURCE_EXHAUSTED, "choices");
        r->choices[i].matched = hr_arena_array(&r->arena, s->n_stop, sizeof *r->choices[i].matched);
        if (!r->choices[i].matched) return hr_fail(HR_RESOURCE_EXHAUSTED, "choices");
        if (t->engine->tokenizer)
            hr_detok_init(&r->choices[i].detok, t->engine->tokenizer,
                          s->skip_special_tokens ? HR_DECODE_SKIP_SPECIAL | HR_DECODE_CONTINUES
                                                 : HR_DECODE_CONTINUES);
    }
    r->score_only = s->max_tokens == 0;
    return HR_OK;
}

/* The names of the prompt's full blocks, the same for every choice. */
static hr_status hash_prompt(hr_reader *t, hr_request *r)
{
    int64_t size = t->engine->shapes.build.block_size, full = (int64_t)r->ids.n / size;
    if (!t->engine->options.enable_prefix_caching) return HR_OK;
    r->hashes = hr_arena_array(&r->arena, (size_t)full, sizeof *r->hashes);
    if (!r->hashes) return hr_fail(HR_RESOURCE_EXHAUSTED, "hashes of %lld blocks", (long long)full);
    hr_prefix_hash_chain(r->cache_salt, r->ids.p, size, 0, full, r->hashes);
    return HR_OK;
}

/* Tokens to generate: what was asked for; else the rest of the context and of the cache, or what
 * the model's generation_config.json says, or the caller's default, where that is less. At least
 * the one that a score takes along. */
int64_t hr_reader_most_tokens(const hr_engine *e, const hr_request *r)
{
    int64_t most = r->sampling.max_tokens, length = (int64_t)r->ids.n;
    int64_t cache = e->shapes.build.blocks * e->shapes.build.block_size;
    if (most >= 0) return most ? most : 1;
    const hr_generation_defaults *d = &hr_model_config(e->model)->generation;
    bool has = d->has_max_new_tokens && d->max_new_tokens > 0;
    int64_t usual = has ? d->max_new_tokens : r->sampling.default_max_tokens;
    most = e->max_model_len - length;
    if (most > cache + 1 - length) most = cache + 1 - length;
    return usual > 0 && usual < most ? usual : most;
}

hr_status hr_reader_sequences(hr_reader *t, hr_request *r, hr_seq **first)
{
    const hr_engine *e = t->engine;
    *first = NULL;
    HR_TRY(encode_bad_words(t, r));
    HR_TRY(make_grammar(t, r));
    HR_TRY(open_choices(t, r));
    HR_TRY(hash_prompt(t, r));
    hr_sampler_limits limits = hr_engine_sampler_limits(e);
    hr_seq_spec spec = { .request = r->id,
                         .prompt = r->ids.p,
                         .n_prompt = (int64_t)r->ids.n,
                         .max_tokens = r->most_tokens,
                         .block_size = e->shapes.build.block_size,
                         .priority = r->priority,
                         .hashes = r->hashes,
                         .cache_key = r->cache_salt,
                         .sampling = &r->sampling,
                         .grammar = r->grammar.size ? &r->grammar : NULL,
                         .limits = &limits,
                         .eos = e->eos,
                         .n_eos = e->n_eos,
                         .processors = e->processors,
                         .speculation = e->shapes.speculation };
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
