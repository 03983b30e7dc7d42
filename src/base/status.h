/* Statuses and the one sentence that explains them.
 *
 * Codes carry the numbers of absl::Status and PJRT_Error_Code, so a plugin's code passes through
 * unchanged. The origin of a failure calls hr_fail once; callers pass the code on. */
#ifndef HEADRACE_BASE_STATUS_H
#define HEADRACE_BASE_STATUS_H

#include <stddef.h>

#define HR_STATUS_LIST(X)                                                                          \
    X(OK, 0)                                                                                       \
    X(CANCELLED, 1)                                                                                \
    X(UNKNOWN, 2)                                                                                  \
    X(INVALID_ARGUMENT, 3)                                                                         \
    X(DEADLINE_EXCEEDED, 4)                                                                        \
    X(NOT_FOUND, 5)                                                                                \
    X(ALREADY_EXISTS, 6)                                                                           \
    X(PERMISSION_DENIED, 7)                                                                        \
    X(RESOURCE_EXHAUSTED, 8)                                                                       \
    X(FAILED_PRECONDITION, 9)                                                                      \
    X(ABORTED, 10)                                                                                 \
    X(OUT_OF_RANGE, 11)                                                                            \
    X(UNIMPLEMENTED, 12)                                                                           \
    X(INTERNAL, 13)                                                                                \
    X(UNAVAILABLE, 14)                                                                             \
    X(DATA_LOSS, 15)                                                                               \
    X(UNAUTHENTICATED, 16)

typedef enum hr_status {
#define HR_STATUS_ENUM(name, number) HR_##name = number,
    HR_STATUS_LIST(HR_STATUS_ENUM)
#undef HR_STATUS_ENUM
} hr_status;

/* Longest message kept, terminator included, bytes. */
#define HR_MESSAGE_MAX 512

#define HR_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define HR_MUST_USE           __attribute__((warn_unused_result))

/* Records the sentence for this thread and returns `code`. Called once, where the fault is seen. */
hr_status hr_fail(hr_status code, const char *fmt, ...) HR_PRINTF(2, 3);

/* Puts "prefix: " before this thread's sentence, when a caller knows a name the origin could not.
 */
hr_status hr_fail_prefix(hr_status code, const char *fmt, ...) HR_PRINTF(2, 3);

/* This thread's last sentence; "" before any failure. Valid until the thread's next hr_fail. */
const char *hr_message(void);

/* "INVALID_ARGUMENT" for HR_INVALID_ARGUMENT; "UNKNOWN" for a number out of range. */
const char *hr_status_name(hr_status code);

/* Returns early. Only while the function owns nothing. */
#define HR_TRY(x)                                                                                  \
    do {                                                                                           \
        hr_status hr_try_status_ = (x);                                                            \
        if (hr_try_status_) return hr_try_status_;                                                 \
    } while (0)

#endif
