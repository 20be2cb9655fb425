/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how the k largest magnitudes are found. Magnitudes are compared as integers: the bits of
 * |x| order like |x|, and NaN above all. Three steps, each linear in n whatever the data:
 *
 *   gather   keys that reach a guess, by groups that are skipped as a whole if none does; without a
 *            guess, or if it let fewer than k through, all keys
 *   narrow   the k-th largest of these, by 256 bins over their range, then over that of the bin that
 *            holds it: at most four rounds, each exact
 *   mark     positions above that threshold, and the first of those equal to it
 */
#include "codec/select.h"
#include <string.h>

enum { GROUP = 16, BINS = 256, BIN_BITS = 8 };

/* By how much the next guess is lower than this threshold: an eighth of an octave, so that 1 % of
 * normally distributed values become about 2 % candidates. */
enum { HINT_MARGIN = 1 << 20 };

/* The magnitude bits of one group. */
static inline void load_group(const float *values, size_t count, uint32_t group[GROUP])
{
    memcpy(group, values, count * sizeof(float));
    for (size_t j = 0; j < GROUP; j++)
        group[j] &= 0x7FFFFFFFu;
}

/* Signed compares, since keys have 31 bits: they exist at every SIMD level. */
static inline bool reaches(const uint32_t group[GROUP], uint32_t least)
{
    int any = 0;
    for (size_t j = 0; j < GROUP; j++)
        any |= (int32_t)group[j] >= (int32_t)least;
    return any;
}

static inline size_t append_reaching(const uint32_t *group, size_t count, uint32_t least,
                                     uint32_t *keys, size_t found)
{
    for (size_t j = 0; j < count; j++) {
        keys[found] = group[j];
        found += group[j] >= least;
    }
    return found;
}

/* Write the keys that are at least LEAST to KEYS; how many. */
static size_t gather(const float *values, size_t n, uint32_t least, uint32_t *keys)
{
    uint32_t group[GROUP];
    size_t found = 0, i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        load_group(values + i, GROUP, group);
        if (reaches(group, least))
            found = append_reaching(group, GROUP, least, keys, found);
    }
    memset(group, 0, sizeof(group));
    load_group(values + i, n - i, group);
    return append_reaching(group, n - i, least, keys, found);
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

/* The *K-th largest of KEYS, which are used up; *K becomes how many of the keys equal to it are among
 * the k largest. */
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

static inline size_t mark_group(const uint32_t *group, size_t count, size_t first, uint32_t least,
                                size_t *ties, size_t *positions, size_t found)
{
    for (size_t j = 0; j < count; j++) {
        bool tie = group[j] == least && *ties > 0;
        positions[found] = first + j;
        found += group[j] > least || tie;
        *ties -= tie;
    }
    return found;
}

/* Positions of all keys above LEAST and of the first TIES that equal it: K in all. */
static void mark(const float *values, size_t n, uint32_t least, size_t ties, size_t k,
                 size_t *positions)
{
    uint32_t group[GROUP];
    size_t found = 0, i = 0;
    for (; i + GROUP <= n && found < k; i += GROUP) {
        load_group(values + i, GROUP, group);
        if (reaches(group, least))
            found = mark_group(group, GROUP, i, least, &ties, positions, found);
    }
    if (found == k)
        return;
    memset(group, 0, sizeof(group));
    load_group(values + i, n - i, group);
    mark_group(group, n - i, i, least, &ties, positions, found);
}

void wri_select_largest(const float *values, size_t n, size_t k, uint32_t *keys, uint32_t *hint,
                        size_t *positions_out)
{
    size_t ties = k, found = *hint > 0 ? gather(values, n, *hint, keys) : 0;
    if (found < k)
        found = gather_all(values, n, keys);
    uint32_t least = kth_largest(keys, found, &ties);
    *hint = least > HINT_MARGIN ? least - HINT_MARGIN : 0;
    mark(values, n, least, ties, k, positions_out);
}
