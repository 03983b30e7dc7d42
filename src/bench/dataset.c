/* Prompts: drawn at random, or read from a file (dataset_file.c).
 *
 * Everything is made before the clock starts. Random prompts are token ids, which a completions
 * endpoint takes as they are, so that every server computes exactly the same number of tokens; a
 * chat endpoint takes text only, and gets the text of such ids. */
#include <math.h>

#include "bench/bench_int.h"

/* Refuses what no server could hold before anything is allocated from it. */
#define MAX_LENGTH  (1 << 24)
#define MAX_PROMPTS (1 << 22)

void hr_bench_data_init(hr_bench_data_options *o)
{
    *o = (hr_bench_data_options){
        .random_input_len = 1024,
        .random_output_len = 128,
        .custom_output_len = 256,
        .num_prompts = 1000,
    };
}

/* ---- random ---------------------------------------------------------------------------------- */

/* From len × (1 - ratio) to len × (1 + ratio), both ends included; at least 1. */
static int64_t draw_length(hr_bench_random *r, int64_t len, double ratio)
{
    int64_t low = (int64_t)floor((double)len * (1 - ratio));
    int64_t high = (int64_t)ceil((double)len * (1 + ratio));
    if (low < 1) low = 1;
    return low + (int64_t)hr_bench_random_below(r, (uint64_t)(high - low + 1));
}

static void draw_ids(hr_bench_random *r, const hr_bench_vocab *v, int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) ids[i] = v->ids[hr_bench_random_below(r, v->n)];
}

static hr_status draw_prompt(const hr_bench_data_options *o, const hr_bench_vocab *v,
                             hr_bench_random *r, const int32_t *prefix, hr_arena *arena,
                             hr_bench_prompt *out)
{
    size_t before = (size_t)o->random_prefix_len;
    size_t n = before + (size_t)draw_length(r, o->random_input_len, o->random_range_ratio);
    int32_t *ids = hr_arena_array(arena, n, sizeof *ids);
    if (!ids) return hr_fail(HR_RESOURCE_EXHAUSTED, "prompts");
    if (before) memcpy(ids, prefix, before * sizeof *ids);
    draw_ids(r, v, ids + before, n - before);
    *out = (hr_bench_prompt){
        .ids = ids,
        .n_ids = n,
        .input_tokens = (int64_t)n,
        .output_tokens = draw_length(r, o->random_output_len, o->random_range_ratio),
    };
    return HR_OK;
}

static hr_status make_random(const hr_bench_data_options *o, size_t n, hr_http *http,
                             hr_bench_prompts *out)
{
    hr_bench_vocab v = { 0 };
    hr_bench_random r;
    hr_bench_random_init(&r, (uint64_t)o->seed, 1);
    out->at = hr_arena_array(&out->arena, n, sizeof *out->at);
    int32_t *prefix = hr_arena_array(&out->arena, (size_t)o->random_prefix_len + 1, sizeof *prefix);
    hr_status st = out->at && prefix ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "%zu prompts", n);
    if (!st) st = hr_bench_vocab_make(o, http, &v);
    if (!st) draw_ids(&r, &v, prefix, (size_t)o->random_prefix_len);
    for (size_t i = 0; !st && i < n; i++)
        st = draw_prompt(o, &v, &r, prefix, &out->arena, &out->at[i]);
    out->n = n;
    hr_bench_vocab_deinit(&v);
    return st;
}

/* ---- ids as text ----------------------------------------------------------------------------- */

/* The server's own text of ids; vLLM and headrace call it "prompt", llama.cpp "content". */
static hr_status ask_server(hr_http *http, const hr_bench_prompt *p, hr_buf *text)
{
    hr_buf body = { 0 }, answer = { 0 };
    hr_arena arena = { 0 };
    const hr_json *json = NULL;
    hr_buf_add_c(&body, "{\"tokens\":[");
    for (size_t i = 0; i < p->n_ids; i++) hr_buf_printf(&body, "%s%d", i ? "," : "", p->ids[i]);
    hr_buf_add_c(&body, "]}");
    hr_status st = hr_buf_status(&body);
    if (!st) st = hr_http_fetch(http, "/detokenize", hr_buf_str(&body), &answer);
    if (!st) st = hr_json_parse(hr_buf_str(&answer), NULL, &arena, &json);
    const hr_json *found = st ? NULL : hr_json_get(json, "prompt");
    if (!st && !found) found = hr_json_get(json, "content");
    hr_str s = { 0 };
    if (!st)
        st = found ? hr_json_to_str(found, "/detokenize", &s)
                   : hr_fail(HR_INVALID_ARGUMENT, "/detokenize gave no text");
    if (!st) hr_buf_add_str(text, s);
    hr_arena_deinit(&arena);
    hr_buf_deinit(&answer);
    hr_buf_deinit(&body);
    return st ? hr_fail_prefix(st, "random prompts for a chat are text, which needs --tokenizer or "
                                   "a server with /detokenize")
              : HR_OK;
}

static hr_status to_text(const hr_bench_data_options *o, hr_http *http, hr_arena *arena,
                         hr_bench_prompt *p)
{
    hr_buf text = { 0 };
    hr_status st = HR_OK;
    if (o->tokenizer)
        st = hr_tokenizer_decode(o->tokenizer, p->ids, p->n_ids, HR_DECODE_SKIP_SPECIAL, &text);
    else if (http) st = ask_server(http, p, &text);
    else st = hr_fail(HR_INVALID_ARGUMENT, "random prompts as text need --tokenizer");
    if (!st) st = hr_buf_status(&text);
    char *copy = st ? NULL : hr_arena_copy(arena, text.n ? text.p : "", text.n);
    if (!st && !copy) st = hr_fail(HR_RESOURCE_EXHAUSTED, "prompts");
    p->text = (hr_str){ copy, text.n };
    hr_buf_deinit(&text);
    return st;
}

/* ---- what is asked for ----------------------------------------------------------------------- */

static hr_status check_range(const char *flag, int64_t v, int64_t least, int64_t most)
{
    if (v >= least && v <= most) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "%s must be %lld to %lld, not %lld", flag, (long long)least,
                   (long long)most, (long long)v);
}

/* A length that belongs to another data set would do nothing. */
static hr_status check_owner(const char *flag, bool set, const char *name, const char *owner)
{
    if (!set || !strcmp(name, owner)) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "%s needs --dataset-name %s", flag, owner);
}

static hr_status check_owners(const hr_bench_data_options *o, const char *name)
{
    hr_bench_data_options d;
    hr_bench_data_init(&d);
    HR_TRY(check_owner("--random-input-len", o->random_input_len != d.random_input_len, name,
                       "random"));
    HR_TRY(check_owner("--random-output-len", o->random_output_len != d.random_output_len, name,
                       "random"));
    HR_TRY(check_owner("--random-prefix-len", o->random_prefix_len, name, "random"));
    HR_TRY(check_owner("--random-range-ratio", o->random_range_ratio > 0, name, "random"));
    HR_TRY(check_owner("--vocab-size", o->vocab_size, name, "random"));
    HR_TRY(check_owner("--sharegpt-output-len", o->sharegpt_output_len, name, "sharegpt"));
    return check_owner("--custom-output-len", o->custom_output_len != d.custom_output_len, name,
                       "custom");
}

static hr_status check(const hr_bench_data_options *o)
{
    HR_TRY(check_range("--num-prompts", o->num_prompts, 1, MAX_PROMPTS));
    HR_TRY(check_range("--random-input-len", o->random_input_len, 1, MAX_LENGTH));
    HR_TRY(check_range("--random-output-len", o->random_output_len, 1, MAX_LENGTH));
    HR_TRY(check_range("--random-prefix-len", o->random_prefix_len, 0, MAX_LENGTH));
    HR_TRY(check_range("--sharegpt-output-len", o->sharegpt_output_len, 0, MAX_LENGTH));
    HR_TRY(check_range("--custom-output-len", o->custom_output_len, 1, MAX_LENGTH));
    if (!(o->random_range_ratio >= 0 && o->random_range_ratio < 1))
        return hr_fail(HR_INVALID_ARGUMENT, "--random-range-ratio must be 0 or more, below 1");
    return HR_OK;
}

static hr_status make_from_file(const hr_bench_data_options *o, const char *name, size_t n,
                                hr_bench_prompts *out)
{
    bool sharegpt = !strcmp(name, "sharegpt");
    if (!sharegpt && strcmp(name, "custom"))
        return hr_fail(HR_INVALID_ARGUMENT, "--dataset-name %s: it is random, sharegpt or custom",
                       name);
    if (!o->path)
        return hr_fail(HR_INVALID_ARGUMENT, "--dataset-name %s needs --dataset-path", name);
    return sharegpt ? hr_bench_prompts_sharegpt(o, n, out) : hr_bench_prompts_custom(o, n, out);
}

hr_status hr_bench_prompts_make(const hr_bench_data_options *o, hr_bench_form form, size_t extra,
                                hr_http *http, hr_bench_prompts *out)
{
    *out = (hr_bench_prompts){ 0 };
    HR_TRY(check(o));
    const char *name = o->dataset ? o->dataset : "random";
    bool random = !strcmp(name, "random");
    size_t n = (size_t)o->num_prompts + extra;
    hr_status st = check_owners(o, name);
    if (st) return st;
    if (random && o->path)
        st = hr_fail(HR_INVALID_ARGUMENT, "--dataset-path needs --dataset-name sharegpt or custom");
    else if (random) st = make_random(o, n, http, out);
    else st = make_from_file(o, name, n, out);
    for (size_t i = 0; !st && form == HR_BENCH_TEXT && i < out->n; i++)
        if (!out->at[i].text.n) st = to_text(o, http, &out->arena, &out->at[i]);
    if (st) hr_bench_prompts_deinit(out);
    return st;
}

void hr_bench_prompts_deinit(hr_bench_prompts *p)
{
    hr_arena_deinit(&p->arena);
    *p = (hr_bench_prompts){ 0 };
}
