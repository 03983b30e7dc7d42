/* Decoding: the bytes of ids, held back until they are characters.
 *
 * Runs on the caller's thread; hr_detok is the caller's and owns nothing. Whole decoding is
 * streaming with one flush, so the two cannot differ. At most three bytes are ever held: what can
 * no longer become a character is U+FFFD at once. (Where byte tokens of a byte-fallback vocabulary
 * are no UTF-8, Hugging Face turns the whole run of them into U+FFFD, sound characters included; a
 * stream would have to wait for the run's end to do so, and we keep what is sound.) */
#include "text/text_int.h"

#include "base/utf8.h"

void hr_detok_init(hr_detok *d, const hr_tokenizer *t, hr_decode_flags flags)
{
    *d = (hr_detok){ .tokenizer = t, .flags = flags };
}

/* Appends the characters that are complete; holds the beginning of the next. */
static void add_bytes(hr_detok *d, hr_str bytes, hr_buf *out)
{
    char part[64];
    while (bytes.n) {
        size_t n = sizeof part - d->n_held;
        if (n > bytes.n) n = bytes.n;
        memcpy(part, d->held, d->n_held);
        memcpy(part + d->n_held, bytes.p, n);
        hr_str whole = { part, d->n_held + n };
        bytes = hr_str_slice(bytes, n, bytes.n);
        d->n_held = (uint8_t)hr_utf8_incomplete_tail(whole);
        whole.n -= d->n_held;
        memcpy(d->held, part + whole.n, d->n_held);
        hr_utf8_add_replaced(out, whole);
    }
}

/* A first token as Metaspace shows it. */
static hr_status add_without(hr_detok *d, hr_str text, hr_str drops, hr_buf *out)
{
    for (size_t hit; (hit = hr_str_find(text, drops, 0)) != SIZE_MAX;) {
        add_bytes(d, hr_str_slice(text, 0, hit), out);
        text = hr_str_slice(text, hit + drops.n, text.n);
    }
    add_bytes(d, text, out);
    return hr_buf_status(out);
}

hr_status hr_detok_push(hr_detok *d, int32_t id, hr_buf *out)
{
    const hr_tokenizer *t = d->tokenizer;
    if (id < 0 || (size_t)id >= t->vocab.size) return HR_OK;
    const hr_token *token = &t->vocab.tokens[id];
    if (token->special && d->flags & HR_DECODE_SKIP_SPECIAL) return HR_OK;
    if (!token->text.p) return HR_OK;
    bool first = !d->started && !(d->flags & HR_DECODE_CONTINUES);
    if (!first && t->decoder.blanks) add_bytes(d, HR_STR(" "), out);
    hr_str bytes = token->bytes, drops = t->decoder.first_drops;
    if (drops.n && first && hr_str_find(token->text, drops, 0) != SIZE_MAX) {
        d->started = true;
        return add_without(d, token->text, drops, out);
    }
    if (bytes.n == 0) {
        d->started = d->started || drops.n || t->decoder.blanks;
        return HR_OK;
    }
    if (first && t->decoder.strip_first && bytes.p[0] == t->decoder.strip_first)
        bytes = hr_str_slice(bytes, 1, bytes.n);
    d->started = true;
    add_bytes(d, bytes, out);
    return hr_buf_status(out);
}

hr_status hr_detok_flush(hr_detok *d, hr_buf *out)
{
    hr_utf8_add_replaced(out, (hr_str){ d->held, d->n_held });
    d->n_held = 0;
    d->started = false;
    return hr_buf_status(out);
}

hr_status hr_tokenizer_decode(const hr_tokenizer *t, const int32_t *ids, size_t n,
                              hr_decode_flags flags, hr_buf *out)
{
    hr_detok d;
    hr_detok_init(&d, t, flags);
    for (size_t i = 0; i < n; i++) HR_TRY(hr_detok_push(&d, ids[i], out));
    return hr_detok_flush(&d, out);
}
