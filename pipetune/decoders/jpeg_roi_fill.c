/* Several samples of a batch in one call: reads their files, draws their crops, decodes them into their places.
 *
 * What this cannot do (another format, an image to be rotated, a damaged or absent file) it leaves to its caller, which
 * knows more decoders and says what is wrong.
 */

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jpeg_roi.h"

/* Flags of a file: its EXIF orientation, and whether it is a JPEG, or pixels as they are. */
enum { UPRIGHT = 1, RAW = 0x40, JPEG = 0x80 };

/* The files of a data set; see pipetune.decoders.contract.Files. */
typedef struct {
    const char *paths;      /* of the files, or of the shards that they lie in; each ends with a zero byte */
    const int64_t *starts;  /* where each path begins */
    const unsigned char *flags;
    const int64_t *places;  /* in shards: of each file its shard, its first byte and its length; else NULL */
    const unsigned char *held; /* what the places are in, where it is memory and no shard; else NULL */
    const int32_t *sizes; /* width and height of each (px) */
    int64_t count;
    double scale[2], log_ratio[2]; /* of random crops: area, logarithm of the aspect ratio */
} Files;

/* Reads a file, or length bytes from start on; 0: it cannot be read, is empty, no regular file or larger than most. */
static size_t read_file(Reader *reader, const char *path, int64_t start, int64_t length) {
    const int64_t most = 64 << 20, kept = 8 << 20; /* memory beyond the latter is let go of with the next small file */
    struct stat status;
    size_t filled = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* to open a named pipe would wait for its writer */
    if (file < 0) return 0;
    if (fstat(file, &status) || !S_ISREG(status.st_mode)) length = 0;
    else if (length < 0) length = (int64_t)status.st_size;
    if (length > 0 && length <= most && ((int64_t)reader->room < length ||
                                         ((int64_t)reader->room > kept && length <= kept / 2))) {
        free(reader->file);
        reader->room = (size_t)(length <= kept / 2 ? 2 * length : length);
        reader->file = malloc(reader->room);
        if (!reader->file) reader->room = 0;
    }
    if (length > 0 && length <= most && reader->file)
        while (filled < (size_t)length) {
            ssize_t count = pread(file, reader->file + filled, (size_t)length - filled, (off_t)start + (off_t)filled);
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) break;
            filled += (size_t)count;
        }
    close(file);
    return filled == (size_t)length ? filled : 0;
}

/* SplitMix64, as in pipetune.decoders.crop, whose draw_crop this has to equal to the last bit. */
static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state) {
    *state += 0x9E3779B97F4A7C15u;
    return (double)(mix(*state) >> 11) * 0x1p-53;
}

/* {top, left, height, width, flip}; 0: no window was found in ten attempts. */
int pipetune_jpeg_roi_draw(const Files *files, uint64_t seed, uint64_t ticket, int height, int width, int crop[5]) {
    uint64_t state = mix(seed * 0x9E3779B97F4A7C15u + ticket);
    for (int attempt = 0; attempt < 10; attempt++) {
        double area = uniform(&state), ratio = uniform(&state);
        double target = (double)height * width * (files->scale[0] + (files->scale[1] - files->scale[0]) * area);
        double aspect = exp(files->log_ratio[0] + (files->log_ratio[1] - files->log_ratio[0]) * ratio);
        double w = rint(sqrt(target * aspect)), h = rint(sqrt(target / aspect));
        if (0 < w && w <= width && 0 < h && h <= height) {
            double y = uniform(&state), x = uniform(&state);
            crop[0] = (int)(y * (height - (int)h + 1));
            crop[1] = (int)(x * (width - (int)w + 1));
            crop[2] = (int)h;
            crop[3] = (int)w;
            crop[4] = uniform(&state) < 0.5;
            return 1;
        }
    }
    return 0;
}

/* A crop of an image that is stored as pixels: only its rows are read. */
static int fill_raw(Reader *reader, const Files *files, int64_t number, const int crop[5], Target *target) {
    const int64_t *place = files->places + 3 * number;
    int64_t row = 3 * (int64_t)files->sizes[2 * number], start = place[1] + crop[0] * row;
    const unsigned char *pixels = files->held ? files->held + start : NULL;
    if (!pixels) {
        if (!read_file(reader, files->paths + files->starts[place[0]], start, crop[2] * row)) return DAMAGED;
        pixels = reader->file;
    }
    target->flip = crop[4];
    return pipetune_raw_crop(reader, pixels + 3 * crop[1], row, crop[2], crop[3], target);
}

/* Fills samples, one after the other, and gives how many: the next one is not for us, damaged or not to be read.
 *
 * first: where the first sample lies; stride: from one to the next (bytes).
 */
int pipetune_jpeg_roi_fill(Reader *reader, const Files *files, const int64_t *tickets, int count, uint64_t seed,
                           int approximate, const Target *first, ptrdiff_t stride) {
    Target target = *first;
    int size[2], crop[5];
    for (int done = 0; done < count; done++, target.at += stride) {
        int64_t number = tickets[done] % files->count;
        const int64_t *place = files->places ? files->places + 3 * number : NULL;
        if (files->flags[number] == (UPRIGHT | RAW) && place) {
            int width = files->sizes[2 * number], height = files->sizes[2 * number + 1];
            if (place[2] != 3 * (int64_t)width * height) return done; /* fewer were there when they were read */
            if (!pipetune_jpeg_roi_draw(files, seed, (uint64_t)tickets[done], height, width, crop)) return done;
            if (fill_raw(reader, files, number, crop, &target) != OK) return done;
            continue;
        }
        if (files->flags[number] != (UPRIGHT | JPEG)) return done;
        const unsigned char *file = files->held ? files->held + place[1] : NULL;
        size_t length = file ? (size_t)place[2] : 0;
        if (!file) {
            const char *path = files->paths + files->starts[place ? place[0] : number];
            length = read_file(reader, path, place ? place[1] : 0, place ? place[2] : -1);
            file = reader->file;
        }
        if (!length || pipetune_jpeg_roi_header(reader, file, length, size) != OK) return done;
        if (!pipetune_jpeg_roi_draw(files, seed, (uint64_t)tickets[done], size[0], size[1], crop)) return done;
        target.flip = crop[4];
        if (pipetune_jpeg_roi_crop(reader, crop, approximate, &target) != OK) return done;
    }
    return count;
}
