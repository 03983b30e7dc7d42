/* Prompts from a file: ShareGPT's JSON (recorded conversations), or one JSON object a line.
 *
 * The rules are vLLM's, so that the same file gives the same kind of load: of a conversation the
 * first two turns are taken, as prompt and answer; too short and too long ones are left out; the
 * order is drawn from the seed, and a file with too few prompts is gone through again. */
#include "base/file.h"
#include "bench/bench_int.h"

#define MAX_FILE_BYTES ((size_t)2 << 30)
/* vLLM's bounds of a ShareGPT pair, tokens. */
#define LEAST_TOKENS 4
#define MOST_PROMPT  1024
#define MOST_TOTAL   2048

typedef struct candidates {
    hr_bench_prompt *at; /* owned [n] */
    size_t n, capacity;
} candidates;

static hr_status add_candidate(candidates *c, const hr_bench_prompt *p)
{
    HR_TRY(hr_grow((void **)&c->at, &c->capacity, c->n + 1, sizeof *c->at));
    c->at[c->n++] = *p;
    return HR_OK;
}

static void shuffle(hr_bench_random *r, candidates *c)
{
    for (size_t i = c->n; i > 1; i--) {
        size_t j = (size_t)hr_bench_random_below(r, i);
        hr_bench_prompt t = c->at[i - 1];
        c->at[i - 1] = c->at[j];
        c->at[j] = t;
    }
}

/* n of the candidates; round again when there are fewer. */
static hr_status choose(const candidates *c, const char *path, size_t n, hr_bench_prompts *out)
{
    if (!c->n) return hr_fail(HR_INVALID_ARGUMENT, "%s holds no prompt that can be used", path);
    out->at = hr_arena_array(&out->arena, n, sizeof *out->at);
    if (!out->at) return hr_fail(HR_RESOURCE_EXHAUSTED, "%zu prompts", n);
    out->n = n;
    for (size_t i = 0; i < n; i++) out->at[i] = c->at[i % c->n];
    return HR_OK;
}

/* The file's bytes, as long-lived as the prompts that point into them. */
static hr_status slurp(const char *path, hr_arena *arena, hr_str *out)
{
    hr_buf text = { 0 };
    hr_status st = hr_file_slurp(path, MAX_FILE_BYTES, &text);
    char *copy = st ? NULL : hr_arena_copy(arena, text.n ? text.p : "", text.n);
    if (!st && !copy) st = hr_fail(HR_RESOURCE_EXHAUSTED, "%s", path);
    *out = (hr_str){ copy, text.n };
    hr_buf_deinit(&text);
    return st;
}

/* ---- ShareGPT -------------------------------------------------------------------------------- */

typedef struct counter {
    const hr_tokenizer *tokenizer;
    hr_tokenizer_scratch scratch;
    hr_ids ids;
} counter;

static hr_status count_tokens(counter *c, hr_str text, int64_t *n)
{
    hr_text_span span = { text, HR_SPAN_PLAIN };
    c->ids.n = 0;
    HR_TRY(hr_tokenizer_encode(c->tokenizer, &span, 1, HR_ENCODE_DEFAULT, &c->scratch, &c->ids));
    *n = (int64_t)c->ids.n;
    return HR_OK;
}

/* The value of a conversation's turn; n 0 when there is none. */
static hr_str turn(const hr_json *entry, size_t i)
{
    const hr_json *turns = hr_json_get(entry, "conversations");
    if (!turns || turns->type != HR_JSON_ARRAY || turns->count < 2) return (hr_str){ 0 };
    const hr_json *value = hr_json_get(&turns->items[i], "value");
    return value && value->type == HR_JSON_STRING ? value->text : (hr_str){ 0 };
}

/* Adds candidate i when it is of a useful size. */
static hr_status try_pair(const hr_bench_data_options *o, const hr_json *entry, counter *count,
                          candidates *found)
{
    hr_str prompt = turn(entry, 0), answer = turn(entry, 1);
    if (!prompt.n || !answer.n) return HR_OK;
    hr_bench_prompt p = { .text = prompt, .output_tokens = o->sharegpt_output_len };
    HR_TRY(count_tokens(count, prompt, &p.input_tokens));
    if (p.input_tokens < LEAST_TOKENS || p.input_tokens > MOST_PROMPT) return HR_OK;
    if (!p.output_tokens) {
        HR_TRY(count_tokens(count, answer, &p.output_tokens));
        if (p.output_tokens < LEAST_TOKENS) return HR_OK;
    }
    if (p.input_tokens + p.output_tokens > MOST_TOTAL) return HR_OK;
    return add_candidate(found, &p);
}

/* Entries in a drawn order, until there are enough. */
static hr_status pick_pairs(const hr_bench_data_options *o, const hr_json *list, size_t n,
                            candidates *found)
{
    counter count = { .tokenizer = o->tokenizer };
    hr_bench_random r;
    hr_bench_random_init(&r, (uint64_t)o->seed, 1);
    size_t *order = hr_alloc_array0(list->count, sizeof *order);
    hr_status st = order ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "conversations");
    for (size_t i = 0; !st && i < list->count; i++) order[i] = i;
    for (size_t i = 0; !st && i < list->count && found->n < n; i++) {
        size_t j = i + (size_t)hr_bench_random_below(&r, list->count - i), at = order[j];
        order[j] = order[i];
        st = try_pair(o, &list->items[at], &count, found);
    }
    hr_free(order);
    hr_tokenizer_scratch_deinit(&count.scratch);
    hr_ids_deinit(&count.ids);
    return st;
}

hr_status hr_bench_prompts_sharegpt(const hr_bench_data_options *o, size_t n, hr_bench_prompts *out)
{
    if (!o->tokenizer)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--dataset-name sharegpt counts tokens: give --tokenizer MODEL or "
                       "tokenizer.json");
    candidates found = { 0 };
    const hr_json *list = NULL;
    hr_str text;
    hr_status st = slurp(o->path, &out->arena, &text);
    if (!st) st = hr_json_parse(text, NULL, &out->arena, &list);
    if (!st && (list->type != HR_JSON_ARRAY || !list->count))
        st = hr_fail(HR_INVALID_ARGUMENT, "it is not a list of conversations");
    if (st) return hr_fail_prefix(st, "%s", o->path);
    st = pick_pairs(o, list, n, &found);
    if (!st) st = choose(&found, o->path, n, out);
    hr_free(found.at);
    return st;
}

/* ---- one object a line ----------------------------------------------------------------------- */

static hr_status take_ids(const hr_json *list, hr_arena *arena, hr_bench_prompt *p)
{
    int32_t *ids = hr_arena_array(arena, list->count + 1, sizeof *ids);
    if (!ids) return hr_fail(HR_RESOURCE_EXHAUSTED, "prompts");
    for (size_t i = 0; i < list->count; i++) {
        int64_t id;
        HR_TRY(hr_json_to_i64(&list->items[i], "a token id", &id));
        if (id < 0 || id > INT32_MAX)
            return hr_fail(HR_OUT_OF_RANGE, "%lld is no token id", (long long)id);
        ids[i] = (int32_t)id;
    }
    p->ids = ids;
    p->n_ids = list->count;
    p->input_tokens = (int64_t)list->count;
    return HR_OK;
}

/* {"prompt": text or ids, "output_tokens": N}; the latter may be missing. */
static hr_status take_custom(const hr_bench_data_options *o, hr_str line, hr_arena *arena,
                             candidates *found)
{
    const hr_json *v = NULL;
    hr_bench_prompt p = { .output_tokens = o->custom_output_len };
    HR_TRY(hr_json_parse(line, NULL, arena, &v));
    const hr_json *prompt = hr_json_get(v, "prompt"), *n = hr_json_get(v, "output_tokens");
    if (!prompt) return hr_fail(HR_INVALID_ARGUMENT, "no \"prompt\"");
    if (prompt->type == HR_JSON_ARRAY) HR_TRY(take_ids(prompt, arena, &p));
    else HR_TRY(hr_json_to_str(prompt, "prompt", &p.text));
    if (!p.n_ids && !p.text.n) return hr_fail(HR_INVALID_ARGUMENT, "an empty prompt");
    if (n) HR_TRY(hr_json_to_i64(n, "output_tokens", &p.output_tokens));
    if (p.output_tokens < 1) return hr_fail(HR_OUT_OF_RANGE, "output_tokens must be 1 or more");
    return add_candidate(found, &p);
}

hr_status hr_bench_prompts_custom(const hr_bench_data_options *o, size_t n, hr_bench_prompts *out)
{
    candidates found = { 0 };
    hr_bench_random r;
    hr_bench_random_init(&r, (uint64_t)o->seed, 1);
    hr_str text;
    HR_TRY(slurp(o->path, &out->arena, &text));
    hr_status st = HR_OK;
    for (size_t from = 0, number = 1; !st && from < text.n; number++) {
        size_t end = hr_str_find(text, HR_STR("\n"), from);
        if (end == SIZE_MAX) end = text.n;
        hr_str line = hr_str_trim(hr_str_slice(text, from, end));
        if (line.n) st = take_custom(o, line, &out->arena, &found);
        if (st) st = hr_fail_prefix(st, "%s: line %zu", o->path, number);
        from = end + 1;
    }
    shuffle(&r, &found);
    if (!st) st = choose(&found, o->path, n, out);
    hr_free(found.at);
    return st;
}
