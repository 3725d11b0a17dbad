/* Crops from rows of pixels: what decodes them from a JPEG (jpeg_roi.c) and what finds them as they are (raw_crop.c)
 * resample and write in the same way. A pixel is red, green, blue and nothing, or the three alone.
 */

#ifndef PIPETUNE_JPEG_ROWS_H
#define PIPETUNE_JPEG_ROWS_H

#include <stdlib.h>

#include "jpeg_axis.h"
#include "jpeg_roi.h"

/* Room for all that a crop needs, which grows; 0: there is none. */
static inline int reserve(Reader *reader, size_t needed) {
    unsigned char *memory = NULL;
    if (needed <= reader->size) return 1;
    if (posix_memalign((void **)&memory, 64, needed)) return 0;
    free(reader->memory);
    reader->memory = memory;
    reader->size = needed;
    return 1;
}

/* One row of the target from the sums of input rows; line has room for a row of pixels. Of three channels, a float
 * behind the sums is read, too. */
INLINE void finish_row(const Target *to, const Axis *across, const float *restrict sums, int channels,
                       Pixel *restrict line, int number) {
    const Pixel half = {0.5f, 0.5f, 0.5f, 0.5f};
    int size = to->size, count = across->count[0], last = to->flip ? size - 1 : 0, step = to->flip ? -1 : 1;
    const float *weights = across->weights;
    if (count == 2) /* the crop is enlarged */
        for (int o = 0; o < size; o++, weights += across->taps) {
            const float *from = sums + channels * across->first[o];
            const Pixel one = *(const Pixel *)from, other = *(const Pixel *)(from + channels);
            line[last + step * o] = half + weights[0] * one + weights[1] * other;
        }
    else
        for (int o = 0; o < size; o++, weights += across->taps) {
            const float *from = sums + channels * across->first[o];
            Pixel value = half;
            for (int k = 0; k < count; k++) value += weights[k] * *(const Pixel *)(from + channels * k);
            line[last + step * o] = value;
        }
    /* Channel by channel, which compilers turn into vectors where pixels lie side by side. */
    unsigned char *at = to->at + number * to->row;
    const float *values = (const float *)line;
    for (int c = 0; c < 3; c++, at += to->channel, values++) {
        float scale = to->scale[c], shift = to->shift[c];
        if (to->as_float && to->column == sizeof(float)) {
            float *restrict out = (float *)at;
            for (int o = 0; o < size; o++) out[o] = (float)(int32_t)values[4 * o] * scale + shift;
        } else if (to->as_float) {
            for (int o = 0; o < size; o++)
                *(float *)(at + o * to->column) = (float)(int32_t)values[4 * o] * scale + shift;
        } else if (to->column == 1) {
            for (int o = 0; o < size; o++) at[o] = (unsigned char)(int32_t)values[4 * o];
        } else {
            for (int o = 0; o < size; o++) at[o * to->column] = (unsigned char)(int32_t)values[4 * o];
        }
    }
}

/* Takes one row of the input into all outputs that it is part of; gives the first output that is not complete. */
INLINE int take_row(const Target *to, const Axis *across, const Axis *down, float *sums, int channels, Pixel *line,
                    int ring, int width, const unsigned char *row, int number, int next) {
    for (int o = next; o < to->size && down->first[o] <= number; o++) {
        int place = number - down->first[o];
        if (place >= down->count[o]) continue;
        float *own = sums + (size_t)(o % ring) * width * channels;
        add_row(own, row, down->weights[(size_t)o * down->taps + place], width * channels, place == 0);
        if (place == down->count[o] - 1) {
            finish_row(to, across, own, channels, line, o);
            if (o == next) next = o + 1;
        }
    }
    return next;
}

#endif
