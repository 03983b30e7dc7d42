/* The thread's last failure sentence.
 *
 * Runs on every thread; the storage is thread-local, so no lock is needed. A message that crosses
 * a queue is copied by the sender. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[HR_MESSAGE_MAX];

hr_status hr_fail(hr_status code, const char *fmt, ...)
{
    char next[HR_MESSAGE_MAX]; /* arguments may point into message */
    va_list args;
    va_start(args, fmt);
    vsnprintf(next, sizeof next, fmt, args);
    va_end(args);
    memcpy(message, next, sizeof message);
    return code;
}

hr_status hr_fail_prefix(hr_status code, const char *fmt, ...)
{
    char next[HR_MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(next, sizeof next, fmt, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n;
    if (used < sizeof next - 1) snprintf(next + used, sizeof next - used, ": %.480s", message);
    memcpy(message, next, sizeof message);
    return code;
}

const char *hr_message(void)
{
    return message;
}

const char *hr_status_name(hr_status code)
{
    static const char *const names[] = {
#define HR_STATUS_NAME(name, number) [number] = #name,
        HR_STATUS_LIST(HR_STATUS_NAME)
#undef HR_STATUS_NAME
    };
    size_t i = (size_t)code;
    return i < sizeof names / sizeof *names ? names[i] : "UNKNOWN";
}
