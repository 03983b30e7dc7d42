/* Templates rendered for tests in Python: a JSON object a line in, one a line out.
 *
 *   {"template": "…", "variables": {…}, "trusted": ["bos_token"], "now": [year, month, day, hour,
 *    minute, second, weekday from Sunday, day of the year from 0, microsecond]}
 * or instead of variables a chat: {"template": "…", "chat": {"messages": […], "tools": […],
 *    "kwargs": {…}, "bos_token": "…", "eos_token": "…", "add_generation_prompt": true,
 *    "continue_final_message": true}}
 * With "repeat": n in either the rendering is done n times more, and "seconds" are what those took.
 * → {"text": "…", "spans": [["…", true when data], …]} or {"status": "…", "error": "…"}. */
#include <stdio.h>
#include <stdlib.h>

#include "text/chat.h"

#define MAX_TRUSTED 8

static hr_str text_of(const hr_json *object, const char *key)
{
    const hr_json *v = hr_json_get(object, key);
    return v && v->type == HR_JSON_STRING ? v->text : (hr_str){ 0 };
}

static bool is_true(const hr_json *object, const char *key)
{
    const hr_json *v = hr_json_get(object, key);
    return v && v->type == HR_JSON_TRUE;
}

static hr_status read_time(const hr_json *now, struct tm *tm, int *microseconds)
{
    int64_t n[9];
    if (now->type != HR_JSON_ARRAY || now->count != 9)
        return hr_fail(HR_INVALID_ARGUMENT, "now: nine numbers are expected");
    for (size_t i = 0; i < 9; i++) HR_TRY(hr_json_to_i64(&now->items[i], "now", &n[i]));
    *tm = (struct tm){ .tm_year = (int)n[0] - 1900,
                       .tm_mon = (int)n[1] - 1,
                       .tm_mday = (int)n[2],
                       .tm_hour = (int)n[3],
                       .tm_min = (int)n[4],
                       .tm_sec = (int)n[5],
                       .tm_wday = (int)n[6],
                       .tm_yday = (int)n[7] };
    *microseconds = (int)n[8];
    return HR_OK;
}

static hr_status render_chat(const hr_template *t, const hr_json *c, hr_rendered *out)
{
    hr_chat chat = { .messages = hr_json_get(c, "messages"),
                     .tools = hr_json_get(c, "tools"),
                     .kwargs = hr_json_get(c, "kwargs"),
                     .bos_token = text_of(c, "bos_token"),
                     .eos_token = text_of(c, "eos_token") };
    int flags = 0;
    if (is_true(c, "add_generation_prompt")) flags |= HR_CHAT_ADD_GENERATION_PROMPT;
    if (is_true(c, "continue_final_message")) flags |= HR_CHAT_CONTINUE_FINAL_MESSAGE;
    chat.flags = (hr_chat_flags)flags;
    return hr_chat_render(t, &chat, out);
}

static hr_status render(const hr_template *t, const hr_json *job, hr_rendered *out)
{
    hr_str trusted[MAX_TRUSTED];
    struct tm tm;
    hr_render_options o = { .trusted = trusted };
    const hr_json *chat = hr_json_get(job, "chat"), *names = hr_json_get(job, "trusted");
    const hr_json *now = hr_json_get(job, "now");
    if (chat) return render_chat(t, chat, out);
    for (size_t i = 0; names && i < names->count && i < MAX_TRUSTED; i++)
        trusted[o.n_trusted++] = names->items[i].text;
    if (now) {
        HR_TRY(read_time(now, &tm, &o.now_microseconds));
        o.now = &tm;
    }
    return hr_template_render(t, hr_json_get(job, "variables"), &o, out);
}

/* What n renderings take; the templates are those of a measurement, so they do not fail. */
static hr_status measure(const hr_template *t, const hr_json *job, double *seconds)
{
    const hr_json *repeat = hr_json_get(job, "repeat");
    struct timespec start, end;
    int64_t n = 0;
    *seconds = 0;
    if (repeat) HR_TRY(hr_json_to_i64(repeat, "repeat", &n));
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int64_t i = 0; i < n; i++) {
        hr_rendered r = { 0 };
        hr_status st = render(t, job, &r);
        hr_rendered_deinit(&r);
        HR_TRY(st);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    *seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    return HR_OK;
}

static void write_spans(hr_json_writer *w, const hr_rendered *r)
{
    hr_json_key(w, HR_STR("text"));
    hr_json_str(w, hr_buf_str(&r->text));
    hr_json_key(w, HR_STR("spans"));
    hr_json_begin_array(w);
    for (size_t i = 0; i < r->n_spans; i++) {
        hr_json_begin_array(w);
        hr_json_str(w, r->spans[i].text);
        hr_json_bool(w, r->spans[i].kind == HR_SPAN_PLAIN);
        hr_json_end_array(w);
    }
    hr_json_end_array(w);
}

static void answer(hr_str line)
{
    hr_arena arena = { 0 };
    hr_template *t = NULL;
    hr_rendered r = { 0 };
    hr_buf out = { 0 };
    hr_json_writer w = { .out = &out };
    const hr_json *job = NULL;
    double seconds;
    hr_status st = hr_json_parse(line, &(hr_json_limits){ .max_depth = 200 }, &arena, &job);
    if (!st) st = hr_template_parse(text_of(job, "template"), &t);
    if (!st) st = render(t, job, &r);
    if (!st) st = measure(t, job, &seconds);
    hr_json_begin_object(&w);
    if (st) {
        hr_json_key(&w, HR_STR("status"));
        hr_json_str(&w, hr_str_c(hr_status_name(st)));
        hr_json_key(&w, HR_STR("error"));
        hr_json_str(&w, hr_str_c(hr_message()));
    } else {
        write_spans(&w, &r);
        if (hr_json_get(job, "repeat")) hr_json_add_f64(&w, "seconds", seconds);
    }
    hr_json_end_object(&w);
    puts(hr_buf_c(&out));
    fflush(stdout);
    hr_rendered_deinit(&r);
    hr_template_destroy(t);
    hr_buf_deinit(&out);
    hr_arena_deinit(&arena);
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    while ((n = getline(&line, &capacity, stdin)) > 0) answer((hr_str){ line, (size_t)n });
    free(line);
    return 0;
}
