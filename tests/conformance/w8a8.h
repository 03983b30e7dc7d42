/* A whole network of w8a8 layers on any backend: int8 rows with one scale meet int8 weights with
 * one per channel, over residual sums, as in the MLPs of compressed-tensors checkpoints.
 *
 * Of its ops each is exact or rounded once, so that every backend must give the same bits, however
 * deep it is: no other test has rows that were quantised after another quantised product. */
#ifndef HEADRACE_TESTS_W8A8_H
#define HEADRACE_TESTS_W8A8_H

#include <stdio.h>

#include "conformance/ops_data.h"

enum { W8A8_LAYERS = 6, W8A8_ROWS = 21, W8A8_H = 96, W8A8_I = 160 };
enum { W8A8_WEIGHTS = 2 * W8A8_LAYERS, W8A8_BYTES = W8A8_H * W8A8_I };

typedef struct w8a8 {
    hr_weight weight[W8A8_WEIGHTS], scale[W8A8_WEIGHTS];
    char name[W8A8_WEIGHTS][16];
    int8_t numbers[W8A8_WEIGHTS][W8A8_BYTES];
    float scales[W8A8_WEIGHTS][W8A8_I];
} w8a8;

static inline uint32_t w8a8_mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

static inline hr_status w8a8_read(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    size_t row = hr_format_row_bytes(w->format, w->shape.dim[w->shape.rank - 1]);
    memcpy(to, (const char *)w->source + (size_t)first * row, (size_t)count * row);
    return HR_OK;
}

/* Weights that leave what passes through them about as large as it was. */
static inline void w8a8_init(w8a8 *m)
{
    for (uint32_t i = 0; i < W8A8_WEIGHTS; i++) {
        bool down = i % 2;
        int64_t n = down ? W8A8_H : W8A8_I, k = down ? W8A8_I : W8A8_H;
        for (uint32_t j = 0; j < W8A8_BYTES; j++)
            m->numbers[i][j] = (int8_t)(w8a8_mix(i * 1000003u + j) % 255 - 127);
        for (uint32_t j = 0; j < W8A8_I; j++)
            m->scales[i][j] = (1 + (float)(w8a8_mix(j + 77 * i) % 100) / 100) * 1e-3f;
        snprintf(m->name[i], sizeof m->name[i], "layer.%u.%s", i / 2, down ? "down" : "up");
        m->scale[i] = (hr_weight){ .name = "scale",
                                   .shape = HR_SHAPE(n),
                                   .format = HR_FORMAT_F32,
                                   .read_rows = w8a8_read,
                                   .source = m->scales[i] };
        m->weight[i] = (hr_weight){ .name = m->name[i],
                                    .shape = HR_SHAPE(n, k),
                                    .format = HR_FORMAT_I8C,
                                    .read_rows = w8a8_read,
                                    .source = m->numbers[i],
                                    .scale = &m->scale[i] };
    }
}

static inline hr_value *w8a8_linear(hr_graph *g, const w8a8 *m, int i, hr_value *x, hr_dtype d)
{
    hr_value *scale, *q = hr_op_quantise_rows(g, x, (int32_t)m->weight[i].shape.dim[1], &scale);
    return hr_op_linear_q8(g, q, scale, hr_graph_weight(g, &m->weight[i]), NULL, d);
}

static inline hr_status w8a8_graph(const w8a8 *m, hr_dtype d, hr_graph **out)
{
    HR_TRY(hr_graph_create("w8a8", out));
    hr_graph *g = *out;
    hr_value *x = hr_graph_input(g, "x", d, HR_SHAPE(W8A8_ROWS, W8A8_H), HR_LIVE_TOKENS);
    for (int l = 0; l < W8A8_LAYERS; l++) {
        hr_value *up = hr_op_activation(g, w8a8_linear(g, m, 2 * l, x, d), HR_ACT_RELU);
        x = hr_op_add(g, x, w8a8_linear(g, m, 2 * l + 1, up, d));
    }
    hr_graph_output(g, "y", x);
    return hr_graph_finish(g);
}

static inline hr_status w8a8_execute(hr_backend *b, hr_program *p, hr_buffer *x, hr_buffer *y)
{
    hr_execute_args a = { .inputs = &x, .outputs = &y, .live = { [HR_LIVE_TOKENS] = W8A8_ROWS } };
    hr_event done;
    HR_TRY(hr_program_execute(b, p, &a, &done));
    return hr_event_await(&done);
}

/* `y` of W8A8_ROWS × W8A8_H numbers of dtype d. The weights must outlive the backend. */
static inline hr_status w8a8_run(hr_backend *b, const w8a8 *m, hr_dtype d, void *y)
{
    ops_row random = { .op = HR_OP_activation, .rows = W8A8_ROWS, .operands = "n:T,96" };
    hr_tensor_desc desc = { d, HR_SHAPE(W8A8_ROWS, W8A8_H) };
    hr_graph *g = NULL;
    hr_program *p = NULL;
    hr_buffer *in = NULL, *out = NULL;
    op_case c;
    ops_case_make(&random, W8A8_ROWS, W8A8_ROWS, d, &c);
    size_t bytes = op_operand_bytes(&c.in[0]);
    hr_status st = w8a8_graph(m, d, &g);
    if (!st) st = hr_backend_compile(b, g, &p);
    if (!st) st = hr_buffer_create(b, &desc, &in);
    if (!st) st = hr_buffer_create(b, &desc, &out);
    if (!st) st = hr_buffer_put(b, in, c.in[0].data, bytes);
    if (!st) st = w8a8_execute(b, p, in, out);
    if (!st) st = hr_buffer_get(b, out, y, bytes);
    hr_buffer_destroy(out, b);
    hr_buffer_destroy(in, b);
    hr_program_destroy(p, b);
    hr_graph_destroy(g);
    ops_case_free(&c);
    return st;
}

#endif
