/* From tokens to events: text, stop strings, finish reasons.
 *
 * Output thread; owns each choice's text and the tokens whose text is held back. A token is
 * released with its text once no stop string can begin inside what is released, so joined deltas
 * always equal the whole text, and ids, log-probabilities and offsets end where the text ends. */
#include <math.h>
#include <string.h>

#include "base/exact.h"
#include "base/log.h"
#include "base/utf8.h"
#include "engine/text_int.h"

/* ---- log-probabilities ----------------------------------------------------------------------- */

/* The bytes an id stands for, as long as the engine lives. */
static void set_bytes(const hr_writer *t, headrace_token *token)
{
    const hr_tokenizer *tokenizer = t->engine->tokenizer;
    int32_t id = (int32_t)token->chosen.token_id;
    hr_str bytes = tokenizer ? hr_tokenizer_token_bytes(tokenizer, id) : (hr_str){ "", 0 };
    token->bytes = bytes.n ? bytes.p : "";
    token->n_bytes = bytes.n;
}

static size_t count_ids(const int32_t *ids, size_t most)
{
    size_t n = 0;
    while (n < most && ids[n] >= 0) n++;
    return n;
}

/* Top entries by falling probability, then the ids that were asked for by name. False when memory
 * is short. */
static bool set_top(hr_engine_event *v, headrace_token *token, const hr_step_message *m,
                    int64_t row, const hr_sampling *s)
{
    const int32_t *ids = m->top_ids + row * m->top;
    size_t wanted = s->logprobs > 0 ? (size_t)s->logprobs : 0;
    size_t top = count_ids(ids, wanted < (size_t)m->top ? wanted : (size_t)m->top);
    size_t n = top + s->n_logprob_token_ids;
    headrace_logprob *list = hr_arena_array(&v->arena, n, sizeof *list);
    if (!list) return false;
    for (size_t k = 0; k < top; k++)
        list[k] = (headrace_logprob){ ids[k], (double)m->top_logprobs[row * m->top + (int64_t)k],
                                      (int64_t)k + 1 };
    for (size_t k = 0; k < s->n_logprob_token_ids; k++)
        list[top + k] =
            (headrace_logprob){ s->logprob_token_ids[k],
                                (double)m->extra_logprobs[row * HR_SAMPLING_MAX_EXTRA + (int64_t)k],
                                0 };
    token->top = list;
    token->n_top = n;
    return true;
}

/* False when memory is short. */
static bool set_trace(hr_engine_event *v, headrace_token *token, const hr_step_trace *from,
                      const hr_sampling *s, uint32_t choice)
{
    headrace_trace *t = hr_arena_new(&v->arena, headrace_trace);
    if (!t) return false;
    uint64_t seed = (uint64_t)s->seed + choice;
    uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    bool drawn = !hr_sampling_is_greedy(s);
    *t = (headrace_trace){ .entropy = drawn ? (double)from->entropy : (double)NAN,
                           .probability = drawn ? (double)from->share : (double)NAN,
                           .seed = (int64_t)seed,
                           .position = from->position,
                           .word = drawn ? hr_exact_word(key, (int32_t)from->position) : 0,
                           .drawn = drawn };
    for (int i = 0; i < 5; i++) t->candidates[i] = i < 2 || drawn ? from->candidates[i] : -1;
    for (int i = 0; i < 3; i++) t->thresholds[i] = drawn ? (double)from->cuts[i] : (double)NAN;
    token->trace = t;
    return true;
}

/* Position i of a prompt; false when memory is short. */
static bool set_prompt_token(hr_writer *t, hr_engine_event *v, headrace_token *token,
                             const hr_request *r, const hr_prompt_logprobs *p, size_t i)
{
    size_t width = (size_t)p->width, top = i ? count_ids(p->top_ids + i * width, width) : 0;
    headrace_logprob *list = hr_arena_array(&v->arena, top, sizeof *list);
    token->chosen =
        (headrace_logprob){ r->ids.p[i], i ? (double)p->logprob[i] : 0, i ? p->rank[i] : 0 };
    set_bytes(t, token);
    for (size_t k = 0; list && k < top; k++)
        list[k] = (headrace_logprob){ p->top_ids[i * width + k],
                                      (double)p->top_logprob[i * width + k], (int64_t)k + 1 };
    token->top = list;
    token->n_top = top;
    return list != NULL;
}

static hr_engine_event *make_prompt(hr_writer *t, const hr_request *r, const hr_prompt_logprobs *p)
{
    hr_engine_event *v = hr_event_new(HEADRACE_EVENT_PROMPT, r->id, 0);
    size_t n = (size_t)p->n;
    headrace_token *tokens = v ? hr_arena_array(&v->arena, n, sizeof *tokens) : NULL;
    bool good = tokens != NULL;
    for (size_t i = 0; good && i < n; i++) good = set_prompt_token(t, v, &tokens[i], r, p, i);
    if (!good) {
        hr_engine_event_destroy(v);
        return NULL;
    }
    v->event.tokens = tokens;
    v->event.n_tokens = n;
    return v;
}

/* ---- releasing text -------------------------------------------------------------------------- */

/* Most tokens are short: their text lies in the event itself. False when memory is short. */
static bool set_text(hr_engine_event *v, hr_str text)
{
    char *room = text.n < sizeof v->small ? v->small : NULL;
    if (room && text.n) memcpy(room, text.p, text.n); /* the terminator is there */
    v->event.text = room ? room : hr_arena_copy(&v->arena, text.p, text.n);
    v->event.text_bytes = text.n;
    return v->event.text != NULL;
}

static hr_engine_event *take_held(hr_choice *c)
{
    hr_engine_event *v = c->first;
    c->first = (hr_engine_event *)v->node.next;
    if (!c->first) c->last = NULL;
    return v;
}

/* Sends held tokens whose text ends by `until`; with `all`, every token, text cut at `until`. False
 * when memory is short: the rest stays held. */
static bool release(hr_writer *t, hr_choice *c, size_t until, bool all)
{
    while (c->first && (all || c->first->end <= until)) {
        hr_engine_event *v = c->first;
        if (all && v->start >= until && v->end > v->start) { /* its text was cut away */
            hr_engine_event_destroy(take_held(c));
            continue;
        }
        size_t end = v->end < until ? v->end : until;
        size_t from = c->released < end ? c->released : end;
        if (!set_text(v, (hr_str){ c->text.p ? c->text.p + from : "", end - from })) return false;
        c->released = end;
        hr_event_add(&t->events, take_held(c));
    }
    return true;
}

static void close_choice(hr_writer *t, const hr_request *r, hr_choice *c, hr_finish finish)
{
    c->finished = true;
    hr_event_add_finished(&t->events, r, (uint32_t)(c - r->choices), c, finish);
}

/* Memory was too short for what it has to say: it ends with what was said. */
static void break_off(hr_writer *t, const hr_request *r, hr_choice *c)
{
    while (c->first) hr_engine_event_destroy(take_held(c));
    c->stop_string = NULL;
    c->stop_id = -1;
    close_choice(t, r, c, HR_FINISH_ERROR);
}

bool hr_writer_prompt(hr_writer *t, hr_request *r, const hr_prompt_logprobs *p)
{
    hr_engine_event *v = make_prompt(t, r, p);
    hr_event_add(&t->events, v);
    for (int64_t i = 0; !v && i < r->sampling.n; i++)
        if (!r->choices[i].finished) break_off(t, r, &r->choices[i]);
    return !v;
}

/* After new text: looks for stop strings (*met), releases what can be. False when memory is short.
 */
static bool advance(hr_writer *t, hr_request *r, hr_choice *c, bool last, bool *met)
{
    const hr_sampling *s = &r->sampling;
    bool looks = c->n_output > s->min_tokens; /* stop strings wait for them, too */
    int64_t begin, which = -1;
    if (looks) {
        hr_str fresh = hr_str_slice(hr_buf_str(&c->text), c->searched, c->text.n);
        which = hr_stops_feed(&r->stops, c->matched, fresh, &begin);
    }
    *met = which >= 0;
    if (*met) {
        hr_str stop = s->stop[which];
        size_t at = (size_t)((int64_t)c->searched + begin);
        c->stop_string = stop.p;
        c->stop_id = -1;
        return release(t, c, s->include_stop_str_in_output ? at + stop.n : at, true);
    }
    c->searched = c->text.n;
    bool holds = looks && !last;
    return release(t, c, c->text.n - (holds ? hr_stops_held(&r->stops, c->matched) : 0), last);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* The id that ended a choice shows no text, unless it was asked for. */
static bool hides_text(const hr_step_row *row, const hr_sampling *s)
{
    return row->finish == HR_FINISH_STOP && !s->include_stop_str_in_output;
}

static hr_status push_text(hr_writer *t, hr_choice *c, const hr_step_row *row, const hr_sampling *s)
{
    size_t before = c->text.n;
    hr_status st = HR_OK;
    if (t->engine->tokenizer && !hides_text(row, s))
        st = hr_detok_push(&c->detok, row->token, &c->text);
    if (!st && row->finish && t->engine->tokenizer) st = hr_detok_flush(&c->detok, &c->text);
    c->characters += hr_utf8_length(hr_str_slice(hr_buf_str(&c->text), before, c->text.n));
    return st;
}

static void hold(hr_choice *c, hr_engine_event *v)
{
    v->node.next = NULL;
    if (c->last) c->last->node.next = &v->node;
    else c->first = v;
    c->last = v;
}

/* False when memory is short. */
static bool add_token(hr_writer *t, hr_request *r, hr_choice *c, const hr_step_message *m,
                      int64_t i)
{
    const hr_step_row *row = &m->rows[i];
    const hr_sampling *s = &r->sampling;
    hr_engine_event *v = hr_event_new(HEADRACE_EVENT_TOKENS, row->request, row->choice);
    if (!v) return false;
    headrace_token *token = &v->token;
    token->chosen = (headrace_logprob){ row->token, (double)row->logprob, row->rank };
    token->text_offset = c->characters;
    set_bytes(t, token);
    bool good = s->logprobs < 0 && !s->n_logprob_token_ids ? true : set_top(v, token, m, i, s);
    if (good && s->sampling_trace) good = set_trace(v, token, &m->traces[i], s, row->choice);
    v->event.tokens = token;
    v->event.n_tokens = 1;
    v->start = c->text.n;
    if (good) good = !push_text(t, c, row, s);
    v->end = c->text.n;
    hold(c, v);
    if (!good) return false;
    c->n_output++;
    hr_counter_add(&t->engine->stats.generation_tokens, 1);
    return true;
}

static void note_time(hr_writer *t, const hr_request *r, hr_choice *c, const hr_step_message *m,
                      const hr_step_row *row)
{
    c->last_s = m->done_s;
    if (c->first_s > 0) return;
    c->first_s = m->done_s;
    c->started_s = row->started_s;
    c->cached = row->cached;
    hr_counter_add(&t->engine->stats.prompt_tokens, r->ids.n);
}

bool hr_writer_token(hr_writer *t, hr_request *r, const hr_step_message *m, int64_t i)
{
    const hr_step_row *row = &m->rows[i];
    hr_choice *c = &r->choices[row->choice];
    if (c->finished) return false; /* a surplus token: the engine had not heard yet */
    note_time(t, r, c, m, row);
    c->stop_id = row->stop_id;
    bool silent = row->token < 0 || r->score_only, met = false;
    bool good = (silent || add_token(t, r, c, m, i)) &&
                advance(t, r, c, row->finish != HR_FINISH_NONE, &met);
    if (!good) break_off(t, r, c);
    else if (met) close_choice(t, r, c, HR_FINISH_STOP);
    else if (row->finish) close_choice(t, r, c, row->finish);
    return c->finished && !row->finish;
}

void hr_writer_finish(hr_writer *t, hr_request *r, const hr_seq *q)
{
    hr_choice *c = &r->choices[q->choice];
    if (c->finished) return;
    c->started_s = q->started_s;
    c->cached = q->cached;
    size_t before = c->text.n;
    bool good = !t->engine->tokenizer || !hr_detok_flush(&c->detok, &c->text);
    if (c->last) c->last->end += c->text.n - before;
    if (good && release(t, c, c->text.n, true)) close_choice(t, r, c, q->finish);
    else break_off(t, r, c);
}
