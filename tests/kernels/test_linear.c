/* linear: exact where it is declared exact, one row's bits whatever its company, the same bits on
 * every instruction set (cpu/pack.h), at the ends of the ranges of codes and rows.
 *
 * The oracle is here: integers in 64 bits or doubles over hr_format_dequantise, one column at a
 * time, sharing no code with panels or kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <math.h>

#include "base/half.h"
#include "kernels/bed.h"
#include "kernels/linear_tiles.h"

static const double U = 0x1p-24; /* unit roundoff of f32 */

/* Beside the paths, as if it were one: amx's kernels on tiles in plain C, on every machine. */
#define TILES ((hr_isa)HR_ISA_COUNT)

enum { MOST_M = 70, ODD_N = 37, PATHS = HR_ISA_COUNT + 1 };
static const hr_format LAST = HR_FORMAT_I4G128;

static bool here(hr_isa isa)
{
    return isa == TILES || hr_isa_available(isa);
}

static const char *path_name(hr_isa isa)
{
    return isa == TILES ? "tiles in plain C" : hr_isa_name(isa);
}

static bool is_blocks(hr_format f)
{
    return hr_format_is_blocks(f);
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* M rows of K columns, int8 (with `scales` scales a row) or of dtype d, by N columns of format f.
 */
static void make(op_case *c, hr_format f, hr_dtype d, int64_t M, int64_t N, int64_t K,
                 int64_t scales)
{
    static char words[96];
    if (d == HR_DTYPE_I8)
        snprintf(words, sizeof words, "q:T,%lld w:%lld,%lld - - p:T,%lld", (long long)K,
                 (long long)N, (long long)K, (long long)scales);
    else
        snprintf(words, sizeof words, "n:T,%lld w:%lld,%lld", (long long)K, (long long)N,
                 (long long)K);
    ops_row w = { .name = "linear", .op = HR_OP_linear, .operands = words, .format = f };
    w.attrs.dtype = HR_DTYPE_F32;
    ops_case_make(&w, M, M, d == HR_DTYPE_I8 ? HR_DTYPE_F32 : d, c);
    c->attrs.dtype = HR_DTYPE_F32;
}

static int64_t columns_for(hr_format f)
{
    return is_blocks(f) ? hr_format_block(f) * (hr_format_block(f) == 256 ? 2 : 3) : 97;
}

/* Row r alone. The data stay those of c. */
static op_case alone(const op_case *c, int64_t r)
{
    op_case one = *c;
    int of_row[] = { 0, 4 };
    for (int i = 0; i < 2; i++) {
        op_operand *o = &one.in[of_row[i]];
        if (o->kind != OP_INPUT) continue;
        o->shape.dim[0] = 1;
        o->data = (const char *)o->data + (size_t)r * op_operand_bytes(o);
    }
    one.live[HR_LIVE_TOKENS] = 1;
    return one;
}

/* The first M rows of c. */
static op_case first_rows(const op_case *c, int64_t M)
{
    op_case some = *c;
    some.in[0].shape.dim[0] = M;
    if (some.in[4].kind == OP_INPUT) some.in[4].shape.dim[0] = M;
    some.live[HR_LIVE_TOKENS] = M;
    return some;
}

static void run_tiles(const bed *b, int64_t step)
{
    const hr_kernel *k = hr_kernel_lookup(HR_OP_linear, HR_ISA_scalar);
    hr_kernel_args a = bed_args(b);
    int64_t items = k->items(b->node, b->c->live);
    memset(b->out[0], BED_UNTOUCHED, b->out_bytes[0]);
    if (hr_linear_prep_bytes(b->node, b->weight.format, 1))
        tiles_linear_prep(&a, 0, b->c->live[HR_LIVE_TOKENS]);
    else a.prep = NULL;
    for (int64_t i = 0; i < items; i += step)
        tiles_linear(&a, i, i + step < items ? i + step : items);
}

static float *run(const op_case *c, hr_isa isa, int64_t step)
{
    bed b;
    bed_make(c, &b);
    if (isa == TILES) run_tiles(&b, step);
    else bed_run(&b, isa, step);
    float *y = b.out[0];
    b.out[0] = NULL;
    bed_free(&b);
    return y;
}

/* ---- oracle ---------------------------------------------------------------------------------- */

static double x_at(const op_case *c, int64_t t, int64_t k)
{
    int64_t K = c->in[0].shape.dim[1];
    if (c->in[0].dtype != HR_DTYPE_I8) return ops_float(c->in[0].dtype, c->in[0].data, t * K + k);
    int64_t scales = c->in[4].shape.dim[1];
    float s = ((const float *)c->in[4].data)[t * scales + k / (K / scales)];
    return (double)s * ((const int8_t *)c->in[0].data)[t * K + k];
}

/* Every column of every row, within what roundings can do: the sum's own, plus those of a group. */
static void assert_near_oracle(const op_case *c, const float *y, hr_isa isa)
{
    const op_operand *w = &c->in[1];
    int64_t M = c->in[0].shape.dim[0], N = w->shape.dim[0], K = w->shape.dim[1];
    size_t row = hr_format_row_bytes(w->format, K);
    float *v = bed_alloc((size_t)K * sizeof *v);
    for (int64_t n = 0; n < N; n++) {
        hr_format_dequantise(w->format, (const char *)w->data + (size_t)n * row,
                             K / hr_format_block(w->format), v);
        float own = w->format == HR_FORMAT_I8C ? w->scale[n] : 1.0f;
        for (int64_t t = 0; t < M; t++) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < K; k++) {
                double p = x_at(c, t, k) * (double)v[k] * (double)own;
                sum += p;
                size += fabs(p);
            }
            /* Affine groups multiply code and minimum apart: each may be 16 times their sum. */
            double bound = ((double)K + 8) * U * size * 16 + 1e-30;
            if (!(fabs(sum - (double)y[t * N + n]) <= bound))
                fail_msg("%s on %s: [%lld,%lld] is %.9g, not %.9g", hr_format_name(w->format),
                         path_name(isa), (long long)t, (long long)n, (double)y[t * N + n], sum);
        }
    }
    hr_free(v);
}

/* ---- company --------------------------------------------------------------------------------- */

static void assert_rows(const float *got, const float *want, int64_t M, const op_case *c,
                        hr_isa isa, const char *what)
{
    size_t bytes = (size_t)c->in[1].shape.dim[0] * sizeof(float);
    for (int64_t r = 0; r < M; r++)
        if (memcmp((const char *)got + (size_t)r * bytes, (const char *)want + (size_t)r * bytes,
                   bytes))
            fail_msg("%s on %s: row %lld of %lld: %s", hr_format_name(c->in[1].format),
                     path_name(isa), (long long)r, (long long)M, what);
}

/* Rows 0 … 69 one by one, then together: in every number up to two of the largest tiles and one
 * row more, then in some up to 70. The same bits. */
static void check_company(const op_case *c, hr_isa isa)
{
    int64_t N = c->in[1].shape.dim[0];
    float *single = bed_alloc((size_t)(MOST_M * N) * sizeof(float));
    for (int64_t r = 0; r < MOST_M; r++) {
        op_case one = alone(c, r);
        float *y = run(&one, isa, 1);
        memcpy(single + r * N, y, (size_t)N * sizeof *y);
        hr_free(y);
    }
    assert_near_oracle(c, single, isa);
    for (int64_t M = 1; M <= MOST_M; M += M < 17 || M > 66 ? 1 : 13) {
        op_case some = first_rows(c, M);
        float *y = run(&some, isa, 1 + M % 3);
        assert_rows(y, single, M, c, isa, "its bits depend on the other rows");
        hr_free(y);
    }
    hr_free(single);
}

static void test_company(void **state)
{
    (void)state;
    for (int isa = 0; isa < PATHS; isa++)
        for (hr_format f = 0; f <= LAST && here((hr_isa)isa); f++) {
            op_case c;
            int64_t K = columns_for(f);
            make(&c, f, HR_DTYPE_F32, MOST_M, ODD_N, K, 0);
            check_company(&c, (hr_isa)isa);
            ops_case_free(&c);
            if (f == HR_FORMAT_BF16) {
                make(&c, f, HR_DTYPE_BF16, MOST_M, ODD_N, K, 0);
                check_company(&c, (hr_isa)isa);
                ops_case_free(&c);
            }
            if (!is_blocks(f) && f != HR_FORMAT_I8C) continue;
            make(&c, f, HR_DTYPE_I8, MOST_M, ODD_N, K, f == HR_FORMAT_I8C ? 1 : K / 32);
            check_company(&c, (hr_isa)isa);
            ops_case_free(&c);
            if (f != HR_FORMAT_Q4_0 && f != HR_FORMAT_I4G64) continue;
            make(&c, f, HR_DTYPE_I8, MOST_M, ODD_N, K, 1);
            check_company(&c, (hr_isa)isa);
            ops_case_free(&c);
        }
}

/* Rows of bf16 by bf16, K odd: a pair or a block reaches past the end of its row, where a neighbour
 * begins that is not a number. */
static void test_neighbours_that_are_no_numbers(void **state)
{
    (void)state;
    enum { K = 33, ROWS = 9 };
    op_case c;
    make(&c, HR_FORMAT_BF16, HR_DTYPE_BF16, ROWS, ODD_N, K, 0);
    for (int isa = 0; isa < PATHS; isa++) {
        if (!here((hr_isa)isa)) continue;
        float *plain = run(&c, (hr_isa)isa, 3);
        uint16_t x[ROWS * K];
        memcpy(x, c.in[0].data, sizeof x);
        for (int i = 0; i < ROWS * K; i++)
            if (i / K % 2) x[i] = i % 2 ? 0x7fc0 : 0xff80;
        op_case wild = c;
        wild.in[0].data = x;
        float *y = run(&wild, (hr_isa)isa, 3);
        for (int64_t r = 0; r < ROWS; r++) {
            if (r % 2) assert_true(isnan(y[r * ODD_N]));
            else assert_rows(y + r * ODD_N, plain + r * ODD_N, 1, &c, (hr_isa)isa, "not its own");
        }
        hr_free(plain);
        hr_free(y);
    }
    ops_case_free(&c);
}

/* bf16 rows of experts: a row has the bits that its expert's matrix alone gives it, and one that
 * meets no matrix is zeros. */
static void test_experts(void **state)
{
    (void)state;
    enum { K = 41, ROWS = 13 };
    op_case c;
    ops_row w = { .name = "linear",
                  .op = HR_OP_linear,
                  .operands = "n:T,41 w:3,37,41 - g:T",
                  .format = HR_FORMAT_BF16,
                  .attrs.dtype = HR_DTYPE_F32 };
    ops_case_make(&w, ROWS, ROWS, HR_DTYPE_BF16, &c);
    c.attrs.dtype = HR_DTYPE_F32;
    const int32_t *expert = c.in[3].data;
    for (int isa = 0; isa < PATHS; isa++) {
        if (!here((hr_isa)isa)) continue;
        float *y = run(&c, (hr_isa)isa, 2), none[ODD_N] = { 0 };
        for (int64_t r = 0; r < ROWS; r++) {
            bool met = expert[r] >= 0 && expert[r] < 3;
            op_case one = alone(&c, r);
            one.n_in = 2;
            one.in[3].kind = OP_ABSENT;
            one.in[1].shape = HR_SHAPE(ODD_N, K);
            one.in[1].data = (const uint16_t *)c.in[1].data + (met ? expert[r] : 0) * ODD_N * K;
            float *want = met ? run(&one, (hr_isa)isa, 1) : none;
            assert_memory_equal(y + r * ODD_N, want, sizeof none);
            if (met) hr_free(want);
        }
        hr_free(y);
    }
    ops_case_free(&c);
}

/* Half-width rows are widened exactly: the bits of the same numbers in f32. */
static void test_half_rows(void **state)
{
    (void)state;
    for (hr_dtype d = HR_DTYPE_BF16; d <= HR_DTYPE_F16; d++)
        for (int isa = 0; isa < PATHS; isa++) {
            if (!here((hr_isa)isa)) continue;
            op_case c;
            make(&c, HR_FORMAT_Q4_1, d, 5, ODD_N, 96, 0);
            float *half = run(&c, (hr_isa)isa, 2), wide_x[5 * 96];
            for (int i = 0; i < 5 * 96; i++) wide_x[i] = (float)ops_float(d, c.in[0].data, i);
            op_case wide = c;
            wide.in[0].dtype = HR_DTYPE_F32;
            wide.in[0].data = wide_x;
            float *y = run(&wide, (hr_isa)isa, 2);
            assert_rows(half, y, 5, &c, (hr_isa)isa, "differs from the same row in f32");
            hr_free(half);
            hr_free(y);
            ops_case_free(&c);
        }
}

/* ---- instruction sets ------------------------------------------------------------------------ */

static void check_isas(hr_format f, int64_t K, int64_t scales)
{
    op_case c;
    make(&c, f, HR_DTYPE_I8, 13, ODD_N, K, scales);
    float *scalar = run(&c, HR_ISA_scalar, 1);
    for (int isa = 1; isa < PATHS; isa++) {
        if (!here((hr_isa)isa)) continue;
        float *y = run(&c, (hr_isa)isa, 2);
        assert_rows(y, scalar, 13, &c, (hr_isa)isa, "differs from scalar");
        hr_free(y);
    }
    hr_free(scalar);
    ops_case_free(&c);
}

static void test_int8_rows_on_every_isa(void **state)
{
    (void)state;
    for (hr_format f = HR_FORMAT_I8C; f <= LAST; f++) {
        int64_t K = columns_for(f);
        check_isas(f, K, 1);
        if (f != HR_FORMAT_I8C) check_isas(f, K, K / 32);
    }
}

/* ---- the ends of the ranges -------------------------------------------------------------------
 */

/* I8C times rows of one scale 1: the integers themselves, on every path, for M = 1 and M = 8. */
static void check_integers(const int8_t *w, const int8_t *x, int64_t N, int64_t K)
{
    enum { ROWS = 8 };
    int8_t *many = bed_alloc((size_t)(ROWS * K));
    float ones[64];
    for (int i = 0; i < 64; i++) ones[i] = 1;
    for (int r = 0; r < ROWS; r++) memcpy(many + r * K, x, (size_t)K);
    op_case c = { .op = HR_OP_linear, .n_in = 5, .attrs.dtype = HR_DTYPE_F32 };
    c.in[0] = (op_operand){ .kind = OP_INPUT,
                            .dtype = HR_DTYPE_I8,
                            .shape = HR_SHAPE(ROWS, K),
                            .live = HR_LIVE_TOKENS,
                            .data = many };
    c.in[1] = (op_operand){ .kind = OP_WEIGHT,
                            .format = HR_FORMAT_I8C,
                            .shape = HR_SHAPE(N, K),
                            .data = w,
                            .scale = ones };
    c.in[4] = (op_operand){ .kind = OP_INPUT,
                            .dtype = HR_DTYPE_F32,
                            .shape = HR_SHAPE(ROWS, 1),
                            .live = HR_LIVE_TOKENS,
                            .data = ones };
    for (int isa = 0; isa < PATHS; isa++)
        for (int64_t M = 1; M <= ROWS && here((hr_isa)isa); M += 7) {
            op_case some = first_rows(&c, M);
            float *y = run(&some, (hr_isa)isa, 1);
            for (int64_t i = 0; i < M * N; i++) {
                int64_t sum = 0;
                for (int64_t k = 0; k < K; k++) sum += (int64_t)w[i % N * K + k] * x[k];
                if (y[i] != (float)sum)
                    fail_msg("%s, M %lld: %g is not %lld", path_name((hr_isa)isa), (long long)M,
                             (double)y[i], (long long)sum);
            }
            hr_free(y);
        }
    hr_free(many);
}

/* Faults G02 and G03: saturating pairs, -128 on either side, lengths that fill no quad. */
static void test_integers_at_the_ends(void **state)
{
    (void)state;
    static const int8_t row[4] = { -47, -123, -10, 92 }, by[4] = { 124, -40, 103, 24 };
    check_integers(row, by, 1, 4);
    static const int8_t ends[] = { 127, -128, -127, 1, -1, 0 };
    static const int64_t lengths[] = { 64, 1, 3, 31, 33, 130, 4096 };
    static int8_t w[17 * 4096], x[4096];
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (size_t a = 0; a < 6; a++)
            for (size_t b = 0; b < 6; b++) {
                int64_t K = lengths[l];
                for (int64_t i = 0; i < K; i++) x[i] = ends[(b + (i % 5 == 4)) % 6];
                for (int64_t i = 0; i < 17 * K; i++) w[i] = ends[(a + (i / K > 8)) % 6];
                check_integers(w, x, 17, K);
            }
}

/* The longest K that the specification allows, at its worst: sums pass 2^31 on the way. */
static void test_longest_row(void **state)
{
    (void)state;
    enum { LONGEST = 131040 };
    int8_t *w = bed_alloc(LONGEST), *x = bed_alloc(LONGEST);
    memset(w, -128, LONGEST);
    memset(x, 127, LONGEST);
    check_integers(w, x, 1, LONGEST);
    memset(w, 127, LONGEST);
    check_integers(w, x, 1, LONGEST);
    hr_free(w);
    hr_free(x);
}

/* All-ones and all-zeros codes under rows of ±127 and -128, in every block format: what makes
 * 16-bit sums of pairs largest. Scales of 1 keep the results integers that f32 holds. */
static void fill_codes(hr_format f, uint8_t codes, uint8_t *row, int64_t blocks)
{
    size_t bytes = hr_format_block_bytes(f);
    uint16_t one = hr_f32_to_f16(1);
    memset(row, codes, (size_t)blocks * bytes);
    for (int64_t i = 0; i < blocks; i++, row += bytes) {
        if (hr_format_has_zero_points(f)) {
            const float wide = 1;
            const uint32_t zero = codes ? codes & 15 : 16;
            memcpy(row, &wide, 4);
            memcpy(row + 4, &zero, 4);
            continue;
        }
        if (f == HR_FORMAT_Q6_K) {
            memset(row + 192, 1, 16);
            memcpy(row + 208, &one, 2);
            continue;
        }
        memcpy(row, &one, 2);
        if (f == HR_FORMAT_Q4_1 || f == HR_FORMAT_Q5_1) memcpy(row + 2, &one, 2);
        if (f == HR_FORMAT_Q4_K || f == HR_FORMAT_Q5_K) {
            memcpy(row + 2, &one, 2);
            memset(row + 4, 1, 12);
        }
    }
}

static void check_codes(hr_format f, uint8_t codes, int8_t x_first, int8_t x_second)
{
    enum { N = 17, K = 256 };
    size_t row = hr_format_row_bytes(f, K);
    uint8_t *w = bed_alloc(N * row);
    int8_t x[4 * K];
    float ones[4 * K / 32];
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) ones[i] = 1;
    for (int i = 0; i < 4 * K; i++) x[i] = i % 2 ? x_second : x_first;
    for (size_t n = 0; n < N; n++) fill_codes(f, codes, w + n * row, K / hr_format_block(f));
    op_case c = { .op = HR_OP_linear, .n_in = 5, .attrs.dtype = HR_DTYPE_F32 };
    c.in[0] = (op_operand){ .kind = OP_INPUT,
                            .dtype = HR_DTYPE_I8,
                            .shape = HR_SHAPE(4, K),
                            .live = HR_LIVE_TOKENS,
                            .data = x };
    c.in[1] = (op_operand){ .kind = OP_WEIGHT, .format = f, .shape = HR_SHAPE(N, K), .data = w };
    c.in[4] = (op_operand){ .kind = OP_INPUT,
                            .dtype = HR_DTYPE_F32,
                            .shape = HR_SHAPE(4, K / 32),
                            .live = HR_LIVE_TOKENS,
                            .data = ones };
    c.live[HR_LIVE_TOKENS] = 4;
    float v[K];
    double sum = 0;
    hr_format_dequantise(f, w, K / hr_format_block(f), v);
    for (int k = 0; k < K; k++) sum += (double)v[k] * x[k];
    for (int isa = 0; isa < PATHS; isa++) {
        if (!here((hr_isa)isa)) continue;
        float *y = run(&c, (hr_isa)isa, 1);
        for (int i = 0; i < 4 * N; i++)
            if ((double)y[i] != sum)
                fail_msg("%s on %s, codes %02x, rows %d %d: %g is not %g", hr_format_name(f),
                         path_name((hr_isa)isa), codes, x_first, x_second, (double)y[i], sum);
        hr_free(y);
    }
    hr_free(w);
}

static void test_codes_at_the_ends(void **state)
{
    (void)state;
    static const uint8_t codes[] = { 0x00, 0xff, 0x80, 0x7f, 0xf0, 0x0f };
    static const int8_t x[][2] = { { 127, 127 }, { -128, -128 }, { -127, 127 }, { 127, 0 } };
    for (hr_format f = HR_FORMAT_Q8_0; f <= LAST; f++)
        for (size_t a = 0; a < sizeof codes; a++)
            for (size_t b = 0; b < sizeof x / sizeof *x; b++)
                check_codes(f, codes[a], x[b][0], x[b][1]);
}

/* ---- packing ----------------------------------------------------------------------------------
 */

/* Rows read back out of panels are the rows that went in: what a tied embedding relies on. */
static void test_rows_out_of_panels(void **state)
{
    (void)state;
    for (hr_format f = 0; f <= LAST; f++) {
        op_case c;
        bed b;
        int64_t K = columns_for(f);
        make(&c, f, HR_DTYPE_F32, 1, ODD_N, K, 0);
        bed_make(&c, &b);
        float *want = bed_alloc((size_t)K * 4), *got = bed_alloc((size_t)K * 4);
        for (int64_t n = 0; n < ODD_N; n++) {
            hr_format_dequantise(f,
                                 (const char *)c.in[1].data + (size_t)n * hr_format_row_bytes(f, K),
                                 K / hr_format_block(f), want);
            hr_packed_row(&b.packed, n, 0, K, got);
            for (int64_t k = 0; k < K; k++)
                assert_true(got[k] == want[k] * (f == HR_FORMAT_I8C ? c.in[1].scale[n] : 1.0f));
        }
        hr_free(want);
        hr_free(got);
        bed_free(&b);
        ops_case_free(&c);
    }
}

/* Stored precision is kept: bytes per 16 columns × 256 k are those of the checkpoint, but for the
 * scales of K-quants, whose 6 bits take a byte, and zero points of I4G, which take a byte of four.
 */
static void test_panel_sizes(void **state)
{
    (void)state;
    for (hr_format f = 0; f <= LAST; f++) {
        hr_weight w = { .name = "w", .shape = HR_SHAPE(16, 256), .format = f };
        hr_packed p;
        assert_int_equal(hr_pack_measure(&w, &p), HR_OK);
        size_t stored = 16 * hr_format_row_bytes(f, 256);
        size_t unpacked_scales = f == HR_FORMAT_Q4_K || f == HR_FORMAT_Q5_K ? 16 * 4 : 0;
        size_t own_scales = f == HR_FORMAT_I8C ? 64 : 0;
        size_t packed = stored + unpacked_scales + own_scales;
        if (hr_format_has_zero_points(f)) assert_true(p.bytes <= packed);
        else assert_int_equal(p.bytes, (packed + 63) / 64 * 64);
    }
    hr_weight huge = { .name = "huge", .shape = HR_SHAPE(INT64_MAX / 8, INT64_MAX / 8) };
    hr_packed p;
    assert_int_equal(hr_pack_measure(&huge, &p), HR_RESOURCE_EXHAUSTED);
    huge.shape = HR_SHAPE(0, 4);
    assert_int_equal(hr_pack_measure(&huge, &p), HR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_company),
        cmocka_unit_test(test_neighbours_that_are_no_numbers),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_half_rows),
        cmocka_unit_test(test_int8_rows_on_every_isa),
        cmocka_unit_test(test_integers_at_the_ends),
        cmocka_unit_test(test_longest_row),
        cmocka_unit_test(test_codes_at_the_ends),
        cmocka_unit_test(test_rows_out_of_panels),
        cmocka_unit_test(test_panel_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
