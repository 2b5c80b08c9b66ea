/* A product of a weight and columns, both in whole numbers from -127 to 127, on ARM's dot products:

       y[r][b] = scale[r] * s[b] * sum_k w[r][k] q[k][b],   q[k][b] = round(x[k][b] / s[b])

   Each row of the weight has a scale of its own, which the caller keeps, and each column s[b] = max
   |x| / 127, found here. The sums are exact, so a column gets the same bits in any company.

   A weight is laid out in blocks of 8 rows: for four k at a time, 8 rows of four bytes. Columns are
   laid out likewise in tiles of 12, the last of 12, 8 or 4 (of 12 in the steps of tiles.h); what is
   missing to that is zero. */

#include <stddef.h>
#include <stdint.h>

#if !defined(__ARM_FEATURE_DOTPROD)

int64_t int8_works(void) { return 0; }

#else

enum { ROWS = 8, OUTPUTS = ROWS };

#include "tiles.h"

enum { COLUMNS = TILE };

#if defined(__linux__)
#include <sys/auxv.h>
int64_t int8_works(void) { return (getauxval(AT_HWCAP) >> 20) & 1; }
#else
int64_t int8_works(void) { return 1; }
#endif

/* A row of the block, the lane, times n vectors of four columns each. */
#define DOT(r, w, lane) EACH(v, n) acc[r][v] = vdotq_laneq_s32(acc[r][v], column[v], w, lane)

static inline __attribute__((always_inline)) void multiply_tile(
    const int8_t *w, const int8_t *q, int64_t fours, const int n, int32x4_t sums[ROWS][3]) {
    int32x4_t acc[ROWS][3];
    EACH(r, ROWS) EACH(v, n) acc[r][v] = vdupq_n_s32(0);
    for (int64_t k = 0; k < fours; k++, w += 4 * ROWS, q += 16 * n) {
        const int8x16_t low = vld1q_s8(w), high = vld1q_s8(w + 16);
        int8x16_t column[3];
        EACH(v, n) column[v] = vld1q_s8(q + 16 * v);
        DOT(0, low, 0);
        DOT(1, low, 1);
        DOT(2, low, 2);
        DOT(3, low, 3);
        DOT(4, high, 0);
        DOT(5, high, 1);
        DOT(6, high, 2);
        DOT(7, high, 3);
    }
    EACH(r, ROWS) EACH(v, n) sums[r][v] = acc[r][v];
}

/* A column alone: four k a lane, so that no product is with padding. */
static inline void multiply_one(const int8_t *w, const int8_t *q, int64_t fours, int32_t *sums) {
    int32x4_t low = vdupq_n_s32(0), high = low, low2 = low, high2 = low;
    int64_t k = 0;
    for (; k + 2 <= fours; k += 2, w += 8 * ROWS) {
        const int8x16_t first = vreinterpretq_s8_s32(vld1q_dup_s32((const int32_t *)(q + 4 * k)));
        const int8x16_t second =
            vreinterpretq_s8_s32(vld1q_dup_s32((const int32_t *)(q + 4 * k + 4)));
        low = vdotq_s32(low, vld1q_s8(w), first);
        high = vdotq_s32(high, vld1q_s8(w + 16), first);
        low2 = vdotq_s32(low2, vld1q_s8(w + 32), second);
        high2 = vdotq_s32(high2, vld1q_s8(w + 48), second);
    }
    if (k < fours) {
        const int8x16_t first = vreinterpretq_s8_s32(vld1q_dup_s32((const int32_t *)(q + 4 * k)));
        low = vdotq_s32(low, vld1q_s8(w), first);
        high = vdotq_s32(high, vld1q_s8(w + 16), first);
    }
    vst1q_s32(sums, vaddq_s32(low, low2));
    vst1q_s32(sums + 4, vaddq_s32(high, high2));
}

/* A NaN is larger than any number, and stays: a column with one has a scale that is none. */
static inline float larger(float most, float x) { return x <= most ? most : most == most ? x : most; }

/* Round the columns of one tile, each to its own scale. x[k][b] stands at x + k * x_k + b * x_b, and
   one of the two is 1. What pads the tile is zero already. */
static void round_tile(const float *x, int64_t x_k, int64_t x_b, int64_t width, int64_t columns,
                       int64_t padded, int8_t *q, float *s) {
    float by[COLUMNS];
    for (int64_t b = 0; b < columns; b++) s[b] = 0;
    if (x_k == 1) {
        for (int64_t b = 0; b < columns; b++) {
            float most = 0;
            for (int64_t k = 0; k < width; k++) most = larger(most, fabsf(x[b * x_b + k]));
            s[b] = most;
        }
    } else {
        for (int64_t k = 0; k < width; k++)
            for (int64_t b = 0; b < columns; b++) s[b] = larger(s[b], fabsf(x[k * x_k + b]));
    }
    for (int64_t b = 0; b < columns; b++) {
        by[b] = s[b] > 0 ? 127 / s[b] : 0;
        s[b] /= 127;
    }
    if (x_k == 1) {
        for (int64_t b = 0; b < columns; b++) {
            int64_t k = 0;
            for (; k + 4 <= width; k += 4) {
                float32x4_t value = vmulq_n_f32(vld1q_f32(x + b * x_b + k), by[b]);
                int16x4_t half = vmovn_s32(vcvtnq_s32_f32(value));
                int8x8_t byte = vmovn_s16(vcombine_s16(half, half));
                vst1_lane_s32((int32_t *)(q + (k * padded + 4 * b)), vreinterpret_s32_s8(byte), 0);
            }
            for (; k < width; k++)
                q[(k / 4 * padded + b) * 4 + k % 4] = (int8_t)lrintf(x[b * x_b + k] * by[b]);
        }
        return;
    }
    int64_t k = 0;
    for (; k + 4 <= width; k += 4)
        for (int64_t b = 0; b < columns; b++) {
            const float *at = x + k * x_k + b;
            int8_t *to = q + k * padded + 4 * b;
            for (int i = 0; i < 4; i++) to[i] = (int8_t)lrintf(at[i * x_k] * by[b]);
        }
    for (; k < width; k++)
        for (int64_t b = 0; b < columns; b++)
            q[(k / 4 * padded + b) * 4 + k % 4] = (int8_t)lrintf(x[k * x_k + b] * by[b]);
}

/* Round all columns, tile by tile. In a parallel region: each thread takes its share. */
static void round_columns(const float *x, int64_t x_k, int64_t x_b, int64_t width, int64_t columns,
                          int8_t *q, float *s) {
    const int64_t fours = (width + 3) / 4;
#pragma omp for schedule(static)
    for (int64_t begin = 0; begin < columns; begin += COLUMNS) {
        int64_t here = least(COLUMNS, columns - begin);
        int64_t padded = columns == 1 ? 1 : (here + 3) / 4 * 4;
        int8_t *tile = q + begin * 4 * fours;
        if (here < padded || width % 4) memset(tile, 0, (size_t)(padded * 4 * fours));
        for (int64_t b = here; b < padded; b++) s[begin + b] = 0;
        round_tile(x + begin * x_b, x_k, x_b, width, here, padded, tile, s + begin);
    }
}

/* Multiply a block of a weight with a tile of columns, and scale the sums. */
static inline void multiply_block(const int8_t *w, const float *scale, const int8_t *q,
                                  const float *s, int64_t fours, int64_t rows, int64_t here,
                                  int alone, float values[ROWS][COLUMNS]) {
    if (alone) {
        int32_t sums[ROWS];
        multiply_one(w, q, fours, sums);
        for (int64_t r = 0; r < rows; r++) values[r][0] = (float)sums[r] * (scale[r] * s[0]);
        return;
    }
    int32x4_t acc[ROWS][3];
    const int vectors = (int)((here + 3) / 4);
    if (vectors == 3)
        multiply_tile(w, q, fours, 3, acc);
    else if (vectors == 2)
        multiply_tile(w, q, fours, 2, acc);
    else
        multiply_tile(w, q, fours, 1, acc);
    for (int64_t r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            float32x4_t both = vmulq_n_f32(vld1q_f32(s + 4 * v), scale[r]);
            vst1q_f32(values[r] + 4 * v, vmulq_f32(vcvtq_f32_s32(acc[r][v]), both));
        }
}

/* y[r][b] stands at y + r * y_r + b * y_b; q and s have room for the columns with what pads them. Rows
   of a weight that have so many `gates` of each cell together go where they would be otherwise. */
void int8_multiply(const int8_t *w, const float *scale, const float *x, int64_t x_k, int64_t x_b,
                   int8_t *q, float *s, float *y, int64_t y_r, int64_t y_b, int64_t rows,
                   int64_t width, int64_t columns, int64_t gates, int64_t threads) {
    const int64_t fours = (width + 3) / 4;
#pragma omp parallel num_threads(threads)
    {
        round_columns(x, x_k, x_b, width, columns, q, s);
#pragma omp for schedule(static)
        for (int64_t first = 0; first < rows; first += ROWS)
            for (int64_t begin = 0; begin < columns; begin += COLUMNS) {
                const int64_t there = least(ROWS, rows - first);
                const int64_t here = least(COLUMNS, columns - begin);
                float values[ROWS][COLUMNS];
                multiply_block(w + first * 4 * fours, scale + first, q + begin * 4 * fours,
                               s + begin, fours, there, here, columns == 1, values);
                for (int64_t r = 0; r < there; r++) {
                    const int64_t row = (first + r) % gates * (rows / gates) + (first + r) / gates;
                    float *to = y + row * y_r + begin * y_b;
                    if (y_b == 1)
                        memcpy(to, values[r], (size_t)here * sizeof(float));
                    else
                        for (int64_t b = 0; b < here; b++) to[b * y_b] = values[r][b];
                }
            }
    }
}

/* One step of a layer: the product, and what becomes of the cells. Here the rows of the weight, and
   their scales, are in the order of cells, the four gates of each together; the bias, and what the
   inputs say, in that of gates, the latter at driven + g * d_g + b * d_b. Cells and what they show
   are (H, B). */
void int8_step(const int8_t *w, const float *scale, const float *x, int64_t x_k, int64_t x_b,
               int8_t *q, float *s, const float *driven, int64_t d_g, int64_t d_b,
               const float *bias, float *cells, float *shown, int64_t num_cells, int64_t width,
               int64_t columns, float clip, int64_t threads) {
    const int64_t fours = (width + 3) / 4;
#pragma omp parallel num_threads(threads)
    {
        round_columns(x, x_k, x_b, width, columns, q, s);
#pragma omp for schedule(static)
        for (int64_t first = 0; first < num_cells; first += ROWS / 4)
            for (int64_t begin = 0; begin < columns; begin += COLUMNS) {
                const int64_t there = least(ROWS / 4, num_cells - first);
                const int64_t here = least(COLUMNS, columns - begin);
                float gates[ROWS][COLUMNS], said[ROWS][COLUMNS];
                multiply_block(w + first * 16 * fours, scale + first * 4, q + begin * 4 * fours,
                               s + begin, fours, 4 * there, here, columns == 1, gates);
                for (int64_t h = 0; h < there; h++)
                    for (int64_t gate = 0; gate < 4; gate++) {
                        const int64_t g = gate * num_cells + first + h;
                        const float *from = driven + g * d_g + begin * d_b;
                        float *say = said[4 * h + gate];
                        if (d_b == 1)
                            for (int64_t b = 0; b < here; b++) say[b] = from[b] + bias[g];
                        else
                            for (int64_t b = 0; b < here; b++) say[b] = from[b * d_b] + bias[g];
                    }
                for (int64_t h = 0; h < there; h++) {
                    const int64_t at = (first + h) * columns + begin;
                    float(*const gate)[COLUMNS] = gates + 4 * h, (*const say)[COLUMNS] = said + 4 * h;
#pragma omp simd
                    for (int64_t b = 0; b < here; b++)
                        shown[at + b] =
                            cell_shows(gate[0][b] + say[0][b], gate[1][b] + say[1][b],
                                       gate[2][b] + say[2][b], gate[3][b] + say[3][b],
                                       cells + at + b, clip);
                }
            }
    }
}

/* Many sentences: see tiles.h. The rows of what is multiplied for the gates are in the order of cells. */
typedef struct {
    const int8_t *rows;
    const float *scales;
} rounded_weight;

typedef struct {
    int8_t *columns; /* room, tile by tile */
    float *scales;
} rounded_tiles;

struct weights {
    rounded_weight input, recurrent, projection;
    const float *inputs; /* tiles of every step, where there are weights for them */
    int64_t input_width;
    rounded_tiles these, last, shown;
};

/* Four numbers each of four columns, to bytes side by side. */
static inline int32x4_t together(const float *from, float32x4_t by) {
    int32x4_t one[4];
    EACH(k, 4) one[k] = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(from + k * TILE), by));
    return vsliq_n_s32(vsliq_n_s32(one[0], one[1], 8), vsliq_n_s32(one[2], one[3], 8), 16);
}

static void round_tiles(const float *x, int64_t tiles, int64_t width, rounded_tiles to) {
#pragma omp for schedule(static)
    for (int64_t tile = 0; tile < tiles; tile++) {
        const float *from = x + tile * width * TILE;
        int8_t *columns = to.columns + tile * width * TILE;
        float32x4_t most[VECTORS], by[VECTORS];
        EACH(v, VECTORS) most[v] = vdupq_n_f32(0);
        for (int64_t k = 0; k < width; k++)
            EACH(v, VECTORS) most[v] = vmaxq_f32(most[v], vabsq_f32(vld1q_f32(from + k * TILE + 4 * v)));
        EACH(v, VECTORS) {
            const uint32x4_t some = vcgtq_f32(most[v], vdupq_n_f32(0));
            by[v] = vdivq_f32(vdupq_n_f32(127), most[v]);
            by[v] = vreinterpretq_f32_u32(vandq_u32(some, vreinterpretq_u32_f32(by[v])));
            vst1q_f32(to.scales + tile * TILE + 4 * v, vdivq_f32(most[v], vdupq_n_f32(127)));
        }
        for (int64_t k = 0; k < width; k += 4)
            EACH(v, VECTORS)
                vst1q_s8(columns + k * TILE + 16 * v,
                         vreinterpretq_s8_s32(together(from + k * TILE + 4 * v, by[v])));
    }
}

static void look_at_inputs(const steps *all, const weights *with) {
    if (with->input.rows)
        round_tiles(with->inputs, all->num_steps * tiles_of(all), with->input_width, with->these);
}

static void look_at_last(const steps *all, const weights *with) {
    round_tiles(all->last, tiles_of(all), all->width, with->last);
}

static int is_projected(const weights *with) { return with->projection.rows != 0; }

static void look_at_shown(const steps *all, const weights *with) {
    if (is_projected(with)) round_tiles(all->shown, tiles_of(all), all->num_cells, with->shown);
}

/* Add to the gates of 4 cells in a tile, which is the one of that number. */
static inline __attribute__((always_inline)) void add_product(rounded_weight weight,
                                                              rounded_tiles tiles, int64_t number,
                                                              int64_t width, int64_t cell,
                                                              float gates[4][CELLS]) {
    const float *scales = tiles.scales + number * TILE;
    for (int two = 0; two < FOUR; two += 2) {
        int32x4_t sums[ROWS][VECTORS];
        multiply_tile(weight.rows + (cell + two) * 4 * width, tiles.columns + number * width * TILE,
                      width / 4, VECTORS, sums);
        EACH(r, ROWS) {
            float *to = gates[r % 4] + (two + r / 4) * TILE;
            const float scale = weight.scales[(cell + two) * 4 + r];
            EACH(v, VECTORS) {
                const float32x4_t both = vmulq_n_f32(vld1q_f32(scales + 4 * v), scale);
                const float32x4_t sum = vmulq_f32(vcvtq_f32_s32(sums[r][v]), both);
                vst1q_f32(to + 4 * v, vaddq_f32(vld1q_f32(to + 4 * v), sum));
            }
        }
    }
}

static void add_gates(const steps *all, const weights *with, int64_t step, int64_t tile,
                      int64_t cell, float gates[4][CELLS]) {
    if (with->input.rows)
        add_product(with->input, with->these, step * tiles_of(all) + tile, with->input_width, cell,
                    gates);
    add_product(with->recurrent, with->last, tile, all->width, cell, gates);
}

static void give_outputs(const steps *all, const weights *with, int64_t tile, int64_t begin,
                         float found[][TILE]) {
    const int64_t there = least(OUTPUTS, all->width - begin);
    multiply_block(with->projection.rows + begin * all->num_cells, with->projection.scales + begin,
                   with->shown.columns + tile * all->num_cells * TILE,
                   with->shown.scales + tile * TILE, all->num_cells / 4, there, TILE, 0, found);
}

void int8_steps(const steps *all, const weights *with, int64_t threads) {
    take_steps(all, with, threads);
}

#endif
