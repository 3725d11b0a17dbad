/* Resampling along one axis: the weights, for what decodes crops (jpeg_roi.c) and what makes images smaller
 * (jpeg_pack.c); and sums of rows, for crops.
 *
 * Rows of crops are resampled as they come: each is added to the sums of all outputs that it is part of, so that no
 * decoded image ever lies in memory.
 */

#ifndef PIPETUNE_JPEG_AXIS_H
#define PIPETUNE_JPEG_AXIS_H

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Built once for processors with AVX2 and once for all; the dynamic linker chooses. Not for an "arch=": that asks for
 * the maker's name, too. Without FMA, whose sums would be others. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif
#define INLINE static inline __attribute__((always_inline))

/* One pixel: red, green, blue, nothing. */
typedef float Pixel __attribute__((vector_size(16), aligned(4)));

/* How far a filter reaches, in inputs of an image that is not reduced. */
typedef enum { TRIANGLE = 1, CUBIC = 2 } Filter;

/* Which inputs an output is made of, along one axis. */
typedef struct {
    int *first;     /* of each output: its first input */
    int *count;     /* and how many */
    float *weights; /* taps per output */
    int taps;
} Axis;

INLINE int taps_of(double length, int outputs, Filter filter) {
    double scale = length / outputs;
    return 2 * (int)ceil(filter * (scale > 1 ? scale : 1)) + 1;
}

/* Keys (1981) with a of -0.5: passes on what a straight line or a parabola is. */
INLINE double cubic(double x) {
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

/* Outputs over [start, start + length) of inputs. Computed as Pillow's precompute_coeffs does
 * (src/libImaging/Resample.c): see THIRD_PARTY_NOTICES.txt. */
INLINE void weigh(Axis *axis, int inputs, double start, double length, int outputs, Filter filter) {
    double scale = length / outputs, wider = scale > 1 ? scale : 1, support = filter * wider;
    for (int o = 0; o < outputs; o++) {
        double centre = start + (o + 0.5) * scale, sum = 0;
        int first = (int)(centre - support + 0.5), last = (int)(centre + support + 0.5);
        if (first < 0 || centre - support + 0.5 < 0) first = 0;
        if (last > inputs) last = inputs;
        float *weights = axis->weights + (size_t)o * axis->taps;
        for (int i = first; i < last; i++) {
            double distance = fabs((i - centre + 0.5) / wider);
            double weight = filter == CUBIC ? cubic(distance) : distance < 1 ? 1 - distance : 0;
            weights[i - first] = (float)weight;
            sum += weight;
        }
        for (int i = 0; i < last - first; i++) weights[i] = (float)(weights[i] / sum);
        axis->first[o] = first;
        axis->count[o] = last - first;
    }
}

/* Gives all outputs the same number of inputs, some of weight 0, so that a loop over them has no surprises. */
INLINE void make_even(Axis *axis, int inputs, int outputs) {
    int most = 1;
    for (int o = 0; o < outputs; o++)
        if (axis->count[o] > most) most = axis->count[o];
    for (int o = 0; o < outputs; o++) {
        float *weights = axis->weights + (size_t)o * axis->taps;
        int count = axis->count[o], spare = most - count, room = inputs - axis->first[o] - count;
        int before = spare > room ? spare - room : 0;
        memmove(weights + before, weights, (size_t)count * sizeof *weights);
        for (int i = 0; i < before; i++) weights[i] = 0;
        for (int i = before + count; i < most; i++) weights[i] = 0;
        axis->first[o] -= before;
        axis->count[o] = most;
    }
}

/* sums (+)= weight * row, over so many values. */
INLINE void add_row(float *restrict sums, const unsigned char *restrict row, float weight, int values, int fresh) {
    if (fresh)
        for (int i = 0; i < values; i++) sums[i] = weight * (float)row[i];
    else
        for (int i = 0; i < values; i++) sums[i] += weight * (float)row[i];
}

/* How many outputs are under way at once. */
INLINE int most_at_once(const Axis *axis, int outputs) {
    int most = 1;
    for (int o = 0, end = 0; o < outputs; o++) {
        while (end < outputs && axis->first[end] < axis->first[o] + axis->count[o]) end++;
        if (end - o > most) most = end - o;
    }
    return most;
}

INLINE size_t aligned(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

#endif
