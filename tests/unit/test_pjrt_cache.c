/* The cache of compiled programs, alone and under the PJRT room over a stub plugin: entries that
 * are damaged, foreign or too many, plugins that take or give none, memory and calls that fail. And
 * the threads that compile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plugin_bed.h"

#ifdef HR_HAVE_PJRT
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/log.h"
#include "model_files.h"
#include "pjrt/cache.h"
#include "pjrt/pjrt.h"

#define PLAIN HR_STUB_FOLDER "/stub_plain.so"
#define LIMIT ((uint64_t)1 << 20)

/* ---- what the log says ----------------------------------------------------------------------- */

static hr_counter warnings;
static char warned[HR_MESSAGE_MAX * 2];

static void watch_log(void *self, hr_log_level level, const char *line)
{
    (void)self;
    if (level > HR_LOG_WARNING) return;
    hr_counter_add(&warnings, 1);
    snprintf(warned, sizeof warned, "%s", line);
}

/* Warnings since the last call. */
static int warnings_now(void)
{
    int n = (int)hr_counter_get(&warnings);
    hr_counter_set(&warnings, 0);
    return n;
}

static int setup(void **state)
{
    hr_log_set(watch_log, NULL, HR_LOG_DEBUG);
    warnings_now();
    int st = scratch_setup(state);
    setenv("XDG_CACHE_HOME", at("xdg"), 1); /* digests of plugins are remembered there */
    return st;
}

static int teardown(void **state)
{
    hr_log_set(NULL, NULL, HR_LOG_DEBUG);
    return scratch_teardown(state);
}

/* ---- the folder alone ------------------------------------------------------------------------ */

static const hr_str options = { "options", 7 };

static hr_digest key_of(const hr_pjrt_cache *c, const char *text)
{
    hr_digest key;
    assert_int_equal(hr_pjrt_cache_key(c, options, hr_str_c(text), &key), HR_OK);
    return key;
}

static void put(hr_pjrt_cache *c, const char *text, const char *blob)
{
    hr_digest key = key_of(c, text);
    hr_pjrt_entry e = { hr_str_c(blob), 11, 22 };
    hr_pjrt_cache_write(c, &key, &e);
}

/* Whether the program is there, with this blob. */
static bool has(hr_pjrt_cache *c, const char *text, const char *blob)
{
    hr_digest key = key_of(c, text);
    hr_buf file = { 0 };
    hr_pjrt_entry e;
    bool there = hr_pjrt_cache_read(c, &key, &file, &e);
    if (there) {
        assert_true(hr_str_eq_c(e.blob, blob));
        assert_true(e.peak_bytes == 11 && e.code_bytes == 22);
    }
    hr_buf_deinit(&file);
    return there;
}

static const char *path_in(const hr_pjrt_cache *c, const char *text)
{
    static char path[512];
    char name[HR_DIGEST_TEXT];
    hr_digest key = key_of(c, text);
    hr_digest_text(&key, name);
    snprintf(path, sizeof path, "%s/%s.program", c->folder, name);
    return path;
}

static void open_cache(hr_pjrt_cache *c, uint64_t limit)
{
    hr_pjrt_cache_open(c, at("cache/of/programs"), limit, HR_STR("this machine"));
    assert_non_null(c->folder);
}

static void test_kept(void **state)
{
    (void)state;
    hr_pjrt_cache c, other;
    struct stat s;
    open_cache(&c, LIMIT);
    assert_int_equal(stat(c.folder, &s), 0);
    assert_int_equal(s.st_mode & 07777, 0700);
    assert_false(has(&c, "a", ""));
    put(&c, "a", "blob of a");
    put(&c, "b", "");
    assert_true(has(&c, "a", "blob of a") && has(&c, "b", ""));
    put(&c, "a", "another");
    assert_true(has(&c, "a", "another"));
    hr_pjrt_cache_open(&other, c.folder, LIMIT, HR_STR("this machine"));
    assert_true(has(&other, "a", "another"));
    hr_pjrt_cache_close(&other);
    hr_pjrt_cache_open(&other, c.folder, LIMIT, HR_STR("another machine"));
    assert_false(has(&other, "a", "another"));
    hr_pjrt_cache_close(&other);
    hr_pjrt_cache_close(&c);
    assert_int_equal(warnings_now(), 0);
}

/* The parts of a key are told apart. */
static void test_keys(void **state)
{
    (void)state;
    hr_pjrt_cache c;
    hr_digest a, b;
    open_cache(&c, LIMIT);
    assert_int_equal(hr_pjrt_cache_key(&c, HR_STR("xy"), HR_STR("z"), &a), HR_OK);
    assert_int_equal(hr_pjrt_cache_key(&c, HR_STR("x"), HR_STR("yz"), &b), HR_OK);
    assert_memory_not_equal(&a, &b, sizeof a);
    hr_pjrt_cache_close(&c);
}

/* Not used, one warning that names it; what is written next takes its place. */
static void refused(hr_pjrt_cache *c, const char *why)
{
    if (has(c, "a", "blob of a")) fail_msg("taken: %s", why);
    assert_int_equal(warnings_now(), 1);
    assert_non_null(strstr(warned, path_in(c, "a")));
}

static void overwrite(const char *path, const char *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

static void test_damaged(void **state)
{
    (void)state;
    hr_pjrt_cache c;
    hr_buf whole = { 0 };
    open_cache(&c, LIMIT);
    put(&c, "a", "blob of a");
    assert_int_equal(hr_file_slurp(path_in(&c, "a"), LIMIT, &whole), HR_OK);
    for (size_t i = 0; i < whole.n; i++) {
        whole.p[i] ^= 0x10;
        overwrite(path_in(&c, "a"), whole.p, whole.n);
        whole.p[i] ^= 0x10;
        refused(&c, "a byte is another");
        overwrite(path_in(&c, "a"), whole.p, i);
        refused(&c, "it is cut off");
    }
    hr_buf_add_byte(&whole, 0);
    overwrite(path_in(&c, "a"), whole.p, whole.n);
    refused(&c, "it is longer");
    unlink(path_in(&c, "a"));
    assert_int_equal(mkdir(path_in(&c, "a"), 0700), 0);
    refused(&c, "it is a folder");
    rmdir(path_in(&c, "a"));
    overwrite(path_in(&c, "a"), "", 0);
    put(&c, "a", "blob of a");
    assert_true(has(&c, "a", "blob of a"));
    assert_int_equal(warnings_now(), 0);
    hr_buf_deinit(&whole);
    hr_pjrt_cache_close(&c);
}

/* Whole, but of another program: copied to this one's name. */
static void test_foreign(void **state)
{
    (void)state;
    hr_pjrt_cache c;
    hr_buf other = { 0 };
    open_cache(&c, LIMIT);
    put(&c, "b", "blob of a");
    assert_int_equal(hr_file_slurp(path_in(&c, "b"), LIMIT, &other), HR_OK);
    assert_int_equal(hr_file_write_atomic(path_in(&c, "a"), hr_buf_str(&other)), HR_OK);
    refused(&c, "of another program");
    assert_non_null(strstr(warned, "another program"));
    hr_buf_deinit(&other);
    hr_pjrt_cache_close(&c);
}

static void set_age(const char *path, time_t seconds)
{
    struct timespec t[2] = { { .tv_sec = time(NULL) - seconds } };
    t[1] = t[0];
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static void test_bounded(void **state)
{
    (void)state;
    hr_pjrt_cache c;
    struct stat s;
    open_cache(&c, LIMIT);
    put(&c, "a", "0123456789");
    assert_int_equal(stat(path_in(&c, "a"), &s), 0);
    c.limit = (uint64_t)s.st_size * 3;
    put(&c, "b", "0123456789");
    put(&c, "c", "0123456789");
    set_age(path_in(&c, "a"), 30);
    set_age(path_in(&c, "b"), 20);
    set_age(path_in(&c, "c"), 10);
    assert_true(has(&c, "a", "0123456789")); /* a use */
    put(&c, "d", "0123456789");
    assert_true(has(&c, "a", "0123456789") && has(&c, "c", "0123456789"));
    assert_true(has(&c, "d", "0123456789") && !has(&c, "b", ""));
    set_age(path_in(&c, "a"), 20);
    put(&c, "c", "9876543210"); /* takes its own place */
    assert_true(has(&c, "a", "0123456789") && has(&c, "d", "0123456789"));
    c.limit = (uint64_t)s.st_size; /* room for one */
    put(&c, "e", "0123456789");
    assert_true(has(&c, "e", "0123456789"));
    assert_false(has(&c, "a", "") || has(&c, "c", "") || has(&c, "d", ""));
    assert_int_equal(warnings_now(), 0);
    c.limit--;
    put(&c, "f", "0123456789");
    put(&c, "g", "0123456789");
    assert_true(!has(&c, "f", "") && !has(&c, "g", ""));
    assert_true(has(&c, "e", "0123456789")); /* not thrown out for one that does not fit */
    assert_int_equal(warnings_now(), 1);
    hr_pjrt_cache_close(&c);
}

static void touch(const hr_pjrt_cache *c, const char *name, time_t age)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", c->folder, name);
    assert_int_equal(hr_file_write_atomic(path, HR_STR("something")), HR_OK);
    set_age(path, age);
}

static bool is_there(const hr_pjrt_cache *c, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", c->folder, name);
    return hr_path_exists(path);
}

static void test_left_behind(void **state)
{
    (void)state;
    hr_pjrt_cache c;
    open_cache(&c, 400);
    touch(&c, "x.program.tmp.1.2", 7200);
    touch(&c, "y.program.tmp.1.3", 60);
    touch(&c, "notes.txt", 7200);
    put(&c, "a", "blob of a");
    assert_false(is_there(&c, "x.program.tmp.1.2"));
    assert_true(is_there(&c, "y.program.tmp.1.3") && is_there(&c, "notes.txt"));
    hr_pjrt_cache_close(&c);
}

static void test_no_folder(void **state)
{
    (void)state;
    hr_pjrt_cache c;
    put_text("file", "");
    hr_pjrt_cache_open(&c, at("file/cache"), LIMIT, HR_STR(""));
    assert_null(c.folder);
    assert_int_equal(warnings_now(), 1);
    put(&c, "a", "blob of a"); /* and is no trouble */
    assert_false(has(&c, "a", ""));
    hr_pjrt_cache_close(&c);
    assert_int_equal(mkdir(at("shared"), 0700), 0);
    assert_int_equal(chmod(at("shared"), 0777), 0);
    hr_pjrt_cache_open(&c, at("shared"), LIMIT, HR_STR(""));
    assert_null(c.folder);
    assert_int_equal(warnings_now(), 1);
    assert_non_null(strstr(warned, "others may write to it"));
    open_cache(&c, LIMIT);
    assert_int_equal(rmdir(c.folder), 0); /* as good as a disk that went read-only */
    put(&c, "a", "blob of a");
    put(&c, "b", "blob of b");
    assert_int_equal(warnings_now(), 1);
    hr_pjrt_cache_close(&c);
}

/* ---- under the room -------------------------------------------------------------------------- */

static hr_graph *graphs[8];
enum { GRAPHS = sizeof graphs / sizeof *graphs };

static int make_graphs(void **state)
{
    (void)state;
    for (int i = 0; i < GRAPHS; i++) {
        hr_graph *g;
        if (hr_graph_create("halver", &graphs[i])) return 1;
        g = graphs[i];
        hr_value *x = hr_graph_input(g, "x", HR_DTYPE_F32, HR_SHAPE(4, i + 1), HR_LIVE_ALL);
        hr_graph_output(g, "y", hr_op_scale(g, x, 0.5f));
        if (hr_graph_finish(g)) return 1;
    }
    return 0;
}

static int drop_graphs(void **state)
{
    (void)state;
    for (int i = 0; i < GRAPHS; i++) hr_graph_destroy(graphs[i]);
    return 0;
}

/* One program, compiled on this thread with the folder scratch/programs. */
static hr_status compile_one(const char *plugin, hr_program_info *info)
{
    hr_pjrt_options o = { .plugin = plugin,
                          .cache_folder = at("programs"),
                          .cache_bytes = LIMIT,
                          .compile_threads = -1 };
    hr_backend *b;
    hr_program *p;
    HR_TRY(hr_pjrt_backend_create(&o, &b));
    hr_status st = hr_backend_compile(b, graphs[0], &p);
    if (!st) hr_program_info_get(b, p, info);
    hr_program_destroy(p, b);
    hr_backend_destroy(b);
    return st;
}

static stub_state *expect(bool cached, int compiles, int loads)
{
    hr_program_info info;
    stub_state *s = stub_of(STUB);
    s->compiles = s->loads = s->calls = 0;
    if (compile_one(STUB, &info)) fail_msg("%s", hr_message());
    assert_int_equal(info.cached, cached);
    assert_int_equal(s->compiles, compiles);
    assert_int_equal(s->loads, loads);
    assert_true(info.peak_bytes == 4096 && info.code_bytes == 777 && info.steps == 1);
    assert_int_equal(s->alive, 0);
    return s;
}

/* The only entry there is. */
static const char *entry(void)
{
    static char path[512];
    char folder[64];
    snprintf(folder, sizeof folder, "%s", at("programs"));
    DIR *d = opendir(folder);
    path[0] = '\0';
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (hr_str_ends(hr_str_c(e->d_name), HR_STR(".program")))
            snprintf(path, sizeof path, "%s/%.200s", folder, e->d_name);
    closedir(d);
    return path;
}

static void test_cold_and_warm(void **state)
{
    (void)state;
    *stub_of(STUB) = (stub_state){ .results = 1 };
    expect(false, 1, 0);
    expect(true, 0, 1);
    assert_int_equal(warnings_now(), 0);
    assert_int_equal(hr_file_write_atomic(entry(), HR_STR("rubbish")), HR_OK);
    expect(false, 1, 0);
    assert_int_equal(warnings_now(), 1);
    expect(true, 0, 1);
    stub_of(STUB)->refuse_load = 1; /* whole, and the plugin wants it not */
    expect(false, 1, 0);
    assert_int_equal(warnings_now(), 1);
    assert_non_null(strstr(warned, "the stub was told to fail"));
    stub_of(STUB)->refuse_load = 0;
    assert_int_equal(warnings_now(), 0);
    expect(true, 0, 1);
}

/* A program that loads, but has other results than the graph, never runs. */
static void test_loads_wrong(void **state)
{
    (void)state;
    *stub_of(STUB) = (stub_state){ .results = 1, .blob_results = 2 };
    expect(false, 1, 0);
    stub_of(STUB)->blob_results = 0;
    expect(false, 1, 1);
    assert_int_equal(warnings_now(), 1);
    expect(true, 0, 1);
}

static void test_plugin_without(void **state)
{
    (void)state;
    hr_program_info info;
    for (int i = 0; i < 2; i++) {
        *stub_of(PLAIN) = (stub_state){ .results = 1 };
        assert_int_equal(compile_one(PLAIN, &info), HR_OK);
        assert_false(info.cached);
        assert_int_equal(stub_of(PLAIN)->compiles, 1);
        assert_int_equal(stub_of(PLAIN)->alive, 0);
        assert_false(hr_path_exists(at("programs")));
        assert_int_equal(warnings_now(), 0);
    }
}

/* Every call fails in turn, cold and warm: a program or the stub's own status, nothing left. What
 * only the cache wants may fail without anyone missing it. */
static void test_each_call(void **state)
{
    (void)state;
    hr_program_info info;
    stub_state *s = stub_of(STUB);
    for (int warm = 0; warm < 2; warm++) {
        int missed = 0, n = 1;
        for (;; n++) {
            if (!warm && hr_path_exists(at("programs"))) unlink(entry());
            *s = (stub_state){ .results = 1 };
            if (warm) assert_int_equal(compile_one(STUB, &info), HR_OK);
            *s = (stub_state){ .results = 1, .fail_at = n };
            hr_status st = compile_one(STUB, &info);
            assert_int_equal(s->alive, 0);
            if (s->calls < n) break;
            if (st) assert_int_equal(st, HR_UNAVAILABLE);
            missed += !st;
        }
        assert_in_range(n, 10, 60);
        /* cold: what the identity asks, and serialize; warm: also load, and a look at what it gave
         */
        assert_in_range(missed, 3, 9);
    }
}

/* Memory for the cache is memory that compiling does not need: with less there is no cache. */
static void test_short_memory(void **state)
{
    (void)state;
    static const hr_allocator dry = { dry_alloc, dry_realloc, dry_free, NULL };
    hr_program_info info;
    stub_state *s = stub_of(STUB);
    for (int warm = 0; warm < 2; warm++) {
        int n = 0, uncached = 0;
        for (bool enough = false; !enough; n++) {
            if (!warm && hr_path_exists(at("programs"))) unlink(entry());
            *s = (stub_state){ .results = 1 };
            memory_left = n;
            memory_held = 0;
            hr_set_allocator(&dry);
            hr_status st = compile_one(STUB, &info);
            hr_set_allocator(NULL);
            if (st) assert_int_equal(st, HR_RESOURCE_EXHAUSTED);
            assert_int_equal(memory_held, 0);
            assert_int_equal(s->alive, 0);
            enough = memory_left >= 0;
            uncached += !st && !enough;
            if (enough) assert_int_equal(info.cached, warm);
        }
        assert_in_range(n, 10, 400);
        assert_in_range(uncached, 3, 100);
        expect(true, 0, 1); /* and whatever was written is whole */
    }
}

static void test_two_processes(void **state)
{
    (void)state;
    enum { CHILDREN = 4, STARTS = 20 };
    pid_t child[CHILDREN];
    *stub_of(STUB) = (stub_state){ .results = 1 };
    for (int i = 0; i < CHILDREN; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i]) continue;
        hr_program_info info;
        hr_status st = HR_OK;
        for (int k = 0; !st && k < STARTS; k++) {
            st = compile_one(STUB, &info);
            if (k % 4 == i) unlink(entry()); /* cold again, for some of them in the middle */
        }
        if (st || hr_counter_get(&warnings)) print_message("%s\n", st ? hr_message() : warned);
        _exit(st || warnings_now());
    }
    int bad = 0;
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        bad += !WIFEXITED(status) || WEXITSTATUS(status);
    }
    assert_int_equal(bad, 0);
    hr_program_info info;
    assert_int_equal(compile_one(STUB, &info), HR_OK);
    expect(true, 0, 1);
    assert_int_equal(warnings_now(), 0);
}

/* ---- threads --------------------------------------------------------------------------------- */

static hr_backend *open_threads(int threads)
{
    hr_pjrt_options o = { .plugin = STUB, .compile_threads = threads };
    hr_backend *b;
    if (hr_pjrt_backend_create(&o, &b)) fail_msg("%s", hr_message());
    return b;
}

static void start_all(hr_backend *b, hr_program **p)
{
    for (int i = 0; i < GRAPHS; i++)
        if (hr_backend_compile_start(b, graphs[i], &p[i])) fail_msg("%s", hr_message());
}

static void destroy_all(hr_backend *b, hr_program **p)
{
    for (int i = 0; i < GRAPHS; i++) hr_program_destroy(p[i], b);
    hr_backend_destroy(b);
    assert_int_equal(stub_of(STUB)->alive, 0);
}

/* Four are under way at once: the stub's compiles wait for each other. */
static void test_side_by_side(void **state)
{
    (void)state;
    hr_program *p[GRAPHS];
    hr_program_info info;
    *stub_of(STUB) = (stub_state){ .results = 1, .meet = 4 };
    hr_backend *b = open_threads(4);
    start_all(b, p);
    for (int i = GRAPHS - 1; i >= 0; i--) {
        if (hr_program_await(b, p[i])) fail_msg("%s", hr_message());
        hr_program_info_get(b, p[i], &info);
        assert_true(info.worker_ms > 0 && !info.cached);
    }
    assert_int_equal(stub_of(STUB)->compiles, GRAPHS);
    assert_int_equal(hr_program_await(b, p[0]), HR_OK); /* once more is nothing */
    destroy_all(b, p);
}

/* One fails: it says so by name, what others are under way comes to its end, nothing is left. */
static void test_one_fails(void **state)
{
    (void)state;
    for (int n = 1; n <= GRAPHS; n++) {
        hr_program *p[GRAPHS];
        int failed = 0;
        *stub_of(STUB) = (stub_state){ .results = 1, .fail_compile = n };
        hr_backend *b = open_threads(3);
        start_all(b, p);
        for (int i = 0; i < GRAPHS; i++) {
            hr_status st = hr_program_await(b, p[i]);
            if (!st) continue;
            assert_int_equal(st, HR_UNAVAILABLE);
            assert_string_equal(hr_message(),
                                "program halver: pjrt: compile: the stub was told to fail");
            failed++;
        }
        assert_int_equal(failed, 1);
        destroy_all(b, p);
    }
}

/* A start that is given up: nobody waits for the rest, and what has not begun never does. */
static void test_given_up(void **state)
{
    (void)state;
    for (int awaited = 0; awaited < 3; awaited++) {
        hr_program *p[GRAPHS];
        *stub_of(STUB) = (stub_state){ .results = 1 };
        hr_backend *b = open_threads(2);
        start_all(b, p);
        for (int i = 0; i < awaited; i++) assert_int_equal(hr_program_await(b, p[i]), HR_OK);
        hr_program_destroy(p[GRAPHS - 1], b);
        p[GRAPHS - 1] = NULL;
        for (int i = awaited; i < GRAPHS - 1; i++) {
            hr_status st = hr_program_await(b, p[i]);
            if (st) assert_int_equal(st, HR_CANCELLED);
        }
        destroy_all(b, p);
    }
}

static hr_status read_nothing(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    (void)w, (void)first, (void)count, (void)to;
    return hr_fail(HR_DATA_LOSS, "the file ends early");
}

/* A weight that cannot be read, found while its program and others compile. */
static void test_weight_fails(void **state)
{
    (void)state;
    static const hr_weight weight = {
        .name = "norm", .shape = { 1, { 4 } }, .format = HR_FORMAT_F32, .read_rows = read_nothing
    };
    hr_program *p[GRAPHS], *q;
    hr_graph *g;
    assert_int_equal(hr_graph_create("reader", &g), HR_OK);
    hr_value *x = hr_graph_input(g, "x", HR_DTYPE_F32, HR_SHAPE(3, 4), HR_LIVE_ALL);
    hr_graph_output(g, "y", hr_op_rms_norm(g, x, hr_graph_weight(g, &weight), 1e-5f, 0));
    assert_int_equal(hr_graph_finish(g), HR_OK);
    *stub_of(STUB) = (stub_state){ .results = 1 };
    hr_backend *b = open_threads(2);
    start_all(b, p);
    assert_int_equal(hr_backend_compile_start(b, g, &q), HR_OK);
    assert_int_equal(hr_program_await(b, q), HR_DATA_LOSS);
    assert_non_null(strstr(hr_message(), "the file ends early"));
    hr_program_destroy(q, b);
    assert_int_equal(hr_backend_compile(b, g, &q), HR_DATA_LOSS);
    assert_null(q);
    hr_graph_destroy(g);
    destroy_all(b, p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_left_behind, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cold_and_warm, setup, teardown),
        cmocka_unit_test_setup_teardown(test_loads_wrong, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plugin_without, setup, teardown),
        cmocka_unit_test_setup_teardown(test_each_call, setup, teardown),
        cmocka_unit_test_setup_teardown(test_short_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_processes, setup, teardown),
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_one_fails),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_weight_fails),
    };
    return cmocka_run_group_tests(tests, make_graphs, drop_graphs);
}
#endif
