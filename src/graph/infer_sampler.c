/* Inference for the sampler's ops and the device tables. See infer.c.
 *
 * R sampler rows, V logits, S slots of a table, W words of a mask, M ids per row, C and U writes.
 */
#include "graph/graph_int.h"

static void logits(hr_infer *m, const char *name)
{
    hr_infer_operand(m, 0, name, HR_SET_F32, "RV");
}

/* n: where the ids that count end. */
static void require_used(hr_infer *m)
{
    hr_infer_require(m, m->node->attrs.n >= 0 && m->node->attrs.n <= m->dim['V'],
                     "n %d is not in 0 to V", m->node->attrs.n);
}

static void infer_mask_bits(hr_infer *m)
{
    logits(m, "x");
    hr_infer_operand(m, 1, "table", HR_SET_U32, "SW");
    hr_infer_operand(m, 2, "slot", HR_SET_I32, "R");
    require_used(m);
    hr_infer_require(m, m->dim['W'] == (m->dim['V'] + 31) / 32, "table has %lld words for V %lld",
                     (long long)m->dim['W'], (long long)m->dim['V']);
    hr_infer_result(m, 0, HR_DTYPE_F32, "RV");
}

static void infer_ban_ids(hr_infer *m)
{
    logits(m, "x");
    hr_infer_operand(m, 1, "ids", HR_SET_I32, "RM");
    hr_infer_operand(m, 2, "count", HR_SET_I32, "R");
    hr_infer_result(m, 0, HR_DTYPE_F32, "RV");
}

static void infer_bias_ids(hr_infer *m)
{
    logits(m, "x");
    hr_infer_operand(m, 1, "ids", HR_SET_I32, "RM");
    hr_infer_operand(m, 2, "values", HR_SET_F32, "RM");
    hr_infer_operand(m, 3, "count", HR_SET_I32, "R");
    hr_infer_result(m, 0, HR_DTYPE_F32, "RV");
}

static void infer_penalties(hr_infer *m)
{
    logits(m, "x");
    hr_infer_operand(m, 1, "counts", HR_SET_U16, "SV");
    hr_infer_operand(m, 2, "slot", HR_SET_I32, "R");
    hr_infer_operand(m, 3, "repetition", HR_SET_F32, "R");
    hr_infer_operand(m, 4, "frequency", HR_SET_F32, "R");
    hr_infer_operand(m, 5, "presence", HR_SET_F32, "R");
    const hr_value *more = hr_infer_optional(m, 6, "more", HR_SET_I32, "RM");
    const hr_value *n = hr_infer_optional(m, 7, "n", HR_SET_I32, "R");
    hr_infer_require(m, !more == !n, "%s without %s", more ? "more" : "n", more ? "n" : "more");
    hr_infer_require(m, !more || m->dim['M'] <= HR_PENALTIES_MORE, "M %lld is above %d",
                     (long long)m->dim['M'], HR_PENALTIES_MORE);
    hr_infer_result(m, 0, HR_DTYPE_F32, "RV");
}

static void infer_row_status(hr_infer *m)
{
    logits(m, "x");
    hr_infer_optional(m, 1, "before", HR_SET_I32, "R");
    hr_infer_result(m, 0, HR_DTYPE_I32, "R");
}

static void infer_argmax(hr_infer *m)
{
    logits(m, "x");
    require_used(m);
    hr_infer_result(m, 0, HR_DTYPE_I32, "R");
}

static void infer_temper(hr_infer *m)
{
    logits(m, "x");
    hr_infer_operand(m, 1, "temperature", HR_SET_F32, "R");
    hr_infer_result(m, 0, HR_DTYPE_F32, "RV");
    hr_infer_result(m, 1, HR_DTYPE_F32, "R");
}

static void infer_threshold(hr_infer *m)
{
    logits(m, "y");
    hr_infer_operand(m, 1, "min_p", HR_SET_F32, "R");
    hr_infer_operand(m, 2, "top_k", HR_SET_I32, "R");
    hr_infer_operand(m, 3, "top_p", HR_SET_F32, "R");
    m->dim['C'] = 3;
    hr_infer_result(m, 0, HR_DTYPE_F32, "R");
    hr_infer_result(m, 1, HR_DTYPE_F32, "RC");
}

static void infer_trace(hr_infer *m)
{
    logits(m, "y");
    hr_infer_operand(m, 1, "cuts", HR_SET_F32, "RC");
    hr_infer_operand(m, 2, "id", HR_SET_I32, "R");
    hr_infer_operand(m, 3, "wanted", HR_SET_I32, "R");
    hr_infer_require(m, m->dim['C'] == 3, "cuts is not [R,3]");
    m->dim['S'] = 2;
    hr_infer_result(m, 0, HR_DTYPE_I32, "RC");
    hr_infer_result(m, 1, HR_DTYPE_F32, "RS");
}

static void infer_alive(hr_infer *m)
{
    logits(m, "x");
    hr_infer_operand(m, 1, "wanted", HR_SET_I32, "R");
    hr_infer_result(m, 0, HR_DTYPE_I32, "R");
}

static void infer_draw(hr_infer *m)
{
    logits(m, "y");
    hr_infer_operand(m, 1, "threshold", HR_SET_F32, "R");
    hr_infer_operand(m, 2, "seed", HR_SET_U32, "RP");
    hr_infer_operand(m, 3, "position", HR_SET_I32, "R");
    hr_infer_require(m, m->dim['P'] == 2, "seed is not [R,2]");
    hr_infer_result(m, 0, HR_DTYPE_I32, "R");
}

static void infer_keep(hr_infer *m)
{
    logits(m, "y");
    hr_infer_operand(m, 1, "threshold", HR_SET_F32, "R");
    hr_infer_result(m, 0, HR_DTYPE_F32, "RV");
}

static void infer_choose(hr_infer *m)
{
    hr_infer_operand(m, 0, "flag", HR_SET_I32, "R");
    hr_infer_operand(m, 1, "a", HR_SET_I32, "R");
    hr_infer_operand(m, 2, "b", HR_SET_I32, "R");
    hr_infer_result(m, 0, HR_DTYPE_I32, "R");
}

static void infer_pick(hr_infer *m)
{
    logits(m, "x");
    const hr_value *ids = m->node->in[1];
    const char *letters = ids && ids->shape.rank == 2 ? "RM" : "R";
    hr_infer_operand(m, 1, "ids", HR_SET_I32, letters);
    hr_infer_optional(m, 2, "lse", HR_SET_F32, "R");
    hr_infer_result(m, 0, HR_DTYPE_F32, letters);
}

static void infer_rank(hr_infer *m)
{
    logits(m, "x");
    hr_infer_operand(m, 1, "ids", HR_SET_I32, "R");
    hr_infer_optional(m, 2, "wanted", HR_SET_I32, "R");
    hr_infer_result(m, 0, HR_DTYPE_I32, "R");
}

static void infer_log_sum_exp(hr_infer *m)
{
    logits(m, "x");
    hr_infer_optional(m, 1, "wanted", HR_SET_I32, "R");
    hr_infer_result(m, 0, HR_DTYPE_F32, "R");
}

static void infer_top_n(hr_infer *m)
{
    logits(m, "x");
    hr_infer_operand(m, 1, "wanted", HR_SET_I32, "R");
    m->dim['n'] = m->node->attrs.n;
    hr_infer_require(m, m->dim['n'] > 0 && m->dim['n'] <= m->dim['V'], "n %d is not in 1 to V",
                     m->node->attrs.n);
    hr_infer_result(m, 0, HR_DTYPE_I32, "Rn");
}

static void infer_count_tokens(hr_infer *m)
{
    const hr_value *counts = hr_infer_operand(m, 0, "counts", HR_SET_U16, "SV");
    hr_infer_operand(m, 1, "clear", HR_SET_I32, "C");
    hr_infer_operand(m, 2, "slots", HR_SET_I32, "U");
    hr_infer_operand(m, 3, "ids", HR_SET_I32, "U");
    hr_infer_operand(m, 4, "add", HR_SET_I32, "U");
    if (counts) hr_infer_result_like(m, 0, counts->dtype, counts);
}

static void infer_write_rows(hr_infer *m)
{
    const hr_value *table = hr_infer_operand(m, 0, "table", HR_SET_ANY, "SW");
    const hr_value *rows = hr_infer_operand(m, 1, "rows", HR_SET_ANY, "CW");
    hr_infer_operand(m, 2, "slots", HR_SET_I32, "C");
    if (!table || !rows) return;
    hr_infer_require(m, table->dtype == rows->dtype, "rows are %s, the table is %s",
                     hr_dtype_name(rows->dtype), hr_dtype_name(table->dtype));
    hr_infer_result_like(m, 0, table->dtype, table);
}

void hr_infer_sampler(hr_infer *m)
{
    typedef void (*rule)(hr_infer *);
    static const rule rules[HR_OP_COUNT] = {
        [HR_OP_mask_bits] = infer_mask_bits,
        [HR_OP_ban_ids] = infer_ban_ids,
        [HR_OP_bias_ids] = infer_bias_ids,
        [HR_OP_penalties] = infer_penalties,
        [HR_OP_row_status] = infer_row_status,
        [HR_OP_argmax] = infer_argmax,
        [HR_OP_temper] = infer_temper,
        [HR_OP_threshold] = infer_threshold,
        [HR_OP_trace] = infer_trace,
        [HR_OP_alive] = infer_alive,
        [HR_OP_draw] = infer_draw,
        [HR_OP_keep] = infer_keep,
        [HR_OP_choose] = infer_choose,
        [HR_OP_pick] = infer_pick,
        [HR_OP_log_sum_exp] = infer_log_sum_exp,
        [HR_OP_rank] = infer_rank,
        [HR_OP_top_n] = infer_top_n,
        [HR_OP_count_tokens] = infer_count_tokens,
        [HR_OP_write_rows] = infer_write_rows,
    };
    rules[m->node->op](m);
}
