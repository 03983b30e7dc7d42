/* Matrices quantised as they are read: a float checkpoint becomes what its compressed-tensors twin
 * would be, number for number, and nobody behind read_rows can tell.
 *
 * Runs on the thread that loads, after a family has taken its tensors; reading runs on the threads
 * that pack. w8a8: every linear but those ignored is int8 with a scale per output channel, the
 * channel's largest magnitude over 127, rounded to nearest, ties to even. A scale has the dtype of
 * the checkpoint, rounded up to it before the numbers are divided by it, so that a tool that keeps
 * scales so computes with these very integers and scales. */
#include <math.h>

#include "base/half.h"
#include "model/model_int.h"

enum { ROWS_AT_ONCE = 64 };

/* A matrix as the file has it, behind the one that the model shows. */
typedef struct view {
    hr_weight original, scale;
} view;

/* ---- numbers -------------------------------------------------------------------------------- */

/* Rows [first, first + count) as f32 [count,K]; `raw` holds as many as the file has them. */
static hr_status read_floats(const hr_weight *w, int64_t first, int64_t count, void *raw, float *to)
{
    int64_t n = count * w->shape.dim[w->shape.rank - 1];
    HR_TRY(w->read_rows(w, first, count, raw));
    hr_format_dequantise(w->format, raw, n / hr_format_block(w->format), to);
    return HR_OK;
}

/* The least number of the checkpoint's dtype that is not below s; s is positive. */
static float scale_in_dtype(hr_format f, float s)
{
    if (f != HR_FORMAT_BF16) return s;
    uint32_t u = hr_f32_bits(s);
    return hr_f32_from_bits((u + 0xffffu) & 0xffff0000u);
}

/* A row of zeros has a scale too, for somebody will divide by it. */
static hr_status scale_of(const hr_weight *w, const float *row, int64_t k, float *out)
{
    float most = 0;
    for (int64_t i = 0; i < k; i++) {
        float size = fabsf(row[i]);
        if (!(size <= most)) most = size; /* NaN stays */
        if (most != most) break;
    }
    if (!(most < INFINITY))
        return hr_fail(HR_INVALID_ARGUMENT, "%s has numbers that are not finite", w->name);
    *out = most > 0 ? scale_in_dtype(w->format, most / 127.0f) : 1.0f;
    return *out > 0 ? HR_OK : hr_fail(HR_INVALID_ARGUMENT, "%s: a row is too small", w->name);
}

static void quantise_row(const float *row, float scale, int64_t k, int8_t *to)
{
    for (int64_t i = 0; i < k; i++) {
        float q = rintf(row[i] / scale);
        to[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
    }
}

/* ---- readers -------------------------------------------------------------------------------- */

typedef struct rows {
    void *raw;  /* owned */
    float *f32; /* owned */
} rows;

static hr_status rows_init(rows *r, const hr_weight *w, int64_t most)
{
    int64_t k = w->shape.dim[1];
    r->raw = hr_alloc_array0((size_t)most, hr_format_row_bytes(w->format, k));
    r->f32 = hr_alloc_array0((size_t)(most * k), sizeof *r->f32);
    return r->raw && r->f32 ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its rows", w->name);
}

static void rows_deinit(rows *r)
{
    hr_free(r->raw);
    hr_free(r->f32);
}

/* Calls `each` with every row in turn. */
static hr_status each_row(const hr_weight *w, int64_t first, int64_t count,
                          void (*each)(void *context, const float *row, float scale, int64_t i),
                          void *context)
{
    int64_t k = w->shape.dim[1];
    rows r = { 0 };
    hr_status st = rows_init(&r, w, count < ROWS_AT_ONCE ? count : ROWS_AT_ONCE);
    for (int64_t done = 0, n; !st && done < count; done += n) {
        n = count - done < ROWS_AT_ONCE ? count - done : ROWS_AT_ONCE;
        st = read_floats(w, first + done, n, r.raw, r.f32);
        for (int64_t i = 0; !st && i < n; i++) {
            float scale = 1;
            st = scale_of(w, r.f32 + i * k, k, &scale);
            if (!st) each(context, r.f32 + i * k, scale, done + i);
        }
    }
    rows_deinit(&r);
    return st;
}

typedef struct integers {
    int8_t *to;
    int64_t k;
} integers;

static void put_integers(void *context, const float *row, float scale, int64_t i)
{
    integers *t = context;
    quantise_row(row, scale, t->k, t->to + i * t->k);
}

static hr_status read_integers(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const view *v = w->source;
    integers t = { to, w->shape.dim[1] };
    return count > 0 ? each_row(&v->original, first, count, put_integers, &t) : HR_OK;
}

static void put_scale(void *context, const float *row, float scale, int64_t i)
{
    (void)row;
    ((float *)context)[i] = scale;
}

/* The vector, one row to a reader. */
static hr_status read_scale(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const view *v = w->source;
    if (first != 0 || count != 1)
        return hr_fail(HR_INTERNAL, "%s: rows of a vector of scales", w->name);
    return each_row(&v->original, 0, w->shape.dim[0], put_scale, to);
}

/* ---- binding -------------------------------------------------------------------------------- */

const hr_weight *hr_quantize_original(const hr_weight *w)
{
    return w->read_rows == read_integers ? &((const view *)w->source)->original : NULL;
}

static hr_status quantise(hr_model *m, hr_weight *w, hr_str module)
{
    view *v = hr_arena_new(&m->arena, view);
    char *name = hr_arena_alloc(&m->arena, module.n + sizeof ".weight_scale");
    if (!v || !name) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its scales", w->name);
    memcpy(name, module.p, module.n);
    memcpy(name + module.n, ".weight_scale", sizeof ".weight_scale");
    v->original = *w;
    v->scale = (hr_weight){ .name = name,
                            .shape = HR_SHAPE(w->shape.dim[0]),
                            .format = HR_FORMAT_F32,
                            .read_rows = read_scale,
                            .source = v };
    w->format = HR_FORMAT_I8C;
    w->rows = HR_WEIGHT_ROWS_INT8;
    w->scale = &v->scale;
    w->read_rows = read_integers;
    w->source = v;
    return HR_OK;
}

hr_status hr_quantize_bind(hr_model *m)
{
    for (size_t i = 0; i < m->checkpoint.n; i++) {
        hr_tensor *t = m->checkpoint.tensors[i];
        const hr_quant_group *group;
        hr_str module;
        if (!t->used || &t->weight == m->embed || !hr_quantized_module(&t->weight, &module))
            continue;
        HR_TRY(hr_quantization_of(m->config.quantization, module, &group));
        if (group) HR_TRY(quantise(m, &t->weight, module));
    }
    return HR_OK;
}

/* ---- the scheme ----------------------------------------------------------------------------- */

/* As llm-compressor does by default, the head keeps its precision. */
hr_status hr_quantize_plan(hr_model *m, const hr_model_options *o)
{
    static const hr_str targets[] = { { "Linear", 6 } };
    if (m->config.quantization)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%s is quantised already: --quantization is for float checkpoints", m->path);
    hr_quantization *q = hr_arena_new(&m->arena, hr_quantization);
    hr_quant_group *group = hr_arena_new(&m->arena, hr_quant_group);
    hr_str *ignore = hr_arena_array(&m->arena, o->n_ignore + 1, sizeof *ignore);
    if (!q || !group || !ignore) return hr_fail(HR_RESOURCE_EXHAUSTED, "quantisation");
    *group = (hr_quant_group){
        .name = HR_STR("group_0"), .targets = { targets, 1 }, .bits = 8, .rows = HR_WEIGHT_ROWS_INT8
    };
    ignore[0] = HR_STR("lm_head");
    for (size_t i = 0; i < o->n_ignore; i++) {
        size_t n = strlen(o->ignore[i]);
        char *copy = hr_arena_copy(&m->arena, o->ignore[i], n);
        if (!copy) return hr_fail(HR_RESOURCE_EXHAUSTED, "quantisation");
        ignore[i + 1] = (hr_str){ copy, n };
    }
    *q = (hr_quantization){ .groups = group, .n_groups = 1, .ignore = { ignore, o->n_ignore + 1 } };
    m->config.quantization = q;
    m->quantizes = true;
    return HR_OK;
}
