/* Chats: messages through the model's template, then ids by provenance.
 *
 * Text thread, and the cli's render command. Text that came in with the request is data: special
 * tokens typed there stay text. The template writes BOS itself, so none is added. */
#include "text/chat.h"

#include "engine/text_int.h"

/* A special token's text by its id; nothing when there is none. */
static hr_str token_text(const hr_tokenizer *t, int64_t id)
{
    if (!t || id < 0 || id > INT32_MAX) return (hr_str){ 0 };
    return hr_tokenizer_token_text(t, (int32_t)id);
}

hr_status hr_engine_chat_tokens(const hr_model *m, const hr_tokenizer *t, hr_arena *arena,
                                hr_str *bos, hr_str *eos)
{
    const hr_model_vocab *v = hr_model_vocab_get(m);
    *bos = token_text(t, v->bos);
    *eos = token_text(t, v->eos);
    if (!v->tokenizer_config_json.n) return HR_OK;
    const hr_json *config;
    HR_TRY(hr_json_parse(v->tokenizer_config_json, NULL, arena, &config));
    HR_TRY(hr_chat_special_token(config, "bos_token", bos));
    return hr_chat_special_token(config, "eos_token", eos);
}

/* One of the request's JSON texts; NULL when it was not given. */
static hr_status parse(hr_str text, const char *field, hr_json_type type, hr_arena *arena,
                       const hr_json **out)
{
    *out = NULL;
    if (!text.p) return HR_OK;
    hr_status st = hr_json_parse(text, NULL, arena, out);
    if (st) return hr_fail_prefix(st, "%s", field);
    if ((*out)->type != type) return hr_fail(HR_INVALID_ARGUMENT, "%s is not a list", field);
    return HR_OK;
}

static hr_status render(hr_text *t, const hr_request *r, hr_arena *arena, hr_rendered *out)
{
    hr_chat chat = { .flags = HR_CHAT_ADD_GENERATION_PROMPT };
    HR_TRY(parse(r->messages_json, "messages", HR_JSON_ARRAY, arena, &chat.messages));
    HR_TRY(parse(r->tools_json, "tools", HR_JSON_ARRAY, arena, &chat.tools));
    HR_TRY(hr_engine_chat_tokens(t->engine->model, t->engine->tokenizer, arena, &chat.bos_token,
                                 &chat.eos_token));
    return hr_chat_render(t->chat, &chat, out);
}

hr_status hr_text_encode_chat(hr_text *t, const hr_request *r, hr_ids *ids)
{
    if (!t->chat) return hr_fail(HR_INVALID_ARGUMENT, "messages: the model has no chat template");
    hr_arena arena = { 0 };
    hr_rendered text = { 0 };
    hr_status st = render(t, r, &arena, &text);
    if (!st)
        st = hr_tokenizer_encode(t->engine->tokenizer, text.spans, text.n_spans, HR_ENCODE_DEFAULT,
                                 &t->scratch, ids);
    hr_rendered_deinit(&text);
    hr_arena_deinit(&arena);
    return st;
}
