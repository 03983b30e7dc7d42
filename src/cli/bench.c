/* headrace bench: fills the options that are no plain flags, shows how far it is, prints results.
 *
 * Main thread. The table or figures go to standard output, everything else to standard error. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/sync.h"
#include "cli/progress.h"

/* ---- sampling flags -------------------------------------------------------------------------- */

static void add_member(const hr_cli_flag *f, const headrace_sampling *s, hr_buf *out)
{
    const char *field = (const char *)s + f->offset, *name = f->name + 2;
    if (f->kind == HR_FLAG_OFF && !strncmp(name, "no-", 3)) name += 3;
    hr_json_writer w = { .out = out };
    if (out->n) hr_buf_add_byte(out, ',');
    hr_buf_add_byte(out, '"');
    for (; *name; name++) hr_buf_add_byte(out, *name == '-' ? '_' : *name);
    hr_buf_add_c(out, "\":");
    if (f->kind == HR_FLAG_F64) hr_json_f64(&w, *(const double *)field);
    else if (f->kind == HR_FLAG_I64) hr_json_i64(&w, *(const int64_t *)field);
    else if (f->kind == HR_FLAG_INT) hr_json_i64(&w, *(const int *)field);
    else hr_json_bool(&w, *(const int *)field);
}

hr_status hr_cli_sampling_members(hr_args *a, hr_buf *out)
{
    headrace_sampling s;
    headrace_sampling_init(NULL, &s);
    HR_TRY(hr_args_sampling(a, &s));
    for (size_t i = 0; i < a->n_typed; i++) {
        bool again = false; /* only the last of a flag counts */
        for (size_t j = i + 1; j < a->n_typed; j++)
            again = again || a->typed[j].flag->offset == a->typed[i].flag->offset;
        if (!again) add_member(a->typed[i].flag, &s, out);
    }
    return hr_buf_status(out);
}

void hr_cli_fill_http(hr_args *a)
{
    signal(SIGPIPE, SIG_IGN); /* a server that hangs up is a failed request, not our end */
    hr_http_options *h = &a->bench.serve.http;
    if (!h->api_key) h->api_key = getenv("HEADRACE_API_KEY");
    if (h->api_key && !*h->api_key) h->api_key = NULL;
    h->headers = a->bench.headers.at;
    h->n_headers = a->bench.headers.n;
}

/* ---- bench serve ----------------------------------------------------------------------------- */

/* The words after --goodput, one text. */
static hr_status join(hr_args *a, const hr_cli_list *words, const char **out)
{
    hr_buf text = { 0 };
    const char *const *w = words->at;
    for (size_t i = 0; i < words->n; i++) hr_buf_printf(&text, "%s%s", i ? " " : "", w[i]);
    *out = words->n ? hr_arena_copy(&a->arena, text.p, text.n) : NULL;
    hr_buf_deinit(&text);
    return words->n && !*out ? hr_fail(HR_RESOURCE_EXHAUSTED, "--goodput") : HR_OK;
}

static hr_status save(hr_args *a, const hr_bench_serve_result *r)
{
    const hr_cli_bench *b = &a->bench;
    const char *name = b->result_filename ? b->result_filename : r->name;
    const char *folder = b->result_dir ? b->result_dir : ".";
    hr_buf path = { 0 };
    if (strchr(name, '/')) hr_buf_add_c(&path, name);
    else hr_buf_printf(&path, "%s/%s", folder, name);
    hr_status st = hr_buf_status(&path);
    if (!st) st = hr_file_write_atomic(hr_buf_c(&path), hr_buf_str(&r->json));
    if (!st) fprintf(stderr, "headrace: written to %s\n", hr_buf_c(&path));
    hr_buf_deinit(&path);
    return st;
}

static hr_status print_saved(hr_args *a)
{
    const hr_cli_bench *b = &a->bench;
    hr_str json;
    hr_buf table = { 0 };
    HR_TRY(hr_args_slurp(&a->arena, b->from_result, &json));
    hr_status st = hr_bench_table(json, b->serve.metrics, b->serve.percentiles, &table);
    if (st) st = hr_fail_prefix(st, "%s", b->from_result);
    if (!st) fputs(hr_buf_c(&table), stdout);
    hr_buf_deinit(&table);
    return st;
}

static hr_status fill_serve(hr_args *a, hr_buf *sampling, hr_tokenizer **t)
{
    hr_cli_bench *b = &a->bench;
    hr_cli_fill_http(a);
    HR_TRY(join(a, &b->goodput, &b->serve.goodput));
    HR_TRY(hr_cli_sampling_members(a, sampling));
    b->serve.sampling = hr_buf_c(sampling);
    if (!b->tokenizer) return HR_OK;
    HR_TRY(hr_cli_load_tokenizer(b->tokenizer, t));
    b->serve.data.tokenizer = *t;
    return HR_OK;
}

/* Failures are rows of the table; a server that answered nothing at all is a failed benchmark. */
static int print_serve(hr_args *a, const hr_bench_serve_result *r)
{
    if (r->failed)
        fprintf(stderr, "headrace: %zu of %zu requests failed; the first: %s\n", r->failed,
                r->failed + r->completed, r->first_error);
    if (a->own.json) {
        fwrite(r->json.p, 1, r->json.n, stdout);
        putchar('\n');
    } else fwrite(r->table.p, 1, r->table.n, stdout);
    if (a->bench.save_result && save(a, r)) return hr_cli_complain();
    return r->completed ? 0 : 1;
}

int hr_cli_bench_serve(hr_args *a)
{
    if (a->bench.from_result) return print_saved(a) ? hr_cli_complain() : 0;
    hr_progress shown = hr_progress_begin();
    hr_bench_serve_options *o = &a->bench.serve;
    hr_buf sampling = { 0 };
    hr_tokenizer *t = NULL;
    hr_bench_serve_result r = { 0 };
    if (!a->bench.no_progress) o->progress = hr_progress_show;
    o->context = &shown;
    hr_status st = fill_serve(a, &sampling, &t);
    if (!st) st = hr_bench_serve(o, &r);
    int exit_status = st ? hr_cli_complain() : print_serve(a, &r);
    hr_bench_serve_result_deinit(&r);
    hr_tokenizer_destroy(t);
    hr_buf_deinit(&sampling);
    return exit_status;
}

/* ---- in this process ------------------------------------------------------------------------- */

typedef struct engine_bench {
    hr_args *args;
    hr_progress shown;
} engine_bench;

static void on_runs(void *context, const hr_bench_progress *p)
{
    hr_progress_show(&((engine_bench *)context)->shown, p);
}

static hr_status apply_sampling(void *context, headrace_sampling *s)
{
    return hr_args_sampling(((engine_bench *)context)->args, s);
}

static void fill_engine(engine_bench *e, int64_t warmups, int64_t runs)
{
    hr_args *a = e->args;
    hr_bench_engine_options *o = &a->bench.engine;
    e->shown = hr_progress_begin();
    a->options.model = a->model;
    a->options.log = hr_cli_log;
    a->options.log_context = a;
    o->engine = a->options;
    o->data = a->bench.serve.data;
    o->sampling = apply_sampling;
    o->context = e;
    if (!a->bench.no_progress) o->progress = on_runs;
    if (o->num_warmups < 0) o->num_warmups = warmups;
    if (o->num_runs < 0) o->num_runs = runs;
}

int hr_cli_bench_throughput(hr_args *a)
{
    engine_bench e = { .args = a };
    hr_buf text = { 0 }, json = { 0 };
    fill_engine(&e, 0, 1);
    return hr_cli_finish(a, hr_bench_throughput(&a->bench.engine, &text, &json), &text, &json);
}

int hr_cli_bench_latency(hr_args *a)
{
    engine_bench e = { .args = a };
    hr_buf text = { 0 }, json = { 0 };
    fill_engine(&e, 10, 30);
    a->bench.engine.engine.enable_prefix_caching = 0; /* the same prompts run after run */
    return hr_cli_finish(a, hr_bench_latency(&a->bench.engine, &text, &json), &text, &json);
}

/* ---- bench startup --------------------------------------------------------------------------- */

/* This process's own arguments, each ended by a NUL. The file has no size until it is read. */
static hr_status read_arguments(hr_buf *out)
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : 1;
    for (char *to; n > 0 && (to = hr_buf_reserve(out, 4096));) {
        n = read(fd, to, 4096);
        if (n > 0) out->n += (size_t)n;
    }
    if (fd >= 0) close(fd);
    return n < 0 ? hr_fail(HR_INTERNAL, "/proc/self/cmdline cannot be read") : hr_buf_status(out);
}

/* They and --one-run, for launching this program again: NULL-terminated pointers into `all`. */
static hr_status own_arguments(hr_arena *arena, hr_buf *all, char ***out)
{
    HR_TRY(read_arguments(all));
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++) n += !all->p[i];
    char **argv = hr_arena_array(arena, n + 2, sizeof *argv);
    if (!argv) return hr_fail(HR_RESOURCE_EXHAUSTED, "arguments");
    for (size_t i = 0, at = 0; i < n; i++) {
        argv[i] = all->p + at;
        at += strlen(argv[i]) + 1;
    }
    argv[0] = "/proc/self/exe";
    argv[n] = "--one-run";
    *out = argv;
    return HR_OK;
}

int hr_cli_bench_startup(hr_args *a)
{
    engine_bench e = { .args = a };
    hr_buf text = { 0 }, json = { 0 }, arguments = { 0 };
    char **argv = NULL;
    fill_engine(&e, 0, 5);
    if (a->bench.one_run) {
        hr_status st = hr_bench_start_once(&a->bench.engine, &json);
        if (!st) fputs(hr_buf_c(&json), stdout);
        hr_buf_deinit(&json);
        return st ? hr_cli_complain() : 0;
    }
    hr_status st = own_arguments(&a->arena, &arguments, &argv);
    if (!st) st = hr_bench_startup(&a->bench.engine, argv, &text, &json);
    hr_buf_deinit(&arguments);
    return hr_cli_finish(a, st, &text, &json);
}

/* ---- bench sampler --------------------------------------------------------------------------- */

int hr_cli_bench_sampler(hr_args *a)
{
    hr_progress shown = hr_progress_begin();
    hr_cli_bench *b = &a->bench;
    hr_bench_sampler_options *o = &b->sampler;
    hr_buf text = { 0 }, json = { 0 };
    o->engine = a->options;
    o->hidden_sizes = b->hidden_sizes.at;
    o->n_hidden_sizes = b->hidden_sizes.n;
    o->vocab_sizes = b->vocab_sizes.at;
    o->n_vocab_sizes = b->vocab_sizes.n;
    o->batch_sizes = b->batch_sizes.at;
    o->n_batch_sizes = b->batch_sizes.n;
    if (!b->no_progress) o->progress = hr_progress_show;
    o->context = &shown;
    return hr_cli_finish(a, hr_bench_sampler(o, &text, &json), &text, &json);
}

/* ---- bench kernels --------------------------------------------------------------------------- */

int hr_cli_bench_kernels(hr_args *a)
{
    hr_progress shown = hr_progress_begin();
    hr_cli_bench *b = &a->bench;
    hr_bench_kernels_options *o = &b->kernels;
    hr_buf text = { 0 }, json = { 0 };
    o->engine = a->options;
    if (b->rows.n) o->rows = b->rows.at, o->n_rows = b->rows.n;
    if (b->contexts.n) o->contexts = b->contexts.at, o->n_contexts = b->contexts.n;
    if (!b->no_progress) o->progress = hr_progress_show;
    o->context = &shown;
    return hr_cli_finish(a, hr_bench_kernels(o, &text, &json), &text, &json);
}

/* ---- bench tokenizer ------------------------------------------------------------------------- */

int hr_cli_bench_tokenizer(hr_args *a)
{
    hr_bench_tokenizer_options *o = &a->bench.encode;
    hr_buf text = { 0 }, json = { 0 };
    hr_tokenizer *t = NULL;
    double from = hr_now_s();
    hr_status st = hr_cli_load_tokenizer(a->model, &t);
    o->tokenizer = t;
    o->open_s = hr_now_s() - from;
    if (!st) st = hr_args_slurp(&a->arena, a->bench.texts, &o->lines);
    if (!st) st = hr_bench_tokenizer(o, &text, &json);
    hr_tokenizer_destroy(t);
    return hr_cli_finish(a, st, &text, &json);
}
