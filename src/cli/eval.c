/* headrace eval: accuracy figures. Main thread; the figures go to standard output. */
#include "cli/progress.h"

static hr_eval_target make_target(hr_args *a, hr_progress *shown)
{
    hr_eval_target t = { .engine = a->options,
                         .http = a->bench.serve.http,
                         .model = a->bench.serve.model,
                         .max_concurrency = a->bench.serve.max_concurrency,
                         .progress = a->bench.no_progress ? NULL : hr_progress_show,
                         .context = shown };
    t.engine.model = a->model;
    t.engine.log = hr_cli_log;
    t.engine.log_context = a;
    return t;
}

int hr_cli_eval_perplexity(hr_args *a)
{
    hr_progress shown = hr_progress_begin();
    hr_buf text = { 0 }, json = { 0 };
    hr_cli_fill_http(a);
    hr_eval_target target = make_target(a, &shown);
    hr_status st = hr_args_slurp(&a->arena, a->eval.file, &a->eval.text.text);
    if (!st) st = hr_eval_perplexity(&target, &a->eval.text, &text, &json);
    return hr_cli_finish(a, st, &text, &json);
}

/* The same start, but for precision: what the target's flags say of that is not the reference's. */
static hr_eval_target make_reference(const hr_args *a, const hr_eval_target *target)
{
    const hr_cli_eval *e = &a->eval;
    hr_eval_target t = *target;
    if (e->reference_url || e->reference.model) {
        t.http.base_url = e->reference_url;
        t.model = NULL;
    }
    if (e->reference.model) t.engine.model = e->reference.model;
    t.engine.dtype = e->reference.dtype;
    t.engine.kv_cache_dtype = e->reference.kv_cache_dtype;
    t.engine.quantization = e->reference.quantization;
    return t;
}

int hr_cli_eval_kl(hr_args *a)
{
    hr_progress shown = hr_progress_begin(), shown_reference = shown;
    hr_buf text = { 0 }, json = { 0 };
    hr_cli_fill_http(a);
    a->options.max_logprobs = (int)(a->eval.top < 1024 ? a->eval.top : 1024);
    hr_eval_target target = make_target(a, &shown), reference = make_reference(a, &target);
    reference.context = &shown_reference;
    hr_status st = hr_args_slurp(&a->arena, a->eval.file, &a->eval.text.text);
    if (!st) st = hr_eval_kl(&reference, &target, &a->eval.text, a->eval.top, &text, &json);
    return hr_cli_finish(a, st, &text, &json);
}

int hr_cli_eval_gsm8k(hr_args *a)
{
    hr_progress shown = hr_progress_begin();
    hr_buf text = { 0 }, json = { 0 };
    hr_cli_fill_http(a);
    hr_eval_target target = make_target(a, &shown);
    return hr_cli_finish(a, hr_eval_gsm8k(&target, &a->eval.gsm8k, &text, &json), &text, &json);
}
