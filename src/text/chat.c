/* Chat requests to prompts.
 *
 * The request's JSON is re-shaped into the variables that a template expects, in an arena that
 * lives for the call: containers on the way to a change are copied, everything else is shared. To
 * continue the final message, a mark of private-use characters is appended to its content and the
 * prompt is cut where the mark comes out, so the cut is right whatever the template does to the
 * content around it. Runs on the input thread; owns nothing afterwards. */
#include "text/chat.h"

/* U+F8FF U+10FFFD; the blank tells whether the template strips what ends a message. */
#define MARK "\xEF\xA3\xBF\xF4\x8F\xBF\xBD"

typedef struct shaper {
    hr_arena arena;
    const hr_chat *chat;
} shaper;

static hr_status out_of_memory(void)
{
    return hr_fail(HR_RESOURCE_EXHAUSTED, "memory for a chat request");
}

static hr_json json_text(const char *key, hr_str text)
{
    return (hr_json){ .type = HR_JSON_STRING, .key = hr_str_c(key), .text = text };
}

/* A copy whose members may be replaced, with room for two more. */
static hr_status copy_container(shaper *s, const hr_json *from, hr_json *to, hr_json **items)
{
    *items = hr_arena_array(&s->arena, from->count + 2, sizeof **items);
    if (!*items) return out_of_memory();
    if (from->count) memcpy(*items, from->items, from->count * sizeof **items);
    *to = *from;
    to->items = *items;
    return HR_OK;
}

/* ---- content -------------------------------------------------------------------------------- */

static hr_status part_text(const hr_json *part, size_t message, size_t i, hr_str *out)
{
    const hr_json *type = hr_json_get(part, "type"), *text = hr_json_get(part, "text");
    if (!type || type->type != HR_JSON_STRING)
        return hr_fail(HR_INVALID_ARGUMENT, "messages[%zu].content[%zu].type: a string is expected",
                       message, i);
    if (!hr_str_eq_c(type->text, "text"))
        return hr_fail(HR_UNIMPLEMENTED,
                       "messages[%zu].content[%zu]: parts of type '%.*s' are not supported, only "
                       "text",
                       message, i, HR_STR_ARG(type->text));
    if (!text || text->type != HR_JSON_STRING)
        return hr_fail(HR_INVALID_ARGUMENT, "messages[%zu].content[%zu].text: a string is expected",
                       message, i);
    *out = text->text;
    return HR_OK;
}

static hr_status join_parts(shaper *s, const hr_json *parts, size_t message, hr_json *out)
{
    hr_str part;
    size_t n = 0;
    for (size_t i = 0; i < parts->count; i++) {
        HR_TRY(part_text(&parts->items[i], message, i, &part));
        n += part.n + 1;
    }
    char *text = hr_arena_alloc(&s->arena, n + 1);
    if (!text) return out_of_memory();
    size_t at = 0;
    for (size_t i = 0; i < parts->count; i++) {
        HR_TRY(part_text(&parts->items[i], message, i, &part));
        if (i) text[at++] = '\n';
        if (part.n) memcpy(text + at, part.p, part.n);
        at += part.n;
    }
    *out = json_text("content", (hr_str){ text, at });
    return HR_OK;
}

static hr_status shape_content(shaper *s, size_t message, hr_json *content)
{
    if (content->type == HR_JSON_STRING || content->type == HR_JSON_NULL) return HR_OK;
    if (content->type == HR_JSON_ARRAY) return join_parts(s, content, message, content);
    return hr_fail(HR_INVALID_ARGUMENT,
                   "messages[%zu].content: a string or an array of parts is expected", message);
}

/* ---- tool calls ----------------------------------------------------------------------------- */

static hr_status shape_arguments(shaper *s, size_t message, size_t call, hr_json *arguments)
{
    const hr_json *parsed;
    hr_str key = arguments->key;
    static const hr_json empty = { .type = HR_JSON_OBJECT };
    if (arguments->type == HR_JSON_OBJECT) return HR_OK;
    if (arguments->type == HR_JSON_NULL ||
        (arguments->type == HR_JSON_STRING && !hr_str_trim(arguments->text).n)) {
        *arguments = empty;
        arguments->key = key;
        return HR_OK;
    }
    hr_status st = arguments->type == HR_JSON_STRING
                       ? hr_json_parse(arguments->text, NULL, &s->arena, &parsed)
                       : hr_fail(HR_INVALID_ARGUMENT, "a string or an object is expected");
    if (!st && parsed->type != HR_JSON_OBJECT)
        st = hr_fail(HR_INVALID_ARGUMENT, "the text is JSON but not an object");
    if (st)
        return hr_fail_prefix(st, "messages[%zu].tool_calls[%zu].function.arguments", message,
                              call);
    *arguments = *parsed;
    arguments->key = key;
    return HR_OK;
}

static hr_status shape_function(shaper *s, size_t message, size_t call, hr_json *function)
{
    hr_json *members;
    HR_TRY(copy_container(s, function, function, &members));
    for (size_t i = 0; i < function->count; i++)
        if (hr_str_eq_c(members[i].key, "arguments"))
            HR_TRY(shape_arguments(s, message, call, &members[i]));
    return HR_OK;
}

static hr_status shape_tool_calls(shaper *s, size_t message, hr_json *calls)
{
    hr_json *items, *members;
    if (calls->type == HR_JSON_NULL) return HR_OK;
    if (calls->type != HR_JSON_ARRAY)
        return hr_fail(HR_INVALID_ARGUMENT, "messages[%zu].tool_calls: an array is expected",
                       message);
    HR_TRY(copy_container(s, calls, calls, &items));
    for (size_t i = 0; i < calls->count; i++) {
        if (items[i].type != HR_JSON_OBJECT)
            return hr_fail(HR_INVALID_ARGUMENT,
                           "messages[%zu].tool_calls[%zu]: an object is expected", message, i);
        HR_TRY(copy_container(s, &items[i], &items[i], &members));
        for (size_t k = 0; k < items[i].count; k++)
            if (hr_str_eq_c(members[k].key, "function") && members[k].type == HR_JSON_OBJECT)
                HR_TRY(shape_function(s, message, i, &members[k]));
    }
    return HR_OK;
}

/* ---- messages ------------------------------------------------------------------------------- */

static hr_json *member(const hr_json *m, hr_json *members, const char *key)
{
    for (size_t k = 0; k < m->count; k++)
        if (hr_str_eq_c(members[k].key, key)) return &members[k];
    return NULL;
}

/* Two members at most are new. */
static void fill_message(hr_json *m, hr_json *members)
{
    static const char *const names[2] = { "reasoning", "reasoning_content" };
    hr_json *content = member(m, members, "content");
    if (!content) members[m->count++] = json_text("content", HR_STR(""));
    else if (content->type == HR_JSON_NULL) *content = json_text("content", HR_STR(""));
    for (int i = 0; i < 2; i++) {
        hr_json *have = member(m, members, names[i]), *lack = member(m, members, names[!i]);
        if (!have || have->type == HR_JSON_NULL || (lack && lack->type != HR_JSON_NULL)) continue;
        if (!lack) lack = &members[m->count++];
        *lack = *have;
        lack->key = hr_str_c(names[!i]);
    }
}

static hr_status shape_message(shaper *s, size_t i, hr_json *m)
{
    hr_json *members;
    if (m->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT, "messages[%zu]: an object is expected", i);
    const hr_json *role = hr_json_get(m, "role");
    if (!role || role->type != HR_JSON_STRING || !role->text.n)
        return hr_fail(HR_INVALID_ARGUMENT, "messages[%zu].role: a string is expected", i);
    HR_TRY(copy_container(s, m, m, &members));
    if (s->chat->flags & HR_CHAT_FILL_MESSAGES) fill_message(m, members);
    for (size_t k = 0; k < m->count; k++) {
        if (hr_str_eq_c(members[k].key, "content")) HR_TRY(shape_content(s, i, &members[k]));
        if (hr_str_eq_c(members[k].key, "tool_calls")) HR_TRY(shape_tool_calls(s, i, &members[k]));
    }
    return HR_OK;
}

/* Appends the mark to the last message's content. */
static hr_status mark_end(shaper *s, hr_json *m)
{
    hr_json *members;
    HR_TRY(copy_container(s, m, m, &members));
    for (size_t k = 0; k < m->count; k++) {
        if (!hr_str_eq_c(members[k].key, "content") || members[k].type != HR_JSON_STRING) continue;
        hr_str text = members[k].text;
        char *marked = hr_arena_alloc(&s->arena, text.n + sizeof MARK " ");
        if (!marked) return out_of_memory();
        if (text.n) memcpy(marked, text.p, text.n);
        memcpy(marked + text.n, MARK " ", sizeof MARK " ");
        members[k].text = (hr_str){ marked, text.n + sizeof MARK " " - 1 };
        return HR_OK;
    }
    return hr_fail(HR_INVALID_ARGUMENT,
                   "continue_final_message: the last message has no text to continue");
}

static hr_status shape_messages(shaper *s, hr_json *out)
{
    hr_json *items;
    const hr_json *from = s->chat->messages;
    if (!from || from->type != HR_JSON_ARRAY || !from->count)
        return hr_fail(HR_INVALID_ARGUMENT, "messages: an array that is not empty is expected");
    HR_TRY(copy_container(s, from, out, &items));
    out->key = HR_STR("messages");
    for (size_t i = 0; i < out->count; i++) HR_TRY(shape_message(s, i, &items[i]));
    if (s->chat->flags & HR_CHAT_CONTINUE_FINAL_MESSAGE) return mark_end(s, &items[out->count - 1]);
    return HR_OK;
}

/* ---- variables ------------------------------------------------------------------------------ */

static hr_status shape_list(const hr_json *from, const char *key, hr_json *out)
{
    static const hr_json none = { .type = HR_JSON_NULL };
    *out = from ? *from : none;
    out->key = hr_str_c(key);
    if (out->type == HR_JSON_NULL || out->type == HR_JSON_ARRAY) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "%s: an array is expected", key);
}

static bool has_member(const hr_json *object, const char *key)
{
    return hr_json_get(object, key) != NULL;
}

static hr_status check_kwargs(const hr_chat *c)
{
    static const char *const taken[] = { "messages", "tools", "documents",
                                         "add_generation_prompt" };
    if (!c->kwargs) return HR_OK;
    if (c->kwargs->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT, "chat_template_kwargs: an object is expected");
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (has_member(c->kwargs, taken[i]))
            return hr_fail(HR_INVALID_ARGUMENT,
                           "chat_template_kwargs.%s: it has a field of its own in the request",
                           taken[i]);
    return HR_OK;
}

/* The top-level object. Tokens that the request sets itself are data, not trusted. */
static hr_status shape_variables(shaper *s, hr_json *out, hr_str trusted[2], size_t *n_trusted)
{
    const hr_chat *c = s->chat;
    size_t n = 0, extra = c->kwargs ? c->kwargs->count : 0;
    HR_TRY(check_kwargs(c));
    hr_json *items = hr_arena_array(&s->arena, extra + 6, sizeof *items);
    if (!items) return out_of_memory();
    HR_TRY(shape_messages(s, &items[n++]));
    HR_TRY(shape_list(c->tools, "tools", &items[n++]));
    HR_TRY(shape_list(c->documents, "documents", &items[n++]));
    bool prompt = (c->flags & HR_CHAT_ADD_GENERATION_PROMPT) != 0;
    items[n++] = (hr_json){ .type = prompt ? HR_JSON_TRUE : HR_JSON_FALSE,
                            .key = HR_STR("add_generation_prompt") };
    const char *const names[] = { "bos_token", "eos_token" };
    const hr_str tokens[] = { c->bos_token, c->eos_token };
    for (size_t i = 0; i < 2; i++) {
        if (!tokens[i].n || has_member(c->kwargs, names[i])) continue;
        items[n++] = json_text(names[i], tokens[i]);
        trusted[(*n_trusted)++] = hr_str_c(names[i]);
    }
    if (extra) memcpy(items + n, c->kwargs->items, extra * sizeof *items);
    *out = (hr_json){ .type = HR_JSON_OBJECT, .items = items, .count = n + extra };
    return HR_OK;
}

/* ---- the cut -------------------------------------------------------------------------------- */

static void cut(hr_rendered *r, size_t n)
{
    size_t at = 0, kept = 0;
    for (; kept < r->n_spans && at < n; kept++) {
        if (at + r->spans[kept].text.n > n) r->spans[kept].text.n = n - at;
        at += r->spans[kept].text.n;
    }
    r->n_spans = kept;
    r->text.n = n;
}

static hr_status cut_at_mark(hr_rendered *r)
{
    hr_str text = hr_buf_str(&r->text), mark = HR_STR(MARK);
    size_t at = text.n + 1;
    do {
        if (at == 0 || text.n < mark.n)
            return hr_fail(HR_INVALID_ARGUMENT,
                           "continue_final_message: the template leaves the last message out");
        at = at > text.n - mark.n ? text.n - mark.n : at - 1;
    } while (memcmp(text.p + at, mark.p, mark.n) != 0);
    bool blank = at + mark.n < text.n && text.p[at + mark.n] == ' ';
    hr_str kept = hr_str_slice(text, 0, at);
    while (!blank && kept.n && strchr(" \t\r\n\v\f", kept.p[kept.n - 1]) && kept.p[kept.n - 1])
        kept.n--;
    cut(r, kept.n);
    return HR_OK;
}

hr_status hr_chat_render(const hr_template *t, const hr_chat *chat, hr_rendered *out)
{
    *out = (hr_rendered){ 0 };
    const hr_chat_flags both = HR_CHAT_ADD_GENERATION_PROMPT | HR_CHAT_CONTINUE_FINAL_MESSAGE;
    if ((chat->flags & both) == both)
        return hr_fail(HR_INVALID_ARGUMENT, "continue_final_message and add_generation_prompt "
                                            "cannot both be true");
    shaper s = { .chat = chat };
    hr_json variables;
    hr_str trusted[2];
    hr_render_options options = { .limits = chat->limits,
                                  .trusted = trusted,
                                  .now = chat->now,
                                  .now_microseconds = chat->now_microseconds,
                                  .failed = chat->failed };
    hr_status st = shape_variables(&s, &variables, trusted, &options.n_trusted);
    if (!st) st = hr_template_render(t, &variables, &options, out);
    if (!st && (chat->flags & HR_CHAT_CONTINUE_FINAL_MESSAGE)) st = cut_at_mark(out);
    if (st) hr_rendered_deinit(out);
    hr_arena_deinit(&s.arena);
    return st;
}

/* ---- tokenizer_config.json ------------------------------------------------------------------ */

hr_status hr_chat_template_source(const hr_json *config, const char *name, hr_str *out)
{
    const hr_json *t = hr_json_get(config, "chat_template");
    *out = (hr_str){ 0 };
    if (!name) name = "default";
    if (t && t->type == HR_JSON_STRING) {
        *out = t->text;
        return HR_OK;
    }
    for (size_t i = 0; t && t->type == HR_JSON_ARRAY && i < t->count; i++) {
        const hr_json *label = hr_json_get(&t->items[i], "name");
        const hr_json *source = hr_json_get(&t->items[i], "template");
        if (!label || label->type != HR_JSON_STRING || !source || source->type != HR_JSON_STRING)
            return hr_fail(HR_INVALID_ARGUMENT,
                           "tokenizer_config.json: chat_template[%zu] needs name and template", i);
        if (!hr_str_eq_c(label->text, name)) continue;
        *out = source->text;
        return HR_OK;
    }
    if (t && t->type != HR_JSON_NULL && t->type != HR_JSON_ARRAY)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "tokenizer_config.json: chat_template must be a string or a list");
    return hr_fail(HR_NOT_FOUND, "tokenizer_config.json: no chat template '%s'", name);
}

hr_status hr_chat_special_token(const hr_json *config, const char *key, hr_str *out)
{
    const hr_json *t = hr_json_get(config, key);
    *out = (hr_str){ 0 };
    if (t && t->type == HR_JSON_OBJECT) t = hr_json_get(t, "content");
    if (!t || t->type == HR_JSON_NULL) return HR_OK;
    if (t->type != HR_JSON_STRING)
        return hr_fail(HR_INVALID_ARGUMENT, "tokenizer_config.json: %s must be a string", key);
    *out = t->text;
    return HR_OK;
}
