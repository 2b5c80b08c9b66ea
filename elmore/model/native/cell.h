/* Element-wise functions with the same bits in a vector and in the remainder of a loop: they use IEEE
   operations alone, and no contraction but the written ones.

   tanh(x) = x P(x^2) / Q(x^2) for |x| <= 9, fitted to 2e-8, and 1 beyond; in float32 the error is at most
   4e-7. sigmoid(x) = (1 + tanh(x/2)) / 2. */

#ifndef ELMORE_CELL_H
#define ELMORE_CELL_H

#include "simd.h"

typedef struct {
    float over, under;
} ratio;

/* A NaN stays a NaN: every comparison with it is false (fminf and fmaxf would drop it). */
FORCE_INLINE float clampf(float x, float bound) {
    x = bound < x ? bound : x;
    return -bound > x ? -bound : x;
}

FORCE_INLINE ratio tanh_ratio(float x) {
    x = clampf(x, 9.0f);
    const float z = x * x;
    float p = 1.31842155e-08f;
    p = multiply_add_one(p, z, 2.04718235e-05f);
    p = multiply_add_one(p, z, 3.48658138e-03f);
    p = multiply_add_one(p, z, 1.33731976e-01f);
    p = multiply_add_one(p, z, 9.99999881e-01f);
    float q = 7.70265956e-07f;
    q = multiply_add_one(q, z, 3.27138463e-04f);
    q = multiply_add_one(q, z, 2.58419774e-02f);
    q = multiply_add_one(q, z, 4.67064947e-01f);
    q = multiply_add_one(q, z, 1.0f);
    return (ratio){x * p, q};
}

/* One LSTM cell, from the gate pre-activations: update `cell` and return sigmoid(o) tanh(c).

       c' = clip(sigmoid(f) c + sigmoid(i) tanh(g)),   h = sigmoid(o) tanh(c')

   The ratios are divided late: two divisions per cell. */
FORCE_INLINE float lstm_cell(float input, float forget, float candidate, float output, float *cell,
                             float clip) {
    const ratio i = tanh_ratio(0.5f * input), f = tanh_ratio(0.5f * forget);
    const ratio g = tanh_ratio(candidate), o = tanh_ratio(0.5f * output);
    const float new_under = i.under * g.under;
    float x = *cell * (f.under + f.over) * new_under;
    x = 0.5f * (x + (i.under + i.over) * g.over * f.under) / (f.under * new_under);
    x = clampf(x, clip);
    const ratio c = tanh_ratio(x);
    *cell = x;
    return 0.5f * (o.under + o.over) * c.over / (o.under * c.under);
}

FORCE_INLINE float tanh_of(float x) {
    const ratio r = tanh_ratio(x);
    return r.over / r.under;
}

FORCE_INLINE float sigmoid_of(float x) {
    const ratio r = tanh_ratio(0.5f * x);
    return 0.5f * (r.under + r.over) / r.under;
}

#endif
