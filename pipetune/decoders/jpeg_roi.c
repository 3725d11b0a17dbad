/* ROI decoding: decode only the part of a JPEG that a random crop needs, resize it, and write it into a batch.
 *
 * libjpeg-turbo leaves out the inverse transform and the colours of what lies outside of the crop (jpeg_crop_scanline,
 * jpeg_skip_scanlines) and the rows below it altogether. Each row is resampled as it comes, so that no decoded image
 * ever lies in memory. The filter is Pillow's antialiased bilinear one (a triangle as wide as the reduction), with sums
 * in float32 instead of Pillow's two roundings to 8 bits: at most one grey level apart.
 *
 * Why C: no package on PyPI offers this on the CPU but DALI; through a binding, every row would be a call. A call of
 * ours takes several files, so that threads seldom ask for Python's global lock.
 * Nothing here is thread-safe but in this sense: each thread has its own Reader.
 */

#include <stdlib.h>

#include "jpeg_rows.h"

/* The version of these functions; the Python side asks for it. */
#define INTERFACE 4

/* Columns beside the crop that are decoded, too: chroma upsampling looks at its neighbours. */
#define MARGIN 2

static void give_up(j_common_ptr jpeg) {
    Reader *reader = (Reader *)jpeg->client_data;
    jpeg->err->format_message(jpeg, reader->message);
    reader->status = DAMAGED;
    longjmp(reader->out_of_here, 1);
}

/* libjpeg calls this again and again while it reads scans. */
static void on_progress(j_common_ptr jpeg) {
    Reader *reader = (Reader *)jpeg->client_data;
    if (((j_decompress_ptr)jpeg)->input_scan_number <= MOST_SCANS) return;
    reader->status = TOO_MANY_SCANS;
    longjmp(reader->out_of_here, 1);
}

/* A warning means that data are damaged: whoever asked has another decoder, which may think better of it. */
static void on_message(j_common_ptr jpeg, int level) {
    if (level < 0) give_up(jpeg);
}

int pipetune_jpeg_roi_interface(void) { return INTERFACE; }

int pipetune_jpeg_roi_library(void) { return LIBJPEG_TURBO_VERSION_NUMBER; }

/* Whether header and library fit together: jpeg_create_decompress looks. */
static int begin(Reader *reader) {
    reader->jpeg.err = jpeg_std_error(&reader->errors);
    reader->errors.error_exit = give_up;
    reader->errors.emit_message = on_message;
    reader->jpeg.client_data = reader;
    if (setjmp(reader->out_of_here)) return 0;
    jpeg_create_decompress(&reader->jpeg);
    return 1;
}

Reader *pipetune_jpeg_roi_open(void) {
    Reader *reader = calloc(1, sizeof *reader);
    if (reader && !begin(reader)) {
        free(reader);
        return NULL;
    }
    return reader;
}

void pipetune_jpeg_roi_close(Reader *reader) {
    if (!reader) return;
    jpeg_destroy_decompress(&reader->jpeg);
    free(reader->memory);
    free(reader->file);
    free(reader);
}

const char *pipetune_jpeg_roi_message(const Reader *reader) { return reader->message; }

/* Reads the header; size becomes {height, width}. The data have to stay where they are until the crop has been read. */
int pipetune_jpeg_roi_header(Reader *reader, const unsigned char *data, size_t length, int size[2]) {
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    reader->message[0] = 0;
    if (setjmp(reader->out_of_here)) {
        jpeg_abort_decompress(jpeg);
        return reader->status;
    }
    /* A new decompressor, which is cheap: an old one would lend the last image's tables to one that has none. */
    jpeg_destroy_decompress(jpeg);
    jpeg_create_decompress(jpeg);
    jpeg->client_data = reader;
    reader->progress.progress_monitor = on_progress;
    jpeg->progress = &reader->progress;
    jpeg_mem_src(jpeg, (unsigned char *)data, (unsigned long)length);
    jpeg_read_header(jpeg, TRUE);
    if (jpeg->jpeg_color_space != JCS_YCbCr && jpeg->jpeg_color_space != JCS_GRAYSCALE &&
        jpeg->jpeg_color_space != JCS_RGB)
        return NOT_FOR_US;
    if ((int64_t)jpeg->image_height * jpeg->image_width > MOST_PIXELS) return NOT_FOR_US;
    size[0] = (int)jpeg->image_height;
    size[1] = (int)jpeg->image_width;
    return OK;
}

CLONES int take_rgbx_row(const Target *to, const Axis *across, const Axis *down, float *sums, Pixel *line, int ring,
                         int width, const unsigned char *row, int number, int next) {
    return take_row(to, across, down, sums, 4, line, ring, width, row, number, next);
}

/* Decodes {top, left, height, width} of the image whose header has been read.
 *
 * approximate: the inverse transform at half, a quarter or an eighth of the size where the crop is so much larger than
 * the target, the fast inverse transform, and chroma that is not interpolated.
 */
int pipetune_jpeg_roi_crop(Reader *reader, const int crop[4], int approximate, const Target *to) {
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    if (setjmp(reader->out_of_here)) {
        jpeg_abort_decompress(jpeg);
        return reader->status;
    }
    int top = crop[0], left = crop[1], height = crop[2], width = crop[3], divisor = 1;
    while (approximate && divisor < 8 && width / (2 * divisor) >= to->size && height / (2 * divisor) >= to->size)
        divisor *= 2;
    jpeg->scale_num = 1;
    jpeg->scale_denom = (unsigned)divisor;
    jpeg->out_color_space = JCS_EXT_RGBX;
    jpeg->dct_method = approximate ? JDCT_IFAST : JDCT_ISLOW;
    jpeg->do_fancy_upsampling = !approximate;
    jpeg_start_decompress(jpeg);
    /* Of a row that is not cropped: before 2.1.3 the library may copy that much (its issue 574). */
    size_t line = aligned((size_t)jpeg->output_width * 4), pixels = aligned((size_t)to->size * sizeof(Pixel));

    /* The crop in pixels of the decoded image, and the whole pixels that cover it. */
    double x = (double)left / divisor, y = (double)top / divisor;
    double wide = (double)width / divisor, high = (double)height / divisor;
    int x0 = left / divisor, y0 = top / divisor;
    int x1 = (left + width + divisor - 1) / divisor, y1 = (top + height + divisor - 1) / divisor;
    if (x1 > (int)jpeg->output_width) x1 = (int)jpeg->output_width;
    if (y1 > (int)jpeg->output_height) y1 = (int)jpeg->output_height;
    int columns = x1 - x0, rows = y1 - y0;

    JDIMENSION from = (JDIMENSION)(x0 > MARGIN ? x0 - MARGIN : 0);
    JDIMENSION until = (JDIMENSION)x1 + MARGIN < jpeg->output_width ? (JDIMENSION)x1 + MARGIN : jpeg->output_width;
    JDIMENSION decoded = until - from;
    if (decoded < jpeg->output_width) jpeg_crop_scanline(jpeg, &from, &decoded);

    Axis across = {.taps = taps_of(wide, to->size, TRIANGLE)}, down = {.taps = taps_of(high, to->size, TRIANGLE)};
    size_t numbers = aligned((size_t)to->size * sizeof(int));
    int lines = jpeg->rec_outbuf_height;
    size_t fixed = 4 * numbers + aligned((size_t)to->size * across.taps * sizeof(float)) +
                   aligned((size_t)to->size * down.taps * sizeof(float)) + line * (size_t)lines + pixels;
    for (int second = 0; second < 2; second++) { /* the sums are known once the axes are weighed */
        size_t needed = fixed;
        int ring = 0;
        if (second) {
            ring = most_at_once(&down, to->size);
            needed += aligned((size_t)ring * columns * sizeof(Pixel));
        }
        if (!reserve(reader, needed)) {
            jpeg_abort_decompress(jpeg);
            return NO_MEMORY;
        }
        unsigned char *at = reader->memory;
        across.first = (int *)at, at += numbers;
        across.count = (int *)at, at += numbers;
        down.first = (int *)at, at += numbers;
        down.count = (int *)at, at += numbers;
        across.weights = (float *)at, at += aligned((size_t)to->size * across.taps * sizeof(float));
        down.weights = (float *)at, at += aligned((size_t)to->size * down.taps * sizeof(float));
        unsigned char *buffer = at;
        at += line * (size_t)lines;
        Pixel *finished = (Pixel *)at;
        at += pixels;
        weigh(&across, columns, x - x0, wide, to->size, TRIANGLE);
        weigh(&down, rows, y - y0, high, to->size, TRIANGLE);
        if (!second) continue;
        make_even(&across, columns, to->size);

        JSAMPROW pointers[4];
        if (lines > 4) lines = 4;
        for (int i = 0; i < lines; i++) pointers[i] = buffer + (size_t)i * line;
        if (y0 > 0 && jpeg_skip_scanlines(jpeg, (JDIMENSION)y0) != (JDIMENSION)y0) {
            jpeg_abort_decompress(jpeg);
            return NOT_FOR_US;
        }
        for (int number = 0, next = 0; number < rows;) {
            int got = (int)jpeg_read_scanlines(jpeg, pointers, (JDIMENSION)lines);
            for (int i = 0; i < got && number < rows; i++, number++)
                next = take_rgbx_row(to, &across, &down, (float *)at, finished, ring, columns,
                                     pointers[i] + 4 * ((size_t)x0 - from), number, next);
        }
    }
    jpeg_abort_decompress(jpeg); /* the rows below the crop are not even read */
    return OK;
}
