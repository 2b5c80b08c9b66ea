/* A product of a weight and columns, both in whole numbers from -127 to 127:

       y[r][b] = scale[r] * s[b] * sum_k w[r][k] q[k][b],   q[k][b] = round(x[k][b] / s[b])

   Each row of the weight has a scale of its own, which the caller keeps, and each column s[b] = max
   |x| / 127, found here. The sums are exact, so a column gets the same bits in any company.

   For a weight see bytes.h. Columns are laid out likewise, four k at a time, in tiles of three vectors,
   the last of as many as it takes; what is missing to that is zero. */

#include "bytes.h"

#if !defined(HAVE_DOTS)

int64_t columns_of_a_tile(void) { return 0; }

#else

#include <math.h>

enum { OUTPUTS = ROWS };

#include "tiles.h"

enum { COLUMNS = TILE };

int64_t columns_of_a_tile(void) { return has_dots() ? TILE : 0; }
int64_t lifted_by(void) { return LIFTED; }

/* How large a number is, in the order of its bits: so a NaN is larger than any, and a column with one
   has a scale that is none. */
static inline int32_t size_of(float x) {
    union {
        float number;
        int32_t bits;
    } same = {.number = x};
    return same.bits & INT32_MAX;
}

static inline int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

static inline int8_t to_byte(float x) { return (int8_t)(lrintf(x) ^ LIFTED); }

/* Round the columns of one tile, each to its own scale. x[k][b] stands at x + k * x_k + b * x_b, and
   one of the two is 1. What pads the tile is zero already. */
static void round_tile(const float *x, int64_t x_k, int64_t x_b, int64_t width, int64_t columns,
                       int64_t padded, int8_t *q, float *s) {
    float by[COLUMNS];
    int32_t most[COLUMNS] = {0};
    if (x_k == 1) {
        for (int64_t b = 0; b < columns; b++)
            for (int64_t k = 0; k < width; k++) most[b] = larger(most[b], size_of(x[b * x_b + k]));
    } else {
        for (int64_t k = 0; k < width; k++)
            for (int64_t b = 0; b < columns; b++) most[b] = larger(most[b], size_of(x[k * x_k + b]));
    }
    memcpy(s, most, (size_t)columns * sizeof(float));
    for (int64_t b = 0; b < columns; b++) {
        by[b] = s[b] > 0 ? 127 / s[b] : 0;
        s[b] = s[b] / 127 + 0 * s[b]; /* where there is an infinity, no number */
    }
    if (x_k == 1) {
        for (int64_t b = 0; b < columns; b++) {
            int64_t k = 0;
            for (; k + 4 <= width; k += 4) {
                const int32_t four = to_bytes(x + b * x_b + k, by[b]) ^ LIFT;
                memcpy(q + (k * padded + 4 * b), &four, sizeof four);
            }
            for (; k < width; k++)
                q[(k / 4 * padded + b) * 4 + k % 4] = to_byte(x[b * x_b + k] * by[b]);
        }
        return;
    }
    int64_t k = 0;
    for (; k + 4 <= width; k += 4)
        for (int64_t b = 0; b < columns; b++) {
            const float *at = x + k * x_k + b;
            int8_t *to = q + k * padded + 4 * b;
            for (int i = 0; i < 4; i++) to[i] = to_byte(at[i * x_k] * by[b]);
        }
    for (; k < width; k++)
        for (int64_t b = 0; b < columns; b++)
            q[(k / 4 * padded + b) * 4 + k % 4] = to_byte(x[k * x_k + b] * by[b]);
}

/* Round all columns, tile by tile. In a parallel region: each thread takes its share. */
static void round_columns(const float *x, int64_t x_k, int64_t x_b, int64_t width, int64_t columns,
                          int8_t *q, float *s) {
    const int64_t fours = (width + 3) / 4;
#pragma omp for schedule(static)
    for (int64_t begin = 0; begin < columns; begin += COLUMNS) {
        int64_t here = least(COLUMNS, columns - begin);
        int64_t padded = columns == 1 ? 1 : (here + WIDE - 1) / WIDE * WIDE;
        int8_t *tile = q + begin * 4 * fours;
        if (here < padded || width % 4) memset(tile, 0, (size_t)(padded * 4 * fours));
        for (int64_t b = here; b < padded; b++) s[begin + b] = 0;
        round_tile(x + begin * x_b, x_k, x_b, width, here, padded, tile, s + begin);
    }
}

ALWAYS floats scaled(ints sums, floats columns, float row) {
    return __builtin_convertvector(sums, floats) * (columns * splat(row));
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
    ints sums[ROWS][VECTORS];
    const int vectors = (int)((here + WIDE - 1) / WIDE);
    if (vectors == 3)
        multiply_bytes(w, q, fours, 3, sums);
    else if (vectors == 2)
        multiply_bytes(w, q, fours, 2, sums);
    else
        multiply_bytes(w, q, fours, 1, sums);
    for (int64_t r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            store(values[r] + WIDE * v, scaled(sums[r][v], load(s + WIDE * v), scale[r]));
}

/* Rows of a product that are laid out together: as many as are a vector of each gate. */
enum { GROUP = 4 * WIDE };

/* Lay a group out. Its rows have so many `gates` of each cell together, and go where they would be
   otherwise: cell c of a gate of column b to y + (gate * cells + c) * y_r + b * y_b. */
static void lay_out(float values[GROUP][COLUMNS], int64_t there, int64_t here, float *y, int64_t y_r,
                    int64_t y_b, int64_t gates, int64_t cells) {
    for (int64_t gate = 0; gate < gates; gate++)
        for (int64_t cell = 0; cell < there / gates; cell += WIDE)
            for (int64_t b = 0; b < here; b += 4) {
                const float *from = values[cell * gates + gate] + b;
                float *to = y + (gate * cells + cell) * y_r + b * y_b;
                const int64_t left = least(WIDE, there / gates - cell), wide = least(4, here - b);
                if (y_r == 1 && left == WIDE && wide == 4) {
                    floats four[4];
                    turn(from, gates * COLUMNS, WIDE, four);
                    EACH(i, 4) store(to + i * y_b, four[i]);
                } else
                    for (int64_t r = 0; r < left; r++)
                        for (int64_t i = 0; i < wide; i++)
                            to[r * y_r + i * y_b] = from[r * gates * COLUMNS + i];
            }
}

/* q and s have room for the columns with what pads them. */
void int8_multiply(const int8_t *w, const float *scale, const float *x, int64_t x_k, int64_t x_b,
                   int8_t *q, float *s, float *y, int64_t y_r, int64_t y_b, int64_t rows,
                   int64_t width, int64_t columns, int64_t gates, int64_t threads) {
    const int64_t fours = (width + 3) / 4;
#pragma omp parallel num_threads(threads)
    {
        round_columns(x, x_k, x_b, width, columns, q, s);
#pragma omp for schedule(static) collapse(2)
        for (int64_t first = 0; first < rows; first += GROUP)
            for (int64_t begin = 0; begin < columns; begin += COLUMNS) {
                const int64_t there = least(GROUP, rows - first);
                const int64_t here = least(COLUMNS, columns - begin);
                float values[GROUP][COLUMNS];
                for (int64_t r = 0; r < there; r += ROWS)
                    multiply_block(w + (first + r) * 4 * (fours + 1), scale + first + r,
                                   q + begin * 4 * fours, s + begin, fours, least(ROWS, there - r),
                                   here, columns == 1, values + r);
                lay_out(values, there, here, y + first / gates * y_r + begin * y_b, y_r, y_b, gates,
                        rows / gates);
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
                multiply_block(w + first * 16 * (fours + 1), scale + first * 4, q + begin * 4 * fours,
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

/* Four numbers each of the columns of a vector, to bytes side by side. */
ALWAYS ints together(const float *from, floats by) {
    ints one[4];
    EACH(k, 4) one[k] = nearest(load(from + k * TILE) * by) & 255;
    return (one[0] | one[1] << 8 | one[2] << 16 | one[3] << 24) ^ LIFT;
}

static void round_tiles(const steps *all, const float *x, int64_t tiles, int64_t width,
                        rounded_tiles to) {
#pragma omp for schedule(static)
    for (int64_t tile = 0; tile < tiles; tile++) {
        const float *from = x + tile * width * TILE;
        int8_t *columns = to.columns + tile * width * TILE;
        const int vectors = vectors_of(all, tile % tiles_of(all));
        for (int v = 0; v < vectors; v++) {
            ints most = {0};
            for (int64_t k = 0; k < width; k++)
                most = larger_of(most, (ints)load(from + k * TILE + WIDE * v) & INT32_MAX);
            const floats by = (floats)((ints)(127 / (floats)most) & ((floats)most > 0));
            store(to.scales + tile * TILE + WIDE * v, (floats)most / 127 + 0 * (floats)most);
            for (int64_t k = 0; k < width; k += 4)
                *(stored_ints *)(columns + WIDE * (k * vectors + 4 * v)) =
                    together(from + k * TILE + WIDE * v, by);
        }
    }
}

static void look_at_inputs(const steps *all, const weights *with) {
    if (with->input.rows)
        round_tiles(all, with->inputs, all->num_steps * tiles_of(all), with->input_width,
                    with->these);
}

static void look_at_last(const steps *all, const weights *with) {
    round_tiles(all, all->last, tiles_of(all), all->width, with->last);
}

static int is_projected(const weights *with) { return with->projection.rows != 0; }

static void look_at_shown(const steps *all, const weights *with) {
    if (is_projected(with)) round_tiles(all, all->shown, tiles_of(all), all->num_cells, with->shown);
}

/* Add to the gates of SOME cells what n vectors of a tile give, which is the one of that number. */
ALWAYS void add_so_many(rounded_weight weight, rounded_tiles tiles, int64_t number, int64_t width,
                        int64_t cell, const int n, float gates[4][CELLS]) {
    const float *scales = tiles.scales + number * TILE;
    for (int two = 0; two < SOME; two += 2) {
        ints sums[ROWS][VECTORS];
        multiply_bytes(weight.rows + (cell + two) * 4 * (width + 4),
                       tiles.columns + number * width * TILE, width / 4, n, sums);
        EACH(r, ROWS) {
            float *to = gates[r % 4] + (two + r / 4) * TILE;
            const float scale = weight.scales[(cell + two) * 4 + r];
            EACH(v, n)
                store(to + WIDE * v,
                      load(to + WIDE * v) + scaled(sums[r][v], load(scales + WIDE * v), scale));
        }
    }
}

static void add_product(rounded_weight weight, rounded_tiles tiles, int64_t number, int64_t width,
                        int64_t cell, int vectors, float gates[4][CELLS]) {
    if (vectors == 3)
        add_so_many(weight, tiles, number, width, cell, 3, gates);
    else if (vectors == 2)
        add_so_many(weight, tiles, number, width, cell, 2, gates);
    else
        add_so_many(weight, tiles, number, width, cell, 1, gates);
}

static void add_gates(const steps *all, const weights *with, int64_t step, int64_t tile, int vectors,
                      int64_t cell, float gates[4][CELLS]) {
    if (with->input.rows)
        add_product(with->input, with->these, step * tiles_of(all) + tile, with->input_width, cell,
                    vectors, gates);
    add_product(with->recurrent, with->last, tile, all->width, cell, vectors, gates);
}

static void give_outputs(const steps *all, const weights *with, int64_t tile, int vectors,
                         int64_t begin, float found[][TILE]) {
    multiply_block(with->projection.rows + begin * (all->num_cells + 4),
                   with->projection.scales + begin,
                   with->shown.columns + tile * all->num_cells * TILE,
                   with->shown.scales + tile * TILE, all->num_cells / 4, OUTPUTS, vectors * WIDE, 0,
                   found);
}

void int8_steps(const steps *all, const weights *with, int64_t threads) {
    take_steps(all, with, threads);
}

#endif
