/* What systemd is told, and gives: readiness, the watchdog, sockets that are bound already. */
#ifndef HEADRACE_SERVER_NOTIFY_H
#define HEADRACE_SERVER_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct event_base;
typedef struct hr_notifier hr_notifier;

/* Connects to $NOTIFY_SOCKET, before a sandbox forbids it; without that variable nothing is ever
 * told. With $WATCHDOG_USEC the loop says that it lives, twice in that time. */
HR_MUST_USE hr_status hr_notifier_create(struct event_base *base, hr_notifier **out);
void hr_notifier_destroy(hr_notifier *n);
/* "READY=1\nSTATUS=serving"; sd_notify(3) lists the assignments. */
void hr_notify(const hr_notifier *n, const char *assignments);

/* Sockets from systemd (LISTEN_FDS), which begin at descriptor 3: how many; 0 = none for this
 * process. The variables are taken out of the environment. */
#define HR_NOTIFY_FIRST_SOCKET 3
HR_MUST_USE hr_status hr_notify_sockets(size_t most, size_t *n);

#endif
