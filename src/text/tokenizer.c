/* The tokenizer itself: making it whole, taking it apart, asking for its tokens.
 *
 * The loaders fill an empty one through the helpers here; afterwards it is immutable and read by
 * every thread without a lock. It owns all stages and all their strings. */
#include "text/text_int.h"

hr_tokenizer *hr_tokenizer_new(void)
{
    hr_tokenizer *t = hr_new0(hr_tokenizer);
    if (!t) return NULL;
    hr_added_init(&t->raw);
    hr_added_init(&t->normalized);
    return t;
}

hr_status hr_tokenizer_keep(hr_tokenizer *t, hr_str text, hr_str *out)
{
    char *copy = hr_arena_copy(&t->arena, text.p, text.n);
    *out = (hr_str){ copy, copy ? text.n : 0 };
    return copy ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "tokenizer: memory for its strings");
}

hr_status hr_tokenizer_add_splitter(hr_tokenizer *t, hr_splitter **out)
{
    *out = NULL;
    if (t->n_splitters == HR_TEXT_MAX_STAGES)
        return hr_fail(HR_UNIMPLEMENTED, "tokenizer: more than %d pre-tokenizers",
                       HR_TEXT_MAX_STAGES);
    *out = &t->splitters[t->n_splitters++];
    return HR_OK;
}

hr_status hr_tokenizer_add_normalizer(hr_tokenizer *t, hr_normalizer **out)
{
    *out = NULL;
    if (t->n_normalizers == HR_TEXT_MAX_STAGES)
        return hr_fail(HR_UNIMPLEMENTED, "tokenizer: more than %d normalizers", HR_TEXT_MAX_STAGES);
    *out = &t->normalizers[t->n_normalizers++];
    return HR_OK;
}

hr_status hr_tokenizer_add_decode_step(hr_tokenizer *t, hr_decode_step **out)
{
    *out = NULL;
    if (t->decoder.n_steps == HR_TEXT_MAX_STAGES)
        return hr_fail(HR_UNIMPLEMENTED, "tokenizer: more than %d decoders", HR_TEXT_MAX_STAGES);
    *out = &t->decoder.steps[t->decoder.n_steps++];
    return HR_OK;
}

hr_status hr_tokenizer_add_pattern(hr_tokenizer *t, hr_str regex)
{
    hr_splitter *s;
    HR_TRY(hr_tokenizer_add_splitter(t, &s));
    return hr_splitter_by_regex(s, regex);
}

hr_status hr_tokenizer_add_digits(hr_tokenizer *t, hr_split_behavior behavior)
{
    hr_splitter *s;
    HR_TRY(hr_tokenizer_add_splitter(t, &s));
    s->behavior = behavior;
    return hr_splitter_by_chars(s, hr_charset_add_numeric);
}

/* A token that is met in normalized text is looked for in its own normalized form. */
static hr_status add_normalized(hr_tokenizer *t, const hr_added_token *token)
{
    hr_normalize_scratch scratch = { 0 };
    hr_added_token own = *token;
    hr_str text;
    const char *plain;
    hr_status st =
        hr_normalize(t->normalizers, t->n_normalizers, token->text, NULL, &scratch, &text, &plain);
    if (!st) st = hr_tokenizer_keep(t, text, &own.text);
    if (!st) st = hr_added_add(&t->normalized, &own);
    hr_normalize_scratch_deinit(&scratch);
    return st;
}

hr_status hr_tokenizer_add_token(hr_tokenizer *t, const hr_added_token *token)
{
    if (token->special) t->vocab.tokens[token->id].special = true;
    return token->normalized ? add_normalized(t, token) : hr_added_add(&t->raw, token);
}

/* "<0x0A>" → 10, or -1. Both cases, as Hugging Face reads them. */
static int byte_token(hr_str text)
{
    static const char digits[] = "0123456789ABCDEFabcdef";
    if (text.n != 6 || memcmp(text.p, "<0x", 3) != 0 || text.p[5] != '>') return -1;
    const char *high = strchr(digits, text.p[3]), *low = strchr(digits, text.p[4]);
    if (!text.p[3] || !text.p[4] || !high || !low) return -1;
    ptrdiff_t h = high - digits, l = low - digits;
    return (int)((h > 15 ? h - 6 : h) * 16 + (l > 15 ? l - 6 : l));
}

static void add_replaced(hr_str text, hr_str from, hr_str to, hr_buf *out)
{
    for (size_t hit; (hit = hr_str_find(text, from, 0)) != SIZE_MAX;) {
        hr_buf_add_str(out, hr_str_slice(text, 0, hit));
        hr_buf_add_str(out, to);
        text = hr_str_slice(text, hit + from.n, text.n);
    }
    hr_buf_add_str(out, text);
}

static void add_stripped(hr_str text, const hr_decode_step *d, hr_buf *out)
{
    hr_str what = d->from;
    for (int64_t i = 0; i < d->front && hr_str_starts(text, what); i++)
        text = hr_str_slice(text, what.n, text.n);
    for (int64_t i = 0; i < d->behind && hr_str_ends(text, what); i++) text.n -= what.n;
    hr_buf_add_str(out, text);
}

static void add_spelt(hr_str text, hr_buf *out)
{
    size_t n = 0;
    char *room = hr_buf_reserve(out, text.n);
    if (room && hr_bytes_from_text(text, room, &n)) out->n += n;
    else hr_buf_add_str(out, text);
}

static hr_status decode_step(const hr_decode_step *d, hr_str text, hr_buf *out)
{
    int byte;
    hr_buf_clear(out);
    switch (d->kind) {
    case HR_DECODE_BYTES: add_spelt(text, out); break;
    case HR_DECODE_REPLACE: add_replaced(text, d->from, d->to, out); break;
    case HR_DECODE_STRIP: add_stripped(text, d, out); break;
    case HR_DECODE_FALLBACK:
        byte = byte_token(text);
        if (byte >= 0) hr_buf_add_byte(out, (char)byte);
        else hr_buf_add_str(out, text);
        break;
    }
    return hr_buf_status(out);
}

/* What a token stands for in a text: in one of the two, or `text` itself. */
static hr_status find_bytes(const hr_decoder *d, hr_str text, hr_buf scratch[2], hr_str *out)
{
    *out = text;
    for (size_t i = 0; i < d->n_steps; i++) {
        HR_TRY(decode_step(&d->steps[i], *out, &scratch[i % 2]));
        *out = hr_buf_str(&scratch[i % 2]);
    }
    return HR_OK;
}

static hr_status find_token_bytes(hr_tokenizer *t, hr_buf scratch[2])
{
    hr_str found;
    for (size_t id = 0; id < t->vocab.size; id++) {
        hr_token *token = &t->vocab.tokens[id];
        if (!token->text.p) continue;
        if (token->text.n > t->bpe.longest) t->bpe.longest = token->text.n;
        HR_TRY(find_bytes(&t->decoder, token->text, scratch, &found));
        if (hr_str_eq(found, token->text)) continue; /* as vocab.c left it */
        char *bytes = hr_arena_copy(&t->vocab.arena, found.p, found.n);
        if (!bytes) return hr_fail(HR_RESOURCE_EXHAUSTED, "tokenizer: memory for bytes of tokens");
        token->bytes = (hr_str){ bytes, found.n };
    }
    return HR_OK;
}

/* Where a byte has no token and something stands for unknown characters, the characters of the
 * byte-level alphabet are what BPE must see. */
static hr_status spell_unknown_bytes(hr_tokenizer *t)
{
    hr_splitter *s;
    bool known = true;
    for (int i = 0; i < 256; i++) known = known && t->bpe.byte_id[i] >= 0;
    if (!t->bpe.byte_level || known || (t->bpe.unk < 0 && !t->bpe.byte_fallback)) return HR_OK;
    t->bpe.byte_level = false;
    HR_TRY(hr_tokenizer_add_splitter(t, &s));
    s->kind = HR_SPLIT_BYTES;
    return hr_bpe_find_bytes(&t->bpe);
}

hr_status hr_tokenizer_finish(hr_tokenizer *t)
{
    hr_buf scratch[2] = { { 0 }, { 0 } };
    hr_status st = find_token_bytes(t, scratch);
    hr_buf_deinit(&scratch[0]);
    hr_buf_deinit(&scratch[1]);
    if (!st) st = hr_bpe_find_bytes(&t->bpe);
    if (!st) st = hr_bpe_find_chars(&t->bpe);
    return st ? st : spell_unknown_bytes(t);
}

void hr_tokenizer_destroy(hr_tokenizer *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n_splitters; i++) hr_splitter_deinit(&t->splitters[i]);
    for (size_t i = 0; i < t->n_normalizers; i++) hr_normalizer_deinit(&t->normalizers[i]);
    hr_added_deinit(&t->raw);
    hr_added_deinit(&t->normalized);
    hr_bpe_deinit(&t->bpe);
    hr_unigram_deinit(&t->unigram);
    hr_ids_deinit(&t->before);
    hr_ids_deinit(&t->after);
    hr_vocab_deinit(&t->vocab);
    hr_arena_deinit(&t->arena);
    hr_free(t);
}

size_t hr_tokenizer_size(const hr_tokenizer *t)
{
    return t->vocab.size;
}

int32_t hr_tokenizer_find(const hr_tokenizer *t, hr_str token_text)
{
    return hr_vocab_find(&t->vocab, token_text);
}

static hr_token get(const hr_tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->vocab.size ? t->vocab.tokens[id] : (hr_token){ 0 };
}

hr_str hr_tokenizer_token_text(const hr_tokenizer *t, int32_t id)
{
    return get(t, id).text;
}

hr_str hr_tokenizer_token_bytes(const hr_tokenizer *t, int32_t id)
{
    return get(t, id).bytes;
}

bool hr_tokenizer_is_special(const hr_tokenizer *t, int32_t id)
{
    return get(t, id).special;
}
