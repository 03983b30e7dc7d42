/* POST /tokenize and /detokenize.
 *
 * I/O thread: the work itself is done by the engine's input thread, since a text may be long. */
#include "server/generation.h"

void hr_route_tokenize(hr_exchange *x)
{
    hr_openai_handle(x, HR_OPENAI_TOKENIZE);
}

void hr_route_detokenize(hr_exchange *x)
{
    hr_openai_handle(x, HR_OPENAI_DETOKENIZE);
}

hr_status hr_openai_settle_detokenize(hr_openai_parser *p)
{
    p->param = "tokens";
    if (!p->out->request.prompt_ids) return hr_openai_refuse(p, "is required");
    p->out->n_prompts = 1;
    p->out->sampling.skip_special_tokens = 0; /* every id is shown */
    return HR_OK;
}

/* Tokens as the vocabulary spells them. */
static void write_token_strs(hr_json_writer *w, const hr_generation *g, const headrace_event *e)
{
    const hr_tokenizer *t = hr_engine_tokenizer(g->server->engine);
    hr_json_key(w, HR_STR("token_strs"));
    if (!g->openai.return_token_strs) {
        hr_json_null(w);
        return;
    }
    hr_json_begin_array(w);
    for (size_t i = 0; i < e->n_prompt_ids && t; i++)
        hr_json_str(w, hr_tokenizer_token_text(t, (int32_t)e->prompt_ids[i]));
    hr_json_end_array(w);
}

void hr_tokenize_reply(hr_generation *g, const headrace_event *e)
{
    hr_json_writer w = { .out = hr_generations_scratch(g->server->generations) };
    hr_json_begin_object(&w);
    hr_json_key(&w, HR_STR("count"));
    hr_json_u64(&w, e->n_prompt_ids);
    hr_json_key(&w, HR_STR("max_model_len"));
    hr_json_i64(&w, hr_engine_max_model_len(g->server->engine));
    hr_json_key(&w, HR_STR("tokens"));
    hr_json_begin_array(&w);
    for (size_t i = 0; i < e->n_prompt_ids; i++) hr_json_i64(&w, e->prompt_ids[i]);
    hr_json_end_array(&w);
    write_token_strs(&w, g, e);
    hr_json_end_object(&w);
    hr_generation_answer(g, w.out);
}

void hr_detokenize_reply(hr_generation *g, const headrace_event *e)
{
    hr_json_writer w = { .out = hr_generations_scratch(g->server->generations) };
    hr_json_begin_object(&w);
    hr_json_key(&w, HR_STR("prompt"));
    hr_json_str(&w, (hr_str){ e->text, e->text_bytes });
    hr_json_end_object(&w);
    hr_generation_answer(g, w.out);
}
