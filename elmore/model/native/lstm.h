/* The recurrence of a projected LSTM over packed weights. */

#ifndef ELMORE_LSTM_H
#define ELMORE_LSTM_H

#include "cell.h"
#include "panels.h"

/* Add the bias, and what the gate inputs are or the input weight makes of `inputs`. */
static void begin_gate(const lstm_call *call, const float *gate_inputs, int64_t row_stride,
                       activations inputs, int64_t count, int64_t cell, int gate,
                       float to[][PANEL]) {
    const int64_t at = gate * call->num_cells + cell, here = smaller(PANEL, call->num_cells - cell);
    memset(to, 0, sizeof *to * (size_t)count);
    if (inputs.data)
        add_panel(&call->input, 4 * (cell / PANEL) + gate, inputs, count, to);
    else
        for (int64_t r = 0; r < count; r++) {
            const float *from = gate_inputs + r * row_stride + at;
            memcpy(to[r], from, sizeof(float) * (size_t)here);
            /* the next gate, or the next cells: no CPU foresees such a stride */
            const float *next = from + (gate < 3 ? call->num_cells : PANEL - 3 * call->num_cells);
            for (int i = 0; i < PANEL; i += LINE / 4) __builtin_prefetch(next + i);
        }
    for (int64_t r = 0; r < count; r++) {
        int64_t i = 0;
        for (; i + WIDE <= here; i += WIDE) store(to[r] + i, load(to[r] + i) + load(call->bias + at + i));
        for (; i < here; i++) to[r][i] += call->bias[at + i];
    }
}

/* The gates of the cells of a panel, and from them new cells and hidden values, in rows from `first` on.
   The gate inputs are given at `row_stride`, or come from `inputs`. */
static void update_cells(const lstm_call *call, activations output, const float *gate_inputs,
                         int64_t row_stride, activations inputs, const uint8_t *mask, int64_t first,
                         int64_t panel) {
    float gates[4][MAX_ROWS][PANEL];
    const int64_t count = smaller(MAX_ROWS, call->num_rows - first), cell = panel * PANEL;
    const int64_t here = smaller(PANEL, call->num_cells - cell);
    for (int gate = 0; gate < 4; gate++) {
        begin_gate(call, gate_inputs ? gate_inputs + first * row_stride : 0, row_stride,
                   inputs.data ? from_row(inputs, first) : inputs, count, cell, gate, gates[gate]);
        add_panel(&call->recurrent, 4 * panel + gate, from_row(output, first), count, gates[gate]);
    }
    for (int64_t r = 0; r < count; r++) {
        if (!mask[first + r]) continue;
        const int64_t at = (first + r) * call->num_cells + cell;
        const float *i = gates[0][r], *f = gates[1][r], *g = gates[2][r], *o = gates[3][r];
        const float clip = call->cell_clip;
        float cells[PANEL] = {0}, hidden[PANEL]; /* a whole panel, or the compiler makes no vectors */
        memcpy(cells, call->cell + at, sizeof(float) * (size_t)here);
#pragma omp simd
        for (int n = 0; n < PANEL; n++)
            hidden[n] = lstm_cell(i[n], f[n], g[n], o[n], cells + n, clip);
        memcpy(call->cell + at, cells, sizeof(float) * (size_t)here);
        memcpy(call->hidden + at, hidden, sizeof(float) * (size_t)here);
    }
}

/* The outputs of a panel, in rows from `first` on, from the hidden values. */
static void project(const lstm_call *call, activations hidden, int64_t step, int64_t first,
                    int64_t panel) {
    float results[MAX_ROWS][PANEL];
    const int64_t count = smaller(MAX_ROWS, call->num_rows - first), begin = panel * PANEL;
    const int64_t here = smaller(PANEL, call->width - begin), row = step * call->num_rows + first;
    if (call->projection.data) {
        memset(results, 0, sizeof *results * (size_t)count);
        add_panel(&call->projection, panel, from_row(hidden, first), count, results);
    }
    for (int64_t r = 0; r < count; r++) {
        float *output = call->output + (first + r) * call->width + begin;
        float *to = call->outputs + (row + r) * call->width + begin;
        for (int64_t i = 0; i < here; i++) {
            if (!call->mask[row + r])
                to[i] = 0;
            else if (call->projection.data)
                to[i] = output[i] = clampf(results[r][i], call->output_clip);
            else /* without a projection there is no output clip */
                to[i] = output[i] = call->hidden[(first + r) * call->num_cells + begin + i];
        }
    }
}

static void reset_row(const lstm_call *call, int64_t row) {
    const int64_t output = row * call->width, cell = row * call->num_cells;
    memcpy(call->output + output, call->reset_output + output, sizeof(float) * (size_t)call->width);
    memcpy(call->cell + cell, call->reset_cell + cell, sizeof(float) * (size_t)call->num_cells);
}

/* In a parallel region: one step, from its gate inputs, or from the inputs of a step. */
static void run_step(const lstm_call *call, int64_t step, const float *gate_inputs, int64_t row_stride) {
    const uint8_t *mask = call->mask + step * call->num_rows;
    const matrix *projection = &call->projection;
    const int64_t num_rows = call->num_rows;
    activations inputs = {0}, hidden = {0};
    if (call->reset_mask) {
#pragma omp for schedule(static)
        for (int64_t row = 0; row < num_rows; row++)
            if (call->reset_mask[step * num_rows + row]) reset_row(call, row);
    }
    if (!memchr(mask, 1, (size_t)num_rows)) { /* every thread sees it */
#pragma omp for schedule(static)
        for (int64_t i = 0; i < num_rows * call->width; i++)
            call->outputs[step * num_rows * call->width + i] = 0;
        return;
    }
    if (!gate_inputs)
        inputs = prepare_rows(&call->input, call->inputs + step * num_rows * call->input.width,
                              num_rows, call->scratch, call->scales);
    const activations output = prepare_rows(&call->recurrent, call->output, num_rows,
                                            call->state_scratch, call->state_scales);
    const int64_t cell_panels = (call->num_cells + PANEL - 1) / PANEL;
    const int64_t output_panels = (call->width + PANEL - 1) / PANEL;
#pragma omp for schedule(dynamic)
    for (int64_t panel = 0; panel < cell_panels; panel++)
        for (int64_t first = 0; first < num_rows; first += MAX_ROWS)
            update_cells(call, output, gate_inputs, row_stride, inputs, mask, first, panel);
    if (projection->data)
        hidden = prepare_rows(projection, call->hidden, num_rows, call->scratch, call->scales);
#pragma omp for schedule(dynamic)
    for (int64_t panel = 0; panel < output_panels; panel++)
        for (int64_t first = 0; first < num_rows; first += MAX_ROWS)
            project(call, hidden, step, first, panel);
}

static void run_lstm(const lstm_call *call) {
    const matrix *input = &call->input;
    const int64_t num_rows = call->num_rows, dense = 4 * call->num_cells;
#pragma omp parallel num_threads(call->threads)
    for (int64_t step = 0; step < call->num_steps; step++) {
        if (!input->data)
            run_step(call, step, call->inputs + step * call->step_stride, call->row_stride);
        else if (call->chunk == 1)
            run_step(call, step, 0, 0);
        else {
            if (step % call->chunk == 0) { /* the input weight is read once for a chunk of steps */
                const int64_t rows = smaller(call->chunk, call->num_steps - step) * num_rows;
                const float *from = call->inputs + step * num_rows * input->width;
                const activations all = prepare_rows(input, from, rows, call->scratch, call->scales);
                multiply_rows(input, all, rows, call->gate_inputs);
            }
            run_step(call, step, call->gate_inputs + step % call->chunk * num_rows * dense, dense);
        }
    }
}

#endif
