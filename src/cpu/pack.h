/* Weights in the layout that their kernels stream, packed once per backend.
 *
 * A matrix [N,K] becomes panels of 16 output columns (its rows n); the last panel is filled with
 * zeros. A panel is one stream, read from end to end: spans of 1, 2, 4 or 8 groups of 32 k, each
 * the codes of its groups and then their scales, a multiple of 64 bytes. (With all scales at the
 * end of a panel the processor's own prefetching lost its track twice a panel: two thirds of the
 * speed.)
 *
 * Codes of quantised formats lie in groups of 32 k as unsigned numbers u (value = u - zero):
 *   bytes    8 quads × 64 B. Byte c·4+i of quad j is column c, k = 4j+i.           Q8_0, I8C
 *   nibbles  4 × 64 B. Low nibble of 64-byte row j: quad j, high nibble: quad j+4. all others
 *            then per plane (bit 4, bit 5) 64 B: bit c·4+i of 8-byte word j is quad j.
 *            0 planes: Q4_0 Q4_1 Q4_K I4G; 1 plane: Q5_0 Q5_1 Q5_K; 2 planes: Q6_K.
 * so every format keeps its stored precision to the bit. F32 and F16 are [K][16] numbers as they
 * are; BF16 are pairs of k, [K/2][16][2], of an odd K the last one with a zero: a 32-bit lane holds
 * both of a column, which is what instructions that multiply bf16 take and what a shift and a mask
 * take apart for all others. Scales, per span:
 *   Q8_0 Q4_0 Q5_0   per group: d f16[16]
 *   Q4_1 Q5_1        per group: d f16[16], m f16[16]
 *   Q4_K Q5_K        per 256 k: d f16[16], -dmin f16[16], then per group: sc u8[16], mn u8[16]
 *   Q6_K             per 256 k: d f16[16], then per group: sc i8[16] of k 0-15, i8[16] of k 16-31
 *   I4G              per group of its own: d f32[16], -zero i8[16]
 *   I8C              once, at the end of the panel: f32[16]
 *
 * The declared form. With int8 rows (x, one f32 scale xs per 32 k or per row) every path, for any
 * number of rows, computes for each column, over groups in ascending k:
 *     i = Σ (u - zero) · x, an exact integer; s = Σ x, likewise
 *     Q8_0 Q4_0 Q5_0   t = d · float(i)
 *     Q4_1 Q5_1        t = fma(d, float(i), m · float(s))
 *     Q4_K Q5_K        t = fma(d, float(sc · i), -dmin · float(mn · s))
 *     Q6_K             t = d · float(sc0 · i0 + sc1 · i1)
 *     I4G              t = d · float(i - zero · s), an exact integer
 *     acc = fma(xs, t, acc)
 * I8C with one scale per row: (float(i) · xs) · scale. These are therefore equal to the bit on
 * every instruction set. With float rows, per block of 32 k in ascending order:
 *     part = 0; part = x · w + part for ascending k (fused where the path has it); acc = acc + part
 * with w dequantised to f32 in registers: equal to the bit for any number of rows on one path.
 * Where hr_isa_bf16, bf16 rows meet bf16 weights in pairs of k: the same blocks, and within one
 *     part = fma(x[k+1], w[k+1], part); part = fma(x[k], w[k], part)   for ascending even k
 * in which numbers below the normal ones count as zero; on tiles (amx)
 *     even = fma(x[k], w[k], even), odd = fma(x[k+1], w[k+1], odd); acc = acc + (even + odd). */
#ifndef HEADRACE_CPU_PACK_H
#define HEADRACE_CPU_PACK_H

#include "graph/types.h"

/* Raise it when a layout here changes, or what a checkpoint's rows are read as: packed weights that
 * an older build kept are then not found. */
enum { HR_PACK_VERSION = 1 };

enum {
    HR_PACK_COLUMNS = 16, /* output columns of a panel */
    HR_PACK_GROUP = 32,   /* k that share a scale, and k of a block of a dense sum */
    HR_PACK_SUPER = 8,    /* groups of a K-quant super-block */
};

typedef struct hr_packed hr_packed;
struct hr_packed {
    hr_format format;
    int64_t experts, n, k; /* 1 expert for an ordinary matrix; a vector has k = 0 */
    int64_t panels;        /* of one expert */
    size_t panel_bytes;    /* a multiple of 64 */
    uint8_t *data; /* borrowed from the backend; [experts][panels][panel_bytes], or f32 [n] for a
                      vector */
    size_t bytes;  /* of data */
};

/* How a format's codes and scales lie; the single table behind packing and kernels. */
typedef struct hr_pack_form {
    uint16_t group_bytes;      /* codes of 32 k × 16 columns; 0 = dense */
    uint16_t scale_bytes;      /* per scale block */
    uint16_t groups_per_scale; /* groups that one scale block covers; 0 = the whole panel */
    uint8_t planes, zero;
    uint16_t span, span_bytes; /* groups of a span, and its bytes, filled up to 64 */
} hr_pack_form;

/* A scale block of I4G: d f32[16], -zero i8[16]. */
enum { HR_PACK_OFFSET_SCALE = 80 };
static inline bool hr_pack_has_offset(hr_pack_form f)
{
    return f.scale_bytes == HR_PACK_OFFSET_SCALE;
}

static inline hr_pack_form hr_pack_form_of(hr_format f)
{
    enum { S = HR_PACK_SUPER, K = 64 + 32 * S, Z = HR_PACK_OFFSET_SCALE };
    switch (f) {
    case HR_FORMAT_F32:
    case HR_FORMAT_F16:
    case HR_FORMAT_BF16: return (hr_pack_form){ 0 };
    case HR_FORMAT_I8C: return (hr_pack_form){ 512, 64, 0, 0, 128, 1, 512 };
    case HR_FORMAT_Q8_0: return (hr_pack_form){ 512, 32, 1, 0, 128, 2, 1088 };
    case HR_FORMAT_Q4_0: return (hr_pack_form){ 256, 32, 1, 0, 8, 2, 576 };
    case HR_FORMAT_Q4_1: return (hr_pack_form){ 256, 64, 1, 0, 0, 1, 320 };
    case HR_FORMAT_Q5_0: return (hr_pack_form){ 320, 32, 1, 1, 16, 2, 704 };
    case HR_FORMAT_Q5_1: return (hr_pack_form){ 320, 64, 1, 1, 0, 1, 384 };
    case HR_FORMAT_Q4_K: return (hr_pack_form){ 256, K, S, 0, 0, S, 256 * S + K };
    case HR_FORMAT_Q5_K: return (hr_pack_form){ 320, K, S, 1, 0, S, 320 * S + K };
    case HR_FORMAT_Q6_K: return (hr_pack_form){ 384, K - 32, S, 2, 32, S, 384 * S + K };
    case HR_FORMAT_I4G32: return (hr_pack_form){ 256, Z, 1, 0, 0, 4, 1344 };
    case HR_FORMAT_I4G64: return (hr_pack_form){ 256, Z, 2, 0, 0, 4, 1216 };
    case HR_FORMAT_I4G128: return (hr_pack_form){ 256, Z, 4, 0, 0, 4, 1152 };
    }
    return (hr_pack_form){ 0 };
}

/* Offsets in a panel of quantised codes: of group g's codes, and of the scale block that covers it.
 */
static inline size_t hr_pack_codes_at(hr_pack_form f, int64_t g)
{
    return (size_t)(g / f.span) * f.span_bytes + (size_t)(g % f.span) * f.group_bytes;
}
static inline size_t hr_pack_scales_at(hr_pack_form f, int64_t g, int64_t k)
{
    if (!f.groups_per_scale)
        return (size_t)((k + HR_PACK_GROUP - 1) / HR_PACK_GROUP) * f.group_bytes;
    return (size_t)(g / f.span) * f.span_bytes + (size_t)f.span * f.group_bytes +
           (size_t)(g % f.span / f.groups_per_scale) * f.scale_bytes;
}

/* Sets every field but data from the weight's descriptor; RESOURCE_EXHAUSTED when sizes wrap. */
HR_MUST_USE hr_status hr_pack_measure(const hr_weight *w, hr_packed *p);
/* Bytes of private memory that one worker needs in hr_pack_panels. */
size_t hr_pack_scratch(const hr_weight *w);
/* Reads and packs panels [from, to) of experts × panels. Different panels may go to different
 * threads. I8C: `scale` is the whole f32 scale vector. */
HR_MUST_USE hr_status hr_pack_panels(hr_packed *p, const hr_weight *w, const float *scale,
                                     int64_t from, int64_t to, void *scratch);
/* A rank-1 weight as f32 [n], to p->data. */
HR_MUST_USE hr_status hr_pack_vector(hr_packed *p, const hr_weight *w);
/* Columns [first, first + k) of row n of expert 0, dequantised; first is a multiple of 32. */
void hr_packed_row(const hr_packed *p, int64_t n, int64_t first, int64_t k, float *to);

static inline const uint8_t *hr_packed_panel(const hr_packed *p, int64_t expert, int64_t panel)
{
    return p->data + (size_t)(expert * p->panels + panel) * p->panel_bytes;
}

#endif
