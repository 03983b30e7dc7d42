/* From the engine's events to what a client reads.
 *
 * I/O thread. A stream begins when every prompt of its request has been accepted, so whatever is
 * wrong with one of them still becomes an HTTP status; until then, and between chunks, what was
 * generated waits in the choices' buffers. Times of first and further tokens are taken here, where
 * the client's own would be. */
#include <string.h>

#include "base/utf8.h"
#include "engine/trace.h"
#include "server/generation.h"
#include "server/metrics.h"
#include "server/reply.h"

/* An answer that is not streamed waits here, whole; this much at most. */
#define MOST_HELD ((size_t)128 << 20)

/* ---- what waits ------------------------------------------------------------------------------ */

static size_t size_of(const hr_choice_out *c)
{
    const hr_logprob_lists *l = &c->logprobs;
    return c->text.n + c->token_ids.n + c->trace.n + l->content.n + l->tokens.n +
           l->token_logprobs.n + l->top_logprobs.n + l->offsets.n + hr_choice_reply_bytes(c);
}

/* Memory was short for a part of it. */
static bool is_cut_short(const hr_choice_out *c)
{
    const hr_logprob_lists *l = &c->logprobs;
    return c->text.status || c->token_ids.status || c->trace.status || l->content.status ||
           l->tokens.status || l->token_logprobs.status || l->top_logprobs.status ||
           l->offsets.status || (c->reply && c->reply->status);
}

/* Counts what a choice has grown by since it was `before` bytes. False: the generation ended. */
static bool hold(hr_generation *g, const hr_choice_out *c, size_t before)
{
    if (is_cut_short(c)) {
        hr_generation_fail(g, 500, NULL, "no memory for the answer");
        return false;
    }
    g->held += size_of(c) - before;
    if (g->held <= MOST_HELD) return true;
    hr_generation_fail(g, 400, NULL,
                       "the answer is larger than 128 MiB: ask for less, or for a stream");
    return false;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* False when the client is gone, or there was no memory: the generation has ended. */
static bool send_chunk(hr_choice_out *c, hr_chunk_kind kind)
{
    hr_generation *g = c->part->generation;
    hr_buf *out = hr_generations_scratch(g->server->generations);
    hr_openai_write_chunk(out, g, c, kind);
    if (hr_buf_status(out)) {
        hr_generation_fail(g, 500, NULL, "no memory for a chunk");
        return false;
    }
    if (kind != HR_CHUNK_ROLE) {
        g->held -= size_of(c);
        hr_buf_clear(&c->text);
        hr_choice_reply_sent(c);
        hr_buf_clear(&c->token_ids);
        hr_buf_clear(&c->trace);
        hr_logprobs_clear(&c->logprobs);
        c->n_unsent = 0;
        c->begun = true;
    }
    return hr_exchange_stream_data(g->x, hr_buf_str(out));
}

/* Half a character or the beginning of a stop string shows nothing yet: no chunk for that. */
static bool shows_something(const hr_generation *g, const hr_choice_out *c)
{
    return c->text.n || hr_choice_reply_bytes(c) || g->openai.wants_logprobs ||
           g->openai.return_token_ids || g->openai.sampling.sampling_trace ||
           g->openai.continuous_usage;
}

static bool is_due(const hr_generation *g, const hr_choice_out *c)
{
    int64_t interval = g->server->options.stream_interval;
    return (!c->begun || c->n_unsent >= interval) && shows_something(g, c);
}

static bool begin_choice(hr_choice_out *c)
{
    const hr_generation *g = c->part->generation;
    if (g->openai.endpoint == HR_OPENAI_CHAT && !send_chunk(c, HR_CHUNK_ROLE)) return false;
    if (c->finished) return send_chunk(c, HR_CHUNK_FINISH);
    return !c->n_tokens || !is_due(g, c) || send_chunk(c, HR_CHUNK_TEXT);
}

static bool begin_stream(hr_generation *g)
{
    hr_exchange_stream_begin(g->x);
    g->stream_begun = true;
    hr_openai_write_prefix(g);
    for (size_t i = 0; i < g->n_choices; i++)
        if (!begin_choice(&g->choices[i])) return false;
    return true;
}

/* ---- the prompt ------------------------------------------------------------------------------ */

static hr_status set_echo_text(hr_part *p, const headrace_event *e)
{
    hr_generation *g = p->generation;
    const hr_tokenizer *t = hr_engine_tokenizer(g->server->engine);
    const hr_openai *o = &g->openai;
    if (!o->echo) return HR_OK;
    p->echo_text = o->echo_text;
    if (o->endpoint == HR_OPENAI_CHAT) return HR_OK;
    p->echo_text = o->prompts[p - g->parts].text;
    if (p->echo_text.p || !t) return HR_OK;
    hr_buf text = { 0 }; /* of ids: a few milliseconds for the longest context */
    hr_detok d;
    hr_detok_init(&d, t, HR_DECODE_DEFAULT);
    hr_status st = HR_OK;
    for (size_t i = 0; i < e->n_prompt_ids && !st; i++)
        st = hr_detok_push(&d, (int32_t)e->prompt_ids[i], &text);
    if (!st) st = hr_detok_flush(&d, &text);
    if (!st) p->echo_text = (hr_str){ hr_arena_copy(&g->x->arena, text.p, text.n), text.n };
    hr_buf_deinit(&text);
    return st || p->echo_text.p ? st : hr_fail(HR_RESOURCE_EXHAUSTED, "no memory for the echo");
}

static void add_ids(hr_buf *out, const int64_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (out->n) hr_buf_add_byte(out, ',');
        hr_openai_add_i64(out, ids[i]);
    }
}

static bool on_started(hr_part *p, const headrace_event *e)
{
    hr_generation *g = p->generation;
    p->started = true;
    p->prompt_tokens = (int64_t)e->n_prompt_ids;
    p->seed = e->seed;
    p->max_tokens = e->max_tokens;
    if (g->openai.return_token_ids || g->openai.sampling.sampling_trace)
        add_ids(&p->prompt_ids, e->prompt_ids, e->n_prompt_ids);
    if (set_echo_text(p, e) || hr_part_reply_begin(p, e)) {
        hr_generation_fail(g, 500, NULL, hr_message());
        return false;
    }
    p->echo_characters = hr_utf8_length(p->echo_text);
    for (size_t i = 0; i < g->openai.sampling.n && p->echo_text.n; i++) {
        hr_buf_add_str(&p->choices[i].text, p->echo_text);
        if (!hold(g, &p->choices[i], 0)) return false;
    }
    if (++g->n_started < g->n_parts || !g->openai.stream) return true;
    return begin_stream(g);
}

/* Where tokens begin in the echoed text. What the tokenizer put there (BOS, a first blank) has no
 * width; letters that were normalised take as much as the token says. */
typedef struct aligner {
    const hr_tokenizer *tokenizer;
    hr_str text;
    size_t at, characters;
} aligner;

static size_t width_of(const aligner *a, const headrace_token *t)
{
    hr_str rest = hr_str_slice(a->text, a->at, a->text.n), token = { t->bytes, t->n_bytes };
    if (hr_str_starts(rest, token)) return token.n;
    if (token.n && token.p[0] == ' ' && hr_str_starts(rest, hr_str_slice(token, 1, token.n)))
        return token.n - 1;
    if (a->tokenizer && hr_tokenizer_is_special(a->tokenizer, (int32_t)t->chosen.token_id))
        return 0;
    return token.n < rest.n ? token.n : rest.n;
}

static size_t next_offset(aligner *a, const headrace_token *t)
{
    size_t offset = a->characters, end = a->at + width_of(a, t);
    for (; a->at < end; a->at++) /* a character is behind us when its last byte is */
        a->characters +=
            a->at + 1 == a->text.n || ((unsigned char)a->text.p[a->at + 1] & 0xC0) != 0x80;
    return offset;
}

static bool add_echo_logprobs(hr_part *p, const headrace_event *e, const hr_logprob_style *style)
{
    hr_generation *g = p->generation;
    aligner a = { .tokenizer = style->tokenizer, .text = p->echo_text };
    for (size_t i = 0; i < e->n_tokens; i++) {
        size_t offset = next_offset(&a, &e->tokens[i]);
        if (i) hr_logprobs_add(&p->echo, style, &e->tokens[i], offset);
        else hr_logprobs_add_first(&p->echo, style, &e->tokens[i], offset);
    }
    for (size_t i = 0; i < g->openai.sampling.n; i++) {
        size_t before = size_of(&p->choices[i]);
        hr_logprobs_append(&p->choices[i].logprobs, &p->echo);
        if (!hold(g, &p->choices[i], before)) return false;
    }
    return true;
}

static bool on_prompt(hr_part *p, const headrace_event *e)
{
    hr_generation *g = p->generation;
    const hr_openai *o = &g->openai;
    hr_logprob_style style = hr_generation_logprob_style(g);
    for (size_t i = 0; i < e->n_tokens && o->prompt_logprobs >= 0; i++) {
        if (i)
            hr_logprobs_add_prompt(&p->prompt_logprobs, &style, &e->tokens[i], o->prompt_logprobs);
        else hr_buf_add_c(&p->prompt_logprobs, "null");
    }
    g->held += p->prompt_logprobs.n;
    bool echoes = o->echo && o->wants_logprobs && o->endpoint == HR_OPENAI_COMPLETIONS;
    return !echoes || add_echo_logprobs(p, e, &style);
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void measure(hr_generation *g, hr_choice_out *c, size_t n_tokens)
{
    double now = hr_now_s();
    if (!g->first_token_s) g->first_token_s = now;
    if (!c->last_s) hr_metrics_first_token(g->server->metrics, now - g->x->began_s);
    else
        hr_metrics_inter_token(g->server->metrics, (now - c->last_s) / (double)n_tokens,
                               (int64_t)n_tokens);
    c->last_s = now;
}

static bool on_tokens(hr_choice_out *c, const headrace_event *e)
{
    hr_generation *g = c->part->generation;
    size_t before = size_of(c);
    if (e->n_tokens) measure(g, c, e->n_tokens);
    hr_choice_reply_feed(c, e);
    if (g->openai.wants_logprobs) {
        hr_logprob_style style = hr_generation_logprob_style(g);
        for (size_t i = 0; i < e->n_tokens; i++)
            hr_logprobs_add(&c->logprobs, &style, &e->tokens[i],
                            c->part->echo_characters + e->tokens[i].text_offset);
    }
    for (size_t i = 0; g->openai.return_token_ids && i < e->n_tokens; i++)
        add_ids(&c->token_ids, &e->tokens[i].chosen.token_id, 1);
    for (size_t i = 0; g->openai.sampling.sampling_trace && i < e->n_tokens; i++) {
        hr_json_writer w = { .out = &c->trace };
        if (c->trace.n) hr_buf_add_byte(&c->trace, ',');
        hr_trace_write_token(&w, &e->tokens[i], g->openai.sampling.logprobs >= 0);
    }
    c->n_tokens += (int64_t)e->n_tokens;
    c->n_unsent += (int64_t)e->n_tokens;
    if (!hold(g, c, before)) return false;
    return !g->stream_begun || !is_due(g, c) || send_chunk(c, HR_CHUNK_TEXT);
}

static const char *known_reason(const char *reason)
{
    static const char *const names[] = { "stop", "length", "abort", "error" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (reason && !strcmp(reason, names[i])) return names[i];
    return "error";
}

static bool on_finished(hr_choice_out *c, const headrace_event *e)
{
    hr_part *p = c->part;
    hr_generation *g = p->generation;
    c->finished = true;
    size_t before = size_of(c);
    const char *reason = known_reason(e->finish_reason);
    c->finish_reason = hr_choice_reply_finish(c, reason);
    if (!hold(g, c, before)) return false;
    c->stop_token_id = e->stop_token_id;
    if (e->stop_string) {
        size_t n = strlen(e->stop_string);
        c->stop_string = (hr_str){ hr_arena_copy(&g->x->arena, e->stop_string, n), n };
        if (!c->stop_string.p) {
            hr_generation_fail(g, 500, NULL, "no memory for the answer");
            return false;
        }
    }
    c->n_tokens = e->output_tokens; /* with those whose text was cut away */
    if (e->cached_tokens > p->cached_tokens) p->cached_tokens = e->cached_tokens;
    if (e->queue_s > p->queue_s) p->queue_s = e->queue_s;
    if (e->prefill_s > p->prefill_s) p->prefill_s = e->prefill_s;
    if (e->decode_s > p->decode_s) p->decode_s = e->decode_s;
    hr_metrics_finished(g->server->metrics, reason);
    return !g->stream_begun || send_chunk(c, HR_CHUNK_FINISH);
}

static bool on_failed(hr_generation *g, const headrace_event *e)
{
    int http_status = hr_exchange_http_status(e->status);
    hr_generation_fail(g, http_status, hr_generation_param(g, e->message), e->message);
    return false;
}

static bool on_answer(hr_part *p, const headrace_event *e)
{
    hr_choice_out *c = e->choice < p->generation->openai.sampling.n ? &p->choices[e->choice] : NULL;
    switch (e->kind) {
    case HEADRACE_EVENT_STARTED: return on_started(p, e);
    case HEADRACE_EVENT_PROMPT: return on_prompt(p, e);
    case HEADRACE_EVENT_TOKENS: return !c || on_tokens(c, e);
    case HEADRACE_EVENT_FINISHED: return !c || on_finished(c, e);
    case HEADRACE_EVENT_FAILED: return on_failed(p->generation, e);
    case HEADRACE_EVENT_DONE: return true;
    }
    return true;
}

bool hr_generation_event(hr_part *p, const headrace_event *e)
{
    hr_generation *g = p->generation;
    if (g->kind == HR_GENERATION_ANSWER) return on_answer(p, e);
    if (e->kind == HEADRACE_EVENT_FAILED) return on_failed(g, e);
    if (g->kind == HR_GENERATION_TOKENIZE && e->kind == HEADRACE_EVENT_STARTED) {
        p->prompt_tokens = (int64_t)e->n_prompt_ids;
        hr_tokenize_reply(g, e);
        return false;
    }
    if (g->kind == HR_GENERATION_DETOKENIZE && e->kind == HEADRACE_EVENT_TOKENS) {
        hr_detokenize_reply(g, e);
        return false;
    }
    return true;
}
