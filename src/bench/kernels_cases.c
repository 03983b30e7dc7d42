/* The ops that the benchmark of kernels runs: their graphs of one node, and what a run of them must
 * move and compute at least. */
#include <math.h>

#include "bench/kernels_int.h"

#define FLAG(name, flag, text) flag,
#define NAME(name, flag, text) text,
const char *const hr_bench_op_flags[HR_BENCH_OP_COUNT] = { HR_BENCH_KERNELS(FLAG) };
const char *const hr_bench_op_names[HR_BENCH_OP_COUNT] = { HR_BENCH_KERNELS(NAME) };

enum { BLOCK = HR_BENCH_KV_BLOCK };

/* ---- graphs ---------------------------------------------------------------------------------- */

static hr_value *input(hr_graph *g, const char *name, hr_dtype d, hr_shape s)
{
    bool rows = d == HR_DTYPE_F32 || d == HR_DTYPE_BF16 || d == HR_DTYPE_I8;
    return hr_graph_input(g, name, d, s, rows ? HR_LIVE_TOKENS : HR_LIVE_ALL);
}

/* bf16 rows meet bf16 weights: what --dtype bfloat16 computes. */
static hr_dtype dense_rows(const hr_bench_kernel *k)
{
    return k->format == HR_FORMAT_BF16 ? HR_DTYPE_BF16 : HR_DTYPE_F32;
}

static hr_value *build_linear(hr_graph *g, const hr_bench_op_rig *r, const hr_weight *weight)
{
    const hr_bench_kernel *k = r->kernel;
    int64_t T = r->most_rows, group = k->format == HR_FORMAT_I8C ? k->k : 32;
    hr_value *w = hr_graph_weight(g, weight);
    if (!hr_bench_format_is_int8(k->format))
        return hr_op_linear(g, input(g, "x", dense_rows(k), HR_SHAPE(T, k->k)), w, NULL,
                            HR_DTYPE_F32);
    hr_value *x = input(g, "x", HR_DTYPE_I8, HR_SHAPE(T, k->k));
    hr_value *scale = input(g, "x_scale", HR_DTYPE_F32, HR_SHAPE(T, k->k / group));
    return hr_op_linear_q8(g, x, scale, w, NULL, HR_DTYPE_F32);
}

/* As many requests as rows may each ask one query, or one of them all. */
static hr_value *build_attention(hr_graph *g, const hr_bench_op_rig *r)
{
    const hr_bench_kernel *k = r->kernel;
    int64_t T = r->most_rows, W = hr_bench_kv_blocks(k->context);
    hr_shape pages = HR_SHAPE(r->blocks, BLOCK, k->heads.kv, k->heads.dim);
    hr_value *q = input(g, "q", HR_DTYPE_F32, HR_SHAPE(T, k->heads.query, k->heads.dim));
    hr_attention_inputs a = { .scale = 1 / sqrtf((float)k->heads.dim) };
    a.k_cache = hr_graph_input(g, "k_cache", k->cache, pages, HR_LIVE_ALL);
    a.v_cache = hr_graph_input(g, "v_cache", k->cache, pages, HR_LIVE_ALL);
    a.block_tables = input(g, "block_tables", HR_DTYPE_I32, HR_SHAPE(T, W));
    a.query_starts = input(g, "query_starts", HR_DTYPE_I32, HR_SHAPE(T + 1));
    a.seq_lens = input(g, "seq_lens", HR_DTYPE_I32, HR_SHAPE(T));
    if (k->cache == HR_DTYPE_I8) { /* behind what kernels_rig.c finds by its place */
        pages.dim[3] = 1;
        a.k_scale = hr_graph_input(g, "k_scale", HR_DTYPE_F32, pages, HR_LIVE_ALL);
        a.v_scale = hr_graph_input(g, "v_scale", HR_DTYPE_F32, pages, HR_LIVE_ALL);
    }
    return hr_op_attention(g, q, &a);
}

static hr_value *build_rope(hr_graph *g, const hr_bench_op_rig *r)
{
    float inv_freq[HR_BENCH_MOST_HEAD_DIM / 2];
    const hr_bench_heads *h = &r->kernel->heads;
    hr_shape rows = HR_SHAPE(r->most_rows, h->query + h->kv, h->dim);
    hr_value *x = input(g, "x", HR_DTYPE_F32, rows);
    hr_value *positions = input(g, "positions", HR_DTYPE_I32, HR_SHAPE(3, r->most_rows));
    for (int64_t i = 0; i < h->dim / 2; i++)
        inv_freq[i] = powf(10000, (float)(-2 * i) / (float)h->dim);
    return hr_op_rope(g, x, positions,
                      hr_graph_const(g, "inv_freq", inv_freq, HR_SHAPE(h->dim / 2)), 1);
}

static hr_value *build_row_op(hr_graph *g, const hr_bench_op_rig *r, const hr_weight *weight,
                              hr_op op)
{
    const hr_bench_kernel *k = r->kernel;
    const hr_attrs attrs = { .eps = op == HR_OP_rms_norm_q8 ? 1e-6f : 0,
                             .act = op == HR_OP_gated_q8 ? HR_ACT_SILU : HR_ACT_NONE,
                             .group = (int32_t)k->group };
    hr_shape rows = HR_SHAPE(r->most_rows, k->k);
    hr_value *in[2] = { input(g, "x", HR_DTYPE_F32, rows), NULL };
    if (op == HR_OP_gated_q8) in[1] = input(g, "up", HR_DTYPE_F32, rows);
    if (op == HR_OP_rms_norm_q8) in[1] = hr_graph_weight(g, weight);
    return hr_graph_op(g, op, in, hr_op_inputs(op), &attrs, NULL);
}

static hr_value *build(hr_graph *g, const hr_bench_op_rig *r, const hr_weight *weight)
{
    switch (r->kernel->op) {
    case HR_BENCH_OP_LINEAR: return build_linear(g, r, weight);
    case HR_BENCH_OP_DECODE:
    case HR_BENCH_OP_PREFILL: return build_attention(g, r);
    case HR_BENCH_OP_NORM: return build_row_op(g, r, weight, HR_OP_rms_norm_q8);
    case HR_BENCH_OP_GATED: return build_row_op(g, r, NULL, HR_OP_gated_q8);
    case HR_BENCH_OP_QUANTISE: return build_row_op(g, r, NULL, HR_OP_quantise_rows);
    case HR_BENCH_OP_ROPE: return build_rope(g, r);
    case HR_BENCH_OP_COUNT: break;
    }
    return NULL;
}

hr_status hr_bench_kernel_build(const hr_bench_op_rig *r, const hr_weight *weight, hr_graph **out)
{
    static const char *const names[HR_NODE_MAX_OUT] = { "y", "y_scale", "z" };
    HR_TRY(hr_graph_create(hr_bench_op_names[r->kernel->op], out));
    hr_value *y = build(*out, r, weight);
    for (int i = 0; y && i < y->producer->n_out; i++)
        hr_graph_output(*out, names[i], y->producer->out[i]);
    return hr_graph_finish(*out);
}

/* ---- work ------------------------------------------------------------------------------------ */

static void linear_work(const hr_bench_kernel *k, size_t weight_bytes, double rows,
                        hr_bench_figure *f)
{
    bool int8 = hr_bench_format_is_int8(k->format);
    double row = (double)k->k * (double)(int8 ? 1 : hr_dtype_size(dense_rows(k)));
    if (int8) row += k->format == HR_FORMAT_I8C ? 4 : (double)k->k / 32 * 4;
    f->bytes = (double)weight_bytes + rows * (row + 4 * (double)k->n);
    f->ops = 2 * rows * (double)k->n * (double)k->k;
}

/* Queries and results, and every key once; each query meets the keys before it and its own. */
static void attention_work(const hr_bench_kernel *k, double rows, hr_bench_figure *f)
{
    bool decode = k->op == HR_BENCH_OP_DECODE;
    double context = (double)k->context, dim = (double)k->heads.dim;
    double keys = decode ? rows * context : context;
    double met = decode ? keys : rows * (context - (rows - 1) / 2);
    double row = dim * (double)hr_dtype_size(k->cache) + (k->cache == HR_DTYPE_I8 ? 4 : 0);
    f->bytes = 2 * keys * (double)k->heads.kv * row + 2 * rows * (double)k->heads.query * dim * 4;
    f->ops = 4 * met * (double)k->heads.query * dim;
}

void hr_bench_kernel_work(const hr_bench_kernel *k, size_t weight_bytes, int64_t rows,
                          hr_bench_figure *f)
{
    double n = (double)rows, row = (double)k->k;
    double quantised = k->group ? row + row / (double)k->group * 4 : 0;
    switch (k->op) {
    case HR_BENCH_OP_LINEAR: linear_work(k, weight_bytes, n, f); break;
    case HR_BENCH_OP_DECODE:
    case HR_BENCH_OP_PREFILL: attention_work(k, n, f); break;
    case HR_BENCH_OP_NORM: f->bytes = n * (row * 4 + quantised) + row * 4; break;
    case HR_BENCH_OP_GATED: f->bytes = n * (row * 8 + quantised); break;
    case HR_BENCH_OP_QUANTISE: f->bytes = n * (row * 4 + quantised); break;
    case HR_BENCH_OP_ROPE:
        f->bytes = n * (double)((k->heads.query + k->heads.kv) * k->heads.dim) * 8 + n * 12;
        break;
    case HR_BENCH_OP_COUNT: break;
    }
}

const char *hr_bench_kernel_refuses(const hr_bench_kernel *k, int64_t rows)
{
    if (k->op == HR_BENCH_OP_DECODE && rows * k->context > HR_BENCH_MOST_KEYS)
        return "more than 131072 keys in all";
    if (k->op == HR_BENCH_OP_LINEAR && k->k % hr_format_block(k->format))
        return "K is no multiple of the format's block";
    if (k->op == HR_BENCH_OP_PREFILL && rows > k->context) return "more queries than keys";
    return NULL;
}

/* bf16 is multiplied as it is where the path has instructions for it, else as f32. */
double hr_bench_kernel_gop_s(const hr_bench_kernel *k, const hr_bench_peaks *p)
{
    double f32 = hr_bench_peaks_arithmetic(p, HR_BENCH_F32);
    double bf16 = hr_bench_peaks_arithmetic(p, HR_BENCH_BF16);
    if (k->op != HR_BENCH_OP_LINEAR) return f32;
    if (hr_bench_format_is_int8(k->format)) return hr_bench_peaks_arithmetic(p, HR_BENCH_I8);
    return k->format == HR_FORMAT_BF16 && bf16 > f32 ? bf16 : f32;
}
