/* What jpeg_roi.c, jpeg_roi_fill.c, raw_crop.c and jpeg_pack.c share. */

#ifndef PIPETUNE_JPEG_ROI_H
#define PIPETUNE_JPEG_ROI_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#if !defined(LIBJPEG_TURBO_VERSION_NUMBER) || LIBJPEG_TURBO_VERSION_NUMBER < 2001000
#error "libjpeg-turbo 2.1 or newer is needed"
#endif

/* A larger image Pillow takes for an attack, and says so. */
#define MOST_PIXELS 178956970

/* A progressive JPEG may repeat scans as often as it likes, and each visits every block: 3 MB can take hours. Encoders
 * write about ten; see pipetune.datasets.image_scans, which has the same limit. */
#define MOST_SCANS 100

enum { OK = 0, DAMAGED = 1, NOT_FOR_US = 2, NO_MEMORY = 3, TOO_MANY_SCANS = 4 };

typedef struct {
    struct jpeg_error_mgr errors;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_progress_mgr progress;
    jmp_buf out_of_here;
    int status; /* why it was left */
    char message[JMSG_LENGTH_MAX];
    unsigned char *memory; /* of all that a crop needs */
    size_t size;
    unsigned char *file; /* what was read */
    size_t room;
} Reader;

/* Where a sample lies in its batch (strides in bytes) and what is wanted there. */
typedef struct {
    unsigned char *at;
    ptrdiff_t row, column, channel;
    int size; /* px */
    int flip;
    int as_float;
    float scale[3], shift[3]; /* value = grey level * scale + shift */
} Target;

int pipetune_jpeg_roi_header(Reader *reader, const unsigned char *data, size_t length, int size[2]);
int pipetune_jpeg_roi_crop(Reader *reader, const int crop[4], int approximate, const Target *to);
int pipetune_raw_crop(Reader *reader, const unsigned char *pixels, ptrdiff_t row, int height, int width,
                      const Target *to);

#endif
