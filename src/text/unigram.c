/* Unigram: of all ways to spell a word with tokens, the one whose scores sum highest.
 *
 * hr_unigram is immutable after loading. A word is read once from left to right: from every
 * character, the tokens that begin there are walked in a trie, and each end keeps the best way to
 * reach it, so time grows with the text times the longest token. A character that is no token by
 * itself costs more than any token. The trie's children lie together, sorted by byte. */
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "text/text_int.h"

/* How much worse than the worst token an unknown character is, as SentencePiece has it. */
#define UNKNOWN_PENALTY 10.0

/* ---- the trie --------------------------------------------------------------------------------
 */

typedef struct entry {
    hr_str text;
    int32_t id;
} entry;

/* What of the sorted texts lies below a node while the trie is made. */
typedef struct share {
    size_t from, to, depth;
} share;

typedef struct builder {
    hr_unigram *u;
    const entry *entries;
    share *shares; /* owned, beside u->nodes */
    size_t nodes_capacity, shares_capacity;
} builder;

static int by_text(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    size_t n = x->text.n < y->text.n ? x->text.n : y->text.n;
    int order = n ? memcmp(x->text.p, y->text.p, n) : 0;
    return order ? order : (x->text.n > y->text.n) - (x->text.n < y->text.n);
}

static hr_status add_node(builder *b, uint8_t byte, share part)
{
    hr_unigram *u = b->u;
    if (u->n_nodes >= INT32_MAX) return hr_fail(HR_RESOURCE_EXHAUSTED, "unigram: too many nodes");
    HR_TRY(hr_grow((void **)&u->nodes, &b->nodes_capacity, u->n_nodes + 1, sizeof *u->nodes));
    HR_TRY(hr_grow((void **)&b->shares, &b->shares_capacity, u->n_nodes + 1, sizeof *b->shares));
    u->nodes[u->n_nodes] = (hr_unigram_node){ .byte = byte, .token = -1 };
    b->shares[u->n_nodes++] = part;
    return HR_OK;
}

/* The children of node `at`, behind all nodes so far. */
static hr_status add_children(builder *b, size_t at)
{
    share s = b->shares[at];
    size_t first = b->u->n_nodes;
    if (s.from < s.to && b->entries[s.from].text.n == s.depth)
        b->u->nodes[at].token = b->entries[s.from++].id;
    for (size_t i = s.from, end; i < s.to; i = end) {
        uint8_t byte = (uint8_t)b->entries[i].text.p[s.depth];
        for (end = i + 1; end < s.to && (uint8_t)b->entries[end].text.p[s.depth] == byte;) end++;
        HR_TRY(add_node(b, byte, (share){ i, end, s.depth + 1 }));
    }
    b->u->nodes[at].first = (int32_t)first;
    b->u->nodes[at].count = (uint16_t)(b->u->n_nodes - first);
    return HR_OK;
}

static hr_status make_trie(hr_unigram *u, const entry *entries, size_t n)
{
    builder b = { .u = u, .entries = entries };
    hr_status st = add_node(&b, 0, (share){ 0, n, 0 });
    for (size_t at = 0; !st && at < u->n_nodes; at++) st = add_children(&b, at);
    hr_free(b.shares);
    return st;
}

/* The child of a node for a byte, or -1. */
static int32_t child(const hr_unigram *u, int32_t at, uint8_t byte)
{
    size_t low = (size_t)u->nodes[at].first, high = low + u->nodes[at].count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (u->nodes[mid].byte < byte) low = mid + 1;
        else high = mid;
    }
    bool found = low < (size_t)u->nodes[at].first + u->nodes[at].count;
    return found && u->nodes[low].byte == byte ? (int32_t)low : -1;
}

/* ---- loading ---------------------------------------------------------------------------------
 */

static void find_bytes(hr_unigram *u)
{
    for (int i = 0; i < 256; i++) {
        char name[8];
        int n = snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        u->byte_id[i] = hr_vocab_find(u->vocab, (hr_str){ name, (size_t)n });
    }
}

hr_status hr_unigram_finish(hr_unigram *u, size_t n)
{
    entry *entries = hr_alloc_array0(n, sizeof *entries);
    if (!entries) return hr_fail(HR_RESOURCE_EXHAUSTED, "unigram: memory for %zu tokens", n);
    size_t used = 0;
    u->unknown_score = n ? u->scores[0] : 0;
    for (size_t i = 0; i < n; i++) {
        if (u->scores[i] < u->unknown_score) u->unknown_score = u->scores[i];
        if (u->vocab->tokens[i].text.n)
            entries[used++] = (entry){ u->vocab->tokens[i].text, (int32_t)i };
    }
    u->unknown_score -= UNKNOWN_PENALTY;
    qsort(entries, used, sizeof *entries, by_text);
    hr_status st = make_trie(u, entries, used);
    hr_free(entries);
    if (u->byte_fallback) find_bytes(u);
    return st;
}

/* ---- encoding --------------------------------------------------------------------------------
 */

static void offer(hr_unigram_step *to, double score, size_t start, int32_t id)
{
    if (to->start != SIZE_MAX && score <= to->score) return;
    *to = (hr_unigram_step){ score, start, id };
}

/* The best ways to reach every place of the word. */
static void fill(const hr_unigram *u, hr_str word, hr_unigram_step *steps)
{
    for (size_t i = 0; i <= word.n; i++) steps[i].start = SIZE_MAX;
    steps[0].score = 0;
    for (size_t i = 0, len; i < word.n; i += len) {
        hr_utf8_decode(hr_str_slice(word, i, word.n), &len);
        double here = steps[i].score;
        bool alone = false; /* the character is a token */
        int32_t at = 0;
        for (size_t end = i; end < word.n;) {
            at = child(u, at, (uint8_t)word.p[end++]);
            if (at < 0) break;
            int32_t id = u->nodes[at].token;
            if (id < 0) continue;
            offer(&steps[end], here + u->scores[id], i, id);
            alone = alone || end - i == len;
        }
        if (!alone) offer(&steps[i + len], here + u->unknown_score, i, u->unk);
    }
}

/* A run of unknown characters: its bytes where every one has a token, else one unknown. */
static hr_status add_unknown(const hr_unigram *u, hr_str run, hr_ids *ids)
{
    bool known = u->byte_fallback;
    for (size_t i = 0; known && i < run.n; i++) known = u->byte_id[(uint8_t)run.p[i]] >= 0;
    if (!known) return hr_ids_add(ids, u->unk);
    for (size_t i = 0; i < run.n; i++) HR_TRY(hr_ids_add(ids, u->byte_id[(uint8_t)run.p[i]]));
    return HR_OK;
}

/* Turns the way back from the end into a way forwards: steps[i].next is set. */
static void turn(hr_unigram_step *steps, size_t n)
{
    for (size_t end = n, next = SIZE_MAX; end != SIZE_MAX;) {
        size_t start = end ? steps[end].start : SIZE_MAX;
        steps[end].start = next; /* from now on: where the step after this place ends */
        next = end;
        end = start;
    }
}

hr_status hr_unigram_encode(const hr_unigram *u, hr_str word, hr_unigram_scratch *s, hr_ids *ids)
{
    if (word.n == 0) return HR_OK;
    HR_TRY(hr_grow((void **)&s->steps, &s->capacity, word.n + 1, sizeof *s->steps));
    fill(u, word, s->steps);
    turn(s->steps, word.n);
    size_t unknown = SIZE_MAX; /* where a run of unknown characters began */
    for (size_t at = 0, end; at < word.n; at = end) {
        end = s->steps[at].start;
        bool is_unknown = s->steps[end].id == u->unk;
        if (is_unknown && unknown == SIZE_MAX) unknown = at;
        if (!is_unknown && unknown != SIZE_MAX) {
            HR_TRY(add_unknown(u, hr_str_slice(word, unknown, at), ids));
            unknown = SIZE_MAX;
        }
        if (!is_unknown) HR_TRY(hr_ids_add(ids, s->steps[end].id));
    }
    return unknown == SIZE_MAX ? HR_OK : add_unknown(u, hr_str_slice(word, unknown, word.n), ids);
}

void hr_unigram_deinit(hr_unigram *u)
{
    hr_free(u->nodes);
    hr_free(u->scores);
    *u = (hr_unigram){ 0 };
}

void hr_unigram_scratch_deinit(hr_unigram_scratch *s)
{
    hr_free(s->steps);
    *s = (hr_unigram_scratch){ 0 };
}
