/* Gathering an answer.
 *
 * Main thread. Events hold only until the next poll, so each is turned into the piece of JSON or
 * text that it will be printed as, at once. */
#include "cli/answer.h"

#include <math.h>
#include <string.h>

#include "engine/trace.h"

hr_status hr_answer_init(hr_answer *a, int64_t n)
{
    *a = (hr_answer){ .n = n };
    a->choices = hr_alloc_array0((size_t)n, sizeof *a->choices);
    if (!a->choices) return hr_fail(HR_RESOURCE_EXHAUSTED, "choices");
    for (int64_t i = 0; i < n; i++) a->choices[i].stop_token_id = -1;
    return HR_OK;
}

void hr_answer_deinit(hr_answer *a)
{
    for (int64_t i = 0; a->choices && i < a->n; i++) {
        hr_answer_choice *c = &a->choices[i];
        hr_buf_deinit(&c->text);
        hr_buf_deinit(&c->ids);
        hr_buf_deinit(&c->logprobs);
        hr_buf_deinit(&c->trace);
        hr_free(c->stop_string);
    }
    hr_free(a->choices);
    hr_buf_deinit(&a->prompt_ids);
    hr_buf_deinit(&a->prompt_logprobs);
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

/* JSON has no infinity: what was masked is -9999, as vLLM and OpenAI write it. */
static void write_logprob(hr_json_writer *w, const headrace_logprob *p)
{
    hr_json_add_i64(w, "token_id", p->token_id);
    hr_json_add_f64(w, "logprob", isinf(p->logprob) ? -9999.0 : p->logprob);
    hr_json_key(w, HR_STR("rank"));
    if (p->rank) hr_json_i64(w, p->rank);
    else hr_json_null(w);
}

static void write_token(hr_json_writer *w, const headrace_token *t, int with_text)
{
    hr_json_begin_object(w);
    write_logprob(w, &t->chosen);
    if (with_text) {
        hr_json_key(w, HR_STR("token"));
        hr_json_str(w, (hr_str){ t->bytes, t->n_bytes });
        hr_json_key(w, HR_STR("bytes"));
        hr_json_begin_array(w);
        for (size_t i = 0; i < t->n_bytes; i++) hr_json_i64(w, (unsigned char)t->bytes[i]);
        hr_json_end_array(w);
        hr_json_key(w, HR_STR("text_offset"));
        hr_json_u64(w, t->text_offset);
    }
    hr_json_key(w, HR_STR("top"));
    hr_json_begin_array(w);
    for (size_t i = 0; i < t->n_top; i++) {
        hr_json_begin_object(w);
        write_logprob(w, &t->top[i]);
        hr_json_end_object(w);
    }
    hr_json_end_array(w);
    hr_json_end_object(w);
}

static void add_ids(hr_buf *out, const int64_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hr_buf_printf(out, "%s%lld", out->n ? "," : "", (long long)ids[i]);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void add_prompt(hr_answer *a, const headrace_event *v)
{
    hr_buf_add_c(&a->prompt_logprobs, "null"); /* nothing comes before the first token */
    for (size_t i = 1; i < v->n_tokens; i++) {
        hr_json_writer w = { .out = &a->prompt_logprobs };
        hr_buf_add_byte(&a->prompt_logprobs, ',');
        write_token(&w, &v->tokens[i], 0);
    }
}

static void add_trace(hr_answer_choice *c, const headrace_token *t, int with_logprobs)
{
    hr_json_writer w = { .out = &c->trace };
    if (!t->trace) return;
    if (c->trace.n) hr_buf_add_byte(&c->trace, ',');
    hr_trace_write_token(&w, t, with_logprobs != 0);
}

static void add_tokens(hr_answer_choice *c, const headrace_event *v, int with_logprobs)
{
    hr_buf_add(&c->text, v->text, v->text_bytes);
    for (size_t i = 0; i < v->n_tokens; i++) {
        add_ids(&c->ids, &v->tokens[i].chosen.token_id, 1);
        add_trace(c, &v->tokens[i], with_logprobs);
        if (!with_logprobs) continue;
        if (c->logprobs.n) hr_buf_add_byte(&c->logprobs, ',');
        hr_json_writer w = { .out = &c->logprobs };
        write_token(&w, &v->tokens[i], 1);
    }
}

static void add_finish(hr_answer_choice *c, const headrace_event *v)
{
    strncpy(c->finish, v->finish_reason, sizeof c->finish - 1);
    c->stop_token_id = v->stop_token_id;
    c->tokens = v->output_tokens;
    if (!v->stop_string) return;
    c->stop_string = hr_alloc(strlen(v->stop_string) + 1);
    if (c->stop_string) strcpy(c->stop_string, v->stop_string);
}

void hr_answer_add(hr_answer *a, const headrace_event *v, int with_logprobs)
{

    switch (v->kind) {
    case HEADRACE_EVENT_STARTED:
        add_ids(&a->prompt_ids, v->prompt_ids, v->n_prompt_ids);
        a->prompt_tokens = v->n_prompt_ids;
        a->seed = v->seed;
        a->max_tokens = v->max_tokens;
        return;
    case HEADRACE_EVENT_PROMPT: add_prompt(a, v); return;
    case HEADRACE_EVENT_TOKENS: add_tokens(&a->choices[v->choice], v, with_logprobs); return;
    case HEADRACE_EVENT_FINISHED: add_finish(&a->choices[v->choice], v); return;
    case HEADRACE_EVENT_DONE: a->done = 1; return;
    case HEADRACE_EVENT_FAILED:
        a->status = v->status;
        strncpy(a->message, v->message ? v->message : "", sizeof a->message - 1);
        return;
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void key(hr_json_writer *w, const char *name)
{
    hr_json_key(w, hr_str_c(name));
}

/* "[" + what was gathered + "]". */
static void write_list(hr_json_writer *w, const hr_buf *items)
{
    hr_buf list = { 0 };
    hr_buf_add_c(&list, "[");
    hr_buf_add_str(&list, hr_buf_str(items));
    hr_buf_add_c(&list, "]");
    hr_json_raw(w, hr_buf_str(&list));
    hr_buf_deinit(&list);
}

/* As a server's answers have it, so that one reader will do. */
static void write_choice_trace(hr_json_writer *w, const hr_answer_choice *c)
{
    key(w, "sampling_trace");
    hr_json_begin_object(w);
    key(w, "tokens");
    write_list(w, &c->trace);
    hr_json_end_object(w);
}

static void write_trace(hr_json_writer *w, const hr_answer *a, const hr_answer_style *style)
{
    key(w, "sampling_trace");
    hr_json_begin_object(w);
    hr_trace_write_header(w, style->engine, style->sampling, style->model_hash);
    key(w, "prompts");
    hr_json_begin_array(w);
    hr_json_begin_object(w);
    hr_json_add_i64(w, "seed", a->seed);
    hr_json_add_i64(w, "max_tokens", a->max_tokens);
    key(w, "token_ids");
    write_list(w, &a->prompt_ids);
    hr_json_end_object(w);
    hr_json_end_array(w);
    hr_json_end_object(w);
}

static void write_choice(hr_json_writer *w, const hr_answer_choice *c, int64_t index,
                         const hr_answer_style *style)
{
    hr_json_begin_object(w);
    hr_json_add_i64(w, "index", index);
    key(w, "token_ids");
    write_list(w, &c->ids);
    key(w, "text");
    hr_json_str(w, hr_buf_str(&c->text));
    key(w, "logprobs");
    if (style->with_logprobs) write_list(w, &c->logprobs);
    else hr_json_null(w);
    hr_json_add_str(w, "finish_reason", c->finish);
    key(w, "stop_reason");
    if (c->stop_string) hr_json_str(w, hr_str_c(c->stop_string));
    else if (c->stop_token_id >= 0) hr_json_i64(w, c->stop_token_id);
    else hr_json_null(w);
    if (style->model_hash) write_choice_trace(w, c);
    hr_json_end_object(w);
}

static void write_usage(hr_json_writer *w, const hr_answer *a)
{
    int64_t completion = 0, prompt = (int64_t)a->prompt_tokens;
    for (int64_t i = 0; i < a->n; i++) completion += a->choices[i].tokens;
    key(w, "usage");
    hr_json_begin_object(w);
    hr_json_add_i64(w, "prompt_tokens", prompt);
    hr_json_add_i64(w, "completion_tokens", completion);
    hr_json_add_i64(w, "total_tokens", prompt + completion);
    hr_json_end_object(w);
}

static void write_timings(hr_json_writer *w, const headrace_info *i)
{
    key(w, "timings");
    hr_json_begin_object(w);
    hr_json_add_f64(w, "load_s", i->load_s);
    hr_json_add_f64(w, "compile_s", i->compile_s);
    hr_json_add_i64(w, "programs", i->programs);
    hr_json_add_f64(w, "prefill_tok_s",
                    i->prefill_s > 0 ? (double)i->prefill_tokens / i->prefill_s : 0);
    hr_json_add_f64(w, "decode_tok_s",
                    i->decode_s > 0 ? (double)i->decode_tokens / i->decode_s : 0);
    hr_json_end_object(w);
}

void hr_answer_json(const hr_answer *a, const headrace_info *info, const hr_answer_style *style,
                    hr_buf *out)
{
    hr_json_writer json = { .out = out }, *w = &json;
    hr_json_begin_object(w);
    hr_json_add_str(w, "model", info->model_name);
    key(w, "prompt_token_ids");
    write_list(w, &a->prompt_ids);
    key(w, "prompt_logprobs");
    if (a->prompt_logprobs.n) write_list(w, &a->prompt_logprobs);
    else hr_json_null(w);
    key(w, "choices");
    hr_json_begin_array(w);
    for (int64_t i = 0; i < a->n; i++) write_choice(w, &a->choices[i], i, style);
    hr_json_end_array(w);
    hr_json_add_i64(w, "seed", a->seed);
    key(w, "numerics");
    hr_json_raw(w, hr_str_c(info->numerics));
    if (style->model_hash) write_trace(w, a, style);
    write_usage(w, a);
    write_timings(w, info);
    hr_json_end_object(w);
    hr_buf_add_c(out, "\n");
}
