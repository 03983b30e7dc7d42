/* Shape, dtype and live count of every op's results.
 *
 * Runs wherever graphs are built (start-up). One function per op, its lines in the order of the
 * signature in ops.def; the switch at the end has no default, so a new op does not compile until
 * it has a rule. hr_graph_verify runs the same rules again over a finished graph. */
#include "graph/graph_int.h"

#include <math.h>

/* An int8 dot product of K columns must fit int32: 127 × 128 × K < 2^31. */
#define MAX_INT8_K (INT32_MAX / (127 * 128))

static void check_eps(hr_infer *m)
{
    float eps = m->node->attrs.eps;
    hr_infer_require(m, eps >= 0 && isfinite(eps), "eps %g is not a small number", (double)eps);
}

static void check_float_dtype(hr_infer *m)
{
    hr_infer_require(m, hr_dtype_is_float(m->node->attrs.dtype), "result dtype %s is not a float",
                     hr_dtype_name(m->node->attrs.dtype));
}

static void check_act(hr_infer *m)
{
    hr_activation act = m->node->attrs.act;
    hr_infer_require(m, act >= HR_ACT_NONE && act <= HR_ACT_RELU, "no activation numbered %d", act);
}

/* Rows of weights that kernels stream are packed by the backend: they must be checkpoint tensors.
 */
static void check_weight(hr_infer *m, int i)
{
    const hr_value *w = m->node->in[i];
    hr_infer_require(m, w && w->kind == HR_VALUE_WEIGHT, "operand %d is not a weight", i);
}

static void infer_embed(hr_infer *m)
{
    hr_infer_operand(m, 0, "ids", HR_SET_I32, "T");
    hr_infer_operand(m, 1, "weight", HR_SET_F32, "VH");
    check_weight(m, 1);
    check_float_dtype(m);
    hr_infer_result(m, 0, m->node->attrs.dtype, "TH");
}

/* Which rows may meet which weight: block formats take a scale per 32 columns or per row, I8C one
 * per row. */
static void check_int8_rows(hr_infer *m)
{
    const hr_value *scale = hr_infer_operand(m, 4, "x_scale", HR_SET_F32, "TG");
    if (!scale) return;
    hr_format f = m->node->in[1]->weight->format;
    int64_t K = m->dim['K'], G = m->dim['G'];
    hr_infer_require(m, G == 1 || G * 32 == K, "x_scale has %lld columns for K %lld", (long long)G,
                     (long long)K);
    if (f == HR_FORMAT_I8C) {
        hr_infer_require(m, G == 1, "I8C weights take one scale per row of x");
        hr_infer_require(m, K <= MAX_INT8_K, "K %lld overflows int32 sums", (long long)K);
    }
}

static void infer_linear(hr_infer *m)
{
    const hr_value *x = hr_infer_operand(m, 0, "x", HR_SET_FLOAT | HR_SET_I8, "TK");
    const hr_value *w = m->node->in[1];
    bool grouped = w && w->shape.rank == 3;
    hr_infer_operand(m, 1, "weight", HR_SET_F32, grouped ? "ENK" : "NK");
    check_weight(m, 1);
    hr_infer_optional(m, 2, "bias", HR_SET_F32, "N");
    hr_infer_optional(m, 3, "groups", HR_SET_I32, "T");
    hr_infer_require(m, grouped == (m->node->in[3] != NULL),
                     "groups go with a weight of rank 3, and only with one");
    if (m->status) return;
    if (x->dtype == HR_DTYPE_I8) check_int8_rows(m);
    else hr_infer_require(m, !m->node->in[4], "x_scale goes with i8 rows only");
    check_float_dtype(m);
    hr_infer_result(m, 0, m->node->attrs.dtype, "TN");
}

/* Results `first` and `first + 1` are the int8 rows [T,letter] and their scales. */
static void quantised_results(hr_infer *m, int first, char letter)
{
    int32_t group = m->node->attrs.group;
    int64_t K = m->dim[(unsigned char)letter];
    char q[] = { 'T', letter, 0 };
    hr_infer_require(m, group > 0 && K % group == 0,
                     "group %d does not divide the row's %lld columns", group, (long long)K);
    if (m->status) return;
    m->dim['G'] = K / group;
    hr_infer_result(m, first, HR_DTYPE_I8, q);
    hr_infer_result(m, first + 1, HR_DTYPE_F32, "TG");
}

static void infer_quantise_rows(hr_infer *m)
{
    hr_infer_operand(m, 0, "x", HR_SET_FLOAT, "TK");
    quantised_results(m, 0, 'K');
}

static void infer_rms_norm(hr_infer *m)
{
    const hr_value *x = hr_infer_operand(m, 0, "x", HR_SET_FLOAT, "T*H");
    hr_infer_operand(m, 1, "weight", HR_SET_F32, "H");
    check_eps(m);
    if (x) hr_infer_result_like(m, 0, x->dtype, x);
}

static void infer_layer_norm(hr_infer *m)
{
    const hr_value *x = hr_infer_operand(m, 0, "x", HR_SET_FLOAT, "TH");
    hr_infer_operand(m, 1, "weight", HR_SET_F32, "H");
    hr_infer_optional(m, 2, "bias", HR_SET_F32, "H");
    check_eps(m);
    if (x) hr_infer_result_like(m, 0, x->dtype, x);
}

static void infer_rope(hr_infer *m)
{
    const hr_attrs *a = &m->node->attrs;
    const hr_value *x = hr_infer_operand(m, 0, "x", HR_SET_FLOAT, "TND");
    const hr_value *positions = hr_infer_operand(m, 1, "positions", HR_SET_I32, "CT");
    hr_infer_operand(m, 2, "inv_freq", HR_SET_F32, "F");
    hr_infer_require(m, !positions || m->dim['C'] == 3, "positions are not [3,T]");
    hr_infer_require(m, 2 * m->dim['F'] <= m->dim['D'], "2F %lld is more than D %lld",
                     (long long)(2 * m->dim['F']), (long long)m->dim['D']);
    int64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        hr_infer_require(m, a->sections[i] >= 0, "section %d is negative", i);
        sum += a->sections[i];
    }
    hr_infer_require(m, sum == 0 || sum == m->dim['F'], "sections sum to %lld, not F %lld",
                     (long long)sum, (long long)m->dim['F']);
    hr_infer_require(m, isfinite(a->scale) && a->scale > 0, "attention factor %g",
                     (double)a->scale);
    if (x) hr_infer_result_like(m, 0, x->dtype, x);
}

/* One operand in, the same shape out. */
static void infer_elementwise(hr_infer *m)
{
    const hr_value *x = hr_infer_operand(m, 0, "x", HR_SET_FLOAT, "T*");
    if (x) hr_infer_result_like(m, 0, x->dtype, x);
}

static void infer_activation(hr_infer *m)
{
    check_act(m);
    infer_elementwise(m);
}

static void infer_scale(hr_infer *m)
{
    float scale = m->node->attrs.scale;
    hr_infer_require(m, isfinite(scale), "scale %g", (double)scale);
    infer_elementwise(m);
}

static void infer_softcap(hr_infer *m)
{
    float cap = m->node->attrs.cap;
    hr_infer_require(m, isfinite(cap) && cap > 0, "cap %g is not positive", (double)cap);
    infer_elementwise(m);
}

static void infer_mul_rows(hr_infer *m)
{
    const hr_value *x = hr_infer_operand(m, 0, "x", HR_SET_FLOAT, "T*");
    hr_infer_operand(m, 1, "factor", HR_SET_F32, "T");
    if (x) hr_infer_result_like(m, 0, x->dtype, x);
}

static void infer_route(hr_infer *m)
{
    int32_t n = m->node->attrs.n, group = m->node->attrs.group;
    hr_infer_operand(m, 0, "x", HR_SET_F32, "TE");
    if (m->status) return;
    int64_t E = m->dim['E'];
    hr_infer_require(m, n >= 0 && n < E && group >= 0 && group <= E,
                     "rank %d and a group of %d among %lld", n, group, (long long)E);
    hr_infer_result(m, 0, HR_DTYPE_I32, "T");
    hr_infer_result(m, 1, HR_DTYPE_F32, "T");
}

static void infer_cast(hr_infer *m)
{
    const hr_value *x = hr_infer_operand(m, 0, "x", HR_SET_FLOAT, "T*");
    check_float_dtype(m);
    if (x) hr_infer_result_like(m, 0, m->node->attrs.dtype, x);
}

/* Operands 0 and 1, called a and b in messages: same dtype and shape. */
static const hr_value *same_pair(hr_infer *m, const char *a, const char *b)
{
    char xs[HR_SHAPE_TEXT], ys[HR_SHAPE_TEXT];
    const hr_value *x = hr_infer_operand(m, 0, a, HR_SET_FLOAT, "T*");
    const hr_value *y = hr_infer_operand(m, 1, b, HR_SET_FLOAT, "T*");
    if (!x || !y) return NULL;
    hr_infer_require(m, x->dtype == y->dtype && hr_shape_eq(x->shape, y->shape),
                     "%s is %s %s, %s is %s %s", a, hr_dtype_name(x->dtype),
                     hr_shape_text(x->shape, xs), b, hr_dtype_name(y->dtype),
                     hr_shape_text(y->shape, ys));
    return m->status ? NULL : x;
}

static void infer_binary(hr_infer *m)
{
    const hr_value *x = same_pair(m, "a", "b");
    if (x) hr_infer_result_like(m, 0, x->dtype, x);
}

static void infer_gated(hr_infer *m)
{
    const hr_value *x = same_pair(m, "gate", "up");
    check_act(m);
    if (x) hr_infer_result_like(m, 0, x->dtype, x);
}

static void infer_reshape(hr_infer *m)
{
    const hr_value *x = hr_infer_operand(m, 0, "x", HR_SET_ANY, "T*");
    char from[HR_SHAPE_TEXT], to[HR_SHAPE_TEXT];
    hr_infer_require(m, m->shape != NULL, "no shape is given");
    if (m->status) return;
    m->status = hr_shape_check(*m->shape, "reshape");
    hr_infer_require(m,
                     m->shape->dim[0] == x->shape.dim[0] &&
                         hr_shape_count(*m->shape) == hr_shape_count(x->shape),
                     "%s cannot become %s", hr_shape_text(x->shape, from),
                     hr_shape_text(*m->shape, to));
    hr_infer_result_like(m, 0, x->dtype, x);
    if (!m->status) m->out[0].shape = *m->shape;
}

static void infer_kv_write(hr_infer *m)
{
    const hr_value *cache = hr_infer_operand(m, 0, "cache", HR_SET_FLOAT | HR_SET_I8, "bsND");
    bool codes = cache && cache->dtype == HR_DTYPE_I8;
    hr_infer_operand(m, 1, "x", codes ? HR_SET_I8 : HR_SET_FLOAT, "TND");
    hr_infer_operand(m, 2, "slots", HR_SET_I32, "T");
    if (cache) hr_infer_result_like(m, 0, cache->dtype, cache);
}

/* Keys or values, with their scales where they are codes. K: key/value heads. */
static void infer_pages(hr_infer *m, int cache, const char *name, int scale, const char *scale_name)
{
    const hr_value *pages = hr_infer_operand(m, cache, name, HR_SET_FLOAT | HR_SET_I8, "bsKD");
    bool codes = pages && pages->dtype == HR_DTYPE_I8;
    m->dim['o'] = 1;
    hr_infer_optional(m, scale, scale_name, HR_SET_F32, "bsKo");
    hr_infer_require(m, codes == (m->node->in[scale] != NULL),
                     "%s goes with i8 pages, and only with them", scale_name);
}

static void infer_attention(hr_infer *m)
{
    const hr_attrs *a = &m->node->attrs;
    const hr_value *q = hr_infer_operand(m, 0, "q", HR_SET_FLOAT, "TND");
    infer_pages(m, 1, "k_cache", 7, "k_scale");
    infer_pages(m, 2, "v_cache", 8, "v_scale");
    hr_infer_operand(m, 3, "block_tables", HR_SET_I32, "BW");
    hr_infer_operand(m, 4, "query_starts", HR_SET_I32, "S");
    hr_infer_operand(m, 5, "seq_lens", HR_SET_I32, "B");
    hr_infer_optional(m, 6, "sink", HR_SET_F32, "N");
    hr_infer_require(m, m->dim['S'] == m->dim['B'] + 1, "query_starts is not [B+1]");
    hr_infer_require(m, m->dim['K'] && m->dim['N'] % m->dim['K'] == 0,
                     "%lld query heads are no multiple of %lld key heads", (long long)m->dim['N'],
                     (long long)m->dim['K']);
    hr_infer_require(m, isfinite(a->scale) && a->scale > 0, "scale %g", (double)a->scale);
    hr_infer_require(m, a->window >= 0, "window %d", a->window);
    hr_infer_require(m, isfinite(a->cap) && a->cap >= 0, "cap %g", (double)a->cap);
    if (q) hr_infer_result_like(m, 0, q->dtype, q);
}

/* The rows that come out are counted as their indices are. */
static void infer_gather_rows(hr_infer *m)
{
    const hr_value *x = hr_infer_operand(m, 0, "x", HR_SET_ANY, "T*");
    const hr_value *rows = hr_infer_operand(m, 1, "rows", HR_SET_I32, "R");
    if (m->status) return;
    hr_infer_result_like(m, 0, x->dtype, x);
    m->out[0].shape.dim[0] = m->dim['R'];
    m->out[0].live = rows->live;
}

/* group is how many devices hold a part each. */
static void check_group(hr_infer *m)
{
    int32_t group = m->node->attrs.group;
    hr_infer_require(m, group >= 1, "a group of %d devices", group);
}

static void infer_all_reduce(hr_infer *m)
{
    hr_infer_operand(m, 0, "x", HR_SET_FLOAT, "TN");
    hr_infer_optional(m, 1, "bias", HR_SET_F32, "N");
    check_group(m);
    check_float_dtype(m);
    hr_infer_result(m, 0, m->node->attrs.dtype, "TN");
}

static void infer_all_gather(hr_infer *m)
{
    const hr_attrs *a = &m->node->attrs;
    const hr_value *x = hr_infer_operand(m, 0, "x", HR_SET_FLOAT, "TK");
    int64_t all = 0;
    check_group(m);
    if (m->status) return;
    hr_infer_require(m, !__builtin_mul_overflow(m->dim['K'], (int64_t)a->group, &all),
                     "%d times %lld columns", a->group, (long long)m->dim['K']);
    hr_infer_require(m, a->n >= 0 && a->n <= all, "%d of %lld columns", a->n, (long long)all);
    m->dim['M'] = a->n ? a->n : all;
    hr_infer_result(m, 0, x->dtype, "TM");
}

/* a + b first, then the norm of it, quantised or not. */
static void infer_add_rms_norm(hr_infer *m)
{
    const hr_value *x = same_pair(m, "a", "b");
    hr_infer_operand(m, 0, "a", HR_SET_FLOAT, "TH");
    hr_infer_operand(m, 2, "weight", HR_SET_F32, "H");
    check_eps(m);
    if (!x) return;
    hr_infer_result_like(m, 0, x->dtype, x);
    if (m->node->op == HR_OP_add_rms_norm) hr_infer_result_like(m, 1, x->dtype, x);
    else quantised_results(m, 1, 'H');
}

static void infer_rms_norm_q8(hr_infer *m)
{
    hr_infer_operand(m, 0, "x", HR_SET_FLOAT, "TH");
    hr_infer_operand(m, 1, "weight", HR_SET_F32, "H");
    check_eps(m);
    quantised_results(m, 0, 'H');
}

static void infer_gated_q8(hr_infer *m)
{
    same_pair(m, "gate", "up");
    hr_infer_operand(m, 0, "gate", HR_SET_FLOAT, "TI");
    check_act(m);
    quantised_results(m, 0, 'I');
}

static void infer_one(hr_infer *m)
{
    switch (m->node->op) {
    case HR_OP_embed: infer_embed(m); break;
    case HR_OP_linear: infer_linear(m); break;
    case HR_OP_quantise_rows: infer_quantise_rows(m); break;
    case HR_OP_rms_norm: infer_rms_norm(m); break;
    case HR_OP_layer_norm: infer_layer_norm(m); break;
    case HR_OP_rope: infer_rope(m); break;
    case HR_OP_activation: infer_activation(m); break;
    case HR_OP_gated: infer_gated(m); break;
    case HR_OP_add:
    case HR_OP_mul: infer_binary(m); break;
    case HR_OP_scale: infer_scale(m); break;
    case HR_OP_softcap: infer_softcap(m); break;
    case HR_OP_mul_rows: infer_mul_rows(m); break;
    case HR_OP_route: infer_route(m); break;
    case HR_OP_cast: infer_cast(m); break;
    case HR_OP_reshape: infer_reshape(m); break;
    case HR_OP_kv_write: infer_kv_write(m); break;
    case HR_OP_attention: infer_attention(m); break;
    case HR_OP_gather_rows: infer_gather_rows(m); break;
    case HR_OP_all_reduce: infer_all_reduce(m); break;
    case HR_OP_all_gather: infer_all_gather(m); break;
    case HR_OP_mask_bits:
    case HR_OP_ban_ids:
    case HR_OP_bias_ids:
    case HR_OP_penalties:
    case HR_OP_row_status:
    case HR_OP_argmax:
    case HR_OP_temper:
    case HR_OP_threshold:
    case HR_OP_trace:
    case HR_OP_alive:
    case HR_OP_draw:
    case HR_OP_keep:
    case HR_OP_choose:
    case HR_OP_log_sum_exp:
    case HR_OP_pick:
    case HR_OP_rank:
    case HR_OP_top_n:
    case HR_OP_count_tokens:
    case HR_OP_write_rows: hr_infer_sampler(m); break;
    case HR_OP_add_rms_norm:
    case HR_OP_add_rms_norm_q8: infer_add_rms_norm(m); break;
    case HR_OP_rms_norm_q8: infer_rms_norm_q8(m); break;
    case HR_OP_gated_q8: infer_gated_q8(m); break;
    case HR_OP_COUNT: break;
    }
}

hr_status hr_graph_results(const hr_node *n, const hr_shape *shape,
                           hr_result_spec out[HR_NODE_MAX_OUT])
{
    hr_infer m = { .node = n, .shape = shape, .out = out };
    infer_one(&m);
    return m.status;
}

hr_status hr_graph_infer(hr_graph *g, hr_node *n, const hr_shape *shape)
{
    hr_result_spec spec[HR_NODE_MAX_OUT];
    HR_TRY(hr_graph_results(n, shape, spec));
    n->n_out = hr_op_results(n->op);
    for (int i = 0; i < n->n_out; i++) {
        hr_value *v =
            hr_graph_add_value(g, HR_VALUE_RESULT, spec[i].dtype, spec[i].shape, spec[i].live);
        if (!v) return g->status;
        v->producer = n;
        v->result = i;
        n->out[i] = v;
    }
    return HR_OK;
}
