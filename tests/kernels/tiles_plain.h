/* AMX tiles in plain C, in place of cpu/kernels/tiles_amx.h: what the instructions do by Intel's
 * manual (SDM vol. 2, LDTILECFG, TILELOADD, TDPBSUD, TDPBF16PS), and an abort where they fault. */
#ifndef HEADRACE_TESTS_KERNELS_TILES_PLAIN_H
#define HEADRACE_TESTS_KERNELS_TILES_PLAIN_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

enum { TILES = 8, TILE_ROWS = 16, TILE_ROW_BYTES = 64 };

static _Thread_local tile_config tile_now;
static _Thread_local uint8_t tile_data[TILES][TILE_ROWS][TILE_ROW_BYTES];

static inline void tile_check(int right, const char *what)
{
    if (right) return;
    fprintf(stderr, "tiles: %s\n", what);
    abort();
}

static inline void tile_configure(const tile_config *c)
{
    static const uint8_t none[14];
    tile_check(sizeof *c == 64, "a configuration is 64 bytes");
    tile_check(c->palette == 1 && !c->start_row && !memcmp(c->reserved, none, sizeof none),
               "palette 1, from row 0, reserved bytes zero");
    for (int t = 0; t < 16; t++) {
        tile_check(c->rows[t] <= TILE_ROWS && c->row_bytes[t] <= TILE_ROW_BYTES, "too large");
        tile_check(!c->rows[t] == !c->row_bytes[t], "rows without bytes");
        tile_check(t < TILES || !c->rows[t], "there are eight tiles");
    }
    tile_now = *c;
    memset(tile_data, 0, sizeof tile_data);
}

static inline void tile_release(void)
{
    memset(&tile_now, 0, sizeof tile_now);
}

static inline void tile_is_there(int t)
{
    tile_check(tile_now.palette == 1 && tile_now.rows[t], "not configured");
}

static inline void tile_zero(int t)
{
    tile_is_there(t);
    memset(tile_data[t], 0, sizeof tile_data[t]);
}

static inline void tile_load(int t, const void *from, int64_t stride)
{
    tile_zero(t);
    for (int r = 0; r < tile_now.rows[t]; r++)
        memcpy(tile_data[t][r], (const uint8_t *)from + r * stride, tile_now.row_bytes[t]);
}

static inline void tile_store(int t, void *to, int64_t stride)
{
    tile_is_there(t);
    for (int r = 0; r < tile_now.rows[t]; r++)
        memcpy((uint8_t *)to + r * stride, tile_data[t][r], tile_now.row_bytes[t]);
}

static inline void tile_fits(int c, int a, int b)
{
    tile_is_there(c), tile_is_there(a), tile_is_there(b);
    tile_check(c != a && c != b && a != b, "three tiles");
    tile_check(tile_now.rows[c] == tile_now.rows[a] &&
                   tile_now.row_bytes[c] == tile_now.row_bytes[b] &&
                   tile_now.row_bytes[a] == tile_now.rows[b] * 4 && tile_now.row_bytes[c] % 4 == 0,
               "shapes that do not fit");
}

static inline uint32_t tile_word(int t, int row, int n)
{
    uint32_t w;
    memcpy(&w, &tile_data[t][row][n * 4], sizeof w);
    return w;
}

static inline void tile_dot_s8_u8(int c, int a, int b)
{
    tile_fits(c, a, b);
    for (int m = 0; m < tile_now.rows[c]; m++)
        for (int n = 0; n < tile_now.row_bytes[c] / 4; n++) {
            uint32_t sum = tile_word(c, m, n);
            for (int k = 0; k < tile_now.rows[b]; k++)
                for (int i = 0; i < 4; i++)
                    sum +=
                        (uint32_t)((int8_t)tile_data[a][m][k * 4 + i] * tile_data[b][k][n * 4 + i]);
            memcpy(&tile_data[c][m][n * 4], &sum, sizeof sum);
        }
}

/* Numbers below the normal ones count as zero, before and after. */
static inline float tile_flush(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

static inline float tile_bf16(int t, int row, int n)
{
    uint16_t h;
    memcpy(&h, &tile_data[t][row][n * 2], sizeof h);
    return tile_flush(hr_bf16_to_f32(h));
}

static inline void tile_dot_bf16(int c, int a, int b)
{
    tile_fits(c, a, b);
    for (int m = 0; m < tile_now.rows[c]; m++)
        for (int n = 0; n < tile_now.row_bytes[c] / 4; n++) {
            float part[2] = { 0, 0 }, sum;
            for (int k = 0; k < tile_now.rows[b]; k++)
                for (int i = 0; i < 2; i++)
                    part[i] = tile_flush(
                        fmaf(tile_bf16(a, m, k * 2 + i), tile_bf16(b, k, n * 2 + i), part[i]));
            memcpy(&sum, &tile_data[c][m][n * 4], sizeof sum);
            sum = tile_flush(tile_flush(sum) + tile_flush(part[0] + part[1]));
            memcpy(&tile_data[c][m][n * 4], &sum, sizeof sum);
        }
}

#define TILE_ZERO(t)               tile_zero(t)
#define TILE_LOAD(t, from, stride) tile_load(t, from, stride)
#define TILE_STORE(t, to, stride)  tile_store(t, to, stride)
#define TILE_DOT_S8_U8(c, a, b)    tile_dot_s8_u8(c, a, b)
#define TILE_DOT_BF16(c, a, b)     tile_dot_bf16(c, a, b)

#endif
