/* eval kl: the reference's likeliest tokens are kept for every place of the text, then the other
 * model's are laid beside them. */
#include <math.h>
#include <stdlib.h>

#include "base/sync.h"
#include "eval/eval_int.h"

/* Below this share the bucket of all other tokens is rounding, not probability. */
#define LEAST_REST 1e-9

typedef struct entry {
    int32_t id;
    float logprob;
} entry;

/* What one model says of each place of the text. */
typedef struct told {
    entry *top;      /* owned [n_ids, most]; id -1 = none */
    double *logprob; /* owned [n_ids] of the text's own token */
    size_t most;
    const hr_eval_windows *windows;
} told;

/* Over all places. */
typedef struct distance {
    hr_eval_mean kl, agree, less; /* less: reference's logprob less the other's */
    hr_eval_mean reference_nll, nll;
    double *each; /* owned [n] KL of each place */
    size_t n;
    double most; /* largest |less| */
} distance;

/* ---- gathering ------------------------------------------------------------------------------- */

static hr_status told_init(told *t, const hr_eval_windows *w, size_t most)
{
    size_t n = 0;
    *t = (told){ .most = most, .windows = w };
    if (hr_mul_add(w->n_ids, most, 0, &n)) t->top = hr_alloc_array0(n, sizeof *t->top);
    t->logprob = hr_alloc_array0(w->n_ids, sizeof *t->logprob);
    if (!t->top || !t->logprob)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "%zu places of %zu tokens each", w->n_ids, most);
    return HR_OK;
}

static void told_deinit(told *t)
{
    hr_free(t->top);
    hr_free(t->logprob);
}

/* The token itself is one of a place's, though it may be none of the likeliest. */
static hr_status on_scores(void *context, size_t window, size_t first, const headrace_token *tokens,
                           size_t n)
{
    told *t = context;
    for (size_t i = 0; i < n; i++) {
        if (first + i < t->windows->first[window]) continue;
        size_t place = hr_eval_windows_place(t->windows, window, first + i);
        entry *to = t->top + place * t->most;
        for (size_t k = 0; k < t->most; k++) {
            bool has = k < tokens[i].n_top;
            to[k].id = has ? (int32_t)tokens[i].top[k].token_id : -1;
            to[k].logprob = has ? (float)tokens[i].top[k].logprob : 0;
        }
        t->logprob[place] = tokens[i].chosen.logprob;
    }
    return HR_OK;
}

/* Windows of the same ids are asked of both: one tokenizer speaks for both models. */
static hr_status gather(hr_eval_source *s, told *t)
{
    hr_eval_listener to = { .on_scores = on_scores, .context = t };
    return hr_eval_run(s, t->windows->asks, t->windows->n, &to);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    int32_t x = ((const entry *)a)->id, y = ((const entry *)b)->id;
    return (x > y) - (x < y);
}

static double share(double p, double q)
{
    return p > 0 ? p * log(p / q) : 0;
}

/* Over the tokens that both tell of, and one bucket for the rest. Sorts both lists by id. */
static double kl_of(entry *p, entry *q, size_t n)
{
    double sum = 0, rest_p = 1, rest_q = 1;
    qsort(p, n, sizeof *p, by_id);
    qsort(q, n, sizeof *q, by_id);
    for (size_t i = 0, j = 0; i < n && j < n;) {
        if (p[i].id == q[j].id && p[i].id >= 0) {
            double a = exp(p[i].logprob), b = exp(q[j].logprob);
            sum += share(a, b);
            rest_p -= a;
            rest_q -= b;
        }
        if (p[i].id <= q[j].id) i++;
        else j++;
    }
    if (rest_p > LEAST_REST) sum += share(rest_p, rest_q > LEAST_REST ? rest_q : LEAST_REST);
    return sum > 0 ? sum : 0; /* rounding alone makes it negative */
}

static void compare(told *reference, told *other, distance *d)
{
    for (size_t i = 1; i < reference->windows->n_ids; i++) {
        entry *p = reference->top + i * reference->most, *q = other->top + i * other->most;
        double less = reference->logprob[i] - other->logprob[i];
        hr_eval_mean_add(&d->agree, p[0].id == q[0].id);
        d->each[d->n] = kl_of(p, q, reference->most);
        hr_eval_mean_add(&d->kl, d->each[d->n++]);
        hr_eval_mean_add(&d->less, less);
        hr_eval_mean_add(&d->reference_nll, -reference->logprob[i]);
        hr_eval_mean_add(&d->nll, -other->logprob[i]);
        if (fabs(less) > d->most) d->most = fabs(less);
    }
}

/* ---- reporting ------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const distance *d, double share_below)
{
    return d->n ? d->each[(size_t)(share_below * (double)(d->n - 1))] : 0;
}

static void report_text(const distance *d, hr_buf *text)
{
    double change = expm1(d->less.mean);
    hr_buf_printf(text,
                  "Mean KL:             %.6f ± %.6f nats\n"
                  "KL 50 / 99 / 100 %%:  %.6f / %.6f / %.6f\n"
                  "Likeliest agrees:    %.2f ± %.2f %%\n"
                  "Largest difference:  %.4f of the text's log-probabilities\n"
                  "Perplexity:          %.4f, of the reference %.4f: %+.3f ± %.3f %%\n"
                  "Tokens:              %zu\n",
                  d->kl.mean, hr_eval_mean_error(&d->kl), percentile(d, .5), percentile(d, .99),
                  percentile(d, 1), 100 * d->agree.mean, 100 * hr_eval_mean_error(&d->agree),
                  d->most, exp(d->nll.mean), exp(d->reference_nll.mean), 100 * change,
                  100 * (1 + change) * hr_eval_mean_error(&d->less), d->n);
}

static void report_json(const distance *d, size_t top, const hr_buf *sources, hr_buf *json)
{
    double change = expm1(d->less.mean);
    hr_json_writer w = { .out = json };
    hr_json_begin_object(&w);
    hr_json_add_f64(&w, "mean_kl", d->kl.mean);
    hr_json_add_f64(&w, "mean_kl_stderr", hr_eval_mean_error(&d->kl));
    hr_json_add_f64(&w, "median_kl", percentile(d, .5));
    hr_json_add_f64(&w, "p99_kl", percentile(d, .99));
    hr_json_add_f64(&w, "max_kl", percentile(d, 1));
    hr_json_add_f64(&w, "top1_agreement", d->agree.mean);
    hr_json_add_f64(&w, "top1_agreement_stderr", hr_eval_mean_error(&d->agree));
    hr_json_add_f64(&w, "max_logprob_difference", d->most);
    hr_json_add_f64(&w, "perplexity", exp(d->nll.mean));
    hr_json_add_f64(&w, "reference_perplexity", exp(d->reference_nll.mean));
    hr_json_add_f64(&w, "perplexity_change", change);
    hr_json_add_f64(&w, "perplexity_change_stderr", (1 + change) * hr_eval_mean_error(&d->less));
    hr_json_add_i64(&w, "tokens_scored", (int64_t)d->n);
    hr_json_add_i64(&w, "top", (int64_t)top);
    hr_json_key(&w, HR_STR("sources"));
    hr_json_raw(&w, hr_buf_str(sources));
    hr_json_end_object(&w);
}

/* ---- both models ----------------------------------------------------------------------------- */

typedef struct comparison {
    hr_eval_windows windows;
    told reference, other;
    hr_buf sources; /* {"reference": {…}, "target": {…}} */
    hr_json_writer writer;
    int64_t vocab_size;
} comparison;

static void put_source(comparison *c, const char *role, const hr_eval_source *s)
{
    hr_json_key(&c->writer, hr_str_c(role));
    hr_json_begin_object(&c->writer);
    hr_eval_put_source(s, &c->writer);
    hr_json_end_object(&c->writer);
}

static hr_status ask_reference(comparison *c, const hr_eval_target *t,
                               const hr_eval_text_options *o, int64_t top)
{
    hr_eval_source s;
    hr_status st = hr_eval_open(t, &s);
    if (!st) st = hr_eval_windows_make(&s, o, (int)top, &c->windows);
    if (!st) st = told_init(&c->reference, &c->windows, (size_t)top);
    if (!st) st = gather(&s, &c->reference);
    if (!st) put_source(c, "reference", &s);
    c->vocab_size = s.vocab_size;
    hr_eval_close(&s);
    return st;
}

static hr_status ask_target(comparison *c, const hr_eval_target *t)
{
    hr_eval_source s;
    hr_status st = hr_eval_open(t, &s);
    if (!st && c->vocab_size && s.vocab_size && c->vocab_size != s.vocab_size)
        st = hr_fail(HR_INVALID_ARGUMENT, "vocabularies of %lld and %lld tokens cannot be compared",
                     (long long)c->vocab_size, (long long)s.vocab_size);
    if (!st) st = told_init(&c->other, &c->windows, c->reference.most);
    if (!st) st = gather(&s, &c->other);
    if (!st) put_source(c, "target", &s);
    hr_eval_close(&s);
    return st;
}

static hr_status conclude(comparison *c, hr_buf *text, hr_buf *json)
{
    distance d = { .each = hr_alloc_array0(c->windows.n_ids, sizeof *d.each) };
    if (!d.each) return hr_fail(HR_RESOURCE_EXHAUSTED, "%zu places", c->windows.n_ids);
    compare(&c->reference, &c->other, &d);
    qsort(d.each, d.n, sizeof *d.each, by_size);
    report_text(&d, text);
    report_json(&d, c->reference.most, &c->sources, json);
    hr_free(d.each);
    HR_TRY(hr_buf_status(text));
    return hr_buf_status(json);
}

hr_status hr_eval_kl(const hr_eval_target *reference, const hr_eval_target *target,
                     const hr_eval_text_options *o, int64_t top, hr_buf *text, hr_buf *json)
{
    if (top < 1 || top > 1024)
        return hr_fail(HR_INVALID_ARGUMENT, "--top must be 1 to 1024, not %lld", (long long)top);
    comparison c = { .sources = { 0 } };
    c.writer.out = &c.sources;
    hr_json_begin_object(&c.writer);
    hr_status st = ask_reference(&c, reference, o, top);
    if (!st) st = ask_target(&c, target);
    hr_json_end_object(&c.writer);
    if (!st) st = hr_buf_status(&c.sources);
    if (!st) st = conclude(&c, text, json);
    hr_eval_windows_deinit(&c.windows);
    told_deinit(&c.reference);
    told_deinit(&c.other);
    hr_buf_deinit(&c.sources);
    return st;
}
