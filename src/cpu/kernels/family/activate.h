/* Activation functions on vectors, shared by the families that apply one. */
#ifndef HEADRACE_CPU_KERNELS_FAMILY_ACTIVATE_H
#define HEADRACE_CPU_KERNELS_FAMILY_ACTIVATE_H

#include "cpu/kernels/vec.h"

/* x · Φ(x), Φ by erfc(z) = e^-z² · t · P(t), t = 1 / (1 + z/2), z = |x|/√2: a fit of relative error
 * 5e-8 over all z, so that the left tail keeps its relative precision. */
V_INLINE vf gelu_erf(vf x)
{
    static const float P[] = { 0.28208435f, 0.28241211f,  0.24283481f, 0.20375475f, -0.02915602f,
                               0.28174707f, -0.49042073f, 0.28613192f, -0.05938827f };
    vf one = v_set1(1.0f), z = v_mul(v_abs(x), v_set1(0.70710678f));
    vf t = v_div(one, v_madd(z, v_set1(0.5f), one));
    vf p = v_set1(P[8]);
    for (int i = 7; i >= 0; i--) p = v_madd(p, t, v_set1(P[i]));
    vf e = v_exp(v_mul(v_mul(x, x), v_set1(-0.5f)));
    vf tail = v_mul(v_mul(e, v_mul(p, t)), v_set1(0.5f)); /* Φ(-|x|) */
    vf phi = v_select(v_lt(x, v_set1(0.0f)), tail, v_sub(one, tail));
    return v_mul(x, phi);
}

/* x · (1 + tanh u) / 2 is x / (1 + e^-2u), without the cancellation. */
V_INLINE vf gelu_tanh(vf x)
{
    vf cubic = v_mul(v_mul(x, x), x);
    vf u = v_mul(v_madd(cubic, v_set1(0.044715f), x), v_set1(-1.5957691f)); /* -2 √(2/π) */
    return v_div(x, v_add(v_set1(1.0f), v_exp(u)));
}

V_INLINE vf activate(hr_activation act, vf x)
{
    switch (act) {
    case HR_ACT_NONE: return x;
    case HR_ACT_SILU: return v_div(x, v_add(v_set1(1.0f), v_exp(v_sub(v_set1(0.0f), x))));
    case HR_ACT_GELU: return gelu_erf(x);
    case HR_ACT_GELU_TANH: return gelu_tanh(x);
    case HR_ACT_RELU: return v_max(v_set1(0.0f), x); /* a NaN stays */
    }
    return x;
}

#endif
