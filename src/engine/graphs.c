/* What each program computes: the one place where graphs are put together.
 *
 * Any thread. Shapes, the model and a ledger row's bucket say everything, so that what a start
 * compiles and what `headrace compile` prints are the same graphs. */
#include "engine/buckets.h"

static hr_build_options build_options(const hr_shapes *s, int64_t tokens)
{
    hr_build_options o = s->build;
    o.tokens = tokens;
    return o;
}

static hr_status build_select(const hr_shapes *s, const hr_model *m, const hr_ledger_row *r,
                              hr_graph **out)
{
    HR_TRY(hr_graph_create("select", out));
    hr_graph *g = *out;
    hr_value *x = hr_graph_input(g, "hidden", s->build.activation,
                                 HR_SHAPE(r->tokens, hr_model_config(m)->hidden), HR_LIVE_TOKENS);
    hr_value *at = hr_graph_input(g, "rows", HR_DTYPE_I32, HR_SHAPE(r->requests), HR_LIVE_ROWS);
    hr_graph_output(g, "selected", hr_op_gather_rows(g, x, at));
    return hr_graph_finish(g);
}

/* The lm_head, then the sampler or the prompt's log-probabilities. */
static hr_status build_head(const hr_shapes *s, const hr_model *m, const hr_ledger_row *r,
                            hr_graph **out)
{
    HR_TRY(hr_graph_create(hr_stage_name(r->stage), out));
    hr_graph *g = *out;
    hr_build_options o = build_options(s, 0);
    hr_value *x = hr_graph_input(g, "selected", o.activation,
                                 HR_SHAPE(r->requests, hr_model_config(m)->hidden), HR_LIVE_ROWS);
    hr_value *logits = hr_model_build_head(g, m, x, &o);
    if (r->stage == HR_STAGE_SAMPLER) hr_sampler_build(g, logits, &s->sampler);
    else hr_sampler_build_prompt(g, logits, &s->sampler);
    return hr_graph_finish(g);
}

static hr_status build_tables(const hr_shapes *s, hr_graph **out)
{
    HR_TRY(hr_graph_create("tables", out));
    hr_sampler_build_tables(*out, &s->sampler);
    return hr_graph_finish(*out);
}

hr_status hr_program_graph(const hr_shapes *s, const hr_model *m, const hr_ledger_row *r,
                           hr_graph **out)
{
    hr_build_options o = build_options(s, r->tokens);
    *out = NULL;
    switch (r->stage) {
    case HR_STAGE_BACKBONE: return hr_model_build_backbone(m, &o, out);
    case HR_STAGE_SELECT: return build_select(s, m, r, out);
    case HR_STAGE_SAMPLER:
    case HR_STAGE_PROMPT: return build_head(s, m, r, out);
    case HR_STAGE_TABLES: return build_tables(s, out);
    case HR_STAGE_COUNT: break;
    }
    return hr_fail(HR_INTERNAL, "stage %d", (int)r->stage);
}
