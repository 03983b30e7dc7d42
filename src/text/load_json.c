/* Reads a Hugging Face tokenizer.json: the vocabulary, the merges, the added tokens.
 *
 * Runs once, on the loading thread; the parsed JSON lives until the tokenizer is made. Order
 * matters: normalizers before added tokens (which are looked for in their normalized form), the
 * vocabulary before both, bytes of tokens last. */
#include "text/load_int.h"

#include "base/utf8.h"

bool hr_load_is_null(const hr_json *v)
{
    return !v || v->type == HR_JSON_NULL;
}

hr_status hr_load_bool(const hr_json *object, const char *key, bool absent, bool *out)
{
    const hr_json *v = hr_json_get(object, key);
    *out = absent;
    return hr_load_is_null(v) ? HR_OK : hr_json_to_bool(v, key, out);
}

hr_status hr_load_str(const hr_json *object, const char *key, hr_str *out)
{
    const hr_json *v = hr_json_get(object, key);
    *out = (hr_str){ 0 };
    return hr_load_is_null(v) ? HR_OK : hr_json_to_str(v, key, out);
}

hr_status hr_load_char(const hr_json *object, const char *key, const char *what, hr_str *out)
{
    HR_TRY(hr_json_to_str(hr_json_get(object, key), what, out));
    return hr_utf8_length(*out) == 1
               ? HR_OK
               : hr_fail(HR_INVALID_ARGUMENT, "%s: '%.*s' is not one character", what,
                         HR_STR_ARG(*out));
}

hr_status hr_load_type(const hr_json *stage, const char *what, hr_str *out)
{
    *out = (hr_str){ 0 };
    if (stage->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT, "%s is not an object", what);
    HR_TRY(hr_load_str(stage, "type", out));
    return out->p ? HR_OK : hr_fail(HR_INVALID_ARGUMENT, "%s has no type", what);
}

/* ---- the model ------------------------------------------------------------------------------ */

static hr_status load_vocab(const hr_json *vocab, hr_tokenizer *t)
{
    if (!vocab || vocab->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT, "model.vocab is not an object");
    HR_TRY(hr_vocab_init(&t->vocab, vocab->count));
    for (size_t i = 0; i < vocab->count; i++) {
        int64_t id;
        HR_TRY(hr_json_to_i64(&vocab->items[i], "model.vocab: an id", &id));
        HR_TRY(hr_vocab_put(&t->vocab, id, vocab->items[i].key));
    }
    return HR_OK;
}

/* "a b" of older files, ["a", "b"] of newer ones, whose tokens may hold blanks. */
static hr_status split_merge(const hr_json *v, hr_str *left, hr_str *right)
{
    if (v->type == HR_JSON_ARRAY && v->count == 2) {
        HR_TRY(hr_json_to_str(&v->items[0], "model.merges", left));
        return hr_json_to_str(&v->items[1], "model.merges", right);
    }
    hr_str text;
    HR_TRY(hr_json_to_str(v, "model.merges: an item", &text));
    size_t space = hr_str_find(text, HR_STR(" "), 0);
    if (space == SIZE_MAX || hr_str_find(text, HR_STR(" "), space + 1) != SIZE_MAX)
        return hr_fail(HR_INVALID_ARGUMENT, "model.merges: '%.*s' is not two tokens",
                       HR_STR_ARG(text));
    *left = hr_str_slice(text, 0, space);
    *right = hr_str_slice(text, space + 1, text.n);
    return HR_OK;
}

static hr_status load_merges(const hr_json *merges, hr_tokenizer *t)
{
    if (!merges || merges->type != HR_JSON_ARRAY)
        return hr_fail(HR_INVALID_ARGUMENT, "model.merges is not an array");
    HR_TRY(hr_bpe_init_merges(&t->bpe, merges->count));
    for (size_t i = 0; i < merges->count; i++) {
        hr_str left, right;
        HR_TRY(split_merge(&merges->items[i], &left, &right));
        HR_TRY(hr_bpe_add_merge(&t->bpe, left, right));
    }
    return HR_OK;
}

static hr_status refuse_affixes(const hr_json *model)
{
    static const char *const keys[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    for (size_t i = 0; i < 2; i++) {
        hr_str affix;
        HR_TRY(hr_load_str(model, keys[i], &affix));
        if (affix.n)
            return hr_fail(HR_UNIMPLEMENTED, "model.%s '%.*s' is not supported", keys[i],
                           HR_STR_ARG(affix));
    }
    return HR_OK;
}

static hr_status load_unk(const hr_json *model, hr_tokenizer *t)
{
    hr_str unk;
    HR_TRY(hr_load_str(model, "unk_token", &unk));
    t->bpe.unk = unk.p ? hr_vocab_find(&t->vocab, unk) : -1;
    if (unk.p && t->bpe.unk < 0)
        return hr_fail(HR_INVALID_ARGUMENT, "model.unk_token '%.*s' is not in the vocabulary",
                       HR_STR_ARG(unk));
    return HR_OK;
}

/* [["piece", score], …]: the place is the id. */
static hr_status load_scored(const hr_json *vocab, hr_tokenizer *t)
{
    if (!vocab || vocab->type != HR_JSON_ARRAY)
        return hr_fail(HR_INVALID_ARGUMENT, "model.vocab is not an array");
    HR_TRY(hr_vocab_init(&t->vocab, vocab->count));
    t->unigram.vocab = t->bpe.vocab = &t->vocab;
    t->unigram.scores = hr_alloc_array0(vocab->count, sizeof *t->unigram.scores);
    if (!t->unigram.scores) return hr_fail(HR_RESOURCE_EXHAUSTED, "memory for scores");
    for (size_t i = 0; i < vocab->count; i++) {
        const hr_json *pair = &vocab->items[i];
        hr_str text;
        if (pair->type != HR_JSON_ARRAY || pair->count != 2)
            return hr_fail(HR_INVALID_ARGUMENT, "model.vocab: item %zu is not [text, score]", i);
        HR_TRY(hr_json_to_str(&pair->items[0], "model.vocab: a text", &text));
        HR_TRY(hr_json_to_f64(&pair->items[1], "model.vocab: a score", &t->unigram.scores[i]));
        if (hr_vocab_find(&t->vocab, text) >= 0)
            return hr_fail(HR_INVALID_ARGUMENT, "model.vocab has '%.*s' twice", HR_STR_ARG(text));
        HR_TRY(hr_vocab_put(&t->vocab, (int64_t)i, text));
    }
    return HR_OK;
}

static hr_status load_unigram(const hr_json *model, hr_tokenizer *t)
{
    int64_t unk;
    HR_TRY(load_scored(hr_json_get(model, "vocab"), t));
    if (hr_load_is_null(hr_json_get(model, "unk_id")))
        return hr_fail(HR_UNIMPLEMENTED, "model.unk_id: a Unigram without one");
    HR_TRY(hr_json_to_i64(hr_json_get(model, "unk_id"), "model.unk_id", &unk));
    if (unk < 0 || (uint64_t)unk >= t->vocab.size)
        return hr_fail(HR_OUT_OF_RANGE, "model.unk_id %lld is no token", (long long)unk);
    t->unigram.unk = (int32_t)unk;
    HR_TRY(hr_load_bool(model, "byte_fallback", false, &t->unigram.byte_fallback));
    return hr_unigram_finish(&t->unigram, t->vocab.size);
}

static hr_status load_model(const hr_json *model, hr_tokenizer *t)
{
    if (!model || model->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT, "model is missing");
    hr_str type;
    HR_TRY(hr_load_str(model, "type", &type));
    if (type.p && hr_str_eq_c(type, "Unigram")) return load_unigram(model, t);
    if (type.p ? !hr_str_eq_c(type, "BPE") : !hr_json_get(model, "merges"))
        return hr_fail(HR_UNIMPLEMENTED, "model of type %.*s is not supported",
                       HR_STR_ARG(type.p ? type : HR_STR("unknown")));
    HR_TRY(refuse_affixes(model));
    HR_TRY(hr_load_bool(model, "ignore_merges", false, &t->bpe.ignore_merges));
    HR_TRY(hr_load_bool(model, "byte_fallback", false, &t->bpe.byte_fallback));
    HR_TRY(hr_load_bool(model, "fuse_unk", false, &t->bpe.fuse_unk));
    HR_TRY(load_vocab(hr_json_get(model, "vocab"), t));
    t->bpe.vocab = &t->vocab;
    HR_TRY(load_unk(model, t));
    return load_merges(hr_json_get(model, "merges"), t);
}

/* ---- added tokens -----------------------------------------------------------------------------
 */

static hr_status name_added(hr_tokenizer *t, int64_t id, hr_str content, hr_added_token *token)
{
    token->id = hr_vocab_find(&t->vocab, content);
    if (token->id < 0) {
        HR_TRY(hr_vocab_put(&t->vocab, id, content));
        token->id = (int32_t)id;
    }
    if (token->id != id)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "added token '%.*s' has id %lld, but %d in the vocabulary",
                       HR_STR_ARG(content), (long long)id, token->id);
    token->text = t->vocab.tokens[id].text;
    return HR_OK;
}

static hr_status load_added_token(const hr_json *v, hr_tokenizer *t)
{
    hr_str content;
    int64_t id;
    hr_added_token token = { 0 };
    HR_TRY(hr_json_to_str(hr_json_get(v, "content"), "added_tokens: content", &content));
    HR_TRY(hr_json_to_i64(hr_json_get(v, "id"), "added_tokens: id", &id));
    HR_TRY(hr_load_bool(v, "single_word", false, &token.single_word));
    HR_TRY(hr_load_bool(v, "lstrip", false, &token.lstrip));
    HR_TRY(hr_load_bool(v, "rstrip", false, &token.rstrip));
    HR_TRY(hr_load_bool(v, "special", false, &token.special));
    HR_TRY(hr_load_bool(v, "normalized", !token.special, &token.normalized));
    if (content.n == 0) return HR_OK; /* matches nothing; Hugging Face drops it too */
    HR_TRY(name_added(t, id, content, &token));
    return hr_tokenizer_add_token(t, &token);
}

static hr_status load_added_tokens(const hr_json *v, hr_tokenizer *t)
{
    if (hr_load_is_null(v)) return HR_OK;
    if (v->type != HR_JSON_ARRAY)
        return hr_fail(HR_INVALID_ARGUMENT, "added_tokens is not an array");
    for (size_t i = 0; i < v->count; i++) HR_TRY(load_added_token(&v->items[i], t));
    return HR_OK;
}

/* ---- the file ------------------------------------------------------------------------------- */

static hr_status check_members(const hr_json *root)
{
    /* truncation and padding are the caller's affair, as in transformers */
    static const char *const known[] = { "version",        "truncation", "padding",
                                         "added_tokens",   "normalizer", "pre_tokenizer",
                                         "post_processor", "decoder",    "model" };
    if (root->type != HR_JSON_OBJECT) return hr_fail(HR_INVALID_ARGUMENT, "not an object");
    for (size_t i = 0; i < root->count; i++) {
        size_t k = 0, n = sizeof known / sizeof known[0];
        while (k < n && !hr_str_eq_c(root->items[i].key, known[k])) k++;
        if (k == n)
            return hr_fail(HR_UNIMPLEMENTED, "member '%.*s' is not known",
                           HR_STR_ARG(root->items[i].key));
    }
    return HR_OK;
}

static hr_status load_all(const hr_json *root, hr_tokenizer *t)
{
    HR_TRY(check_members(root));
    HR_TRY(load_model(hr_json_get(root, "model"), t));
    HR_TRY(hr_load_normalizer(hr_json_get(root, "normalizer"), t));
    HR_TRY(hr_load_pre_tokenizer(hr_json_get(root, "pre_tokenizer"), t));
    HR_TRY(load_added_tokens(hr_json_get(root, "added_tokens"), t));
    HR_TRY(hr_load_post_processor(hr_json_get(root, "post_processor"), t));
    HR_TRY(hr_load_decoder(hr_json_get(root, "decoder"), t));
    return hr_tokenizer_finish(t);
}

hr_status hr_tokenizer_load_json(hr_str tokenizer_json, hr_tokenizer **out)
{
    *out = NULL;
    hr_arena arena = { 0 };
    const hr_json *root = NULL;
    hr_tokenizer *t = hr_tokenizer_new();
    hr_status st = t ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "tokenizer object");
    if (!st) st = hr_json_parse(tokenizer_json, NULL, &arena, &root);
    if (!st) st = load_all(root, t);
    hr_arena_deinit(&arena);
    if (st) {
        hr_tokenizer_destroy(t);
        return hr_fail_prefix(st, "tokenizer.json");
    }
    *out = t;
    return HR_OK;
}
