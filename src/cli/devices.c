/* headrace devices and headrace compile: what there is to run on, and what it would be given.
 *
 * Main thread. */
#include <stdio.h>

#include "cli/cli.h"
#include "engine/aot.h"
#include "engine/devices.h"
#include "engine/dump.h"

static int print(hr_status st, hr_buf *text)
{
    if (!st) fputs(hr_buf_c(text), stdout);
    hr_buf_deinit(text);
    return st ? hr_cli_complain() : 0;
}

int hr_cli_devices(hr_args *a)
{
    hr_buf text = { 0 };
    hr_device device;
    if (!a->options.device) return print(hr_devices_list(&text), &text);
    hr_status st = hr_device_parse(a->options.device, a->options.device_options, &device);
    if (!st) st = hr_device_describe(&device, &text);
    return print(st, &text);
}

static void print_line(void *ctx, const char *line)
{
    (void)ctx;
    puts(line);
    fflush(stdout); /* a program may take a minute */
}

int hr_cli_compile(hr_args *a)
{
    hr_buf files = { 0 };
    if (a->options.device) return hr_cli_fill(a);
    a->options.model = a->model;
    if (a->own.dump) {
        int failed = print(hr_engine_dump(&a->options, a->own.dump, &files), &files);
        if (failed) return failed;
    }
    if (!a->own.topology) return 0;
    hr_aot_options aot = { a->own.plugin, a->own.topology, print_line, NULL };
    return hr_engine_compile_for(&a->options, &aot) ? hr_cli_complain() : 0;
}
