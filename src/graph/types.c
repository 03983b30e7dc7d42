/* Tables of dtypes, weight formats and shapes.
 *
 * Pure functions on values, callable from any thread. The lists of types.h are the one source:
 * what is printed, sized and compared follows from a line there. */
#include "graph/types.h"

#include <assert.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
#define DTYPE_ROW(name, text, bytes) [HR_DTYPE_##name] = { text, bytes },
    HR_DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

static const struct {
    const char *name;
    int64_t block;
    size_t bytes;
} formats[] = {
#define FORMAT_ROW(name, text, elements, bytes) [HR_FORMAT_##name] = { text, elements, bytes },
    HR_FORMAT_LIST(FORMAT_ROW)
#undef FORMAT_ROW
};

const char *hr_dtype_name(hr_dtype d)
{
    return dtypes[d].name;
}

size_t hr_dtype_size(hr_dtype d)
{
    return dtypes[d].bytes;
}

const char *hr_format_name(hr_format f)
{
    return formats[f].name;
}

int64_t hr_format_block(hr_format f)
{
    return formats[f].block;
}

size_t hr_format_block_bytes(hr_format f)
{
    return formats[f].bytes;
}

bool hr_format_is_blocks(hr_format f)
{
    return formats[f].block > 1;
}

bool hr_format_has_zero_points(hr_format f)
{
    return f == HR_FORMAT_I4G32 || f == HR_FORMAT_I4G64 || f == HR_FORMAT_I4G128;
}

size_t hr_format_row_bytes(hr_format f, int64_t k)
{
    assert(k >= 0 && k % formats[f].block == 0);
    return (size_t)(k / formats[f].block) * formats[f].bytes;
}

int64_t hr_shape_count(hr_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.rank; i++) n *= s.dim[i];
    return n;
}

bool hr_shape_eq(hr_shape a, hr_shape b)
{
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank; i++)
        if (a.dim[i] != b.dim[i]) return false;
    return true;
}

int64_t hr_shape_row(hr_shape s)
{
    int64_t n = 1;
    for (int i = 1; i < s.rank; i++) n *= s.dim[i];
    return n;
}
