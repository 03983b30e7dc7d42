/* A text as overlapping windows of one length: window i covers tokens i × stride … + context - 1
 * and scores those that no window before it has. */
#include "eval/eval_int.h"

#define DEFAULT_CONTEXT 1024
#define LEAST_CONTEXT   2

static hr_status choose_lengths(const hr_eval_source *s, const hr_eval_text_options *o,
                                hr_eval_windows *w)
{
    int64_t most = s->max_model_len > 1 ? s->max_model_len - 1 : INT64_MAX, context = o->context;
    if (!context) context = most < DEFAULT_CONTEXT ? most : DEFAULT_CONTEXT;
    if (context < LEAST_CONTEXT || context > most)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--context must be %d to %lld, one less than the longest context of %s",
                       LEAST_CONTEXT, (long long)most, hr_buf_str(&s->name).p);
    int64_t stride = o->stride ? o->stride : context / 2;
    if (stride < 1 || stride >= context)
        return hr_fail(HR_INVALID_ARGUMENT, "--stride must be 1 to %lld, less than --context",
                       (long long)context - 1);
    w->context = (size_t)context;
    w->stride = (size_t)stride;
    return HR_OK;
}

static hr_status read_ids(hr_eval_source *s, const hr_eval_text_options *o, hr_eval_windows *w)
{
    if (o->limit < 0) return hr_fail(HR_INVALID_ARGUMENT, "--limit must not be negative");
    HR_TRY(hr_eval_tokenize(s, o->text, &w->ids, &w->n_ids));
    if (o->limit && w->n_ids > (size_t)o->limit) w->n_ids = (size_t)o->limit;
    if (w->n_ids < 2)
        return hr_fail(HR_INVALID_ARGUMENT, "the text has %zu tokens, too few to predict any",
                       w->n_ids);
    return HR_OK;
}

hr_status hr_eval_windows_make(hr_eval_source *s, const hr_eval_text_options *o, int top,
                               hr_eval_windows *out)
{
    HR_TRY(choose_lengths(s, o, out));
    HR_TRY(read_ids(s, o, out));
    size_t beyond = out->n_ids > out->context ? out->n_ids - out->context : 0;
    out->n = 1 + (beyond + out->stride - 1) / out->stride;
    out->asks = hr_alloc_array0(out->n, sizeof *out->asks);
    out->first = hr_alloc_array0(out->n, sizeof *out->first);
    if (!out->asks || !out->first) return hr_fail(HR_RESOURCE_EXHAUSTED, "%zu windows", out->n);
    for (size_t i = 0; i < out->n; i++) {
        size_t from = i * out->stride, end = from + out->context;
        if (end > out->n_ids) end = out->n_ids;
        out->asks[i] = (hr_eval_ask){ .ids = out->ids + from, .n_ids = end - from, .top = top };
        out->first[i] = i ? out->context - out->stride : 1;
    }
    return HR_OK;
}

size_t hr_eval_windows_place(const hr_eval_windows *w, size_t window, size_t place)
{
    return window * w->stride + place;
}

void hr_eval_windows_deinit(hr_eval_windows *w)
{
    hr_free(w->ids);
    hr_free(w->asks);
    hr_free(w->first);
    *w = (hr_eval_windows){ 0 };
}
