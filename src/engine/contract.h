/* What a program declares of its results, and whether that is what came back. */
#ifndef HEADRACE_ENGINE_CONTRACT_H
#define HEADRACE_ENGINE_CONTRACT_H

#include "engine/buckets.h"

/* Before compiling: what a program hands on has the activation dtype that is configured. */
HR_MUST_USE hr_status hr_contract_check_graph(const hr_programs *p, const hr_ledger_row *r,
                                              const hr_graph *g);
/* After binding: remembers what the graph says of its outputs, for the two below. */
HR_MUST_USE hr_status hr_contract_note(hr_programs *p, hr_program_slot *s, const hr_graph *g);

/* Around a dummy run of a program. `live` are its counts, at most half of every bucket; check is
 * FAILED_PRECONDITION, naming program, output and the layer that made it, where a result came back
 * with another dtype or shape than declared. */
HR_MUST_USE hr_status hr_contract_arm(hr_programs *p, hr_program_slot *s, int64_t live);
HR_MUST_USE hr_status hr_contract_check(hr_programs *p, hr_program_slot *s, int64_t live);

#endif
