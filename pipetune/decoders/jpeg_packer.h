/* What makes JPEGs of a JPEG: its state, how it ends when something is wrong, and where the outputs go. For jpeg_pack.c,
 * which alone includes this.
 */

#ifndef PIPETUNE_JPEG_PACKER_H
#define PIPETUNE_JPEG_PACKER_H

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>

#include "jpeg_pack.h"
#include "jpeg_plane.h"
#include "jpeg_roi.h"

#include <jerror.h>

#define ICC "ICC_PROFILE"
#define FIRST_ROOM 65536

typedef struct {
    unsigned char *at;
    size_t size;
} Memory;

/* A plane of the source, and the ring in which its rows wait. */
typedef struct {
    int width, height;   /* samples */
    double across, down; /* samples for each pixel of the image */
    int step;            /* rows that come at once */
    int ring, place;     /* rows that have room, and where the next ones go */
    int got;             /* rows that have come */
    unsigned char *at;   /* ring x stride */
    size_t stride;
    Memory memory;
} SourcePlane;

/* A plane of one of the images that are made, and what belongs to its resampling. */
typedef struct {
    Taps across, down;
    int width, height; /* samples */
    int rows;          /* that are made at once */
    size_t stride;
    unsigned char *lines;           /* rows x stride */
    const unsigned char **pointers; /* to the rows of the source that a row is made of */
    int16_t *middle;                /* a row that is resampled down, and not yet across */
    Memory memory;
} OutputPlane;

/* One of the images that are made of a source. */
typedef struct {
    struct jpeg_destination_mgr destination; /* first, so that one is known by the other */
    struct jpeg_compress_struct target;
    unsigned char *out; /* what was encoded, or the pixels */
    size_t room, length;
    OutputPlane planes[3];
    int groups, next; /* of rows: how many, and the first that is not made */
} Output;

struct Packer {
    struct jpeg_error_mgr errors;
    struct jpeg_decompress_struct source, other;
    struct jpeg_progress_mgr progress;
    jmp_buf out_of_here;
    int status; /* why it was left */
    char message[JMSG_LENGTH_MAX];
    SourcePlane planes[3];
    int colours; /* planes that there are: 1 of a grey image */
    Memory line; /* of pixels */
    Output outputs[MOST_ORDERS];
};

static void leave(j_common_ptr jpeg, int status) {
    Packer *packer = (Packer *)jpeg->client_data;
    packer->status = status;
    longjmp(packer->out_of_here, 1);
}

static void give_up(j_common_ptr jpeg) {
    jpeg->err->format_message(jpeg, ((Packer *)jpeg->client_data)->message);
    leave(jpeg, jpeg->err->msg_code == JERR_OUT_OF_MEMORY ? NO_MEMORY : DAMAGED);
}

static void on_progress(j_common_ptr jpeg) {
    if (jpeg->is_decompressor && ((j_decompress_ptr)jpeg)->input_scan_number > MOST_SCANS) leave(jpeg, TOO_MANY_SCANS);
}

/* A warning means that data are damaged: they are not packed as if nothing were. */
static void on_message(j_common_ptr jpeg, int level) {
    if (level < 0) give_up(jpeg);
}

/* Room for what is encoded, which grows. */
static void begin_out(j_compress_ptr jpeg) {
    Output *output = (Output *)jpeg->dest;
    output->destination.next_output_byte = output->out;
    output->destination.free_in_buffer = output->room;
}

static boolean more_out(j_compress_ptr jpeg) {
    Output *output = (Output *)jpeg->dest;
    unsigned char *larger = output->room < SIZE_MAX / 2 ? realloc(output->out, 2 * output->room) : NULL;
    if (!larger) leave((j_common_ptr)jpeg, NO_MEMORY);
    output->out = larger;
    output->destination.next_output_byte = larger + output->room;
    output->destination.free_in_buffer = output->room;
    output->room *= 2;
    return TRUE;
}

static void end_out(j_compress_ptr jpeg) {
    Output *output = (Output *)jpeg->dest;
    output->length = output->room - output->destination.free_in_buffer;
}

void pipetune_jpeg_pack_close(Packer *packer) {
    if (!packer) return;
    jpeg_destroy_decompress(&packer->source);
    jpeg_destroy_decompress(&packer->other);
    for (Output *output = packer->outputs; output < packer->outputs + MOST_ORDERS; output++) {
        jpeg_destroy_compress(&output->target);
        free(output->out);
        for (int c = 0; c < 3; c++) free(output->planes[c].memory.at);
    }
    for (int c = 0; c < 3; c++) free(packer->planes[c].memory.at);
    free(packer->line.at);
    free(packer);
}

Packer *pipetune_jpeg_pack_open(void) {
    Packer *packer = calloc(1, sizeof *packer);
    if (!packer) return NULL;
    packer->source.err = packer->other.err = jpeg_std_error(&packer->errors);
    packer->source.client_data = packer->other.client_data = packer; /* which create keeps */
    packer->errors.error_exit = give_up;
    packer->errors.emit_message = on_message;
    packer->progress.progress_monitor = on_progress;
    for (Output *output = packer->outputs; output < packer->outputs + MOST_ORDERS; output++) {
        output->target.err = &packer->errors;
        output->target.client_data = packer;
        output->destination.init_destination = begin_out;
        output->destination.empty_output_buffer = more_out;
        output->destination.term_destination = end_out;
    }
    return packer;
}

const char *pipetune_jpeg_pack_message(const Packer *packer) { return packer->message; }

/* A new decompressor, which is cheap: an old one would lend the last image's tables to one that has none. */
static void read_header(Packer *packer, j_decompress_ptr jpeg, const unsigned char *data, size_t length) {
    jpeg_destroy_decompress(jpeg);
    jpeg_create_decompress(jpeg);
    jpeg->progress = &packer->progress;
    jpeg_mem_src(jpeg, (unsigned char *)data, (unsigned long)length);
    jpeg_save_markers(jpeg, JPEG_APP0 + 2, 0xFFFF);
    jpeg_read_header(jpeg, TRUE);
    if ((int64_t)jpeg->image_height * jpeg->image_width > MOST_PIXELS) leave((j_common_ptr)jpeg, NOT_FOR_US);
}

static void make_room(Packer *packer, Output *output, size_t needed) {
    if (needed <= output->room) return;
    unsigned char *larger = realloc(output->out, needed);
    if (!larger) leave((j_common_ptr)&packer->source, NO_MEMORY);
    output->out = larger;
    output->room = needed;
}

static void new_target(Packer *packer, Output *output) {
    make_room(packer, output, FIRST_ROOM);
    jpeg_destroy_compress(&output->target);
    jpeg_create_compress(&output->target);
    output->target.dest = &output->destination;
}

/* The orientation as the only EXIF tag, and the ICC profile. */
static void write_markers(Packer *packer, Output *output, int orientation) {
    unsigned char exif[] = {'E', 'x', 'i', 'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0,
                            0x12, 1, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    exif[24] = (unsigned char)orientation;
    if (orientation > 1) jpeg_write_marker(&output->target, JPEG_APP0 + 1, exif, sizeof exif);
    for (jpeg_saved_marker_ptr marker = packer->source.marker_list; marker; marker = marker->next)
        if (marker->data_length > sizeof ICC && !memcmp(marker->data, ICC, sizeof ICC))
            jpeg_write_marker(&output->target, marker->marker, marker->data, marker->data_length);
}

#endif
