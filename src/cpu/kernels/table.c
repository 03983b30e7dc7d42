/* The kernel table: kernels.def made into rows, one per op and instruction set.
 *
 * Start-up looks kernels up; items and grain are asked by the engine thread at every step, since
 * they depend on live counts. A chunk is worth another thread when it takes longer than waking the
 * thread does, a few microseconds: about CHUNK_ELEMENTS copied elements. */
#include "cpu/kernels/table.h"

#include "cpu/kernels/attention.h"
#include "cpu/kernels/linear.h"

enum { CHUNK_ELEMENTS = 32768 };

/* ---- rules of kernels.def: the number of items, the elements of one ------------------------- */

static int64_t live_rows(const hr_node *n, const int64_t *live)
{
    return hr_live_rows(n->out[0], live);
}

static int64_t by_elements(int64_t elements, int32_t cost)
{
    int64_t grain = CHUNK_ELEMENTS / (elements * cost + 1);
    return grain < 1 ? 1 : grain;
}

static inline int64_t items_ROWS(const hr_node *n, const int64_t *live)
{
    return live_rows(n, live);
}
static inline int64_t grain_ROWS(const hr_node *n, const int64_t *live, int32_t cost)
{
    (void)live;
    int64_t in = n->in[0] ? hr_shape_row(n->in[0]->shape) : 0;
    int64_t out = hr_shape_row(n->out[0]->shape);
    return by_elements(in > out ? in : out, cost);
}

#define items_OWN_ROW          items_ROWS
#define grain_OWN_ROW          grain_ROWS
#define IS_OWN_ROW_OWN_ROW     true
#define IS_OWN_ROW_ROWS        false
#define IS_OWN_ROW_ROW_BLOCKS  false
#define IS_OWN_ROW_UPDATES     false
#define IS_OWN_ROW_ONE         false
#define IS_OWN_ROW_TOKEN_HEADS false
#define IS_OWN_ROW_PANELS      false

static inline int64_t items_ROW_BLOCKS(const hr_node *n, const int64_t *live)
{
    int64_t columns = hr_shape_row(n->out[0]->shape);
    return live_rows(n, live) * ((columns + HR_KERNEL_BLOCK - 1) / HR_KERNEL_BLOCK);
}
static inline int64_t grain_ROW_BLOCKS(const hr_node *n, const int64_t *live, int32_t cost)
{
    (void)n, (void)live;
    return by_elements(HR_KERNEL_BLOCK, cost);
}

static inline int64_t items_UPDATES(const hr_node *n, const int64_t *live)
{
    return hr_live_rows(n->in[1], live);
}
static inline int64_t grain_UPDATES(const hr_node *n, const int64_t *live, int32_t cost)
{
    (void)live;
    return by_elements(hr_shape_row(n->in[1]->shape), cost);
}

static int64_t items_ONE(const hr_node *n, const int64_t *live)
{
    (void)n, (void)live;
    return 1;
}
static int64_t grain_ONE(const hr_node *n, const int64_t *live, int32_t cost)
{
    (void)n, (void)live, (void)cost;
    return 1;
}

/* attention: q [T,N,D], k_cache [blocks,block,KV,D]. Neighbouring tokens of a head share the keys
 * that a chunk of items has loaded, so chunks grow with the step; a step of few tokens has few
 * items and splits as finely as it can. */
static inline int64_t items_TOKEN_HEADS(const hr_node *n, const int64_t *live)
{
    return hr_live_rows(n->in[0], live) * n->in[1]->shape.dim[2];
}
static inline int64_t grain_TOKEN_HEADS(const hr_node *n, const int64_t *live, int32_t cost)
{
    (void)cost;
    int64_t grain = hr_live_rows(n->in[0], live) / 8;
    return grain < 1 ? 1 : grain > 16 ? 16 : grain;
}

/* linear: panels of output columns; every live row meets every panel. A panel is streamed from
 * memory once, and then costs its multiplications per row. */
static inline int64_t items_PANELS(const hr_node *n, const int64_t *live)
{
    if (hr_live_rows(n->in[0], live) <= 0) return 0;
    return (n->out[0]->shape.dim[1] + HR_PACK_COLUMNS - 1) / HR_PACK_COLUMNS;
}
static inline int64_t grain_PANELS(const hr_node *n, const int64_t *live, int32_t cost)
{
    hr_format f = n->in[1]->weight->format;
    int64_t k = n->in[0]->shape.dim[1], rows = hr_live_rows(n->in[0], live);
    int64_t panel = (int64_t)hr_format_row_bytes(f, k) * HR_PACK_COLUMNS;
    int64_t per_row = hr_linear_kind_of(n, f) == HR_LINEAR_FLOAT ? k * 4 : k / 2;
    return by_elements(panel / 4 + rows * per_row, cost);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* M(path, …) for each path of this architecture that has a kernel for every op. */
#if defined(__x86_64__)
#define PATHS(M, ...) M(scalar, __VA_ARGS__) M(avx2, __VA_ARGS__) M(avx512, __VA_ARGS__)
#elif defined(__aarch64__)
#define PATHS(M, ...) M(scalar, __VA_ARGS__) M(neon, __VA_ARGS__)
#else
#define PATHS(M, ...) M(scalar, __VA_ARGS__)
#endif
#define DECLARE(isa, name)                                                                         \
    void hr_kernel_##name##_##isa(const hr_kernel_args *a, int64_t from, int64_t to);

#define HR_K(op, items, cost, place) PATHS(DECLARE, op)
#include "cpu/kernels/kernels.def"
#undef HR_K
PATHS(DECLARE, linear_prep)
PATHS(DECLARE, attention_parts)
DECLARE(neon_dotprod, linear)
DECLARE(avx512_bf16, linear)
DECLARE(avx512_bf16, linear_prep)
DECLARE(amx, linear)
DECLARE(amx, linear_prep)

#define ROW(isa, op, rule, cost, place)                                                            \
    [HR_ISA_##isa][HR_OP_##op] = { hr_kernel_##op##_##isa, items_##rule,     grain_##rule, cost,   \
                                   HR_PLACE_##place,       IS_OWN_ROW_##rule },
static const hr_kernel kernels[HR_ISA_COUNT][HR_OP_COUNT] = {
#define HR_K(op, rule, cost, place) PATHS(ROW, op, rule, cost, place)
#include "cpu/kernels/kernels.def"
#undef HR_K
#if defined(__aarch64__)
    ROW(neon_dotprod, linear, PANELS, 1, APART)
#elif defined(__x86_64__)
    ROW(avx512_bf16, linear, PANELS, 1, APART) ROW(amx, linear, PANELS, 1, APART)
#endif
};

/* Where a path takes what it has no kernel of its own for. */
static const hr_isa extends[HR_ISA_COUNT] = {
    [HR_ISA_neon_dotprod] = HR_ISA_neon,
    [HR_ISA_avx512_bf16] = HR_ISA_avx512,
    [HR_ISA_amx] = HR_ISA_avx512,
};

static const hr_kernel *of_path(const hr_kernel *by_path, hr_isa isa)
{
    return by_path[isa].fn ? &by_path[isa] : &by_path[extends[isa]];
}

/* Two that are no ops of the graph: the plan puts them before those that read what they leave, and
 * their node is theirs. */
#define BEFORE(isa, name, ...) [HR_ISA_##isa] = { .fn = hr_kernel_##name##_##isa, __VA_ARGS__ },

#define PREP(isa, name) BEFORE(isa, name, .items = items_ROWS, .grain = grain_ROWS, .cost = 1)

const hr_kernel *hr_kernel_linear_prep(hr_isa isa)
{
    static const hr_kernel by_path[HR_ISA_COUNT] = {
        PATHS(PREP, linear_prep)
#if defined(__x86_64__)
            PREP(avx512_bf16, linear_prep) PREP(amx, linear_prep)
#endif
    };
    return of_path(by_path, isa);
}

/* An item is one range of a request for one key head. */
static int64_t items_of_parts(const hr_kernel_args *a)
{
    hr_attention_split s = { .request = -1 };
    int64_t ranges = 0;
    while (hr_attention_next_split(a, &s)) ranges += s.ranges;
    return ranges * a->node->in[1]->shape.dim[2];
}

const hr_kernel *hr_kernel_attention_parts(hr_isa isa)
{
    static const hr_kernel by_path[HR_ISA_COUNT] = { PATHS(
        BEFORE, attention_parts, .grain = grain_ONE, .cost = 1, .items_held = items_of_parts) };
    return of_path(by_path, isa);
}

const hr_kernel *hr_kernel_lookup(hr_op op, hr_isa isa)
{
    const hr_kernel *k = &kernels[isa][op];
    if (!k->fn) k = &kernels[extends[isa]][op];
    return k->fn ? k : NULL;
}
