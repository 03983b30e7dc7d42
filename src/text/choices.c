/* A choice among texts, as ranges of two sorted lists.
 *
 * Texts are sorted, and so are the vocabulary's ids by their bytes; what begins with given bytes is
 * a range of either. Following the texts byte by byte narrows both ranges at once, and the tokens
 * that end at a byte stand first in theirs: so the tokens that may come next are found without
 * looking at the vocabulary as a whole. Nothing is allocated once the lists are made. */
#include "text/choices.h"

#include <stdlib.h>

/* ---- sorted bytes ---------------------------------------------------------------------------- */

static int compare(hr_str a, hr_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.p, b.p, n) : 0;
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

/* The byte at `at`, or -1 past the end, which sorts before all bytes. */
static int byte_at(hr_str s, size_t at)
{
    return at < s.n ? (unsigned char)s.p[at] : -1;
}

typedef struct range {
    size_t from, to;
} range;

typedef hr_str (*item_fn)(const void *list, size_t i);

/* First of [from,to), which share `at` bytes, whose next byte is at least `byte`. */
static size_t first_from(const void *list, item_fn item, range r, size_t at, int byte)
{
    while (r.from < r.to) {
        size_t middle = r.from + (r.to - r.from) / 2;
        if (byte_at(item(list, middle), at) < byte) r.from = middle + 1;
        else r.to = middle;
    }
    return r.from;
}

static range narrow(const void *list, item_fn item, range r, size_t at, int byte)
{
    size_t from = first_from(list, item, r, at, byte);
    return (range){ from, first_from(list, item, (range){ from, r.to }, at, byte + 1) };
}

static hr_str text_of(const void *choices, size_t i)
{
    return ((const hr_choices *)choices)->texts[i];
}

static hr_str token_of(const void *index, size_t i)
{
    const hr_token_index *x = index;
    return hr_tokenizer_token_bytes(x->tokenizer, x->ids[i]);
}

/* ---- the vocabulary by its bytes ------------------------------------------------------------- */

/* An id with what it is sorted by: its first eight bytes decide nearly always. */
typedef struct entry {
    uint64_t head;
    hr_str bytes;
    int32_t id;
} entry;

static uint64_t head_of(hr_str s)
{
    uint64_t head = 0;
    for (size_t i = 0; i < 8; i++) head = head << 8 | (i < s.n ? (unsigned char)s.p[i] : 0);
    return head;
}

static int by_bytes(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->head != y->head) return x->head < y->head ? -1 : 1;
    int order = compare(x->bytes, y->bytes);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

hr_status hr_token_index_init(hr_token_index *x, const hr_tokenizer *t)
{
    size_t size = hr_tokenizer_size(t);
    *x = (hr_token_index){ .tokenizer = t };
    entry *entries = hr_alloc_array0(size, sizeof *entries);
    int32_t *ids = hr_alloc_array0(size, sizeof *ids);
    if (!entries || !ids) {
        hr_free(entries);
        hr_free(ids);
        return hr_fail(HR_RESOURCE_EXHAUSTED, "an index of %zu tokens", size);
    }
    for (int32_t id = 0; (size_t)id < size; id++) {
        hr_str bytes = hr_tokenizer_token_bytes(t, id);
        if (bytes.n && !hr_tokenizer_is_special(t, id))
            entries[x->n++] = (entry){ head_of(bytes), bytes, id };
    }
    qsort(entries, x->n, sizeof *entries, by_bytes);
    for (size_t i = 0; i < x->n; i++) ids[i] = entries[i].id;
    x->ids = ids;
    hr_free(entries);
    return HR_OK;
}

void hr_token_index_deinit(hr_token_index *x)
{
    hr_free(x->ids);
    *x = (hr_token_index){ 0 };
}

/* ---- the texts ------------------------------------------------------------------------------- */

/* Some token is a beginning of the text from `at` on. */
static bool some_token(const hr_token_index *x, hr_str text, size_t at)
{
    range r = { 0, x->n };
    for (size_t k = 0; at + k < text.n; k++) {
        r = narrow(x, token_of, r, k, byte_at(text, at + k));
        if (r.from == r.to) return false;
        if (token_of(x, r.from).n == k + 1) return true;
    }
    return false;
}

/* From every byte some token leads on, so that no way through a text ends before it does. */
static hr_status check_spelling(const hr_token_index *x, hr_str text, size_t i)
{
    for (size_t at = 0; at < text.n; at++)
        if (!some_token(x, text, at))
            return hr_fail(HR_INVALID_ARGUMENT,
                           "choice: text %zu: the vocabulary has no token for its byte %zu", i, at);
    return HR_OK;
}

static hr_status check(const hr_token_index *x, const hr_str *texts, size_t n)
{
    size_t bytes = 0;
    if (!n) return hr_fail(HR_INVALID_ARGUMENT, "choice: the list is empty");
    if (n > HR_CHOICES_MAX)
        return hr_fail(HR_INVALID_ARGUMENT, "choice: %zu texts, at most %d are taken", n,
                       HR_CHOICES_MAX);
    for (size_t i = 0; i < n; i++) {
        if (!texts[i].n) return hr_fail(HR_INVALID_ARGUMENT, "choice: text %zu is empty", i);
        if (texts[i].n > HR_CHOICE_MAX_BYTES)
            return hr_fail(HR_INVALID_ARGUMENT, "choice: text %zu has %zu bytes, at most %d", i,
                           texts[i].n, HR_CHOICE_MAX_BYTES);
        bytes += texts[i].n;
    }
    if (bytes > HR_CHOICES_MAX_BYTES)
        return hr_fail(HR_INVALID_ARGUMENT, "choice: %zu bytes of text, at most %d", bytes,
                       HR_CHOICES_MAX_BYTES);
    for (size_t i = 0; i < n; i++) HR_TRY(check_spelling(x, texts[i], i));
    return HR_OK;
}

static int by_text(const void *a, const void *b)
{
    return compare(*(const hr_str *)a, *(const hr_str *)b);
}

hr_status hr_choices_init(hr_choices *c, hr_arena *arena, const hr_token_index *x,
                          const hr_str *texts, size_t n)
{
    *c = (hr_choices){ .index = x };
    HR_TRY(check(x, texts, n));
    hr_str *sorted = hr_arena_array(arena, n, sizeof *sorted);
    if (!sorted) return hr_fail(HR_RESOURCE_EXHAUSTED, "choice: %zu texts", n);
    memcpy(sorted, texts, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_text);
    for (size_t i = 0; i < n; i++)
        if (!c->n || !hr_str_eq(sorted[c->n - 1], sorted[i])) sorted[c->n++] = sorted[i];
    c->texts = sorted;
    return HR_OK;
}

/* ---- one answer ------------------------------------------------------------------------------ */

hr_choice_state hr_choices_start(const hr_choices *c)
{
    return (hr_choice_state){ .to = c->n };
}

typedef struct search {
    const hr_choices *c;
    uint32_t *words;
    size_t n_words;
} search;

/* Tokens of exactly `n` bytes stand first in a range that shares so many. */
static void allow(const search *s, range tokens, size_t n)
{
    const hr_token_index *x = s->c->index;
    for (size_t i = tokens.from; i < tokens.to && token_of(x, i).n == n; i++) {
        size_t id = (size_t)x->ids[i];
        if (id / 32 < s->n_words) s->words[id / 32] |= (uint32_t)1 << (id % 32);
    }
}

/* Texts that share `depth` bytes, the last k of which `tokens` begin with. Deep as the longest
 * token that begins what is left of a text. */
static void follow(const search *s, range texts, size_t depth, range tokens, size_t k)
{
    const hr_choices *c = s->c;
    while (texts.from < texts.to) {
        int byte = byte_at(c->texts[texts.from], depth);
        range same = narrow(c, text_of, texts, depth, byte);
        texts.from = same.to;
        if (byte < 0) continue; /* ends here */
        range left = narrow(c->index, token_of, tokens, k, byte);
        if (left.from == left.to) continue;
        allow(s, left, k + 1);
        follow(s, same, depth + 1, left, k + 1);
    }
}

void hr_choices_next(const hr_choices *c, const hr_choice_state *s, uint32_t *words, size_t n_words)
{
    search all = { c, words, n_words };
    follow(&all, (range){ s->from, s->to }, s->depth, (range){ 0, c->index->n }, 0);
}

bool hr_choices_complete(const hr_choices *c, const hr_choice_state *s)
{
    return s->from < s->to && c->texts[s->from].n == s->depth;
}

void hr_choices_take(const hr_choices *c, hr_choice_state *s, int32_t token)
{
    hr_str bytes = hr_tokenizer_token_bytes(c->index->tokenizer, token);
    range r = { s->from, s->to };
    for (size_t i = 0; i < bytes.n; i++) r = narrow(c, text_of, r, s->depth + i, byte_at(bytes, i));
    *s = (hr_choice_state){ r.from, r.to, s->depth + bytes.n };
}
