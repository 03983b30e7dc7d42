/* The load generator: sends requests when they are due, times every token that comes back.
 *
 * One thread, one loop. With a limit on concurrency a request that is due waits its turn, and its
 * clock starts when it is sent, as in vLLM's benchmark. The time stamp of a chunk is taken before
 * it is parsed. */
#include <event2/event.h>

#include "base/sync.h"
#include "bench/bench_int.h"
#include "bench/stream.h"

typedef struct run run;

/* One request under way. */
typedef struct flight {
    run *run;
    hr_bench_record *record; /* borrowed */
    hr_stream stream;
    double sent, last; /* when it was sent, when the last token chunk came */
    double now;        /* when the bytes at hand came */
    hr_status status;  /* memory ran out while recording */
    hr_http_call *call;
} flight;

struct run {
    const hr_bench_load *load;
    hr_bench_record *records; /* borrowed [n] */
    struct event_base *base;
    struct event *timer; /* owned: the next due time */
    double started;
    size_t sent, active, done, failed;
    int64_t output_tokens;
};

static void launch_due(run *r);

/* ---- one request ----------------------------------------------------------------------------- */

static void set_error(hr_bench_record *r, const char *text)
{
    size_t n = strlen(text);
    r->error = hr_alloc(n + 1);
    if (r->error) memcpy(r->error, text, n + 1);
}

static void tell(run *r)
{
    const hr_bench_load *l = r->load;
    if (!l->progress) return;
    hr_bench_progress p = {
        .what = "requests",
        .total = l->n,
        .done = r->done,
        .failed = r->failed,
        .seconds = hr_now_s() - r->started,
        .output_tokens = r->output_tokens,
    };
    l->progress(l->progress_context, &p);
}

/* What the server counted, or else what was seen. */
static void count(flight *f)
{
    hr_bench_record *r = f->record;
    r->output_tokens =
        f->stream.completion_tokens >= 0 ? f->stream.completion_tokens : f->stream.chunks;
    if (f->stream.prompt_tokens >= 0) r->input_tokens = f->stream.prompt_tokens;
}

/* The request has ended, well or not. */
static void settle(flight *f, const char *error)
{
    run *r = f->run;
    hr_bench_record *record = f->record;
    record->ok = !error;
    record->latency = f->last - f->sent;
    if (error) {
        record->latency = hr_now_s() - f->sent;
        set_error(record, error);
        r->failed++;
    } else count(f);
    r->output_tokens += error ? 0 : record->output_tokens;
    r->done++;
    r->active--;
    hr_stream_deinit(&f->stream);
    hr_free(f);
    tell(r);
}

static void on_token(void *context, hr_str text)
{
    (void)text;
    flight *f = context;
    if (f->stream.chunks == 1) f->record->ttft = f->now - f->sent;
    else if (!f->status) f->status = hr_bench_series_add(&f->record->itl, f->now - f->last);
    f->last = f->now;
}

static void on_data(void *context, hr_str bytes)
{
    flight *f = context;
    f->now = hr_now_s();
    hr_stream_feed(&f->stream, bytes);
}

static void on_done(void *context, const hr_http_result *result)
{
    flight *f = context;
    run *r = f->run;
    const char *error = result->status ? result->message : hr_stream_finish(&f->stream);
    if (!error && !f->stream.chunks) error = "the answer held no tokens";
    if (!error && f->status) error = "no memory for its times";
    settle(f, error);
    launch_due(r);
    if (r->done == r->load->n) event_base_loopbreak(r->base);
}

/* No memory for a request is a request that failed. */
static void launch(run *r, size_t i)
{
    const hr_bench_load *l = r->load;
    flight *f = hr_new0(flight);
    if (!f) {
        set_error(&r->records[i], "no memory for a request");
        r->failed++;
        r->done++;
        return;
    }
    *f = (flight){ .run = r, .record = &r->records[i] };
    f->record->input_tokens = l->prompts[i].input_tokens;
    hr_stream_init(&f->stream, on_token, f);
    hr_buf body = { 0 };
    l->body(l->context, &l->prompts[i], &body);
    hr_status st = hr_buf_status(&body);
    f->sent = f->last = hr_now_s();
    f->record->sent = f->sent - r->started;
    r->active++;
    if (!st)
        st = hr_http_send(l->http,
                          &(hr_http_request){ .path = l->path,
                                              .body = hr_buf_str(&body),
                                              .on_data = on_data,
                                              .on_done = on_done,
                                              .context = f },
                          &f->call);
    hr_buf_deinit(&body);
    if (st) settle(f, hr_message());
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void wait_until(run *r, double at)
{
    double left = r->started + at - hr_now_s();
    if (left < 0) left = 0;
    struct timeval tv = { .tv_sec = (time_t)left,
                          .tv_usec = (suseconds_t)((left - (double)(time_t)left) * 1e6) };
    event_add(r->timer, &tv);
}

static void launch_due(run *r)
{
    const hr_bench_load *l = r->load;
    while (r->sent < l->n && (!l->max_concurrency || r->active < l->max_concurrency)) {
        if (r->started + l->at[r->sent] > hr_now_s()) {
            wait_until(r, l->at[r->sent]);
            return;
        }
        launch(r, r->sent++);
    }
}

static void on_due(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    run *r = context;
    launch_due(r);
    if (r->done == r->load->n) event_base_loopbreak(r->base);
}

hr_status hr_bench_load_run(const hr_bench_load *l, hr_bench_record *records, double *duration)
{
    *duration = 0;
    run r = { .load = l, .records = records, .base = hr_http_base(l->http) };
    r.timer = evtimer_new(r.base, on_due, &r);
    if (!r.timer) return hr_fail(HR_RESOURCE_EXHAUSTED, "a timer");
    r.started = hr_now_s();
    launch_due(&r);
    hr_status st = HR_OK;
    while (r.done < l->n && !st)
        if (event_base_dispatch(r.base) && r.done < l->n)
            st = hr_fail(HR_INTERNAL, "the event loop ended before %zu requests", l->n - r.done);
    *duration = hr_now_s() - r.started;
    event_free(r.timer);
    return st;
}

void hr_bench_record_deinit(hr_bench_record *r)
{
    hr_bench_series_deinit(&r->itl);
    hr_free(r->error);
    *r = (hr_bench_record){ 0 };
}
