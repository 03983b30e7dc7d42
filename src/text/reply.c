/* An answer's text taken apart: phases, and the marks between them.
 *
 * Caller's thread; owns its buffers. Bytes go through one at a time, so that where a text was cut
 * cannot matter. The first byte of each mark is nowhere else in it: what turns out to be no mark is
 * ordinary text up to the byte at hand, and nothing is ever read twice. */
#include "text/reply_int.h"

/* ---- what is given out ----------------------------------------------------------------------- */

void hr_reply_flush(hr_reply *r)
{
    if (r->out.n) r->options.sink(r->options.context, r->piece, hr_buf_str(&r->out));
    if (!r->status) r->status = hr_buf_status(&r->out);
    hr_buf_clear(&r->out);
}

void hr_reply_put(hr_reply *r, hr_reply_piece piece, char c)
{
    if (r->hidden) return;
    if (r->piece != piece) hr_reply_flush(r);
    r->piece = piece;
    hr_buf_add_byte(&r->out, c);
}

void hr_reply_hold(hr_reply *r, char c)
{
    if (!r->hidden) hr_buf_add_byte(&r->held, c);
}

/* What was held is this. */
static void release(hr_reply *r, hr_reply_piece piece)
{
    bool hidden = r->hidden;
    r->hidden = false; /* it was shown */
    for (size_t i = 0; i < r->held.n; i++) hr_reply_put(r, piece, r->held.p[i]);
    r->hidden = hidden;
    if (!r->status) r->status = hr_buf_status(&r->held);
    hr_buf_clear(&r->held);
}

void hr_reply_reject(hr_reply *r)
{
    release(r, HR_REPLY_CONTENT);
    r->phase = HR_REPLY_TALKING;
    r->fresh = false;
}

/* What began like a mark is this. */
static void release_seen(hr_reply *r, hr_reply_piece piece)
{
    for (size_t i = 0; i < r->n_seen; i++) hr_reply_put(r, piece, r->seen[i]);
    r->n_seen = 0;
}

/* ---- marks ----------------------------------------------------------------------------------- */

typedef enum match { MATCH_NONE, MATCH_PART, MATCH_WHOLE } match;

/* Whether what was seen, and then c, is a mark or its beginning; c is added to it then. */
static match see(hr_reply *r, const char *mark, char c)
{
    size_t n = strlen(mark);
    if (r->n_seen >= n || mark[r->n_seen] != c || memcmp(mark, r->seen, r->n_seen) != 0)
        return MATCH_NONE;
    r->seen[r->n_seen] = c;
    if (r->n_seen + 1 < n) {
        r->n_seen++;
        return MATCH_PART;
    }
    return MATCH_WHOLE;
}

/* A whole mark, which may turn out to be content. */
static void hold_mark(hr_reply *r, const char *mark)
{
    for (size_t i = 0; mark[i]; i++) hr_reply_hold(r, mark[i]);
    r->n_seen = 0;
}

/* ---- phases ---------------------------------------------------------------------------------- */

static void talk(hr_reply *r)
{
    r->phase = HR_REPLY_TALKING;
    r->fresh = r->options.format.calls != HR_CALLS_NONE;
}

/* No mark opens reasoning here. */
static void begin_without_mark(hr_reply *r)
{
    r->phase = r->inside ? HR_REPLY_THINKING : HR_REPLY_TALKING;
    if (!r->inside) talk(r);
    hr_str seen = { r->seen, r->n_seen };
    for (size_t i = 0; i < seen.n; i++) hr_reply_hold(r, seen.p[i]);
    r->n_seen = 0;
}

static bool step(hr_reply *r, char c);

/* What was held before the phase was known goes through it. */
static void replay(hr_reply *r)
{
    hr_buf again = r->held;
    bool hidden = r->hidden;
    r->held = (hr_buf){ 0 };
    r->hidden = false;
    for (size_t i = 0; i < again.n; i++)
        while (!step(r, again.p[i])) {
        }
    r->hidden = hidden;
    if (!r->status) r->status = hr_buf_status(&again);
    hr_buf_deinit(&again);
}

static bool in_opening(hr_reply *r, char c)
{
    const char *mark = hr_reply_reasoning_marks(r->options.format.reasoning).open;
    if (!r->n_seen && hr_reply_is_blank(c)) {
        hr_reply_hold(r, c);
        return true;
    }
    match m = see(r, mark, c);
    if (m == MATCH_PART) return true;
    if (m == MATCH_WHOLE) {
        hr_buf_clear(&r->held);
        r->n_seen = 0;
        r->phase = HR_REPLY_THINKING;
        return true;
    }
    begin_without_mark(r);
    replay(r);
    return false;
}

static bool in_thinking(hr_reply *r, char c)
{
    const char *mark = hr_reply_reasoning_marks(r->options.format.reasoning).close;
    match m = see(r, mark, c);
    if (m == MATCH_PART) return true;
    if (m == MATCH_WHOLE) {
        r->n_seen = 0;
        talk(r);
        return true;
    }
    if (r->n_seen) {
        release_seen(r, HR_REPLY_REASONING);
        return false;
    }
    hr_reply_put(r, HR_REPLY_REASONING, c);
    return true;
}

/* White space before a call is nobody's content, nor is what Llama puts between calls. */
static bool waits(const hr_reply *r, char c)
{
    bool llama = r->options.format.calls == HR_CALLS_LLAMA3;
    return r->fresh && !r->n_seen && (hr_reply_is_blank(c) || (llama && r->n_calls && c == ';'));
}

static bool in_talking(hr_reply *r, char c)
{
    hr_call_format format = r->options.format.calls;
    const char *mark = hr_reply_call_marks(format).open;
    if (waits(r, c)) {
        hr_reply_hold(r, c);
        return true;
    }
    if (format == HR_CALLS_LLAMA3 && r->fresh && !r->n_seen && c == '{') {
        hr_reply_call_begin(r);
        return false;
    }
    match m = see(r, mark, c);
    if (m == MATCH_PART) return true;
    if (m == MATCH_WHOLE) {
        hold_mark(r, mark);
        hr_reply_call_begin(r);
        return true;
    }
    release(r, HR_REPLY_CONTENT);
    r->fresh = false;
    if (r->n_seen) {
        release_seen(r, HR_REPLY_CONTENT);
        return false;
    }
    hr_reply_put(r, HR_REPLY_CONTENT, c);
    return true;
}

/* Behind a call, or in one whose model has lost its way: to the mark that ends it, or begins the
 * next. */
static bool in_tail(hr_reply *r, char c)
{
    hr_reply_marks marks = hr_reply_call_marks(r->options.format.calls);
    match closes = see(r, marks.close, c);
    if (closes == MATCH_PART) return true;
    if (closes == MATCH_WHOLE) {
        r->n_seen = 0;
        r->phase = HR_REPLY_TALKING;
        r->fresh = true;
        return true;
    }
    match opens = see(r, marks.open, c);
    if (opens == MATCH_PART) return true;
    if (opens == MATCH_WHOLE) {
        hold_mark(r, marks.open);
        hr_reply_call_begin(r);
        return true;
    }
    bool was_part = r->n_seen > 0;
    r->n_seen = 0;
    return !was_part;
}

/* False: the byte was not taken, and belongs to the phase that is now. */
static bool step(hr_reply *r, char c)
{
    switch (r->phase) {
    case HR_REPLY_OPENING: return in_opening(r, c);
    case HR_REPLY_THINKING: return in_thinking(r, c);
    case HR_REPLY_TALKING: return in_talking(r, c);
    case HR_REPLY_CALLING: return hr_reply_call_step(r, c);
    case HR_REPLY_TAIL: return in_tail(r, c);
    }
    return true;
}

static hr_status feed(hr_reply *r, hr_str text)
{
    for (size_t i = 0; i < text.n && !r->status; i++)
        while (!step(r, text.p[i])) {
        }
    hr_reply_flush(r);
    if (!r->status) r->status = hr_buf_status(&r->held);
    return r->status ? hr_fail(HR_RESOURCE_EXHAUSTED, "an answer's parts") : HR_OK;
}

hr_status hr_reply_feed(hr_reply *r, hr_str text)
{
    return feed(r, text);
}

/* ---- special tokens -------------------------------------------------------------------------- */

/* A mark of calls is one wherever it stands: no text spells a special token. */
static void end_call(hr_reply *r)
{
    if (r->phase == HR_REPLY_TALKING && r->n_seen) {
        release(r, HR_REPLY_CONTENT);
        release_seen(r, HR_REPLY_CONTENT);
        r->fresh = false;
    }
    r->n_seen = 0;
    if (r->phase == HR_REPLY_CALLING && !r->call.committed) hr_reply_reject(r);
    if (r->phase == HR_REPLY_TALKING) return;
    r->phase = HR_REPLY_TALKING;
    r->fresh = true;
}

hr_status hr_reply_special(hr_reply *r, hr_str token)
{
    hr_reply_marks calls = hr_reply_call_marks(r->options.format.calls);
    hr_reply_marks thoughts = hr_reply_reasoning_marks(r->options.format.reasoning);
    bool thinks = r->phase == HR_REPLY_OPENING || r->phase == HR_REPLY_THINKING;
    bool opens = token.n && hr_str_eq_c(token, calls.open);
    bool marks =
        token.n && (hr_str_eq_c(token, thoughts.open) || hr_str_eq_c(token, thoughts.close));
    hr_status st = HR_OK;
    if (thinks && marks) {
        r->hidden = true;
        st = feed(r, token);
        r->hidden = false;
        return st;
    }
    if (r->phase == HR_REPLY_OPENING && opens && !r->inside) { /* there is no reasoning */
        begin_without_mark(r);
        replay(r);
    } else if (thinks) return HR_OK;
    if (opens || (token.n && hr_str_eq_c(token, calls.close))) end_call(r);
    if (opens) hr_reply_call_begin(r);
    return feed(r, (hr_str){ NULL, 0 });
}

/* ---- life ------------------------------------------------------------------------------------ */

void hr_reply_init(hr_reply *r, const hr_reply_options *o)
{
    *r = (hr_reply){ .options = *o };
    bool thinks = o->format.reasoning != HR_REASONING_NONE && o->prompt != HR_REPLY_PROMPT_CLOSES;
    r->inside =
        o->prompt == HR_REPLY_PROMPT_OPENS || o->format.reasoning == HR_REASONING_DEEPSEEK_R1;
    talk(r);
    if (thinks) r->phase = HR_REPLY_OPENING;
}

void hr_reply_deinit(hr_reply *r)
{
    hr_buf_deinit(&r->held);
    hr_buf_deinit(&r->out);
    hr_buf_deinit(&r->call.text);
    hr_buf_deinit(&r->call.name);
    hr_buf_deinit(&r->call.arguments);
}

hr_status hr_reply_finish(hr_reply *r)
{
    if (r->phase == HR_REPLY_OPENING) {
        begin_without_mark(r);
        replay(r);
    }
    if (r->phase == HR_REPLY_THINKING) release_seen(r, HR_REPLY_REASONING);
    if (r->phase == HR_REPLY_CALLING && !r->call.committed) hr_reply_reject(r);
    if (r->phase == HR_REPLY_TALKING) {
        if (!r->n_calls || r->n_seen) release(r, HR_REPLY_CONTENT);
        release_seen(r, HR_REPLY_CONTENT);
    }
    return feed(r, (hr_str){ NULL, 0 });
}
