/* What Python passes to the library, and the table of functions each instruction set provides.

   The structures are mirrored in elmore/model/native.py, which checks their sizes. Letters: B rows, S steps,
   D output width, H cells, M and K height and width of a matrix. */

#ifndef ELMORE_KERNELS_H
#define ELMORE_KERNELS_H

#include <stdint.h>

/* How weights are stored, and what they multiply:
   FLOAT32       floats times floats;
   INT8_WEIGHTS  int8, made floats, times floats;
   INT8_DYNAMIC  int8 times activations rounded to 8 bits;
   INT8_DYNAMIC16  the same with 16 bits, which are split into two int8 digits;
   INT8_SPLIT    the same with 24 bits, in three digits. */
enum { FLOAT32 = 0, INT8_WEIGHTS = 1, INT8_DYNAMIC = 2, INT8_SPLIT = 3, INT8_DYNAMIC16 = 4 };

/* A weight (M, K) packed into panels of `panel_rows` of its rows.

   The M rows are in `parts` equal parts (the four gates, or one); the first panel of every part comes
   first, then the second of every part. Rows that fill up the last panel of a part are zero. A panel has
   for each column k its rows side by side; the last three kinds four columns of a row at a time. */
typedef struct {
    const void *data; /* null: there is no such weight */
    const float *scales; /* (panels, panel_rows): of int8 rows */
    const int32_t *corrections; /* (panels, panel_rows): what sums of int8 products begin with */
    int64_t height, width, parts, kind;
} matrix;

/* out (B, M) = rows (B, K) weight^T + bias. */
typedef struct {
    matrix weight;
    const float *rows;
    const float *bias; /* (M), or null */
    float *out;
    int64_t num_rows, threads;
} product;

/* S steps of a projected LSTM; elmore/model/lstm/reference.py defines a step. Rows and steps of what is read
   may lie anywhere, and a stride may be 0. */
typedef struct {
    matrix input; /* null: `inputs` are gate inputs W_x x */
    matrix recurrent, projection; /* a null projection: outputs are the hidden values, D = H */
    const float *bias; /* (4H) */
    const float *inputs; /* (S, B, K), or (S, B, 4H); with an index (N, K), or (N, 4H) */
    int64_t input_step, input_row; /* strides */
    const int64_t *input_index; /* (S, B): rows of `inputs`, negative for idle rows; or null */
    const uint8_t *mask; /* (S, B) */
    int64_t mask_step, mask_row;
    const uint8_t *reset_mask; /* (S, B), or null */
    int64_t reset_step, reset_row;
    const float *reset_output, *reset_cell; /* (B, D), (B, H) */
    int64_t reset_output_row, reset_cell_row;
    const float *first_output, *first_cell; /* (B, D), (B, H): the state before the first step */
    int64_t first_output_row, first_cell_row;
    float *output, *cell; /* (B, D), (B, H): the state after the last step */
    float *outputs; /* (S, B, D): zero where the mask is 0; with an index (P, D) */
    int64_t output_row; /* stride */
    const int64_t *output_index; /* (S, B): rows of `outputs`, negative for idle rows, which write none; or null */
    int64_t num_steps, num_rows, num_cells, width;
    int64_t skip; /* whether the inputs are added to the outputs */
    int64_t threads;
    float forget_bias; /* added to the bias of the forget gate */
    float cell_clip, output_clip; /* infinity: none */
} lstm_call;

/* Maxima over time of convolutions, one bank of filters (M, filter width * E) after another. */
typedef struct {
    const matrix *banks;
    const float *bias; /* (F) */
    const float *embedding; /* (ids, E) */
    const int64_t *characters; /* (B, C) */
    float *out; /* (B, F) */
    int64_t num_banks, num_words, num_characters, embedding_dim, num_filters, threads;
} char_cnn_call;

/* out = sigmoid(gate) relu(transform) + (1 - sigmoid(gate)) x, element by element. */
typedef struct {
    const float *gate, *transform, *x;
    float *out;
    int64_t count, threads;
} highway_call;

/* values = tanh(values). */
typedef struct {
    float *values;
    int64_t count, threads;
} tanh_call;

/* out (B) = log sum exp(values), over each of the rows (B, M). */
typedef struct {
    const float *values;
    float *out;
    int64_t num_rows, width, threads;
} log_sum_call;

typedef struct {
    int64_t panel_rows; /* of all kinds */
    int64_t has_int8_dot; /* whether there are the last three kinds */
    int64_t has_matrix_unit; /* whether a matrix unit multiplies them */
    int64_t u8_offset; /* a correction is - u8_offset times the sum of the row's numbers */
    /* These return 0, or 1 if memory ran out. */
    int64_t (*multiply)(const product *);
    int64_t (*run_lstm)(const lstm_call *, int64_t num_layers);
    int64_t (*run_char_cnn)(const char_cnn_call *);
    void (*run_highway)(const highway_call *);
    void (*run_tanh)(const tanh_call *);
    void (*log_sum_exp)(const log_sum_call *);
} kernel_table;

#endif
