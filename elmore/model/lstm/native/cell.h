/* What becomes of one cell in one step:

       c' = clip(sigmoid(f) c + sigmoid(i) tanh(g)),   h = sigmoid(o) tanh(c')

   tanh(x) = x P(x^2) / Q(x^2) for |x| <= 9, fitted to 2e-8, and 1 beyond; in single precision it is
   4e-7 off at most. sigmoid(x) = (1 + tanh(x/2)) / 2. Ratios are divided late: two divisions a cell.
*/

#ifndef ELMORE_CELL_H
#define ELMORE_CELL_H

#if defined(__FMA__) || defined(__aarch64__)
#define MULTIPLY_ADD(a, b, c) __builtin_fmaf(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

typedef struct {
    float over, under;
} ratio;

/* A NaN stays one: every comparison with it is false. fminf and fmaxf would take it for a number, and
   on most CPUs they are no instructions. */
static inline float within(float x, float most) {
    x = most < x ? most : x;
    return -most > x ? -most : x;
}

static inline ratio hyperbolic_tangent(float x) {
    x = within(x, 9.0f);
    float z = x * x;
    float p = 1.31842155e-08f;
    p = MULTIPLY_ADD(p, z, 2.04718235e-05f);
    p = MULTIPLY_ADD(p, z, 3.48658138e-03f);
    p = MULTIPLY_ADD(p, z, 1.33731976e-01f);
    p = MULTIPLY_ADD(p, z, 9.99999881e-01f);
    float q = 7.70265956e-07f;
    q = MULTIPLY_ADD(q, z, 3.27138463e-04f);
    q = MULTIPLY_ADD(q, z, 2.58419774e-02f);
    q = MULTIPLY_ADD(q, z, 4.67064947e-01f);
    q = MULTIPLY_ADD(q, z, 1.0f);
    return (ratio){x * p, q};
}

/* Take the four gates before they are squashed, and change the cell; what it shows comes back. */
static inline float cell_shows(float input, float forget, float candidate, float output,
                               float *cell, float clip) {
    ratio i = hyperbolic_tangent(0.5f * input), f = hyperbolic_tangent(0.5f * forget);
    ratio g = hyperbolic_tangent(candidate), o = hyperbolic_tangent(0.5f * output);
    float new_over = i.under * g.under;
    float x = *cell * (f.under + f.over) * new_over;
    x = 0.5f * (x + (i.under + i.over) * g.over * f.under) / (f.under * new_over);
    x = within(x, clip);
    ratio c = hyperbolic_tangent(x);
    *cell = x;
    return 0.5f * (o.under + o.over) * c.over / (o.under * c.under);
}

#endif
