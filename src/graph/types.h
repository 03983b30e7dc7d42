/* Dtypes, weight formats, shapes: the words that every room above base shares. */
#ifndef HEADRACE_GRAPH_TYPES_H
#define HEADRACE_GRAPH_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

/* X(NAME, printed name as in StableHLO, bytes) */
#define HR_DTYPE_LIST(X)                                                                           \
    X(F32, "f32", 4)                                                                               \
    X(BF16, "bf16", 2)                                                                             \
    X(F16, "f16", 2)                                                                               \
    X(I8, "i8", 1)                                                                                 \
    X(U8, "ui8", 1)                                                                                \
    X(U16, "ui16", 2)                                                                              \
    X(I32, "i32", 4)                                                                               \
    X(U32, "ui32", 4)

typedef enum hr_dtype {
#define HR_DTYPE_ENUM(name, text, bytes) HR_DTYPE_##name,
    HR_DTYPE_LIST(HR_DTYPE_ENUM)
#undef HR_DTYPE_ENUM
} hr_dtype;

const char *hr_dtype_name(hr_dtype d);
size_t hr_dtype_size(hr_dtype d); /* bytes */
static inline bool hr_dtype_is_float(hr_dtype d)
{
    return d == HR_DTYPE_F32 || d == HR_DTYPE_BF16 || d == HR_DTYPE_F16;
}

/* How a weight's rows lie in its checkpoint. X(NAME, text, elements per block, bytes per block).
 * Block layouts: the GGUF format document and ggml's block structs of the same names. I8C is int8
 * per output channel (compressed-tensors w8a8), its f32 scales in hr_weight.scale. I4G is what
 * compressed-tensors, GPTQ and AWQ keep in three orders: 4-bit codes in groups of 32, 64 or 128,
 * f32 scale, u32 zero point z of 0 to 16, then per 32 columns 16 bytes of codes as Q4_0 has them;
 * a number is scale * (code - z). */
#define HR_FORMAT_LIST(X)                                                                          \
    X(F32, "F32", 1, 4)                                                                            \
    X(F16, "F16", 1, 2)                                                                            \
    X(BF16, "BF16", 1, 2)                                                                          \
    X(I8C, "I8C", 1, 1)                                                                            \
    X(Q8_0, "Q8_0", 32, 34)                                                                        \
    X(Q4_0, "Q4_0", 32, 18)                                                                        \
    X(Q4_1, "Q4_1", 32, 20)                                                                        \
    X(Q5_0, "Q5_0", 32, 22)                                                                        \
    X(Q5_1, "Q5_1", 32, 24)                                                                        \
    X(Q4_K, "Q4_K", 256, 144)                                                                      \
    X(Q5_K, "Q5_K", 256, 176)                                                                      \
    X(Q6_K, "Q6_K", 256, 210)                                                                      \
    X(I4G32, "I4G32", 32, 24)                                                                      \
    X(I4G64, "I4G64", 64, 40)                                                                      \
    X(I4G128, "I4G128", 128, 72)

typedef enum hr_format {
#define HR_FORMAT_ENUM(name, text, elements, bytes) HR_FORMAT_##name,
    HR_FORMAT_LIST(HR_FORMAT_ENUM)
#undef HR_FORMAT_ENUM
} hr_format;

const char *hr_format_name(hr_format f);
int64_t hr_format_block(hr_format f);        /* elements per block */
size_t hr_format_block_bytes(hr_format f);   /* bytes per block */
bool hr_format_is_blocks(hr_format f);       /* blocks with scales of their own: GGUF's, I4G */
bool hr_format_has_zero_points(hr_format f); /* I4G */
enum { HR_I4G_HEAD = 8 };                    /* bytes of its scale and zero point */
/* Bytes of one row of k elements; k is a multiple of the block (checked at load). */
size_t hr_format_row_bytes(hr_format f, int64_t k);
/* n whole blocks to f32, the declared meaning of each format; scalar, exact to the last bit of the
 * f32 formula given in the format's source. `from` needs no alignment. */
void hr_format_dequantise(hr_format f, const void *from, int64_t blocks, float *to);

#define HR_MAX_RANK 4
typedef struct hr_shape {
    int rank;
    int64_t dim[HR_MAX_RANK];
} hr_shape;

#define HR_SHAPE(...)                                                                              \
    ((hr_shape){ .rank = (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)),              \
                 .dim = { __VA_ARGS__ } })

int64_t hr_shape_count(hr_shape s); /* product; 1 for rank 0 */
bool hr_shape_eq(hr_shape a, hr_shape b);
/* Product of the dims after the first: the length of one row. */
int64_t hr_shape_row(hr_shape s);

/* Which run-time count bounds dim 0: rows past it are padding, never computed natively. */
typedef enum hr_live {
    HR_LIVE_ALL,    /* every row of dim 0 is real */
    HR_LIVE_TOKENS, /* tokens of this step */
    HR_LIVE_ROWS,   /* sampler rows: (request, position) pairs of this step */
    HR_LIVE_COUNT,
} hr_live;

/* Which rows a quantised matrix was made for. */
typedef enum hr_weight_rows {
    HR_WEIGHT_ROWS_ANY,   /* what the build says of its format */
    HR_WEIGHT_ROWS_FLOAT, /* as they are */
    HR_WEIGHT_ROWS_INT8,  /* int8, one scale per row */
} hr_weight_rows;

/* A checkpoint's tensor, not yet read. Owned by the model, borrowed by graphs and backends; a
 * backend reads and packs it once, however many programs use it. */
typedef struct hr_weight hr_weight;
struct hr_weight {
    const char *name; /* canonical Hugging Face name, "model.layers.0.mlp.up_proj.weight" */
    hr_shape shape;   /* [N] or [N,K] (K columns contiguous) or [E,N,K] (experts, adapters) */
    hr_format format;
    hr_weight_rows rows;    /* of a matrix that the checkpoint's linears multiply by */
    const hr_weight *scale; /* I8C: f32 [N], else NULL */
    /* Raw row bytes of rows [first, first + count) of the tensor seen as [product, K], to `to`
     * (count × hr_format_row_bytes). Thread-safe; a short read is DATA_LOSS. */
    hr_status (*read_rows)(const hr_weight *w, int64_t first, int64_t count, void *to);
    const void *source; /* the reader's own; borrowed from the model */
    struct {
        int axis, rank, count; /* this is slice `rank` of `count` along `axis`; count 0 = whole. A
                                  graph for n devices names slice 0 for all: device r reads slice
                                  r * count / n, through a copy of this with that rank */
    } shard;
};

#endif
