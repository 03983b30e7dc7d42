/* Which token ids random prompts are made of: ordinary ones, that every server takes as input.
 *
 * The best source is a tokenizer. Without one the server itself is asked to tokenise a sample of
 * made-up syllables; what comes back exists in its vocabulary and is nothing special by
 * construction. Servers without /tokenize get ids that are plain text in every vocabulary of our
 * day: past the control tokens and single bytes at its start, below where it may end. */
#include <stdlib.h>

#include "bench/bench_int.h"

#define FIRST_ID  1000
#define END_ID    10000
#define MAX_VOCAB (1 << 22)

static hr_status reserve(hr_bench_vocab *v, size_t n)
{
    v->ids = hr_alloc_array0(n, sizeof *v->ids);
    return v->ids ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "a vocabulary of %zu ids", n);
}

/* `most`: only ids below it; 0 = all. */
static hr_status from_tokenizer(const hr_tokenizer *t, size_t most, hr_bench_vocab *v)
{
    size_t size = hr_tokenizer_size(t);
    if (most && most < size) size = most;
    HR_TRY(reserve(v, size));
    for (size_t i = 0; i < size; i++)
        if (!hr_tokenizer_is_special(t, (int32_t)i) && hr_tokenizer_token_bytes(t, (int32_t)i).n)
            v->ids[v->n++] = (int32_t)i;
    return v->n ? HR_OK
                : hr_fail(HR_INVALID_ARGUMENT, "the tokenizer has no ordinary tokens%s",
                          most ? " below --vocab-size" : "");
}

static hr_status from_range(int64_t from, int64_t end, hr_bench_vocab *v)
{
    HR_TRY(reserve(v, (size_t)(end - from)));
    for (int64_t id = from; id < end; id++) v->ids[v->n++] = (int32_t)id;
    return HR_OK;
}

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* The distinct ids of a list; none when it is not one. */
static hr_status from_list(const hr_json *list, hr_bench_vocab *v)
{
    if (!list || list->type != HR_JSON_ARRAY || !list->count) return HR_OK;
    HR_TRY(reserve(v, list->count));
    for (size_t i = 0; i < list->count; i++) {
        int64_t id;
        const hr_json *item = &list->items[i];
        if (item->type == HR_JSON_NUMBER && !hr_json_to_i64(item, "an id", &id) && id >= 0 &&
            id < MAX_VOCAB)
            v->ids[v->n++] = (int32_t)id;
    }
    qsort(v->ids, v->n, sizeof *v->ids, compare_ids);
    size_t kept = 0;
    for (size_t i = 0; i < v->n; i++)
        if (!kept || v->ids[i] != v->ids[kept - 1]) v->ids[kept++] = v->ids[i];
    v->n = kept;
    return HR_OK;
}

/* "bab bac … zuz", a text that meets many tokens. */
static void add_syllables(hr_buf *out)
{
    const char *consonants = "bcdfghklmnprstvwz", *vowels = "aeiou";
    for (const char *a = consonants; *a; a++)
        for (const char *b = vowels; *b; b++)
            for (const char *c = consonants; *c; c++) hr_buf_printf(out, " %c%c%c", *a, *b, *c);
}

static hr_status from_server(hr_http *http, hr_bench_vocab *v)
{
    hr_buf text = { 0 }, body = { 0 }, answer = { 0 };
    hr_arena arena = { 0 };
    const hr_json *json = NULL;
    add_syllables(&text);
    hr_json_writer w = { .out = &body };
    hr_json_begin_object(&w);
    hr_json_key(&w, HR_STR("prompt")); /* vLLM's and ours */
    hr_json_str(&w, hr_buf_str(&text));
    hr_json_key(&w, HR_STR("content")); /* llama.cpp's */
    hr_json_str(&w, hr_buf_str(&text));
    hr_json_key(&w, HR_STR("add_special_tokens"));
    hr_json_bool(&w, false);
    hr_json_end_object(&w);
    hr_status st = HR_OK;
    if (!hr_http_fetch(http, "/tokenize", hr_buf_str(&body), &answer) &&
        !hr_json_parse(hr_buf_str(&answer), NULL, &arena, &json))
        st = from_list(hr_json_get(json, "tokens"), v);
    hr_arena_deinit(&arena);
    hr_buf_deinit(&answer);
    hr_buf_deinit(&body);
    hr_buf_deinit(&text);
    return st;
}

hr_status hr_bench_vocab_make(const hr_bench_data_options *o, hr_http *http, hr_bench_vocab *out)
{
    *out = (hr_bench_vocab){ 0 };
    if (o->vocab_size < 0 || o->vocab_size > MAX_VOCAB)
        return hr_fail(HR_INVALID_ARGUMENT, "--vocab-size must be 1 to %d", MAX_VOCAB);
    if (o->tokenizer) return from_tokenizer(o->tokenizer, (size_t)o->vocab_size, out);
    if (o->vocab_size) {
        /* a small vocabulary is a test's; its control tokens come first all the same */
        int64_t from = o->vocab_size / 4 < FIRST_ID ? o->vocab_size / 4 : FIRST_ID;
        return from_range(from, o->vocab_size, out);
    }
    if (http) HR_TRY(from_server(http, out));
    if (out->n) return HR_OK;
    hr_bench_vocab_deinit(out);
    return from_range(FIRST_ID, END_ID, out);
}

void hr_bench_vocab_deinit(hr_bench_vocab *v)
{
    hr_free(v->ids);
    *v = (hr_bench_vocab){ 0 };
}
