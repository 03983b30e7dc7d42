/* Prompts from a file: ShareGPT's JSON (recorded conversations), or one JSON object a line.
 *
 * The rules are vLLM's, so that the same file gives the same kind of load: of a conversation the
 * first two turns are taken, as prompt and answer; too short and too long ones are left out; the
 * order is drawn from the seed, and a file with too few prompts is gone through again.
 *
 * ShareGPT's file has hundreds of megabytes, of which a benchmark uses a few hundred entries: the
 * list is cut into entries by counting brackets, and only those that are drawn are parsed. Copies
 * of it that end in the middle of an entry are about; what is whole is used, and that is said. */
#include "base/file.h"
#include "base/log.h"
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

/* ---- counting -------------------------------------------------------------------------------- */

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

static void counter_deinit(counter *c)
{
    hr_tokenizer_scratch_deinit(&c->scratch);
    hr_ids_deinit(&c->ids);
}

/* ---- ShareGPT -------------------------------------------------------------------------------- */

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

typedef struct entries {
    hr_str *at; /* owned [n] */
    size_t n, capacity;
} entries;

/* The end of the object that begins at `from`, or SIZE_MAX when the text ends before it does. */
static size_t object_end(hr_str text, size_t from)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = from; i < text.n; i++) {
        char c = text.p[i];
        if (in_string) {
            if (c == '\\') i++;
            in_string = c != '"';
        } else if (c == '"') in_string = true;
        else if (c == '{' || c == '[') depth++;
        else if ((c == '}' || c == ']') && !--depth) return i + 1;
    }
    return SIZE_MAX;
}

static size_t skip_space(hr_str text, size_t i)
{
    while (i < text.n && strchr(" \t\r\n", text.p[i]) && text.p[i]) i++;
    return i;
}

/* The objects of the one list that the text is. */
static hr_status cut(hr_str text, entries *e)
{
    size_t i = skip_space(text, 0);
    bool first = true;
    if (i == text.n || text.p[i] != '[')
        return hr_fail(HR_INVALID_ARGUMENT, "it is not a list of conversations");
    for (i = skip_space(text, i + 1); i < text.n && text.p[i] != ']'; i = skip_space(text, i)) {
        if (!first && text.p[i] == ',') i = skip_space(text, i + 1);
        else if (!first) return hr_fail(HR_INVALID_ARGUMENT, "byte %zu: no comma", i);
        if (i == text.n) break;
        if (text.p[i] != '{') return hr_fail(HR_INVALID_ARGUMENT, "byte %zu: no object", i);
        size_t end = object_end(text, i);
        if (end == SIZE_MAX) break;
        HR_TRY(hr_grow((void **)&e->at, &e->capacity, e->n + 1, sizeof *e->at));
        e->at[e->n++] = hr_str_slice(text, i, end);
        i = end;
        first = false;
    }
    if (i == text.n || text.p[i] != ']')
        hr_log(HR_LOG_WARNING, "bench: the list of conversations breaks off; %zu are whole", e->n);
    return HR_OK;
}

/* Entries in a drawn order, until there are enough. */
static hr_status pick_pairs(const hr_bench_data_options *o, const entries *e, size_t n,
                            hr_arena *arena, candidates *found)
{
    counter count = { .tokenizer = o->tokenizer };
    hr_bench_random r;
    hr_bench_random_init(&r, (uint64_t)o->seed, 1);
    hr_status st = HR_OK;
    for (size_t i = 0; !st && i < e->n && found->n < n; i++) {
        size_t j = i + (size_t)hr_bench_random_below(&r, e->n - i);
        hr_str entry = e->at[j];
        const hr_json *v = NULL;
        e->at[j] = e->at[i];
        st = hr_json_parse(entry, NULL, arena, &v);
        if (!st) st = try_pair(o, v, &count, found);
    }
    counter_deinit(&count);
    return st;
}

hr_status hr_bench_prompts_sharegpt(const hr_bench_data_options *o, size_t n, hr_bench_prompts *out)
{
    if (!o->tokenizer)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--dataset-name sharegpt counts tokens: give --tokenizer MODEL or "
                       "tokenizer.json");
    candidates found = { 0 };
    entries e = { 0 };
    hr_str text;
    hr_status st = slurp(o->path, &out->arena, &text);
    if (!st) st = cut(text, &e);
    if (!st) st = pick_pairs(o, &e, n, &out->arena, &found);
    if (st) st = hr_fail_prefix(st, "%s", o->path);
    if (!st) st = choose(&found, o->path, n, out);
    hr_free(found.at);
    hr_free(e.at);
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
static hr_status take_custom(const hr_bench_data_options *o, hr_str line, counter *count,
                             hr_arena *arena, candidates *found)
{
    const hr_json *v = NULL;
    hr_bench_prompt p = { .output_tokens = o->custom_output_len };
    HR_TRY(hr_json_parse(line, NULL, arena, &v));
    const hr_json *prompt = hr_json_get(v, "prompt"), *n = hr_json_get(v, "output_tokens");
    if (!prompt) return hr_fail(HR_INVALID_ARGUMENT, "no \"prompt\"");
    if (prompt->type == HR_JSON_ARRAY) HR_TRY(take_ids(prompt, arena, &p));
    else HR_TRY(hr_json_to_str(prompt, "prompt", &p.text));
    if (p.text.n && o->tokenizer) HR_TRY(count_tokens(count, p.text, &p.input_tokens));
    if (!p.n_ids && !p.text.n) return hr_fail(HR_INVALID_ARGUMENT, "an empty prompt");
    if (n) HR_TRY(hr_json_to_i64(n, "output_tokens", &p.output_tokens));
    if (p.output_tokens < 1) return hr_fail(HR_OUT_OF_RANGE, "output_tokens must be 1 or more");
    return add_candidate(found, &p);
}

hr_status hr_bench_prompts_custom(const hr_bench_data_options *o, size_t n, hr_bench_prompts *out)
{
    candidates found = { 0 };
    counter count = { .tokenizer = o->tokenizer };
    hr_bench_random r;
    hr_bench_random_init(&r, (uint64_t)o->seed, 1);
    hr_str text;
    HR_TRY(slurp(o->path, &out->arena, &text));
    hr_status st = HR_OK;
    for (size_t from = 0, number = 1; !st && from < text.n; number++) {
        size_t end = hr_str_find(text, HR_STR("\n"), from);
        if (end == SIZE_MAX) end = text.n;
        hr_str line = hr_str_trim(hr_str_slice(text, from, end));
        if (line.n) st = take_custom(o, line, &count, &out->arena, &found);
        if (st) st = hr_fail_prefix(st, "%s: line %zu", o->path, number);
        from = end + 1;
    }
    shuffle(&r, &found);
    counter_deinit(&count);
    if (!st) st = choose(&found, o->path, n, out);
    hr_free(found.at);
    return st;
}
