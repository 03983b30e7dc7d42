/* Pre-tokenizers: what splits a text into the words that BPE merges inside of.
 *
 * Runs on the caller's thread and scratch. A stage hands each piece straight to the next, so the
 * list of pieces never exists; only the part that a behaviour may still join to its neighbour is
 * held back. */
#include "text/text_int.h"

#include "base/utf8.h"

typedef struct pipeline {
    const hr_splitter *stages;
    size_t n;
    hr_split_scratch *scratch;
    hr_piece_sink sink;
    void *self;
} pipeline;

/* Parts of one text, matches and what lies between, on their way through a behaviour. */
typedef struct cutter {
    const pipeline *chain;
    size_t stage;
    hr_str held; /* may still grow */
    bool holding, held_match;
} cutter;

static hr_status pass_on(const pipeline *c, size_t stage, hr_str piece);

static hr_status release(cutter *c)
{
    if (!c->holding) return HR_OK;
    c->holding = false;
    return pass_on(c->chain, c->stage + 1, c->held);
}

/* True when a part, which lies just behind the held one, is to be joined to it. */
static bool joins(const cutter *c, hr_split_behavior behavior, bool match)
{
    if (!c->holding) return false;
    switch (behavior) {
    case HR_SPLIT_MERGED_WITH_PREVIOUS: return match && !c->held_match;
    case HR_SPLIT_MERGED_WITH_NEXT: return !match && c->held_match;
    case HR_SPLIT_CONTIGUOUS: return match == c->held_match;
    case HR_SPLIT_ISOLATED:
    case HR_SPLIT_REMOVED: return false;
    }
    return false;
}

static hr_status cut(cutter *c, hr_str part, bool match)
{
    const hr_splitter *s = &c->chain->stages[c->stage];
    match = match != s->invert;
    if (s->behavior == HR_SPLIT_ISOLATED) return pass_on(c->chain, c->stage + 1, part);
    if (s->behavior == HR_SPLIT_REMOVED && match) c->chain->scratch->at_start = false;
    if (s->behavior == HR_SPLIT_REMOVED)
        return match ? HR_OK : pass_on(c->chain, c->stage + 1, part);
    if (joins(c, s->behavior, match)) {
        c->held.n += part.n;
        c->held_match = match;
        /* a match takes one neighbour only */
        return s->behavior == HR_SPLIT_MERGED_WITH_NEXT ? release(c) : HR_OK;
    }
    HR_TRY(release(c));
    c->held = part;
    c->holding = true;
    c->held_match = match;
    return HR_OK;
}

/* Walks a text from character to character, forwards. */
typedef struct walker {
    hr_str text;
    size_t chars, bytes;
} walker;

static size_t walk_to(walker *w, size_t chars)
{
    for (; w->chars < chars; w->chars++) {
        unsigned char b = (unsigned char)w->text.p[w->bytes];
        w->bytes += b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
    }
    return w->bytes;
}

static hr_status cut_match(cutter *c, hr_str text, size_t *done, size_t from, size_t to)
{
    if (*done != from) HR_TRY(cut(c, hr_str_slice(text, *done, from), false));
    *done = to;
    return cut(c, hr_str_slice(text, from, to), true);
}

static hr_status cut_rest(cutter *c, hr_str text, size_t done)
{
    if (done != text.n) HR_TRY(cut(c, hr_str_slice(text, done, text.n), false));
    return release(c);
}

static hr_status by_pattern(const pipeline *chain, size_t stage, hr_str text)
{
    const hr_pattern *pattern = chain->stages[stage].pattern;
    hr_buf *kinds = &chain->scratch->text[stage];
    HR_TRY(hr_pattern_classify(pattern, text, kinds));
    cutter c = { .chain = chain, .stage = stage };
    walker w = { .text = text };
    size_t done = 0, at = 0, last_end = SIZE_MAX;
    while (at <= kinds->n) {
        size_t start, end;
        HR_TRY(hr_pattern_find(pattern, hr_buf_str(kinds), at, &chain->scratch->matcher, &start,
                               &end));
        if (start == SIZE_MAX) break;
        if (start == end && end == last_end) { /* nothing, just behind a match: look further */
            at++;
            continue;
        }
        at = last_end = end;
        size_t from = walk_to(&w, start);
        HR_TRY(cut_match(&c, text, &done, from, walk_to(&w, end)));
    }
    return cut_rest(&c, text, done);
}

static hr_status by_scan(const pipeline *chain, size_t stage, hr_str text)
{
    const hr_splitter *s = &chain->stages[stage];
    cutter c = { .chain = chain, .stage = stage };
    for (size_t at = 0, end; at < text.n; at = end) {
        end = s->step(s->map, text, at);
        HR_TRY(cut(&c, hr_str_slice(text, at, end), true));
    }
    return release(&c);
}

static hr_status by_literal(const pipeline *chain, size_t stage, hr_str text)
{
    cutter c = { .chain = chain, .stage = stage };
    hr_str literal = chain->stages[stage].literal;
    size_t done = 0;
    for (size_t hit; (hit = hr_str_find(text, literal, done)) != SIZE_MAX;)
        HR_TRY(cut_match(&c, text, &done, hit, hit + literal.n));
    return cut_rest(&c, text, done);
}

static hr_status by_chars(const pipeline *chain, size_t stage, hr_str text)
{
    cutter c = { .chain = chain, .stage = stage };
    const hr_char_map *map = chain->stages[stage].map;
    const uint8_t *ascii = hr_char_map_ascii(map);
    size_t done = 0;
    for (size_t i = 0, len = 1; i < text.n; i += len, len = 1) {
        unsigned char b = (unsigned char)text.p[i];
        bool match =
            b < 0x80 ? ascii[b]
                     : hr_char_map_get(map, hr_utf8_decode(hr_str_slice(text, i, text.n), &len));
        if (match) HR_TRY(cut_match(&c, text, &done, i, i + len));
    }
    return cut_rest(&c, text, done);
}

static int word_kind(uint32_t c)
{
    return hr_unicode_is_space(c) ? 0 : hr_unicode_is_word(c) ? 1 : 2;
}

static hr_status by_words(const pipeline *chain, size_t stage, hr_str text)
{
    size_t from = 0, len;
    int kind = 0;
    for (size_t i = 0; i <= text.n; i += len) {
        int next = i < text.n ? word_kind(hr_utf8_decode(hr_str_slice(text, i, text.n), &len)) : -1;
        if (i == text.n) len = 1;
        if (next == kind) continue;
        if (kind == 0 && i > 0) chain->scratch->at_start = false;
        if (kind != 0) HR_TRY(pass_on(chain, stage + 1, hr_str_slice(text, from, i)));
        from = i;
        kind = next;
    }
    return HR_OK;
}

static hr_status put_bytes(const pipeline *chain, size_t stage, hr_str text)
{
    hr_buf *b = &chain->scratch->text[stage];
    hr_buf_clear(b);
    hr_bytes_add_text(b, text);
    HR_TRY(hr_buf_status(b));
    return pass_on(chain, stage + 1, hr_buf_str(b));
}

static hr_status put_spaces(const pipeline *chain, size_t stage, hr_str text)
{
    const hr_splitter *s = &chain->stages[stage];
    hr_buf *b = &chain->scratch->text[stage];
    hr_buf_clear(b);
    bool prefix = s->scheme == HR_PREPEND_ALWAYS ||
                  (s->scheme == HR_PREPEND_FIRST && chain->scratch->at_start);
    if (prefix && text.p[0] != ' ' && !hr_str_starts(text, s->literal))
        hr_buf_add_str(b, s->literal);
    for (size_t at = 0, end; at < text.n; at = end) {
        const char *space = memchr(text.p + at, ' ', text.n - at);
        end = space ? (size_t)(space - text.p) : text.n;
        hr_buf_add_str(b, hr_str_slice(text, at, end));
        if (!space) break;
        hr_buf_add_str(b, s->literal);
        end++;
    }
    HR_TRY(hr_buf_status(b));
    return s->splits ? by_literal(chain, stage, hr_buf_str(b))
                     : pass_on(chain, stage + 1, hr_buf_str(b));
}

static hr_status put_prefix(const pipeline *chain, size_t stage, hr_str text)
{
    if (text.p[0] == ' ') return pass_on(chain, stage + 1, text);
    hr_buf *b = &chain->scratch->text[stage];
    hr_buf_clear(b);
    hr_buf_add_byte(b, ' ');
    hr_buf_add_str(b, text);
    HR_TRY(hr_buf_status(b));
    return pass_on(chain, stage + 1, hr_buf_str(b));
}

static hr_status (*const run[])(const pipeline *, size_t, hr_str) = {
    [HR_SPLIT_PATTERN] = by_pattern, [HR_SPLIT_SCAN] = by_scan,
    [HR_SPLIT_LITERAL] = by_literal, [HR_SPLIT_CHARS] = by_chars,
    [HR_SPLIT_WORDS] = by_words,     [HR_SPLIT_PREFIX] = put_prefix,
    [HR_SPLIT_BYTES] = put_bytes,    [HR_SPLIT_SPACES] = put_spaces,
};

/* `stage` = n is the sink. Empty pieces are dropped, as Hugging Face does. */
static hr_status pass_on(const pipeline *c, size_t stage, hr_str piece)
{
    if (piece.n == 0) return HR_OK;
    if (stage < c->n) return run[c->stages[stage].kind](c, stage, piece);
    c->scratch->at_start = false;
    return c->sink(c->self, piece);
}

hr_status hr_split(const hr_splitter *stages, size_t n, hr_str text, hr_split_scratch *s,
                   hr_piece_sink sink, void *self)
{
    pipeline c = { stages, n, s, sink, self };
    return pass_on(&c, 0, text);
}

static hr_status make_map(hr_splitter *s)
{
    s->map = hr_new0(hr_char_map);
    return s->map ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "tokenizer: memory for characters");
}

hr_status hr_splitter_by_regex(hr_splitter *s, hr_str regex)
{
    s->kind = HR_SPLIT_PATTERN;
    s->step = hr_scan_find(regex);
    if (!s->step) return hr_pattern_compile(regex, &s->pattern);
    s->kind = HR_SPLIT_SCAN;
    HR_TRY(make_map(s));
    return hr_scan_map(s->map);
}

hr_status hr_splitter_by_chars(hr_splitter *s, hr_status (*add)(hr_charset *set))
{
    hr_charset set = { 0 };
    s->kind = HR_SPLIT_CHARS;
    HR_TRY(make_map(s));
    hr_status st = add(&set);
    hr_charset_sort(&set);
    if (!st) st = hr_char_map_of_sets(s->map, &set, 1);
    hr_charset_deinit(&set);
    return st;
}

void hr_splitter_deinit(hr_splitter *s)
{
    hr_pattern_destroy(s->pattern);
    if (s->map) hr_char_map_deinit(s->map);
    hr_free(s->map);
    *s = (hr_splitter){ 0 };
}

void hr_split_scratch_deinit(hr_split_scratch *s)
{
    for (size_t i = 0; i < HR_TEXT_MAX_STAGES; i++) hr_buf_deinit(&s->text[i]);
    hr_matcher_deinit(&s->matcher);
}
