/* Chats: messages through the model's template, then ids by provenance.
 *
 * Input thread, and the cli's render command. Text that came in with the request is data: special
 * tokens typed there stay text (unless --parse-special-in-content). The template writes BOS itself,
 * so none is added unless the request says so. */
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
    if ((*out)->type != type)
        return hr_fail(HR_INVALID_ARGUMENT, "%s is not %s", field,
                       type == HR_JSON_ARRAY ? "a list" : "an object");
    return HR_OK;
}

static hr_status render(hr_reader *t, const hr_request *r, hr_arena *arena, hr_rendered *out)
{
    hr_chat chat = { .flags = HR_CHAT_FILL_MESSAGES };
    if (r->add_generation_prompt) chat.flags |= HR_CHAT_ADD_GENERATION_PROMPT;
    if (r->continue_final_message) chat.flags |= HR_CHAT_CONTINUE_FINAL_MESSAGE;
    HR_TRY(parse(r->messages_json, "messages", HR_JSON_ARRAY, arena, &chat.messages));
    HR_TRY(parse(r->tools_json, "tools", HR_JSON_ARRAY, arena, &chat.tools));
    HR_TRY(parse(r->documents_json, "documents", HR_JSON_ARRAY, arena, &chat.documents));
    HR_TRY(parse(r->kwargs_json, "chat_template_kwargs", HR_JSON_OBJECT, arena, &chat.kwargs));
    HR_TRY(hr_engine_chat_tokens(t->engine->model, t->engine->tokenizer, arena, &chat.bos_token,
                                 &chat.eos_token));
    return hr_chat_render(t->chat, &chat, out);
}

static hr_status check_bytes(const hr_reader *t, const hr_request *r, const hr_rendered *text)
{
    size_t bytes = 0;
    for (size_t i = 0; i < text->n_spans; i++) bytes += text->spans[i].text.n;
    return hr_reader_check_bytes(t, r, bytes);
}

hr_status hr_reader_encode_chat(hr_reader *t, const hr_request *r, hr_ids *ids)
{
    if (!t->chat) return hr_fail(HR_INVALID_ARGUMENT, "messages: the model has no chat template");
    hr_arena arena = { 0 };
    hr_rendered text = { 0 };
    hr_status st = render(t, r, &arena, &text);
    if (!st) st = check_bytes(t, r, &text);
    if (t->engine->options.parse_special_in_content)
        for (size_t i = 0; i < text.n_spans; i++) text.spans[i].kind = HR_SPAN_SPECIAL;
    if (!st)
        st = hr_tokenizer_encode(t->engine->tokenizer, text.spans, text.n_spans,
                                 r->add_special_tokens ? HR_ENCODE_ADD_SPECIAL : HR_ENCODE_DEFAULT,
                                 &t->scratch, ids);
    hr_rendered_deinit(&text);
    hr_arena_deinit(&arena);
    return st;
}
