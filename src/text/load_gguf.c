/* Makes a tokenizer of the plain arrays that a GGUF file holds.
 *
 * Runs once, on the loading thread. GGUF names a pre-tokenizer instead of describing it; the table
 * below says what Hugging Face's file of that model does, normalizer included, so that a model
 * gives the same ids from either kind of checkpoint. An unknown name is refused: a wrong split
 * would go unnoticed. */
#include "text/text_int.h"

#include <utf8proc.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define CL100K(digits)                                                                             \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                          \
                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

typedef struct pre_tokenizer {
    const char *name;
    const char *pattern;
    bool digits;        /* each digit by itself before the pattern */
    bool nfc;           /* the family's normalizer */
    bool ignore_merges; /* a word that is a token is that token */
    bool add_bos;       /* where the file does not say */
} pre_tokenizer;

static const pre_tokenizer pre_tokenizers[] = {
    { "gpt-2", HR_PATTERN_GPT2, false, false, false, false },
    { "smollm", HR_PATTERN_GPT2, true, false, false, false },
    { "llama-bpe", CL100K("\\p{N}{1,3}"), false, false, true, true },
    { "llama3", CL100K("\\p{N}{1,3}"), false, false, true, true },
    { "llama-v3", CL100K("\\p{N}{1,3}"), false, false, true, true },
    { "qwen2", CL100K("\\p{N}"), false, true, false, false },
    { "deepseek-r1-qwen", CL100K("\\p{N}"), false, true, false, false },
};

static hr_status find_pre(const hr_vocab_spec *spec, const pre_tokenizer **out)
{
    const char *name = spec->pre && spec->pre[0] ? spec->pre : "gpt-2";
    *out = NULL;
    if (!spec->model || strcmp(spec->model, "gpt2") != 0)
        return hr_fail(HR_UNIMPLEMENTED, "tokenizer.ggml.model '%s' is not supported",
                       spec->model ? spec->model : "");
    for (size_t i = 0; i < sizeof pre_tokenizers / sizeof pre_tokenizers[0]; i++)
        if (strcmp(pre_tokenizers[i].name, name) == 0) *out = &pre_tokenizers[i];
    return *out ? HR_OK
                : hr_fail(HR_UNIMPLEMENTED, "tokenizer.ggml.pre '%s' is not supported", name);
}

static hr_status add_stages(hr_tokenizer *t, const pre_tokenizer *pre)
{
    if (pre->nfc) {
        hr_normalizer *n;
        HR_TRY(hr_tokenizer_add_normalizer(t, &n));
        *n = (hr_normalizer){ .kind = HR_NORM_UNICODE, .form = UTF8PROC_STABLE | UTF8PROC_COMPOSE };
    }
    if (pre->digits) HR_TRY(hr_tokenizer_add_digits(t, HR_SPLIT_ISOLATED));
    return hr_tokenizer_add_pattern(t, hr_str_c(pre->pattern));
}

static hr_status add_vocab(hr_tokenizer *t, const hr_vocab_spec *spec)
{
    HR_TRY(hr_vocab_init(&t->vocab, spec->n_tokens));
    for (size_t i = 0; i < spec->n_tokens; i++)
        HR_TRY(hr_vocab_put(&t->vocab, (int64_t)i, spec->tokens[i]));
    t->bpe.vocab = &t->vocab;
    t->bpe.byte_level = true;
    t->bpe.unk = -1; /* every byte is a symbol: nothing is unknown */
    hr_decode_step *d;
    HR_TRY(hr_tokenizer_add_decode_step(t, &d));
    d->kind = HR_DECODE_BYTES;
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

static hr_status add_ends(hr_tokenizer *t, const hr_vocab_spec *spec, const pre_tokenizer *pre)
{
    bool bos = spec->add_bos < 0 ? pre->add_bos && spec->bos >= 0 : spec->add_bos > 0;
    if (bos) HR_TRY(add_end(t, "bos", spec->bos, &t->before));
    if (spec->add_eos > 0) HR_TRY(add_end(t, "eos", spec->eos, &t->after));
    return HR_OK;
}

hr_status hr_tokenizer_create(const hr_vocab_spec *spec, hr_tokenizer **out)
{
    *out = NULL;
    const pre_tokenizer *pre;
    HR_TRY(find_pre(spec, &pre));
    if (spec->add_space_prefix > 0)
        return hr_fail(HR_UNIMPLEMENTED, "tokenizer.ggml.add_space_prefix with model gpt2");
    hr_tokenizer *t = hr_tokenizer_new();
    if (!t) return hr_fail(HR_RESOURCE_EXHAUSTED, "tokenizer object");
    t->bpe.ignore_merges = pre->ignore_merges;
    hr_status st = add_vocab(t, spec);
    if (!st) st = add_stages(t, pre);
    if (!st) st = add_merges(t, spec);
    if (!st) st = add_tokens(t, spec);
    if (!st) st = add_ends(t, spec, pre);
    if (!st) st = hr_tokenizer_finish(t);
    if (st) {
        hr_tokenizer_destroy(t);
        return st;
    }
    *out = t;
    return HR_OK;
}
