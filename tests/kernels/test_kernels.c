/* Every kernel of kernels.def on every instruction set of this machine, called without a backend.
 *
 * Agreement with ref is asked by tests/conformance. Here: a kernel's bits do not depend on how its
 * items are split or, where kernels.def says so, on results lying over an operand; padding is
 * neither read (it holds NaN patterns) nor written; fused kernels equal their expansion to the bit;
 * quantisation equals its definition; vector functions stay within bounds that are derived beside
 * them. With --bench: nanoseconds and bytes per second of every kernel, one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <math.h>

#include "base/half.h"
#include "kernels/bed.h"
#include "kernels/bench.h"

static const double U = 0x1p-24; /* unit roundoff of f32 */

/* ---- any kernel ------------------------------------------------------------------------------ */

static void assert_same(const bed *a, const bed *b, const ops_row *w, hr_isa isa, const char *what)
{
    for (int i = 0; i < a->node->n_out; i++)
        if (memcmp(a->out[i], b->out[i], a->out_bytes[i]))
            fail_msg("%s on %s: result %d depends on %s", w->name, hr_isa_name(isa), i, what);
}

static void assert_padding_untouched(const bed *b, const ops_row *w, hr_isa isa)
{
    for (int i = 0; i < b->node->n_out && !hr_op_is_in_place(w->op); i++) {
        const hr_value *v = b->node->out[i];
        size_t row = b->out_bytes[i] / (size_t)v->shape.dim[0];
        for (size_t k = row * (size_t)hr_live_rows(v, b->c->live); k < b->out_bytes[i]; k++)
            if (((unsigned char *)b->out[i])[k] != BED_UNTOUCHED)
                fail_msg("%s on %s: result %d is written past the live count", w->name,
                         hr_isa_name(isa), i);
    }
}

/* Result 0 over operand 0, where that is allowed; the padding of both then is the operand's. */
static void check_in_place(bed *b, const bed *whole, const ops_row *w, hr_isa isa)
{
    const hr_value *v = b->node->out[0];
    if (hr_kernel_lookup(w->op, isa)->place != HR_PLACE_INPLACE) return;
    if (b->node->in[0]->dtype != v->dtype) return;
    size_t live = b->out_bytes[0] / (size_t)v->shape.dim[0] * (size_t)hr_live_rows(v, b->c->live);
    bed_run_in_place(b, isa);
    if (memcmp(b->out[0], whole->out[0], live))
        fail_msg("%s on %s: another result in place", w->name, hr_isa_name(isa));
    if (memcmp((char *)b->out[0] + live, (char *)b->in[0] + live, b->out_bytes[0] - live))
        fail_msg("%s on %s: padding is written in place", w->name, hr_isa_name(isa));
    for (int i = 1; i < b->node->n_out; i++)
        if (memcmp(b->out[i], whole->out[i], b->out_bytes[i]))
            fail_msg("%s on %s: result %d differs in place", w->name, hr_isa_name(isa), i);
}

static void check_kernel(const ops_row *w, hr_dtype d, hr_isa isa)
{
    op_case c;
    bed whole, split;
    ops_case_make(w, w->rows + 5, w->rows, d, &c);
    bed_make(&c, &whole);
    bed_make(&c, &split);
    bed_run(&whole, isa, INT64_MAX / 2);
    assert_padding_untouched(&whole, w, isa);
    for (int64_t step = 1; step < 8; step += 2) {
        bed_run(&split, isa, step);
        assert_same(&whole, &split, w, isa, "the split into items");
    }
    check_in_place(&split, &whole, w, isa);
    bed_free(&whole);
    bed_free(&split);
    ops_case_free(&c);
}

static void test_every_kernel(void **state)
{
    (void)state;
    for (int isa = 0; isa < HR_ISA_COUNT; isa++) {
        if (!hr_isa_available((hr_isa)isa)) continue;
        for (size_t i = 0; i < ops_table_n; i++)
            for (hr_dtype d = HR_DTYPE_F32; d <= HR_DTYPE_F16; d++)
                if ((d == HR_DTYPE_F32 || ops_has_dtypes(&ops_table[i])) &&
                    hr_kernel_lookup(ops_table[i].op, (hr_isa)isa))
                    check_kernel(&ops_table[i], d, (hr_isa)isa);
    }
}

/* ---- fused = unfused ------------------------------------------------------------------------- */

static op_operand operand(hr_dtype d, hr_shape s, hr_live live, const void *data)
{
    return (op_operand){ .kind = OP_INPUT, .dtype = d, .shape = s, .live = live, .data = data };
}

/* Runs one op over arrays; the caller frees the bed. */
static void apply(hr_op op, const hr_attrs *attrs, op_case *c, const op_operand *in, int n,
                  hr_isa isa, bed *b)
{
    *c = (op_case){ .op = op, .attrs = *attrs, .n_in = hr_op_inputs(op) };
    for (int i = 0; i < n; i++) c->in[i] = in[i];
    c->live[HR_LIVE_TOKENS] = c->live[HR_LIVE_ROWS] = in[0].shape.dim[0];
    bed_make(c, b);
    bed_run(b, isa, 2);
}

typedef struct stage {
    op_case c;
    bed b;
} stage;

static op_operand result(const stage *s, int i)
{
    const hr_value *v = s->b.node->out[i];
    return operand(v->dtype, v->shape, HR_LIVE_TOKENS, s->b.out[i]);
}

static void assert_result(const stage *fused, int i, const stage *plain, int k, hr_isa isa)
{
    if (memcmp(fused->b.out[i], plain->b.out[k], fused->b.out_bytes[i]))
        fail_msg("%s on %s, K %lld: result %d is not that of the expansion",
                 hr_op_name(fused->c.op), hr_isa_name(isa), (long long)fused->c.in[0].shape.dim[1],
                 i);
}

/* a, b [T,K], weight [K]: all five composites against the ops they stand for. */
static void check_fused(const op_operand *a, const op_operand *b, const op_operand *weight,
                        const hr_attrs *at, hr_isa isa)
{
    stage fused[5], sum, norm, norm_sum, q_norm, q_norm_sum, act, product, q_product;
    const op_operand pair[3] = { *a, *b, *weight }, normed[2] = { *a, *weight };
    apply(HR_OP_gated, at, &fused[0].c, pair, 2, isa, &fused[0].b);
    apply(HR_OP_add_rms_norm, at, &fused[1].c, pair, 3, isa, &fused[1].b);
    apply(HR_OP_rms_norm_q8, at, &fused[2].c, normed, 2, isa, &fused[2].b);
    apply(HR_OP_add_rms_norm_q8, at, &fused[3].c, pair, 3, isa, &fused[3].b);
    apply(HR_OP_gated_q8, at, &fused[4].c, pair, 2, isa, &fused[4].b);

    apply(HR_OP_add, at, &sum.c, pair, 2, isa, &sum.b);
    apply(HR_OP_rms_norm, at, &norm.c, normed, 2, isa, &norm.b);
    const op_operand summed[2] = { result(&sum, 0), *weight };
    apply(HR_OP_rms_norm, at, &norm_sum.c, summed, 2, isa, &norm_sum.b);
    const op_operand n1 = result(&norm, 0), n2 = result(&norm_sum, 0);
    apply(HR_OP_quantise_rows, at, &q_norm.c, &n1, 1, isa, &q_norm.b);
    apply(HR_OP_quantise_rows, at, &q_norm_sum.c, &n2, 1, isa, &q_norm_sum.b);
    apply(HR_OP_activation, at, &act.c, a, 1, isa, &act.b);
    const op_operand gate[2] = { result(&act, 0), *b };
    apply(HR_OP_mul, at, &product.c, gate, 2, isa, &product.b);
    const op_operand p = result(&product, 0);
    apply(HR_OP_quantise_rows, at, &q_product.c, &p, 1, isa, &q_product.b);

    assert_result(&fused[0], 0, &product, 0, isa);
    assert_result(&fused[1], 0, &sum, 0, isa);
    assert_result(&fused[1], 1, &norm_sum, 0, isa);
    for (int i = 0; i < 2; i++) {
        assert_result(&fused[2], i, &q_norm, i, isa);
        assert_result(&fused[3], i + 1, &q_norm_sum, i, isa);
        assert_result(&fused[4], i, &q_product, i, isa);
    }
    assert_result(&fused[3], 0, &sum, 0, isa);
    stage *all[] = { &sum, &norm, &norm_sum, &q_norm, &q_norm_sum, &act, &product, &q_product };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) bed_free(&all[i]->b);
    for (int i = 0; i < 5; i++) bed_free(&fused[i].b);
}

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void put(hr_dtype d, void *to, int64_t i, float x)
{
    if (d == HR_DTYPE_F32) ((float *)to)[i] = x;
    else ((uint16_t *)to)[i] = d == HR_DTYPE_BF16 ? hr_f32_to_bf16(x) : hr_f32_to_f16(x);
}

static void *noise(hr_dtype d, int64_t n, float spread, uint32_t seed)
{
    void *to = bed_alloc((size_t)n * 4);
    for (int64_t i = 0; i < n; i++) put(d, to, i, ((float)next(&seed) * 0x1p-23f - 1) * spread);
    return to;
}

static void test_fused_is_unfused(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {
        { 32, 32 },   { 96, 32 },   { 13, 13 },     { 77, 77 },
        { 1056, 32 }, { 1536, 32 }, { 1500, 1500 }, { 2080, 2080 }
    };
    for (int isa = 0; isa < HR_ISA_COUNT; isa++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes && hr_isa_available((hr_isa)isa); s++)
            for (hr_dtype d = HR_DTYPE_F32; d <= HR_DTYPE_F16; d++) {
                int64_t K = sizes[s][0], T = 5;
                void *a = noise(d, T * K, 4, 1), *b = noise(d, T * K, 3, 2);
                void *w = noise(HR_DTYPE_F32, K, 2, 3);
                hr_attrs at = { .eps = 1e-5f,
                                .offset = s % 2 ? 1.0f : 0.0f,
                                .group = (int32_t)sizes[s][1],
                                .act = (hr_activation)(1 + s % 4) };
                op_operand x = operand(d, HR_SHAPE(T, K), HR_LIVE_TOKENS, a);
                op_operand y = operand(d, HR_SHAPE(T, K), HR_LIVE_TOKENS, b);
                op_operand z = operand(HR_DTYPE_F32, HR_SHAPE(K), HR_LIVE_ALL, w);
                check_fused(&x, &y, &z, &at, (hr_isa)isa);
                hr_free(a);
                hr_free(b);
                hr_free(w);
            }
}

/* ---- quantisation ---------------------------------------------------------------------------- */

/* One group by the definition of ops.def. */
static float define_group(const float *x, int64_t n, int8_t *q)
{
    float most = 0;
    bool finite = true;
    for (int64_t i = 0; i < n; i++) {
        finite = finite && isfinite(x[i]);
        most = fmaxf(most, fabsf(x[i]));
    }
    float scale = most / 127.0f;
    if (!finite) scale = NAN;
    if (scale == 0) scale = 1;
    for (int64_t i = 0; i < n; i++) {
        float v = rintf(x[i] / scale);
        q[i] = (int8_t)(!finite ? 0 : v > 127 ? 127 : v < -127 ? -127 : v);
    }
    return scale;
}

/* Rows that break quantisers: each of K columns. */
static void hostile_row(int kind, float *x, int64_t K)
{
    uint32_t seed = (uint32_t)(kind + 1) * 77;
    for (int64_t k = 0; k < K; k++) {
        float v = (float)next(&seed) * 0x1p-23f - 1;
        switch (kind) {
        case 0: x[k] = 0; break;
        case 1: x[k] = -0.0f; break;
        case 2: x[k] = v * 1e-30f; break;
        case 3: x[k] = v * 3e38f; break;
        case 4: x[k] = k == K / 2 ? NAN : v; break;
        case 5: x[k] = k == K - 1 ? -INFINITY : v; break;
        case 6: x[k] = (float)(next(&seed) % 255) - 127 + 0.5f * (float)(k % 2); break; /* ties */
        case 7: x[k] = v * 0x1p-140f; break;              /* denormals */
        case 8: x[k] = (float)(k % 3) * 0x1p-149f; break; /* the scale underflows */
        case 9: x[k] = k ? 0 : -5; break;
        default: x[k] = v; break;
        }
    }
}

static void check_quantise(int64_t K, int64_t group, hr_isa isa)
{
    enum { KINDS = 11 };
    float *x = bed_alloc((size_t)(KINDS * K) * sizeof *x);
    int8_t *q = bed_alloc((size_t)group);
    for (int t = 0; t < KINDS; t++) hostile_row(t, x + t * K, K);
    stage s;
    op_operand in = operand(HR_DTYPE_F32, HR_SHAPE(KINDS, K), HR_LIVE_TOKENS, x);
    hr_attrs at = { .group = (int32_t)group };
    apply(HR_OP_quantise_rows, &at, &s.c, &in, 1, isa, &s.b);
    const float *scales = s.b.out[1];
    for (int64_t g = 0; g < KINDS * K / group; g++) {
        float scale = define_group(x + g * group, group, q);
        bool same = isnan(scale) ? isnan(scales[g]) : !memcmp(&scale, &scales[g], sizeof scale);
        if (!same || memcmp(q, (int8_t *)s.b.out[0] + g * group, (size_t)group))
            fail_msg("quantise_rows on %s, K %lld: group %lld (row %lld) is not the definition's",
                     hr_isa_name(isa), (long long)K, (long long)g, (long long)(g * group / K));
    }
    bed_free(&s.b);
    hr_free(x);
    hr_free(q);
}

static void test_quantise_is_its_definition(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = { { 1, 1 },       { 13, 13 },     { 32, 32 },
                                        { 64, 32 },     { 64, 64 },     { 1056, 32 },
                                        { 1056, 1056 }, { 1500, 1500 }, { 4096, 32 } };
    for (int isa = 0; isa < HR_ISA_COUNT; isa++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes && hr_isa_available((hr_isa)isa); s++)
            check_quantise(sizes[s][0], sizes[s][1], (hr_isa)isa);
}

/* ---- conversions and functions --------------------------------------------------------------- */

/* Every f16 and bf16 number, and f32 numbers around every rounding border, through cast. */
static void check_cast(hr_dtype from, hr_dtype to, const void *data, int64_t n, hr_isa isa)
{
    stage s;
    op_operand in = operand(from, HR_SHAPE(1, n), HR_LIVE_TOKENS, data);
    hr_attrs at = { .dtype = to };
    apply(HR_OP_cast, &at, &s.c, &in, 1, isa, &s.b);
    for (int64_t i = 0; i < n; i++) {
        float x = (float)ops_float(from, data, i);
        char want[4], *got = (char *)s.b.out[0] + (size_t)i * hr_dtype_size(to);
        put(to, want, 0, x);
        bool same = isnan(x) ? isnan(ops_float(to, got, 0)) : !memcmp(want, got, hr_dtype_size(to));
        if (!same)
            fail_msg("cast %s to %s on %s: %a", hr_dtype_name(from), hr_dtype_name(to),
                     hr_isa_name(isa), (double)x);
    }
    bed_free(&s.b);
}

static void test_cast(void **state)
{
    (void)state;
    static const uint32_t low[] = { 0,      1,      0xfff,  0x1000, 0x1001, 0x1fff,
                                    0x2000, 0x7fff, 0x8000, 0x8001, 0xffff };
    enum { LOWS = sizeof low / sizeof *low };
    uint16_t *halves = bed_alloc(65536 * 2);
    uint32_t *words = bed_alloc(65536 * LOWS * 4);
    for (uint32_t i = 0; i < 65536; i++) {
        halves[i] = (uint16_t)i;
        for (uint32_t k = 0; k < LOWS; k++) words[i * LOWS + k] = i << 16 | low[k];
    }
    for (int isa = 0; isa < HR_ISA_COUNT; isa++)
        for (hr_dtype d = HR_DTYPE_BF16; d <= HR_DTYPE_F16 && hr_isa_available((hr_isa)isa); d++) {
            check_cast(HR_DTYPE_F32, d, words, 65536 * LOWS, (hr_isa)isa);
            check_cast(d, HR_DTYPE_F32, halves, 65536, (hr_isa)isa);
            check_cast(d, d == HR_DTYPE_F16 ? HR_DTYPE_BF16 : HR_DTYPE_F16, halves, 65536,
                       (hr_isa)isa);
        }
    hr_free(halves);
    hr_free(words);
}

static double exact(hr_activation act, double x)
{
    if (act == HR_ACT_SILU) return x / (1 + exp(-x));
    if (act == HR_ACT_GELU) return x * 0.5 * erfc(-x * M_SQRT1_2);
    if (act == HR_ACT_GELU_TANH)
        return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    return tanh(x); /* softcap of 1 */
}

/* Relative error in roundoffs. v_exp: half a unit for each of the argument's and the polynomial's
 * last three roundings and the remainder, 4; an exponent e that is itself rounded k times gives
 * k |e| more. Then the sum, the quotient, the product. The fit of erfc has 8 roundings of a
 * polynomial whose terms are up to twice its value; the small branch of tanh has 14. */
static double roundings(hr_activation act, double x)
{
    double cubic = 2 * sqrt(2 / M_PI) * (fabs(x) + 0.044715 * fabs(x * x * x));
    switch (act) {
    case HR_ACT_SILU: return 4 + 3;
    case HR_ACT_GELU: return 4 + 16 + 4 + fmin(x * x, 210);
    case HR_ACT_GELU_TANH: return 4 + 3 + 4 * fmin(cubic, 110);
    case HR_ACT_NONE:
    case HR_ACT_RELU: break;
    }
    return 14;
}

/* Every sign, exponent and a few significands. HR_ACT_NONE stands for softcap. */
static void check_function(hr_activation act, hr_isa isa)
{
    enum { STEP = 0x7a123, N = (int)(0x100000000 / STEP) };
    float *x = bed_alloc((size_t)N * sizeof *x);
    int64_t n = 0;
    for (int64_t i = 0; i < N; i++) {
        x[n] = hr_f32_from_bits((uint32_t)(i * STEP));
        if (isfinite(x[n]) && (fabsf(x[n]) < 1e12f || act == HR_ACT_NONE)) n++;
    }
    stage s;
    op_operand in = operand(HR_DTYPE_F32, HR_SHAPE(1, n), HR_LIVE_TOKENS, x);
    hr_attrs at = { .act = act, .cap = 1 };
    apply(act ? HR_OP_activation : HR_OP_softcap, &at, &s.c, &in, 1, isa, &s.b);
    for (int64_t i = 0; i < n; i++) {
        double v = (double)x[i], want = exact(act, v), got = (double)((float *)s.b.out[0])[i];
        /* below the smallest normal e^x the quotient is flushed: |x| times that */
        double bound = U * roundings(act, v) * fabs(want) + 0x1p-125 * (1 + fabs(v));
        if (!(fabs(got - want) <= bound))
            fail_msg("%s on %s: f(%a) is %a, not %a", hr_activation_name(act), hr_isa_name(isa), v,
                     got, want);
    }
    bed_free(&s.b);
    hr_free(x);
}

static void test_functions(void **state)
{
    (void)state;
    for (int isa = 0; isa < HR_ISA_COUNT; isa++)
        for (hr_activation act = HR_ACT_NONE; act <= HR_ACT_GELU_TANH; act++)
            if (hr_isa_available((hr_isa)isa)) check_function(act, (hr_isa)isa);
}

/* Rope far out: the angle is an f32 product, its sine and cosine are within 2 roundoffs, then two
 * products, a sum and the attention factor. */
static void check_rope(hr_isa isa)
{
    enum { T = 64, F = 32, D = 70 };
    int32_t positions[3 * T];
    float freq[F];
    for (int t = 0; t < T; t++) positions[t] = t < 2 ? t : 4194303 - t * 65521;
    for (int t = T; t < 3 * T; t++) positions[t] = -1; /* rows 1 and 2 are not asked for */
    for (int i = 0; i < F; i++) freq[i] = (float)pow(10000, -i / (double)F);
    float *x = noise(HR_DTYPE_F32, T * D, 1, 9);
    op_operand in[] = { operand(HR_DTYPE_F32, HR_SHAPE(T, 1, D), HR_LIVE_TOKENS, x),
                        operand(HR_DTYPE_I32, HR_SHAPE(3, T), HR_LIVE_ALL, positions),
                        operand(HR_DTYPE_F32, HR_SHAPE(F), HR_LIVE_ALL, freq) };
    hr_attrs at = { .scale = 1.25f };
    stage s;
    apply(HR_OP_rope, &at, &s.c, in, 3, isa, &s.b);
    for (int i = 0; i < T * D; i++) {
        int t = i / D, k = i % D, f = k % F, pair = k < F ? i + F : i - F;
        double y = (double)((float *)s.b.out[0])[i], want = (double)x[i], bound = 0;
        if (k < 2 * F) {
            double angle = (double)((float)positions[t] * freq[f]), sign = k < F ? -1 : 1;
            want = 1.25 * ((double)x[i] * cos(angle) + sign * (double)x[pair] * sin(angle));
            bound = U * 6 * 1.25 * (fabs((double)x[i]) + fabs((double)x[pair]));
        }
        if (!(fabs(y - want) <= bound))
            fail_msg("rope on %s: position %d, column %d: %a, not %a", hr_isa_name(isa),
                     positions[t], k, y, want);
    }
    bed_free(&s.b);
    hr_free(x);
}

static void test_rope_far_out(void **state)
{
    (void)state;
    for (int isa = 0; isa < HR_ISA_COUNT; isa++)
        if (hr_isa_available((hr_isa)isa)) check_rope((hr_isa)isa);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--bench")) return bench_all(argc > 2 ? argv[2] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kernel),
        cmocka_unit_test(test_fused_is_unfused),
        cmocka_unit_test(test_quantise_is_its_definition),
        cmocka_unit_test(test_cast),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_rope_far_out),
        cmocka_unit_test(test_every_kernel_has_a_bench),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
