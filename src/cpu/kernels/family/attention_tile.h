/* The two products of attention on one chunk of keys, for a handful of rows at a time.
 *
 * Bits must not depend on which rows share a tile. A score is, per block of DIM_BLOCK dims in
 * ascending order, a chain of multiply-adds over ascending d; with keys in the lanes it is the same
 * chain whatever rows are computed beside it. The weighted sum of a chunk is one chain over its
 * keys in ascending position, with dims in the lanes; a key that a row does not see has weight
 * zero and leaves the chain as it is (a zero's sign apart, which the end of attention.c clears). */
#ifndef HEADRACE_CPU_KERNELS_FAMILY_ATTENTION_TILE_H
#define HEADRACE_CPU_KERNELS_FAMILY_ATTENTION_TILE_H

#include "cpu/kernels/vec.h"

enum {
    CHUNK = 64,     /* keys, at absolute positions: a multiple of V_LANES */
    DIM_BLOCK = 32, /* dims of one block of a score: a multiple of V_LANES */
    SLICE = 128,    /* dims of values converted at a time */
    MOST_ROWS = 4,  /* rows of the register tile */
    MOST_VECS = V_LANES == 16 ? 4 : 2,
};

/* Keys [first, last) of a chunk, 0 ≤ first < last ≤ CHUNK, and where their rows start. */
typedef struct keys {
    hr_dtype dtype;
    int64_t first, last;
    const char *row[CHUNK]; /* NULL outside [first, last) */
    float scale[CHUNK];     /* of codes; 0 outside [first, last) */
} keys;

/* Dims [d, d + n) of all keys of the chunk as t [n][CHUNK] in f32; zeros where there is no key. */
V_INLINE void load_transposed(hr_dtype dtype, const keys *k, int64_t d, int64_t n, float *t)
{
    for (int64_t j = k->first / V_LANES * V_LANES; j < k->last; j += V_LANES)
        for (int64_t i = 0; i < n; i += V_LANES) {
            vf r[V_LANES];
            int64_t left = n - i < V_LANES ? n - i : V_LANES;
            for (int l = 0; l < V_LANES; l++) {
                const char *row = k->row[j + l];
                r[l] = row ? v_load_upto(dtype, row, d + i, left) : v_set1(0.0f);
            }
            v_transpose(r);
            for (int l = 0; l < left; l++) v_store(t + (i + l) * CHUNK + j, r[l]);
        }
}

/* Adds the block's part of the scores of R rows and NV vectors of keys to s [row][CHUNK]. */
V_INLINE void score_tile(int R, int NV, const float *q, int64_t q_stride, const float *t, int64_t n,
                         float *s, bool start)
{
    vf acc[MOST_ROWS][MOST_VECS];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++) acc[r][v] = v_set1(0.0f);
    for (int64_t d = 0; d < n; d++) {
        vf k[MOST_VECS];
        for (int v = 0; v < NV; v++) k[v] = v_load(t + d * CHUNK + v * V_LANES);
        for (int r = 0; r < R; r++) {
            vf x = v_set1(q[r * q_stride + d]);
            for (int v = 0; v < NV; v++) acc[r][v] = v_madd(x, k[v], acc[r][v]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++) {
            float *at = s + r * CHUNK + v * V_LANES;
            v_store(at, start ? acc[r][v] : v_add(v_load(at), acc[r][v]));
        }
}

V_INLINE void score_rows(int R, const keys *k, const float *q, int64_t q_stride, const float *t,
                         int64_t n, float *s, bool start)
{
    int64_t step = MOST_VECS * V_LANES;
    for (int64_t j = k->first / step * step; j < k->last; j += step)
        score_tile(R, MOST_VECS, q, q_stride, t + j, n, s + j, start);
}

/* o [row][o_stride] = o · alpha[row] + Σ over keys p[row][key] · value[key], for R rows and NV
 * vectors of dims from d on. `n` < V_LANES cuts the only vector short. */
V_INLINE void mix_tile(hr_dtype dtype, int R, int NV, const keys *k, int64_t d, int64_t n,
                       const float *p, const float *alpha, float *o, int64_t o_stride)
{
    vf acc[MOST_ROWS][MOST_VECS];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++) acc[r][v] = v_set1(0.0f);
    for (int64_t j = k->first; j < k->last; j++) {
        vf x[MOST_VECS];
        for (int v = 0; v < NV; v++) x[v] = v_load_upto(dtype, k->row[j], d + v * V_LANES, n);
        for (int r = 0; r < R; r++) {
            vf w = v_set1(p[r * CHUNK + j]);
            for (int v = 0; v < NV; v++) acc[r][v] = v_madd(w, x[v], acc[r][v]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++) {
            int64_t at = r * o_stride + v * V_LANES;
            vf before = v_load_upto(HR_DTYPE_F32, o, at, n);
            v_store_upto(HR_DTYPE_F32, o, at, v_madd(before, v_set1(alpha[r]), acc[r][v]), n);
        }
}

/* Dims [0, n) of the values' rows. */
V_INLINE void mix_rows(hr_dtype dtype, int R, const keys *k, int64_t n, const float *p,
                       const float *alpha, float *o, int64_t o_stride)
{
    int64_t d = 0;
    for (; d + MOST_VECS * V_LANES <= n; d += MOST_VECS * V_LANES)
        mix_tile(dtype, R, MOST_VECS, k, d, V_LANES, p, alpha, o + d, o_stride);
    for (; d + V_LANES <= n; d += V_LANES)
        mix_tile(dtype, R, 1, k, d, V_LANES, p, alpha, o + d, o_stride);
    if (d < n) mix_tile(dtype, R, 1, k, d, n - d, p, alpha, o + d, o_stride);
}

/* ---- any number of rows, by register tiles ----------------------------------------------------
 */

static void score_all(const keys *k, int64_t rows, const float *q, int64_t q_stride, const float *t,
                      int64_t n, float *s, bool start)
{
    int64_t r = 0;
    for (; r + MOST_ROWS <= rows; r += MOST_ROWS)
        score_rows(MOST_ROWS, k, q + r * q_stride, q_stride, t, n, s + r * CHUNK, start);
    q += r * q_stride;
    s += r * CHUNK;
    if (rows - r == 3) score_rows(3, k, q, q_stride, t, n, s, start);
    else if (rows - r == 2) score_rows(2, k, q, q_stride, t, n, s, start);
    else if (rows - r == 1) score_rows(1, k, q, q_stride, t, n, s, start);
}

V_INLINE void mix_all(hr_dtype dtype, const keys *k, int64_t rows, int64_t n, const float *p,
                      const float *alpha, float *o, int64_t o_stride)
{
    int64_t r = 0;
    for (; r + MOST_ROWS <= rows; r += MOST_ROWS)
        mix_rows(dtype, MOST_ROWS, k, n, p + r * CHUNK, alpha + r, o + r * o_stride, o_stride);
    p += r * CHUNK;
    alpha += r;
    o += r * o_stride;
    if (rows - r == 3) mix_rows(dtype, 3, k, n, p, alpha, o, o_stride);
    else if (rows - r == 2) mix_rows(dtype, 2, k, n, p, alpha, o, o_stride);
    else if (rows - r == 1) mix_rows(dtype, 1, k, n, p, alpha, o, o_stride);
}

#endif
