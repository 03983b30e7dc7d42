/* Writing sampling traces.
 *
 * Any thread; owns nothing. A number that there is none of (a greedy token was not drawn, a filter
 * did not cut) is null, and the random word is hexadecimal text, since not every reader of JSON has
 * 64-bit integers. */
#include "engine/trace.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/build.h"
#include "engine/engine_int.h"

static void add_count(hr_json_writer *w, const char *key, int64_t v)
{
    hr_json_key(w, hr_str_c(key));
    if (v < 0) hr_json_null(w);
    else hr_json_i64(w, v);
}

static void write_filters(hr_json_writer *w, const headrace_trace *t)
{
    static const char *const names[5] = { "grammar", "masks", "min_p", "top_k", "top_p" };
    hr_json_key(w, HR_STR("candidates"));
    hr_json_begin_object(w);
    for (int i = 0; i < 5; i++) add_count(w, names[i], t->candidates[i]);
    hr_json_end_object(w);
    hr_json_key(w, HR_STR("thresholds"));
    hr_json_begin_object(w);
    for (int i = 0; i < 3; i++) hr_json_add_f64(w, names[i + 2], t->thresholds[i]);
    hr_json_end_object(w);
}

void hr_trace_write_token(hr_json_writer *w, const headrace_token *token, bool with_logprob)
{
    const headrace_trace *t = token->trace;
    char word[24];
    if (!t) return;
    hr_json_begin_object(w);
    hr_json_add_i64(w, "position", t->position);
    hr_json_add_i64(w, "token_id", token->chosen.token_id);
    write_filters(w, t);
    hr_json_add_f64(w, "entropy", t->entropy);
    hr_json_add_f64(w, "probability", t->probability);
    hr_json_key(w, HR_STR("noise"));
    snprintf(word, sizeof word, "0x%016" PRIx64, t->word);
    if (t->drawn) hr_json_str(w, hr_str_c(word));
    else hr_json_null(w);
    if (with_logprob) hr_json_add_f64(w, "logprob", token->chosen.logprob);
    hr_json_end_object(w);
}

static void add_text(hr_json_writer *w, const char *key, const char *v)
{
    hr_json_key(w, hr_str_c(key));
    if (v) hr_json_str(w, hr_str_c(v));
    else hr_json_null(w);
}

/* What a start must be told so that its numbers are these; null: nothing was said. */
static void write_options(hr_json_writer *w, const hr_engine *e)
{
    const headrace_options *o = &e->options;
    hr_json_key(w, HR_STR("options"));
    hr_json_begin_object(w);
    add_text(w, "dtype", o->dtype);
    add_text(w, "kv_cache_dtype", o->kv_cache_dtype);
    add_text(w, "load_format", o->load_format);
    add_text(w, "quantization", o->quantization);
    hr_json_add_str(w, "logprobs_mode", hr_logprobs_mode_name(e->shapes.sampler.mode));
    hr_json_add_i64(w, "max_logprobs", o->max_logprobs);
    hr_json_add_i64(w, "max_model_len", e->max_model_len);
    hr_json_end_object(w);
}

void hr_trace_write_header(hr_json_writer *w, const hr_engine *e, const headrace_sampling *s,
                           const char *hash)
{
    hr_json_add_i64(w, "version", HR_TRACE_VERSION);
    char build[65];
    hr_json_add_str(w, "headrace", HR_VERSION);
    add_text(w, "build", hr_build_id(build) ? build : NULL);
    hr_json_add_str(w, "model", e->options.model);
    hr_json_add_str(w, "model_hash", hash);
    hr_json_key(w, HR_STR("numerics"));
    hr_json_raw(w, hr_buf_str(&e->numerics));
    write_options(w, e);
    hr_json_key(w, HR_STR("parameters"));
    hr_sampling_write(w, s);
}
