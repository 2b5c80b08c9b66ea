/* A layer that reads many rows, on ARM. A library's product lays a weight out anew at every step, and
   what the gates say goes to memory and comes back; here a weight is read as it lies, and gates become
   cells while they are near.

   Everything is float32. Sentences stand in columns, 12 side by side in a tile: element k of those of
   tile t stands at (t * K + k) * 12, K numbers a sentence. A sum goes along k in the same order for
   every column, so a sentence gets the same bits in any company. */

#include <stdint.h>
#include <string.h>

#include "cell.h"

#if !defined(__aarch64__)

int64_t many_rows_work(void) { return 0; }

#else

#include <arm_neon.h>

int64_t many_rows_work(void) { return 1; }

enum { ROWS = 4, TILE = 12, CELLS = ROWS * TILE };

typedef float32x4_t sums[ROWS][TILE / 4];

/* A loop that is gone when it is compiled: so what it counts through can stay in registers. */
#define EACH(i, n) _Pragma("GCC unroll 4") for (int i = 0; i < n; i++)
#define SUMS EACH(r, ROWS) EACH(v, TILE / 4)

#define ADD(k)                                                                                    \
    EACH(v, TILE / 4) column[v] = vld1q_f32(columns + (k) * TILE + 4 * v);                        \
    SUMS sum[r][v] = vfmaq_laneq_f32(sum[r][v], column[v], read[r], k)

/* Add to 4 rows by 12 columns of a product what `width` of its terms give. Rows are as long. */
static inline __attribute__((always_inline)) void multiply(const float *weight,
                                                           const float *columns, int64_t width,
                                                           sums all) {
    sums sum;
    SUMS sum[r][v] = all[r][v];
    int64_t k = 0;
    for (; k + 4 <= width; k += 4, columns += 4 * TILE) {
        float32x4_t read[ROWS], column[TILE / 4];
        EACH(r, ROWS) read[r] = vld1q_f32(weight + r * width + k);
        ADD(0);
        ADD(1);
        ADD(2);
        ADD(3);
    }
    for (; k < width; k++, columns += TILE)
        SUMS sum[r][v] = vfmaq_n_f32(sum[r][v], vld1q_f32(columns + 4 * v), weight[r * width + k]);
    SUMS all[r][v] = sum[r][v];
}

/* A layer, and what it has read: S steps of B sentences, H cells, D wide outputs. */
typedef struct {
    const float *input, *recurrent, *bias, *projection; /* no input: it is driven already */
    const float *inputs; /* tiles of every step; or driven (S, B, 4H), with these strides */
    int64_t by_step, by_row;
    const uint8_t *busy; /* (S, B): who reads */
    const uint8_t *starts; /* (S, B): who starts anew before a step, from these; or nothing */
    const float *first_outputs, *first_cells; /* (B, D) and (B, H) */
    float *cells, *last, *shown; /* tiles, changed as they go; the last outputs */
    float *outputs; /* (S, B, D), zero where nobody reads */
    int64_t num_steps, num_rows, num_cells, width, input_width;
    float cell_clip, output_clip;
} layer;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* What the inputs say to one gate of 4 cells, and the bias. */
static inline __attribute__((always_inline)) void begin_with(const layer *all, int64_t step,
                                                             int64_t tile, int64_t gate,
                                                             sums sum) {
    const int64_t first = tile * TILE, here = least(TILE, all->num_rows - first);
    const float *bias = all->bias + gate;
    if (all->input) {
        SUMS sum[r][v] = vdupq_n_f32(bias[r]);
        const int64_t tiles = (all->num_rows + TILE - 1) / TILE;
        multiply(all->input + gate * all->input_width,
                 all->inputs + (step * tiles + tile) * all->input_width * TILE, all->input_width,
                 sum);
        return;
    }
    float said[TILE][4];
    memset(said, 0, sizeof said);
    const float *from = all->inputs + step * all->by_step + first * all->by_row + gate;
    for (int64_t b = 0; b < here; b++)
        vst1q_f32(said[b], vaddq_f32(vld1q_f32(from + b * all->by_row), vld1q_f32(bias)));
    EACH(v, TILE / 4) {
        const float32x4x4_t four = vld4q_f32(said[4 * v]);
        EACH(r, ROWS) sum[r][v] = four.val[r];
    }
}

/* 4 cells of the 12 sentences of a tile. */
static void renew(const layer *all, int64_t step, int64_t tile, int64_t cell) {
    float gates[4][CELLS], old[CELLS];
    for (int gate = 0; gate < 4; gate++) {
        sums sum;
        const int64_t row = gate * all->num_cells + cell;
        begin_with(all, step, tile, row, sum);
        multiply(all->recurrent + row * all->width, all->last + tile * all->width * TILE,
                 all->width, sum);
        SUMS vst1q_f32(gates[gate] + r * TILE + 4 * v, sum[r][v]);
    }
    const int64_t at = (tile * all->num_cells + cell) * TILE;
    float *cells = all->cells + at, *shown = all->shown + at;
    memcpy(old, cells, sizeof old);
#pragma omp simd
    for (int i = 0; i < CELLS; i++)
        shown[i] = cell_shows(gates[0][i], gates[1][i], gates[2][i], gates[3][i], cells + i,
                              all->cell_clip);
    const uint8_t *busy = all->busy + step * all->num_rows + tile * TILE;
    const int64_t here = least(TILE, all->num_rows - tile * TILE);
    for (int64_t b = 0; b < TILE; b++)
        if (b >= here || !busy[b])
            for (int r = 0; r < ROWS; r++) cells[r * TILE + b] = old[r * TILE + b];
}

/* 4 outputs of the 12 sentences of a tile, from what the cells show. */
static void show(const layer *all, int64_t step, int64_t tile, int64_t begin) {
    const float *shown = all->shown + tile * all->num_cells * TILE;
    float found[ROWS][TILE];
    if (all->projection) {
        sums sum;
        SUMS sum[r][v] = vdupq_n_f32(0);
        multiply(all->projection + begin * all->num_cells, shown, all->num_cells, sum);
        SUMS vst1q_f32(found[r] + 4 * v, sum[r][v]);
        for (int i = 0; i < CELLS; i++) {
            float *one = found[0] + i; /* a NaN stays one: every comparison with it is false */
            if (*one > all->output_clip) *one = all->output_clip;
            if (*one < -all->output_clip) *one = -all->output_clip;
        }
    } else
        memcpy(found, shown + begin * TILE, sizeof found);
    const int64_t first = tile * TILE, here = least(TILE, all->num_rows - first);
    const uint8_t *busy = all->busy + step * all->num_rows + first;
    float *last = all->last + (tile * all->width + begin) * TILE;
    for (int64_t b = 0; b < here; b++) {
        float *to = all->outputs + (step * all->num_rows + first + b) * all->width + begin;
        for (int r = 0; r < ROWS; r++) {
            to[r] = busy[b] ? found[r][b] : 0;
            if (busy[b]) last[r * TILE + b] = found[r][b];
        }
    }
}

static void start(const layer *all, int64_t row) {
    const int64_t tile = row / TILE, b = row % TILE;
    for (int64_t d = 0; d < all->width; d++)
        all->last[(tile * all->width + d) * TILE + b] = all->first_outputs[row * all->width + d];
    for (int64_t h = 0; h < all->num_cells; h++)
        all->cells[(tile * all->num_cells + h) * TILE + b] =
            all->first_cells[row * all->num_cells + h];
}

/* All steps: see reference.py for what a step is. H and D are multiples of 4. */
void many_steps(const layer *all, int64_t threads) {
    const int64_t tiles = (all->num_rows + TILE - 1) / TILE;
#pragma omp parallel num_threads(threads)
    for (int64_t step = 0; step < all->num_steps; step++) {
        if (all->starts) {
#pragma omp for schedule(static)
            for (int64_t row = 0; row < all->num_rows; row++)
                if (all->starts[step * all->num_rows + row]) start(all, row);
        }
#pragma omp for schedule(static)
        for (int64_t cell = 0; cell < all->num_cells; cell += ROWS)
            for (int64_t tile = 0; tile < tiles; tile++) renew(all, step, tile, cell);
#pragma omp for schedule(static)
        for (int64_t begin = 0; begin < all->width; begin += ROWS)
            for (int64_t tile = 0; tile < tiles; tile++) show(all, step, tile, begin);
    }
}

#endif
