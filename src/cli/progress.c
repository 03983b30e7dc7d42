/* Progress bars and results on their way to the terminal. Main thread. */
#include "cli/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/file.h"

#define BAR_WIDTH  30
#define BAR_EVERY  0.1
#define LINE_EVERY 10.0

hr_progress hr_progress_begin(void)
{
    return (hr_progress){ .terminal = isatty(STDERR_FILENO) };
}

static void draw_bar(const hr_bench_progress *p)
{
    char bar[BAR_WIDTH + 1];
    size_t full = p->total ? p->done * BAR_WIDTH / p->total : 0;
    for (size_t i = 0; i < BAR_WIDTH; i++) bar[i] = i < full ? '#' : '.';
    bar[BAR_WIDTH] = '\0';
    double left = p->done ? p->seconds / (double)p->done * (double)(p->total - p->done) : 0;
    fprintf(stderr, "\r[%s] %zu/%zu %s, %.0f s, %.0f s left", bar, p->done, p->total, p->what,
            p->seconds, left);
    if (p->output_tokens && p->seconds > 0)
        fprintf(stderr, ", %.1f tok/s", (double)p->output_tokens / p->seconds);
    if (p->failed) fprintf(stderr, ", %zu failed", p->failed);
    fputs(p->done == p->total ? "\x1b[K\n" : "\x1b[K", stderr);
}

void hr_progress_show(void *progress, const hr_bench_progress *p)
{
    hr_progress *s = progress;
    double every = s->terminal ? BAR_EVERY : LINE_EVERY;
    if (p->done < p->total && p->seconds - s->shown < every) return;
    s->shown = p->seconds;
    if (s->terminal) draw_bar(p);
    else if (p->failed)
        fprintf(stderr, "headrace: %zu of %zu %s done, %zu failed, %.1f s\n", p->done, p->total,
                p->what, p->failed, p->seconds);
    else
        fprintf(stderr, "headrace: %zu of %zu %s done, %.1f s\n", p->done, p->total, p->what,
                p->seconds);
}

int hr_cli_finish(const hr_args *a, hr_status st, hr_buf *text, hr_buf *json)
{
    const char *path = a->bench.output_json;
    if (!st && path) {
        hr_buf_add_byte(json, '\n');
        st = hr_file_write_atomic(path, hr_buf_str(json));
        json->n -= 1;
    }
    if (!st && a->own.json) puts(hr_buf_c(json));
    else if (!st) fputs(hr_buf_c(text), stdout);
    hr_buf_deinit(text);
    hr_buf_deinit(json);
    return st ? hr_cli_complain() : 0;
}
