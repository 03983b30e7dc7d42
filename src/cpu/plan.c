/* Running a plan.
 *
 * Engine thread only; the pool's workers see a step through step_run. An execute resolves places
 * to pointers, then walks the steps; it allocates nothing and takes no lock. The parts of a step
 * lie end to end in one range of items, so that workers claim chunks across part borders; those of
 * a chain share one range, and a worker has a frame for what they hand on. */
#include "cpu/plan.h"

#include <string.h>

#include "base/sync.h"
#include "passes/passes.h"

/* ---- compile --------------------------------------------------------------------------------- */

/* The slab is as large as the largest program needs; what refuses to grow serves the others on. */
static hr_status grow_slab(hr_cpu_backend *b, size_t bytes)
{
    if (bytes <= b->slab.bytes) return HR_OK;
    hr_region larger;
    HR_TRY(hr_region_map(bytes, b->pages, HR_REGION_WHOLE, "working memory", &larger));
    hr_region_unmap(&b->slab);
    b->slab = larger;
    return HR_OK;
}

hr_status hr_plan_compile(hr_cpu_backend *b, const hr_graph *g, hr_program **out)
{
    *out = NULL;
    hr_program *p = hr_new0(hr_program);
    if (!p) return hr_fail(HR_RESOURCE_EXHAUSTED, "program %s", g->name);
    p->backend = b;
    bool runs = b->reads != HR_CPU_WEIGHTS_MEASURE; /* sizes are those of one device's share */
    hr_status st = runs ? hr_graph_check_one_device(g, "cpu") : HR_OK;
    if (!st) st = hr_pass_run_all(g, &p->graph);
    if (!st) st = hr_plan_build(p);
    if (!st) st = grow_slab(b, p->slab_bytes);
    if (st) {
        st = hr_fail_prefix(st, "program %s", g->name);
        hr_plan_destroy(p);
        return st;
    }
    *out = p;
    return HR_OK;
}

void hr_plan_destroy(hr_program *p)
{
    if (!p) return;
    hr_region_unmap(&p->constants);
    hr_free(p->base);
    hr_free(p->copies);
    hr_free(p->steps);
    hr_free(p->parts);
    hr_free(p->places);
    hr_graph_destroy(p->graph);
    hr_free(p);
}

void hr_plan_info(const hr_program *p, hr_program_info *out)
{
    *out = (hr_program_info){ .peak_bytes = p->slab_bytes, .steps = p->n_steps };
}

/* ---- execute --------------------------------------------------------------------------------- */

static hr_status check_buffer(const hr_program *p, const hr_buffer *x, const hr_value *v,
                              const char *name)
{
    size_t need = (size_t)hr_shape_count(v->shape) * hr_dtype_size(v->dtype);
    if (!x || x->bytes < need)
        return hr_fail(HR_INVALID_ARGUMENT, "program %s: %s needs %zu bytes, its buffer has %zu",
                       p->graph->name, name ? name : "a value", need, x ? x->bytes : 0);
    return HR_OK;
}

static hr_status check_buffers(const hr_program *p, const hr_execute_args *a)
{
    const hr_graph *g = p->graph;
    for (size_t i = 0; i < g->n_inputs; i++)
        HR_TRY(check_buffer(p, a->inputs[i], g->inputs[i], g->inputs[i]->name));
    for (size_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].donor >= 0) continue;
        const hr_buffer *x = a->outputs[i];
        HR_TRY(check_buffer(p, x, g->outputs[i].value, g->outputs[i].name));
        for (size_t k = 0; k < g->n_inputs; k++)
            if (a->inputs[k] == x)
                return hr_fail(HR_INVALID_ARGUMENT,
                               "program %s: output %s is also input %s, which is not donated to it",
                               g->name, g->outputs[i].name, g->inputs[k]->name);
    }
    return HR_OK;
}

static void resolve(hr_program *p, const hr_execute_args *a)
{
    for (size_t i = 0; i < p->n_places; i++) {
        const plan_place *v = &p->places[i];
        switch (v->kind) {
        case PLAN_SLAB: p->base[i] = (uint8_t *)p->backend->slab.base + v->offset; break;
        case PLAN_FRAME: p->base[i] = NULL; break; /* follows from worker and row */
        case PLAN_INPUT: p->base[i] = a->inputs[v->index]->region.base; break;
        case PLAN_OUTPUT: p->base[i] = a->outputs[v->index]->region.base; break;
        case PLAN_FIXED: p->base[i] = v->fixed; break;
        }
    }
}

static void *pointer(const hr_program *p, int32_t place)
{
    return place == PLAN_NOWHERE ? NULL : p->base[place];
}

static void bind(const hr_program *p, plan_part *part, const int64_t *live)
{
    for (int k = 0; k < HR_NODE_MAX_IN; k++) part->args.in[k] = pointer(p, part->in[k]);
    for (int k = 0; k < HR_NODE_MAX_OUT; k++) part->args.out[k] = pointer(p, part->out[k]);
    part->args.prep = pointer(p, part->prep);
    part->args.live = live;
    part->run_items = hr_kernel_items(part->kernel, &part->args);
}

typedef struct step_run {
    const hr_program *program;
    const plan_part *parts;
    int32_t n_parts;
    uint8_t *scratch;
} step_run;

/* Items [from, to) of a step: cut at part borders. */
static void run_chunk(void *ctx, int worker, int64_t from, int64_t to)
{
    const step_run *run = ctx;
    const plan_part *part = run->parts;
    for (int64_t first = 0; from < to; first += part->run_items, part++) {
        int64_t end = first + part->run_items;
        if (from >= end) continue;
        int64_t last = to < end ? to : end;
        hr_kernel_args args = part->args;
        args.scratch = run->scratch + (size_t)worker * HR_KERNEL_SCRATCH;
        part->kernel->fn(&args, from - first, last - first);
        from = last;
    }
}

static bool in_a_frame(const hr_program *p, int32_t place)
{
    return place != PLAN_NOWHERE && p->places[place].kind == PLAN_FRAME;
}

/* What kernels are to take for a value of all rows whose row `row` lies in a frame. */
static void *in_frame(const hr_program *p, int32_t place, uintptr_t frame, int64_t row)
{
    const plan_place *v = &p->places[place];
    return (void *)(frame + v->offset - (size_t)row * v->bytes);
}

static void run_row(const step_run *run, const plan_part *part, int worker, int64_t row)
{
    const hr_program *p = run->program;
    uintptr_t frame =
        (uintptr_t)p->backend->slab.base + p->frame_offset + (size_t)worker * p->frame_bytes;
    hr_kernel_args args = part->args;
    args.scratch = run->scratch + (size_t)worker * HR_KERNEL_SCRATCH;
    for (int k = 0; k < HR_NODE_MAX_IN; k++)
        if (in_a_frame(p, part->in[k])) args.in[k] = in_frame(p, part->in[k], frame, row);
    for (int k = 0; k < HR_NODE_MAX_OUT; k++)
        if (in_a_frame(p, part->out[k])) args.out[k] = in_frame(p, part->out[k], frame, row);
    part->kernel->fn(&args, row, row + 1);
}

/* Rows [from, to) of a chain, each through all of its parts. */
static void run_chain(void *ctx, int worker, int64_t from, int64_t to)
{
    const step_run *run = ctx;
    for (int64_t row = from; row < to; row++)
        for (int32_t i = 0; i < run->n_parts; i++) run_row(run, &run->parts[i], worker, row);
}

static void run_step(hr_program *p, const plan_step *s, const int64_t *live)
{
    hr_cpu_backend *b = p->backend;
    plan_part *parts = p->parts + s->first_part;
    int64_t items = 0, grain = INT64_MAX;
    for (int32_t i = 0; i < s->n_parts; i++) {
        bind(p, &parts[i], live);
        if (!s->chain || i == 0) items += parts[i].run_items;
        int64_t g = hr_kernel_grain(parts[i].kernel, parts[i].args.node, live);
        if (g < grain) grain = g;
    }
    /* Larger chunks than the least worth waking for, as long as every worker gets several. */
    enum { CHUNKS_PER_WORKER = 8 };
    int64_t even = items / ((int64_t)hr_pool_threads(b->pool) * CHUNKS_PER_WORKER);
    if (grain < even) grain = even;
    if (grain > 2) grain += grain & 1; /* linear tiles may be two panels wide */
    step_run run = {
        .program = p, .parts = parts, .n_parts = s->n_parts, .scratch = b->scratch.base
    };
    hr_pool_run(b->pool, s->chain ? run_chain : run_chunk, &run, items, grain);
}

static const plan_copy *run_copies(const hr_program *p, const plan_copy *c, int32_t before,
                                   const int64_t *live)
{
    for (; c < p->copies + p->n_copies && c->before == before; c++)
        memcpy(p->base[c->to], p->base[c->from],
               (size_t)hr_live_rows(c->value, live) * c->row_bytes);
    return c;
}

hr_status hr_plan_execute(hr_program *p, const hr_execute_args *a)
{
    if (p->backend->reads == HR_CPU_WEIGHTS_MEASURE)
        return hr_fail(HR_FAILED_PRECONDITION, "this backend only measures: it has no weights");
    HR_TRY(check_buffers(p, a));
    resolve(p, a);
    const plan_copy *c = p->copies;
    for (size_t i = 0; i < p->n_steps; i++) {
        c = run_copies(p, c, (int32_t)i, a->live);
        run_step(p, &p->steps[i], a->live);
    }
    run_copies(p, c, (int32_t)p->n_steps, a->live);
    return HR_OK;
}
