/* Makes images of a JPEG at other sizes, for jpeg_pack.c, which alone includes this.
 *
 * From one JPEG to the next, planes (brightness, and the two of colour) are resampled as they are stored, each to the
 * size that it has in the result: colour is neither enlarged nor converted on the way, and half of the work is not done
 * at all. Pixels are resampled as libjpeg gives them: red, green and blue, a plane each.
 *
 * Rows are resampled as they come, so that no decoded image ever lies in memory: those of a source wait in a ring until
 * the last output that they are part of is complete.
 */

#ifndef PIPETUNE_JPEG_RESIZE_H
#define PIPETUNE_JPEG_RESIZE_H

#include "jpeg_packer.h"

#if JPEG_LIB_VERSION >= 70
#define SCALED_DOWN(component) ((component)->DCT_v_scaled_size)
#define SCALED_ACROSS(component) ((component)->DCT_h_scaled_size)
#define SMALLEST_SCALED(jpeg) ((jpeg)->min_DCT_v_scaled_size)
#else
#define SCALED_DOWN(component) ((component)->DCT_scaled_size)
#define SCALED_ACROSS(component) ((component)->DCT_scaled_size)
#define SMALLEST_SCALED(jpeg) ((jpeg)->min_DCT_scaled_size)
#endif

/* Rows of a plane that come, or go, at once are at most so many. */
enum { MOST_ROWS = MAX_SAMP_FACTOR * DCTSIZE };

/* Memory that grows; what is in it is 0 or what was there before. */
static unsigned char *memory_for(Packer *packer, Memory *memory, size_t needed) {
    if (needed > memory->size) {
        unsigned char *at = NULL;
        if (posix_memalign((void **)&at, 64, needed)) leave((j_common_ptr)&packer->source, NO_MEMORY);
        memset(at, 0, needed);
        free(memory->at);
        *memory = (Memory){at, needed};
    }
    return memory->at;
}

static void set_sampling(Packer *packer, j_compress_ptr target, int sampling) {
    const jpeg_component_info *own = packer->source.comp_info;
    jpeg_component_info *luma = target->comp_info;
    int across = sampling == 444 ? 1 : 2, down = sampling == 420 ? 2 : 1;
    if (target->num_components != 3) return;
    if (!sampling && packer->source.num_components == 3) {
        int plain = own[1].h_samp_factor == 1 && own[1].v_samp_factor == 1 && own[2].h_samp_factor == 1 &&
                    own[2].v_samp_factor == 1 && own[0].h_samp_factor <= 2 && own[0].v_samp_factor <= 2;
        across = plain ? own[0].h_samp_factor : 1; /* of what is unusual nothing is left out */
        down = plain ? own[0].v_samp_factor : 1;
    }
    luma->h_samp_factor = across;
    luma->v_samp_factor = down;
}

static void begin_jpeg(Packer *packer, Output *output, const Order *order) {
    j_compress_ptr into = &output->target;
    new_target(packer, output);
    into->image_width = (JDIMENSION)order->width;
    into->image_height = (JDIMENSION)order->height;
    into->input_components = packer->source.num_components;
    into->in_color_space = packer->source.jpeg_color_space;
    jpeg_set_defaults(into);
    jpeg_set_quality(into, order->quality, TRUE);
    set_sampling(packer, into, order->sampling);
    into->raw_data_in = TRUE;
    jpeg_start_compress(into, TRUE);
    write_markers(packer, output, order->orientation);
}

/* The weights along one axis: outputs of the size scale, of which the first begins at start. */
static void weigh_plane(Taps *taps, Axis *room, int inputs, double start, double scale, int outputs) {
    weigh(room, inputs, start, scale * outputs, outputs, CUBIC);
    take_weights(taps, room, outputs);
}

/* Lays out one plane of an output: width x height samples, of which the first begins at (left, top) of the source's,
 * and each is as large as across x down of them. */
static void lay_out(Packer *packer, OutputPlane *plane, const SourcePlane *source, int width, int height, double left,
                    double top, double across, double down) {
    Axis room = {0};
    int across_taps = taps_of(across * width, width, CUBIC), down_taps = taps_of(down * height, height, CUBIC);
    /* Kernels make samples in groups, so there is room for more than the image has. */
    size_t wide = rounded((size_t)width, AT_ONCE), high = (size_t)height, most = wide > high ? wide : high;
    plane->across.taps = (int)rounded((size_t)across_taps, TAPS_AT_ONCE);
    plane->down.taps = (int)rounded((size_t)down_taps + 1, 2);
    plane->width = width, plane->height = height, plane->stride = wide;
    size_t of_ints = aligned(most * sizeof(int));
    size_t weights_across = aligned(wide * (size_t)plane->across.taps * sizeof(int16_t));
    size_t weights_down = aligned(high * (size_t)plane->down.taps * sizeof(int16_t));
    size_t floats_across = wide * (size_t)across_taps, floats_down = high * (size_t)down_taps;
    size_t floats = aligned((floats_across > floats_down ? floats_across : floats_down) * sizeof(float));
    size_t lines = aligned(wide * (size_t)plane->rows), pointers = aligned((size_t)plane->down.taps * sizeof(char *));
    size_t middle = aligned((source->stride + (size_t)plane->across.taps) * sizeof(int16_t));
    unsigned char *at = memory_for(packer, &plane->memory,
                                   6 * of_ints + weights_across + weights_down + floats + lines + pointers + middle);
    plane->across.first = (int *)at, at += of_ints;
    plane->across.count = (int *)at, at += of_ints;
    plane->down.first = (int *)at, at += of_ints;
    plane->down.count = (int *)at, at += of_ints;
    room.first = (int *)at, at += of_ints;
    room.count = (int *)at, at += of_ints;
    plane->across.weights = (int16_t *)at, at += weights_across;
    plane->down.weights = (int16_t *)at, at += weights_down;
    plane->pointers = (const unsigned char **)at, at += pointers;
    plane->middle = (int16_t *)at, at += middle;
    plane->lines = at, at += lines;
    room.weights = (float *)at;
    room.taps = across_taps;
    weigh_plane(&plane->across, &room, source->width, left, across, width);
    room.taps = down_taps;
    weigh_plane(&plane->down, &room, source->height, top, down, height);
    size_t behind = wide - (size_t)width;
    memset(plane->across.first + width, 0, behind * sizeof(int));
    memset(plane->across.weights + (size_t)width * plane->across.taps, 0,
           behind * (size_t)plane->across.taps * sizeof(int16_t));
    /* Taps of the weight 0 read behind the end of a row: zeros, so that nothing is read that was never written. */
    memset(plane->middle + source->stride, 0, (size_t)plane->across.taps * sizeof(int16_t));
}

/* Lays out an output: of a JPEG as many rows of each plane at a time as its encoder takes. */
static void begin_output(Packer *packer, Output *output, const Order *order) {
    j_decompress_ptr from = &packer->source;
    j_compress_ptr into = &output->target;
    double across = (double)from->image_width / order->width, down = (double)from->image_height / order->height;
    int edge = order->square;
    output->next = 0;
    if (edge) {
        if (edge > order->width || edge > order->height) leave((j_common_ptr)from, NOT_FOR_US);
        output->length = (size_t)edge * (size_t)edge * 3;
        make_room(packer, output, output->length);
        output->groups = (edge + DCTSIZE - 1) / DCTSIZE;
    } else {
        begin_jpeg(packer, output, order);
        int lines = into->max_v_samp_factor * DCTSIZE;
        output->groups = (order->height + lines - 1) / lines;
    }
    for (int c = 0; c < packer->colours; c++) {
        const SourcePlane *source = packer->planes + c;
        OutputPlane *plane = output->planes + c;
        /* Samples of the source's plane for each pixel of the target. */
        double wide = source->across * across, high = source->down * down;
        if (edge) {
            plane->rows = DCTSIZE;
            int left = (order->width - edge) / 2, top = (order->height - edge) / 2;
            lay_out(packer, plane, source, edge, edge, left * wide, top * high, wide, high);
        } else {
            const jpeg_component_info *own = into->comp_info + c;
            plane->rows = own->v_samp_factor * DCTSIZE;
            lay_out(packer, plane, source, (int)own->downsampled_width, (int)own->downsampled_height, 0, 0,
                    wide * into->max_h_samp_factor / own->h_samp_factor,
                    high * into->max_v_samp_factor / own->v_samp_factor);
        }
    }
}

/* The first row of the source that a group of rows needs, and the one behind the last one. */
static int first_row(const OutputPlane *plane, int group) { return plane->down.first[group * plane->rows]; }

static int end_row(const OutputPlane *plane, int group) {
    int last = (group + 1) * plane->rows;
    last = (last > plane->height ? plane->height : last) - 1;
    return plane->down.first[last] + plane->down.count[last];
}

/* Whether all rows that the next group of an output needs are there. */
static int is_ready(const Packer *packer, const Output *output) {
    for (int c = 0; c < packer->colours; c++)
        if (end_row(output->planes + c, output->next) > packer->planes[c].got) return 0;
    return 1;
}

static void take(SourcePlane *plane) {
    plane->got = plane->got + plane->step < plane->height ? plane->got + plane->step : plane->height;
}

/* Goes through the rows of the source as they will come, to see how many have to wait. */
static void find_rings(Packer *packer, Output *output, int reads) {
    int colours = packer->colours;
    for (int c = 0; c < colours; c++) packer->planes[c].got = 0;
    for (int read = 0; read < reads; read++) {
        for (int c = 0; c < colours; c++) {
            SourcePlane *plane = packer->planes + c;
            int oldest = output->next < output->groups ? first_row(output->planes + c, output->next) : plane->got;
            int waiting = plane->got - (oldest < plane->got ? oldest : plane->got) + plane->step;
            if (waiting > plane->ring) plane->ring = waiting;
        }
        for (int c = 0; c < colours; c++) take(packer->planes + c);
        while (output->next < output->groups && is_ready(packer, output)) output->next++;
    }
    if (output->next < output->groups) leave((j_common_ptr)&packer->source, NOT_FOR_US);
    output->next = 0;
}

/* The rows of a group of one plane. */
static void make_rows(const SourcePlane *source, OutputPlane *plane, int group) {
    int start = group * plane->rows;
    for (int row = 0; row < plane->rows && start + row < plane->height; row++) {
        int o = start + row, count = plane->down.count[o], place = plane->down.first[o] % source->ring;
        for (int k = 0; k < count; k++, place = place + 1 == source->ring ? 0 : place + 1)
            plane->pointers[k] = source->at + (size_t)place * source->stride;
        unsigned char *line = plane->lines + (size_t)row * plane->stride;
        reduce_down(plane->pointers, plane->down.weights + (size_t)o * plane->down.taps, count, plane->middle,
                    (int)source->stride);
        reduce_across(&plane->across, plane->middle, line, (int)plane->stride);
        /* Encoders take whole blocks: what is none of the image costs least where it is the same as its end. */
        memset(line + plane->width, line[plane->width - 1], plane->stride - (size_t)plane->width);
    }
}

static void encode_group(Output *output) {
    j_compress_ptr into = &output->target;
    JSAMPROW rows[3][MOST_ROWS];
    JSAMPARRAY planes[3];
    for (int c = 0; c < into->num_components; c++) {
        const OutputPlane *plane = output->planes + c;
        int left = plane->height - output->next * plane->rows;
        for (int row = 0; row < plane->rows; row++)
            rows[c][row] = plane->lines + (size_t)(row < left ? row : left - 1) * plane->stride;
        planes[c] = rows[c];
    }
    jpeg_write_raw_data(into, planes, (JDIMENSION)(into->max_v_samp_factor * DCTSIZE));
}

static void write_pixels(const Packer *packer, Output *output) {
    const OutputPlane *planes = output->planes;
    int start = output->next * planes->rows, colours = packer->colours;
    for (int row = 0; row < planes->rows && start + row < planes->height; row++) {
        unsigned char *to = output->out + (size_t)(start + row) * planes->width * 3;
        const unsigned char *lines[3];
        for (int c = 0; c < 3; c++) {
            const OutputPlane *plane = planes + (c < colours ? c : 0);
            lines[c] = plane->lines + (size_t)row * plane->stride;
        }
        for (int x = 0; x < planes->width; x++, to += 3) to[0] = lines[0][x], to[1] = lines[1][x], to[2] = lines[2][x];
    }
}

static unsigned divisor_of(const struct jpeg_decompress_struct *from, const Order *order) {
    unsigned divisor = 1;
    while (divisor < 8 && from->image_width / (2 * divisor) >= 2 * (JDIMENSION)order->width &&
           from->image_height / (2 * divisor) >= 2 * (JDIMENSION)order->height)
        divisor *= 2;
    return divisor;
}

/* The planes of the source, as it is decoded at this fraction of its size; gives how often rows will come. */
static int begin_planes(Packer *packer) {
    j_decompress_ptr from = &packer->source;
    int smallest = from->max_v_samp_factor * SMALLEST_SCALED(from);
    for (int c = 0; c < packer->colours; c++) {
        const jpeg_component_info *own = from->comp_info + c;
        SourcePlane *plane = packer->planes + c;
        plane->width = (int)own->downsampled_width, plane->height = (int)own->downsampled_height;
        plane->across = (double)own->h_samp_factor * SCALED_ACROSS(own) / (from->max_h_samp_factor * DCTSIZE);
        plane->down = (double)own->v_samp_factor * SCALED_DOWN(own) / (from->max_v_samp_factor * DCTSIZE);
        plane->stride = rounded((size_t)own->width_in_blocks * (size_t)SCALED_ACROSS(own), AT_ONCE);
        plane->step = own->v_samp_factor * SCALED_DOWN(own);
        if (plane->step > MOST_ROWS) leave((j_common_ptr)from, NOT_FOR_US);
    }
    return ((int)from->output_height + smallest - 1) / smallest;
}

/* The same for pixels, whose planes are as large as the image. */
static int begin_pixels(Packer *packer, unsigned divisor) {
    j_decompress_ptr from = &packer->source;
    for (SourcePlane *plane = packer->planes; plane < packer->planes + packer->colours; plane++) {
        plane->width = (int)from->output_width, plane->height = (int)from->output_height;
        plane->across = plane->down = 1.0 / divisor;
        plane->stride = rounded((size_t)plane->width, AT_ONCE);
        plane->step = DCTSIZE;
    }
    return ((int)from->output_height + DCTSIZE - 1) / DCTSIZE;
}

static void read_rows(Packer *packer) {
    j_decompress_ptr from = &packer->source;
    JSAMPROW rows[3][MOST_ROWS];
    JSAMPARRAY planes[3];
    for (int c = 0; c < packer->colours; c++) {
        SourcePlane *plane = packer->planes + c;
        for (int row = 0; row < plane->step; row++, plane->place = (plane->place + 1) % plane->ring)
            rows[c][row] = plane->at + (size_t)plane->place * plane->stride;
        planes[c] = rows[c];
        take(plane);
    }
    if (from->raw_data_out) {
        jpeg_read_raw_data(from, planes, (JDIMENSION)(from->max_v_samp_factor * SMALLEST_SCALED(from)));
        return;
    }
    size_t width = from->output_width;
    unsigned char *line = memory_for(packer, &packer->line, 3 * width);
    for (int row = 0; row < DCTSIZE && from->output_scanline < from->output_height; row++) {
        JSAMPROW to = packer->colours == 1 ? rows[0][row] : line;
        jpeg_read_scanlines(from, &to, 1);
        for (size_t x = 0; packer->colours == 3 && x < width; x++)
            rows[0][row][x] = line[3 * x], rows[1][row][x] = line[3 * x + 1], rows[2][row][x] = line[3 * x + 2];
    }
}

/* Makes the images, pixels or JPEGs, of which the source is decoded at this fraction of its size; gives how many. */
static int resize(Packer *packer, const Order *orders, int count, unsigned divisor, int pixels) {
    j_decompress_ptr from = &packer->source;
    int chosen[MOST_ORDERS], number = 0;
    for (int i = 0; i < count; i++)
        if (divisor_of(from, orders + i) == divisor && !orders[i].square == !pixels) chosen[number++] = i;
    if (!number) return 0;
    packer->colours = from->num_components;
    from->scale_num = 1;
    from->scale_denom = divisor;
    from->raw_data_out = !pixels;
    from->out_color_space = packer->colours == 1 ? JCS_GRAYSCALE : pixels ? JCS_RGB : from->jpeg_color_space;
    jpeg_start_decompress(from);
    /* Of files without loss, libjpeg-turbo 3 gives pixels of the full size, whatever it is asked for. */
    if (from->scale_denom != divisor || from->raw_data_out != !pixels) leave((j_common_ptr)from, NOT_FOR_US);
    int reads = pixels ? begin_pixels(packer, divisor) : begin_planes(packer);
    for (int c = 0; c < packer->colours; c++) packer->planes[c].ring = 0;
    for (int i = 0; i < number; i++) {
        begin_output(packer, packer->outputs + chosen[i], orders + chosen[i]);
        find_rings(packer, packer->outputs + chosen[i], reads);
    }
    for (int c = 0; c < packer->colours; c++) {
        SourcePlane *plane = packer->planes + c;
        plane->at = memory_for(packer, &plane->memory, plane->stride * (size_t)plane->ring);
        plane->got = plane->place = 0;
    }
    for (int read = 0; read < reads; read++) {
        read_rows(packer);
        for (int i = 0; i < number; i++)
            for (Output *output = packer->outputs + chosen[i];
                 output->next < output->groups && is_ready(packer, output); output->next++) {
                for (int c = 0; c < packer->colours; c++)
                    make_rows(packer->planes + c, output->planes + c, output->next);
                if (pixels) write_pixels(packer, output);
                else encode_group(output);
            }
    }
    for (int i = 0; i < number && !pixels; i++) jpeg_finish_compress(&packer->outputs[chosen[i]].target);
    jpeg_finish_decompress(from);
    return number;
}

#endif
