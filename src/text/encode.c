/* Encoding: one text through all the stages.
 *
 * Runs on the caller's thread; everything written is in the caller's scratch, which grows to the
 * longest text met and is then reused. Spans are joined before anything looks at them, with one
 * byte of provenance per byte of text, so that splitting and merging never see where a span ends.
 */
#include "text/text_int.h"

#include "base/utf8.h"
#include "text/words.h"

typedef struct hr_encoder hr_encoder;
struct hr_encoder {
    hr_buf text;  /* the joined spans */
    hr_buf plain; /* [text.n], 1 = data; empty when nothing is */
    hr_normalize_scratch normalize;
    hr_split_scratch split;
    hr_bpe_scratch bpe;
    hr_words words; /* of the tokenizer last served */
    hr_unigram_scratch unigram;
};

/* One text under way. */
typedef struct encoding {
    const hr_tokenizer *t;
    hr_encoder *e;
    hr_ids *ids;
    bool at_start; /* nothing of the text has been seen */
} encoding;

hr_status hr_ids_reserve(hr_ids *ids, size_t more)
{
    return hr_grow((void **)&ids->p, &ids->capacity, ids->n + more, sizeof *ids->p);
}

hr_status hr_ids_add(hr_ids *ids, int32_t id)
{
    if (ids->n == ids->capacity) HR_TRY(hr_ids_reserve(ids, 1));
    ids->p[ids->n++] = id;
    return HR_OK;
}

void hr_ids_deinit(hr_ids *ids)
{
    hr_free(ids->p);
    *ids = (hr_ids){ 0 };
}

static hr_status add_all(hr_ids *ids, const hr_ids *more)
{
    for (size_t i = 0; i < more->n; i++) HR_TRY(hr_ids_add(ids, more->p[i]));
    return HR_OK;
}

static hr_status encode_word(void *self, hr_str word)
{
    encoding *c = self;
    hr_ids *ids = c->ids;
    hr_word *known = hr_words_find(&c->e->words, word);
    if (known && known->n_bytes) {
        if (ids->capacity - ids->n < known->n_ids) HR_TRY(hr_ids_reserve(ids, known->n_ids));
        for (size_t i = 0; i < known->n_ids; i++) ids->p[ids->n + i] = known->ids[i];
        ids->n += known->n_ids;
        return HR_OK;
    }
    size_t before = ids->n;
    if (c->t->unigram.nodes) HR_TRY(hr_unigram_encode(&c->t->unigram, word, &c->e->unigram, ids));
    else HR_TRY(hr_bpe_encode(&c->t->bpe, word, &c->e->bpe, ids));
    if (known) hr_words_keep(known, word, ids->p + before, ids->n - before);
    return HR_OK;
}

/* Between added tokens, normalized. */
static hr_status encode_plain(encoding *c, hr_str text)
{
    return hr_split(c->t->splitters, c->t->n_splitters, text, &c->e->split, encode_word, c);
}

/* Between added tokens of the raw text: normalizes, then looks for the normalized ones. */
static hr_status encode_between(encoding *c, hr_str text, const char *plain)
{
    hr_str normal;
    HR_TRY(hr_normalize(c->t->normalizers, c->t->n_normalizers, text, plain, &c->e->normalize,
                        &normal, &plain));
    hr_added_search s = { .text = normal, .plain = plain };
    hr_added_match m;
    size_t done = 0;
    c->e->split.at_start = c->at_start && !c->e->normalize.lost_front;
    while (hr_added_next(&c->t->normalized, &s, &m)) {
        if (done < m.start) HR_TRY(encode_plain(c, hr_str_slice(normal, done, m.start)));
        HR_TRY(hr_ids_add(c->ids, m.id));
        done = m.stop;
        c->e->split.at_start = false;
    }
    return done < normal.n ? encode_plain(c, hr_str_slice(normal, done, normal.n)) : HR_OK;
}

static hr_status encode_text(encoding *c, hr_str text, const char *plain)
{
    hr_added_search s = { .text = text, .plain = plain };
    hr_added_match m;
    size_t done = 0;
    while (hr_added_next(&c->t->raw, &s, &m)) {
        if (done < m.start)
            HR_TRY(
                encode_between(c, hr_str_slice(text, done, m.start), plain ? plain + done : NULL));
        HR_TRY(hr_ids_add(c->ids, m.id));
        done = m.stop;
        c->at_start = false;
    }
    if (done == text.n) return HR_OK;
    return encode_between(c, hr_str_slice(text, done, text.n), plain ? plain + done : NULL);
}

/* *text joins the spans; *plain is NULL when no byte is data. */
static hr_status join(hr_encoder *e, const hr_text_span *spans, size_t n, hr_str *text,
                      const char **plain)
{
    bool data = false;
    hr_buf_clear(&e->text);
    hr_buf_clear(&e->plain);
    for (size_t i = 0; i < n; i++) {
        data = data || (spans[i].kind == HR_SPAN_PLAIN && spans[i].text.n);
        if (n > 1) hr_buf_add_str(&e->text, spans[i].text);
    }
    *text = n == 1 ? spans[0].text : hr_buf_str(&e->text);
    for (size_t i = 0; data && i < n; i++) {
        char *to = hr_buf_reserve(&e->plain, spans[i].text.n);
        if (!to) break;
        if (spans[i].text.n) memset(to, spans[i].kind == HR_SPAN_PLAIN, spans[i].text.n);
        e->plain.n += spans[i].text.n;
    }
    *plain = data ? e->plain.p : NULL;
    HR_TRY(hr_buf_status(&e->text));
    return hr_buf_status(&e->plain);
}

static hr_status make_encoder(hr_tokenizer_scratch *scratch)
{
    if (scratch->encoder) return HR_OK;
    hr_encoder *e = hr_new0(hr_encoder);
    if (!e) return hr_fail(HR_RESOURCE_EXHAUSTED, "tokenizer: memory for scratch");
    hr_status st = hr_matcher_init(&e->split.matcher);
    if (st) {
        hr_free(e);
        return st;
    }
    scratch->encoder = e;
    return HR_OK;
}

static hr_status check_text(hr_str text)
{
    if (text.n > HR_TEXT_MAX_BYTES)
        return hr_fail(HR_INVALID_ARGUMENT, "text of %zu bytes; at most %zu are tokenised", text.n,
                       HR_TEXT_MAX_BYTES);
    if (!hr_utf8_valid(text)) return hr_fail(HR_INVALID_ARGUMENT, "text is not valid UTF-8");
    return HR_OK;
}

hr_status hr_tokenizer_encode(const hr_tokenizer *t, const hr_text_span *spans, size_t n_spans,
                              hr_encode_flags flags, hr_tokenizer_scratch *scratch, hr_ids *ids)
{
    size_t before = ids->n;
    hr_str text;
    const char *plain;
    HR_TRY(make_encoder(scratch));
    HR_TRY(hr_words_init(&scratch->encoder->words, t->vocab.seed));
    HR_TRY(join(scratch->encoder, spans, n_spans, &text, &plain));
    HR_TRY(check_text(text));
    encoding c = { t, scratch->encoder, ids, true };
    hr_status st = HR_OK;
    if (flags & HR_ENCODE_ADD_SPECIAL) st = add_all(ids, &t->before);
    if (!st) st = encode_text(&c, text, plain);
    if (!st && flags & HR_ENCODE_ADD_SPECIAL) st = add_all(ids, &t->after);
    if (st) ids->n = before;
    return st;
}

void hr_tokenizer_scratch_deinit(hr_tokenizer_scratch *s)
{
    hr_encoder *e = s->encoder;
    if (!e) return;
    hr_buf_deinit(&e->text);
    hr_buf_deinit(&e->plain);
    hr_normalize_scratch_deinit(&e->normalize);
    hr_split_scratch_deinit(&e->split);
    hr_bpe_scratch_deinit(&e->bpe);
    hr_words_deinit(&e->words);
    hr_unigram_scratch_deinit(&e->unigram);
    hr_free(e);
    s->encoder = NULL;
}
