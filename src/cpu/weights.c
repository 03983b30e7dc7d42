/* Packed weights: each checkpoint tensor once per backend, however many programs use it.
 *
 * Runs at compile. A table from the tensor's descriptor to its packed form; a first use reads and
 * packs on all workers of the pool, panel by panel, so that no more raw bytes are in memory than
 * 16 rows per worker. They lie one after the other in a few large regions, in the order in which
 * programs ask for them, so that small matrices share huge pages, too. What an earlier start has
 * kept (kept.c) is neither read nor packed. */
#include <stdio.h>

#include "base/sync.h"
#include "cpu/cpu_int.h"

/* Address space, not memory: what is not written costs nothing. */
#define CHUNK ((size_t)256 << 20)

static size_t slot_of(const hr_weight_table *t, const hr_weight *w)
{
    uint64_t h = (uint64_t)(uintptr_t)w * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 32) & (t->capacity - 1);
    while (t->slots[i].key && t->slots[i].key != w) i = (i + 1) & (t->capacity - 1);
    return i;
}

static hr_status table_reserve(hr_weight_table *t)
{
    if (t->used * 2 < t->capacity) return HR_OK;
    hr_weight_table bigger = *t;
    bigger.capacity = t->capacity ? t->capacity * 2 : 64;
    bigger.slots = hr_alloc_array0(bigger.capacity, sizeof *bigger.slots);
    if (!bigger.slots) return hr_fail(HR_RESOURCE_EXHAUSTED, "weight table");
    for (size_t i = 0; i < t->capacity; i++)
        if (t->slots[i].key) bigger.slots[slot_of(&bigger, t->slots[i].key)] = t->slots[i];
    hr_free(t->slots);
    *t = bigger;
    return HR_OK;
}

/* Zeroed room for `bytes`, 64-byte aligned; it is part of the table from now on. */
static hr_status make_room(hr_cpu_backend *b, size_t bytes, const char *what, uint8_t **out)
{
    hr_weight_table *t = &b->weights;
    size_t rounded = (bytes + 63) & ~(size_t)63;
    *out = NULL;
    if (!t->n_chunks || rounded > t->chunks[t->n_chunks - 1].bytes - t->filled) {
        HR_TRY(
            hr_grow((void **)&t->chunks, &t->chunks_capacity, t->n_chunks + 1, sizeof *t->chunks));
        HR_TRY(hr_region_map(rounded > CHUNK ? rounded : CHUNK, b->pages, HR_REGION_WHOLE, what,
                             &t->chunks[t->n_chunks]));
        t->n_chunks++;
        t->filled = 0;
    }
    *out = (uint8_t *)t->chunks[t->n_chunks - 1].base + t->filled;
    t->filled += rounded;
    return HR_OK;
}

void hr_weights_deinit(hr_weight_table *t)
{
    for (size_t i = 0; i < t->capacity; i++) hr_free(t->slots[i].packed);
    for (size_t i = 0; i < t->n_chunks; i++) hr_region_unmap(&t->chunks[i]);
    hr_free(t->chunks);
    hr_free(t->slots);
    *t = (hr_weight_table){ 0 };
}

/* One packing on the pool. The first failure of each worker is kept with its sentence. */
typedef struct pack_job {
    hr_packed *packed;
    const hr_weight *weight;
    const float *scale;
    uint8_t *scratch; /* owned; [threads][scratch_bytes] */
    size_t scratch_bytes;
    struct pack_fault {
        hr_status status;
        char message[HR_MESSAGE_MAX];
    } * faults; /* owned; [threads] */
} pack_job;

static void pack_chunk(void *ctx, int worker, int64_t from, int64_t to)
{
    pack_job *j = ctx;
    struct pack_fault *fault = &j->faults[worker];
    if (fault->status) return;
    fault->status = hr_pack_panels(j->packed, j->weight, j->scale, from, to,
                                   j->scratch + (size_t)worker * j->scratch_bytes);
    if (fault->status) snprintf(fault->message, sizeof fault->message, "%s", hr_message());
}

static hr_status pack_matrix(hr_cpu_backend *b, const hr_weight *w, const float *scale,
                             hr_packed *p)
{
    size_t threads = (size_t)hr_pool_threads(b->pool);
    pack_job j = { .packed = p, .weight = w, .scale = scale };
    j.scratch_bytes = (hr_pack_scratch(w) + 63) & ~(size_t)63;
    j.scratch = hr_alloc_array0(threads, j.scratch_bytes);
    j.faults = hr_alloc_array0(threads, sizeof *j.faults);
    hr_status st = HR_OK;
    if (!j.scratch || !j.faults)
        st = hr_fail(HR_RESOURCE_EXHAUSTED, "weight %s: packing buffers", w->name);
    if (!st) hr_pool_run(b->pool, pack_chunk, &j, p->experts * p->panels, 4);
    for (size_t i = 0; i < threads && !st; i++)
        if (j.faults[i].status) st = hr_fail(j.faults[i].status, "%s", j.faults[i].message);
    hr_free(j.scratch);
    hr_free(j.faults);
    return st;
}

/* I8C: its scales, f32 [N] or [E,N], read whole. */
static hr_status read_scales(hr_cpu_backend *b, const hr_weight *w, const float **out)
{
    *out = NULL;
    if (w->format != HR_FORMAT_I8C) return HR_OK;
    int64_t rows = hr_shape_count(w->shape) / w->shape.dim[w->shape.rank - 1];
    if (!w->scale || hr_shape_count(w->scale->shape) != rows)
        return hr_fail(HR_INVALID_ARGUMENT, "weight %s: needs one scale per row", w->name);
    if (w->scale->shape.rank > 1)
        return hr_fail(HR_INVALID_ARGUMENT, "weight %s: scales are not a vector", w->scale->name);
    const hr_packed *scale;
    HR_TRY(hr_weights_get(b, w->scale, &scale));
    *out = (const float *)scale->data;
    return HR_OK;
}

static hr_status pack(hr_cpu_backend *b, const hr_weight *w, hr_packed *p)
{
    if (b->reads == HR_CPU_WEIGHTS_MEASURE) return hr_pack_measure(w, p);
    const float *scale;
    HR_TRY(hr_pack_measure(w, p));
    if (hr_kept_find(&b->kept, w, p)) {
        b->base.weights_cached += p->bytes;
        return HR_OK;
    }
    HR_TRY(read_scales(b, w, &scale));
    HR_TRY(make_room(b, p->bytes, w->name, &p->data));
    return p->k ? pack_matrix(b, w, scale, p) : hr_pack_vector(p, w);
}

hr_status hr_weights_get(hr_cpu_backend *b, const hr_weight *w, const hr_packed **out)
{
    *out = NULL;
    hr_weight_table *t = &b->weights;
    if (t->capacity) {
        size_t i = slot_of(t, w);
        if (t->slots[i].key) {
            *out = t->slots[i].packed;
            return HR_OK;
        }
    }
    hr_packed *p = hr_new0(hr_packed);
    if (!p) return hr_fail(HR_RESOURCE_EXHAUSTED, "weight %s", w->name);
    double begin = hr_now_s(), before = b->base.weights_s;
    hr_status st = pack(b, w, p);
    b->base.weights_s = before + (hr_now_s() - begin); /* its scales, had on the way, within */
    if (!st) st = table_reserve(t);                    /* after pack, which may add the scale */
    if (st) {
        hr_free(p); /* its room is lost; such a start fails */
        return st;
    }
    t->slots[slot_of(t, w)] = (struct hr_weight_slot){ .key = w, .packed = p, .serial = t->used };
    t->used++;
    t->bytes += p->bytes;
    *out = p;
    return HR_OK;
}

void hr_weights_keep(hr_cpu_backend *b)
{
    const hr_weight_table *t = &b->weights;
    if (!b->kept.folder || !b->kept.lacks) return;
    hr_kept_weight *list = hr_alloc_array0(t->used, sizeof *list);
    for (size_t i = 0; list && i < t->capacity; i++)
        if (t->slots[i].key)
            list[t->slots[i].serial] = (hr_kept_weight){ t->slots[i].key, t->slots[i].packed };
    if (list) hr_kept_save(&b->kept, list, t->used);
    hr_free(list);
}
