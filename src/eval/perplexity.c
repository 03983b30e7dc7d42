/* eval perplexity. Sums go place by place through the text, so that the order in which windows come
 * back cannot show in the last digit. */
#include <math.h>

#include "base/sync.h"
#include "eval/eval_int.h"

typedef struct scores {
    hr_eval_windows windows;
    double *logprob; /* owned [n_ids] of each token of the text; 0 has none */
} scores;

static hr_status on_scores(void *context, size_t window, size_t first, const headrace_token *tokens,
                           size_t n)
{
    scores *s = context;
    for (size_t i = 0; i < n; i++)
        if (first + i >= s->windows.first[window])
            s->logprob[hr_eval_windows_place(&s->windows, window, first + i)] =
                tokens[i].chosen.logprob;
    return HR_OK;
}

static hr_status score(hr_eval_source *source, scores *s)
{
    s->logprob = hr_alloc_array0(s->windows.n_ids, sizeof *s->logprob);
    if (!s->logprob) return hr_fail(HR_RESOURCE_EXHAUSTED, "%zu scores", s->windows.n_ids);
    hr_eval_listener to = { .on_scores = on_scores, .context = s };
    return hr_eval_run(source, s->windows.asks, s->windows.n, &to);
}

static void report(const hr_eval_source *source, const scores *s, size_t bytes, double seconds,
                   hr_buf *text, hr_buf *json)
{
    const hr_eval_windows *v = &s->windows;
    hr_eval_mean nll = { 0 };
    for (size_t i = 1; i < v->n_ids; i++) hr_eval_mean_add(&nll, -s->logprob[i]);
    double error = hr_eval_mean_error(&nll), perplexity = exp(nll.mean);
    hr_buf_printf(text,
                  "Perplexity:   %.4f ± %.4f\nNLL a token:  %.6f ± %.6f nats\n"
                  "Tokens:       %zu scored of %zu, in %zu windows of %zu, stride %zu\n"
                  "Time:         %.1f s\n",
                  perplexity, perplexity * error, nll.mean, error, nll.n, v->n_ids, v->n,
                  v->context, v->stride, seconds);
    hr_json_writer w = { .out = json };
    hr_json_begin_object(&w);
    hr_json_add_f64(&w, "perplexity", perplexity);
    hr_json_add_f64(&w, "perplexity_stderr", perplexity * error);
    hr_json_add_f64(&w, "nll", nll.mean);
    hr_json_add_f64(&w, "nll_stderr", error);
    hr_json_add_i64(&w, "tokens_scored", (int64_t)nll.n);
    hr_json_add_i64(&w, "tokens", (int64_t)v->n_ids);
    hr_json_add_i64(&w, "text_bytes", (int64_t)bytes);
    hr_json_add_i64(&w, "context", (int64_t)v->context);
    hr_json_add_i64(&w, "stride", (int64_t)v->stride);
    hr_json_add_f64(&w, "seconds", seconds);
    hr_eval_put_source(source, &w);
    hr_json_end_object(&w);
}

hr_status hr_eval_perplexity(const hr_eval_target *target, const hr_eval_text_options *o,
                             hr_buf *text, hr_buf *json)
{
    hr_eval_source source;
    scores s = { 0 };
    hr_status st = hr_eval_open(target, &source);
    if (!st) st = hr_eval_windows_make(&source, o, 0, &s.windows);
    if (!st) st = score(&source, &s);
    if (!st) report(&source, &s, o->text.n, hr_now_s() - source.started, text, json);
    hr_eval_windows_deinit(&s.windows);
    hr_free(s.logprob);
    hr_eval_close(&source);
    if (!st) st = hr_buf_status(text);
    return st ? st : hr_buf_status(json);
}
