/* Server-sent events, and the OpenAI chunks in them.
 *
 * Which chunks count as tokens decides every figure of a benchmark, so that rule is here alone: a
 * choice whose text is not empty counts, and so does one with empty text that neither names a role
 * nor a finish reason, for servers send such chunks when a token ends in the middle of a character.
 * Role chunks and bare finish chunks are framing: some servers send them at once, some with a
 * token.
 *
 * Any thread, no state but the caller's. */
#include "bench/stream.h"

#include <stdio.h>

#include "base/json.h"

/* One event is one token's JSON; a server that sends more is not one of ours to trust. */
#define MAX_EVENT_BYTES ((size_t)16 << 20)

void hr_stream_init(hr_stream *s, void (*on_chunk)(void *context, hr_str text), void *context)
{
    *s = (hr_stream){ .on_chunk = on_chunk, .context = context };
    s->line.limit = s->data.limit = MAX_EVENT_BYTES;
    s->prompt_tokens = s->completion_tokens = -1;
}

static void fail(hr_stream *s, hr_str text)
{
    if (s->error[0]) return; /* the first one counts */
    if (!text.n) text = HR_STR("an error without a message");
    snprintf(s->error, sizeof s->error, "%.*s", (int)(text.n < 200 ? text.n : 200), text.p);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static hr_str text_of(const hr_json *v)
{
    return v && v->type == HR_JSON_STRING ? v->text : (hr_str){ 0 };
}

static void take_usage(hr_stream *s, const hr_json *usage)
{
    int64_t n;
    const hr_json *prompt = hr_json_get(usage, "prompt_tokens");
    const hr_json *completion = hr_json_get(usage, "completion_tokens");
    if (prompt && !hr_json_to_i64(prompt, "prompt_tokens", &n) && n >= 0) s->prompt_tokens = n;
    if (completion && !hr_json_to_i64(completion, "completion_tokens", &n) && n >= 0)
        s->completion_tokens = n;
}

static void take_choice(hr_stream *s, const hr_json *choice)
{
    const hr_json *delta = hr_json_get(choice, "delta");
    hr_str text = text_of(hr_json_get(choice, "text"));
    if (delta) text = text_of(hr_json_get(delta, "content"));
    hr_str thought = text_of(hr_json_get(delta, "reasoning"));
    if (!thought.n) thought = text_of(hr_json_get(delta, "reasoning_content"));
    if (thought.n && s->on_reasoning) s->on_reasoning(s->context, thought);
    else if (!text.n) text = thought;
    hr_str reason = text_of(hr_json_get(choice, "finish_reason"));
    if (reason.n)
        snprintf(s->finish_reason, sizeof s->finish_reason, "%.*s",
                 (int)(reason.n < 31 ? reason.n : 31), reason.p);
    if (!text.n && !thought.n && (reason.n || hr_json_get(delta, "role"))) return;
    s->chunks++;
    if (s->on_chunk) s->on_chunk(s->context, text);
}

static void take_error(hr_stream *s, const hr_json *error)
{
    const hr_json *message = hr_json_get(error, "message");
    fail(s, text_of(message ? message : error));
}

static void take_event(hr_stream *s, hr_str data)
{
    if (hr_str_eq(data, HR_STR("[DONE]"))) {
        s->done = true;
        return;
    }
    const hr_json *v = NULL;
    hr_arena_reset(&s->arena);
    if (hr_json_parse(data, NULL, &s->arena, &v) || v->type != HR_JSON_OBJECT) {
        fail(s, HR_STR("an event that is no JSON object"));
        return;
    }
    const hr_json *error = hr_json_get(v, "error"), *usage = hr_json_get(v, "usage");
    const hr_json *choices = hr_json_get(v, "choices");
    if (error && error->type != HR_JSON_NULL) take_error(s, error);
    if (usage && usage->type == HR_JSON_OBJECT) take_usage(s, usage);
    if (choices && choices->type == HR_JSON_ARRAY)
        for (size_t i = 0; i < choices->count; i++) take_choice(s, &choices->items[i]);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* A whole line, without its end. An empty one ends the event. */
static void take_line(hr_stream *s, hr_str line)
{
    if (!line.n) {
        if (s->data.n) take_event(s, hr_buf_str(&s->data));
        hr_buf_clear(&s->data);
        return;
    }
    hr_str field = HR_STR("data:");
    if (!hr_str_starts(line, field)) return; /* comments, ids, event names */
    line = hr_str_slice(line, field.n, line.n);
    if (line.n && line.p[0] == ' ') line = hr_str_slice(line, 1, line.n);
    if (s->data.n) hr_buf_add_byte(&s->data, '\n');
    hr_buf_add_str(&s->data, line);
    if (hr_buf_status(&s->data)) fail(s, HR_STR("an event of more than 16 MiB"));
}

static hr_str without_cr(hr_str line)
{
    return line.n && line.p[line.n - 1] == '\r' ? hr_str_slice(line, 0, line.n - 1) : line;
}

void hr_stream_feed(hr_stream *s, hr_str bytes)
{
    for (size_t from = 0; from < bytes.n;) {
        size_t end = hr_str_find(bytes, HR_STR("\n"), from);
        hr_str part = hr_str_slice(bytes, from, end == SIZE_MAX ? bytes.n : end);
        if (s->line.n || end == SIZE_MAX) {
            hr_buf_add_str(&s->line, part);
            if (hr_buf_status(&s->line)) fail(s, HR_STR("a line of more than 16 MiB"));
        }
        if (end == SIZE_MAX) return;
        take_line(s, without_cr(s->line.n ? hr_buf_str(&s->line) : part));
        hr_buf_clear(&s->line);
        from = end + 1;
    }
}

const char *hr_stream_finish(hr_stream *s)
{
    if (s->line.n) take_line(s, without_cr(hr_buf_str(&s->line)));
    take_line(s, HR_STR(""));
    hr_buf_clear(&s->line);
    if (s->error[0]) return s->error;
    if (!s->chunks && !s->completion_tokens && s->done) return NULL; /* an empty answer */
    if (!s->chunks) return "the answer held no tokens";
    return s->done || s->finish_reason[0] ? NULL : "the answer broke off";
}

void hr_stream_deinit(hr_stream *s)
{
    hr_buf_deinit(&s->line);
    hr_buf_deinit(&s->data);
    hr_arena_deinit(&s->arena);
}
