/* Chunks and bodies: OpenAI's shapes, with the fields that vLLM adds.
 *
 * I/O thread; writes into one buffer that is used again for every chunk. All that is the same in
 * each chunk of a stream stands ready in its prefix, so a chunk costs a few copies and one quoted
 * text. */
#include "server/generation.h"

#include <string.h>

#include "engine/trace.h"
#include "server/reply.h"

void hr_openai_add_text(hr_buf *out, hr_str s)
{
    hr_json_writer w = { .out = out };
    hr_json_str(&w, s);
}

void hr_openai_add_i64(hr_buf *out, int64_t v)
{
    char digits[24];
    size_t at = sizeof digits;
    uint64_t rest = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (v < 0) digits[--at] = '-';
    hr_buf_add(out, digits + at, sizeof digits - at);
}

static bool is_chat(const hr_generation *g)
{
    return g->openai.endpoint == HR_OPENAI_CHAT;
}

/* {"id":…,"object":…,"created":…,"model":…, */
static void open_answer(hr_buf *out, const hr_generation *g)
{
    static const char *const objects[2][2] = { { "text_completion", "text_completion" },
                                               { "chat.completion", "chat.completion.chunk" } };
    hr_str model = g->openai.model.p ? g->openai.model : g->server->model_name;
    hr_buf_add_c(out, "{\"id\":");
    hr_openai_add_text(out, g->id);
    hr_buf_add_c(out, ",\"object\":\"");
    hr_buf_add_c(out, objects[is_chat(g)][g->openai.stream != 0]);
    hr_buf_add_c(out, "\",\"created\":");
    hr_openai_add_i64(out, g->created);
    hr_buf_add_c(out, ",\"model\":");
    hr_openai_add_text(out, model);
}

static void add_fingerprint(hr_buf *out, const hr_generation *g)
{
    hr_buf_add_c(out, ",\"system_fingerprint\":\"");
    hr_buf_add_c(out, hr_openai_fingerprint(g->server));
    hr_buf_add_byte(out, '"');
}

/* ---- usage ----------------------------------------------------------------------------------- */

static void add_usage(hr_buf *out, const hr_generation *g, hr_usage u)
{
    hr_buf_add_c(out, ",\"usage\":{\"prompt_tokens\":");
    hr_openai_add_i64(out, u.prompt_tokens);
    hr_buf_add_c(out, ",\"total_tokens\":");
    hr_openai_add_i64(out, u.prompt_tokens + u.completion_tokens);
    hr_buf_add_c(out, ",\"completion_tokens\":");
    hr_openai_add_i64(out, u.completion_tokens);
    hr_buf_add_c(out, ",\"prompt_tokens_details\":");
    if (g->server->options.enable_prompt_tokens_details) {
        hr_buf_add_c(out, "{\"cached_tokens\":");
        hr_openai_add_i64(out, u.cached_tokens);
        hr_buf_add_c(out, "}}");
    } else {
        hr_buf_add_c(out, "null}");
    }
}

/* ---- parts of a choice ----------------------------------------------------------------------- */

static void add_list(hr_buf *out, const char *key, const hr_buf *items)
{
    hr_buf_add_c(out, key);
    hr_buf_add_byte(out, '[');
    hr_buf_add_str(out, hr_buf_str(items));
    hr_buf_add_byte(out, ']');
    if (items->status) out->status = items->status;
}

static void add_logprobs(hr_buf *out, const hr_generation *g, const hr_choice_out *c)
{
    const hr_logprob_lists *l = &c->logprobs;
    bool chunk_without = g->openai.stream && !l->content.n && !l->tokens.n;
    hr_buf_add_c(out, ",\"logprobs\":");
    if (!g->openai.wants_logprobs || chunk_without) {
        hr_buf_add_c(out, "null");
        return;
    }
    if (is_chat(g)) {
        add_list(out, "{\"content\":", &l->content);
    } else {
        add_list(out, "{\"text_offset\":", &l->offsets);
        add_list(out, ",\"token_logprobs\":", &l->token_logprobs);
        add_list(out, ",\"tokens\":", &l->tokens);
        add_list(out, ",\"top_logprobs\":", &l->top_logprobs);
    }
    hr_buf_add_byte(out, '}');
}

/* Why the choice ended; the seed that its tokens were drawn with, so that it can be had again. */
static void add_finish(hr_buf *out, const hr_choice_out *c)
{
    hr_buf_add_c(out, ",\"finish_reason\":\"");
    hr_buf_add_c(out, c->finish_reason ? c->finish_reason : "abort");
    hr_buf_add_c(out, "\",\"stop_reason\":");
    if (c->stop_string.p) hr_openai_add_text(out, c->stop_string);
    else if (c->stop_token_id >= 0) hr_openai_add_i64(out, c->stop_token_id);
    else hr_buf_add_c(out, "null");
    hr_buf_add_c(out, ",\"seed\":");
    uint64_t nth = (uint64_t)(c - c->part->choices);
    hr_openai_add_i64(out, (int64_t)((uint64_t)c->part->seed + nth));
}

/* How the tokens came to be chosen. Those of a chunk, or all. */
static void add_trace(hr_buf *out, const hr_generation *g, const hr_choice_out *c)
{
    if (!g->openai.sampling.sampling_trace) return;
    add_list(out, ",\"sampling_trace\":{\"tokens\":", &c->trace);
    hr_buf_add_byte(out, '}');
}

static void write_prompt(hr_json_writer *w, const hr_part *p)
{
    hr_json_begin_object(w);
    hr_json_add_i64(w, "seed", p->seed);
    hr_json_add_i64(w, "max_tokens", p->max_tokens);
    hr_json_key(w, HR_STR("token_ids"));
    hr_buf list = { 0 };
    add_list(&list, "", &p->prompt_ids);
    if (list.status) w->out->status = list.status;
    else hr_json_raw(w, hr_buf_str(&list));
    hr_buf_deinit(&list);
    hr_json_end_object(w);
}

/* What it takes to have the answer again: once, of all choices. */
static void add_trace_header(hr_buf *out, const hr_generation *g)
{
    if (!g->openai.sampling.sampling_trace) return;
    hr_json_writer w = { .out = out };
    hr_buf_add_c(out, ",\"sampling_trace\":");
    hr_json_begin_object(&w);
    hr_trace_write_header(&w, g->server->engine, &g->openai.sampling, g->server->model_hash);
    hr_json_key(&w, HR_STR("prompts"));
    hr_json_begin_array(&w);
    for (size_t i = 0; i < g->n_parts; i++) write_prompt(&w, &g->parts[i]);
    hr_json_end_array(&w);
    hr_json_end_object(&w);
}

/* What the numbers of an answer depend on besides its request. */
static void add_numerics(hr_buf *out, const hr_generation *g)
{
    headrace_info info = { .size = sizeof info };
    headrace_info_get(g->server->engine, &info);
    hr_buf_add_c(out, ",\"numerics\":");
    hr_buf_add_c(out, info.numerics ? info.numerics : "null");
}

/* ---- streams --------------------------------------------------------------------------------- */

void hr_openai_write_prefix(hr_generation *g)
{
    open_answer(&g->prefix, g);
    add_fingerprint(&g->prefix, g);
    hr_buf_add_c(&g->prefix, ",\"choices\":[");
}

static void add_prefix(hr_buf *out, const hr_generation *g)
{
    hr_buf_add_str(out, hr_buf_str(&g->prefix));
    if (g->prefix.status) out->status = g->prefix.status;
}

static void add_delta(hr_buf *out, const hr_generation *g, const hr_choice_out *c,
                      hr_chunk_kind kind)
{
    hr_str text = kind == HR_CHUNK_ROLE ? HR_STR("") : hr_buf_str(&c->text);
    if (!is_chat(g)) {
        hr_buf_add_c(out, ",\"text\":");
        hr_openai_add_text(out, text);
        return;
    }
    hr_buf_add_c(out, ",\"delta\":");
    if (c->reply && kind != HR_CHUNK_ROLE) {
        hr_openai_write_reply_delta(out, c);
        return;
    }
    hr_buf_add_byte(out, '{');
    if (kind == HR_CHUNK_ROLE) {
        const char *role = g->server->options.response_role;
        hr_buf_add_c(out, "\"role\":");
        hr_openai_add_text(out, hr_str_c(role ? role : "assistant"));
        hr_buf_add_byte(out, ',');
    }
    hr_buf_add_c(out, "\"content\":");
    hr_openai_add_text(out, text);
    hr_buf_add_byte(out, '}');
}

static void add_stream_ids(hr_buf *out, const hr_generation *g, const hr_choice_out *c,
                           hr_chunk_kind kind)
{
    bool first = is_chat(g) ? kind == HR_CHUNK_ROLE : !c->begun;
    if (!g->openai.return_token_ids) return;
    if (first && !is_chat(g)) add_list(out, ",\"prompt_token_ids\":", &c->part->prompt_ids);
    if (kind == HR_CHUNK_ROLE) return;
    add_list(out, ",\"token_ids\":", &c->token_ids);
}

void hr_openai_write_chunk(hr_buf *out, const hr_generation *g, const hr_choice_out *c,
                           hr_chunk_kind kind)
{
    const hr_openai *o = &g->openai;
    add_prefix(out, g);
    hr_buf_add_c(out, "{\"index\":");
    hr_openai_add_i64(out, c->index);
    add_delta(out, g, c, kind);
    if (kind == HR_CHUNK_ROLE) hr_buf_add_c(out, ",\"logprobs\":null");
    else add_logprobs(out, g, c);
    if (kind == HR_CHUNK_FINISH) add_finish(out, c);
    else hr_buf_add_c(out, ",\"finish_reason\":null,\"stop_reason\":null");
    add_stream_ids(out, g, c, kind);
    if (kind != HR_CHUNK_ROLE) add_trace(out, g, c);
    hr_buf_add_c(out, "}]");
    if (kind == HR_CHUNK_ROLE && o->return_token_ids && c->index == 0)
        add_list(out, ",\"prompt_token_ids\":", &c->part->prompt_ids);
    if (kind == HR_CHUNK_FINISH && c->index == 0) {
        add_trace_header(out, g);
        add_numerics(out, g);
    }
    if (o->continuous_usage) add_usage(out, g, hr_generation_usage(g));
    else if (o->include_usage) hr_buf_add_c(out, ",\"usage\":null");
    hr_buf_add_byte(out, '}');
    if (c->text.status) out->status = c->text.status;
}

void hr_openai_write_usage_chunk(hr_buf *out, const hr_generation *g)
{
    add_prefix(out, g);
    hr_buf_add_byte(out, ']');
    add_usage(out, g, hr_generation_usage(g));
    hr_buf_add_byte(out, '}');
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static void add_prompt_logprobs(hr_buf *out, const hr_generation *g, const hr_part *p)
{
    if (g->openai.prompt_logprobs >= 0) add_list(out, ",\"prompt_logprobs\":", &p->prompt_logprobs);
    else hr_buf_add_c(out, ",\"prompt_logprobs\":null");
}

static void add_token_ids(hr_buf *out, const hr_generation *g, const char *key, const hr_buf *items)
{
    if (g->openai.return_token_ids) add_list(out, key, items);
}

static void add_message(hr_buf *out, const hr_generation *g, const hr_choice_out *c)
{
    const char *role = g->server->options.response_role;
    hr_buf_add_c(out, ",\"message\":{\"role\":");
    hr_openai_add_text(out, hr_str_c(role ? role : "assistant"));
    hr_buf_add_c(out, ",\"content\":");
    if (hr_choice_reply_is_silent(c)) hr_buf_add_c(out, "null");
    else hr_openai_add_text(out, hr_buf_str(&c->text));
    hr_buf_add_c(out, ",\"refusal\":null,\"annotations\":null,\"audio\":null,"
                      "\"function_call\":null");
    hr_openai_write_reply(out, c);
    hr_buf_add_byte(out, '}');
}

static void add_choice(hr_buf *out, const hr_generation *g, const hr_choice_out *c)
{
    if (c->index) hr_buf_add_byte(out, ',');
    hr_buf_add_c(out, "{\"index\":");
    hr_openai_add_i64(out, c->index);
    if (is_chat(g)) {
        add_message(out, g, c);
    } else {
        hr_buf_add_c(out, ",\"text\":");
        hr_openai_add_text(out, hr_buf_str(&c->text));
    }
    add_logprobs(out, g, c);
    add_finish(out, c);
    add_token_ids(out, g, ",\"token_ids\":", &c->token_ids);
    add_trace(out, g, c);
    if (!is_chat(g)) {
        add_token_ids(out, g, ",\"prompt_token_ids\":", &c->part->prompt_ids);
        add_prompt_logprobs(out, g, c->part);
    }
    hr_buf_add_byte(out, '}');
    if (c->text.status) out->status = c->text.status;
}

void hr_openai_write_body(hr_buf *out, const hr_generation *g)
{
    open_answer(out, g);
    hr_buf_add_c(out, ",\"choices\":[");
    for (size_t i = 0; i < g->n_choices; i++) add_choice(out, g, &g->choices[i]);
    hr_buf_add_c(out, "],\"service_tier\":null");
    add_fingerprint(out, g);
    add_usage(out, g, hr_generation_usage(g));
    if (is_chat(g)) {
        add_prompt_logprobs(out, g, &g->parts[0]);
        add_token_ids(out, g, ",\"prompt_token_ids\":", &g->parts[0].prompt_ids);
    }
    hr_buf_add_c(out, ",\"kv_transfer_params\":null");
    add_trace_header(out, g);
    add_numerics(out, g);
    hr_buf_add_byte(out, '}');
}
