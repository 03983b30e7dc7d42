/* Matrices of integers and their scales: what quantization_config says, laid over the tensors.
 *
 * Runs on the thread that loads, before a family takes its tensors; owns nothing. A quantised
 * module has a matrix of int8 and a tensor of scales; afterwards the matrix's descriptor holds a
 * vector of f32 scales, one per row, however the file spells them (known fault G04). What the
 * config and the file say must agree: integers without a meaning, and numbers where integers were
 * announced, are refused by name. */
#include <math.h>
#include <stdio.h>

#include "model/quantized_int.h"

enum { MOST_NAME = 256 };

static hr_str join(hr_str module, const char *tail, char out[MOST_NAME])
{
    int n = snprintf(out, MOST_NAME, "%.*s%s", HR_STR_ARG(module), tail);
    return (hr_str){ out, n < MOST_NAME ? (size_t)n : MOST_NAME - 1 };
}

/* Takes the tensor as a part of another weight: it is none of its own. */
hr_tensor *hr_quantized_take(hr_model *m, hr_str module, const char *tail)
{
    char name[MOST_NAME];
    hr_tensor *t = hr_checkpoint_find(&m->checkpoint, join(module, tail, name));
    if (t) t->used = t->is_part = true;
    return t;
}

hr_status hr_quantized_need(hr_model *m, hr_str module, const char *tail, const hr_tensor **out)
{
    *out = hr_quantized_take(m, module, tail);
    if (*out) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "%s: tensor '%.*s%s' is missing", m->path,
                   HR_STR_ARG(module), tail);
}

/* ---- scales --------------------------------------------------------------------------------- */

/* All numbers of a tensor as f32, rows as its reader counts them. */
hr_status hr_quantized_numbers(const hr_weight *w, float *to)
{
    hr_shape s = w->shape;
    int64_t n = hr_shape_count(s), k = s.rank ? s.dim[s.rank - 1] : 1;
    void *raw = hr_alloc_array0((size_t)n, hr_format_block_bytes(w->format));
    if (!raw) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: memory for its numbers", w->name);
    hr_status st = w->read_rows(w, 0, n / k, raw);
    if (!st) hr_format_dequantise(w->format, raw, n, to);
    hr_free(raw);
    return st;
}

/* The vector [N], which is one row to a reader, of a tensor of N numbers or one. */
static hr_status read_scales(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const hr_tensor *t = w->source;
    int64_t n = w->shape.dim[0];
    if (first != 0 || count > 1)
        return hr_fail(HR_INTERNAL, "%s: rows %lld+%lld of a vector", w->name, (long long)first,
                       (long long)count);
    if (count < 1) return HR_OK;
    HR_TRY(hr_quantized_numbers(&t->weight, to));
    if (hr_shape_count(t->weight.shape) == 1)
        for (int64_t i = 1; i < n; i++) ((float *)to)[i] = *(float *)to;
    return HR_OK;
}

static bool is_float(hr_format f)
{
    return f == HR_FORMAT_F32 || f == HR_FORMAT_F16 || f == HR_FORMAT_BF16;
}

/* One number, or N in a vector or a column. */
static bool is_scale_shape(hr_shape s, int64_t n)
{
    if (hr_shape_count(s) == 1) return true;
    return s.dim[0] == n && (s.rank == 1 || (s.rank == 2 && s.dim[1] == 1));
}

static hr_status check_scale(const hr_tensor *t, const hr_tensor *scale)
{
    char is[96];
    int64_t n = t->weight.shape.dim[0];
    const hr_weight *w = &scale->weight;
    if (is_float(w->format) && is_scale_shape(w->shape, n)) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT,
                   "%s: tensor '%s' is %s %s; scales are F32, F16 or BF16, one or [%lld] or "
                   "[%lld,1]",
                   scale->file->path, scale->in_file, hr_format_name(w->format),
                   hr_model_shape_text(w->shape, is), (long long)n, (long long)n);
}

static hr_status put_scales(hr_model *m, hr_tensor *t, const char *name, const hr_tensor *source,
                            hr_status (*read)(const hr_weight *, int64_t, int64_t, void *))
{
    hr_weight *scale = hr_arena_new(&m->arena, hr_weight);
    if (!scale) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its scales", t->weight.name);
    *scale = (hr_weight){ .name = name,
                          .shape = HR_SHAPE(t->weight.shape.dim[0]),
                          .format = HR_FORMAT_F32,
                          .read_rows = read,
                          .source = source };
    t->weight.scale = scale;
    return HR_OK;
}

/* A symmetric scheme has its zero at zero; exporters wrote that down, too. */
static hr_status check_zero_point(hr_model *m, hr_str module)
{
    const hr_tensor *t = hr_quantized_take(m, module, ".weight_zero_point");
    if (!t) return HR_OK;
    int64_t n = hr_shape_count(t->weight.shape);
    float *numbers = hr_alloc_array0((size_t)n, sizeof *numbers);
    if (!numbers) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its numbers", t->in_file);
    hr_status st = n ? hr_quantized_numbers(&t->weight, numbers) : HR_OK;
    for (int64_t i = 0; i < n && !st; i++)
        if (numbers[i] != 0)
            st = hr_fail(HR_UNIMPLEMENTED,
                         "%s: tensor '%s' is not all zeros: zero points are not supported, and "
                         "quantization_config says symmetric",
                         t->file->path, t->in_file);
    hr_free(numbers);
    return st;
}

/* ---- matrices ------------------------------------------------------------------------------- */

bool hr_quantized_module(const hr_weight *w, hr_str *out)
{
    hr_str name = hr_str_c(w->name), tail = HR_STR(".weight");
    if (w->shape.rank != 2 || !hr_str_ends(name, tail)) return false;
    *out = (hr_str){ name.p, name.n - tail.n };
    return !hr_str_ends(*out, HR_STR("embed_tokens"));
}

hr_status hr_quantized_scales(hr_model *m, hr_tensor *t, hr_str module)
{
    const hr_tensor *scale;
    HR_TRY(hr_quantized_need(m, module, ".weight_scale", &scale));
    HR_TRY(check_scale(t, scale));
    HR_TRY(check_zero_point(m, module));
    return put_scales(m, t, scale->weight.name, scale, read_scales);
}

static hr_status bind_matrix(hr_model *m, hr_tensor *t, hr_str module, const hr_quant_group *group)
{
    bool packed = group->layout != HR_QUANT_BYTES;
    if (packed || t->integers || t->weight.format != HR_FORMAT_I8C)
        return hr_fail(
            HR_INVALID_ARGUMENT,
            "%s: tensor '%s' is %s, and quantization_config (%.*s) makes it %s: a module "
            "that is not quantised stands in ignore",
            t->file->path, t->in_file, hr_format_name(t->weight.format), HR_STR_ARG(group->name),
            packed ? "weight_packed" : "I8");
    if (group->bits == 4) return hr_int4_bind_bytes(m, t, module, group);
    t->weight.rows = group->rows;
    return hr_quantized_scales(m, t, module);
}

static hr_status bind_tensor(hr_model *m, hr_tensor *t)
{
    const hr_quant_group *group;
    hr_str module;
    if (hr_str_ends(hr_str_c(t->weight.name), HR_STR(".input_scale")))
        return hr_fail(HR_UNIMPLEMENTED,
                       "%s: tensor '%s': static activation scales are not supported; dynamic ones "
                       "are",
                       t->file->path, t->in_file);
    if (!hr_quantized_module(&t->weight, &module)) return HR_OK;
    const hr_quantization *q = m->config.quantization;
    if (q && hr_quantization_is_by_presence(q)) return HR_OK;
    HR_TRY(hr_quantization_of(q, module, &group));
    if (m->config.tie_word_embeddings && hr_str_eq_c(module, "lm_head")) { /* nobody reads it */
        hr_quantized_take(m, module, ".weight_scale");
        hr_quantized_take(m, module, ".weight_zero_point");
        t->used = t->is_part = true;
        return HR_OK;
    }
    return group ? bind_matrix(m, t, module, group) : HR_OK;
}

hr_status hr_quantized_bind(hr_model *m)
{
    const hr_checkpoint *c = &m->checkpoint;
    for (size_t i = 0; i < c->n; i++) HR_TRY(bind_tensor(m, c->tensors[i]));
    HR_TRY(hr_int4_bind(m));
    for (size_t i = 0; i < c->n; i++) {
        const hr_tensor *t = c->tensors[i];
        bool bytes = t->weight.format == HR_FORMAT_I8C && !t->weight.scale;
        if (t->is_part || (!bytes && !t->integers) || !hr_shape_count(t->weight.shape)) continue;
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%s: tensor '%s': unsupported dtype %s where no quantization_config makes "
                       "it a quantised linear; F32, F16 and BF16 are supported",
                       t->file->path, t->in_file, t->integers ? t->integers : "I8");
    }
    return HR_OK;
}

/* ---- dummy weights -------------------------------------------------------------------------- */

/* Numbers of -127 to 127 that stand for what float dummy weights are (checkpoint.c). */
static hr_status read_dummy_scales(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const hr_tensor *t = w->source;
    (void)first;
    for (int64_t i = 0; count == 1 && i < w->shape.dim[0]; i++)
        ((float *)to)[i] = (float)(sqrt(3.0 / (double)t->weight.shape.dim[1]) / 127);
    return HR_OK;
}

hr_status hr_quantized_bind_dummy(hr_model *m, hr_tensor *t)
{
    const hr_quant_group *group = NULL;
    hr_str module;
    char name[MOST_NAME];
    if (!hr_quantized_module(&t->weight, &module)) return HR_OK;
    HR_TRY(hr_quantization_of(m->config.quantization, module, &group));
    if (!group || hr_quantize_of_dummies(m)) return HR_OK;
    if (group->bits == 4) return hr_int4_bind_dummy(t, group);
    t->weight.rows = group->rows;
    hr_str text = join(module, ".weight_scale", name);
    const char *kept = hr_arena_copy(&m->arena, text.p, text.n);
    if (!kept) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its scales", t->weight.name);
    t->weight.format = HR_FORMAT_I8C;
    return put_scales(m, t, kept, t, read_dummy_scales);
}
