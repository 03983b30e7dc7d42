/* Linear kernels on tiles, for rows of int8 and of bf16.
 *
 * Included after columns_<isa>.h, the tiles, and
 *   AMX_BASE(name)   a kernel of the path that does what tiles do not: float rows
 *   AMX_FEW_ROWS     steps of fewer int8 rows go there too: the integers are the same
 * Four tiles of sums, 32 rows × two panels, take two tiles of rows and two of weights. A tile of
 * weights is a panel's own bytes: a row of it is 16 columns × 4 k of codes, or × 2 k of bf16. Codes
 * below 8 bits are widened to such rows first. Groups' integers leave the tiles for the f32 sums of
 * linear_tile_body.h; an I8C column stays in its tile over all k. bf16 sums a block of 32 k at a
 * time, even and odd k apart (pack.h), and so does every number of rows. */
#ifndef HEADRACE_CPU_KERNELS_LINEAR_AMX_BODY_H
#define HEADRACE_CPU_KERNELS_LINEAR_AMX_BODY_H

#include "cpu/kernels/linear_bf16.h"
#include "cpu/kernels/linear_finish.h"
#include "cpu/kernels/linear_tile_body.h"

enum { TILE_M = 16, MOST_M = 2 * TILE_M, MOST_PANELS = 2, LINE = 64, TILE_BYTES = TILE_M * LINE };

/* Rows × panels: tiles 0-3 of sums [row tile][panel], 4-5 of rows, 6-7 of weights. */
typedef struct amx_job {
    tile_job panel[MOST_PANELS]; /* x is the same in both */
    const uint16_t *bf16;        /* BF16: rows of prep */
    int n_rows, n_panels;
    _Alignas(64) int32_t sums[MOST_M / TILE_M][MOST_PANELS][TILE_M][C]; /* or f32 */
    _Alignas(64) float out[MOST_PANELS][MOST_M][C];
    _Alignas(64) uint8_t wide[MOST_PANELS][TILE_BYTES]; /* weights as a tile takes them */
    _Alignas(64) uint8_t tail[MOST_M][LINE];            /* the last k of the rows, then zeros */
} amx_job;

/* k_bytes: of a row in a tile of rows. */
static void configure(int n_rows, int k_bytes)
{
    tile_config c = { .palette = 1 };
    int m[2] = { n_rows < TILE_M ? n_rows : TILE_M, n_rows > TILE_M ? n_rows - TILE_M : 0 };
    for (int i = 0; i < 2; i++) {
        for (int p = 0; p < MOST_PANELS && m[i]; p++) {
            c.rows[i * 2 + p] = (uint8_t)m[i];
            c.row_bytes[i * 2 + p] = LINE;
        }
        c.rows[4 + i] = (uint8_t)m[i];
        c.row_bytes[4 + i] = (uint16_t)(m[i] ? k_bytes : 0);
        c.rows[6 + i] = (uint8_t)(k_bytes / 4);
        c.row_bytes[6 + i] = LINE;
    }
    tile_configure(&c);
}

ALWAYS void zero_sums(const amx_job *j)
{
    bool more = j->n_rows > TILE_M, two = j->n_panels > 1;
    TILE_ZERO(0);
    if (two) TILE_ZERO(1);
    if (more) TILE_ZERO(2);
    if (more && two) TILE_ZERO(3);
}

ALWAYS void store_sums(amx_job *j)
{
    bool more = j->n_rows > TILE_M, two = j->n_panels > 1;
    TILE_STORE(0, j->sums[0][0], LINE);
    if (two) TILE_STORE(1, j->sums[0][1], LINE);
    if (more) TILE_STORE(2, j->sums[1][0], LINE);
    if (more && two) TILE_STORE(3, j->sums[1][1], LINE);
}

/* One k step of all tiles: rows at x, `stride` bytes apart, weights at w[panel]. */
#define AMX_STEP(DOT, j, x, stride, w)                                                             \
    do {                                                                                           \
        bool more = (j)->n_rows > TILE_M, two = (j)->n_panels > 1;                                 \
        TILE_LOAD(4, x, stride);                                                                   \
        TILE_LOAD(6, (w)[0], LINE);                                                                \
        DOT(0, 4, 6);                                                                              \
        if (two) {                                                                                 \
            TILE_LOAD(7, (w)[1], LINE);                                                            \
            DOT(1, 4, 7);                                                                          \
        }                                                                                          \
        if (more) {                                                                                \
            TILE_LOAD(5, (const uint8_t *)(x) + TILE_M * (stride), stride);                        \
            DOT(2, 5, 6);                                                                          \
            if (two) DOT(3, 5, 7);                                                                 \
        }                                                                                          \
    } while (0)

ALWAYS const int32_t *sums_of(const amx_job *j, int row, int p)
{
    return j->sums[row / TILE_M][p][row % TILE_M];
}

/* ---- int8 rows, one scale per group ---------------------------------------------------------- */

ALWAYS const uint8_t *widened(hr_pack_form form, amx_job *j, int p, int64_t g)
{
    const uint8_t *codes = codes_of(form, &j->panel[p], g);
    if (form.group_bytes == 512) return codes;
    for (int q = 0; q < 8; q++) {
        code_quad u = codes_load(form, codes, q);
        memcpy(j->wide[p] + q * LINE, &u, sizeof u);
    }
    return j->wide[p];
}

ALWAYS const hr_row_block *block_of(const amx_job *j, int row, int64_t g)
{
    const rows *x = &j->panel[0].x;
    return x->blocks + row / HR_ROW_BLOCK * (x->k / G) + g;
}

ALWAYS void amx_group(hr_format f, amx_job *j, int64_t g)
{
    const hr_pack_form form = hr_pack_form_of(f);
    const rows *x = &j->panel[0].x;
    const uint8_t *w[MOST_PANELS] = { 0 };
    for (int p = 0; p < j->n_panels; p++) w[p] = widened(form, j, p, g);
    zero_sums(j);
    AMX_STEP(TILE_DOT_S8_U8, j, x->q + g * G, x->k, w);
    store_sums(j);
    for (int p = 0; p < j->n_panels; p++) {
        cols_f scale[2], min;
        group_affine(f, &j->panel[p], g, scale, &min);
        for (int r = 0; r < j->n_rows; r++) {
            const hr_row_block *b = block_of(j, r, g);
            const int lane = r % HR_ROW_BLOCK;
            cols_i i = i_add(less_zero(form, b->minus_all[lane]), i_load_i32(sums_of(j, r, p)));
            f_store(j->out[p][r],
                    add_group(form, scale[0], min, i, b, lane, f_load_f32(j->out[p][r])));
        }
    }
}

/* The halves' integers of a panel's rows, one after the other. */
ALWAYS void amx_group_q6_k(amx_job *j, int64_t g)
{
    const hr_pack_form form = hr_pack_form_of(HR_FORMAT_Q6_K);
    const rows *x = &j->panel[0].x;
    const uint8_t *w[MOST_PANELS] = { 0 };
    _Alignas(64) int32_t low[MOST_M / TILE_M][MOST_PANELS][TILE_M][C];
    for (int p = 0; p < j->n_panels; p++) w[p] = widened(form, j, p, g);
    for (int half = 0; half < 2; half++) {
        zero_sums(j);
        AMX_STEP(TILE_DOT_S8_U8, j, x->q + g * G + half * G / 2, x->k, w);
        store_sums(j);
        for (int p = 0; p < j->n_panels; p++) w[p] += 4 * LINE;
        if (!half) memcpy(low, j->sums, sizeof low);
    }
    for (int p = 0; p < j->n_panels; p++) {
        const q6_scales q = q6_scales_of(&j->panel[p], g);
        for (int r = 0; r < j->n_rows; r++) {
            const hr_row_block *b = block_of(j, r, g);
            const int lane = r % HR_ROW_BLOCK;
            cols_i first = i_add(less_zero(form, b->minus_half[0][lane]),
                                 i_load_i32(low[r / TILE_M][p][r % TILE_M]));
            cols_i second =
                i_add(less_zero(form, b->minus_half[1][lane]), i_load_i32(sums_of(j, r, p)));
            f_store(j->out[p][r], add_q6_k(q, first, second, b, lane, f_load_f32(j->out[p][r])));
        }
    }
}

ALWAYS void amx_groups(hr_format f, amx_job *j)
{
    const hr_pack_form form = hr_pack_form_of(f);
    if (!form.groups_per_scale) return; /* dense and I8C never come here: hr_linear_kind_of */
    memset(j->out, 0, sizeof j->out);
    if (f == HR_FORMAT_Q6_K) memset(j->sums, 0, sizeof j->sums);
    for (int64_t g = 0; g < j->panel[0].x.k / G; g++) {
        for (int p = 0; p < j->n_panels; p++) prefetch_share(&j->panel[p], g, share_of(f));
        if (f == HR_FORMAT_Q6_K) amx_group_q6_k(j, g);
        else amx_group(f, j, g);
    }
}

#define AMX_FORMAT(name, text, elements, bytes)                                                    \
    static void amx_##name(amx_job *j)                                                             \
    {                                                                                              \
        amx_groups(HR_FORMAT_##name, j);                                                           \
    }
HR_FORMAT_LIST(AMX_FORMAT)
#undef AMX_FORMAT

/* ---- int8 rows, one scale per row: I8C ------------------------------------------------------- */

/* What is left of k after whole tiles, of rows and of weights; zeros behind. */
ALWAYS void i8c_tail(amx_job *j, int64_t at)
{
    const hr_pack_form form = hr_pack_form_of(HR_FORMAT_I8C);
    const rows *x = &j->panel[0].x;
    const size_t left = (size_t)(x->k - at), codes = (left + G - 1) / G * form.group_bytes;
    memset(j->tail, 0, sizeof j->tail);
    memset(j->wide, 0, sizeof j->wide);
    for (int r = 0; r < j->n_rows; r++) memcpy(j->tail[r], x->q + r * x->k + at, left);
    const uint8_t *w[MOST_PANELS] = { j->wide[0], j->wide[1] };
    for (int p = 0; p < j->n_panels; p++)
        memcpy(j->wide[p], codes_of(form, &j->panel[p], at / G), codes);
    AMX_STEP(TILE_DOT_S8_U8, j, j->tail[0], LINE, w);
}

static void amx_i8c(amx_job *j)
{
    const hr_pack_form form = hr_pack_form_of(HR_FORMAT_I8C);
    const rows *x = &j->panel[0].x;
    int64_t at = 0;
    zero_sums(j);
    for (; at + LINE <= x->k; at += LINE) {
        const uint8_t *w[MOST_PANELS] = { 0 };
        for (int p = 0; p < j->n_panels; p++) {
            w[p] = codes_of(form, &j->panel[p], at / G);
            prefetch_share(&j->panel[p], at / LINE, TILE_BYTES);
        }
        AMX_STEP(TILE_DOT_S8_U8, j, x->q + at, x->k, w);
    }
    if (at < x->k) i8c_tail(j, at);
    store_sums(j);
    for (int p = 0; p < j->n_panels; p++) {
        const cols_f scale = f_load_f32(scales_of(form, &j->panel[p], 0));
        for (int r = 0; r < j->n_rows; r++) {
            cols_i i = i_add(less_zero(form, x->minus_sum[r]), i_load_i32(sums_of(j, r, p)));
            f_store(j->out[p][r], f_mul(f_mul(f_from_i(i), f_set1(x->scale[r])), scale));
        }
    }
}

/* ---- bf16 ------------------------------------------------------------------------------------ */

static void amx_bf16(amx_job *j)
{
    const int64_t k = j->panel[0].x.k;
    const int64_t stride = hr_linear_bf16_stride(k) * (int64_t)sizeof *j->bf16;
    zero_sums(j);
    for (int64_t at = 0; at < k; at += G) {
        const uint8_t *w[MOST_PANELS] = { 0 };
        for (int p = 0; p < j->n_panels; p++) {
            w[p] = j->panel[p].panel + at * C * 2;
            prefetch_share(&j->panel[p], at / G, TILE_BYTES);
            if (k - at >= G - 1) continue;
            memset(j->wide[p], 0, TILE_BYTES);
            memcpy(j->wide[p], w[p], (size_t)(k - at + 1) / 2 * LINE);
            w[p] = j->wide[p];
        }
        AMX_STEP(TILE_DOT_BF16, j, j->bf16 + at, stride, w);
    }
    store_sums(j);
    for (int p = 0; p < j->n_panels; p++)
        for (int r = 0; r < j->n_rows; r++) memcpy(j->out[p][r], sums_of(j, r, p), LINE);
}

/* ---- the walk -------------------------------------------------------------------------------- */

typedef void (*amx_fn)(amx_job *j);

static amx_fn amx_of(hr_linear_kind kind, hr_format f)
{
    static const amx_fn groups[] = {
#define AMX_FORMAT(name, text, elements, bytes) amx_##name,
        HR_FORMAT_LIST(AMX_FORMAT)
#undef AMX_FORMAT
    };
    if (kind == HR_LINEAR_BF16) return amx_bf16;
    return kind == HR_LINEAR_INT8_ROW ? amx_i8c : groups[f];
}

static int amx_k_bytes(hr_linear_kind kind, hr_format f)
{
    if (kind != HR_LINEAR_INT8_GROUP) return LINE;
    return f == HR_FORMAT_Q6_K ? G / 2 : G;
}

/* `row` is a multiple of HR_ROW_BLOCK wherever there are blocks. */
static void aim(amx_job *j, const hr_kernel_args *a, int64_t row, int n_rows, int64_t expert,
                int64_t panel, int n_panels)
{
    const int64_t k = a->packed->k;
    rows x = { .q = (const int8_t *)a->in[0] + row * k, .k = k };
    j->n_rows = n_rows;
    j->n_panels = n_panels;
    switch (hr_linear_kind_of(a->node, a->packed->format)) {
    case HR_LINEAR_FLOAT: break;
    case HR_LINEAR_BF16:
        j->bf16 = (const uint16_t *)a->prep + row * hr_linear_bf16_stride(k);
        break;
    case HR_LINEAR_INT8_GROUP:
        x.blocks = (const hr_row_block *)a->prep + row / HR_ROW_BLOCK * (k / G);
        break;
    case HR_LINEAR_INT8_ROW:
        x.minus_sum = (const int32_t *)a->prep + row;
        x.scale = (const float *)a->in[4] + row;
        break;
    }
    const bool fetch = !row && n_rows > 2;
    for (int p = 0; p < n_panels; p++)
        j->panel[p] = (tile_job){ .x = x,
                                  .panel = hr_packed_panel(a->packed, expert, panel + p),
                                  .ahead = 2048,
                                  .to = fetch ? SIZE_MAX : 0 };
}

static void finish_job(const amx_job *j, const hr_kernel_args *a, int64_t row, int64_t panel)
{
    for (int p = 0; p < j->n_panels; p++)
        for (int r = 0; r < j->n_rows; r++) hr_linear_finish(a, row + r, panel + p, j->out[p][r]);
}

static void amx_panels(const hr_kernel_args *a, int64_t n_rows, int64_t from, int64_t to)
{
    const hr_linear_kind kind = hr_linear_kind_of(a->node, a->packed->format);
    const amx_fn fn = amx_of(kind, a->packed->format);
    int64_t block = hr_linear_block(a->packed->panel_bytes, MOST_PANELS);
    amx_job j;
    for (int64_t first = from; first < to; first += block)
        for (int64_t row = 0; row < n_rows; row += MOST_M) {
            const int64_t last = first + block < to ? first + block : to;
            const int count = n_rows - row < MOST_M ? (int)(n_rows - row) : MOST_M;
            configure(count, amx_k_bytes(kind, a->packed->format));
            for (int64_t panel = first; panel < last; panel += MOST_PANELS) {
                int wide = last - panel < MOST_PANELS ? 1 : MOST_PANELS;
                aim(&j, a, row, count, 0, panel, wide);
                fn(&j);
                finish_job(&j, a, row, panel);
            }
        }
}

/* bf16 rows of experts, one by one. */
static void amx_experts(const hr_kernel_args *a, int64_t n_rows, int64_t from, int64_t to)
{
    const int32_t *expert = a->in[3];
    amx_job j;
    configure(1, LINE);
    for (int64_t panel = from; panel < to; panel++)
        for (int64_t row = 0; row < n_rows; row++) {
            if (expert[row] < 0 || expert[row] >= a->packed->experts) {
                hr_linear_finish_zero(a, row, panel);
                continue;
            }
            aim(&j, a, row, 1, expert[row], panel, 1);
            amx_bf16(&j);
            finish_job(&j, a, row, panel);
        }
}

ALWAYS void amx_items(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const hr_linear_kind kind = hr_linear_kind_of(a->node, a->packed->format);
    const int64_t n_rows = hr_live_rows(a->node->in[0], a->live);
    bool few = n_rows < AMX_FEW_ROWS || a->in[3];
    if (kind == HR_LINEAR_FLOAT || (few && kind != HR_LINEAR_BF16)) {
        AMX_BASE(linear)(a, from, to);
        return;
    }
    if (a->in[3]) amx_experts(a, n_rows, from, to);
    else amx_panels(a, n_rows, from, to);
    tile_release();
}

ALWAYS void amx_prep_items(const hr_kernel_args *a, int64_t from, int64_t to)
{
    if (hr_linear_is_bf16(a)) hr_linear_prep_bf16(a, from, to);
    else AMX_BASE(linear_prep)(a, from, to);
}

#endif
