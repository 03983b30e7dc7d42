/* headrace devices and headrace compile: what there is to run on, and what it would be given.
 *
 * Main thread. */
#include <stdio.h>

#include "cli/cli.h"
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

int hr_cli_compile(hr_args *a)
{
    hr_buf files = { 0 };
    if (!a->own.dump) return hr_cli_fill(a);
    a->options.model = a->model;
    return print(hr_engine_dump(&a->options, a->own.dump, &files), &files);
}
