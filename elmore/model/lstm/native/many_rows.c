/* A layer that reads many sentences. A library's product lays a weight out anew at every step; here it
   is read as it lies. Everything is float32. */

#include "vectors.h"

#if defined(OTHER_CPU)

int64_t columns_of_a_tile(void) { return 0; }

#else

enum { OUTPUTS = WIDE == 16 ? 8 : 4 }; /* rows of a weight at a time */

#include "tiles.h"

int64_t columns_of_a_tile(void) { return TILE; }

/* Row by row. */
struct weights {
    const float *input, *recurrent, *projection;
    const float *inputs; /* tiles of every step, where there are weights for them */
    int64_t input_width;
};

#define SUMS EACH(r, OUTPUTS) EACH(v, n)
#define ADD(k)                                                                                    \
    EACH(v, n) column[v] = load(columns + (k) * TILE + WIDE * v);                                 \
    SUMS sum[r][v] = vfmaq_laneq_f32(sum[r][v], column[v], read[r], k)

/* Add to some rows of a product what n vectors of a tile of columns give. */
ALWAYS void multiply_so_many(const float *weight, const float *columns, int64_t width, const int n,
                             float all[OUTPUTS * TILE]) {
    floats sum[OUTPUTS][VECTORS], column[VECTORS];
    SUMS sum[r][v] = load(all + r * TILE + WIDE * v);
    int64_t k = 0;
#if defined(__aarch64__) /* where one of four numbers in a register can be multiplied with */
    for (; k + 4 <= width; k += 4, columns += 4 * TILE) {
        floats read[OUTPUTS];
        EACH(r, OUTPUTS) read[r] = load(weight + r * width + k);
        ADD(0);
        ADD(1);
        ADD(2);
        ADD(3);
    }
#endif
    for (; k < width; k++, columns += TILE) {
        /* The next rows of this gate, soon: the first to be read would wait for memory. */
        __builtin_prefetch(weight + OUTPUTS * width + k * OUTPUTS, 0, 3);
        EACH(v, n) column[v] = load(columns + WIDE * v);
        EACH(r, OUTPUTS) {
            const floats one = splat(weight[r * width + k]);
            EACH(v, n) sum[r][v] = multiply_add(one, column[v], sum[r][v]);
        }
    }
    SUMS store(all + r * TILE + WIDE * v, sum[r][v]);
}

static void multiply(const float *weight, const float *columns, int64_t width, int vectors,
                     float all[OUTPUTS * TILE]) {
    if (vectors == 3)
        multiply_so_many(weight, columns, width, 3, all);
    else if (vectors == 2)
        multiply_so_many(weight, columns, width, 2, all);
    else
        multiply_so_many(weight, columns, width, 1, all);
}

static void look_at_inputs(const steps *all, const weights *with) { (void)all, (void)with; }
static void look_at_last(const steps *all, const weights *with) { (void)all, (void)with; }
static void look_at_shown(const steps *all, const weights *with) { (void)all, (void)with; }

static void add_gates(const steps *all, const weights *with, int64_t step, int64_t tile, int vectors,
                      int64_t cell, float gates[4][CELLS]) {
    for (int gate = 0; gate < 4; gate++) {
        const int64_t row = gate * all->num_cells + cell;
        if (with->input)
            multiply(with->input + row * with->input_width,
                     with->inputs + (step * tiles_of(all) + tile) * with->input_width * TILE,
                     with->input_width, vectors, gates[gate]);
        multiply(with->recurrent + row * all->width, all->last + tile * all->width * TILE,
                 all->width, vectors, gates[gate]);
    }
}

static int is_projected(const weights *with) { return with->projection != 0; }

static void give_outputs(const steps *all, const weights *with, int64_t tile, int vectors,
                         int64_t begin, float found[][TILE]) {
    memset(found, 0, sizeof(float) * OUTPUTS * TILE);
    multiply(with->projection + begin * all->num_cells, all->shown + tile * all->num_cells * TILE,
             all->num_cells, vectors, found[0]);
}

void many_steps(const steps *all, const weights *with, int64_t threads) {
    take_steps(all, with, threads);
}

#endif
