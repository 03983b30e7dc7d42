/* The linear kernels, written once over vectors of 16 columns.
 *
 * Included by linear_<isa>.c after it has defined, for that instruction set:
 *   cols_f, cols_i        16 × f32, 16 × i32, one lane per output column
 *   f_load_bf16_pair      16 columns × 2 k of BF16, the two k apart
 *   f_* i_*               their arithmetic; f_fma is one rounding everywhere, f_madd is the path's
 *                         own multiply-add (pack.h, float rows)
 *   code_quad             16 columns × 4 k of unsigned 8-bit codes
 *   codes_load            quad j of a group, of either container
 *   codes_column          the i-th k of the quad as cols_i
 *   dot_half              adds 16 k of a group's products to one cols_i per row and panel
 *   DOT_ZERO(form)        if other than form.zero: what dot_half leaves to be taken off each code
 *   MOST_ROWS, GROUP_ROWS rows of the largest tile, and of the largest over groups
 *   MOST_PANELS           1, or 2: tiles of integers may be two panels wide
 * A tile is one or two panels times a constant number of rows: its functions are inlined into one
 * body per format, row count and width, where all branches on these are decided. Sums of R rows and
 * P panels are [R][P]. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_BODY_H
#define HEADRACE_CPU_KERNELS_LINEAR_BODY_H

#include "cpu/kernels/linear_prep_body.h"
#include "cpu/kernels/linear_walk_body.h"

#endif
