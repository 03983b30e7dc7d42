/* What decides whether a compiled program runs here: the plugin's bytes, its devices, the
 * processor, and what else the compiler looks at.
 *
 * Engine thread. A blob for other instructions can load and die when it runs, so whatever might
 * matter is in, as text, and one that differs is another name in the cache. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sync.h"
#include "pjrt/pjrt_int.h"

/* The first line of each kind: all processors of a machine that one process runs on are alike. */
static void add_processor(hr_buf *out)
{
    static const char *const keys[] = { "model name", "flags", "Features", "CPU implementer",
                                        "CPU part" };
    bool seen[sizeof keys / sizeof *keys] = { 0 };
    char line[8192]; /* flags are some 2000 bytes */
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f))
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            size_t n = strlen(keys[i]);
            if (seen[i] || strncmp(line, keys[i], n) || !isspace((unsigned char)line[n])) continue;
            seen[i] = true;
            hr_buf_add_c(out, line);
        }
    if (f) fclose(f);
    /* XLA's CPU compiler splits loops over as many threads */
    hr_buf_printf(out, "processors %d\n", hr_processors());
}

static void add_environment(hr_buf *out)
{
    static const char *const names[] = { "XLA_FLAGS", "PJRT_NPROC", "LIBTPU_INIT_ARGS",
                                         "TF_XLA_FLAGS" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        hr_buf_printf(out, "%s=%s\n", names[i], value ? value : "");
    }
}

static hr_status add_plugin(const hr_pjrt *b, hr_buf *out)
{
    char digest[HR_DIGEST_TEXT];
    hr_file f;
    HR_TRY(hr_file_open(b->options.plugin, &f));
    hr_status st = hr_digest_file_remembered(&f, digest);
    hr_file_close(&f);
    if (!st)
        hr_buf_printf(out, "plugin %s\nplatform %s, %s, API %d.%d\noptions %s\n", digest,
                      b->platform, b->version, b->api->pjrt_api_version.major_version,
                      b->api->pjrt_api_version.minor_version,
                      b->options.create_options ? b->options.create_options : "");
    return st;
}

static hr_status add_devices(const hr_pjrt *b, hr_buf *out)
{
    PJRT_Client_AddressableDevices_Args args = {
        .struct_size = PJRT_Client_AddressableDevices_Args_STRUCT_SIZE, .client = b->client
    };
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_Client_AddressableDevices(&args), "devices"));
    for (size_t i = 0; i < args.num_addressable_devices; i++) {
        PJRT_DeviceDescription *d;
        HR_TRY(hr_pjrt_device_description(b->api, args.addressable_devices[i], &d));
        PJRT_DeviceDescription_Kind_Args kind = { .struct_size =
                                                      PJRT_DeviceDescription_Kind_Args_STRUCT_SIZE,
                                                  .device_description = d };
        HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_DeviceDescription_Kind(&kind), "device"));
        hr_buf_printf(out, "device %zu of %zu: ", i, args.num_addressable_devices);
        hr_buf_add_str(out, (hr_str){ kind.device_kind, kind.device_kind_size });
        hr_buf_add_byte(out, '\n');
    }
    return HR_OK;
}

hr_status hr_pjrt_identity(const hr_pjrt *b, hr_buf *out)
{
    HR_TRY(add_plugin(b, out));
    HR_TRY(add_devices(b, out));
    add_processor(out);
    add_environment(out);
    return hr_buf_status(out);
}
