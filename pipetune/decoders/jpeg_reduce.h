/* Makes images smaller, or larger, row by row, for what packs them (jpeg_pack.c, which alone includes this). */

#ifndef PIPETUNE_JPEG_REDUCE_H
#define PIPETUNE_JPEG_REDUCE_H

#include "jpeg_axis.h"

/* One row of 8-bit pixels from the sums of input rows. */
INLINE void finish_line(const Axis *across, const float *restrict sums, unsigned char *restrict line, int width) {
    const Pixel half = {0.5f, 0.5f, 0.5f, 0.5f};
    const float *weights = across->weights;
    int count = across->count[0];
    for (int o = 0; o < width; o++, weights += across->taps) {
        const Pixel *from = (const Pixel *)sums + across->first[o];
        Pixel value = half;
        for (int k = 0; k < count; k++) value += weights[k] * from[k];
        for (int c = 0; c < 4; c++) {
            float v = value[c];
            v = v < 0 ? 0 : v; /* a bicubic filter overshoots */
            line[4 * o + c] = (unsigned char)(int32_t)(v > 255 ? 255 : v);
        }
    }
}

/* Where rows go: sums of the outputs that are under way, in a ring. */
typedef struct {
    Axis across, down;
    float *sums;
    unsigned char *line;
    int ring, columns, width, height;
} Reduction;

/* Takes one row of the input into all outputs that it is part of, from the first one that is not complete on. */
CLONES void reduce_row(const Reduction *to, const unsigned char *row, int number, int next) {
    for (int o = next; o < to->height && to->down.first[o] <= number; o++) {
        int place = number - to->down.first[o];
        if (place >= to->down.count[o]) continue;
        float *own = to->sums + (size_t)(o % to->ring) * to->columns * 4;
        add_row(own, row, to->down.weights[(size_t)o * to->down.taps + place], to->columns * 4, place == 0);
    }
}

CLONES void reduce_line(const Reduction *to, int output) {
    finish_line(&to->across, to->sums + (size_t)(output % to->ring) * to->columns * 4, to->line, to->width);
}

#endif
