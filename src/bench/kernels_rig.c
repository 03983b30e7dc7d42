/* One op on the native backend, ready to be run again and again with cold weights.
 *
 * A matrix smaller than the caches would be read from them from the second run on, and a model
 * never finds its weights there: each was read a whole step ago. So there are as many copies of it
 * as do not fit, each with a program of its own, and runs take turns. Attention finds its keys in
 * other blocks of a cache that is as large. What goes between ops of a model, rows, does lie in
 * caches and stays where it is. */
#include <string.h>

#include "base/half.h"
#include "base/sync.h"
#include "bench/kernels_int.h"
#include "engine/devices.h"

/* ---- data: time does not depend on the numbers, as long as they are numbers ------------------ */

static uint32_t draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static float draw_unit(uint32_t *seed)
{
    return (float)draw(seed) * 0x1p-23f - 1;
}

static void fill_numbers(hr_dtype d, void *to, size_t n, uint32_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        float x = draw_unit(seed);
        if (d == HR_DTYPE_F32) ((float *)to)[i] = x;
        else if (d == HR_DTYPE_BF16) ((uint16_t *)to)[i] = hr_f32_to_bf16(x);
        else if (d == HR_DTYPE_F16) ((uint16_t *)to)[i] = hr_f32_to_f16(x);
        else ((int8_t *)to)[i] = (int8_t)(x * 127);
    }
}

/* Random codes under scales of 1/64; where in a block those lie. */
static void fill_blocks(hr_format f, uint8_t *to, size_t bytes, uint32_t *seed)
{
    size_t block = hr_format_block_bytes(f), first = f == HR_FORMAT_Q6_K ? block - 2 : 0;
    bool two =
        f == HR_FORMAT_Q4_1 || f == HR_FORMAT_Q5_1 || f == HR_FORMAT_Q4_K || f == HR_FORMAT_Q5_K;
    const uint16_t scale = hr_f32_to_f16(1.0f / 64);
    const float wide = 1.0f / 64;
    const uint32_t zero = 8;
    for (size_t i = 0; i < bytes; i++) to[i] = (uint8_t)draw(seed);
    for (size_t at = 0; at < bytes && hr_format_has_zero_points(f); at += block) {
        memcpy(to + at, &wide, sizeof wide);
        memcpy(to + at + 4, &zero, sizeof zero);
    }
    if (hr_format_has_zero_points(f)) return;
    for (size_t at = first; at < bytes; at += block) {
        memcpy(to + at, &scale, sizeof scale);
        if (two) memcpy(to + at + 2, &scale, sizeof scale);
    }
}

static void fill_row(hr_format f, uint8_t *to, int64_t k)
{
    uint32_t seed = 7;
    switch (f) {
    case HR_FORMAT_F32: fill_numbers(HR_DTYPE_F32, to, (size_t)k, &seed); break;
    case HR_FORMAT_BF16: fill_numbers(HR_DTYPE_BF16, to, (size_t)k, &seed); break;
    case HR_FORMAT_F16: fill_numbers(HR_DTYPE_F16, to, (size_t)k, &seed); break;
    case HR_FORMAT_I8C: fill_numbers(HR_DTYPE_I8, to, (size_t)k, &seed); break;
    case HR_FORMAT_Q8_0:
    case HR_FORMAT_Q4_0:
    case HR_FORMAT_Q4_1:
    case HR_FORMAT_Q5_0:
    case HR_FORMAT_Q5_1:
    case HR_FORMAT_Q4_K:
    case HR_FORMAT_Q5_K:
    case HR_FORMAT_Q6_K:
    case HR_FORMAT_I4G32:
    case HR_FORMAT_I4G64:
    case HR_FORMAT_I4G128: fill_blocks(f, to, hr_format_row_bytes(f, k), &seed); break;
    }
}

/* Every row of every copy is the same. */
static hr_status read_rows(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const hr_bench_op_rig *r = w->source;
    size_t row = hr_format_row_bytes(w->format, w->shape.dim[1]);
    (void)first;
    for (int64_t i = 0; i < count; i++) memcpy((uint8_t *)to + (size_t)i * row, r->row, row);
    return HR_OK;
}

static hr_status read_vector(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    (void)first;
    for (int64_t i = 0; i < count * w->shape.dim[0]; i++) ((float *)to)[i] = 1.0f / 127;
    return HR_OK;
}

static void make_weight(hr_bench_op_rig *r, hr_weight *w)
{
    const hr_bench_kernel *k = r->kernel;
    *w = (hr_weight){ .name = "weight", .source = r, .format = k->format };
    if (k->op == HR_BENCH_OP_LINEAR) {
        w->shape = HR_SHAPE(k->n, k->k);
        w->read_rows = read_rows;
        w->scale = k->format == HR_FORMAT_I8C ? &r->scale : NULL;
    } else {
        w->shape = HR_SHAPE(k->k);
        w->format = HR_FORMAT_F32;
        w->read_rows = read_vector;
    }
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* Positions of rope; the tables of attention are put before each run. */
static void fill_positions(int32_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = (int32_t)i;
}

static hr_status fill_input(hr_bench_op_rig *r, const hr_value *v, hr_buffer *to)
{
    size_t n = (size_t)hr_shape_count(v->shape), bytes = n * hr_dtype_size(v->dtype);
    uint32_t seed = 11;
    void *host = hr_alloc0(bytes);
    if (!host) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: %zu bytes", v->name, bytes);
    if (hr_dtype_is_float(v->dtype) || v->dtype == HR_DTYPE_I8)
        fill_numbers(v->dtype, host, n, &seed);
    else if (r->kernel->op == HR_BENCH_OP_ROPE) fill_positions(host, n);
    hr_status st = hr_buffer_put(r->backend, to, host, bytes);
    hr_free(host);
    return st;
}

static hr_status make_buffer(hr_bench_op_rig *r, const hr_value *v, hr_buffer **out)
{
    hr_tensor_desc d = { v->dtype, v->shape };
    return hr_buffer_create(r->backend, &d, out);
}

static hr_status bind(hr_bench_op_rig *r, const hr_graph *g)
{
    if (g->n_inputs > HR_NODE_MAX_IN || g->n_outputs > HR_NODE_MAX_OUT)
        return hr_fail(HR_INTERNAL, "%s has %zu inputs", g->name, g->n_inputs);
    for (; r->n_in < g->n_inputs; r->n_in++) {
        HR_TRY(make_buffer(r, g->inputs[r->n_in], &r->in[r->n_in]));
        HR_TRY(fill_input(r, g->inputs[r->n_in], r->in[r->n_in]));
    }
    for (; r->n_out < g->n_outputs; r->n_out++)
        HR_TRY(make_buffer(r, g->outputs[r->n_out].value, &r->out[r->n_out]));
    return HR_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void choose_copies(hr_bench_op_rig *r, size_t cold)
{
    const hr_bench_kernel *k = r->kernel;
    r->copies = 1;
    if (k->op == HR_BENCH_OP_LINEAR) {
        size_t one = (size_t)k->n * hr_format_row_bytes(k->format, k->k);
        r->copies = one < cold ? (cold + one - 1) / one : 1;
        if (r->copies > HR_BENCH_MOST_COPIES) r->copies = HR_BENCH_MOST_COPIES;
    }
    if (k->op == HR_BENCH_OP_DECODE || k->op == HR_BENCH_OP_PREFILL) {
        size_t block =
            2 * (size_t)(HR_BENCH_KV_BLOCK * k->heads.kv * k->heads.dim) * hr_dtype_size(k->cache);
        int64_t least = hr_bench_kv_blocks(k->context), most = least * r->most_rows;
        if (most > HR_BENCH_MOST_KEYS / HR_BENCH_KV_BLOCK)
            most = HR_BENCH_MOST_KEYS / HR_BENCH_KV_BLOCK;
        r->blocks = (int64_t)(cold / block);
        if (r->blocks < least) r->blocks = least;
        if (r->blocks < most) r->blocks = most;
    }
}

static hr_status make_program(hr_bench_op_rig *r, size_t i)
{
    hr_graph *g = NULL;
    make_weight(r, &r->weights[i]);
    hr_status st = hr_bench_kernel_build(r, &r->weights[i], &g);
    if (!st) st = hr_backend_compile(r->backend, g, &r->programs[i]);
    if (!st && i == 0) st = bind(r, g);
    hr_graph_destroy(g);
    return st;
}

static hr_status allocate(hr_bench_op_rig *r)
{
    const hr_bench_kernel *k = r->kernel;
    size_t row = k->op == HR_BENCH_OP_LINEAR ? hr_format_row_bytes(k->format, k->k) : 1;
    r->weights = hr_alloc_array0(r->copies, sizeof *r->weights);
    r->programs = hr_alloc_array0(r->copies, sizeof(hr_program *));
    r->row = hr_alloc(row);
    r->table = hr_alloc_array0((size_t)(r->most_rows * hr_bench_kv_blocks(k->context)) + 1,
                               sizeof *r->table);
    if (!r->weights || !r->programs || !r->row || !r->table)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "%s", hr_bench_op_names[k->op]);
    if (k->op == HR_BENCH_OP_LINEAR) fill_row(k->format, r->row, k->k);
    r->scale = (hr_weight){ .name = "weight.scale",
                            .shape = HR_SHAPE(k->n),
                            .format = HR_FORMAT_F32,
                            .read_rows = read_vector };
    return HR_OK;
}

hr_status hr_bench_op_open(hr_bench_op_rig *r, const hr_bench_kernel *k, const headrace_options *o,
                           int64_t most_rows, size_t cold)
{
    hr_device cpu;
    *r = (hr_bench_op_rig){ .kernel = k, .most_rows = most_rows };
    choose_copies(r, cold);
    HR_TRY(allocate(r));
    HR_TRY(hr_device_parse("cpu", NULL, &cpu));
    HR_TRY(hr_device_create(&cpu, o, (hr_str){ 0 }, &r->backend));
    for (size_t i = 0; i < r->copies; i++) HR_TRY(make_program(r, i));
    return HR_OK;
}

void hr_bench_op_close(hr_bench_op_rig *r)
{
    for (size_t i = 0; r->programs && i < r->copies; i++)
        hr_program_destroy(r->programs[i], r->backend);
    for (int i = 0; i < HR_NODE_MAX_IN; i++) hr_buffer_destroy(r->in[i], r->backend);
    for (int i = 0; i < HR_NODE_MAX_OUT; i++) hr_buffer_destroy(r->out[i], r->backend);
    hr_backend_destroy(r->backend);
    hr_free(r->weights);
    hr_free(r->programs);
    hr_free(r->row);
    hr_free(r->table);
}

/* ---- runs ------------------------------------------------------------------------------------ */

enum { TABLES = 3, STARTS, LENGTHS }; /* inputs of attention */

hr_status hr_bench_op_aim(hr_bench_op_rig *r, int64_t rows)
{
    const hr_bench_kernel *k = r->kernel;
    bool decode = k->op == HR_BENCH_OP_DECODE;
    if (!decode && k->op != HR_BENCH_OP_PREFILL) return HR_OK;
    size_t n = (size_t)r->most_rows;
    int32_t *starts = hr_alloc_array0(2 * n + 1, sizeof *starts), *lengths = starts + n + 1;
    if (!starts) return hr_fail(HR_RESOURCE_EXHAUSTED, "requests");
    for (int64_t i = 1; i <= r->most_rows; i++)
        starts[i] = (int32_t)(decode && i < rows ? i : rows);
    for (int64_t i = 0; i < (decode ? rows : 1); i++) lengths[i] = (int32_t)k->context;
    hr_status st = hr_buffer_put(r->backend, r->in[STARTS], starts, (n + 1) * sizeof *starts);
    if (!st) st = hr_buffer_put(r->backend, r->in[LENGTHS], lengths, n * sizeof *lengths);
    hr_free(starts);
    return st;
}

/* The next run's keys lie in the blocks behind those of the last. */
static hr_status put_table(hr_bench_op_rig *r, int64_t rows)
{
    const hr_bench_kernel *k = r->kernel;
    if (k->op != HR_BENCH_OP_DECODE && k->op != HR_BENCH_OP_PREFILL) return HR_OK;
    int64_t n = hr_bench_kv_blocks(k->context) * (k->op == HR_BENCH_OP_DECODE ? rows : 1);
    for (int64_t i = 0; i < n; i++) r->table[i] = (int32_t)((r->next + i) % r->blocks);
    r->next = (r->next + n) % r->blocks;
    return hr_buffer_put(r->backend, r->in[TABLES], r->table, (size_t)n * sizeof *r->table);
}

hr_status hr_bench_op_run(hr_bench_op_rig *r, int64_t rows, double *seconds)
{
    hr_event done;
    hr_execute_args a = { .inputs = r->in, .outputs = r->out };
    a.live[HR_LIVE_TOKENS] = a.live[HR_LIVE_ROWS] = rows;
    HR_TRY(put_table(r, rows));
    hr_program *p = r->programs[r->turn];
    r->turn = (r->turn + 1) % r->copies;
    double start = hr_now_s();
    HR_TRY(hr_program_execute(r->backend, p, &a, &done));
    hr_status st = hr_event_await(&done);
    *seconds = hr_now_s() - start;
    return st;
}
