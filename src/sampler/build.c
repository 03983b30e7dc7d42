/* The sampler as graphs: the declared order, top to bottom.
 *
 * Start-up thread. R sampler rows, V logits, S table slots, W words of a mask. Two values of [R,V]
 * live at once: the raw logits, which log-probabilities are taken from, and the processed ones,
 * which every later step changes in place. Every op keeps to its own row. */
#include "sampler/sampler_int.h"

typedef struct builder {
    hr_graph *g;
    const hr_sampler_options *o;
    int64_t rows; /* R */
    hr_value *in[HR_SAMPLING_INPUT_COUNT];
    hr_value *counts, *allowed, *grammar;
} builder;

int32_t hr_sampler_top(const hr_sampler_options *o)
{
    int64_t n = o->max_logprobs > 1 ? o->max_logprobs : 1;
    return (int32_t)(n < o->vocab ? n : o->vocab);
}

static void add_input(builder *b, hr_sampling_input input)
{
    const hr_sampling_input_info *i = &hr_sampling_input_list[input];
    hr_shape shape = HR_SHAPE(b->rows, i->columns);
    hr_live live = HR_LIVE_ROWS;
    if (i->program == HR_PROGRAM_TABLES) {
        shape = i->columns ? HR_SHAPE(i->columns)
                           : HR_SHAPE(HR_TABLE_ROWS, hr_sampler_words(b->o->vocab));
        live = HR_LIVE_ALL;
    } else if (i->columns == 1) {
        shape = HR_SHAPE(b->rows);
    }
    b->in[input] = hr_graph_input(b->g, i->name, i->dtype, shape, live);
}

/* Without drafts nobody reads what lists them. */
static bool has_input(const builder *b, int input)
{
    return b->o->drafts || (input != HR_INPUT_draft_ids && input != HR_INPUT_draft_count);
}

static void add_inputs(builder *b, hr_sampler_program program)
{
    for (int k = 0; k < HR_SAMPLING_INPUT_COUNT; k++)
        if (hr_sampling_input_list[k].program == program && has_input(b, k))
            add_input(b, (hr_sampling_input)k);
}

static hr_value *add_mask_table(builder *b, const char *name)
{
    hr_shape shape = HR_SHAPE(b->o->slots, hr_sampler_words(b->o->vocab));
    return hr_graph_input(b->g, name, HR_DTYPE_U32, shape, HR_LIVE_ALL);
}

static void add_tables(builder *b)
{
    b->counts = hr_graph_input(b->g, "counts", HR_DTYPE_U16, HR_SHAPE(b->o->slots, b->o->vocab),
                               HR_LIVE_ALL);
    b->allowed = add_mask_table(b, "allowed");
    b->grammar = add_mask_table(b, "grammar");
}

#define OP(b, op, attrs, node, ...)                                                                \
    hr_graph_op((b)->g, HR_OP_##op, (hr_value *[]){ __VA_ARGS__ },                                 \
                (int)(sizeof((hr_value *[]){ __VA_ARGS__ }) / sizeof(hr_value *)), attrs, node)

/* ---- log-probabilities ----------------------------------------------------------------------- */

/* What is reported: values f32 [R,V] less `less` f32 [R] (NULL: nothing). */
typedef struct scores {
    hr_value *values, *less;
} scores;

static void report_top(builder *b, scores s)
{
    hr_attrs attrs = { .n = hr_sampler_top(b->o) };
    hr_value *top = OP(b, top_n, &attrs, NULL, s.values, b->in[HR_INPUT_wanted]);
    hr_graph_output(b->g, "top_ids", top);
    hr_graph_output(b->g, "top_logprobs", OP(b, pick, NULL, NULL, s.values, top, s.less));
}

static void report(builder *b, scores s, hr_value *token)
{
    hr_graph_output(b->g, "logprob", OP(b, pick, NULL, NULL, s.values, token, s.less));
    hr_graph_output(b->g, "rank", OP(b, rank, NULL, NULL, s.values, token, b->in[HR_INPUT_wanted]));
    report_top(b, s);
}

/* ---- programs -------------------------------------------------------------------------------- */

static hr_value *mask(builder *b, hr_value *x, hr_value *table, hr_sampling_input slot,
                      const hr_attrs *attrs)
{
    return OP(b, mask_bits, attrs, NULL, x, table, b->in[slot]);
}

/* Steps 3 to 9: what changes the logits of a row before anything is chosen. */
static hr_value *process(builder *b, hr_value *x)
{
    hr_value *const *in = b->in;
    x = mask(b, x, b->allowed, HR_INPUT_allowed_slot, NULL);
    x = OP(b, ban_ids, NULL, NULL, x, in[HR_INPUT_banned_ids], in[HR_INPUT_banned_count]);
    x = OP(b, bias_ids, NULL, NULL, x, in[HR_INPUT_bias_ids], in[HR_INPUT_bias_values],
           in[HR_INPUT_bias_count]);
    return OP(b, penalties, NULL, NULL, x, b->counts, in[HR_INPUT_counts_slot],
              in[HR_INPUT_repetition], in[HR_INPUT_frequency], in[HR_INPUT_presence],
              in[HR_INPUT_draft_ids], in[HR_INPUT_draft_count]);
}

typedef struct choice {
    hr_value *token, *y, *origin, *threshold, *cuts;
} choice;

/* Steps 10 to 17. */
static choice choose(builder *b, hr_value *x)
{
    hr_value *const *in = b->in;
    hr_node *node = NULL;
    choice c = { 0 };
    hr_value *best = OP(b, argmax, NULL, NULL, x);
    c.y = OP(b, temper, NULL, &node, x, in[HR_INPUT_temperature]);
    c.origin = node ? node->out[1] : NULL;
    c.threshold = OP(b, threshold, NULL, &node, c.y, in[HR_INPUT_min_p], in[HR_INPUT_top_k],
                     in[HR_INPUT_top_p]);
    c.cuts = node ? node->out[1] : NULL;
    hr_value *drawn =
        OP(b, draw, NULL, NULL, c.y, c.threshold, in[HR_INPUT_seed], in[HR_INPUT_position]);
    c.token = OP(b, choose, NULL, NULL, in[HR_INPUT_greedy], best, drawn);
    return c;
}

/* ---- the trace ------------------------------------------------------------------------------- */

/* Counted where the logits stand, since later steps change them in place. */
typedef struct alive {
    hr_value *grammar, *masks;
} alive;

static hr_value *count_alive(builder *b, hr_value *x)
{
    return OP(b, alive, NULL, NULL, x, b->in[HR_INPUT_trace]);
}

static void report_trace(builder *b, alive a, choice c)
{
    hr_node *node = NULL;
    hr_value *counts = OP(b, trace, NULL, &node, c.y, c.cuts, c.token, b->in[HR_INPUT_trace]);
    hr_graph_output(b->g, "trace_grammar", a.grammar);
    hr_graph_output(b->g, "trace_masks", a.masks);
    hr_graph_output(b->g, "trace_cuts", c.cuts);
    hr_graph_output(b->g, "trace_counts", counts);
    hr_graph_output(b->g, "trace_sums", node ? node->out[1] : NULL);
}

static scores scores_of(builder *b, hr_value *raw, choice c)
{
    bool processed =
        b->o->mode == HR_LOGPROBS_PROCESSED || b->o->mode == HR_LOGPROBS_PROCESSED_LOGITS;
    scores s = { .values = processed ? OP(b, keep, NULL, NULL, c.y, c.threshold) : raw };
    switch (b->o->mode) {
    case HR_LOGPROBS_RAW:
    case HR_LOGPROBS_PROCESSED:
        s.less = OP(b, log_sum_exp, NULL, NULL, s.values, b->in[HR_INPUT_wanted]);
        break;
    case HR_LOGPROBS_RAW_LOGITS: break;
    case HR_LOGPROBS_PROCESSED_LOGITS: s.less = c.origin; break;
    }
    return s;
}

/* Step 10 alone, of logits that nothing has changed. */
static void build_greedy(builder *b, hr_value *logits, const hr_attrs *used)
{
    hr_graph_output(b->g, "token", OP(b, argmax, used, NULL, logits));
    hr_graph_output(b->g, "status", OP(b, row_status, NULL, NULL, logits, NULL));
}

void hr_sampler_build(hr_graph *g, hr_value *logits, const hr_sampler_options *o)
{
    if (!logits) return; /* the graph holds an earlier failure */
    builder b = { .g = g, .o = o, .rows = logits->shape.dim[0] };
    hr_attrs used = { .n = (int32_t)hr_used_vocab(o->vocab, o->used_vocab) };
    if (o->kind == HR_SAMPLER_GREEDY) {
        build_greedy(&b, logits, &used);
        return;
    }
    add_inputs(&b, HR_PROGRAM_SAMPLER);
    add_tables(&b);
    hr_value *status = OP(&b, row_status, NULL, NULL, logits, NULL);
    hr_value *raw = mask(&b, logits, b.grammar, HR_INPUT_grammar_slot, &used); /* steps 1, 2 */
    alive a = { .grammar = count_alive(&b, raw) };
    hr_value *x = process(&b, raw);
    status = OP(&b, row_status, NULL, NULL, x, status);
    a.masks = count_alive(&b, x);
    choice c = choose(&b, x);
    hr_graph_output(g, "token", c.token);
    scores s = scores_of(&b, raw, c);
    report(&b, s, c.token);
    hr_graph_output(g, "extra_logprobs",
                    OP(&b, pick, NULL, NULL, s.values, b.in[HR_INPUT_extra_ids], s.less));
    hr_graph_output(g, "status", status);
    report_trace(&b, a, c);
}

void hr_sampler_build_prompt(hr_graph *g, hr_value *logits, const hr_sampler_options *o)
{
    if (!logits) return;
    builder b = { .g = g, .o = o, .rows = logits->shape.dim[0] };
    hr_value *targets = hr_graph_input(g, "targets", HR_DTYPE_I32, HR_SHAPE(b.rows), HR_LIVE_ROWS);
    add_input(&b, HR_INPUT_wanted);
    hr_value *status = OP(&b, row_status, NULL, NULL, logits, NULL);
    scores s = { .values = logits };
    int64_t used = hr_used_vocab(o->vocab, o->used_vocab);
    if (used < o->vocab) { /* grammar slot 0: only the checkpoint's padding is masked */
        add_input(&b, HR_INPUT_grammar_slot);
        s.values = mask(&b, logits, add_mask_table(&b, "grammar"), HR_INPUT_grammar_slot,
                        &(hr_attrs){ .n = (int32_t)used });
    }
    bool logarithms = o->mode == HR_LOGPROBS_RAW || o->mode == HR_LOGPROBS_PROCESSED;
    if (logarithms) s.less = OP(&b, log_sum_exp, NULL, NULL, s.values, b.in[HR_INPUT_wanted]);
    report(&b, s, targets);
    hr_graph_output(g, "status", status);
}

void hr_sampler_build_tables(hr_graph *g, const hr_sampler_options *o)
{
    builder b = { .g = g, .o = o };
    add_inputs(&b, HR_PROGRAM_TABLES);
    add_tables(&b);
    hr_value *const *in = b.in;
    hr_value *counts = OP(&b, count_tokens, NULL, NULL, b.counts, in[HR_INPUT_count_clear],
                          in[HR_INPUT_count_slots], in[HR_INPUT_count_ids], in[HR_INPUT_count_add]);
    hr_value *allowed = OP(&b, write_rows, NULL, NULL, b.allowed, in[HR_INPUT_allowed_rows],
                           in[HR_INPUT_allowed_slots]);
    hr_value *grammar = OP(&b, write_rows, NULL, NULL, b.grammar, in[HR_INPUT_grammar_rows],
                           in[HR_INPUT_grammar_slots]);
    hr_graph_output_donated(g, "counts", counts, b.counts);
    hr_graph_output_donated(g, "allowed", allowed, b.allowed);
    hr_graph_output_donated(g, "grammar", grammar, b.grammar);
}
