/* Reads the pre_tokenizer of a tokenizer.json. See load_stages.c. */
#include "text/load_int.h"

static hr_status load_behavior(const hr_json *v, hr_split_behavior *out)
{
    static const char *const names[] = { "Isolated", "Removed", "MergedWithPrevious",
                                         "MergedWithNext", "Contiguous" };
    hr_str name;
    HR_TRY(hr_json_to_str(hr_json_get(v, "behavior"), "pre_tokenizer: behavior", &name));
    for (size_t i = 0; i < HR_COUNT(names); i++) {
        if (!hr_str_eq_c(name, names[i])) continue;
        *out = (hr_split_behavior)i;
        return HR_OK;
    }
    return hr_fail(HR_INVALID_ARGUMENT, "pre_tokenizer: behavior %.*s", HR_STR_ARG(name));
}

static hr_status load_split(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_splitter *s;
    hr_str text;
    bool regex;
    HR_TRY(hr_load_pattern(v, "pre_tokenizer Split", &text, &regex));
    HR_TRY(hr_tokenizer_add_splitter(t, &s));
    HR_TRY(load_behavior(v, &s->behavior));
    HR_TRY(hr_load_bool(v, "invert", false, &s->invert));
    if (regex) return hr_splitter_by_regex(s, text);
    s->kind = HR_SPLIT_LITERAL;
    if (text.n == 0) return hr_fail(HR_UNIMPLEMENTED, "pre_tokenizer Split by an empty String");
    return hr_tokenizer_keep(t, text, &s->literal);
}

static hr_status load_byte_level(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    bool prefix, regex;
    HR_TRY(hr_load_bool(v, "add_prefix_space", true, &prefix));
    HR_TRY(hr_load_bool(v, "use_regex", true, &regex));
    t->bpe.byte_level = true;
    hr_splitter *s;
    if (prefix) {
        HR_TRY(hr_tokenizer_add_splitter(t, &s));
        s->kind = HR_SPLIT_PREFIX;
    }
    return regex ? hr_tokenizer_add_pattern(t, HR_STR(HR_PATTERN_GPT2)) : HR_OK;
}

static hr_status load_digits(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    bool individual;
    HR_TRY(hr_load_bool(v, "individual_digits", false, &individual));
    return hr_tokenizer_add_digits(t, individual ? HR_SPLIT_ISOLATED : HR_SPLIT_CONTIGUOUS);
}

static hr_status load_punctuation(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_splitter *s;
    HR_TRY(hr_tokenizer_add_splitter(t, &s));
    if (!hr_load_is_null(hr_json_get(v, "behavior"))) HR_TRY(load_behavior(v, &s->behavior));
    return hr_splitter_by_chars(s, hr_charset_add_punctuation);
}

static hr_status load_whitespace(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    hr_splitter *s;
    HR_TRY(hr_tokenizer_add_splitter(t, &s));
    s->kind = HR_SPLIT_WORDS;
    return HR_OK;
}

static hr_status load_whitespace_split(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    hr_splitter *s;
    HR_TRY(hr_tokenizer_add_splitter(t, &s));
    s->behavior = HR_SPLIT_REMOVED;
    return hr_splitter_by_chars(s, hr_charset_add_space);
}

static hr_status load_char_delimiter(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_splitter *s;
    hr_str text;
    HR_TRY(hr_load_char(v, "delimiter", "pre_tokenizer CharDelimiterSplit: delimiter", &text));
    HR_TRY(hr_tokenizer_add_splitter(t, &s));
    s->kind = HR_SPLIT_LITERAL;
    s->behavior = HR_SPLIT_REMOVED;
    return hr_tokenizer_keep(t, text, &s->literal);
}

static hr_status load_metaspace(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_splitter *s;
    hr_str text;
    HR_TRY(hr_load_char(v, "replacement", "pre_tokenizer Metaspace: replacement", &text));
    HR_TRY(hr_tokenizer_add_splitter(t, &s));
    s->kind = HR_SPLIT_SPACES;
    s->behavior = HR_SPLIT_MERGED_WITH_NEXT;
    HR_TRY(hr_load_scheme(v, "pre_tokenizer Metaspace", &s->scheme));
    HR_TRY(hr_load_bool(v, "split", true, &s->splits));
    return hr_tokenizer_keep(t, text, &s->literal);
}

static hr_status load_pre_tokenizers(const hr_json *v, hr_tokenizer *t, int depth);

static const hr_stage_type pre_tokenizers[] = {
    { "Sequence", load_pre_tokenizers },
    { "Split", load_split },
    { "ByteLevel", load_byte_level },
    { "Digits", load_digits },
    { "Metaspace", load_metaspace },
    { "Punctuation", load_punctuation },
    { "Whitespace", load_whitespace },
    { "WhitespaceSplit", load_whitespace_split },
    { "CharDelimiterSplit", load_char_delimiter },
};

static hr_status load_one_pre_tokenizer(const hr_json *v, hr_tokenizer *t, int depth)
{
    if (t->bpe.byte_level && !hr_load_is_null(v)) { /* it sees the byte-level alphabet */
        hr_splitter *s;
        HR_TRY(hr_tokenizer_add_splitter(t, &s));
        s->kind = HR_SPLIT_BYTES;
        t->bpe.byte_level = false;
    }
    return hr_load_stage(v, t, depth, "pre_tokenizer", pre_tokenizers, HR_COUNT(pre_tokenizers));
}

static hr_status load_pre_tokenizers(const hr_json *v, hr_tokenizer *t, int depth)
{
    return hr_load_list(hr_json_get(v, "pretokenizers"), "pre_tokenizer Sequence: pretokenizers", t,
                        depth, load_one_pre_tokenizer);
}

hr_status hr_load_pre_tokenizer(const hr_json *v, hr_tokenizer *t)
{
    return load_one_pre_tokenizer(v, t, 0);
}
