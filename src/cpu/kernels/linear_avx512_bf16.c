/* bf16 rows × bf16 weights by VDPBF16PS, on top of the path avx512, which does all else.
 *
 * The instruction takes a pair of k of 16 columns, as they lie in a panel, and the same pair of a
 * row, broadcast. The odd k is multiplied and added first, then the even one, each sum rounded
 * once; numbers below the normal ones count as zero. The blocks of 32 k are those of pack.h: with
 * one chain over all of K, one row would wait for its sums and not for memory. Eight rows by two
 * panels need ten loads for sixteen multiplications; one panel alone would wait for its loads. */
#include <immintrin.h>

#include "cpu/kernels/linear_bf16.h"
#include "cpu/kernels/linear_finish.h"

enum { C = HR_PACK_COLUMNS, MOST_ROWS = 8, MOST_PANELS = 2, BLOCK_PAIRS = HR_PACK_GROUP / 2 };

#define ALWAYS static inline __attribute__((always_inline))

typedef struct bf16_job {
    const uint16_t *x; /* [.., stride], of the first row */
    int64_t stride, pairs;
    const uint8_t *panel; /* the first of the tile's */
    size_t panel_bytes;
    size_t ahead;    /* bytes to prefetch ahead; 0 = the panels are in cache already */
    float (*out)[C]; /* [rows × panels] */
} bf16_job;

typedef void (*bf16_tile)(const bf16_job *j);

ALWAYS __m512bh pair_of(const uint16_t *x)
{
    int32_t both;
    memcpy(&both, x, sizeof both);
    return (__m512bh)_mm512_set1_epi32(both);
}

ALWAYS void block(const bf16_job *j, int64_t from, int64_t to, int R, int P)
{
    __m512 part[MOST_ROWS * MOST_PANELS];
    for (int i = 0; i < R * P; i++) part[i] = _mm512_setzero_ps();
    for (int64_t pair = from; pair < to; pair++) {
        __m512bh w[MOST_PANELS];
        for (int p = 0; p < P; p++) {
            const uint8_t *line = j->panel + (size_t)p * j->panel_bytes + pair * 64;
            if (j->ahead) __builtin_prefetch(line + j->ahead, 0, 3);
            w[p] = (__m512bh)_mm512_loadu_si512(line);
        }
        for (int r = 0; r < R; r++) {
            __m512bh x = pair_of(j->x + r * j->stride + pair * 2);
            for (int p = 0; p < P; p++)
                part[r * P + p] = _mm512_dpbf16_ps(part[r * P + p], w[p], x);
        }
    }
    for (int i = 0; i < R * P; i++)
        _mm512_store_ps(j->out[i], _mm512_add_ps(_mm512_load_ps(j->out[i]), part[i]));
}

ALWAYS void tile(const bf16_job *j, int R, int P)
{
    memset(j->out, 0, (size_t)(R * P) * sizeof j->out[0]);
    for (int64_t from = 0; from < j->pairs; from += BLOCK_PAIRS)
        block(j, from, from + BLOCK_PAIRS < j->pairs ? from + BLOCK_PAIRS : j->pairs, R, P);
}

#define TILE(R, P)                                                                                 \
    static void tile_##R##_##P(const bf16_job *j)                                                  \
    {                                                                                              \
        tile(j, R, P);                                                                             \
    }
TILE(1, 1)
TILE(2, 1)
TILE(4, 1)
TILE(8, 1)
TILE(4, 2)
TILE(8, 2)
#undef TILE

static bf16_tile tile_of(int n_rows, int n_panels)
{
    switch (n_rows) {
    case 1: return tile_1_1;
    case 2: return tile_2_1;
    case 4: return n_panels == 2 ? tile_4_2 : tile_4_1;
    default: return n_panels == 2 ? tile_8_2 : tile_8_1;
    }
}

static bf16_job job_of(const hr_kernel_args *a, int64_t row, int64_t expert, int64_t panel)
{
    int64_t stride = hr_linear_bf16_stride(a->packed->k);
    return (bf16_job){ .x = (const uint16_t *)a->prep + row * stride,
                       .stride = stride,
                       .pairs = (a->packed->k + 1) / 2,
                       .panel = hr_packed_panel(a->packed, expert, panel),
                       .panel_bytes = a->packed->panel_bytes };
}

static void walk_experts(const hr_kernel_args *a, int64_t n_rows, int64_t from, int64_t to)
{
    const int32_t *expert = a->in[3];
    _Alignas(64) float out[1][C];
    for (int64_t panel = from; panel < to; panel++)
        for (int64_t row = 0; row < n_rows; row++) {
            if (expert[row] < 0 || expert[row] >= a->packed->experts) {
                hr_linear_finish_zero(a, row, panel);
                continue;
            }
            bf16_job j = job_of(a, row, expert[row], panel);
            j.out = out;
            tile_1_1(&j);
            hr_linear_finish(a, row, panel, out[0]);
        }
}

/* One tile of rows over the panels of a block. One or two rows follow a single stream (see
 * linear_walk_body.h); the first tile is the one that meets memory. */
static void walk_block(const hr_kernel_args *a, int64_t row, int count, int64_t from, int64_t to)
{
    _Alignas(64) float out[MOST_ROWS * MOST_PANELS][C];
    for (int64_t panel = from; panel < to;) {
        int wide = count > 2 && to - panel >= MOST_PANELS ? MOST_PANELS : 1;
        bf16_job j = job_of(a, row, 0, panel);
        j.out = out;
        j.ahead = row || count <= 2 ? 0 : 2048;
        tile_of(count, wide)(&j);
        for (int i = 0; i < count * wide; i++)
            hr_linear_finish(a, row + i / wide, panel + i % wide, out[i]);
        panel += wide;
    }
}

static int tile_rows(int64_t left)
{
    if (left >= MOST_ROWS) return MOST_ROWS;
    return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

void hr_kernel_linear_avx512(const hr_kernel_args *a, int64_t from, int64_t to);
void hr_kernel_linear_prep_avx512(const hr_kernel_args *a, int64_t from, int64_t to);
void hr_kernel_linear_avx512_bf16(const hr_kernel_args *a, int64_t from, int64_t to);
void hr_kernel_linear_prep_avx512_bf16(const hr_kernel_args *a, int64_t from, int64_t to);

void hr_kernel_linear_avx512_bf16(const hr_kernel_args *a, int64_t from, int64_t to)
{
    if (!hr_linear_is_bf16(a)) {
        hr_kernel_linear_avx512(a, from, to);
        return;
    }
    int64_t n_rows = hr_live_rows(a->node->in[0], a->live);
    if (a->in[3]) {
        walk_experts(a, n_rows, from, to);
        return;
    }
    int64_t block = hr_linear_block(a->packed->panel_bytes, MOST_PANELS);
    for (int64_t first = from; first < to; first += block)
        for (int64_t row = 0; row < n_rows;) {
            int count = tile_rows(n_rows - row);
            walk_block(a, row, count, first, first + block < to ? first + block : to);
            row += count;
        }
}

void hr_kernel_linear_prep_avx512_bf16(const hr_kernel_args *a, int64_t from, int64_t to)
{
    if (hr_linear_is_bf16(a)) hr_linear_prep_bf16(a, from, to);
    else hr_kernel_linear_prep_avx512(a, from, to);
}
