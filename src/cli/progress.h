/* What benchmarks and evaluations share: how far they are, and their result. */
#ifndef HEADRACE_CLI_PROGRESS_H
#define HEADRACE_CLI_PROGRESS_H

#include "cli/cli.h"

/* On a terminal a bar that is drawn over itself, elsewhere a line now and then. */
typedef struct hr_progress {
    int terminal;
    double shown; /* seconds, when it was shown last */
} hr_progress;

hr_progress hr_progress_begin(void);
/* A hr_bench_progress_fn; `progress` is a hr_progress. On standard error. */
void hr_progress_show(void *progress, const hr_bench_progress *p);
/* Prints a result, as JSON with --json, and writes --output-json; or complains. Frees both. Returns
 * the exit status. */
int hr_cli_finish(const hr_args *a, hr_status st, hr_buf *text, hr_buf *json);

#endif
