/* Products of int8 numbers on AMX, the matrix unit of newer Intel CPUs: the same whole numbers as those of
   panels.h, sixteen rows and sixteen weights at a time.

   A tile register has sixteen rows of 64 bytes. One instruction adds to a tile of sums (rows by weights) the
   products of a tile of activations (rows by sixteen fours) and one of weights (sixteen fours by weights),
   which is how blocked rows and panels lie in memory. */

#ifndef ELMORE_TILES_H
#define ELMORE_TILES_H

#include <immintrin.h>
#include <stdint.h>

enum { TILE = 16 /* rows, fours of columns, and weights */, TILE_BYTES = 4 * TILE /* of a row */ };

/* The fours of a panel of 4 * TILE weights, times `count` rows of activations: row r of columns k is at
   rows[k / block_columns * block_bytes + r * row_bytes + 4 * (k % block_columns)]. */
typedef struct {
    const char *panel;
    int64_t columns; /* a multiple of TILE */
    const char *rows;
    int64_t count, row_bytes, block_columns, block_bytes;
    int32_t *sums; /* (count, 4 * TILE) */
} tile_product;

enum {
    COLUMN_BYTES = 4 * TILE_BYTES, /* of the panel, and of a row of sums */
    LINES_AHEAD = 11 /* cache lines, for each TILE columns of a pass: the six passes of 96 rows fetch a panel */
};

/* What LDTILECFG reads. */
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t num_rows[16];
} tile_config;

/* What the tiles of this thread are configured for: it takes as long as a small product, so it is done only
   where the numbers of rows differ from those of the product before. */
static _Thread_local int64_t configured_rows[2];

/* Registers 0 to 3 are for sums, 4 and 5 for activations, 6 and 7 for weights. Of more than TILE rows, the
   first are in registers 0, 1 and 4, the others in 2, 3 and 5. */
static void configure_tiles(int64_t first_rows, int64_t other_rows) {
    if (configured_rows[0] != first_rows || configured_rows[1] != other_rows) {
        const int64_t rest = other_rows ? other_rows : first_rows;
        const int64_t num_rows[] = {first_rows, first_rows, rest, rest, first_rows, rest, TILE, TILE};
        tile_config config = {.palette = 1};
        for (int i = 0; i < 8; i++) config.row_bytes[i] = TILE_BYTES, config.num_rows[i] = (uint8_t)num_rows[i];
        __asm__ volatile("ldtilecfg %0" : : "m"(config));
        configured_rows[0] = first_rows;
        configured_rows[1] = other_rows;
    }
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* At the end of a parallel region: tiles in use are saved whenever the thread is interrupted. */
static void release_tiles(void) {
    if (!configured_rows[0]) return;
    _tile_release();
    configured_rows[0] = 0;
}

/* At most TILE rows: with all weights of the panel at once, so that it is read in the order of memory. */
static void add_few_rows(const tile_product *call, const char *rows, int64_t count, int32_t *sums) {
    const char *panel = call->panel;
    configure_tiles(count, 0);
    for (int64_t k = 0; k < call->columns; k += TILE, panel += TILE * COLUMN_BYTES) {
        const int64_t at = k / call->block_columns * call->block_bytes + k % call->block_columns * 4;
        _tile_loadd(4, rows + at, call->row_bytes);
        _tile_loadd(6, panel, COLUMN_BYTES);
        _tile_dpbusd(0, 4, 6);
        _tile_loadd(7, panel + TILE_BYTES, COLUMN_BYTES);
        _tile_dpbusd(1, 4, 7);
        _tile_loadd(6, panel + 2 * TILE_BYTES, COLUMN_BYTES);
        _tile_dpbusd(2, 4, 6);
        _tile_loadd(7, panel + 3 * TILE_BYTES, COLUMN_BYTES);
        _tile_dpbusd(3, 4, 7);
    }
    _tile_stored(0, sums, COLUMN_BYTES);
    _tile_stored(1, sums + TILE, COLUMN_BYTES);
    _tile_stored(2, sums + 2 * TILE, COLUMN_BYTES);
    _tile_stored(3, sums + 3 * TILE, COLUMN_BYTES);
}

/* At most 2 * TILE rows: with half of the weights at a time, each of which then meets two tiles of rows. Meanwhile
   fetch what is at `ahead`, and return where that ends: the CPU does not foresee how tiles are loaded. */
static const char *add_rows(const tile_product *call, const char *rows, int64_t count, int32_t *sums,
                            const char *ahead) {
    const int64_t first_rows = (count + 1) / 2;
    const char *others = rows + first_rows * call->row_bytes;
    for (int half = 0; half < 2; half++, sums += 2 * TILE) {
        const char *panel = call->panel + 2 * half * TILE_BYTES;
        int32_t *other_sums = sums + 4 * TILE * first_rows;
        configure_tiles(first_rows, count - first_rows);
        for (int64_t k = 0; k < call->columns; k += TILE, panel += TILE * COLUMN_BYTES) {
            const int64_t at = k / call->block_columns * call->block_bytes + k % call->block_columns * 4;
            for (int i = 0; i < LINES_AHEAD; i++, ahead += TILE_BYTES) __builtin_prefetch(ahead, 0, 2);
            _tile_loadd(4, rows + at, call->row_bytes);
            _tile_loadd(6, panel, COLUMN_BYTES);
            _tile_dpbusd(0, 4, 6);
            _tile_loadd(7, panel + TILE_BYTES, COLUMN_BYTES);
            _tile_dpbusd(1, 4, 7);
            _tile_loadd(5, others + at, call->row_bytes);
            _tile_dpbusd(2, 5, 6);
            _tile_dpbusd(3, 5, 7);
        }
        _tile_stored(0, sums, COLUMN_BYTES);
        _tile_stored(1, sums + TILE, COLUMN_BYTES);
        _tile_stored(2, other_sums, COLUMN_BYTES);
        _tile_stored(3, other_sums + TILE, COLUMN_BYTES);
    }
    return ahead;
}

static void multiply_tiles(const tile_product *call) {
    const int64_t blocks = (call->count + 2 * TILE - 1) / (2 * TILE);
    const char *ahead = call->panel + call->columns * COLUMN_BYTES; /* the next panel */
    __asm__ volatile("" ::: "memory"); /* the compiler does not see that tiles are read from memory */
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t begin = block * call->count / blocks;
        const int64_t count = (block + 1) * call->count / blocks - begin;
        const char *rows = call->rows + begin * call->row_bytes;
        int32_t *sums = call->sums + 4 * TILE * begin;
        if (count <= TILE) add_few_rows(call, rows, count, sums);
        else ahead = add_rows(call, rows, count, sums, ahead);
    }
}

#endif
