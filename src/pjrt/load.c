/* From a program's text to what the device runs: out of the cache, or by the plugin's compiler.
 *
 * Any thread; several at once, each on a program of its own. */
#include "base/log.h"
#include "pjrt/pjrt_int.h"

void hr_pjrt_compile_options(size_t devices, char to[HR_PJRT_OPTION_BYTES])
{
    const char bytes[HR_PJRT_OPTION_BYTES] = { 0x1a, 0x04, 0x20, (char)devices, 0x28, 0x01 };
    memcpy(to, bytes, sizeof bytes);
}

void hr_pjrt_unload(hr_program *p)
{
    const PJRT_Api *api = p->owner->api;
    PJRT_LoadedExecutable_Destroy_Args args = { .struct_size =
                                                    PJRT_LoadedExecutable_Destroy_Args_STRUCT_SIZE,
                                                .executable = p->loaded };
    if (p->loaded) hr_pjrt_ignore(api, api->PJRT_LoadedExecutable_Destroy(&args));
    p->loaded = NULL;
}

/* ---- what a compiled program is -------------------------------------------------------------- */

static hr_status get_executable(const hr_program *p, PJRT_Executable **out)
{
    const PJRT_Api *api = p->owner->api;
    PJRT_LoadedExecutable_GetExecutable_Args args = {
        .struct_size = PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE,
        .loaded_executable = p->loaded
    };
    *out = NULL;
    HR_TRY(hr_pjrt_error(api, api->PJRT_LoadedExecutable_GetExecutable(&args), "program"));
    *out = args.executable;
    return HR_OK;
}

void hr_pjrt_executable_free(const PJRT_Api *api, PJRT_Executable *x)
{
    PJRT_Executable_Destroy_Args args = { .struct_size = PJRT_Executable_Destroy_Args_STRUCT_SIZE,
                                          .executable = x };
    if (x) hr_pjrt_ignore(api, api->PJRT_Executable_Destroy(&args));
}

/* A plugin that returned another number of results would write past our array. */
static hr_status check_results(const hr_program *p, PJRT_Executable *x)
{
    const PJRT_Api *api = p->owner->api;
    PJRT_Executable_NumOutputs_Args args = { .struct_size =
                                                 PJRT_Executable_NumOutputs_Args_STRUCT_SIZE,
                                             .executable = x };
    HR_TRY(hr_pjrt_error(api, api->PJRT_Executable_NumOutputs(&args), "number of results"));
    if (args.num_outputs == p->hlo.graph->n_outputs) return HR_OK;
    return hr_fail(HR_INTERNAL, "pjrt: the plugin's program has %zu results, the graph %zu",
                   args.num_outputs, p->hlo.graph->n_outputs);
}

/* Our lists of buffers are in the order of our devices; the plugin's replicas must be, too. */
static hr_status check_devices(const hr_program *p)
{
    const hr_pjrt *b = p->owner;
    PJRT_LoadedExecutable_AddressableDevices_Args args = {
        .struct_size = PJRT_LoadedExecutable_AddressableDevices_Args_STRUCT_SIZE,
        .executable = p->loaded
    };
    if (b->devices == 1) return HR_OK;
    if (!HR_PJRT_HAS(b->api, PJRT_LoadedExecutable_AddressableDevices))
        return hr_fail(HR_UNIMPLEMENTED, "pjrt: the plugin does not tell a program's devices");
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_LoadedExecutable_AddressableDevices(&args),
                         "devices of a program"));
    bool same = args.num_addressable_devices == b->devices;
    for (size_t i = 0; same && i < b->devices; i++)
        same = args.addressable_devices[i] == b->device[i];
    return same ? HR_OK
                : hr_fail(HR_INTERNAL,
                          "pjrt: the plugin runs a program on other devices than the "
                          "first %zu",
                          b->devices);
}

/* Sizes are for the ledger; a plugin need not know them. */
static void read_sizes(hr_program *p, PJRT_Executable *x)
{
    const PJRT_Api *api = p->owner->api;
    PJRT_Executable_GetCompiledMemoryStats_Args args = {
        .struct_size = PJRT_Executable_GetCompiledMemoryStats_Args_STRUCT_SIZE, .executable = x
    };
    if (!HR_PJRT_HAS(api, PJRT_Executable_GetCompiledMemoryStats)) return;
    PJRT_Error *e = api->PJRT_Executable_GetCompiledMemoryStats(&args);
    if (!e) {
        p->info.peak_bytes = hr_pjrt_bytes(args.temp_size_in_bytes);
        p->info.code_bytes = hr_pjrt_bytes(args.generated_code_size_in_bytes);
    }
    hr_pjrt_ignore(api, e);
}

/* ---- out of the cache ------------------------------------------------------------------------ */

static hr_status deserialize(hr_program *p, hr_str blob)
{
    const PJRT_Api *api = p->owner->api;
    PJRT_Executable_DeserializeAndLoad_Args args = {
        .struct_size = PJRT_Executable_DeserializeAndLoad_Args_STRUCT_SIZE,
        .client = p->owner->client,
        .serialized_executable = blob.p,
        .serialized_executable_size = blob.n,
    };
    HR_TRY(hr_pjrt_error(api, api->PJRT_Executable_DeserializeAndLoad(&args), "load"));
    p->loaded = args.loaded_executable;
    return p->loaded ? HR_OK : hr_fail(HR_INTERNAL, "pjrt: load: the plugin gives no program");
}

/* False leaves the program as it was; an entry that the plugin does not take is warned of. */
static bool recall(hr_program *p, const hr_digest *key)
{
    hr_buf file = { 0 };
    hr_pjrt_entry entry;
    PJRT_Executable *x = NULL;
    bool found = hr_pjrt_cache_read(&p->owner->cache, key, &file, &entry);
    hr_status st = found ? deserialize(p, entry.blob) : HR_NOT_FOUND;
    if (!st) st = check_devices(p);
    if (!st) st = get_executable(p, &x);
    if (!st) st = check_results(p, x);
    hr_pjrt_executable_free(p->owner->api, x);
    if (st) hr_pjrt_unload(p);
    if (found && st) hr_pjrt_cache_refuse(&p->owner->cache, key);
    if (!st) {
        p->info.cached = true;
        p->info.peak_bytes = entry.peak_bytes;
        p->info.code_bytes = entry.code_bytes;
    }
    hr_buf_deinit(&file);
    return !st;
}

/* A plugin that cannot write this program, or any, has compiled it all the same. */
static void keep(hr_program *p, PJRT_Executable *x, const hr_digest *key)
{
    const PJRT_Api *api = p->owner->api;
    PJRT_Executable_Serialize_Args args = { .struct_size =
                                                PJRT_Executable_Serialize_Args_STRUCT_SIZE,
                                            .executable = x };
    hr_status st = hr_pjrt_error(api, api->PJRT_Executable_Serialize(&args), "serialize");
    if (!p->info.code_bytes) p->info.code_bytes = args.serialized_bytes_size; /* it does not say */
    hr_pjrt_entry entry = { .blob = { args.serialized_bytes, args.serialized_bytes_size },
                            .peak_bytes = p->info.peak_bytes,
                            .code_bytes = p->info.code_bytes };
    if (!st && (!entry.blob.p || !entry.blob.n))
        st = hr_fail(HR_INTERNAL, "pjrt: serialize: the plugin gives nothing");
    if (st) hr_pjrt_cache_complain(&p->owner->cache);
    else hr_pjrt_cache_write(&p->owner->cache, key, &entry);
    if (args.serialized_executable && args.serialized_executable_deleter)
        args.serialized_executable_deleter(args.serialized_executable);
}

/* ---- by the plugin --------------------------------------------------------------------------- */

static hr_status compile(hr_program *p, const char options[HR_PJRT_OPTION_BYTES])
{
    const PJRT_Api *api = p->owner->api;
    static const char format[] = "mlir";
    PJRT_Program program = { .struct_size = PJRT_Program_STRUCT_SIZE,
                             .code = p->hlo.text.p,
                             .code_size = p->hlo.text.n,
                             .format = format,
                             .format_size = sizeof format - 1 };
    PJRT_Client_Compile_Args args = { .struct_size = PJRT_Client_Compile_Args_STRUCT_SIZE,
                                      .client = p->owner->client,
                                      .program = &program,
                                      .compile_options = options,
                                      .compile_options_size = HR_PJRT_OPTION_BYTES };
    HR_TRY(hr_pjrt_error(api, api->PJRT_Client_Compile(&args), "compile"));
    p->loaded = args.executable;
    return p->loaded ? HR_OK : hr_fail(HR_INTERNAL, "pjrt: compile: the plugin gives no program");
}

hr_status hr_pjrt_load(hr_program *p)
{
    hr_digest key;
    PJRT_Executable *x = NULL;
    char options[HR_PJRT_OPTION_BYTES];
    hr_pjrt_compile_options(p->owner->devices, options);
    bool caching = p->owner->cache.folder &&
                   !hr_pjrt_cache_key(&p->owner->cache, (hr_str){ options, HR_PJRT_OPTION_BYTES },
                                      hr_buf_str(&p->hlo.text), &key);
    if (caching && recall(p, &key)) return HR_OK;
    HR_TRY(compile(p, options));
    hr_status st = check_devices(p);
    if (!st) st = get_executable(p, &x);
    if (!st) st = check_results(p, x);
    if (!st) read_sizes(p, x);
    if (!st && caching) keep(p, x, &key);
    hr_pjrt_executable_free(p->owner->api, x);
    return st;
}
