/* headrace quantize: a checkpoint in another precision. Main thread. */
#include "cli/progress.h"
#include "convert/convert.h"

static void show(void *progress, const hr_convert_progress *p)
{
    hr_bench_progress b = {
        .what = "tensors", .total = p->total, .done = p->done, .seconds = p->seconds
    };
    hr_progress_show(progress, &b);
}

int hr_cli_quantize(hr_args *a)
{
    hr_progress shown = hr_progress_begin();
    hr_convert_options o = { .model = a->model,
                             .out = a->own.out,
                             .scheme = a->own.scheme,
                             .group_size = a->own.group_size,
                             .ignore = a->own.ignore.at,
                             .n_ignore = a->own.ignore.n,
                             .progress = a->bench.no_progress ? NULL : show,
                             .context = &shown };
    hr_buf text = { 0 }, json = { 0 };
    hr_status st = hr_convert(&o, &text, &json);
    return hr_cli_finish(a, st, &text, &json);
}
