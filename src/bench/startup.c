/* bench startup: from launching a process to its first token, cold and warm.
 *
 * Each start is a process of its own, this very program, so that nothing is left over from the one
 * before: no heap, no threads, no mapped weights. The child stamps its first token with the
 * monotonic clock, which all processes share, so that its own output and exit do not count.
 *
 * Cold means: the model's files were dropped from the page cache, as far as the kernel does that
 * (pages that another process maps stay). How much of them still was there is measured by mincore
 * and reported, for on some file systems nothing is dropped at all. And no program is there that a
 * plugin has compiled; the warm start finds those of the cold one. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/sync.h"
#include "bench/bench_int.h"
#include "model/model.h"

#define MAX_RUNS 1000

extern char **environ;

/* ---- one start ------------------------------------------------------------------------------- */

static hr_status first_token(headrace_engine *e)
{
    int64_t prompt[] = { 1 };
    headrace_sampling s;
    headrace_request r;
    headrace_sampling_init(e, &s);
    s.max_tokens = 1;
    s.ignore_eos = 1;
    headrace_request_init(&r);
    r.prompt_ids = prompt;
    r.n_prompt_ids = 1;
    r.sampling = &s;
    uint64_t id;
    HR_TRY((hr_status)headrace_submit(e, &r, &id));
    while (true) {
        headrace_event v;
        HR_TRY((hr_status)headrace_poll(e, &v, -1));
        if (v.kind == HEADRACE_EVENT_FAILED) return hr_fail((hr_status)v.status, "%s", v.message);
        if (v.kind == HEADRACE_EVENT_TOKENS || v.kind == HEADRACE_EVENT_DONE) return HR_OK;
    }
}

hr_status hr_bench_start_once(const hr_bench_engine_options *o, hr_buf *json)
{
    headrace_engine *e = NULL;
    hr_status st = (hr_status)headrace_engine_create(&o->engine, &e);
    double ready = hr_now_s();
    if (!st) st = first_token(e);
    double first = hr_now_s();
    if (!st) {
        headrace_info i;
        headrace_info_get(e, &i);
        hr_json_writer w = { .out = json };
        hr_json_begin_object(&w);
        hr_json_add_f64(&w, "load_s", i.load_s);
        hr_json_add_f64(&w, "compile_s", i.compile_s);
        hr_json_add_f64(&w, "ready_at", ready);
        hr_json_add_f64(&w, "first_token_at", first);
        hr_json_add_i64(&w, "programs", i.programs);
        hr_json_add_i64(&w, "programs_cached", i.programs_cached);
        hr_json_end_object(&w);
        hr_buf_add_byte(json, '\n');
        st = hr_buf_status(json);
    }
    headrace_engine_destroy(e);
    return st;
}

/* ---- the page cache -------------------------------------------------------------------------- */

typedef struct pages {
    uint64_t total, resident;
} pages;

static hr_status count_resident(int fd, size_t size, pages *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (size + page - 1) / page;
    void *at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *map = at == MAP_FAILED ? NULL : hr_alloc(n);
    hr_status st = HR_OK;
    if (at == MAP_FAILED || !map || mincore(at, size, map))
        st = hr_fail(HR_INTERNAL, "mincore: %s", strerror(errno));
    for (size_t i = 0; !st && i < n; i++) out->resident += map[i] & 1;
    out->total += n;
    hr_free(map);
    if (at != MAP_FAILED) munmap(at, size);
    return st;
}

/* Drops one file's pages, and counts those that stay. */
static hr_status drop_file(const char *path, pages *out)
{
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return hr_fail(HR_NOT_FOUND, "%s: %s", path, strerror(errno));
    hr_status st = HR_OK;
    if (fstat(fd, &s)) st = hr_fail(HR_INTERNAL, "%s: %s", path, strerror(errno));
    if (!st && S_ISREG(s.st_mode) && s.st_size > 0) {
        fdatasync(fd); /* dirty pages are not dropped */
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        st = count_resident(fd, (size_t)s.st_size, out);
    }
    close(fd);
    return st;
}

static hr_status drop_folder(const char *path, pages *out)
{
    DIR *d = opendir(path);
    if (!d) return hr_fail(HR_NOT_FOUND, "%s: %s", path, strerror(errno));
    hr_status st = HR_OK;
    for (struct dirent *e; !st && (e = readdir(d));) {
        hr_buf file = { 0 };
        if (e->d_name[0] == '.') continue;
        st = hr_path_join(path, hr_str_c(e->d_name), &file);
        if (!st) st = drop_file(hr_buf_c(&file), out);
        hr_buf_deinit(&file);
    }
    closedir(d);
    return st;
}

static hr_status drop_model(const char *name, double *resident)
{
    hr_buf path = { 0 };
    pages p = { 0 };
    hr_status st = hr_model_locate(name, &path);
    const char *at = hr_buf_c(&path);
    if (!st) st = hr_path_is_dir(at) ? drop_folder(at, &p) : drop_file(at, &p);
    *resident = p.total ? (double)p.resident / (double)p.total : 0;
    hr_buf_deinit(&path);
    return st;
}

/* ---- launching ------------------------------------------------------------------------------- */

static hr_status read_all(int fd, hr_buf *out)
{
    out->limit = 1 << 20;
    for (char *to; (to = hr_buf_reserve(out, 4096));) {
        ssize_t n = read(fd, to, 4096);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? hr_fail(HR_INTERNAL, "a pipe: %s", strerror(errno)) : HR_OK;
        out->n += (size_t)n;
    }
    return hr_buf_status(out);
}

/* Runs argv to its end; its standard output is appended. */
static hr_status launch(char *const *argv, hr_buf *out)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return hr_fail(HR_INTERNAL, "a pipe: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    pid_t child;
    int e = posix_spawn(&child, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    hr_status st =
        e ? hr_fail(HR_INTERNAL, "%s: %s", argv[0], strerror(e)) : read_all(ends[0], out);
    close(ends[0]);
    if (e) return st;
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!st && status) st = hr_fail(HR_ABORTED, "a start failed");
    return st;
}

enum { LAUNCH, LOAD, COMPILE, FIRST, TOTAL, N_PARTS };
static const char *const part_names[N_PARTS] = { "launch_s", "load_s", "compile_s", "first_token_s",
                                                 "total_s" };
static const char *const part_labels[N_PARTS] = { "process and headers", "load and pack weights",
                                                  "compile and warm up", "first token",
                                                  "launch to first token" };

typedef struct starts {
    hr_bench_series part[N_PARTS];
    double resident;          /* the largest share found in the page cache before a start */
    int64_t programs, cached; /* cached: of the last start, those that it did not compile */
} starts;

/* The child's object into the series. Launch is what neither load nor compile accounts for. */
static hr_status take_start(hr_str text, double launched, starts *s)
{
    static const char *const keys[] = { "load_s", "compile_s", "ready_at", "first_token_at" };
    double v[4];
    hr_arena arena = { 0 };
    const hr_json *json = NULL;
    hr_status st = hr_json_parse(hr_str_trim(text), NULL, &arena, &json);
    for (int i = 0; !st && i < 4; i++)
        st = hr_json_to_f64(hr_json_get(json, keys[i]), keys[i], &v[i]);
    if (!st) st = hr_json_to_i64(hr_json_get(json, "programs"), "programs", &s->programs);
    if (!st) st = hr_json_to_i64(hr_json_get(json, "programs_cached"), "cached", &s->cached);
    if (!st) {
        const double parts[N_PARTS] = { v[2] - launched - v[0] - v[1], v[0], v[1], v[3] - v[2],
                                        v[3] - launched };
        for (int i = 0; !st && i < N_PARTS; i++) st = hr_bench_series_add(&s->part[i], parts[i]);
    }
    hr_arena_deinit(&arena);
    return st;
}

static hr_status start(char *const *argv, starts *s)
{
    hr_buf out = { 0 };
    double launched = hr_now_s();
    hr_status st = launch(argv, &out);
    if (!st) st = take_start(hr_buf_str(&out), launched, s);
    hr_buf_deinit(&out);
    return st;
}

/* Cold and warm by turns: each cold start leaves the files in the cache for a warm one. */
static hr_status run_all(const hr_bench_engine_options *o, char *const *argv,
                         const hr_bench_kept *kept, starts both[2])
{
    double from = hr_now_s();
    for (int64_t i = 0; i < 2 * o->num_runs; i++) {
        bool warm = i & 1;
        double resident = 1;
        if (!warm) HR_TRY(drop_model(o->engine.model, &resident));
        if (!warm) hr_bench_kept_empty(kept);
        if (resident > both[warm].resident) both[warm].resident = resident;
        HR_TRY(start(kept->argv ? kept->argv : argv, &both[warm]));
        if (!o->progress) continue;
        hr_bench_progress p = { .what = "starts",
                                .total = (size_t)(2 * o->num_runs),
                                .done = (size_t)i + 1,
                                .seconds = hr_now_s() - from };
        o->progress(o->context, &p);
    }
    return HR_OK;
}

static void report(const hr_bench_engine_options *o, starts both[2], hr_buf *text, hr_buf *json)
{
    static const char *const names[] = { "cold", "warm" };
    hr_json_writer w = { .out = json };
    hr_json_begin_object(&w);
    hr_json_add_str(&w, "model", o->engine.model);
    hr_json_add_i64(&w, "runs", o->num_runs);
    hr_json_add_i64(&w, "programs", both[0].programs);
    hr_json_add_f64(&w, "cold_resident_share", both[0].resident);
    hr_buf_printf(text, "%-26s%12s%12s   seconds, medians of %lld\n", "", "cold", "warm",
                  (long long)o->num_runs);
    for (int i = 0; i < N_PARTS; i++) {
        for (int k = 0; k < 2; k++) hr_bench_series_sort(&both[k].part[i]);
        hr_buf_printf(text, "%-26s%12.4f%12.4f\n", part_labels[i],
                      hr_bench_percentile(&both[0].part[i], 50),
                      hr_bench_percentile(&both[1].part[i], 50));
    }
    for (int k = 0; k < 2; k++) {
        hr_json_key(&w, hr_str_c(names[k]));
        hr_json_begin_object(&w);
        hr_json_add_i64(&w, "programs_cached", both[k].cached);
        for (int i = 0; i < N_PARTS; i++) {
            hr_json_key(&w, hr_str_c(part_names[i]));
            hr_json_begin_object(&w);
            hr_json_add_f64(&w, "mean", hr_bench_mean(&both[k].part[i]));
            hr_json_add_f64(&w, "median", hr_bench_percentile(&both[k].part[i], 50));
            hr_json_add_f64(&w, "min", hr_bench_percentile(&both[k].part[i], 0));
            hr_json_add_f64(&w, "max", hr_bench_percentile(&both[k].part[i], 100));
            hr_json_end_object(&w);
        }
        hr_json_end_object(&w);
    }
    hr_json_end_object(&w);
    hr_buf_printf(text, "cold: at most %.0f %% of the model's pages were still cached\n",
                  100 * both[0].resident);
    if (both[1].cached)
        hr_buf_printf(text, "warm: %lld of %lld programs were compiled by a cold start\n",
                      (long long)both[1].cached, (long long)both[1].programs);
}

hr_status hr_bench_startup(const hr_bench_engine_options *o, char *const *argv, hr_buf *text,
                           hr_buf *json)
{
    if (o->num_runs < 1 || o->num_runs > MAX_RUNS)
        return hr_fail(HR_INVALID_ARGUMENT, "--num-iters must be 1 to %d", MAX_RUNS);
    starts both[2] = { 0 };
    hr_bench_kept kept;
    hr_status st = hr_bench_kept_open(&o->engine, argv, &kept);
    if (!st) st = run_all(o, argv, &kept, both);
    hr_bench_kept_close(&kept);
    if (!st) report(o, both, text, json);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < N_PARTS; i++) hr_bench_series_deinit(&both[k].part[i]);
    if (!st) st = hr_buf_status(text);
    return st ? st : hr_buf_status(json);
}
