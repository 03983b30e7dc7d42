/* Weights as device arguments: which parts a format has, and a part's bytes from the checkpoint.
 *
 * Called from any thread. A block format becomes int8 numbers, f32 scales and, where it has them,
 * f32 minima: number × scale + minimum is what hr_format_dequantise says, and says to the bit. The
 * block layouts are not repeated here. Of I4G it is (number + minimum) × scale, the minimum being
 * the zero point's negative. Each part is had by dequantising a block of which the rest
 * is neutral: numbers with all scales 1 and minima 0, scales with all numbers 1 and minima 0,
 * minima with all numbers 0. */
#include "pjrt/hlo_int.h"

enum { NUMBERS, SCALES, MINIMA };

/* A block in which every scale is 1 and every minimum 0 (head), and every number 1 (low, high).
 * The head is one range of bytes; with a minimum its field is bytes 2 and 3 of the head, of I4G
 * bytes 4 to 7. */
typedef struct neutral {
    uint8_t group;   /* columns that share a scale; 0 = no block format */
    uint8_t has_min; /* all numbers are then 0 where all their bytes are */
    uint8_t low;     /* byte of two low halves */
    uint8_t high;    /* byte of high bits */
    uint16_t head_at, head_n, high_at, high_n;
    uint8_t head[18]; /* 0x3c00 is 1 in f16 */
} neutral;

static const neutral neutrals[] = {
    [HR_FORMAT_Q8_0] = { 32, 0, 1, 0, 0, 2, 0, 0, { 0, 0x3c } },
    [HR_FORMAT_Q4_0] = { 32, 0, 0x99, 0, 0, 2, 0, 0, { 0, 0x3c } },
    [HR_FORMAT_Q4_1] = { 32, 1, 0x11, 0, 0, 4, 0, 0, { 0, 0x3c } },
    [HR_FORMAT_Q5_0] = { 32, 0, 0x11, 0xff, 0, 2, 2, 4, { 0, 0x3c } },
    [HR_FORMAT_Q5_1] = { 32, 1, 0x11, 0, 0, 4, 4, 4, { 0, 0x3c } },
    [HR_FORMAT_Q4_K] = { 32,
                         1,
                         0x11,
                         0,
                         0,
                         16,
                         0,
                         0,
                         { 0, 0x3c, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1 } },
    [HR_FORMAT_Q5_K] = { 32,
                         1,
                         0x11,
                         0,
                         0,
                         16,
                         16,
                         32,
                         { 0, 0x3c, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1 } },
    [HR_FORMAT_Q6_K] = { 16,
                         0,
                         0x11,
                         0xaa,
                         192,
                         18,
                         128,
                         64,
                         { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0x3c } },
    [HR_FORMAT_I4G32] = { 32, 1, 0x11, 0, 0, 8, 0, 0, { 0, 0, 0x80, 0x3f } },
    [HR_FORMAT_I4G64] = { 64, 1, 0x11, 0, 0, 8, 0, 0, { 0, 0, 0x80, 0x3f } },
    [HR_FORMAT_I4G128] = { 128, 1, 0x11, 0, 0, 8, 0, 0, { 0, 0, 0x80, 0x3f } },
};

enum { MOST_BLOCK = 210, MOST_ELEMENTS = 256, ROWS_AT_ONCE = 64 };

int64_t hr_hlo_format_group(hr_format f)
{
    return hr_format_is_blocks(f) ? neutrals[f].group : 0;
}

/* Numbers of these formats are 4 bits wide; signed where there is no minimum. */
bool hr_hlo_format_is_4_bit(hr_format f)
{
    return f == HR_FORMAT_Q4_0 || f == HR_FORMAT_Q4_1 || f == HR_FORMAT_Q4_K ||
           hr_format_has_zero_points(f);
}

static hr_hlo_type stored_type(hr_format f, const hr_hlo_options *opt)
{
    if (opt->int4 && hr_hlo_format_is_4_bit(f)) return neutrals[f].has_min ? HR_HLO_UI4 : HR_HLO_I4;
    if (f == HR_FORMAT_F16) return hr_hlo_type_of(HR_DTYPE_F16);
    if (f == HR_FORMAT_BF16) return hr_hlo_type_of(HR_DTYPE_BF16);
    return f == HR_FORMAT_F32 ? HR_HLO_F32 : HR_HLO_I8;
}

hr_status hr_hlo_weight_parts(const hr_weight *w, const hr_hlo_options *opt, hr_hlo_shape *shapes,
                              int *n)
{
    hr_hlo_shape s = { .type = HR_HLO_F32, .rank = w->shape.rank };
    for (int i = 0; i < s.rank; i++) s.dim[i] = w->shape.dim[i];
    *n = 1;
    shapes[NUMBERS] = s;
    if (s.rank == 1) return HR_OK;
    shapes[NUMBERS].type = stored_type(w->format, opt);
    if (w->format == HR_FORMAT_I8C) {
        s.rank--;
        if (!w->scale || hr_shape_count(w->scale->shape) != hr_hlo_shape_count(&s))
            return hr_fail(HR_INVALID_ARGUMENT, "weight %s: needs one scale per row", w->name);
        shapes[(*n)++] = s;
    } else if (hr_format_is_blocks(w->format)) {
        s.dim[s.rank - 1] /= hr_hlo_format_group(w->format);
        shapes[(*n)++] = s;
        if (neutrals[w->format].has_min) shapes[(*n)++] = s;
    }
    return HR_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Leaves in a block only what a part is made of. */
static void neutralise(hr_format f, int part, uint8_t *block)
{
    const neutral *u = &neutrals[f];
    size_t bytes = hr_format_block_bytes(f);
    if (part == NUMBERS) {
        memcpy(block + u->head_at, u->head, u->head_n);
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        bool in_head = i >= u->head_at && i < (size_t)u->head_at + u->head_n;
        bool in_high = i >= u->high_at && i < (size_t)u->high_at + u->high_n;
        uint8_t one = in_high ? u->high : u->low;
        if (!in_head) block[i] = part == SCALES ? one : 0;
    }
    bool zeros = hr_format_has_zero_points(f);
    if (part == SCALES && zeros) memset(block + 4, 0, 4);
    else if (part == SCALES && u->has_min) memset(block + u->head_at + 2, 0, 2);
    else if (zeros) memcpy(block, u->head, 4);
}

/* One row of blocks to a part's row: i8 [K], or f32 [K/group]. */
static void part_of_row(const hr_weight *w, int part, const uint8_t *raw, void *to)
{
    int64_t K = w->shape.dim[w->shape.rank - 1], n = hr_format_block(w->format);
    int64_t group = hr_hlo_format_group(w->format);
    size_t bytes = hr_format_block_bytes(w->format);
    for (int64_t b = 0; b < K / n; b++) {
        uint8_t block[MOST_BLOCK];
        float y[MOST_ELEMENTS];
        memcpy(block, raw + (size_t)b * bytes, bytes);
        neutralise(w->format, part, block);
        hr_format_dequantise(w->format, block, 1, y);
        for (int64_t i = 0; part == NUMBERS && i < n; i++) ((int8_t *)to)[b * n + i] = (int8_t)y[i];
        for (int64_t i = 0; part != NUMBERS && i < n / group; i++)
            ((float *)to)[b * (n / group) + i] = y[i * group];
    }
}

static hr_status read_blocks(const hr_hlo_argument *a, void *to)
{
    const hr_weight *w = a->weight;
    int64_t K = w->shape.dim[w->shape.rank - 1], rows = hr_shape_count(w->shape) / K;
    size_t raw_row = hr_format_row_bytes(w->format, K);
    size_t row = hr_hlo_shape_bytes(&a->shape) / (size_t)rows;
    uint8_t *raw = hr_alloc_array0(ROWS_AT_ONCE, raw_row);
    if (!raw) return hr_fail(HR_RESOURCE_EXHAUSTED, "weight %s: reading", w->name);
    hr_status st = HR_OK;
    for (int64_t first = 0; !st && first < rows; first += ROWS_AT_ONCE) {
        int64_t count = rows - first < ROWS_AT_ONCE ? rows - first : ROWS_AT_ONCE;
        st = w->read_rows(w, first, count, raw);
        for (int64_t i = 0; !st && i < count; i++)
            part_of_row(w, a->part, raw + (size_t)i * raw_row,
                        (char *)to + (size_t)(first + i) * row);
    }
    hr_free(raw);
    return st;
}

/* A vector, or a column of scales, as f32. Its reader's rows are as long as its last dim. */
static hr_status read_vector(const hr_weight *w, float *to)
{
    int64_t n = hr_shape_count(w->shape), K = w->shape.dim[w->shape.rank - 1];
    int64_t block = hr_format_block(w->format);
    if (K % block)
        return hr_fail(HR_INVALID_ARGUMENT, "weight %s: %lld numbers are no whole %s blocks",
                       w->name, (long long)K, hr_format_name(w->format));
    uint8_t *raw = hr_alloc_array0((size_t)(n / K), hr_format_row_bytes(w->format, K));
    if (!raw) return hr_fail(HR_RESOURCE_EXHAUSTED, "weight %s: reading", w->name);
    hr_status st = w->read_rows(w, 0, n / K, raw);
    if (!st) hr_format_dequantise(w->format, raw, n / block, to);
    hr_free(raw);
    return st;
}

hr_status hr_hlo_part_read(const hr_hlo_argument *a, void *to)
{
    const hr_weight *w = a->weight;
    if (w->shape.rank == 1) return read_vector(w, to);
    if (w->format == HR_FORMAT_I8C && a->part == SCALES) return read_vector(w->scale, to);
    if (hr_format_is_blocks(w->format)) return read_blocks(a, to);
    int64_t rows = hr_shape_count(w->shape) / w->shape.dim[w->shape.rank - 1];
    return w->read_rows(w, 0, rows, to);
}
