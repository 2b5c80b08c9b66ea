/* A layer that reads few rows, 8 at most. Here a weight is read once for all of them, and a
   library's product, which first lays the weight out anew, is slower than that; and a step is so
   short that calling it by parts takes as long as the parts.

   Everything is float32, but for weights that are bytes, with a scale for each row: memory has less to
   bring. Weights lie row by row, and so do rows; but those wider than DEEP lie part by
   part, DEEP wide each, and in each part row by row: so those of one part are near to each other. */

#include "cell.h"
#include "vectors.h"

enum { MOST = 8, DEEP = 1024, NARROW = 512, AHEAD = 2048, PIECES = 256, CELLS = 64 };

/* Scales, where the numbers are bytes; where they are floats there are none. */
typedef struct {
    const void *numbers;
    const float *scales;
} matrix;

ALWAYS floats load_bytes(const int8_t *from) {
#if defined(__aarch64__)
    int32_t four;
    __builtin_memcpy(&four, from, 4);
    const int16x8_t wider = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wider)));
#elif WIDE == 16
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)));
#elif WIDE == 8
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)));
#else
    return (floats){from[0], from[1], from[2], from[3]};
#endif
}

ALWAYS floats load_from(matrix weight, int64_t place, const int bytes) {
    return bytes ? load_bytes((const int8_t *)weight.numbers + place)
                 : load((const float *)weight.numbers + place);
}

ALWAYS void ask_for(matrix weight, int64_t place, const int bytes) {
    __builtin_prefetch((const char *)weight.numbers + (bytes ? 1 : sizeof(float)) * place);
}

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

/* The sums of up to sixteen vectors, each in the same order. One by one they take as long as what is
   summed up in them, where rows are short. */
ALWAYS void wholes(floats all[16], int count, float found[16]) {
#if WIDE == 16
#define PAIRED(n, x, y) EACH(i, n) all[i] = x(all[2 * i], all[2 * i + 1]) + y(all[2 * i], all[2 * i + 1])
#define EVEN(a, b) _mm512_shuffle_f32x4(a, b, 0x88)
#define ODD(a, b) _mm512_shuffle_f32x4(a, b, 0xdd)
    (void)count;
    PAIRED(8, FIRST_OF, LAST_OF);
    PAIRED(4, FIRST_PAIRS, LAST_PAIRS);
    PAIRED(2, EVEN, ODD);
    PAIRED(1, EVEN, ODD);
    store(found, all[0]);
#else
    EACH(i, count) found[i] = whole(all[i]);
#endif
}

/* What is left where a width is no multiple; in one place, or it is compiled a thousand times. */
static __attribute__((noinline)) float rest(matrix weight, int64_t place, const float *row,
                                            int64_t left) {
    const float *numbers = (const float *)weight.numbers + place;
    const int8_t *bytes = (const int8_t *)weight.numbers + place;
    float sum = 0;
    for (int64_t k = 0; k < left; k++) sum += (weight.scales ? bytes[k] : numbers[k]) * row[k];
    return sum;
}

/* R rows of the weight at once, from row m and column `first` on; R and B are numbers the compiler
   knows, so that sums stay in registers. Where the rows are wide, this is one part of the sum, and
   `first` is where it begins. */
ALWAYS void block(matrix weight, const float *rows, float *out, int64_t over, int64_t along,
                  int64_t width, int64_t deep, int64_t m, int64_t first, const int narrow,
                  const int bytes, const int R, const int B) {
    const int64_t begin = m * width + first;
    const int64_t once = R * width, ahead = (AHEAD + once - 1) / once * once;
    floats sums[4][MOST];
    EACH(r, R) EACH(b, B) sums[r][b] = (floats){0};
    int64_t k = 0;
    for (; k + WIDE <= deep; k += WIDE) {
        floats read[4];
        if (narrow && k % (bytes ? 64 : 16) == 0) { /* a CPU does not foresee short rows by itself */
            EACH(r, R) ask_for(weight, begin + r * width + k + ahead, bytes);
        }
        EACH(r, R) read[r] = load_from(weight, begin + r * width + k, bytes);
        EACH(b, B) {
            const floats row = load(rows + b * deep + k);
            EACH(r, R) sums[r][b] = multiply_add(read[r], row, sums[r][b]);
        }
    }
    floats all[16];
    float found[16];
    EACH(i, 16) all[i] = i < R * B ? sums[i / B][i % B] : (floats){0};
    wholes(all, R * B, found);
    EACH(r, R) EACH(b, B) {
        float sum = found[r * B + b];
        if (k < deep) sum += rest(weight, begin + r * width + k, rows + b * deep + k, deep - k);
        if (bytes) sum *= weight.scales[m + r];
        float *to = out + (m + r) * over + b * along;
        *to = first ? *to + sum : sum;
    }
}

/* One row alone: several sums along the weight's row, for none should wait for another. */
ALWAYS float line(matrix weight, const float *row, int64_t m, int64_t width, const int bytes) {
    enum { SUMS = 8 };
    const int64_t begin = m * width;
    floats sums[SUMS];
    EACH(s, SUMS) sums[s] = (floats){0};
    int64_t k = 0;
    for (; k + SUMS * WIDE <= width; k += SUMS * WIDE)
        EACH(s, SUMS) {
            const int64_t at = k + s * WIDE;
            if (s * WIDE % (bytes ? 64 : 16) == 0) ask_for(weight, begin + at + 2 * AHEAD, bytes);
            sums[s] = multiply_add(load_from(weight, begin + at, bytes), load(row + at), sums[s]);
        }
    for (int s = 1; s < SUMS; s++) sums[0] += sums[s];
    float sum = whole(sums[0]);
    if (k < width) sum += rest(weight, begin + k, row + k, width - k);
    return bytes ? sum * weight.scales[m] : sum;
}

#define BLOCKS(B, R, narrow)                                                                      \
    for (; m + R <= end; m += R)                                                                  \
        block(weight, rows + k * B, out, over, along, width, deep, m, k, narrow, bytes, R, B)
#define CASE(B, R)                                                                                \
    case B:                                                                                       \
        if (width <= NARROW)                                                                      \
            BLOCKS(B, 2, 1);                                                                      \
        else                                                                                      \
            BLOCKS(B, R, 0);                                                                      \
        BLOCKS(B, 1, 0);                                                                          \
        break;

/* Rows `begin` to `end` of out = weight (M, K) rows (B, K)^T, whose strides are given. */
ALWAYS void multiply_numbers(matrix weight, const float *rows, float *out, int64_t over,
                             int64_t along, int64_t begin, int64_t end, int64_t width,
                             int64_t num_rows, const int bytes) {
    if (num_rows == 1)
        for (int64_t m = begin; m < end; m++) out[m * over] = line(weight, rows, m, width, bytes);
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

static void multiply(matrix weight, const float *rows, float *out, int64_t over, int64_t along,
                     int64_t begin, int64_t end, int64_t width, int64_t num_rows) {
    if (weight.scales)
        multiply_numbers(weight, rows, out, over, along, begin, end, width, num_rows, 1);
    else
        multiply_numbers(weight, rows, out, over, along, begin, end, width, num_rows, 0);
}

/* The same for any number of rows, DEEP wide at most, as many as can be at a time: a piece of the
   weight is small, and stays near meanwhile. */
void few_rows(const void *numbers, const float *scales, const float *rows, float *out, int64_t over,
              int64_t along, int64_t height, int64_t width, int64_t num_rows, int64_t threads) {
    const matrix weight = {numbers, scales};
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
void few_steps(const void *recurrent_numbers, const float *recurrent_scales,
               const void *projection_numbers, const float *projection_scales, const float *driven,
               const uint8_t *busy, float *cells, float *last, float *outputs, float *gates,
               float *shown, int64_t num_steps, int64_t num_rows, int64_t num_cells, int64_t width,
               float cell_clip, float output_clip, int64_t threads) {
    const matrix recurrent = {recurrent_numbers, recurrent_scales};
    const matrix projection = {projection_numbers, projection_scales};
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
            if (projection.numbers)
                multiply(projection, shown, output, 1, width, begin, end, num_cells, num_rows);
            for (int64_t b = 0; b < num_rows; b++)
                for (int64_t d = begin; d < end; d++) {
                    float *new = output + b * width + d;
                    if (projection.numbers)
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
