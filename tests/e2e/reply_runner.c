/* Answers taken apart for tests in Python: a JSON object a line in, one a line out.
 *
 *   {"calls": "hermes", "reasoning": "qwen3", "prompt": "", "one_call": false, "text": […]}
 * `text` is strings, and [token] for special tokens that the text does not show; `prompt` is the
 * end of the prompt before it. → {"content": "…", "reasoning": "…", "calls": [["name",
 * "arguments"], …]}, or {"error": …}; without a text the formats' names. Each answer is also cut at
 * every byte, in two, and into single characters: that these give the same is checked here, unless
 * "uncut" is true. */
#include <stdio.h>
#include <stdlib.h>

#include "reply_parts.h"

typedef struct job {
    hr_reply_options options;
    const hr_json *text;
} job;

static hr_status feed(hr_reply *r, hr_str text, size_t cut, size_t at)
{
    bool inside = cut > at && cut < at + text.n;
    if (cut == SIZE_MAX) { /* single characters */
        for (size_t from = 0, to; from < text.n; from = to) {
            for (to = from + 1; to < text.n && ((unsigned char)text.p[to] & 0xC0) == 0x80;) to++;
            HR_TRY(hr_reply_feed(r, hr_str_slice(text, from, to)));
        }
        return HR_OK;
    }
    if (!inside) return hr_reply_feed(r, text);
    HR_TRY(hr_reply_feed(r, hr_str_slice(text, 0, cut - at)));
    return hr_reply_feed(r, hr_str_slice(text, cut - at, text.n));
}

/* cut 0: none; SIZE_MAX: everywhere. */
static hr_status run(const job *j, size_t cut, reply_parts *out)
{
    hr_reply r;
    hr_reply_options o = j->options;
    o.sink = reply_parts_add;
    o.context = out;
    *out = (reply_parts){ 0 };
    hr_reply_init(&r, &o);
    hr_status st = HR_OK;
    size_t at = 0;
    for (size_t i = 0; i < j->text->count && !st; i++) {
        const hr_json *v = &j->text->items[i];
        if (v->type == HR_JSON_ARRAY) st = hr_reply_special(&r, v->items[0].text);
        else {
            st = feed(&r, v->text, cut, at);
            at += v->text.n;
        }
    }
    if (!st) st = hr_reply_finish(&r);
    hr_reply_deinit(&r);
    if (!st && out->misplaced) st = hr_fail(HR_INTERNAL, "a piece where none belongs");
    return st;
}

static hr_status check_cuts(const job *j, const reply_parts *whole)
{
    size_t n = 0;
    for (size_t i = 0; i < j->text->count; i++)
        if (j->text->items[i].type == HR_JSON_STRING) n += j->text->items[i].text.n;
    for (size_t i = 0; i < n; i++) {
        size_t cut = i ? i : SIZE_MAX; /* a cut inside a character is harmless to joined bytes */
        reply_parts parts;
        hr_status st = run(j, cut, &parts);
        if (!st && !reply_parts_equal(&parts, whole))
            st = hr_fail(HR_INTERNAL, "cut at %zu it is another message", cut);
        reply_parts_deinit(&parts);
        if (st) return st;
    }
    return HR_OK;
}

static const char *text_of(const hr_json *v, const char *key, char room[256])
{
    const hr_json *m = hr_json_get(v, key);
    if (!m || m->type != HR_JSON_STRING) return NULL;
    snprintf(room, 256, "%.*s", HR_STR_ARG(m->text));
    return room;
}

static hr_status read_job(const hr_json *v, job *j)
{
    char name[256];
    hr_reply_format *f = &j->options.format;
    hr_str template = { 0 };
    const hr_json *m = hr_json_get(v, "template"), *one = hr_json_get(v, "one_call");
    if (m) template = m->text;
    HR_TRY(hr_call_format_named(text_of(v, "calls", name), template, NULL, &f->calls));
    HR_TRY(hr_reasoning_format_named(text_of(v, "reasoning", name), template, NULL, &f->reasoning));
    const char *prompt = text_of(v, "prompt", name);
    const hr_json *anywhere = hr_json_get(v, "anywhere");
    j->options.prompt = hr_reply_prompt_of(f->reasoning, hr_str_c(prompt ? prompt : ""),
                                           anywhere && anywhere->type == HR_JSON_TRUE);
    j->options.one_call = one && one->type == HR_JSON_TRUE;
    j->text = hr_json_get(v, "text");
    return HR_OK;
}

static hr_status answer(hr_str line, hr_arena *arena, hr_json_writer *w)
{
    const hr_json *v;
    job j = { 0 };
    reply_parts whole;
    HR_TRY(hr_json_parse(line, NULL, arena, &v));
    HR_TRY(read_job(v, &j));
    if (!j.text) { /* which formats they are */
        hr_json_begin_object(w);
        hr_json_add_str(w, "calls", hr_call_format_name(j.options.format.calls));
        hr_json_add_str(w, "reasoning", hr_reasoning_format_name(j.options.format.reasoning));
        hr_json_end_object(w);
        return HR_OK;
    }
    hr_status st = run(&j, 0, &whole);
    const hr_json *uncut = hr_json_get(v, "uncut");
    if (!st && (!uncut || uncut->type != HR_JSON_TRUE)) st = check_cuts(&j, &whole);
    if (!st) reply_parts_json(&whole, w);
    reply_parts_deinit(&whole);
    return st;
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    while ((n = getline(&line, &capacity, stdin)) > 0) {
        hr_arena arena = { 0 };
        hr_buf out = { 0 };
        hr_json_writer w = { .out = &out, .ascii = true };
        if (answer((hr_str){ line, (size_t)n }, &arena, &w)) {
            hr_buf_clear(&out);
            w = (hr_json_writer){ .out = &out };
            hr_json_begin_object(&w);
            hr_json_add_str(&w, "error", hr_message());
            hr_json_end_object(&w);
        }
        printf("%s\n", hr_buf_c(&out));
        hr_buf_deinit(&out);
        hr_arena_deinit(&arena);
    }
    free(line);
    return 0;
}
