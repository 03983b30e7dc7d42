/* Programs: a graph's text compiled by the plugin.
 *
 * Engine thread. All arrays that an execute hands to the plugin are made here, weights already in
 * place, so that a step allocates nothing in this room. */
#include "base/log.h"
#include "pjrt/pjrt_int.h"

/* CompileOptionsProto { executable_build_options { num_replicas: 1 num_partitions: 1 } }. */
static const char compile_options[] = { 0x1a, 0x04, 0x20, 0x01, 0x28, 0x01 };

static hr_status load(hr_program *p)
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
                                      .compile_options = compile_options,
                                      .compile_options_size = sizeof compile_options };
    HR_TRY(hr_pjrt_error(api, api->PJRT_Client_Compile(&args), "compile"));
    p->loaded = args.executable;
    return p->loaded ? HR_OK : hr_fail(HR_INTERNAL, "pjrt: compile: the plugin gives no program");
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

/* Sizes are for the ledger; a plugin need not know them. */
static void read_sizes(hr_program *p, PJRT_Executable *x)
{
    const PJRT_Api *api = p->owner->api;
    PJRT_Executable_GetCompiledMemoryStats_Args args = {
        .struct_size = PJRT_Executable_GetCompiledMemoryStats_Args_STRUCT_SIZE, .executable = x
    };
    if (!HR_PJRT_HAS(api, PJRT_Executable_GetCompiledMemoryStats)) return;
    PJRT_Error *e = api->PJRT_Executable_GetCompiledMemoryStats(&args);
    if (!e && args.temp_size_in_bytes > 0) p->info.peak_bytes = (size_t)args.temp_size_in_bytes;
    if (!e)
        hr_log(HR_LOG_DEBUG, "pjrt: program %s: %lld bytes of code, %lld of working memory",
               p->hlo.graph->name, (long long)args.generated_code_size_in_bytes,
               (long long)args.temp_size_in_bytes);
    hr_pjrt_ignore(api, e);
}

static hr_status inspect(hr_program *p)
{
    const PJRT_Api *api = p->owner->api;
    PJRT_LoadedExecutable_GetExecutable_Args args = {
        .struct_size = PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE,
        .loaded_executable = p->loaded
    };
    HR_TRY(hr_pjrt_error(api, api->PJRT_LoadedExecutable_GetExecutable(&args), "program"));
    hr_status st = check_results(p, args.executable);
    if (!st) read_sizes(p, args.executable);
    PJRT_Executable_Destroy_Args end = { .struct_size = PJRT_Executable_Destroy_Args_STRUCT_SIZE,
                                         .executable = args.executable };
    hr_pjrt_ignore(api, api->PJRT_Executable_Destroy(&end));
    return st;
}

static hr_status make_arrays(hr_program *p)
{
    size_t n = p->hlo.n_arguments, m = p->hlo.graph->n_outputs;
    p->arguments = hr_alloc_array0(n + 1, sizeof *p->arguments);
    p->results = hr_alloc_array0(m + 1, sizeof(PJRT_Buffer *));
    p->at = hr_alloc_array0(m + 1, sizeof *p->at);
    if (!p->arguments || !p->results || !p->at)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: arguments of %s", p->hlo.graph->name);
    return HR_OK;
}

static hr_status bind_weights(hr_program *p)
{
    for (size_t i = 0; i < p->hlo.n_arguments; i++)
        if (p->hlo.arguments[i].input < 0)
            HR_TRY(hr_pjrt_weight_get(p->owner, &p->hlo.arguments[i], &p->arguments[i]));
    return HR_OK;
}

hr_status hr_pjrt_compile(hr_backend *b, const hr_graph *g, hr_program **out)
{
    hr_program *p = hr_new0(hr_program);
    if (!p) return hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: program");
    p->owner = (hr_pjrt *)b;
    hr_pjrt_choose_storage(p->owner, g);
    hr_status st = hr_hlo_program_build(g, &p->owner->hlo, &p->hlo);
    if (!st) st = make_arrays(p);
    if (!st) st = bind_weights(p);
    if (!st) st = load(p);
    if (!st) st = inspect(p);
    if (st) {
        hr_pjrt_program_destroy(p);
        return hr_fail_prefix(st, "program %s", g->name);
    }
    p->info.steps = p->hlo.graph->n_nodes;
    hr_buf_deinit(&p->hlo.text);
    *out = p;
    return HR_OK;
}

void hr_pjrt_program_destroy(hr_program *p)
{
    if (!p) return;
    const PJRT_Api *api = p->owner->api;
    PJRT_LoadedExecutable_Destroy_Args args = { .struct_size =
                                                    PJRT_LoadedExecutable_Destroy_Args_STRUCT_SIZE,
                                                .executable = p->loaded };
    if (p->loaded) hr_pjrt_ignore(api, api->PJRT_LoadedExecutable_Destroy(&args));
    hr_free(p->arguments);
    hr_free(p->results);
    hr_free(p->at);
    hr_hlo_program_deinit(&p->hlo);
    hr_free(p);
}

void hr_pjrt_program_info(const hr_program *p, hr_program_info *out)
{
    *out = p->info;
}
