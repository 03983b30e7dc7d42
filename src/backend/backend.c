/* The seam's thin front: counts, seals, forwards.
 *
 * Runs on the engine thread. Its one idea: the rule "no late compile" is kept here, before any
 * backend is asked, so that no backend can forget it. */
#include "backend/backend.h"

void hr_backend_destroy(hr_backend *b)
{
    if (b) b->v->destroy(b);
}

bool hr_backend_memory(hr_backend *b, hr_device_memory *out)
{
    *out = (hr_device_memory){ 0 };
    return b->v->memory && b->v->memory(b, out);
}

hr_status hr_backend_compile_start(hr_backend *b, const hr_graph *g, hr_program **out)
{
    *out = NULL;
    if (b->sealed)
        return hr_fail(HR_FAILED_PRECONDITION, "program %s: the backend is sealed", g->name);
    HR_TRY(hr_graph_verify(g));
    HR_TRY(b->v->compile(b, g, out));
    b->compiles++;
    return HR_OK;
}

hr_status hr_program_await(hr_backend *b, hr_program *p)
{
    return b->v->program_await ? b->v->program_await(p) : HR_OK;
}

hr_status hr_backend_compile(hr_backend *b, const hr_graph *g, hr_program **out)
{
    HR_TRY(hr_backend_compile_start(b, g, out));
    hr_status st = hr_program_await(b, *out);
    if (!st) return HR_OK;
    hr_program_destroy(*out, b);
    *out = NULL;
    return st;
}

void hr_backend_seal(hr_backend *b)
{
    b->sealed = true;
    if (b->v->seal) b->v->seal(b);
}

void hr_program_destroy(hr_program *p, hr_backend *b)
{
    if (p) b->v->program_destroy(p);
}

void hr_program_info_get(const hr_backend *b, const hr_program *p, hr_program_info *out)
{
    *out = (hr_program_info){ 0 };
    b->v->program_info(p, out);
}

hr_status hr_buffer_create(hr_backend *b, const hr_tensor_desc *d, hr_buffer **out)
{
    *out = NULL;
    return b->v->buffer_create(b, d, out);
}

void hr_buffer_destroy(hr_buffer *x, hr_backend *b)
{
    if (x) b->v->buffer_destroy(x);
}

hr_status hr_buffer_put(hr_backend *b, hr_buffer *x, const void *host, size_t bytes)
{
    return b->v->buffer_put(x, host, bytes);
}

hr_status hr_buffer_get(hr_backend *b, hr_buffer *x, void *host, size_t bytes)
{
    b->gets++;
    return b->v->buffer_get(x, host, bytes);
}

hr_status hr_buffer_verify(hr_backend *b, hr_buffer *x)
{
    return b->v->buffer_verify ? b->v->buffer_verify(x) : HR_OK;
}

hr_status hr_program_execute(hr_backend *b, hr_program *p, const hr_execute_args *a, hr_event *done)
{
    *done = (hr_event){ .backend = b };
    b->executes++;
    return b->v->execute(p, a, done);
}

hr_status hr_event_await(hr_event *e)
{
    return e->pending ? e->backend->v->event_await(e) : e->status;
}
