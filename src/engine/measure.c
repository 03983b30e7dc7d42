/* Measuring: the native plans of all programs without their weights.
 *
 * Any thread; owns a backend of its own for the while. A plan's working memory comes out of its
 * memory plan to the byte, and a packed weight's size follows from its descriptor, so the KV cache
 * can be given what is really left, and `headrace plan` can say so before a checkpoint is read.
 * A plugin tells nobody what a program takes before it has compiled it, so there the native plan is
 * an estimate, and so is this machine's memory where the device does not say what it has;
 * --kv-cache-memory-bytes says better where it is known. */
#include "engine/measure.h"

#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "cpu/cpu.h"
#include "engine/engine_int.h"

size_t hr_memory_available(void)
{
    size_t bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    unsigned long long kib, limit, used;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) bytes = (size_t)kib * 1024;
    if (f) fclose(f);
    f = fopen("/sys/fs/cgroup/memory.max", "re");
    bool limited = f && fscanf(f, "%llu", &limit) == 1;
    if (f) fclose(f);
    f = fopen("/sys/fs/cgroup/memory.current", "re");
    if (!f || fscanf(f, "%llu", &used) != 1) used = 0;
    if (f) fclose(f);
    if (limited && (limit > used ? limit - used : 0) < bytes)
        bytes = limit > used ? (size_t)(limit - used) : 0;
    return bytes;
}

static void find_available(const hr_engine *e, hr_memory *out)
{
    hr_device_memory m = { 0 };
    int devices = e->options.tensor_parallel_size;
    *out = (hr_memory){ .available = hr_memory_available() };
    if (devices > 1) out->available /= (size_t)devices; /* each device's share of the same memory */
    if (!e->backend || !hr_backend_memory(e->backend, &m) || !m.limit) return;
    out->of_device = true;
    out->available = m.limit > m.in_use ? m.limit - m.in_use : 0;
    hr_log(HR_LOG_INFO, "engine: the device has %zu MiB, %zu of them in use", m.limit >> 20,
           m.in_use >> 20);
}

static hr_status compile(hr_programs *p, hr_stage stage, int t, int r)
{
    hr_program_slot *slot;
    if (!hr_programs_have(&p->shapes, stage)) return HR_OK;
    return hr_programs_get(p, stage, t, r, "hr_engine_measure", &slot);
}

static hr_status compile_last(hr_programs *p)
{
    int t = p->shapes.tokens.n - 1, r = p->shapes.requests.n - 1;
    for (int s = 0; s < HR_STAGE_COUNT; s++) HR_TRY(compile(p, (hr_stage)s, t, r));
    return HR_OK;
}

static hr_status compile_every(hr_programs *p)
{
    for (int t = 0; t < p->shapes.tokens.n; t++)
        for (int r = 0; r < p->shapes.requests.n; r++)
            for (int s = 0; s < HR_STAGE_COUNT; s++) HR_TRY(compile(p, (hr_stage)s, t, r));
    return HR_OK;
}

hr_status hr_engine_measure(const hr_engine *e, hr_ledger *every, hr_memory *out)
{
    find_available(e, out);
    hr_shapes shapes = e->shapes;
    shapes.build.blocks = shapes.build.table_width;
    shapes.late = HR_LATE_COUNT;
    hr_batch_limits limits = hr_shapes_limits(&shapes, false);
    hr_cpu_options cpu = { .threads = e->options.threads,
                           .isa = e->options.isa,
                           .weights = HR_CPU_WEIGHTS_MEASURE };
    hr_backend *backend = NULL;
    hr_programs *programs = NULL;
    hr_batch batch = { 0 };
    hr_ledger own = { 0 }, *ledger = every ? every : &own;
    hr_status st = hr_cpu_backend_create(&cpu, &backend);
    if (!st) st = hr_batch_init(&batch, &limits, &shapes.sampler);
    if (!st) st = hr_ledger_init(ledger, hr_programs_count(&shapes));
    if (!st) st = hr_programs_create(&shapes, backend, e->model, &batch, ledger, &programs);
    if (!st) st = every ? compile_every(programs) : compile_last(programs);
    if (!st) {
        out->weights = backend->v->weight_bytes(backend);
        out->peak = hr_ledger_peak(ledger);
        out->buffers = programs->buffer_bytes;
    }
    hr_programs_destroy(programs);
    hr_ledger_deinit(&own);
    hr_batch_deinit(&batch);
    hr_backend_destroy(backend);
    return st;
}
