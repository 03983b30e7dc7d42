/* Compiling ahead of time for devices that are not here.
 *
 * Caller's thread. Shows what a plugin's compiler takes of a model's programs, how long that needs
 * and what they will take on the device. Nothing is run, so it says nothing of speed. */
#include "engine/aot.h"

#include "engine/dump.h"
#include "engine/engine_int.h"

#ifdef HR_HAVE_PJRT
#include "pjrt/pjrt.h"

typedef struct aot {
    const hr_aot_options *options;
    hr_pjrt_topology *topology; /* owned */
    size_t done, refused, code_bytes, largest_peak;
    double seconds;
    hr_status status; /* of the first program that was refused */
    char message[HR_MESSAGE_MAX];
} aot;

static double mib(size_t bytes)
{
    return (double)bytes / 1048576.0;
}

static void print(const aot *a, hr_buf *line)
{
    a->options->print(a->options->ctx, hr_buf_c(line));
    hr_buf_deinit(line);
}

static void print_program(aot *a, const hr_ledger_row *r, size_t n, const hr_pjrt_compiled *c)
{
    hr_buf line = { 0 }, bucket = { 0 };
    hr_buf_add_c(&bucket, hr_stage_name(r->stage));
    hr_buf_add_c(&bucket, r->tokens || r->requests ? " " : "");
    hr_ledger_bucket_text(r, &bucket);
    hr_buf_printf(&line, "%-34s %2zu/%-2zu", hr_buf_c(&bucket), a->done, n);
    if (c)
        hr_buf_printf(
            &line,
            " %7.2f s  code %7.2f MiB  peak HBM %8.1f MiB (arguments %.1f, temporary %.1f)"
            "  text %.0f KiB",
            c->seconds, mib(c->code_bytes), mib(c->peak_bytes), mib(c->argument_bytes),
            mib(c->temporary_bytes), (double)c->text_bytes / 1024);
    else hr_buf_printf(&line, " refused: %s", hr_message());
    hr_buf_deinit(&bucket);
    print(a, &line);
}

static void note_refusal(aot *a, hr_status st)
{
    if (!a->refused++) {
        a->status = st;
        memcpy(a->message, hr_message(), sizeof a->message);
    }
}

static hr_status compile_program(const hr_engine *e, const hr_ledger_row *r, size_t n, void *ctx)
{
    aot *a = ctx;
    hr_graph *g = NULL;
    hr_pjrt_compiled c;
    hr_status st = hr_program_graph(&e->shapes, e->model, r, &g);
    if (!st) st = hr_pjrt_topology_compile(a->topology, g, &c);
    hr_graph_destroy(g);
    a->done++;
    if (st) note_refusal(a, st);
    print_program(a, r, n, st ? NULL : &c);
    if (st) return st == HR_RESOURCE_EXHAUSTED ? st : HR_OK;
    a->seconds += c.seconds;
    a->code_bytes += c.code_bytes;
    if (c.peak_bytes > a->largest_peak) a->largest_peak = c.peak_bytes;
    return HR_OK;
}

static hr_status print_devices(aot *a)
{
    hr_buf text = { 0 };
    hr_status st = hr_pjrt_topology_describe(a->topology, &text);
    while (text.n && text.p[text.n - 1] == '\n') text.n--;
    if (!st) print(a, &text);
    hr_buf_deinit(&text);
    return st;
}

static void print_total(aot *a)
{
    hr_buf line = { 0 };
    hr_buf_printf(&line, "total: %zu of %zu programs, %.2f s, code %.2f MiB, largest peak %.1f MiB",
                  a->done - a->refused, a->done, a->seconds, mib(a->code_bytes),
                  mib(a->largest_peak));
    print(a, &line);
}

hr_status hr_engine_compile_for(const headrace_options *o, const hr_aot_options *options)
{
    aot a = { .options = options };
    hr_pjrt_options pjrt = { .plugin = options->plugin,
                             .attention_custom_call = o->attention_custom_call,
                             .devices = o->tensor_parallel_size };
    hr_status st = hr_pjrt_topology_create(&pjrt, options->topology, &a.topology);
    if (!st) st = print_devices(&a);
    if (!st) st = hr_engine_each_program(o, compile_program, &a);
    if (a.done) print_total(&a);
    hr_pjrt_topology_destroy(a.topology);
    if (st || !a.refused) return st;
    return hr_fail(a.status, "%zu of %zu programs were refused, the first: %s", a.refused, a.done,
                   a.message);
}
#else
hr_status hr_engine_compile_for(const headrace_options *o, const hr_aot_options *options)
{
    (void)o;
    return hr_device_lacking("--topology", options->topology);
}
#endif
