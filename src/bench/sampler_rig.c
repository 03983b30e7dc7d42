/* The sampler's benchmark on one device: a random linear head, and its programs.
 *
 * With kernels_rig.c the only place beside the engine that compiles and executes: nothing of a
 * model is wanted here but an lm_head, and that with the sampler behind it, without it, and the
 * sampler without a head. Weights are drawn as torch's Linear draws them, uniform within 1 /
 * sqrt(hidden), so that logits are flat: the hard case of top-p. */
#include <math.h>
#include <stdio.h>

#include "base/half.h"
#include "base/sync.h"
#include "bench/sampler_int.h"

const char *const hr_bench_head_names[HR_BENCH_HEADS] = { "float32", "bfloat16", "w8a8" };

/* ---- weights --------------------------------------------------------------------------------- */

/* splitmix64, of which the n-th word is a function of n alone. */
static uint64_t noise(uint64_t n)
{
    n = (n + 1) * 0x9e3779b97f4a7c15u;
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9u;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebu;
    return n ^ (n >> 31);
}

/* Uniform in (-1, 1). */
static float unit(uint64_t n)
{
    return (float)((int64_t)noise(n) >> 39) * 0x1p-24f;
}

static hr_status read_rows(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    int64_t H = w->shape.dim[1];
    float bound = 1 / sqrtf((float)H);
    for (int64_t i = 0; i < count * H; i++) {
        uint64_t n = (uint64_t)(first * H + i);
        float x = unit(n);
        if (w->format == HR_FORMAT_I8C) ((int8_t *)to)[i] = (int8_t)lrintf(x * 127);
        else if (w->format == HR_FORMAT_F32) ((float *)to)[i] = x * bound;
        else ((uint16_t *)to)[i] = hr_f32_to_bf16(x * bound);
    }
    return HR_OK;
}

static hr_status read_scale(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const hr_weight *matrix = w->source;
    (void)first;
    for (int64_t i = 0; i < count * w->shape.dim[0]; i++) /* a vector is one row */
        ((float *)to)[i] = 1 / (127 * sqrtf((float)matrix->shape.dim[1]));
    return HR_OK;
}

void hr_bench_weights_make(hr_bench_weights *w, hr_bench_head head, int64_t hidden, int64_t vocab)
{
    static const hr_format formats[] = { HR_FORMAT_F32, HR_FORMAT_BF16, HR_FORMAT_I8C };
    w->scale = (hr_weight){ .name = "head.scale",
                            .shape = HR_SHAPE(vocab),
                            .format = HR_FORMAT_F32,
                            .read_rows = read_scale,
                            .source = &w->matrix };
    w->matrix = (hr_weight){ .name = "head",
                             .shape = HR_SHAPE(vocab, hidden),
                             .format = formats[head],
                             .scale = head == HR_BENCH_HEAD_W8A8 ? &w->scale : NULL,
                             .read_rows = read_rows };
}

/* ---- programs -------------------------------------------------------------------------------- */

static hr_value *build_head(hr_graph *g, const hr_bench_rig *r)
{
    hr_value *x =
        hr_graph_input(g, "selected", HR_DTYPE_F32, HR_SHAPE(r->rows, r->hidden), HR_LIVE_ROWS);
    hr_value *w = hr_graph_weight(g, r->weight), *scale;
    if (r->head != HR_BENCH_HEAD_W8A8) return hr_op_linear(g, x, w, NULL, HR_DTYPE_F32);
    x = hr_op_quantise_rows(g, x, (int32_t)r->hidden, &scale);
    return hr_op_linear_q8(g, x, scale, w, NULL, HR_DTYPE_F32);
}

static hr_status build(const hr_bench_rig *r, int which, hr_graph **out)
{
    static const char *const names[] = { "head", "head and sampler", "sampler", "tables" };
    HR_TRY(hr_graph_create(names[which], out));
    hr_graph *g = *out;
    hr_value *logits = NULL;
    if (which == HR_BENCH_HEAD_ALONE || which == HR_BENCH_BOTH) logits = build_head(g, r);
    if (which == HR_BENCH_SAMPLER_ALONE)
        logits =
            hr_graph_input(g, "logits", HR_DTYPE_F32, HR_SHAPE(r->rows, r->vocab), HR_LIVE_ROWS);
    if (which == HR_BENCH_TABLES) hr_sampler_build_tables(g, &r->options);
    else if (which == HR_BENCH_HEAD_ALONE) hr_graph_output(g, "logits", logits);
    else hr_sampler_build(g, logits, &r->options);
    return hr_graph_finish(g);
}

static hr_buffer *find_table(const hr_bench_rig *r, const char *name)
{
    static const char *const names[] = { "counts", "allowed", "grammar" };
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i])) return r->tables[i];
    return NULL;
}

static hr_status make_buffer(const hr_bench_rig *r, const hr_value *v, hr_buffer **out)
{
    hr_tensor_desc d = { v->dtype, v->shape };
    return hr_buffer_create(r->backend, &d, out);
}

static hr_status bind(const hr_bench_rig *r, hr_bench_program *p, const hr_graph *g)
{
    p->in = hr_alloc_array0(g->n_inputs, sizeof *p->in);
    p->out = hr_alloc_array0(g->n_outputs, sizeof(hr_buffer *));
    p->out_owned = hr_alloc_array0(g->n_outputs, sizeof *p->out_owned);
    if (!p->in || !p->out || !p->out_owned)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "bindings of %s", g->name);
    p->n_in = g->n_inputs;
    p->n_out = g->n_outputs;
    for (size_t i = 0; i < p->n_in; i++) {
        struct hr_bench_input *in = &p->in[i];
        in->index = hr_sampling_inputs_index(g->inputs[i]->name);
        in->buffer = find_table(r, g->inputs[i]->name);
        in->owned = !in->buffer;
        if (in->owned) HR_TRY(make_buffer(r, g->inputs[i], &in->buffer));
    }
    for (size_t i = 0; i < p->n_out; i++) {
        int donor = g->outputs[i].donor;
        p->out_owned[i] = donor < 0;
        if (donor >= 0) p->out[i] = p->in[donor].buffer;
        else HR_TRY(make_buffer(r, g->outputs[i].value, &p->out[i]));
    }
    return HR_OK;
}

static hr_status make_program(hr_bench_rig *r, int which)
{
    double start = hr_now_s();
    hr_graph *g = NULL;
    hr_status st = build(r, which, &g);
    if (!st) st = hr_backend_compile(r->backend, g, &r->program[which].program);
    r->compile_s[which] = hr_now_s() - start;
    if (!st) st = bind(r, &r->program[which], g);
    hr_graph_destroy(g);
    return st;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* A program of fixed shapes is put whole, as the engine does it. */
static hr_status put_inputs(hr_bench_rig *r, hr_bench_program *p)
{
    for (size_t i = 0; i < p->n_in; i++) {
        if (p->in[i].index < 0) continue;
        hr_sampling_array a = hr_sampling_inputs_at(r->inputs, p->in[i].index, r->rows);
        bool whole = r->backend->v->static_shapes && p != &r->program[HR_BENCH_TABLES];
        size_t bytes = (size_t)(whole ? r->rows : a.rows) * a.row_bytes;
        if (bytes) HR_TRY(hr_buffer_put(r->backend, p->in[i].buffer, a.data, bytes));
    }
    return HR_OK;
}

static hr_status execute(hr_bench_rig *r, hr_bench_program *p)
{
    hr_buffer *in[64];
    hr_event done;
    if (p->n_in > sizeof in / sizeof *in) return hr_fail(HR_INTERNAL, "%zu inputs", p->n_in);
    for (size_t i = 0; i < p->n_in; i++) in[i] = p->in[i].buffer;
    hr_execute_args a = { .inputs = in, .outputs = p->out };
    a.live[HR_LIVE_TOKENS] = a.live[HR_LIVE_ROWS] = r->rows;
    HR_TRY(hr_program_execute(r->backend, p->program, &a, &done));
    return hr_event_await(&done);
}

/* token, logprob, rank and status always, top entries where they are wanted. */
static hr_status read_back(hr_bench_rig *r, hr_bench_program *p)
{
    int32_t cells[4096];
    size_t rows = (size_t)r->rows, top = (size_t)hr_sampler_top(&r->options);
    bool wanted = r->inputs->wanted[0] > 0;
    const size_t width[] = { 1, 1, 1, wanted ? top : 0, wanted ? top : 0, 0, 1 };
    if (p->n_out != sizeof width / sizeof *width) return HR_OK; /* no sampler's */
    for (size_t i = 0; i < p->n_out; i++) {
        size_t bytes = rows * width[i] * sizeof *cells;
        if (bytes > sizeof cells) bytes = sizeof cells;
        if (bytes) HR_TRY(hr_buffer_get(r->backend, p->out[i], cells, bytes));
    }
    return HR_OK;
}

hr_status hr_bench_rig_run(hr_bench_rig *r, int program, double *seconds)
{
    double start = hr_now_s();
    HR_TRY(put_inputs(r, &r->program[program]));
    HR_TRY(execute(r, &r->program[program]));
    HR_TRY(read_back(r, &r->program[program]));
    *seconds = hr_now_s() - start;
    return HR_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static hr_status make_tables(hr_bench_rig *r)
{
    int64_t slots = r->options.slots, words = hr_sampler_words(r->vocab);
    const hr_tensor_desc d[] = { { HR_DTYPE_U16, HR_SHAPE(slots, r->vocab) },
                                 { HR_DTYPE_U32, HR_SHAPE(slots, words) },
                                 { HR_DTYPE_U32, HR_SHAPE(slots, words) } };
    for (int i = 0; i < 3; i++) HR_TRY(hr_buffer_create(r->backend, &d[i], &r->tables[i]));
    return HR_OK;
}

/* Random rows to the two programs with a head, their logits to the one without. */
static hr_status feed(hr_bench_rig *r)
{
    size_t n = (size_t)(r->rows * r->hidden), all = (size_t)(r->rows * r->vocab);
    float *x = hr_alloc_array0(n > all ? n : all, sizeof *x);
    double ignored;
    if (!x) return hr_fail(HR_RESOURCE_EXHAUSTED, "hidden states");
    for (size_t i = 0; i < n; i++) /* variance 1, as of normalised rows */
        x[i] = sqrtf(3) * unit(((uint64_t)1 << 40) + i);
    hr_bench_program *p = r->program;
    hr_buffer *logits = p[HR_BENCH_SAMPLER_ALONE].in[0].buffer;
    hr_status st = hr_buffer_put(r->backend, p[HR_BENCH_HEAD_ALONE].in[0].buffer, x, n * sizeof *x);
    if (!st) st = hr_buffer_put(r->backend, p[HR_BENCH_BOTH].in[0].buffer, x, n * sizeof *x);
    if (!st) st = hr_bench_rig_run(r, HR_BENCH_HEAD_ALONE, &ignored);
    if (!st) st = hr_buffer_get(r->backend, p[HR_BENCH_HEAD_ALONE].out[0], x, all * sizeof *x);
    if (!st) st = hr_buffer_put(r->backend, logits, x, all * sizeof *x);
    hr_free(x);
    return st;
}

hr_status hr_bench_rig_open(hr_bench_rig *r)
{
    r->options =
        (hr_sampler_options){ .vocab = r->vocab, .slots = r->rows + 1, .max_logprobs = 20 };
    HR_TRY(hr_sampling_inputs_create(&r->options, r->rows, &r->inputs));
    HR_TRY(make_tables(r));
    for (int i = 0; i < HR_BENCH_PROGRAMS; i++) HR_TRY(make_program(r, i));
    hr_sampling_inputs_clear(r->inputs, 0);
    return feed(r);
}

void hr_bench_rig_close(hr_bench_rig *r)
{
    for (int k = 0; k < HR_BENCH_PROGRAMS; k++) {
        hr_bench_program *p = &r->program[k];
        hr_program_destroy(p->program, r->backend);
        for (size_t i = 0; i < p->n_in; i++)
            if (p->in[i].owned) hr_buffer_destroy(p->in[i].buffer, r->backend);
        for (size_t i = 0; i < p->n_out; i++)
            if (p->out_owned[i]) hr_buffer_destroy(p->out[i], r->backend);
        hr_free(p->in);
        hr_free(p->out);
        hr_free(p->out_owned);
    }
    for (int i = 0; i < 3; i++) hr_buffer_destroy(r->tables[i], r->backend);
    hr_sampling_inputs_destroy(r->inputs);
    hr_arena_deinit(&r->arena);
}
