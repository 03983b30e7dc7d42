/* Programs: a graph's text compiled by the plugin, and its runs.
 *
 * Engine thread. All arrays that an execute hands to the plugin are made at compile, weights
 * already in place, so a step allocates nothing here. Results replace what the output buffers held;
 * a donated cache comes back as a new PJRT buffer over the same memory, which is looked at once. */
#include "base/log.h"
#include "pjrt/pjrt_int.h"

struct hr_program {
    hr_pjrt *owner;                /* borrowed */
    hr_hlo_program hlo;            /* owned; its text is dropped after compiling */
    PJRT_LoadedExecutable *loaded; /* owned */
    PJRT_Buffer **arguments;       /* owned array; inputs set by each execute, weights by compile */
    PJRT_Buffer **results;         /* owned array */
    uintptr_t *at;                 /* owned array; where donated inputs lay, per output */
    bool donation_seen;            /* in-place update has been looked at */
    hr_program_info info;
};

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
    hr_status st = hr_hlo_program_build(g, &p->hlo);
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

static hr_status check_buffer(const hr_program *p, const hr_buffer *x, const hr_value *v,
                              const char *name)
{
    if (x && x->desc.dtype == v->dtype && hr_shape_eq(x->desc.shape, v->shape)) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "program %s: %s is bound to %s buffer", p->hlo.graph->name,
                   name, x ? "the wrong kind of" : "no");
}

static hr_status bind(hr_program *p, const hr_execute_args *a)
{
    const hr_graph *g = p->hlo.graph;
    for (size_t i = 0; i < g->n_inputs; i++) {
        HR_TRY(check_buffer(p, a->inputs[i], g->inputs[i], g->inputs[i]->name));
        if (hr_pjrt_lost(a->inputs[i]))
            return hr_fail(HR_FAILED_PRECONDITION,
                           "program %s: %s was lost with a program that failed", g->name,
                           g->inputs[i]->name);
    }
    for (size_t i = 0; i < g->n_outputs; i++) {
        const struct hr_output *o = &g->outputs[i];
        HR_TRY(check_buffer(p, a->outputs[i], o->value, o->name));
        if (o->donor >= 0 && a->outputs[i] != a->inputs[o->donor])
            return hr_fail(HR_INVALID_ARGUMENT, "program %s: %s is not in its donor's buffer",
                           g->name, o->name);
    }
    for (size_t i = 0; i < p->hlo.n_arguments; i++) {
        int input = p->hlo.arguments[i].input;
        if (input >= 0) p->arguments[i] = a->inputs[input]->device;
    }
    return HR_OK;
}

/* 0 where the plugin does not say. */
static uintptr_t address_of(hr_pjrt *b, PJRT_Buffer *x)
{
    PJRT_Buffer_UnsafePointer_Args args = { .struct_size =
                                                PJRT_Buffer_UnsafePointer_Args_STRUCT_SIZE,
                                            .buffer = x };
    if (!HR_PJRT_HAS(b->api, PJRT_Buffer_UnsafePointer)) return 0;
    PJRT_Error *e = b->api->PJRT_Buffer_UnsafePointer(&args);
    uintptr_t at = e ? 0 : args.buffer_pointer;
    hr_pjrt_ignore(b->api, e);
    return at;
}

static void note_addresses(hr_program *p, const hr_execute_args *a)
{
    const hr_graph *g = p->hlo.graph;
    for (size_t i = 0; i < g->n_outputs; i++)
        if (g->outputs[i].donor >= 0) p->at[i] = address_of(p->owner, a->outputs[i]->device);
}

static void check_addresses(hr_program *p)
{
    const hr_graph *g = p->hlo.graph;
    p->donation_seen = true;
    for (size_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].donor < 0 || !p->at[i]) continue;
        uintptr_t now = address_of(p->owner, p->results[i]);
        if (now && now != p->at[i])
            hr_log(HR_LOG_WARNING, "pjrt: program %s: %s is copied at every step, not updated",
                   g->name, g->outputs[i].name);
    }
}

/* The plugin may or may not have consumed them: neither is safe to assume. */
static void drop_donated(hr_program *p, const hr_execute_args *a)
{
    const hr_graph *g = p->hlo.graph;
    for (size_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].donor < 0) continue;
        hr_pjrt_buffer_free(p->owner, a->outputs[i]->device);
        a->outputs[i]->device = NULL;
    }
}

static void take_results(hr_program *p, const hr_execute_args *a)
{
    for (size_t i = 0; i < p->hlo.graph->n_outputs; i++) {
        hr_pjrt_buffer_free(p->owner, a->outputs[i]->device);
        a->outputs[i]->device = p->results[i];
        a->outputs[i]->writer = p->owner->serial;
        p->results[i] = NULL;
    }
}

static void note_failure(hr_pjrt *b, uint64_t serial)
{
    b->failed[b->n_failed++ % HR_PJRT_FAILURES] = serial;
}

/* Finished work, or all slots taken: the event is awaited here. */
static void set_pending(hr_pjrt *b, PJRT_Event *event, hr_event *done)
{
    for (size_t i = 0; event && i < HR_PJRT_FLIGHTS; i++) {
        if (b->flights[i].event) continue;
        b->flights[i] = (hr_pjrt_flight){ event, b->serial };
        done->pending = &b->flights[i];
        return;
    }
    done->status = hr_pjrt_await(b->api, event, "program");
    if (done->status) note_failure(b, b->serial);
}

static hr_status launch(hr_program *p, PJRT_Event **event)
{
    const PJRT_Api *api = p->owner->api;
    PJRT_ExecuteOptions options = { .struct_size = PJRT_ExecuteOptions_STRUCT_SIZE };
    PJRT_Buffer *const *arguments = p->arguments;
    PJRT_Buffer **results = p->results;
    PJRT_LoadedExecutable_Execute_Args args = {
        .struct_size = PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE,
        .executable = p->loaded,
        .options = &options,
        .argument_lists = &arguments,
        .num_devices = 1,
        .num_args = p->hlo.n_arguments,
        .output_lists = &results,
        .device_complete_events = event,
    };
    hr_status st = hr_pjrt_error(api, api->PJRT_LoadedExecutable_Execute(&args), "execute");
    return st ? hr_fail_prefix(st, "program %s", p->hlo.graph->name) : HR_OK;
}

hr_status hr_pjrt_execute(hr_program *p, const hr_execute_args *a, hr_event *done)
{
    PJRT_Event *event = NULL;
    hr_status st = bind(p, a);
    if (st) return done->status = st;
    if (!p->donation_seen) note_addresses(p, a);
    st = launch(p, &event);
    if (st) {
        drop_donated(p, a);
        return done->status = st;
    }
    p->owner->serial++;
    if (!p->donation_seen) check_addresses(p);
    take_results(p, a);
    set_pending(p->owner, event, done);
    return done->status;
}

hr_status hr_pjrt_event_await(hr_event *e)
{
    hr_pjrt *b = (hr_pjrt *)e->backend;
    hr_pjrt_flight *f = e->pending;
    e->status = hr_pjrt_await(b->api, f->event, "program");
    if (e->status) note_failure(b, f->serial);
    *f = (hr_pjrt_flight){ 0 };
    e->pending = NULL;
    return e->status;
}
