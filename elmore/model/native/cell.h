/* Element-wise functions on vectors. They use IEEE operations alone, and no contraction but the written ones, so
   a number has the same bits in any place.

   tanh(x) = x P(x^2) / Q(x^2) for |x| <= 9, fitted to 2e-8, and 1 beyond; in float32 the error is at most
   4e-7. sigmoid(x) = (1 + tanh(x/2)) / 2. */

#ifndef ELMORE_CELL_H
#define ELMORE_CELL_H

#include <string.h>

#include "simd.h"

enum { TOGETHER = WIDE == 8 ? 2 : 4 }; /* vectors: each operation waits for the one before, so the CPU works on several */

typedef struct {
    floats over, under;
} ratio;

/* The tanh of x[n] is out[n].over / out[n].under. */
FORCE_INLINE void tanh_ratios(const floats *x, const int count, ratio *out) {
    floats z[TOGETHER];
#define ALL UNROLL(n, count)
#define NEXT(part, coefficient) ALL out[n].part = multiply_add(out[n].part, z[n], splat(coefficient));
    floats clamped[TOGETHER];
    ALL clamped[n] = clamp(x[n], 9.0f);
    ALL z[n] = clamped[n] * clamped[n];
    ALL out[n] = (ratio){splat(1.31842155e-08f), splat(7.70265956e-07f)};
    NEXT(over, 2.04718235e-05f)
    NEXT(under, 3.27138463e-04f)
    NEXT(over, 3.48658138e-03f)
    NEXT(under, 2.58419774e-02f)
    NEXT(over, 1.33731976e-01f)
    NEXT(under, 4.67064947e-01f)
    NEXT(over, 9.99999881e-01f)
    NEXT(under, 1.0f)
    ALL out[n].over = clamped[n] * out[n].over;
#undef NEXT
}

/* LSTM cells, from the gate pre-activations: update `cells`, and write sigmoid(o) tanh(c).

       c' = clip(sigmoid(f) c + sigmoid(i) tanh(g)),   h = sigmoid(o) tanh(c')

   The ratios are divided late: two divisions per cell. */
FORCE_INLINE void update_lstm_cells(const float *input, const float *forget, const float *candidate,
                                    const float *output, float clip, float *cells, float *hidden) {
    const int count = TOGETHER;
    ratio i[TOGETHER], f[TOGETHER], g[TOGETHER], o[TOGETHER], c[TOGETHER];
    floats x[TOGETHER], under[TOGETHER];
    ALL x[n] = splat(0.5f) * load(input + n * WIDE);
    tanh_ratios(x, count, i);
    ALL x[n] = load(candidate + n * WIDE);
    tanh_ratios(x, count, g);
    ALL x[n] = splat(0.5f) * load(forget + n * WIDE);
    tanh_ratios(x, count, f);
    ALL under[n] = i[n].under * g[n].under;
    ALL x[n] = load(cells + n * WIDE) * (f[n].under + f[n].over) * under[n];
    ALL x[n] = splat(0.5f) * (x[n] + (i[n].under + i[n].over) * g[n].over * f[n].under) /
               (f[n].under * under[n]);
    ALL x[n] = clamp(x[n], clip);
    ALL store(cells + n * WIDE, x[n]);
    tanh_ratios(x, count, c);
    ALL x[n] = splat(0.5f) * load(output + n * WIDE);
    tanh_ratios(x, count, o);
    ALL store(hidden + n * WIDE, splat(0.5f) * (o[n].under + o[n].over) * c[n].over /
                                     (o[n].under * c[n].under));
#undef ALL
}

FORCE_INLINE floats tanh_of(floats x) {
    ratio r;
    tanh_ratios(&x, 1, &r);
    return r.over / r.under;
}

FORCE_INLINE floats sigmoid_of(floats x) {
    ratio r;
    x *= splat(0.5f);
    tanh_ratios(&x, 1, &r);
    return splat(0.5f) * (r.under + r.over) / r.under;
}

/* exp(x) for x <= 0, to 1e-7 of it, and about 1e-37 below -86: 2^n exp(r), where r is the rest of x. */
FORCE_INLINE floats exp_of(floats x) {
    const float round = 12582912; /* 1.5 * 2^23: a sum with it is a whole number, in its last bits */
    x = larger_of(splat(-86), x);
    const floats shifted = multiply_add(x, splat(1.44269504f), splat(round)), n = shifted - splat(round);
    floats r = multiply_add(n, splat(-0.693359375f), x);
    r = multiply_add(n, splat(2.12194440e-4f), r);
    floats p = splat(1.98756915e-4f);
    p = multiply_add(p, r, splat(1.39819995e-3f));
    p = multiply_add(p, r, splat(8.33345191e-3f));
    p = multiply_add(p, r, splat(4.16657959e-2f));
    p = multiply_add(p, r, splat(1.66666655e-1f));
    p = multiply_add(p, r, splat(0.5f));
    p = multiply_add(p * r, r, r + splat(1));
    const ints scale = ((ints)shifted + (127 - 0x4b400000)) << 23;
    return p * (floats)scale;
}

/* A vector of which at most `count` numbers are in memory; the others are `fill`. */
FORCE_INLINE floats load_some(const float *from, int64_t count, float fill) {
    if (count >= WIDE) return load(from);
    floats all = splat(fill);
    if (count > 0) memcpy(&all, from, sizeof(float) * (size_t)count);
    return all;
}

FORCE_INLINE void store_some(float *to, floats all, int64_t count) {
    if (count >= WIDE) store(to, all);
    else memcpy(to, &all, sizeof(float) * (size_t)count);
}

#endif
