/* Crops of images that are stored as pixels: nothing is decoded, and only the rows of the crop are looked at. */

#include "jpeg_rows.h"

CLONES int take_rgb_row(const Target *to, const Axis *across, const Axis *down, float *sums, Pixel *line, int ring,
                        int width, const unsigned char *row, int number, int next) {
    return take_row(to, across, down, sums, 3, line, ring, width, row, number, next);
}

/* Resizes a crop and writes it into a batch.
 *
 * pixels: of the crop, red, green, blue; row: from one of its rows to the next (bytes); height, width: its edges (px).
 */
int pipetune_raw_crop(Reader *reader, const unsigned char *pixels, ptrdiff_t row, int height, int width,
                      const Target *to) {
    Axis across = {.taps = taps_of(width, to->size, TRIANGLE)}, down = {.taps = taps_of(height, to->size, TRIANGLE)};
    size_t numbers = aligned((size_t)to->size * sizeof(int)), line = aligned((size_t)to->size * sizeof(Pixel));
    size_t weights_across = aligned((size_t)to->size * across.taps * sizeof(float));
    size_t weights_down = aligned((size_t)to->size * down.taps * sizeof(float));
    /* An output reaches one input, or one output, to either side: so many are under way at most. */
    double scale = (double)height / to->size;
    int ring = (int)ceil(2 / (scale < 1 ? scale : 1)) + 2;
    if (ring > to->size) ring = to->size;
    size_t sums = aligned(((size_t)ring * width * 3 + 1) * sizeof(float));
    size_t needed = 4 * numbers + weights_across + weights_down + line + sums;
    if (!reserve(reader, needed)) return NO_MEMORY;
    unsigned char *at = reader->memory;
    across.first = (int *)at, at += numbers;
    across.count = (int *)at, at += numbers;
    down.first = (int *)at, at += numbers;
    down.count = (int *)at, at += numbers;
    across.weights = (float *)at, at += weights_across;
    down.weights = (float *)at, at += weights_down;
    Pixel *finished = (Pixel *)at;
    at += line;
    weigh(&across, width, 0, width, to->size, TRIANGLE);
    weigh(&down, height, 0, height, to->size, TRIANGLE);
    make_even(&across, width, to->size);
    int under_way = most_at_once(&down, to->size);
    if (under_way > ring) return NOT_FOR_US;
    ((float *)at)[(size_t)under_way * width * 3] = 0;
    for (int number = 0, next = 0; number < height; number++)
        next = take_rgb_row(to, &across, &down, (float *)at, finished, under_way, width, pixels + number * row, number,
                            next);
    return OK;
}
