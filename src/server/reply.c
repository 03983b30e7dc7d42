/* Reasoning and tool calls out of a chat's answers, and into chunks and bodies.
 *
 * I/O thread; owns what a choice has said of them and has not sent. A special token that marks a
 * call or reasoning has no text of its own where those are skipped, so it is recognised by its id.
 */
#include "server/reply.h"

#include <stdio.h>
#include <sys/random.h>

#define MISTRAL_ID 9 /* Mistral's templates refuse ids of any other length */

/* ---- beginning ------------------------------------------------------------------------------- */

/* vLLM's shape, and Mistral's. */
static bool make_id(hr_call_format format, char id[40])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    unsigned char random[MISTRAL_ID];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) return false;
    if (format != HR_CALLS_MISTRAL) {
        unsigned long long word;
        memcpy(&word, random, sizeof word);
        snprintf(id, 40, "chatcmpl-tool-%016llx", word);
        return true;
    }
    for (size_t i = 0; i < MISTRAL_ID; i++) id[i] = letters[random[i] % (sizeof letters - 1)];
    id[MISTRAL_ID] = '\0';
    return true;
}

static void add_call(hr_choice_reply *r, hr_str name)
{
    if (hr_grow((void **)&r->calls, &r->capacity, r->n_calls + 1, sizeof *r->calls)) {
        r->status = HR_RESOURCE_EXHAUSTED;
        return;
    }
    hr_reply_call *call = &r->calls[r->n_calls++];
    *call = (hr_reply_call){ 0 };
    if (!make_id(r->parser.options.format.calls, call->id)) r->status = HR_UNAVAILABLE;
    hr_buf_add_str(&call->name, name);
    if (!r->status) r->status = hr_buf_status(&call->name);
}

static void take(void *context, hr_reply_piece piece, hr_str text)
{
    hr_choice_reply *r = context;
    if (piece == HR_REPLY_CONTENT) {
        hr_buf_add_str(&r->choice->text, text);
        return;
    }
    if (piece == HR_REPLY_REASONING && r->hides_reasoning) return;
    r->bytes += text.n;
    if (piece == HR_REPLY_CALL) {
        add_call(r, text);
        return;
    }
    if (piece == HR_REPLY_ARGUMENTS && (r->status || !r->n_calls)) return;
    hr_buf *to = piece == HR_REPLY_REASONING ? &r->reasoning : &r->calls[r->n_calls - 1].arguments;
    hr_buf_add_str(to, text);
    if (!r->status) r->status = hr_buf_status(to);
}

static hr_status begin(hr_choice_out *c, const hr_reply_options *options)
{
    hr_generation *g = c->part->generation;
    hr_reply_options o = *options;
    hr_choice_reply *r = hr_arena_new(&g->x->arena, hr_choice_reply);
    if (!r) return hr_fail(HR_RESOURCE_EXHAUSTED, "no memory for the answer's parts");
    r->choice = c;
    r->hides_reasoning = !g->openai.include_reasoning;
    o.context = r;
    hr_reply_init(&r->parser, &o);
    c->reply = r;
    return HR_OK;
}

hr_status hr_part_reply_begin(hr_part *p, const headrace_event *started)
{
    const hr_openai *o = &p->generation->openai;
    hr_reply_options options = { .format = o->reply,
                                 .one_call = !o->parallel_tool_calls,
                                 .sink = take };
    if (!o->reply.calls && !o->reply.reasoning) return HR_OK;
    HR_TRY(hr_reply_prompt_of_ids(
        o->reply.reasoning, hr_engine_tokenizer(p->generation->server->engine), started->prompt_ids,
        started->n_prompt_ids, o->request.continue_final_message != 0, &options.prompt));
    for (size_t i = 0; i < o->sampling.n; i++) HR_TRY(begin(&p->choices[i], &options));
    return HR_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void keep_status(hr_choice_reply *r, hr_status st)
{
    if (!r->status) r->status = st;
}

void hr_choice_reply_feed(hr_choice_out *c, const headrace_event *e)
{
    hr_choice_reply *r = c->reply;
    if (!r) {
        hr_buf_add(&c->text, e->text, e->text_bytes);
        return;
    }
    const hr_generation *g = c->part->generation;
    const hr_tokenizer *t = hr_engine_tokenizer(g->server->engine);
    for (size_t i = 0; i < e->n_tokens && g->openai.sampling.skip_special_tokens; i++)
        keep_status(r, hr_reply_hidden(&r->parser, t, e->tokens[i].chosen.token_id));
    keep_status(r, hr_reply_feed(&r->parser, (hr_str){ e->text, e->text_bytes }));
}

const char *hr_choice_reply_finish(hr_choice_out *c, const char *reason)
{
    hr_choice_reply *r = c->reply;
    if (!r) return reason;
    keep_status(r, hr_reply_finish(&r->parser));
    return r->n_calls && !strcmp(reason, "stop") ? "tool_calls" : reason;
}

/* ---- what is written ------------------------------------------------------------------------- */

/* Both names: vLLM's own, and that of DeepSeek, which vLLM had before and others have. */
static void add_reasoning(hr_buf *out, const hr_buf *reasoning)
{
    static const char *const names[] = { "\"reasoning\":", ",\"reasoning_content\":" };
    for (size_t i = 0; i < 2; i++) {
        hr_buf_add_c(out, names[i]);
        if (reasoning && reasoning->n) hr_openai_add_text(out, hr_buf_str(reasoning));
        else hr_buf_add_c(out, "null");
    }
}

static void add_function(hr_buf *out, const hr_reply_call *call, bool name)
{
    hr_buf_add_c(out, "\"function\":{");
    if (name) {
        hr_buf_add_c(out, "\"name\":");
        hr_openai_add_text(out, hr_buf_str(&call->name));
        hr_buf_add_byte(out, ',');
    }
    hr_buf_add_c(out, "\"arguments\":");
    hr_openai_add_text(out, hr_buf_str(&call->arguments));
    hr_buf_add_c(out, "}}");
}

static void add_id(hr_buf *out, const hr_reply_call *call)
{
    hr_buf_add_c(out, "\"id\":\"");
    hr_buf_add_c(out, call->id);
    hr_buf_add_c(out, "\",\"type\":\"function\",");
}

bool hr_choice_reply_is_silent(const hr_choice_out *c)
{
    return c->reply && !c->text.n && (c->reply->bytes || c->reply->hides_reasoning);
}

void hr_openai_write_reply(hr_buf *out, const hr_choice_out *c)
{
    const hr_choice_reply *r = c->reply;
    hr_buf_add_c(out, ",\"tool_calls\":[");
    for (size_t i = 0; r && i < r->n_calls; i++) {
        hr_buf_add_c(out, i ? ",{" : "{");
        add_id(out, &r->calls[i]);
        add_function(out, &r->calls[i], true);
    }
    hr_buf_add_c(out, "],");
    add_reasoning(out, r ? &r->reasoning : NULL);
    if (r && r->status) out->status = r->status;
}

static void add_call_delta(hr_buf *out, const hr_reply_call *call, size_t index)
{
    hr_buf_add_c(out, "{\"index\":");
    hr_openai_add_i64(out, (int64_t)index);
    hr_buf_add_byte(out, ',');
    if (!call->told) add_id(out, call);
    add_function(out, call, !call->told);
}

void hr_openai_write_reply_delta(hr_buf *out, const hr_choice_out *c)
{
    const hr_choice_reply *r = c->reply;
    const char *comma = "";
    hr_buf_add_byte(out, '{');
    if (r->reasoning.n) {
        add_reasoning(out, &r->reasoning);
        comma = ",";
    }
    if (c->text.n) {
        hr_buf_add_c(out, comma);
        hr_buf_add_c(out, "\"content\":");
        hr_openai_add_text(out, hr_buf_str(&c->text));
        comma = ",";
    }
    bool any = false;
    for (size_t i = r->unsent; i < r->n_calls; i++) {
        if (r->calls[i].told && !r->calls[i].arguments.n) continue;
        hr_buf_add_c(out, any ? "," : comma);
        if (!any) hr_buf_add_c(out, "\"tool_calls\":[");
        add_call_delta(out, &r->calls[i], i);
        any = true;
    }
    hr_buf_add_c(out, any ? "]}" : "}");
    if (r->status) out->status = r->status;
}

/* ---- ends ------------------------------------------------------------------------------------ */

void hr_choice_reply_sent(hr_choice_out *c)
{
    hr_choice_reply *r = c->reply;
    if (!r) return;
    hr_buf_clear(&r->reasoning);
    for (size_t i = r->unsent; i < r->n_calls; i++) {
        r->calls[i].told = true;
        hr_buf_clear(&r->calls[i].arguments);
    }
    r->unsent = r->n_calls ? r->n_calls - 1 : 0;
    r->bytes = 0;
}

void hr_choice_reply_deinit(hr_choice_out *c)
{
    hr_choice_reply *r = c->reply;
    if (!r) return;
    hr_reply_deinit(&r->parser);
    hr_buf_deinit(&r->reasoning);
    for (size_t i = 0; i < r->n_calls; i++) {
        hr_buf_deinit(&r->calls[i].name);
        hr_buf_deinit(&r->calls[i].arguments);
    }
    hr_free(r->calls);
}
