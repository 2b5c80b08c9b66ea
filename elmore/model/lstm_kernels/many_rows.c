/* A layer that reads many sentences, on ARM. A library's product lays a weight out anew at every step;
   here it is read as it lies. Everything is float32. */

#include <stdint.h>

#if !defined(__aarch64__)

int64_t many_rows_work(void) { return 0; }

#else

enum { OUTPUTS = 4 }; /* rows of a weight at a time */

#include "tiles.h"

int64_t many_rows_work(void) { return 1; }

/* Row by row. */
struct weights {
    const float *input, *recurrent, *projection;
    const float *inputs; /* tiles of every step, where there are weights for them */
    int64_t input_width;
};

#define SUMS EACH(r, OUTPUTS) EACH(v, VECTORS)
#define ADD(k)                                                                                    \
    EACH(v, VECTORS) column[v] = vld1q_f32(columns + (k) * TILE + 4 * v);                         \
    SUMS sum[r][v] = vfmaq_laneq_f32(sum[r][v], column[v], read[r], k)

/* Add to 4 rows of a product what a tile of columns gives. */
static inline __attribute__((always_inline)) void multiply(const float *weight,
                                                           const float *columns, int64_t width,
                                                           float all[OUTPUTS * TILE]) {
    float32x4_t sum[OUTPUTS][VECTORS];
    SUMS sum[r][v] = vld1q_f32(all + r * TILE + 4 * v);
    int64_t k = 0;
    for (; k + 4 <= width; k += 4, columns += 4 * TILE) {
        float32x4_t read[OUTPUTS], column[VECTORS];
        EACH(r, OUTPUTS) read[r] = vld1q_f32(weight + r * width + k);
        ADD(0);
        ADD(1);
        ADD(2);
        ADD(3);
    }
    for (; k < width; k++, columns += TILE)
        SUMS sum[r][v] = vfmaq_n_f32(sum[r][v], vld1q_f32(columns + 4 * v), weight[r * width + k]);
    SUMS vst1q_f32(all + r * TILE + 4 * v, sum[r][v]);
}

static void look_at_inputs(const steps *all, const weights *with) { (void)all, (void)with; }
static void look_at_last(const steps *all, const weights *with) { (void)all, (void)with; }
static void look_at_shown(const steps *all, const weights *with) { (void)all, (void)with; }

static void add_gates(const steps *all, const weights *with, int64_t step, int64_t tile,
                      int64_t cell, float gates[4][CELLS]) {
    for (int gate = 0; gate < 4; gate++) {
        const int64_t row = gate * all->num_cells + cell;
        if (with->input)
            multiply(with->input + row * with->input_width,
                     with->inputs + (step * tiles_of(all) + tile) * with->input_width * TILE,
                     with->input_width, gates[gate]);
        multiply(with->recurrent + row * all->width, all->last + tile * all->width * TILE,
                 all->width, gates[gate]);
    }
}

static int is_projected(const weights *with) { return with->projection != 0; }

static void give_outputs(const steps *all, const weights *with, int64_t tile, int64_t begin,
                         float found[][TILE]) {
    memset(found, 0, sizeof(float) * OUTPUTS * TILE);
    multiply(with->projection + begin * all->num_cells, all->shown + tile * all->num_cells * TILE,
             all->num_cells, found[0]);
}

void many_steps(const steps *all, const weights *with, int64_t threads) {
    take_steps(all, with, threads);
}

#endif
