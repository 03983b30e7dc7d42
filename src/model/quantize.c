/* Matrices quantised as they are read: a float checkpoint becomes what its quantised twin would be,
 * number for number, and nobody behind read_rows can tell.
 *
 * Runs on the thread that loads, after a family has taken its tensors; reading runs on the threads
 * that pack. A view stands between a weight and the file's numbers, and rounds rows into another
 * format (encode.c). */
#include "model/encode.h"
#include "model/model_int.h"

enum { ROWS_AT_ONCE = 64 };

/* A weight as the file has it, behind the one that the model shows. */
typedef struct view {
    hr_weight original, scale;
} view;

/* ---- reading -------------------------------------------------------------------------------- */

static int64_t row_length(const hr_weight *w)
{
    return w->shape.dim[w->shape.rank - 1];
}

typedef struct rows {
    void *raw;  /* owned */
    float *f32; /* owned */
} rows;

static hr_status rows_init(rows *r, const hr_weight *w, int64_t most)
{
    int64_t k = row_length(w);
    r->raw = hr_alloc_array0((size_t)most, hr_format_row_bytes(w->format, k));
    r->f32 = hr_alloc_array0((size_t)(most * k), sizeof *r->f32);
    return r->raw && r->f32 ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its rows", w->name);
}

static void rows_deinit(rows *r)
{
    hr_free(r->raw);
    hr_free(r->f32);
}

/* Rows [first, first + count) of the file as f32. */
static hr_status read_floats(const view *v, int64_t first, int64_t count, rows *r)
{
    const hr_weight *w = &v->original;
    int64_t n = count * row_length(w);
    HR_TRY(w->read_rows(w, first, count, r->raw));
    hr_format_dequantise(w->format, r->raw, n / hr_format_block(w->format), r->f32);
    return HR_OK;
}

/* What quantised rows become: any may be NULL. */
typedef struct wanted {
    float *old;   /* [count,K] */
    char *raw;    /* [count] rows of w's format */
    float *scale; /* [count] */
} wanted;

static hr_status encode(const hr_weight *w, const rows *r, int64_t from, int64_t count, wanted to,
                        char *spare)
{
    const view *v = w->source;
    int64_t K = row_length(w);
    size_t row = hr_format_row_bytes(w->format, K);
    for (int64_t i = 0; i < count; i++) {
        float scale = 1;
        char *raw = to.raw ? to.raw + (size_t)(from + i) * row : spare;
        HR_TRY(
            hr_encode_row(w->name, w->format, v->original.format, r->f32 + i * K, K, raw, &scale));
        if (to.scale) to.scale[from + i] = scale;
    }
    if (to.old) memcpy(to.old + from * K, r->f32, (size_t)(count * K) * sizeof *to.old);
    return HR_OK;
}

static hr_status read_all(const hr_weight *w, int64_t first, int64_t count, wanted to)
{
    const view *v = w->source;
    rows r = { 0 };
    char *spare = hr_alloc(hr_format_row_bytes(w->format, row_length(w)) + 1);
    hr_status st = spare ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "%s: a row", w->name);
    if (!st) st = rows_init(&r, &v->original, count < ROWS_AT_ONCE ? count : ROWS_AT_ONCE);
    for (int64_t done = 0, n; !st && done < count; done += n) {
        n = count - done < ROWS_AT_ONCE ? count - done : ROWS_AT_ONCE;
        st = read_floats(v, first + done, n, &r);
        if (!st) st = encode(w, &r, done, n, to, spare);
    }
    rows_deinit(&r);
    hr_free(spare);
    return st;
}

static hr_status read_view(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    return count > 0 ? read_all(w, first, count, (wanted){ .raw = to }) : HR_OK;
}

/* The vector, one row to a reader. */
static hr_status read_scale(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const hr_weight *matrix = w->source;
    if (first != 0 || count != 1)
        return hr_fail(HR_INTERNAL, "%s: rows of a vector of scales", w->name);
    return read_all(matrix, 0, w->shape.dim[0], (wanted){ .scale = to });
}

bool hr_quantize_is(const hr_weight *w)
{
    return w->read_rows == read_view;
}

hr_format hr_quantize_stored(const hr_weight *w)
{
    return hr_quantize_is(w) ? ((const view *)w->source)->original.format : w->format;
}

hr_status hr_quantize_read(const hr_weight *w, int64_t first, int64_t count, float *old, void *raw,
                           float *scale)
{
    return read_all(w, first, count, (wanted){ old, raw, scale });
}

/* ---- binding -------------------------------------------------------------------------------- */

static bool is_gguf_scheme(hr_quantize scheme)
{
    return scheme == HR_QUANTIZE_Q8_0 || scheme == HR_QUANTIZE_Q4_0;
}

/* The format of a matrix under the model's scheme. Embedding and head, where a number is worth
 * more, are Q8_0 in GGUF's schemes. */
static hr_status format_of(const hr_model *m, const hr_weight *w, hr_str module, hr_format *out)
{
    int64_t K = w->shape.dim[1], columns = m->quantize_columns;
    bool outer = w == m->embed || w == m->head;
    switch (m->quantize) {
    case HR_QUANTIZE_NONE: break;
    case HR_QUANTIZE_W8A8: *out = HR_FORMAT_I8C; return HR_OK;
    case HR_QUANTIZE_W4A8:
        if (K % columns == 0 && hr_int4_format(columns, K, out)) return HR_OK;
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%.*s has rows of %lld columns, which are no whole groups of %lld: give "
                       "another --group-size, or --ignore it",
                       HR_STR_ARG(module), (long long)K, (long long)columns);
    case HR_QUANTIZE_Q8_0:
    case HR_QUANTIZE_Q4_0:
        *out = m->quantize == HR_QUANTIZE_Q8_0 || outer ? HR_FORMAT_Q8_0 : HR_FORMAT_Q4_0;
        if (K % hr_format_block(*out) == 0) return HR_OK;
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%.*s has rows of %lld columns, which are no whole blocks of 32: --ignore "
                       "it",
                       HR_STR_ARG(module), (long long)K);
    }
    return hr_fail(HR_INTERNAL, "no scheme");
}

static hr_status put_scale(hr_model *m, hr_weight *w, view *v, hr_str module)
{
    char *name = hr_arena_alloc(&m->arena, module.n + sizeof ".weight_scale");
    if (!name) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its scales", w->name);
    memcpy(name, module.p, module.n);
    memcpy(name + module.n, ".weight_scale", sizeof ".weight_scale");
    v->scale = (hr_weight){ .name = name,
                            .shape = HR_SHAPE(w->shape.dim[0]),
                            .format = HR_FORMAT_F32,
                            .read_rows = read_scale,
                            .source = w };
    w->scale = &v->scale;
    return HR_OK;
}

static hr_status quantise(hr_model *m, hr_weight *w, hr_str module)
{
    view *v;
    hr_format f;
    HR_TRY(format_of(m, w, module, &f));
    v = hr_arena_new(&m->arena, view);
    if (!v) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: its view", w->name);
    *v = (view){ .original = *w };
    w->read_rows = read_view;
    w->source = v;
    w->format = f;
    if (is_gguf_scheme(m->quantize)) return HR_OK;
    w->rows = HR_WEIGHT_ROWS_INT8;
    return f == HR_FORMAT_I8C ? put_scale(m, w, v, module) : HR_OK;
}

/* Calls `each` with every matrix that the plan names. */
static hr_status each_meant(hr_model *m, hr_status (*each)(hr_model *, hr_weight *, hr_str))
{
    for (size_t i = 0; i < m->checkpoint.n; i++) {
        hr_tensor *t = m->checkpoint.tensors[i];
        const hr_quant_group *group;
        hr_str module;
        bool embed = &t->weight == m->embed;
        if (embed) module = HR_STR("model.embed_tokens");
        if (!t->used || t->may_be_left || (embed && !is_gguf_scheme(m->quantize)) ||
            (!embed && !hr_quantized_module(&t->weight, &module)))
            continue;
        if (m->head == m->embed && hr_str_eq_c(module, "lm_head")) continue; /* nobody reads it */
        HR_TRY(hr_quantization_of(m->config.quantization, module, &group));
        if (group) HR_TRY(each(m, &t->weight, module));
    }
    return HR_OK;
}

/* The largest groups that every row is whole ones of. */
static hr_status find_columns(hr_model *m, hr_weight *w, hr_str module)
{
    (void)module;
    while (m->quantize_columns > 32 && w->shape.dim[1] % m->quantize_columns)
        m->quantize_columns /= 2;
    return HR_OK;
}

hr_status hr_quantize_bind(hr_model *m)
{
    if (m->quantize == HR_QUANTIZE_W4A8 && !m->quantize_columns) {
        m->quantize_columns = 128;
        HR_TRY(each_meant(m, find_columns));
    }
    return each_meant(m, quantise);
}

int64_t hr_quantize_columns(const hr_model *m)
{
    return m->quantize_columns;
}

/* ---- the scheme ----------------------------------------------------------------------------- */

bool hr_quantize_parse(const char *name, hr_quantize *out)
{
    static const char *const names[] = { [HR_QUANTIZE_W8A8] = "w8a8",
                                         [HR_QUANTIZE_W4A8] = "w4a8",
                                         [HR_QUANTIZE_Q8_0] = "q8_0",
                                         [HR_QUANTIZE_Q4_0] = "q4_0" };
    for (size_t i = HR_QUANTIZE_W8A8; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (hr_quantize)i;
        return true;
    }
    return false;
}

static hr_status check_columns(int64_t columns)
{
    hr_format f;
    if (!columns ||
        (columns > 0 && hr_int4_format(columns, columns, &f) && hr_format_block(f) == columns))
        return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "--group-size %lld: it is 32, 64 or 128",
                   (long long)columns);
}

/* As llm-compressor does by default, the head keeps its precision; GGUF's keep none but what is
 * named. */
hr_status hr_quantize_plan(hr_model *m, const hr_model_options *o)
{
    static const hr_str targets[] = { { "Linear", 6 } };
    if (m->config.quantization)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%s is quantised already: --quantization is for float checkpoints", m->path);
    HR_TRY(check_columns(o->group_columns));
    hr_quantization *q = hr_arena_new(&m->arena, hr_quantization);
    hr_quant_group *group = hr_arena_new(&m->arena, hr_quant_group);
    hr_str *ignore = hr_arena_array(&m->arena, o->n_ignore + 1, sizeof *ignore);
    if (!q || !group || !ignore) return hr_fail(HR_RESOURCE_EXHAUSTED, "quantisation");
    bool gguf = is_gguf_scheme(o->quantize);
    m->quantize = o->quantize;
    m->quantize_columns = o->group_columns;
    *group = (hr_quant_group){ .name = HR_STR("group_0"),
                               .targets = { targets, 1 },
                               .bits = gguf                              ? 0
                                       : o->quantize == HR_QUANTIZE_W4A8 ? 4
                                                                         : 8,
                               .columns = o->group_columns,
                               .rows = gguf ? HR_WEIGHT_ROWS_ANY : HR_WEIGHT_ROWS_INT8 };
    size_t n = 0;
    if (!gguf) ignore[n++] = HR_STR("lm_head");
    for (size_t i = 0; i < o->n_ignore; i++) {
        size_t length = strlen(o->ignore[i]);
        char *copy = hr_arena_copy(&m->arena, o->ignore[i], length);
        if (!copy) return hr_fail(HR_RESOURCE_EXHAUSTED, "quantisation");
        ignore[n++] = (hr_str){ copy, length };
    }
    *q = (hr_quantization){ .groups = group, .n_groups = 1, .ignore = { ignore, n } };
    m->config.quantization = q;
    return HR_OK;
}

bool hr_quantize_of_dummies(const hr_model *m)
{
    return is_gguf_scheme(m->quantize); /* others are made as what they become */
}
