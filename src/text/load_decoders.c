/* Reads the decoder of a tokenizer.json. See load_stages.c.
 *
 * Hugging Face's decoders rewrite the list of tokens in turn. Ours decode a stream, so they are
 * read as two groups: what changes tokens one by one, and, after Fuse or ByteLevel, what changes
 * the joined text, which can only be its beginning. */
#include "text/load_int.h"

static hr_status add_step(hr_tokenizer *t, const char *name, hr_decode_kind kind,
                          hr_decode_step **out)
{
    *out = NULL;
    if (t->decoder.fused)
        return hr_fail(HR_UNIMPLEMENTED, "decoder Sequence: %s after Fuse or ByteLevel", name);
    if (t->decoder.first_drops.n && kind != HR_DECODE_FALLBACK)
        return hr_fail(HR_UNIMPLEMENTED, "decoder Sequence: %s after Metaspace", name);
    HR_TRY(hr_tokenizer_add_decode_step(t, out));
    (*out)->kind = kind;
    return HR_OK;
}

static hr_status load_byte_level(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    hr_decode_step *s;
    HR_TRY(add_step(t, "ByteLevel", HR_DECODE_BYTES, &s));
    t->decoder.fused = true;
    return HR_OK;
}

static hr_status load_byte_fallback(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    hr_decode_step *s;
    return add_step(t, "ByteFallback", HR_DECODE_FALLBACK, &s);
}

static hr_status load_fuse(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    t->decoder.fused = true;
    return HR_OK;
}

static hr_status load_replace(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_str from, to;
    bool regex;
    hr_decode_step *s;
    HR_TRY(hr_load_pattern(v, "decoder Replace", &from, &regex));
    HR_TRY(hr_json_to_str(hr_json_get(v, "content"), "decoder Replace: content", &to));
    if (regex || from.n == 0)
        return hr_fail(HR_UNIMPLEMENTED, "decoder Replace with a Regex or an empty String");
    HR_TRY(add_step(t, "Replace", HR_DECODE_REPLACE, &s));
    HR_TRY(hr_tokenizer_keep(t, from, &s->from));
    return hr_tokenizer_keep(t, to, &s->to);
}

/* Every token has its blanks; only what the very first one shows differs. */
static hr_status load_metaspace(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_str text;
    hr_decode_step *s;
    hr_prepend_scheme scheme;
    HR_TRY(hr_load_char(v, "replacement", "decoder Metaspace: replacement", &text));
    HR_TRY(hr_load_scheme(v, "decoder Metaspace", &scheme));
    for (size_t i = 0; i < t->decoder.n_steps; i++)
        if (t->decoder.steps[i].kind != HR_DECODE_FALLBACK)
            return hr_fail(HR_UNIMPLEMENTED, "decoder Sequence: Metaspace after another");
    HR_TRY(add_step(t, "Metaspace", HR_DECODE_REPLACE, &s));
    HR_TRY(hr_tokenizer_keep(t, text, &s->from));
    HR_TRY(hr_tokenizer_keep(t, HR_STR(" "), &s->to));
    if (scheme != HR_PREPEND_NEVER) t->decoder.first_drops = s->from;
    return HR_OK;
}

/* Off the joined text: one character in front is all that a stream can do. */
static hr_status strip_text(hr_tokenizer *t, hr_str content, int64_t start, int64_t stop)
{
    if (content.n != 1 || content.p[0] == '\0' || start != 1 || stop != 0 || t->decoder.strip_first)
        return hr_fail(HR_UNIMPLEMENTED,
                       "decoder Strip of other than one ASCII character in front");
    t->decoder.strip_first = content.p[0];
    return HR_OK;
}

static hr_status load_strip(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_str content;
    int64_t start, stop;
    hr_decode_step *s;
    HR_TRY(hr_load_char(v, "content", "decoder Strip: content", &content));
    HR_TRY(hr_json_to_i64(hr_json_get(v, "start"), "decoder Strip: start", &start));
    HR_TRY(hr_json_to_i64(hr_json_get(v, "stop"), "decoder Strip: stop", &stop));
    if (start < 0 || stop < 0)
        return hr_fail(HR_INVALID_ARGUMENT, "decoder Strip: start or stop below 0");
    if (t->decoder.fused) return strip_text(t, content, start, stop);
    HR_TRY(add_step(t, "Strip", HR_DECODE_STRIP, &s));
    s->front = start;
    s->behind = stop;
    return hr_tokenizer_keep(t, content, &s->from);
}

static hr_status load_decoders(const hr_json *v, hr_tokenizer *t, int depth);

static const hr_stage_type decoders[] = {
    { "Sequence", load_decoders },   { "ByteLevel", load_byte_level },
    { "Replace", load_replace },     { "ByteFallback", load_byte_fallback },
    { "Fuse", load_fuse },           { "Strip", load_strip },
    { "Metaspace", load_metaspace },
};

static hr_status load_one_decoder(const hr_json *v, hr_tokenizer *t, int depth)
{
    return hr_load_stage(v, t, depth, "decoder", decoders, HR_COUNT(decoders));
}

static hr_status load_decoders(const hr_json *v, hr_tokenizer *t, int depth)
{
    return hr_load_list(hr_json_get(v, "decoders"), "decoder Sequence: decoders", t, depth,
                        load_one_decoder);
}

hr_status hr_load_decoder(const hr_json *v, hr_tokenizer *t)
{
    t->decoder.blanks = hr_load_is_null(v); /* as Hugging Face joins tokens then */
    return load_one_decoder(v, t, 0);
}
