/* Whole characters where bytes would only become them: byte-level BPE from a third of the symbols.
 *
 * Filled while a tokenizer is loaded, read by every thread afterwards. A Chinese character's three
 * bytes nearly always merge to its token before anything else happens to them. Where that is
 * certain, a word starts with the token. It is certain for a character when
 *   - its bytes alone merge to its token, by merges of no later rank than any merge that the token
 *     takes part in: what is done early is then done in the same order among itself;
 *   - no token that holds a part of a character reaches over the boundary on either side. Those
 *     boundaries are told by the byte before and the byte behind, for all tokens that merges make.
 * All other characters start as bytes. */
#include "text/text_int.h"

#include "base/utf8.h"

#define N_CHARS 0x10000u

static bool is_inside(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

static size_t boundary(char before, char behind)
{
    return (size_t)(unsigned char)before << 8 | (unsigned char)behind;
}

static void mark_boundaries(hr_bpe_chars *c, hr_str token)
{
    if (!token.n || (!is_inside(token.p[0]) && !hr_utf8_incomplete_tail(token))) return;
    for (size_t i = 1; i < token.n; i++) {
        size_t at = boundary(token.p[i - 1], token.p[i]);
        if (!is_inside(token.p[i])) c->crossed[at / 8] |= (uint8_t)(1u << at % 8);
    }
}

/* first[id]: the best rank of a merge that the token takes part in. */
static void read_merges(const hr_bpe *b, hr_bpe_chars *c, uint32_t *first)
{
    for (size_t id = 0; id < b->vocab->size; id++) first[id] = UINT32_MAX;
    for (size_t i = 0; i <= b->mask; i++) {
        const hr_merge *m = &b->merges[i];
        if (m->pair == UINT64_MAX) continue;
        uint32_t *left = &first[m->pair >> 32], *right = &first[m->pair & UINT32_MAX];
        if (m->rank < *left) *left = m->rank;
        if (m->rank < *right) *right = m->rank;
        mark_boundaries(c, b->vocab->tokens[m->id].bytes);
    }
}

static void add_char(const hr_bpe *b, hr_bpe_chars *c, size_t id, const uint32_t *first)
{
    hr_str bytes = b->vocab->tokens[id].bytes;
    int32_t ids[4];
    size_t len;
    uint32_t worst = 0;
    if (bytes.n < 2 || bytes.n > 3) return;
    uint32_t ch = hr_utf8_decode(bytes, &len);
    if (ch == HR_UTF8_BAD || len != bytes.n) return;
    for (size_t i = 0; i < len; i++) ids[i] = b->byte_id[(unsigned char)bytes.p[i]];
    size_t n = hr_bpe_merge_few(b, ids, len, &worst);
    if (n == 1 && (size_t)ids[0] == id && worst < first[id]) c->token[ch] = (int32_t)id + 1;
}

hr_status hr_bpe_find_chars(hr_bpe *b)
{
    bool known = b->byte_level && !b->empty_parts;
    for (int i = 0; i < 256; i++) known = known && b->byte_id[i] >= 0;
    if (!known) return HR_OK;
    uint32_t *first = hr_alloc_array0(b->vocab->size, sizeof *first);
    b->chars = hr_new0(hr_bpe_chars);
    if (first && b->chars) {
        read_merges(b, b->chars, first);
        for (size_t id = 0; id < b->vocab->size; id++) add_char(b, b->chars, id, first);
    }
    hr_free(first);
    return first && b->chars ? HR_OK
                             : hr_fail(HR_RESOURCE_EXHAUSTED, "tokenizer: memory for characters");
}

/* True when a token may hold a part of what lies on one side of `at`, and some of the other. */
static bool is_crossed(const hr_bpe_chars *c, hr_str word, size_t at)
{
    if (at == 0 || at == word.n) return false;
    size_t i = boundary(word.p[at - 1], word.p[at]);
    return c->crossed[i / 8] >> i % 8 & 1;
}

int32_t hr_bpe_char_at(const hr_bpe_chars *c, hr_str word, size_t at, size_t *len)
{
    uint32_t ch = hr_utf8_decode(hr_str_slice(word, at, word.n), len);
    if (ch >= N_CHARS || !c->token[ch]) return -1;
    if (is_crossed(c, word, at) || is_crossed(c, word, at + *len)) return -1;
    return c->token[ch] - 1;
}
