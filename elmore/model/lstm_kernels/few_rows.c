/* A weight times a few rows, out = weight (M, K) rows (B, K)^T with 2 <= B <= 8: every weight is
   read once, and a library's product, which first lays the weight out anew, is slower than that.

   Everything is float32; weight and rows lie row by row, the strides of out are given. */

#include <stdint.h>

#if defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* R rows of the weight at once; R and B are numbers the compiler knows, so that sums stay in
   registers. */
static inline __attribute__((always_inline)) void block(
    const float *weight, const float *rows, float *out, int64_t over, int64_t along, int64_t width,
    const int R, const int B) {
    lanes sums[2][8];
#pragma GCC unroll 2
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int b = 0; b < B; b++) sums[r][b] = (lanes){0};
    int64_t k = 0;
    for (; k + LANES <= width; k += LANES) {
        lanes read[2];
#pragma GCC unroll 2
        for (int r = 0; r < R; r++) read[r] = *(const lanes *)(weight + r * width + k);
#pragma GCC unroll 8
        for (int b = 0; b < B; b++) {
            lanes row = *(const lanes *)(rows + b * width + k);
#pragma GCC unroll 2
            for (int r = 0; r < R; r++) sums[r][b] += read[r] * row;
        }
    }
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) {
            float sum = 0;
            for (int v = 0; v < LANES; v++) sum += sums[r][b][v];
            for (int64_t rest = k; rest < width; rest++)
                sum += weight[r * width + rest] * rows[b * width + rest];
            out[r * over + b * along] = sum;
        }
}

#define CASE(B, R)                                                                                \
    case B:                                                                                       \
        for (; m + R <= end; m += R)                                                              \
            block(weight + m * width, rows, out + m * over, over, along, width, R, B);            \
        for (; m < end; m++)                                                                      \
            block(weight + m * width, rows, out + m * over, over, along, width, 1, B);            \
        break;

void few_rows(const float *weight, const float *rows, float *out, int64_t over, int64_t along,
              int64_t height, int64_t width, int64_t num_rows) {
    const int64_t pieces = 64;
#pragma omp parallel for schedule(static)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t m = piece * height / pieces, end = (piece + 1) * height / pieces;
        switch (num_rows) {
            CASE(2, 1)
            CASE(3, 1)
            CASE(4, 2)
            CASE(5, 2)
            CASE(6, 2)
            CASE(7, 2)
            CASE(8, 2)
        }
    }
}
