/* One global sink; the cli installs it, a library user may.
 *
 * Runs on every thread; the sink must be thread-safe. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static hr_log_sink the_sink;
static void *the_self;
static hr_log_level the_most = HR_LOG_INFO;

void hr_log_set(hr_log_sink sink, void *self, hr_log_level most)
{
    the_sink = sink;
    the_self = self;
    the_most = most;
}

void hr_log(hr_log_level level, const char *fmt, ...)
{
    if (!the_sink || level > the_most) return;
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    the_sink(the_self, level, line);
}
