/* The kernels for one instruction set: compiled once for each, with ISA as its name. */

#include <math.h>

#include "lstm.h"

static int64_t multiply(const product *call) {
    const matrix *w = &call->weight;
    const int64_t sizes[] = {counters_size(call->threads), prepared_size(w, call->num_rows), call->num_rows};
    float *scratch[3];
    if (!allocate(sizes, 3, scratch)) return 1;
    counter *counters = clear_counters(scratch[0], call->threads);
#pragma omp parallel num_threads(call->threads)
    {
        worker self = join_team(counters);
        const step_rows all = {call->rows, 0, w->width, call->num_rows, 0};
        const activations rows = prepare_rows(&self, w, all, call->num_rows, scratch[1], scratch[2]);
        multiply_rows(&self, w, rows, call->num_rows, call->bias, call->out);
        release_tiles();
    }
    free(scratch[0]);
    return 0;
}

/* The largest value of each filter of a bank over all windows of a word. Windows overlap in memory: one
   starts an embedding after the other. A NaN is larger than any number. */
static void pool_bank(const matrix *bank, const float *word, int64_t stride, int64_t positions,
                      const float *bias, float *out) {
    for (int64_t panel = 0; panel < panels_per_part(bank); panel++) {
        ALIGNED float best[PANEL], values[MAX_ROWS][PANEL];
        const int64_t begin = panel * PANEL, here = smaller(PANEL, bank->height - begin);
        for (int64_t first = 0; first < positions; first += MAX_ROWS) {
            const int64_t count = smaller(MAX_ROWS, positions - first);
            multiply_panel(bank, panel, dense_rows(word + first * stride, stride), count,
                           (destination){.data = values[0], .stride = PANEL});
            if (!first) memcpy(best, values[0], sizeof best);
            for (int64_t r = 0; r < count; r++)
#pragma omp simd
                for (int i = 0; i < PANEL; i++) {
                    const float value = values[r][i];
                    best[i] = value > best[i] || value != value ? value : best[i];
                }
        }
        for (int64_t i = 0; i < here; i++) out[begin + i] = best[i] + bias[begin + i];
    }
}

static int64_t run_char_cnn(const char_cnn_call *call) {
    const int64_t dim = call->embedding_dim, length = call->num_characters;
    const int64_t sizes[] = {length * dim * call->threads};
    float *words;
    if (!allocate(sizes, 1, &words)) return 1;
#pragma omp parallel num_threads(call->threads)
    {
        float *word = words + omp_get_thread_num() * length * dim;
#pragma omp for schedule(dynamic)
        for (int64_t n = 0; n < call->num_words; n++) {
            for (int64_t c = 0; c < length; c++)
                memcpy(word + c * dim, call->embedding + call->characters[n * length + c] * dim,
                       sizeof(float) * (size_t)dim);
            float *out = call->out + n * call->num_filters;
            const float *bias = call->bias;
            for (int64_t b = 0; b < call->num_banks; b++) {
                const matrix *bank = call->banks + b;
                pool_bank(bank, word, dim, length - bank->width / dim + 1, bias, out);
                out += bank->height, bias += bank->height;
            }
        }
    }
    free(words);
    return 0;
}

static void run_highway(const highway_call *call) {
#pragma omp parallel for schedule(static) num_threads(call->threads)
    for (int64_t i = 0; i < call->count; i += WIDE) {
        const int64_t count = call->count - i;
        const floats gate = sigmoid_of(load_some(call->gate + i, count, 0));
        const floats transform = load_some(call->transform + i, count, 0);
        const floats open = (floats)((ints)transform & ~(transform < 0)); /* relu; a NaN stays */
        const floats x = load_some(call->x + i, count, 0);
        store_some(call->out + i, gate * open + (1 - gate) * x, count);
    }
}

static void run_tanh(const tanh_call *call) {
#pragma omp parallel for schedule(static) num_threads(call->threads)
    for (int64_t i = 0; i < call->count; i += WIDE) {
        const int64_t count = call->count - i;
        store_some(call->values + i, tanh_of(load_some(call->values + i, count, 0)), count);
    }
}

/* log sum exp(values), in an order that depends on the width alone: sums of blocks, which are added in turn.
   A row with a NaN gives a NaN. */
static float log_sum_row(const float *values, int64_t width) {
    enum { BLOCK = 128 * PANEL };
    floats largest[VECTORS], sums[VECTORS];
    UNROLL(v, VECTORS) largest[v] = splat(-INFINITY), sums[v] = splat(0);
    for (int64_t k = 0; k < width; k += PANEL)
        UNROLL(v, VECTORS) {
            const floats some = load_some(values + k + v * WIDE, width - k - v * WIDE, -INFINITY);
            largest[v] = larger_of(largest[v], some);
        }
    float most = -INFINITY, total = 0;
    UNROLL(v, VECTORS) for (int i = 0; i < WIDE; i++) most = largest[v][i] > most ? largest[v][i] : most;
    for (int64_t first = 0; first < width; first += BLOCK) {
        floats block[VECTORS];
        UNROLL(v, VECTORS) block[v] = splat(0);
        for (int64_t k = first; k < smaller(first + BLOCK, width); k += PANEL)
            UNROLL(v, VECTORS) {
                const floats some = load_some(values + k + v * WIDE, width - k - v * WIDE, -INFINITY);
                block[v] += exp_of(some - splat(most));
            }
        UNROLL(v, VECTORS) sums[v] += block[v];
    }
    UNROLL(v, VECTORS) for (int i = 0; i < WIDE; i++) total += sums[v][i];
    return most + logf(total);
}

static void log_sum_exp(const log_sum_call *call) {
#pragma omp parallel for schedule(static) num_threads(call->threads)
    for (int64_t row = 0; row < call->num_rows; row++)
        call->out[row] = log_sum_row(call->values + row * call->width, call->width);
}

const kernel_table ISA = {
    .panel_rows = PANEL,
    .has_int8_dot = HAS_INT8_DOT,
    .has_matrix_unit = HAS_MATRIX_UNIT,
    .u8_offset = U8_OFFSET,
    .multiply = multiply,
    .run_lstm = run_lstm,
    .run_char_cnn = run_char_cnn,
    .run_highway = run_highway,
    .run_tanh = run_tanh,
    .log_sum_exp = log_sum_exp,
};
