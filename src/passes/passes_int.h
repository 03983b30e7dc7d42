/* Inside the passes room: the passes, and who uses a value. */
#ifndef HEADRACE_PASSES_PASSES_INT_H
#define HEADRACE_PASSES_PASSES_INT_H

#include "graph/rewrite.h"
#include "passes/passes.h"

/* identity.c: nodes that change nothing, and reshapes of reshapes. */
hr_status hr_pass_identity(const hr_graph *g, hr_graph **out);
/* common.c: the same op on the same operands is computed once (q, k and v share one
 * quantise_rows). */
hr_status hr_pass_common(const hr_graph *g, hr_graph **out);
/* dead.c: nodes that no output needs. */
hr_status hr_pass_dead(const hr_graph *g, hr_graph **out);
/* fuse.c: add + rms_norm + quantise_rows, any tail of it, and gated + quantise_rows. */
hr_status hr_pass_fuse(const hr_graph *g, hr_graph **out);

bool hr_pass_is_output(const hr_graph *g, const hr_value *v);

#endif
