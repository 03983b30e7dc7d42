/* A question and its answer, in a terminal.
 *
 * Main thread, one libevent loop: the engine's wake fd or the HTTP client's sockets on one side,
 * SIGINT and standard input on the other. So Ctrl-C is an event like any other, and ends the
 * answer, not the program. */
#include "cli/talk.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/json.h"
#include "bench/stream.h"
#include "engine/engine.h"
#include "text/reply.h"

#define MAX_LINE ((size_t)64 << 20)

struct hr_talk {
    hr_args *args;
    bool terminal;                  /* standard input is one */
    bool shows;                     /* standard output is one */
    struct event_base *base;        /* owned unless http owns it */
    struct event *interrupt, *wake; /* owned */
    struct event *readable;         /* owned; NULL: standard input never blocks (a file) */
    /* one of the two */
    headrace_engine *engine; /* owned */
    headrace_sampling sampling;
    hr_reply_format format; /* how the model writes reasoning */
    hr_reply reply;         /* of the answer at hand; its sink is NULL where there is none */
    hr_http *http;          /* owned */
    hr_buf model, members;  /* of requests to a server: its model's name, the sampling members */
    /* the answer at hand */
    hr_buf *answer; /* borrowed; NULL = none */
    uint64_t id;
    hr_http_call *call;
    hr_stream stream;
    bool done, interrupted;
    bool chats; /* the question is a chat */
    bool dim;   /* reasoning is being shown */
    char finish[32];
    hr_status status;
    char message[512];
    /* standard input, read ahead */
    hr_buf input;
    size_t taken; /* bytes of it */
    bool ended;
};

/* ---- what comes back ------------------------------------------------------------------------- */

/* A model or a server may say anything; what would command the terminal is shown as its picture:
 * U+241B for escape and so on, U+FFFD for the controls U+0080 to U+009F. */
static void print_safely(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        unsigned char next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            printf("\xe2\x90%c", c == 0x7f ? 0xa1 : 0x80 + c);
        else if (c == 0xc2 && next >= 0x80 && next < 0xa0) fputs("\xef\xbf\xbd", stdout), i++;
        else putchar(c);
    }
}

/* Reasoning is for people: dim, and never part of the answer. */
static void show_reasoning(hr_talk *t, const char *text, size_t n)
{
    if (!t->shows) return;
    if (!t->dim) fputs("\x1b[2m", stdout);
    t->dim = true;
    print_safely(text, n);
    fflush(stdout);
}

static void end_reasoning(hr_talk *t)
{
    if (t->dim) fputs("\x1b[22m\n", stdout);
    t->dim = false;
}

static void show(hr_talk *t, const char *text, size_t n)
{
    if (n) end_reasoning(t);
    hr_buf_add(t->answer, text, n);
    if (t->shows) print_safely(text, n);
    else fwrite(text, 1, n, stdout);
    fflush(stdout);
}

static void fail(hr_talk *t, hr_status st, const char *message)
{
    t->status = st;
    snprintf(t->message, sizeof t->message, "%s", message ? message : "");
}

static void finish(hr_talk *t)
{
    t->done = true;
    event_base_loopbreak(t->base);
}

static void take_piece(void *context, hr_reply_piece piece, hr_str text)
{
    hr_talk *t = context;
    if (piece == HR_REPLY_REASONING) show_reasoning(t, text.p, text.n);
    else show(t, text.p, text.n);
}

static hr_status begin_reply(hr_talk *t, const headrace_event *started)
{
    hr_reply_options o = { .format = t->format, .sink = take_piece, .context = t };
    HR_TRY(hr_reply_prompt_of_ids(t->format.reasoning, hr_engine_tokenizer(t->engine),
                                  started->prompt_ids, started->n_prompt_ids, false, &o.prompt));
    hr_reply_init(&t->reply, &o);
    return HR_OK;
}

static hr_status take_tokens(hr_talk *t, const headrace_event *v)
{
    const hr_tokenizer *tokenizer = hr_engine_tokenizer(t->engine);
    if (!t->reply.options.sink) {
        show(t, v->text, v->text_bytes);
        return HR_OK;
    }
    for (size_t i = 0; i < v->n_tokens && t->sampling.skip_special_tokens; i++)
        HR_TRY(hr_reply_hidden(&t->reply, tokenizer, v->tokens[i].chosen.token_id));
    return hr_reply_feed(&t->reply, (hr_str){ v->text, v->text_bytes });
}

/* Of a chat whose model thinks aloud; a text is shown as it is. */
static hr_status take_part(hr_talk *t, const headrace_event *v)
{
    if (v->kind == HEADRACE_EVENT_TOKENS) return take_tokens(t, v);
    if (v->kind == HEADRACE_EVENT_STARTED)
        return t->chats && t->format.reasoning ? begin_reply(t, v) : HR_OK;
    return t->reply.options.sink ? hr_reply_finish(&t->reply) : HR_OK;
}

static void take_event(hr_talk *t, const headrace_event *v)
{
    if (!t->answer || v->id != t->id) return;
    switch (v->kind) {
    case HEADRACE_EVENT_PROMPT: return;
    case HEADRACE_EVENT_STARTED:
    case HEADRACE_EVENT_TOKENS:
        if (take_part(t, v)) fail(t, HR_RESOURCE_EXHAUSTED, hr_message());
        return;
    case HEADRACE_EVENT_FINISHED:
        if (take_part(t, v)) fail(t, HR_RESOURCE_EXHAUSTED, hr_message());
        snprintf(t->finish, sizeof t->finish, "%s", v->finish_reason);
        return;
    case HEADRACE_EVENT_FAILED: fail(t, (hr_status)v->status, v->message); return;
    case HEADRACE_EVENT_DONE: finish(t); return;
    }
}

static void on_wake(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    hr_talk *t = context;
    headrace_event v;
    int st;
    while (!(st = headrace_poll(t->engine, &v, 0))) take_event(t, &v);
    if (st == HEADRACE_DEADLINE_EXCEEDED || !t->answer) return;
    fail(t, (hr_status)st, headrace_message());
    finish(t);
}

static void on_text(void *context, hr_str text)
{
    show(context, text.p, text.n);
}

static void on_reasoning(void *context, hr_str text)
{
    show_reasoning(context, text.p, text.n);
}

static void on_data(void *context, hr_str bytes)
{
    hr_stream_feed(&((hr_talk *)context)->stream, bytes);
}

static void on_done(void *context, const hr_http_result *r)
{
    hr_talk *t = context;
    const char *wrong = r->status ? r->message : hr_stream_finish(&t->stream);
    /* a server may end an answer before its first token */
    if (!r->status && !t->stream.error[0] && t->stream.done) wrong = NULL;
    if (wrong) fail(t, r->status ? r->status : HR_DATA_LOSS, wrong);
    snprintf(t->finish, sizeof t->finish, "%s", t->stream.finish_reason);
    finish(t);
}

static void on_interrupt(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    hr_talk *t = context;
    t->interrupted = true;
    if (!t->answer) event_base_loopbreak(t->base);
    if (!t->answer || t->done) return;
    if (t->engine) {
        headrace_cancel(t->engine, t->id); /* its end comes as an event */
        return;
    }
    hr_http_cancel(t->call);
    finish(t);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static hr_status ask_engine(hr_talk *t, hr_talk_kind kind, hr_str question)
{
    headrace_request r;
    headrace_request_init(&r);
    r.sampling = &t->sampling;
    if (kind == HR_TALK_MESSAGES) r.messages_json = question.p;
    else {
        r.prompt = question.p;
        r.prompt_bytes = question.n;
    }
    return (hr_status)headrace_submit(t->engine, &r, &t->id);
}

static hr_status ask_server(hr_talk *t, hr_talk_kind kind, hr_str question)
{
    bool chat = kind == HR_TALK_MESSAGES;
    hr_buf body = { 0 };
    hr_buf_add_c(&body, "{\"model\":");
    hr_json_str(&(hr_json_writer){ .out = &body }, hr_buf_str(&t->model));
    hr_buf_add_c(&body, chat ? ",\"messages\":" : ",\"prompt\":");
    if (chat) hr_buf_add_str(&body, question);
    else hr_json_str(&(hr_json_writer){ .out = &body }, question);
    hr_buf_add_c(&body, ",\"stream\":true");
    hr_buf_add_str(&body, hr_buf_str(&t->members));
    hr_buf_add_byte(&body, '}');
    hr_status st = hr_buf_status(&body);
    if (!st)
        st = hr_http_send(
            t->http,
            &(hr_http_request){ .path = chat ? "/v1/chat/completions" : "/v1/completions",
                                .body = hr_buf_str(&body),
                                .on_data = on_data,
                                .on_done = on_done,
                                .context = t },
            &t->call);
    hr_buf_deinit(&body);
    return st;
}

/* Says, to people, why an answer ends where it does. */
static void explain(const hr_talk *t)
{
    if (!t->terminal) return;
    if (t->interrupted) fputs("[stopped]\n", stderr);
    else if (!strcmp(t->finish, "length")) fputs("[cut off: no tokens left for it]\n", stderr);
}

hr_status hr_talk_answer(hr_talk *t, hr_talk_kind kind, hr_str question, hr_buf *answer)
{
    t->answer = answer;
    t->done = t->interrupted = false;
    t->finish[0] = '\0';
    t->status = HR_OK;
    hr_stream_init(&t->stream, on_text, t);
    t->stream.on_reasoning = on_reasoning;
    t->chats = kind == HR_TALK_MESSAGES;
    hr_status st = t->engine ? ask_engine(t, kind, question) : ask_server(t, kind, question);
    while (!st && !t->done)
        if (event_base_dispatch(t->base) && !t->done)
            st = hr_fail(HR_INTERNAL, "the event loop failed");
    t->answer = NULL;
    hr_stream_deinit(&t->stream);
    hr_reply_deinit(&t->reply);
    t->reply = (hr_reply){ 0 };
    end_reasoning(t);
    if (!st && t->status) st = hr_fail(t->status, "%s", t->message);
    if (st) return st;
    putchar('\n');
    fflush(stdout);
    explain(t);
    return hr_buf_status(answer);
}

/* ---- standard input -------------------------------------------------------------------------- */

static void on_readable(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    event_base_loopbreak(((hr_talk *)context)->base);
}

/* Until there is something to read. Ctrl-C clears what was typed and goes on waiting. */
static void wait_for_input(hr_talk *t, const char *prompt)
{
    if (!t->readable) return;
    t->interrupted = true;
    while (t->interrupted) {
        t->interrupted = false;
        event_add(t->readable, NULL);
        event_base_dispatch(t->base);
        if (t->interrupted && t->terminal) fprintf(stderr, "\nCtrl-D ends.\n%s", prompt);
    }
    event_del(t->readable);
}

/* The rest of the line read so far, when it is whole. */
static bool take_line(hr_talk *t, hr_buf *line)
{
    hr_str all = hr_str_slice(hr_buf_str(&t->input), t->taken, t->input.n);
    size_t end = hr_str_find(all, HR_STR("\n"), 0);
    if (end == SIZE_MAX && !(t->ended && all.n)) return false;
    size_t n = end == SIZE_MAX ? all.n : end;
    hr_buf_add(line, all.p, n && all.p[n - 1] == '\r' ? n - 1 : n);
    t->taken += end == SIZE_MAX ? n : n + 1;
    return true;
}

bool hr_talk_read(hr_talk *t, const char *prompt, hr_buf *line)
{
    if (t->terminal) {
        fputs(prompt, stderr);
        fflush(stderr);
    }
    while (!take_line(t, line)) {
        if (t->ended) return false;
        if (t->taken == t->input.n) t->taken = t->input.n = 0;
        char *to = hr_buf_reserve(&t->input, 4096);
        if (to) wait_for_input(t, prompt);
        ssize_t n = to ? read(STDIN_FILENO, to, 4096) : 0;
        if (n < 0 && errno == EINTR) continue;
        t->ended = n <= 0;
        if (n > 0) t->input.n += (size_t)n;
    }
    return true;
}

bool hr_talk_is_terminal(const hr_talk *t)
{
    return t->terminal;
}

/* ---- opening --------------------------------------------------------------------------------- */

static hr_status open_engine(hr_talk *t)
{
    hr_args *a = t->args;
    a->options.model = a->model;
    a->options.log = hr_cli_log;
    a->options.log_context = a;
    if (t->terminal) fprintf(stderr, "headrace: loading %s …\n", a->model);
    HR_TRY((hr_status)headrace_engine_create(&a->options, &t->engine));
    headrace_sampling_init(t->engine, &t->sampling);
    HR_TRY(hr_args_sampling(a, &t->sampling));
    if (hr_engine_tokenizer(t->engine))
        HR_TRY(hr_reasoning_format_named(NULL, hr_engine_chat_template(t->engine),
                                         hr_engine_tokenizer(t->engine), &t->format.reasoning));
    t->base = event_base_new();
    if (!t->base) return hr_fail(HR_RESOURCE_EXHAUSTED, "an event loop");
    t->wake = event_new(t->base, headrace_wake_fd(t->engine), EV_READ | EV_PERSIST, on_wake, t);
    return t->wake && !event_add(t->wake, NULL) ? HR_OK
                                                : hr_fail(HR_RESOURCE_EXHAUSTED, "an event");
}

/* ,"top_k":5,"stop":["…"] of the flags. */
static hr_status settle_members(hr_talk *t)
{
    hr_buf members = { 0 };
    const hr_cli_list *stop = &t->args->own.stop;
    hr_status st = hr_cli_sampling_members(t->args, &members);
    if (!st && members.n) hr_buf_printf(&t->members, ",%s", hr_buf_c(&members));
    hr_buf_deinit(&members);
    if (st || !stop->n) return st;
    hr_buf_add_c(&t->members, ",\"stop\":");
    hr_json_writer w = { .out = &t->members };
    hr_json_begin_array(&w);
    for (size_t i = 0; i < stop->n; i++) hr_json_str(&w, hr_str_c(((const char **)stop->at)[i]));
    hr_json_end_array(&w);
    return hr_buf_status(&t->members);
}

static hr_status open_server(hr_talk *t)
{
    hr_bench_serve_options *o = &t->args->bench.serve;
    hr_cli_fill_http(t->args);
    HR_TRY(hr_http_create(&o->http, &t->http));
    t->base = hr_http_base(t->http);
    if (o->model) hr_buf_add_c(&t->model, o->model);
    else HR_TRY(hr_bench_first_model(t->http, &t->model));
    return settle_members(t);
}

/* SIGINT, and standard input where it is something to wait for: epoll takes no files. */
static hr_status watch(hr_talk *t)
{
    struct stat s;
    bool waits =
        t->terminal || (!fstat(STDIN_FILENO, &s) && (S_ISFIFO(s.st_mode) || S_ISSOCK(s.st_mode)));
    t->interrupt = evsignal_new(t->base, SIGINT, on_interrupt, t);
    if (waits) t->readable = event_new(t->base, STDIN_FILENO, EV_READ, on_readable, t);
    if (!t->interrupt || event_add(t->interrupt, NULL) || (waits && !t->readable))
        return hr_fail(HR_RESOURCE_EXHAUSTED, "an event");
    return HR_OK;
}

hr_status hr_talk_open(hr_args *a, hr_talk **out)
{
    *out = NULL;
    hr_talk *t = hr_new0(hr_talk);
    if (!t) return hr_fail(HR_RESOURCE_EXHAUSTED, "a terminal client");
    t->args = a;
    t->terminal = isatty(STDIN_FILENO);
    t->shows = isatty(STDOUT_FILENO);
    t->input.limit = MAX_LINE;
    hr_status st = a->model ? open_engine(t) : open_server(t);
    if (!st) st = watch(t);
    if (st) {
        hr_talk_close(t);
        return st;
    }
    *out = t;
    return HR_OK;
}

void hr_talk_close(hr_talk *t)
{
    if (!t) return;
    if (t->interrupt) event_free(t->interrupt);
    if (t->readable) event_free(t->readable);
    if (t->wake) event_free(t->wake);
    if (!t->http && t->base) event_base_free(t->base);
    hr_http_destroy(t->http);
    headrace_engine_destroy(t->engine);
    hr_buf_deinit(&t->model);
    hr_buf_deinit(&t->members);
    hr_buf_deinit(&t->input);
    hr_free(t);
}
