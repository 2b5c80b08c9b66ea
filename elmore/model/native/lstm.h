/* The recurrence of a projected LSTM over packed weights. */

#ifndef ELMORE_LSTM_H
#define ELMORE_LSTM_H

#include "cell.h"
#include "panels.h"

enum {
    FORGET = 1, /* of the gates input, forget, candidate, output */
    CHUNK_ROWS = 96, /* inputs multiplied together: the input weight is read from memory once for them */
    MIN_CHUNK = 3 /* steps: the inputs of fewer are multiplied with the state, and gate inputs not stored */
};

/* Scratch memory, of one layer after the other. States and hidden values are blocked rows: what a panel writes is
   contiguous, and the next product reads it as it is. */
typedef struct {
    float *output, *cell, *hidden; /* (B, D), (B, H), (B, H) */
    float *gate_inputs; /* (chunk * B, 4H), where the chunk has several steps */
    float *inputs, *input_scales; /* prepared for the input weight */
    float *quantized, *scales; /* states or hidden values */
} lstm_scratch;

FORCE_INLINE int is_active(const lstm_call *call, int64_t step, int64_t row) {
    return call->mask[step * call->mask_step + row * call->mask_row];
}

FORCE_INLINE step_rows step_inputs(const lstm_call *call, int64_t step) {
    if (call->input_index)
        return (step_rows){call->inputs, 0, call->input_row, call->num_rows,
                           call->input_index + step * call->num_rows};
    return (step_rows){call->inputs + step * call->input_step, call->input_step, call->input_row,
                       call->num_rows, 0};
}

/* The gates of the cells of a panel, and from them new cells and hidden values, in rows from `first` on, from
   gate inputs or from prepared inputs. */
static void update_cells(const lstm_call *call, const lstm_scratch *scratch, activations output,
                         step_rows gate_inputs, activations inputs, int64_t step, int64_t first,
                         int64_t panel) {
    ALIGNED float gates[4][MAX_ROWS][PANEL], bias[4][PANEL];
    const float *base_rows[MAX_ROWS];
    destination to[4];
    const int64_t count = smaller(MAX_ROWS, call->num_rows - first), cell = panel * PANEL;
    const int64_t here = smaller(PANEL, call->num_cells - cell);
    const int in_place = !inputs.data && here == PANEL; /* gate inputs are added where they are */
    output = from_row(output, first);
    for (int64_t r = 0; r < count; r++)
        base_rows[r] = in_place ? find_row(gate_inputs, first + r) + cell : gates[0][r];
    for (int gate = 0; gate < 4; gate++) {
        const int64_t at = gate * call->num_cells + cell;
        const floats more = splat(gate == FORGET ? call->forget_bias : 0);
        for (int i = 0; i < PANEL; i += WIDE)
            store(bias[gate] + i, load_some(call->bias + at + i, here - i, 0) + more);
        to[gate] = (destination){gates[gate][0], PANEL, bias[gate], base_rows,
                                 gate * (in_place ? call->num_cells : MAX_ROWS * PANEL)};
        if (inputs.data)
            multiply_panel(&call->input, 4 * panel + gate, from_row(inputs, first), count,
                           (destination){.data = to[gate].data, .stride = PANEL});
        else if (!in_place)
            for (int64_t r = 0; r < count; r++) {
                memset(gates[gate][r], 0, sizeof *gates[gate]);
                memcpy(gates[gate][r], find_row(gate_inputs, first + r) + at, sizeof(float) * (size_t)here);
            }
    }
    if (fits_four_panels(&call->recurrent, output, count))
        multiply_four_panels(&call->recurrent, 4 * panel, output, to);
    else
        for (int gate = 0; gate < 4; gate++)
            multiply_panel(&call->recurrent, 4 * panel + gate, output, count, to[gate]);
    const float clip = call->cell_clip;
    int64_t at = (cell / K_BLOCK * call->num_rows + first) * K_BLOCK + cell % K_BLOCK;
    for (int64_t r = 0; r < count; r++, at += K_BLOCK) {
        if (!is_active(call, step, first + r)) continue;
        const float *i = gates[0][r], *f = gates[1][r], *g = gates[2][r], *o = gates[3][r];
        float *cells = scratch->cell + at, *hidden = scratch->hidden + at;
        for (int n = 0; n < PANEL; n += TOGETHER * WIDE)
            update_lstm_cells(i + n, f + n, g + n, o + n, clip, cells + n, hidden + n);
    }
}

/* Write columns of an output: the state where the row is active, else zero; with a skip connection, plus the
   input. */
static void write_output(const lstm_call *call, const lstm_scratch *scratch, int64_t step, int64_t row,
                         int64_t begin, int64_t count) {
    const int64_t number = step * call->num_rows + row;
    const int64_t at = call->output_index ? call->output_index[number] : number;
    if (at < 0) return;
    float *to = call->outputs + at * call->output_row + begin;
    const float *input = find_row(step_inputs(call, step), row) + begin;
    if (is_active(call, step, row))
        for (int64_t k = begin; k < begin + count; k += K_BLOCK)
            memcpy(to + k - begin,
                   scratch->output + (k / K_BLOCK * call->num_rows + row) * K_BLOCK + k % K_BLOCK,
                   sizeof(float) * (size_t)smaller(K_BLOCK, begin + count - k));
    else
        memset(to, 0, sizeof(float) * (size_t)count);
    if (call->skip)
        for (int64_t i = 0; i < count; i++) to[i] += input[i];
}

/* The outputs of a panel, in rows from `first` on, from the hidden values. */
static void project(const lstm_call *call, const lstm_scratch *scratch, activations hidden, int64_t step,
                    int64_t first, int64_t panel) {
    ALIGNED float results[MAX_ROWS][PANEL];
    const int64_t count = smaller(MAX_ROWS, call->num_rows - first), begin = panel * PANEL;
    const float clip = call->output_clip;
    if (call->projection.data)
        multiply_panel(&call->projection, panel, from_row(hidden, first), count,
                       (destination){.data = results[0], .stride = PANEL});
    int64_t at = (begin / K_BLOCK * call->num_rows + first) * K_BLOCK + begin % K_BLOCK;
    for (int64_t r = 0; r < count; r++, at += K_BLOCK) {
        float *output = scratch->output + at;
        if (is_active(call, step, first + r)) {
            if (call->projection.data) {
                for (int i = 0; i < PANEL; i += WIDE) store(output + i, clamp(load(results[r] + i), clip));
            } else /* without a projection there is no output clip */
                memcpy(output, scratch->hidden + at, sizeof *results);
        }
        write_output(call, scratch, step, first + r, begin, smaller(PANEL, call->width - begin));
    }
}

static void set_state(const lstm_call *call, const lstm_scratch *scratch, int64_t row, const float *output,
                      const float *cell) {
    copy_row_to_blocks(output, call->width, call->num_rows, row, scratch->output);
    copy_row_to_blocks(cell, call->num_cells, call->num_rows, row, scratch->cell);
}

/* How many steps have their inputs multiplied together. */
static int64_t steps_per_chunk(const lstm_call *call) {
    const int64_t chunk = smaller(call->num_steps, CHUNK_ROWS / larger(call->num_rows, 1));
    return call->input.data && chunk >= MIN_CHUNK ? chunk : 1;
}

/* In a parallel region: blocked rows as `w` takes them. */
static activations prepare_blocks(worker *self, const matrix *w, const float *blocks, int64_t count,
                                  const lstm_scratch *scratch) {
    const activations rows = blocked_rows(blocks, count, 1);
    if (!takes_int8(w->kind)) return rows;
    SHARE(self, r, count, 0)
        scratch->scales[r] = quantize_row(w, from_row(rows, r), count, r, scratch->quantized);
    activations quantized = blocked_rows(scratch->quantized, count, num_digits(w->kind));
    quantized.scales = scratch->scales;
    return quantized;
}

/* In a parallel region: one step, from its gate inputs, or from the inputs of a step.

   Every other step goes through the weights backwards: it begins with those that the step before has read last,
   which are still in the cache where all of them do not fit into it. */
static void run_step(worker *self, const lstm_call *call, const lstm_scratch *scratch, int64_t step,
                     step_rows gate_inputs) {
    const int64_t num_rows = call->num_rows;
    const int backwards = step & 1;
    activations inputs = {0};
    if (call->reset_mask)
        SHARE(self, row, num_rows, 0)
            if (call->reset_mask[step * call->reset_step + row * call->reset_row])
                set_state(call, scratch, row, call->reset_output + row * call->reset_output_row,
                          call->reset_cell + row * call->reset_cell_row);
    int any_active = 0; /* the same in every thread */
    for (int64_t row = 0; row < num_rows && !any_active; row++) any_active = is_active(call, step, row);
    if (!any_active) {
        SHARE(self, row, num_rows, 0) write_output(call, scratch, step, row, 0, call->width);
        return;
    }
    if (!gate_inputs.data)
        inputs = prepare_rows(self, &call->input, step_inputs(call, step), num_rows, scratch->inputs,
                              scratch->input_scales);
    const activations output = prepare_blocks(self, &call->recurrent, scratch->output, num_rows, scratch);
    const int64_t cell_panels = (call->num_cells + PANEL - 1) / PANEL;
    const int64_t output_panels = (call->width + PANEL - 1) / PANEL;
    SHARE(self, panel, cell_panels, backwards)
        for (int64_t first = 0; first < num_rows; first += MAX_ROWS)
            update_cells(call, scratch, output, gate_inputs, inputs, step, first, panel);
    activations hidden = {0};
    if (call->projection.data)
        hidden = prepare_blocks(self, &call->projection, scratch->hidden, num_rows, scratch);
    SHARE(self, panel, output_panels, backwards)
        for (int64_t first = 0; first < num_rows; first += MAX_ROWS)
            project(call, scratch, hidden, step, first, panel);
}

/* In a parallel region: one layer. */
static void run_layer(worker *self, const lstm_call *call, const lstm_scratch *scratch) {
    const matrix *input = &call->input;
    const int64_t num_rows = call->num_rows, gates = 4 * call->num_cells, chunk = steps_per_chunk(call);
    const int64_t state_sizes[] = {blocked_size(call->width, num_rows), blocked_size(call->num_cells, num_rows),
                                   blocked_size(call->num_cells, num_rows)};
    float *states[] = {scratch->output, scratch->cell, scratch->hidden};
    SHARE(self, i, 3, 0) /* what fills up blocks is read, though not used */
        memset(states[i], 0, sizeof(float) * (size_t)state_sizes[i]);
    SHARE(self, row, num_rows, 0)
        set_state(call, scratch, row, call->first_output + row * call->first_output_row,
                  call->first_cell + row * call->first_cell_row);
    for (int64_t step = 0; step < call->num_steps; step++) {
        const int64_t in_chunk = step % chunk;
        if (!input->data)
            run_step(self, call, scratch, step, step_inputs(call, step));
        else if (chunk == 1)
            run_step(self, call, scratch, step, (step_rows){0});
        else {
            if (in_chunk == 0) {
                const int64_t count = smaller(chunk, call->num_steps - step) * num_rows;
                const activations rows = prepare_rows(self, input, step_inputs(call, step), count,
                                                      scratch->inputs, scratch->input_scales);
                multiply_rows(self, input, rows, count, 0, scratch->gate_inputs);
            }
            run_step(self, call, scratch, step,
                     (step_rows){scratch->gate_inputs + in_chunk * num_rows * gates, 0, gates, num_rows, 0});
        }
    }
    SHARE(self, row, num_rows, 0) {
        copy_row_from_blocks(scratch->output, call->width, num_rows, row, call->output + row * call->width);
        copy_row_from_blocks(scratch->cell, call->num_cells, num_rows, row,
                             call->cell + row * call->num_cells);
    }
}

/* Layer after layer, in the same scratch memory; return 0, or 1 if memory ran out. */
static int64_t run_lstm(const lstm_call *layers, int64_t num_layers) {
    enum { PARTS = 9 };
    int64_t sizes[PARTS] = {0}, threads = 1;
    for (int64_t layer = 0; layer < num_layers; layer++) {
        const lstm_call *call = layers + layer;
        const int64_t rows = call->num_rows, chunk = steps_per_chunk(call);
        const int64_t inputs = call->input.data ? chunk * rows : 0;
        const int64_t output = blocked_size(call->width, rows), cell = blocked_size(call->num_cells, rows);
        const int64_t states = prepared_size(&call->recurrent, rows);
        const int64_t hidden = prepared_size(&call->projection, rows);
        const int64_t own[PARTS] = {
            counters_size(call->threads), output, cell, cell, chunk > 1 ? 4 * inputs * call->num_cells : 0,
            prepared_size(&call->input, inputs), inputs, larger(states, hidden), rows,
        };
        for (int i = 0; i < PARTS; i++) sizes[i] = larger(sizes[i], own[i]);
        threads = larger(threads, call->threads);
    }
    float *parts[PARTS];
    if (!allocate(sizes, PARTS, parts)) return 1;
    counter *counters = clear_counters(parts[0], threads);
    const lstm_scratch scratch = {parts[1], parts[2], parts[3], parts[4],
                                  parts[5], parts[6], parts[7], parts[8]};
#pragma omp parallel num_threads(threads)
    {
        worker self = join_team(counters);
        for (int64_t layer = 0; layer < num_layers; layer++) run_layer(&self, layers + layer, &scratch);
        release_tiles();
    }
    free(parts[0]);
    return 0;
}

#endif
