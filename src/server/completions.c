/* POST /v1/completions: prompts in their four forms, and what the engine is told.
 *
 * I/O thread. Echo is scored by the engine's prompt log-probabilities; max_tokens 0 with echo only
 * scores. */
#include "server/openai.h"

void hr_route_completions(hr_exchange *x)
{
    hr_openai_handle(x, HR_OPENAI_COMPLETIONS);
}

/* A long list is refused before it is copied: it cannot fit. */
static hr_status read_ids(hr_openai_parser *p, const hr_json *v, hr_openai_prompt *out)
{
    int64_t most = hr_engine_max_model_len(p->x->server->engine);
    if (v->type == HR_JSON_ARRAY && v->count >= (size_t)most)
        return hr_openai_refuse(p,
                                "%zu tokens leave no room to answer in the context of %lld "
                                "(max_model_len)",
                                v->count, (long long)most);
    return hr_openai_ids(p, v, (size_t)most, &out->ids, &out->n_ids);
}

static hr_status read_one(hr_openai_parser *p, const hr_json *v, hr_json_type type,
                          hr_openai_prompt *out)
{
    if (v->type != type)
        return hr_openai_refuse(p, "must be a string, a list of strings, a list of token ids or a "
                                   "list of those lists");
    if (type == HR_JSON_ARRAY) return read_ids(p, v, out);
    out->text = v->text;
    return HR_OK;
}

hr_status hr_openai_read_prompt(hr_openai_parser *p, const hr_json *v)
{
    bool list = v->type == HR_JSON_ARRAY;
    if (list && !v->count) return hr_openai_refuse(p, "the list is empty");
    if (p->out->endpoint == HR_OPENAI_TOKENIZE && v->type != HR_JSON_STRING)
        return hr_openai_refuse(p, "must be a string");
    /* [1,2,3] is one prompt, all other lists are lists of prompts */
    bool many = list && v->items[0].type != HR_JSON_NUMBER;
    size_t n = many ? v->count : 1;
    if (n > HR_OPENAI_MAX_FANOUT)
        return hr_openai_refuse(p, "%zu prompts, at most %d are taken", n, HR_OPENAI_MAX_FANOUT);
    hr_openai_prompt *prompts = hr_arena_array(&p->x->arena, n, sizeof *prompts);
    if (!prompts) return hr_fail(HR_RESOURCE_EXHAUSTED, "prompt: no memory");
    const hr_json *items = many ? v->items : v;
    hr_json_type type = items[0].type == HR_JSON_ARRAY ? HR_JSON_ARRAY : HR_JSON_STRING;
    for (size_t i = 0; i < n; i++) HR_TRY(read_one(p, &items[i], type, &prompts[i]));
    p->out->prompts = prompts;
    p->out->n_prompts = n;
    return HR_OK;
}

static hr_status settle_lengths(hr_openai_parser *p)
{
    hr_openai *o = p->out;
    p->param = "max_tokens";
    if (o->max_tokens == 0 && !o->echo)
        return hr_openai_refuse(p, "0 is for echo, to score the prompt");
    o->sampling.max_tokens = o->max_tokens;
    o->sampling.default_max_tokens = HR_OPENAI_DEFAULT_TOKENS;
    return HR_OK;
}

static void settle_logprobs(hr_openai *o)
{
    headrace_sampling *s = &o->sampling;
    o->wants_logprobs = o->logprobs >= 0 || s->n_logprob_token_ids;
    int top = o->logprobs > 0 ? o->logprobs : 0;
    s->logprobs = o->wants_logprobs ? top : -1;
    s->prompt_logprobs = o->prompt_logprobs;
    bool scores = o->echo && (o->wants_logprobs || o->max_tokens == 0);
    if (scores && s->prompt_logprobs < top) s->prompt_logprobs = top;
}

hr_status hr_openai_settle_completions(hr_openai_parser *p)
{
    hr_openai *o = p->out;
    p->param = "prompt";
    int64_t queue = p->x->server->engine_options->max_num_queued_reqs;
    if (!o->prompts) return hr_openai_refuse(p, "is required");
    if (queue && o->n_prompts > (uint64_t)queue) /* it could never get in: no 503 to come again */
        return hr_openai_refuse(p, "%zu prompts are more than the queue holds (%lld)", o->n_prompts,
                                (long long)queue);
    p->param = "n";
    if (o->n_prompts * o->sampling.n > HR_OPENAI_MAX_FANOUT)
        return hr_openai_refuse(p, "%u choices of %zu prompts are more than %d answers",
                                o->sampling.n, o->n_prompts, HR_OPENAI_MAX_FANOUT);
    HR_TRY(settle_lengths(p));
    settle_logprobs(o);
    p->param = NULL;
    return HR_OK;
}
