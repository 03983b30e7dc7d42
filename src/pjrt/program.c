/* Runs of a program.
 *
 * Engine thread. Results replace what the output buffers held; a donated cache comes back as a new
 * PJRT buffer over the same memory, which is looked at once. */
#include "base/log.h"
#include "pjrt/pjrt_int.h"

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
