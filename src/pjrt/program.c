/* Runs of a program, on all devices at once.
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
        for (size_t d = 0; input >= 0 && d < p->owner->devices; d++)
            p->lists[d][i] = a->inputs[input]->device[d];
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
        for (size_t d = 0; g->outputs[i].donor >= 0 && d < p->owner->devices; d++)
            p->at[d * g->n_outputs + i] = address_of(p->owner, a->outputs[i]->device[d]);
}

static void check_addresses(hr_program *p)
{
    const hr_graph *g = p->hlo.graph;
    p->donation_seen = true;
    for (size_t k = 0; k < p->owner->devices * g->n_outputs; k++) {
        const struct hr_output *o = &g->outputs[k % g->n_outputs];
        if (o->donor < 0 || !p->at[k]) continue;
        uintptr_t now = address_of(p->owner, p->results[k]);
        if (now && now != p->at[k])
            hr_log(HR_LOG_WARNING, "pjrt: program %s: %s is copied at every step, not updated",
                   g->name, o->name);
    }
}

/* The plugin may or may not have consumed them: neither is safe to assume. */
static void drop_donated(hr_program *p, const hr_execute_args *a)
{
    const hr_graph *g = p->hlo.graph;
    for (size_t i = 0; i < g->n_outputs; i++) {
        for (size_t d = 0; g->outputs[i].donor >= 0 && d < p->owner->devices; d++) {
            hr_pjrt_buffer_free(p->owner, a->outputs[i]->device[d]);
            a->outputs[i]->device[d] = NULL;
        }
    }
}

static void take_results(hr_program *p, const hr_execute_args *a)
{
    size_t devices = p->owner->devices;
    for (size_t i = 0; i < p->hlo.graph->n_outputs; i++) {
        for (size_t d = 0; d < devices; d++) {
            hr_pjrt_buffer_free(p->owner, a->outputs[i]->device[d]);
            a->outputs[i]->device[d] = p->lists[devices + d][i];
            p->lists[devices + d][i] = NULL;
        }
        a->outputs[i]->writer = p->owner->serial;
    }
}

static void note_failure(hr_pjrt *b, uint64_t serial)
{
    b->failed[b->n_failed++ % HR_PJRT_FAILURES] = serial;
}

/* Where an execute's events go; the last place when all others are taken. */
static hr_pjrt_flight *free_flight(hr_pjrt *b)
{
    hr_pjrt_flight *f = b->flights;
    while (f->busy && f < &b->flights[HR_PJRT_FLIGHTS]) f++;
    return f;
}

/* Every device's event; the first one's failure is the flight's. */
static hr_status await_flight(hr_pjrt *b, hr_pjrt_flight *f)
{
    hr_status first = HR_OK;
    char message[HR_MESSAGE_MAX];
    for (size_t d = 0; d < b->devices; d++) {
        hr_status st = hr_pjrt_await(b->api, f->events[d], "program");
        f->events[d] = NULL;
        if (!st || first) continue;
        first = st;
        memcpy(message, hr_message(), sizeof message);
    }
    f->busy = false;
    if (!first) return HR_OK;
    note_failure(b, f->serial);
    return hr_fail(first, "%s", message);
}

static hr_status launch(hr_program *p, PJRT_Event **events)
{
    const PJRT_Api *api = p->owner->api;
    size_t devices = p->owner->devices;
    PJRT_ExecuteOptions options = { .struct_size = PJRT_ExecuteOptions_STRUCT_SIZE };
    PJRT_LoadedExecutable_Execute_Args args = {
        .struct_size = PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE,
        .executable = p->loaded,
        .options = &options,
        .argument_lists = (PJRT_Buffer *const *const *)p->lists,
        .num_devices = devices,
        .num_args = p->hlo.n_arguments,
        .output_lists = p->lists + devices,
        .device_complete_events = events,
    };
    hr_status st = hr_pjrt_error(api, api->PJRT_LoadedExecutable_Execute(&args), "execute");
    return st ? hr_fail_prefix(st, "program %s", p->hlo.graph->name) : HR_OK;
}

hr_status hr_pjrt_execute(hr_program *p, const hr_execute_args *a, hr_event *done)
{
    hr_pjrt_flight *f = free_flight(p->owner);
    hr_status st = bind(p, a);
    if (st) return done->status = st;
    if (!p->donation_seen) note_addresses(p, a);
    st = launch(p, f->events);
    if (st) {
        drop_donated(p, a);
        return done->status = st;
    }
    f->serial = ++p->owner->serial;
    f->busy = true;
    if (!p->donation_seen) check_addresses(p);
    take_results(p, a);
    if (f == &p->owner->flights[HR_PJRT_FLIGHTS]) done->status = await_flight(p->owner, f);
    else done->pending = f;
    return done->status;
}

hr_status hr_pjrt_event_await(hr_event *e)
{
    e->status = await_flight((hr_pjrt *)e->backend, e->pending);
    e->pending = NULL;
    return e->status;
}

void hr_pjrt_flights_end(hr_pjrt *b)
{
    for (size_t i = 0; b->events && i <= HR_PJRT_FLIGHTS; i++)
        if (b->flights[i].busy) (void)!await_flight(b, &b->flights[i]);
    hr_free(b->events);
    b->events = NULL;
}
