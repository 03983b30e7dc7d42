/* AMX tiles: the eight registers of up to 16 rows × 64 bytes, by their instructions.
 *
 * linear_amx_body.h computes with these names; tests/kernels/tiles_plain.h gives them in plain C,
 * so that the kernels are tested on machines that have no tiles. Tile numbers are constants. The
 * compiler does not know what a configuration or a tile reads (gcc 12 declares 8 of 64 bytes and
 * none): all that was stored must be in memory before. */
#ifndef HEADRACE_CPU_KERNELS_TILES_AMX_H
#define HEADRACE_CPU_KERNELS_TILES_AMX_H

#include <immintrin.h>
#include <stdint.h>

/* The operand of LDTILECFG (Intel SDM vol. 1, chapter 18). A tile of no rows is not there. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

#define TILE_STORED __asm__ volatile("" ::: "memory")

static inline void tile_configure(const tile_config *c)
{
    TILE_STORED;
    _tile_loadconfig(c);
}
static inline void tile_release(void)
{
    _tile_release();
}
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_LOAD(t, from, stride)                                                                 \
    do {                                                                                           \
        TILE_STORED;                                                                               \
        _tile_loadd(t, from, stride);                                                              \
    } while (0)
#define TILE_STORE(t, to, stride) _tile_stored(t, to, stride)
/* c[m][n] += Σ a[m][4k+i] · b[k][4n+i], signed a, unsigned b, i < 4; wraps */
#define TILE_DOT_S8_U8(c, a, b) _tile_dpbsud(c, a, b)
/* c[m][n] += Σ a[m][2k] · b[k][2n] + Σ a[m][2k+1] · b[k][2n+1] */
#define TILE_DOT_BF16(c, a, b) _tile_dpbf16ps(c, a, b)

#endif
