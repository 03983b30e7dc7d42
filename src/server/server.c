/* The process's life as a server: bind, load, serve, drain.
 *
 * Runs on the calling thread, which becomes the I/O thread: one libevent loop owns everything in
 * this room. The engine is made on a thread of its own ("hr-load"), so that /health can say 503
 * while it loads; from then on it speaks through one wake descriptor, and its events are taken in
 * bounded batches, so that no burst of tokens keeps a socket waiting. SIGTERM drains: new requests
 * are refused, running ones end in time or are ended; a second signal returns at once. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "server/confine.h"
#include "server/metrics.h"
#include "server/net.h"
#include "server/notify.h"

#define EVENT_BATCH 256  /* engine events between two looks at the sockets */
#define DRAIN_TICK  0.02 /* seconds between looks at what still runs */
#define FLUSH_TIME  2.0  /* seconds for last answers to be read */

const hr_json_limits hr_server_json_limits = { .max_values = (size_t)1 << 21 };

/* What the loading thread hands over. */
typedef struct loaded {
    hr_queue_node node; /* first */
    hr_engine *engine;  /* owned; NULL with a status */
    hr_status status;
    char message[HR_MESSAGE_MAX];
} loaded;

typedef struct life {
    hr_server s;
    headrace_options engine_options; /* without `log`: that is set before there are threads */
    hr_confinement confinement;
    hr_thread loader;
    hr_queue from_loader; /* of loaded */
    bool queue;           /* it is initialised */
    loaded *handover;     /* the loading thread's */
    bool loading;
    int load_fd; /* owned eventfd */
    struct event *on_load, *on_engine, *on_term, *on_int, *on_hup, *on_tick;
    hr_notifier *notifier;
    double deadline;  /* hr_now_s: running answers are ended; later: the loop ends */
    bool aborted;     /* they have been */
    hr_status status; /* what hr_server_run returns */
    char message[HR_MESSAGE_MAX];
} life;

/* ---- ends ------------------------------------------------------------------------------------ */

/* The first failure counts. */
static void keep_failure(life *f, hr_status st, const char *message)
{
    if (f->status) return;
    f->status = st;
    snprintf(f->message, sizeof f->message, "%s", message);
}

static void start_drain(life *f, hr_server_phase phase, double seconds)
{
    struct timeval tick = { .tv_usec = (suseconds_t)(DRAIN_TICK * 1e6) };
    f->s.phase = phase;
    f->deadline = hr_now_s() + seconds;
    hr_notify(f->notifier, "STOPPING=1\nSTATUS=finishing what runs");
    hr_connections_drain(f->s.connections);
    event_add(f->on_tick, &tick);
}

/* Over when nothing runs and all is sent; past the deadline what runs is ended, and gets a moment
 * to be read. */
static void on_tick(evutil_socket_t fd, short what, void *self)
{
    (void)fd, (void)what;
    life *f = self;
    hr_server *s = &f->s;
    size_t busy = hr_connections_busy(s->connections);
    if (!busy && !f->loading) {
        event_base_loopbreak(s->base);
        return;
    }
    if (hr_now_s() < f->deadline) return;
    if (f->aborted || f->loading) {
        if (f->loading) keep_failure(f, HR_CANCELLED, "the end came while the model was loading");
        event_base_loopbreak(s->base);
        return;
    }
    f->aborted = true;
    f->deadline = hr_now_s() + FLUSH_TIME;
    if (busy) hr_log(HR_LOG_WARNING, "server: %zu answers are cut short by the shutdown", busy);
    hr_generations_abort_all(s, 503, "The server is shutting down.");
    hr_connections_drain(s->connections);
}

static void on_signal(evutil_socket_t number, short what, void *self)
{
    (void)what;
    life *f = self;
    if (f->s.phase >= HR_SERVER_DRAINING) {
        keep_failure(f, HR_CANCELLED, "a second signal ended the server at once");
        event_base_loopbreak(f->s.base);
        return;
    }
    hr_log(HR_LOG_INFO, "server: %s: %zu requests may finish within %g s",
           number == SIGINT ? "SIGINT" : "SIGTERM", hr_connections_busy(f->s.connections),
           f->s.options.shutdown_timeout);
    start_drain(f, HR_SERVER_DRAINING, f->s.options.shutdown_timeout);
}

/* SIGHUP: keys and certificates anew. What cannot be read leaves the old ones in force. */
static void on_hup(evutil_socket_t number, short what, void *self)
{
    (void)number, (void)what;
    life *f = self;
    hr_server *s = &f->s;
    hr_log(HR_LOG_INFO, "server: SIGHUP: keys and certificates are read again");
    if (hr_access_reload(s->access))
        hr_log(HR_LOG_ERROR, "server: the keys stay as they were: %s", hr_message());
    if (s->tls && hr_tls_reload(s->tls, &s->options))
        hr_log(HR_LOG_ERROR, "server: the certificate stays as it was: %s", hr_message());
}

/* ---- the engine ------------------------------------------------------------------------------ */

static void *load(void *self)
{
    life *f = self;
    loaded *l = f->handover; /* made before, so that it is there */
    l->status = hr_engine_create(f->s.engine_options, &l->engine);
    if (l->status) snprintf(l->message, sizeof l->message, "%s", hr_message());
    if (!hr_queue_push(&f->from_loader, &l->node)) hr_engine_destroy(l->engine);
    return NULL;
}

static void check_engine(life *f)
{
    char message[HR_MESSAGE_MAX];
    hr_status st = hr_engine_failure(f->s.engine, message);
    if (!st || f->s.phase == HR_SERVER_FAILED) return;
    hr_log(HR_LOG_ERROR, "server: the engine has stopped: %s", message);
    keep_failure(f, st, message);
    hr_generations_abort_all(&f->s, 500, "The engine has stopped.");
    f->aborted = true;
    start_drain(f, HR_SERVER_FAILED, FLUSH_TIME);
}

static void on_engine(evutil_socket_t fd, short what, void *self)
{
    (void)fd, (void)what;
    life *f = self;
    check_engine(f); /* before its last events: they are about the step, not about the end */
    for (int i = 0; i < EVENT_BATCH; i++) {
        hr_engine_event *v = hr_engine_poll(f->s.engine, 0);
        if (!v) break;
        hr_generations_event(&f->s, v);
    }
}

static hr_status write_manifest(const hr_server *s)
{
    if (!s->options.manifest) return HR_OK;
    char *text = headrace_manifest(s->engine, 1);
    if (!text) return hr_fail(HR_RESOURCE_EXHAUSTED, "manifest");
    hr_status st = hr_file_write_atomic(s->options.manifest, hr_str_c(text));
    headrace_free(text);
    return st ? hr_fail_prefix(st, "--manifest") : HR_OK;
}

/* How its answers are taken apart. Before the model is there, this checks the names. */
static hr_status find_formats(hr_server *s)
{
    hr_str template = s->engine ? hr_engine_chat_template(s->engine) : HR_STR("");
    const hr_tokenizer *t = s->engine ? hr_engine_tokenizer(s->engine) : NULL;
    hr_reply_format *f = &s->reply;
    HR_TRY(hr_call_format_named(s->options.tool_call_parser, template, t, &f->calls));
    HR_TRY(hr_reasoning_format_named(s->options.reasoning_parser, template, t, &f->reasoning));
    if (!s->engine) return HR_OK;
    if (!t) *f = (hr_reply_format){ 0 };
    hr_log(HR_LOG_INFO, "server: tool-call parser %s%s, reasoning parser %s",
           hr_call_format_name(f->calls), s->options.enable_auto_tool_choice ? "" : " (off)",
           hr_reasoning_format_name(f->reasoning));
    return HR_OK;
}

static hr_status begin_serving(life *f)
{
    hr_server *s = &f->s;
    HR_TRY(find_formats(s));
    f->on_engine =
        event_new(s->base, headrace_wake_fd(s->engine), EV_READ | EV_PERSIST, on_engine, f);
    if (!f->on_engine || event_add(f->on_engine, NULL))
        return hr_fail(HR_RESOURCE_EXHAUSTED, "the engine's event");
    HR_TRY(hr_metrics_ready(s->metrics, s->engine, s->engine_options));
    HR_TRY(write_manifest(s));
    HR_TRY(hr_confine_calls(&f->confinement));
    headrace_info info = { .size = sizeof info };
    headrace_info_get(s->engine, &info);
    hr_log(HR_LOG_INFO,
           "server: ready: %.*s at %s, contexts to %lld tokens, %lld programs, loaded in %.2f s, "
           "compiled in %.2f s",
           HR_STR_ARG(s->model_name), hr_listener_address(s->listener),
           (long long)info.max_model_len, (long long)info.programs, info.load_s, info.compile_s);
    return HR_OK;
}

static void on_load(evutil_socket_t fd, short what, void *self)
{
    (void)fd, (void)what;
    life *f = self;
    hr_queue_clear_wake(&f->from_loader);
    loaded *l = (loaded *)hr_queue_try_pop(&f->from_loader);
    if (!l) return;
    hr_thread_join(&f->loader); /* this was its last act */
    f->loading = false;
    f->s.engine = l->engine;
    if (l->status) keep_failure(f, l->status, l->message);
    hr_free(l);
    if (!f->status && f->s.phase == HR_SERVER_LOADING) {
        hr_status st = begin_serving(f);
        if (st) keep_failure(f, st, hr_message());
        else f->s.phase = HR_SERVER_READY;
        if (!st) hr_notify(f->notifier, "READY=1\nSTATUS=serving");
    }
    if (f->s.phase != HR_SERVER_READY) event_base_loopbreak(f->s.base);
}

/* ---- start ----------------------------------------------------------------------------------- */

static bool is_loopback(const hr_server_options *o)
{
    const char *h = o->host ? o->host : "127.0.0.1";
    return o->uds || !strncmp(h, "127.", 4) || !strcmp(h, "localhost") || !strcmp(h, "::1");
}

static hr_status add_event(struct event *e, struct event **out)
{
    *out = e;
    return e && !event_add(e, NULL) ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "the loop's events");
}

static hr_status make_events(life *f)
{
    struct event_base *b = f->s.base;
    f->load_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->load_fd < 0) return hr_fail(HR_RESOURCE_EXHAUSTED, "eventfd: %s", strerror(errno));
    HR_TRY(hr_queue_init(&f->from_loader, f->load_fd));
    f->queue = true;
    HR_TRY(add_event(evsignal_new(b, SIGTERM, on_signal, f), &f->on_term));
    HR_TRY(add_event(evsignal_new(b, SIGINT, on_signal, f), &f->on_int));
    HR_TRY(add_event(evsignal_new(b, SIGHUP, on_hup, f), &f->on_hup));
    HR_TRY(add_event(event_new(b, f->load_fd, EV_READ | EV_PERSIST, on_load, f), &f->on_load));
    f->on_tick = event_new(b, -1, EV_PERSIST, on_tick, f);
    return f->on_tick ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "the loop's timer");
}

static hr_status make_parts(life *f)
{
    hr_server *s = &f->s;
    s->base = event_base_new();
    if (!s->base) return hr_fail(HR_RESOURCE_EXHAUSTED, "event loop");
    HR_TRY(make_events(f));
    HR_TRY(hr_notifier_create(s->base, &f->notifier));
    HR_TRY(hr_tls_create(&s->options, &s->tls));
    HR_TRY(hr_access_create(&s->options, &s->access));
    HR_TRY(hr_connections_create(s, &s->connections));
    HR_TRY(hr_listener_create(s, &s->listener));
    HR_TRY(hr_confine_files(&s->options, s->engine_options, &f->confinement));
    HR_TRY(hr_json_worker_create(s, &s->json_worker));
    HR_TRY(hr_generations_create(&s->generations));
    char name[256];
    snprintf(name, sizeof name, "%.*s", HR_STR_ARG(s->model_name));
    return hr_metrics_create(name, 0, &s->metrics);
}

static hr_status start_loading(life *f)
{
    loaded *l = hr_new0(loaded);
    if (!l) return hr_fail(HR_RESOURCE_EXHAUSTED, "loading thread");
    f->loading = true;
    f->handover = l;
    hr_status st = hr_thread_start(&f->loader, "hr-load", load, f);
    if (st) hr_free(l);
    return st;
}

static hr_status start(life *f)
{
    hr_server *s = &f->s;
    signal(SIGPIPE, SIG_IGN);
    HR_TRY(find_formats(s));
    HR_TRY(make_parts(f));
    hr_log(HR_LOG_INFO, "server: listening on %s, loading %s", hr_listener_address(s->listener),
           s->engine_options->model);
    if (!s->options.n_api_keys && !s->options.api_key_file && !is_loopback(&s->options))
        hr_log(HR_LOG_WARNING,
               "server: anybody who reaches %s may use this server: no --api-key or --api-key-file",
               hr_listener_address(s->listener));
    return start_loading(f);
}

/* ---- the whole life -------------------------------------------------------------------------- */

/* What the engine still says about answers that have been ended. */
static void settle(life *f)
{
    hr_server *s = &f->s;
    for (double end = hr_now_s() + FLUSH_TIME;
         hr_generations_running(s->generations) && hr_now_s() < end;) {
        hr_engine_event *v = hr_engine_poll(s->engine, 10);
        if (v) hr_generations_event(s, v);
        else if (hr_engine_failure(s->engine, NULL)) break;
    }
}

static void free_events(life *f)
{
    struct event *all[] = {
        f->on_load, f->on_engine, f->on_term, f->on_int, f->on_hup, f->on_tick
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]) event_free(all[i]);
}

static void stop(life *f)
{
    hr_server *s = &f->s;
    hr_listener_destroy(s->listener);
    s->listener = NULL;
    hr_connections_destroy(s->connections);
    free_events(f); /* from here on a signal ends the process */
    hr_json_worker_destroy(s->json_worker);
    if (s->engine && s->generations) settle(f);
    hr_generations_destroy(s->generations);
    hr_thread_join(&f->loader);
    if (f->queue) {
        loaded *l = (loaded *)hr_queue_try_pop(&f->from_loader);
        if (l) hr_engine_destroy(l->engine);
        hr_free(l);
        hr_queue_deinit(&f->from_loader);
    }
    if (f->load_fd >= 0) close(f->load_fd);
    hr_engine_destroy(s->engine);
    hr_metrics_destroy(s->metrics);
    hr_access_destroy(s->access);
    hr_tls_destroy(s->tls);
    hr_notifier_destroy(f->notifier);
    if (s->base) event_base_free(s->base);
}

static void set_defaults(hr_server *s)
{
    const hr_server_options *o = &s->options;
    s->model_name = hr_str_c(o->n_served_names ? o->served_names[0] : s->engine_options->model);
    if (s->options.max_request_bytes <= 0) s->options.max_request_bytes = (int64_t)32 << 20;
    s->started_unix = (int64_t)time(NULL);
}

void hr_server_options_init(hr_server_options *o)
{
    *o = (hr_server_options){
        .port = 8000, .shutdown_timeout = 30, .enable_auto_tool_choice = 1, .sandbox = 1
    };
}

hr_status hr_server_run(const hr_server_options *o, const headrace_options *engine)
{
    life *f = hr_new0(life);
    if (!f) return hr_fail(HR_RESOURCE_EXHAUSTED, "server");
    f->s.options = *o;
    f->engine_options = *engine;
    if (engine->log) hr_log_set((hr_log_sink)engine->log, engine->log_context, HR_LOG_DEBUG);
    f->engine_options.log = NULL;
    f->s.engine_options = &f->engine_options;
    f->load_fd = -1;
    event_set_mem_functions(hr_alloc, hr_realloc, hr_free);
    set_defaults(&f->s);
    hr_status st = start(f);
    if (st) keep_failure(f, st, hr_message());
    else if (event_base_dispatch(f->s.base) < 0)
        keep_failure(f, HR_INTERNAL, "the event loop failed");
    /* at once: threads are in the middle of their work, and the caller ends the process */
    if (f->status == HR_CANCELLED) return hr_fail(HR_CANCELLED, "%s", f->message);
    stop(f);
    if (!f->status) hr_log(HR_LOG_INFO, "server: ended");
    st = f->status ? hr_fail(f->status, "%s", f->message) : HR_OK;
    hr_free(f);
    return st;
}
