/* The naive interpreter of every op: the specification, and a backend like any other. */
#ifndef HEADRACE_REF_REF_H
#define HEADRACE_REF_REF_H

#include "backend/backend.h"

/* Plain loops, double accumulation, results rounded once. Composites are expanded when a graph is
 * compiled. Weights are read row by row at every use: slow, and never a copy that could differ. */
HR_MUST_USE hr_status hr_ref_backend_create(hr_backend **out);

#endif
