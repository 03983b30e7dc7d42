/* Weights on the devices, each part read and uploaded once, by the first program that wants it.
 *
 * Engine thread. The host memory that a part was read into is lent to the plugin: one that computes
 * in host memory keeps it as the weight itself and copies nothing, another gives it back when its
 * copy is made. Memory that is still lent when the weight goes is freed after it. A plugin that
 * cannot say whether it has done with lent memory is lent none: it copies. */
#include "base/sync.h"
#include "pjrt/pjrt_int.h"

/* An argument's bytes for one device: of a slice, its own. */
static hr_status read_part(const hr_pjrt *b, const hr_hlo_argument *a, size_t device, void *to)
{
    hr_hlo_argument own = *a;
    hr_weight w = *a->weight, scale;
    if (!w.shard.count) return hr_hlo_part_read(a, to);
    w.shard.rank = (int)(device * (size_t)w.shard.count / b->devices);
    if (w.scale && w.scale->shard.count) {
        scale = *w.scale;
        scale.shard.rank = w.shard.rank;
        w.scale = &scale;
    }
    own.weight = &w;
    return hr_hlo_part_read(&own, to);
}

/* ---- lent memory ----------------------------------------------------------------------------- */

/* Waits until the plugin has done with all that it was lent, and frees it. */
static hr_status take_back(hr_pjrt *b, hr_pjrt_weight *w)
{
    hr_status first = HR_OK;
    for (size_t d = 0; d < b->devices; d++) {
        hr_status st = hr_pjrt_await(b->api, w->lent[d].held, "upload");
        w->lent[d].held = NULL;
        if (!first) first = st;
    }
    for (size_t d = 0; d < b->devices; d++) { /* one device's memory may be all devices' */
        hr_free(w->lent[d].host);
        w->lent[d].host = NULL;
    }
    return first;
}

static hr_status is_ready(const hr_pjrt *b, PJRT_Event *e, bool *out)
{
    PJRT_Event_IsReady_Args args = { .struct_size = PJRT_Event_IsReady_Args_STRUCT_SIZE,
                                     .event = e };
    *out = true;
    if (!e) return HR_OK;
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_Event_IsReady(&args), "upload"));
    *out = args.is_ready;
    return HR_OK;
}

static hr_status settle(hr_pjrt *b, hr_pjrt_weight *w)
{
    bool ready = w->lent[0].host != NULL;
    for (size_t d = 0; ready && d < b->devices; d++) HR_TRY(is_ready(b, w->lent[d].held, &ready));
    return ready ? take_back(b, w) : HR_OK;
}

hr_status hr_pjrt_weights_settle(hr_pjrt *b)
{
    for (size_t i = 0; i < b->n_weights; i++) {
        hr_status st = settle(b, &b->weights[i]);
        if (st) return hr_fail_prefix(st, "weight %s", b->weights[i].weight->name);
    }
    return HR_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* 0 where the plugin does not say. */
static size_t bytes_on_device(const hr_pjrt *b, PJRT_Buffer *x)
{
    PJRT_Buffer_OnDeviceSizeInBytes_Args args = {
        .struct_size = PJRT_Buffer_OnDeviceSizeInBytes_Args_STRUCT_SIZE, .buffer = x
    };
    if (!HR_PJRT_HAS(b->api, PJRT_Buffer_OnDeviceSizeInBytes)) return 0;
    PJRT_Error *e = b->api->PJRT_Buffer_OnDeviceSizeInBytes(&args);
    size_t bytes = e ? 0 : args.on_device_size_in_bytes;
    hr_pjrt_ignore(b->api, e);
    return bytes;
}

static void destroy(hr_pjrt *b, hr_pjrt_weight *w)
{
    for (size_t d = 0; w->device && d < b->devices; d++) hr_pjrt_buffer_free(b, w->device[d]);
    if (w->lent) (void)!take_back(b, w);
    hr_free(w->device);
    hr_free(w->lent);
}

static hr_status upload(hr_pjrt *b, const hr_hlo_argument *a, hr_pjrt_weight *w)
{
    bool zero_copy = HR_PJRT_HAS(b->api, PJRT_Event_IsReady);
    size_t bytes = hr_hlo_shape_bytes(&a->shape);
    void *host = NULL;
    for (size_t d = 0; d < b->devices; d++) {
        if (!d || a->weight->shard.count) {
            host = w->lent[d].host = hr_alloc_aligned(bytes ? bytes : 1, HR_PJRT_ALIGNMENT);
            if (!host) return hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: no memory to read it");
            HR_TRY(read_part(b, a, d, host));
        }
        HR_TRY(hr_pjrt_lend(b, d, host, &a->shape, zero_copy, &w->device[d], &w->lent[d].held));
    }
    return zero_copy ? settle(b, w) : take_back(b, w);
}

static hr_status add(hr_pjrt *b, const hr_hlo_argument *a)
{
    hr_pjrt_weight w = { .weight = a->weight, .part = a->part };
    HR_TRY(
        hr_grow((void **)&b->weights, &b->weights_capacity, b->n_weights + 1, sizeof *b->weights));
    w.device = hr_alloc_array0(b->devices, sizeof(PJRT_Buffer *));
    w.lent = hr_alloc_array0(b->devices, sizeof *w.lent);
    hr_status st = w.device && w.lent ? upload(b, a, &w)
                                      : hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: no memory for it");
    if (st) {
        st = hr_fail_prefix(st, "weight %s", a->weight->name);
        destroy(b, &w);
        return st;
    }
    b->weights[b->n_weights++] = w;
    b->weight_bytes += bytes_on_device(b, w.device[0]);
    return HR_OK;
}

hr_status hr_pjrt_weight_get(hr_pjrt *b, const hr_hlo_argument *a, PJRT_Buffer *const **out)
{
    size_t i = 0;
    while (i < b->n_weights && (b->weights[i].weight != a->weight || b->weights[i].part != a->part))
        i++;
    if (i == b->n_weights) {
        double begin = hr_now_s();
        hr_status st = add(b, a);
        b->base.weights_s += hr_now_s() - begin;
        if (st) return st;
    }
    *out = b->weights[i].device;
    return HR_OK;
}

void hr_pjrt_weights_cut(hr_pjrt *b, size_t n)
{
    while (b->n_weights > n) {
        hr_pjrt_weight *w = &b->weights[--b->n_weights];
        b->weight_bytes -= bytes_on_device(b, w->device[0]);
        destroy(b, w);
    }
}

void hr_pjrt_weights_deinit(hr_pjrt *b)
{
    hr_pjrt_weights_cut(b, 0);
    hr_free(b->weights);
    b->weights = NULL;
}
