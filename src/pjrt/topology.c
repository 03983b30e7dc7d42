/* Compiling for devices that are not here.
 *
 * Caller's thread. A plugin that knows its devices by name (libtpu: "v6e:2x2x1") describes them and
 * compiles for them without a client, so on a machine without any. What comes out is never run; its
 * sizes are what the compiler says of it. */
#include <stdlib.h>

#include "base/sync.h"
#include "pjrt/pjrt_int.h"

struct hr_pjrt_topology {
    const PJRT_Api *api;
    PJRT_TopologyDescription *topology; /* owned */
    hr_hlo_options hlo;                 /* nothing can be tried here: what every plugin takes */
    size_t devices;                     /* replicas of each program */
    char plugin[256], name[64], platform[64], version[192];
};

/* What only this file calls, looked for when it is wanted. */
#define TOPOLOGY_LIST(X)                                                                           \
    X(PJRT_TopologyDescription_Create)                                                             \
    X(PJRT_TopologyDescription_Destroy)                                                            \
    X(PJRT_TopologyDescription_PlatformName)                                                       \
    X(PJRT_TopologyDescription_PlatformVersion)                                                    \
    X(PJRT_TopologyDescription_GetDeviceDescriptions)                                              \
    X(PJRT_Compile)                                                                                \
    X(PJRT_Executable_SizeOfGeneratedCodeInBytes)

static hr_status check_members(const PJRT_Api *api)
{
#define CHECK_MEMBER(member)                                                                       \
    if (!HR_PJRT_HAS(api, member))                                                                 \
        return hr_fail(HR_UNIMPLEMENTED,                                                           \
                       "PJRT API %d.%d cannot compile for a topology: it has no " #member,         \
                       api->pjrt_api_version.major_version, api->pjrt_api_version.minor_version);
    TOPOLOGY_LIST(CHECK_MEMBER)
#undef CHECK_MEMBER
    return HR_OK;
}

/* Without a TPU, libtpu asks Google's cloud what machine this is, for minutes, unless told not to.
 */
static void set_environment(void)
{
    setenv("TPU_SKIP_MDS_QUERY", "1", 0);
    setenv("TPU_WORKER_HOSTNAMES", "localhost", 0);
    setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", 0); /* no device is taken, so none is locked */
}

static hr_status create(hr_pjrt_topology *t, const char *name)
{
    PJRT_TopologyDescription_Create_Args args = {
        .struct_size = PJRT_TopologyDescription_Create_Args_STRUCT_SIZE,
        .topology_name = name,
        .topology_name_size = strlen(name)
    };
    HR_TRY(hr_pjrt_error(t->api, t->api->PJRT_TopologyDescription_Create(&args), name));
    t->topology = args.topology;
    return t->topology ? HR_OK : hr_fail(HR_INTERNAL, "pjrt: %s: the plugin gives none", name);
}

static hr_status read_platform(hr_pjrt_topology *t)
{
    PJRT_TopologyDescription_PlatformName_Args name = {
        .struct_size = PJRT_TopologyDescription_PlatformName_Args_STRUCT_SIZE,
        .topology = t->topology
    };
    PJRT_TopologyDescription_PlatformVersion_Args version = {
        .struct_size = PJRT_TopologyDescription_PlatformVersion_Args_STRUCT_SIZE,
        .topology = t->topology
    };
    HR_TRY(hr_pjrt_error(t->api, t->api->PJRT_TopologyDescription_PlatformName(&name), "platform"));
    HR_TRY(hr_pjrt_error(t->api, t->api->PJRT_TopologyDescription_PlatformVersion(&version),
                         "version"));
    hr_pjrt_keep_text(t->platform, sizeof t->platform, name.platform_name, name.platform_name_size);
    hr_pjrt_keep_text(t->version, sizeof t->version, version.platform_version,
                      version.platform_version_size);
    return HR_OK;
}

hr_status hr_pjrt_topology_create(const hr_pjrt_options *opt, const char *name,
                                  hr_pjrt_topology **out)
{
    *out = NULL;
    hr_pjrt_topology *t = hr_new0(hr_pjrt_topology);
    if (!t) return hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: topology");
    set_environment();
    hr_pjrt_keep_text(t->plugin, sizeof t->plugin, opt->plugin, strlen(opt->plugin));
    t->hlo.attention_custom_call = opt->attention_custom_call;
    t->devices = opt->devices > 1 ? (size_t)opt->devices : 1;
    hr_pjrt_keep_text(t->name, sizeof t->name, name, strlen(name));
    hr_status st = hr_pjrt_plugin_open(opt->plugin, &t->api);
    if (!st) st = check_members(t->api);
    if (!st) st = create(t, name);
    if (!st) st = read_platform(t);
    if (st) hr_pjrt_topology_destroy(t);
    else *out = t;
    return st;
}

void hr_pjrt_topology_destroy(hr_pjrt_topology *t)
{
    if (!t) return;
    PJRT_TopologyDescription_Destroy_Args args = {
        .struct_size = PJRT_TopologyDescription_Destroy_Args_STRUCT_SIZE, .topology = t->topology
    };
    if (t->topology) hr_pjrt_ignore(t->api, t->api->PJRT_TopologyDescription_Destroy(&args));
    hr_free(t);
}

hr_status hr_pjrt_topology_describe(const hr_pjrt_topology *t, hr_buf *out)
{
    PJRT_TopologyDescription_GetDeviceDescriptions_Args args = {
        .struct_size = PJRT_TopologyDescription_GetDeviceDescriptions_Args_STRUCT_SIZE,
        .topology = t->topology
    };
    HR_TRY(hr_pjrt_error(t->api, t->api->PJRT_TopologyDescription_GetDeviceDescriptions(&args),
                         "devices"));
    hr_buf_printf(out, "pjrt:%s: topology %s, platform %s (%s), PJRT API %d.%d\n", t->plugin,
                  t->name, t->platform, t->version, t->api->pjrt_api_version.major_version,
                  t->api->pjrt_api_version.minor_version);
    for (size_t i = 0; i < args.num_descriptions; i++) {
        HR_TRY(hr_pjrt_describe_device(t->api, args.descriptions[i], out));
        hr_buf_add_byte(out, '\n');
    }
    return hr_buf_status(out);
}

/* ---- programs ------------------------------------------------------------------------------- */

/* The code's own size is asked for by itself: what memory statistics call code has more in it. A
 * plugin need not give the statistics. */
static hr_status read_sizes(const hr_pjrt_topology *t, PJRT_Executable *x, hr_pjrt_compiled *out)
{
    PJRT_Executable_SizeOfGeneratedCodeInBytes_Args code = {
        .struct_size = PJRT_Executable_SizeOfGeneratedCodeInBytes_Args_STRUCT_SIZE, .executable = x
    };
    PJRT_Executable_GetCompiledMemoryStats_Args m = {
        .struct_size = PJRT_Executable_GetCompiledMemoryStats_Args_STRUCT_SIZE, .executable = x
    };
    HR_TRY(hr_pjrt_error(t->api, t->api->PJRT_Executable_SizeOfGeneratedCodeInBytes(&code),
                         "code size"));
    out->code_bytes = hr_pjrt_bytes(code.size_in_bytes);
    if (!HR_PJRT_HAS(t->api, PJRT_Executable_GetCompiledMemoryStats)) return HR_OK;
    PJRT_Error *e = t->api->PJRT_Executable_GetCompiledMemoryStats(&m);
    if (!e) {
        out->argument_bytes = hr_pjrt_bytes(m.argument_size_in_bytes);
        out->temporary_bytes = hr_pjrt_bytes(m.temp_size_in_bytes);
        out->peak_bytes = hr_pjrt_bytes(m.peak_memory_in_bytes);
    }
    hr_pjrt_ignore(t->api, e);
    return HR_OK;
}

static hr_status compile(const hr_pjrt_topology *t, const hr_buf *text, hr_pjrt_compiled *out)
{
    char options[HR_PJRT_OPTION_BYTES];
    hr_pjrt_compile_options(t->devices, options);
    PJRT_Program program = { .struct_size = PJRT_Program_STRUCT_SIZE,
                             .code = text->p,
                             .code_size = text->n,
                             .format = "mlir",
                             .format_size = 4 };
    PJRT_Compile_Args args = { .struct_size = PJRT_Compile_Args_STRUCT_SIZE,
                               .topology = t->topology,
                               .program = &program,
                               .compile_options = options,
                               .compile_options_size = sizeof options };
    double start = hr_now_s();
    HR_TRY(hr_pjrt_error(t->api, t->api->PJRT_Compile(&args), "compile"));
    out->seconds = hr_now_s() - start;
    if (!args.executable) return hr_fail(HR_INTERNAL, "pjrt: compile: the plugin gives no program");
    hr_status st = read_sizes(t, args.executable, out);
    hr_pjrt_executable_free(t->api, args.executable);
    return st;
}

hr_status hr_pjrt_topology_compile(const hr_pjrt_topology *t, const hr_graph *g,
                                   hr_pjrt_compiled *out)
{
    hr_hlo_program p;
    *out = (hr_pjrt_compiled){ 0 };
    HR_TRY(hr_hlo_program_build(g, &t->hlo, &p));
    out->text_bytes = p.text.n;
    hr_status st = compile(t, &p.text, out);
    hr_hlo_program_deinit(&p);
    return st;
}
