/* Makes JPEGs smaller, or others of the same coefficients.
 *
 * Smaller: rows are decoded, resampled as they come, and encoded, so that no decoded image ever lies in memory; see
 * jpeg_resize.h. The filter is Pillow's antialiased bicubic one. Where the target is so small that half, a quarter or an
 * eighth of the size is still at least twice the target, libjpeg-turbo's inverse transform leaves the rest out; the
 * filter sees to the rest of the way, so that nothing is aliased.
 *
 * Pixels: the same without the encoder, cut to the square in the middle.
 *
 * The same coefficients: what jpegtran does, turning included. Progressive and arithmetic files become baseline ones.
 *
 * Why C: no package does both without Python's global lock, and none resamples rows as they come, or planes as they are
 * stored. ICC profiles are kept, and nothing else that is not the image. Several images are made of a source at once:
 * what is read and decoded for one serves the others.
 * Nothing here is thread-safe but in this sense: each thread has its own Packer.
 */

#include "jpeg_resize.h"

enum { DIFFERENT = 5 };

static void transcode(Packer *packer, const Order *order) {
    Output *output = packer->outputs;
    new_target(packer, output);
    jvirt_barray_ptr *coefficients = jpeg_read_coefficients(&packer->source);
    jpeg_copy_critical_parameters(&packer->source, &output->target);
    output->target.optimize_coding = TRUE;
    jpeg_write_coefficients(&output->target, coefficients);
    write_markers(packer, output, order->orientation);
    jpeg_finish_compress(&output->target);
    jpeg_finish_decompress(&packer->source);
}

/* How pixels are brought upright: axes change places, then columns and rows are read from their ends. */
typedef struct {
    int transpose, columns, rows;
} Turn;

static Turn turn_of(int orientation) {
    static const Turn turns[] = {{0}, {0}, {0, 1, 0}, {0, 1, 1}, {0, 0, 1}, {1, 0, 0}, {1, 1, 0}, {1, 1, 1}, {1, 0, 1}};
    return turns[orientation];
}

/* A block whose pixels are turned: the odd frequencies of an axis that is read from its end change their signs. */
static void turn_block(Turn turn, const JCOEF *from, JCOEF *into) {
    for (int v = 0; v < DCTSIZE; v++)
        for (int u = 0; u < DCTSIZE; u++) {
            JCOEF value = turn.transpose ? from[u * DCTSIZE + v] : from[v * DCTSIZE + u];
            into[v * DCTSIZE + u] = (turn.columns & u & 1) ^ (turn.rows & v & 1) ? (JCOEF)-value : value;
        }
}

/* Sampling and quantisation belong to the axes. */
static void transpose_parameters(j_compress_ptr into) {
    JDIMENSION width = into->image_width;
    into->image_width = into->image_height;
    into->image_height = width;
#if JPEG_LIB_VERSION >= 70
    into->jpeg_width = into->image_width;
    into->jpeg_height = into->image_height;
#endif
    for (int c = 0; c < into->num_components; c++) {
        int across = into->comp_info[c].h_samp_factor;
        into->comp_info[c].h_samp_factor = into->comp_info[c].v_samp_factor;
        into->comp_info[c].v_samp_factor = across;
    }
    for (int i = 0; i < NUM_QUANT_TBLS; i++)
        for (int v = 0; into->quant_tbl_ptrs[i] && v < DCTSIZE; v++)
            for (int u = 0; u < v; u++) {
                UINT16 *values = into->quant_tbl_ptrs[i]->quantval, value = values[v * DCTSIZE + u];
                values[v * DCTSIZE + u] = values[u * DCTSIZE + v];
                values[u * DCTSIZE + v] = value;
            }
}

/* The same coefficients, turned, as jpegtran -perfect does it: where an axis is read from its end, whole units of the
 * sampling have to fill it, or the padding would come first. */
static void turn_upright(Packer *packer, const Order *order) {
    j_decompress_ptr from = &packer->source;
    Output *output = packer->outputs;
    j_compress_ptr into = &output->target;
    Turn turn = turn_of(order->turn);
    JDIMENSION unit_x = (JDIMENSION)from->max_h_samp_factor * DCTSIZE;
    JDIMENSION unit_y = (JDIMENSION)from->max_v_samp_factor * DCTSIZE;
    int x_from_end = turn.transpose ? turn.rows : turn.columns, y_from_end = turn.transpose ? turn.columns : turn.rows;
    if ((x_from_end && from->image_width % unit_x) || (y_from_end && from->image_height % unit_y))
        leave((j_common_ptr)from, NOT_FOR_US);
    JDIMENSION units_x = (from->image_width + unit_x - 1) / unit_x;
    JDIMENSION units_y = (from->image_height + unit_y - 1) / unit_y;
    jvirt_barray_ptr turned[MAX_COMPONENTS];
    for (int c = 0; c < from->num_components; c++) {
        const jpeg_component_info *own = from->comp_info + c;
        JDIMENSION across = units_x * (JDIMENSION)own->h_samp_factor, down = units_y * (JDIMENSION)own->v_samp_factor;
        JDIMENSION width = turn.transpose ? down : across, height = turn.transpose ? across : down;
        /* As many rows at once as the encoder asks for. */
        JDIMENSION rows = (JDIMENSION)(turn.transpose ? own->h_samp_factor : own->v_samp_factor);
        turned[c] = from->mem->request_virt_barray((j_common_ptr)from, JPOOL_IMAGE, FALSE, width, height, rows);
    }
    new_target(packer, output);
    jvirt_barray_ptr *coefficients = jpeg_read_coefficients(from);
    jpeg_copy_critical_parameters(from, into);
    if (turn.transpose) transpose_parameters(into);
    for (int c = 0; c < from->num_components; c++) {
        const jpeg_component_info *own = from->comp_info + c;
        JDIMENSION across = units_x * (JDIMENSION)own->h_samp_factor, down = units_y * (JDIMENSION)own->v_samp_factor;
        JDIMENSION width = turn.transpose ? down : across, height = turn.transpose ? across : down;
        for (JDIMENSION y = 0; y < height; y++) {
            JBLOCKARRAY to = from->mem->access_virt_barray((j_common_ptr)from, turned[c], y, 1, TRUE);
            JDIMENSION v = turn.rows ? height - 1 - y : y;
            for (JDIMENSION x = 0; x < width; x++) {
                JDIMENSION u = turn.columns ? width - 1 - x : x;
                JDIMENSION row = turn.transpose ? u : v, column = turn.transpose ? v : u;
                JBLOCKARRAY at = from->mem->access_virt_barray((j_common_ptr)from, coefficients[c], row, 1, FALSE);
                turn_block(turn, at[0][column], to[0][x]);
            }
        }
    }
    into->optimize_coding = TRUE;
    jpeg_write_coefficients(into, turned);
    write_markers(packer, output, order->orientation);
    jpeg_finish_compress(into);
    jpeg_finish_decompress(from);
}

/* Makes the images that are ordered, at most MOST_ORDERS, or a single one without loss. JPEGs of which the source is
 * decoded at the same fraction of its size share that, and so do pixels. Where one of them fails, all do. The outputs
 * belong to the packer, until the next call. */
int pipetune_jpeg_pack(Packer *packer, const unsigned char *data, size_t length, const Order *orders, int count,
                       const unsigned char **outs, size_t *lengths) {
    j_decompress_ptr from = &packer->source;
    packer->message[0] = 0;
    if (setjmp(packer->out_of_here)) {
        for (int i = 0; i < MOST_ORDERS; i++) jpeg_abort_compress(&packer->outputs[i].target);
        jpeg_abort_decompress(from);
        return packer->status;
    }
    if (count < 1 || count > MOST_ORDERS) return NOT_FOR_US;
    for (const Order *one = orders; one < orders + count; one++) {
        int fits = one->width ? one->height > 0 && !one->turn : count == 1 && !one->square;
        if (!fits || one->width < 0 || one->square < 0 || one->turn < 0 || one->turn > 8) return NOT_FOR_US;
    }
    read_header(packer, from, data, length);
    if (!orders->width) {
        if (orders->turn > 1) turn_upright(packer, orders);
        else transcode(packer, orders);
    } else {
        if (from->jpeg_color_space != JCS_YCbCr && from->jpeg_color_space != JCS_GRAYSCALE)
            leave((j_common_ptr)from, NOT_FOR_US);
        int done = 0;
        for (int kind = 0; kind < 8; kind++) { /* four fractions, JPEGs and pixels */
            int made = resize(packer, orders, count, 1u << kind / 2, kind % 2);
            done += made;
            if (made && done < count) read_header(packer, from, data, length);
        }
    }
    for (int i = 0; i < count; i++) {
        outs[i] = packer->outputs[i].out;
        lengths[i] = packer->outputs[i].length;
    }
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
