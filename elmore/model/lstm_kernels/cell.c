/* One step of all cells of a layer, from gates to what the cells show:

       c' = clip(sigmoid(f) c + sigmoid(i) tanh(g)),   h = sigmoid(o) tanh(c')

   Everything is float32 and lies in columns, one a sentence: gates (4H, B), input, forget,
   candidate and output; cells and shown (H, B). What the inputs say to the gates is added here, and
   the bias.

   tanh(x) = x P(x^2) / Q(x^2) for |x| <= 9, fitted to 2e-8, and 1 beyond; in single precision it is
   4e-7 off at most. sigmoid(x) = (1 + tanh(x/2)) / 2. Ratios are divided late: two divisions a cell.
*/

#include <math.h>
#include <stdint.h>

#if defined(__FMA__) || defined(__aarch64__)
#define MULTIPLY_ADD(a, b, c) __builtin_fmaf(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

typedef struct {
    float over, under;
} ratio;

static inline float within(float x, float most) { return fmaxf(fminf(x, most), -most); }

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

void cell_step(const float *restrict gates, const float *restrict driven, int64_t driven_stride,
               const float *restrict bias, float *restrict cells, float *restrict shown,
               int64_t num_cells, int64_t num_columns, float clip) {
    const int64_t gate = num_cells * num_columns, driven_gate = num_cells * driven_stride;
#pragma omp parallel for schedule(static)
    for (int64_t h = 0; h < num_cells; h++) {
        const float *gi = gates + h * num_columns, *gf = gi + gate, *gg = gf + gate, *go = gg + gate;
        const float *di = driven + h * driven_stride, *df = di + driven_gate;
        const float *dg = df + driven_gate, *dout = dg + driven_gate;
        const float bi = bias[h], bf = bias[num_cells + h];
        const float bg = bias[2 * num_cells + h], bo = bias[3 * num_cells + h];
        float *cell = cells + h * num_columns, *show = shown + h * num_columns;
#pragma omp simd
        for (int64_t b = 0; b < num_columns; b++) {
            float input = gi[b] + (di[b] + bi), forget = gf[b] + (df[b] + bf);
            float candidate = gg[b] + (dg[b] + bg), output = go[b] + (dout[b] + bo);
            ratio i = hyperbolic_tangent(0.5f * input), f = hyperbolic_tangent(0.5f * forget);
            ratio g = hyperbolic_tangent(candidate), o = hyperbolic_tangent(0.5f * output);
            float new_over = i.under * g.under;
            float x = cell[b] * (f.under + f.over) * new_over;
            x = 0.5f * (x + (i.under + i.over) * g.over * f.under) / (f.under * new_over);
            /* fminf and fmaxf take a NaN for a number: it must not get lost. */
            float all = input + forget + candidate + output + cell[b];
            x = all == all ? within(x, clip) : all;
            ratio c = hyperbolic_tangent(x);
            float y = 0.5f * (o.under + o.over) * c.over / (o.under * c.under);
            cell[b] = x;
            show[b] = all == all ? y : all;
        }
    }
}
