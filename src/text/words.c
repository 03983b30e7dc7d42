/* A cache of words, two places for each hash, the one used last in front.
 *
 * Written by the thread whose scratch it is part of. What it says is what encoding gave for the
 * very same bytes, so ids never depend on what is in it; its size is fixed, so a hostile text can
 * only make it useless. The clever idea: a word of up to 32 bytes is four overlapping loads, which
 * with its length are the word itself, so finding one compares five numbers. */
#include "text/words.h"

#include "base/mem.h"

#define SETS 8192u /* 1 MiB in all: what the processor's second cache holds */

static uint64_t load8(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t load4(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* 1 ≤ n ≤ HR_WORD_BYTES. With n, the key tells the word. */
static void pack(hr_str w, uint64_t key[4])
{
    const unsigned char *b = (const unsigned char *)w.p;
    key[1] = key[2] = key[3] = 0;
    if (w.n > 16) {
        key[0] = load8(w.p);
        key[1] = load8(w.p + 8);
        key[2] = load8(w.p + w.n - 16);
        key[3] = load8(w.p + w.n - 8);
    } else if (w.n >= 8) {
        key[0] = load8(w.p);
        key[1] = load8(w.p + w.n - 8);
    } else if (w.n >= 4) {
        key[0] = load4(w.p) | load4(w.p + w.n - 4) << 32;
    } else {
        key[0] = b[0] | (uint64_t)b[w.n / 2] << 8 | (uint64_t)b[w.n - 1] << 16;
    }
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static size_t set_of(const uint64_t key[4], size_t n)
{
    const uint64_t odd = 0x9E3779B97F4A7C15u, other = 0xD6E8FEB86659FD93u;
    uint64_t h = mix(key[0] ^ odd, key[1] ^ other ^ n);
    if (n > 16) h ^= mix(key[2] ^ other, key[3] ^ odd);
    return (size_t)(h >> 20) % SETS;
}

static bool is(const hr_word *w, const uint64_t key[4], size_t n)
{
    return ((w->key[0] ^ key[0]) | (w->key[1] ^ key[1]) | (w->key[2] ^ key[2]) |
            (w->key[3] ^ key[3]) | (w->n_bytes ^ n)) == 0;
}

hr_status hr_words_init(hr_words *w, uint64_t owner)
{
    if (w->at && w->owner == owner) return HR_OK;
    if (!w->at) w->at = hr_alloc_aligned(2 * SETS * sizeof *w->at, sizeof *w->at);
    if (!w->at) return hr_fail(HR_RESOURCE_EXHAUSTED, "tokenizer: memory for words");
    memset(w->at, 0, 2 * SETS * sizeof *w->at);
    w->owner = owner;
    return HR_OK;
}

hr_word *hr_words_find(hr_words *w, hr_str word)
{
    uint64_t key[4];
    if (word.n == 0 || word.n > HR_WORD_BYTES) return NULL;
    pack(word, key);
    hr_word *first = w->at + 2 * set_of(key, word.n), *second = first + 1;
    if (is(first, key, word.n)) return first;
    hr_word used = *second;
    *second = *first;
    if (is(&used, key, word.n)) *first = used;
    else first->n_bytes = 0;
    return first;
}

void hr_words_keep(hr_word *place, hr_str word, const int32_t *ids, size_t n)
{
    if (n > HR_WORD_IDS) return;
    pack(word, place->key);
    place->n_ids = (uint8_t)n;
    if (n) memcpy(place->ids, ids, n * sizeof *ids);
    place->n_bytes = (uint8_t)word.n;
}

void hr_words_deinit(hr_words *w)
{
    hr_free(w->at);
    *w = (hr_words){ 0 };
}
