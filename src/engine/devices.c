/* From a device's name to its backend.
 *
 * Any thread. The one place that knows which backends there are: everything else speaks to them
 * through backend.h. A build without the PJRT header has no PJRT room, and says so. */
#include "engine/devices.h"

#include <string.h>

#include "base/log.h"
#include "cpu/cpu.h"
#ifdef HR_HAVE_PJRT
#include "pjrt/pjrt.h"
#endif
#include "ref/ref.h"

static const char prefix[] = "pjrt:";

/* Every part is KEY=VALUE; what the keys mean is the plugin's business. */
static hr_status check_options(const char *options)
{
    hr_str rest = hr_str_c(options);
    for (hr_str part; hr_str_next(&rest, ',', &part);) {
        size_t equals = hr_str_find(part, HR_STR("="), 0);
        if (equals == 0 || equals == SIZE_MAX)
            return hr_fail(HR_INVALID_ARGUMENT, "--device-option '%.*s': it is KEY=VALUE",
                           HR_STR_ARG(part));
    }
    return HR_OK;
}

hr_status hr_device_lacking(const char *flag, const char *value)
{
    return hr_fail(HR_FAILED_PRECONDITION,
                   "%s %s: this build has no PJRT backend; run tools/setup.sh pjrt and build again",
                   flag, value);
}

static hr_status parse_pjrt(const char *name, const char *options, hr_device *out)
{
    const char *path = name + strlen(prefix);
    *out = (hr_device){ .kind = HR_DEVICE_PJRT, .options = options };
    if (!*path)
        return hr_fail(HR_INVALID_ARGUMENT, "--device pjrt: names no plugin; it is pjrt:PATH, and "
                                            "headrace devices lists the paths");
    if (strlen(path) >= sizeof out->plugin)
        return hr_fail(HR_INVALID_ARGUMENT, "--device: the path is too long");
    memcpy(out->plugin, path, strlen(path) + 1);
    if (options) HR_TRY(check_options(options));
#ifdef HR_HAVE_PJRT
    return HR_OK;
#else
    return hr_device_lacking("--device", name);
#endif
}

/* The plugin of a kind, when it is here; what is wrong is left as the message. */
static hr_status find(hr_plugin_kind kind, const char *name, const char *options, hr_device *out)
{
    const char *what;
    *out = (hr_device){ .kind = HR_DEVICE_PJRT, .options = options };
    hr_status st = hr_plugin_find(kind, "", out->plugin, &what);
    if (st) return hr_fail_prefix(st, "--device %s", name);
    if (options) HR_TRY(check_options(options));
    hr_log(HR_LOG_INFO, "device: %s is pjrt:%s, %s", name, out->plugin, what);
#ifdef HR_HAVE_PJRT
    return HR_OK;
#else
    return hr_device_lacking("--device", name);
#endif
}

static hr_status parse_auto(const char *options, hr_device *out)
{
    static const hr_plugin_kind kinds[] = { HR_PLUGIN_TPU, HR_PLUGIN_GPU };
    for (int i = 0; i < 2; i++) {
        hr_status st = find(kinds[i], "auto", options, out);
        if (!st || st == HR_INVALID_ARGUMENT) return st;
        hr_log(st == HR_FAILED_PRECONDITION ? HR_LOG_WARNING : HR_LOG_DEBUG, "%s", hr_message());
    }
    hr_log(HR_LOG_INFO, "device: auto is cpu: no TPU or GPU with an installed plugin");
    return hr_device_parse("cpu", options, out);
}

hr_status hr_device_parse(const char *name, const char *options, hr_device *out)
{
    if (name && !strncmp(name, prefix, strlen(prefix))) return parse_pjrt(name, options, out);
    if (name && !strcmp(name, "auto")) return parse_auto(options, out);
    if (name && !strcmp(name, "tpu")) return find(HR_PLUGIN_TPU, name, options, out);
    if (name && !strcmp(name, "gpu")) return find(HR_PLUGIN_GPU, name, options, out);
    *out = (hr_device){ .kind = HR_DEVICE_CPU };
    if (name && !strcmp(name, "ref")) out->kind = HR_DEVICE_REF;
    else if (name && strcmp(name, "cpu"))
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--device %s: it is auto, cpu, tpu, gpu, ref or pjrt:PATH, the path of a "
                       "PJRT plugin's shared object; headrace devices lists them",
                       name);
    if (!options) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT,
                   "--device-option %s: only a plugin takes options, and the "
                   "device is %s",
                   options, name ? name : "cpu");
}

#ifdef HR_HAVE_PJRT
static hr_pjrt_options pjrt_options(const hr_device *d)
{
    return (hr_pjrt_options){ .plugin = d->plugin, .create_options = d->options };
}
#endif

hr_status hr_device_create(const hr_device *d, const headrace_options *o, hr_str weights_id,
                           hr_backend **out)
{
    hr_cpu_options cpu = { .threads = o->threads,
                           .isa = o->isa,
                           .cache_folder = o->compile_cache,
                           .cache_bytes = (uint64_t)o->compile_cache_bytes,
                           .weights_id = weights_id };
    *out = NULL;
    switch (d->kind) {
    case HR_DEVICE_CPU: return hr_cpu_backend_create(&cpu, out);
    case HR_DEVICE_REF: return hr_ref_backend_create(out);
    case HR_DEVICE_PJRT: break;
    }
#ifdef HR_HAVE_PJRT
    hr_pjrt_options pjrt = pjrt_options(d);
    pjrt.attention_custom_call = o->attention_custom_call;
    pjrt.cache_folder = o->compile_cache;
    pjrt.cache_bytes = (uint64_t)o->compile_cache_bytes;
    pjrt.devices = o->tensor_parallel_size;
    hr_status st = hr_pjrt_backend_create(&pjrt, out);
    return st ? hr_fail_prefix(st, "--device") : HR_OK;
#else
    return hr_fail(HR_INTERNAL, "a PJRT device in a build without PJRT");
#endif
}

/* A member's text value in what numerics wrote: "isa":"avx2". */
static hr_str text_member(hr_str json, hr_str key)
{
    size_t at = hr_str_find(json, key, 0);
    if (at == SIZE_MAX) return (hr_str){ 0 };
    at += key.n;
    size_t end = hr_str_find(json, HR_STR("\""), at);
    return hr_str_slice(json, at, end == SIZE_MAX ? json.n : end);
}

static hr_status describe_cpu(hr_buf *out)
{
    hr_cpu_options o = { .threads = 1, .weights = HR_CPU_WEIGHTS_MEASURE };
    hr_backend *b = NULL;
    hr_buf numerics = { 0 };
    HR_TRY(hr_cpu_backend_create(&o, &b));
    b->v->numerics(b, &numerics);
    hr_str isa = text_member(hr_buf_str(&numerics), HR_STR("\"isa\":\""));
    hr_buf_printf(out, "cpu: native, %.*s, %d threads\n", HR_STR_ARG(isa), hr_cpu_thread_limit());
    hr_buf_deinit(&numerics);
    hr_backend_destroy(b);
    return hr_buf_status(out);
}

hr_status hr_device_describe(const hr_device *d, hr_buf *out)
{
    switch (d->kind) {
    case HR_DEVICE_CPU: return describe_cpu(out);
    case HR_DEVICE_REF:
        hr_buf_add_c(out, "ref: the naive reference interpreter\n");
        return hr_buf_status(out);
    case HR_DEVICE_PJRT: break;
    }
#ifdef HR_HAVE_PJRT
    hr_pjrt_options pjrt = pjrt_options(d);
    return hr_pjrt_describe(&pjrt, out);
#else
    return hr_fail(HR_INTERNAL, "a PJRT device in a build without PJRT");
#endif
}
