/* Makes JPEGs smaller, or others of the same coefficients.
 *
 * Smaller: rows are decoded, resampled as they come, and encoded, so that no decoded image ever lies in memory. The
 * filter is Pillow's antialiased bicubic one. Where the target is so small that half, a quarter or an eighth of the size
 * is still at least twice the target, libjpeg-turbo's inverse transform leaves the rest out; the filter sees to the
 * rest of the way, so that nothing is aliased.
 *
 * The same coefficients: what jpegtran does. Progressive and arithmetic files become baseline ones.
 *
 * Why C: no package does both without Python's global lock, and none resamples rows as they come. ICC profiles are kept,
 * and nothing else that is not the image.
 * Nothing here is thread-safe but in this sense: each thread has its own Packer.
 */

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>

#include "jpeg_axis.h"
#include "jpeg_roi.h"
#include "jpeg_pack.h"

#include <jerror.h>

enum { DIFFERENT = 5 };

#define ICC "ICC_PROFILE"
#define FIRST_ROOM 65536

struct Packer {
    struct jpeg_error_mgr errors;
    struct jpeg_decompress_struct source, other;
    struct jpeg_compress_struct target;
    struct jpeg_progress_mgr progress;
    struct jpeg_destination_mgr destination;
    jmp_buf out_of_here;
    int status; /* why it was left */
    char message[JMSG_LENGTH_MAX];
    unsigned char *out; /* what was encoded */
    size_t room, length;
    unsigned char *memory; /* of the resampling */
    size_t size;
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
    Packer *packer = (Packer *)jpeg->client_data;
    packer->destination.next_output_byte = packer->out;
    packer->destination.free_in_buffer = packer->room;
}

static boolean more_out(j_compress_ptr jpeg) {
    Packer *packer = (Packer *)jpeg->client_data;
    unsigned char *larger = packer->room < SIZE_MAX / 2 ? realloc(packer->out, 2 * packer->room) : NULL;
    if (!larger) leave((j_common_ptr)jpeg, NO_MEMORY);
    packer->out = larger;
    packer->destination.next_output_byte = larger + packer->room;
    packer->destination.free_in_buffer = packer->room;
    packer->room *= 2;
    return TRUE;
}

static void end_out(j_compress_ptr jpeg) {
    Packer *packer = (Packer *)jpeg->client_data;
    packer->length = packer->room - packer->destination.free_in_buffer;
}

void pipetune_jpeg_pack_close(Packer *packer) {
    if (!packer) return;
    jpeg_destroy_decompress(&packer->source);
    jpeg_destroy_decompress(&packer->other);
    jpeg_destroy_compress(&packer->target);
    free(packer->out);
    free(packer->memory);
    free(packer);
}

Packer *pipetune_jpeg_pack_open(void) {
    Packer *packer = calloc(1, sizeof *packer);
    if (!packer) return NULL;
    packer->source.err = packer->other.err = packer->target.err = jpeg_std_error(&packer->errors);
    packer->source.client_data = packer->other.client_data = packer->target.client_data = packer; /* which create keeps */
    packer->errors.error_exit = give_up;
    packer->errors.emit_message = on_message;
    packer->progress.progress_monitor = on_progress;
    packer->destination.init_destination = begin_out;
    packer->destination.empty_output_buffer = more_out;
    packer->destination.term_destination = end_out;
    packer->room = FIRST_ROOM;
    packer->out = malloc(packer->room);
    if (!packer->out) {
        free(packer);
        return NULL;
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

static void new_target(Packer *packer) {
    jpeg_destroy_compress(&packer->target);
    jpeg_create_compress(&packer->target);
    packer->target.dest = &packer->destination;
}

/* The orientation as the only EXIF tag, and the ICC profile. */
static void write_markers(Packer *packer, int orientation) {
    unsigned char exif[] = {'E', 'x', 'i', 'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0,
                            0x12, 1, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    exif[24] = (unsigned char)orientation;
    if (orientation > 1) jpeg_write_marker(&packer->target, JPEG_APP0 + 1, exif, sizeof exif);
    for (jpeg_saved_marker_ptr marker = packer->source.marker_list; marker; marker = marker->next)
        if (marker->data_length > sizeof ICC && !memcmp(marker->data, ICC, sizeof ICC))
            jpeg_write_marker(&packer->target, marker->marker, marker->data, marker->data_length);
}

static void set_sampling(Packer *packer, int sampling) {
    const jpeg_component_info *own = packer->source.comp_info;
    jpeg_component_info *luma = packer->target.comp_info;
    int across = sampling == 444 ? 1 : 2, down = sampling == 420 ? 2 : 1;
    if (packer->target.num_components != 3) return;
    if (!sampling && packer->source.num_components == 3) {
        int plain = own[1].h_samp_factor == 1 && own[1].v_samp_factor == 1 && own[2].h_samp_factor == 1 &&
                    own[2].v_samp_factor == 1 && own[0].h_samp_factor <= 2 && own[0].v_samp_factor <= 2;
        across = plain ? own[0].h_samp_factor : 1; /* of what is unusual nothing is left out */
        down = plain ? own[0].v_samp_factor : 1;
    }
    luma->h_samp_factor = across;
    luma->v_samp_factor = down;
}

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

/* Lays out the memory of a reduction from rows x columns, of which wide x high are covered: the last ones may be partly
 * outside of the image where it was decoded at half the size or less. buffer becomes room for lines of the input. */
static void lay_out(Packer *packer, Reduction *to, int rows, double across, double down, int lines,
                    unsigned char **buffer) {
    size_t row = aligned((size_t)to->columns * 4);
    double scale = down / to->height;
    to->across.taps = taps_of(across, to->width, CUBIC);
    to->down.taps = taps_of(down, to->height, CUBIC);
    size_t wide = aligned((size_t)to->width * sizeof(int)), high = aligned((size_t)to->height * sizeof(int));
    size_t weights_across = aligned((size_t)to->width * to->across.taps * sizeof(float));
    size_t weights_down = aligned((size_t)to->height * to->down.taps * sizeof(float));
    /* An output reaches two inputs, or outputs, to either side: so many are under way at most. */
    to->ring = (int)ceil(4 / (scale < 1 ? scale : 1)) + 2;
    size_t needed = 2 * wide + 2 * high + weights_across + weights_down + row * (size_t)lines +
                    aligned((size_t)to->width * 4) + aligned((size_t)to->ring * to->columns * sizeof(Pixel));
    if (needed > packer->size) {
        unsigned char *memory = NULL;
        if (posix_memalign((void **)&memory, 64, needed)) leave((j_common_ptr)&packer->source, NO_MEMORY);
        free(packer->memory);
        packer->memory = memory;
        packer->size = needed;
    }
    unsigned char *at = packer->memory;
    to->across.first = (int *)at, at += wide;
    to->across.count = (int *)at, at += wide;
    to->down.first = (int *)at, at += high;
    to->down.count = (int *)at, at += high;
    to->across.weights = (float *)at, at += weights_across;
    to->down.weights = (float *)at, at += weights_down;
    *buffer = at, at += row * (size_t)lines;
    to->line = at, at += aligned((size_t)to->width * 4);
    to->sums = (float *)at;
    weigh(&to->across, to->columns, 0, across, to->width, CUBIC);
    weigh(&to->down, rows, 0, down, to->height, CUBIC);
    make_even(&to->across, to->columns, to->width);
    int ring = most_at_once(&to->down, to->height);
    if (ring > to->ring) leave((j_common_ptr)&packer->source, NOT_FOR_US);
    to->ring = ring;
}

static void shrink(Packer *packer, const Order *order) {
    j_decompress_ptr from = &packer->source;
    j_compress_ptr into = &packer->target;
    if (from->jpeg_color_space != JCS_YCbCr && from->jpeg_color_space != JCS_GRAYSCALE &&
        from->jpeg_color_space != JCS_RGB)
        leave((j_common_ptr)from, NOT_FOR_US);
    Reduction to = {.width = order->width, .height = order->height};
    unsigned divisor = 1;
    while (divisor < 8 && from->image_width / (2 * divisor) >= 2 * (JDIMENSION)order->width &&
           from->image_height / (2 * divisor) >= 2 * (JDIMENSION)order->height)
        divisor *= 2;
    from->scale_num = 1;
    from->scale_denom = divisor;
    from->out_color_space = JCS_EXT_RGBX;
    jpeg_start_decompress(from);
    to.columns = (int)from->output_width;
    int rows = (int)from->output_height, lines = from->rec_outbuf_height > 4 ? 4 : from->rec_outbuf_height;
    unsigned char *buffer;
    lay_out(packer, &to, rows, (double)from->image_width / divisor, (double)from->image_height / divisor, lines, &buffer);

    into->image_width = (JDIMENSION)order->width;
    into->image_height = (JDIMENSION)order->height;
    into->input_components = 4;
    into->in_color_space = JCS_EXT_RGBX;
    jpeg_set_defaults(into);
    if (from->jpeg_color_space == JCS_GRAYSCALE) jpeg_set_colorspace(into, JCS_GRAYSCALE);
    jpeg_set_quality(into, order->quality, TRUE);
    set_sampling(packer, order->sampling);
    jpeg_start_compress(into, TRUE);
    write_markers(packer, order->orientation);

    JSAMPROW pointers[4], line = to.line;
    for (int i = 0; i < lines; i++) pointers[i] = buffer + (size_t)i * aligned((size_t)to.columns * 4);
    for (int number = 0, next = 0; number < rows;) {
        int got = (int)jpeg_read_scanlines(from, pointers, (JDIMENSION)lines);
        for (int i = 0; i < got; i++, number++) {
            reduce_row(&to, pointers[i], number, next);
            while (next < to.height && to.down.first[next] + to.down.count[next] - 1 <= number) {
                reduce_line(&to, next++);
                jpeg_write_scanlines(into, &line, 1);
            }
        }
    }
    jpeg_finish_decompress(from);
    jpeg_finish_compress(into);
}

static void transcode(Packer *packer, const Order *order) {
    jvirt_barray_ptr *coefficients = jpeg_read_coefficients(&packer->source);
    jpeg_copy_critical_parameters(&packer->source, &packer->target);
    packer->target.optimize_coding = TRUE;
    jpeg_write_coefficients(&packer->target, coefficients);
    write_markers(packer, order->orientation);
    jpeg_finish_compress(&packer->target);
    jpeg_finish_decompress(&packer->source);
}

/* Makes the JPEG that is ordered; out belongs to the packer, until the next call. */
int pipetune_jpeg_pack(Packer *packer, const unsigned char *data, size_t length, const Order *order,
                       const unsigned char **out, size_t *out_length) {
    packer->message[0] = 0;
    if (setjmp(packer->out_of_here)) {
        jpeg_abort_compress(&packer->target);
        jpeg_abort_decompress(&packer->source);
        return packer->status;
    }
    read_header(packer, &packer->source, data, length);
    new_target(packer);
    if (order->width) shrink(packer, order);
    else transcode(packer, order);
    *out = packer->out;
    *out_length = packer->length;
    return OK;
}

/* Whether two JPEGs have the same size, components, quantisation and coefficients, so that they decode to the same. */
int pipetune_jpeg_pack_same(Packer *packer, const unsigned char *one, size_t one_length, const unsigned char *other,
                            size_t other_length) {
    packer->message[0] = 0;
    j_decompress_ptr a = &packer->source, b = &packer->other;
    if (setjmp(packer->out_of_here)) {
        jpeg_abort_decompress(a);
        jpeg_abort_decompress(b);
        return packer->status;
    }
    read_header(packer, a, one, one_length);
    read_header(packer, b, other, other_length);
    jvirt_barray_ptr *of_a = jpeg_read_coefficients(a), *of_b = jpeg_read_coefficients(b);
    int same = a->image_width == b->image_width && a->image_height == b->image_height &&
               a->num_components == b->num_components && a->jpeg_color_space == b->jpeg_color_space;
    for (int c = 0; same && c < a->num_components; c++) {
        const jpeg_component_info *left = a->comp_info + c, *right = b->comp_info + c;
        same = left->h_samp_factor == right->h_samp_factor && left->v_samp_factor == right->v_samp_factor &&
               left->width_in_blocks == right->width_in_blocks && left->height_in_blocks == right->height_in_blocks &&
               left->quant_table && right->quant_table &&
               !memcmp(left->quant_table->quantval, right->quant_table->quantval, sizeof left->quant_table->quantval);
        for (JDIMENSION y = 0; same && y < left->height_in_blocks; y++) {
            JBLOCKARRAY x = a->mem->access_virt_barray((j_common_ptr)a, of_a[c], y, 1, FALSE);
            JBLOCKARRAY z = b->mem->access_virt_barray((j_common_ptr)b, of_b[c], y, 1, FALSE);
            same = !memcmp(x[0], z[0], left->width_in_blocks * sizeof(JBLOCK));
        }
    }
    jpeg_abort_decompress(a);
    jpeg_abort_decompress(b);
    return same ? OK : DIFFERENT;
}
