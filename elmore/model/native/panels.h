/* Products of packed weights with rows of activations.

   A panel is read from its beginning to its end, for as many rows at a time as there are registers for their
   sums. Every element of a result is summed in one order, whatever stands in the other rows and however
   many there are: chains of K_BLOCK fused multiply-adds, whose sums are added in turn. So a row has the
   same bits in any batch.

   Where the CPU multiplies int8 with int8, int8 weights stay what they are, and the activations become whole
   numbers: of 8 bits, of 16 bits, or of 24 bits, which is as exact as floats are. Those of more than 8 bits are
   split into two or three digits of 8 bits, q = (d2 * 256 + d1) * 256 + d0. Sums of whole numbers have no
   rounding, so their order does not matter. */

#ifndef ELMORE_PANELS_H
#define ELMORE_PANELS_H

#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "simd.h"
#include "work_stealing.h"
#if defined(__AMX_INT8__)
#include "tiles.h"
#define HAS_MATRIX_UNIT 1
#else
#define HAS_MATRIX_UNIT 0
static void release_tiles(void) {}
#endif

enum {
    VECTORS = WIDE == 8 ? 2 : 4, /* of a panel */
    PANEL = VECTORS * WIDE,
    GROUP = WIDE == 8 ? 5 : 6, /* rows whose sums fit into registers */
    MAX_ROWS = 16 * GROUP, /* that share a block of columns while it is in the L1 cache */
    K_BLOCK = 64, /* a multiple of PANEL */
    PREFETCH = WIDE == 16 ? 4096 : 16384, /* bytes, for a single group of rows */
    LINE = 64,
    MIN_TILE_ROWS = 4, /* for fewer rows or digits the matrix unit is not faster */
    MAX_DIGITS = 3,
    DIGIT_BASE = 256
};

FORCE_INLINE int takes_int8(int64_t kind) {
    return kind == INT8_DYNAMIC || kind == INT8_DYNAMIC16 || kind == INT8_SPLIT;
}
FORCE_INLINE int num_digits(int64_t kind) { return kind == INT8_SPLIT ? 3 : kind == INT8_DYNAMIC16 ? 2 : 1; }

/* Rows of activations, floats or fours of int8 numbers: element k of row r is at
   data[k / K_BLOCK * block_stride + r * row_stride + k % K_BLOCK], and a further digit K_BLOCK after it. */
typedef struct {
    const float *data;
    const float *scales; /* of the rows, for int8 numbers */
    int64_t row_stride, block_stride;
} activations;

/* Rows as they lie in a matrix. */
FORCE_INLINE activations dense_rows(const float *rows, int64_t width) {
    return (activations){rows, 0, width, K_BLOCK};
}

/* All rows of a block of columns together: rows at a stride that is a power of two would drive each other
   out of the L1 cache. */
FORCE_INLINE activations blocked_rows(const float *blocks, int64_t count, int digits) {
    return (activations){blocks, 0, digits * K_BLOCK, count * digits * K_BLOCK};
}

FORCE_INLINE activations from_row(activations all, int64_t row) {
    all.data += row * all.row_stride;
    if (all.scales) all.scales += row;
    return all;
}

/* Columns per panel, as each kind stores them, and bytes per column. */
FORCE_INLINE int64_t num_columns(const matrix *w) {
    return takes_int8(w->kind) ? (w->width + 3) / 4 : w->width;
}
FORCE_INLINE int64_t column_bytes(int64_t kind) {
    return kind == INT8_WEIGHTS ? PANEL : (int64_t)sizeof(float) * PANEL;
}

/* Where the product of a panel goes: result = base + bias + product, of each row PANEL numbers. */
typedef struct {
    float *data;
    int64_t stride;
    const float *bias; /* (PANEL), the same for every row; null: zero */
    const float *const *base_rows; /* the base of row r is at base_rows[r] + base_offset; null: zero */
    int64_t base_offset;
} destination;

FORCE_INLINE destination to_rows(destination all, int64_t row) {
    all.data += row * all.stride;
    if (all.base_rows) all.base_rows += row;
    return all;
}

/* A block of columns of a panel, for one group of rows. */
typedef struct {
    const char *panel;
    int64_t columns;
    const float *rows;
    int64_t stride;
    const char *ahead; /* what to prefetch, and how far to go from column to column */
    int64_t step;
    destination to;
    const float *scales; /* (PANEL), of int8 weights */
    const int32_t *corrections; /* (PANEL); and the rest for int8 activations: */
    const float *row_scales;
    int32_t (*sums)[PANEL]; /* of the blocks before, and for those to come */
    int is_first, is_last;
} group_product;

/* A row of a destination. Its pointers are found once: after a store they would be read again. */
typedef struct {
    float *data;
    const float *base, *bias; /* or null */
} destination_row;

FORCE_INLINE destination_row find_destination(destination to, int64_t r) {
    const float *base = to.base_rows ? to.base_rows[r] + to.base_offset : 0;
    return (destination_row){to.data + r * to.stride, base, to.bias};
}

FORCE_INLINE floats load_base(destination_row to, int v) {
    const floats base = to.base ? load(to.base + v * WIDE) : (floats){0};
    return to.bias ? base + load(to.bias + v * WIDE) : base;
}

FORCE_INLINE void load_int8_column(const int8_t *from, floats column[VECTORS]) {
    UNROLL(i, VECTORS / INT8_VECTORS)
    load_int8(from + i * INT8_VECTORS * WIDE, column + i * INT8_VECTORS);
}

/* Write base + numbers, from the sums of their digits; `scale` is that of the weights times that of the row. */
FORCE_INLINE void store_scaled(float *to, floats base, const ints *sums, const int digits, floats scale) {
    floats number = to_floats(sums[digits - 1]);
    for (int d = digits - 2; d >= 0; d--)
        number = multiply_add(number, splat(DIGIT_BASE), to_floats(sums[d]));
    store(to, base + number * scale);
}

/* `kind`, R and `lines` are known to the compiler: the weights, the rows of the group, and the cache lines to
   prefetch per column. */
FORCE_INLINE void add_group(const group_product *call, const int kind, const int R, const int lines) {
    const char *panel = call->panel, *ahead = call->ahead;
    const float *rows = call->rows;
    const int64_t stride = call->stride, columns = call->columns;
    const int64_t step = lines > 1 ? lines * LINE : call->step;
    const destination to = call->to;
    if (to.base_rows && call->is_first) /* they come from memory: no CPU foresees where from */
        UNROLL(r, R) UNROLL(i, 4 * PANEL / LINE)
        __builtin_prefetch((const char *)(to.base_rows[r] + to.base_offset) + i * LINE);
    if (takes_int8(kind)) {
#if HAS_INT8_DOT
        const int32_t *fours = (const int32_t *)rows;
        const int digits = num_digits(kind);
        ints sum[VECTORS][GROUP], column[VECTORS];
        UNROLL(v, VECTORS) UNROLL(n, R * digits)
        sum[v][n] = load_ints((call->is_first ? call->corrections : call->sums[n]) + v * WIDE);
        int64_t k = 0;
#if defined(__ARM_FEATURE_DOTPROD)
        for (; k + 4 <= columns; k += 4) { /* a vector of activations is read once for four columns */
            ints four[GROUP];
            UNROLL(n, R * digits)
            four[n] = load_ints(fours + n / digits * stride + n % digits * K_BLOCK + k);
#define ADD_COLUMN(lane)                                                                          \
    UNROLL(i, lines) __builtin_prefetch(ahead + i * LINE);                                        \
    UNROLL(v, VECTORS) {                                                                          \
        const ints weights = load_ints(panel + 4 * WIDE * v);                                     \
        UNROLL(n, R * digits)                                                                     \
        sum[v][n] = vdotq_laneq_s32(sum[v][n], (int8x16_t)weights, (int8x16_t)four[n], lane);      \
    }                                                                                             \
    panel += 4 * PANEL;                                                                           \
    ahead += step;                                                                                \
    __asm__ volatile("" ::: "memory");
            ADD_COLUMN(0) ADD_COLUMN(1) ADD_COLUMN(2) ADD_COLUMN(3)
#undef ADD_COLUMN
        }
#endif
        for (; k < columns; k++, panel += 4 * PANEL, ahead += step) {
            UNROLL(i, lines) __builtin_prefetch(ahead + i * LINE);
            UNROLL(v, VECTORS) column[v] = load_ints(panel + 4 * WIDE * v);
            UNROLL(n, R * digits) {
                const int32_t four = fours[n / digits * stride + n % digits * K_BLOCK + k];
                UNROLL(v, VECTORS) sum[v][n] = dot_add(sum[v][n], four, column[v]);
            }
        }
        if (!call->is_last) {
            UNROLL(v, VECTORS) UNROLL(n, R * digits) store_ints(call->sums[n] + v * WIDE, sum[v][n]);
            return;
        }
        floats scales[VECTORS];
        UNROLL(v, VECTORS) scales[v] = load(call->scales + v * WIDE);
        UNROLL(r, R) {
            const destination_row row = find_destination(to, r);
            const floats row_scale = splat(call->row_scales[r]);
            UNROLL(v, VECTORS)
            store_scaled(row.data + v * WIDE, load_base(row, v), &sum[v][r * digits], digits,
                         scales[v] * row_scale);
        }
#endif
        return;
    }
    floats sum[VECTORS][GROUP], column[VECTORS];
    UNROLL(v, VECTORS) UNROLL(r, R) sum[v][r] = (floats){0}; /* blocks are summed apart: less rounding */
    for (int64_t k = 0; k < columns; k++, ahead += step) {
        UNROLL(i, lines) __builtin_prefetch(ahead + i * LINE);
        if (kind == INT8_WEIGHTS) {
            load_int8_column((const int8_t *)panel, column);
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
    UNROLL(r, R) {
        const destination_row row = find_destination(to, r);
        UNROLL(v, VECTORS) {
            float *at = row.data + v * WIDE;
            const floats base = call->is_first ? load_base(row, v) : load(at); /* with the blocks before */
            store(at, call->scales ? multiply_add(sum[v][r], load(call->scales + v * WIDE), base)
                                   : base + sum[v][r]);
        }
    }
}

#define CASE(R, kind, lines)                                                                      \
    case R:                                                                                       \
        if (R * num_digits(kind) <= GROUP) add_group(call, kind, R, lines);                       \
        break;
#if WIDE == 8
#define CASE_6(kind, lines)
#else
#define CASE_6(kind, lines) CASE(6, kind, lines)
#endif
#define DEFINE_ADD(name, kind, lines)                                                             \
    static void name(const group_product *call, int64_t num_rows) {                               \
        switch (num_rows) {                                                                       \
            CASE(1, kind, lines)                                                                  \
            CASE(2, kind, lines)                                                                  \
            CASE(3, kind, lines)                                                                  \
            CASE(4, kind, lines)                                                                  \
            CASE(5, kind, lines)                                                                  \
            CASE_6(kind, lines)                                                                   \
        }                                                                                         \
    }

/* A single group prefetches all lines of the columns ahead, of several groups each a part. */
DEFINE_ADD(add_float32, FLOAT32, 1)
DEFINE_ADD(add_float32_alone, FLOAT32, 4 * PANEL / LINE)
DEFINE_ADD(add_int8_weights, INT8_WEIGHTS, 1)
DEFINE_ADD(add_int8_dynamic, INT8_DYNAMIC, 1)
DEFINE_ADD(add_int8_dynamic_alone, INT8_DYNAMIC, 4 * PANEL / LINE)
DEFINE_ADD(add_int8_dynamic16, INT8_DYNAMIC16, 1)
DEFINE_ADD(add_int8_dynamic16_alone, INT8_DYNAMIC16, 4 * PANEL / LINE)
DEFINE_ADD(add_int8_split, INT8_SPLIT, 1)
DEFINE_ADD(add_int8_split_alone, INT8_SPLIT, 4 * PANEL / LINE)

#undef DEFINE_ADD
#undef CASE_6
#undef CASE

typedef void (*add_function)(const group_product *, int64_t);

static add_function select_add(int64_t kind, int alone) {
    if (kind == INT8_WEIGHTS) return add_int8_weights;
    if (kind == INT8_DYNAMIC) return alone ? add_int8_dynamic_alone : add_int8_dynamic;
    if (kind == INT8_DYNAMIC16) return alone ? add_int8_dynamic16_alone : add_int8_dynamic16;
    if (kind == INT8_SPLIT) return alone ? add_int8_split_alone : add_int8_split;
    return alone ? add_float32_alone : add_float32;
}

#if defined(__AMX_INT8__)
/* The product of a whole panel with at most MAX_ROWS rows or digits. What all rows share is read once: after a
   store the compiler would read it again. */
FORCE_INLINE void add_in_tiles(const group_product *call, int64_t count, int64_t block_stride,
                               const int digits) {
    multiply_tiles(&(tile_product){call->panel, call->columns, (const char *)call->rows, count * digits,
                                   4 * K_BLOCK, K_BLOCK, 4 * block_stride, call->sums[0]});
    const destination to = call->to;
    const float *row_scales = call->row_scales;
    int32_t(*const all_sums)[PANEL] = call->sums;
    floats scales[VECTORS], bias[VECTORS];
    ints corrections[VECTORS];
    UNROLL(v, VECTORS) {
        scales[v] = load(call->scales + v * WIDE);
        bias[v] = to.bias ? load(to.bias + v * WIDE) : (floats){0};
        corrections[v] = load_ints(call->corrections + v * WIDE);
    }
    for (int64_t r = 0; r < count; r++) {
        const destination_row row = find_destination(to, r);
        const floats row_scale = splat(row_scales[r]);
        UNROLL(v, VECTORS) {
            const floats base = row.base ? load(row.base + v * WIDE) + bias[v] : bias[v];
            ints sums[MAX_DIGITS];
            UNROLL(d, digits) sums[d] = load_ints(all_sums[r * digits + d] + v * WIDE) + corrections[v];
            store_scaled(row.data + v * WIDE, base, sums, digits, scales[v] * row_scale);
        }
    }
}
#endif

/* Where at least so many groups of rows share int8 weights, these become floats once for all of them. */
enum { SHARED = 3 };

/* The product of one panel with at most MAX_ROWS rows or digits. */
static void multiply_rows_of_panel(const matrix *w, int64_t number, activations from, int64_t count,
                                   destination to) {
    const int64_t columns = num_columns(w), bytes = column_bytes(w->kind);
    const char *panel = (const char *)w->data + number * columns * bytes;
    const int digits = num_digits(w->kind);
    const int64_t most = GROUP / digits, groups = (count + most - 1) / most;
    const int widen = w->kind == INT8_WEIGHTS && groups >= SHARED;
    const add_function add = select_add(widen ? FLOAT32 : w->kind, groups == 1);
    ALIGNED float widened[K_BLOCK * PANEL];
    ALIGNED int32_t sums[MAX_ROWS][PANEL];
    group_product call = {
        .stride = from.row_stride,
        .step = groups == 1 ? bytes : bytes / groups,
        .scales = w->scales ? w->scales + number * PANEL : 0,
        .corrections = w->corrections ? w->corrections + number * PANEL : 0,
    };
#if defined(__AMX_INT8__)
    if (takes_int8(w->kind) && columns % TILE == 0 && count * digits >= MIN_TILE_ROWS) {
        call.panel = panel;
        call.columns = columns;
        call.rows = from.data;
        call.row_scales = from.scales;
        call.sums = sums;
        call.to = to;
        if (digits == 1) add_in_tiles(&call, count, from.block_stride, 1);
        else if (digits == 2) add_in_tiles(&call, count, from.block_stride, 2);
        else add_in_tiles(&call, count, from.block_stride, 3);
        return;
    }
#endif
    for (int64_t first = 0; first < columns; first += K_BLOCK, panel += K_BLOCK * bytes) {
        call.columns = smaller(K_BLOCK, columns - first);
        call.is_first = first == 0;
        call.is_last = first + K_BLOCK >= columns;
        call.panel = panel;
        if (widen) {
            for (int64_t k = 0; k < call.columns * PANEL; k += PANEL) {
                floats column[VECTORS];
                load_int8_column((const int8_t *)panel + k, column);
                UNROLL(v, VECTORS) store(widened + k + v * WIDE, column[v]);
            }
            call.panel = (const char *)widened;
        }
        for (int64_t group = 0; group < groups; group++) {
            const int64_t begin = group * count / groups, end = (group + 1) * count / groups;
            call.rows = from.data + first / K_BLOCK * from.block_stride + begin * from.row_stride;
            call.row_scales = from.scales + begin;
            call.sums = sums + begin * digits;
            call.ahead = panel + (groups == 1 ? PREFETCH : K_BLOCK * bytes + group * (K_BLOCK * bytes / groups));
            call.to = to_rows(to, begin);
            add(&call, end - begin);
        }
    }
}

/* The product of one panel with at most MAX_ROWS rows. */
static void multiply_panel(const matrix *w, int64_t number, activations from, int64_t count,
                           destination to) {
    const int64_t most = MAX_ROWS / num_digits(w->kind);
    for (int64_t first = 0; first < count; first += most)
        multiply_rows_of_panel(w, number, from_row(from, first), smaller(most, count - first),
                               to_rows(to, first));
}

/* Whether `multiply_four_panels` takes a product. */
FORCE_INLINE int fits_four_panels(const matrix *w, activations from, int64_t count) {
    return WIDE == 16 && w->kind == INT8_DYNAMIC && count == 1 && from.block_stride == K_BLOCK;
}

/* The products of four panels that follow each other with one row, each to a destination of its own. Such a
   product waits for the weights, and four streams come faster from a cache than one. */
static void multiply_four_panels(const matrix *w, int64_t number, activations from, const destination to[4]) {
#if HAS_INT8_DOT
    const int64_t columns = num_columns(w), size = columns * column_bytes(w->kind);
    const char *panels = (const char *)w->data + number * size;
    const int32_t *corrections = w->corrections + number * PANEL, *fours = (const int32_t *)from.data;
    const float *scales = w->scales + number * PANEL;
    ints sum[4][VECTORS];
    UNROLL(p, 4) UNROLL(v, VECTORS) sum[p][v] = load_ints(corrections + p * PANEL + v * WIDE);
    for (int64_t k = 0; k < columns; k++, panels += 4 * PANEL)
        UNROLL(p, 4) UNROLL(v, VECTORS)
        sum[p][v] = dot_add(sum[p][v], fours[k], load_ints(panels + p * size + 4 * WIDE * v));
    UNROLL(p, 4) {
        const destination_row row = find_destination(to[p], 0);
        UNROLL(v, VECTORS)
        store_scaled(row.data + v * WIDE, load_base(row, v), &sum[p][v], 1,
                     load(scales + p * PANEL + v * WIDE) * splat(from.scales[0]));
    }
#endif
}

/* The scale of a row for whole numbers up to `limit`, max |x| / limit, and its inverse. The largest is found
   in the order of bits, so that a NaN is larger than any number; a row with one, or with an infinity, gets a
   scale that is NaN. */
static float find_scale(activations row, int64_t width, float limit, float *inverse) {
    int32_t largest = 0;
    for (int64_t first = 0; first < width; first += K_BLOCK, row.data += row.block_stride)
        for (int64_t k = 0; k < smaller(K_BLOCK, width - first); k++) {
            int32_t bits;
            memcpy(&bits, row.data + k, sizeof bits);
            bits &= INT32_MAX;
            largest = bits > largest ? bits : largest;
        }
    float most;
    memcpy(&most, &largest, sizeof most);
    *inverse = most > 0 ? limit / most : 0;
    return most / limit + 0 * most;
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

/* Round numbers times `by`, and write two or three digits of each, the lowest first, each as `quantize` would. */
FORCE_INLINE void split(const float *row, int64_t width, float by, int8_t *to, const int digits) {
    enum { NEXT = 4 * K_BLOCK }; /* digit */
    int64_t k = 0;
#if WIDE == 16
    for (; k + 16 <= width; k += 16) {
        __m512i rest = _mm512_cvtps_epi32(_mm512_mul_ps(load(row + k), splat(by)));
        for (int d = 0; d < digits; d++) {
            const __m128i bytes = _mm_xor_si128(_mm512_cvtepi32_epi8(rest), _mm_set1_epi8((char)U8_OFFSET));
            _mm_storeu_si128((void *)(to + k + d * NEXT), bytes);
            /* without the digit, which is from -128 to 127 */
            rest = _mm512_srai_epi32(_mm512_add_epi32(rest, _mm512_set1_epi32(DIGIT_BASE / 2)), 8);
        }
    }
#endif
    for (; k < width; k++) {
        int32_t rest = (int32_t)__builtin_rintf(row[k] * by);
        for (int d = 0; d < digits - 1; d++) {
            const int8_t digit = (int8_t)rest;
            to[k + d * NEXT] = (int8_t)(digit ^ U8_OFFSET);
            rest = (rest - digit) / DIGIT_BASE;
        }
        to[k + (digits - 1) * NEXT] = (int8_t)(rest ^ U8_OFFSET);
    }
    for (; k % 4; k++)
        for (int d = 0; d < digits; d++) to[k + d * NEXT] = 0;
}

/* Blocked rows: their size, and copies of one of them. */
static int64_t blocked_size(int64_t width, int64_t count) {
    return (width + K_BLOCK - 1) / K_BLOCK * K_BLOCK * count;
}

/* The space for rows as `w` takes them. */
static int64_t prepared_size(const matrix *w, int64_t count) {
    return blocked_size(num_columns(w), count) * num_digits(w->kind);
}

static void copy_row_to_blocks(const float *row, int64_t width, int64_t count, int64_t number,
                               float *blocks) {
    for (int64_t k = 0; k < width; k += K_BLOCK)
        memcpy(blocks + k * count + number * K_BLOCK, row + k,
               sizeof(float) * (size_t)smaller(K_BLOCK, width - k));
}

static void copy_row_from_blocks(const float *blocks, int64_t width, int64_t count, int64_t number,
                                 float *row) {
    for (int64_t k = 0; k < width; k += K_BLOCK)
        memcpy(row + k, blocks + k * count + number * K_BLOCK,
               sizeof(float) * (size_t)smaller(K_BLOCK, width - k));
}

/* Make one of `count` rows whole numbers for `w`, and return its scale. */
static float quantize_row(const matrix *w, activations row, int64_t count, int64_t number, float *blocks) {
    enum { LARGEST = 127, COLUMNS = 4 * K_BLOCK /* of a block of int8 numbers */ };
    const int digits = num_digits(w->kind);
    const int64_t width = w->width;
    float by, limit = LARGEST;
    for (int d = 1; d < digits; d++) limit *= DIGIT_BASE;
    const float scale = find_scale(row, width, limit, &by);
    for (int64_t k = 0; k < width; k += K_BLOCK, row.data += row.block_stride) {
        float *block = blocks + (k / COLUMNS * count + number) * digits * K_BLOCK;
        int8_t *to = (int8_t *)block + k % COLUMNS;
        const int64_t here = smaller(K_BLOCK, width - k);
        if (digits == 1) quantize(row.data, here, by, to);
        else if (digits == 2) split(row.data, here, by, to, 2);
        else split(row.data, here, by, to, 3);
    }
    return scale;
}

/* Rows of S steps: row r of step s is at data[s * step + r * row], or at data[index[s * num_rows + r] * row].
   A row with a negative index is idle, and not read. */
typedef struct {
    const float *data;
    int64_t step, row, num_rows;
    const int64_t *index; /* or null */
} step_rows;

FORCE_INLINE const float *find_row(step_rows rows, int64_t number) {
    if (rows.index) return rows.data + rows.index[number] * rows.row;
    if (number < rows.num_rows) return rows.data + number * rows.row; /* without a division */
    return rows.data + number / rows.num_rows * rows.step + number % rows.num_rows * rows.row;
}

/* In a parallel region: rows as `w` takes them. Few of one step are read where they are, others are copied
   into `scratch`, which has space for them in whole blocks of columns. */
static activations prepare_rows(worker *self, const matrix *w, step_rows rows, int64_t count, float *scratch,
                                float *scales) {
    if (!takes_int8(w->kind) && !rows.index && count <= smaller(GROUP, rows.num_rows))
        return dense_rows(rows.data, rows.row);
    activations prepared = blocked_rows(scratch, count, num_digits(w->kind));
    SHARE(self, r, count, 0) {
        if (rows.index && rows.index[r] < 0) { /* any numbers will do */
            if (takes_int8(w->kind)) scales[r] = 0;
            continue;
        }
        const float *row = find_row(rows, r);
        if (takes_int8(w->kind))
            scales[r] = quantize_row(w, dense_rows(row, w->width), count, r, scratch);
        else
            copy_row_to_blocks(row, w->width, count, r, scratch);
    }
    if (takes_int8(w->kind)) prepared.scales = scales;
    return prepared;
}

/* Allocate arrays of floats together; free the first. Return whether there was memory. */
static int allocate(const int64_t *sizes, int count, float **arrays) {
    int64_t total = LINE;
    for (int i = 0; i < count; i++) total += (sizes[i] + LINE - 1) / LINE * LINE;
    arrays[0] = aligned_alloc(LINE, sizeof(float) * (size_t)total);
    for (int i = 1; i < count; i++) arrays[i] = arrays[i - 1] + (sizes[i - 1] + LINE - 1) / LINE * LINE;
    return arrays[0] != 0;
}

static int64_t panels_per_part(const matrix *w) {
    return (w->height / w->parts + PANEL - 1) / PANEL;
}

/* In a parallel region: out (B, M) = rows times the weight, plus a bias (M) unless it is null. */
static void multiply_rows(worker *self, const matrix *w, activations from, int64_t num_rows, const float *bias,
                          float *out) {
    const int64_t tall = w->height / w->parts, panels = panels_per_part(w) * w->parts;
    const int64_t blocks = (num_rows + MAX_ROWS - 1) / MAX_ROWS;
    SHARE(self, item, panels * blocks, 0) {
        const int64_t number = item / blocks, block = item % blocks;
        const int64_t first = block * num_rows / blocks, count = (block + 1) * num_rows / blocks - first;
        const int64_t begin = number / w->parts * PANEL, here = smaller(PANEL, tall - begin);
        const int64_t column = number % w->parts * tall + begin;
        float *to = out + first * w->height + column;
        ALIGNED float results[MAX_ROWS][PANEL], own_bias[PANEL] = {0};
        if (bias) memcpy(own_bias, bias + column, sizeof(float) * (size_t)here);
        destination target = {.data = to, .bias = bias ? own_bias : 0, .stride = w->height};
        if (here < PANEL) target.data = results[0], target.stride = PANEL;
        multiply_panel(w, number, from_row(from, first), count, target);
        for (int64_t r = 0; here < PANEL && r < count; r++)
            memcpy(to + r * w->height, results[r], sizeof(float) * (size_t)here);
    }
}

#endif
