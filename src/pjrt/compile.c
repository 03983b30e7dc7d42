/* Programs: a graph's text, handed to the workers, and taken back.
 *
 * Engine thread. The text is written here and a worker has it compiled, while this thread goes on
 * to the next program; the weights are uploaded when the first program is waited for, with every
 * worker busy by then. All arrays that an execute hands to the plugin are made here, weights in
 * place, so that a step allocates nothing in this room. */
#include "base/log.h"
#include "pjrt/pjrt_int.h"

static hr_status make_arrays(hr_program *p)
{
    size_t n = p->hlo.n_arguments, m = p->hlo.graph->n_outputs, devices = p->owner->devices;
    p->arguments = hr_alloc_array0(devices * n + 1, sizeof *p->arguments);
    p->results = hr_alloc_array0(devices * m + 1, sizeof(PJRT_Buffer *));
    p->lists = hr_alloc_array0(2 * devices, sizeof *p->lists);
    p->at = hr_alloc_array0(devices * m + 1, sizeof *p->at);
    if (!p->arguments || !p->results || !p->lists || !p->at)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: arguments of %s", p->hlo.graph->name);
    for (size_t d = 0; d < devices; d++) {
        p->lists[d] = p->arguments + d * n;
        p->lists[devices + d] = p->results + d * m;
    }
    return HR_OK;
}

static hr_status bind_weights(hr_program *p)
{
    for (size_t i = 0; i < p->hlo.n_arguments; i++) {
        PJRT_Buffer *const *x;
        if (p->hlo.arguments[i].input >= 0 || p->arguments[i]) continue;
        HR_TRY(hr_pjrt_weight_get(p->owner, &p->hlo.arguments[i], &x));
        for (size_t d = 0; d < p->owner->devices; d++) p->lists[d][i] = x[d];
    }
    return HR_OK;
}

/* On a worker. Its message is its thread's, so it is kept. */
static void run_job(hr_pjrt_job *j)
{
    hr_program *p = (hr_program *)((char *)j - offsetof(hr_program, job));
    double start = hr_now_s();
    p->status = hr_pjrt_load(p);
    if (p->status) memcpy(p->message, hr_message(), sizeof p->message);
    p->info.worker_ms = (hr_now_s() - start) * 1e3;
}

/* Everything a compiled program is named after is known once the client is there. */
static void open_cache(hr_pjrt *b)
{
    hr_buf identity = { 0 };
    const char *folder = b->options.cache_folder;
    bool able = HR_PJRT_HAS(b->api, PJRT_Executable_Serialize) &&
                HR_PJRT_HAS(b->api, PJRT_Executable_DeserializeAndLoad);
    if (b->cache_opened) return;
    b->cache_opened = true;
    if (!folder || !*folder) return;
    if (!able) hr_log(HR_LOG_INFO, "compile cache: the plugin gives no program out; none is kept");
    else if (hr_pjrt_identity(b, &identity))
        hr_log(HR_LOG_WARNING, "compile cache: %s; every start compiles", hr_message());
    else hr_pjrt_cache_open(&b->cache, folder, b->options.cache_bytes, hr_buf_str(&identity));
    b->base.cache = b->cache.folder;
    hr_buf_deinit(&identity);
}

hr_status hr_pjrt_compile(hr_backend *b, const hr_graph *g, hr_program **out)
{
    hr_program *p = hr_new0(hr_program);
    if (!p) return hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: program");
    p->owner = (hr_pjrt *)b;
    p->job.run = run_job;
    open_cache(p->owner);
    hr_pjrt_choose_storage(p->owner, g);
    hr_status st = hr_hlo_program_build(g, &p->owner->hlo, &p->hlo);
    if (!st) st = make_arrays(p);
    if (!st) {
        p->info.steps = p->hlo.graph->n_nodes;
        hr_pjrt_workers_start(&p->owner->workers, &p->job);
        if (p->job.done) p->info.worker_ms = 0; /* it was this thread */
        *out = p;
        return HR_OK;
    }
    hr_pjrt_program_destroy(p);
    return hr_fail_prefix(st, "program %s", g->name);
}

hr_status hr_pjrt_program_await(hr_program *p)
{
    const char *name = p->hlo.graph->name;
    hr_status st = bind_weights(p);
    if (!st) st = hr_pjrt_weights_settle(p->owner);
    if (st) return hr_fail_prefix(st, "program %s", name);
    hr_pjrt_workers_await(&p->owner->workers, &p->job);
    hr_buf_deinit(&p->hlo.text);
    if (p->job.dropped)
        return hr_fail(HR_CANCELLED, "program %s: compiling was given up for another", name);
    return p->status ? hr_fail(p->status, "program %s: %s", name, p->message) : HR_OK;
}

/* Who destroys a program that nobody has awaited gives up all of them. */
static void abandon(hr_program *p)
{
    if (!p->job.started) return;
    hr_pjrt_workers_drop(&p->owner->workers);
    hr_pjrt_workers_await(&p->owner->workers, &p->job);
}

void hr_pjrt_program_destroy(hr_program *p)
{
    if (!p) return;
    abandon(p);
    hr_pjrt_unload(p);
    hr_free(p->arguments);
    hr_free(p->results);
    hr_free(p->lists);
    hr_free(p->at);
    hr_hlo_program_deinit(&p->hlo);
    hr_free(p);
}

void hr_pjrt_program_info(const hr_program *p, hr_program_info *out)
{
    *out = p->info;
}
