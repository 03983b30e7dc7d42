/* Buffers: one on every device.
 *
 * Engine thread. PJRT buffers never change: whoever writes makes a new one, so hr_buffer is a name
 * whose device buffer is replaced, by a put or by an execute. Copies are whole; a shorter one goes
 * through bounce memory that is made once. */
#include "base/sync.h"
#include "pjrt/hlo_int.h"
#include "pjrt/pjrt_int.h"

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

hr_status hr_pjrt_lend(hr_pjrt *b, size_t device, const void *host, const hr_hlo_shape *shape,
                       bool zero_copy, PJRT_Buffer **out, PJRT_Event **held)
{
    PJRT_Client_BufferFromHostBuffer_Args args = {
        .struct_size = PJRT_Client_BufferFromHostBuffer_Args_STRUCT_SIZE,
        .client = b->client,
        .data = host,
        .type = element_type(shape->type),
        .dims = shape->dim,
        .num_dims = (size_t)shape->rank,
        .host_buffer_semantics = zero_copy ? PJRT_HostBufferSemantics_kImmutableZeroCopy
                                           : PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
        .device = b->device[device],
    };
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_Client_BufferFromHostBuffer(&args), "upload"));
    *out = args.buffer;
    *held = args.done_with_host_buffer;
    return args.buffer ? HR_OK : hr_fail(HR_INTERNAL, "pjrt: upload: the plugin gives no buffer");
}

hr_status hr_pjrt_upload(hr_pjrt *b, size_t device, const void *host, const hr_hlo_shape *shape,
                         PJRT_Buffer **out)
{
    PJRT_Event *held = NULL;
    *out = NULL;
    hr_status st = hr_pjrt_lend(b, device, host, shape, false, out, &held);
    hr_status late = hr_pjrt_await(b->api, held, "upload");
    if (!st) st = late;
    if (!st) return HR_OK;
    hr_pjrt_buffer_free(b, *out);
    *out = NULL;
    return st;
}

static void free_all(hr_pjrt *b, PJRT_Buffer **x)
{
    for (size_t d = 0; d < b->devices; d++) {
        hr_pjrt_buffer_free(b, x[d]);
        x[d] = NULL;
    }
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
    void *zeros = hr_alloc_aligned(x->bytes ? x->bytes : 1, HR_PJRT_ALIGNMENT);
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
    if (!x->host) x->host = hr_alloc_aligned(x->bytes ? x->bytes : 1, HR_PJRT_ALIGNMENT);
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

/* ---- what the device says -------------------------------------------------------------------- */

static hr_status read_shape(hr_pjrt *b, PJRT_Buffer *x, hr_hlo_shape *out)
{
    PJRT_Buffer_ElementType_Args type = { .struct_size = PJRT_Buffer_ElementType_Args_STRUCT_SIZE,
                                          .buffer = x };
    PJRT_Buffer_Dimensions_Args dims = { .struct_size = PJRT_Buffer_Dimensions_Args_STRUCT_SIZE,
                                         .buffer = x };
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_Buffer_ElementType(&type), "element type"));
    HR_TRY(hr_pjrt_error(b->api, b->api->PJRT_Buffer_Dimensions(&dims), "dimensions"));
    *out = (hr_hlo_shape){ .type = HR_HLO_F32 };
    while (out->type < HR_HLO_UI64 && element_type(out->type) != type.type) out->type++;
    if (element_type(out->type) != type.type)
        return hr_fail(HR_FAILED_PRECONDITION, "of element type %d", (int)type.type);
    if (dims.num_dims > HR_HLO_MAX_RANK)
        return hr_fail(HR_FAILED_PRECONDITION, "of rank %zu", dims.num_dims);
    out->rank = (int)dims.num_dims;
    for (int i = 0; i < out->rank; i++) out->dim[i] = dims.dims[i];
    return HR_OK;
}

static hr_status verify_on(hr_buffer *x, size_t device)
{
    hr_hlo_shape want = shape_of(&x->desc), got;
    HR_TRY(read_shape(x->owner, x->device[device], &got));
    if (hr_hlo_shape_eq(&want, &got)) return HR_OK;
    hr_buf text = { 0 };
    hr_hlo_add_type(&text, &got);
    hr_buf_add_c(&text, ", declared is ");
    hr_hlo_add_type(&text, &want);
    hr_status st =
        hr_fail(HR_FAILED_PRECONDITION, "%s (%s)", hr_buf_c(&text), hr_dtype_name(x->desc.dtype));
    hr_buf_deinit(&text);
    return st;
}

hr_status hr_pjrt_buffer_verify(hr_buffer *x)
{
    const PJRT_Api *api = x->owner->api;
    if (!HR_PJRT_HAS(api, PJRT_Buffer_ElementType) || !HR_PJRT_HAS(api, PJRT_Buffer_Dimensions))
        return HR_OK;
    for (size_t d = 0; d < x->owner->devices; d++) HR_TRY(verify_on(x, d));
    return HR_OK;
}
