/* Gives jpeg-roi's C functions JPEGs that are damaged at random; see fuzz.py, which compiles it with sanitizers.
 *
 * fuzz_jpeg FOLDER SEED SECONDS: prints one line of JSON. Input buffers are exactly as long as the file and outputs
 * exactly as long as the sample, so that a byte too many is found. A finding ends the process: a sanitizer's report, a
 * leak, or an image that takes longer than LIMIT_S.
 */

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "jpeg_roi.h"
#include "jpeg_pack.h"

#define MOST_FILES 512
#define LIMIT_S 20
/* Larger ones are decoded now and then only: they are slow, and differ in nothing but that. */
#define USUAL_PIXELS 1000000

typedef struct {
    const char *paths;
    const int64_t *starts;
    const unsigned char *flags;
    const int64_t *places;
    const unsigned char *held;
    const int32_t *sizes;
    int64_t count;
    double scale[2], log_ratio[2];
} Files;

Reader *pipetune_jpeg_roi_open(void);
void pipetune_jpeg_roi_close(Reader *reader);
int pipetune_jpeg_roi_fill(Reader *reader, const Files *files, const int64_t *tickets, int count, uint64_t seed,
                           int approximate, const Target *first, ptrdiff_t stride);
void __sanitizer_set_death_callback(void (*callback)(void));

static struct { unsigned char *data; size_t length; } corpus[MOST_FILES];
static int files;
static uint64_t state, seed;
static long iterations, headers, crops, fills, filled, raws, packs, packed;
static double slowest;

static uint64_t draw(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static size_t below(size_t limit) { return limit ? (size_t)(draw() % limit) : 0; }

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void on_death(void) { fprintf(stderr, "\nseed %llu, iteration %ld\n", (unsigned long long)seed, iterations); }

static void read_corpus(const char *folder) {
    DIR *listing = opendir(folder);
    char path[4096];
    for (struct dirent *entry; listing && files < MOST_FILES && (entry = readdir(listing));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "rb");
        if (!file) continue;
        fseek(file, 0, SEEK_END);
        corpus[files].length = (size_t)ftell(file);
        rewind(file);
        corpus[files].data = malloc(corpus[files].length);
        if (fread(corpus[files].data, 1, corpus[files].length, file) == corpus[files].length) files++;
        fclose(file);
    }
    if (listing) closedir(listing);
}

/* First byte of a random segment's marker; 0: none was found. */
static size_t segment(const unsigned char *data, size_t length, int kind) {
    size_t found[64], count = 0;
    for (size_t i = 2; i + 4 < length && count < 64; i++)
        if (data[i] == 0xFF && (kind ? (data[i + 1] & 0xF0) == kind : data[i + 1] >= 0xC0)) found[count++] = i;
    return count ? found[below(count)] : 0;
}

static unsigned char *mutate(const unsigned char *from, size_t *length) {
    size_t size = *length, extra = below(8) ? 0 : below(4096);
    unsigned char *data = malloc(size + extra + 1);
    memcpy(data, from, size);
    int changes = below(4) ? 1 + (int)below(4) : (int)below(40);
    for (int change = 0; change < changes && size > 4; change++) {
        size_t at = below(size), other, count;
        switch (below(9)) {
        case 0: data[at] ^= (unsigned char)(1 << below(8)); break;
        case 1: data[at] = (unsigned char)draw(); break;
        case 2: data[at] = 0xFF; break;
        case 3: /* size or sampling of the frame, or its kind */
            if ((other = segment(data, size, 0xC0)) && other + 16 < size)
                data[other + 1 + below(16)] = below(2) ? (unsigned char)draw() : (unsigned char)(0xC0 | below(16));
            break;
        case 4: /* within a segment */
            if ((other = segment(data, size, 0))) data[other + below(size - other < 40 ? size - other : 40)] = (unsigned char)draw();
            break;
        case 5: if (!below(4)) size = at + 1; break;
        case 6: /* a block moves */
            other = below(size), count = below(size - (at > other ? at : other));
            memmove(data + at, data + other, count);
            break;
        case 7: /* a segment comes again */
            if (extra && (other = segment(data, size, 0)) && (count = below(size - other)) && count < extra) {
                memmove(data + other + count, data + other, size - other);
                size += count, extra -= count;
            }
            break;
        default: memset(data + at, draw() & 1 ? 0 : 0xFF, below(size - at < 64 ? size - at : 64));
        }
    }
    unsigned char *exact = malloc(size);
    memcpy(exact, data, size);
    free(data);
    *length = size;
    return exact;
}

static Target aim(int size, int as_float, int last, unsigned char *at) {
    ptrdiff_t value = as_float ? (ptrdiff_t)sizeof(float) : 1;
    Target to = {.at = at, .size = size, .as_float = as_float, .flip = (int)below(2)};
    to.column = last ? 3 * value : value;
    to.row = size * to.column;
    to.channel = last ? value : size * to.row;
    for (int c = 0; c < 3; c++) to.scale[c] = 0.017f, to.shift[c] = -2.1f;
    return to;
}

static void one(Reader *reader) {
    int which = (int)below((size_t)files), size[2], crop[4], target = 1 + (int)below(40), as_float = (int)below(2);
    size_t length = corpus[which].length, bytes = (size_t)target * (size_t)target * 3 * (as_float ? sizeof(float) : 1);
    unsigned char *data = mutate(corpus[which].data, &length);
    if (pipetune_jpeg_roi_header(reader, data, length, size) == OK) {
        headers++;
        int64_t pixels = (int64_t)size[0] * size[1];
        if (pixels > 0 && (pixels <= USUAL_PIXELS || !below(200))) {
            crop[2] = below(4) ? 1 + (int)below((size_t)size[0]) : size[0];
            crop[3] = below(4) ? 1 + (int)below((size_t)size[1]) : size[1];
            crop[0] = (int)below((size_t)(size[0] - crop[2] + 1));
            crop[1] = (int)below((size_t)(size[1] - crop[3] + 1));
            unsigned char *out = malloc(bytes);
            Target to = aim(target, as_float, (int)below(2), out);
            crops += pipetune_jpeg_roi_crop(reader, crop, (int)below(2), &to) == OK;
            free(out);
        }
    }
    free(data);
}

/* Another JPEG of a damaged one; without loss, it has to have the same coefficients. */
static void pack(Packer *packer) {
    static const int samplings[] = {0, 444, 422, 420};
    int which = (int)below((size_t)files), lossless = !below(3);
    size_t length = corpus[which].length;
    unsigned char *data = mutate(corpus[which].data, &length);
    const unsigned char *outs[MOST_ORDERS] = {NULL};
    size_t lengths[MOST_ORDERS] = {0};
    Order orders[MOST_ORDERS];
    int count = lossless ? 1 : 1 + (int)below(3);
    for (int i = 0; i < count; i++) {
        orders[i] = (Order){.width = lossless ? 0 : 1 + (int)below(80), .height = lossless ? 0 : 1 + (int)below(80),
                            .quality = 1 + (int)below(100), .sampling = samplings[below(4)],
                            .orientation = 1 + (int)below(8)};
        if (!lossless && !below(3)) orders[i].square = 1 + (int)below(80);
        if (lossless && !below(2)) orders[i].turn = 2 + (int)below(7);
    }
    packs++;
    if (pipetune_jpeg_pack(packer, data, length, orders, count, outs, lengths) == OK) {
        packed++;
        for (int i = 0; i < count; i++) {
            unsigned char *exact = malloc(lengths[i]);
            memcpy(exact, outs[i], lengths[i]);
            if (lossless && !orders[i].turn && pipetune_jpeg_pack_same(packer, data, length, exact, lengths[i]) != OK) {
                fprintf(stderr, "what was written without loss has other coefficients");
                abort();
            }
            free(exact);
        }
    }
    free(data);
}

/* Two files through the batch's function, alone or as members of a shard. */
static void batch(Reader *reader, const char *path) {
    int which = (int)below((size_t)files), target = 1 + (int)below(24);
    size_t length = corpus[which].length, before = below(600);
    unsigned char *data = mutate(corpus[which].data, &length);
    FILE *file = fopen(path, "wb");
    if (!file) exit(3);
    for (size_t i = 0; i < before; i++) fputc(0, file);
    fwrite(data, 1, length, file);
    fwrite(corpus[which].data, 1, corpus[which].length, file);
    fclose(file);
    int64_t starts[1] = {0}, tickets[2] = {(int64_t)below(1000000), (int64_t)below(1000000)};
    int64_t places[6] = {0, (int64_t)before, (int64_t)length, 0, (int64_t)(before + length),
                         (int64_t)corpus[which].length + (below(8) ? 0 : 1000)};
    unsigned char flags[2] = {0x81, 0x81};
    Files table = {.paths = path, .starts = starts, .flags = flags, .places = places, .count = 2,
                   .scale = {0.08, 1.0}, .log_ratio = {log(0.75), log(4.0 / 3)}};
    size_t sample = (size_t)target * (size_t)target * 3;
    unsigned char *out = malloc(2 * sample);
    Target to = aim(target, 0, (int)below(2), out);
    filled += pipetune_jpeg_roi_fill(reader, &table, tickets, 2, draw(), (int)below(2), &to, (ptrdiff_t)sample);
    fills++;
    free(out);
    free(data);
}

/* Crops of pixels, as many bytes as they say they have, or fewer. */
static void raw(Reader *reader, const char *path) {
    int target = 1 + (int)below(40);
    int32_t sizes[2] = {1 + (int32_t)below(90), 1 + (int32_t)below(90)};
    int64_t starts[1] = {0}, tickets[1] = {(int64_t)below(1000000)}, length = 3 * (int64_t)sizes[0] * sizes[1];
    int64_t before = (int64_t)below(100), places[3] = {0, before, length}, missing = below(8) ? 0 : (int64_t)below(300);
    unsigned char flags[1] = {0x41}, *data = malloc((size_t)(before + length)), *out;
    for (int64_t i = 0; i < before + length; i++) data[i] = (unsigned char)draw();
    Files table = {.paths = path, .starts = starts, .flags = flags, .places = places, .sizes = sizes, .count = 1,
                   .scale = {0.08, 1.0}, .log_ratio = {log(0.75), log(4.0 / 3)}};
    if (below(2)) {
        /* Exactly as long as what is there of it. */
        size_t there = (size_t)(before + length > missing ? before + length - missing : 0);
        unsigned char *exact = malloc(there ? there : 1);
        memcpy(exact, data, there);
        free(data);
        data = exact;
        table.held = data;
        places[2] = there > (size_t)before ? (int64_t)there - before : 0;
    } else {
        FILE *file = fopen(path, "wb");
        if (!file) exit(3);
        fwrite(data, 1, (size_t)(before + length > missing ? before + length - missing : 0), file);
        fclose(file);
    }
    int as_float = (int)below(2);
    out = malloc((size_t)target * (size_t)target * 3 * (as_float ? sizeof(float) : 1));
    Target to = aim(target, as_float, (int)below(2), out);
    raws += pipetune_jpeg_roi_fill(reader, &table, tickets, 1, draw(), (int)below(2), &to, 0);
    free(out);
    free(data);
}

int main(int count, char **words) {
    if (count != 4) return 2;
    char path[4096];
    read_corpus(words[1]);
    seed = strtoull(words[2], NULL, 10);
    state = seed * 0x9E3779B97F4A7C15u + 1;
    double until = now(CLOCK_MONOTONIC) + atof(words[3]);
    snprintf(path, sizeof path, "%s/.batch-%s", words[1], words[2]);
    __sanitizer_set_death_callback(on_death);
    Reader *reader = pipetune_jpeg_roi_open();
    Packer *packer = pipetune_jpeg_pack_open();
    if (!files || !reader || !packer) return 2;
    for (double began = now(CLOCK_PROCESS_CPUTIME_ID); now(CLOCK_MONOTONIC) < until; iterations++) {
        struct itimerval limit = {.it_value = {.tv_sec = LIMIT_S}};
        setitimer(ITIMER_PROF, &limit, NULL); /* what hangs ends with SIGPROF */
        size_t kind = below(16);
        if (kind < 9) one(reader);
        else if (kind < 14) pack(packer);
        else if (kind < 15) raw(reader, path);
        else batch(reader, path);
        double ended = now(CLOCK_PROCESS_CPUTIME_ID);
        if (ended - began > slowest) slowest = ended - began;
        began = ended;
    }
    struct itimerval none = {0};
    setitimer(ITIMER_PROF, &none, NULL);
    pipetune_jpeg_roi_close(reader);
    pipetune_jpeg_pack_close(packer);
    for (int i = 0; i < files; i++) free(corpus[i].data);
    unlink(path);
    printf("{\"iterations\": %ld, \"headers\": %ld, \"crops\": %ld, \"fills\": %ld, \"filled\": %ld, "
           "\"raws\": %ld, \"packs\": %ld, \"packed\": %ld, \"slowest_s\": %.3f}\n",
           iterations, headers, crops, fills, filled, raws, packs, packed, slowest);
    return 0;
}
