/* POST /v1/chat/completions: messages, tools and what the template is told.
 *
 * I/O thread. Messages are checked for their form here and otherwise passed on as the client wrote
 * them: the input thread renders them with the model's template, where the order of keys and the
 * spelling of numbers count. */
#include "server/openai.h"

void hr_route_chat_completions(hr_exchange *x)
{
    hr_openai_handle(x, HR_OPENAI_CHAT);
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool is_role(hr_str role)
{
    static const char *const roles[] = { "system", "developer", "user", "assistant", "tool" };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (hr_str_eq_c(role, roles[i])) return true;
    return false;
}

static bool has_value(const hr_json *v)
{
    return v && v->type != HR_JSON_NULL;
}

static hr_status check_message(const hr_json *m, size_t i)
{
    const hr_json *role = hr_json_get(m, "role"), *content = hr_json_get(m, "content");
    if (m->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT, "messages[%zu]: an object is expected", i);
    if (!role || role->type != HR_JSON_STRING)
        return hr_fail(HR_INVALID_ARGUMENT, "messages[%zu].role: a string is expected", i);
    if (!is_role(role->text))
        return hr_fail(HR_INVALID_ARGUMENT,
                       "messages[%zu].role: '%.*s' is not system, developer, user, assistant or "
                       "tool",
                       i, (int)(role->text.n > 40 ? 40 : role->text.n), role->text.p);
    bool calls = hr_str_eq_c(role->text, "assistant") && has_value(hr_json_get(m, "tool_calls"));
    if (!has_value(content) && !calls)
        return hr_fail(HR_INVALID_ARGUMENT, "messages[%zu].content: is required", i);
    if (has_value(content) && content->type != HR_JSON_STRING && content->type != HR_JSON_ARRAY)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "messages[%zu].content: a string or a list of parts is expected", i);
    const hr_json *function = hr_json_get(m, "function_call");
    if (has_value(function))
        return hr_fail(HR_UNIMPLEMENTED,
                       "messages[%zu].function_call: not supported, use tool_calls", i);
    return HR_OK;
}

hr_status hr_openai_read_messages(hr_openai_parser *p, const hr_json *v)
{
    HR_TRY(hr_openai_check_list(p, v));
    if (!v->count) return hr_openai_refuse(p, "the list is empty");
    for (size_t i = 0; i < v->count; i++) HR_TRY(check_message(&v->items[i], i));
    p->out->messages = v;
    return hr_openai_source(p, v, &p->out->request.messages_json);
}

/* ---- what else the template sees ------------------------------------------------------------- */

static hr_status check_tool(const hr_json *tool, size_t i)
{
    const hr_json *type = hr_json_get(tool, "type");
    const hr_json *name = hr_json_get(hr_json_get(tool, "function"), "name");
    if (type && (type->type != HR_JSON_STRING || !hr_str_eq_c(type->text, "function")))
        return hr_fail(HR_UNIMPLEMENTED, "tools[%zu].type: only function is supported", i);
    if (!name || name->type != HR_JSON_STRING || !name->text.n)
        return hr_fail(HR_INVALID_ARGUMENT, "tools[%zu].function.name: a string is expected", i);
    return HR_OK;
}

hr_status hr_openai_read_tools(hr_openai_parser *p, const hr_json *v)
{
    HR_TRY(hr_openai_check_list(p, v));
    for (size_t i = 0; i < v->count; i++) HR_TRY(check_tool(&v->items[i], i));
    p->out->has_tools = v->count > 0;
    return v->count ? hr_openai_source(p, v, &p->out->request.tools_json) : HR_OK;
}

hr_status hr_openai_read_tool_choice(hr_openai_parser *p, const hr_json *v)
{
    bool automatic = v->type == HR_JSON_STRING && hr_str_eq_c(v->text, "auto");
    bool none = v->type == HR_JSON_STRING && hr_str_eq_c(v->text, "none");
    p->out->has_tool_choice = automatic;
    p->out->no_tool_choice = none;
    if (automatic || none) return HR_OK;
    bool known = v->type == HR_JSON_OBJECT ||
                 (v->type == HR_JSON_STRING && hr_str_eq_c(v->text, "required"));
    if (!known) return hr_openai_refuse(p, "must be none, auto, required or an object");
    return hr_fail(HR_UNIMPLEMENTED,
                   "tool_choice: a call cannot be enforced here, only none and auto are supported");
}

hr_status hr_openai_read_documents(hr_openai_parser *p, const hr_json *v)
{
    HR_TRY(hr_openai_check_list(p, v));
    for (size_t i = 0; i < v->count; i++)
        if (v->items[i].type != HR_JSON_OBJECT)
            return hr_openai_refuse(p, "must be a list of objects");
    return hr_openai_source(p, v, &p->out->request.documents_json);
}

hr_status hr_openai_read_template_kwargs(hr_openai_parser *p, const hr_json *v)
{
    if (v->type != HR_JSON_OBJECT) return hr_openai_refuse(p, "must be an object");
    p->out->template_kwargs = v;
    return hr_openai_source(p, v, &p->out->request.chat_template_kwargs_json);
}

/* reasoning_effort is a variable of templates that know it, unless the kwargs have it already. */
static hr_status add_reasoning_effort(hr_openai_parser *p)
{
    const hr_json *kwargs = p->out->template_kwargs;
    if (!p->out->reasoning_effort.p || hr_json_get(kwargs, "reasoning_effort")) return HR_OK;
    hr_buf text = { 0 };
    hr_json_writer w = { .out = &text };
    hr_json_begin_object(&w);
    hr_json_key(&w, HR_STR("reasoning_effort"));
    hr_json_str(&w, p->out->reasoning_effort);
    for (size_t i = 0; kwargs && i < kwargs->count; i++) {
        hr_json_key(&w, kwargs->items[i].key);
        hr_json_value(&w, &kwargs->items[i]);
    }
    hr_json_end_object(&w);
    hr_status st = hr_buf_status(&text);
    if (!st)
        st = hr_openai_c_string(p, hr_buf_str(&text), &p->out->request.chat_template_kwargs_json);
    hr_buf_deinit(&text);
    return st;
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* The last message's text, where the answer goes on with it: parts joined as the template has
 * them. */
static hr_status find_echo(hr_openai_parser *p)
{
    hr_openai *o = p->out;
    const hr_json *last = &o->messages->items[o->messages->count - 1];
    const char *role = p->x->server->options.response_role;
    const hr_json *content = hr_json_get(last, "content");
    if (!o->echo || !hr_str_eq_c(hr_json_get(last, "role")->text, role ? role : "assistant"))
        return HR_OK;
    if (content && content->type == HR_JSON_STRING) o->echo_text = content->text;
    if (!content || content->type != HR_JSON_ARRAY) return HR_OK;
    hr_buf text = { 0 };
    for (size_t i = 0; i < content->count; i++) {
        const hr_json *part = hr_json_get(&content->items[i], "text");
        if (i) hr_buf_add_byte(&text, '\n');
        if (part && part->type == HR_JSON_STRING) hr_buf_add_str(&text, part->text);
    }
    hr_status st = hr_buf_status(&text);
    char *copy = st ? NULL : hr_arena_copy(&p->x->arena, text.p, text.n);
    if (!st && !copy) st = hr_fail(HR_RESOURCE_EXHAUSTED, "echo: no memory");
    o->echo_text = (hr_str){ copy, copy ? text.n : 0 };
    hr_buf_deinit(&text);
    return st;
}

static hr_status settle_prompt(hr_openai_parser *p)
{
    hr_openai *o = p->out;
    p->param = "messages";
    if (!o->messages) return hr_openai_refuse(p, "is required");
    o->n_prompts = 1;
    if (o->generation_prompt >= 0) o->request.add_generation_prompt = o->generation_prompt;
    else o->request.add_generation_prompt = !o->request.continue_final_message;
    p->param = "chat_template_kwargs";
    return add_reasoning_effort(p);
}

/* What is to be found in the answer, and whether the template hears of tools that are not to be
 * called. */
static hr_status settle_reply(hr_openai_parser *p)
{
    hr_openai *o = p->out;
    const hr_server *s = p->x->server;
    p->param = "tool_choice";
    if (o->has_tool_choice && !o->has_tools) return hr_openai_refuse(p, "auto needs tools");
    if (o->no_tool_choice && s->options.exclude_tools_when_tool_choice_none)
        o->request.tools_json = NULL;
    o->reply = s->reply;
    bool calls = o->has_tools && !o->no_tool_choice && s->options.enable_auto_tool_choice;
    if (!calls) o->reply.calls = HR_CALLS_NONE;
    return HR_OK;
}

static hr_status settle_lengths(hr_openai_parser *p)
{
    hr_openai *o = p->out;
    p->param = "max_tokens";
    if (o->max_tokens == 0) return hr_openai_refuse(p, "0 is below 1");
    if (o->max_completion_tokens >= 0) o->max_tokens = o->max_completion_tokens;
    o->sampling.max_tokens = o->max_tokens;
    return HR_OK;
}

static hr_status settle_logprobs(hr_openai_parser *p)
{
    hr_openai *o = p->out;
    headrace_sampling *s = &o->sampling;
    p->param = "top_logprobs";
    if (o->top_logprobs > 0 && !o->chat_logprobs)
        return hr_openai_refuse(p, "only where logprobs is true");
    int most = hr_engine_sampler_limits(p->x->server->engine).max_logprobs;
    if (o->top_logprobs > most)
        return hr_openai_refuse(p, "%d is not in 0 to %d", o->top_logprobs, most);
    o->wants_logprobs = o->chat_logprobs || s->n_logprob_token_ids;
    o->logprobs = o->chat_logprobs && o->top_logprobs > 0 ? o->top_logprobs : 0;
    s->logprobs = o->wants_logprobs ? o->logprobs : -1;
    s->prompt_logprobs = o->prompt_logprobs;
    if (o->include_reasoning || !o->reply.reasoning) return HR_OK;
    o->wants_logprobs = o->return_token_ids = 0; /* they would tell it */
    return HR_OK;
}

hr_status hr_openai_settle_chat(hr_openai_parser *p)
{
    HR_TRY(settle_prompt(p));
    HR_TRY(find_echo(p));
    HR_TRY(settle_reply(p));
    HR_TRY(settle_lengths(p));
    HR_TRY(settle_logprobs(p));
    p->param = NULL;
    return HR_OK;
}

/* POST /tokenize takes a prompt or messages. */
hr_status hr_openai_settle_tokenize(hr_openai_parser *p)
{
    hr_openai *o = p->out;
    p->param = "prompt";
    if (!o->prompts && !o->messages) return hr_openai_refuse(p, "it or messages is required");
    if (o->prompts && o->messages) return hr_openai_refuse(p, "give it or messages, not both");
    return o->prompts ? HR_OK : settle_prompt(p);
}
