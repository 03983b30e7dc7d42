/* headrace render: what the model will read, for people who write templates and for tests.
 *
 * Main thread. With --messages a chat is rendered as the engine renders it; with --variables the
 * template sees exactly the given object, as jinja2 would. */
#include <stdio.h>

#include "cli/cli.h"
#include "engine/engine.h"
#include "text/chat.h"

typedef struct session {
    hr_args *args;
    hr_arena arena;
    hr_model *model;         /* counted; NULL without MODEL */
    hr_tokenizer *tokenizer; /* owned */
    hr_template *template;   /* owned */
    hr_str bos, eos;
    hr_rendered out;
} session;

static hr_status load_model(session *s)
{
    if (!s->args->model) return HR_OK;
    HR_TRY(hr_model_open(s->args->model, NULL, &s->model));
    HR_TRY(hr_engine_load_tokenizer(s->model, &s->tokenizer));
    return hr_engine_chat_tokens(s->model, s->tokenizer, &s->arena, &s->bos, &s->eos);
}

static hr_status load_template(session *s)
{
    hr_str source = { 0 };
    if (s->args->own.template_file)
        HR_TRY(hr_args_slurp(&s->arena, s->args->own.template_file, &source));
    else {
        const hr_model_vocab *v = hr_model_vocab_get(s->model);
        if (!v->n_templates)
            return hr_fail(HR_NOT_FOUND, "%s has no chat template; give --template FILE",
                           s->args->model);
        source = v->templates[0].text;
    }
    return hr_template_parse(source, &s->template);
}

static hr_status load_json(session *s, const char *file, const hr_json **out)
{
    hr_str text;
    *out = NULL;
    if (!file) return HR_OK;
    HR_TRY(hr_args_slurp(&s->arena, file, &text));
    hr_status st = hr_json_parse(text, NULL, &s->arena, out);
    return st ? hr_fail_prefix(st, "%s", file) : HR_OK;
}

static hr_status render_chat(session *s)
{
    const hr_cli_command *c = &s->args->own;
    hr_chat chat = { .bos_token = s->bos, .eos_token = s->eos };
    if (!c->no_generation_prompt) chat.flags = HR_CHAT_ADD_GENERATION_PROMPT;
    if (c->continue_final_message) chat.flags = HR_CHAT_CONTINUE_FINAL_MESSAGE;
    HR_TRY(load_json(s, c->messages, &chat.messages));
    HR_TRY(load_json(s, c->tools, &chat.tools));
    return hr_chat_render(s->template, &chat, &s->out);
}

static hr_status render(session *s)
{
    const hr_cli_command *c = &s->args->own;
    if (!c->variables) return render_chat(s);
    const hr_json *variables;
    hr_str trusted[] = { HR_STR("bos_token"), HR_STR("eos_token") };
    hr_render_options options = { .trusted = trusted, .n_trusted = 2 };
    HR_TRY(load_json(s, c->variables, &variables));
    return hr_template_render(s->template, variables, &options, &s->out);
}

/* [["text", false], ["typed by a user", true], …] */
static void print_spans(const hr_rendered *r)
{
    hr_buf text = { 0 };
    hr_json_writer w = { .out = &text };
    hr_json_begin_array(&w);
    for (size_t i = 0; i < r->n_spans; i++) {
        hr_json_begin_array(&w);
        hr_json_str(&w, r->spans[i].text);
        hr_json_bool(&w, r->spans[i].kind == HR_SPAN_PLAIN);
        hr_json_end_array(&w);
    }
    hr_json_end_array(&w);
    puts(hr_buf_c(&text));
    hr_buf_deinit(&text);
}

int hr_cli_render(hr_args *a)
{
    session s = { .args = a };
    hr_status st = load_model(&s);
    if (!st) st = load_template(&s);
    if (!st) st = render(&s);
    if (!st && a->own.spans) print_spans(&s.out);
    else if (!st) fwrite(s.out.text.p, 1, s.out.text.n, stdout);
    hr_rendered_deinit(&s.out);
    hr_template_destroy(s.template);
    hr_tokenizer_destroy(s.tokenizer);
    hr_model_release(s.model);
    hr_arena_deinit(&s.arena);
    return st ? hr_cli_complain() : 0;
}
