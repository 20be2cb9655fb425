/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how the k largest magnitudes are found. Magnitudes are compared as integers: the bits of
 * |x| order like |x|, and NaN above all. Three steps, each linear in n whatever the data:
 *
 *   candidates  a bit for every magnitude that reaches a guess, and the list of these magnitudes;
 *               of all without a guess, or if it let fewer than k through. The guess comes from the
 *               threshold of similar data before, or for many values from a sample
 *   narrow      the k-th largest of these, by 256 bins over their range, then over that of the bin
 *               that holds it: at most four rounds, each exact
 *   choose      of the candidates, those above that threshold, and the first of those equal to it
 */
#include "codec/select.h"
#include "base/memory.h"
#include "simd/kernels.h"
#include <string.h>

enum { WORD = 32, BINS = 256, BIN_BITS = 8, SAMPLE = 16384 };

/* By how much the next guess is lower than this threshold: an eighth of an octave, so that 1 % of
 * normally distributed values become about 2 % candidates. */
enum { HINT_MARGIN = 1 << 20 };

static inline uint32_t magnitude(const float *value)
{
    uint32_t bits;
    memcpy(&bits, value, sizeof(bits));
    return bits & 0x7FFFFFFFu;
}

/* Write the magnitudes of all marked values to KEYS; how many. */
static size_t gather_marked(const float *values, size_t n, const uint32_t *bitmap, uint32_t *keys)
{
    size_t found = 0;
    for (size_t word = 0; word < wri_div_up(n, WORD); word++)
        for (uint32_t bits = bitmap[word]; bits; bits &= bits - 1)
            keys[found++] = magnitude(values + word * WORD + __builtin_ctz(bits));
    return found;
}

static size_t gather_all(const float *values, size_t n, uint32_t *keys)
{
    memcpy(keys, values, n * sizeof(*keys));
    for (size_t i = 0; i < n; i++)
        keys[i] &= 0x7FFFFFFFu;
    return n;
}

static void range(const uint32_t *keys, size_t count, uint32_t *low_out, uint32_t *high_out)
{
    int32_t low = INT32_MAX, high = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t key = (int32_t)keys[i];
        low = key < low ? key : low;
        high = key > high ? key : high;
    }
    *low_out = (uint32_t)low;
    *high_out = (uint32_t)high;
}

/* The bin that holds the *K-th largest key; *K becomes its rank inside the bin. */
static uint32_t find_bin(const uint32_t *keys, size_t count, uint32_t low, unsigned shift,
                         size_t *k)
{
    size_t bins[BINS] = {0};
    for (size_t i = 0; i < count; i++)
        bins[(keys[i] - low) >> shift]++;
    uint32_t bin = BINS - 1;
    for (; bins[bin] < *k; bin--)
        *k -= bins[bin];
    return bin;
}

static size_t keep_bin(uint32_t *keys, size_t count, uint32_t low, unsigned shift, uint32_t bin)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t key = keys[i];
        keys[kept] = key;
        kept += (key - low) >> shift == bin;
    }
    return kept;
}

/* The *K-th largest of KEYS, which are used up; *K becomes how many of the keys equal to it are
 * among the k largest. */
static uint32_t kth_largest(uint32_t *keys, size_t count, size_t *k)
{
    for (;;) {
        uint32_t low, high;
        range(keys, count, &low, &high);
        if (low == high)
            return low;
        unsigned bits = 32 - (unsigned)__builtin_clz(high - low);
        unsigned shift = bits > BIN_BITS ? bits - BIN_BITS : 0;
        uint32_t bin = find_bin(keys, count, low, shift, k);
        count = keep_bin(keys, count, low, shift, bin);
    }
}

/* Positions of all marked values above LEAST and of the first TIES that equal it. */
static void choose(const float *values, size_t n, const uint32_t *bitmap, uint32_t least,
                   size_t ties, size_t *positions)
{
    for (size_t word = 0; word < wri_div_up(n, WORD); word++)
        for (uint32_t bits = bitmap[word]; bits; bits &= bits - 1) {
            size_t i = word * WORD + (size_t)__builtin_ctz(bits);
            uint32_t key = magnitude(values + i);
            if (key < least || (key == least && ties == 0))
                continue;
            ties -= key == least;
            *positions++ = i;
        }
}

/* A guess for many values: what twice the share reaches in a sample. The share itself would let too
 * few through every other time. 0 if a sample says little. */
static uint32_t guess(const float *values, size_t n, size_t k, uint32_t *keys)
{
    size_t stride = n / SAMPLE, rank = stride ? k / stride * 2 + SAMPLE / 512 : SAMPLE;
    if (stride < 4 || rank >= SAMPLE)
        return 0;
    for (size_t i = 0; i < SAMPLE; i++)
        keys[i] = magnitude(values + i * stride);
    return kth_largest(keys, SAMPLE, &rank);
}

void wri_select_largest(struct wri_selection *selection, const float *values, size_t n, size_t k,
                        size_t *positions_out)
{
    const struct wri_kernels *kernels = wri_kernels();
    uint32_t *keys = selection->keys, *bitmap = selection->bitmap;
    size_t ties = k, found = 0;
    uint32_t hint = selection->hint > 0 ? selection->hint : guess(values, n, k, keys);
    if (hint > 0) {
        kernels->find_large(values, n, hint, bitmap);
        found = gather_marked(values, n, bitmap, keys);
    }
    bool guessed = found >= k;
    if (!guessed)
        found = gather_all(values, n, keys);
    uint32_t least = kth_largest(keys, found, &ties);
    if (!guessed)
        kernels->find_large(values, n, least, bitmap);
    choose(values, n, bitmap, least, ties, positions_out);
    selection->hint = least > HINT_MARGIN ? least - HINT_MARGIN : 0;
}
