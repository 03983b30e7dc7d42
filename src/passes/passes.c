/* The list of passes and the loop that runs it. Runs at start-up, before a backend plans.
 *
 * Each pass rebuilds the graph through graph/rewrite.h, whose finish verifies, so a broken rewrite
 * is reported with the name of the pass that made it. */
#include "passes/passes_int.h"

static const hr_pass passes[] = {
    { "identity", hr_pass_identity },
    { "common", hr_pass_common },
    { "dead", hr_pass_dead },
    { "fuse", hr_pass_fuse },
};

const hr_pass *hr_pass_list(size_t *count)
{
    *count = sizeof passes / sizeof *passes;
    return passes;
}

hr_status hr_pass_run_all(const hr_graph *g, hr_graph **out)
{
    hr_graph *now = NULL; /* owned: what the last pass made */
    *out = NULL;
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        hr_graph *next;
        hr_status st = passes[i].run(now ? now : g, &next);
        hr_graph_destroy(now);
        if (st) return hr_fail_prefix(st, "pass %s", passes[i].name);
        now = next;
    }
    *out = now;
    return HR_OK;
}

bool hr_pass_is_output(const hr_graph *g, const hr_value *v)
{
    for (size_t i = 0; i < g->n_outputs; i++)
        if (g->outputs[i].value == v) return true;
    return false;
}
