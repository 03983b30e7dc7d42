/* What a plugin tells of its devices, in words.
 *
 * Any thread. Texts come from a stranger: cut to size, without what would break a log line or a
 * JSON string. */
#include "pjrt/pjrt_int.h"

/* Cut to size, and clean enough for a log line and a JSON string. */
void hr_pjrt_keep_text(char *to, size_t size, const char *from, size_t n)
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

hr_status hr_pjrt_device_text(const PJRT_Api *api, PJRT_DeviceDescription *d, char *to, size_t size)
{
    PJRT_DeviceDescription_DebugString_Args args = {
        .struct_size = PJRT_DeviceDescription_DebugString_Args_STRUCT_SIZE, .device_description = d
    };
    HR_TRY(hr_pjrt_error(api, api->PJRT_DeviceDescription_DebugString(&args), "device"));
    hr_pjrt_keep_text(to, size, args.debug_string, args.debug_string_size);
    return HR_OK;
}

hr_status hr_pjrt_device_description(const PJRT_Api *api, PJRT_Device *device,
                                     PJRT_DeviceDescription **out)
{
    PJRT_Device_GetDescription_Args args = { .struct_size =
                                                 PJRT_Device_GetDescription_Args_STRUCT_SIZE,
                                             .device = device };
    HR_TRY(hr_pjrt_error(api, api->PJRT_Device_GetDescription(&args), "device"));
    *out = args.device_description;
    return HR_OK;
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

static bool comes_before(const PJRT_NamedValue *a, const PJRT_NamedValue *b)
{
    size_t n = a->name_size < b->name_size ? a->name_size : b->name_size;
    int order = memcmp(a->name, b->name, n);
    return order ? order < 0 : a->name_size < b->name_size;
}

/* The attribute whose name comes next after `last` in the alphabet, or NULL. */
static const PJRT_NamedValue *next_attribute(const PJRT_NamedValue *a, size_t n,
                                             const PJRT_NamedValue *last)
{
    const PJRT_NamedValue *best = NULL;
    for (size_t i = 0; i < n; i++)
        if ((!last || comes_before(last, &a[i])) && (!best || comes_before(&a[i], best)))
            best = &a[i];
    return best;
}

/* coords=0,0,0 core_on_chip=0 … : what a plugin tells of a place in a slice. libtpu has no order in
 * them. */
static hr_status add_attributes(const PJRT_Api *api, PJRT_DeviceDescription *d, hr_buf *out)
{
    PJRT_DeviceDescription_Attributes_Args args = {
        .struct_size = PJRT_DeviceDescription_Attributes_Args_STRUCT_SIZE, .device_description = d
    };
    HR_TRY(hr_pjrt_error(api, api->PJRT_DeviceDescription_Attributes(&args), "attributes"));
    const PJRT_NamedValue *v = NULL;
    while ((v = next_attribute(args.attributes, args.num_attributes, v))) {
        hr_buf_add_byte(out, ' ');
        hr_buf_add_str(out, (hr_str){ v->name, v->name_size });
        hr_buf_add_byte(out, '=');
        add_value(v, out);
    }
    return HR_OK;
}

hr_status hr_pjrt_describe_device(const PJRT_Api *api, PJRT_DeviceDescription *d, hr_buf *out)
{
    char text[256];
    PJRT_DeviceDescription_Id_Args id = { .struct_size = PJRT_DeviceDescription_Id_Args_STRUCT_SIZE,
                                          .device_description = d };
    PJRT_DeviceDescription_ProcessIndex_Args process = {
        .struct_size = PJRT_DeviceDescription_ProcessIndex_Args_STRUCT_SIZE, .device_description = d
    };
    PJRT_DeviceDescription_Kind_Args kind = { .struct_size =
                                                  PJRT_DeviceDescription_Kind_Args_STRUCT_SIZE,
                                              .device_description = d };
    HR_TRY(hr_pjrt_device_text(api, d, text, sizeof text));
    HR_TRY(hr_pjrt_error(api, api->PJRT_DeviceDescription_Id(&id), "device"));
    HR_TRY(hr_pjrt_error(api, api->PJRT_DeviceDescription_ProcessIndex(&process), "device"));
    HR_TRY(hr_pjrt_error(api, api->PJRT_DeviceDescription_Kind(&kind), "device"));
    hr_buf_printf(out, "  device %d: process %d, kind ", id.id, process.process_index);
    hr_buf_add_str(out, (hr_str){ kind.device_kind, kind.device_kind_size });
    hr_buf_printf(out, ", %s", text);
    return add_attributes(api, d, out);
}

/* False: the plugin does not count. */
static bool device_memory(const hr_pjrt *b, PJRT_Device *device, hr_device_memory *out)
{
    PJRT_Device_MemoryStats_Args m = { .struct_size = PJRT_Device_MemoryStats_Args_STRUCT_SIZE,
                                       .device = device };
    *out = (hr_device_memory){ 0 };
    if (!HR_PJRT_HAS(b->api, PJRT_Device_MemoryStats)) return false;
    PJRT_Error *e = b->api->PJRT_Device_MemoryStats(&m);
    bool told = !e;
    if (told) out->in_use = hr_pjrt_bytes(m.bytes_in_use);
    if (told && m.bytes_limit_is_set) out->limit = hr_pjrt_bytes(m.bytes_limit);
    hr_pjrt_ignore(b->api, e);
    return told;
}

bool hr_pjrt_memory(hr_backend *b, hr_device_memory *out)
{
    const hr_pjrt *p = (const hr_pjrt *)b;
    return device_memory(p, p->device[0], out);
}

static void add_memory(const hr_pjrt *b, PJRT_Device *device, hr_buf *out)
{
    PJRT_Device_IsAddressable_Args here = { .struct_size =
                                                PJRT_Device_IsAddressable_Args_STRUCT_SIZE,
                                            .device = device };
    hr_device_memory m;
    hr_pjrt_ignore(b->api, b->api->PJRT_Device_IsAddressable(&here));
    if (!here.is_addressable) {
        hr_buf_add_c(out, ", on another host");
        return;
    }
    if (!device_memory(b, device, &m)) return;
    hr_buf_printf(out, ", %.2f GB in use", (double)m.in_use / 1e9);
    if (m.limit) hr_buf_printf(out, " of %.2f GB", (double)m.limit / 1e9);
}

static hr_status add_device(const hr_pjrt *b, PJRT_Device *device, hr_buf *out)
{
    PJRT_DeviceDescription *d;
    HR_TRY(hr_pjrt_device_description(b->api, device, &d));
    HR_TRY(hr_pjrt_describe_device(b->api, d, out));
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
