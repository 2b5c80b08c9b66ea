/* A layer whose weights are bytes, with a scale for each row: memory brings a quarter of what floats
   are, and loses nothing. A server reads with it, a few sentences or some dozens.

   A weight lies in panels, PANEL of its rows each: for every column of it the numbers of these rows side
   by side. So it is read from its beginning to its end, and a product needs no sum across a vector.
   The panels of the four gates of some cells follow each other. Sentences lie row by row, and each is
   summed up in the same order, so it gets the same bits in any company. A server is not alone on its
   cores: whichever thread is free takes the next panel. */

#include <string.h>

#include "cell.h"
#include "steps.h"
#include "vectors.h"

#if defined(OTHER_CPU)

int64_t rows_of_a_panel(void) { return 0; }

#else

/* A panel has as many vectors, and is multiplied with as many sentences at a time, as there are
   registers for the sums of. */
enum {
    VECTORS = WIDE == 8 ? 2 : 4,
    PANEL = VECTORS * WIDE,
    GROUP = WIDE == 8 ? 5 : 6,
    MOST = 8 * GROUP, /* while a panel is near */
    DEEP = 64, /* columns at a time */
    AHEAD = 4096
};

int64_t rows_of_a_panel(void) { return PANEL; }

typedef struct {
    const int8_t *numbers; /* nothing where there is no such weight */
    const float *scales;
    int64_t width;
} matrix;

typedef struct {
    matrix input, recurrent, projection;
    const float *inputs; /* (S, B, I), where there are weights for them */
} weights;

ALWAYS void load_column(const int8_t *from, floats to[VECTORS]) {
    __builtin_prefetch(from + AHEAD);
#if defined(__aarch64__)
    const int8x16_t all = vld1q_s8(from);
    const int16x8_t low = vmovl_s8(vget_low_s8(all)), high = vmovl_s8(vget_high_s8(all));
    to[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
    to[1] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(low)));
    to[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
    to[3] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)));
#elif WIDE == 16
    EACH(v, VECTORS)
    to[v] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(from + 16 * v))));
#else
    EACH(v, VECTORS)
    to[v] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(from + 8 * v))));
#endif
}

/* Add to the sums of B sentences what some columns of a panel make of their rows, which are `apart`; B
   is a number the compiler knows, so that sums stay in registers. */
ALWAYS void add_group(const int8_t *panel, const float *near, int64_t num_columns,
                      const float *rows, int64_t apart, float sums[][PANEL], const int B) {
    floats sum[VECTORS][GROUP], column[VECTORS];
    EACH(v, VECTORS) EACH(b, B) sum[v][b] = load(sums[b] + v * WIDE);
    for (int64_t k = 0; k < num_columns; k++) {
        if (near)
            EACH(v, VECTORS) column[v] = load(near + k * PANEL + v * WIDE);
        else
            load_column(panel + k * PANEL, column);
        EACH(b, B) {
            const floats one = splat(rows[b * apart + k]);
            EACH(v, VECTORS) sum[v][b] = multiply_add(column[v], one, sum[v][b]);
        }
    }
    EACH(v, VECTORS) EACH(b, B) store(sums[b] + v * WIDE, sum[v][b]);
}

#define CASE(B)                                                                                   \
    case B:                                                                                       \
        if (near)                                                                                 \
            add_group(0, near, num_columns, rows, apart, sums, B);                                \
        else                                                                                      \
            add_group(panel, 0, num_columns, rows, apart, sums, B);                               \
        break;

static void add_so_many(const int8_t *panel, const float *near, int64_t num_columns,
                        const float *rows, int64_t apart, int64_t count, float sums[][PANEL]) {
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

/* Add what a panel makes of the rows of some sentences. Where several groups read it, its numbers become
   floats once. */
static void add(matrix weight, int64_t number, const float *rows, int64_t count,
                float to[][PANEL]) {
    const int8_t *panel = weight.numbers + number * weight.width * PANEL;
    const float *scales = weight.scales + number * PANEL;
    const int64_t groups = (count + GROUP - 1) / GROUP;
    const int soon = groups >= 3; /* again, so that it is worth it */
    float sums[MOST][PANEL], near[DEEP * PANEL];
    memset(sums, 0, sizeof *sums * (size_t)count);
    for (int64_t first = 0; first < weight.width; first += DEEP, panel += DEEP * PANEL) {
        const int64_t deep = least(DEEP, weight.width - first);
        for (int64_t k = 0; soon && k < deep; k++) {
            floats column[VECTORS];
            load_column(panel + k * PANEL, column);
            EACH(v, VECTORS) store(near + k * PANEL + v * WIDE, column[v]);
        }
        for (int64_t group = 0; group < groups; group++) {
            const int64_t begin = group * count / groups, end = (group + 1) * count / groups;
            add_so_many(panel, soon ? near : 0, deep, rows + begin * weight.width + first,
                        weight.width, end - begin, sums + begin);
        }
    }
    for (int64_t b = 0; b < count; b++)
        EACH(v, VECTORS) {
            float *one = to[b] + v * WIDE;
            store(one, multiply_add(load(sums[b] + v * WIDE), load(scales + v * WIDE), load(one)));
        }
}

/* out (B, M) = rows (B, K) times a weight whose M rows are in so many parts. */
void panel_rows(const matrix *weight, const float *rows, float *out, int64_t num_rows, int64_t height,
                int64_t parts, int64_t threads) {
    const int64_t tall = height / parts, panels = (tall + PANEL - 1) / PANEL;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t number = 0; number < panels * parts; number++)
        for (int64_t first = 0; first < num_rows; first += MOST) {
            float found[MOST][PANEL] = {{0}};
            const int64_t count = least(MOST, num_rows - first), begin = number / parts * PANEL;
            const int64_t here = least(PANEL, tall - begin);
            float *to = out + first * height + number % parts * tall + begin;
            add(*weight, number, rows + first * weight->width, count, found);
            for (int64_t b = 0; b < count; b++)
                memcpy(to + b * height, found[b], sizeof(float) * (size_t)here);
        }
}

/* The cells of a panel, in the sentences from `first` on. */
static void renew(const steps *all, const weights *with, int64_t step, int64_t first, int64_t panel) {
    float gates[4][MOST][PANEL];
    const int64_t count = least(MOST, all->num_rows - first), cell = panel * PANEL;
    const int64_t here = least(PANEL, all->num_cells - cell);
    const int64_t row = step * all->num_rows + first;
    for (int gate = 0; gate < 4; gate++) {
        const int64_t at = gate * all->num_cells + cell;
        const float *driven = all->driven;
        if (driven) driven += step * all->by_step + first * all->by_row + at;
        for (int64_t b = 0; b < count; b++) {
            float *to = gates[gate][b];
            memset(to, 0, sizeof gates[gate][b]);
            if (driven) memcpy(to, driven + b * all->by_row, sizeof(float) * (size_t)here);
#pragma omp simd
            for (int64_t i = 0; i < here; i++) to[i] += all->bias[at + i];
        }
    }
    for (int gate = 0; with->input.numbers && gate < 4; gate++)
        add(with->input, 4 * panel + gate, with->inputs + row * with->input.width, count, gates[gate]);
    for (int gate = 0; gate < 4; gate++)
        add(with->recurrent, 4 * panel + gate, all->last + first * all->width, count, gates[gate]);
    for (int64_t b = 0; b < count; b++) {
        if (!all->busy[row + b]) continue;
        const int64_t at = (first + b) * all->num_cells + cell;
        const float *i = gates[0][b], *f = gates[1][b], *g = gates[2][b], *o = gates[3][b];
        const float clip = all->cell_clip;
        float cells[PANEL] = {0}, shown[PANEL]; /* all of a panel, or the compiler makes no vectors */
        memcpy(cells, all->cells + at, sizeof(float) * (size_t)here);
#pragma omp simd
        for (int n = 0; n < PANEL; n++) shown[n] = cell_shows(i[n], f[n], g[n], o[n], cells + n, clip);
        memcpy(all->cells + at, cells, sizeof(float) * (size_t)here);
        memcpy(all->shown + at, shown, sizeof(float) * (size_t)here);
    }
}

/* The outputs of a panel, in the sentences from `first` on, from what the cells show. */
static void show(const steps *all, const weights *with, int64_t step, int64_t first, int64_t panel) {
    float found[MOST][PANEL] = {{0}};
    const int64_t count = least(MOST, all->num_rows - first), begin = panel * PANEL;
    const int64_t here = least(PANEL, all->width - begin), row = step * all->num_rows + first;
    const float *shown = all->shown + first * all->num_cells;
    if (with->projection.numbers) add(with->projection, panel, shown, count, found);
    for (int64_t b = 0; b < count; b++) {
        float *last = all->last + (first + b) * all->width + begin;
        float *output = all->outputs + (row + b) * all->width + begin;
        for (int64_t i = 0; i < here; i++) {
            if (!all->busy[row + b])
                output[i] = 0;
            else if (with->projection.numbers)
                output[i] = last[i] = within(found[b][i], all->output_clip);
            else /* there is no such clip, and as many outputs as cells */
                output[i] = last[i] = shown[b * all->num_cells + begin + i];
        }
    }
}

static void start(const steps *all, int64_t row) {
    const int64_t output = row * all->width, cell = row * all->num_cells;
    memcpy(all->last + output, all->first_outputs + output, sizeof(float) * (size_t)all->width);
    memcpy(all->cells + cell, all->first_cells + cell, sizeof(float) * (size_t)all->num_cells);
}

void panel_steps(const steps *all, const weights *with, int64_t threads) {
    const int64_t cells = (all->num_cells + PANEL - 1) / PANEL;
    const int64_t outputs = (all->width + PANEL - 1) / PANEL;
#pragma omp parallel num_threads(threads)
    for (int64_t step = 0; step < all->num_steps; step++) {
        if (all->starts) {
#pragma omp for schedule(static)
            for (int64_t row = 0; row < all->num_rows; row++)
                if (all->starts[step * all->num_rows + row]) start(all, row);
        }
#pragma omp for schedule(dynamic)
        for (int64_t panel = 0; panel < cells; panel++)
            for (int64_t first = 0; first < all->num_rows; first += MOST)
                renew(all, with, step, first, panel);
#pragma omp for schedule(dynamic)
        for (int64_t panel = 0; panel < outputs; panel++)
            for (int64_t first = 0; first < all->num_rows; first += MOST)
                show(all, with, step, first, panel);
    }
}

#endif
