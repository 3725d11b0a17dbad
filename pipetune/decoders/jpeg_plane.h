/* Resamples planes of 8-bit samples in whole numbers, for what makes JPEGs smaller (jpeg_resize.h, which alone includes
 * this). Down first, then across: the rows in between have 16 bits, six of them behind the point.
 *
 * Whole numbers, because they come to the same with and without AVX2. Why by hand: compilers do not find the
 * instruction that multiplies and adds two at a time, and an image takes 1.3 times as long without it, reading, decoding
 * and encoding included (-DPIPETUNE_PLAIN).
 */

#ifndef PIPETUNE_JPEG_PLANE_H
#define PIPETUNE_JPEG_PLANE_H

#include <stdint.h>

#include "jpeg_axis.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(PIPETUNE_PLAIN)
#include <immintrin.h>
#define BY_HAND
#endif

/* Bits behind the point: of weights, and of the rows between the two passes. A bicubic filter's weights are at most
 * 1.13 (at an edge), and the sums of their magnitudes below 1.5, so that 16 and 32 bits suffice. */
enum { WEIGHT_BITS = 14, MIDDLE_BITS = 6 };
enum { DOWN_SHIFT = WEIGHT_BITS - MIDDLE_BITS, ACROSS_SHIFT = WEIGHT_BITS + MIDDLE_BITS };
/* Kernels work on so many samples at once: buffers are a multiple of it, and so are the taps across. */
enum { AT_ONCE = 16, TAPS_AT_ONCE = 8 };

/* Which inputs an output is made of, along one axis. */
typedef struct {
    int *first, *count; /* of each output */
    int16_t *weights;   /* taps of each output; those behind its count are 0 */
    int taps;
} Taps;

INLINE size_t rounded(size_t number, size_t step) { return (number + step - 1) / step * step; }

/* Weights in whole numbers: what is rounded off one is added to the next, so that the sum is exactly 1. */
INLINE void take_weights(Taps *taps, const Axis *from, int outputs) {
    for (int o = 0; o < outputs; o++) {
        const float *weights = from->weights + (size_t)o * from->taps;
        int16_t *own = taps->weights + (size_t)o * taps->taps;
        double sum = 0.5;
        int before = 0;
        for (int i = 0; i < from->count[o]; i++) {
            sum += (double)weights[i] * (1 << WEIGHT_BITS);
            int now = (int)floor(sum);
            own[i] = (int16_t)(now - before);
            before = now;
        }
        for (int i = from->count[o]; i < taps->taps; i++) own[i] = 0;
        taps->first[o] = from->first[o];
        taps->count[o] = from->count[o];
    }
}

#ifdef BY_HAND
/* Two rows at a time; of an odd number, the last one once more with the weight 0 that follows. */
__attribute__((target("avx2"))) static void down_avx2(const unsigned char *const *rows, const int16_t *weights,
                                                      int count, int16_t *middle, int columns) {
    const __m256i half = _mm256_set1_epi32(1 << (DOWN_SHIFT - 1));
    for (int x = 0; x < columns; x += AT_ONCE) {
        __m256i left = half, right = half;
        for (int k = 0; k < count; k += 2) {
            int32_t pair = (uint16_t)weights[k] | (int32_t)((uint32_t)(uint16_t)weights[k + 1] << 16);
            __m256i both = _mm256_set1_epi32(pair);
            __m128i one = _mm_loadu_si128((const __m128i *)(rows[k] + x));
            __m128i other = _mm_loadu_si128((const __m128i *)(rows[k + 1 < count ? k + 1 : k] + x));
            __m256i low = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(one, other));
            __m256i high = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(one, other));
            left = _mm256_add_epi32(left, _mm256_madd_epi16(low, both));
            right = _mm256_add_epi32(right, _mm256_madd_epi16(high, both));
        }
        left = _mm256_srai_epi32(left, DOWN_SHIFT);
        right = _mm256_srai_epi32(right, DOWN_SHIFT);
        __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(left, right), 0xD8);
        _mm256_storeu_si256((__m256i *)(middle + x), packed);
    }
}

__attribute__((target("avx2"))) static inline __m256i two_halves(const int16_t *low, const int16_t *high) {
    __m256i both = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)low));
    return _mm256_inserti128_si256(both, _mm_loadu_si128((const __m128i *)high), 1);
}

/* The sums of two outputs, whose inputs and weights lie in the halves of a register. */
__attribute__((target("avx2"))) static inline __m256i two_sums(const Taps *across, const int16_t *middle, int o) {
    const int16_t *one = middle + across->first[o], *other = middle + across->first[o + 4];
    const int16_t *weights = across->weights + (size_t)o * across->taps, *others = weights + 4 * (size_t)across->taps;
    __m256i sum = _mm256_setzero_si256();
    for (int k = 0; k < across->taps; k += TAPS_AT_ONCE) {
        __m256i inputs = two_halves(one + k, other + k), both = two_halves(weights + k, others + k);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(inputs, both));
    }
    return sum;
}

__attribute__((target("avx2"))) static void across_avx2(const Taps *across, const int16_t *middle, unsigned char *line,
                                                        int width) {
    const __m256i half = _mm256_set1_epi32(1 << (ACROSS_SHIFT - 1));
    for (int o = 0; o < width; o += 8) {
        __m256i a = _mm256_hadd_epi32(two_sums(across, middle, o), two_sums(across, middle, o + 1));
        __m256i b = _mm256_hadd_epi32(two_sums(across, middle, o + 2), two_sums(across, middle, o + 3));
        __m256i sums = _mm256_srai_epi32(_mm256_add_epi32(_mm256_hadd_epi32(a, b), half), ACROSS_SHIFT);
        sums = _mm256_packs_epi32(sums, sums);
        sums = _mm256_packus_epi16(sums, sums);
        int32_t left = _mm256_extract_epi32(sums, 0), right = _mm256_extract_epi32(sums, 4);
        memcpy(line + o, &left, 4);
        memcpy(line + o + 4, &right, 4);
    }
}
#endif

/* The sum of rows with these weights: columns is a multiple of AT_ONCE. */
static void reduce_down(const unsigned char *const *rows, const int16_t *weights, int count, int16_t *middle,
                        int columns) {
#ifdef BY_HAND
    if (__builtin_cpu_supports("avx2")) {
        down_avx2(rows, weights, count, middle, columns);
        return;
    }
#endif
    for (int start = 0; start < columns; start += AT_ONCE) {
        int32_t sums[AT_ONCE];
        for (int x = 0; x < AT_ONCE; x++) sums[x] = 1 << (DOWN_SHIFT - 1);
        for (int k = 0; k < count; k++)
            for (int x = 0; x < AT_ONCE; x++) sums[x] += weights[k] * (int32_t)rows[k][start + x];
        for (int x = 0; x < AT_ONCE; x++) middle[start + x] = (int16_t)(sums[x] >> DOWN_SHIFT);
    }
}

/* A line of samples: width is a multiple of 8, and so many inputs as there are taps may be read behind the last one. */
static void reduce_across(const Taps *across, const int16_t *middle, unsigned char *line, int width) {
#ifdef BY_HAND
    if (__builtin_cpu_supports("avx2")) {
        across_avx2(across, middle, line, width);
        return;
    }
#endif
    const int16_t *weights = across->weights;
    for (int o = 0; o < width; o++, weights += across->taps) {
        const int16_t *from = middle + across->first[o];
        int32_t sum = 1 << (ACROSS_SHIFT - 1);
        for (int k = 0; k < across->taps; k++) sum += weights[k] * (int32_t)from[k];
        sum >>= ACROSS_SHIFT;
        line[o] = (unsigned char)(sum < 0 ? 0 : sum > 255 ? 255 : sum); /* a bicubic filter overshoots */
    }
}

#endif
