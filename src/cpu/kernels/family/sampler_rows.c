/* Sampler kernels that change or judge a row of logits: masks, bans, bias, penalties, temperature.
 *
 * x f32 [R,V]; an item is a row. Most rows of most steps ask for nothing: each kernel first looks
 * at the row's few numbers, and where they are the identity and the result lies in the operand's
 * memory it returns without having touched the row. */
#include <float.h>

#include "cpu/kernels/vec_mass.h"

static int64_t columns(const hr_kernel_args *a)
{
    return a->node->in[0]->shape.dim[1];
}
static const float *row_in(const hr_kernel_args *a, int64_t r)
{
    return (const float *)a->in[0] + r * columns(a);
}
static float *row_out(const hr_kernel_args *a, int64_t r)
{
    return (float *)a->out[0] + r * columns(a);
}

/* The row as it is, in the result's memory. */
static float *copy_row(const hr_kernel_args *a, int64_t r)
{
    float *out = row_out(a, r);
    const float *in = row_in(a, r);
    if (out != in) memcpy(out, in, (size_t)columns(a) * sizeof *out);
    return out;
}

/* ---- masks, bans, bias ----------------------------------------------------------------------- */

static void mask_row(float *out, const float *x, const uint32_t *words, int64_t n)
{
    for (int64_t i = 0; i < n; i += V_LANES) {
        vm on = vm_from_bits(words[i / 32] >> (i % 32));
        row_store(out, i, n, v_select(on, row_load(x, i, n), v_set1(-INFINITY)));
    }
}

void HR_KERNEL(mask_bits)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const int32_t *slot = a->in[2]; /* [R] */
    int64_t slots = a->node->in[1]->shape.dim[0], words = a->node->in[1]->shape.dim[1];
    int64_t n = columns(a), used = a->node->attrs.n ? a->node->attrs.n : n;
    for (int64_t r = from; r < to; r++) {
        const uint32_t *table = a->in[1]; /* [S,W] */
        if (slot[r] < 1 || slot[r] >= slots) copy_row(a, r);
        else mask_row(row_out(a, r), row_in(a, r), table + slot[r] * words, n);
        for (int64_t i = used; i < n; i++) row_out(a, r)[i] = -INFINITY;
    }
}

/* Entries of a row's list that count. */
static int64_t list_length(const hr_kernel_args *a, int list, int counts, int64_t r)
{
    int64_t n = ((const int32_t *)a->in[counts])[r], most = a->node->in[list]->shape.dim[1];
    return n < 0 ? 0 : n < most ? n : most;
}

void HR_KERNEL(ban_ids)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    for (int64_t r = from; r < to; r++) {
        const int32_t *ids = (const int32_t *)a->in[1] + r * a->node->in[1]->shape.dim[1];
        float *x = copy_row(a, r);
        int64_t count = list_length(a, 1, 2, r);
        for (int64_t i = 0; i < count; i++)
            if (ids[i] >= 0 && ids[i] < columns(a)) x[ids[i]] = -INFINITY;
    }
}

void HR_KERNEL(bias_ids)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t m = a->node->in[1]->shape.dim[1];
    for (int64_t r = from; r < to; r++) {
        const int32_t *ids = (const int32_t *)a->in[1] + r * m;
        const float *values = (const float *)a->in[2] + r * m;
        float *x = copy_row(a, r);
        int64_t count = list_length(a, 1, 3, r);
        for (int64_t i = 0; i < count; i++)
            if (ids[i] >= 0 && ids[i] < columns(a)) x[ids[i]] += values[i];
    }
}

/* ---- penalties ------------------------------------------------------------------------------- */

typedef struct penalty {
    float repetition, frequency, presence;
} penalty;

static float penalised(float x, uint16_t count, const penalty *p)
{
    if (!(x >= -FLT_MAX && x <= FLT_MAX)) return x; /* NaN, infinities */
    float y = x > 0 ? x / p->repetition : x * p->repetition;
    uint16_t generated = count & 0x7FFF;
    if (generated) {
        y -= p->frequency * (float)generated;
        y -= p->presence;
    }
    return y > FLT_MAX ? FLT_MAX : y < -FLT_MAX ? -FLT_MAX : y;
}

/* Few ids of a vocabulary have ever been seen: the counts are searched 32 bytes at a time. */
static void penalise_row(float *x, const uint16_t *counts, int64_t n, const penalty *p)
{
    enum { GROUP = 16 };
    for (int64_t i = 0; i < n; i += GROUP) {
        int64_t end = i + GROUP < n ? i + GROUP : n;
        uint64_t some[GROUP / 4] = { 0 };
        memcpy(some, counts + i, (size_t)(end - i) * sizeof *counts);
        if (!(some[0] | some[1] | some[2] | some[3])) continue;
        for (int64_t k = i; k < end; k++)
            if (counts[k]) x[k] = penalised(x[k], counts[k], p);
    }
}

/* A row's tokens that are not in the counts yet, of ids within it. */
typedef struct more {
    int32_t ids[HR_PENALTIES_MORE];
    float values[HR_PENALTIES_MORE];
    int64_t n;
} more;

static void take_more(const hr_kernel_args *a, int64_t r, more *m)
{
    m->n = 0;
    if (!a->node->in[6]) return;
    const int32_t *ids = (const int32_t *)a->in[6] + r * a->node->in[6]->shape.dim[1];
    int64_t n = list_length(a, 6, 7, r);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] < columns(a)) m->ids[m->n++] = ids[i];
}

/* What becomes of their logits, from the logits as they were. */
static void penalise_more(more *m, const float *x, const uint16_t *counts, const penalty *p)
{
    for (int64_t i = 0; i < m->n; i++) {
        int32_t id = m->ids[i], count = counts[id] & 0x7FFF;
        for (int64_t k = 0; k < m->n; k++) count += m->ids[k] == id;
        if (count > 0x7FFF) count = 0x7FFF;
        m->values[i] = penalised(x[id], (uint16_t)(count | (counts[id] & 0x8000)), p);
    }
}

void HR_KERNEL(penalties)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const uint16_t *counts = a->in[1]; /* [S,V] */
    const int32_t *slot = a->in[2];
    const float *repetition = a->in[3], *frequency = a->in[4], *presence = a->in[5];
    int64_t slots = a->node->in[1]->shape.dim[0];
    for (int64_t r = from; r < to; r++) {
        float *x = copy_row(a, r);
        penalty p = { repetition[r], frequency[r], presence[r] };
        if (slot[r] < 1 || slot[r] >= slots) continue;
        const uint16_t *own = counts + slot[r] * columns(a);
        more m;
        take_more(a, r, &m);
        penalise_more(&m, x, own, &p);
        penalise_row(x, own, columns(a), &p);
        for (int64_t i = 0; i < m.n; i++) x[m.ids[i]] = m.values[i];
    }
}

/* ---- what a row is worth --------------------------------------------------------------------- */

static int32_t status_of(const float *x, int64_t n)
{
    vf infinity = v_set1(INFINITY), nothing = v_set1(-INFINITY);
    vm bad = v_lt(infinity, infinity), some = bad; /* no lane */
    for (int64_t i = 0; i < n; i += V_LANES) {
        vf v = row_load(x, i, n);
        bad = vm_or(bad, vm_or(v_is_nan(v), v_eq(v, infinity)));
        some = vm_or(some, v_lt(nothing, v));
    }
    return vm_bits(bad) ? 2 : vm_bits(some) ? 0 : 1;
}

void HR_KERNEL(row_status)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const int32_t *before = a->in[1];
    int32_t *out = a->out[0];
    for (int64_t r = from; r < to; r++)
        out[r] = before && before[r] ? before[r] : status_of(row_in(a, r), columns(a));
}

/* The first id with the row's largest value. */
static int32_t argmax_row(const float *x, int64_t n)
{
    float most = row_most(x, n);
    if (!(most > -INFINITY)) return -1;
    for (int64_t i = 0; i < n; i += V_LANES) {
        uint32_t hit = vm_bits(v_eq(row_load(x, i, n), v_set1(most)));
        if (hit) return (int32_t)i + __builtin_ctz(hit);
    }
    return -1;
}

void HR_KERNEL(argmax)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    int32_t *out = a->out[0];
    int64_t used = a->node->attrs.n ? a->node->attrs.n : columns(a);
    for (int64_t r = from; r < to; r++) out[r] = argmax_row(row_in(a, r), used);
}

void HR_KERNEL(choose)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const int32_t *flag = a->in[0], *x = a->in[1], *y = a->in[2];
    int32_t *out = a->out[0];
    for (int64_t r = from; r < to; r++) out[r] = flag[r] ? x[r] : y[r];
}

/* ---- temperature ----------------------------------------------------------------------------- */

/* (x - most) / t; the maximum gives 0, NaN and everything below an infinite maximum -inf. */
static void temper_row(float *out, const float *x, int64_t n, float most, float t)
{
    vf top = v_set1(most), nothing = v_set1(-INFINITY), zero = v_set1(0), by = v_set1(t);
    bool empty = most == -INFINITY;
    for (int64_t i = 0; i < n; i += V_LANES) {
        vf v = row_load(x, i, n);
        vf y = v_select(v_lt(v, top), v_div(v_sub(v, top), by), nothing);
        y = v_select(v_eq(v, top), zero, y);
        row_store(out, i, n, empty ? nothing : y);
    }
}

void HR_KERNEL(temper)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const float *temperature = a->in[1];
    float *origin = a->out[1];
    for (int64_t r = from; r < to; r++) {
        float t = temperature[r];
        origin[r] = 0;
        if (!(t > 0)) {
            copy_row(a, r);
            continue;
        }
        float most = row_most(row_in(a, r), columns(a));
        temper_row(row_out(a, r), row_in(a, r), columns(a), most, t);
        if (most > -INFINITY && most < INFINITY) origin[r] = -most / t;
    }
}

void HR_KERNEL(keep)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const float *cut = a->in[1];
    int64_t n = columns(a);
    for (int64_t r = from; r < to; r++) {
        const float *y = row_in(a, r);
        float *out = row_out(a, r);
        for (int64_t i = 0; i < n; i += V_LANES) {
            vf v = row_load(y, i, n);
            row_store(out, i, n, v_select(v_le(v_set1(cut[r]), v), v, v_set1(-INFINITY)));
        }
    }
}
