/* The native backend object: the seam's table, buffers, start and end.
 *
 * Engine thread only. Work is finished when execute returns, so events carry nothing. */
#include <string.h>

#include "base/log.h"
#include "base/sync.h"
#include "cpu/cpu_int.h"
#include "cpu/kernels/linear.h"

/* ---- buffers --------------------------------------------------------------------------------- */

static hr_status buffer_create(hr_backend *base, const hr_tensor_desc *d, hr_buffer **out)
{
    hr_cpu_backend *b = (hr_cpu_backend *)base;
    size_t bytes = hr_dtype_size(d->dtype);
    for (int i = 0; i < d->shape.rank; i++)
        if (d->shape.dim[i] < 0 || !hr_mul_add(bytes, (size_t)d->shape.dim[i], 0, &bytes))
            return hr_fail(HR_INVALID_ARGUMENT, "buffer: its size overflows");
    hr_buffer *x = hr_new0(hr_buffer);
    if (!x) return hr_fail(HR_RESOURCE_EXHAUSTED, "buffer of %zu bytes", bytes);
    x->desc = *d;
    x->bytes = bytes;
    hr_status st = hr_region_map(bytes, b->pages, HR_REGION_FILLS, "buffer", &x->region);
    if (st) {
        hr_free(x);
        return st;
    }
    *out = x;
    return HR_OK;
}

static void buffer_destroy(hr_buffer *x)
{
    hr_region_unmap(&x->region);
    hr_free(x);
}

static hr_status check_span(const hr_buffer *x, size_t bytes, const char *verb)
{
    if (bytes <= x->bytes) return HR_OK;
    return hr_fail(HR_OUT_OF_RANGE, "buffer of %zu bytes: cannot %s %zu", x->bytes, verb, bytes);
}

static hr_status buffer_put(hr_buffer *x, const void *host, size_t bytes)
{
    HR_TRY(check_span(x, bytes, "put"));
    if (bytes) memcpy(x->region.base, host, bytes);
    return HR_OK;
}

static hr_status buffer_get(hr_buffer *x, void *host, size_t bytes)
{
    HR_TRY(check_span(x, bytes, "get"));
    if (bytes) memcpy(host, x->region.base, bytes);
    return HR_OK;
}

/* ---- the rest of the table ------------------------------------------------------------------- */

static void destroy(hr_backend *base)
{
    hr_cpu_backend *b = (hr_cpu_backend *)base;
    hr_pool_destroy(b->pool);
    hr_weights_deinit(&b->weights);
    hr_kept_close(&b->kept);
    hr_region_unmap(&b->slab);
    hr_region_unmap(&b->scratch);
    hr_free(b);
}

static void seal(hr_backend *base)
{
    hr_cpu_backend *b = (hr_cpu_backend *)base;
    hr_weights_keep(b);
    base->weights_file = b->kept.is_there ? b->kept.path.p : NULL;
}

static hr_status compile(hr_backend *base, const hr_graph *g, hr_program **out)
{
    return hr_plan_compile((hr_cpu_backend *)base, g, out);
}

static hr_status execute(hr_program *p, const hr_execute_args *a, hr_event *done)
{
    done->status = hr_plan_execute(p, a);
    return done->status;
}

static hr_status event_await(hr_event *e)
{
    return e->status;
}

/* Every weight format multiplied so far and by what: the form of pack.h that was used. */
static void numerics(hr_backend *base, hr_buf *out)
{
    const hr_cpu_backend *b = (const hr_cpu_backend *)base;
    const char *const path[] = {
        [HR_LINEAR_FLOAT] = "f32",
        [HR_LINEAR_BF16] = hr_isa_bf16(b->isa) ? "bf16" : "f32",
        [HR_LINEAR_INT8_GROUP] = "i8x32",
        [HR_LINEAR_INT8_ROW] = "i8xrow",
    };
    hr_buf_printf(out, "\"backend\":\"cpu\",\"isa\":\"%s\",\"kernels\":{", hr_isa_name(b->isa));
    const char *comma = "";
    for (size_t f = 0; f < sizeof b->products; f++) {
        if (!b->products[f]) continue;
        hr_buf_printf(out, "%s\"%s\":\"", comma, hr_format_name((hr_format)f));
        const char *plus = "";
        for (size_t k = 0; k < sizeof path / sizeof path[0]; k++) {
            if (!(b->products[f] >> k & 1)) continue;
            hr_buf_printf(out, "%s%s", plus, path[k]);
            plus = "+";
        }
        hr_buf_printf(out, "\"");
        comma = ",";
    }
    hr_buf_printf(out, "}");
}

static size_t weight_bytes(const hr_backend *base)
{
    return ((const hr_cpu_backend *)base)->weights.bytes;
}

static const hr_backend_vtable vtable = {
    .name = "cpu",
    .destroy = destroy,
    .compile = compile,
    .seal = seal,
    .program_destroy = hr_plan_destroy,
    .program_info = hr_plan_info,
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .buffer_put = buffer_put,
    .buffer_get = buffer_get,
    .execute = execute,
    .event_await = event_await,
    .numerics = numerics,
    .weight_bytes = weight_bytes,
};

static void open_kept(hr_cpu_backend *b, const hr_cpu_options *o)
{
    if (o->weights == HR_CPU_WEIGHTS_MEASURE) return;
    hr_kept_options kept = { .folder = o->cache_folder,
                             .isa = hr_isa_name(b->isa),
                             .limit = o->cache_bytes,
                             .id = o->weights_id };
    double begin = hr_now_s();
    hr_kept_open(&b->kept, &kept, b->pool);
    b->base.weights_s += hr_now_s() - begin;
}

hr_status hr_cpu_backend_create(const hr_cpu_options *opt, hr_backend **out)
{
    *out = NULL;
    hr_cpu_options o = opt ? *opt : (hr_cpu_options){ 0 };
    if (o.threads < 0 || o.threads > HR_CPU_MAX_THREADS)
        return hr_fail(HR_INVALID_ARGUMENT, "threads %d: must be 0 (automatic) to %d", o.threads,
                       HR_CPU_MAX_THREADS);
    hr_cpu_backend *b = hr_new0(hr_cpu_backend);
    if (!b) return hr_fail(HR_RESOURCE_EXHAUSTED, "cpu backend");
    b->base.v = &vtable;
    b->pages = o.pages;
    b->reads = o.weights;
    int threads = o.threads ? o.threads : hr_cpu_thread_limit();
    if (threads > HR_CPU_MAX_THREADS) threads = HR_CPU_MAX_THREADS;
    hr_status st = hr_isa_choose(o.isa, &b->isa);
    if (!st) st = hr_pool_create(threads, &b->pool);
    if (!st)
        st = hr_region_map((size_t)threads * HR_KERNEL_SCRATCH, b->pages, HR_REGION_WHOLE,
                           "kernel scratch", &b->scratch);
    if (st) {
        destroy(&b->base);
        return st;
    }
    open_kept(b, &o);
    hr_log(o.weights == HR_CPU_WEIGHTS_MEASURE ? HR_LOG_DEBUG : HR_LOG_INFO,
           "cpu: %d compute threads (%s), instruction set %s", threads,
           o.threads ? "asked for" : "affinity and quota", hr_isa_name(b->isa));
    *out = &b->base;
    return HR_OK;
}
