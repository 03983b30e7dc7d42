/* Log-probabilities as JSON, in OpenAI's two shapes and vLLM's.
 *
 * I/O thread, once per token, so numbers have a quick way: a log-probability is a float32 inside,
 * which nine significant digits tell exactly, and fixed point prints those without printf. What is
 * not finite becomes -9999.0, the floor that OpenAI and vLLM use. */
#include <math.h>

#include "base/utf8.h"
#include "server/generation.h"

static const double floor_logprob = -9999.0;

/* Nine significant digits of 0.001 ≤ v < 10000, zeros at the end dropped but for one. */
static void add_fixed(hr_buf *out, double v)
{
    int decimals = v >= 1000 ? 5 : v >= 100 ? 6 : v >= 10 ? 7 : v >= 1 ? 8 : v >= 0.1 ? 9 : 11;
    int64_t scale = 1;
    for (int i = 0; i < decimals; i++) scale *= 10;
    int64_t fixed = llround(v * (double)scale);
    hr_openai_add_i64(out, fixed / scale);
    hr_buf_add_byte(out, '.');
    char digits[16];
    int64_t rest = fixed % scale;
    for (int i = decimals - 1; i >= 0; i--, rest /= 10) digits[i] = (char)('0' + rest % 10);
    while (decimals > 1 && digits[decimals - 1] == '0') decimals--;
    hr_buf_add(out, digits, (size_t)decimals);
}

static void add_number(hr_buf *out, double v)
{
    char text[32];
    if (!(v > floor_logprob)) v = floor_logprob; /* NaN and -inf too */
    if (v > -floor_logprob) v = -floor_logprob;  /* raw logits may be +inf */
    double size = fabs(v);
    if (size >= 0.001 && size < 9999) {
        if (v < 0) hr_buf_add_byte(out, '-');
        add_fixed(out, size);
        return;
    }
    hr_buf_add(out, text, hr_json_format_f64(v, text));
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static hr_str bytes_of(const hr_logprob_style *style, int64_t id)
{
    if (!style->tokenizer) return (hr_str){ "", 0 };
    hr_str s = hr_tokenizer_token_bytes(style->tokenizer, (int32_t)id);
    return s.p ? s : (hr_str){ "", 0 };
}

static void add_token_text(hr_buf *out, const hr_logprob_style *style, int64_t id)
{
    if (style->as_ids) {
        hr_buf_add_c(out, "\"token_id:");
        hr_openai_add_i64(out, id);
        hr_buf_add_byte(out, '"');
        return;
    }
    hr_openai_add_text(out, bytes_of(style, id));
}

static void add_comma(hr_buf *out)
{
    if (out->n) hr_buf_add_byte(out, ',');
}

/* Top entries that an answer tells: the `top` likeliest, then the ids that were asked for by name
 * and are not among them. Index of the next one at or after i, or t->n_top. */
static size_t next_top(const headrace_token *t, size_t i, int top)
{
    for (; i < t->n_top; i++) {
        if (t->top[i].rank > 0) {
            if (i < (size_t)top) return i;
            continue;
        }
        bool told = false; /* ranked entries come first, so they are all behind us */
        for (size_t k = 0; k < i && !told; k++)
            told = t->top[k].token_id == t->top[i].token_id && (k < (size_t)top || !t->top[k].rank);
        if (!told) return i;
    }
    return i;
}

/* ---- chat ------------------------------------------------------------------------------------ */

/* {"token":…,"logprob":…,"bytes":[…] without the end. */
static void open_entry(hr_buf *out, const hr_logprob_style *style, int64_t id, double logprob)
{
    hr_str bytes = bytes_of(style, id);
    hr_buf_add_c(out, "{\"token\":");
    add_token_text(out, style, id);
    hr_buf_add_c(out, ",\"logprob\":");
    add_number(out, logprob);
    hr_buf_add_c(out, ",\"bytes\":[");
    for (size_t i = 0; i < bytes.n; i++) {
        if (i) hr_buf_add_byte(out, ',');
        hr_openai_add_i64(out, (unsigned char)bytes.p[i]);
    }
    hr_buf_add_byte(out, ']');
}

static void add_content(hr_buf *out, const hr_logprob_style *style, const headrace_token *t)
{
    add_comma(out);
    open_entry(out, style, t->chosen.token_id, t->chosen.logprob);
    hr_buf_add_c(out, ",\"top_logprobs\":[");
    bool first = true;
    for (size_t i = next_top(t, 0, style->top); i < t->n_top; i = next_top(t, i + 1, style->top)) {
        if (!first) hr_buf_add_byte(out, ',');
        first = false;
        open_entry(out, style, t->top[i].token_id, t->top[i].logprob);
        hr_buf_add_byte(out, '}');
    }
    hr_buf_add_c(out, "]}");
}

/* ---- completions ----------------------------------------------------------------------------- */

/* The next character as it is shown: what is none becomes U+FFFD. */
static uint32_t next_shown(hr_str *s)
{
    size_t len;
    uint32_t c = hr_utf8_decode(*s, &len);
    *s = hr_str_slice(*s, len, s->n);
    return c == HR_UTF8_BAD ? 0xFFFD : c;
}

/* An object has each key once: of two tokens with the same text the likelier one counts. */
static bool same_text(const hr_logprob_style *style, int64_t a, int64_t b)
{
    if (a == b) return true;
    if (style->as_ids) return false;
    hr_str x = bytes_of(style, a), y = bytes_of(style, b);
    while (x.n && y.n)
        if (next_shown(&x) != next_shown(&y)) return false;
    return !x.n && !y.n;
}

static bool has_key(const hr_logprob_style *style, const headrace_token *t, size_t i)
{
    if (same_text(style, t->chosen.token_id, t->top[i].token_id)) return true;
    for (size_t k = next_top(t, 0, style->top); k < i; k = next_top(t, k + 1, style->top))
        if (same_text(style, t->top[k].token_id, t->top[i].token_id)) return true;
    return false;
}

static void add_pair(hr_buf *out, const hr_logprob_style *style, const headrace_logprob *e)
{
    add_token_text(out, style, e->token_id);
    hr_buf_add_byte(out, ':');
    add_number(out, e->logprob);
}

/* {"chosen":…,"others":…}: the chosen token first, as vLLM has it. */
static void add_pairs(hr_buf *out, const hr_logprob_style *style, const headrace_token *t)
{
    hr_buf_add_byte(out, '{');
    add_pair(out, style, &t->chosen);
    for (size_t i = next_top(t, 0, style->top); i < t->n_top; i = next_top(t, i + 1, style->top)) {
        if (has_key(style, t, i)) continue;
        hr_buf_add_byte(out, ',');
        add_pair(out, style, &t->top[i]);
    }
    hr_buf_add_byte(out, '}');
}

static void add_place(hr_logprob_lists *l, const hr_logprob_style *style, const headrace_token *t,
                      size_t offset)
{
    add_comma(&l->tokens);
    add_comma(&l->token_logprobs);
    add_comma(&l->top_logprobs);
    add_comma(&l->offsets);
    add_token_text(&l->tokens, style, t->chosen.token_id);
    hr_openai_add_i64(&l->offsets, (int64_t)offset);
}

void hr_logprobs_add(hr_logprob_lists *l, const hr_logprob_style *style, const headrace_token *t,
                     size_t offset)
{
    if (style->chat) {
        add_content(&l->content, style, t);
        return;
    }
    add_place(l, style, t, offset);
    add_number(&l->token_logprobs, t->chosen.logprob);
    add_pairs(&l->top_logprobs, style, t);
}

void hr_logprobs_add_first(hr_logprob_lists *l, const hr_logprob_style *style,
                           const headrace_token *t, size_t offset)
{
    add_place(l, style, t, offset);
    hr_buf_add_c(&l->token_logprobs, "null");
    hr_buf_add_c(&l->top_logprobs, "null");
}

/* ---- vLLM's prompt_logprobs ------------------------------------------------------------------ */

static void add_ranked(hr_buf *out, const hr_logprob_style *style, const headrace_logprob *e)
{
    hr_buf_add_byte(out, '"');
    hr_openai_add_i64(out, e->token_id);
    hr_buf_add_c(out, "\":{\"logprob\":");
    add_number(out, e->logprob);
    hr_buf_add_c(out, ",\"rank\":");
    hr_openai_add_i64(out, e->rank);
    hr_buf_add_c(out, ",\"decoded_token\":");
    hr_openai_add_text(out, bytes_of(style, e->token_id));
    hr_buf_add_byte(out, '}');
}

void hr_logprobs_add_prompt(hr_buf *out, const hr_logprob_style *style, const headrace_token *t,
                            int top)
{
    add_comma(out);
    hr_buf_add_byte(out, '{');
    add_ranked(out, style, &t->chosen);
    for (size_t i = 0; i < t->n_top && i < (size_t)top; i++) {
        if (t->top[i].token_id == t->chosen.token_id) continue;
        hr_buf_add_byte(out, ',');
        add_ranked(out, style, &t->top[i]);
    }
    hr_buf_add_byte(out, '}');
}

/* ---- lists ----------------------------------------------------------------------------------- */

hr_logprob_style hr_generation_logprob_style(const hr_generation *g)
{
    const hr_openai *o = &g->openai;
    return (hr_logprob_style){ .tokenizer = hr_engine_tokenizer(g->server->engine),
                               .chat = o->endpoint == HR_OPENAI_CHAT,
                               .as_ids = o->return_tokens_as_token_ids != 0,
                               .top = o->logprobs > 0 ? o->logprobs : 0 };
}

static void append(hr_buf *to, const hr_buf *from)
{
    if (from->n) add_comma(to);
    hr_buf_add_str(to, hr_buf_str(from));
    if (from->status) to->status = from->status; /* what is cut short must not look whole */
}

void hr_logprobs_append(hr_logprob_lists *to, const hr_logprob_lists *from)
{
    append(&to->content, &from->content);
    append(&to->tokens, &from->tokens);
    append(&to->token_logprobs, &from->token_logprobs);
    append(&to->top_logprobs, &from->top_logprobs);
    append(&to->offsets, &from->offsets);
}

void hr_logprobs_clear(hr_logprob_lists *l)
{
    hr_buf_clear(&l->content);
    hr_buf_clear(&l->tokens);
    hr_buf_clear(&l->token_logprobs);
    hr_buf_clear(&l->top_logprobs);
    hr_buf_clear(&l->offsets);
}

void hr_logprobs_deinit(hr_logprob_lists *l)
{
    hr_buf_deinit(&l->content);
    hr_buf_deinit(&l->tokens);
    hr_buf_deinit(&l->token_logprobs);
    hr_buf_deinit(&l->top_logprobs);
    hr_buf_deinit(&l->offsets);
}
