/* Inside the StableHLO writer: base/exact.h in StableHLO, and what the sampler's emitters share. */
#ifndef HEADRACE_PJRT_HLO_EXACT_H
#define HEADRACE_PJRT_HLO_EXACT_H

#include "pjrt/hlo_int.h"

/* ---- base/exact.h, any shape ----------------------------------------------------------------- */

/* The value of an f32 or f64 product that must be rounded before it is added to anything. */
hr_hlo_value hr_hlo_apart(hr_hlo *h, hr_hlo_value x);
hr_hlo_value hr_hlo_mass(hr_hlo *h, hr_hlo_value y); /* f64 -> i64 */
/* f64 y and its i64 mass -> i64 */
hr_hlo_value hr_hlo_spread(hr_hlo *h, hr_hlo_value y, hr_hlo_value mass);
/* i64 sums of a row's masses and spreads -> f32 */
hr_hlo_value hr_hlo_entropy(hr_hlo *h, hr_hlo_value total, hr_hlo_value spread);
hr_hlo_value hr_hlo_log(hr_hlo *h, hr_hlo_value x);   /* f64, positive and normal -> f64 */
hr_hlo_value hr_hlo_min_p(hr_hlo *h, hr_hlo_value p); /* f32 -> f32 */
/* f32 p, i64 total -> i64 */
hr_hlo_value hr_hlo_share(hr_hlo *h, hr_hlo_value p, hr_hlo_value total);
/* ui64 × i64 of at least 0 -> i64 */
hr_hlo_value hr_hlo_mul_high(hr_hlo *h, hr_hlo_value a, hr_hlo_value b);
/* seed ui32 [R,2], position i32 [R] -> ui64 [R] */
hr_hlo_value hr_hlo_word(hr_hlo *h, hr_hlo_value seed, hr_hlo_value position);

/* ---- f32 as integers ------------------------------------------------------------------------- */

#define HR_HLO_KEY_LEAST    INT32_MIN     /* below every number's key */
#define HR_HLO_KEY_INFINITY (-0x7F800001) /* of -inf */
/* i32 that rise with x; both zeros alike, NaN as `nan`. No device flushes integers to zero. */
hr_hlo_value hr_hlo_key(hr_hlo *h, hr_hlo_value x, int32_t nan);
hr_hlo_value hr_hlo_unkey(hr_hlo *h, hr_hlo_value key);
/* f32 [R,V] -> f32 [R], NaN counts as -inf. */
hr_hlo_value hr_hlo_row_max(hr_hlo *h, hr_hlo_value x);
/* y >= cut as i1; x f32 [R,V], cut f32 [R]. */
hr_hlo_value hr_hlo_at_least(hr_hlo *h, hr_hlo_value y, hr_hlo_value cut);

/* ---- rows and chunks ------------------------------------------------------------------------- */

hr_hlo_value hr_hlo_any(hr_hlo *h, hr_hlo_value p); /* i1 [R] -> i1 */
/* x[r, at[r]] by i32 [R], clamped: f32 [R,V] -> [R], [R,N,C] -> [R,C]. */
hr_hlo_value hr_hlo_at(hr_hlo *h, hr_hlo_value x, hr_hlo_value at);

/* n of [R], of one type, as [R,n]; n at most 4 */
hr_hlo_value hr_hlo_columns(hr_hlo *h, const hr_hlo_value *x, int n);

#define HR_HLO_CHUNK 512 /* columns that a search looks at together */
/* f32 [R,V] -> [R,N,HR_HLO_CHUNK], filled up with -inf. */
hr_hlo_value hr_hlo_chunks(hr_hlo *h, hr_hlo_value x);

#endif
