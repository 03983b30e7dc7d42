/* Added tokens: found in a text before anything splits it.
 *
 * Immutable after loading; a search is the caller's. At each place the longest token wins, and the
 * search goes on behind it, as Hugging Face's automaton does. What is ours is provenance: a
 * special token that touches a byte of data is passed over as if it were not in the list, so
 * data can neither form a special token nor spoil one that a template wrote. */
#include "text/text_int.h"

#include "base/utf8.h"

void hr_added_init(hr_added *a)
{
    *a = (hr_added){ 0 };
    for (int i = 0; i < 256; i++) a->root[i] = -1;
}

static hr_status add_node(hr_added *a, uint8_t byte, int32_t *link)
{
    if (a->n_nodes >= INT32_MAX) return hr_fail(HR_RESOURCE_EXHAUSTED, "added tokens: too many");
    /* the link may live in the array that grows */
    ptrdiff_t inside = a->nodes ? (char *)link - (char *)a->nodes : -1;
    bool moves = inside >= 0 && (size_t)inside < a->n_nodes * sizeof *a->nodes;
    HR_TRY(hr_grow((void **)&a->nodes, &a->nodes_capacity, a->n_nodes + 1, sizeof *a->nodes));
    if (moves) link = (int32_t *)((char *)a->nodes + inside);
    *link = (int32_t)a->n_nodes;
    a->nodes[a->n_nodes++] = (hr_trie_node){ byte, -1, -1, -1 };
    return HR_OK;
}

hr_status hr_added_add(hr_added *a, const hr_added_token *token)
{
    if (token->text.n == 0) return HR_OK; /* Hugging Face ignores empty ones */
    int32_t *link = &a->root[(unsigned char)token->text.p[0]], at = -1;
    for (size_t i = 0; i < token->text.n; i++) {
        uint8_t byte = (uint8_t)token->text.p[i];
        while (*link >= 0 && a->nodes[*link].byte != byte) link = &a->nodes[*link].sibling;
        at = *link;
        if (at < 0) {
            at = (int32_t)a->n_nodes;
            HR_TRY(add_node(a, byte, link));
        }
        link = &a->nodes[at].child;
    }
    if (a->nodes[at].token >= 0) {
        a->tokens[a->nodes[at].token] = *token;
        return HR_OK;
    }
    HR_TRY(hr_grow((void **)&a->tokens, &a->capacity, a->n + 1, sizeof *a->tokens));
    a->nodes[at].token = (int32_t)a->n;
    a->tokens[a->n++] = *token;
    return HR_OK;
}

/* The longest token at `from` that may be there, or NULL. */
static const hr_added_token *longest_at(const hr_added *a, const hr_added_search *s, size_t from)
{
    const hr_added_token *best = NULL;
    int32_t at = a->root[(unsigned char)s->text.p[from]];
    bool data = false; /* a byte so far is data */
    for (size_t i = from; at >= 0;) {
        data = data || (s->plain && s->plain[i]);
        int32_t token = a->nodes[at].token;
        if (token >= 0 && !(data && a->tokens[token].special)) best = &a->tokens[token];
        if (++i == s->text.n) break;
        at = a->nodes[at].child;
        while (at >= 0 && a->nodes[at].byte != (uint8_t)s->text.p[i]) at = a->nodes[at].sibling;
    }
    return best;
}

static bool is_single_word(hr_str text, size_t start, size_t stop)
{
    size_t ignored;
    if (start > 0 && hr_unicode_is_word(hr_utf8_before(text, start, &ignored))) return false;
    return stop == text.n ||
           !hr_unicode_is_word(hr_utf8_decode(hr_str_slice(text, stop, text.n), &ignored));
}

/* Not beyond `limit`, which may lie behind *start: a token before took white space, too. */
static void take_space_before(hr_str text, size_t limit, size_t *start)
{
    size_t len;
    while (*start > limit && hr_unicode_is_space(hr_utf8_before(text, *start, &len))) *start -= len;
    if (*start < limit) *start = limit;
}

static void take_space_after(hr_str text, size_t *stop)
{
    size_t len;
    while (*stop < text.n &&
           hr_unicode_is_space(hr_utf8_decode(hr_str_slice(text, *stop, text.n), &len)))
        *stop += len;
}

bool hr_added_next(const hr_added *a, hr_added_search *s, hr_added_match *out)
{
    if (a->n == 0) return false;
    while (s->at < s->text.n) {
        const hr_added_token *t = longest_at(a, s, s->at);
        if (!t) {
            s->at++;
            continue;
        }
        *out = (hr_added_match){ s->at, s->at + t->text.n, t->id };
        s->at = out->stop;
        if (t->single_word && !is_single_word(s->text, out->start, out->stop)) continue;
        if (t->lstrip) take_space_before(s->text, s->done, &out->start);
        if (t->rstrip) take_space_after(s->text, &out->stop);
        /* only the white space that the token before took is left of it: no token */
        if (out->stop <= out->start) continue;
        s->done = out->stop;
        return true;
    }
    return false;
}

void hr_added_deinit(hr_added *a)
{
    hr_free(a->tokens);
    hr_free(a->nodes);
    hr_added_init(a);
}
