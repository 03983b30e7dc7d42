/* headrace compile MODEL --device: a start whose only use is what it leaves in the compile cache.
 *
 * Main thread. It is a whole start, weights and warm-up included: what it compiles is what a server
 * with the same flags will look for, because the same code asked for it. */
#include <stdio.h>

#include "cli/cli.h"
#include "engine/devices.h"

static hr_status check(const headrace_options *o, hr_device *device)
{
    HR_TRY(hr_device_parse(o->device, o->device_options, device));
    if (device->kind == HR_DEVICE_REF)
        return hr_fail(HR_INVALID_ARGUMENT, "--device ref: nothing of it could be kept");
    if (o->compile_cache && !*o->compile_cache)
        return hr_fail(HR_INVALID_ARGUMENT, "--compile-cache is empty: there is nothing to fill");
    return o->enforce_eager ? hr_fail(HR_INVALID_ARGUMENT, "--enforce-eager compiles nothing ahead")
                            : HR_OK;
}

static double mib(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

static hr_status report(const headrace_engine *e, bool native)
{
    headrace_info i;
    headrace_info_get(e, &i);
    if (i.weights_file) {
        printf("%.1f MiB of weights: %.1f packed, %.1f from the cache, in %.2f s\n%s\n",
               mib(i.weight_bytes), mib(i.weight_bytes - i.weight_bytes_cached),
               mib(i.weight_bytes_cached), i.load_s, i.weights_file);
        return HR_OK;
    }
    if (!i.compile_cache && native)
        return hr_fail(HR_FAILED_PRECONDITION, "packed weights are not kept: they are less than a "
                                               "file is worth, or --log-level info tells why");
    if (!i.compile_cache)
        return hr_fail(HR_FAILED_PRECONDITION,
                       "%lld programs compiled, none kept; --log-level "
                       "info tells why",
                       (long long)i.programs);
    printf("%lld programs: %lld compiled, %lld from the cache, in %.2f s\n%s\n",
           (long long)i.programs, (long long)(i.programs - i.programs_cached),
           (long long)i.programs_cached, i.compile_s, i.compile_cache);
    return HR_OK;
}

int hr_cli_fill(hr_args *a)
{
    headrace_engine *e = NULL;
    hr_device device;
    a->options.model = a->model;
    a->options.log = hr_cli_log;
    a->options.log_context = a;
    hr_status st = check(&a->options, &device);
    if (!st) st = (hr_status)headrace_engine_create(&a->options, &e);
    if (!st) st = report(e, device.kind == HR_DEVICE_CPU);
    int status = st ? hr_cli_complain() : 0;
    headrace_engine_destroy(e);
    return status;
}
