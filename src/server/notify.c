/* systemd's two protocols: a datagram for sd_notify(3), two variables for sd_listen_fds(3).
 *
 * I/O thread. libsystemd would be a dependency of 900 kB for a send and two getenv; both protocols
 * are promised to stay as they are. */
#include "server/notify.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

struct hr_notifier {
    int fd;                 /* owned; -1 = nobody listens */
    struct event *watchdog; /* NULL = nobody waits for it */
};

/* The variable as a positive number; 0 = it is not there, or none. */
static int64_t number_of(const char *variable)
{
    const char *text = hr_environment(variable);
    int64_t n;
    return text && !hr_str_to_i64(hr_str_c(text), &n) && n > 0 ? n : 0;
}

/* A path, or a name in the abstract namespace written with '@'. */
static int open_socket(const char *name)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    size_t n = strlen(name);
    if ((*name != '/' && *name != '@') || n >= sizeof a.sun_path) return -1;
    memcpy(a.sun_path, name, n);
    if (*name == '@') a.sun_path[0] = 0;
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || !connect(fd, (struct sockaddr *)&a, bytes)) return fd;
    close(fd);
    return -1;
}

void hr_notify(const hr_notifier *n, const char *assignments)
{
    if (n->fd < 0) return;
    if (send(n->fd, assignments, strlen(assignments), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        hr_log(HR_LOG_DEBUG, "server: notify: %s", strerror(errno));
}

static void on_watchdog(evutil_socket_t fd, short what, void *self)
{
    (void)fd, (void)what;
    hr_notify(self, "WATCHDOG=1");
}

static hr_status start_watchdog(struct event_base *base, hr_notifier *n)
{
    int64_t microseconds = number_of("WATCHDOG_USEC"), pid = number_of("WATCHDOG_PID");
    if (!microseconds || (pid && pid != getpid())) return HR_OK;
    struct timeval half = { microseconds / 2000000, microseconds / 2 % 1000000 };
    n->watchdog = event_new(base, -1, EV_PERSIST, on_watchdog, n);
    if (n->watchdog && !event_add(n->watchdog, &half)) return HR_OK;
    return hr_fail(HR_RESOURCE_EXHAUSTED, "the watchdog's timer");
}

hr_status hr_notifier_create(struct event_base *base, hr_notifier **out)
{
    const char *name = hr_environment("NOTIFY_SOCKET");
    *out = NULL;
    hr_notifier *n = hr_new0(hr_notifier);
    if (!n) return hr_fail(HR_RESOURCE_EXHAUSTED, "notifier");
    n->fd = name ? open_socket(name) : -1;
    if (name && n->fd < 0)
        hr_log(HR_LOG_WARNING, "server: NOTIFY_SOCKET %s: nobody can be told of readiness", name);
    hr_status st = n->fd < 0 ? HR_OK : start_watchdog(base, n);
    if (st) {
        hr_notifier_destroy(n);
        return st;
    }
    *out = n;
    return HR_OK;
}

void hr_notifier_destroy(hr_notifier *n)
{
    if (!n) return;
    if (n->watchdog) event_free(n->watchdog);
    if (n->fd >= 0) close(n->fd);
    hr_free(n);
}

static hr_status check_socket(int fd)
{
    int listening = 0, type = 0;
    socklen_t n = sizeof listening, m = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &m) || !listening || type != SOCK_STREAM)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "LISTEN_FDS: descriptor %d is no listening stream socket: the .socket unit "
                       "needs ListenStream= and Accept=no",
                       fd);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) || fcntl(fd, F_SETFL, O_NONBLOCK))
        return hr_fail(HR_UNAVAILABLE, "LISTEN_FDS: descriptor %d: %s", fd, strerror(errno));
    return HR_OK;
}

hr_status hr_notify_sockets(size_t most, size_t *n)
{
    int64_t count = number_of("LISTEN_FDS"), pid = number_of("LISTEN_PID");
    *n = 0;
    if (pid != getpid() || !count) return HR_OK;
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDNAMES");
    if (count > (int64_t)most)
        return hr_fail(HR_INVALID_ARGUMENT, "LISTEN_FDS: %lld sockets, %zu are served at most",
                       (long long)count, most);
    for (int64_t i = 0; i < count; i++) HR_TRY(check_socket(HR_NOTIFY_FIRST_SOCKET + (int)i));
    *n = (size_t)count;
    return HR_OK;
}
