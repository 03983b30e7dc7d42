/* Rows of numbers into weight formats: what quantising is made of. */
#ifndef HEADRACE_MODEL_ENCODE_H
#define HEADRACE_MODEL_ENCODE_H

#include "graph/types.h"

/* One row [K] as format f has it, to `to`; *scale is I8C's and may be NULL for others. `stored` is
 * the checkpoint's format, whose dtype scales of I8C and I4G are rounded up to. `name` is for
 * messages: numbers that are not finite, rows too small for their dtype. */
hr_status hr_encode_row(const char *name, hr_format f, hr_format stored, const float *row,
                        int64_t K, void *to, float *scale);

#endif
