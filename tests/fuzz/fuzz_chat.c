/* Any bytes as a chat request: {"messages": …, "tools": …, "documents": …, "chat_template_kwargs":
 * …, "continue_final_message": …}. The template writes no "<|", so whatever "<|" a prompt holds
 * came in with the request and must be data; a continued prompt has lost its mark. */
#include <string.h>

#include "fuzz/rendered.h"
#include "text/chat.h"

static const char template_text[] =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content "
    "| "
    "trim }}{% endif %}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}{{ "
    "c.function.arguments | tojson(indent=1) }}{% endfor %}{% endif %}[/]{% endfor %}{% if tools "
    "%}{{ tools | tojson }}{% endif %}{% for d in documents or [] %}{{ d }}{% endfor %}{% if "
    "add_generation_prompt %}[assistant]{% endif %}{{ x | default('') | upper }}{{ eos_token }}";

static const hr_template *chat_template(void)
{
    static hr_template *t;
    if (!t) fuzz_require(!hr_template_parse(HR_STR(template_text), &t), "the template is one");
    return t;
}

static void check(const hr_rendered *r)
{
    fuzz_check_rendered(r);
    for (size_t i = 0; i < r->n_spans; i++)
        fuzz_require(r->spans[i].kind == HR_SPAN_PLAIN ||
                         hr_str_find(r->spans[i].text, HR_STR("<|"), 0) == SIZE_MAX,
                     "what a request brings is data");
}

static void render(const hr_json *request)
{
    const hr_json *more = hr_json_get(request, "continue_final_message");
    hr_chat chat = { .messages = hr_json_get(request, "messages"),
                     .tools = hr_json_get(request, "tools"),
                     .documents = hr_json_get(request, "documents"),
                     .kwargs = hr_json_get(request, "chat_template_kwargs"),
                     .bos_token = HR_STR("<s>"),
                     .eos_token = HR_STR("</s>"),
                     .flags = more ? HR_CHAT_CONTINUE_FINAL_MESSAGE : HR_CHAT_ADD_GENERATION_PROMPT,
                     .limits = fuzz_limits };
    hr_rendered r;
    hr_status st = hr_chat_render(chat_template(), &chat, &r);
    fuzz_require(st != HR_INTERNAL, "a request is never our bug");
    fuzz_require(!st || hr_message()[0], "a refusal has its words");
    if (!st) check(&r);
    hr_rendered_deinit(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    hr_arena arena = { 0 };
    const hr_json *request;
    if (!hr_json_parse((hr_str){ (const char *)data, n }, NULL, &arena, &request)) render(request);
    hr_arena_deinit(&arena);
    return 0;
}
