/* The vocabulary: id → text and bytes, text → id.
 *
 * Written while a tokenizer is loaded, read by every thread afterwards. Owns all the texts. The
 * table holds only ids; texts are compared where hashes land, and the hash is seeded at random so
 * that no file can make loading quadratic. */
#include "text/text_int.h"

#include <sys/random.h>

/* Ids may leave holes, but not so many that a small file asks for a large table. */
#define HOLES_PER_TOKEN 16
#define HOLES_BASE      65536
/* Bits of a slot that come from the hash. */
#define TAG ((uint64_t)UINT32_MAX << 32)

static uint64_t mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash(const hr_vocab *v, hr_str text)
{
    const uint64_t odd = 0x9E3779B97F4A7C15u;
    uint64_t h = v->seed ^ text.n;
    size_t i = 0;
    for (; i + 8 <= text.n; i += 8) {
        uint64_t word;
        memcpy(&word, text.p + i, 8);
        h = mix(h ^ word, v->seed | odd);
    }
    uint64_t tail = 0;
    if (i < text.n) memcpy(&tail, text.p + i, text.n - i);
    return mix(h ^ tail, odd) ^ h;
}

/* A slot is the upper half of the hash, then id + 1, so that a probe seldom leaves the table. */
static uint64_t make_slot(uint64_t h, size_t id)
{
    return (h & TAG) | (id + 1);
}

static size_t slot_id(uint64_t slot)
{
    return (size_t)(slot & ~TAG) - 1;
}

/* The slot that has the text, or the empty one where it would go. */
static size_t find_slot(const hr_vocab *v, uint64_t h, hr_str text)
{
    size_t i = (size_t)h & v->mask;
    for (; v->slots[i]; i = (i + 1) & v->mask)
        if ((v->slots[i] & TAG) == (h & TAG) &&
            hr_str_eq(v->tokens[slot_id(v->slots[i])].text, text))
            break;
    return i;
}

/* A text that is there keeps its id. */
static void enter(hr_vocab *v, size_t id)
{
    uint64_t h = hash(v, v->tokens[id].text);
    size_t i = find_slot(v, h, v->tokens[id].text);
    if (!v->slots[i]) v->slots[i] = make_slot(h, id);
}

static hr_status resize(hr_vocab *v, size_t slots)
{
    uint64_t *fresh = hr_alloc_array0(slots, sizeof *fresh);
    if (!fresh) return hr_fail(HR_RESOURCE_EXHAUSTED, "vocabulary: memory for its index");
    hr_free(v->slots);
    v->slots = fresh;
    v->mask = slots - 1;
    for (size_t id = 0; id < v->size; id++)
        if (v->tokens[id].text.p) enter(v, id);
    return HR_OK;
}

hr_status hr_vocab_init(hr_vocab *v, size_t expected)
{
    *v = (hr_vocab){ 0 };
    if (getrandom(&v->seed, sizeof v->seed, 0) != (ssize_t)sizeof v->seed)
        return hr_fail(HR_UNAVAILABLE, "vocabulary: no random numbers from the system");
    size_t slots = 64;
    while (slots / 2 < expected && slots < SIZE_MAX / 64) slots *= 2;
    return resize(v, slots);
}

hr_status hr_vocab_put(hr_vocab *v, int64_t id, hr_str text)
{
    if (id < 0 || id >= INT32_MAX ||
        (uint64_t)id >= HOLES_BASE + HOLES_PER_TOKEN * (v->n + 1) + v->mask / 2)
        return hr_fail(HR_OUT_OF_RANGE, "token '%.*s' has id %lld, far from all others",
                       HR_STR_ARG(text), (long long)id);
    size_t at = (size_t)id;
    if (at < v->size && v->tokens[at].text.p)
        return hr_fail(HR_ALREADY_EXISTS, "tokens '%.*s' and '%.*s' both have id %zu",
                       HR_STR_ARG(v->tokens[at].text), HR_STR_ARG(text), at);
    if (2 * (v->n + 1) > v->mask) HR_TRY(resize(v, 2 * (v->mask + 1)));
    HR_TRY(hr_grow((void **)&v->tokens, &v->capacity, at + 1, sizeof *v->tokens));
    while (v->size <= at) v->tokens[v->size++] = (hr_token){ 0 };
    char *copy = hr_arena_copy(&v->arena, text.p, text.n);
    if (!copy) return hr_fail(HR_RESOURCE_EXHAUSTED, "vocabulary: memory for its texts");
    v->tokens[at].text = v->tokens[at].bytes = (hr_str){ copy, text.n };
    v->n++;
    enter(v, at);
    return HR_OK;
}

int32_t hr_vocab_find(const hr_vocab *v, hr_str text)
{
    if (!v->slots) return -1;
    uint64_t slot = v->slots[find_slot(v, hash(v, text), text)];
    return slot ? (int32_t)slot_id(slot) : -1;
}

void hr_vocab_deinit(hr_vocab *v)
{
    hr_free(v->tokens);
    hr_free(v->slots);
    hr_arena_deinit(&v->arena);
    *v = (hr_vocab){ 0 };
}
