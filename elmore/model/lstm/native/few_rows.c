/* A layer that reads few rows, 8 at most. Here a weight is read once for all of them, and a
   library's product, which first lays the weight out anew, is slower than that; and a step is so
   short that calling it by parts takes as long as the parts.

   Everything is float32. Weights lie row by row, and so do rows; but those wider than DEEP lie part by
   part, DEEP wide each, and in each part row by row: so those of one part are near to each other. */

#include "cell.h"
#include "vectors.h"

enum { MOST = 8, DEEP = 1024, NARROW = 512, AHEAD = 2048, PIECES = 256, CELLS = 64 };

ALWAYS float whole(floats sum) {
#if defined(__aarch64__)
    return vaddvq_f32(sum);
#elif WIDE == 16
    return _mm512_reduce_add_ps(sum);
#else
    float found = 0;
    for (int v = 0; v < WIDE; v++) found += sum[v];
    return found;
#endif
}

/* What is left where a width is no multiple; in one place, or it is compiled a thousand times. */
static __attribute__((noinline)) float rest(const float *weight, const float *row, int64_t left) {
    float sum = 0;
    for (int64_t k = 0; k < left; k++) sum += weight[k] * row[k];
    return sum;
}

/* R rows of the weight at once; R and B are numbers the compiler knows, so that sums stay in
   registers. Where the rows are wide, this is one part of the sum, and `more` than the first. */
ALWAYS void block(
    const float *weight, const float *rows, float *out, int64_t over, int64_t along, int64_t width,
    int64_t deep, const int more, const int narrow, const int R, const int B) {
    const int64_t once = R * width, ahead = (AHEAD + once - 1) / once * once;
    floats sums[4][MOST];
    EACH(r, R) EACH(b, B) sums[r][b] = (floats){0};
    int64_t k = 0;
    for (; k + WIDE <= deep; k += WIDE) {
        floats read[4];
        if (narrow && k % 16 == 0) { /* a CPU does not foresee short rows by itself */
            EACH(r, R) __builtin_prefetch(weight + r * width + k + ahead);
        }
        EACH(r, R) read[r] = load(weight + r * width + k);
        EACH(b, B) {
            const floats row = load(rows + b * deep + k);
            EACH(r, R) sums[r][b] = multiply_add(read[r], row, sums[r][b]);
        }
    }
    EACH(r, R) EACH(b, B) {
        float sum = whole(sums[r][b]);
        if (k < deep) sum += rest(weight + r * width + k, rows + b * deep + k, deep - k);
        float *to = out + r * over + b * along;
        *to = more ? *to + sum : sum;
    }
}

/* One row alone: several sums along the weight's row, for none should wait for another. */
static inline float line(const float *weight, const float *row, int64_t width) {
    enum { SUMS = 8 };
    floats sums[SUMS];
    EACH(s, SUMS) sums[s] = (floats){0};
    int64_t k = 0;
    for (; k + SUMS * WIDE <= width; k += SUMS * WIDE)
        EACH(s, SUMS) {
            const int64_t at = k + s * WIDE;
            if (s * WIDE % 16 == 0) __builtin_prefetch(weight + at + 2 * AHEAD);
            sums[s] = multiply_add(load(weight + at), load(row + at), sums[s]);
        }
    for (int s = 1; s < SUMS; s++) sums[0] += sums[s];
    float sum = whole(sums[0]);
    for (; k < width; k++) sum += weight[k] * row[k];
    return sum;
}

#define BLOCKS(B, R, narrow)                                                                      \
    for (; m + R <= end; m += R)                                                                  \
        block(weight + m * width + k, rows + k * B, out + m * over, over, along, width, deep,     \
              k > 0, narrow, R, B)
#define CASE(B, R)                                                                                \
    case B:                                                                                       \
        if (width <= NARROW)                                                                      \
            BLOCKS(B, 2, 1);                                                                      \
        else                                                                                      \
            BLOCKS(B, R, 0);                                                                      \
        BLOCKS(B, 1, 0);                                                                          \
        break;

/* Rows `begin` to `end` of out = weight (M, K) rows (B, K)^T, whose strides are given. */
static void multiply(const float *weight, const float *rows, float *out, int64_t over,
                     int64_t along, int64_t begin, int64_t end, int64_t width, int64_t num_rows) {
    if (num_rows == 1)
        for (int64_t m = begin; m < end; m++) out[m * over] = line(weight + m * width, rows, width);
    for (int64_t k = 0; k < width; k += DEEP) {
        const int64_t deep = width - k < DEEP ? width - k : DEEP;
        int64_t m = begin;
        switch (num_rows) {
            CASE(2, 4)
            CASE(3, 4)
            CASE(4, 4)
            CASE(5, 2)
            CASE(6, 2)
            CASE(7, 2)
            CASE(8, 2)
        }
    }
}

/* The same for any number of rows, DEEP wide at most, as many as can be at a time: a piece of the
   weight is small, and stays near meanwhile. */
void few_rows(const float *weight, const float *rows, float *out, int64_t over, int64_t along,
              int64_t height, int64_t width, int64_t num_rows, int64_t threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t piece = 0; piece < PIECES; piece++)
        for (int64_t row = 0; row < num_rows; row += MOST)
            multiply(weight, rows + row * width, out + row * along, over, along,
                     piece * height / PIECES, (piece + 1) * height / PIECES, width,
                     num_rows - row < MOST ? num_rows - row : MOST);
}

/* Say where element k of a row stands, if the row may be wider than DEEP. */
static inline int64_t place(int64_t row, int64_t k, int64_t num_rows, int64_t width) {
    const int64_t part = k / DEEP * DEEP, deep = width - part < DEEP ? width - part : DEEP;
    return part * num_rows + row * deep + k - part;
}

/* Several steps of a layer, S of them for B rows: see reference.py for what a step is.

   What the inputs say (S, B, 4H) comes with the bias in it. `busy` (S, B) says who reads. Cells
   (B, H) and the last outputs (B, D) are changed as they go; outputs (S, B, D) are zero where nobody
   reads. There is room for the gates (B, 4H) and for what the cells show (B, H). D is DEEP at most,
   and without a projection it is H. */
void few_steps(const float *recurrent, const float *projection, const float *driven,
               const uint8_t *busy, float *cells, float *last, float *outputs, float *gates,
               float *shown, int64_t num_steps, int64_t num_rows, int64_t num_cells, int64_t width,
               float cell_clip, float output_clip, int64_t threads) {
    const int64_t num_gates = 4 * num_cells, chunks = (num_cells + CELLS - 1) / CELLS;
#pragma omp parallel num_threads(threads)
    for (int64_t step = 0; step < num_steps; step++) {
        const float *say = driven + step * num_rows * num_gates;
        const uint8_t *reads = busy + step * num_rows;
        float *output = outputs + step * num_rows * width;
#pragma omp for schedule(static)
        for (int64_t piece = 0; piece < PIECES; piece++)
            multiply(recurrent, last, gates, 1, num_gates, piece * num_gates / PIECES,
                     (piece + 1) * num_gates / PIECES, width, num_rows);
#pragma omp for schedule(static)
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            for (int64_t b = 0; b < num_rows; b++) {
                const int64_t begin = chunk * CELLS, left = num_cells - begin;
                const int64_t here = left < CELLS ? left : CELLS;
                float *show = shown + place(b, begin, num_rows, num_cells);
                float *cell = cells + b * num_cells + begin;
                const float *i = gates + b * num_gates + begin, *f = i + num_cells;
                const float *g = f + num_cells, *o = g + num_cells;
                const float *to_i = say + b * num_gates + begin, *to_f = to_i + num_cells;
                const float *to_g = to_f + num_cells, *to_o = to_g + num_cells;
                if (!reads[b]) continue;
#pragma omp simd
                for (int64_t h = 0; h < here; h++)
                    show[h] = cell_shows(i[h] + to_i[h], f[h] + to_f[h], g[h] + to_g[h],
                                         o[h] + to_o[h], cell + h, cell_clip);
            }
#pragma omp for schedule(static)
        for (int64_t piece = 0; piece < PIECES; piece++) {
            const int64_t begin = piece * width / PIECES, end = (piece + 1) * width / PIECES;
            if (projection)
                multiply(projection, shown, output, 1, width, begin, end, num_cells, num_rows);
            for (int64_t b = 0; b < num_rows; b++)
                for (int64_t d = begin; d < end; d++) {
                    float *new = output + b * width + d;
                    if (projection)
                        *new = within(*new, output_clip);
                    else
                        *new = shown[b * width + d]; /* and there is no such clip */
                    if (reads[b])
                        last[b * width + d] = *new;
                    else
                        *new = 0;
                }
        }
    }
}
