/* The client: a plugin's devices, what it says of them, and the backend over the first ones.
 *
 * Created on any thread, used by the engine thread. Order of ends: programs and buffers are gone
 * when the backend is destroyed; then its weights, then the client. */
#include <stdio.h>

#include "base/log.h"
#include "pjrt/pjrt_int.h"

/* name=value; both point into the text that was given. */
static hr_status parse_option(hr_str part, PJRT_NamedValue *out)
{
    size_t equals = hr_str_find(part, HR_STR("="), 0);
    if (equals == 0 || equals == SIZE_MAX)
        return hr_fail(HR_INVALID_ARGUMENT, "device option '%.*s': it is KEY=VALUE",
                       HR_STR_ARG(part));
    hr_str value = hr_str_slice(part, equals + 1, part.n);
    int64_t number;
    *out = (PJRT_NamedValue){ .struct_size = PJRT_NamedValue_STRUCT_SIZE,
                              .name = part.p,
                              .name_size = equals,
                              .value_size = 1 };
    if (hr_str_eq_c(value, "true") || hr_str_eq_c(value, "false")) {
        out->type = PJRT_NamedValue_kBool;
        out->bool_value = hr_str_eq_c(value, "true");
    } else if (!hr_str_to_i64(value, &number)) {
        out->type = PJRT_NamedValue_kInt64;
        out->int64_value = number;
    } else {
        out->type = PJRT_NamedValue_kString;
        out->string_value = value.p;
        out->value_size = value.n;
    }
    return HR_OK;
}

static hr_status parse_options(hr_str rest, PJRT_NamedValue *out, size_t *n)
{
    for (hr_str part; rest.n && hr_str_next(&rest, ',', &part); ++*n)
        HR_TRY(parse_option(part, &out[*n]));
    return HR_OK;
}

/* XLA's CPU plugin makes four devices of one processor unless told how many are wanted, and aborts
 * the process when it is told with anything but a number. */
static hr_status add_defaults(const hr_pjrt *b, PJRT_NamedValue *options, size_t *n)
{
    static const char name[] = "cpu_device_count";
    const char *slash = strrchr(b->options.plugin, '/');
    if (!strstr(slash ? slash : b->options.plugin, "cpu")) return HR_OK;
    for (size_t i = 0; i < *n; i++) {
        if (!hr_str_eq_c((hr_str){ options[i].name, options[i].name_size }, name)) continue;
        if (options[i].type == PJRT_NamedValue_kInt64) return HR_OK;
        return hr_fail(HR_INVALID_ARGUMENT, "device option %s: it is a number", name);
    }
    options[(*n)++] = (PJRT_NamedValue){ .struct_size = PJRT_NamedValue_STRUCT_SIZE,
                                         .name = name,
                                         .name_size = sizeof name - 1,
                                         .type = PJRT_NamedValue_kInt64,
                                         .int64_value = (int64_t)b->devices,
                                         .value_size = 1 };
    return HR_OK;
}

static hr_status create_client(hr_pjrt *b, const hr_pjrt_options *o)
{
    hr_str text = hr_str_c(o->create_options);
    size_t most = 2, n = 0; /* one without a comma, one default */
    for (size_t i = 0; i < text.n; i++) most += text.p[i] == ',';
    PJRT_NamedValue *options = hr_alloc_array0(most, sizeof *options);
    if (!options) return hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: options");
    hr_status st = parse_options(text, options, &n);
    if (!st) st = add_defaults(b, options, &n);
    if (!st) {
        PJRT_Client_Create_Args args = { .struct_size = PJRT_Client_Create_Args_STRUCT_SIZE,
                                         .create_options = options,
                                         .num_options = n };
        st = hr_pjrt_error(b->api, b->api->PJRT_Client_Create(&args), "client");
        b->client = args.client;
    }
    if (!st && !b->client) st = hr_fail(HR_INTERNAL, "pjrt: client: the plugin gives none");
    hr_free(options);
    return st;
}

static hr_status read_platform(hr_pjrt *b)
{
    PJRT_Client_PlatformName_Args name = { .struct_size = PJRT_Client_PlatformName_Args_STRUCT_SIZE,
                                           .client = b->client };
    PJRT_Client_PlatformVersion_Args version = { .struct_size =
                                                     PJRT_Client_PlatformVersion_Args_STRUCT_SIZE,
                                                 .client = b->client };
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_Client_PlatformName(&name), "platform"));
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_Client_PlatformVersion(&version), "version"));
    hr_pjrt_keep_text(b->platform, sizeof b->platform, name.platform_name, name.platform_name_size);
    hr_pjrt_keep_text(b->version, sizeof b->version, version.platform_version,
                      version.platform_version_size);
    return HR_OK;
}

static hr_status too_few(const hr_pjrt *b, size_t n)
{
    char how[96] = "";
    if (!strcmp(b->platform, "cpu"))
        snprintf(how, sizeof how,
                 "; --device-option cpu_device_count=%zu makes more of a processor", b->devices);
    return hr_fail(HR_INVALID_ARGUMENT, "%zu devices are wanted, platform %s has %zu here%s",
                   b->devices, b->platform, n, how);
}

static hr_status find_devices(hr_pjrt *b)
{
    PJRT_Client_AddressableDevices_Args args = {
        .struct_size = PJRT_Client_AddressableDevices_Args_STRUCT_SIZE, .client = b->client
    };
    PJRT_DeviceDescription *d;
    char text[128];
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_Client_AddressableDevices(&args), "devices"));
    size_t n = args.num_addressable_devices;
    if (!n) return hr_fail(HR_UNAVAILABLE, "pjrt: platform %s has no device here", b->platform);
    if (n < b->devices) return too_few(b, n);
    b->device = args.addressable_devices;
    hr_log(HR_LOG_INFO, "pjrt: platform %s (%s), PJRT API %d.%d, %zu device%s", b->platform,
           b->version, b->api->pjrt_api_version.major_version,
           b->api->pjrt_api_version.minor_version, n, n == 1 ? "" : "s");
    for (size_t i = 0; i < n; i++) {
        HR_TRY(hr_pjrt_device_description(b->api, args.addressable_devices[i], &d));
        HR_TRY(hr_pjrt_device_text(b->api, d, text, sizeof text));
        hr_log(HR_LOG_INFO, "pjrt: device %zu: %s%s", i, text, i < b->devices ? "" : " (not used)");
    }
    return HR_OK;
}

static void numerics(hr_backend *b, hr_buf *out)
{
    const hr_pjrt *p = (const hr_pjrt *)b;
    hr_buf_printf(out, "\"backend\":\"pjrt\",\"platform\":\"%s\",\"plugin\":\"%s\"", p->platform,
                  p->version);
    if (p->devices > 1) hr_buf_printf(out, ",\"devices\":%zu", p->devices);
    if (p->storage_chosen)
        hr_buf_printf(out, ",\"int4_weights\":%s", p->hlo.int4 ? "true" : "false");
}

static size_t weight_bytes(const hr_backend *b)
{
    return ((const hr_pjrt *)b)->weight_bytes;
}

static void destroy(hr_backend *backend)
{
    hr_pjrt *b = (hr_pjrt *)backend;
    hr_pjrt_flights_end(b);
    hr_pjrt_weights_deinit(b);
    hr_pjrt_workers_deinit(&b->workers);
    hr_pjrt_cache_close(&b->cache);
    PJRT_Client_Destroy_Args args = { .struct_size = PJRT_Client_Destroy_Args_STRUCT_SIZE,
                                      .client = b->client };
    if (b->client) hr_pjrt_ignore(b->api, b->api->PJRT_Client_Destroy(&args));
    hr_free(b);
}

static const hr_backend_vtable vtable = {
    .name = "pjrt",
    .static_shapes = true,
    .destroy = destroy,
    .compile = hr_pjrt_compile,
    .program_await = hr_pjrt_program_await,
    .program_destroy = hr_pjrt_program_destroy,
    .program_info = hr_pjrt_program_info,
    .buffer_create = hr_pjrt_buffer_create,
    .buffer_destroy = hr_pjrt_buffer_destroy,
    .buffer_put = hr_pjrt_buffer_put,
    .buffer_get = hr_pjrt_buffer_get,
    .buffer_verify = hr_pjrt_buffer_verify,
    .execute = hr_pjrt_execute,
    .event_await = hr_pjrt_event_await,
    .numerics = numerics,
    .weight_bytes = weight_bytes,
    .memory = hr_pjrt_memory,
};

static hr_status init_flights(hr_pjrt *b)
{
    if (b->devices > HR_PJRT_MOST_DEVICES)
        return hr_fail(HR_INVALID_ARGUMENT, "%zu devices: %d is the most", b->devices,
                       HR_PJRT_MOST_DEVICES);
    b->events = hr_alloc_array0((HR_PJRT_FLIGHTS + 1) * b->devices, sizeof(PJRT_Event *));
    if (!b->events) return hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: events");
    for (size_t i = 0; i <= HR_PJRT_FLIGHTS; i++) b->flights[i].events = b->events + i * b->devices;
    return HR_OK;
}

hr_status hr_pjrt_backend_create(const hr_pjrt_options *opt, hr_backend **out)
{
    const PJRT_Api *api;
    *out = NULL;
    HR_TRY(hr_pjrt_plugin_open(opt->plugin, &api));
    hr_pjrt *b = hr_new0(hr_pjrt);
    if (!b) return hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: backend");
    b->base.v = &vtable;
    b->api = api;
    b->options = *opt;
    b->hlo.attention_custom_call = opt->attention_custom_call;
    b->devices = opt->devices > 1 ? (size_t)opt->devices : 1;
    hr_status st = init_flights(b);
    if (!st) st = hr_pjrt_workers_init(&b->workers, opt->compile_threads);
    if (!st) st = create_client(b, opt);
    if (!st) st = read_platform(b);
    if (!st) st = find_devices(b);
    if (st) destroy(&b->base);
    else *out = &b->base;
    return st;
}
