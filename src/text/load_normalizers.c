/* Reads the normalizer of a tokenizer.json. See load_stages.c. */
#include <utf8proc.h>

#include "text/load_int.h"

static hr_status add_form(hr_tokenizer *t, int form)
{
    hr_normalizer *n;
    HR_TRY(hr_tokenizer_add_normalizer(t, &n));
    *n = (hr_normalizer){ .kind = HR_NORM_UNICODE, .form = form };
    return HR_OK;
}

static hr_status load_nfc(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    return add_form(t, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
}

static hr_status load_nfd(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    return add_form(t, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
}

static hr_status load_nfkc(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    return add_form(t, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
}

static hr_status load_nfkd(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    return add_form(t, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
}

static hr_status load_prepend(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_str text;
    hr_normalizer *n;
    HR_TRY(hr_json_to_str(hr_json_get(v, "prepend"), "normalizer Prepend: prepend", &text));
    HR_TRY(hr_tokenizer_add_normalizer(t, &n));
    n->kind = HR_NORM_PREPEND;
    return hr_tokenizer_keep(t, text, &n->to);
}

static hr_status load_replace(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_str from, to;
    bool regex;
    hr_normalizer *n;
    HR_TRY(hr_load_pattern(v, "normalizer Replace", &from, &regex));
    HR_TRY(hr_json_to_str(hr_json_get(v, "content"), "normalizer Replace: content", &to));
    if (!regex && from.n == 0)
        return hr_fail(HR_UNIMPLEMENTED, "normalizer Replace with an empty String");
    HR_TRY(hr_tokenizer_add_normalizer(t, &n));
    n->kind = HR_NORM_REPLACE;
    HR_TRY(hr_tokenizer_keep(t, to, &n->to));
    return regex ? hr_pattern_compile(from, &n->pattern) : hr_tokenizer_keep(t, from, &n->from);
}

static hr_status load_lowercase(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    hr_normalizer *n;
    HR_TRY(hr_tokenizer_add_normalizer(t, &n));
    n->kind = HR_NORM_LOWER;
    return HR_OK;
}

static hr_status load_strip(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)depth;
    hr_normalizer *n;
    HR_TRY(hr_tokenizer_add_normalizer(t, &n));
    n->kind = HR_NORM_STRIP;
    HR_TRY(hr_load_bool(v, "strip_left", true, &n->front));
    return hr_load_bool(v, "strip_right", true, &n->behind);
}

static hr_status load_byte_level(const hr_json *v, hr_tokenizer *t, int depth)
{
    (void)v, (void)depth;
    hr_normalizer *n;
    HR_TRY(hr_tokenizer_add_normalizer(t, &n));
    n->kind = HR_NORM_BYTES;
    return HR_OK;
}

static hr_status load_normalizers(const hr_json *v, hr_tokenizer *t, int depth);

static const hr_stage_type normalizers[] = {
    { "Sequence", load_normalizers },
    { "NFC", load_nfc },
    { "NFD", load_nfd },
    { "NFKC", load_nfkc },
    { "NFKD", load_nfkd },
    { "Prepend", load_prepend },
    { "Replace", load_replace },
    { "Lowercase", load_lowercase },
    { "Strip", load_strip },
    { "ByteLevel", load_byte_level },
};

static hr_status load_one_normalizer(const hr_json *v, hr_tokenizer *t, int depth)
{
    return hr_load_stage(v, t, depth, "normalizer", normalizers, HR_COUNT(normalizers));
}

static hr_status load_normalizers(const hr_json *v, hr_tokenizer *t, int depth)
{
    return hr_load_list(hr_json_get(v, "normalizers"), "normalizer Sequence: normalizers", t, depth,
                        load_one_normalizer);
}

hr_status hr_load_normalizer(const hr_json *v, hr_tokenizer *t)
{
    return load_one_normalizer(v, t, 0);
}
