/* The programs of a start without a start, and dumping them: StableHLO text, one file each.
 *
 * Caller's thread. Options, cache and buckets are resolved as by a start, and the graphs are those
 * that a start compiles, so that a text can be studied, or given to another compiler. */
#include "engine/dump.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "engine/engine_int.h"
#ifdef HR_HAVE_PJRT
#include "pjrt/pjrt.h"
#endif

static hr_status each(hr_engine *e, const headrace_options *o, hr_ledger *ledger,
                      hr_each_program_fn fn, void *ctx)
{
    HR_TRY(hr_engine_open(e, o));
    HR_TRY(hr_engine_measure(e, ledger, &e->memory));
    HR_TRY(hr_engine_size_cache(e));
    for (size_t i = 0; i < ledger->n; i++) HR_TRY(fn(e, &ledger->rows[i], ledger->n, ctx));
    return HR_OK;
}

hr_status hr_engine_each_program(const headrace_options *o, hr_each_program_fn fn, void *ctx)
{
    headrace_options own = *o;
    hr_engine *e = hr_new0(hr_engine);
    hr_ledger ledger = { 0 };
    if (!e) return hr_fail(HR_RESOURCE_EXHAUSTED, "engine");
    e->wake_fd = -1;
    own.device = "pjrt:any"; /* never opened */
    hr_status st = each(e, &own, &ledger, fn, ctx);
    char message[HR_MESSAGE_MAX];
    memcpy(message, hr_message(), sizeof message);
    hr_ledger_deinit(&ledger);
    hr_engine_destroy(e);
    return st ? hr_fail(st, "%s", message) : HR_OK;
}

#ifdef HR_HAVE_PJRT
typedef struct dump {
    const char *dir;
    hr_buf *files;
} dump;

/* backbone_t16.mlir, select_t16_r8.mlir, tables.mlir */
static void add_file_name(const hr_ledger_row *r, hr_buf *out)
{
    hr_buf_add_c(out, hr_stage_name(r->stage));
    if (r->tokens) hr_buf_printf(out, "_t%lld", (long long)r->tokens);
    if (r->requests) hr_buf_printf(out, "_r%lld", (long long)r->requests);
    hr_buf_add_c(out, ".mlir");
}

static hr_status dump_text(const hr_engine *e, const hr_ledger_row *r, hr_buf *text)
{
    hr_graph *g = NULL;
    hr_status st = hr_program_graph(&e->shapes, e->model, r, &g);
    hr_pjrt_options o = { .attention_custom_call = e->options.attention_custom_call };
    if (!st) st = hr_pjrt_stablehlo(g, &o, text);
    hr_graph_destroy(g);
    return st ? hr_fail_prefix(st, "program %s", hr_stage_name(r->stage)) : hr_buf_status(text);
}

static hr_status make_folder(const char *dir)
{
    if (!mkdir(dir, 0777) || (errno == EEXIST && hr_path_is_dir(dir))) return HR_OK;
    return hr_fail(HR_NOT_FOUND, "%s: %s", dir, strerror(errno));
}

static hr_status dump_program(const hr_engine *e, const hr_ledger_row *r, size_t n, void *ctx)
{
    (void)n;
    const dump *d = ctx;
    hr_buf text = { 0 }, name = { 0 }, path = { 0 };
    add_file_name(r, &name);
    hr_status st = make_folder(d->dir);
    if (!st) st = dump_text(e, r, &text);
    if (!st) st = hr_path_join(d->dir, hr_buf_str(&name), &path);
    if (!st) st = hr_file_write_atomic(hr_buf_c(&path), hr_buf_str(&text));
    if (!st) hr_buf_printf(d->files, "%s\n", hr_buf_c(&path));
    hr_buf_deinit(&path);
    hr_buf_deinit(&name);
    hr_buf_deinit(&text);
    return st;
}

hr_status hr_engine_dump(const headrace_options *o, const char *dir, hr_buf *files)
{
    dump d = { dir, files };
    HR_TRY(hr_engine_each_program(o, dump_program, &d));
    return hr_buf_status(files);
}
#else
hr_status hr_engine_dump(const headrace_options *o, const char *dir, hr_buf *files)
{
    (void)o, (void)files;
    return hr_device_lacking("--dump", dir);
}
#endif
