/* headrace render: what the model will read, for people who write templates and for tests.
 *
 * Main thread. With --messages a chat is rendered as the engine renders it; with --variables the
 * template sees exactly the given object, as jinja2 would. What goes wrong inside the template is
 * shown in its source. */
#include <stdio.h>

#include "cli/cli.h"
#include "engine/engine.h"
#include "text/chat.h"

typedef struct session {
    hr_args *args;
    hr_arena arena;
    hr_model *model;         /* counted; NULL without MODEL */
    hr_tokenizer *tokenizer; /* owned */
    hr_str source;           /* of the template, in the arena or the model's */
    hr_template *template;   /* owned */
    hr_template_place failed;
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
    if (s->args->own.template_file)
        HR_TRY(hr_args_slurp(&s->arena, s->args->own.template_file, &s->source));
    else {
        const hr_model_vocab *v = hr_model_vocab_get(s->model);
        if (!v->n_templates)
            return hr_fail(HR_NOT_FOUND, "%s has no chat template; give --template FILE",
                           s->args->model);
        s->source = v->templates[0].text;
    }
    return hr_template_check(s->source, &s->failed, &s->template);
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

static hr_status read_kwargs(session *s, const hr_json **out)
{
    const char *text = s->args->own.template_kwargs;
    *out = NULL;
    if (!text) return HR_OK;
    hr_status st = hr_json_parse(hr_str_c(text), NULL, &s->arena, out);
    return st ? hr_fail_prefix(st, "--chat-template-kwargs") : HR_OK;
}

static hr_status render_chat(session *s)
{
    const hr_cli_command *c = &s->args->own;
    hr_chat chat = { .bos_token = s->bos, .eos_token = s->eos, .failed = &s->failed };
    if (!c->no_generation_prompt) chat.flags = HR_CHAT_ADD_GENERATION_PROMPT;
    if (c->continue_final_message) chat.flags = HR_CHAT_CONTINUE_FINAL_MESSAGE;
    HR_TRY(load_json(s, c->messages, &chat.messages));
    HR_TRY(load_json(s, c->tools, &chat.tools));
    HR_TRY(load_json(s, c->documents, &chat.documents));
    HR_TRY(read_kwargs(s, &chat.kwargs));
    return hr_chat_render(s->template, &chat, &s->out);
}

static hr_status render(session *s)
{
    const hr_cli_command *c = &s->args->own;
    if (!c->variables) return render_chat(s);
    const hr_json *variables;
    hr_str trusted[] = { HR_STR("bos_token"), HR_STR("eos_token") };
    hr_render_options options = { .trusted = trusted, .n_trusted = 2, .failed = &s->failed };
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

/* The line that begins at byte `at` ends here; *next is where the next one begins. */
static size_t line_end(hr_str s, size_t at, size_t *next)
{
    while (at < s.n && s.p[at] != '\n' && s.p[at] != '\r') at++;
    *next = at + 1 + (at + 1 < s.n && s.p[at] == '\r' && s.p[at + 1] == '\n');
    return at;
}

/* FILE:LINE:COLUMN, the line (as much of it as a terminal shows) and a caret below the place. */
static void show_place(const session *s)
{
    enum { AROUND = 60 };
    size_t at = 0, next = 0, column = s->failed.column - 1;
    size_t end = line_end(s->source, 0, &next);
    for (uint32_t line = 1; line < s->failed.line && next < s->source.n; line++) {
        at = next;
        end = line_end(s->source, at, &next);
    }
    if (column > end - at) column = end - at;
    size_t from = column > AROUND ? at + column - AROUND : at;
    size_t to = end - at - column > AROUND ? at + column + AROUND : end;
    while (from < at + column && ((unsigned char)s->source.p[from] & 0xC0) == 0x80) from++;
    while (to < end && ((unsigned char)s->source.p[to] & 0xC0) == 0x80) to++;
    const char *file = s->args->own.template_file;
    fprintf(stderr, "%s:%u:%u\n  %.*s\n  ", file ? file : "the model's chat template",
            s->failed.line, s->failed.column, (int)(to - from), s->source.p + from);
    for (size_t i = from; i < at + column; i++) {
        unsigned char c = (unsigned char)s->source.p[i];
        if ((c & 0xC0) != 0x80) fputc(c == '\t' ? '\t' : ' ', stderr);
    }
    fputs("^\n", stderr);
}

static int complain(const session *s)
{
    int status = hr_cli_complain();
    if (s->failed.line) show_place(s);
    return status;
}

int hr_cli_render(hr_args *a)
{
    session s = { .args = a };
    hr_status st = load_model(&s);
    if (!st) st = load_template(&s);
    if (!st) st = render(&s);
    if (!st && a->own.spans) print_spans(&s.out);
    else if (!st) fwrite(s.out.text.p, 1, s.out.text.n, stdout);
    int status = st ? complain(&s) : 0;
    hr_rendered_deinit(&s.out);
    hr_template_destroy(s.template);
    hr_tokenizer_destroy(s.tokenizer);
    hr_model_release(s.model);
    hr_arena_deinit(&s.arena);
    return status;
}
