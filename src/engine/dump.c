/* Dumping: the programs of a start as StableHLO text, one file each.
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

static hr_status dump_program(const hr_engine *e, const hr_ledger_row *r, const char *dir,
                              hr_buf *files)
{
    hr_buf text = { 0 }, name = { 0 }, path = { 0 };
    add_file_name(r, &name);
    hr_status st = dump_text(e, r, &text);
    if (!st) st = hr_path_join(dir, hr_buf_str(&name), &path);
    if (!st) st = hr_file_write_atomic(hr_buf_c(&path), hr_buf_str(&text));
    if (!st) hr_buf_printf(files, "%s\n", hr_buf_c(&path));
    hr_buf_deinit(&path);
    hr_buf_deinit(&name);
    hr_buf_deinit(&text);
    return st;
}
#else
static hr_status dump_program(const hr_engine *e, const hr_ledger_row *r, const char *dir,
                              hr_buf *files)
{
    (void)e, (void)r, (void)dir, (void)files;
    return hr_fail(HR_INTERNAL, "a PJRT device in a build without PJRT");
}
#endif

static hr_status make_folder(const char *dir)
{
    if (!mkdir(dir, 0777) || (errno == EEXIST && hr_path_is_dir(dir))) return HR_OK;
    return hr_fail(HR_NOT_FOUND, "%s: %s", dir, strerror(errno));
}

static hr_status dump_all(hr_engine *e, const headrace_options *o, const char *dir,
                          hr_ledger *ledger, hr_buf *files)
{
    HR_TRY(hr_engine_open(e, o));
    HR_TRY(hr_engine_measure(e, ledger, &e->memory));
    HR_TRY(hr_engine_size_cache(e));
    HR_TRY(make_folder(dir));
    for (size_t i = 0; i < ledger->n; i++) HR_TRY(dump_program(e, &ledger->rows[i], dir, files));
    return hr_buf_status(files);
}

hr_status hr_engine_dump(const headrace_options *o, const char *dir, hr_buf *files)
{
    headrace_options own = *o;
    hr_engine *e = hr_new0(hr_engine);
    hr_ledger ledger = { 0 };
    if (!e) return hr_fail(HR_RESOURCE_EXHAUSTED, "engine");
    e->wake_fd = -1;
    own.device = "pjrt:any"; /* never opened */
    hr_status st = dump_all(e, &own, dir, &ledger, files);
    char message[HR_MESSAGE_MAX];
    memcpy(message, hr_message(), sizeof message);
    hr_ledger_deinit(&ledger);
    hr_engine_destroy(e);
    return st ? hr_fail(st, "%s", message) : HR_OK;
}
