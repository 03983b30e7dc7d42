/* Runs single ops for oracles written elsewhere (pytest and NumPy).
 *
 *   op_runner ref|cpu|pjrt [threads]   HEADRACE_ISA chooses the cpu path, HEADRACE_PJRT_PLUGIN
 *                                     names the plugin
 *
 * Standard input is a sequence of cases until its end, each a line of JSON and then raw bytes:
 *   {"op":"linear","attrs":{"dtype":"f32"},"live":{"tokens":3,"rows":2},"in":[
 *     {"dtype":"f32","shape":[4,32],"live":"tokens"},               bytes of [4,32] f32
 *     {"format":"Q4_1","shape":[8,32]},                             bytes of 8 rows
 *     null,
 *     {"const":true,"shape":[16]} … ]}                              bytes of [16] f32
 * Operand data follow the line in order, little-endian, row-major, nothing between them; a weight
 * of format I8C is followed by its f32 scales, one per row. Attributes: eps, offset, scale, cap,
 * group, window, n, sections [3], act "silu", dtype "f32"; reshape takes "shape" beside "op". An
 * op that writes in place has operand 0 donated. "live" counts default to everything.
 *
 * Standard output has one answer per case: a line of JSON, then the results' raw bytes:
 *   {"out":[{"dtype":"f32","shape":[4,8],"bytes":128}]}
 *   {"status":"INVALID_ARGUMENT","error":"linear: …"}                (no bytes)
 * Result rows past the live count are zeros. A case that cannot be read ends the program with 1.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "conformance/op_case.h"

static const char *text_of(const hr_json *v, char to[32])
{
    size_t n = v && v->type == HR_JSON_STRING && v->text.n < 31 ? v->text.n : 0;
    if (n) memcpy(to, v->text.p, n);
    to[n] = 0;
    return to;
}

/* Position of a name in a list, refused when it is not there. */
static hr_status find_name(const hr_json *v, const char *const *names, int n, int *out)
{
    char text[32];
    text_of(v, text);
    for (*out = 0; *out < n; ++*out)
        if (!strcmp(names[*out], text)) return HR_OK;
    *out = 0;
    return hr_fail(HR_INVALID_ARGUMENT, "unknown name '%s'", text);
}

static const char *const op_names[] = {
#define HR_OP(name, kind, inputs, results, signature) #name,
#include "graph/ops.def"
#undef HR_OP
};
static const char *const dtype_names[] = {
#define NAME(name, text, bytes) text,
    HR_DTYPE_LIST(NAME)
#undef NAME
};
static const char *const format_names[] = {
#define NAME(name, text, elements, bytes) text,
    HR_FORMAT_LIST(NAME)
#undef NAME
};
static const char *const act_names[] = { "none", "silu", "gelu", "gelu_tanh", "relu" };
static const char *const live_names[] = { "all", "tokens", "rows" };

#define FIND(v, names, out) find_name(v, names, (int)(sizeof names / sizeof *names), out)

static hr_status read_float(const hr_json *attrs, const char *key, float *out)
{
    const hr_json *v = hr_json_get(attrs, key);
    double d = 0;
    if (v) HR_TRY(hr_json_to_f64(v, key, &d));
    *out = (float)d;
    return HR_OK;
}

static hr_status read_int(const hr_json *v, const char *key, int32_t *out)
{
    int64_t i = 0;
    if (v) HR_TRY(hr_json_to_i64(v, key, &i));
    *out = (int32_t)i;
    return HR_OK;
}

static hr_status read_attrs(const hr_json *v, hr_attrs *a)
{
    const hr_json *sections = hr_json_get(v, "sections");
    int index;
    HR_TRY(read_float(v, "eps", &a->eps));
    HR_TRY(read_float(v, "offset", &a->offset));
    HR_TRY(read_float(v, "scale", &a->scale));
    HR_TRY(read_float(v, "cap", &a->cap));
    HR_TRY(read_int(hr_json_get(v, "group"), "group", &a->group));
    HR_TRY(read_int(hr_json_get(v, "window"), "window", &a->window));
    HR_TRY(read_int(hr_json_get(v, "n"), "n", &a->n));
    for (size_t i = 0; sections && i < 3 && i < sections->count; i++)
        HR_TRY(read_int(&sections->items[i], "sections", &a->sections[i]));
    if (hr_json_get(v, "act")) {
        HR_TRY(FIND(hr_json_get(v, "act"), act_names, &index));
        a->act = (hr_activation)index;
    }
    if (hr_json_get(v, "dtype")) {
        HR_TRY(FIND(hr_json_get(v, "dtype"), dtype_names, &index));
        a->dtype = (hr_dtype)index;
    }
    return HR_OK;
}

static hr_status read_shape(const hr_json *v, hr_shape *s)
{
    if (!v || v->type != HR_JSON_ARRAY || v->count < 1 || v->count > HR_MAX_RANK)
        return hr_fail(HR_INVALID_ARGUMENT, "a shape is 1 to 4 numbers");
    for (s->rank = 0; s->rank < (int)v->count; s->rank++) {
        HR_TRY(hr_json_to_i64(&v->items[s->rank], "shape", &s->dim[s->rank]));
        if (s->dim[s->rank] < 1 || s->dim[s->rank] > 1 << 24)
            return hr_fail(HR_OUT_OF_RANGE, "a dimension of %lld", (long long)s->dim[s->rank]);
    }
    return HR_OK;
}

static void *read_bytes(hr_arena *arena, size_t n)
{
    void *p = hr_arena_alloc(arena, n);
    return p && fread(p, 1, n, stdin) == n ? p : NULL;
}

static hr_status read_operand(const hr_json *v, hr_arena *arena, op_operand *o)
{
    int index;
    if (v->type == HR_JSON_NULL) return HR_OK;
    HR_TRY(read_shape(hr_json_get(v, "shape"), &o->shape));
    o->kind = hr_json_get(v, "const") ? OP_CONST : OP_INPUT;
    if (hr_json_get(v, "format")) {
        HR_TRY(FIND(hr_json_get(v, "format"), format_names, &index));
        o->kind = OP_WEIGHT;
        o->format = (hr_format)index;
        if (o->shape.dim[o->shape.rank - 1] % hr_format_block(o->format))
            return hr_fail(HR_INVALID_ARGUMENT, "a row of no whole blocks");
    } else if (o->kind == OP_INPUT) {
        HR_TRY(FIND(hr_json_get(v, "dtype"), dtype_names, &index));
        o->dtype = (hr_dtype)index;
    }
    if (hr_json_get(v, "live")) {
        HR_TRY(FIND(hr_json_get(v, "live"), live_names, &index));
        o->live = (hr_live)index;
    }
    o->data = read_bytes(arena, op_operand_bytes(o));
    if (o->data && o->kind == OP_WEIGHT && o->format == HR_FORMAT_I8C) {
        int64_t rows = hr_shape_count(o->shape) / o->shape.dim[o->shape.rank - 1];
        o->scale = read_bytes(arena, (size_t)rows * sizeof(float));
        if (!o->scale) o->data = NULL;
    }
    return o->data ? HR_OK : hr_fail(HR_DATA_LOSS, "operand data end early");
}

static hr_status read_live(const hr_json *v, const char *key, int64_t *out)
{
    const hr_json *live = hr_json_get(v, key);
    *out = INT32_MAX;
    return live ? hr_json_to_i64(live, key, out) : HR_OK;
}

static hr_status read_case(hr_str line, hr_arena *arena, op_case *c)
{
    const hr_json *v, *in;
    int index;
    *c = (op_case){ 0 };
    HR_TRY(hr_json_parse(line, NULL, arena, &v));
    HR_TRY(FIND(hr_json_get(v, "op"), op_names, &index));
    c->op = (hr_op)index;
    HR_TRY(read_attrs(hr_json_get(v, "attrs"), &c->attrs));
    HR_TRY(read_live(hr_json_get(v, "live"), "tokens", &c->live[HR_LIVE_TOKENS]));
    HR_TRY(read_live(hr_json_get(v, "live"), "rows", &c->live[HR_LIVE_ROWS]));
    if (hr_json_get(v, "shape")) HR_TRY(read_shape(hr_json_get(v, "shape"), &c->shape));
    in = hr_json_get(v, "in");
    if (!in || in->type != HR_JSON_ARRAY || in->count > HR_NODE_MAX_IN)
        return hr_fail(HR_INVALID_ARGUMENT, "in: up to %d operands", HR_NODE_MAX_IN);
    for (c->n_in = 0; c->n_in < (int)in->count; c->n_in++)
        HR_TRY(read_operand(&in->items[c->n_in], arena, &c->in[c->n_in]));
    return HR_OK;
}

static void write_head(const op_result *r, hr_status st, hr_buf *out)
{
    hr_json_writer w = { .out = out };
    hr_json_begin_object(&w);
    if (st) {
        hr_json_key(&w, HR_STR("status"));
        hr_json_str(&w, hr_str_c(hr_status_name(st)));
        hr_json_key(&w, HR_STR("error"));
        hr_json_str(&w, hr_str_c(hr_message()));
    } else {
        hr_json_key(&w, HR_STR("out"));
        hr_json_begin_array(&w);
    }
    for (int i = 0; i < r->n; i++) {
        hr_json_begin_object(&w);
        hr_json_key(&w, HR_STR("dtype"));
        hr_json_str(&w, hr_str_c(hr_dtype_name(r->out[i].dtype)));
        hr_json_key(&w, HR_STR("shape"));
        hr_json_begin_array(&w);
        for (int d = 0; d < r->out[i].shape.rank; d++) hr_json_i64(&w, r->out[i].shape.dim[d]);
        hr_json_end_array(&w);
        hr_json_key(&w, HR_STR("bytes"));
        hr_json_u64(&w, r->out[i].bytes);
        hr_json_end_object(&w);
    }
    if (!st) hr_json_end_array(&w);
    hr_json_end_object(&w);
    hr_buf_add_byte(out, '\n');
}

static hr_status answer(hr_backend *b, hr_str line)
{
    hr_arena arena = { 0 };
    op_case c;
    op_result r = { 0 };
    hr_buf out = { 0 };
    hr_status st = read_case(line, &arena, &c);
    if (!st) {
        hr_status ran = op_case_run(b, &c, &r);
        write_head(&r, ran, &out);
        for (int i = 0; i < r.n; i++) hr_buf_add(&out, r.out[i].data, r.out[i].bytes);
        st = hr_buf_status(&out);
        if (!st && fwrite(out.p, 1, out.n, stdout) != out.n) st = HR_UNAVAILABLE;
        fflush(stdout);
    }
    op_result_deinit(&r);
    hr_buf_deinit(&out);
    hr_arena_deinit(&arena);
    return st;
}

int main(int argc, char **argv)
{
    return op_serve("op_runner", argc, argv, answer, NULL);
}
