/* What the sources share: opening by kind, progress, how a source is named in results. */
#include "base/sync.h"
#include "eval/eval_int.h"

hr_status hr_eval_open(const hr_eval_target *t, hr_eval_source *out)
{
    *out = (hr_eval_source){ .target = t };
    HR_TRY(t->http.base_url ? hr_eval_open_server(out) : hr_eval_open_engine(out));
    (void)hr_buf_c(&out->name);
    (void)hr_buf_c(&out->identity);
    HR_TRY(hr_buf_status(&out->name));
    HR_TRY(hr_buf_status(&out->identity));
    return hr_buf_status(&out->numerics);
}

void hr_eval_close(hr_eval_source *s)
{
    headrace_engine_destroy(s->engine);
    hr_http_destroy(s->http);
    hr_buf_deinit(&s->name);
    hr_buf_deinit(&s->identity);
    hr_buf_deinit(&s->numerics);
    *s = (hr_eval_source){ 0 };
}

hr_status hr_eval_tokenize(hr_eval_source *s, hr_str text, int64_t **ids, size_t *n)
{
    *ids = NULL;
    *n = 0;
    return s->tokenize(s, text, ids, n);
}

hr_status hr_eval_run(hr_eval_source *s, const hr_eval_ask *asks, size_t n,
                      const hr_eval_listener *to)
{
    s->started = hr_now_s();
    return n ? s->run(s, asks, n, to) : HR_OK;
}

void hr_eval_tell(const hr_eval_source *s, size_t done, size_t total, int64_t output_tokens)
{
    if (!s->target->progress) return;
    hr_bench_progress p = { .what = "requests",
                            .total = total,
                            .done = done,
                            .seconds = hr_now_s() - s->started,
                            .output_tokens = output_tokens };
    s->target->progress(s->target->context, &p);
}

void hr_eval_put_source(const hr_eval_source *s, hr_json_writer *w)
{
    hr_json_key(w, HR_STR("model"));
    hr_json_str(w, hr_buf_str(&s->name));
    hr_json_key(w, HR_STR("identity"));
    hr_json_str(w, hr_buf_str(&s->identity));
    if (!s->numerics.n) return;
    hr_json_key(w, HR_STR("numerics"));
    hr_json_raw(w, hr_buf_str(&s->numerics));
}
