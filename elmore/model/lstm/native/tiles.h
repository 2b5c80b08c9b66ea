/* Several steps of a layer that reads many sentences. Who includes this says how a weight is
   multiplied: what is declared here and not defined. Widths are multiples of 8.

   Sentences stand in columns, three vectors of them side by side in a tile: element k of those of tile
   t stands at (t * K + k) * TILE, K numbers a sentence, in float32. A tile is multiplied with some rows
   of a weight at a time, while it is near: gates become cells at once and are never kept. Every column
   is summed up in the same order, so a sentence gets the same bits in any company. */

#ifndef ELMORE_TILES_H
#define ELMORE_TILES_H

#include <string.h>

#include "cell.h"
#include "steps.h"
#include "vectors.h"

/* SOME cells at a time: as many as there are registers for the sums of, three vectors each. */
enum { VECTORS = 3, TILE = VECTORS * WIDE, SOME = WIDE == 16 ? 8 : 4, CELLS = SOME * TILE };

typedef struct weights weights;

/* Whatever a product needs to know of all cells or outputs; each thread takes its share. */
static void look_at_inputs(const steps *all, const weights *with);
static void look_at_last(const steps *all, const weights *with);
static void look_at_shown(const steps *all, const weights *with);
/* Add to what is said to the gates of SOME cells in so many vectors of a tile. */
static void add_gates(const steps *all, const weights *with, int64_t step, int64_t tile, int vectors,
                      int64_t cell, float gates[4][CELLS]);
/* Give OUTPUTS outputs of so many vectors of a tile; without a projection there are none to give. */
static int is_projected(const weights *with);
static void give_outputs(const steps *all, const weights *with, int64_t tile, int vectors,
                         int64_t begin, float found[][TILE]);

static inline int64_t tiles_of(const steps *all) { return (all->num_rows + TILE - 1) / TILE; }

/* How many of the vectors of a tile somebody stands in. */
static inline int vectors_of(const steps *all, int64_t tile) {
    return (int)least(VECTORS, (all->num_rows - tile * TILE + WIDE - 1) / WIDE);
}

/* The bias, and what driven inputs say, of a gate of SOME cells: turned, for there they lie by
   sentence. */
static inline void begin_with(const steps *all, int64_t step, int64_t tile, int vectors,
                              int64_t gate, float said[CELLS]) {
    const float *bias = all->bias + gate;
    for (int v = 0; v < vectors; v++) {
        const int64_t row = tile * TILE + v * WIDE, here = all->num_rows - row;
        const float *from =
            all->driven ? all->driven + step * all->by_step + row * all->by_row + gate : 0;
        for (int first = 0; first < SOME; first += 4) {
            floats four[4] = {{0}};
            if (from && here >= WIDE)
                turn(from + first, all->by_row, WIDE, four);
            else if (from)
                turn(from + first, all->by_row, here, four);
            EACH(r, 4) store(said + (first + r) * TILE + v * WIDE, four[r] + splat(bias[first + r]));
        }
    }
}

/* SOME cells of the sentences of a tile. */
static void renew(const steps *all, const weights *with, int64_t step, int64_t tile, int vectors,
                  int64_t cell) {
    float gates[4][CELLS], old[CELLS];
    for (int gate = 0; gate < 4; gate++)
        begin_with(all, step, tile, vectors, gate * all->num_cells + cell, gates[gate]);
    add_gates(all, with, step, tile, vectors, cell, gates);
    const int64_t at = (tile * all->num_cells + cell) * TILE;
    float *cells = all->cells + at, *shown = all->shown + at;
    memcpy(old, cells, sizeof old);
    for (int r = 0; r < SOME; r++)
        for (int v = 0; v < vectors; v++) {
            const int first = r * TILE + v * WIDE;
#pragma omp simd
            for (int i = first; i < first + WIDE; i++)
                shown[i] = cell_shows(gates[0][i], gates[1][i], gates[2][i], gates[3][i], cells + i,
                                      all->cell_clip);
        }
    const uint8_t *busy = all->busy + step * all->num_rows + tile * TILE;
    const int64_t here = least(TILE, all->num_rows - tile * TILE);
    for (int64_t b = 0; b < here; b++)
        if (!busy[b])
            for (int r = 0; r < SOME; r++) cells[r * TILE + b] = old[r * TILE + b];
}

/* Some outputs of the sentences of a tile, from what the cells show. */
static void show(const steps *all, const weights *with, int64_t step, int64_t tile, int vectors,
                 int64_t begin) {
    float found[OUTPUTS][TILE];
    if (is_projected(with)) {
        give_outputs(all, with, tile, vectors, begin, found);
        for (int r = 0; r < OUTPUTS; r++)
            for (int b = 0; b < vectors * WIDE; b++)
                found[r][b] = within(found[r][b], all->output_clip);
    } else
        memcpy(found, all->shown + (tile * all->num_cells + begin) * TILE, sizeof found);
    const int64_t first = tile * TILE, here = least(TILE, all->num_rows - first);
    const uint8_t *busy = all->busy + step * all->num_rows + first;
    float *last = all->last + (tile * all->width + begin) * TILE;
    for (int64_t b = 0; b < here; b++) {
        float *to = all->outputs + (step * all->num_rows + first + b) * all->width + begin;
        for (int r = 0; r < OUTPUTS; r++) {
            to[r] = busy[b] ? found[r][b] : 0;
            if (busy[b]) last[r * TILE + b] = found[r][b];
        }
    }
}

static void start(const steps *all, int64_t row) {
    const int64_t tile = row / TILE, b = row % TILE;
    for (int64_t d = 0; d < all->width; d++)
        all->last[(tile * all->width + d) * TILE + b] = all->first_outputs[row * all->width + d];
    for (int64_t h = 0; h < all->num_cells; h++)
        all->cells[(tile * all->num_cells + h) * TILE + b] =
            all->first_cells[row * all->num_cells + h];
}

static void take_steps(const steps *all, const weights *with, int64_t threads) {
    const int64_t tiles = tiles_of(all);
#pragma omp parallel num_threads(threads)
    {
        look_at_inputs(all, with);
        for (int64_t step = 0; step < all->num_steps; step++) {
            if (all->starts) {
#pragma omp for schedule(static)
                for (int64_t row = 0; row < all->num_rows; row++)
                    if (all->starts[step * all->num_rows + row]) start(all, row);
            }
            if (!memchr(all->busy + step * all->num_rows, 1, (size_t)all->num_rows)) {
#pragma omp for schedule(static)
                for (int64_t i = 0; i < all->num_rows * all->width; i++)
                    all->outputs[step * all->num_rows * all->width + i] = 0;
                continue; /* nobody reads, which every thread sees */
            }
            look_at_last(all, with);
#pragma omp for schedule(static)
            for (int64_t cell = 0; cell < all->num_cells; cell += SOME)
                for (int64_t tile = 0; tile < tiles; tile++)
                    renew(all, with, step, tile, vectors_of(all, tile), cell);
            look_at_shown(all, with);
#pragma omp for schedule(static)
            for (int64_t begin = 0; begin < all->width; begin += OUTPUTS)
                for (int64_t tile = 0; tile < tiles; tile++)
                    show(all, with, step, tile, vectors_of(all, tile), begin);
        }
    }
}

#endif
