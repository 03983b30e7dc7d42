/* The listening sockets: addresses, a Unix socket, and how many clients fit.
 *
 * Runs on the I/O thread. Binding comes before everything else, so that a taken port ends the
 * process before a model is loaded. No SO_REUSEPORT: two servers on one port is a mistake. When
 * descriptors run out the listener rests until a connection ends; the kernel's queue waits. */
#include <arpa/inet.h>
#include <errno.h>
#include <event2/listener.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "server/net.h"
#include "server/notify.h"

#define MAX_SOCKETS 8
#define BACKLOG     1024
#define OWN_FILES   64 /* descriptors kept for models, pipes, logs */
#define MIN_CLIENTS 16

struct hr_listener {
    hr_server *server;
    struct evconnlistener *sockets[MAX_SOCKETS]; /* owned */
    size_t n;
    size_t most;     /* connections at once */
    bool resting;    /* accepts nothing until a connection ends */
    const char *uds; /* borrowed; its file is ours to remove */
    struct stat uds_file;
    char address[256];
    struct event *retry;
};

/* ---- accepting ------------------------------------------------------------------------------- */

static void rest(hr_listener *l)
{
    struct timeval soon = { .tv_usec = 100000 };
    if (!l->resting)
        hr_log(HR_LOG_WARNING, "server: %zu connections: no more for now",
               hr_connections_count(l->server->connections));
    l->resting = true;
    for (size_t i = 0; i < l->n; i++) evconnlistener_disable(l->sockets[i]);
    event_add(l->retry, &soon); /* files may be freed by others, too */
}

void hr_listener_resume(hr_listener *l)
{
    if (!l->resting || hr_connections_count(l->server->connections) >= l->most) return;
    l->resting = false;
    for (size_t i = 0; i < l->n; i++) evconnlistener_enable(l->sockets[i]);
}

static void retry(evutil_socket_t fd, short what, void *self)
{
    (void)fd, (void)what;
    hr_listener_resume(self);
}

static void on_accept(struct evconnlistener *socket, evutil_socket_t fd, struct sockaddr *peer,
                      int n, void *self)
{
    (void)socket, (void)n;
    hr_listener *l = self;
    hr_server *s = l->server;
    int on = 1;
    void *ssl = s->tls ? hr_tls_session(s->tls) : NULL;
    if (s->tls && !ssl) {
        close(fd);
        return;
    }
    if (peer->sa_family != AF_UNIX) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    hr_connections_add(s->connections, fd, ssl);
    if (hr_connections_count(s->connections) >= l->most) rest(l);
}

static void on_accept_error(struct evconnlistener *socket, void *self)
{
    (void)socket;
    int e = EVUTIL_SOCKET_ERROR();
    hr_log(HR_LOG_WARNING, "server: accept: %s", evutil_socket_error_to_string(e));
    rest(self);
}

/* Raises the soft limit to the hard one; so many clients fit. */
static size_t client_limit(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r)) return MIN_CLIENTS;
    rlim_t soft = r.rlim_cur;
    r.rlim_cur = r.rlim_max;
    if (soft < r.rlim_max && setrlimit(RLIMIT_NOFILE, &r)) r.rlim_cur = soft;
    if (r.rlim_cur == RLIM_INFINITY || r.rlim_cur > 1 << 20) return 1 << 20;
    return r.rlim_cur < OWN_FILES + MIN_CLIENTS ? MIN_CLIENTS : (size_t)r.rlim_cur - OWN_FILES;
}

/* ---- binding --------------------------------------------------------------------------------- */

/* Takes the descriptor; backlog 0: it listens already. */
static hr_status add_socket(hr_listener *l, int fd, int backlog)
{
    unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC;
    struct evconnlistener *e =
        evconnlistener_new(l->server->base, on_accept, l, flags, backlog, fd);
    if (!e) {
        int error = errno;
        close(fd);
        return hr_fail(error == EADDRINUSE ? HR_ALREADY_EXISTS : HR_RESOURCE_EXHAUSTED,
                       "cannot listen: %s", strerror(error));
    }
    evconnlistener_set_error_cb(e, on_accept_error);
    l->sockets[l->n++] = e;
    return HR_OK;
}

static hr_status bind_failed(const hr_server_options *o, int error)
{
    const char *host = o->host ? o->host : "127.0.0.1";
    if (error == EADDRINUSE)
        return hr_fail(HR_ALREADY_EXISTS,
                       "port %d of %s is taken by another process: choose another with --port, or "
                       "0 for any free one",
                       o->port, host);
    return hr_fail(error == EACCES ? HR_PERMISSION_DENIED : HR_INVALID_ARGUMENT,
                   "cannot bind --host %s --port %d: %s", host, o->port, strerror(error));
}

static int open_socket(const struct addrinfo *a, bool alone)
{
    int on = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    /* beside an IPv4 socket on the same port an IPv6 one must keep to itself */
    if (a->ai_family == AF_INET6 && !alone)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* The port that --port 0 found; further addresses take the same. */
static int port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

static void set_port(struct sockaddr *a, int port)
{
    uint16_t p = htons((uint16_t)port);
    if (a->sa_family == AF_INET6) ((struct sockaddr_in6 *)(void *)a)->sin6_port = p;
    else ((struct sockaddr_in *)(void *)a)->sin_port = p;
}

/* Every address that the name has; one of a kind that this machine lacks is passed over. */
static hr_status bind_addresses(hr_listener *l, struct addrinfo *list, int *port)
{
    const hr_server_options *o = &l->server->options;
    int error = EADDRNOTAVAIL;
    for (struct addrinfo *a = list; a && l->n < MAX_SOCKETS; a = a->ai_next) {
        if (*port) set_port(a->ai_addr, *port);
        int fd = open_socket(a, !list->ai_next);
        if (fd < 0) {
            error = errno;
            if (error == EADDRINUSE) return bind_failed(o, error);
            continue;
        }
        *port = port_of(fd);
        HR_TRY(add_socket(l, fd, BACKLOG));
    }
    return l->n ? HR_OK : bind_failed(o, error);
}

static hr_status listen_tcp(hr_listener *l)
{
    const hr_server_options *o = &l->server->options;
    const char *host = o->host ? o->host : "127.0.0.1";
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *list;
    if (o->port < 0 || o->port > 65535)
        return hr_fail(HR_INVALID_ARGUMENT, "--port %d: ports are 0 to 65535", o->port);
    char service[8];
    snprintf(service, sizeof service, "%d", o->port);
    int e = getaddrinfo(host, service, &hints, &list);
    if (e) return hr_fail(HR_INVALID_ARGUMENT, "--host %s: %s", host, gai_strerror(e));
    int port = o->port;
    hr_status st = bind_addresses(l, list, &port);
    freeaddrinfo(list);
    bool six = strchr(host, ':') != NULL;
    snprintf(l->address, sizeof l->address, "%s://%s%s%s:%d", o->ssl_certfile ? "https" : "http",
             six ? "[" : "", host, six ? "]" : "", port);
    return st;
}

/* ---- Unix socket ----------------------------------------------------------------------------- */

/* A socket file that nobody listens on is left over from a crash; anything else is somebody's. */
static hr_status clear_stale(const char *path, const struct sockaddr_un *a)
{
    struct stat f;
    if (lstat(path, &f)) return HR_OK;
    if (!S_ISSOCK(f.st_mode))
        return hr_fail(HR_ALREADY_EXISTS, "--uds %s: the file exists and is no socket", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return hr_fail(HR_RESOURCE_EXHAUSTED, "--uds %s: %s", path, strerror(errno));
    bool dead = connect(fd, (const struct sockaddr *)a, sizeof *a) && errno == ECONNREFUSED;
    close(fd);
    if (!dead) return hr_fail(HR_ALREADY_EXISTS, "--uds %s: another process listens there", path);
    return unlink(path) ? hr_fail(HR_PERMISSION_DENIED, "--uds %s: %s", path, strerror(errno))
                        : HR_OK;
}

static hr_status listen_unix(hr_listener *l, const char *path)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof a.sun_path)
        return hr_fail(HR_INVALID_ARGUMENT, "--uds %s: a socket's path has at most %zu bytes", path,
                       sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, strlen(path) + 1);
    HR_TRY(clear_stale(path, &a));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return hr_fail(HR_RESOURCE_EXHAUSTED, "--uds %s: %s", path, strerror(errno));
    if (bind(fd, (struct sockaddr *)&a, sizeof a)) {
        int error = errno;
        close(fd);
        return hr_fail(HR_INVALID_ARGUMENT, "--uds %s: %s", path, strerror(error));
    }
    if (lstat(path, &l->uds_file) == 0) l->uds = path;
    snprintf(l->address, sizeof l->address, "unix:%s", path);
    return add_socket(l, fd, BACKLOG);
}

/* ---- from systemd ---------------------------------------------------------------------------- */

/* "unix:/run/headrace.sock", "http://[::]:8000". */
static void tell_address(hr_listener *l, int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_un un;
        struct sockaddr_storage room;
    } a = { .any.sa_family = AF_UNSPEC };
    socklen_t n = sizeof a;
    char host[NI_MAXHOST], port[NI_MAXSERV];
    bool told = !getsockname(fd, &a.any, &n);
    if (told && a.any.sa_family == AF_UNIX)
        snprintf(l->address, sizeof l->address, "unix:%s", a.un.sun_path);
    else if (told && !getnameinfo(&a.any, n, host, sizeof host, port, sizeof port,
                                  NI_NUMERICHOST | NI_NUMERICSERV))
        snprintf(l->address, sizeof l->address,
                 a.any.sa_family == AF_INET6 ? "%s://[%s]:%s" : "%s://%s:%s",
                 l->server->options.ssl_certfile ? "https" : "http", host, port);
}

static hr_status listen_given(hr_listener *l, size_t n)
{
    const hr_server_options *o = &l->server->options;
    if (o->uds || o->host)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%s: systemd has bound the sockets already (LISTEN_FDS); the .socket unit "
                       "says where",
                       o->uds ? "--uds" : "--host");
    for (size_t i = 0; i < n; i++) {
        int fd = HR_NOTIFY_FIRST_SOCKET + (int)i;
        if (!i) tell_address(l, fd);
        HR_TRY(add_socket(l, fd, 0));
    }
    return HR_OK;
}

static hr_status listen_anywhere(hr_listener *l)
{
    const hr_server_options *o = &l->server->options;
    size_t given;
    HR_TRY(hr_notify_sockets(MAX_SOCKETS, &given));
    if (given) return listen_given(l, given);
    return o->uds ? listen_unix(l, o->uds) : listen_tcp(l);
}

/* ---- life ------------------------------------------------------------------------------------ */

hr_status hr_listener_create(hr_server *s, hr_listener **out)
{
    *out = NULL;
    hr_listener *l = hr_new0(hr_listener);
    if (!l) return hr_fail(HR_RESOURCE_EXHAUSTED, "listener");
    l->server = s;
    l->most = client_limit();
    l->retry = event_new(s->base, -1, 0, retry, l);
    hr_status st = l->retry ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "listener's timer");
    if (!st) st = listen_anywhere(l);
    if (st) {
        hr_listener_destroy(l);
        return st;
    }
    *out = l;
    return HR_OK;
}

void hr_listener_destroy(hr_listener *l)
{
    if (!l) return;
    for (size_t i = 0; i < l->n; i++) evconnlistener_free(l->sockets[i]);
    struct stat f;
    if (l->uds && lstat(l->uds, &f) == 0 && f.st_ino == l->uds_file.st_ino &&
        f.st_dev == l->uds_file.st_dev)
        unlink(l->uds);
    if (l->retry) event_free(l->retry);
    hr_free(l);
}

const char *hr_listener_address(const hr_listener *l)
{
    return l->address;
}
