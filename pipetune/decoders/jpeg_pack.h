/* What jpeg_pack.c offers. */

#ifndef PIPETUNE_JPEG_PACK_H
#define PIPETUNE_JPEG_PACK_H

#include <stddef.h>

/* Images that are made of one source at once. */
#define MOST_ORDERS 8

/* What an image is to become. */
typedef struct {
    int width, height; /* px; 0: as it is, whose coefficients are kept */
    int quality;       /* 1..100, as libjpeg has it */
    int sampling;      /* of chroma: 0 as in the source; else 444, 422 or 420 */
    int orientation;   /* written as an EXIF tag unless it is 1 */
    int turn;          /* of an image that keeps its coefficients: the EXIF orientation that is undone; 0, 1: none */
    int square;        /* 0: a JPEG; else pixels (red, green, blue) of the square in the middle with this edge */
} Order;

typedef struct Packer Packer;

Packer *pipetune_jpeg_pack_open(void);
void pipetune_jpeg_pack_close(Packer *packer);
const char *pipetune_jpeg_pack_message(const Packer *packer);
int pipetune_jpeg_pack(Packer *packer, const unsigned char *data, size_t length, const Order *orders, int count,
                       const unsigned char **outs, size_t *lengths);
int pipetune_jpeg_pack_same(Packer *packer, const unsigned char *one, size_t one_length, const unsigned char *other,
                            size_t other_length);

#endif
