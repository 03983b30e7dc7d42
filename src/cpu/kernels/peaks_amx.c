/* Dot products on tiles, AMX-INT8 and AMX-BF16: four tiles of sums, none of which waits. */
#include "cpu/kernels/peaks.h"
#include "cpu/kernels/tiles_amx.h"

enum { TILES = 8, M = 16, LINE = 64 };

const int64_t hr_peak_i8_ops_amx = INT64_C(2) * 4 * M * M * 64;
const int64_t hr_peak_bf16_ops_amx = INT64_C(2) * 4 * M * M * 32;

static void begin(void)
{
    tile_config c = { .palette = 1 };
    for (int t = 0; t < TILES; t++) {
        c.rows[t] = M;
        c.row_bytes[t] = LINE;
    }
    tile_configure(&c);
}

static float end(void)
{
    float sums[M * LINE / 4];
    TILE_STORE(0, sums, LINE);
    tile_release();
    return sums[0];
}

float hr_peak_i8_amx(const void *from, int64_t n)
{
    (void)from;
    begin();
    for (int64_t round = 0; round < n; round++) {
        TILE_DOT_S8_U8(0, 4, 6);
        TILE_DOT_S8_U8(1, 4, 7);
        TILE_DOT_S8_U8(2, 5, 6);
        TILE_DOT_S8_U8(3, 5, 7);
    }
    return end();
}

float hr_peak_bf16_amx(const void *from, int64_t n)
{
    (void)from;
    begin();
    for (int64_t round = 0; round < n; round++) {
        TILE_DOT_BF16(0, 4, 6);
        TILE_DOT_BF16(1, 4, 7);
        TILE_DOT_BF16(2, 5, 6);
        TILE_DOT_BF16(3, 5, 7);
    }
    return end();
}
