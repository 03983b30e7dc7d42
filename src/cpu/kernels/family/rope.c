/* Rotary positions, rotate-half: columns i and F + i turn by position × inv_freq[i].
 *
 * Cosines and sines are made once per token and shared by its heads. The angle is the f32 product
 * that models were trained with; it is reduced to ±π/4 in f64, so position 1,000,000 costs no
 * precision, and the polynomials are Taylor's, below 1 ulp there. */
#include "cpu/kernels/vec.h"

/* sin and cos of r, |r| ≤ π/4. */
V_INLINE vf sin_small(vf r)
{
    vf z = v_mul(r, r), p = v_set1(1.0f / 362880);
    p = v_madd(p, z, v_set1(-1.0f / 5040));
    p = v_madd(p, z, v_set1(1.0f / 120));
    p = v_madd(p, z, v_set1(-1.0f / 6));
    return v_madd(v_mul(p, z), r, r);
}
V_INLINE vf cos_small(vf r)
{
    vf z = v_mul(r, r), p = v_set1(-1.0f / 3628800);
    p = v_madd(p, z, v_set1(1.0f / 40320));
    p = v_madd(p, z, v_set1(-1.0f / 720));
    p = v_madd(p, z, v_set1(1.0f / 24));
    p = v_madd(p, z, v_set1(-0.5f));
    return v_madd(p, z, v_set1(1.0f));
}

/* angle = n · π/2 + r. π/2 has 33 bits in HIGH: n · HIGH is exact up to n of 20 bits. */
V_INLINE void sin_cos(vf angle, vf *s, vf *c)
{
    const double TWO_OVER_PI = 0x1.45f306dc9c883p-1, HIGH = 0x1.921fb544p+0,
                 LOW = 0x1.0b4611a626331p-34;
    vd a = vd_from_f(angle), n = vd_round(vd_mul(a, vd_set1(TWO_OVER_PI)));
    vd r = vd_sub(vd_sub(a, vd_mul(n, vd_set1(HIGH))), vd_mul(n, vd_set1(LOW)));
    /* n mod 4 as -2 … 2: what is left fits f32 and i32 */
    vd turns = vd_round(vd_mul(n, vd_set1(0.25)));
    vi quadrant = vi_from_f(v_from_d(vd_sub(n, vd_mul(turns, vd_set1(4.0)))));
    vf rs = v_from_d(r), sine = sin_small(rs), cosine = cos_small(rs);
    vm odd = vi_eq(vi_and(quadrant, vi_set1(1)), vi_set1(1));
    vi two = vi_set1(2);
    vm flip_s = vi_eq(vi_and(quadrant, two), two);
    vm flip_c = vi_eq(vi_and(vi_add(quadrant, vi_set1(1)), two), two);
    vf first = v_select(odd, cosine, sine), second = v_select(odd, sine, cosine),
       zero = v_set1(0.0f);
    *s = v_select(flip_s, v_sub(zero, first), first);
    *c = v_select(flip_c, v_sub(zero, second), second);
}

/* cos and sin of token t, times the attention factor, to c [F] and s [F]. */
static void turn_table(const hr_kernel_args *a, int64_t t, int64_t F, float *c, float *s)
{
    const hr_node *n = a->node;
    const int32_t *positions = a->in[1]; /* [3,T] */
    const float *inv_freq = a->in[2];    /* [F] */
    int64_t T = n->in[1]->shape.dim[1];
    for (int64_t i = 0; i < F; i++) {
        int axis = hr_rope_axis(n->attrs.sections, (int32_t)i);
        c[i] = (float)positions[axis * T + t];
    }
    for (int64_t i = 0; i < F; i += V_LANES) {
        int64_t left = F - i < V_LANES ? F - i : V_LANES;
        vf sine, cosine;
        sin_cos(v_mul(v_load_n(c + i, left), v_load_n(inv_freq + i, left)), &sine, &cosine);
        v_store_n(c + i, v_mul(cosine, v_set1(n->attrs.scale)), left);
        v_store_n(s + i, v_mul(sine, v_set1(n->attrs.scale)), left);
    }
}

V_INLINE void turn_head(hr_dtype d, const hr_kernel_args *a, int64_t at, int64_t F, int64_t D,
                        const float *c, const float *s)
{
    const void *x = a->in[0];
    for (int64_t i = 0; i < F; i += V_LANES) {
        int64_t left = F - i;
        vf low = v_load_upto(d, x, at + i, left), high = v_load_upto(d, x, at + F + i, left);
        vf co = v_load_upto(HR_DTYPE_F32, c, i, left), si = v_load_upto(HR_DTYPE_F32, s, i, left);
        vf minus = v_sub(v_set1(0.0f), high);
        v_store_upto(d, a->out[0], at + i, v_madd(low, co, v_mul(minus, si)), left);
        v_store_upto(d, a->out[0], at + F + i, v_madd(high, co, v_mul(low, si)), left);
    }
    if (a->out[0] == x) return;
    size_t size = hr_dtype_size(d), skip = (size_t)(at + 2 * F) * size;
    memcpy((char *)a->out[0] + skip, (const char *)x + skip, (size_t)(D - 2 * F) * size);
}

/* The table lies in scratch, which holds 131,072 frequencies. */
V_INLINE void rope_items(hr_dtype d, const hr_kernel_args *a, int64_t from, int64_t to)
{
    int64_t N = a->node->in[0]->shape.dim[1], D = a->node->in[0]->shape.dim[2];
    int64_t F = a->node->in[2]->shape.dim[0];
    float *c = a->scratch, *s = c + F;
    for (int64_t t = from; t < to; t++) {
        turn_table(a, t, F, c, s);
        for (int64_t n = 0; n < N; n++) turn_head(d, a, (t * N + n) * D, F, D, c, s);
    }
}

void HR_KERNEL(rope)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    hr_dtype d = a->node->in[0]->dtype;
    if (d == HR_DTYPE_F32) rope_items(HR_DTYPE_F32, a, from, to);
    else if (d == HR_DTYPE_BF16) rope_items(HR_DTYPE_BF16, a, from, to);
    else rope_items(HR_DTYPE_F16, a, from, to);
}
