/* headrace bench tokenizer: how fast texts become ids, in this process.
 *
 * Main thread. A run encodes every text once, with scratch that has seen none of them, so that a
 * cache of words helps as much as it does in life and no more. The digest of all ids says whether
 * another tokenizer, timed on the same texts, did the same work. */
#include "base/digest.h"
#include "base/json.h"
#include "base/sync.h"
#include "bench/bench_int.h"

#define MAX_RUNS 1000

typedef struct texts {
    hr_arena arena;
    hr_text_span *at; /* owned [n] */
    size_t n, capacity, bytes;
} texts;

static hr_status read_line(texts *t, hr_str line)
{
    const hr_json *v = NULL;
    hr_str text;
    HR_TRY(hr_json_parse(line, NULL, &t->arena, &v));
    HR_TRY(hr_json_to_str(v, "a line", &text));
    HR_TRY(hr_grow((void **)&t->at, &t->capacity, t->n + 1, sizeof *t->at));
    t->at[t->n++] = (hr_text_span){ text, HR_SPAN_SPECIAL };
    t->bytes += text.n;
    return HR_OK;
}

static hr_status read_texts(hr_str lines, texts *t)
{
    hr_str line;
    for (size_t number = 1; hr_str_next(&lines, '\n', &line); number++) {
        hr_status st = line.n ? read_line(t, line) : HR_OK;
        if (st) return hr_fail_prefix(st, "line %zu", number);
    }
    return t->n ? HR_OK : hr_fail(HR_INVALID_ARGUMENT, "--texts: there are none");
}

static void texts_deinit(texts *t)
{
    hr_free(t->at);
    hr_arena_deinit(&t->arena);
}

static hr_status run(const hr_bench_tokenizer_options *o, const texts *t, hr_ids *ids,
                     double *seconds)
{
    hr_tokenizer_scratch scratch = { 0 };
    hr_status st = HR_OK;
    double from = hr_now_s();
    ids->n = 0;
    for (size_t i = 0; !st && i < t->n; i++)
        st = hr_tokenizer_encode(o->tokenizer, &t->at[i], 1, HR_ENCODE_DEFAULT, &scratch, ids);
    *seconds = hr_now_s() - from;
    hr_tokenizer_scratch_deinit(&scratch);
    return st;
}

static hr_status report(const hr_bench_tokenizer_options *o, const texts *t, const hr_ids *ids,
                        hr_bench_series *runs, hr_buf *text, hr_buf *json)
{
    hr_digest digest;
    char hex[HR_DIGEST_TEXT];
    hr_json_writer w = { .out = json };
    HR_TRY(hr_digest_of(&(hr_str){ (const char *)ids->p, ids->n * sizeof *ids->p }, 1, &digest));
    hr_digest_text(&digest, hex);
    hr_json_begin_object(&w);
    hr_json_add_f64(&w, "open_ms", 1e3 * o->open_s);
    hr_json_add_i64(&w, "texts", (int64_t)t->n);
    hr_json_add_i64(&w, "bytes", (int64_t)t->bytes);
    hr_json_add_i64(&w, "tokens", (int64_t)ids->n);
    hr_json_add_str(&w, "ids_sha256", hex);
    hr_json_key(&w, HR_STR("seconds"));
    hr_json_begin_array(&w);
    for (size_t i = 0; i < runs->n; i++) hr_json_f64(&w, runs->v[i]);
    hr_json_end_array(&w);
    hr_bench_series_sort(runs);
    double median = hr_bench_percentile(runs, 50), mb = (double)t->bytes / 1e6;
    hr_json_add_f64(&w, "mb_per_second", mb / median);
    hr_json_end_object(&w);
    hr_buf_printf(text, "%-24s%12.2f ms\n", "opened in", 1e3 * o->open_s);
    hr_buf_printf(text, "%-24s%12zu texts, %.2f MB, %zu tokens\n", "encoded", t->n, mb, ids->n);
    hr_buf_printf(text, "%-24s%12.1f MB/s, %.2f million tokens/s, median of %zu\n", "at",
                  mb / median, (double)ids->n / median / 1e6, runs->n);
    HR_TRY(hr_buf_status(text));
    return hr_buf_status(json);
}

hr_status hr_bench_tokenizer(const hr_bench_tokenizer_options *o, hr_buf *text, hr_buf *json)
{
    if (o->num_runs < 1 || o->num_runs > MAX_RUNS)
        return hr_fail(HR_INVALID_ARGUMENT, "--num-runs must be 1 to %d", MAX_RUNS);
    texts t = { 0 };
    hr_ids ids = { 0 };
    hr_bench_series runs = { 0 };
    hr_status st = read_texts(o->lines, &t);
    for (int64_t i = 0; !st && i < o->num_runs; i++) {
        double seconds;
        st = run(o, &t, &ids, &seconds);
        if (!st) st = hr_bench_series_add(&runs, seconds);
    }
    if (!st) st = report(o, &t, &ids, &runs, text, json);
    hr_bench_series_deinit(&runs);
    hr_ids_deinit(&ids);
    texts_deinit(&t);
    return st;
}
