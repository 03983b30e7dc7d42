/* What the sampler's emitters share: f32 as integers that compare alike, rows, chunks.
 *
 * Pure functions over a text buffer. Comparing integers costs no more than comparing floats, lets
 * compilers reorder maxima, and means the same to a device that takes denormals for zero (as XLA's
 * CPU does: there, sums and products of such logits are zeros, which ref's are not). */
#include <math.h>

#include "pjrt/hlo_exact.h"

/* The bits of a number of either sign, so that they rise with it; its own inverse. */
static hr_hlo_value turn_negative(hr_hlo *h, hr_hlo_value bits)
{
    return hr_hlo_select(h, hr_hlo_compare_i(h, "LT", bits, 0),
                         hr_hlo_binary_i(h, "xor", bits, INT32_MAX), bits);
}

hr_hlo_value hr_hlo_key(hr_hlo *h, hr_hlo_value x, int32_t nan)
{
    hr_hlo_value bits = hr_hlo_bitcast(h, x, HR_HLO_I32);
    hr_hlo_value size = hr_hlo_binary_i(h, "and", bits, INT32_MAX);
    hr_hlo_value zero = hr_hlo_splat_i(h, bits.shape, 0);
    hr_hlo_value key = turn_negative(h, bits);
    key = hr_hlo_select(h, hr_hlo_compare(h, "EQ", size, zero), zero, key);
    return hr_hlo_select(h, hr_hlo_compare_i(h, "GT", size, 0x7F800000),
                         hr_hlo_splat_i(h, bits.shape, nan), key);
}

hr_hlo_value hr_hlo_unkey(hr_hlo *h, hr_hlo_value key)
{
    return hr_hlo_bitcast(h, turn_negative(h, key), HR_HLO_F32);
}

hr_hlo_value hr_hlo_row_max(hr_hlo *h, hr_hlo_value x)
{
    hr_hlo_value key = hr_hlo_key(h, x, HR_HLO_KEY_INFINITY);
    return hr_hlo_unkey(h, hr_hlo_reduce(h, "maximum", key, 1));
}

hr_hlo_value hr_hlo_at_least(hr_hlo *h, hr_hlo_value y, hr_hlo_value cut)
{
    hr_hlo_value key = hr_hlo_key(h, y, HR_HLO_KEY_LEAST);
    hr_hlo_value least = hr_hlo_key(h, cut, INT32_MAX); /* nothing is at least NaN */
    return hr_hlo_compare(h, "GE", key, hr_hlo_along(h, least, key.shape, 0));
}

hr_hlo_value hr_hlo_any(hr_hlo *h, hr_hlo_value p)
{
    return hr_hlo_reduce(h, "or", p, 0);
}

hr_hlo_value hr_hlo_at(hr_hlo *h, hr_hlo_value x, hr_hlo_value at)
{
    hr_hlo_shape column = HR_HLO_SHAPE(I32, at.shape.dim[0], 1);
    hr_hlo_value pair[] = { hr_hlo_iota(h, column, 0), hr_hlo_reshape(h, at, column) };
    return hr_hlo_gather(h, x, hr_hlo_concatenate(h, pair, 2, 1));
}

hr_hlo_value hr_hlo_columns(hr_hlo *h, const hr_hlo_value *x, int n)
{
    hr_hlo_value column[4];
    for (int i = 0; i < n; i++) {
        hr_hlo_shape s = HR_HLO_SHAPE(I32, x[i].shape.dim[0], 1);
        column[i] = hr_hlo_reshape(h, x[i], s);
    }
    return hr_hlo_concatenate(h, column, n, 1);
}

hr_hlo_value hr_hlo_chunks(hr_hlo *h, hr_hlo_value x)
{
    int64_t rows = x.shape.dim[0], V = x.shape.dim[1];
    int64_t n = (V + HR_HLO_CHUNK - 1) / HR_HLO_CHUNK;
    if (n * HR_HLO_CHUNK != V) {
        hr_hlo_value none = hr_hlo_splat_f(h, hr_hlo_scalar(HR_HLO_F32), (double)-INFINITY);
        x = hr_hlo_pad(h, x, none, 1, 0, n * HR_HLO_CHUNK - V);
    }
    return hr_hlo_reshape(h, x, HR_HLO_SHAPE(F32, rows, n, HR_HLO_CHUNK));
}
