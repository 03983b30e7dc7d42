/* Runs the whole sampler for an oracle written elsewhere (pytest and NumPy).
 *
 *   sampler_runner ref|cpu|pjrt [threads]   HEADRACE_ISA chooses the cpu path, HEADRACE_PJRT_PLUGIN
 *                                          names the plugin
 *
 * Standard input is a sequence of cases until its end, each a line of JSON and then the raw bytes
 * of logits f32 [rows,V], little-endian:
 *   {"vocab":1000,"used_vocab":0,"bucket":8,"mode":"raw_logprobs","max_logprobs":20,
 *    "rows":[{"prompt":[1,2],"output":[3],"eos":[0],"choice":0,"grammar":[u32 …],
 *             "sampling":{"temperature":0.8,"seed":7,"logit_bias":[[5,-100.0]], …}} …]}
 * A sampling member is a public field; bad_words is given as token sequences. With "targets":[ids]
 * the prompt program scores those instead.
 *
 * Standard output has one line per case: {"rows":[{"token":5,"status":0,"rank":1,"logprob":-0.5,
 * "top_ids":[…],"top_logprobs":[…],"extra_logprobs":[…]} …]}, -inf as null, or {"error":"…"}. A row
 * with sampling_trace also has "trace":{"candidates":[5 …],"cuts":[3 …],"sums":[entropy,share]}.
 * A case that cannot be read ends the program with 1. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "conformance/op_case.h"
#include "conformance/sampler_case.h"

/* ---- reading --------------------------------------------------------------------------------- */

static hr_status read_i64(const hr_json *o, const char *key, int64_t *to)
{
    const hr_json *v = hr_json_get(o, key);
    return v ? hr_json_to_i64(v, key, to) : HR_OK;
}
static hr_status read_i32(const hr_json *o, const char *key, int32_t *to)
{
    int64_t wide = *to;
    HR_TRY(read_i64(o, key, &wide));
    *to = (int32_t)wide;
    return HR_OK;
}
static hr_status read_f64(const hr_json *o, const char *key, double *to)
{
    const hr_json *v = hr_json_get(o, key);
    return v ? hr_json_to_f64(v, key, to) : HR_OK;
}
static hr_status read_bool(const hr_json *o, const char *key, bool *to)
{
    const hr_json *v = hr_json_get(o, key);
    return v ? hr_json_to_bool(v, key, to) : HR_OK;
}

/* An array of ids; *to stays NULL when the member is absent. */
static hr_status read_ids(const hr_json *o, const char *key, hr_arena *arena, const int64_t **to,
                          size_t *n)
{
    const hr_json *v = hr_json_get(o, key);
    if (!v) return HR_OK;
    int64_t *ids = hr_arena_array(arena, v->count + 1, sizeof *ids);
    if (!ids) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s", key);
    for (size_t i = 0; i < v->count; i++) HR_TRY(hr_json_to_i64(&v->items[i], key, &ids[i]));
    *to = ids;
    *n = v->count;
    return HR_OK;
}

static hr_status narrow(const int64_t *from, size_t n, hr_arena *arena, int32_t **to)
{
    *to = hr_arena_array(arena, n + 1, sizeof **to);
    if (!*to) return hr_fail(HR_RESOURCE_EXHAUSTED, "ids");
    for (size_t i = 0; i < n; i++) (*to)[i] = (int32_t)from[i];
    return HR_OK;
}

static hr_status read_bias(const hr_json *o, hr_arena *arena, hr_sampling *s)
{
    const hr_json *v = hr_json_get(o, "logit_bias");
    if (!v) return HR_OK;
    int64_t *ids = hr_arena_array(arena, v->count + 1, sizeof *ids);
    double *values = hr_arena_array(arena, v->count + 1, sizeof *values);
    if (!ids || !values) return hr_fail(HR_RESOURCE_EXHAUSTED, "logit_bias");
    for (size_t i = 0; i < v->count; i++) {
        if (v->items[i].count != 2) return hr_fail(HR_INVALID_ARGUMENT, "logit_bias: pairs");
        HR_TRY(hr_json_to_i64(&v->items[i].items[0], "logit_bias", &ids[i]));
        HR_TRY(hr_json_to_f64(&v->items[i].items[1], "logit_bias", &values[i]));
    }
    s->logit_bias_ids = ids;
    s->logit_bias_values = values;
    s->n_logit_bias = v->count;
    return HR_OK;
}

static hr_status read_bad_words(const hr_json *o, hr_arena *arena, hr_sampling *s)
{
    const hr_json *v = hr_json_get(o, "bad_words");
    if (!v) return HR_OK;
    hr_id_list *words = hr_arena_array(arena, v->count + 1, sizeof *words);
    if (!words) return hr_fail(HR_RESOURCE_EXHAUSTED, "bad_words");
    for (size_t i = 0; i < v->count; i++) {
        const hr_json *word = &v->items[i];
        int32_t *ids = hr_arena_array(arena, word->count + 1, sizeof *ids);
        if (!ids) return hr_fail(HR_RESOURCE_EXHAUSTED, "bad_words");
        for (size_t k = 0; k < word->count; k++) {
            int64_t id;
            HR_TRY(hr_json_to_i64(&word->items[k], "bad_words", &id));
            ids[k] = (int32_t)id;
        }
        words[i] = (hr_id_list){ ids, word->count };
    }
    s->bad_word_ids = words;
    s->n_bad_word_ids = v->count;
    return HR_OK;
}

static hr_status read_sampling(const hr_json *o, hr_arena *arena, hr_sampling *s)
{
    hr_sampling_init(s);
    HR_TRY(read_f64(o, "temperature", &s->temperature));
    HR_TRY(read_i64(o, "top_k", &s->top_k));
    HR_TRY(read_f64(o, "top_p", &s->top_p));
    HR_TRY(read_f64(o, "min_p", &s->min_p));
    HR_TRY(read_f64(o, "presence_penalty", &s->presence_penalty));
    HR_TRY(read_f64(o, "frequency_penalty", &s->frequency_penalty));
    HR_TRY(read_f64(o, "repetition_penalty", &s->repetition_penalty));
    HR_TRY(read_i64(o, "seed", &s->seed));
    HR_TRY(read_i64(o, "min_tokens", &s->min_tokens));
    HR_TRY(read_bool(o, "ignore_eos", &s->ignore_eos));
    HR_TRY(read_i32(o, "logprobs", &s->logprobs));
    HR_TRY(read_i32(o, "prompt_logprobs", &s->prompt_logprobs));
    HR_TRY(read_bool(o, "sampling_trace", &s->sampling_trace));
    HR_TRY(read_bias(o, arena, s));
    HR_TRY(read_bad_words(o, arena, s));
    HR_TRY(read_ids(o, "stop_token_ids", arena, &s->stop_token_ids, &s->n_stop_token_ids));
    HR_TRY(read_ids(o, "allowed_token_ids", arena, &s->allowed_token_ids, &s->n_allowed_token_ids));
    return read_ids(o, "logprob_token_ids", arena, &s->logprob_token_ids, &s->n_logprob_token_ids);
}

static hr_status read_tokens(const hr_json *o, hr_arena *arena, sampler_row *row)
{
    const int64_t *prompt = NULL, *output = NULL;
    size_t n_prompt = 0, n_output = 0;
    HR_TRY(read_ids(o, "prompt", arena, &prompt, &n_prompt));
    HR_TRY(read_ids(o, "output", arena, &output, &n_output));
    int32_t *ids = hr_arena_array(arena, n_prompt + n_output + 1, sizeof *ids);
    if (!ids) return hr_fail(HR_RESOURCE_EXHAUSTED, "tokens");
    for (size_t i = 0; i < n_prompt + n_output; i++)
        ids[i] = (int32_t)(i < n_prompt ? prompt[i] : output[i - n_prompt]);
    row->tokens = ids;
    row->n_prompt = (int64_t)n_prompt;
    row->n_tokens = (int64_t)(n_prompt + n_output);
    return HR_OK;
}

static hr_status read_row(const hr_json *o, hr_arena *arena, sampler_row *row)
{
    const int64_t *words = NULL;
    int32_t *grammar = NULL;
    size_t n_words = 0;
    int64_t choice = 0;
    HR_TRY(read_sampling(hr_json_get(o, "sampling"), arena, &row->sampling));
    HR_TRY(read_tokens(o, arena, row));
    HR_TRY(read_ids(o, "eos", arena, &row->eos, &row->n_eos));
    HR_TRY(read_i64(o, "choice", &choice));
    row->choice = (uint32_t)choice;
    HR_TRY(read_ids(o, "grammar", arena, &words, &n_words));
    if (!words) return HR_OK;
    HR_TRY(narrow(words, n_words, arena, &grammar));
    row->grammar = (const uint32_t *)grammar;
    return HR_OK;
}

static hr_status read_options(const hr_json *v, sampler_case *c)
{
    const hr_json *mode = hr_json_get(v, "mode");
    hr_str name = HR_STR("raw_logprobs");
    c->options.max_logprobs = 20;
    HR_TRY(read_i64(v, "vocab", &c->options.vocab));
    HR_TRY(read_i64(v, "used_vocab", &c->options.used_vocab));
    HR_TRY(read_i32(v, "max_logprobs", &c->options.max_logprobs));
    if (mode) HR_TRY(hr_json_to_str(mode, "mode", &name));
    HR_TRY(hr_logprobs_mode_parse(name, &c->options.mode));
    if (c->options.vocab < 1 || c->options.vocab > 1 << 22)
        return hr_fail(HR_OUT_OF_RANGE, "vocab");
    return HR_OK;
}

/* The case and its logits. */
static hr_status read_case(const hr_json *v, hr_arena *arena, sampler_case *c)
{
    const hr_json *rows = hr_json_get(v, "rows");
    HR_TRY(read_options(v, c));
    if (!rows || !rows->count || rows->count > 4096)
        return hr_fail(HR_INVALID_ARGUMENT, "rows: 1 to 4096");
    c->n_rows = c->bucket = (int64_t)rows->count;
    HR_TRY(read_i64(v, "bucket", &c->bucket));
    if (c->bucket < c->n_rows) return hr_fail(HR_INVALID_ARGUMENT, "bucket below rows");
    sampler_row *row = hr_arena_array(arena, rows->count, sizeof *row);
    size_t count = rows->count * (size_t)c->options.vocab;
    float *logits = hr_arena_array(arena, count, sizeof *logits);
    if (!row || !logits) return hr_fail(HR_RESOURCE_EXHAUSTED, "rows");
    if (fread(logits, sizeof *logits, count, stdin) != count)
        return hr_fail(HR_DATA_LOSS, "logits end early");
    for (size_t i = 0; i < rows->count; i++) {
        HR_TRY(read_row(&rows->items[i], arena, &row[i]));
        row[i].logits = logits + i * (size_t)c->options.vocab;
    }
    c->rows = row;
    return HR_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_floats(hr_json_writer *w, const char *key, const float *x, size_t n)
{
    hr_json_key(w, hr_str_c(key));
    hr_json_begin_array(w);
    for (size_t i = 0; i < n; i++) hr_json_f64(w, (double)x[i]);
    hr_json_end_array(w);
}

static void write_integer(hr_json_writer *w, const char *key, int64_t x)
{
    hr_json_key(w, hr_str_c(key));
    hr_json_i64(w, x);
}

static void write_trace(hr_json_writer *w, const sampler_answer *a)
{
    hr_json_key(w, HR_STR("trace"));
    hr_json_begin_object(w);
    hr_json_key(w, HR_STR("candidates"));
    hr_json_begin_array(w);
    for (int i = 0; i < 5; i++) hr_json_i64(w, i < 2 ? a->alive[i] : a->counts[i - 2]);
    hr_json_end_array(w);
    write_floats(w, "cuts", a->cuts, 3);
    write_floats(w, "sums", a->sums, 2);
    hr_json_end_object(w);
}

static void write_row(hr_json_writer *w, const sampler_case *c, const sampler_answer *a,
                      size_t n_extra, bool traced)
{
    size_t top = (size_t)hr_sampler_top(&c->options);
    hr_json_begin_object(w);
    write_integer(w, "token", a->token);
    write_integer(w, "status", a->status);
    write_integer(w, "rank", a->rank);
    hr_json_key(w, HR_STR("logprob"));
    hr_json_f64(w, (double)a->logprob);
    hr_json_key(w, HR_STR("top_ids"));
    hr_json_begin_array(w);
    for (size_t i = 0; i < top; i++) hr_json_i64(w, a->top_ids[i]);
    hr_json_end_array(w);
    write_floats(w, "top_logprobs", a->top_logprobs, top);
    if (a->extra_logprobs) write_floats(w, "extra_logprobs", a->extra_logprobs, n_extra);
    if (traced) write_trace(w, a);
    hr_json_end_object(w);
}

static void write_case(hr_json_writer *w, const sampler_case *c, hr_status st)
{
    hr_json_begin_object(w);
    hr_json_key(w, st ? HR_STR("error") : HR_STR("rows"));
    if (st) {
        hr_json_str(w, hr_str_c(hr_message()));
    } else {
        hr_json_begin_array(w);
        for (int64_t i = 0; i < c->n_rows; i++)
            write_row(w, c, &c->answers[i], c->rows[i].sampling.n_logprob_token_ids,
                      c->rows[i].sampling.sampling_trace);
        hr_json_end_array(w);
    }
    hr_json_end_object(w);
    hr_buf_add_byte(w->out, '\n');
}

static hr_status answer(hr_backend *b, hr_str line)
{
    hr_arena arena = { 0 };
    hr_buf out = { 0 };
    hr_json_writer w = { .out = &out };
    sampler_case c = { .backend = b };
    const hr_json *v;
    const int64_t *targets = NULL;
    int32_t *narrowed = NULL;
    size_t n = 0;
    hr_status st = hr_json_parse(line, NULL, &arena, &v);
    if (!st) st = read_case(v, &arena, &c);
    if (!st) st = read_ids(v, "targets", &arena, &targets, &n);
    if (!st && targets) st = narrow(targets, n, &arena, &narrowed);
    if (!st) {
        write_case(&w, &c, narrowed ? sampler_case_score(&c, narrowed) : sampler_case_run(&c));
        st = hr_buf_status(&out);
        if (!st && fwrite(out.p, 1, out.n, stdout) != out.n) st = HR_UNAVAILABLE;
        fflush(stdout);
    }
    sampler_case_deinit(&c);
    hr_buf_deinit(&out);
    hr_arena_deinit(&arena);
    return st;
}

int main(int argc, char **argv)
{
    return op_serve("sampler_runner", argc, argv, answer, sampler_case_forget);
}
