/* Checkpoint rows to panels, and single rows back.
 *
 * Runs on the compute pool at the first compile that uses a weight; panels are independent. Each
 * panel reads its 16 rows, takes every group of 32 k apart into 16 × 32 unsigned codes, and puts
 * them together in the order that kernels multiply in (pack.h). A quad of codes is one 32-bit word
 * throughout, so the transposition moves words, never bytes; bit planes are gathered four bits at
 * a time by one multiplication. */
#include "cpu/pack.h"

#include <string.h>

#include "base/half.h"

enum { C = HR_PACK_COLUMNS, G = HR_PACK_GROUP };

static uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static uint16_t load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* ---- sizes ---------------------------------------------------------------------------------- */

static bool panel_sizes(hr_packed *p)
{
    hr_pack_form f = hr_pack_form_of(p->format);
    size_t k = (size_t)p->k;
    if (p->format == HR_FORMAT_BF16) k += k % 2;
    if (!f.group_bytes)
        return hr_mul_add(k, C * hr_format_block_bytes(p->format), 63, &p->panel_bytes);
    size_t groups = (k + G - 1) / G;
    return hr_mul_add((groups + f.span - 1) / f.span, f.span_bytes,
                      f.groups_per_scale ? 0 : f.scale_bytes, &p->panel_bytes);
}

static hr_status too_large(const hr_weight *w)
{
    return hr_fail(HR_RESOURCE_EXHAUSTED, "weight %s: too large to pack", w->name);
}

hr_status hr_pack_measure(const hr_weight *w, hr_packed *p)
{
    hr_shape s = w->shape;
    *p = (hr_packed){ .format = w->format, .experts = 1, .n = s.dim[0] };
    for (int i = 0; i < s.rank; i++)
        if (s.dim[i] <= 0) return hr_fail(HR_INVALID_ARGUMENT, "weight %s: empty", w->name);
    if (s.rank <= 1) {
        if (s.rank == 0) p->n = 1;
        return hr_mul_add((size_t)p->n, sizeof(float), 0, &p->bytes) ? HR_OK : too_large(w);
    }
    if (s.rank == 3) {
        p->experts = s.dim[0];
        p->n = s.dim[1];
    }
    p->k = s.dim[s.rank - 1];
    p->panels = p->n / C + (p->n % C != 0);
    size_t all;
    if (!panel_sizes(p)) return too_large(w);
    p->panel_bytes &= ~(size_t)63;
    if (!hr_mul_add((size_t)p->experts, (size_t)p->panels, 0, &all) ||
        !hr_mul_add(all, p->panel_bytes, 0, &p->bytes))
        return too_large(w);
    return HR_OK;
}

size_t hr_pack_scratch(const hr_weight *w)
{
    return C * hr_format_row_bytes(w->format, w->shape.dim[w->shape.rank - 1]);
}

/* ---- codes ---------------------------------------------------------------------------------- */

static void nibbles_of(const uint8_t *q, uint8_t u[G])
{
    for (int i = 0; i < 16; i++) {
        u[i] = q[i] & 15;
        u[16 + i] = q[i] >> 4;
    }
}

static void add_high_bits(uint32_t high, uint8_t u[G])
{
    for (int i = 0; i < G; i++) u[i] = (uint8_t)(u[i] | (high >> i & 1) << 4);
}

static void codes_q6_k(const uint8_t *b, int g, uint8_t u[G])
{
    const uint8_t *low = b + g / 4 * 64 + g % 2 * 32, *high = b + 128 + g / 4 * 32;
    int low_shift = g % 4 / 2 * 4, high_shift = g % 4 * 2;
    for (int i = 0; i < G; i++)
        u[i] = (uint8_t)((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4);
}

static const uint8_t *i4g_codes(hr_format f, const uint8_t *row, int64_t g)
{
    int64_t groups = hr_format_block(f) / G; /* of a block */
    return row + (size_t)(g / groups) * hr_format_block_bytes(f) + HR_I4G_HEAD + g % groups * 16;
}

/* Codes of group g of one checkpoint row, k of them valid. */
static void codes_of(hr_format f, const uint8_t *row, int64_t g, int64_t k, uint8_t u[G])
{
    size_t super = (size_t)(g / HR_PACK_SUPER);
    int in_super = (int)(g % HR_PACK_SUPER);
    const uint8_t *b;
    switch (f) {
    case HR_FORMAT_F32:
    case HR_FORMAT_F16:
    case HR_FORMAT_BF16: return; /* no codes */
    case HR_FORMAT_I8C:
        memset(u, 0, G);
        for (int64_t i = 0; i < G && g * G + i < k; i++) u[i] = (uint8_t)(row[g * G + i] ^ 0x80);
        return;
    case HR_FORMAT_Q8_0:
        b = row + g * 34 + 2;
        for (int i = 0; i < G; i++) u[i] = (uint8_t)(b[i] ^ 0x80);
        return;
    case HR_FORMAT_Q4_0: nibbles_of(row + g * 18 + 2, u); return;
    case HR_FORMAT_Q4_1: nibbles_of(row + g * 20 + 4, u); return;
    case HR_FORMAT_Q5_0:
        nibbles_of(row + g * 22 + 6, u);
        add_high_bits(load_u32(row + g * 22 + 2), u);
        return;
    case HR_FORMAT_Q5_1:
        nibbles_of(row + g * 24 + 8, u);
        add_high_bits(load_u32(row + g * 24 + 4), u);
        return;
    case HR_FORMAT_Q4_K:
        b = row + super * 144 + 16 + in_super / 2 * 32;
        for (int i = 0; i < G; i++) u[i] = b[i] >> in_super % 2 * 4 & 15;
        return;
    case HR_FORMAT_Q5_K:
        b = row + super * 176;
        for (int i = 0; i < G; i++)
            u[i] = (uint8_t)((b[48 + in_super / 2 * 32 + i] >> in_super % 2 * 4 & 15) |
                             (b[16 + i] >> in_super & 1) << 4);
        return;
    case HR_FORMAT_Q6_K: codes_q6_k(row + super * 210, in_super, u); return;
    case HR_FORMAT_I4G32:
    case HR_FORMAT_I4G64:
    case HR_FORMAT_I4G128: nibbles_of(i4g_codes(f, row, g), u); return;
    }
}

static void put_bytes(uint8_t u[C][G], uint8_t *to)
{
    for (int j = 0; j < G / 4; j++)
        for (int c = 0; c < C; c++) memcpy(to + j * 64 + c * 4, &u[c][j * 4], 4);
}

static void put_nibbles(uint8_t u[C][G], int planes, uint8_t *to)
{
    for (int j = 0; j < 4; j++)
        for (int c = 0; c < C; c++) {
            uint32_t low = load_u32(&u[c][j * 4]) & 0x0f0f0f0fu;
            uint32_t high = load_u32(&u[c][16 + j * 4]) & 0x0f0f0f0fu;
            uint32_t both = low | high << 4;
            memcpy(to + j * 64 + c * 4, &both, 4);
        }
    for (int plane = 0; plane < planes; plane++)
        for (int j = 0; j < G / 4; j++)
            for (int c = 0; c < C; c += 2) {
                uint32_t a = load_u32(&u[c][j * 4]) >> (4 + plane) & 0x01010101u;
                uint32_t b = load_u32(&u[c + 1][j * 4]) >> (4 + plane) & 0x01010101u;
                /* bytes 0..3, each 0 or 1, to bits 24..27 */
                uint32_t bits = (a * 0x01020408u >> 24 & 15) | (b * 0x01020408u >> 24 & 15) << 4;
                to[256 + plane * 64 + j * 8 + c / 2] = (uint8_t)bits;
            }
}

/* ---- scales --------------------------------------------------------------------------------- */

static void k_scale_min(const uint8_t *s, int g, uint8_t *scale, uint8_t *min)
{
    if (g < 4) {
        *scale = s[g] & 63;
        *min = s[g + 4] & 63;
    } else {
        *scale = (uint8_t)((s[g + 4] & 15) | (s[g - 4] >> 6) << 4);
        *min = (uint8_t)(s[g + 4] >> 4 | (s[g] >> 6) << 4);
    }
}

/* Copies the f16 at `from` to column c of the 16 at `to`. */
static void put_f16(uint8_t *to, int c, uint16_t bits)
{
    memcpy(to + c * 2, &bits, 2);
}

static void scales_k_affine(const uint8_t *b, int c, uint8_t *to)
{
    put_f16(to, c, load_u16(b));
    put_f16(to + 32, c, load_u16(b + 2) ^ 0x8000); /* stored negative: the kernel only adds */
    for (int g = 0; g < HR_PACK_SUPER; g++)
        k_scale_min(b + 4, g, to + 64 + g * 32 + c, to + 64 + g * 32 + 16 + c);
}

static void scales_q6_k(const uint8_t *b, int c, uint8_t *to)
{
    put_f16(to, c, load_u16(b + 208));
    for (int g = 0; g < HR_PACK_SUPER; g++) {
        to[32 + g * 32 + c] = b[192 + g * 2];
        to[32 + g * 32 + 16 + c] = b[192 + g * 2 + 1];
    }
}

static void scales_i4g(const uint8_t *b, int c, uint8_t *to)
{
    memcpy(to + c * 4, b, 4);
    to[64 + c] = (uint8_t) - (load_u32(b + 4) & 31);
}

/* Scale blocks of one row into column c of its panel. */
static void put_scales(const hr_packed *p, const uint8_t *row, int c, uint8_t *panel)
{
    hr_pack_form f = hr_pack_form_of(p->format);
    size_t block = hr_format_block_bytes(p->format);
    int64_t blocks = p->k / hr_format_block(p->format);
    if (!f.groups_per_scale) return; /* dense or I8C */
    for (int64_t i = 0; i < blocks; i++, row += block) {
        uint8_t *to = panel + hr_pack_scales_at(f, i * f.groups_per_scale, p->k);
        if (hr_pack_has_offset(f)) {
            scales_i4g(row, c, to);
        } else if (f.groups_per_scale == 1) {
            put_f16(to, c, load_u16(row));
            if (f.scale_bytes == 64) put_f16(to + 32, c, load_u16(row + 2));
        } else if (f.planes == 2) {
            scales_q6_k(row, c, to);
        } else {
            scales_k_affine(row, c, to);
        }
    }
}

/* ---- panels --------------------------------------------------------------------------------- */

static void pack_codes(const hr_packed *p, const uint8_t *rows, int count, uint8_t *panel)
{
    hr_pack_form f = hr_pack_form_of(p->format);
    size_t row_bytes = hr_format_row_bytes(p->format, p->k);
    uint8_t u[C][G] = { 0 };
    for (int64_t g = 0; g * G < p->k; g++) {
        for (int c = 0; c < count; c++)
            codes_of(p->format, rows + (size_t)c * row_bytes, g, p->k, u[c]);
        uint8_t *to = panel + hr_pack_codes_at(f, g);
        if (f.group_bytes == 512) put_bytes(u, to);
        else put_nibbles(u, f.planes, to);
    }
    for (int c = 0; c < count; c++) put_scales(p, rows + (size_t)c * row_bytes, c, panel);
}

/* Where number k of column c lies in a dense panel, counted in numbers. */
static size_t dense_at(hr_format f, size_t k, size_t c)
{
    return f == HR_FORMAT_BF16 ? (k / 2 * C + c) * 2 + k % 2 : k * C + c;
}

static void pack_dense(const hr_packed *p, const uint8_t *rows, int count, uint8_t *panel)
{
    size_t size = hr_format_block_bytes(p->format), k = (size_t)p->k;
    /* Columns that are not there, and the partner of an odd last k: products read them. */
    if (count < C || k % 2) memset(panel, 0, p->panel_bytes);
    for (size_t i = 0; i < k; i++)
        for (size_t c = 0; c < (size_t)count; c++)
            memcpy(panel + dense_at(p->format, i, c) * size, rows + (c * k + i) * size, size);
}

hr_status hr_pack_panels(hr_packed *p, const hr_weight *w, const float *scale, int64_t from,
                         int64_t to, void *scratch)
{
    for (int64_t i = from; i < to; i++) {
        int64_t expert = i / p->panels, first = i % p->panels * C;
        int count = p->n - first < C ? (int)(p->n - first) : C;
        HR_TRY(w->read_rows(w, expert * p->n + first, count, scratch));
        uint8_t *panel = p->data + (size_t)i * p->panel_bytes;
        if (!hr_pack_form_of(p->format).group_bytes) {
            pack_dense(p, scratch, count, panel);
            continue;
        }
        pack_codes(p, scratch, count, panel);
        if (p->format == HR_FORMAT_I8C)
            memcpy(panel + hr_pack_scales_at(hr_pack_form_of(p->format), 0, p->k),
                   scale + expert * p->n + first, (size_t)count * 4);
    }
    return HR_OK;
}

hr_status hr_pack_vector(hr_packed *p, const hr_weight *w)
{
    int64_t block = hr_format_block(w->format);
    if (p->n % block)
        return hr_fail(HR_INVALID_ARGUMENT, "weight %s: %lld numbers are no whole %s blocks",
                       w->name, (long long)p->n, hr_format_name(w->format));
    size_t bytes = hr_format_row_bytes(w->format, p->n);
    void *raw = hr_alloc(bytes);
    if (!raw) return hr_fail(HR_RESOURCE_EXHAUSTED, "weight %s: %zu bytes", w->name, bytes);
    hr_status st = w->read_rows(w, 0, 1, raw);
    if (!st) hr_format_dequantise(w->format, raw, p->n / block, (float *)p->data);
    hr_free(raw);
    return st;
}

/* ---- one row back --------------------------------------------------------------------------- */

static void row_codes(const hr_packed *p, const uint8_t *panel, int64_t g, int c, uint8_t u[G])
{
    hr_pack_form f = hr_pack_form_of(p->format);
    const uint8_t *from = panel + hr_pack_codes_at(f, g);
    if (f.group_bytes == 512) {
        for (int i = 0; i < G; i++) u[i] = from[i / 4 * 64 + c * 4 + i % 4];
        return;
    }
    for (int i = 0; i < 16; i++) {
        uint8_t b = from[i / 4 * 64 + c * 4 + i % 4];
        u[i] = b & 15;
        u[16 + i] = b >> 4;
    }
    for (int plane = 0; plane < f.planes; plane++)
        for (int i = 0; i < G; i++) {
            int bit = c * 4 + i % 4;
            uint8_t b = from[256 + plane * 64 + i / 4 * 8 + bit / 8];
            u[i] = (uint8_t)(u[i] | (b >> bit % 8 & 1) << (4 + plane));
        }
}

static float column_f16(const uint8_t *from, int c)
{
    return hr_f16_to_f32(load_u16(from + c * 2));
}

/* value = scale · (u - zero) + min, for the two halves of group g. */
typedef struct affine {
    float scale[2], min;
    int zero;
} affine;

static affine row_affine(const hr_packed *p, const uint8_t *panel, int64_t g, int c)
{
    hr_pack_form f = hr_pack_form_of(p->format);
    const uint8_t *s = panel + hr_pack_scales_at(f, g, p->k);
    if (!f.groups_per_scale) {
        float scale = hr_f32_from_bits(load_u32(s + c * 4));
        return (affine){ { scale, scale }, 0, f.zero };
    }
    if (hr_pack_has_offset(f)) {
        float scale = hr_f32_from_bits(load_u32(s + c * 4));
        return (affine){ { scale, scale }, 0, -(int8_t)s[64 + c] };
    }
    float d = column_f16(s, c);
    if (f.groups_per_scale == 1)
        return (affine){ { d, d }, f.scale_bytes == 64 ? column_f16(s + 32, c) : 0, f.zero };
    size_t in_super = (size_t)(g % HR_PACK_SUPER);
    if (f.planes == 2) {
        const int8_t *sc = (const int8_t *)s + 32 + in_super * 32 + c;
        return (affine){ { d * (float)sc[0], d * (float)sc[16] }, 0, f.zero };
    }
    const uint8_t *sc = s + 64 + in_super * 32 + c;
    return (affine){ { d * (float)sc[0], d * (float)sc[0] },
                     column_f16(s + 32, c) * (float)sc[16],
                     f.zero };
}

static void dense_row(const hr_packed *p, const uint8_t *panel, int c, int64_t first, int64_t k,
                      float *to)
{
    for (int64_t i = 0; i < k; i++) {
        size_t at = dense_at(p->format, (size_t)(first + i), (size_t)c);
        const uint8_t *from = panel + at * hr_format_block_bytes(p->format);
        if (p->format == HR_FORMAT_F32) to[i] = hr_f32_from_bits(load_u32(from));
        else if (p->format == HR_FORMAT_F16) to[i] = hr_f16_to_f32(load_u16(from));
        else to[i] = hr_bf16_to_f32(load_u16(from));
    }
}

void hr_packed_row(const hr_packed *p, int64_t n, int64_t first, int64_t k, float *to)
{
    const uint8_t *panel = hr_packed_panel(p, 0, n / C);
    int c = (int)(n % C);
    if (!hr_pack_form_of(p->format).group_bytes) {
        dense_row(p, panel, c, first, k, to);
        return;
    }
    uint8_t u[G];
    for (int64_t i = 0; i < k; i += G) {
        int64_t g = (first + i) / G;
        row_codes(p, panel, g, c, u);
        affine a = row_affine(p, panel, g, c);
        for (int j = 0; j < G && i + j < k; j++)
            to[i + j] = a.scale[j / 16] * (float)((int)u[j] - a.zero) + a.min;
    }
}
