/* What a layer that takes several steps in one call is given; see reference.py for what a step is. */

#ifndef ELMORE_STEPS_H
#define ELMORE_STEPS_H

#include <stdint.h>

/* S steps of B sentences, H cells, outputs D wide. */
typedef struct {
    const float *bias; /* of the gates */
    const float *driven; /* (S, B, 4H), by these strides; nothing where inputs are multiplied */
    int64_t by_step, by_row;
    const uint8_t *busy; /* (S, B): who reads */
    const uint8_t *starts; /* (S, B): who starts anew before a step, from the first; or nothing */
    const float *first_outputs, *first_cells; /* (B, D) and (B, H) */
    float *cells, *last, *shown; /* as the kernel lays them out; `last` are outputs */
    float *outputs; /* (S, B, D), zero where nobody reads */
    int64_t num_steps, num_rows, num_cells, width;
    float cell_clip, output_clip;
} steps;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
