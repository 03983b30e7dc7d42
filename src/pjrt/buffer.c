/* Buffers and weights on the devices: one of each on every device.
 *
 * Engine thread. PJRT buffers never change: whoever writes makes a new one, so hr_buffer is a name
 * whose device buffer is replaced, by a put or by an execute. Copies are whole; a shorter one goes
 * through bounce memory that is made once. Weights are read and uploaded by the first program that
 * wants them and shared by the rest. */
#include "base/sync.h"
#include "pjrt/pjrt_int.h"

/* The alignment at which plugins copy, and may take memory, without a detour. */
enum { ALIGNMENT = 64 };

static PJRT_Buffer_Type element_type(hr_hlo_type t)
{
    switch (t) {
    case HR_HLO_F32: return PJRT_Buffer_Type_F32;
    case HR_HLO_BF16: return PJRT_Buffer_Type_BF16;
    case HR_HLO_F16: return PJRT_Buffer_Type_F16;
    case HR_HLO_F64: return PJRT_Buffer_Type_F64;
    case HR_HLO_I1: return PJRT_Buffer_Type_PRED;
    case HR_HLO_I4: return PJRT_Buffer_Type_S4;
    case HR_HLO_UI4: return PJRT_Buffer_Type_U4;
    case HR_HLO_I8: return PJRT_Buffer_Type_S8;
    case HR_HLO_UI8: return PJRT_Buffer_Type_U8;
    case HR_HLO_UI16: return PJRT_Buffer_Type_U16;
    case HR_HLO_I32: return PJRT_Buffer_Type_S32;
    case HR_HLO_UI32: return PJRT_Buffer_Type_U32;
    case HR_HLO_I64: return PJRT_Buffer_Type_S64;
    case HR_HLO_UI64: return PJRT_Buffer_Type_U64;
    }
    return PJRT_Buffer_Type_INVALID;
}

void hr_pjrt_buffer_free(hr_pjrt *b, PJRT_Buffer *x)
{
    PJRT_Buffer_Destroy_Args args = { .struct_size = PJRT_Buffer_Destroy_Args_STRUCT_SIZE,
                                      .buffer = x };
    if (x) hr_pjrt_ignore(b->api, b->api->PJRT_Buffer_Destroy(&args));
}

hr_status hr_pjrt_upload(hr_pjrt *b, size_t device, const void *host, const hr_hlo_shape *shape,
                         PJRT_Buffer **out)
{
    PJRT_Client_BufferFromHostBuffer_Args args = {
        .struct_size = PJRT_Client_BufferFromHostBuffer_Args_STRUCT_SIZE,
        .client = b->client,
        .data = host,
        .type = element_type(shape->type),
        .dims = shape->dim,
        .num_dims = (size_t)shape->rank,
        .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
        .device = b->device[device],
    };
    *out = NULL;
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_Client_BufferFromHostBuffer(&args), "upload"));
    hr_status st = hr_pjrt_await(b->api, args.done_with_host_buffer, "upload");
    if (!st && !args.buffer) st = hr_fail(HR_INTERNAL, "pjrt: upload: the plugin gives no buffer");
    if (st) hr_pjrt_buffer_free(b, args.buffer);
    else *out = args.buffer;
    return st;
}

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

static hr_status upload_weight(hr_pjrt *b, const hr_hlo_argument *a, void *host, PJRT_Buffer **to)
{
    for (size_t d = 0; d < b->devices; d++) {
        if (!d || a->weight->shard.count) HR_TRY(read_part(b, a, d, host));
        HR_TRY(hr_pjrt_upload(b, d, host, &a->shape, &to[d]));
    }
    return HR_OK;
}

static void free_all(hr_pjrt *b, PJRT_Buffer **x)
{
    for (size_t d = 0; d < b->devices; d++) {
        hr_pjrt_buffer_free(b, x[d]);
        x[d] = NULL;
    }
}

static hr_status add_weight(hr_pjrt *b, const hr_hlo_argument *a)
{
    size_t bytes = hr_hlo_shape_bytes(&a->shape);
    HR_TRY(
        hr_grow((void **)&b->weights, &b->weights_capacity, b->n_weights + 1, sizeof *b->weights));
    PJRT_Buffer **device = hr_alloc_array0(b->devices, sizeof(PJRT_Buffer *));
    void *host = device ? hr_alloc_aligned(bytes ? bytes : 1, ALIGNMENT) : NULL;
    hr_status st = host ? upload_weight(b, a, host, device)
                        : hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: no memory to read it");
    hr_free(host);
    if (st) {
        if (device) free_all(b, device);
        hr_free(device);
        return hr_fail_prefix(st, "weight %s", a->weight->name);
    }
    b->weights[b->n_weights++] = (hr_pjrt_weight){ a->weight, a->part, device };
    b->weight_bytes += bytes_on_device(b, device[0]);
    return HR_OK;
}

hr_status hr_pjrt_weight_get(hr_pjrt *b, const hr_hlo_argument *a, PJRT_Buffer *const **out)
{
    size_t i = 0;
    while (i < b->n_weights && (b->weights[i].weight != a->weight || b->weights[i].part != a->part))
        i++;
    if (i == b->n_weights) {
        double begin = hr_now_s();
        hr_status st = add_weight(b, a);
        b->base.weights_s += hr_now_s() - begin;
        if (st) return st;
    }
    *out = b->weights[i].device;
    return HR_OK;
}

void hr_pjrt_weights_cut(hr_pjrt *b, size_t n)
{
    while (b->n_weights > n) {
        PJRT_Buffer **x = b->weights[--b->n_weights].device;
        b->weight_bytes -= bytes_on_device(b, x[0]);
        free_all(b, x);
        hr_free(x);
    }
}

void hr_pjrt_weights_deinit(hr_pjrt *b)
{
    hr_pjrt_weights_cut(b, 0);
    hr_free(b->weights);
    b->weights = NULL;
}

static hr_hlo_shape shape_of(const hr_tensor_desc *d)
{
    hr_hlo_shape s = { .type = hr_hlo_type_of(d->dtype), .rank = d->shape.rank };
    for (int i = 0; i < s.rank; i++) s.dim[i] = d->shape.dim[i];
    return s;
}

/* A new buffer's memory is that of a zeroed host buffer: PJRT's own fresh buffers hold anything. */
static hr_status make_zeroed(hr_buffer *x)
{
    hr_hlo_shape shape = shape_of(&x->desc);
    void *zeros = hr_alloc_aligned(x->bytes ? x->bytes : 1, ALIGNMENT);
    if (!zeros) return hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: buffer of %zu bytes", x->bytes);
    memset(zeros, 0, x->bytes);
    hr_status st = HR_OK;
    for (size_t d = 0; !st && d < x->owner->devices; d++)
        st = hr_pjrt_upload(x->owner, d, zeros, &shape, &x->device[d]);
    hr_free(zeros);
    return st;
}

hr_status hr_pjrt_buffer_create(hr_backend *b, const hr_tensor_desc *d, hr_buffer **out)
{
    size_t devices = ((hr_pjrt *)b)->devices;
    hr_buffer *x = hr_alloc0(sizeof *x + 2 * devices * sizeof(PJRT_Buffer *));
    if (!x) return hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: buffer");
    x->owner = (hr_pjrt *)b;
    x->desc = *d;
    x->bytes = (size_t)hr_shape_count(d->shape) * hr_dtype_size(d->dtype);
    hr_status st = make_zeroed(x);
    if (st) hr_pjrt_buffer_destroy(x);
    else *out = x;
    return st;
}

void hr_pjrt_buffer_destroy(hr_buffer *x)
{
    if (!x) return;
    free_all(x->owner, x->device);
    hr_free(x->host);
    hr_free(x);
}

bool hr_pjrt_lost(const hr_buffer *x)
{
    const hr_pjrt *b = x->owner;
    for (size_t i = 0; x->writer && i < HR_PJRT_FAILURES; i++)
        if (b->failed[i] == x->writer) return true;
    return !x->device[0];
}

static hr_status check_copy(const hr_buffer *x, const char *what, size_t bytes)
{
    if (bytes > x->bytes)
        return hr_fail(HR_OUT_OF_RANGE, "pjrt: %s of %zu bytes, the buffer has %zu", what, bytes,
                       x->bytes);
    if (hr_pjrt_lost(x))
        return hr_fail(HR_FAILED_PRECONDITION,
                       "pjrt: %s: the buffer was lost with a program that failed", what);
    return HR_OK;
}

static hr_status make_host(hr_buffer *x)
{
    if (!x->host) x->host = hr_alloc_aligned(x->bytes ? x->bytes : 1, ALIGNMENT);
    return x->host ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "pjrt: host copy of a buffer");
}

/* The whole buffer, dense, first axis slowest: a device may keep it otherwise. */
static hr_status download(hr_buffer *x, size_t device, void *host)
{
    const PJRT_Api *api = x->owner->api;
    int64_t order[HR_MAX_RANK];
    size_t rank = (size_t)x->desc.shape.rank;
    for (size_t i = 0; i < rank; i++) order[i] = (int64_t)(rank - 1 - i);
    PJRT_Buffer_MemoryLayout layout = {
        .struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE,
        .tiled = { .struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE,
                   .minor_to_major = order,
                   .minor_to_major_size = rank },
        .type = PJRT_Buffer_MemoryLayout_Type_Tiled,
    };
    PJRT_Buffer_ToHostBuffer_Args args = { .struct_size = PJRT_Buffer_ToHostBuffer_Args_STRUCT_SIZE,
                                           .src = x->device[device],
                                           .host_layout = &layout,
                                           .dst = host,
                                           .dst_size = x->bytes };
    HR_TRY(hr_pjrt_error(api, api->PJRT_Buffer_ToHostBuffer(&args), "read-back"));
    return hr_pjrt_await(api, args.event, "read-back");
}

/* To one device's coming buffer; past `bytes` it stays what it is there. */
static hr_status put_on(hr_buffer *x, size_t device, const void *host, size_t bytes)
{
    hr_hlo_shape shape = shape_of(&x->desc);
    PJRT_Buffer **next = x->device + x->owner->devices;
    if (bytes < x->bytes) {
        HR_TRY(make_host(x));
        HR_TRY(download(x, device, x->host));
        memcpy(x->host, host, bytes);
        host = x->host;
    }
    return hr_pjrt_upload(x->owner, device, host, &shape, &next[device]);
}

hr_status hr_pjrt_buffer_put(hr_buffer *x, const void *host, size_t bytes)
{
    size_t devices = x->owner->devices;
    hr_status st = check_copy(x, "put", bytes);
    for (size_t d = 0; !st && d < devices; d++) st = put_on(x, d, host, bytes);
    if (st) {
        free_all(x->owner, x->device + devices);
        return st;
    }
    free_all(x->owner, x->device);
    memcpy(x->device, x->device + devices, devices * sizeof(PJRT_Buffer *));
    memset(x->device + devices, 0, devices * sizeof(PJRT_Buffer *));
    x->writer = 0;
    return HR_OK;
}

hr_status hr_pjrt_buffer_get(hr_buffer *x, void *host, size_t bytes)
{
    HR_TRY(check_copy(x, "get", bytes));
    if (bytes == x->bytes) return download(x, 0, host);
    HR_TRY(make_host(x));
    HR_TRY(download(x, 0, x->host));
    memcpy(host, x->host, bytes);
    return HR_OK;
}
