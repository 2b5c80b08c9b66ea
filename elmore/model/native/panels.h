/* Products of packed weights with rows of activations.

   A panel is read from its beginning to its end, for as many rows at a time as there are registers for their
   sums. Every element of a result is summed in one order, whatever stands in the other rows and however
   many there are: chains of K_BLOCK fused multiply-adds, whose sums are added in turn. So a row has the
   same bits in any batch. */

#ifndef ELMORE_PANELS_H
#define ELMORE_PANELS_H

#include <string.h>

#include "kernels.h"
#include "simd.h"

enum {
    VECTORS = WIDE == 8 ? 2 : 4, /* of a panel */
    PANEL = VECTORS * WIDE,
    GROUP = WIDE == 8 ? 5 : 6, /* rows whose sums fit into registers */
    MAX_ROWS = 8 * GROUP, /* that share a block of columns while it is in the L1 cache */
    K_BLOCK = 64,
    PREFETCH = 16384, /* bytes, for a single group of rows */
    LINE = 64
};

/* Rows of activations, floats or for INT8_DYNAMIC fours of int8 numbers: element k of row r is at
   data[k / K_BLOCK * block_stride + r * row_stride + k % K_BLOCK]. */
typedef struct {
    const float *data;
    const float *scales; /* of the rows, for INT8_DYNAMIC */
    int64_t row_stride, block_stride;
} activations;

FORCE_INLINE activations from_row(activations all, int64_t row) {
    all.data += row * all.row_stride;
    if (all.scales) all.scales += row;
    return all;
}

/* Columns per panel, as each kind stores them, and bytes per column. */
FORCE_INLINE int64_t num_columns(const matrix *w) {
    return w->kind == INT8_DYNAMIC ? (w->width + 3) / 4 : w->width;
}
FORCE_INLINE int64_t column_bytes(int64_t kind) {
    return kind == INT8_WEIGHTS ? PANEL : (int64_t)sizeof(float) * PANEL;
}

/* The memory that a group prefetches while it computes: `per_column` cache lines for each column. */
typedef struct {
    const char *next;
    int per_column;
} prefetcher;

FORCE_INLINE void prefetch(prefetcher *ahead) {
    __builtin_prefetch(ahead->next);
    if (ahead->per_column > 1) __builtin_prefetch(ahead->next + LINE);
    if (ahead->per_column > 2) {
        __builtin_prefetch(ahead->next + 2 * LINE);
        __builtin_prefetch(ahead->next + 3 * LINE);
    }
    ahead->next += ahead->per_column * LINE;
}

/* Add to the sums of R rows what some columns of a panel contribute. `kind` and R are known to the
   compiler. Sums are floats, or ints for INT8_DYNAMIC, in the same memory. */
FORCE_INLINE void add_group(const char *panel, int64_t columns, const float *rows, int64_t stride,
                            prefetcher ahead, float sums[][PANEL], const int kind, const int R) {
    if (kind == INT8_DYNAMIC) {
#if HAS_INT8_DOT
        const int32_t *fours = (const int32_t *)rows;
        ints sum[VECTORS][GROUP], column[VECTORS];
        UNROLL(v, VECTORS) UNROLL(r, R) sum[v][r] = load_ints(sums[r] + v * WIDE);
        for (int64_t k = 0; k < columns; k++, panel += 4 * PANEL) {
            prefetch(&ahead);
            UNROLL(v, VECTORS) column[v] = load_ints(panel + 4 * WIDE * v);
            UNROLL(r, R)
            UNROLL(v, VECTORS) sum[v][r] = dot_add(sum[v][r], fours[r * stride + k], column[v]);
        }
        UNROLL(v, VECTORS) UNROLL(r, R) store_ints(sums[r] + v * WIDE, sum[v][r]);
#endif
        return;
    }
    floats sum[VECTORS][GROUP], column[VECTORS];
    UNROLL(v, VECTORS) UNROLL(r, R) sum[v][r] = (floats){0}; /* blocks are summed apart: less rounding */
    for (int64_t k = 0; k < columns; k++) {
        prefetch(&ahead);
        if (kind == INT8_WEIGHTS) {
            UNROLL(v, VECTORS) column[v] = load_int8((const int8_t *)panel + v * WIDE);
            panel += PANEL;
        } else {
            UNROLL(v, VECTORS) column[v] = load((const float *)panel + v * WIDE);
            panel += 4 * PANEL;
        }
        UNROLL(r, R) {
            const floats one = splat(rows[r * stride + k]);
            UNROLL(v, VECTORS) sum[v][r] = multiply_add(column[v], one, sum[v][r]);
        }
    }
    UNROLL(v, VECTORS) UNROLL(r, R) {
        float *total = sums[r] + v * WIDE;
        store(total, load(total) + sum[v][r]);
    }
}

#define CASE(R)                                                                                   \
    case R: add_group(panel, columns, rows, stride, ahead, sums, kind, R); break;

FORCE_INLINE void add_rows(const char *panel, int64_t columns, const float *rows, int64_t stride,
                           prefetcher ahead, int64_t count, float sums[][PANEL], const int kind) {
    switch (count) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
#if WIDE != 8
        CASE(6)
#endif
    }
}

#undef CASE

static void add_float32(const char *panel, int64_t columns, const float *rows, int64_t stride,
                        prefetcher ahead, int64_t count, float sums[][PANEL]) {
    add_rows(panel, columns, rows, stride, ahead, count, sums, FLOAT32);
}

static void add_int8_weights(const char *panel, int64_t columns, const float *rows, int64_t stride,
                             prefetcher ahead, int64_t count, float sums[][PANEL]) {
    add_rows(panel, columns, rows, stride, ahead, count, sums, INT8_WEIGHTS);
}

static void add_int8_dynamic(const char *panel, int64_t columns, const float *rows, int64_t stride,
                             prefetcher ahead, int64_t count, float sums[][PANEL]) {
    add_rows(panel, columns, rows, stride, ahead, count, sums, INT8_DYNAMIC);
}

typedef void (*add_function)(const char *, int64_t, const float *, int64_t, prefetcher, int64_t,
                             float[][PANEL]);

/* Where at least so many groups of rows share int8 weights, these become floats once for all of them. */
enum { SHARED = 3 };

/* Add to `to` the product of one panel with at most MAX_ROWS rows. */
static void add_panel(const matrix *w, int64_t number, activations from, int64_t count,
                      float to[][PANEL]) {
    const int64_t columns = num_columns(w), bytes = column_bytes(w->kind);
    const char *panel = (const char *)w->data + number * columns * bytes;
    const int64_t groups = (count + GROUP - 1) / GROUP;
    const int widen = w->kind == INT8_WEIGHTS && groups >= SHARED;
    const add_function add = w->kind == INT8_DYNAMIC            ? add_int8_dynamic
                             : w->kind == INT8_WEIGHTS && !widen ? add_int8_weights
                                                                 : add_float32;
    float sums[MAX_ROWS][PANEL], widened[K_BLOCK * PANEL];
    if (w->kind == INT8_DYNAMIC && w->corrections)
        for (int64_t r = 0; r < count; r++)
            memcpy(sums[r], w->corrections + number * PANEL, sizeof *sums);
    else
        memset(sums, 0, sizeof *sums * (size_t)count);
    /* One group prefetches a fixed distance ahead, several share the next block among them. */
    const int64_t lines = K_BLOCK * bytes / groups / LINE;
    const int per_column = lines > 2 * K_BLOCK ? 4 : lines > K_BLOCK ? 2 : 1;
    for (int64_t block = 0; block * K_BLOCK < columns; block++, panel += K_BLOCK * bytes) {
        const int64_t here = smaller(K_BLOCK, columns - block * K_BLOCK);
        const float *rows = from.data + block * from.block_stride;
        if (widen)
            for (int64_t k = 0; k < here * PANEL; k += WIDE)
                store(widened + k, load_int8((const int8_t *)panel + k));
        for (int64_t group = 0; group < groups; group++) {
            const int64_t begin = group * count / groups, end = (group + 1) * count / groups;
            const char *next = groups == 1 ? panel + PREFETCH : panel + K_BLOCK * bytes + group * lines * LINE;
            add(widen ? (const char *)widened : panel, here, rows + begin * from.row_stride,
                from.row_stride, (prefetcher){next, per_column}, end - begin, sums + begin);
        }
    }
    const float *scales = w->scales ? w->scales + number * PANEL : 0;
    for (int64_t r = 0; r < count; r++)
        UNROLL(v, VECTORS) {
            float *one = to[r] + v * WIDE, *sum = sums[r] + v * WIDE;
            if (w->kind == FLOAT32)
                store(one, load(one) + load(sum));
            else if (w->kind == INT8_WEIGHTS)
                store(one, multiply_add(load(sum), load(scales + v * WIDE), load(one)));
            else
                store(one, load(one) + __builtin_convertvector(load_ints(sum), floats) *
                                           (load(scales + v * WIDE) * splat(from.scales[r])));
        }
}

/* The scale of a row for int8, max |x| / 127, and its inverse. The largest is found in the order of bits, so
   that a NaN is larger than any number; a row with one, or with an infinity, gets a scale that is NaN. */
static float find_scale(const float *row, int64_t width, float *inverse) {
    int32_t largest = 0;
    for (int64_t k = 0; k < width; k++) {
        int32_t bits;
        memcpy(&bits, row + k, sizeof bits);
        bits &= INT32_MAX;
        largest = bits > largest ? bits : largest;
    }
    float most;
    memcpy(&most, &largest, sizeof most);
    *inverse = most > 0 ? 127 / most : 0;
    return most / 127 + 0 * most;
}

/* Round numbers times `by` to int8, and fill up the last four with zeros, which meet zero weights. */
static void quantize(const float *row, int64_t width, float by, int8_t *to) {
    int64_t k = 0;
#if WIDE == 16
    for (; k + 16 <= width; k += 16) {
        const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(load(row + k), splat(by)));
        const __m128i bytes = _mm512_cvtepi32_epi8(whole);
        _mm_storeu_si128((void *)(to + k), _mm_xor_si128(bytes, _mm_set1_epi8((char)U8_OFFSET)));
    }
#elif defined(__aarch64__)
    for (; k + 4 <= width; k += 4) {
        const int16x4_t half = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(row + k), by)));
        const int32_t four =
            vget_lane_s32(vreinterpret_s32_s8(vmovn_s16(vcombine_s16(half, half))), 0);
        memcpy(to + k, &four, sizeof four);
    }
#endif
    for (; k < width; k++) to[k] = (int8_t)((int32_t)__builtin_rintf(row[k] * by) ^ U8_OFFSET);
    for (; k % 4; k++) to[k] = 0;
}

/* In a parallel region: the rows as `w` takes them. Few float rows are read where they are. Others are copied
   into `scratch`, all rows of a block of columns together: rows at a stride that is a power of two would drive
   each other out of the L1 cache. */
static activations prepare_rows(const matrix *w, const float *rows, int64_t count, float *scratch,
                                float *scales) {
    const int dynamic = w->kind == INT8_DYNAMIC;
    const int64_t per_block = dynamic ? 4 * K_BLOCK : K_BLOCK; /* numbers */
    if (!dynamic && count <= GROUP) return (activations){rows, 0, w->width, K_BLOCK};
#pragma omp for schedule(static)
    for (int64_t r = 0; r < count; r++) {
        const float *row = rows + r * w->width;
        float by = 0;
        if (dynamic) scales[r] = find_scale(row, w->width, &by);
        for (int64_t first = 0; first < w->width; first += per_block) {
            const int64_t here = smaller(per_block, w->width - first);
            float *to = scratch + (first / per_block * count + r) * K_BLOCK;
            if (dynamic)
                quantize(row + first, here, by, (int8_t *)to);
            else
                memcpy(to, row + first, sizeof(float) * (size_t)here);
        }
    }
    return (activations){scratch, dynamic ? scales : 0, K_BLOCK, count * K_BLOCK};
}

static int64_t panels_per_part(const matrix *w) {
    return (w->height / w->parts + PANEL - 1) / PANEL;
}

/* In a parallel region: out (B, M) = rows times the weight. */
static void multiply_rows(const matrix *w, activations from, int64_t num_rows, float *out) {
    const int64_t tall = w->height / w->parts, panels = panels_per_part(w) * w->parts;
    const int64_t blocks = (num_rows + MAX_ROWS - 1) / MAX_ROWS;
#pragma omp for schedule(dynamic)
    for (int64_t item = 0; item < panels * blocks; item++) {
        const int64_t number = item / blocks, block = item % blocks;
        const int64_t first = block * num_rows / blocks, count = (block + 1) * num_rows / blocks - first;
        const int64_t begin = number / w->parts * PANEL, here = smaller(PANEL, tall - begin);
        float results[MAX_ROWS][PANEL];
        memset(results, 0, sizeof *results * (size_t)count);
        add_panel(w, number, from_row(from, first), count, results);
        float *to = out + first * w->height + number % w->parts * tall + begin;
        for (int64_t r = 0; r < count; r++)
            memcpy(to + r * w->height, results[r], sizeof(float) * (size_t)here);
    }
}

#endif
