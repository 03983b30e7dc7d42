/* A caller's request, copied and checked.
 *
 * Runs on the caller's thread. After this the caller's pointers are never read again, and what can
 * be known without the tokenizer has been refused by the name of its field. */
#include <string.h>

#include "base/utf8.h"
#include "engine/text_int.h"

static hr_status copy_bytes(hr_arena *a, const void *p, size_t n, size_t item, const void **out)
{
    *out = NULL;
    if (!n) return HR_OK;
    if (!p) return hr_fail(HR_INVALID_ARGUMENT, "a list of %zu entries is NULL", n);
    void *copy = hr_arena_array(a, n, item);
    if (!copy) return hr_fail(HR_RESOURCE_EXHAUSTED, "request");
    memcpy(copy, p, n * item);
    *out = copy;
    return HR_OK;
}

static hr_status copy_text(hr_arena *a, const char *p, size_t n, const char *field, hr_str *out)
{
    *out = (hr_str){ 0 };
    if (!p) return HR_OK;
    if (!hr_utf8_valid((hr_str){ p, n }))
        return hr_fail(HR_INVALID_ARGUMENT, "%s is not valid UTF-8", field);
    char *copy = hr_arena_copy(a, p, n);
    if (!copy) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s", field);
    *out = (hr_str){ copy, n };
    return HR_OK;
}

static hr_status copy_texts(hr_arena *a, const char *const *p, size_t n, const char *field,
                            const hr_str **out)
{
    *out = NULL;
    if (!n) return HR_OK;
    if (!p) return hr_fail(HR_INVALID_ARGUMENT, "%s is NULL", field);
    hr_str *list = hr_arena_array(a, n, sizeof *list);
    if (!list) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s", field);
    for (size_t i = 0; i < n; i++) {
        if (!p[i]) return hr_fail(HR_INVALID_ARGUMENT, "%s[%zu] is NULL", field, i);
        HR_TRY(copy_text(a, p[i], strlen(p[i]), field, &list[i]));
    }
    *out = list;
    return HR_OK;
}

static hr_status copy_lists(hr_arena *a, const headrace_sampling *in, hr_sampling *s)
{
    const size_t id = sizeof(int64_t);
    s->n_stop = in->n_stop;
    s->n_stop_token_ids = in->n_stop_token_ids;
    s->n_logit_bias = in->n_logit_bias;
    s->n_allowed_token_ids = in->n_allowed_token_ids;
    s->n_bad_words = in->n_bad_words;
    s->n_choice = in->n_choice;
    s->n_logprob_token_ids = in->n_logprob_token_ids;
    HR_TRY(copy_texts(a, in->stop, in->n_stop, "stop", &s->stop));
    HR_TRY(copy_texts(a, in->bad_words, in->n_bad_words, "bad_words", &s->bad_words));
    HR_TRY(copy_texts(a, in->choice, in->n_choice, "choice", &s->choice));
    HR_TRY(copy_bytes(a, in->stop_token_ids, in->n_stop_token_ids, id,
                      (const void **)&s->stop_token_ids));
    HR_TRY(
        copy_bytes(a, in->logit_bias_ids, in->n_logit_bias, id, (const void **)&s->logit_bias_ids));
    HR_TRY(copy_bytes(a, in->logit_bias_values, in->n_logit_bias, sizeof(double),
                      (const void **)&s->logit_bias_values));
    HR_TRY(copy_bytes(a, in->logprob_token_ids, in->n_logprob_token_ids, id,
                      (const void **)&s->logprob_token_ids));
    if (in->allowed_token_ids && in->n_allowed_token_ids == 0)
        return hr_fail(HR_INVALID_ARGUMENT, "allowed_token_ids is empty");
    return copy_bytes(a, in->allowed_token_ids, in->n_allowed_token_ids, id,
                      (const void **)&s->allowed_token_ids);
}

/* What the choices' grammar is, if they have one; the engine's own is made from the texts, later.
 */
static hr_status copy_grammar(const hr_engine *e, hr_request *r, const headrace_sampling *in)
{
    const headrace_grammar *g = in->grammar;
    if (in->n_choice && g)
        return hr_fail(HR_INVALID_ARGUMENT, "grammar: a request has this or choice, not both");
    if (in->n_choice && !e->tokenizer)
        return hr_fail(HR_INVALID_ARGUMENT, "choice: the model has no tokenizer");
    if (in->n_choice && !e->n_eos)
        return hr_fail(HR_INVALID_ARGUMENT, "choice: the model names no EOS token to end with");
    r->sampling.grammar = in->n_choice || g;
    if (!g) return HR_OK;
    if (g->size != sizeof *g || !g->begin || !g->fill || !g->accept || !g->end)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "grammar: its size is not this library's, or one of its "
                       "functions is NULL");
    r->grammar = *g;
    return HR_OK;
}

static hr_status copy_sampling(const hr_engine *e, hr_request *r, const headrace_sampling *in)
{
    hr_sampling *s = &r->sampling;
    hr_sampling_init(s);
    s->n = in->n;
    s->temperature = in->temperature;
    s->top_k = in->top_k;
    s->top_p = in->top_p;
    s->min_p = in->min_p;
    s->presence_penalty = in->presence_penalty;
    s->frequency_penalty = in->frequency_penalty;
    s->repetition_penalty = in->repetition_penalty;
    s->seed = in->seed;
    s->max_tokens = in->max_tokens;
    s->default_max_tokens = in->default_max_tokens;
    s->min_tokens = in->min_tokens;
    s->ignore_eos = in->ignore_eos != 0;
    s->include_stop_str_in_output = in->include_stop_str_in_output != 0;
    s->skip_special_tokens = in->skip_special_tokens != 0;
    s->logprobs = in->logprobs;
    s->prompt_logprobs = in->prompt_logprobs;
    s->sampling_trace = in->sampling_trace != 0;
    HR_TRY(copy_lists(&r->arena, in, s));
    HR_TRY(copy_grammar(e, r, in));
    hr_sampler_limits limits = hr_engine_sampler_limits(e);
    HR_TRY(hr_sampling_check(s, &limits));
    return e->options.seed == -1 ? hr_sampling_draw_seed(s) : HR_OK; /* else at submit */
}

static hr_status copy_prompt_ids(const hr_engine *e, hr_request *r, const headrace_request *in)
{
    int64_t vocab = e->shapes.sampler.vocab;
    int32_t *ids = hr_arena_array(&r->arena, in->n_prompt_ids, sizeof *ids);
    if (!ids) return hr_fail(HR_RESOURCE_EXHAUSTED, "prompt");
    for (size_t i = 0; i < in->n_prompt_ids; i++) {
        int64_t id = in->prompt_ids[i];
        if (id < 0 || id >= vocab)
            return hr_fail(HR_INVALID_ARGUMENT, "prompt: token id %lld is not in [0, %lld)",
                           (long long)id, (long long)vocab);
        ids[i] = (int32_t)id;
    }
    r->prompt_ids = ids;
    r->n_prompt_ids = in->n_prompt_ids;
    return HR_OK;
}

/* What only a chat can be asked. */
static hr_status copy_chat(hr_request *r, const headrace_request *in)
{
    const struct {
        const char *text, *field;
        hr_str *out;
    } texts[] = {
        { in->messages_json, "messages", &r->messages_json },
        { in->tools_json, "tools", &r->tools_json },
        { in->documents_json, "documents", &r->documents_json },
        { in->chat_template_kwargs_json, "chat_template_kwargs", &r->kwargs_json },
    };
    r->add_generation_prompt = in->add_generation_prompt != 0;
    r->continue_final_message = in->continue_final_message != 0;
    if (in->messages_json && r->add_generation_prompt && r->continue_final_message)
        return hr_fail(HR_INVALID_ARGUMENT, "continue_final_message and add_generation_prompt "
                                            "cannot both be true");
    if (!in->messages_json && r->continue_final_message)
        return hr_fail(HR_INVALID_ARGUMENT, "continue_final_message is for messages");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!texts[i].text) continue;
        if (!in->messages_json)
            return hr_fail(HR_INVALID_ARGUMENT, "%s is for messages", texts[i].field);
        HR_TRY(copy_text(&r->arena, texts[i].text, strlen(texts[i].text), texts[i].field,
                         texts[i].out));
    }
    return HR_OK;
}

/* How it is to be queued and cached. */
static hr_status copy_place(const hr_engine *e, hr_request *r, const headrace_request *in)
{
    if (in->priority && e->policy != HR_POLICY_PRIORITY)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "priority: %lld needs --scheduling-policy priority; this engine serves "
                       "first come, first served",
                       (long long)in->priority);
    r->priority = in->priority;
    if (in->cache_salt && !*in->cache_salt)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "cache_salt is an empty text: leave it out or give one");
    return copy_text(&r->arena, in->cache_salt, in->cache_salt ? strlen(in->cache_salt) : 0,
                     "cache_salt", &r->cache_salt);
}

static hr_status copy_prompt(const hr_engine *e, hr_request *r, const headrace_request *in)
{
    int given = (in->prompt != NULL) + (in->prompt_ids != NULL) + (in->messages_json != NULL);
    if (given != 1)
        return hr_fail(HR_INVALID_ARGUMENT, "give one of prompt, prompt_ids and messages, not %d",
                       given);
    r->add_special_tokens =
        in->add_special_tokens < 0 ? in->messages_json == NULL : in->add_special_tokens != 0;
    HR_TRY(copy_chat(r, in));
    if (in->prompt_ids) return copy_prompt_ids(e, r, in);
    if (!e->tokenizer)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "the model has no tokenizer: give prompt_ids instead of text");
    HR_TRY(copy_text(&r->arena, in->prompt, in->prompt_bytes, "prompt", &r->prompt));
    r->has_prompt = in->prompt != NULL;
    return HR_OK;
}

hr_status hr_request_create(const hr_engine *e, const headrace_request *in, hr_request **out)
{
    *out = NULL;
    hr_request *r = hr_new0(hr_request);
    if (!r) return hr_fail(HR_RESOURCE_EXHAUSTED, "request");
    r->msg.kind = HR_MSG_REQUEST;
    r->done = hr_event_new(HEADRACE_EVENT_DONE, 0, 0);
    r->failure = hr_event_new(HEADRACE_EVENT_FAILED, 0, 0);
    headrace_sampling defaults;
    headrace_sampling_init(e, &defaults);
    hr_status st =
        r->done && r->failure ? copy_prompt(e, r, in) : hr_fail(HR_RESOURCE_EXHAUSTED, "request");
    if (!st) st = copy_place(e, r, in);
    if (!st) st = copy_sampling(e, r, in->sampling ? in->sampling : &defaults);
    if (st) {
        hr_request_destroy(r);
        return st;
    }
    *out = r;
    return HR_OK;
}

void hr_request_set_kind(hr_request *r, hr_request_kind kind)
{
    r->kind = kind;
}

void hr_request_destroy(hr_request *r)
{
    if (!r) return;
    for (int64_t i = 0; r->choices && i < r->sampling.n; i++) {
        hr_event_list held = { r->choices[i].first, r->choices[i].last, 0 };
        hr_event_list_destroy(&held);
        hr_engine_event_destroy(r->choices[i].end);
        hr_buf_deinit(&r->choices[i].text);
    }
    hr_free(r->choices);
    hr_ids_deinit(&r->ids);
    hr_event_list_destroy(&r->events);
    hr_engine_event_destroy(r->done);
    hr_engine_event_destroy(r->failure);
    hr_arena_deinit(&r->arena);
    hr_free(r);
}
