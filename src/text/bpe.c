/* Byte-pair encoding: the pair of lowest rank, leftmost first, merges until none is left.
 *
 * hr_bpe is immutable after loading; a word is merged in the caller's scratch, a list linked by
 * index with a heap of candidate pairs beside it. Its one clever idea is Hugging Face's as well: a
 * merge only pushes its two new pairs, and stale candidates are known when popped because their
 * pair no longer merges to what they promised. So a word of n symbols takes O(n log n), and a
 * million equal letters take as long as a million different ones. */
#include "text/text_int.h"

#include <stdio.h>

#include "base/utf8.h"

#define EMPTY UINT64_MAX
/* Symbols of words that are merged without a heap. */
#define FEW 48

/* ---- the table of merges ----------------------------------------------------------------------
 */

static uint64_t make_pair(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t merge_slot(const hr_bpe *b, uint64_t pair)
{
    uint64_t h = (pair ^ b->vocab->seed) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32) * (b->vocab->seed | 1);
    size_t i = (size_t)(h >> 20) & b->mask;
    while (b->merges[i].pair != pair && b->merges[i].pair != EMPTY) i = (i + 1) & b->mask;
    return i;
}

/* The merge of two neighbours, or NULL. */
static const hr_merge *find_merge(const hr_bpe *b, int32_t left, int32_t right)
{
    const hr_merge *m = &b->merges[merge_slot(b, make_pair(left, right))];
    return m->pair == EMPTY ? NULL : m;
}

/* The rank of their merge, UINT32_MAX where there is none; *into is what they become. */
static uint32_t rank_of(const hr_bpe *b, int32_t left, int32_t right, int32_t *into)
{
    const hr_merge *m = &b->merges[merge_slot(b, make_pair(left, right))];
    *into = m->id;
    return m->pair == EMPTY ? UINT32_MAX : m->rank;
}

hr_status hr_bpe_init_merges(hr_bpe *b, size_t n)
{
    size_t slots = 64;
    while (slots - slots / 4 <= n && slots < SIZE_MAX / 64) slots *= 2;
    b->merges = hr_alloc_array0(slots, sizeof *b->merges);
    if (!b->merges) return hr_fail(HR_RESOURCE_EXHAUSTED, "memory for %zu merges", n);
    for (size_t i = 0; i < slots; i++) b->merges[i].pair = EMPTY;
    b->mask = slots - 1;
    b->n = 0;
    return HR_OK;
}

static hr_status unknown_token(hr_str text)
{
    return hr_fail(HR_INVALID_ARGUMENT, "merges: token '%.*s' is not in the vocabulary",
                   HR_STR_ARG(text));
}

hr_status hr_bpe_add_merge(hr_bpe *b, hr_str left, hr_str right)
{
    char small[256], *joined = small;
    size_t n;
    if (!hr_mul_add(1, left.n, right.n, &n)) return unknown_token(left);
    int32_t l = hr_vocab_find(b->vocab, left), r = hr_vocab_find(b->vocab, right);
    if (l < 0) return unknown_token(left);
    if (r < 0) return unknown_token(right);
    if (n > sizeof small && !(joined = hr_alloc(n)))
        return hr_fail(HR_RESOURCE_EXHAUSTED, "memory for a merge of %zu bytes", n);
    memcpy(joined, left.p, left.n);
    memcpy(joined + left.n, right.p, right.n);
    int32_t id = hr_vocab_find(b->vocab, (hr_str){ joined, n });
    hr_status st = id < 0 ? unknown_token((hr_str){ joined, n }) : HR_OK;
    if (joined != small) hr_free(joined);
    if (st) return st;
    /* a pair could then come back, and a heap's stale candidate with it */
    b->empty_parts = b->empty_parts || !left.n || !right.n;
    uint64_t pair = make_pair(l, r);
    b->merges[merge_slot(b, pair)] = (hr_merge){ .pair = pair, .rank = (uint32_t)b->n++, .id = id };
    return HR_OK;
}

void hr_bpe_put_merge(hr_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t pair = make_pair(left, right);
    hr_merge *m = &b->merges[merge_slot(b, pair)];
    if (m->pair == EMPTY) b->n++;
    *m = (hr_merge){ .pair = pair, .rank = rank, .id = id };
}

hr_status hr_bpe_find_bytes(hr_bpe *b)
{
    for (int i = 0; i < 256; i++) {
        char name[8];
        size_t n = b->byte_level ? hr_utf8_encode(hr_bytes_to_char((uint8_t)i), name)
                                 : (size_t)snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        b->byte_id[i] = hr_vocab_find(b->vocab, (hr_str){ name, n });
    }
    return HR_OK;
}

/* ---- what a word starts as --------------------------------------------------------------------
 */

/* Room for one more is there. */
static void add_id(hr_bpe_scratch *s, int32_t id)
{
    s->ids[s->n++] = id;
}

/* Bytes that the vocabulary does not know vanish, as at Hugging Face. */
static void start_from_bytes(const hr_bpe *b, hr_str word, hr_bpe_scratch *s)
{
    for (size_t i = 0; i < word.n; i++) {
        int32_t id = b->byte_id[(unsigned char)word.p[i]];
        if (id >= 0) add_id(s, id);
    }
}

/* The same, with whole characters where they are certain. */
static void start_from_known_chars(const hr_bpe *b, hr_str word, hr_bpe_scratch *s)
{
    for (size_t i = 0, len = 1; i < word.n; i += len, len = 1) {
        bool ascii = (unsigned char)word.p[i] < 0x80;
        int32_t id =
            ascii ? b->byte_id[(unsigned char)word.p[i]] : hr_bpe_char_at(b->chars, word, i, &len);
        if (id >= 0) add_id(s, id);
        else start_from_bytes(b, hr_str_slice(word, i, i + len), s);
    }
}

/* True when every byte of a character has its <0xHH>. */
static bool has_bytes(const hr_bpe *b, hr_str c)
{
    for (size_t i = 0; i < c.n; i++)
        if (b->byte_id[(unsigned char)c.p[i]] < 0) return false;
    return true;
}

static void start_from_chars(const hr_bpe *b, hr_str word, hr_bpe_scratch *s)
{
    bool pending = false; /* an unk that a fused run may still join */
    for (size_t i = 0, len; i < word.n; i += len) {
        hr_utf8_decode(hr_str_slice(word, i, word.n), &len);
        hr_str c = { word.p + i, len };
        int32_t id = hr_vocab_find(b->vocab, c);
        if (id < 0 && b->byte_fallback && has_bytes(b, c)) {
            /* Hugging Face puts a waiting unk after these bytes, not before; so do we */
            start_from_bytes(b, c, s);
            continue;
        }
        if (pending && (id >= 0 || !b->fuse_unk)) add_id(s, b->unk);
        if (id >= 0) add_id(s, id);
        pending = id < 0 && b->unk >= 0;
    }
    if (pending) add_id(s, b->unk);
}

/* ---- the heap ------------------------------------------------------------------------------- */

static void sift_down(hr_candidate *heap, size_t n, size_t i)
{
    hr_candidate moving = heap[i];
    for (size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && heap[child + 1].key < heap[child].key) child++;
        if (heap[child].key >= moving.key) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}

static void push(hr_bpe_scratch *s, hr_candidate c)
{
    size_t i = s->n_heap++;
    for (; i > 0 && s->heap[(i - 1) / 2].key > c.key; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = c;
}

static hr_candidate pop(hr_bpe_scratch *s)
{
    hr_candidate top = s->heap[0];
    s->heap[0] = s->heap[--s->n_heap];
    if (s->n_heap) sift_down(s->heap, s->n_heap, 0);
    return top;
}

/* ---- merging -------------------------------------------------------------------------------- */

/* The candidate that symbol `at` and its right neighbour make. */
static bool candidate(const hr_bpe *b, const hr_bpe_scratch *s, int32_t at, hr_candidate *out)
{
    int32_t next = s->symbols[at].next;
    const hr_merge *m = next < 0 ? NULL : find_merge(b, s->symbols[at].id, s->symbols[next].id);
    if (m) *out = (hr_candidate){ (uint64_t)m->rank << 32 | (uint32_t)at, m->id };
    return m != NULL;
}

static void fill_heap(const hr_bpe *b, hr_bpe_scratch *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->symbols[i] = (hr_symbol){ s->ids[i], (int32_t)i - 1, (int32_t)i + 1 };
    s->symbols[s->n - 1].next = -1;
    s->n_heap = 0;
    for (size_t i = 0; i < s->n; i++)
        if (candidate(b, s, (int32_t)i, &s->heap[s->n_heap])) s->n_heap++;
    for (size_t i = s->n_heap / 2; i-- > 0;) sift_down(s->heap, s->n_heap, i);
}

static void merge_all(const hr_bpe *b, hr_bpe_scratch *s)
{
    fill_heap(b, s);
    while (s->n_heap) {
        hr_candidate top = pop(s), fresh;
        int32_t at = (int32_t)(top.key & UINT32_MAX);
        hr_symbol *left = &s->symbols[at];
        if (left->id < 0 || !candidate(b, s, at, &fresh) || fresh.id != top.id) continue;
        hr_symbol *right = &s->symbols[left->next];
        left->id = top.id;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0) s->symbols[left->next].prev = at;
        if (left->prev >= 0 && candidate(b, s, left->prev, &fresh)) push(s, fresh);
        if (candidate(b, s, at, &fresh)) push(s, fresh);
    }
}

/* The same for few symbols, where looking at all pairs is quicker than keeping them in order. */
size_t hr_bpe_merge_few(const hr_bpe *b, int32_t *ids, size_t n, uint32_t *worst)
{
    uint32_t rank[FEW]; /* of the pair that each makes with the next */
    int32_t into[FEW];
    for (size_t i = 0; i + 1 < n; i++) rank[i] = rank_of(b, ids[i], ids[i + 1], &into[i]);
    while (n > 1) {
        size_t best = 0, pairs = n - 1;
        for (size_t i = 1; i < pairs; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == UINT32_MAX) break;
        if (rank[best] > *worst) *worst = rank[best];
        ids[best] = into[best];
        for (size_t i = best + 1; i < pairs; i++) {
            ids[i] = ids[i + 1];
            rank[i] = rank[i + 1];
            into[i] = into[i + 1];
        }
        n--;
        if (best + 1 < n) rank[best] = rank_of(b, ids[best], ids[best + 1], &into[best]);
        if (best > 0) rank[best - 1] = rank_of(b, ids[best - 1], ids[best], &into[best - 1]);
    }
    return n;
}

/* The id of a word that is a token by itself, or -1. */
static hr_status whole_word(const hr_bpe *b, hr_str word, hr_bpe_scratch *s, int32_t *id)
{
    *id = -1;
    if (word.n > b->longest) return HR_OK;
    if (b->byte_level) {
        hr_buf_clear(&s->word);
        hr_bytes_add_text(&s->word, word);
        HR_TRY(hr_buf_status(&s->word));
        word = hr_buf_str(&s->word);
    }
    *id = hr_vocab_find(b->vocab, word);
    return HR_OK;
}

static hr_status make_room(size_t n, hr_bpe_scratch *s)
{
    HR_TRY(hr_grow((void **)&s->symbols, &s->capacity, n, sizeof *s->symbols));
    /* each of fewer than n merges takes one candidate out and puts at most two in */
    return hr_grow((void **)&s->heap, &s->heap_capacity, 2 * n, sizeof *s->heap);
}

static hr_status add_few(const hr_bpe *b, hr_bpe_scratch *s, hr_ids *ids)
{
    uint32_t worst = 0;
    size_t n = hr_bpe_merge_few(b, s->ids, s->n, &worst);
    HR_TRY(hr_ids_reserve(ids, n));
    memcpy(ids->p + ids->n, s->ids, n * sizeof *s->ids);
    ids->n += n;
    return HR_OK;
}

hr_status hr_bpe_encode(const hr_bpe *b, hr_str word, hr_bpe_scratch *s, hr_ids *ids)
{
    if (word.n == 0) return HR_OK;
    int32_t whole = -1;
    if (b->ignore_merges) HR_TRY(whole_word(b, word, s, &whole));
    if (whole >= 0) return hr_ids_add(ids, whole);
    HR_TRY(hr_grow((void **)&s->ids, &s->ids_capacity, word.n + 1, sizeof *s->ids));
    s->n = 0;
    if (b->chars) start_from_known_chars(b, word, s);
    else if (b->byte_level) start_from_bytes(b, word, s);
    else start_from_chars(b, word, s);
    if (s->n == 0) return HR_OK;
    if (s->n <= FEW && !b->empty_parts) return add_few(b, s, ids);
    HR_TRY(make_room(s->n, s));
    merge_all(b, s);
    for (int32_t i = 0; i >= 0; i = s->symbols[i].next) HR_TRY(hr_ids_add(ids, s->symbols[i].id));
    return HR_OK;
}

void hr_bpe_deinit(hr_bpe *b)
{
    hr_free(b->merges);
    hr_free(b->chars);
    b->merges = NULL;
    b->chars = NULL;
}

void hr_bpe_scratch_deinit(hr_bpe_scratch *s)
{
    hr_free(s->ids);
    hr_free(s->symbols);
    hr_free(s->heap);
    hr_buf_deinit(&s->word);
    *s = (hr_bpe_scratch){ 0 };
}
