/* One step of all cells of a layer, from gates to what the cells show.

   Everything is float32. Gates (4H, B), input, forget, candidate and output, lie in columns, one a
   sentence, and so do cells and shown (H, B). What the inputs say to gate g of sentence b stands at
   driven + g * d_g + b * d_b, and is added here, as the bias is.
*/

#include <stdint.h>

#include "cell.h"

enum { TOGETHER = 64 };

void cell_step(const float *restrict gates, const float *restrict driven, int64_t d_g, int64_t d_b,
               const float *restrict bias, float *restrict cells, float *restrict shown,
               int64_t num_cells, int64_t num_columns, float clip, int64_t threads) {
    /* Where there are few columns, several cells are taken together: units are wide. */
    const int64_t rows = num_columns < TOGETHER ? TOGETHER / num_columns : 1;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t h = 0; h < num_cells; h += rows)
        for (int64_t begin = 0; begin < num_columns; begin += TOGETHER) {
            const int64_t left = num_columns - begin, here = left < TOGETHER ? left : TOGETHER;
            const int64_t last = num_cells - h < rows ? num_cells - h : rows;
            float all[4][TOGETHER];
            for (int64_t gate = 0; gate < 4; gate++)
                for (int64_t row = 0; row < last; row++) {
                    const int64_t g = gate * num_cells + h + row;
                    const float *from = gates + g * num_columns + begin;
                    const float *say = driven + g * d_g + begin * d_b;
                    float *to = all[gate] + row * here;
                    if (d_b == 1)
                        for (int64_t b = 0; b < here; b++) to[b] = from[b] + (say[b] + bias[g]);
                    else
                        for (int64_t b = 0; b < here; b++)
                            to[b] = from[b] + (say[b * d_b] + bias[g]);
                }
            float *cell = cells + h * num_columns + begin, *show = shown + h * num_columns + begin;
#pragma omp simd
            for (int64_t i = 0; i < last * here; i++)
                show[i] = cell_shows(all[0][i], all[1][i], all[2][i], all[3][i], cell + i, clip);
        }
}
