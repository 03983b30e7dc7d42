/* headrace chat: a conversation in a terminal, or with a script on standard input.
 *
 * Main thread. The history is kept here and sent whole with every message; the model's side of it
 * finds the part that it has seen in its prefix cache. A message that failed leaves no trace in it,
 * an answer that was stopped stays as far as it came. */
#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/talk.h"

typedef struct turn {
    const char *role;
    char *text; /* owned */
    size_t n;
} turn;

typedef struct chat {
    hr_talk *talk;
    turn *turns; /* owned [n]; a system message, if any, is the first */
    size_t n, capacity;
    bool quit;
} chat;

/* ---- history --------------------------------------------------------------------------------- */

static hr_status set_text(turn *t, hr_str text)
{
    char *copy = hr_alloc(text.n + 1);
    if (!copy) return hr_fail(HR_RESOURCE_EXHAUSTED, "a message");
    if (text.n) memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    hr_free(t->text);
    t->text = copy;
    t->n = text.n;
    return HR_OK;
}

static hr_status add_turn(chat *c, const char *role, hr_str text)
{
    HR_TRY(hr_grow((void **)&c->turns, &c->capacity, c->n + 1, sizeof *c->turns));
    c->turns[c->n] = (turn){ .role = role };
    HR_TRY(set_text(&c->turns[c->n], text));
    c->n++;
    return HR_OK;
}

static void drop_turns(chat *c, size_t keep)
{
    while (c->n > keep) hr_free(c->turns[--c->n].text);
}

static bool has_system(const chat *c)
{
    return c->n && !strcmp(c->turns[0].role, "system");
}

static void add_messages(const chat *c, int indent, hr_buf *out)
{
    hr_json_writer w = { .out = out, .indent = indent };
    hr_json_begin_array(&w);
    for (size_t i = 0; i < c->n; i++) {
        hr_json_begin_object(&w);
        hr_json_key(&w, HR_STR("role"));
        hr_json_str(&w, hr_str_c(c->turns[i].role));
        hr_json_key(&w, HR_STR("content"));
        hr_json_str(&w, (hr_str){ c->turns[i].text, c->turns[i].n });
        hr_json_end_object(&w);
    }
    hr_json_end_array(&w);
}

/* ---- commands -------------------------------------------------------------------------------- */

static hr_status on_help(chat *c, hr_str rest);

static hr_status on_reset(chat *c, hr_str rest)
{
    (void)rest;
    drop_turns(c, has_system(c));
    return HR_OK;
}

/* Replaces the system message; without a text there is none any more. */
static hr_status on_system(chat *c, hr_str text)
{
    if (!has_system(c) && !text.n) return HR_OK;
    if (has_system(c) && text.n) return set_text(&c->turns[0], text);
    if (has_system(c)) {
        hr_free(c->turns[0].text);
        memmove(c->turns, c->turns + 1, --c->n * sizeof *c->turns);
        return HR_OK;
    }
    HR_TRY(add_turn(c, "system", text));
    turn last = c->turns[c->n - 1];
    memmove(c->turns + 1, c->turns, (c->n - 1) * sizeof *c->turns);
    c->turns[0] = last;
    return HR_OK;
}

static hr_status on_history(chat *c, hr_str rest)
{
    (void)rest;
    for (size_t i = 0; i < c->n; i++) {
        printf("%s: ", c->turns[i].role);
        fwrite(c->turns[i].text, 1, c->turns[i].n, stdout);
        putchar('\n');
    }
    fflush(stdout);
    return HR_OK;
}

/* As generate --messages reads it. */
static hr_status on_save(chat *c, hr_str path)
{
    if (!path.n) return hr_fail(HR_INVALID_ARGUMENT, "/save FILE");
    hr_buf json = { 0 }, name = { 0 };
    add_messages(c, 2, &json);
    hr_buf_add_byte(&json, '\n');
    hr_buf_add_str(&name, path);
    hr_status st = hr_buf_status(&json) ? json.status : hr_buf_status(&name);
    if (!st) st = hr_file_write_atomic(hr_buf_c(&name), hr_buf_str(&json));
    hr_buf_deinit(&json);
    hr_buf_deinit(&name);
    return st;
}

static hr_status on_quit(chat *c, hr_str rest)
{
    (void)rest;
    c->quit = true;
    return HR_OK;
}

static const struct {
    const char *name, *help;
    hr_status (*run)(chat *c, hr_str rest);
} commands[] = {
    { "/help", "this list", on_help },
    { "/reset", "forget the conversation, but not the system message", on_reset },
    { "/system", "TEXT: set the system message; without TEXT there is none", on_system },
    { "/history", "print the conversation", on_history },
    { "/save", "FILE: write it as JSON, for generate --messages", on_save },
    { "/quit", "end (also Ctrl-D)", on_quit },
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static hr_status on_help(chat *c, hr_str rest)
{
    (void)c, (void)rest;
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(stderr, "  %-10s %s\n", commands[i].name, commands[i].help);
    fputs("  //text     say /text\n  text\\      a message that goes on in the next line\n"
          "  Ctrl-C     stop the answer\n",
          stderr);
    return HR_OK;
}

static hr_status run_command(chat *c, hr_str line)
{
    size_t n = 0;
    while (n < line.n && line.p[n] != ' ') n++;
    hr_str name = hr_str_slice(line, 0, n), rest = hr_str_trim(hr_str_slice(line, n, line.n));
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (hr_str_eq_c(name, commands[i].name)) return commands[i].run(c, rest);
    return hr_fail(HR_INVALID_ARGUMENT, "unknown command %.*s; /help lists them", HR_STR_ARG(name));
}

/* ---- conversation ---------------------------------------------------------------------------- */

static hr_status say(chat *c, hr_str text)
{
    hr_buf json = { 0 }, answer = { 0 };
    size_t before = c->n;
    hr_status st = add_turn(c, "user", text);
    if (!st) add_messages(c, 0, &json);
    if (!st) st = hr_buf_status(&json);
    if (!st) {
        hr_buf_c(&json); /* the engine reads it up to its terminator */
        st = hr_talk_answer(c->talk, HR_TALK_MESSAGES, hr_buf_str(&json), &answer);
    }
    if (!st) st = add_turn(c, "assistant", hr_buf_str(&answer));
    if (st) drop_turns(c, before);
    hr_buf_deinit(&json);
    hr_buf_deinit(&answer);
    return st;
}

/* Lines that end in a backslash go on in the next. */
static bool read_message(chat *c, hr_buf *line)
{
    if (!hr_talk_read(c->talk, "> ", line)) return false;
    while (line->n && line->p[line->n - 1] == '\\') {
        line->p[line->n - 1] = '\n';
        if (!hr_talk_read(c->talk, ". ", line)) return true;
    }
    return true;
}

static hr_status take_message(chat *c, hr_str line)
{
    if (!hr_str_trim(line).n) return HR_OK;
    if (line.p[0] != '/') return say(c, line);
    if (line.n > 1 && line.p[1] == '/') return say(c, hr_str_slice(line, 1, line.n));
    return run_command(c, hr_str_trim(line));
}

int hr_cli_chat(hr_args *a)
{
    chat c = { 0 };
    hr_buf line = { 0 };
    int exit_status = 0;
    if (hr_talk_open(a, &c.talk)) return hr_cli_complain();
    if (a->own.system && on_system(&c, hr_str_c(a->own.system))) exit_status = hr_cli_complain();
    if (hr_talk_is_terminal(c.talk)) fputs("/help lists commands, Ctrl-D ends.\n", stderr);
    while (!c.quit && read_message(&c, &line)) {
        if (take_message(&c, hr_buf_str(&line))) exit_status = hr_cli_complain();
        hr_buf_clear(&line);
    }
    drop_turns(&c, 0);
    hr_free(c.turns);
    hr_buf_deinit(&line);
    hr_talk_close(c.talk);
    return exit_status;
}
