/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elias-Fano record of k increasing indices below n. An index is split into its low L bits and the
 * rest, its bucket. As one string of bits, first bit = lowest bit of the first byte:
 *
 *     |  upper: U = k + (n-1 >> L) bits           |  low: k fields of L bits  |  zero bits  |
 *     |  bit (bucket[j] + j) is 1 for each j < k  |  index[j] mod 2^L         |  to 4 bytes |
 *
 * L is the smallest at which one bit more per field is no gain: k bits against the halved number of
 * buckets. If k == n there is nothing to say and nothing is written.
 *
 * Every set has exactly one record; the reader refuses anything else.
 */
#include "codec/indices.h"
#include "base/memory.h"
#include "base/status.h"
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "wire words are read as they lie");

enum { WORD = 32, LOW_MAX = 32 };

static uint32_t load(const unsigned char *record, size_t word)
{
    uint32_t value;
    memcpy(&value, record + word * sizeof(value), sizeof(value));
    return value;
}

static void set_bits(unsigned char *record, size_t word, uint32_t bits)
{
    bits |= load(record, word);
    memcpy(record + word * sizeof(bits), &bits, sizeof(bits));
}

struct wri_indices wri_indices_layout(size_t n, size_t k)
{
    struct wri_indices layout = {.n = n, .k = k};
    if (k == n)
        return layout;
    unsigned low = 0;
    while (low < LOW_MAX && ((n - 1) >> low) - ((n - 1) >> (low + 1)) > k)
        low++;
    layout.low_bits = low;
    layout.upper_bits = k + ((n - 1) >> low);
    layout.nbytes = wri_div_up(layout.upper_bits + k * low, WORD) * sizeof(uint32_t);
    return layout;
}

void wri_indices_write(const struct wri_indices *layout, const size_t *index, void *dst)
{
    unsigned char *record = dst;
    unsigned low = layout->low_bits;
    uint64_t mask = ((uint64_t)1 << low) - 1;
    if (layout->nbytes == 0)
        return;
    memset(record, 0, layout->nbytes);
    for (size_t j = 0; j < layout->k; j++) {
        size_t one = (index[j] >> low) + j;
        set_bits(record, one / WORD, (uint32_t)1 << one % WORD);
    }
    size_t at = layout->upper_bits;
    for (size_t j = 0; j < layout->k; j++, at += low) {
        uint64_t field = (index[j] & mask) << at % WORD;
        if ((uint32_t)field)
            set_bits(record, at / WORD, (uint32_t)field);
        if (field >> WORD) /* only then is there a next word for sure */
            set_bits(record, at / WORD + 1, (uint32_t)(field >> WORD));
    }
}

/* The field of LOW bits at bit AT; all of its bits lie inside the record. */
static uint64_t low_field(const unsigned char *record, size_t at, unsigned low)
{
    if (low == 0)
        return 0;
    uint64_t bits = load(record, at / WORD);
    if (at % WORD + low > WORD)
        bits |= (uint64_t)load(record, at / WORD + 1) << WORD;
    return bits >> at % WORD & (((uint64_t)1 << low) - 1);
}

/* The bucket of each index; how many there are, or k + 1 if more than k. */
static size_t read_upper(const struct wri_indices *layout, const unsigned char *record,
                         size_t *bucket_out)
{
    size_t found = 0;
    for (size_t base = 0; base < layout->upper_bits; base += WORD) {
        uint32_t ones = load(record, base / WORD);
        if (layout->upper_bits - base < WORD)
            ones &= ((uint32_t)1 << (layout->upper_bits - base)) - 1;
        for (; ones; ones &= ones - 1, found++) {
            if (found == layout->k)
                return found + 1;
            bucket_out[found] = base + (size_t)__builtin_ctz(ones) - found;
        }
    }
    return found;
}

static bool padding_is_zero(const struct wri_indices *layout, const unsigned char *record)
{
    size_t used = layout->upper_bits + layout->k * layout->low_bits;
    return used % WORD == 0 || load(record, used / WORD) >> used % WORD == 0;
}

wring_status wri_indices_read(const struct wri_indices *layout, const void *src, size_t *index_out)
{
    const unsigned char *record = src;
    size_t at = layout->upper_bits, least = 0; /* what the next index must reach */
    if (layout->nbytes == 0) {
        for (size_t j = 0; j < layout->k; j++)
            index_out[j] = j;
        return WRING_OK;
    }
    if (read_upper(layout, record, index_out) != layout->k || !padding_is_zero(layout, record))
        WRI_FAIL(WRING_E_CORRUPT, "index record does not hold %zu indices", layout->k);
    for (size_t j = 0; j < layout->k; j++, at += layout->low_bits) {
        index_out[j] = index_out[j] << layout->low_bits | low_field(record, at, layout->low_bits);
        if (index_out[j] < least || index_out[j] >= layout->n)
            WRI_FAIL(WRING_E_CORRUPT, "index record: index %zu of %zu is %zu, expected %zu..%zu", j,
                     layout->k, index_out[j], least, layout->n - 1);
        least = index_out[j] + 1;
    }
    return WRING_OK;
}
