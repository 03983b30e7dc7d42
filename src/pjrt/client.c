/* The client: a plugin's devices, what it says of them, and the backend over the first one.
 *
 * Created on any thread, used by the engine thread. Order of ends: programs and buffers are gone
 * when the backend is destroyed; then its weights, then the client. */
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
    while (rest.n) {
        size_t comma = hr_str_find(rest, HR_STR(","), 0);
        HR_TRY(parse_option(hr_str_slice(rest, 0, comma == SIZE_MAX ? rest.n : comma), &out[*n]));
        ++*n;
        rest = comma == SIZE_MAX ? (hr_str){ 0 } : hr_str_slice(rest, comma + 1, rest.n);
    }
    return HR_OK;
}

/* XLA's CPU plugin makes four devices of one processor unless told, and aborts the process when it
 * is told with anything but a number. */
static hr_status add_defaults(const char *plugin, PJRT_NamedValue *options, size_t *n)
{
    static const char name[] = "cpu_device_count";
    const char *slash = strrchr(plugin, '/');
    if (!strstr(slash ? slash : plugin, "cpu")) return HR_OK;
    for (size_t i = 0; i < *n; i++) {
        if (!hr_str_eq_c((hr_str){ options[i].name, options[i].name_size }, name)) continue;
        if (options[i].type == PJRT_NamedValue_kInt64) return HR_OK;
        return hr_fail(HR_INVALID_ARGUMENT, "device option %s: it is a number", name);
    }
    options[(*n)++] = (PJRT_NamedValue){ .struct_size = PJRT_NamedValue_STRUCT_SIZE,
                                         .name = name,
                                         .name_size = sizeof name - 1,
                                         .type = PJRT_NamedValue_kInt64,
                                         .int64_value = 1,
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
    if (!st) st = add_defaults(o->plugin, options, &n);
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

/* Cut to size, and clean enough for a log line and a JSON string. */
static void keep_text(char *to, size_t size, const char *from, size_t n)
{
    if (!from) n = 0;
    if (n > size - 1) n = size - 1;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)from[i];
        to[i] = c < ' ' || c > '~' || c == '"' || c == '\\' ? ' ' : (char)c;
    }
    while (n && to[n - 1] == ' ') n--;
    to[n] = 0;
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
    keep_text(b->platform, sizeof b->platform, name.platform_name, name.platform_name_size);
    keep_text(b->version, sizeof b->version, version.platform_version,
              version.platform_version_size);
    return HR_OK;
}

static hr_status device_text(const hr_pjrt *b, PJRT_DeviceDescription *d, char *to, size_t size)
{
    PJRT_DeviceDescription_DebugString_Args args = {
        .struct_size = PJRT_DeviceDescription_DebugString_Args_STRUCT_SIZE, .device_description = d
    };
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_DeviceDescription_DebugString(&args), "device"));
    keep_text(to, size, args.debug_string, args.debug_string_size);
    return HR_OK;
}

static hr_status device_description(const hr_pjrt *b, PJRT_Device *device,
                                    PJRT_DeviceDescription **out)
{
    PJRT_Device_GetDescription_Args args = { .struct_size =
                                                 PJRT_Device_GetDescription_Args_STRUCT_SIZE,
                                             .device = device };
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_Device_GetDescription(&args), "device"));
    *out = args.device_description;
    return HR_OK;
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
    b->device = args.addressable_devices[0];
    hr_log(HR_LOG_INFO, "pjrt: platform %s (%s), PJRT API %d.%d, %zu device%s", b->platform,
           b->version, b->api->pjrt_api_version.major_version,
           b->api->pjrt_api_version.minor_version, n, n == 1 ? "" : "s");
    for (size_t i = 0; i < n; i++) {
        HR_TRY(device_description(b, args.addressable_devices[i], &d));
        HR_TRY(device_text(b, d, text, sizeof text));
        hr_log(HR_LOG_INFO, "pjrt: device %zu: %s%s", i, text, i ? " (not used)" : "");
    }
    return HR_OK;
}

static void numerics(hr_backend *b, hr_buf *out)
{
    const hr_pjrt *p = (const hr_pjrt *)b;
    hr_buf_printf(out, "\"backend\":\"pjrt\",\"platform\":\"%s\",\"plugin\":\"%s\"", p->platform,
                  p->version);
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
    for (size_t i = 0; i < HR_PJRT_FLIGHTS; i++) /* a failed start may leave one */
        (void)!hr_pjrt_await(b->api, b->flights[i].event, "program");
    hr_pjrt_weights_deinit(b);
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
    .program_destroy = hr_pjrt_program_destroy,
    .program_info = hr_pjrt_program_info,
    .buffer_create = hr_pjrt_buffer_create,
    .buffer_destroy = hr_pjrt_buffer_destroy,
    .buffer_put = hr_pjrt_buffer_put,
    .buffer_get = hr_pjrt_buffer_get,
    .execute = hr_pjrt_execute,
    .event_await = hr_pjrt_event_await,
    .numerics = numerics,
    .weight_bytes = weight_bytes,
};

hr_status hr_pjrt_backend_create(const hr_pjrt_options *opt, hr_backend **out)
{
    const PJRT_Api *api;
    *out = NULL;
    HR_TRY(hr_pjrt_plugin_open(opt->plugin, &api));
    hr_pjrt *b = hr_new0(hr_pjrt);
    if (!b) return hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: backend");
    b->base.v = &vtable;
    b->api = api;
    b->hlo.attention_custom_call = opt->attention_custom_call;
    hr_status st = create_client(b, opt);
    if (!st) st = read_platform(b);
    if (!st) st = find_devices(b);
    if (st) destroy(&b->base);
    else *out = &b->base;
    return st;
}

static void add_value(const PJRT_NamedValue *v, hr_buf *out)
{
    hr_str text = { v->string_value, v->value_size };
    switch (v->type) {
    case PJRT_NamedValue_kString: hr_buf_add_str(out, text); break;
    case PJRT_NamedValue_kInt64: hr_buf_printf(out, "%lld", (long long)v->int64_value); break;
    case PJRT_NamedValue_kInt64List:
        for (size_t i = 0; i < v->value_size; i++)
            hr_buf_printf(out, "%s%lld", i ? "," : "", (long long)v->int64_array_value[i]);
        break;
    case PJRT_NamedValue_kFloat: hr_buf_printf(out, "%g", (double)v->float_value); break;
    case PJRT_NamedValue_kBool: hr_buf_add_c(out, v->bool_value ? "true" : "false"); break;
    }
}

/* coords=0,0,0 core_on_chip=0 … : what a plugin tells of a place in a slice. */
static hr_status add_attributes(const hr_pjrt *b, PJRT_DeviceDescription *d, hr_buf *out)
{
    PJRT_DeviceDescription_Attributes_Args args = {
        .struct_size = PJRT_DeviceDescription_Attributes_Args_STRUCT_SIZE, .device_description = d
    };
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_DeviceDescription_Attributes(&args), "attributes"));
    for (size_t i = 0; i < args.num_attributes; i++) {
        const PJRT_NamedValue *v = &args.attributes[i];
        hr_buf_add_byte(out, ' ');
        hr_buf_add_str(out, (hr_str){ v->name, v->name_size });
        hr_buf_add_byte(out, '=');
        add_value(v, out);
    }
    return HR_OK;
}

/* Not every plugin counts, and none counts a device of another host. */
static void add_memory(const hr_pjrt *b, PJRT_Device *device, hr_buf *out)
{
    PJRT_Device_IsAddressable_Args here = { .struct_size =
                                                PJRT_Device_IsAddressable_Args_STRUCT_SIZE,
                                            .device = device };
    PJRT_Device_MemoryStats_Args m = { .struct_size = PJRT_Device_MemoryStats_Args_STRUCT_SIZE,
                                       .device = device };
    hr_pjrt_ignore(b->api, b->api->PJRT_Device_IsAddressable(&here));
    if (!here.is_addressable) {
        hr_buf_add_c(out, ", on another host");
        return;
    }
    if (!HR_PJRT_HAS(b->api, PJRT_Device_MemoryStats)) return;
    PJRT_Error *e = b->api->PJRT_Device_MemoryStats(&m);
    if (!e) hr_buf_printf(out, ", %.2f GB in use", (double)m.bytes_in_use / 1e9);
    if (!e && m.bytes_limit_is_set) hr_buf_printf(out, " of %.2f GB", (double)m.bytes_limit / 1e9);
    hr_pjrt_ignore(b->api, e);
}

static hr_status add_device(const hr_pjrt *b, PJRT_Device *device, hr_buf *out)
{
    PJRT_DeviceDescription *d;
    char text[256];
    HR_TRY(device_description(b, device, &d));
    HR_TRY(device_text(b, d, text, sizeof text));
    PJRT_DeviceDescription_Id_Args id = { .struct_size = PJRT_DeviceDescription_Id_Args_STRUCT_SIZE,
                                          .device_description = d };
    PJRT_DeviceDescription_ProcessIndex_Args process = {
        .struct_size = PJRT_DeviceDescription_ProcessIndex_Args_STRUCT_SIZE, .device_description = d
    };
    PJRT_DeviceDescription_Kind_Args kind = { .struct_size =
                                                  PJRT_DeviceDescription_Kind_Args_STRUCT_SIZE,
                                              .device_description = d };
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_DeviceDescription_Id(&id), "device"));
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_DeviceDescription_ProcessIndex(&process), "device"));
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_DeviceDescription_Kind(&kind), "device"));
    hr_buf_printf(out, "  device %d: process %d, kind ", id.id, process.process_index);
    hr_buf_add_str(out, (hr_str){ kind.device_kind, kind.device_kind_size });
    hr_buf_printf(out, ", %s", text);
    HR_TRY(add_attributes(b, d, out));
    add_memory(b, device, out);
    hr_buf_add_byte(out, '\n');
    return HR_OK;
}

static hr_status add_devices(const hr_pjrt *b, hr_buf *out)
{
    PJRT_Client_Devices_Args args = { .struct_size = PJRT_Client_Devices_Args_STRUCT_SIZE,
                                      .client = b->client };
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_Client_Devices(&args), "devices"));
    for (size_t i = 0; i < args.num_devices; i++) HR_TRY(add_device(b, args.devices[i], out));
    return HR_OK;
}

hr_status hr_pjrt_describe(const hr_pjrt_options *opt, hr_buf *out)
{
    hr_backend *backend;
    HR_TRY(hr_pjrt_backend_create(opt, &backend));
    const hr_pjrt *b = (const hr_pjrt *)backend;
    hr_buf_printf(out, "pjrt:%s: platform %s (%s), PJRT API %d.%d\n", opt->plugin, b->platform,
                  b->version, b->api->pjrt_api_version.major_version,
                  b->api->pjrt_api_version.minor_version);
    hr_status st = add_devices(b, out);
    hr_backend_destroy(backend);
    return st ? st : hr_buf_status(out);
}
