/* Makes a tokenizer of the plain arrays that a GGUF file holds.
 *
 * Runs once, on the loading thread. "gpt2" is byte-level BPE with its merges listed; "llama" is
 * SentencePiece's BPE, whose merges are what its scores say: two neighbours merge when what they
 * spell is a token, the best score first, and its characters come back as bytes where there is no
 * token for them. So both become the same machine. */
#include <stdlib.h>

#include <utf8proc.h>

#include "base/utf8.h"
#include "text/gguf_pre.h"

/* What SentencePiece writes for a blank. */
#define BLANK "\xE2\x96\x81"

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

static hr_status add_vocab(hr_tokenizer *t, const hr_vocab_spec *spec)
{
    HR_TRY(hr_vocab_init(&t->vocab, spec->n_tokens));
    for (size_t i = 0; i < spec->n_tokens; i++)
        HR_TRY(hr_vocab_put(&t->vocab, (int64_t)i, spec->tokens[i]));
    t->bpe.vocab = &t->vocab;
    return HR_OK;
}

static int32_t type_of(const hr_vocab_spec *spec, size_t id)
{
    return spec->types ? spec->types[id] : TYPE_NORMAL;
}

/* ---- gpt2 ------------------------------------------------------------------------------------
 */

static hr_status add_stages(hr_tokenizer *t, const hr_gguf_pre *pre)
{
    if (pre->flags & HR_PRE_NFC) {
        hr_normalizer *n;
        HR_TRY(hr_tokenizer_add_normalizer(t, &n));
        *n = (hr_normalizer){ .kind = HR_NORM_UNICODE, .form = UTF8PROC_STABLE | UTF8PROC_COMPOSE };
    }
    if (pre->flags & HR_PRE_DIGITS) HR_TRY(hr_tokenizer_add_digits(t, HR_SPLIT_ISOLATED));
    for (size_t i = 0; i < HR_PRE_MAX_PATTERNS && pre->patterns[i]; i++)
        HR_TRY(hr_tokenizer_add_pattern(t, hr_str_c(pre->patterns[i])));
    return HR_OK;
}

static hr_status add_merges(hr_tokenizer *t, const hr_vocab_spec *spec)
{
    HR_TRY(hr_bpe_init_merges(&t->bpe, spec->n_merges));
    for (size_t i = 0; i < spec->n_merges; i++) {
        hr_str m = spec->merges[i];
        size_t space = m.n ? hr_str_find(m, HR_STR(" "), 1) : SIZE_MAX;
        if (space == SIZE_MAX)
            return hr_fail(HR_INVALID_ARGUMENT, "tokenizer.ggml.merges: '%.*s' is not two tokens",
                           HR_STR_ARG(m));
        HR_TRY(
            hr_bpe_add_merge(&t->bpe, hr_str_slice(m, 0, space), hr_str_slice(m, space + 1, m.n)));
    }
    return HR_OK;
}

static hr_status make_gpt2(hr_tokenizer *t, const hr_vocab_spec *spec, bool *bos)
{
    const hr_gguf_pre *pre;
    hr_decode_step *d;
    HR_TRY(hr_gguf_pre_find(spec->pre && spec->pre[0] ? spec->pre : "gpt-2", &pre));
    if (spec->add_space_prefix > 0)
        return hr_fail(HR_UNIMPLEMENTED, "tokenizer.ggml.add_space_prefix with model gpt2");
    *bos = pre->flags & HR_PRE_BOS;
    t->bpe.ignore_merges = pre->flags & HR_PRE_WHOLE_WORDS;
    t->bpe.byte_level = true;
    t->bpe.unk = -1; /* every byte is a symbol: nothing is unknown */
    HR_TRY(hr_tokenizer_add_decode_step(t, &d));
    d->kind = HR_DECODE_BYTES;
    HR_TRY(add_vocab(t, spec));
    HR_TRY(add_stages(t, pre));
    return add_merges(t, spec);
}

/* ---- llama ------------------------------------------------------------------------------------
 */

/* A token that others merge to, and what it is worth. */
typedef struct piece {
    float score;
    int32_t id;
} piece;

/* The best first; equal ones in any order, as they get the same rank. */
static int by_score(const void *a, const void *b)
{
    float x = ((const piece *)a)->score, y = ((const piece *)b)->score;
    return (x < y) - (x > y);
}

/* The id of a text that merging may meet, or -1. */
static int32_t find_piece(const hr_tokenizer *t, const hr_vocab_spec *spec, hr_str text)
{
    int32_t id = hr_vocab_find(&t->vocab, text);
    if (id < 0) return -1;
    int32_t type = type_of(spec, (size_t)id);
    return type == TYPE_NORMAL || type == TYPE_USER ? id : -1;
}

/* Calls for every pair of tokens that spell one: counts them, or adds them with its rank. */
static hr_status visit_pairs(hr_tokenizer *t, const hr_vocab_spec *spec, piece p, uint32_t rank,
                             size_t *count)
{
    hr_str text = t->vocab.tokens[p.id].text;
    for (size_t cut = 1; cut < text.n; cut++) {
        if (((unsigned char)text.p[cut] & 0xC0) == 0x80) continue;
        int32_t left = find_piece(t, spec, hr_str_slice(text, 0, cut));
        int32_t right = left < 0 ? -1 : find_piece(t, spec, hr_str_slice(text, cut, text.n));
        if (right < 0) continue;
        ++*count;
        if (t->bpe.merges) hr_bpe_put_merge(&t->bpe, left, right, rank, p.id);
    }
    return HR_OK;
}

static hr_status add_pairs(hr_tokenizer *t, const hr_vocab_spec *spec, piece *pieces, size_t n)
{
    size_t count = 0, again = 0;
    for (size_t i = 0; i < n; i++) HR_TRY(visit_pairs(t, spec, pieces[i], 0, &count));
    HR_TRY(hr_bpe_init_merges(&t->bpe, count));
    uint32_t rank = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && pieces[i].score < pieces[i - 1].score) rank++;
        HR_TRY(visit_pairs(t, spec, pieces[i], rank, &again));
    }
    return HR_OK;
}

static hr_status add_scored(hr_tokenizer *t, const hr_vocab_spec *spec)
{
    if (!spec->scores)
        return hr_fail(HR_INVALID_ARGUMENT, "tokenizer.ggml.scores is missing for model llama");
    piece *pieces = hr_alloc_array0(spec->n_tokens, sizeof *pieces);
    if (!pieces) return hr_fail(HR_RESOURCE_EXHAUSTED, "memory for scores");
    size_t n = 0;
    hr_status st = HR_OK;
    for (size_t i = 0; !st && i < spec->n_tokens; i++) {
        if (spec->scores[i] != spec->scores[i])
            st = hr_fail(HR_INVALID_ARGUMENT, "tokenizer.ggml.scores: token %zu has none", i);
        if (type_of(spec, i) == TYPE_NORMAL) pieces[n++] = (piece){ spec->scores[i], (int32_t)i };
    }
    qsort(pieces, n, sizeof *pieces, by_score);
    if (!st) st = add_pairs(t, spec, pieces, n);
    hr_free(pieces);
    return st;
}

static hr_status add_blanks(hr_tokenizer *t, bool prefix)
{
    hr_normalizer *n;
    if (prefix) {
        HR_TRY(hr_tokenizer_add_normalizer(t, &n));
        *n = (hr_normalizer){ .kind = HR_NORM_PREPEND, .to = HR_STR(BLANK) };
    }
    HR_TRY(hr_tokenizer_add_normalizer(t, &n));
    *n = (hr_normalizer){ .kind = HR_NORM_REPLACE, .from = HR_STR(" "), .to = HR_STR(BLANK) };
    hr_decode_step *d;
    HR_TRY(hr_tokenizer_add_decode_step(t, &d));
    *d = (hr_decode_step){ .kind = HR_DECODE_REPLACE, .from = HR_STR(BLANK), .to = HR_STR(" ") };
    HR_TRY(hr_tokenizer_add_decode_step(t, &d));
    d->kind = HR_DECODE_FALLBACK;
    if (prefix) t->decoder.strip_first = ' ';
    return HR_OK;
}

static hr_status make_llama(hr_tokenizer *t, const hr_vocab_spec *spec, bool *bos)
{
    *bos = true;
    t->bpe.byte_fallback = t->bpe.fuse_unk = true;
    t->bpe.unk = spec->unk >= 0 && (uint64_t)spec->unk < spec->n_tokens ? (int32_t)spec->unk : -1;
    for (size_t i = 0; t->bpe.unk < 0 && i < spec->n_tokens; i++)
        if (type_of(spec, i) == TYPE_UNKNOWN) t->bpe.unk = (int32_t)i;
    HR_TRY(add_vocab(t, spec));
    HR_TRY(add_blanks(t, spec->add_space_prefix != 0));
    return add_scored(t, spec);
}

/* ---- both ------------------------------------------------------------------------------------
 */

/* Control and unknown tokens are special; what a user defined is a word met everywhere. */
static hr_status add_tokens(hr_tokenizer *t, const hr_vocab_spec *spec)
{
    for (size_t i = 0; spec->types && i < spec->n_tokens; i++) {
        int32_t type = spec->types[i];
        if (type < TYPE_NORMAL || type > TYPE_BYTE)
            return hr_fail(HR_INVALID_ARGUMENT, "tokenizer.ggml.token_type: %d at token %zu", type,
                           i);
        if (type == TYPE_NORMAL || type == TYPE_UNUSED || type == TYPE_BYTE) continue;
        hr_added_token token = { .text = t->vocab.tokens[i].text, .id = (int32_t)i };
        token.special = type != TYPE_USER;
        HR_TRY(hr_tokenizer_add_token(t, &token));
    }
    return HR_OK;
}

static hr_status add_end(const hr_tokenizer *t, const char *what, int64_t id, hr_ids *ids)
{
    if (id < 0 || (uint64_t)id >= t->vocab.size)
        return hr_fail(HR_OUT_OF_RANGE, "tokenizer.ggml.%s_token_id: %lld is no token", what,
                       (long long)id);
    return hr_ids_add(ids, (int32_t)id);
}

static hr_status add_ends(hr_tokenizer *t, const hr_vocab_spec *spec, bool bos)
{
    bos = spec->add_bos < 0 ? bos && spec->bos >= 0 : spec->add_bos > 0;
    if (bos) HR_TRY(add_end(t, "bos", spec->bos, &t->before));
    if (spec->add_eos > 0) HR_TRY(add_end(t, "eos", spec->eos, &t->after));
    return HR_OK;
}

static hr_status make(hr_tokenizer *t, const hr_vocab_spec *spec)
{
    bool bos = false;
    if (spec->model && strcmp(spec->model, "gpt2") == 0) HR_TRY(make_gpt2(t, spec, &bos));
    else if (spec->model && strcmp(spec->model, "llama") == 0) HR_TRY(make_llama(t, spec, &bos));
    else
        return hr_fail(HR_UNIMPLEMENTED, "tokenizer.ggml.model '%s' is not supported",
                       spec->model ? spec->model : "");
    HR_TRY(add_tokens(t, spec));
    HR_TRY(add_ends(t, spec, bos));
    return hr_tokenizer_finish(t);
}

hr_status hr_tokenizer_create(const hr_vocab_spec *spec, hr_tokenizer **out)
{
    *out = NULL;
    hr_tokenizer *t = hr_tokenizer_new();
    if (!t) return hr_fail(HR_RESOURCE_EXHAUSTED, "tokenizer object");
    hr_status st = make(t, spec);
    if (st) {
        hr_tokenizer_destroy(t);
        return st;
    }
    *out = t;
    return HR_OK;
}
