/* The log sink. Lines open with the room: hr_log(HR_LOG_INFO, "engine: req=%u done", id). */
#ifndef HEADRACE_BASE_LOG_H
#define HEADRACE_BASE_LOG_H

#include "base/status.h"

typedef enum hr_log_level { HR_LOG_ERROR, HR_LOG_WARNING, HR_LOG_INFO, HR_LOG_DEBUG } hr_log_level;

/* `line` has no newline and is valid only during the call; called from any thread. */
typedef void (*hr_log_sink)(void *self, hr_log_level level, const char *line);

/* Set before threads start. NULL sink = nothing is logged (the default in a library). */
void hr_log_set(hr_log_sink sink, void *self, hr_log_level most);
void hr_log(hr_log_level level, const char *fmt, ...) HR_PRINTF(2, 3);

#endif
